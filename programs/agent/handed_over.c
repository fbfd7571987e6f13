/* The streams that relays hand over: see handed_over.h. */

#include "handed_over.h"
#include "address.h"
#include "connection.h"
#include "loop.h"
#include "util/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define ARRIVALS_MAX 16u /* that have not said anything yet */
#define STREAMS      2u
#define READS_MAX    4u /* then the other connections get their turn */
#define SAYINGS_MAX  16u

struct agent_handed_over {
    struct agent_connection *connection; /* NULL: still to come */
    struct agent_watch *relay;           /* its socket */
    int input, output;
    bool owes_input; /* it is asked for more once the answers to this have left */
};

static struct agent_watch *listener;
static char listener_address[sizeof((struct sockaddr_un *)0)->sun_path];
static unsigned arrivals;

static void on_relay(void *user_data);
static void on_said(void *user_data);
static void arrive(struct agent_handed_over *arrival);
static int receive(int fd, int streams[STREAMS]);
static bool are_streams(const int streams[STREAMS]);
static bool adopt(struct agent_handed_over *arrival, int streams[STREAMS]);
static void give_up(struct agent_handed_over *arrival);
static void read_some(struct agent_handed_over *streams);
static void write_some(struct agent_handed_over *streams);
static bool say(const struct agent_handed_over *streams, char what);

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

int agent_handed_over_write(struct agent_handed_over *streams, const uv_buf_t *pieces,
                            unsigned count)
{
    ssize_t size;
    do {
        size = writev(streams->output, (const struct iovec *)pieces, (int)count);
    } while (size < 0 && errno == EINTR);
    return size < 0 ? -errno : (int)size; /* UV_EAGAIN is -EAGAIN */
}

bool agent_handed_over_await_room(struct agent_handed_over *streams)
{
    return say(streams, AGENT_STREAMS_OUTPUT);
}

bool agent_handed_over_settle(struct agent_handed_over *streams)
{
    bool owed = streams->owes_input;
    streams->owes_input = false;
    return !owed || say(streams, AGENT_STREAMS_INPUT);
}

void agent_handed_over_close(struct agent_handed_over *streams)
{
    sbx_close_fd(&streams->input);
    sbx_close_fd(&streams->output);
    agent_watch_close(&streams->relay);
}

static void on_relay(void *user_data)
{
    struct sockaddr_un peer; /* has no name */
    socklen_t size = sizeof peer;
    int fd = accept4(agent_watch_fd(listener), (struct sockaddr *)&peer, &size,
                     SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return;
    struct agent_handed_over *arrival = arrivals < ARRIVALS_MAX ? calloc(1, sizeof *arrival) : NULL;
    if (arrival == NULL) {
        close(fd); /* it carries the bytes itself then */
        return;
    }
    arrival->input = arrival->output = -1;
    arrival->relay = agent_watch_open(fd, on_said, arrival);
    if (arrival->relay == NULL) {
        free(arrival);
        return;
    }
    arrivals++;
    agent_watch_for(arrival->relay, UV_READABLE);
}

static void on_said(void *user_data)
{
    struct agent_handed_over *streams = user_data;
    if (streams->connection == NULL) {
        arrive(streams);
        return;
    }
    struct agent_connection *connection = streams->connection;
    char said[SAYINGS_MAX];
    ssize_t size = read(agent_watch_fd(streams->relay), said, sizeof said);
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (size <= 0)
        agent_connection_close(connection);
    for (ssize_t at = 0; at < size && !connection->closing; at++) {
        if (said[at] == AGENT_STREAMS_INPUT)
            read_some(streams);
        else if (said[at] == AGENT_STREAMS_OUTPUT && connection->writing)
            write_some(streams);
    }
}

static void arrive(struct agent_handed_over *arrival)
{
    int streams[STREAMS] = {-1, -1};
    int got = receive(agent_watch_fd(arrival->relay), streams);
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
    bool good = size == 1 && byte == AGENT_STREAMS_HELLO && count == STREAMS &&
                (message.msg_flags & MSG_CTRUNC) == 0;
    return good ? 0 : EPROTO;
}

/* Whatever else a descriptor may be, it cannot be read and written without waiting. */
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
    for (unsigned at = 0; at < STREAMS; at++) {
        int flags = fcntl(streams[at], F_GETFL);
        if (flags < 0 || fcntl(streams[at], F_SETFL, flags | O_NONBLOCK) != 0)
            return false;
    }
    struct agent_connection *connection = agent_connection_new(false);
    if (connection == NULL)
        return false;
    arrival->input = sbx_take_fd(&streams[0]);
    arrival->output = sbx_take_fd(&streams[1]);
    arrival->connection = connection;
    connection->handed_over = arrival;
    if (say(arrival, AGENT_STREAMS_HELLO) && say(arrival, AGENT_STREAMS_INPUT)) {
        agent_connection_begin(connection);
        return true;
    }
    agent_connection_close(connection);
    return false;
}

static void give_up(struct agent_handed_over *arrival)
{
    agent_watch_close(&arrival->relay);
    free(arrival);
}

static void read_some(struct agent_handed_over *streams)
{
    struct agent_connection *connection = streams->connection;
    size_t size;
    char *room = agent_connection_room(&size);
    for (unsigned count = 0; count < READS_MAX && !connection->closing; count++) {
        ssize_t got = read(streams->input, room, size);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        agent_connection_take(connection, room, got == 0 ? UV_EOF : got);
        if (got != (ssize_t)size)
            break;
    }
    streams->owes_input = true;
    agent_connection_due(connection);
}

static void write_some(struct agent_handed_over *streams)
{
    struct agent_connection *connection = streams->connection;
    struct sbx_bytes *unsent = &connection->unsent;
    uv_buf_t rest =
        uv_buf_init((char *)(uintptr_t)sbx_bytes_data(unsent), (unsigned)sbx_bytes_size(unsent));
    int sent = agent_handed_over_write(streams, &rest, 1);
    if (sent > 0)
        sbx_bytes_skip(unsent, (size_t)sent);
    bool failed = sent < 0 && sent != UV_EAGAIN;
    if (failed || sbx_bytes_size(unsent) == 0)
        agent_connection_written(connection, failed ? sent : 0);
    else if (!say(streams, AGENT_STREAMS_OUTPUT))
        agent_connection_close(connection);
}

/* At most one of each is under way, so there is always room for it. */
static bool say(const struct agent_handed_over *streams, char what)
{
    return send(agent_watch_fd(streams->relay), &what, 1, MSG_NOSIGNAL) == 1;
}
