/*
 * Bytes between stdio and a Unix socket. Ends when the socket's side closes; the end of stdin
 * closes our half of it, and the agent then closes the other. Standard output carries the
 * agent's bytes and nothing else. Where the agent takes stdio over (handed_over.h) this only
 * tells it when stdio is ready.
 */

#include "relay.h"
#include "address.h"
#include "handed_over.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define RELAY_BYTES  (1u << 20)
#define SOCKET_BYTES (1 << 20)

/* One direction. */
struct flow {
    int from, to;
    uint8_t *memory;
    size_t start, end;
    bool at_end; /* `from` gives no more */
    bool broken; /* `to` takes no more */
};

static uint8_t up_memory[RELAY_BYTES], down_memory[RELAY_BYTES];

static bool hand_over(const char *address);
static bool say_streams(int fd);
static void tell(int fd);
static bool hear(int fd, bool *asked_input, bool *asked_output);
static int connect_to(const char *address);
static void unblock(int fd);
static int carry(int fd);
static void fill(struct flow *flow);
static void drain(struct flow *flow);

int agent_relay(const char *address)
{
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (hand_over(address))
        return 0;
    int fd = connect_to(address);
    if (fd < 0) {
        fprintf(stderr, "sandbox-agent: cannot reach the agent at '%s': %s\n", address,
                strerror(errno));
        return 1;
    }
    unblock(0);
    unblock(1);
    unblock(fd);
    return carry(fd);
}

/* True: the agent had our streams, and the connection has ended. */
static bool hand_over(const char *address)
{
    char beside[sizeof((struct sockaddr_un *)0)->sun_path], answer = 0;
    int fd = agent_address_beside(address, beside) ? agent_address_connect(beside) : -1;
    bool taken =
        fd >= 0 && say_streams(fd) && read(fd, &answer, 1) == 1 && answer == AGENT_STREAMS_HELLO;
    if (taken)
        tell(fd);
    if (fd >= 0)
        close(fd);
    return taken;
}

static bool say_streams(int fd)
{
    static const int streams[] = {STDIN_FILENO, STDOUT_FILENO};
    char byte = AGENT_STREAMS_HELLO;
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof streams)];
    } control = {.room = {0}};
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof streams);
    memcpy(CMSG_DATA(&control.header), streams, sizeof streams);
    return sendmsg(fd, &message, MSG_NOSIGNAL) == 1;
}

/*
 * Says when stdio is ready, as often as the agent asks, until it has closed. Whoever reads our
 * output may go first; but we stay until the agent has let go of the streams, since nobody else
 * knows that it has.
 */
static void tell(int fd)
{
    static const char input = AGENT_STREAMS_INPUT, output = AGENT_STREAMS_OUTPUT;
    bool asked_input = false, asked_output = false, is_read = true;
    for (;;) {
        struct pollfd watched[] = {{fd, POLLIN, 0},
                                   {asked_input ? STDIN_FILENO : -1, POLLIN, 0},
                                   {is_read ? STDOUT_FILENO : -1, asked_output ? POLLOUT : 0, 0}};
        if (poll(watched, 3, -1) < 0) {
            if (errno == EINTR)
                continue;
            return;
        }
        if (watched[1].revents != 0) {
            asked_input = false;
            (void)!write(fd, &input, 1);
        }
        if (watched[2].revents & (POLLERR | POLLHUP | POLLNVAL)) {
            is_read = false;
            shutdown(fd, SHUT_WR);
        } else if (watched[2].revents != 0) {
            asked_output = false;
            (void)!write(fd, &output, 1);
        }
        if (watched[0].revents != 0 && !hear(fd, &asked_input, &asked_output))
            return;
    }
}

/* What the agent asks. False: it has closed. */
static bool hear(int fd, bool *asked_input, bool *asked_output)
{
    char asked[16];
    ssize_t size = read(fd, asked, sizeof asked);
    if (size < 0 && errno == EINTR)
        return true;
    for (ssize_t at = 0; at < size; at++) {
        *asked_input = *asked_input || asked[at] == AGENT_STREAMS_INPUT;
        *asked_output = *asked_output || asked[at] == AGENT_STREAMS_OUTPUT;
    }
    return size > 0;
}

static int connect_to(const char *address)
{
    int fd = agent_address_connect(address), size = SOCKET_BYTES;
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    return fd;
}

/* A write that waits would keep the other direction waiting too. */
static void unblock(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0)
        fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

static short wanted_events(const struct flow *reads, const struct flow *writes)
{
    bool read_wanted = reads != NULL && !reads->at_end && reads->end < RELAY_BYTES;
    bool write_wanted = writes != NULL && !writes->broken && writes->end > writes->start;
    return (short)((read_wanted ? POLLIN : 0) | (write_wanted ? POLLOUT : 0));
}

static int carry(int fd)
{
    struct flow up = {.from = 0, .to = fd, .memory = up_memory};
    struct flow down = {.from = fd, .to = 1, .memory = down_memory};
    bool told_end = false;
    for (;;) {
        if (down.broken || (down.at_end && down.start == down.end))
            return 0;
        if (up.at_end && up.start == up.end && !told_end) {
            shutdown(fd, SHUT_WR);
            told_end = true;
        }
        short up_events = wanted_events(&up, NULL), down_events = wanted_events(NULL, &down);
        /* A descriptor whose end we know would only keep poll awake with POLLHUP. */
        struct pollfd watched[] = {{up_events == 0 ? -1 : 0, up_events, 0},
                                   {1, down_events, 0},
                                   {fd, wanted_events(&down, &up), 0}};
        if (watched[2].events == 0)
            watched[2].fd = -1;
        if (poll(watched, 3, -1) < 0 && errno != EINTR)
            return 1;
        /* Whoever read our output is gone. */
        if (watched[1].revents & (POLLERR | POLLHUP | POLLNVAL))
            return 0;
        if (watched[0].revents != 0)
            fill(&up);
        if (watched[2].revents & (POLLIN | POLLHUP | POLLERR))
            fill(&down);
        drain(&up);
        drain(&down);
    }
}

static void fill(struct flow *flow)
{
    if (flow->at_end || flow->end == RELAY_BYTES)
        return;
    ssize_t size = read(flow->from, flow->memory + flow->end, RELAY_BYTES - flow->end);
    if (size > 0)
        flow->end += (size_t)size;
    else if (size == 0 || (errno != EAGAIN && errno != EINTR))
        flow->at_end = true;
}

static void drain(struct flow *flow)
{
    while (!flow->broken && flow->start < flow->end) {
        ssize_t size = write(flow->to, flow->memory + flow->start, flow->end - flow->start);
        if (size < 0 && errno == EINTR)
            continue;
        if (size < 0 && errno == EAGAIN)
            break;
        if (size < 0) {
            flow->broken = true;
            break;
        }
        flow->start += (size_t)size;
    }
    if (flow->start == flow->end || flow->broken)
        flow->start = flow->end = 0;
}
