/* Ends relays off the I/O thread. */

#include "transport/undertaker.h"
#include "util/clock.h"
#include "util/fail.h"
#include "util/memory.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define WATCHED_MAX 64 /* at once; further ones wait for their turn */

struct sbx_burial {
    struct sbx_channel channel;
    int64_t deadline_ms;
    struct sbx_burial *next;
};

static bool hand_over(struct sbx_undertaker *undertaker, struct sbx_channel *channel);
static bool start_thread(struct sbx_undertaker *undertaker);
static void *work(void *argument);
static bool take_arrived(struct sbx_undertaker *undertaker, struct sbx_burial **waiting);
static void watch(struct sbx_undertaker *undertaker, struct sbx_burial *waiting);
static void end_those_due(struct sbx_burial **waiting);
static void finish(struct sbx_channel *channel);

sandbox_status sbx_undertaker_init(struct sbx_undertaker *undertaker, sandbox_error *error)
{
    *undertaker = (struct sbx_undertaker){.wake_fd = -1};
    undertaker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (undertaker->wake_fd < 0)
        return sbx_fail_errno(error, errno, "cannot make an event descriptor");
    int failure = pthread_mutex_init(&undertaker->mutex, NULL);
    if (failure == 0)
        return SANDBOX_OK;
    sbx_close_fd(&undertaker->wake_fd);
    return sbx_fail_errno(error, failure, "cannot make a lock");
}

void sbx_undertaker_take(struct sbx_undertaker *undertaker, struct sbx_channel *channel)
{
    sbx_channel_close(channel);
    if (channel->relay.pid <= 0 || !hand_over(undertaker, channel))
        finish(channel);
    *channel = (struct sbx_channel)SBX_CHANNEL;
}

void sbx_undertaker_stop(struct sbx_undertaker *undertaker)
{
    pthread_mutex_lock(&undertaker->mutex);
    undertaker->stopping = true;
    bool started = undertaker->started;
    pthread_mutex_unlock(&undertaker->mutex);
    if (started) {
        (void)eventfd_write(undertaker->wake_fd, 1);
        pthread_join(undertaker->thread, NULL);
    }
    sbx_close_fd(&undertaker->wake_fd);
    pthread_mutex_destroy(&undertaker->mutex);
}

static bool hand_over(struct sbx_undertaker *undertaker, struct sbx_channel *channel)
{
    struct sbx_burial *burial = calloc(1, sizeof *burial);
    if (burial == NULL)
        return false;
    burial->channel = *channel;
    burial->deadline_ms = sbx_clock_monotonic(&sbx_system_clock) + SBX_RELAY_PATIENCE_MS;

    pthread_mutex_lock(&undertaker->mutex);
    bool taken = undertaker->started || start_thread(undertaker);
    if (taken) {
        burial->next = undertaker->arrived;
        undertaker->arrived = burial;
    }
    pthread_mutex_unlock(&undertaker->mutex);
    if (taken)
        (void)eventfd_write(undertaker->wake_fd, 1);
    else
        free(burial);
    return taken;
}

static bool start_thread(struct sbx_undertaker *undertaker)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    undertaker->started = pthread_create(&undertaker->thread, NULL, work, undertaker) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return undertaker->started;
}

static void *work(void *argument)
{
    struct sbx_undertaker *undertaker = argument;
    struct sbx_burial *waiting = NULL;
    while (take_arrived(undertaker, &waiting) || waiting != NULL) {
        watch(undertaker, waiting);
        end_those_due(&waiting);
    }
    return NULL;
}

/* False once nothing more will arrive. */
static bool take_arrived(struct sbx_undertaker *undertaker, struct sbx_burial **waiting)
{
    pthread_mutex_lock(&undertaker->mutex);
    while (undertaker->arrived != NULL) {
        struct sbx_burial *burial = undertaker->arrived;
        undertaker->arrived = burial->next;
        burial->next = *waiting;
        *waiting = burial;
    }
    bool more = !undertaker->stopping;
    pthread_mutex_unlock(&undertaker->mutex);
    return more;
}

static void watch(struct sbx_undertaker *undertaker, struct sbx_burial *waiting)
{
    struct pollfd watched[WATCHED_MAX + 1] = {{.fd = undertaker->wake_fd, .events = POLLIN}};
    nfds_t count = 1;
    int64_t first_deadline = INT64_MAX;
    for (struct sbx_burial *burial = waiting; burial != NULL; burial = burial->next) {
        if (burial->deadline_ms < first_deadline)
            first_deadline = burial->deadline_ms;
        if (count <= WATCHED_MAX)
            watched[count++] = (struct pollfd){.fd = burial->channel.relay.pidfd, .events = POLLIN};
    }
    int64_t left = first_deadline - sbx_clock_monotonic(&sbx_system_clock);
    int timeout_ms = waiting == NULL ? -1 : left < 0 ? 0 : (int)left;
    if (poll(watched, count, timeout_ms) > 0 && watched[0].revents != 0) {
        eventfd_t ignored;
        (void)eventfd_read(undertaker->wake_fd, &ignored);
    }
}

static void end_those_due(struct sbx_burial **waiting)
{
    int64_t now = sbx_clock_monotonic(&sbx_system_clock);
    struct sbx_burial **link = waiting;
    while (*link != NULL) {
        struct sbx_burial *burial = *link;
        struct pollfd ended = {.fd = burial->channel.relay.pidfd, .events = POLLIN};
        if (now < burial->deadline_ms && poll(&ended, 1, 0) <= 0) {
            link = &burial->next;
            continue;
        }
        *link = burial->next;
        finish(&burial->channel);
        free(burial);
    }
}

static void finish(struct sbx_channel *channel)
{
    sbx_child_end(&channel->relay);
    sbx_close_fd(&channel->lock_fd);
}
