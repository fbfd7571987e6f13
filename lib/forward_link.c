/*
 * One connection of a forward: bytes between a socket of this machine and a Dial stream, each
 * direction with its own end, and neither faster than the other side takes them.
 */

#include "forward_parts.h"
#include "util/memory.h"
#include <unistd.h>

/* One piece on its way to the host, and the message that holds it. */
struct piece {
    uv_write_t write;
    ProtobufCMessage *message;
};

static const struct sbx_wait now = {.deadline_ms = 0};

static void on_dialed(struct sbx_loop_task *task);
static void on_stream_ready(void *user_data);
static bool send_pending(struct sbx_link *link);
static bool take_message(struct sbx_link *link);
static void note_failure(struct sbx_link *link, sandbox_status status, const char *reason);
static bool write_to_host(struct sbx_link *link, ProtobufCMessage *message);
static void on_written(uv_write_t *write, int status);
static void end_towards_host(struct sbx_link *link);
static void on_shut(uv_shutdown_t *shutdown, int status);
static void read_from_host(struct sbx_link *link, bool wanted);
static void give_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room);
static void on_read(uv_stream_t *tcp, ssize_t size, const uv_buf_t *room);
static void send_to_guest(struct sbx_link *link, const void *data, size_t size, bool end);
static sandbox_status send_message(struct sbx_link *link, const void *data, size_t size, bool end);
static void finish_if_done(struct sbx_link *link);
static void close_link(struct sbx_link *link, bool abruptly);
static void on_link_closed(uv_handle_t *handle);
static void forget(struct sbx_link *link);

void sbx_link_begin(struct sandbox_forward *forward, int fd)
{
    struct sbx_link *link = NULL;
    if (!forward->closing && forward->link_count < forward->max_connections)
        link = calloc(1, sizeof *link);
    if (link == NULL) {
        close(fd);
        return;
    }
    link->forward = forward;
    link->dialed_task.run = on_dialed;
    uv_tcp_init(sbx_loop_uv(forward->loop), &link->tcp);
    link->tcp.data = link;
    link->next = forward->links;
    if (link->next != NULL)
        link->next->previous = link;
    forward->links = link;
    forward->link_count++;
    if (uv_tcp_open(&link->tcp, fd) != 0) {
        close(fd);
        close_link(link, false);
        return;
    }
    (void)uv_tcp_nodelay(&link->tcp, 1);
    sbx_forward_dial(link);
}

void sbx_link_cut(struct sbx_link *link)
{
    close_link(link, true);
}

static void on_dialed(struct sbx_loop_task *task)
{
    struct sbx_link *link =
        (struct sbx_link *)(void *)((char *)task - offsetof(struct sbx_link, dialed_task));
    link->dialing = false;
    struct sbx_stream *stream = sbx_take(link->dialed);
    if (link->closing || stream == NULL) {
        sbx_stream_free(stream);
        if (link->closed)
            forget(link);
        else
            close_link(link, true);
        return;
    }
    link->stream = stream;
    sbx_stream_on_ready(stream, on_stream_ready, link);
}

/* Something has come from the guest, or there is room towards it again. */
static void on_stream_ready(void *user_data)
{
    struct sbx_link *link = user_data;
    if (link->closing || !send_pending(link))
        return;
    while (!link->closing && link->stream != NULL && !link->guest_over &&
           uv_stream_get_write_queue_size((uv_stream_t *)&link->tcp) < SBX_FORWARD_QUEUE_BYTES) {
        if (!take_message(link))
            break;
    }
    finish_if_done(link);
}

/* False where the link is gone for it. */
static bool send_pending(struct sbx_link *link)
{
    if (link->stream == NULL || link->guest_over ||
        (link->pending == NULL && !link->pending_end))
        return true;
    sandbox_status status = send_message(link, link->pending, link->pending_size,
                                         link->pending_end);
    if (status == SANDBOX_TIMED_OUT) /* no room yet; if it is the agent's, take_message() sees it */
        return true;
    free(sbx_take(link->pending));
    link->pending_size = 0;
    link->pending_end = false;
    /* Where the guest ended the call, take_message() finds out how. */
    if (status == SANDBOX_OK && link->standing && !link->host_ended)
        read_from_host(link, true);
    return !link->closing;
}

/* False: there is none for now, or never again. */
static bool take_message(struct sbx_link *link)
{
    ProtobufCMessage *message = NULL;
    sandbox_error error = {0};
    sandbox_status status = sbx_stream_next(
        link->stream, &sandbox__v1__port_data__descriptor, &now, &message, &error);
    if (status == SANDBOX_TIMED_OUT && error.reason[0] == '\0')
        return false;
    if (status == SANDBOX_CLOSED) {
        link->guest_over = true;
        read_from_host(link, false);
        end_towards_host(link);
        return false;
    }
    if (status != SANDBOX_OK) {
        note_failure(link, status, error.reason);
        return false;
    }
    if (!link->standing) {
        link->standing = true;
        read_from_host(link, true);
    }
    bool end = ((const Sandbox__V1__PortData *)(void *)message)->end;
    if (!write_to_host(link, message))
        return false;
    if (end)
        end_towards_host(link);
    return !link->closing;
}

/* Nothing of the host's has been read before the connection stood, so it may be tried again. */
static void note_failure(struct sbx_link *link, sandbox_status status, const char *reason)
{
    sandbox_error refusal = {0};
    snprintf(refusal.reason, sizeof refusal.reason, "%s", reason);
    link->stale = sbx_workspace_is_refused(status, &refusal);
    bool again = !link->standing && !link->dialed_again &&
                 (status == SANDBOX_UNAVAILABLE || link->stale);
    if (!again) {
        close_link(link, true);
        return;
    }
    sbx_stream_free(sbx_take(link->stream));
    link->dialed_again = true;
    sbx_forward_dial(link);
}

/* Takes the message over. */
static bool write_to_host(struct sbx_link *link, ProtobufCMessage *message)
{
    const Sandbox__V1__PortData *data = (const Sandbox__V1__PortData *)(void *)message;
    if (data->data.len == 0 || link->guest_ended) {
        protobuf_c_message_free_unpacked(message, NULL);
        return true;
    }
    struct piece *piece = calloc(1, sizeof *piece);
    uv_buf_t bytes = uv_buf_init((char *)data->data.data, (unsigned)data->data.len);
    if (piece != NULL) {
        piece->message = message;
        piece->write.data = link;
        if (uv_write(&piece->write, (uv_stream_t *)&link->tcp, &bytes, 1, on_written) == 0)
            return true;
        free(piece);
    }
    protobuf_c_message_free_unpacked(message, NULL);
    close_link(link, true);
    return false;
}

static void on_written(uv_write_t *write, int status)
{
    struct piece *piece = (struct piece *)(void *)((char *)write - offsetof(struct piece, write));
    struct sbx_link *link = write->data;
    protobuf_c_message_free_unpacked(piece->message, NULL);
    free(piece);
    if (link->closing)
        return;
    if (status != 0)
        close_link(link, true);
    else
        on_stream_ready(link);
}

static void end_towards_host(struct sbx_link *link)
{
    link->guest_ended = true;
    if (link->shutting)
        return;
    link->shutting = true;
    if (uv_shutdown(&link->shutdown, (uv_stream_t *)&link->tcp, on_shut) != 0)
        close_link(link, true);
}

static void on_shut(uv_shutdown_t *shutdown, int status)
{
    struct sbx_link *link = shutdown->handle->data;
    if (link->closing)
        return;
    link->shut = true;
    finish_if_done(link);
}

static void read_from_host(struct sbx_link *link, bool wanted)
{
    if (link->reading == wanted || link->closing)
        return;
    link->reading = wanted;
    if (!wanted)
        uv_read_stop((uv_stream_t *)&link->tcp);
    else if (uv_read_start((uv_stream_t *)&link->tcp, give_room, on_read) != 0)
        close_link(link, true);
}

static void give_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room)
{
    struct sbx_link *link = handle->data;
    *room = uv_buf_init((char *)link->forward->inbox, SBX_FORWARD_PIECE);
}

static void on_read(uv_stream_t *tcp, ssize_t size, const uv_buf_t *room)
{
    struct sbx_link *link = tcp->data;
    if (size == 0 || link->closing)
        return;
    if (size > 0) {
        send_to_guest(link, room->base, (size_t)size, false);
    } else if (size == UV_EOF) {
        link->host_ended = true;
        read_from_host(link, false);
        send_to_guest(link, NULL, 0, true);
        finish_if_done(link);
    } else {
        close_link(link, true);
    }
}

/* What there is no room for is kept, and reading pauses until there is. */
static void send_to_guest(struct sbx_link *link, const void *data, size_t size, bool end)
{
    sandbox_status status = SANDBOX_TIMED_OUT;
    if (link->pending == NULL)
        status = send_message(link, data, size, end);
    if (status == SANDBOX_OK)
        return;
    if (status != SANDBOX_TIMED_OUT) { /* take_message() finds out how the call ended */
        on_stream_ready(link);
        return;
    }
    read_from_host(link, false);
    link->pending_end = end;
    if (size == 0)
        return;
    link->pending = sbx_copy_bytes(data, size);
    link->pending_size = size;
    if (link->pending == NULL)
        close_link(link, true);
}

static sandbox_status send_message(struct sbx_link *link, const void *data, size_t size, bool end)
{
    union {
        const void *given;
        uint8_t *wanted; /* protobuf-c asks for it and only reads */
    } bytes = {.given = data};
    Sandbox__V1__PortData message = SANDBOX__V1__PORT_DATA__INIT;
    message.data = (ProtobufCBinaryData){size, bytes.wanted};
    message.end = end;
    return sbx_stream_send(link->stream, &message.base, &now, NULL);
}

/* Both directions have ended; or the guest's call is over and its last bytes have left. */
static void finish_if_done(struct sbx_link *link)
{
    bool host_done = link->host_ended && link->pending == NULL && !link->pending_end;
    if (!link->closing && link->shut && (host_done || link->guest_over))
        close_link(link, false);
}

/* Abruptly: the host's program shall not take it for a proper end. */
static void close_link(struct sbx_link *link, bool abruptly)
{
    if (link->closing)
        return;
    link->closing = true;
    sbx_stream_free(sbx_take(link->stream));
    if (!abruptly || link->shutting || uv_tcp_close_reset(&link->tcp, on_link_closed) != 0)
        uv_close((uv_handle_t *)&link->tcp, on_link_closed);
}

static void on_link_closed(uv_handle_t *handle)
{
    struct sbx_link *link = handle->data;
    link->closed = true;
    if (!link->dialing)
        forget(link);
}

static void forget(struct sbx_link *link)
{
    struct sandbox_forward *forward = link->forward;
    if (link->previous != NULL)
        link->previous->next = link->next;
    else
        forward->links = link->next;
    if (link->next != NULL)
        link->next->previous = link->previous;
    forward->link_count--;
    free(link->pending);
    free(link);
    sbx_forward_look(forward);
}
