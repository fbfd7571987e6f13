/* Waits: deadline, cancel handle and interruption in one place. */

#include "util/wait.h"
#include "util/clock.h"
#include "util/fail.h"
#include "util/options.h"
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

/* Cancel promises 100 ms and interruption about 50: one slice serves both. */
#define SLICE_MS 50

struct sandbox_cancel {
    atomic_bool triggered;
};

static int64_t now_ms(void)
{
    return sbx_clock_monotonic(&sbx_system_clock);
}

sandbox_status sandbox_cancel_create(sandbox_cancel **out, sandbox_error *error)
{
    if (out == NULL)
        return sbx_fail(error, SANDBOX_INVALID, "no place to put the cancel handle");
    sandbox_cancel *cancel = calloc(1, sizeof *cancel);
    if (cancel == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a cancel handle");
    atomic_init(&cancel->triggered, false);
    *out = cancel;
    return SANDBOX_OK;
}

void sandbox_cancel_trigger(sandbox_cancel *cancel)
{
    if (cancel != NULL)
        atomic_store(&cancel->triggered, true);
}

void sandbox_cancel_free(sandbox_cancel *cancel)
{
    free(cancel);
}

bool sbx_cancel_triggered(const sandbox_cancel *cancel)
{
    return cancel != NULL && atomic_load(&cancel->triggered);
}

sandbox_status sbx_wait_begin(struct sbx_wait *wait, const sandbox_call *call,
                              uint32_t default_ms, sandbox_error *error)
{
    sandbox_call settled = {0};
    sandbox_status status = sbx_options_adopt(&settled, sizeof settled, call, error);
    if (status != SANDBOX_OK)
        return status;
    if (settled.timeout_ms == 0)
        settled.timeout_ms = default_ms;
    *wait = sbx_wait_alone(settled.timeout_ms);
    wait->cancel = settled.cancel;
    wait->interrupted = settled.interrupted;
    wait->user_data = settled.user_data;
    return SANDBOX_OK;
}

struct sbx_wait sbx_wait_within(const struct sbx_wait *wait, uint32_t at_most_ms)
{
    struct sbx_wait shorter = *wait;
    int64_t end = now_ms() + at_most_ms;
    if (end < shorter.deadline_ms)
        shorter.deadline_ms = end;
    return shorter;
}

struct sbx_wait sbx_wait_alone(uint32_t timeout_ms)
{
    return (struct sbx_wait){
        .deadline_ms = timeout_ms == SANDBOX_FOREVER ? INT64_MAX : now_ms() + timeout_ms,
    };
}

sandbox_status sbx_wait_check(const struct sbx_wait *wait, sandbox_error *error)
{
    if (sbx_cancel_triggered(wait->cancel))
        return sbx_fail(error, SANDBOX_CANCELLED, "cancelled by the caller");
    if (wait->interrupted != NULL && wait->interrupted(wait->user_data) != 0)
        return sbx_fail(error, SANDBOX_CANCELLED, "interrupted by the caller");
    if (wait->deadline_ms != INT64_MAX && now_ms() >= wait->deadline_ms)
        return sbx_fail(error, SANDBOX_TIMED_OUT, "the call's deadline passed");
    return SANDBOX_OK;
}

uint32_t sbx_wait_left_ms(const struct sbx_wait *wait)
{
    if (wait->deadline_ms == INT64_MAX)
        return SANDBOX_FOREVER;
    int64_t left = wait->deadline_ms - now_ms();
    if (left <= 0)
        return 0;
    return left >= SANDBOX_FOREVER ? SANDBOX_FOREVER - 1 : (uint32_t)left;
}

int sbx_wait_slice_ms(const struct sbx_wait *wait)
{
    uint32_t left = sbx_wait_left_ms(wait);
    if (wait->cancel != NULL || wait->interrupted != NULL)
        return left < SLICE_MS ? (int)left : SLICE_MS;
    if (left == SANDBOX_FOREVER)
        return -1;
    return left > INT32_MAX ? INT32_MAX : (int)left;
}

sandbox_status sbx_wait_condition(const struct sbx_wait *wait, pthread_cond_t *condition,
                                  pthread_mutex_t *mutex, sandbox_error *error)
{
    int slice = sbx_wait_slice_ms(wait);
    if (slice < 0) {
        pthread_cond_wait(condition, mutex);
    } else if (slice > 0) {
        int64_t end = now_ms() + slice;
        struct timespec until = {(time_t)(end / 1000), (long)(end % 1000) * 1000000};
        if (pthread_cond_timedwait(condition, mutex, &until) == 0)
            return SANDBOX_OK; /* woken: whatever was waited for goes before a deadline */
    }
    pthread_mutex_unlock(mutex);
    sandbox_status status = sbx_wait_check(wait, error);
    pthread_mutex_lock(mutex);
    return status;
}

sandbox_status sbx_wait_descriptor(const struct sbx_wait *wait, int fd, short events,
                                   sandbox_error *error)
{
    for (;;) {
        struct pollfd watched = {fd, events, 0};
        int ready = poll(&watched, 1, sbx_wait_slice_ms(wait));
        if (ready > 0)
            return SANDBOX_OK;
        if (ready < 0 && errno != EINTR)
            return sbx_fail_errno(error, errno, "cannot wait for a descriptor");
        sandbox_status status = sbx_wait_check(wait, error);
        if (status != SANDBOX_OK)
            return status;
    }
}

sandbox_status sbx_wait_pause(const struct sbx_wait *wait, uint32_t ms, sandbox_error *error)
{
    int64_t end = now_ms() + ms;
    for (;;) {
        sandbox_status status = sbx_wait_check(wait, error);
        int64_t left = end - now_ms();
        if (status != SANDBOX_OK || left <= 0)
            return status;
        int slice = sbx_wait_slice_ms(wait);
        if (slice < 0 || slice > left)
            slice = (int)left;
        poll(NULL, 0, slice);
    }
}

int sbx_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    int result = pthread_condattr_init(&attributes);
    if (result != 0)
        return result;
    result = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (result == 0)
        result = pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
    return result;
}
