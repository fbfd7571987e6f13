/* A descriptor that the loop watches: see watch.h. */

#include "watch.h"
#include "proxy.h"
#include <unistd.h>

static void fired(uv_poll_t *poll, int status, int events);
static void gone(uv_handle_t *handle);

bool watch_open(struct watch *watch, int fd,
                void (*ready)(struct watch *watch, int events, bool failed))
{
    watch->fd = fd;
    watch->ready = ready;
    watch->wanted = 0;
    watch->is_open = uv_poll_init(&proxy.loop, &watch->poll, fd) == 0;
    watch->poll.data = watch;
    if (!watch->is_open)
        close(fd);
    return watch->is_open;
}

void watch_want(struct watch *watch, int events)
{
    if (watch->wanted == events || !watch->is_open)
        return;
    watch->wanted = events;
    if (events == 0)
        uv_poll_stop(&watch->poll);
    else
        uv_poll_start(&watch->poll, events, fired);
}

void watch_close(struct watch *watch, void (*closed)(struct watch *watch))
{
    watch->is_open = false;
    watch->closing = true;
    watch->closed = closed;
    uv_close((uv_handle_t *)&watch->poll, gone);
    close(watch->fd);
    watch->fd = -1;
}

static void fired(uv_poll_t *poll, int status, int events)
{
    struct watch *watch = poll->data;
    /* After an error libuv has stopped watching; there is nothing more to come either. */
    if (status < 0)
        watch->wanted = 0;
    watch->ready(watch, status < 0 ? UV_READABLE | UV_WRITABLE : events, status < 0);
}

static void gone(uv_handle_t *handle)
{
    struct watch *watch = handle->data;
    watch->closing = false;
    if (watch->closed != NULL)
        watch->closed(watch);
}
