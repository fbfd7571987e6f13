/* Streams and calls as their callers see them: any thread, blocking only itself. */

#include "agent/session_parts.h"
#include "util/clock.h"
#include "util/fail.h"
#include "util/memory.h"
#include <sys/eventfd.h>
#include <unistd.h>

/* All that one unpacked message may take: a few bytes on the wire can stand for a large struct. */
#define UNPACKED_MAX (64u << 20)
/* So much taken and not told: the window is worth a wake-up of the I/O thread. */
#define WINDOW_STEP (SBX_STREAM_WINDOW / 4)

static sandbox_status new_stream(struct sbx_session *session, const char *method, bool unary,
                                 const struct sbx_wait *wait, struct sbx_stream **out,
                                 sandbox_error *error);
static sandbox_status enlist(struct sbx_stream *stream, sandbox_error *error);
static void forget(struct sbx_stream *stream);
static struct sbx_message *pack(struct sbx_session *session, const ProtobufCMessage *message,
                                sandbox_error *error);
static void queue_outbound(struct sbx_stream *stream, struct sbx_message *packed);
static sandbox_status wait_for_inbound(struct sbx_stream *stream, bool whole,
                                       const struct sbx_wait *wait, sandbox_error *error);
static struct sbx_message *take_inbound(struct sbx_stream *stream);
static sandbox_status tell_outcome(const struct sbx_outcome *outcome, sandbox_error *error);
static sandbox_status next_packed(struct sbx_stream *stream, const struct sbx_wait *wait,
                                  struct sbx_message **out, sandbox_error *error);
static sandbox_status unpack(struct sbx_session *session,
                             const ProtobufCMessageDescriptor *descriptor,
                             struct sbx_message *packed, size_t size, ProtobufCMessage **out,
                             sandbox_error *error);
static sandbox_status conclude_call(struct sbx_stream *stream, bool repeatable,
                                    const ProtobufCMessageDescriptor *descriptor,
                                    ProtobufCMessage **reply, sandbox_error *error);
static sandbox_status explain_loss(sandbox_status status, bool repeatable, sandbox_error *error);

static void free_stream(struct sbx_stream **stream)
{
    sbx_stream_free(*stream);
}

sandbox_status sbx_session_call(struct sbx_session *session, const char *method,
                                const ProtobufCMessage *request, bool repeatable,
                                const ProtobufCMessageDescriptor *descriptor,
                                const struct sbx_wait *wait, ProtobufCMessage **reply,
                                sandbox_error *error)
{
    sandbox_error unasked = {0};
    error = error == NULL ? &unasked : error;
    sandbox_status status = sbx_wait_check(wait, error);
    if (status != SANDBOX_OK)
        return status;
    struct sbx_message *packed = pack(session, request, error);
    if (packed == NULL)
        return error->status;
    SBX_ON_EXIT(free_stream) struct sbx_stream *stream = NULL;
    status = new_stream(session, method, true, wait, &stream, error);
    if (status != SANDBOX_OK) {
        sbx_message_free(session, packed);
        return status;
    }
    /* The whole request is there before the I/O thread first looks: one wake-up for all of it. */
    stream->outbound_bytes = packed->size;
    sbx_queue_add(&stream->outbound, packed);
    stream->outbound_ended = true;
    status = enlist(stream, error);
    if (status != SANDBOX_OK)
        return status;

    status = wait_for_inbound(stream, true, wait, error);
    if (status == SANDBOX_OK)
        return conclude_call(stream, repeatable, descriptor, reply, error);
    pthread_mutex_lock(&session->mutex);
    stream->abandoned = true;
    bool submitted = stream->submitted;
    pthread_mutex_unlock(&session->mutex);
    if (submitted)
        status = explain_loss(status, repeatable, error);
    return status;
}

sandbox_status sbx_stream_open(struct sbx_session *session, const char *method,
                               struct sbx_stream **out, sandbox_error *error)
{
    SBX_ON_EXIT(free_stream) struct sbx_stream *stream = NULL;
    sandbox_status status = new_stream(session, method, false, NULL, &stream, error);
    if (status == SANDBOX_OK)
        status = enlist(stream, error);
    if (status == SANDBOX_OK)
        *out = sbx_take(stream);
    return status;
}

sandbox_status sbx_stream_send(struct sbx_stream *stream, const ProtobufCMessage *message,
                               const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_session *session = stream->session;
    sandbox_error unasked = {0};
    error = error == NULL ? &unasked : error;
    struct sbx_message *packed = pack(session, message, error);
    if (packed == NULL)
        return error->status;

    sandbox_status status = SANDBOX_OK;
    pthread_mutex_lock(&session->mutex);
    while (status == SANDBOX_OK && !stream->over &&
           stream->outbound_bytes > SBX_SEND_QUEUE_BYTES)
        status = sbx_wait_condition(wait, &stream->changed, &session->mutex, error);
    if (stream->over)
        status = tell_outcome(&stream->outcome, error);
    else if (stream->outbound_ended)
        status = sbx_fail(error, SANDBOX_INVALID, "this side of the stream was ended before");
    else if (status == SANDBOX_OK)
        queue_outbound(stream, sbx_take(packed));
    pthread_mutex_unlock(&session->mutex);
    sbx_message_free(session, packed);
    return status;
}

sandbox_status sbx_stream_flush(struct sbx_stream *stream, const struct sbx_wait *wait,
                                sandbox_error *error)
{
    struct sbx_session *session = stream->session;
    sandbox_status status = SANDBOX_OK;
    pthread_mutex_lock(&session->mutex);
    while (status == SANDBOX_OK && !stream->over && stream->outbound.first != NULL)
        status = sbx_wait_condition(wait, &stream->changed, &session->mutex, error);
    pthread_mutex_unlock(&session->mutex);
    return status;
}

void sbx_stream_end(struct sbx_stream *stream)
{
    struct sbx_session *session = stream->session;
    pthread_mutex_lock(&session->mutex);
    if (!stream->outbound_ended) {
        stream->outbound_ended = true;
        sbx_stream_mark(stream);
    }
    pthread_mutex_unlock(&session->mutex);
}

sandbox_status sbx_stream_next(struct sbx_stream *stream,
                               const ProtobufCMessageDescriptor *descriptor,
                               const struct sbx_wait *wait, ProtobufCMessage **message,
                               sandbox_error *error)
{
    struct sbx_message *packed = NULL;
    sandbox_status status = next_packed(stream, wait, &packed, error);
    return status == SANDBOX_OK
               ? unpack(stream->session, descriptor, packed, packed->size, message, error)
               : status;
}

sandbox_status sbx_stream_next_lent(struct sbx_stream *stream,
                                    const ProtobufCMessageDescriptor *descriptor, unsigned field,
                                    const struct sbx_wait *wait, ProtobufCMessage **message,
                                    struct sbx_lent *lent, sandbox_error *error)
{
    struct sbx_message *packed = NULL;
    sandbox_status status = next_packed(stream, wait, &packed, error);
    *lent = (struct sbx_lent){NULL, 0, NULL};
    if (status != SANDBOX_OK)
        return status;
    size_t kept = sbx_message_last_field(packed, field, lent);
    if (lent->data == NULL)
        return unpack(stream->session, descriptor, packed, packed->size, message, error);
    status = unpack(NULL, descriptor, packed, kept, message, error);
    lent->block = packed;
    if (status != SANDBOX_OK)
        sbx_lent_free(stream, lent);
    return status;
}

void sbx_lent_free(struct sbx_stream *stream, struct sbx_lent *lent)
{
    if (lent->block != NULL && stream != NULL)
        sbx_message_free(stream->session, lent->block);
    else
        free(lent->block);
    *lent = (struct sbx_lent){NULL, 0, NULL};
}

static sandbox_status next_packed(struct sbx_stream *stream, const struct sbx_wait *wait,
                                  struct sbx_message **out, sandbox_error *error)
{
    struct sbx_session *session = stream->session;
    for (;;) {
        sandbox_status status = wait_for_inbound(stream, false, wait, error);
        if (status != SANDBOX_OK)
            return status;
        pthread_mutex_lock(&session->mutex);
        *out = take_inbound(stream);
        if (*out == NULL && stream->over) /* else another thread was faster */
            status = tell_outcome(&stream->outcome, error);
        pthread_mutex_unlock(&session->mutex);
        if (*out != NULL || status != SANDBOX_OK)
            return status;
    }
}

bool sbx_stream_is_ready(struct sbx_stream *stream)
{
    pthread_mutex_lock(&stream->session->mutex);
    bool ready = stream->over || stream->inbound.first != NULL;
    pthread_mutex_unlock(&stream->session->mutex);
    return ready;
}

int sbx_stream_descriptor(struct sbx_stream *stream)
{
    pthread_mutex_lock(&stream->session->mutex);
    if (stream->event_fd < 0) {
        stream->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (stream->event_fd >= 0 && (stream->over || stream->inbound.first != NULL))
            (void)eventfd_write(stream->event_fd, 1);
    }
    int fd = stream->event_fd;
    pthread_mutex_unlock(&stream->session->mutex);
    return fd;
}

void sbx_stream_free(struct sbx_stream *stream)
{
    if (stream == NULL)
        return;
    struct sbx_session *session = stream->session;
    pthread_mutex_lock(&session->mutex);
    stream->ready = NULL;
    stream->abandoned = true;
    bool listed = stream->previous != NULL || session->streams == stream;
    if (!stream->over && listed)
        sbx_stream_mark(stream);
    pthread_mutex_unlock(&session->mutex);
    sbx_stream_drop(stream);
    sbx_session_drop(session);
}

void sbx_stream_on_ready(struct sbx_stream *stream, void (*ready)(void *user_data),
                         void *user_data)
{
    pthread_mutex_lock(&stream->session->mutex);
    stream->ready = ready;
    stream->ready_data = user_data;
    stream->ready_due = ready != NULL;
    if (ready != NULL)
        sbx_stream_mark(stream);
    pthread_mutex_unlock(&stream->session->mutex);
}

void sbx_stream_keep(struct sbx_stream *stream)
{
    atomic_fetch_add(&stream->references, 1);
}

void sbx_stream_drop(struct sbx_stream *stream)
{
    if (atomic_fetch_sub(&stream->references, 1) == 1)
        forget(stream);
}

void sbx_stream_conclude(struct sbx_stream *stream, const struct sbx_outcome *outcome)
{
    struct sbx_session *session = stream->session;
    pthread_mutex_lock(&session->mutex);
    bool first = !stream->over;
    if (first) {
        stream->over = true;
        stream->outcome = *outcome;
        session->refused =
            session->refused || sbx_status_is_refusal(outcome->status, outcome->reason);
        session->calls--;
        session->last_call_ms = sbx_clock_monotonic(&sbx_system_clock);
        if (stream->event_fd >= 0)
            (void)eventfd_write(stream->event_fd, 1);
        pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&session->mutex);
    if (first)
        sbx_stream_list_ready(stream);
}

void sbx_stream_detach(struct sbx_stream *stream)
{
    struct sbx_session *session = stream->session;
    pthread_mutex_lock(&session->mutex);
    if (stream->previous != NULL)
        stream->previous->next = stream->next;
    else
        session->streams = stream->next;
    if (stream->next != NULL)
        stream->next->previous = stream->previous;
    stream->previous = stream->next = NULL;
    pthread_mutex_unlock(&session->mutex);
    sbx_stream_drop(stream);
}

void sbx_stream_deliver(struct sbx_stream *stream, struct sbx_message *message)
{
    struct sbx_session *session = stream->session;
    pthread_mutex_lock(&session->mutex);
    if (stream->event_fd >= 0 && stream->inbound.first == NULL)
        (void)eventfd_write(stream->event_fd, 1);
    sbx_queue_add(&stream->inbound, message);
    /* A call waits for its end, not for its answer. */
    if (!stream->unary)
        pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&session->mutex);
    sbx_stream_list_ready(stream);
}

void sbx_stream_list_ready(struct sbx_stream *stream)
{
    struct sbx_session *session = stream->session;
    pthread_mutex_lock(&session->mutex);
    bool wanted = stream->ready != NULL;
    pthread_mutex_unlock(&session->mutex);
    if (!wanted || stream->ready_listed)
        return;
    stream->ready_listed = true;
    sbx_stream_keep(stream);
    stream->next_ready = session->ready_first;
    session->ready_first = stream;
}

/* The caller's reference, and its hold on the session. */
static sandbox_status new_stream(struct sbx_session *session, const char *method, bool unary,
                                 const struct sbx_wait *wait, struct sbx_stream **out,
                                 sandbox_error *error)
{
    struct sbx_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL || (stream->method = sbx_copy(method)) == NULL ||
        sbx_condition_init(&stream->changed) != 0) {
        if (stream != NULL)
            free(stream->method);
        free(stream);
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a call");
    }
    atomic_init(&stream->references, 1);
    stream->session = sbx_session_keep(session);
    stream->unary = unary;
    stream->timeout_ms = wait == NULL ? SANDBOX_FOREVER : sbx_wait_left_ms(wait);
    stream->event_fd = -1;
    stream->first_byte = SBX_NEVER;
    stream->answer.grpc_status = -1;
    sbx_queue_init(&stream->inbound);
    sbx_queue_init(&stream->outbound);
    *out = stream;
    return SANDBOX_OK;
}

/* From here on the I/O thread knows it. */
static sandbox_status enlist(struct sbx_stream *stream, sandbox_error *error)
{
    struct sbx_session *session = stream->session;
    sandbox_status status = SANDBOX_OK;
    pthread_mutex_lock(&session->mutex);
    if (!session->alive) {
        status = sbx_fail_for(error, SANDBOX_UNAVAILABLE, "not-sent",
                              "the connection to the agent was lost before");
    } else if (session->calls >= SBX_STREAMS_MAX) {
        status = sbx_fail_for(error, SANDBOX_LIMIT, "too-many-calls",
                              "%u calls are under way in one workspace, which is the limit",
                              SBX_STREAMS_MAX);
    } else {
        session->calls++;
        sbx_stream_keep(stream);
        stream->next = session->streams;
        if (stream->next != NULL)
            stream->next->previous = stream;
        session->streams = stream;
        sbx_stream_mark_only(stream);
    }
    pthread_mutex_unlock(&session->mutex);
    if (status == SANDBOX_OK)
        sbx_session_pump_here(session);
    return status;
}

static void forget(struct sbx_stream *stream)
{
    sbx_queue_clear(&stream->inbound);
    sbx_queue_clear(&stream->outbound);
    pthread_cond_destroy(&stream->changed);
    sbx_close_fd(&stream->event_fd);
    free(stream->incoming);
    free(stream->method);
    free(stream);
}

/* With the prefix that goes before it on the wire. */
static struct sbx_message *pack(struct sbx_session *session, const ProtobufCMessage *message,
                                sandbox_error *error)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    if (size > SBX_MESSAGE_MAX) {
        sbx_fail_for(error, SANDBOX_LIMIT, "message-too-large",
                     "a request of %zu bytes is larger than the 4 MiB that one may have", size);
        return NULL;
    }
    struct sbx_message *packed = sbx_message_new(session, (uint32_t)(SBX_PREFIX_BYTES + size));
    if (packed == NULL) {
        sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
        return NULL;
    }
    packed->bytes[0] = 0;
    for (unsigned at = 0; at < 4; at++)
        packed->bytes[1 + at] = (uint8_t)(size >> (24 - 8 * at) & 0xff);
    protobuf_c_message_pack(message, packed->bytes + SBX_PREFIX_BYTES);
    return packed;
}

static void queue_outbound(struct sbx_stream *stream, struct sbx_message *packed)
{
    stream->outbound_bytes += packed->size;
    sbx_queue_add(&stream->outbound, packed);
    sbx_stream_mark(stream);
}

/* Until a message or the end has come; `whole`: the end. */
static sandbox_status wait_for_inbound(struct sbx_stream *stream, bool whole,
                                       const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_session *session = stream->session;
    sandbox_status status = SANDBOX_OK;
    sandbox_error late = {0};
    pthread_mutex_lock(&session->mutex);
    while (status == SANDBOX_OK && !stream->over && (whole || stream->inbound.first == NULL))
        status = sbx_wait_condition(wait, &stream->changed, &session->mutex, &late);
    /* What came in the last moment goes before the deadline. */
    if (stream->over || (!whole && stream->inbound.first != NULL))
        status = SANDBOX_OK;
    pthread_mutex_unlock(&session->mutex);
    if (status != SANDBOX_OK && error != NULL)
        *error = late;
    return status;
}

static struct sbx_message *take_inbound(struct sbx_stream *stream)
{
    struct sbx_message *packed = sbx_queue_take(&stream->inbound);
    if (packed == NULL)
        return NULL;
    stream->taken += SBX_PREFIX_BYTES + packed->size;
    if (stream->event_fd >= 0 && stream->inbound.first == NULL && !stream->over) {
        eventfd_t ignored;
        (void)eventfd_read(stream->event_fd, &ignored);
    }
    uint64_t due = stream->inbound.first == NULL ? stream->received : stream->taken;
    if (!stream->over && due > stream->consumed && due - stream->consumed >= WINDOW_STEP)
        sbx_stream_mark(stream);
    return packed;
}

static sandbox_status tell_outcome(const struct sbx_outcome *outcome, sandbox_error *error)
{
    if (outcome->status == SANDBOX_OK)
        return sbx_fail(error, SANDBOX_CLOSED, "the stream has come to its end");
    return sbx_fail_for(error, outcome->status, outcome->reason, "%s", outcome->message);
}

/* The blocks are ordinary ones, so that protobuf-c frees them without knowing of the limit. */
static void *allocate_within(void *left, size_t size)
{
    size_t *budget = left;
    if (size > *budget)
        return NULL;
    *budget -= size;
    return malloc(size);
}

static void free_block(void *left, void *block)
{
    free(block);
}

/* Its first `size` bytes. Frees the message where the session is given. */
static sandbox_status unpack(struct sbx_session *session,
                             const ProtobufCMessageDescriptor *descriptor,
                             struct sbx_message *packed, size_t size, ProtobufCMessage **out,
                             sandbox_error *error)
{
    size_t budget = UNPACKED_MAX;
    ProtobufCAllocator allocator = {allocate_within, free_block, &budget};
    ProtobufCMessage *message =
        protobuf_c_message_unpack(descriptor, &allocator, size, packed->bytes);
    if (session != NULL)
        sbx_message_free(session, packed);
    if (message == NULL)
        return sbx_fail_for(error, SANDBOX_FAILED, "malformed-answer",
                            "the agent sent a message that is none of the protocol");
    *out = message;
    return SANDBOX_OK;
}

static sandbox_status conclude_call(struct sbx_stream *stream, bool repeatable,
                                    const ProtobufCMessageDescriptor *descriptor,
                                    ProtobufCMessage **reply, sandbox_error *error)
{
    pthread_mutex_lock(&stream->session->mutex);
    struct sbx_outcome outcome = stream->outcome;
    struct sbx_message *packed = take_inbound(stream);
    pthread_mutex_unlock(&stream->session->mutex);
    if (outcome.status == SANDBOX_OK && packed != NULL)
        return unpack(stream->session, descriptor, packed, packed->size, reply, error);
    free(packed);
    sandbox_status status = tell_outcome(&outcome, error);
    bool in_doubt = outcome.lost || strcmp(outcome.reason, SBX_GAVE_UP) == 0;
    return in_doubt && status != SANDBOX_FAILED ? explain_loss(status, repeatable, error) : status;
}

/* The request may have reached the agent, and nobody will tell. */
static sandbox_status explain_loss(sandbox_status status, bool repeatable, sandbox_error *error)
{
    if (repeatable)
        return status;
    if (status == SANDBOX_UNAVAILABLE)
        return sbx_fail_for(error, SANDBOX_UNKNOWN, "answer-lost",
                            "the connection to the agent was lost before its answer came");
    char message[sizeof error->message];
    memcpy(message, error->message, sizeof message);
    return sbx_fail_for(error, status, "answer-lost", "%s", message);
}
