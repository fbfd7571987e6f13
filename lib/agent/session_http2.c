/* Frames of a session, in and out: what gRPC makes of HTTP/2. All of it runs on the I/O thread. */

#include "agent/session_parts.h"
#include "agent/text.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECTION_WINDOW (64 << 20)
#define FRAME_IN_MAX (257u << 10) /* fewer, larger frames: each costs both ends a call */
#define FRAME_HEADER 9u
#define HEADERS_MAX (64u << 10) /* bytes of headers and trailers of one call */
#define HEADER_OVERHEAD 32      /* what HTTP/2 counts for each beside its bytes */
#define TIMEOUT_MS_MAX 99999999u /* grpc-timeout has at most eight digits */

static bool set_callbacks(nghttp2_session_callbacks *callbacks, nghttp2_option *option);
static bool greet(nghttp2_session *http2);
static size_t write_timeout(const struct sbx_stream *stream, char text[16]);
static nghttp2_nv pair(const char *name, const char *value, uint8_t flags);
static ssize_t on_read_outbound(nghttp2_session *http2, int32_t id, uint8_t *room, size_t size,
                                uint32_t *flags, nghttp2_data_source *source, void *user_data);
static ssize_t choose_frame_size(nghttp2_session *http2, uint8_t type, int32_t id,
                                 int32_t session_window, int32_t stream_window,
                                 uint32_t remote_max, void *user_data);
static int on_send_data(nghttp2_session *http2, nghttp2_frame *frame, const uint8_t *header,
                        size_t size, nghttp2_data_source *source, void *user_data);
static void take_outbound(struct sbx_stream *stream, uint8_t *room, size_t size);
static int on_before_send(nghttp2_session *http2, const nghttp2_frame *frame, void *user_data);
static int on_begin_headers(nghttp2_session *http2, const nghttp2_frame *frame, void *user_data);
static int on_header(nghttp2_session *http2, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
                     void *user_data);
static void note_header(struct sbx_answer *answer, const uint8_t *name, size_t name_size,
                        const uint8_t *value, size_t value_size);
static int parse_number(const uint8_t *value, size_t size, int most);
static void note_message(struct sbx_answer *answer, const uint8_t *value, size_t size);
static int on_data(nghttp2_session *http2, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t size, void *user_data);
static void assemble(struct sbx_stream *stream, const uint8_t *data, size_t size);
static bool begin_message(struct sbx_stream *stream);
static void end_message(struct sbx_stream *stream);
static int on_frame(nghttp2_session *http2, const nghttp2_frame *frame, void *user_data);
static void answer_ended(struct sbx_stream *stream, bool trailers);
static void conclude_by_trailers(struct sbx_stream *stream);
static int on_stream_close(nghttp2_session *http2, int32_t id, uint32_t code, void *user_data);
static void give_up(struct sbx_stream *stream, sandbox_status status, bool lost,
                    const char *reason, const char *message);

bool sbx_http2_begin(struct sbx_session *session)
{
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    bool made = nghttp2_session_callbacks_new(&callbacks) == 0 &&
                nghttp2_option_new(&option) == 0 &&
                set_callbacks(callbacks, option) &&
                nghttp2_session_client_new2(&session->http2, callbacks, session, option) == 0 &&
                greet(session->http2);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_option_del(option);
    return made;
}

void sbx_http2_submit(struct sbx_stream *stream)
{
    struct sbx_session *session = stream->session;
    char timeout[16], token[sizeof session->token], epoch[sizeof session->epoch];
    pthread_mutex_lock(&session->mutex);
    bool identified = session->identified;
    memcpy(token, session->token, sizeof token);
    memcpy(epoch, session->epoch, sizeof epoch);
    pthread_mutex_unlock(&session->mutex);

    nghttp2_nv headers[10] = {
        pair(":method", "POST", 0),
        pair(":scheme", "http", 0),
        pair(":path", stream->method, 0),
        pair(":authority", "agent", 0),
        pair("te", "trailers", 0),
        pair("content-type", "application/grpc", 0),
    };
    size_t count = 6;
    if (write_timeout(stream, timeout) > 0)
        headers[count++] = pair("grpc-timeout", timeout, NGHTTP2_NV_FLAG_NO_INDEX);
    if (identified) {
        headers[count++] = pair("sandbox-token-bin", token, NGHTTP2_NV_FLAG_NO_INDEX);
        headers[count++] = pair("sandbox-epoch", epoch, 0);
    }
    nghttp2_data_provider provider = {.read_callback = on_read_outbound};
    stream->id = nghttp2_submit_request(session->http2, NULL, headers, count, &provider, stream);
    stream->known = stream->id > 0;
    if (stream->known)
        return;
    /* The numbers of this session are used up: 2^30 calls. */
    give_up(stream, SANDBOX_UNAVAILABLE, false, "not-sent", "the session takes no more calls");
    sbx_stream_detach(stream);
    session->failed = true;
}

void sbx_http2_reset(struct sbx_stream *stream)
{
    if (stream->known)
        nghttp2_submit_rst_stream(stream->session->http2, NGHTTP2_FLAG_NONE, stream->id,
                                  NGHTTP2_CANCEL);
}

void sbx_http2_resume(struct sbx_stream *stream)
{
    if (stream->known)
        nghttp2_session_resume_data(stream->session->http2, stream->id);
}

/*
 * What waits in the queue keeps the window shut. A message that is still coming does not, or one
 * as large as the window could never be completed.
 */
void sbx_http2_consume(struct sbx_stream *stream)
{
    struct sbx_session *session = stream->session;
    pthread_mutex_lock(&session->mutex);
    uint64_t due = stream->inbound.first == NULL ? stream->received : stream->taken;
    uint64_t size = due > stream->consumed ? due - stream->consumed : 0;
    stream->consumed += size;
    pthread_mutex_unlock(&session->mutex);
    if (size > 0)
        nghttp2_session_consume_stream(session->http2, stream->id, (size_t)size);
}

static bool set_callbacks(nghttp2_session_callbacks *callbacks, nghttp2_option *option)
{
    nghttp2_session_callbacks_set_before_frame_send_callback(callbacks, on_before_send);
    nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, choose_frame_size);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, on_send_data);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_max_deflate_dynamic_table_size(option, 4096);
    nghttp2_option_set_peer_max_concurrent_streams(option, SBX_STREAMS_MAX);
    return true;
}

static bool greet(nghttp2_session *http2)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, SBX_STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, FRAME_IN_MAX},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEADERS_MAX},
    };
    return nghttp2_submit_settings(http2, NGHTTP2_FLAG_NONE, settings,
                                   sizeof settings / sizeof settings[0]) == 0 &&
           nghttp2_session_set_local_window_size(http2, NGHTTP2_FLAG_NONE, 0,
                                                 CONNECTION_WINDOW) == 0;
}

static size_t write_timeout(const struct sbx_stream *stream, char text[16])
{
    uint32_t left = stream->timeout_ms;
    if (left == SANDBOX_FOREVER)
        return 0;
    if (left <= TIMEOUT_MS_MAX)
        return (size_t)snprintf(text, 16, "%" PRIu32 "m", left);
    return (size_t)snprintf(text, 16, "%" PRIu32 "S", left / 1000);
}

static nghttp2_nv pair(const char *name, const char *value, uint8_t flags)
{
    union {
        const char *text;
        uint8_t *bytes; /* nghttp2 asks for it and only reads */
    } left = {.text = name}, right = {.text = value};
    return (nghttp2_nv){left.bytes, right.bytes, strlen(name), strlen(value), flags};
}

static ssize_t on_read_outbound(nghttp2_session *http2, int32_t id, uint8_t *room, size_t size,
                                uint32_t *flags, nghttp2_data_source *source, void *user_data)
{
    struct sbx_session *session = user_data;
    struct sbx_stream *stream = nghttp2_session_get_stream_user_data(http2, id);
    if (stream == NULL)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;

    pthread_mutex_lock(&session->mutex);
    size_t used = stream->outbound_bytes < size ? stream->outbound_bytes : size;
    bool finished = used == stream->outbound_bytes && stream->outbound_ended;
    pthread_mutex_unlock(&session->mutex);
    if (used == 0 && !finished)
        return NGHTTP2_ERR_DEFERRED;
    /* The bytes themselves go straight to what is written: on_send_data(). */
    if (used > 0)
        *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (finished)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    stream->all_sent = finished;
    return (ssize_t)used;
}

/* The header of a DATA frame that was made, and what on_read_outbound() promised for it. */
static int on_send_data(nghttp2_session *http2, nghttp2_frame *frame, const uint8_t *header,
                        size_t size, nghttp2_data_source *source, void *user_data)
{
    struct sbx_session *session = user_data;
    struct sbx_stream *stream = nghttp2_session_get_stream_user_data(http2, frame->hd.stream_id);
    if (stream == NULL)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (SBX_WRITE_BYTES - session->outbox_end < FRAME_HEADER + size)
        return NGHTTP2_ERR_WOULDBLOCK;
    uint8_t *room = session->outbox + session->outbox_end;
    memcpy(room, header, FRAME_HEADER);

    pthread_mutex_lock(&session->mutex);
    bool was_full = stream->outbound_bytes > SBX_SEND_QUEUE_BYTES;
    take_outbound(stream, room + FRAME_HEADER, size);
    bool has_room = was_full && stream->outbound_bytes <= SBX_SEND_QUEUE_BYTES;
    if (has_room || stream->outbound.first == NULL)
        pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&session->mutex);

    session->outbox_end += FRAME_HEADER + size;
    session->produced += FRAME_HEADER + size;
    if (has_room)
        sbx_stream_list_ready(stream);
    return 0;
}

static ssize_t choose_frame_size(nghttp2_session *http2, uint8_t type, int32_t id,
                                 int32_t session_window, int32_t stream_window,
                                 uint32_t remote_max, void *user_data)
{
    return remote_max < SBX_FRAME_OUT_MAX ? (ssize_t)remote_max : (ssize_t)SBX_FRAME_OUT_MAX;
}

/* With the mutex held. */
static void take_outbound(struct sbx_stream *stream, uint8_t *room, size_t size)
{
    size_t used = 0;
    while (used < size && stream->outbound.first != NULL) {
        const struct sbx_message *message = stream->outbound.first;
        size_t left = message->size - stream->outbound_at;
        size_t piece = left < size - used ? left : size - used;
        memcpy(room + used, message->bytes + stream->outbound_at, piece);
        used += piece;
        stream->outbound_at += piece;
        if (piece == left) {
            stream->outbound_at = 0;
            sbx_message_free_held(stream->session, sbx_queue_take(&stream->outbound));
        }
    }
    stream->outbound_bytes -= used;
}

/* Everything that was given before has been counted, so the frame begins here. */
static int on_before_send(nghttp2_session *http2, const nghttp2_frame *frame, void *user_data)
{
    struct sbx_session *session = user_data;
    if (frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    struct sbx_stream *stream = nghttp2_session_get_stream_user_data(http2, frame->hd.stream_id);
    if (stream != NULL && stream->first_byte == SBX_NEVER)
        stream->first_byte = session->produced;
    return 0;
}

/* Only what the last HEADERS frame says counts: the status stands in the trailers. */
static int on_begin_headers(nghttp2_session *http2, const nghttp2_frame *frame, void *user_data)
{
    struct sbx_stream *stream = nghttp2_session_get_stream_user_data(http2, frame->hd.stream_id);
    if (stream != NULL) {
        stream->answer.grpc_status = -1;
        stream->answer.reason[0] = stream->answer.message[0] = '\0';
    }
    return 0;
}

static int on_header(nghttp2_session *http2, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
                     void *user_data)
{
    struct sbx_stream *stream = nghttp2_session_get_stream_user_data(http2, frame->hd.stream_id);
    if (stream == NULL || frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    stream->answer.bytes += name_size + value_size + HEADER_OVERHEAD;
    if (stream->answer.bytes > HEADERS_MAX) {
        give_up(stream, SANDBOX_FAILED, true, "malformed-answer",
                "the agent's answer has more headers than are allowed");
        sbx_http2_reset(stream);
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    note_header(&stream->answer, name, name_size, value, value_size);
    return 0;
}

static bool is_name(const uint8_t *name, size_t size, const char *wanted)
{
    return size == strlen(wanted) && memcmp(name, wanted, size) == 0;
}

static void note_header(struct sbx_answer *answer, const uint8_t *name, size_t name_size,
                        const uint8_t *value, size_t value_size)
{
    if (is_name(name, name_size, ":status"))
        answer->http_status = parse_number(value, value_size, 999);
    else if (is_name(name, name_size, "grpc-status"))
        answer->grpc_status = parse_number(value, value_size, 999);
    else if (is_name(name, name_size, "grpc-message"))
        note_message(answer, value, value_size);
    else if (is_name(name, name_size, "sandbox-reason"))
        (void)sbx_text_word(value, value_size, answer->reason, sizeof answer->reason);
}

/* -1 where it is no number from 0 to `most`. */
static int parse_number(const uint8_t *value, size_t size, int most)
{
    int number = 0;
    for (size_t at = 0; at < size; at++) {
        if (value[at] < '0' || value[at] > '9')
            return -1;
        number = number * 10 + (value[at] - '0');
        if (number > most)
            return -1;
    }
    return size == 0 ? -1 : number;
}

static void note_message(struct sbx_answer *answer, const uint8_t *value, size_t size)
{
    uint8_t decoded[3 * sizeof answer->message]; /* three for each byte that is kept */
    size_t taken = size < sizeof decoded ? size : sizeof decoded;
    memcpy(decoded, value, taken);
    size_t kept = sbx_text_decode_percent(decoded, taken);
    sbx_text_clean(decoded, kept, answer->message, sizeof answer->message);
}

/* The connection's window stays open whatever happens to one stream: others need it. */
static int on_data(nghttp2_session *http2, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t size, void *user_data)
{
    struct sbx_session *session = user_data;
    nghttp2_session_consume_connection(http2, size);
    struct sbx_stream *stream = nghttp2_session_get_stream_user_data(http2, id);
    if (stream == NULL || stream->over)
        return 0;
    pthread_mutex_lock(&session->mutex);
    stream->received += size;
    pthread_mutex_unlock(&session->mutex);
    if (stream->answer.http_status == 200) /* else it is a page for people */
        assemble(stream, data, size);
    sbx_http2_consume(stream);
    return 0;
}

static void assemble(struct sbx_stream *stream, const uint8_t *data, size_t size)
{
    while (size > 0 && !stream->over) {
        size_t piece;
        if (stream->incoming == NULL) {
            piece = SBX_PREFIX_BYTES - stream->prefix_size;
            piece = piece < size ? piece : size;
            memcpy(stream->prefix + stream->prefix_size, data, piece);
            stream->prefix_size += (unsigned)piece;
            if (stream->prefix_size == SBX_PREFIX_BYTES && !begin_message(stream))
                return;
        } else {
            piece = stream->incoming->size - stream->incoming_size;
            piece = piece < size ? piece : size;
            memcpy(stream->incoming->bytes + stream->incoming_size, data, piece);
            stream->incoming_size += (uint32_t)piece;
        }
        data += piece;
        size -= piece;
        if (stream->incoming != NULL && stream->incoming_size == stream->incoming->size)
            end_message(stream);
    }
}

static bool begin_message(struct sbx_stream *stream)
{
    const uint8_t *prefix = stream->prefix;
    uint32_t size = (uint32_t)prefix[1] << 24 | (uint32_t)prefix[2] << 16 |
                    (uint32_t)prefix[3] << 8 | prefix[4];
    stream->prefix_size = 0;
    if (prefix[0] != 0)
        give_up(stream, SANDBOX_FAILED, true, "malformed-answer",
                "the agent sent a compressed message, which nobody asked for");
    else if (size > SBX_MESSAGE_MAX)
        give_up(stream, SANDBOX_FAILED, true, "malformed-answer",
                "the agent sent a message larger than 4 MiB");
    else if (stream->unary && stream->messages > 0)
        give_up(stream, SANDBOX_FAILED, true, "malformed-answer",
                "the agent sent more than one answer");
    else if ((stream->incoming = sbx_message_new(stream->session, size)) == NULL)
        give_up(stream, SANDBOX_NO_MEMORY, true, "", "no memory for an answer of the agent");
    if (stream->incoming == NULL) {
        sbx_http2_reset(stream);
        return false;
    }
    stream->incoming_size = 0;
    return true;
}

static void end_message(struct sbx_stream *stream)
{
    struct sbx_message *message = stream->incoming;
    stream->incoming = NULL;
    stream->messages++;
    sbx_stream_deliver(stream, message);
}

static int on_frame(nghttp2_session *http2, const nghttp2_frame *frame, void *user_data)
{
    struct sbx_session *session = user_data;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        pthread_mutex_lock(&session->mutex);
        session->alive = false;
        pthread_mutex_unlock(&session->mutex);
    }
    bool ends = (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
                (frame->hd.flags & NGHTTP2_FLAG_END_STREAM);
    struct sbx_stream *stream = NULL;
    if (ends)
        stream = nghttp2_session_get_stream_user_data(http2, frame->hd.stream_id);
    if (stream != NULL)
        answer_ended(stream, frame->hd.type == NGHTTP2_HEADERS);
    return 0;
}

/* The call is over with the agent's last byte, whatever this side still had to say. */
static void answer_ended(struct sbx_stream *stream, bool trailers)
{
    if (trailers && stream->answer.grpc_status >= 0)
        conclude_by_trailers(stream);
    else if (stream->answer.http_status > 0 && stream->answer.http_status != 200)
        give_up(stream, SANDBOX_UNAVAILABLE, true, "answer-lost",
                "what answered is no agent: it speaks HTTP, not gRPC");
    else
        give_up(stream, SANDBOX_UNAVAILABLE, true, "answer-lost",
                "the agent's answer ended without a status");
    if (!stream->all_sent)
        sbx_http2_reset(stream);
}

static void conclude_by_trailers(struct sbx_stream *stream)
{
    const struct sbx_answer *answer = &stream->answer;
    if (answer->grpc_status == 0 && (stream->incoming != NULL || stream->prefix_size > 0)) {
        give_up(stream, SANDBOX_FAILED, true, "malformed-answer",
                "the agent's last message is cut off");
        return;
    }
    if (answer->grpc_status == 0 && stream->unary && stream->messages == 0) {
        give_up(stream, SANDBOX_FAILED, true, "malformed-answer",
                "the agent said that all is well and gave no answer");
        return;
    }
    struct sbx_outcome outcome = {
        .status = sbx_status_of_grpc((unsigned)answer->grpc_status, answer->reason)};
    memcpy(outcome.reason, answer->reason, sizeof outcome.reason);
    memcpy(outcome.message, answer->message, sizeof outcome.message);
    /* Without a reason these two are the caller's own deadline and cancel. */
    bool own_words = outcome.status == SANDBOX_TIMED_OUT || outcome.status == SANDBOX_CANCELLED;
    if (own_words && outcome.reason[0] == '\0')
        memcpy(outcome.reason, SBX_GAVE_UP, sizeof SBX_GAVE_UP);
    if (outcome.message[0] == '\0')
        snprintf(outcome.message, sizeof outcome.message,
                 "the agent answered with gRPC status %d and no explanation", answer->grpc_status);
    sbx_stream_conclude(stream, &outcome);
}

static int on_stream_close(nghttp2_session *http2, int32_t id, uint32_t code, void *user_data)
{
    struct sbx_stream *stream = nghttp2_session_get_stream_user_data(http2, id);
    if (stream == NULL)
        return 0;
    /* A refused stream was not looked at; nghttp2 says so too of one that GOAWAY left out. */
    if (code == NGHTTP2_REFUSED_STREAM || stream->first_byte == SBX_NEVER)
        give_up(stream, SANDBOX_UNAVAILABLE, false, "not-sent", "the agent takes no more calls");
    else
        give_up(stream, SANDBOX_UNAVAILABLE, true, "answer-lost",
                "the agent ended the call without an answer");
    stream->known = false;
    sbx_stream_detach(stream);
    return 0;
}

static void give_up(struct sbx_stream *stream, sandbox_status status, bool lost,
                    const char *reason, const char *message)
{
    struct sbx_outcome outcome = {.status = status, .lost = lost};
    snprintf(outcome.reason, sizeof outcome.reason, "%s", reason);
    snprintf(outcome.message, sizeof outcome.message, "%s", message);
    sbx_stream_conclude(stream, &outcome);
}
