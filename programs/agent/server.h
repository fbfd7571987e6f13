/*
 * gRPC calls as the agent's services see them. Everything here runs on the agent's one loop
 * thread; a service that has to wait for a disk uses uv_queue_work() and comes back.
 */
#ifndef AGENT_SERVER_H
#define AGENT_SERVER_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define AGENT_MESSAGE_MAX (4u << 20)
#define AGENT_CHUNK       (256u << 10) /* of data in one message */

struct agent_call;

struct agent_method {
    const char *path; /* "/sandbox.v1.Files/Read" */
    const ProtobufCMessageDescriptor *request;
    /*
     * One message of the caller. It is freed after the return. Never called after finish or gone.
     */
    void (*message)(struct agent_call *call, const ProtobufCMessage *request);
    /* The caller sends no more. NULL for calls with one request. */
    void (*end)(struct agent_call *call);
    /*
     * Less than the low mark is queued: send more. Also called once after the first message. NULL:
     * never.
     */
    void (*ready)(struct agent_call *call);
    /* The call is over, finished or reset: free what hangs on it. Always called last. */
    void (*gone)(struct agent_call *call);
    /* The bytes field that messages end with: where it is large it is not copied, but borrowed. */
    unsigned lends;
    bool not_over_tcp;   /* it moves the gate, or says what nobody on the way may read */
    bool always_allowed; /* in every gate state: it judges its caller itself */
    bool lasts;          /* ends when somebody wishes: cut when the gate closes */
    /*
     * What commands need to go on, and nobody's work: let in and carried while the gate is
     * quiesced, not waited for, no refusal of it counted. The seal ends it.
     */
    bool background;
    bool passive; /* does not count as activity (Health, Stats, Activity, attach) */
};

/* The service's own. */
void agent_call_set_data(struct agent_call *call, void *data);
void *agent_call_data(const struct agent_call *call);

/* Queues a message. False: the queue is over its high mark (1 MiB): stop until ready(). */
bool agent_call_send(struct agent_call *call, const ProtobufCMessage *message);
/*
 * Asks for ready() when there is room to send, whatever is queued. In ready(), and only there,
 * a service may lend: the message's last field `field` is those bytes, which are written from
 * where they are, before the loop turns. One message, then return; ready() comes again for more.
 */
void agent_call_wake(struct agent_call *call);
/* Its connection takes no more bytes for now. */
bool agent_call_is_stuck(const struct agent_call *call);
bool agent_call_may_lend(const struct agent_call *call);
void agent_call_lend(struct agent_call *call, const ProtobufCMessage *message, unsigned field,
                     const uint8_t *data, size_t size);
/* Stops taking messages of the caller (its window closes), and goes on. They nest not. */
void agent_call_pause(struct agent_call *call);
void agent_call_resume(struct agent_call *call);

/* Ends the call well after what is queued. No service function but gone() is called any more. */
void agent_call_finish(struct agent_call *call);
/* Ends it with a gRPC status number, a stable word, and one line without secrets. */
void agent_call_fail(struct agent_call *call, unsigned grpc_status, const char *reason,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));
/*
 * From an errno value: NOT_FOUND "no-such-file", ALREADY_EXISTS "exists", PERMISSION_DENIED
 * "denied", …
 */
void agent_call_fail_errno(struct agent_call *call, int number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * For work on other threads: a kept call stays valid memory after gone(); agent_call_is_over()
 * tells. All on the loop thread.
 */
void agent_call_keep(struct agent_call *call);
void agent_call_drop(struct agent_call *call);
bool agent_call_is_over(const struct agent_call *call);

/* The services' methods, each array ended by a NULL path. */
extern const struct agent_method agent_guard_methods[];
extern const struct agent_method agent_process_methods[];
extern const struct agent_method agent_file_methods[];
extern const struct agent_method agent_port_methods[];
extern const struct agent_method agent_egress_methods[];

/* Who works here, as Open said. */
struct agent_identity {
    char user[64];
    uint32_t uid, gid;
    uint32_t groups[64];
    unsigned group_count;
    char home[512];
    char directory[4096]; /* the workspace directory */
};
/* Borrowed, loop thread. Copy what a worker thread needs. */
const struct agent_identity *agent_identity(void);
/* From the guest's own passwd and group files, or "UID:GID". False: no such user. */
bool agent_identity_find(const char *user, struct agent_identity *out);
uv_loop_t *agent_loop(void);

#endif
