/*
 * A byte stream to a server inside. Each direction ends on its own; TCP sockets are in the loop
 * only while such a stream is open.
 */

#include "ports.h"
#include "call.h"
#include "guard.h"
#include "loop.h"
#include "ports.pb-c.h"
#include "server.h"
#include "util/memory.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DIALS_MAX 512
#define PORT_MAX  65535u

struct dial {
    struct agent_call *call;
    struct agent_watch *watch;
    uint32_t port;
    bool tried_other_family, connected;
    uint8_t *sending; /* to the guest; the call is paused meanwhile */
    size_t sending_start, sending_end;
    bool caller_ended;  /* nothing comes after `sending` */
    bool output_closed; /* the guest was told, or takes no more */
    bool guest_ended;
    bool full; /* the caller is behind */
    struct dial *next;
};

static struct dial *dials;
static unsigned dial_count;
static uint32_t resets;

static void begin(struct agent_call *call, const Sandbox__V1__PortData *message);
static int connect_to(uint32_t port, bool other_family);
static bool watch_socket(struct dial *dial, bool other_family);
static void on_event(void *user_data);
static void on_connected(struct dial *dial);
static void take(struct dial *dial);
static void put(struct dial *dial);
static void go_on(struct dial *dial);
static void refuse(struct dial *dial, int number);
static void close_socket(struct dial *dial);

static void dial_message(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__PortData *request = (const Sandbox__V1__PortData *)message;
    struct dial *dial = agent_call_data(call);
    if (dial == NULL) {
        begin(call, request);
        return;
    }
    agent_traffic_touch(call);
    if (dial->caller_ended && request->data.len > 0) {
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid", "bytes after the end");
        return;
    }
    dial->caller_ended = dial->caller_ended || request->end;
    if (request->data.len > 0 && !dial->output_closed) {
        dial->sending = sbx_copy_bytes(request->data.data, request->data.len);
        if (dial->sending == NULL) {
            agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "no-memory",
                            "the agent has no memory for the bytes");
            return;
        }
        dial->sending_end = request->data.len;
    }
    put(dial);
    go_on(dial);
}

static void begin(struct agent_call *call, const Sandbox__V1__PortData *message)
{
    if (message->port == 0 || message->port > PORT_MAX) {
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid",
                        "the first message must name a port from 1 to 65535");
        return;
    }
    struct dial *dial = dial_count < DIALS_MAX ? calloc(1, sizeof *dial) : NULL;
    uint8_t *first = sbx_copy_bytes(message->data.data, message->data.len);
    if (dial == NULL || first == NULL) {
        free(dial);
        free(first);
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "too-many-connections",
                        "there are no more than %d connections at once", DIALS_MAX);
        return;
    }
    dial_count++;
    *dial = (struct dial){.call = call,
                          .next = dials,
                          .port = message->port,
                          .sending = first,
                          .sending_end = message->data.len,
                          .caller_ended = message->end};
    dials = dial;
    agent_call_set_data(call, dial);
    agent_call_pause(call);
    if (!watch_socket(dial, false) && !watch_socket(dial, true))
        refuse(dial, errno);
}

static bool watch_socket(struct dial *dial, bool other_family)
{
    dial->tried_other_family = other_family;
    int fd = connect_to(dial->port, other_family);
    if (fd < 0)
        return false;
    dial->watch = agent_watch_open(fd, on_event, dial);
    if (dial->watch == NULL) {
        errno = ENOMEM;
        return false;
    }
    agent_watch_for(dial->watch, UV_WRITABLE);
    return true;
}

/* A socket that is connected or about to be. */
static int connect_to(uint32_t port, bool other_family)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 other = {.sin6_family = AF_INET6,
                                 .sin6_port = htons((uint16_t)port),
                                 .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    SBX_ON_EXIT(sbx_close_fd)
    int fd =
        socket(other_family ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    int result = other_family ? connect(fd, (struct sockaddr *)&other, sizeof other)
                              : connect(fd, (struct sockaddr *)&address, sizeof address);
    return result == 0 || errno == EINPROGRESS ? sbx_take_fd(&fd) : -1;
}

static void on_event(void *user_data)
{
    struct dial *dial = user_data;
    if (!dial->connected) {
        on_connected(dial);
        return;
    }
    /* Reading comes first: what a server said before it went away is still to be had. */
    if (!dial->full && !dial->guest_ended)
        take(dial);
    put(dial);
    go_on(dial);
}

static void on_connected(struct dial *dial)
{
    int number = 0;
    socklen_t size = sizeof number;
    if (getsockopt(agent_watch_fd(dial->watch), SOL_SOCKET, SO_ERROR, &number, &size) != 0)
        number = errno;
    if (number != 0) {
        agent_watch_close(&dial->watch);
        if (dial->tried_other_family || !watch_socket(dial, true))
            refuse(dial, number);
        return;
    }
    dial->connected = true;
    Sandbox__V1__PortData stands = SANDBOX__V1__PORT_DATA__INIT;
    agent_call_send(dial->call, &stands.base);
    put(dial);
    go_on(dial);
}

static void refuse(struct dial *dial, int number)
{
    if (number == ECONNREFUSED)
        agent_call_fail(dial->call, AGENT_NOT_FOUND, "connection-refused",
                        "nothing listens on port %u", dial->port);
    else
        agent_call_fail_errno(dial->call, number, "cannot connect to port %u", dial->port);
}

static void take(struct dial *dial)
{
    static uint8_t memory[AGENT_CHUNK];
    ssize_t size = read(agent_watch_fd(dial->watch), memory, sizeof memory);
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (size < 0 && !dial->output_closed) {
        agent_call_fail(dial->call, AGENT_UNAVAILABLE, "connection-reset",
                        "the server reset the connection");
        return;
    }
    agent_traffic_touch(dial->call);
    Sandbox__V1__PortData data = SANDBOX__V1__PORT_DATA__INIT;
    data.data = (ProtobufCBinaryData){size > 0 ? (size_t)size : 0, memory};
    data.end = dial->guest_ended = size <= 0;
    dial->full = !agent_call_send(dial->call, &data.base);
}

/* What the caller sent, and then its end. */
static void put(struct dial *dial)
{
    if (!dial->connected || agent_call_is_over(dial->call))
        return;
    int fd = agent_watch_fd(dial->watch);
    while (dial->sending_start < dial->sending_end) {
        ssize_t size = send(fd, dial->sending + dial->sending_start,
                            dial->sending_end - dial->sending_start, MSG_NOSIGNAL);
        if (size < 0 && errno == EAGAIN) {
            agent_call_pause(dial->call);
            return;
        }
        if (size < 0 && errno == EINTR)
            continue;
        if (size < 0) {
            dial->output_closed = true;
            break;
        }
        dial->sending_start += (size_t)size;
    }
    free(dial->sending);
    dial->sending = NULL;
    dial->sending_start = dial->sending_end = 0;
    if (dial->caller_ended && !dial->output_closed) {
        shutdown(fd, SHUT_WR);
        dial->output_closed = true;
    }
    agent_call_resume(dial->call);
}

static void go_on(struct dial *dial)
{
    if (dial->watch == NULL || agent_call_is_over(dial->call))
        return;
    if (dial->guest_ended && dial->output_closed) {
        agent_call_finish(dial->call);
        return;
    }
    bool reads = dial->connected && !dial->guest_ended && !dial->full;
    bool writes = !dial->connected || dial->sending_start < dial->sending_end;
    agent_watch_for(dial->watch, (reads ? UV_READABLE : 0) | (writes ? UV_WRITABLE : 0));
}

/* The caller ended its half of the call. */
static void dial_end(struct agent_call *call)
{
    struct dial *dial = agent_call_data(call);
    if (dial == NULL) {
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid", "the call names no port");
        return;
    }
    dial->caller_ended = true;
    put(dial);
    go_on(dial);
}

static void dial_ready(struct agent_call *call)
{
    struct dial *dial = agent_call_data(call);
    if (dial == NULL)
        return;
    dial->full = false;
    go_on(dial);
}

static void dial_gone(struct agent_call *call)
{
    struct dial *dial = agent_call_data(call);
    if (dial == NULL)
        return;
    close_socket(dial);
    struct dial **link = &dials;
    while (*link != dial)
        link = &(*link)->next;
    *link = dial->next;
    free(dial->sending);
    free(dial);
    dial_count--;
}

/* Cut off in the middle: the server should not take it for an orderly end. */
static void close_socket(struct dial *dial)
{
    if (dial->watch != NULL && !(dial->guest_ended && dial->output_closed)) {
        struct linger reset = {1, 0};
        setsockopt(agent_watch_fd(dial->watch), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        resets++;
    }
    agent_watch_close(&dial->watch);
}

/* Their calls are over; what is left of them may wait for a caller that does not read. */
void agent_ports_reset(void)
{
    for (struct dial *dial = dials; dial != NULL; dial = dial->next)
        close_socket(dial);
}

uint32_t agent_ports_resets(void)
{
    return resets;
}

const struct agent_method agent_port_methods[] = {
    {.path = "/sandbox.v1.Ports/List",
     .request = &sandbox__v1__port_list_request__descriptor,
     .message = agent_ports_list,
     .passive = true},
    {.path = "/sandbox.v1.Ports/Dial",
     .request = &sandbox__v1__port_data__descriptor,
     .lends = 2,
     .message = dial_message,
     .end = dial_end,
     .ready = dial_ready,
     .gone = dial_gone,
     .lasts = true},
    {.path = NULL},
};
