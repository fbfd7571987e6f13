/*
 * A session on the I/O thread: its descriptors, its keep-alive, and what callers left to be done.
 */

#include "agent/session_parts.h"
#include "util/log.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define READS_AT_ONCE 4        /* then the other sessions get their turn */
#define GOODBYE_MS 1000        /* how long the last bytes may take to leave */
#define FRAME_ROOM (SBX_FRAME_OUT_MAX + 64) /* nghttp2 gives one frame at a time */

static bool begin_polling(struct sbx_session *session);
static struct sbx_stream *take_dirty(struct sbx_session *session, bool *cut, uint32_t *ping_ms);
static struct sbx_stream *unmark(struct sbx_stream *stream);
static void serve_all(struct sbx_session *session, struct sbx_stream *stream);
static void serve(struct sbx_session *session, struct sbx_stream *stream);
static void settle(struct sbx_session *session);
static void call_ready(struct sbx_session *session);
static void flush(struct sbx_session *session);
static bool fill_outbox(struct sbx_session *session);
static bool write_outbox(struct sbx_session *session);
static bool send_outbox(struct sbx_session *session);
static void send_quietly(struct sbx_session *session);
static void want_to_write(struct sbx_session *session, bool wants);
static void on_readable(uv_poll_t *poll, int status, int events);
static void on_writable(uv_poll_t *poll, int status, int events);
static void take_bytes(struct sbx_session *session);
static void on_ping_time(uv_timer_t *timer);
static void on_goodbye_time(uv_timer_t *timer);

#define OWNER(task, member) \
    ((struct sbx_session *)(void *)((char *)(task) - offsetof(struct sbx_session, member)))

void sbx_session_begin_task(struct sbx_loop_task *task)
{
    struct sbx_session *session = OWNER(task, start_task);
    pthread_mutex_lock(&session->io_mutex);
    if (!sbx_http2_begin(session) || !begin_polling(session))
        session->failed = true;
    else
        uv_timer_start(&session->timer, on_ping_time, SBX_PING_MS, SBX_PING_MS);
    settle(session);
    pthread_mutex_unlock(&session->io_mutex);
}

void sbx_session_pump_task(struct sbx_loop_task *task)
{
    struct sbx_session *session = OWNER(task, pump_task);
    bool cut = false;
    uint32_t ping_ms = 0;
    pthread_mutex_lock(&session->io_mutex);
    struct sbx_stream *stream = take_dirty(session, &cut, &ping_ms);
    session->failed = session->failed || cut;
    if (!session->broken && !session->failed && uv_timer_get_repeat(&session->timer) != ping_ms)
        uv_timer_start(&session->timer, on_ping_time, ping_ms, ping_ms);
    serve_all(session, stream);
    settle(session);
    pthread_mutex_unlock(&session->io_mutex);
}

/*
 * What the loop needs not be woken for: with an idle channel a caller writes its request itself.
 * Everything else, all that concerns the loop's handles among it, is left to the I/O thread.
 */
void sbx_session_pump_here(struct sbx_session *session)
{
    bool done = false;
    if (pthread_mutex_trylock(&session->io_mutex) == 0) {
        if (session->http2 != NULL && !session->failed && !session->wants_to_write &&
            session->outbox_end == 0) {
            bool cut = false;
            uint32_t ping_ms = 0;
            serve_all(session, take_dirty(session, &cut, &ping_ms));
            session->failed = cut || !fill_outbox(session);
            if (!session->failed)
                send_quietly(session);
            done = !session->failed && session->outbox_end == 0 && session->ready_first == NULL;
        }
        pthread_mutex_unlock(&session->io_mutex);
    }
    if (!done)
        sbx_loop_post(session->loop, &session->pump_task);
}

/*
 * The I/O thread has all signals blocked; this is a thread of the host's, which must not learn of
 * a broken pipe by a signal. One that it has blocked itself, and perhaps waits for, stays its own.
 */
static void send_quietly(struct sbx_session *session)
{
    sigset_t pipe_only, before, pending;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigemptyset(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
    if (sigismember(&before, SIGPIPE) == 1)
        sigpending(&pending);
    (void)send_outbox(session);
    if (session->failed && sigismember(&pending, SIGPIPE) == 0) {
        static const struct timespec at_once = {0, 0};
        while (sigtimedwait(&pipe_only, NULL, &at_once) < 0 && errno == EINTR)
            continue;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void serve_all(struct sbx_session *session, struct sbx_stream *stream)
{
    while (stream != NULL) {
        struct sbx_stream *next = unmark(stream);
        serve(session, stream);
        sbx_stream_drop(stream);
        stream = next;
    }
}

/*
 * A relay ends on GOAWAY and must not on the end of the bytes, so the GOAWAY has to get through;
 * a peer that reads no more is not waited for long.
 */
void sbx_session_end_task(struct sbx_loop_task *task)
{
    struct sbx_session *session = OWNER(task, end_task);
    session->ending = true;
    if (!session->broken && !session->failed) {
        nghttp2_session_terminate_session(session->http2, NGHTTP2_NO_ERROR);
        flush(session);
        if (!session->failed && session->outbox_start != session->outbox_end) {
            uv_timer_start(&session->timer, on_goodbye_time, GOODBYE_MS, 0);
            return;
        }
    }
    sbx_session_break(session);
}

void sbx_stream_mark(struct sbx_stream *stream)
{
    sbx_stream_mark_only(stream);
    sbx_loop_post(stream->session->loop, &stream->session->pump_task);
}

void sbx_stream_mark_only(struct sbx_stream *stream)
{
    struct sbx_session *session = stream->session;
    if (!stream->dirty) {
        stream->dirty = true;
        sbx_stream_keep(stream);
        stream->next_dirty = NULL;
        *session->dirty_last = stream;
        session->dirty_last = &stream->next_dirty;
    }
}

void sbx_session_set_ping(struct sbx_session *session, uint32_t ping_ms)
{
    pthread_mutex_lock(&session->mutex);
    session->ping_ms = ping_ms;
    pthread_mutex_unlock(&session->mutex);
    sbx_loop_post(session->loop, &session->pump_task);
}

static bool begin_polling(struct sbx_session *session)
{
    uv_loop_t *uv = sbx_loop_uv(session->loop);
    struct sbx_channel *channel = &session->channel;
    uv_timer_init(uv, &session->timer);
    session->timer.data = session;
    session->handles++;
    if (uv_poll_init(uv, &session->read_poll, channel->read_fd) != 0)
        return false;
    session->read_poll.data = session;
    session->handles++;
    if (channel->read_fd != channel->write_fd) {
        if (uv_poll_init(uv, &session->write_poll, channel->write_fd) != 0)
            return false;
        session->write_poll.data = session;
        session->handles++;
    }
    return uv_poll_start(&session->read_poll, UV_READABLE, on_readable) == 0;
}

static struct sbx_stream *take_dirty(struct sbx_session *session, bool *cut, uint32_t *ping_ms)
{
    pthread_mutex_lock(&session->mutex);
    struct sbx_stream *first = session->dirty;
    session->dirty = NULL;
    session->dirty_last = &session->dirty;
    *cut = session->cut;
    *ping_ms = session->ping_ms;
    pthread_mutex_unlock(&session->mutex);
    return first;
}

/* Until here it counts as marked, or a caller would link it anew and cut the chain. */
static struct sbx_stream *unmark(struct sbx_stream *stream)
{
    pthread_mutex_lock(&stream->session->mutex);
    struct sbx_stream *next = stream->next_dirty;
    stream->next_dirty = NULL;
    stream->dirty = false;
    pthread_mutex_unlock(&stream->session->mutex);
    return next;
}

/* What the stream's caller left to be done. */
static void serve(struct sbx_session *session, struct sbx_stream *stream)
{
    pthread_mutex_lock(&session->mutex);
    bool abandoned = stream->abandoned, over = stream->over, ready = stream->ready_due;
    bool fresh = !stream->submitted && !over && !session->broken;
    stream->submitted = stream->submitted || (fresh && !abandoned);
    stream->ready_due = false;
    pthread_mutex_unlock(&session->mutex);

    if (ready)
        sbx_stream_list_ready(stream);
    if (abandoned && !over) {
        sbx_stream_conclude(stream, &(struct sbx_outcome){.status = SANDBOX_CANCELLED,
                                                          .message = "the call was given up"});
        sbx_http2_reset(stream);
        if (fresh)
            sbx_stream_detach(stream);
    } else if (fresh) {
        sbx_http2_submit(stream);
    } else if (stream->known) {
        sbx_http2_consume(stream);
        sbx_http2_resume(stream);
    }
}

/* The end of everything that happens here: bytes leave, carriers are called, a failure is seen. */
static void settle(struct sbx_session *session)
{
    if (!session->broken && !session->failed)
        flush(session);
    call_ready(session);
    if (session->ending && session->outbox_start == session->outbox_end)
        session->failed = true;
    if (!session->failed || session->broken)
        return;
    sbx_session_break(session); /* an ending session is freed once its handles are closed */
    if (!session->ending)
        call_ready(session);
}

/* A carrier may free its stream in there, and may make new work, which comes as a new task. */
static void call_ready(struct sbx_session *session)
{
    while (session->ready_first != NULL) {
        struct sbx_stream *stream = session->ready_first;
        session->ready_first = stream->next_ready;
        stream->next_ready = NULL;
        stream->ready_listed = false;
        pthread_mutex_lock(&session->mutex);
        void (*ready)(void *user_data) = stream->ready;
        void *user_data = stream->ready_data;
        pthread_mutex_unlock(&session->mutex);
        if (ready != NULL)
            ready(user_data);
        sbx_stream_drop(stream);
    }
}

static void flush(struct sbx_session *session)
{
    for (;;) {
        if (session->outbox_end == 0 && !fill_outbox(session))
            return;
        if (session->outbox_end == 0)
            break;
        if (!write_outbox(session))
            return;
    }
    want_to_write(session, false);
    if (!nghttp2_session_want_read(session->http2) && !nghttp2_session_want_write(session->http2))
        session->failed = true;
}

/* False where the session is of no use any more. */
static bool fill_outbox(struct sbx_session *session)
{
    while (SBX_WRITE_BYTES - session->outbox_end >= FRAME_ROOM) {
        const uint8_t *bytes = NULL;
        ssize_t size = nghttp2_session_mem_send(session->http2, &bytes);
        if (size == 0)
            return true;
        if (size < 0 || (size_t)size > SBX_WRITE_BYTES - session->outbox_end) {
            session->failed = true;
            return false;
        }
        memcpy(session->outbox + session->outbox_end, bytes, (size_t)size);
        session->outbox_end += (size_t)size;
        session->produced += (uint64_t)size;
    }
    return true;
}

/* False where the channel takes no more for now, or never again. */
static bool write_outbox(struct sbx_session *session)
{
    if (send_outbox(session))
        return true;
    want_to_write(session, true);
    return false;
}

static bool send_outbox(struct sbx_session *session)
{
    while (session->outbox_start < session->outbox_end) {
        ssize_t size = write(session->channel.write_fd, session->outbox + session->outbox_start,
                             session->outbox_end - session->outbox_start);
        if (size < 0 && errno == EINTR)
            continue;
        if (size < 0) {
            session->failed = errno != EAGAIN;
            return false;
        }
        session->outbox_start += (size_t)size;
        session->written += (uint64_t)size;
    }
    session->outbox_start = session->outbox_end = 0;
    return true;
}

static void want_to_write(struct sbx_session *session, bool wants)
{
    if (session->wants_to_write == wants)
        return;
    session->wants_to_write = wants;
    if (session->channel.read_fd == session->channel.write_fd)
        uv_poll_start(&session->read_poll, UV_READABLE | (wants ? UV_WRITABLE : 0), on_readable);
    else if (wants)
        uv_poll_start(&session->write_poll, UV_WRITABLE, on_writable);
    else
        uv_poll_stop(&session->write_poll);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct sbx_session *session = poll->data;
    pthread_mutex_lock(&session->io_mutex);
    if (status < 0)
        session->failed = true;
    else if (events & UV_READABLE)
        take_bytes(session);
    settle(session);
    pthread_mutex_unlock(&session->io_mutex);
}

static void on_writable(uv_poll_t *poll, int status, int events)
{
    struct sbx_session *session = poll->data;
    pthread_mutex_lock(&session->io_mutex);
    if (status < 0)
        session->failed = true;
    settle(session);
    pthread_mutex_unlock(&session->io_mutex);
}

static void take_bytes(struct sbx_session *session)
{
    for (unsigned count = 0; count < READS_AT_ONCE; count++) {
        ssize_t size = read(session->channel.read_fd, session->inbox, SBX_READ_BYTES);
        if (size < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (size <= 0) {
            session->failed = true;
            return;
        }
        session->awaits_ping = false; /* whoever speaks is alive */
        if (nghttp2_session_mem_recv(session->http2, session->inbox, (size_t)size) != size) {
            session->failed = true;
            return;
        }
        if ((size_t)size < SBX_READ_BYTES)
            return;
    }
}

static void on_ping_time(uv_timer_t *timer)
{
    struct sbx_session *session = timer->data;
    pthread_mutex_lock(&session->io_mutex);
    if (session->awaits_ping) {
        sbx_log(SANDBOX_LOG_WARNING, "an agent did not answer a ping; its connection is cut");
        session->failed = true;
    } else if (sbx_session_idle_ms(session) < SBX_PING_IDLE_MS) {
        nghttp2_submit_ping(session->http2, NGHTTP2_FLAG_NONE, NULL);
        session->awaits_ping = true;
    }
    settle(session);
    pthread_mutex_unlock(&session->io_mutex);
}

static void on_goodbye_time(uv_timer_t *timer)
{
    struct sbx_session *session = timer->data;
    session->failed = true;
    settle(session);
}
