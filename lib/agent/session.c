/* A session with an agent: its beginning, its end, and who holds it. */

#include "agent/session_parts.h"
#include "util/clock.h"
#include "util/fail.h"
#include "util/memory.h"
#include <inttypes.h>
#include <stdio.h>

static struct sbx_session *new_session(struct sbx_loop *loop);
static struct sbx_stream *first_stream(struct sbx_session *session);
static void end_as_lost(struct sbx_stream *stream);
static void close_handles(struct sbx_session *session);
static void on_closed(uv_handle_t *handle);
static void forget(struct sbx_session *session);
static void print_base64(const uint8_t *bytes, size_t size, char *text);

sandbox_status sbx_session_start(struct sbx_loop *loop, struct sbx_channel *channel,
                                 struct sbx_session **out, sandbox_error *error)
{
    struct sbx_session *session = new_session(loop);
    if (session == NULL) {
        sbx_loop_end_channel(loop, channel);
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a session");
    }
    session->channel = *channel;
    *channel = (struct sbx_channel)SBX_CHANNEL;
    sbx_loop_post(loop, &session->start_task);
    *out = session;
    return SANDBOX_OK;
}

struct sbx_session *sbx_session_keep(struct sbx_session *session)
{
    atomic_fetch_add(&session->references, 1);
    return session;
}

void sbx_session_drop(struct sbx_session *session)
{
    if (session != NULL && atomic_fetch_sub(&session->references, 1) == 1)
        sbx_loop_post(session->loop, &session->end_task);
}

void sbx_session_cut(struct sbx_session *session)
{
    pthread_mutex_lock(&session->mutex);
    session->cut = true;
    session->alive = false;
    pthread_mutex_unlock(&session->mutex);
    sbx_loop_post(session->loop, &session->pump_task);
}

bool sbx_session_is_alive(struct sbx_session *session)
{
    pthread_mutex_lock(&session->mutex);
    bool alive = session->alive;
    pthread_mutex_unlock(&session->mutex);
    return alive;
}

bool sbx_session_is_alone(struct sbx_session *session)
{
    return atomic_load(&session->references) == 1;
}

bool sbx_session_is_refused(struct sbx_session *session)
{
    pthread_mutex_lock(&session->mutex);
    bool refused = session->refused;
    pthread_mutex_unlock(&session->mutex);
    return refused;
}

int64_t sbx_session_idle_ms(struct sbx_session *session)
{
    pthread_mutex_lock(&session->mutex);
    bool busy = session->calls > 0;
    int64_t since = session->last_call_ms;
    pthread_mutex_unlock(&session->mutex);
    return busy ? 0 : sbx_clock_monotonic(&sbx_system_clock) - since;
}

void sbx_session_identify(struct sbx_session *session, const uint8_t token[SBX_TOKEN_BYTES],
                          uint32_t epoch)
{
    pthread_mutex_lock(&session->mutex);
    print_base64(token, SBX_TOKEN_BYTES, session->token);
    snprintf(session->epoch, sizeof session->epoch, "%" PRIu32, epoch);
    session->identified = true;
    pthread_mutex_unlock(&session->mutex);
}

void sbx_session_set_direct(struct sbx_session *session)
{
    session->direct = true;
}

bool sbx_session_is_direct(const struct sbx_session *session)
{
    return session->direct;
}

void sbx_session_break(struct sbx_session *session)
{
    session->broken = true;
    pthread_mutex_lock(&session->mutex);
    session->alive = false; /* no stream comes any more */
    pthread_mutex_unlock(&session->mutex);
    struct sbx_stream *stream;
    while ((stream = first_stream(session)) != NULL) {
        end_as_lost(stream);
        sbx_stream_detach(stream);
    }
    nghttp2_session_del(session->http2);
    session->http2 = NULL;
    close_handles(session);
    sbx_loop_end_channel(session->loop, &session->channel);
    if (session->ending && session->handles == 0)
        forget(session);
}

static struct sbx_stream *first_stream(struct sbx_session *session)
{
    pthread_mutex_lock(&session->mutex);
    struct sbx_stream *stream = session->streams;
    pthread_mutex_unlock(&session->mutex);
    return stream;
}

static void end_as_lost(struct sbx_stream *stream)
{
    struct sbx_outcome outcome = {.status = SANDBOX_UNAVAILABLE,
                                  .lost = stream->first_byte < stream->session->written,
                                  .message = "the connection to the agent was lost"};
    snprintf(outcome.reason, sizeof outcome.reason, outcome.lost ? "answer-lost" : "not-sent");
    stream->known = false;
    sbx_stream_conclude(stream, &outcome);
}

static struct sbx_session *new_session(struct sbx_loop *loop)
{
    struct sbx_session *session = calloc(1, sizeof *session);
    if (session == NULL)
        return NULL;
    session->inbox = malloc(SBX_READ_BYTES);
    session->outbox = malloc(SBX_WRITE_BYTES);
    if (session->inbox == NULL || session->outbox == NULL ||
        pthread_mutex_init(&session->mutex, NULL) != 0) {
        free(session->inbox);
        free(session->outbox);
        free(session);
        return NULL;
    }
    pthread_mutex_init(&session->io_mutex, NULL);
    session->loop = loop;
    atomic_init(&session->references, 1);
    session->alive = true;
    session->last_call_ms = sbx_clock_monotonic(&sbx_system_clock);
    session->ping_ms = SBX_PING_MS;
    session->channel = (struct sbx_channel)SBX_CHANNEL;
    session->dirty_last = &session->dirty;
    session->start_task.run = sbx_session_begin_task;
    session->pump_task.run = sbx_session_pump_task;
    session->end_task.run = sbx_session_end_task;
    return session;
}

/* A handle that was made has `data`. */
static void close_handles(struct sbx_session *session)
{
    uv_handle_t *handles[] = {(uv_handle_t *)&session->read_poll,
                              (uv_handle_t *)&session->write_poll,
                              (uv_handle_t *)&session->timer};
    for (size_t index = 0; index < sizeof handles / sizeof handles[0]; index++) {
        if (handles[index]->data != NULL && !uv_is_closing(handles[index]))
            uv_close(handles[index], on_closed);
    }
}

static void on_closed(uv_handle_t *handle)
{
    struct sbx_session *session = handle->data;
    session->handles--;
    if (session->ending && session->handles == 0)
        forget(session);
}

/* Nobody holds it, no handle is open, no task is posted. */
static void forget(struct sbx_session *session)
{
    pthread_mutex_destroy(&session->mutex);
    pthread_mutex_destroy(&session->io_mutex);
    sbx_wipe(session->token, sizeof session->token);
    for (struct sbx_message *spare = session->spares; spare != NULL;) {
        struct sbx_message *next = spare->next;
        free(spare);
        spare = next;
    }
    free(session->inbox);
    free(session->outbox);
    free(session);
}

/* Without padding, as gRPC writes binary metadata. */
static void print_base64(const uint8_t *bytes, size_t size, char *text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    unsigned held = 0;
    for (size_t at = 0; at < size; at++) {
        bits = (bits << 8 | bytes[at]) & 0xffff;
        held += 8;
        while (held >= 6) {
            held -= 6;
            *text++ = digits[bits >> held & 63];
        }
    }
    if (held > 0)
        *text++ = digits[bits << (6 - held) & 63];
    *text = '\0';
}
