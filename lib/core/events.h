/*
 * Events: what a client does to workspaces and sees of them, for whoever watches.
 *
 * Every function may be called from any thread, with any lock held but those in here; nothing
 * waits, and where nobody watches nothing is done but one look. A watch that is not read loses
 * its oldest events and says how many.
 */
#ifndef SBX_CORE_EVENTS_H
#define SBX_CORE_EVENTS_H

#include "core/record.h"
#include "util/wait.h"
#include <pthread.h>
#include <sandbox/watch.h>
#include <stdatomic.h>

#define SBX_WATCHES_MAX 64   /* of one client */
#define SBX_EVENTS_MAX 1024u /* in one watch; a power of two */

/* In the client. */
struct sbx_events {
    pthread_mutex_t lock; /* of the watches and all their queues */
    atomic_uint watch_count;
    struct sbx_watch *first;
};

void sbx_events_init(struct sbx_events *events);
/* When no watch is left. */
void sbx_events_free(struct sbx_events *events);

/*
 * The record's state is new. `operation`: what brought it there ("suspend", "resume", …); NULL:
 * what the record says, which is nothing once the operation is done.
 */
void sbx_events_state(sandbox_client *client, const struct sbx_record *record,
                      const char *operation);
/* The record's operation begins its next step. */
void sbx_events_step(sandbox_client *client, const struct sbx_record *record, const char *step);
/*
 * Bytes of a step; `total` 0: not known. Takes the place of the last one of that workspace and
 * step, if that still waits and nothing but progress of the workspace came after it.
 */
void sbx_events_progress(sandbox_client *client, const char *name, const char *id,
                         const char *operation, const char *step, uint64_t done, uint64_t total);

/* ---- the other end, for the public functions ---- */

struct sbx_watch;

/* Events from now on. SANDBOX_LIMIT: as many watches as there may be. */
sandbox_status sbx_watch_begin(struct sbx_events *events, struct sbx_watch **out,
                               sandbox_error *error);
/* Waits for the next one; it fills all of `out`. */
sandbox_status sbx_watch_take(struct sbx_watch *watch, const struct sbx_wait *wait,
                              sandbox_event *out, sandbox_error *error);
void sbx_watch_end(struct sbx_watch *watch);

#endif
