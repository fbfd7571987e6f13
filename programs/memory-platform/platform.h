/*
 * What the parts of the fake platform share. One process, one thread, one libuv loop; requests
 * come in over a Unix socket, one JSON object a line, and are answered in the same way. How the
 * requests look stands at the top of requests.c, the scripted faults at the top of faults.c.
 */
#ifndef MEMORY_PLATFORM_H
#define MEMORY_PLATFORM_H

#include "util/json.h"
#include <stdint.h>
#include <uv.h>

#define PLATFORM_LINE_MAX        (1u << 20) /* bytes of one request or answer */
#define PLATFORM_CONNECTIONS_MAX 512
#define PLATFORM_RECORDS_MAX     4096
#define PLATFORM_RECORD_MAX      (256u << 10)
#define PLATFORM_PLACES_MAX      1024
#define PLATFORM_SNAPSHOTS_MAX   32 /* of one workspace */

struct platform {
    uv_loop_t loop;
    const char *agent; /* the program that runs in an instance */
    char *workspaces;  /* directory that holds a directory for each workspace */
    char *agents;      /* directory that holds the agents' sockets and logs */
    char *seals;       /* directory that holds a directory for each workspace's seal file */
    char *snapshots;   /* directory that holds a directory for each workspace's snapshots */
    bool stopping;
};

extern struct platform platform;

/* ---- requests and their connections (connections.c, requests.c) ---- */

struct platform_connection;
struct platform_request;

struct platform_operation {
    const char *name;
    void (*run)(struct platform_request *request);
    bool scriptable; /* faults may be set on it */
};

enum platform_fault {
    PLATFORM_FAULT_NONE = 0,
    PLATFORM_FAULT_FAIL,
    PLATFORM_FAULT_LOSE_ANSWER,
    PLATFORM_FAULT_HANG,
    PLATFORM_FAULT_HANG_AFTER,
    PLATFORM_FAULT_HALF_MADE,
    PLATFORM_FAULT_KILL_AGENT,
    PLATFORM_FAULT_HANG_MIDWAY,
    PLATFORM_FAULT_CONSUME_AND_FAIL,
    PLATFORM_FAULT_DAMAGE,
    PLATFORM_FAULT_COLD,
    PLATFORM_FAULT_OLDER,
    PLATFORM_FAULT_FOREIGN,
    PLATFORM_FAULT_SILENT,
    PLATFORM_FAULT_EVIDENCE_CONFIRMED,
    PLATFORM_FAULT_EVIDENCE_MISSING,
    PLATFORM_FAULT_EVIDENCE_CONTRARY,
};

/* What a rule makes of one request. */
struct platform_strike {
    enum platform_fault fault;
    sandbox_status status; /* of the answer, for FAIL */
    int64_t asks;          /* for EVIDENCE_MISSING: how often; 0: until it is told */
};

/* A request that is not answered yet. Answering frees it. */
struct platform_request {
    struct platform_connection *connection; /* NULL: the caller has gone */
    cJSON *body;
    const struct platform_operation *operation;
    struct platform_strike strike;
    cJSON *answer; /* ready, but held back */
    /* The caller has gone: whoever holds the request lets go of it. NULL: it goes on without. */
    void (*abandoned)(struct platform_request *request);
    struct platform_request *next; /* in whatever list it waits */
};

bool platform_listen(int listener);
size_t platform_connection_count(void);
void platform_connections_close(void);
/* Hands an answer, or NULL to cut the connection. Takes the answer over. */
void platform_connection_answer(struct platform_connection *connection, cJSON *answer);

/* A line came in. Takes the body over. */
void platform_request_begin(struct platform_connection *connection, cJSON *body,
                            struct platform_request **current);
/* Takes the answer over; NULL stands for an empty object. */
void platform_request_answer(struct platform_request *request, cJSON *answer);
void platform_request_fail(struct platform_request *request, sandbox_status status,
                           const char *reason, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The connection is gone. */
void platform_request_orphan(struct platform_request *request);
/* Without any answer: what is left of it is freed and the connection, if there is one, is cut. */
void platform_request_end(struct platform_request *request);
/* What the request names: its record's name, the workspace's id. "" if it names none. */
const char *platform_request_text(const struct platform_request *request, const char *field);

/* A list of requests, oldest first. */
void platform_list_add(struct platform_request **list, struct platform_request *request);
bool platform_list_remove(struct platform_request **list, struct platform_request *request);

/* ---- records (records.c) ---- */

void platform_record_load(struct platform_request *request);
void platform_record_store(struct platform_request *request);
void platform_record_remove(struct platform_request *request);
void platform_record_list(struct platform_request *request);
size_t platform_record_count(void);
/*
 * Whether the request's id, epoch and operation are those of the stored record. If not, the
 * request has been answered with a refusal.
 */
bool platform_record_fence(struct platform_request *request);
/* Whether the record says that the instance may hold work that no snapshot has. */
bool platform_record_is_precious(const struct platform_request *request);
void platform_records_free(void);

/* ---- instances (instances.c, places.c) ---- */

void platform_provision(struct platform_request *request);
void platform_inspect(struct platform_request *request);
void platform_connect(struct platform_request *request);
void platform_discard(struct platform_request *request);
void platform_destroy(struct platform_request *request);
void platform_kill(struct platform_request *request);
/* Kills the agent of the workspace that the request names; what the fault kill-agent does. */
void platform_kill_agent(const char *id);
size_t platform_instance_count(void);
size_t platform_directory_count(void);
/* Kills every agent, frozen ones too; platform_instances_ended() says when all are gone. */
void platform_instances_end(void);
bool platform_instances_ended(void);
void platform_instances_free(void);

/* ---- snapshots (snapshots.c, verify.c, restore.c, freezes.c) ---- */

void platform_snapshot_prepare(struct platform_request *request);
void platform_snapshot_take(struct platform_request *request);
void platform_snapshot_adopt(struct platform_request *request);
void platform_snapshot_verify(struct platform_request *request);
void platform_snapshot_remove(struct platform_request *request);
void platform_restore(struct platform_request *request);
void platform_evidence_look(struct platform_request *request);
void platform_evidence(struct platform_request *request);
void platform_release(struct platform_request *request);
/* Frozen agents: the memory of snapshots. */
size_t platform_frozen_count(void);
/* On the disk, half made ones too. */
size_t platform_snapshot_count(void);

/* ---- processes that a dead agent left (orphans.c) ---- */

/*
 * The platform is a subreaper, so whatever an agent's death sets free becomes its child. Kills
 * and reaps such processes; returns how many still are.
 */
size_t platform_orphans_sweep(void);
/* Some child has ended or stopped: sweeps, and goes on with what waited for it. */
void platform_orphans_ended(void);
/* Whether `pid` is the agent of an instance, or a frozen one. */
bool platform_is_agent(pid_t pid);

/* When it was started, in clock ticks since boot; 0 if there is no such process. */
uint64_t platform_start_time(pid_t pid);

/* ---- faults (faults.c) ---- */

struct platform_strike platform_fault_choose(const char *operation);
/*
 * Holds a request until it is told to go on; then `resume` runs. One whose caller leaves is
 * forgotten, except in the middle of its work (HANG_MIDWAY): that goes on without a caller.
 */
void platform_fault_hold(struct platform_request *request,
                         void (*resume)(struct platform_request *request));
void platform_script(struct platform_request *request);
void platform_go(struct platform_request *request);
void platform_await_hung(struct platform_request *request);
/* How often each operation was asked for since the last script; the caller's. */
cJSON *platform_fault_calls(void);
void platform_faults_free(void);

/* ---- the process itself (main.c) ---- */

/* Something ended: look whether there is nothing left to do. */
void platform_look_idle(void);
void platform_stop(void);

#endif
