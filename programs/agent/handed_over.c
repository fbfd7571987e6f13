/* The streams that relays hand over: see handed_over.h. */

#include "handed_over.h"
#include "address.h"
#include "connection.h"
#include "loop.h"
#include "util/memory.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARRIVALS_MAX 16u /* that have not said anything yet */
#define STREAMS      2u

struct agent_handed_over {
    struct agent_connection *connection; /* NULL: still to come */
    struct agent_watch *relay;           /* the socket that the relay waits on */
    uv_pipe_t output;
};

static struct agent_watch *listener;
static char listener_address[sizeof((struct sockaddr_un *)0)->sun_path];
static unsigned arrivals;

static void on_relay(void *user_data);
static void on_said(void *user_data);
static int receive(int fd, int streams[STREAMS]);
static bool are_streams(const int streams[STREAMS]);
static bool adopt(struct agent_handed_over *arrival, int streams[STREAMS]);
static void give_up(struct agent_handed_over *arrival);
static void on_closed(uv_handle_t *handle);

void agent_handed_over_listen(const char *address)
{
    if (!agent_address_beside(address, listener_address))
        return;
    int fd = agent_address_bind(listener_address);
    if (fd < 0 || listen(fd, ARRIVALS_MAX) != 0) {
        sbx_close_fd(&fd);
        return;
    }
    listener = agent_watch_open(fd, on_relay, NULL);
    if (listener != NULL)
        agent_watch_for(listener, UV_READABLE);
}

void agent_handed_over_unlink(void)
{
    if (listener != NULL)
        unlink(listener_address);
}

uv_stream_t *agent_handed_over_output(struct agent_handed_over *streams)
{
    return (uv_stream_t *)&streams->output;
}

void agent_handed_over_close(struct agent_handed_over *streams)
{
    uv_close((uv_handle_t *)&streams->output, on_closed);
    agent_watch_close(&streams->relay);
}

static void on_closed(uv_handle_t *handle)
{
    struct agent_handed_over *streams = handle->data;
    agent_connection_end(streams->connection);
}

static void on_relay(void *user_data)
{
    int fd = accept4(agent_watch_fd(listener), NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return;
    struct agent_handed_over *arrival = arrivals < ARRIVALS_MAX ? calloc(1, sizeof *arrival) : NULL;
    if (arrival == NULL) {
        close(fd); /* it carries the bytes itself then */
        return;
    }
    arrival->relay = agent_watch_open(fd, on_said, arrival);
    if (arrival->relay == NULL) {
        free(arrival);
        return;
    }
    arrivals++;
    agent_watch_for(arrival->relay, UV_READABLE);
}

/* The streams; and behind them only the end. */
static void on_said(void *user_data)
{
    struct agent_handed_over *arrival = user_data;
    if (arrival->connection != NULL) {
        agent_connection_close(arrival->connection);
        return;
    }
    int streams[STREAMS] = {-1, -1}, fd = agent_watch_fd(arrival->relay);
    int got = receive(fd, streams);
    if (got == EAGAIN)
        return;
    arrivals--;
    bool adopted = got == 0 && are_streams(streams) && adopt(arrival, streams);
    for (unsigned at = 0; at < STREAMS; at++)
        sbx_close_fd(&streams[at]);
    if (!adopted && arrival->connection == NULL)
        give_up(arrival);
}

/* 0, or an errno value. What is more or less than it should be is closed. */
static int receive(int fd, int streams[STREAMS])
{
    char byte = 0;
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(STREAMS * sizeof(int))];
    } control;
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    ssize_t size = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (size < 0)
        return errno == EINTR ? EAGAIN : errno;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    size_t count = 0;
    if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
        count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    if (count > STREAMS)
        count = STREAMS;
    if (count > 0)
        memcpy(streams, CMSG_DATA(header), count * sizeof(int));
    bool good = size == 1 && byte == AGENT_HANDED_OVER_BYTE && count == STREAMS &&
                (message.msg_flags & MSG_CTRUNC) == 0;
    return good ? 0 : EPROTO;
}

/* Whatever else a descriptor may be, it cannot be waited for. */
static bool are_streams(const int streams[STREAMS])
{
    for (unsigned at = 0; at < STREAMS; at++) {
        struct stat facts;
        if (fstat(streams[at], &facts) != 0 ||
            (!S_ISFIFO(facts.st_mode) && !S_ISSOCK(facts.st_mode)))
            return false;
    }
    return true;
}

/* What was taken over is -1 then; the connection's end takes the arrival with it, too. */
static bool adopt(struct agent_handed_over *arrival, int streams[STREAMS])
{
    static const char byte = AGENT_HANDED_OVER_BYTE;
    struct agent_connection *connection = agent_connection_new(false);
    if (connection == NULL)
        return false;
    if (uv_pipe_open(&connection->peer.pipe, streams[0]) != 0) {
        agent_connection_close(connection);
        return false;
    }
    streams[0] = -1;
    uv_pipe_init(agent_loop(), &arrival->output, 0);
    arrival->output.data = arrival;
    arrival->connection = connection;
    connection->handed_over = arrival;
    if (uv_pipe_open(&arrival->output, streams[1]) == 0) {
        streams[1] = -1;
        if (send(agent_watch_fd(arrival->relay), &byte, 1, MSG_NOSIGNAL) == 1) {
            agent_connection_begin(connection);
            return true;
        }
    }
    agent_connection_close(connection);
    return false;
}

static void give_up(struct agent_handed_over *arrival)
{
    agent_watch_close(&arrival->relay);
    free(arrival);
}
