/* A descriptor that the loop watches: see watch.h. */

#include "watch.h"
#include "proxy.h"
#include <unistd.h>

static void ask(struct watch *watch);
static void fired(uv_poll_t *poll, int status, int events);
static void gone(uv_handle_t *handle);

bool watch_open(struct watch *watch, int fd,
                void (*ready)(struct watch *watch, int events, bool failed))
{
    watch->fd = fd;
    watch->ready = ready;
    watch->wanted = watch->asked = 0;
    watch->is_open = uv_poll_init(&proxy.loop, &watch->poll, fd) == 0;
    watch->poll.data = watch;
    if (!watch->is_open)
        close(fd);
    return watch->is_open;
}

void watch_want(struct watch *watch, int events)
{
    watch->wanted = events;
    if (watch->is_open && (events & ~watch->asked) != 0)
        ask(watch);
}

static void ask(struct watch *watch)
{
    watch->asked = watch->wanted;
    if (watch->wanted == 0)
        uv_poll_stop(&watch->poll);
    else
        uv_poll_start(&watch->poll, watch->wanted, fired);
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
    if (status < 0) {
        watch->asked = watch->wanted = 0;
        watch->ready(watch, UV_READABLE | UV_WRITABLE, true);
        return;
    }
    if ((events & ~watch->wanted) != 0)
        ask(watch);
    if ((events & watch->wanted) != 0)
        watch->ready(watch, events & watch->wanted, false);
}

static void gone(uv_handle_t *handle)
{
    struct watch *watch = handle->data;
    watch->closing = false;
    if (watch->closed != NULL)
        watch->closed(watch);
}
