/* gRPC over one HTTP/2 stream: headers, messages in, messages out, trailers. */

#include "call.h"
#include "connection.h"
#include "guard.h"
#include "loop.h"
#include "util/memory.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PREFIX          5           /* before each message: a flag and four bytes of size */
#define INPUT_LIMIT     (10u << 20) /* a message under way and a full window */
#define OUTPUT_LIMIT    (24u << 20)
#define HIGH_MARK       (1u << 20)
#define LOW_MARK        (256u << 10)
#define MESSAGE_ENCODED (3 * sizeof((struct agent_call *)0)->message + 1)

static void refuse_http(struct agent_call *call, const char *status);
static size_t take_where_it_is(struct agent_call *call, const uint8_t *data, size_t size);
static bool take_message(struct agent_call *call);
static size_t whole_message(struct agent_call *call, const uint8_t *data, size_t available);
static bool hand_over(struct agent_call *call, const uint8_t *data, size_t whole);
static void consume(struct agent_call *call, size_t size);
static void send_headers(struct agent_call *call);
static ssize_t give_output(nghttp2_session *session, int32_t stream, uint8_t *data, size_t size,
                           uint32_t *flags, nghttp2_data_source *source, void *user_data);
static void wake_output(struct agent_call *call);
static void end_call(struct agent_call *call);
static size_t trailers(struct agent_call *call, nghttp2_nv *pairs, char *status, char *message);

static nghttp2_nv pair(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                        strlen(value), NGHTTP2_NV_FLAG_NONE};
}

struct agent_call *agent_call_open(struct agent_connection *connection, int32_t stream)
{
    struct agent_call *call = calloc(1, sizeof *call);
    if (call == NULL)
        return NULL;
    call->connection = connection;
    call->stream = stream;
    call->input.limit = INPUT_LIMIT;
    call->output.limit = OUTPUT_LIMIT;
    call->next = connection->calls;
    if (call->next != NULL)
        call->next->previous = call;
    connection->calls = call;
    connection->call_count++;
    return call;
}

/* All headers are here. */
void agent_call_begin(struct agent_call *call)
{
    if (!call->is_post) {
        refuse_http(call, "405");
    } else if (!call->is_grpc) {
        refuse_http(call, "415");
    } else if (call->method == NULL) {
        agent_call_fail(call, AGENT_UNIMPLEMENTED, "no-such-method",
                        "this agent has no such method");
    } else if (agent_guard_admit(call, call->method)) {
        call->begun = true;
        if (call->deadline_ms != 0)
            agent_server_deadline(call->deadline_ms);
    }
}

static void refuse_http(struct agent_call *call, const char *status)
{
    nghttp2_nv pairs[] = {pair(":status", status)};
    call->ended = call->headers_sent = true;
    nghttp2_submit_response(call->connection->session, call->stream, pairs, 1, NULL);
}

void agent_call_input(struct agent_call *call, const uint8_t *data, size_t size)
{
    nghttp2_session *session = call->connection->session;
    if (call->ended) {
        nghttp2_session_consume(session, call->stream, size);
        return;
    }
    agent_connection_hold(call->connection, size);
    if (call->paused)
        call->unconsumed += size;
    else
        nghttp2_session_consume_stream(session, call->stream, size);
    size_t taken = take_where_it_is(call, data, size);
    if (call->ended || !sbx_bytes_append(&call->input, data + taken, size - taken)) {
        agent_connection_release(call->connection, size - taken);
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "no-memory",
                        "the agent has no memory for the message");
        return;
    }
    agent_call_dispatch(call);
}

/* Messages that have come in one piece are not copied first. Returns their bytes. */
static size_t take_where_it_is(struct agent_call *call, const uint8_t *data, size_t size)
{
    size_t taken = 0, whole;
    if (!call->begun || call->dispatching || sbx_bytes_size(&call->input) > 0)
        return 0;
    call->dispatching = true;
    while (!call->ended && !call->paused &&
           (whole = whole_message(call, data + taken, size - taken)) > 0) {
        hand_over(call, data + taken, whole);
        taken += whole;
    }
    call->dispatching = false;
    return taken;
}

void agent_call_input_ended(struct agent_call *call)
{
    call->remote_ended = true;
    agent_call_dispatch(call);
}

/* Hands over what is complete, as far as the service wants it. */
void agent_call_dispatch(struct agent_call *call)
{
    if (call->dispatching || !call->begun)
        return;
    call->dispatching = true;
    while (!call->ended && !call->paused && take_message(call))
        ;
    if (!call->ended && !call->paused && call->unconsumed > 0)
        consume(call, call->unconsumed);
    call->dispatching = false;
    if (call->ended || call->paused || !call->remote_ended || call->end_told)
        return;
    call->end_told = true;
    if (sbx_bytes_size(&call->input) > 0)
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "malformed",
                        "the call ended inside a message");
    else if (call->method->end != NULL)
        call->method->end(call);
    else if (!call->got_message)
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "malformed", "the call holds no request");
}

static bool take_message(struct agent_call *call)
{
    const uint8_t *data = sbx_bytes_data(&call->input);
    size_t whole = whole_message(call, data, sbx_bytes_size(&call->input));
    return whole > 0 && hand_over(call, data, whole);
}

/* How many bytes the first message has with its prefix; 0: not all are there, or it is refused. */
static size_t whole_message(struct agent_call *call, const uint8_t *data, size_t available)
{
    if (available < PREFIX)
        return 0;
    size_t size = (size_t)data[1] << 24 | (size_t)data[2] << 16 | (size_t)data[3] << 8 | data[4];
    if (data[0] != 0) {
        agent_call_fail(call, AGENT_UNIMPLEMENTED, "compressed",
                        "this agent takes no compressed messages; send them plain");
        return 0;
    }
    if (size > AGENT_MESSAGE_MAX) {
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "message-too-large",
                        "a message of %zu bytes is over the limit of %u", size, AGENT_MESSAGE_MAX);
        return 0;
    }
    return available - PREFIX < size ? 0 : PREFIX + size;
}

/* A message with its prefix, which may stand in the call's own input. */
static bool hand_over(struct agent_call *call, const uint8_t *data, size_t whole)
{
    const struct agent_method *method = call->method;
    bool queued = sbx_bytes_size(&call->input) > 0;
    if (call->got_message && method->end == NULL) {
        if (!queued)
            agent_connection_release(call->connection, whole);
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "malformed",
                        "the call takes one request only");
        return false;
    }
    ProtobufCBinaryData *lent = NULL;
    ProtobufCMessage *message =
        agent_call_unpack(method, queued ? 0 : method->lends, data + PREFIX, whole - PREFIX, &lent);
    if (queued)
        sbx_bytes_skip(&call->input, whole);
    agent_connection_release(call->connection, whole);
    if (sbx_bytes_size(&call->input) == 0)
        sbx_bytes_free(&call->input);
    consume(call, whole);
    if (message == NULL) {
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "malformed",
                        "the request is not a well-formed message");
        return false;
    }
    bool first = !call->got_message;
    call->got_message = true;
    method->message(call, message);
    if (lent != NULL)
        *lent = (ProtobufCBinaryData){0, NULL};
    protobuf_c_message_free_unpacked(message, NULL);
    if (first && !call->ended && method->ready != NULL)
        method->ready(call);
    return true;
}

/* Opens the stream's window by what was kept back, at most by `size`. */
static void consume(struct agent_call *call, size_t size)
{
    if (size > call->unconsumed)
        size = call->unconsumed;
    call->unconsumed -= size;
    if (size > 0)
        nghttp2_session_consume_stream(call->connection->session, call->stream, size);
    agent_connection_due(call->connection);
}

void agent_call_set_data(struct agent_call *call, void *data)
{
    call->data = data;
}

void *agent_call_data(const struct agent_call *call)
{
    return call->data;
}

static void write_prefix(uint8_t *room, size_t size)
{
    room[0] = 0;
    room[1] = (uint8_t)(size >> 24);
    room[2] = (uint8_t)(size >> 16);
    room[3] = (uint8_t)(size >> 8);
    room[4] = (uint8_t)size;
}

bool agent_call_send(struct agent_call *call, const ProtobufCMessage *message)
{
    if (call->ended || call->connection == NULL)
        return false;
    agent_call_keep_lent(call);
    size_t size = protobuf_c_message_get_packed_size(message);
    /* A call that moves much gets all the memory its queue may need at once. */
    if (size > AGENT_CHUNK / 4 && call->output.memory == NULL)
        (void)sbx_bytes_room(&call->output, HIGH_MARK + AGENT_CHUNK + 2 * PREFIX);
    uint8_t *room = sbx_bytes_room(&call->output, PREFIX + size);
    if (room == NULL) {
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "no-memory",
                        "the agent has no memory for the answer");
        return false;
    }
    write_prefix(room, size);
    protobuf_c_message_pack(message, room + PREFIX);
    sbx_bytes_grow(&call->output, PREFIX + size);
    call->ready_owed = true;
    send_headers(call);
    wake_output(call);
    return sbx_bytes_size(&call->output) < HIGH_MARK;
}

void agent_call_wake(struct agent_call *call)
{
    if (call->ended || call->connection == NULL)
        return;
    call->ready_owed = true;
    send_headers(call);
    wake_output(call);
}

bool agent_call_is_stuck(const struct agent_call *call)
{
    return call->connection != NULL && call->connection->writing;
}

bool agent_call_may_lend(const struct agent_call *call)
{
    return call->pulling && call->lent_size == 0;
}

/* Tag and length of a field of bytes. */
static size_t write_field(uint8_t *room, unsigned field, size_t size)
{
    size_t used = 0;
    room[used++] = (uint8_t)(field << 3 | 2);
    for (; size >= 0x80; size >>= 7)
        room[used++] = (uint8_t)(size | 0x80);
    room[used++] = (uint8_t)size;
    return used;
}

void agent_call_lend(struct agent_call *call, const ProtobufCMessage *message, unsigned field,
                     const uint8_t *data, size_t size)
{
    uint8_t start[12];
    size_t head = protobuf_c_message_get_packed_size(message);
    size_t start_size = write_field(start, field, size);
    uint8_t *room = sbx_bytes_room(&call->output, PREFIX + head + start_size);
    if (room == NULL) {
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "no-memory",
                        "the agent has no memory for the answer");
        return;
    }
    write_prefix(room, head + start_size + size);
    protobuf_c_message_pack(message, room + PREFIX);
    memcpy(room + PREFIX + head, start, start_size);
    sbx_bytes_grow(&call->output, PREFIX + head + start_size);
    call->lent = data;
    call->lent_size = size;
    call->ready_owed = true;
}

void agent_call_keep_lent(struct agent_call *call)
{
    size_t size = call->lent_size;
    call->lent_size = 0;
    if (size > 0 && !sbx_bytes_append(&call->output, call->lent, size))
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "no-memory",
                        "the agent has no memory for the answer");
}

static void send_headers(struct agent_call *call)
{
    if (call->headers_sent)
        return;
    nghttp2_nv pairs[] = {pair(":status", "200"), pair("content-type", "application/grpc+proto")};
    nghttp2_data_provider provider = {.source.ptr = call, .read_callback = give_output};
    call->headers_sent = true;
    nghttp2_submit_response(call->connection->session, call->stream, pairs, 2, &provider);
}

static void wake_output(struct agent_call *call)
{
    if (call->deferred) {
        call->deferred = false;
        nghttp2_session_resume_data(call->connection->session, call->stream);
    }
    agent_connection_due(call->connection);
}

/* nghttp2 has room for bytes of this stream; the service may fill up the queue just in time. */
static ssize_t give_output(nghttp2_session *session, int32_t stream, uint8_t *data, size_t size,
                           uint32_t *flags, nghttp2_data_source *source, void *user_data)
{
    struct agent_call *call = source->ptr;
    size_t available = sbx_bytes_size(&call->output) + call->lent_size;
    if (call->ready_owed && !call->ended && call->method->ready != NULL &&
        available < LOW_MARK) {
        call->ready_owed = false;
        call->pulling = true;
        call->method->ready(call);
        call->pulling = false;
        available = sbx_bytes_size(&call->output) + call->lent_size;
    }
    if (available == 0 && !call->ended) {
        sbx_bytes_free(&call->output);
        call->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (size > available)
        size = available;
    /* The bytes themselves go straight from here into what is written: agent_call_copy(). */
    if (size > 0)
        *flags = NGHTTP2_DATA_FLAG_NO_COPY;
    call->promised = size;
    if (call->ended && size == available) {
        char status[12], message[MESSAGE_ENCODED];
        nghttp2_nv pairs[3];
        size_t count = trailers(call, pairs, status, message);
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        nghttp2_submit_trailer(session, stream, pairs, count);
    }
    return (ssize_t)size;
}

size_t agent_call_copy(struct agent_call *call, uint8_t *room, size_t size, const uint8_t **lent)
{
    size_t queued = sbx_bytes_size(&call->output);
    size_t copied = size < queued ? size : queued;
    memcpy(room, sbx_bytes_data(&call->output), copied);
    sbx_bytes_skip(&call->output, copied);
    *lent = call->lent;
    if (size > copied) {
        call->lent += size - copied;
        call->lent_size -= size - copied;
    }
    call->promised = 0;
    return copied;
}

void agent_call_drop_output(struct agent_call *call)
{
    if (call->promised == 0)
        sbx_bytes_free(&call->output);
    else
        call->output.end = call->output.start + call->promised;
}

/* Percent-encoded as gRPC asks: printable ASCII but '%' stands for itself. */
static void encode(const char *text, char *encoded)
{
    static const char digits[] = "0123456789ABCDEF";
    for (; *text != '\0'; text++) {
        unsigned char letter = (unsigned char)*text;
        if (letter >= 0x20 && letter < 0x7f && letter != '%') {
            *encoded++ = *text;
        } else {
            *encoded++ = '%';
            *encoded++ = digits[letter >> 4];
            *encoded++ = digits[letter & 15];
        }
    }
    *encoded = '\0';
}

static size_t trailers(struct agent_call *call, nghttp2_nv *pairs, char *status, char *message)
{
    snprintf(status, 12, "%u", call->status);
    pairs[0] = pair("grpc-status", status);
    if (call->status == AGENT_OK)
        return 1;
    encode(call->message, message);
    pairs[1] = pair("grpc-message", message);
    pairs[2] = pair("sandbox-reason", call->reason);
    return 3;
}

void agent_call_pause(struct agent_call *call)
{
    call->paused = true;
}

/* What has come meanwhile is handed over at the end of the loop's turn, not from in here. */
void agent_call_resume(struct agent_call *call)
{
    if (!call->paused)
        return;
    call->paused = false;
    if (call->connection != NULL)
        agent_connection_due(call->connection);
}

void agent_call_answer(struct agent_call *call, const ProtobufCMessage *message)
{
    agent_call_send(call, message);
    agent_call_finish(call);
}

void agent_call_finish(struct agent_call *call)
{
    if (call->ended || call->connection == NULL)
        return;
    call->status = AGENT_OK;
    end_call(call);
}

void agent_call_fail(struct agent_call *call, unsigned grpc_status, const char *reason,
                     const char *format, ...)
{
    if (call->ended || call->connection == NULL)
        return;
    call->status = grpc_status;
    snprintf(call->reason, sizeof call->reason, "%s", reason);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(call->message, sizeof call->message, format, arguments);
    va_end(arguments);
    end_call(call);
}

static void end_call(struct agent_call *call)
{
    call->ended = true;
    agent_connection_release(call->connection, sbx_bytes_size(&call->input));
    sbx_bytes_free(&call->input);
    consume(call, call->unconsumed);
    if (call->headers_sent) {
        wake_output(call);
        return;
    }
    char status[12], message[MESSAGE_ENCODED];
    nghttp2_nv pairs[5] = {pair(":status", "200"), pair("content-type", "application/grpc+proto")};
    size_t count = trailers(call, pairs + 2, status, message);
    call->headers_sent = true;
    nghttp2_submit_response(call->connection->session, call->stream, pairs, 2 + count, NULL);
}

struct errno_kind {
    int number;
    unsigned status;
    const char *reason;
};

void agent_call_fail_errno(struct agent_call *call, int number, const char *format, ...)
{
    static const struct errno_kind kinds[] = {
        {ENOENT, AGENT_NOT_FOUND, "no-such-file"},
        {ENOTDIR, AGENT_FAILED_PRECONDITION, "not-a-directory"},
        {EISDIR, AGENT_FAILED_PRECONDITION, "is-a-directory"},
        {ENOTEMPTY, AGENT_FAILED_PRECONDITION, "not-empty"},
        {EEXIST, AGENT_ALREADY_EXISTS, "exists"},
        {EACCES, AGENT_PERMISSION_DENIED, "denied"},
        {EPERM, AGENT_PERMISSION_DENIED, "denied"},
        {EROFS, AGENT_PERMISSION_DENIED, "read-only"},
        {ENOSPC, AGENT_RESOURCE_EXHAUSTED, "disk-full"},
        {EDQUOT, AGENT_RESOURCE_EXHAUSTED, "disk-full"},
        {EFBIG, AGENT_RESOURCE_EXHAUSTED, "file-too-large"},
        {EMFILE, AGENT_RESOURCE_EXHAUSTED, "too-many-open-files"},
        {ENFILE, AGENT_RESOURCE_EXHAUSTED, "too-many-open-files"},
        {ENOMEM, AGENT_RESOURCE_EXHAUSTED, "no-memory"},
        {ENAMETOOLONG, AGENT_INVALID_ARGUMENT, "name-too-long"},
        {EINVAL, AGENT_INVALID_ARGUMENT, "invalid"},
        {ELOOP, AGENT_PERMISSION_DENIED, "link"},
        {EXDEV, AGENT_PERMISSION_DENIED, "leads-out"},
        {EBUSY, AGENT_FAILED_PRECONDITION, "busy"},
        {ETXTBSY, AGENT_FAILED_PRECONDITION, "busy"},
        {EOPNOTSUPP, AGENT_UNIMPLEMENTED, "unsupported"},
        {ENOSYS, AGENT_UNIMPLEMENTED, "unsupported"},
    };
    struct errno_kind kind = {number, AGENT_INTERNAL, "system-error"};
    for (size_t at = 0; at < sizeof kinds / sizeof *kinds; at++) {
        if (kinds[at].number == number)
            kind = kinds[at];
    }
    char text[192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    agent_call_fail(call, kind.status, kind.reason, "%s: %s", text, strerror(number));
}

const uint8_t *agent_call_token(const struct agent_call *call)
{
    return call->has_token ? call->token : NULL;
}

const uint8_t *agent_call_pass(const struct agent_call *call)
{
    const struct agent_connection *connection = call->connection;
    return connection != NULL && connection->over_tcp ? connection->pass : NULL;
}

bool agent_call_epoch(const struct agent_call *call, uint64_t *epoch)
{
    *epoch = call->epoch;
    return call->has_epoch;
}

void agent_call_keep(struct agent_call *call)
{
    call->references++;
}

void agent_call_drop(struct agent_call *call)
{
    call->references--;
    if (call->references == 0 && call->connection == NULL)
        free(call);
}

bool agent_call_is_over(const struct agent_call *call)
{
    return call->connection == NULL || call->ended;
}

/* The stream is closed, by whom ever: the last thing that happens to a call. */
void agent_call_close(struct agent_call *call)
{
    struct agent_connection *connection = call->connection;
    if (call->begun && call->method->gone != NULL)
        call->method->gone(call);
    if (call->previous != NULL)
        call->previous->next = call->next;
    else
        connection->calls = call->next;
    if (call->next != NULL)
        call->next->previous = call->previous;
    connection->call_count--;
    agent_connection_release(connection, sbx_bytes_size(&call->input));
    sbx_bytes_free(&call->input);
    sbx_bytes_free(&call->output);
    sbx_wipe(call->token, sizeof call->token);
    call->connection = NULL;
    call->ended = true;
    if (call->references == 0)
        free(call);
    agent_guard_call_over();
}
