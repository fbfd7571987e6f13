/*
 * Commands of the workspace: what is known of each, and what the files of this service share.
 * Everything runs on the loop thread.
 *
 * processes.c           the table of processes and the service's methods
 * processes_start.c     from a request to a running process
 * processes_spawn.c     the child between clone and exec
 * processes_output.c    pipes, kept bytes, readers, the order of the end
 * processes_input.c     Write
 * processes_terminal.c  foreground jobs, and what gVisor leaves out of terminals
 * processes_tree.c      descendants, and how all of them are ended
 */
#ifndef AGENT_PROCESSES_H
#define AGENT_PROCESSES_H

#include "call.h"
#include "loop.h"
#include "processes.pb-c.h"
#include "ring.h"
#include "server.h"
#include <sys/types.h>

#define AGENT_PROCESS_ID_BYTES 16
#define AGENT_RUNNING_MAX      1024
#define AGENT_FINISHED_MAX     1024
#define AGENT_ACTIVE_MAX       64

/* Where a command's environment says whose descendant a process is. */
#define AGENT_PROCESS_VARIABLE "SANDBOX_PROCESS_ID"

struct agent_process;

/* One stream of output: a pipe, or the terminal. */
struct agent_output {
    struct agent_process *process;
    struct agent_watch *watch; /* NULL: at its end */
    struct agent_ring ring;
    bool was_read; /* since the last look of the quiet timer */
};

struct agent_reader {
    struct agent_call *call;
    struct agent_process *process;
    uint64_t offsets[2];
    unsigned turn; /* which stream goes first next time */
    bool full;     /* its call takes no more until it says so */
    struct agent_reader *next;
};

struct agent_write {
    struct agent_call *call;
    struct agent_process *process;
    uint64_t offset;
    uint8_t *data;
    size_t size;
    bool end, begun;
    struct agent_write *next;
};

struct agent_waiter {
    struct agent_call *call;
    struct agent_process *process;
    struct agent_waiter *next;
};

struct agent_process {
    uint8_t id[AGENT_PROCESS_ID_BYTES];
    pid_t pid; /* also its session and group */
    int64_t started_ms;
    Sandbox__V1__Role role;
    Sandbox__V1__WhenFull when_full;
    bool terminal;
    char user[64];
    char *command; /* at most 4 KiB of it */
    size_t command_size;

    bool exited;  /* reaped: its number may be anybody's */
    bool settled; /* its output is complete, its end was told */
    bool timed_out;
    bool forgotten; /* no longer in the table: only keeps a descendant's pipes from breaking */
    int status;
    uint64_t finished; /* the order of ends */

    struct agent_output outputs[2];
    struct agent_reader *readers;
    struct agent_waiter *waiters;

    struct agent_watch *input;
    uint64_t written;
    uint64_t pending_bytes;
    bool input_ended;
    uint64_t input_ended_at;
    struct agent_write *writes, **last_write;

    struct agent_timer *deadline, *quiet, *kill_again;
    uint64_t deadline_left_ms; /* while it is held; 0: there is none */
    unsigned quiet_rounds, kill_rounds;
    struct agent_process *next;
};

/* processes.c */
extern struct agent_process *agent_processes; /* newest first */
struct agent_process *agent_process_find(ProtobufCBinaryData id);
/* The same for a method: fails the call where there is none. */
struct agent_process *agent_process_of(struct agent_call *call, ProtobufCBinaryData id);
unsigned agent_process_running_count(void);
/* It runs. It is ended after `deadline_ms` unless that is 0. */
void agent_process_add(struct agent_process *process, uint32_t deadline_ms);
/* One that is in no table. Accepts NULL. */
void agent_process_free(struct agent_process *process);
void agent_process_exit(const struct agent_process *process, Sandbox__V1__Exit *out);
/* Its output is complete: tell everybody. */
void agent_process_settled(struct agent_process *process);
/* From init.c: a child has ended, perhaps one of ours. */
void agent_process_reaped(pid_t pid, int status);
/* Before the agent ends. True while something still runs. */
bool agent_process_kill_all(void);

struct agent_process_activity {
    uint32_t tasks, terminals;
    const struct agent_process *processes[AGENT_ACTIVE_MAX]; /* borrowed until the loop turns */
    size_t count;
};
void agent_process_activity(struct agent_process_activity *out);
/* Deadlines stand still, and go on with what is left of them; how many there are. */
void agent_process_hold_deadlines(void);
uint32_t agent_process_resume_deadlines(void);

/* processes_start.c: the method Start. */
void agent_process_start(struct agent_call *call, const ProtobufCMessage *message);

/* processes_output.c */
bool agent_output_open(struct agent_process *process, unsigned which, int fd, size_t limit);
/* The process was reaped: take what its pipes hold, then settle it. */
void agent_output_exited(struct agent_process *process);
void agent_output_release(struct agent_process *process);
void agent_process_attach(struct agent_call *call, const ProtobufCMessage *message);
void agent_process_attach_ready(struct agent_call *call);
void agent_process_attach_gone(struct agent_call *call);
/* Every reader gets what it lacks. */
void agent_output_pump(struct agent_process *process);

/* processes_input.c */
bool agent_input_open(struct agent_process *process, int fd);
void agent_input_exited(struct agent_process *process);
void agent_process_write(struct agent_call *call, const ProtobufCMessage *message);
void agent_process_write_gone(struct agent_call *call);

/* processes_terminal.c */
bool agent_terminal_has_job(const struct agent_process *process);
/* A runtime that does not do so itself is helped out: the programs learn of their new size. */
void agent_terminal_resized(const struct agent_process *process);
/*
 * How many of these bytes to write before one that is a signal and must not be written; where
 * the first is one, 0, and it was sent.
 */
size_t agent_terminal_typed(const struct agent_process *process, const uint8_t *data, size_t size);

/* processes_tree.c */
/* One process of the system, as /proc shows it. */
struct agent_seen {
    pid_t pid, parent, group, session;
    char state;
    uint64_t cpu_ticks, resident_pages, threads;
    struct agent_process *owner; /* whose descendant it is, itself included; NULL: nobody's */
    bool ours;                   /* a descendant of the agent */
};
/* All there are, owners found. Free with free(). False: no memory or no /proc. */
bool agent_tree_look(struct agent_seen **out, size_t *count);
bool agent_seen_lives(const struct agent_seen *seen);
/* Stopped, with all its threads, or dead. */
bool agent_seen_stands_still(const struct agent_seen *seen);
/* Ends the process and all its descendants, however often that takes. */
void agent_tree_kill(struct agent_process *process);

/* processes_spawn.c */
enum agent_spawn_step {
    AGENT_SPAWN_DONE,
    AGENT_SPAWN_CLONE,
    AGENT_SPAWN_TERMINAL,
    AGENT_SPAWN_USER,
    AGENT_SPAWN_DIRECTORY,
    AGENT_SPAWN_PROGRAM,
};

struct agent_spawn {
    char **argv; /* one free place comes before it */
    char **environment;
    const char *path; /* where a name without a slash is looked for */
    const char *directory;
    const struct agent_identity *identity;
    int input, output, errors; /* -1: what the agent has, /dev/null */
    bool terminal;
    uint32_t process_limit;
    uint64_t file_limit;
    /* The answer. */
    enum agent_spawn_step step;
    int number; /* errno */
};
/* The process's number; 0: `step` and `number` say why not, and nothing is left. */
pid_t agent_spawn(struct agent_spawn *spawn);

#endif
