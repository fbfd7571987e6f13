/* The way out as the guest sees it: see egress.h. */

#include "egress.h"
#include "call.h"
#include "carry.h"
#include "egress.pb-c.h"
#include "egress_dial.h"
#include "util/memory.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define GUESTS_MAX      256u   /* connections at once, those that wait included */
#define CALLS_MAX       64u    /* that wait for one */
#define PATIENCE_MS     30000u /* of a connection that nobody takes */
#define BACKLOG         128
#define ACCEPTS_AT_ONCE 16 /* then the other work gets its turn */
#define BASE_URLS_MAX   32u
#define BASE_URL_SIZE   1024u
#define DEFAULT_PORT    3128

/* A connection that nobody has taken yet. */
struct guest {
    struct agent_watch *watch;
    struct agent_timer *patience;
    struct guest *next;
};

/* A call of Accept: it waits, or carries. */
struct taker {
    struct agent_carry carry;
    bool waits;
    struct taker *next; /* in the order in which they came */
};

static struct sockaddr_in place = {.sin_family = AF_INET};
static bool wanted; /* there is a way out, listened on or not */
static struct agent_watch *listener;
static struct guest *guests;
static struct taker *takers;
static unsigned guest_count, taken_count, waiting_count;
static char **base_urls;

static bool listen_now(void);
static void on_connection(void *user_data);
static void welcome(int fd);
static void on_guest(void *user_data);
static void on_patience_over(void *user_data);
static void forget_guest(struct guest *guest, bool reset);
static struct taker *find_waiting(void);
static bool hand_over(struct taker *taker, int fd);
static void on_taken(void *user_data);
static bool check_way(struct agent_call *call, const Sandbox__V1__EgressOpenRequest *request);
static void begin_way(const Sandbox__V1__EgressOpenRequest *request);
static void fail_as_dialing(struct agent_call *call);
static bool check_urls(struct agent_call *call, const Sandbox__V1__EgressOpenRequest *request);
static char **copy_urls(char *const *urls, size_t count);

bool agent_egress_configure(const char *text)
{
    char address[INET_ADDRSTRLEN] = "", end = '\0';
    unsigned port = 0;
    const char *colon = strrchr(text, ':');
    if (colon == NULL || (size_t)(colon - text) >= sizeof address ||
        sscanf(colon + 1, "%5u%c", &port, &end) != 1 || port == 0 || port > UINT16_MAX)
        return false;
    memcpy(address, text, (size_t)(colon - text));
    place.sin_port = htons((uint16_t)port);
    return inet_pton(AF_INET, address, &place.sin_addr) == 1 &&
           ntohl(place.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

unsigned agent_egress_port(void)
{
    return wanted ? ntohs(place.sin_port) : 0;
}

char *const *agent_egress_base_urls(void)
{
    return base_urls;
}

static void egress_open(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__EgressOpenRequest *request = (const Sandbox__V1__EgressOpenRequest *)message;
    Sandbox__V1__EgressOpenReply reply = SANDBOX__V1__EGRESS_OPEN_REPLY__INIT;
    if (!check_urls(call, request) || !check_way(call, request))
        return;
    char **urls = copy_urls(request->base_urls, request->n_base_urls);
    if (urls == NULL) {
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "no-memory", "the agent has no memory");
        return;
    }
    if (listener == NULL && !listen_now()) {
        agent_call_fail_errno(call, errno, "cannot listen on port %u", ntohs(place.sin_port));
        free(urls);
        return;
    }
    wanted = true;
    free(base_urls);
    base_urls = urls;
    begin_way(request);
    reply.port = agent_egress_port();
    agent_call_answer(call, &reply.base);
}

static bool check_urls(struct agent_call *call, const Sandbox__V1__EgressOpenRequest *request)
{
    bool good = request->n_base_urls <= BASE_URLS_MAX;
    for (size_t at = 0; good && at < request->n_base_urls; at++) {
        const char *url = request->base_urls[at], *equals = strchr(url, '=');
        good = strlen(url) < BASE_URL_SIZE && equals != NULL && equals != url &&
               strncmp(equals + 1, "https://", 8) == 0;
    }
    if (!good)
        agent_call_fail(
            call, AGENT_INVALID_ARGUMENT, "invalid",
            "base_urls are at most %u of \"NAME=https://…\", each of less than %u bytes",
            BASE_URLS_MAX, BASE_URL_SIZE);
    return good;
}

/* Both or neither. */
static bool check_way(struct agent_call *call, const Sandbox__V1__EgressOpenRequest *request)
{
    bool is_empty = *request->address == '\0' && request->key.len == 0;
    bool good =
        is_empty || agent_egress_dial_check(request->address, request->key.data, request->key.len);
    if (!good)
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid",
                        "the egress proxy is ADDRESS:PORT in numbers, with a key of %u lower-case "
                        "hexadecimal digits",
                        AGENT_EGRESS_KEY_SIZE);
    return good;
}

/* Where the agent connects itself nobody waits any more, neither guests nor takers. */
static void begin_way(const Sandbox__V1__EgressOpenRequest *request)
{
    if (*request->address == '\0') {
        agent_egress_dial_forget();
        return;
    }
    agent_egress_dial_to(request->address, request->key.data);
    while (guests != NULL) {
        int fd = fcntl(agent_watch_fd(guests->watch), F_DUPFD_CLOEXEC, 3);
        forget_guest(guests, false);
        if (fd >= 0)
            agent_egress_dial(fd);
    }
    for (struct taker *taker = find_waiting(); taker != NULL; taker = find_waiting())
        fail_as_dialing(taker->carry.call);
}

static void fail_as_dialing(struct agent_call *call)
{
    agent_call_fail(call, AGENT_FAILED_PRECONDITION, "dials-itself",
                    "the agent connects to the egress proxy itself");
}

/* Pointers and texts in one block. */
static char **copy_urls(char *const *urls, size_t count)
{
    size_t bytes = 0;
    for (size_t at = 0; at < count; at++)
        bytes += strlen(urls[at]) + 1;
    char **copy = calloc(1, (count + 1) * sizeof *copy + bytes);
    char *text = copy == NULL ? NULL : (char *)(copy + count + 1);
    for (size_t at = 0; copy != NULL && at < count; at++) {
        size_t size = strlen(urls[at]) + 1;
        copy[at] = memcpy(text, urls[at], size);
        text += size;
    }
    return copy;
}

static bool listen_now(void)
{
    int one = 1;
    if (place.sin_port == 0) {
        place.sin_port = htons(DEFAULT_PORT);
        place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    SBX_ON_EXIT(sbx_close_fd)
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (const struct sockaddr *)&place, sizeof place) < 0 || listen(fd, BACKLOG) < 0)
        return false;
    listener = agent_watch_open(sbx_take_fd(&fd), on_connection, NULL);
    if (listener == NULL) {
        errno = ENOMEM;
        return false;
    }
    agent_watch_for(listener, UV_READABLE);
    return true;
}

void agent_egress_open_again(void)
{
    if (wanted && listener == NULL && !listen_now())
        fprintf(stderr, "sandbox-agent: cannot listen on port %u: %s\n", ntohs(place.sin_port),
                strerror(errno));
}

void agent_egress_close(void)
{
    agent_watch_close(&listener);
    while (guests != NULL)
        forget_guest(guests, true);
    for (struct taker *taker = takers; taker != NULL; taker = taker->next)
        agent_carry_close(&taker->carry);
    agent_egress_dial_close();
}

void agent_egress_forget_key(void)
{
    agent_egress_dial_forget();
}

static void on_connection(void *user_data)
{
    for (unsigned count = 0; count < ACCEPTS_AT_ONCE && listener != NULL; count++) {
        struct sockaddr_in peer;
        socklen_t size = sizeof peer;
        int fd = accept4(agent_watch_fd(listener), (struct sockaddr *)&peer, &size,
                         SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return;
        if (guest_count + taken_count + agent_egress_dial_count() >= GUESTS_MAX)
            close(fd);
        else
            welcome(fd);
    }
}

static void welcome(int fd)
{
    int one = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (agent_egress_dials()) {
        agent_egress_dial(fd);
        return;
    }
    struct taker *taker = find_waiting();
    if (taker != NULL) {
        (void)hand_over(taker, fd);
        return;
    }
    struct guest *guest = calloc(1, sizeof *guest);
    if (guest == NULL) {
        close(fd);
        return;
    }
    guest->watch = agent_watch_open(fd, on_guest, guest);
    if (guest->watch == NULL ||
        !agent_timer_start(&guest->patience, PATIENCE_MS, on_patience_over, guest)) {
        agent_watch_close(&guest->watch);
        free(guest);
        return;
    }
    struct guest **last = &guests;
    while (*last != NULL)
        last = &(*last)->next;
    *last = guest;
    guest_count++;
}

/* It is watched for nothing before it is taken. */
static void on_guest(void *user_data)
{
}

static void on_patience_over(void *user_data)
{
    static const char words[] = "HTTP/1.1 504 Gateway Timeout\r\n"
                                "X-Proxy-Error: no-carrier; nobody takes connections out now\r\n"
                                "Content-Type: text/plain\r\n"
                                "Content-Length: 47\r\n"
                                "Connection: close\r\n"
                                "\r\n"
                                "Nobody takes connections out now. Try it again.";
    struct guest *guest = user_data;
    (void)!send(agent_watch_fd(guest->watch), words, sizeof words - 1, MSG_NOSIGNAL);
    forget_guest(guest, false);
}

static void forget_guest(struct guest *guest, bool reset)
{
    struct guest **link = &guests;
    while (*link != guest)
        link = &(*link)->next;
    *link = guest->next;
    guest_count--;
    agent_timer_stop(&guest->patience);
    if (reset)
        agent_carry_reset(&guest->watch);
    agent_watch_close(&guest->watch);
    free(guest);
}

static struct taker *find_waiting(void)
{
    struct taker *taker = takers;
    while (taker != NULL && (!taker->waits || agent_call_is_over(taker->carry.call)))
        taker = taker->next;
    return taker;
}

/* False: the call has failed for want of memory, and the connection is closed. */
static bool hand_over(struct taker *taker, int fd)
{
    taker->waits = false;
    waiting_count--;
    taken_count++;
    if (agent_carry_begin(&taker->carry, fd, on_taken, taker))
        return true;
    agent_call_fail(taker->carry.call, AGENT_RESOURCE_EXHAUSTED, "no-memory",
                    "the agent has no memory for a connection");
    return false;
}

static void on_taken(void *user_data)
{
    struct taker *taker = user_data;
    agent_carry_event(&taker->carry);
}

static void begin_taker(struct agent_call *call, const Sandbox__V1__PortData *message)
{
    if (agent_egress_dials()) {
        fail_as_dialing(call);
        return;
    }
    struct taker *taker = waiting_count < CALLS_MAX ? calloc(1, sizeof *taker) : NULL;
    if (taker == NULL) {
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "too-many-calls",
                        "there are no more than %u calls that wait for a connection", CALLS_MAX);
        return;
    }
    taker->carry.call = call;
    taker->waits = true;
    waiting_count++;
    struct taker **last = &takers;
    while (*last != NULL)
        last = &(*last)->next;
    *last = taker;
    agent_call_set_data(call, taker);
    if (!agent_carry_message(&taker->carry, message) || guests == NULL)
        return;
    /* The oldest that waits. Its descriptor goes on in the hands of the call. */
    int fd = fcntl(agent_watch_fd(guests->watch), F_DUPFD_CLOEXEC, 3);
    forget_guest(guests, false);
    if (fd >= 0)
        (void)hand_over(taker, fd);
}

static void accept_message(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__PortData *data = (const Sandbox__V1__PortData *)message;
    struct taker *taker = agent_call_data(call);
    if (taker == NULL)
        begin_taker(call, data);
    else
        (void)agent_carry_message(&taker->carry, data);
}

static void accept_end(struct agent_call *call)
{
    struct taker *taker = agent_call_data(call);
    if (taker != NULL && !taker->waits)
        agent_carry_end(&taker->carry);
    else
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid",
                        "the call ended before it took a connection");
}

static void accept_ready(struct agent_call *call)
{
    struct taker *taker = agent_call_data(call);
    if (taker != NULL)
        agent_carry_ready(&taker->carry);
}

static void accept_gone(struct agent_call *call)
{
    struct taker *taker = agent_call_data(call);
    if (taker == NULL)
        return;
    agent_carry_clear(&taker->carry);
    struct taker **link = &takers;
    while (*link != taker)
        link = &(*link)->next;
    *link = taker->next;
    if (taker->waits)
        waiting_count--;
    else
        taken_count--;
    free(taker);
}

const struct agent_method agent_egress_methods[] = {
    {.path = "/sandbox.v1.Egress/Open",
     .request = &sandbox__v1__egress_open_request__descriptor,
     .message = egress_open,
     .not_over_tcp = true,
     .passive = true},
    {.path = "/sandbox.v1.Egress/Accept",
     .request = &sandbox__v1__port_data__descriptor,
     .lends = 2,
     .message = accept_message,
     .end = accept_end,
     .ready = accept_ready,
     .gone = accept_gone,
     .passive = true,
     .background = true},
    {.path = NULL},
};
