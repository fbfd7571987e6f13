/**
 * Events: what this client does to workspaces, step by step, and what it sees of them. For
 * progress bars and audit logs.
 */
#ifndef SANDBOX_WATCH_H
#define SANDBOX_WATCH_H

#include <sandbox/snapshot.h>

SANDBOX_BEGIN_DECLARATIONS

typedef enum sandbox_event_kind {
    SANDBOX_EVENT_STATE = 1,    /**< `state` is the new one; `text` the operation. */
    SANDBOX_EVENT_STEP = 2,     /**< A long operation begins its next step: `text`. */
    SANDBOX_EVENT_PROGRESS = 3, /**< `done` of `total` bytes of the step `text`. */
    SANDBOX_EVENT_LOST = 4,     /**< The watch was full: `done` events were dropped. */
} sandbox_event_kind;

/** One event. Text is inside the struct. */
typedef struct sandbox_event {
    size_t size;            /**< Set by the initializer; the call fills what fits. */
    sandbox_event_kind kind;
    sandbox_state state;
    int64_t time_ms;        /**< Unix time. */
    char workspace[64];     /**< Its name. */
    char id[40];
    char operation[16];     /**< "suspend", "resume", … */
    char text[64];
    uint64_t done, total;   /**< `total` 0: not known. */
} sandbox_event;

#define SANDBOX_EVENT .size = sizeof(sandbox_event)

/** A queue of events of one client, at most 1,024 long; of PROGRESS only the newest is kept. */
typedef struct sandbox_watch sandbox_watch;

/** Events from now on. @param out  written on success only; free it with sandbox_watch_free() */
SANDBOX_CHECKED sandbox_status sandbox_client_watch(sandbox_client *client, sandbox_watch **out,
                                                    sandbox_error *error);

/** The next event. @param call default: waits for ever; 1 ms polls */
SANDBOX_CHECKED sandbox_status sandbox_watch_next(sandbox_watch *watch, const sandbox_call *call,
                                                  sandbox_event *out, sandbox_error *error);

/** Forget it: never blocks, accepts NULL. Not while another thread waits in it. */
SANDBOX_API void sandbox_watch_free(sandbox_watch *watch);

SANDBOX_END_DECLARATIONS

#endif
