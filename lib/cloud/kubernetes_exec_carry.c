/*
 * One exec on the I/O thread: between the WebSocket and the far end of a channel. Both directions
 * have bounded buffers; who is slow makes the other side wait.
 */

#include "cloud/kubernetes_exec.h"
#include "util/memory.h"
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define OUTPUT_BYTES (256u << 10)
#define CHUNK_BYTES  4096u       /* see sbx_websocket_sink */
#define LEAST_BYTES  (16u << 10) /* do not fill the last of a buffer with small messages */

enum { STDIN = 0, CLOSE = 255 };

struct sbx_exec {
    struct sbx_loop *loop;
    struct sbx_kubernetes_pace pace;
    struct sbx_loop_task start;
    struct sbx_websocket *socket;
    struct sbx_kubernetes_access access; /* held: the connection borrows its certificates */
    void (*ended)(void *user_data, const struct sbx_exec_end *end);
    void *user_data;
    struct sbx_exec_reader reader;
    int far; /* end of the channel */
    uv_poll_t socket_poll, far_poll;
    uv_timer_t timer;
    uv_idle_t again;
    unsigned handles;
    bool can_close_stdin, stdin_over, remote_over, local_over, was_full;
    char why[160];
    uint64_t heard_ms;
    size_t output_start, output_end;
    uint8_t output[OUTPUT_BYTES + CHUNK_BYTES];
    uint8_t message[SBX_WEBSOCKET_MESSAGE];
};

static void on_start(struct sbx_loop_task *task);
static bool watch(struct sbx_exec *exec);
static void on_socket(uv_poll_t *handle, int status, int events);
static void on_far(uv_poll_t *handle, int status, int events);
static void on_again(uv_idle_t *handle);
static void on_tick(uv_timer_t *handle);
static void keep_output(void *user_data, const uint8_t *data, size_t size);
static void take_data(void *user_data, const uint8_t *data, size_t size, bool begins);
static bool has_room(void *user_data);
static void pump(struct sbx_exec *exec);
static void take_input(struct sbx_exec *exec);
static void deliver(struct sbx_exec *exec);
static void settle_interest(struct sbx_exec *exec, bool again);
static void finish(struct sbx_exec *exec);
static void on_closed(uv_handle_t *handle);

struct sbx_exec *sbx_exec_new(const struct sbx_kubernetes *cluster, struct sbx_loop *loop,
                              const struct sbx_exec_options *options)
{
    struct sbx_exec *exec = malloc(sizeof *exec);
    if (exec == NULL)
        return NULL;
    memset(exec, 0, offsetof(struct sbx_exec, output));
    exec->loop = loop;
    exec->pace = cluster->pace;
    exec->start.run = on_start;
    exec->ended = options->ended;
    exec->user_data = options->user_data;
    exec->reader.output = keep_output;
    exec->reader.user_data = exec;
    exec->reader.status = (struct sbx_bytes)SBX_BYTES(SBX_EXEC_STATUS);
    exec->far = -1;
    return exec;
}

void sbx_exec_free(struct sbx_exec *exec)
{
    if (exec == NULL)
        return;
    sbx_websocket_free(exec->socket);
    sbx_kubernetes_access_end(&exec->access);
    sbx_bytes_free(&exec->reader.status);
    sbx_close_fd(&exec->far);
    free(exec);
}

struct sbx_kubernetes_access *sbx_exec_access(struct sbx_exec *exec)
{
    return &exec->access;
}

struct sbx_websocket **sbx_exec_socket(struct sbx_exec *exec)
{
    return &exec->socket;
}

void sbx_exec_carry(struct sbx_exec *exec, int far)
{
    exec->far = far;
    exec->can_close_stdin = strcmp(sbx_websocket_protocol(exec->socket), "v5.channel.k8s.io") == 0;
    sbx_loop_post(exec->loop, &exec->start);
}

static void on_start(struct sbx_loop_task *task)
{
    struct sbx_exec *exec =
        (struct sbx_exec *)(void *)((char *)task - offsetof(struct sbx_exec, start));
    struct sbx_websocket_sink sink = {take_data, has_room, exec};
    uv_loop_t *loop = sbx_loop_uv(exec->loop);
    uv_timer_init(loop, &exec->timer);
    uv_idle_init(loop, &exec->again);
    exec->timer.data = exec->again.data = exec;
    exec->handles = 2;
    exec->heard_ms = uv_now(loop);
    if (sbx_websocket_begin(exec->socket, &sink, NULL) == SANDBOX_OK && watch(exec)) {
        pump(exec);
        return;
    }
    snprintf(exec->why, sizeof exec->why, "no memory to carry the connection");
    exec->remote_over = true;
    finish(exec);
}

static bool watch(struct sbx_exec *exec)
{
    uv_loop_t *loop = sbx_loop_uv(exec->loop);
    if (uv_poll_init(loop, &exec->socket_poll, sbx_websocket_descriptor(exec->socket)) != 0)
        return false;
    exec->socket_poll.data = exec;
    exec->handles = 3;
    if (uv_poll_init(loop, &exec->far_poll, exec->far) != 0)
        return false;
    exec->far_poll.data = exec;
    exec->handles = 4;
    return uv_timer_start(&exec->timer, on_tick, exec->pace.ping_ms, exec->pace.ping_ms) == 0;
}

static void on_socket(uv_poll_t *handle, int status, int events)
{
    pump(handle->data);
}

/* An end of which only the writing side is closed may still be read. */
static void on_far(uv_poll_t *handle, int status, int events)
{
    struct sbx_exec *exec = handle->data;
    struct pollfd watched = {exec->far, 0, 0};
    if (poll(&watched, 1, 0) > 0 && (watched.revents & (POLLHUP | POLLERR)) != 0)
        exec->local_over = true;
    pump(exec);
}

static void on_again(uv_idle_t *handle)
{
    uv_idle_stop(handle);
    pump(handle->data);
}

static bool is_full(const struct sbx_exec *exec)
{
    return exec->output_end >= OUTPUT_BYTES;
}

/* A connection that nobody reads from, since the channel is full, is not one that is silent. */
static void on_tick(uv_timer_t *handle)
{
    struct sbx_exec *exec = handle->data;
    uint64_t now = uv_now(handle->loop);
    if (is_full(exec) || exec->remote_over)
        exec->heard_ms = now;
    uint64_t silent_ms = now - exec->heard_ms;
    if (sbx_exec_has_status(&exec->reader) && silent_ms >= exec->pace.close_ms) {
        exec->remote_over = true;
    } else if (silent_ms >= exec->pace.silence_ms) {
        exec->remote_over = true;
        snprintf(exec->why, sizeof exec->why, "the server has been silent for %u s",
                 exec->pace.silence_ms / 1000);
    } else if (!exec->remote_over && !sbx_exec_has_status(&exec->reader)) {
        sbx_frames_ping(sbx_websocket_frames(exec->socket));
    }
    pump(exec);
}

/* There is room: see has_room(). */
static void keep_output(void *user_data, const uint8_t *data, size_t size)
{
    struct sbx_exec *exec = user_data;
    memcpy(exec->output + exec->output_end, data, size);
    exec->output_end += size;
}

static void take_data(void *user_data, const uint8_t *data, size_t size, bool begins)
{
    struct sbx_exec *exec = user_data;
    bool had_status = sbx_exec_has_status(&exec->reader);
    sbx_exec_read(&exec->reader, data, size, begins);
    if (!had_status && sbx_exec_has_status(&exec->reader))
        uv_timer_start(&exec->timer, on_tick, exec->pace.close_ms, exec->pace.close_ms);
}

static bool has_room(void *user_data)
{
    struct sbx_exec *exec = user_data;
    exec->was_full = is_full(exec);
    return !exec->was_full;
}

/* All that can be done without waiting. */
static void pump(struct sbx_exec *exec)
{
    bool again = false, heard = false;
    if (!exec->local_over && !exec->remote_over) {
        take_input(exec);
        enum sbx_websocket_state state = sbx_websocket_move(exec->socket, &heard);
        if (heard)
            exec->heard_ms = uv_now(exec->timer.loop);
        if (state == SBX_WEBSOCKET_OVER) {
            exec->remote_over = true;
            sbx_websocket_reason(exec->socket, exec->why);
        }
        again = state == SBX_WEBSOCKET_BUSY;
    }
    if (!exec->local_over)
        deliver(exec);
    if (exec->local_over || (exec->remote_over && exec->output_start == exec->output_end))
        finish(exec);
    else
        settle_interest(exec, again || (!exec->remote_over && exec->was_full && !is_full(exec)));
}

static void take_input(struct sbx_exec *exec)
{
    struct sbx_frames *frames = sbx_websocket_frames(exec->socket);
    while (!exec->stdin_over && !exec->local_over) {
        size_t room = sbx_frames_room(frames);
        if (room < LEAST_BYTES)
            return;
        ssize_t size = recv(exec->far, exec->message + 1, room - 1, MSG_DONTWAIT);
        if (size < 0 && errno == EINTR)
            continue;
        if (size < 0) {
            exec->local_over = errno != EAGAIN;
            return;
        }
        exec->stdin_over = size == 0;
        exec->message[0] = size == 0 ? CLOSE : STDIN;
        if (size == 0)
            exec->message[1] = STDIN;
        /* The older protocol has no word for the end of stdin. */
        if (size == 0 && !exec->can_close_stdin)
            return;
        if (!sbx_frames_put(frames, exec->message, size == 0 ? 2 : (size_t)size + 1))
            exec->local_over = true;
    }
}

static void deliver(struct sbx_exec *exec)
{
    while (exec->output_start < exec->output_end) {
        ssize_t size = send(exec->far, exec->output + exec->output_start,
                            exec->output_end - exec->output_start, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (size < 0 && errno == EINTR)
            continue;
        if (size < 0) {
            exec->local_over = errno != EAGAIN;
            return;
        }
        exec->output_start += (size_t)size;
    }
    exec->output_start = exec->output_end = 0;
}

static void set_interest(uv_poll_t *handle, int events, uv_poll_cb callback)
{
    if (events == 0)
        uv_poll_stop(handle);
    else
        uv_poll_start(handle, events, callback);
}

static void settle_interest(struct sbx_exec *exec, bool again)
{
    short wanted = exec->remote_over ? 0 : sbx_websocket_events(exec->socket);
    set_interest(&exec->socket_poll,
                 ((wanted & POLLIN) != 0 ? UV_READABLE : 0) |
                     ((wanted & POLLOUT) != 0 ? UV_WRITABLE : 0),
                 on_socket);
    bool reads = !exec->stdin_over && !exec->remote_over &&
                 sbx_frames_room(sbx_websocket_frames(exec->socket)) >= LEAST_BYTES;
    bool writes = exec->output_start < exec->output_end;
    /* Nothing ever comes out of band: it only has the end of the channel told. */
    set_interest(&exec->far_poll,
                 (reads ? UV_READABLE : 0) | (writes ? UV_WRITABLE : 0) | UV_PRIORITIZED, on_far);
    if (again)
        uv_idle_start(&exec->again, on_again);
}

/* With what is unread left in it, the other side would see an error instead of the end. */
static void close_far(struct sbx_exec *exec)
{
    shutdown(exec->far, SHUT_RDWR);
    while (recv(exec->far, exec->message, sizeof exec->message, MSG_DONTWAIT) > 0)
        ;
    sbx_close_fd(&exec->far);
}

static void finish(struct sbx_exec *exec)
{
    struct sbx_exec_end end;
    bool heard;
    if (!exec->remote_over) {
        sbx_frames_close(sbx_websocket_frames(exec->socket));
        (void)sbx_websocket_move(exec->socket, &heard);
        snprintf(exec->why, sizeof exec->why, "the channel was closed on our side");
    }
    sbx_exec_settle(&exec->reader, exec->why, &end);
    uv_handle_t *handles[] = {(uv_handle_t *)&exec->timer, (uv_handle_t *)&exec->again,
                              (uv_handle_t *)&exec->socket_poll, (uv_handle_t *)&exec->far_poll};
    unsigned count = exec->handles;
    for (unsigned at = 0; at < count; at++)
        uv_close(handles[at], on_closed);
    sbx_websocket_free(sbx_take(exec->socket));
    close_far(exec);
    if (exec->ended != NULL)
        exec->ended(exec->user_data, &end);
}

static void on_closed(uv_handle_t *handle)
{
    struct sbx_exec *exec = handle->data;
    if (--exec->handles == 0)
        sbx_exec_free(exec);
}
