/* The socket, its connections, and HTTP/2 as bytes in and bytes out. */

#include "address.h"
#include "call.h"
#include "connection.h"
#include "handed_over.h"
#include "listener.h"
#include "loop.h"
#include "util/memory.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX   64
#define STREAMS_MAX       256
#define STREAM_WINDOW     (4u << 20)
#define CONNECTION_WINDOW (16 << 20)
#define HELD_MAX          (64u << 20)  /* then a connection's window stays shut */
#define FRAME_MAX         (513u << 10) /* a full message goes in one, either way */
#define FRAME_HEADER      9u
#define PIECES_MAX        64u
#define CONTROL_ROOM      (32u << 10) /* for the frame that nghttp2 gives after the last data */
#define HEADER_LIST_MAX   (16u << 10)
#define GATHER_TARGET     (1u << 20)
#define READ_BYTES        (1u << 20)
#define SOCKET_BYTES      (1 << 20)
#define RESETS_BURST      1000
#define RESETS_A_SECOND   200

static uv_pipe_t listener;
static uv_prepare_t before_sleep;
static struct agent_timer *deadline_timer;
static uint64_t deadline_timer_ms;
static char *listener_path;
static nghttp2_session_callbacks *callbacks;
static nghttp2_option *options;
static struct agent_connection *connections, *due_connections;
static unsigned connection_count;
/* Shared, since both are only used between two calls of the loop. */
static char read_memory[READ_BYTES];
static uint8_t write_memory[GATHER_TARGET + FRAME_MAX + CONTROL_ROOM];
static size_t gathered; /* of it */
/* What one write consists of: parts of write_memory, and bytes that services lend. */
static uv_buf_t pieces[PIECES_MAX];
static unsigned piece_count;
static size_t piece_bytes;

static bool make_protocol(void);
static void on_connection(uv_stream_t *stream, int status);
static bool make_way(void);
static bool start_session(struct agent_connection *connection);
static void give_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room);
static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *room);
static void on_before_sleep(uv_prepare_t *handle);
static void flush(struct agent_connection *connection);
static void on_closed(uv_handle_t *handle);
static void on_deadline(void *user_data);

bool agent_server_listen(const char *path)
{
    int fd = make_protocol() ? agent_address_bind(path) : -1;
    listener_path = sbx_copy(path);
    if (fd < 0 || listener_path == NULL)
        return false;
    uv_pipe_init(agent_loop(), &listener, 0);
    int problem = uv_pipe_open(&listener, fd);
    if (problem == 0)
        problem = uv_listen((uv_stream_t *)&listener, CONNECTIONS_MAX, on_connection);
    if (problem != 0)
        fprintf(stderr, "sandbox-agent: cannot listen on '%s': %s\n", path, uv_strerror(problem));
    uv_prepare_init(agent_loop(), &before_sleep);
    uv_prepare_start(&before_sleep, on_before_sleep);
    if (problem == 0)
        agent_handed_over_listen(path);
    return problem == 0;
}

void agent_server_unlink(void)
{
    if (listener_path == NULL || !agent_address_is_path(listener_path))
        return;
    unlink(listener_path);
    agent_handed_over_unlink();
}

unsigned agent_server_connection_count(void)
{
    return connection_count;
}

struct agent_connection *agent_connections(void)
{
    return connections;
}

static int begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct agent_call *call = agent_call_open(user_data, frame->hd.stream_id);
    if (call == NULL)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call);
    return 0;
}

static int take_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                       size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
                       void *user_data)
{
    struct agent_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (call == NULL || agent_call_header(call, name, name_size, value, value_size))
        return 0;
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static int take_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data,
                     size_t size, void *user_data)
{
    struct agent_call *call = nghttp2_session_get_stream_user_data(session, stream);
    if (call != NULL)
        agent_call_input(call, data, size);
    else
        nghttp2_session_consume(session, stream, size);
    return 0;
}

static int take_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    struct agent_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (call == NULL || (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA))
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        agent_call_begin(call);
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        agent_call_input_ended(call);
    return 0;
}

/* Answered before the caller had said all: tell it to stop. */
static int frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    if (frame->hd.type != NGHTTP2_HEADERS || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    struct agent_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (call != NULL && !call->remote_ended)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                  NGHTTP2_NO_ERROR);
    return 0;
}

static int stream_closed(nghttp2_session *session, int32_t stream, uint32_t code, void *user_data)
{
    struct agent_call *call = nghttp2_session_get_stream_user_data(session, stream);
    if (call != NULL)
        agent_call_close(call);
    return 0;
}

static ssize_t choose_frame_size(nghttp2_session *session, uint8_t type, int32_t stream,
                                 int32_t session_window, int32_t stream_window, uint32_t remote_max,
                                 void *user_data)
{
    return remote_max < FRAME_MAX ? (ssize_t)remote_max : (ssize_t)FRAME_MAX;
}

static void add_piece(const uint8_t *data, size_t size)
{
    uv_buf_t *last = piece_count > 0 ? &pieces[piece_count - 1] : NULL;
    piece_bytes += size;
    if (last != NULL && (const uint8_t *)last->base + last->len == data)
        last->len += size;
    else if (size > 0)
        pieces[piece_count++] = uv_buf_init((char *)(uintptr_t)data, (unsigned)size);
}

/* A DATA frame: its header, what is queued for it, and the rest from where the service has it. */
static int send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *header,
                     size_t size, nghttp2_data_source *source, void *user_data)
{
    bool has_room = sizeof write_memory - CONTROL_ROOM - gathered >= size + FRAME_HEADER;
    /* What is larger than the relay's memory would make one more round through it. */
    bool fits = piece_bytes == 0 || piece_bytes + FRAME_HEADER + size <= GATHER_TARGET;
    if (!has_room || !fits || piece_count + 3 > PIECES_MAX)
        return NGHTTP2_ERR_WOULDBLOCK;
    uint8_t *room = write_memory + gathered;
    const uint8_t *lent = NULL;
    memcpy(room, header, FRAME_HEADER);
    size_t copied = agent_call_copy(source->ptr, room + FRAME_HEADER, size, &lent);
    gathered += FRAME_HEADER + copied;
    add_piece(room, FRAME_HEADER + copied);
    add_piece(lent, size - copied);
    return 0;
}

static bool make_protocol(void)
{
    if (nghttp2_session_callbacks_new(&callbacks) != 0 || nghttp2_option_new(&options) != 0) {
        fputs("sandbox-agent: no memory\n", stderr);
        return false;
    }
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, take_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, take_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, take_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, frame_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, stream_closed);
    nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, choose_frame_size);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, send_data);
    nghttp2_option_set_no_auto_window_update(options, 1);
    nghttp2_option_set_stream_reset_rate_limit(options, RESETS_BURST, RESETS_A_SECOND);
    nghttp2_option_set_max_reserved_remote_streams(options, 0);
    return true;
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct agent_connection *connection = status < 0 ? NULL : agent_connection_new(false);
    if (connection == NULL)
        return;
    if (uv_accept(stream, &connection->peer.stream) == 0)
        agent_connection_begin(connection);
    else
        agent_connection_close(connection);
}

struct agent_connection *agent_connection_new(bool over_tcp)
{
    struct agent_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL)
        return NULL;
    if (over_tcp)
        uv_tcp_init(agent_loop(), &connection->peer.tcp);
    else
        uv_pipe_init(agent_loop(), &connection->peer.pipe, 0);
    connection->peer.handle.data = connection;
    connection->over_tcp = over_tcp;
    connection->unsent.limit = GATHER_TARGET + FRAME_MAX + sizeof write_memory;
    return connection;
}

void agent_connection_begin(struct agent_connection *connection)
{
    connection->last_used_ms = uv_now(agent_loop());
    bool has_room = make_way();
    connection->next = connections;
    connections = connection;
    connection->listed = true;
    connection_count++;
    bool reads = connection->handed_over != NULL ||
                 uv_read_start(&connection->peer.stream, give_room, on_read) == 0;
    if (!has_room || !reads || !start_session(connection))
        agent_connection_close(connection);
    else
        agent_connection_due(connection);
}

/* The place of the one that has been idle longest goes to a new one. */
static bool make_way(void)
{
    if (connection_count < CONNECTIONS_MAX)
        return true;
    struct agent_connection *idlest = NULL;
    for (struct agent_connection *at = connections; at != NULL; at = at->next) {
        if (!at->closing && at->call_count == 0 &&
            (idlest == NULL || at->last_used_ms <= idlest->last_used_ms))
            idlest = at;
    }
    if (idlest == NULL)
        return false;
    agent_connection_close(idlest);
    return true;
}

static bool start_session(struct agent_connection *connection)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, STREAMS_MAX},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, FRAME_MAX},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEADER_LIST_MAX},
    };
    int fd = -1, size = SOCKET_BYTES;
    uv_fileno(&connection->peer.handle, &fd);
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    if (nghttp2_session_server_new2(&connection->session, callbacks, connection, options) != 0)
        return false;
    return nghttp2_submit_settings(connection->session, NGHTTP2_FLAG_NONE, settings,
                                   sizeof settings / sizeof *settings) == 0 &&
           nghttp2_session_set_local_window_size(connection->session, NGHTTP2_FLAG_NONE, 0,
                                                 CONNECTION_WINDOW) == 0;
}

static void give_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room)
{
    *room = uv_buf_init(read_memory, sizeof read_memory);
}

static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *room)
{
    agent_connection_take(stream->data, room->base, size);
}

char *agent_connection_room(size_t *size)
{
    *size = sizeof read_memory;
    return read_memory;
}

void agent_connection_take(struct agent_connection *connection, const char *data, ssize_t size)
{
    if (size == 0 || connection->closing)
        return;
    connection->last_used_ms = uv_now(agent_loop());
    if (size < 0 ||
        nghttp2_session_mem_recv(connection->session, (const uint8_t *)data, (size_t)size) < 0)
        agent_connection_close(connection);
    else
        agent_connection_due(connection);
}

void agent_connection_due(struct agent_connection *connection)
{
    if (connection->due || connection->closing)
        return;
    connection->due = true;
    connection->next_due = due_connections;
    due_connections = connection;
}

void agent_connection_hold(struct agent_connection *connection, size_t size)
{
    connection->held += size;
    if (connection->held <= HELD_MAX)
        nghttp2_session_consume_connection(connection->session, size);
    else
        connection->owed += size;
}

void agent_connection_release(struct agent_connection *connection, size_t size)
{
    connection->held -= size;
    if (connection->owed > 0 && connection->held <= HELD_MAX && !connection->closing) {
        nghttp2_session_consume_connection(connection->session, connection->owed);
        connection->owed = 0;
    }
}

/* What one turn of the loop caused goes out in as few writes as possible. */
static void on_before_sleep(uv_prepare_t *handle)
{
    while (due_connections != NULL) {
        struct agent_connection *connection = due_connections;
        due_connections = connection->next_due;
        connection->due = false;
        if (connection->closing)
            continue;
        struct agent_call *next;
        for (struct agent_call *call = connection->calls; call != NULL; call = next) {
            next = call->next;
            agent_call_dispatch(call);
        }
        flush(connection);
    }
}

/* As much as fits one write; -1 where the session is broken. */
static ssize_t gather(struct agent_connection *connection)
{
    gathered = piece_count = 0;
    piece_bytes = 0;
    while (piece_bytes < GATHER_TARGET && piece_count + 3 <= PIECES_MAX) {
        const uint8_t *data;
        ssize_t more = nghttp2_session_mem_send(connection->session, &data);
        if (more < 0 || (size_t)more > sizeof write_memory - gathered)
            return -1;
        if (more == 0)
            break;
        memcpy(write_memory + gathered, data, (size_t)more);
        add_piece(write_memory + gathered, (size_t)more);
        gathered += (size_t)more;
    }
    return (ssize_t)piece_bytes;
}

static void written(uv_write_t *write, int status)
{
    agent_connection_written(write->data, status);
}

void agent_connection_written(struct agent_connection *connection, int status)
{
    connection->writing = false;
    sbx_bytes_free(&connection->unsent);
    if (status < 0)
        agent_connection_close(connection);
    else
        agent_connection_due(connection);
}

/* What is left after the first `sent` bytes of the pieces. */
static bool write_later(struct agent_connection *connection, size_t sent)
{
    for (unsigned at = 0; at < piece_count; at++) {
        size_t skipped = sent < pieces[at].len ? sent : pieces[at].len;
        sent -= skipped;
        if (!sbx_bytes_append(&connection->unsent, pieces[at].base + skipped,
                              pieces[at].len - skipped))
            return false;
    }
    if (connection->handed_over != NULL) {
        connection->writing = agent_handed_over_await_room(connection->handed_over);
        return connection->writing;
    }
    uv_buf_t rest = uv_buf_init((char *)(uintptr_t)sbx_bytes_data(&connection->unsent),
                                (unsigned)sbx_bytes_size(&connection->unsent));
    connection->write.data = connection;
    connection->writing =
        uv_write(&connection->write, &connection->peer.stream, &rest, 1, written) == 0;
    return connection->writing;
}

static void flush(struct agent_connection *connection)
{
    while (!connection->writing && !connection->closing) {
        ssize_t size = gather(connection);
        bool done = size == 0 && !nghttp2_session_want_read(connection->session) &&
                    !nghttp2_session_want_write(connection->session);
        if (size < 0 || done)
            agent_connection_close(connection);
        if (size <= 0)
            break;
        int sent = connection->handed_over != NULL
                       ? agent_handed_over_write(connection->handed_over, pieces, piece_count)
                       : uv_try_write(&connection->peer.stream, pieces, piece_count);
        if (sent == UV_EAGAIN)
            sent = 0;
        if (sent < 0 || (sent < size && !write_later(connection, (size_t)sent)))
            agent_connection_close(connection);
    }
    for (struct agent_call *call = connection->calls; call != NULL; call = call->next)
        agent_call_keep_lent(call);
    if (connection->handed_over != NULL && !connection->closing &&
        !agent_handed_over_settle(connection->handed_over))
        agent_connection_close(connection);
}

/* Its calls end in the loop's own time, since this may run inside one of them. */
void agent_connection_close(struct agent_connection *connection)
{
    if (connection->closing)
        return;
    connection->closing = true;
    if (connection->handed_over != NULL)
        agent_handed_over_close(connection->handed_over);
    uv_close(&connection->peer.handle, on_closed);
}

void agent_connection_reset(struct agent_connection *connection)
{
    if (connection->closing)
        return;
    if (connection->over_tcp && uv_tcp_close_reset(&connection->peer.tcp, on_closed) == 0)
        connection->closing = true;
    else
        agent_connection_close(connection);
}

static void on_closed(uv_handle_t *handle)
{
    struct agent_connection *connection = handle->data;
    free(connection->handed_over);
    while (connection->calls != NULL)
        agent_call_close(connection->calls);
    struct agent_connection **link = &connections;
    while (connection->listed && *link != connection)
        link = &(*link)->next;
    if (connection->listed) {
        *link = connection->next;
        connection_count--;
    }
    for (link = &due_connections; *link != NULL; link = &(*link)->next_due) {
        if (*link == connection) {
            *link = connection->next_due;
            break;
        }
    }
    nghttp2_session_del(connection->session);
    sbx_bytes_free(&connection->unsent);
    sbx_wipe(connection->pass, sizeof connection->pass);
    free(connection);
}

/* One timer for all calls: set to the earliest of their ends. */
void agent_server_deadline(uint64_t deadline_ms)
{
    if (deadline_timer != NULL && deadline_timer_ms <= deadline_ms)
        return;
    uint64_t now = uv_now(agent_loop());
    deadline_timer_ms = deadline_ms;
    agent_timer_start(&deadline_timer, deadline_ms > now ? deadline_ms - now : 0, on_deadline,
                      NULL);
}

static void on_deadline(void *user_data)
{
    uint64_t now = uv_now(agent_loop()), next = UINT64_MAX;
    for (struct agent_connection *at = connections; at != NULL; at = at->next) {
        for (struct agent_call *call = at->calls; call != NULL; call = call->next) {
            if (call->ended || call->deadline_ms == 0)
                continue;
            if (call->deadline_ms <= now) {
                agent_call_drop_output(call);
                agent_call_fail(call, AGENT_DEADLINE_EXCEEDED, "deadline",
                                "the call's deadline passed");
            } else if (call->deadline_ms < next) {
                next = call->deadline_ms;
            }
        }
    }
    if (next != UINT64_MAX)
        agent_server_deadline(next);
}
