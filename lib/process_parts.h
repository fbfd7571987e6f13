/*
 * What a process handle consists of. For the files of processes only:
 *
 *   process.c          the handle, and the calls that are one request
 *   process_options.c  what to run, checked and put into a request
 *   process_events.c   output and the end, over lost connections
 *   process_input.c    what it reads
 *   process_run.c      start, feed, read, wait: in one call
 *   process_list.c     all that the agent knows
 */
#ifndef SBX_PROCESS_PARTS_H
#define SBX_PROCESS_PARTS_H

#include "core/session.h"
#include "processes.pb-c.h"
#include "readiness.h"
#include "util/random.h"
#include <pthread.h>
#include <sandbox/process.h>

#define SBX_INPUT_PIECE (512u << 10) /* of input in one request */
#define SBX_TRIES 5                  /* after lost connections, without any progress between */

struct sandbox_process {
    sandbox_workspace *workspace;
    char id[SBX_ID_TEXT];
    uint8_t id_bytes[SBX_ID_BYTES];
    int64_t pid;
    bool piped; /* started by this handle, and not on a terminal: its input can be ended */

    pthread_mutex_t mutex; /* guards all of these */
    pthread_cond_t turns_changed;
    bool reading, writing; /* somebody's turn: what is below belongs to him */
    bool ended;
    sandbox_process_exit exit;
    struct sbx_readiness readiness;
    struct sbx_stream *stream; /* set with the mutex held, by whoever has the reading turn */

    /* The reading turn's. */
    Sandbox__V1__ProcessEvent *current; /* holds the bytes that were lent to the caller */
    struct sbx_lent lent; /* the bytes of `current`, where they are many */
    uint64_t output_offset, error_offset;
    unsigned failures;
    bool end_told;

    /* The writing turn's. */
    bool input_known;
    uint64_t input_offset;
    bool input_ended;
};

/* ---- process.c ---- */

sandbox_status sbx_process_check(sandbox_process *process, sandbox_error *error);
/* Names the process in a failure's error. Returns `status`. */
sandbox_status sbx_process_about(const sandbox_process *process, sandbox_status status,
                                 sandbox_error *error);
/* One turn at a time, `turn` is a member of the process. */
sandbox_status sbx_process_take_turn(sandbox_process *process, bool *turn,
                                     const struct sbx_wait *wait, sandbox_error *error);
void sbx_process_leave_turn(sandbox_process *process, bool *turn);
/* What sandbox_process_start() does after it has settled the options. */
sandbox_status sbx_process_begin(sandbox_workspace *workspace,
                                 const sandbox_process_options *options,
                                 const struct sbx_wait *wait, sandbox_process **out,
                                 sandbox_error *error);
/* The two halves of it: a handle for an id, and the request. */
sandbox_status sbx_process_new(sandbox_workspace *workspace, const char *id,
                               sandbox_process **out, sandbox_error *error);
sandbox_status sbx_process_ask_start(sandbox_process *process,
                                     const sandbox_process_options *options,
                                     const struct sbx_wait *wait, sandbox_error *error);
sandbox_status sbx_process_kill(sandbox_process *process, int signal_number, bool repeatable,
                                const struct sbx_wait *wait, sandbox_error *error);
/* The agent lies as it likes: what it says of an end is brought into range. */
sandbox_process_exit sbx_process_exit_of(const Sandbox__V1__Exit *exit);
void sbx_process_note_exit(sandbox_process *process, const sandbox_process_exit *exit);

/* ---- process_options.c ---- */

sandbox_status sbx_process_options_check(const sandbox_process_options *options,
                                         sandbox_error *error);
/* The request borrows everything from `options` and `parts`. */
struct sbx_start_parts {
    Sandbox__V1__Terminal terminal;
    ProtobufCBinaryData *argv, *env; /* free() */
};
sandbox_status sbx_process_request(const sandbox_process_options *options,
                                   const sandbox_process *process, struct sbx_start_parts *parts,
                                   Sandbox__V1__StartRequest *request, sandbox_error *error);

/* ---- process_events.c ---- */

/*
 * The next event. `patience` bounds the wait for it, `whole` what reattaching may take.
 */
sandbox_status sbx_process_take(sandbox_process *process, const struct sbx_wait *patience,
                                const struct sbx_wait *whole, sandbox_process_event *event,
                                sandbox_error *error);
/* Adds a descriptor to what makes sandbox_process_descriptor() readable, or takes it out. */
void sbx_process_watch(sandbox_process *process, int descriptor, bool wanted);
/* Attach and wait until the agent says that it knows the process. */
sandbox_status sbx_process_meet(sandbox_process *process, const struct sbx_wait *wait,
                                sandbox_error *error);

/* ---- process_input.c ---- */

void sbx_write_request(const sandbox_process *process, const void *data, size_t size, bool end,
                       Sandbox__V1__WriteRequest *request);

static inline ProtobufCBinaryData sbx_binary(const void *data, size_t size)
{
    union {
        const void *given;
        uint8_t *wanted; /* protobuf-c asks for it and only reads */
    } bytes = {.given = data};
    return (ProtobufCBinaryData){size, bytes.wanted};
}

#endif
