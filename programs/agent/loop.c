/* The loop, its timers and its watched descriptors. */

#include "loop.h"
#include "server.h"
#include <stdlib.h>
#include <unistd.h>

struct agent_timer {
    uv_timer_t handle;
    void (*function)(void *user_data);
    void *user_data;
    struct agent_timer **owner;
};

struct agent_watch {
    uv_poll_t handle;
    void (*function)(void *user_data);
    void *user_data;
    int fd, events;
};

static uv_loop_t loop;

static void timer_fired(uv_timer_t *handle);
static void watch_fired(uv_poll_t *handle, int status, int events);
static void free_handle(uv_handle_t *handle);

bool agent_loop_open(void)
{
    return uv_loop_init(&loop) == 0;
}

uv_loop_t *agent_loop(void)
{
    return &loop;
}

bool agent_timer_start(struct agent_timer **timer, uint64_t delay_ms,
                       void (*function)(void *user_data), void *user_data)
{
    if (*timer == NULL) {
        *timer = calloc(1, sizeof **timer);
        if (*timer == NULL)
            return false;
        uv_timer_init(&loop, &(*timer)->handle);
        (*timer)->handle.data = *timer;
    }
    (*timer)->owner = timer;
    (*timer)->function = function;
    (*timer)->user_data = user_data;
    /* The loop's own idea of now may be as old as the work before this call. */
    uv_update_time(&loop);
    uv_timer_start(&(*timer)->handle, timer_fired, delay_ms, 0);
    return true;
}

void agent_timer_stop(struct agent_timer **timer)
{
    if (*timer == NULL)
        return;
    uv_close((uv_handle_t *)&(*timer)->handle, free_handle);
    *timer = NULL;
}

uint64_t agent_timer_left_ms(const struct agent_timer *timer)
{
    uv_update_time(&loop);
    return timer == NULL ? 0 : uv_timer_get_due_in(&timer->handle);
}

static void timer_fired(uv_timer_t *handle)
{
    struct agent_timer *timer = handle->data;
    void (*function)(void *) = timer->function;
    void *user_data = timer->user_data;
    agent_timer_stop(timer->owner);
    function(user_data);
}

struct agent_watch *agent_watch_open(int fd, void (*function)(void *user_data), void *user_data)
{
    struct agent_watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL || uv_poll_init(&loop, &watch->handle, fd) != 0) {
        free(watch);
        close(fd);
        return NULL;
    }
    watch->handle.data = watch;
    watch->fd = fd;
    watch->function = function;
    watch->user_data = user_data;
    return watch;
}

void agent_watch_for(struct agent_watch *watch, int events)
{
    if (watch->events == events)
        return;
    watch->events = events;
    if (events == 0)
        uv_poll_stop(&watch->handle);
    else
        uv_poll_start(&watch->handle, events, watch_fired);
}

int agent_watch_fd(const struct agent_watch *watch)
{
    return watch->fd;
}

void agent_watch_close(struct agent_watch **watch)
{
    if (*watch == NULL)
        return;
    int fd = (*watch)->fd;
    uv_close((uv_handle_t *)&(*watch)->handle, free_handle);
    close(fd);
    *watch = NULL;
}

/* An error is left to the read or write that finds it. */
static void watch_fired(uv_poll_t *handle, int status, int events)
{
    struct agent_watch *watch = handle->data;
    if (watch->events == 0)
        return;
    /*
     * libuv stops a watch that got EPOLLERR, and gVisor gives that for every socket that both
     * sides have closed, with bytes still to be read.
     */
    if (status < 0)
        uv_poll_start(&watch->handle, watch->events, watch_fired);
    watch->function(watch->user_data);
}

static void free_handle(uv_handle_t *handle)
{
    free(handle->data);
}
