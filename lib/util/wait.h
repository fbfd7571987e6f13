/* One caller's wait: its deadline, its cancel handle, its interruption. */
#ifndef SBX_UTIL_WAIT_H
#define SBX_UTIL_WAIT_H

#include <pthread.h>
#include <sandbox/call.h>

struct sbx_wait {
    int64_t deadline_ms; /* on CLOCK_MONOTONIC; INT64_MAX for none */
    sandbox_cancel *cancel;
    int (*interrupted)(void *user_data);
    void *user_data;
};

/*
 * Settles a caller's `call` (NULL allowed) with the function's default deadline. Fails with
 * SANDBOX_INVALID or SANDBOX_UNSUPPORTED on a struct that is not one.
 */
sandbox_status sbx_wait_begin(struct sbx_wait *wait, const sandbox_call *call,
                              uint32_t default_ms, sandbox_error *error);

/* The same wait, ended at the latest after `at_most_ms`. */
struct sbx_wait sbx_wait_within(const struct sbx_wait *wait, uint32_t at_most_ms);

/* A wait that nobody ends early: for cleaning up after a cancelled call. */
struct sbx_wait sbx_wait_alone(uint32_t timeout_ms);

/* SANDBOX_OK while the call may go on, else TIMED_OUT or CANCELLED with an error. No lock held. */
sandbox_status sbx_wait_check(const struct sbx_wait *wait, sandbox_error *error);

/* What is left, 0 to UINT32_MAX - 1, or SANDBOX_FOREVER. */
uint32_t sbx_wait_left_ms(const struct sbx_wait *wait);

/*
 * How long one slice may sleep so that cancel and interruption are seen within 50 ms; -1: for ever.
 */
int sbx_wait_slice_ms(const struct sbx_wait *wait);

/*
 * Sleeps on `condition` (made with sbx_condition_init) with `mutex` held, at most one slice.
 * Returns as sbx_wait_check(), which it calls with the mutex released. The caller looks at its
 * predicate and calls again.
 */
sandbox_status sbx_wait_condition(const struct sbx_wait *wait, pthread_cond_t *condition,
                                  pthread_mutex_t *mutex, sandbox_error *error);

/* Waits until poll(fd, events) is ready, or fails as sbx_wait_check(). */
sandbox_status sbx_wait_descriptor(const struct sbx_wait *wait, int fd, short events,
                                   sandbox_error *error);

/* Sleeps that long, or fails as sbx_wait_check(). For retries that nothing wakes. */
sandbox_status sbx_wait_pause(const struct sbx_wait *wait, uint32_t ms, sandbox_error *error);

/* A condition variable on CLOCK_MONOTONIC. 0 or an errno value. */
int sbx_condition_init(pthread_cond_t *condition);

bool sbx_cancel_triggered(const sandbox_cancel *cancel);

#endif
