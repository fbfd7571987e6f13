/* A place: one workspace's directory, the instance over it if there is one, and its snapshots. */
#ifndef MEMORY_PLATFORM_PLACES_H
#define MEMORY_PLATFORM_PLACES_H

#include "platform.h"
#include "util/child.h"
#include "util/random.h"
#include <sandbox/snapshot.h>

#define PLATFORM_DIGEST_TEXT 65

enum instance_state {
    INSTANCE_NONE = 0,
    INSTANCE_STARTING, /* the agent runs, its socket is not there yet */
    INSTANCE_RUNNING,
    INSTANCE_ENDING,  /* killed, not reaped yet */
    INSTANCE_STOPPED, /* the agent is gone, socket and log are left */
};

/* The loop's handles of one agent; they outlive it until libuv has closed them. */
struct agent_watch {
    uv_poll_t death;
    uv_timer_t attempt;
    unsigned open; /* handles not closed yet */
    struct platform_place *place;
    struct platform_snapshot *snapshot; /* that it is the memory of, frozen; NULL: an instance's */
};

/* An agent's process and what belongs to it. */
struct platform_agent {
    struct sbx_child child; /* pid 0: there is none */
    struct agent_watch *watch;
    char *socket, *log;
};

struct platform_snapshot {
    char id[SBX_ID_TEXT];
    char digest[PLATFORM_DIGEST_TEXT];
    uint64_t bytes;
    /* Its memory: stopped processes. None for files, or where they were restored or killed. */
    struct platform_agent frozen;
    struct platform_snapshot *next; /* oldest first */
};

/* What a platform says of a restore, as the words in requests.c. */
struct platform_evidence {
    const char *word; /* NULL: nothing */
    int64_t asks;     /* of missing: so many more until it comes; 0: until it is told */
};

struct platform_job;

struct platform_place {
    char id[SBX_ID_TEXT];
    char *directory;
    enum instance_state state;
    char incarnation[96]; /* of the present instance, or the stopped one */
    char detail[160];     /* why it stopped */
    struct platform_agent agent;
    /* Whose frozen processes the instance is made of, if it is; "" otherwise. */
    char memory_place[SBX_ID_TEXT], memory_snapshot[SBX_ID_TEXT];
    bool freezing; /* stopped, to go back there */
    struct platform_evidence evidence;
    uint64_t give_up_ms;                /* on the loop's clock */
    struct platform_request *provision; /* or restore: waits until the agent can be reached */
    struct platform_request *waiting;   /* discard, destroy, …: wait until it has ended */
    struct platform_request *removers;  /* destroy: wait until the directory is gone */
    struct platform_request *queue;     /* wait until nothing else is done with the place */
    struct platform_job *job;
    struct platform_snapshot *snapshots;
    uv_work_t removal;
    sandbox_error removal_error;
    struct platform_place *next;
};

/* ---- places.c ---- */

/* NULL: there is none. */
struct platform_place *platform_place_find(const char *id);
/* Makes one if there is none; NULL: the request has been refused. */
struct platform_place *platform_place_take(struct platform_request *request);
/* Goes on with what waits, as far as it can. */
void platform_place_proceed(struct platform_place *place);
/* The first place; follow `next`. */
struct platform_place *platform_places(void);

/* ---- instances.c ---- */

bool platform_instance_has_agent(const struct platform_place *place);
void platform_instance_kill(struct platform_place *place);
/* Removes what a stopped instance left. */
void platform_instance_clear(struct platform_place *place);
/* Starts a fresh agent, or lets the snapshot's go on; `request` is answered once it is there. */
void platform_instance_start(struct platform_place *place, struct platform_request *request,
                             struct platform_snapshot *memory);
/* Reaps an agent that has ended, and removes what it left but its socket and log. The code. */
int platform_agent_reap(struct platform_agent *agent);
void platform_agent_unlink(struct platform_agent *agent);

/* ---- freezes.c ---- */

void platform_agent_signal(const struct platform_agent *agent, int signal_number);
/* Whether all of its threads are stopped. */
bool platform_agent_is_stopped(const struct platform_agent *agent);
struct platform_snapshot *platform_snapshot_find(struct platform_place *place, const char *id);
/* The stopped instance becomes the memory of `owner`'s snapshot; there is none afterwards. */
void platform_freeze(struct platform_place *place, struct platform_place *owner,
                     struct platform_snapshot *snapshot);
/* The other way round, still stopped. The snapshot may be another place's. */
void platform_thaw(struct platform_place *place, struct platform_snapshot *snapshot);
/* Whether the instance, which nobody has opened, may go back where it came from. */
bool platform_may_refreeze(const struct platform_place *place);
/* Goes on with that; true once it is done. */
bool platform_refreeze(struct platform_place *place);
void platform_frozen_kill(struct platform_place *place);
bool platform_has_frozen(const struct platform_place *place);
/* The frozen agent of a snapshot has ended. */
void platform_frozen_ended(struct platform_place *place, struct platform_snapshot *snapshot);

/* ---- jobs.c ---- */

/*
 * A request that takes steps: some on a thread of the pool, some when a process has stopped or
 * ended. A place does one at a time, whatever becomes of the caller.
 */
struct platform_job {
    struct platform_place *place;
    struct platform_request *request; /* NULL: a fault holds it, or it was answered */
    char *directory; /* of the snapshot; beside it, with ".part", what is not complete */
    char *part;
    char *seal; /* the workspace's seal file */
    char snapshot[SBX_ID_TEXT];
    char expected[PLATFORM_DIGEST_TEXT]; /* the digest that is in the record */
    char digest[PLATFORM_DIGEST_TEXT];   /* that was found */
    bool memory, sealed;
    enum platform_fault fault;
    uint64_t bytes, room;
    uint32_t files;
    sandbox_verdict verdict;
    char evidence[240];
    char *source; /* whose files are put back; NULL: nobody's */
    bool source_is_cold;
    char source_place[SBX_ID_TEXT], source_snapshot[SBX_ID_TEXT]; /* whose memory; "": none */
    sandbox_error error;
    uv_work_t work;
    bool working; /* on a thread */
    void (*act)(struct platform_job *job);
    bool (*is_ready)(struct platform_job *job);
    void (*next)(struct platform_job *job);
};

/*
 * NULL: the request waits until the place is free and is run again then, or it was refused. The
 * place must be there.
 */
struct platform_job *platform_job_begin(struct platform_place *place,
                                        struct platform_request *request);
/* `act` on a thread, then `next` on the loop. */
void platform_job_work(struct platform_job *job, void (*act)(struct platform_job *job),
                       void (*next)(struct platform_job *job));
/* `next` as soon as `is_ready`, which is asked when some process has stopped or ended. */
void platform_job_await(struct platform_job *job, bool (*is_ready)(struct platform_job *job),
                        void (*next)(struct platform_job *job));
void platform_job_look(struct platform_job *job);
/* Answers (with the job's error if it has one), ends the job, goes on with the place. */
void platform_job_end(struct platform_job *job, cJSON *answer);
void platform_job_refuse(struct platform_job *job, sandbox_status status, const char *reason,
                         const char *format, ...) __attribute__((format(printf, 4, 5)));
void platform_job_free(struct platform_job *job);

/* ---- verify.c ---- */

/* On a thread: compares the job's snapshot with `expected`. */
void platform_job_check(struct platform_job *job);
/* Writes the listing of a snapshot, and its digest into the job. */
sandbox_status platform_job_list(struct platform_job *job, const char *directory);

/* ---- restore.c ---- */

/* What is said of the instance that this restore makes. */
void platform_evidence_begin(struct platform_place *place, const struct platform_strike *strike);
void platform_evidence_tell(const struct platform_place *place, cJSON *answer);

/* ---- snapshots.c ---- */

void platform_snapshots_free(struct platform_place *place);

#endif
