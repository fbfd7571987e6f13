/* Connections of the guest that are joined with the egress proxy: see egress_dial.h. */

#include "egress_dial.h"
#include "carry.h"
#include "loop.h"
#include "tcp.h"
#include "util/memory.h"
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE          (32u << 10)
#define PIECES_AT_ONCE 8 /* then the other work gets its turn */
#define CONNECT_MS     10000u
#define UNREAD_PIECES  16
#define GREETING_SIZE  128u

/* One end, and what it has said that the other one has not taken yet. */
struct end {
    struct agent_watch *watch;
    size_t begin, size; /* in bytes */
    bool is_silent;     /* the proxy that has said nothing yet: it never ends so */
    bool said_all;      /* nothing comes after them */
    bool told_all;      /* that the other one has said all */
    uint8_t bytes[PIECE];
};

struct joint {
    struct end guest, proxy;
    bool connected;
    struct agent_timer *patience;
    struct joint *next;
};

static union agent_tcp_address place; /* AF_UNSPEC: there is none */
static char key[AGENT_EGRESS_KEY_SIZE];
static struct joint *joints;
static unsigned joint_count;

static void on_patience_over(void *user_data);
static void on_event(void *user_data);
static bool connect_now(struct joint *joint);
static bool carry(struct end *from, struct end *to);
static bool put(struct end *from, struct end *to);
static void watch(struct end *end, const struct end *other);
static void refuse(struct joint *joint);
static void cut(struct joint *joint);
static void forget(struct joint *joint);

bool agent_egress_dial_check(const char *address, const uint8_t *digits, size_t size)
{
    union agent_tcp_address read;
    bool good = agent_tcp_address_read(address, &read) && size == AGENT_EGRESS_KEY_SIZE;
    for (size_t at = 0; good && at < size; at++)
        good = (digits[at] >= '0' && digits[at] <= '9') || (digits[at] >= 'a' && digits[at] <= 'f');
    return good;
}

void agent_egress_dial_to(const char *address, const uint8_t *digits)
{
    (void)agent_tcp_address_read(address, &place);
    memcpy(key, digits, sizeof key);
}

void agent_egress_dial_forget(void)
{
    place.any.sa_family = AF_UNSPEC;
    sbx_wipe(key, sizeof key);
}

bool agent_egress_dials(void)
{
    return place.any.sa_family != AF_UNSPEC;
}

unsigned agent_egress_dial_count(void)
{
    return joint_count;
}

void agent_egress_dial_close(void)
{
    while (joints != NULL)
        cut(joints);
}

void agent_egress_dial(int guest)
{
    struct joint *joint = calloc(1, sizeof *joint);
    if (joint == NULL) {
        close(guest);
        return;
    }
    joint->next = joints;
    joints = joint;
    joint_count++;
    joint->guest.watch = agent_watch_open(guest, on_event, joint);
    if (joint->guest.watch == NULL ||
        !agent_timer_start(&joint->patience, CONNECT_MS, on_patience_over, joint))
        cut(joint);
    else if (!connect_now(joint))
        refuse(joint);
}

/* The line goes before whatever the guest says, which waits until the proxy is there. */
static bool connect_now(struct joint *joint)
{
    int one = 1;
    bool is_v6 = place.any.sa_family == AF_INET6;
    SBX_ON_EXIT(sbx_close_fd)
    int fd = socket(place.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, &place.any, is_v6 ? sizeof place.v6 : sizeof place.v4) != 0 &&
        errno != EINPROGRESS)
        return false;
    joint->proxy.watch = agent_watch_open(sbx_take_fd(&fd), on_event, joint);
    if (joint->proxy.watch == NULL)
        return false;
    joint->guest.size = (size_t)snprintf((char *)joint->guest.bytes, PIECE,
                                         "SANDBOX-EGRESS/1 %.*s\r\n", (int)sizeof key, key);
    joint->proxy.is_silent = true;
    agent_watch_for(joint->proxy.watch, UV_WRITABLE);
    return true;
}

static void on_patience_over(void *user_data)
{
    refuse(user_data);
}

static void on_event(void *user_data)
{
    struct joint *joint = user_data;
    if (!joint->connected) {
        int number = 0;
        socklen_t size = sizeof number;
        if (getsockopt(agent_watch_fd(joint->proxy.watch), SOL_SOCKET, SO_ERROR, &number, &size) !=
                0 ||
            number != 0) {
            refuse(joint);
            return;
        }
        joint->connected = true;
        agent_timer_stop(&joint->patience);
    }
    bool whole = carry(&joint->guest, &joint->proxy) && carry(&joint->proxy, &joint->guest);
    if (!whole && joint->proxy.is_silent) {
        refuse(joint); /* whoever took the connection before the proxy had nobody to lead it to */
    } else if (!whole) {
        cut(joint);
    } else if (joint->guest.told_all && joint->proxy.told_all) {
        forget(joint);
    } else {
        watch(&joint->guest, &joint->proxy);
        watch(&joint->proxy, &joint->guest);
    }
}

/* From one end to the other, as much as that takes. False: one of them is gone. */
static bool carry(struct end *from, struct end *to)
{
    for (int piece = 0; piece < PIECES_AT_ONCE; piece++) {
        if (!put(from, to))
            return false;
        if (from->size > 0 || from->said_all)
            return true;
        ssize_t size = read(agent_watch_fd(from->watch), from->bytes, PIECE);
        if (size < 0)
            return errno == EAGAIN || errno == EINTR;
        if (size == 0 && from->is_silent)
            return false;
        from->is_silent = false;
        from->begin = 0;
        from->size = (size_t)size;
        from->said_all = size == 0;
    }
    return put(from, to);
}

static bool put(struct end *from, struct end *to)
{
    while (from->size > 0) {
        ssize_t size =
            send(agent_watch_fd(to->watch), from->bytes + from->begin, from->size, MSG_NOSIGNAL);
        if (size < 0 && errno == EINTR)
            continue;
        if (size < 0)
            return errno == EAGAIN;
        from->begin += (size_t)size;
        from->size -= (size_t)size;
    }
    if (from->said_all && !to->told_all) {
        to->told_all = true;
        (void)shutdown(agent_watch_fd(to->watch), SHUT_WR);
    }
    return true;
}

static void watch(struct end *end, const struct end *other)
{
    bool reads = end->size == 0 && !end->said_all;
    agent_watch_for(end->watch, (reads ? UV_READABLE : 0) | (other->size > 0 ? UV_WRITABLE : 0));
}

/* What the guest has said is read first: closing a socket with unread bytes would cut the words. */
static void refuse(struct joint *joint)
{
    static const char words[] = "HTTP/1.1 502 Bad Gateway\r\n"
                                "X-Proxy-Error: no-proxy; the egress proxy does not answer\r\n"
                                "Content-Type: text/plain\r\n"
                                "Content-Length: 47\r\n"
                                "Connection: close\r\n"
                                "\r\n"
                                "The egress proxy does not answer. Try it again.";
    int fd = agent_watch_fd(joint->guest.watch);
    for (int piece = 0; piece < UNREAD_PIECES; piece++) {
        if (read(fd, joint->proxy.bytes, PIECE) <= 0)
            break;
    }
    (void)!send(fd, words, sizeof words - 1, MSG_NOSIGNAL);
    forget(joint);
}

/* Whoever is at either end is not to take it for an orderly end. */
static void cut(struct joint *joint)
{
    agent_carry_reset(&joint->guest.watch);
    if (joint->proxy.watch != NULL) {
        struct linger reset = {1, 0};
        (void)setsockopt(agent_watch_fd(joint->proxy.watch), SOL_SOCKET, SO_LINGER, &reset,
                         sizeof reset);
    }
    forget(joint);
}

static void forget(struct joint *joint)
{
    struct joint **link = &joints;
    while (*link != joint)
        link = &(*link)->next;
    *link = joint->next;
    joint_count--;
    agent_timer_stop(&joint->patience);
    agent_watch_close(&joint->guest.watch);
    agent_watch_close(&joint->proxy.watch);
    sbx_wipe(joint->guest.bytes, GREETING_SIZE); /* the key may stand there yet */
    free(joint);
}
