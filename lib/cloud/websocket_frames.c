/*
 * Frames in and out. wslay's event interface reads, and answers pings and closes; messages of ours
 * go through its frame interface, which sends one of any size in one frame and copies it once.
 * Both write whole frames to one buffer.
 */

#include "cloud/websocket.h"
#include "util/memory.h"
#include "util/random.h"
#include <stdio.h>
#include <wslay/wslay.h>

#define HEADER_MAX   14u
#define OUTPUT_BYTES (256u << 10)
#define CONTROL_ROOM 1024u /* kept free for pings, pongs and the close */
#define QUEUED_MAX   4u    /* control frames: who pings faster than we can answer waits */

struct sbx_frames {
    wslay_event_context_ptr events;
    wslay_frame_context_ptr sender;
    struct sbx_websocket_sink sink;
    const uint8_t *input; /* while sbx_frames_take() runs */
    size_t input_size;
    bool in_message, begins; /* of the frame that is being read */
    bool had_text;
    char close_words[100]; /* the beginning */
    size_t start, end;     /* of the output */
    uint8_t output[OUTPUT_BYTES];
};

static ssize_t give_input(wslay_event_context_ptr events, uint8_t *data, size_t size, int flags,
                          void *user_data);
static ssize_t add_control(wslay_event_context_ptr events, const uint8_t *data, size_t size,
                           int flags, void *user_data);
static ssize_t add_message(const uint8_t *data, size_t size, int flags, void *user_data);
static int mask_control(wslay_event_context_ptr events, uint8_t *mask, size_t size,
                        void *user_data);
static int mask_message(uint8_t *mask, size_t size, void *user_data);
static void on_frame(wslay_event_context_ptr events,
                     const struct wslay_event_on_frame_recv_start_arg *frame, void *user_data);
static void on_data(wslay_event_context_ptr events,
                    const struct wslay_event_on_frame_recv_chunk_arg *chunk, void *user_data);
static void on_message(wslay_event_context_ptr events,
                       const struct wslay_event_on_msg_recv_arg *message, void *user_data);
static void flush_control(struct sbx_frames *frames);

struct sbx_frames *sbx_frames_new(const struct sbx_websocket_sink *sink)
{
    static const struct wslay_event_callbacks reading = {
        .recv_callback = give_input,
        .send_callback = add_control,
        .genmask_callback = mask_control,
        .on_frame_recv_start_callback = on_frame,
        .on_frame_recv_chunk_callback = on_data,
        .on_msg_recv_callback = on_message,
    };
    static const struct wslay_frame_callbacks writing = {
        .send_callback = add_message,
        .genmask_callback = mask_message,
    };
    struct sbx_frames *frames = malloc(sizeof *frames);
    if (frames == NULL)
        return NULL;
    memset(frames, 0, offsetof(struct sbx_frames, output));
    frames->sink = *sink;
    if (wslay_event_context_client_init(&frames->events, &reading, frames) != 0 ||
        wslay_frame_context_init(&frames->sender, &writing, frames) != 0) {
        sbx_frames_free(frames);
        return NULL;
    }
    wslay_event_config_set_no_buffering(frames->events, 1);
    return frames;
}

void sbx_frames_free(struct sbx_frames *frames)
{
    if (frames == NULL)
        return;
    if (frames->events != NULL)
        wslay_event_context_free(frames->events);
    if (frames->sender != NULL)
        wslay_frame_context_free(frames->sender);
    free(frames);
}

size_t sbx_frames_take(struct sbx_frames *frames, const uint8_t *data, size_t size)
{
    frames->input = data;
    frames->input_size = size;
    if (wslay_event_recv(frames->events) != 0)
        wslay_event_shutdown_read(frames->events);
    frames->input = NULL;
    flush_control(frames);
    return size - frames->input_size;
}

bool sbx_frames_can_take(struct sbx_frames *frames)
{
    return wslay_event_get_queued_msg_count(frames->events) < QUEUED_MAX &&
           frames->sink.has_room(frames->sink.user_data);
}

bool sbx_frames_are_over(const struct sbx_frames *frames)
{
    return !wslay_event_get_read_enabled(frames->events);
}

void sbx_frames_reason(const struct sbx_frames *frames, char text[160])
{
    unsigned code = wslay_event_get_status_code_received(frames->events);
    if (!wslay_event_get_close_received(frames->events))
        snprintf(text, 160, "%s",
                 frames->had_text ? "the server sent text in place of bytes"
                                  : "the server broke the WebSocket protocol");
    else if (code == WSLAY_CODE_NO_STATUS_RCVD)
        snprintf(text, 160, "the server closed the connection");
    else
        snprintf(text, 160, "the server closed the connection with code %u%s%.100s", code,
                 frames->close_words[0] == '\0' ? "" : ": ", frames->close_words);
}

/* Frames of the two kinds must not be cut into each other. */
size_t sbx_frames_room(const struct sbx_frames *frames)
{
    size_t left = OUTPUT_BYTES - frames->end;
    if (left <= HEADER_MAX + CONTROL_ROOM || wslay_event_want_write(frames->events))
        return 0;
    left -= HEADER_MAX + CONTROL_ROOM;
    return left < SBX_WEBSOCKET_MESSAGE ? left : SBX_WEBSOCKET_MESSAGE;
}

bool sbx_frames_put(struct sbx_frames *frames, const uint8_t *data, size_t size)
{
    struct wslay_frame_iocb frame = {.fin = 1,
                                     .opcode = WSLAY_BINARY_FRAME,
                                     .mask = 1,
                                     .payload_length = size,
                                     .data = data,
                                     .data_length = size};
    do {
        ssize_t sent = wslay_frame_send(frames->sender, &frame);
        if (sent < 0)
            return false;
        frame.data += sent;
        frame.data_length -= (size_t)sent;
    } while (frame.data_length > 0);
    return true;
}

static void queue_control(struct sbx_frames *frames, uint8_t opcode)
{
    struct wslay_event_msg message = {.opcode = opcode};
    if (wslay_event_get_queued_msg_count(frames->events) < QUEUED_MAX)
        (void)wslay_event_queue_msg(frames->events, &message);
    flush_control(frames);
}

void sbx_frames_ping(struct sbx_frames *frames)
{
    queue_control(frames, WSLAY_PING);
}

void sbx_frames_close(struct sbx_frames *frames)
{
    (void)wslay_event_queue_close(frames->events, WSLAY_CODE_NORMAL_CLOSURE, NULL, 0);
    flush_control(frames);
}

const uint8_t *sbx_frames_output(const struct sbx_frames *frames, size_t *size)
{
    *size = frames->end - frames->start;
    return frames->output + frames->start;
}

void sbx_frames_sent(struct sbx_frames *frames, size_t size)
{
    frames->start += size;
    if (frames->start == frames->end)
        frames->start = frames->end = 0;
    flush_control(frames);
}

static void flush_control(struct sbx_frames *frames)
{
    if (wslay_event_want_write(frames->events) && wslay_event_send(frames->events) != 0)
        wslay_event_shutdown_read(frames->events);
}

static ssize_t give_input(wslay_event_context_ptr events, uint8_t *data, size_t size, int flags,
                          void *user_data)
{
    struct sbx_frames *frames = user_data;
    if (frames->input_size == 0 || !sbx_frames_can_take(frames)) {
        wslay_event_set_error(events, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    if (size > frames->input_size)
        size = frames->input_size;
    memcpy(data, frames->input, size);
    frames->input += size;
    frames->input_size -= size;
    return (ssize_t)size;
}

static bool add(struct sbx_frames *frames, const uint8_t *data, size_t size)
{
    if (size > OUTPUT_BYTES - frames->end)
        return false;
    memcpy(frames->output + frames->end, data, size);
    frames->end += size;
    return true;
}

static ssize_t add_control(wslay_event_context_ptr events, const uint8_t *data, size_t size,
                           int flags, void *user_data)
{
    if (add(user_data, data, size))
        return (ssize_t)size;
    wslay_event_set_error(events, WSLAY_ERR_WOULDBLOCK);
    return -1;
}

static ssize_t add_message(const uint8_t *data, size_t size, int flags, void *user_data)
{
    return add(user_data, data, size) ? (ssize_t)size : -1;
}

static int mask_message(uint8_t *mask, size_t size, void *user_data)
{
    return sbx_random(mask, size) ? 0 : -1;
}

static int mask_control(wslay_event_context_ptr events, uint8_t *mask, size_t size, void *user_data)
{
    return mask_message(mask, size, user_data);
}

static void on_frame(wslay_event_context_ptr events,
                     const struct wslay_event_on_frame_recv_start_arg *frame, void *user_data)
{
    struct sbx_frames *frames = user_data;
    frames->in_message = !wslay_is_ctrl_frame(frame->opcode);
    if (frame->opcode == WSLAY_BINARY_FRAME)
        frames->begins = true;
    if (frame->opcode != WSLAY_TEXT_FRAME)
        return;
    frames->had_text = true;
    (void)wslay_event_queue_close(events, WSLAY_CODE_UNSUPPORTED_DATA, NULL, 0);
    wslay_event_shutdown_read(events);
}

static void on_data(wslay_event_context_ptr events,
                    const struct wslay_event_on_frame_recv_chunk_arg *chunk, void *user_data)
{
    struct sbx_frames *frames = user_data;
    if (!frames->in_message || frames->had_text || chunk->data_length == 0)
        return;
    frames->sink.data(frames->sink.user_data, chunk->data, chunk->data_length, frames->begins);
    frames->begins = false;
}

/* Of a close: what the server says of it. */
static void on_message(wslay_event_context_ptr events,
                       const struct wslay_event_on_msg_recv_arg *message, void *user_data)
{
    struct sbx_frames *frames = user_data;
    if (message->opcode != WSLAY_CONNECTION_CLOSE || message->msg_length <= 2)
        return;
    snprintf(frames->close_words, sizeof frames->close_words, "%.*s",
             (int)(message->msg_length - 2), (const char *)message->msg + 2);
}
