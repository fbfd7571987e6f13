/*
 * A byte stream to a server inside. Each direction ends on its own; TCP sockets are in the loop
 * only while such a stream is open.
 */

#include "ports.h"
#include "call.h"
#include "carry.h"
#include "util/memory.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define DIALS_MAX 512
#define PORT_MAX  65535u

struct dial {
    struct agent_carry carry;
    uint32_t port;
    bool tried_other_family;
    struct dial *next;
};

static struct dial *dials;
static unsigned dial_count;

static void begin(struct agent_call *call, const Sandbox__V1__PortData *message);
static int connect_to(uint32_t port, bool other_family);
static bool watch_socket(struct dial *dial, bool other_family);
static void on_event(void *user_data);
static void on_connected(struct dial *dial);
static void refuse(struct dial *dial, int number);

static void dial_message(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__PortData *request = (const Sandbox__V1__PortData *)message;
    struct dial *dial = agent_call_data(call);
    if (dial == NULL)
        begin(call, request);
    else
        (void)agent_carry_message(&dial->carry, request);
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
    *dial = (struct dial){.carry = {.call = call,
                                    .is_traffic = true,
                                    .sending = first,
                                    .sending_end = message->data.len,
                                    .caller_ended = message->end},
                          .next = dials,
                          .port = message->port};
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
    dial->carry.watch = agent_watch_open(fd, on_event, dial);
    if (dial->carry.watch == NULL) {
        errno = ENOMEM;
        return false;
    }
    agent_watch_for(dial->carry.watch, UV_WRITABLE);
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
    if (dial->carry.connected)
        agent_carry_event(&dial->carry);
    else
        on_connected(dial);
}

static void on_connected(struct dial *dial)
{
    int number = 0;
    socklen_t size = sizeof number;
    if (getsockopt(agent_watch_fd(dial->carry.watch), SOL_SOCKET, SO_ERROR, &number, &size) != 0)
        number = errno;
    if (number == 0) {
        agent_carry_connected(&dial->carry);
        return;
    }
    agent_watch_close(&dial->carry.watch);
    if (dial->tried_other_family || !watch_socket(dial, true))
        refuse(dial, number);
}

static void refuse(struct dial *dial, int number)
{
    if (number == ECONNREFUSED)
        agent_call_fail(dial->carry.call, AGENT_NOT_FOUND, "connection-refused",
                        "nothing listens on port %u", dial->port);
    else
        agent_call_fail_errno(dial->carry.call, number, "cannot connect to port %u", dial->port);
}

static void dial_end(struct agent_call *call)
{
    struct dial *dial = agent_call_data(call);
    if (dial == NULL)
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid", "the call names no port");
    else
        agent_carry_end(&dial->carry);
}

static void dial_ready(struct agent_call *call)
{
    struct dial *dial = agent_call_data(call);
    if (dial != NULL)
        agent_carry_ready(&dial->carry);
}

static void dial_gone(struct agent_call *call)
{
    struct dial *dial = agent_call_data(call);
    if (dial == NULL)
        return;
    agent_carry_clear(&dial->carry);
    struct dial **link = &dials;
    while (*link != dial)
        link = &(*link)->next;
    *link = dial->next;
    free(dial);
    dial_count--;
}

/* Their calls are over; what is left of them may wait for a caller that does not read. */
void agent_ports_reset(void)
{
    for (struct dial *dial = dials; dial != NULL; dial = dial->next)
        agent_carry_close(&dial->carry);
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
