/*
 * A listener on this machine that leads into a workspace. Bytes are carried on the I/O thread;
 * connecting may take long, so a thread of the forward's own does that.
 */

#include "forward_parts.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/options.h"
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#define CALL_MS 30000u
#define DIAL_MS 30000u
#define MAX_CONNECTIONS 256u
#define BACKLOG 128
#define ACCEPTS_AT_ONCE 16 /* then the other work gets its turn */
#define PAUSE_MS 100       /* no accepting for this long where descriptors have run out */

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static sandbox_status settle(const sandbox_forward_options *given,
                             sandbox_forward_options *options, union address *address,
                             sandbox_error *error);
static sandbox_status new_forward(sandbox_workspace *workspace,
                                  const sandbox_forward_options *options, sandbox_forward **out,
                                  sandbox_error *error);
static void free_memory(sandbox_forward *forward);
static sandbox_status open_listener(sandbox_forward *forward, const union address *address,
                                    sandbox_error *error);
static sandbox_status start_dialer(sandbox_forward *forward, sandbox_error *error);
static void *work(void *argument);
static struct sbx_link *take_link(sandbox_forward *forward, bool *stopping);
static struct sbx_stream *dial(sandbox_forward *forward, bool stale);
static void open_on_loop(struct sbx_loop_task *task);
static void on_connection(uv_poll_t *listener, int status, int events);
static void on_pause_over(uv_timer_t *pause);
static void close_on_loop(struct sbx_loop_task *task);
static void on_closed(uv_handle_t *handle);

#define OWNER(task, member) \
    ((sandbox_forward *)(void *)((char *)(task) - offsetof(sandbox_forward, member)))

static void free_forward(sandbox_forward **forward)
{
    sandbox_forward_free(*forward);
}

sandbox_status sandbox_port_forward(sandbox_workspace *workspace,
                                    const sandbox_forward_options *options,
                                    const sandbox_call *call, sandbox_forward **out,
                                    sandbox_error *error)
{
    sandbox_forward_options settled;
    union address address;
    struct sbx_wait wait;
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK && out == NULL)
        status = sbx_fail(error, SANDBOX_INVALID, "no place to put the forward");
    if (status == SANDBOX_OK)
        status = settle(options, &settled, &address, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, CALL_MS, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_check(&wait, error);
    if (status != SANDBOX_OK)
        return status;

    SBX_ON_EXIT(free_forward) sandbox_forward *forward = NULL;
    status = new_forward(workspace, &settled, &forward, error);
    if (status == SANDBOX_OK)
        status = open_listener(forward, &address, error);
    if (status == SANDBOX_OK)
        status = start_dialer(forward, error);
    if (status != SANDBOX_OK)
        return status;
    sbx_loop_post(forward->loop, &forward->open_task);
    *out = sbx_take(forward);
    return SANDBOX_OK;
}

uint16_t sandbox_forward_host_port(const sandbox_forward *forward)
{
    return forward == NULL ? 0 : forward->host_port;
}

void sandbox_forward_free(sandbox_forward *forward)
{
    /* A forked child has neither thread, and its descriptors are the parent's too. */
    if (forward == NULL || forward->process != getpid())
        return;
    if (!forward->dialer_started) {
        free_memory(forward);
        return;
    }
    sandbox_cancel_trigger(forward->cancel);
    pthread_mutex_lock(&forward->mutex);
    forward->stopping = true;
    pthread_cond_broadcast(&forward->changed);
    pthread_mutex_unlock(&forward->mutex);
    pthread_join(forward->dialer, NULL);

    sbx_loop_post(forward->loop, &forward->close_task);
    pthread_mutex_lock(&forward->mutex);
    while (!forward->gone)
        pthread_cond_wait(&forward->changed, &forward->mutex);
    pthread_mutex_unlock(&forward->mutex);
    free_memory(forward);
}

void sbx_forward_dial(struct sbx_link *link)
{
    sandbox_forward *forward = link->forward;
    link->dialing = true;
    pthread_mutex_lock(&forward->mutex);
    link->next_to_dial = NULL;
    *forward->to_dial_last = link;
    forward->to_dial_last = &link->next_to_dial;
    pthread_cond_broadcast(&forward->changed);
    pthread_mutex_unlock(&forward->mutex);
}

void sbx_forward_look(sandbox_forward *forward)
{
    if (!forward->closing || forward->handles > 0 || forward->link_count > 0)
        return;
    pthread_mutex_lock(&forward->mutex);
    forward->gone = true;
    pthread_cond_broadcast(&forward->changed);
    pthread_mutex_unlock(&forward->mutex);
}

static sandbox_status settle(const sandbox_forward_options *given,
                             sandbox_forward_options *options, union address *address,
                             sandbox_error *error)
{
    sandbox_status status = sbx_options_adopt(options, sizeof *options, given, error);
    if (status != SANDBOX_OK)
        return status;
    if (options->port == 0)
        return sbx_fail(error, SANDBOX_INVALID, "the port inside must be given");
    if (options->max_connections == 0)
        options->max_connections = MAX_CONNECTIONS;
    const char *text = options->host_address == NULL ? "127.0.0.1" : options->host_address;
    *address = (union address){.v6 = {0}};
    if (inet_pton(AF_INET, text, &address->v4.sin_addr) == 1) {
        address->v4.sin_family = AF_INET;
        address->v4.sin_port = htons(options->host_port);
        return SANDBOX_OK;
    }
    if (inet_pton(AF_INET6, text, &address->v6.sin6_addr) == 1) {
        address->v6.sin6_family = AF_INET6;
        address->v6.sin6_port = htons(options->host_port);
        return SANDBOX_OK;
    }
    return sbx_fail(error, SANDBOX_INVALID,
                    "'%s' is no address of this machine: give one like 127.0.0.1 or ::1", text);
}

static sandbox_status new_forward(sandbox_workspace *workspace,
                                  const sandbox_forward_options *options, sandbox_forward **out,
                                  sandbox_error *error)
{
    sandbox_forward *forward = calloc(1, sizeof *forward);
    bool locked = forward != NULL && pthread_mutex_init(&forward->mutex, NULL) == 0;
    if (!locked || sbx_condition_init(&forward->changed) != 0) {
        if (locked)
            pthread_mutex_destroy(&forward->mutex);
        free(forward);
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a forward");
    }
    forward->process = getpid();
    forward->workspace = sbx_workspace_keep(workspace);
    forward->loop = sbx_workspace_loop(workspace);
    forward->port = options->port;
    forward->max_connections = options->max_connections;
    forward->listener_fd = -1;
    forward->to_dial_last = &forward->to_dial;
    forward->open_task.run = open_on_loop;
    forward->close_task.run = close_on_loop;
    *out = forward;
    forward->inbox = malloc(SBX_JOINT_PIECE);
    if (forward->inbox == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a forward");
    sbx_forward_own(forward);
    return sandbox_cancel_create(&forward->cancel, error);
}

static void free_memory(sandbox_forward *forward)
{
    sbx_close_fd(&forward->listener_fd);
    sandbox_cancel_free(forward->cancel);
    pthread_cond_destroy(&forward->changed);
    pthread_mutex_destroy(&forward->mutex);
    free(forward->inbox);
    sbx_workspace_drop(forward->workspace);
    free(forward);
}

static sandbox_status open_listener(sandbox_forward *forward, const union address *address,
                                    sandbox_error *error)
{
    bool is_v4 = address->any.sa_family == AF_INET;
    uint16_t wanted = ntohs(is_v4 ? address->v4.sin_port : address->v6.sin6_port);
    int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return sbx_fail_errno(error, errno, "cannot make a socket");
    forward->listener_fd = fd;
    int yes = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (!is_v4) /* "::" shall not take the IPv4 port unasked */
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);

    if (bind(fd, &address->any, is_v4 ? sizeof address->v4 : sizeof address->v6) < 0 ||
        listen(fd, BACKLOG) < 0) {
        if (errno == EADDRINUSE)
            return sbx_fail_for(error, SANDBOX_EXISTS, "port-taken",
                                "port %u of this machine is taken by another program", wanted);
        return sbx_fail_errno(error, errno, "cannot listen on port %u of this machine", wanted);
    }
    union address bound = {.v6 = {.sin6_port = 0}};
    socklen_t size = sizeof bound;
    if (getsockname(fd, &bound.any, &size) < 0)
        return sbx_fail_errno(error, errno, "cannot find out the port");
    forward->host_port = ntohs(is_v4 ? bound.v4.sin_port : bound.v6.sin6_port);
    return SANDBOX_OK;
}

static sandbox_status start_dialer(sandbox_forward *forward, sandbox_error *error)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&forward->dialer, NULL, work, forward);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure != 0)
        return sbx_fail_errno(error, failure, "cannot start a thread for the forward");
    forward->dialer_started = true;
    return SANDBOX_OK;
}

/* Every link that it was given goes back, connected or not. */
static void *work(void *argument)
{
    sandbox_forward *forward = argument;
    struct sbx_link *link;
    bool stopping = false;
    while ((link = take_link(forward, &stopping)) != NULL) {
        link->dialed = stopping ? NULL : dial(forward, link->stale);
        sbx_loop_post(forward->loop, &link->dialed_task);
    }
    return NULL;
}

/* NULL: the forward ends and no link waits. */
static struct sbx_link *take_link(sandbox_forward *forward, bool *stopping)
{
    pthread_mutex_lock(&forward->mutex);
    while (forward->to_dial == NULL && !forward->stopping)
        pthread_cond_wait(&forward->changed, &forward->mutex);
    struct sbx_link *link = forward->to_dial;
    if (link != NULL) {
        forward->to_dial = link->next_to_dial;
        if (forward->to_dial == NULL)
            forward->to_dial_last = &forward->to_dial;
    }
    *stopping = forward->stopping;
    pthread_mutex_unlock(&forward->mutex);
    return link;
}

/* The agent's answer is awaited on the I/O thread. `stale`: the session was no good. */
static struct sbx_stream *dial(sandbox_forward *forward, bool stale)
{
    struct sbx_wait wait = sbx_wait_alone(DIAL_MS);
    wait.cancel = forward->cancel;
    sandbox_error refusal = {.reason = "stale-epoch"};
    if (stale && sbx_workspace_begin_again(forward->workspace, SANDBOX_CONFLICT, &wait,
                                           &refusal) != SANDBOX_OK)
        return NULL;
    struct sbx_stream *stream = NULL;
    if (sbx_workspace_stream(forward->workspace, "/sandbox.v1.Ports/Dial", &wait, &stream, NULL) !=
        SANDBOX_OK)
        return NULL;
    Sandbox__V1__PortData first = SANDBOX__V1__PORT_DATA__INIT;
    first.port = forward->port;
    if (sbx_stream_send(stream, &first.base, &wait, NULL) == SANDBOX_OK)
        return stream;
    sbx_stream_free(stream);
    return NULL;
}

static void open_on_loop(struct sbx_loop_task *task)
{
    sandbox_forward *forward = OWNER(task, open_task);
    uv_loop_t *uv = sbx_loop_uv(forward->loop);
    uv_timer_init(uv, &forward->pause);
    forward->pause.data = forward;
    forward->handles++;
    if (uv_poll_init(uv, &forward->listener, forward->listener_fd) != 0)
        return;
    forward->listener.data = forward;
    forward->handles++;
    uv_poll_start(&forward->listener, UV_READABLE, on_connection);
}

static void on_connection(uv_poll_t *listener, int status, int events)
{
    sandbox_forward *forward = listener->data;
    for (unsigned count = 0; count < ACCEPTS_AT_ONCE; count++) {
        int fd = accept4(forward->listener_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            sbx_link_begin(forward, fd);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            uv_poll_stop(listener);
            uv_timer_start(&forward->pause, on_pause_over, PAUSE_MS, 0);
        }
        return;
    }
}

static void on_pause_over(uv_timer_t *pause)
{
    sandbox_forward *forward = pause->data;
    uv_poll_start(&forward->listener, UV_READABLE, on_connection);
}

static void close_on_loop(struct sbx_loop_task *task)
{
    sandbox_forward *forward = OWNER(task, close_task);
    forward->closing = true;
    uv_close((uv_handle_t *)&forward->pause, on_closed);
    if (forward->listener.data != NULL)
        uv_close((uv_handle_t *)&forward->listener, on_closed);
    sbx_close_fd(&forward->listener_fd);
    struct sbx_link *next;
    for (struct sbx_link *link = forward->links; link != NULL; link = next) {
        next = link->next;
        sbx_link_cut(link);
    }
}

static void on_closed(uv_handle_t *handle)
{
    sandbox_forward *forward = handle->data;
    forward->handles--;
    sbx_forward_look(forward);
}
