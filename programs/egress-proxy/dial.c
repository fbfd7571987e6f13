/* A connection to a host: see dial.h. */

#include "dial.h"
#include "dial_proxy.h"
#include "proxy.h"
#include "settings.h"
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void try_next(struct dial *dial);
static int begin_connect(const union address *address);
static void connected(struct watch *watch, int events, bool failed);
static void abandon(struct dial *dial);
static void abandoned(struct watch *watch);
static void too_slow(struct deadline *deadline);
static void finish(struct dial *dial, enum dial_outcome outcome);

void dial_start(struct dial *dial, struct lookup *lookup,
                void (*done)(struct dial *dial, enum dial_outcome outcome))
{
    dial->lookup = lookup;
    dial->done = done;
    dial->next = 0;
    dial->until_ms = (int64_t)(uv_now(&proxy.loop) + settings.timeout_ms[DEADLINE_CONNECT]);
    try_next(dial);
}

/* Each address gets its share of the time that is left, so that a dead one does not take it all. */
static void try_next(struct dial *dial)
{
    int64_t left = dial->until_ms - (int64_t)uv_now(&proxy.loop);
    while (dial->next < dial->lookup->count && left > 0) {
        size_t shares = dial->lookup->count - dial->next;
        const union address *address = &dial->lookup->addresses[dial->next++];
        int fd = begin_connect(settings.has_upstream_proxy ? &settings.upstream_proxy : address);
        if (fd < 0 || !watch_open(&dial->watch, fd, connected))
            continue;
        watch_want(&dial->watch, UV_WRITABLE);
        deadline_set(&dial->deadline, DEADLINE_CONNECT, (uint64_t)left / shares, too_slow);
        return;
    }
    finish(dial, left > 0 ? DIAL_FAILED : DIAL_TIMED_OUT);
}

/* The descriptor, connected or soon to be; -1 where it is known at once that it will not be. */
static int begin_connect(const union address *address)
{
    int one = 1;
    int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, &address->any, address_size(address)) < 0 && errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    return fd;
}

static void connected(struct watch *watch, int events, bool failed)
{
    struct dial *dial = (struct dial *)((char *)watch - offsetof(struct dial, watch));
    int error = 0;
    socklen_t size = sizeof error;
    if (failed || getsockopt(watch->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error != 0) {
        abandon(dial);
        return;
    }
    if (settings.has_upstream_proxy) {
        dial_proxy_ask(dial);
        return;
    }
    dial_finish(dial, true);
}

void dial_finish(struct dial *dial, bool worked)
{
    if (!worked) {
        abandon(dial);
        return;
    }
    watch_want(&dial->watch, 0);
    finish(dial, DIAL_CONNECTED);
}

static void abandon(struct dial *dial)
{
    deadline_clear(&dial->deadline);
    watch_close(&dial->watch, abandoned);
}

static void abandoned(struct watch *watch)
{
    struct dial *dial = (struct dial *)((char *)watch - offsetof(struct dial, watch));
    try_next(dial);
}

static void too_slow(struct deadline *deadline)
{
    abandon((struct dial *)((char *)deadline - offsetof(struct dial, deadline)));
}

static void finish(struct dial *dial, enum dial_outcome outcome)
{
    deadline_clear(&dial->deadline);
    lookup_free(dial->lookup);
    dial->lookup = NULL;
    free(dial->answer);
    dial->answer = NULL;
    dial->done(dial, outcome);
}

void dial_end(struct dial *dial, void (*closed)(struct watch *watch))
{
    deadline_clear(&dial->deadline);
    lookup_free(dial->lookup);
    dial->lookup = NULL;
    free(dial->answer);
    dial->answer = NULL;
    if (dial->watch.is_open)
        watch_close(&dial->watch, closed);
    else if (dial->watch.closing)
        dial->watch.closed = closed; /* it was just being given up */
    else
        closed(&dial->watch);
}
