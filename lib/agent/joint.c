/* Bytes between a stream and a socket of this machine: see joint.h. */

#include "agent/joint.h"
#include "util/memory.h"

/* One piece on its way to the host, and what holds it. */
struct piece {
    uv_write_t write;
    ProtobufCMessage *message; /* NULL: bytes of our own, in `own` */
    char *own;
};

static const struct sbx_wait now = {.deadline_ms = 0};

static void on_stream_ready(void *user_data);
static bool send_pending(struct sbx_joint *joint);
static bool take_message(struct sbx_joint *joint);
static void note_failure(struct sbx_joint *joint, sandbox_status status, const char *reason);
static bool write_to_host(struct sbx_joint *joint, ProtobufCMessage *message);
static bool write_piece(struct sbx_joint *joint, struct piece *piece, uv_buf_t bytes);
static void on_written(uv_write_t *write, int status);
static void end_towards_host(struct sbx_joint *joint);
static void on_shut(uv_shutdown_t *shutdown, int status);
static void read_from_host(struct sbx_joint *joint, bool wanted);
static void give_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room);
static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *room);
static void send_to_guest(struct sbx_joint *joint, const void *data, size_t size, bool end);
static sandbox_status send_message(struct sbx_joint *joint, const void *data, size_t size,
                                   bool end);
static void finish_if_done(struct sbx_joint *joint);
static void on_closed(uv_handle_t *handle);

void sbx_joint_begin(struct sbx_joint *joint, struct sbx_stream *stream)
{
    joint->stream = stream;
    sbx_stream_on_ready(stream, on_stream_ready, joint);
}

void sbx_joint_connected(struct sbx_joint *joint)
{
    joint->connected = true;
    if (joint->standing && !joint->host_ended)
        read_from_host(joint, true);
    on_stream_ready(joint);
}

/* Something has come from the guest, or there is room towards it again. */
static void on_stream_ready(void *user_data)
{
    struct sbx_joint *joint = user_data;
    if (joint->closing || !send_pending(joint))
        return;
    while (!joint->closing && joint->stream != NULL && !joint->guest_over &&
           (joint->connected || !joint->standing) &&
           uv_stream_get_write_queue_size(&joint->host.stream) < SBX_JOINT_QUEUE_BYTES) {
        if (!take_message(joint))
            break;
    }
    finish_if_done(joint);
}

/* False where the joint is gone for it. */
static bool send_pending(struct sbx_joint *joint)
{
    if (joint->stream == NULL || joint->guest_over ||
        (joint->pending == NULL && !joint->pending_end))
        return true;
    sandbox_status status =
        send_message(joint, joint->pending, joint->pending_size, joint->pending_end);
    if (status == SANDBOX_TIMED_OUT) /* no room yet; if it is the agent's, take_message() sees it */
        return true;
    free(sbx_take(joint->pending));
    joint->pending_size = 0;
    joint->pending_end = false;
    /* Where the guest ended the call, take_message() finds out how. */
    if (status == SANDBOX_OK && joint->standing && !joint->host_ended)
        read_from_host(joint, true);
    return !joint->closing;
}

/* False: there is none for now, or never again. */
static bool take_message(struct sbx_joint *joint)
{
    ProtobufCMessage *message = NULL;
    sandbox_error error = {0};
    sandbox_status status =
        sbx_stream_next(joint->stream, &sandbox__v1__port_data__descriptor, &now, &message, &error);
    if (status == SANDBOX_TIMED_OUT && error.reason[0] == '\0')
        return false;
    if (status == SANDBOX_CLOSED) {
        joint->guest_over = true;
        read_from_host(joint, false);
        end_towards_host(joint);
        return false;
    }
    if (status != SANDBOX_OK) {
        note_failure(joint, status, error.reason);
        return false;
    }
    if (!joint->standing) {
        joint->standing = true;
        if (joint->owner->stands != NULL)
            joint->owner->stands(joint);
        read_from_host(joint, joint->connected);
    }
    bool end = ((const Sandbox__V1__PortData *)(void *)message)->end;
    if (!write_to_host(joint, message))
        return false;
    if (end)
        end_towards_host(joint);
    return !joint->closing;
}

static void note_failure(struct sbx_joint *joint, sandbox_status status, const char *reason)
{
    bool excused = false;
    sbx_stream_free(sbx_take(joint->stream));
    if (!joint->standing && joint->owner->failed != NULL)
        excused = joint->owner->failed(joint, status, reason);
    if (!excused)
        sbx_joint_close(joint, true);
}

/* Takes the message over. */
static bool write_to_host(struct sbx_joint *joint, ProtobufCMessage *message)
{
    const Sandbox__V1__PortData *data = (const Sandbox__V1__PortData *)(void *)message;
    if (data->data.len == 0 || joint->guest_ended || joint->closing) {
        protobuf_c_message_free_unpacked(message, NULL);
        return !joint->closing;
    }
    struct piece *piece = calloc(1, sizeof *piece);
    if (piece == NULL) {
        protobuf_c_message_free_unpacked(message, NULL);
        sbx_joint_close(joint, true);
        return false;
    }
    piece->message = message;
    return write_piece(joint, piece,
                       uv_buf_init((char *)data->data.data, (unsigned)data->data.len));
}

bool sbx_joint_say(struct sbx_joint *joint, const void *data, size_t size)
{
    struct piece *piece = calloc(1, sizeof *piece);
    if (piece != NULL)
        piece->own = sbx_copy_bytes(data, size);
    if (piece == NULL || piece->own == NULL) {
        free(piece);
        sbx_joint_close(joint, true);
        return false;
    }
    return write_piece(joint, piece, uv_buf_init(piece->own, (unsigned)size));
}

/* What was said may be secret. */
static void free_piece(struct piece *piece)
{
    if (piece->message != NULL)
        protobuf_c_message_free_unpacked(piece->message, NULL);
    sbx_secret_free(piece->own);
    free(piece);
}

static bool write_piece(struct sbx_joint *joint, struct piece *piece, uv_buf_t bytes)
{
    piece->write.data = joint;
    if (uv_write(&piece->write, &joint->host.stream, &bytes, 1, on_written) == 0)
        return true;
    free_piece(piece);
    sbx_joint_close(joint, true);
    return false;
}

static void on_written(uv_write_t *write, int status)
{
    struct piece *piece = (struct piece *)(void *)((char *)write - offsetof(struct piece, write));
    struct sbx_joint *joint = write->data;
    free_piece(piece);
    if (joint->closing)
        return;
    if (status != 0)
        sbx_joint_close(joint, true);
    else
        on_stream_ready(joint);
}

static void end_towards_host(struct sbx_joint *joint)
{
    joint->guest_ended = true;
    if (joint->shutting || joint->closing)
        return;
    joint->shutting = true;
    if (uv_shutdown(&joint->shutdown, &joint->host.stream, on_shut) != 0)
        sbx_joint_close(joint, true);
}

static void on_shut(uv_shutdown_t *shutdown, int status)
{
    struct sbx_joint *joint = shutdown->handle->data;
    if (joint->closing)
        return;
    joint->shut = true;
    finish_if_done(joint);
}

static void read_from_host(struct sbx_joint *joint, bool wanted)
{
    if (joint->reading == wanted || joint->closing || (wanted && !joint->connected))
        return;
    joint->reading = wanted;
    if (!wanted)
        uv_read_stop(&joint->host.stream);
    else if (uv_read_start(&joint->host.stream, give_room, on_read) != 0)
        sbx_joint_close(joint, true);
}

static void give_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room)
{
    const struct sbx_joint *joint = handle->data;
    *room = uv_buf_init((char *)joint->owner->inbox, SBX_JOINT_PIECE);
}

static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *room)
{
    struct sbx_joint *joint = stream->data;
    if (size == 0 || joint->closing)
        return;
    if (size > 0) {
        send_to_guest(joint, room->base, (size_t)size, false);
    } else if (size == UV_EOF) {
        joint->host_ended = true;
        read_from_host(joint, false);
        send_to_guest(joint, NULL, 0, true);
        finish_if_done(joint);
    } else {
        sbx_joint_close(joint, true);
    }
}

/* What there is no room for is kept, and reading pauses until there is. */
static void send_to_guest(struct sbx_joint *joint, const void *data, size_t size, bool end)
{
    sandbox_status status = SANDBOX_TIMED_OUT;
    if (joint->pending == NULL)
        status = send_message(joint, data, size, end);
    if (status == SANDBOX_OK)
        return;
    if (status != SANDBOX_TIMED_OUT) { /* take_message() finds out how the call ended */
        on_stream_ready(joint);
        return;
    }
    read_from_host(joint, false);
    joint->pending_end = end;
    if (size == 0)
        return;
    joint->pending = sbx_copy_bytes(data, size);
    joint->pending_size = size;
    if (joint->pending == NULL)
        sbx_joint_close(joint, true);
}

static sandbox_status send_message(struct sbx_joint *joint, const void *data, size_t size, bool end)
{
    union {
        const void *given;
        uint8_t *wanted; /* protobuf-c asks for it and only reads */
    } bytes = {.given = data};
    Sandbox__V1__PortData message = SANDBOX__V1__PORT_DATA__INIT;
    message.data = (ProtobufCBinaryData){size, bytes.wanted};
    message.end = end;
    return sbx_stream_send(joint->stream, &message.base, &now, NULL);
}

void sbx_joint_excuse(struct sbx_joint *joint, const char *words)
{
    if (joint->closing || joint->stream == NULL)
        return;
    joint->guest_ended = joint->host_ended = joint->shutting = joint->shut = true;
    joint->connected = true; /* what it says is taken, and thrown away */
    send_to_guest(joint, words, strlen(words), true);
    on_stream_ready(joint);
}

/*
 * The agent ends the call once both directions have ended. Freeing the stream before that would
 * take back what is still on its way to the guest.
 */
static void finish_if_done(struct sbx_joint *joint)
{
    if (!joint->closing && joint->shut && joint->guest_over)
        sbx_joint_close(joint, false);
}

void sbx_joint_close(struct sbx_joint *joint, bool abruptly)
{
    if (joint->closing)
        return;
    joint->closing = true;
    sbx_stream_free(sbx_take(joint->stream));
    if (!abruptly || joint->shutting || !joint->is_tcp ||
        uv_tcp_close_reset(&joint->host.tcp, on_closed) != 0)
        uv_close(&joint->host.handle, on_closed);
}

static void on_closed(uv_handle_t *handle)
{
    struct sbx_joint *joint = handle->data;
    free(sbx_take(joint->pending));
    joint->owner->closed(joint);
}
