/* Connections of callers: lines in, answers out, one request at a time. */

#include "platform.h"
#include "util/bytes.h"
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 256

struct platform_connection {
    uv_pipe_t pipe;
    struct sbx_bytes input;
    struct platform_request *request; /* under way, or NULL */
    uv_write_t write;
    char *output;            /* being written, or NULL */
    bool closing, cut_after; /* cut_after: once the answer is out */
    struct platform_connection *next;
};

static uv_pipe_t server;
static struct platform_connection *connections;
static size_t connection_count;

static void on_connection(uv_stream_t *stream, int status);
static void give_room(uv_handle_t *handle, size_t wanted, uv_buf_t *room);
static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *room);
static void take_line(struct platform_connection *connection);
static void end_connection(struct platform_connection *connection);

bool platform_listen(int listener)
{
    return uv_pipe_init(&platform.loop, &server, 0) == 0 && uv_pipe_open(&server, listener) == 0 &&
           uv_listen((uv_stream_t *)&server, BACKLOG, on_connection) == 0;
}

size_t platform_connection_count(void)
{
    return connection_count;
}

void platform_connections_close(void)
{
    if (!uv_is_closing((uv_handle_t *)&server))
        uv_close((uv_handle_t *)&server, NULL);
    for (struct platform_connection *at = connections; at != NULL; at = at->next)
        end_connection(at);
}

/* The socket's mode keeps strangers out; this does too where a file system ignores modes. */
static bool is_ours(const uv_pipe_t *pipe)
{
    int fd = -1;
    struct ucred peer;
    socklen_t size = sizeof peer;
    return uv_fileno((const uv_handle_t *)pipe, &fd) == 0 &&
           getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct platform_connection *connection = status < 0 ? NULL : calloc(1, sizeof *connection);
    if (connection == NULL)
        return;
    connection->input = (struct sbx_bytes)SBX_BYTES(PLATFORM_LINE_MAX);
    if (uv_pipe_init(&platform.loop, &connection->pipe, 0) != 0) {
        free(connection);
        return;
    }
    connection->pipe.data = connection;
    connection->next = connections;
    connections = connection;
    connection_count++;
    if (uv_accept(stream, (uv_stream_t *)&connection->pipe) != 0 ||
        connection_count > PLATFORM_CONNECTIONS_MAX || !is_ours(&connection->pipe) ||
        uv_read_start((uv_stream_t *)&connection->pipe, give_room, on_read) != 0)
        end_connection(connection);
}

static void give_room(uv_handle_t *handle, size_t wanted, uv_buf_t *room)
{
    struct platform_connection *connection = handle->data;
    size_t left = connection->input.limit - sbx_bytes_size(&connection->input);
    size_t size = left < 65536 ? left : 65536;
    uint8_t *place = size == 0 ? NULL : sbx_bytes_room(&connection->input, size);
    *room = uv_buf_init((char *)place, place == NULL ? 0 : (unsigned)size);
}

static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *room)
{
    struct platform_connection *connection = stream->data;
    if (size == UV_ENOBUFS && !connection->closing && connection->request == NULL &&
        connection->output == NULL) {
        cJSON *answer = cJSON_CreateObject();
        cJSON_AddFalseToObject(answer, "ok");
        cJSON_AddNumberToObject(answer, "status", SANDBOX_LIMIT);
        cJSON_AddStringToObject(answer, "message", "the request is longer than 1 MiB");
        uv_read_stop(stream);
        connection->cut_after = true;
        platform_connection_answer(connection, answer);
        return;
    }
    if (size < 0) {
        end_connection(connection);
        return;
    }
    sbx_bytes_grow(&connection->input, (size_t)size);
    take_line(connection);
}

/* Starts the next request if the last one is answered and a whole line is there. */
static void take_line(struct platform_connection *connection)
{
    if (connection->closing || connection->request != NULL || connection->output != NULL)
        return;
    size_t size = sbx_bytes_size(&connection->input);
    const uint8_t *data = sbx_bytes_data(&connection->input);
    const uint8_t *end = size == 0 ? NULL : memchr(data, '\n', size);
    if (end == NULL)
        return;
    cJSON *body = NULL;
    size_t length = (size_t)(end - data);
    sandbox_status status = sbx_json_parse(data, length, PLATFORM_LINE_MAX, &body, NULL);
    sbx_bytes_skip(&connection->input, length + 1);
    if (status != SANDBOX_OK || !cJSON_IsObject(body)) {
        cJSON_Delete(body);
        end_connection(connection);
        return;
    }
    platform_request_begin(connection, body, &connection->request);
}

static void on_written(uv_write_t *write, int status)
{
    struct platform_connection *connection = write->data;
    free(connection->output);
    connection->output = NULL;
    if (status < 0 || connection->cut_after)
        end_connection(connection);
    else
        take_line(connection);
}

void platform_connection_answer(struct platform_connection *connection, cJSON *answer)
{
    connection->request = NULL;
    char *text = answer == NULL ? NULL : cJSON_PrintUnformatted(answer);
    cJSON_Delete(answer);
    size_t size = text == NULL ? 0 : strlen(text);
    if (text == NULL || size + 1 > PLATFORM_LINE_MAX || connection->closing) {
        free(text);
        end_connection(connection);
        return;
    }
    text[size] = '\n'; /* in the place of the final zero */
    connection->output = text;
    connection->write.data = connection;
    uv_buf_t piece = uv_buf_init(text, (unsigned)size + 1);
    if (uv_write(&connection->write, (uv_stream_t *)&connection->pipe, &piece, 1, on_written) !=
        0) {
        free(text);
        connection->output = NULL;
        end_connection(connection);
    }
}

static void on_closed(uv_handle_t *handle)
{
    struct platform_connection *connection = handle->data;
    struct platform_connection **at = &connections;
    while (*at != connection)
        at = &(*at)->next;
    *at = connection->next;
    connection_count--;
    sbx_bytes_free(&connection->input);
    free(connection->output);
    free(connection);
    platform_look_idle();
}

static void end_connection(struct platform_connection *connection)
{
    if (connection->closing)
        return;
    connection->closing = true;
    struct platform_request *request = connection->request;
    connection->request = NULL;
    if (request != NULL)
        platform_request_orphan(request);
    uv_close((uv_handle_t *)&connection->pipe, on_closed);
}
