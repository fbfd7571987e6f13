/**
 * How long a call may wait, and how to end it early.
 *
 * Every function that can wait takes a `const sandbox_call *`, NULL for the defaults. The
 * deadline bounds the whole call, whatever it does inside.
 */
#ifndef SANDBOX_CALL_H
#define SANDBOX_CALL_H

#include <sandbox/error.h>

SANDBOX_BEGIN_DECLARATIONS

/** A time that never comes, for every `_ms` field that bounds a wait. */
#define SANDBOX_FOREVER UINT32_MAX

/** Ends waits from another thread. One handle may serve any number of calls. */
typedef struct sandbox_cancel sandbox_cancel;

typedef struct sandbox_call {
    size_t size;            /**< Set by the initializer. */
    uint32_t timeout_ms;    /**< 0: the function's default. SANDBOX_FOREVER: no deadline. */
    sandbox_cancel *cancel; /**< Borrowed for the call, or NULL. */
    /**
     * Asked on the calling thread about every 50 ms while it waits, with no lock held. Anything
     * but 0 ends the call with SANDBOX_CANCELLED. For interpreters that must look for Ctrl-C.
     */
    int (*interrupted)(void *user_data);
    void *user_data;
} sandbox_call;

#define SANDBOX_CALL .size = sizeof(sandbox_call)

/** @param out  written on success only; free it with sandbox_cancel_free() */
SANDBOX_CHECKED sandbox_status sandbox_cancel_create(sandbox_cancel **out, sandbox_error *error);

/** End every wait that uses the handle, now and later, within 100 ms. Any thread. */
SANDBOX_API void sandbox_cancel_trigger(sandbox_cancel *cancel);

/** Forget it, after the last call that uses it has returned. Accepts NULL. */
SANDBOX_API void sandbox_cancel_free(sandbox_cancel *cancel);

SANDBOX_END_DECLARATIONS

#endif
