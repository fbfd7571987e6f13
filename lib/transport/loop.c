/* The I/O thread of a client. */

#include "transport/loop.h"
#include "transport/undertaker.h"
#include "util/fail.h"
#include "util/memory.h"
#include <signal.h>
#include <unistd.h>

struct sbx_loop {
    uv_loop_t uv;
    uv_async_t wake;
    pthread_t thread;
    pid_t process; /* a forked child has the memory, not the thread */
    pthread_mutex_t mutex;
    struct sbx_loop_task *first, **last;
    bool stopping;
    struct sbx_undertaker undertaker;
};

static sandbox_status set_up(struct sbx_loop *loop, sandbox_error *error);
static sandbox_status start_thread(struct sbx_loop *loop, sandbox_error *error);
static void *work(void *argument);
static void on_wake(uv_async_t *wake);
static struct sbx_loop_task *take_task(struct sbx_loop *loop, bool *stopping);

sandbox_status sbx_loop_start(struct sbx_loop **out, sandbox_error *error)
{
    struct sbx_loop *loop = calloc(1, sizeof *loop);
    if (loop == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for the I/O thread");
    sandbox_status status = set_up(loop, error);
    if (status != SANDBOX_OK) {
        free(loop);
        return status;
    }
    *out = loop;
    return SANDBOX_OK;
}

void sbx_loop_stop(struct sbx_loop *loop)
{
    /*
     * In a forked child there is no thread to end, and the descriptors are shared with the parent.
     */
    if (loop == NULL || loop->process != getpid())
        return;
    pthread_mutex_lock(&loop->mutex);
    loop->stopping = true;
    pthread_mutex_unlock(&loop->mutex);
    uv_async_send(&loop->wake);
    pthread_join(loop->thread, NULL);
    sbx_undertaker_stop(&loop->undertaker);
    uv_loop_close(&loop->uv);
    pthread_mutex_destroy(&loop->mutex);
    free(loop);
}

uv_loop_t *sbx_loop_uv(struct sbx_loop *loop)
{
    return &loop->uv;
}

bool sbx_loop_is_current(const struct sbx_loop *loop)
{
    return pthread_equal(loop->thread, pthread_self()) != 0;
}

void sbx_loop_post(struct sbx_loop *loop, struct sbx_loop_task *task)
{
    pthread_mutex_lock(&loop->mutex);
    bool fresh = !task->posted;
    bool was_empty = loop->first == NULL;
    if (fresh) {
        task->posted = true;
        task->next = NULL;
        *loop->last = task;
        loop->last = &task->next;
    }
    pthread_mutex_unlock(&loop->mutex);
    if (fresh && was_empty && loop->process == getpid())
        uv_async_send(&loop->wake);
}

void sbx_loop_end_channel(struct sbx_loop *loop, struct sbx_channel *channel)
{
    sbx_undertaker_take(&loop->undertaker, channel);
}

static sandbox_status set_up(struct sbx_loop *loop, sandbox_error *error)
{
    loop->process = getpid();
    loop->last = &loop->first;
    int failure = uv_loop_init(&loop->uv);
    if (failure != 0)
        return sbx_fail_errno(error, -failure, "cannot make an event loop");
    failure = uv_async_init(&loop->uv, &loop->wake, on_wake);
    if (failure != 0) {
        uv_loop_close(&loop->uv);
        return sbx_fail_errno(error, -failure, "cannot make an event loop");
    }
    loop->wake.data = loop;

    sandbox_status status = sbx_undertaker_init(&loop->undertaker, error);
    if (status == SANDBOX_OK) {
        pthread_mutex_init(&loop->mutex, NULL);
        status = start_thread(loop, error);
        if (status == SANDBOX_OK)
            return status;
        pthread_mutex_destroy(&loop->mutex);
        sbx_undertaker_stop(&loop->undertaker);
    }
    uv_close((uv_handle_t *)&loop->wake, NULL);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    uv_loop_close(&loop->uv);
    return status;
}

/*
 * All signals stay with the host's threads. SIGPIPE is among the blocked ones, so a write to a
 * broken pipe is an error and nothing else.
 */
static sandbox_status start_thread(struct sbx_loop *loop, sandbox_error *error)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&loop->thread, NULL, work, loop);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure != 0)
        return sbx_fail_errno(error, failure, "cannot start the I/O thread");
    return SANDBOX_OK;
}

static void *work(void *argument)
{
    struct sbx_loop *loop = argument;
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    return NULL;
}

static void on_wake(uv_async_t *wake)
{
    struct sbx_loop *loop = wake->data;
    struct sbx_loop_task *task;
    bool stopping = false;
    while ((task = take_task(loop, &stopping)) != NULL)
        task->run(task);
    if (stopping && !uv_is_closing((uv_handle_t *)wake))
        uv_close((uv_handle_t *)wake, NULL);
}

static struct sbx_loop_task *take_task(struct sbx_loop *loop, bool *stopping)
{
    pthread_mutex_lock(&loop->mutex);
    struct sbx_loop_task *task = loop->first;
    if (task != NULL) {
        loop->first = task->next;
        if (loop->first == NULL)
            loop->last = &loop->first;
        task->next = NULL;
        task->posted = false;
    }
    *stopping = loop->stopping;
    pthread_mutex_unlock(&loop->mutex);
    return task;
}
