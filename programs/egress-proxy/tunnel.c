/* A tunnel: see tunnel.h. */

#include "tunnel.h"
#include "dial.h"
#include "metrics.h"
#include "pipes.h"
#include "proxy.h"
#include "settings.h"
#include "util/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define HELLO_ROOM    4096u
#define TURN_BYTES    ((size_t)1 << 20)
#define TURNS_MAX     8
#define LOOKS_DRAINED 65536 /* less than that in one turn was all there was */

/* One direction. It is over once its source has ended and what was on its way has arrived. */
struct way {
    struct pipe_pair *pipe; /* while it holds bytes */
    size_t held;
    bool ended, shut;
};

struct tunnel {
    struct dial server;
    struct connection *connection;
    struct lookup *lookup;          /* until it is dialled */
    struct sbx_egress_hello *hello; /* with what came with it, until all of that is sent */
    size_t hello_sent;
    struct way up, down;
};

static const char agreed[] = "HTTP/1.1 200 Connection established\r\n\r\n";

static void looked_up(struct lookup *lookup);
static void tunnel_refuse(struct connection *connection, enum reason reason, int status);
static void hello_ready(struct watch *watch, int events, bool failed);
static void judge(struct tunnel *tunnel, const void *piece, size_t size);
static void dialled(struct dial *dial, enum dial_outcome outcome);
static void client_ready(struct watch *watch, int events, bool failed);
static void server_ready(struct watch *watch, int events, bool failed);
static void flow(struct tunnel *tunnel, bool up, bool down, bool failed);
static bool send_first(struct tunnel *tunnel);
static bool move(struct way *way, int from, int to, uint64_t *counted);
static bool drain(struct way *way, int to, uint64_t *counted);
static void settle(struct way *way, int to);
static void want(struct tunnel *tunnel);
static void too_slow(struct deadline *deadline);
static void reset_both(struct tunnel *tunnel);
static void server_closed(struct watch *watch);

void tunnel_start(struct connection *connection, const struct sbx_egress_host *host,
                  enum sbx_egress_ech ech)
{
    struct tunnel *tunnel = calloc(1, sizeof *tunnel);
    if (tunnel == NULL) {
        connection_end(connection);
        return;
    }
    tunnel->connection = connection;
    connection->tunnel = tunnel;
    metrics.tunnels++;
    tunnel->hello = sbx_egress_hello_new(host, ech);
    tunnel->lookup = lookup_start(host->name, connection->port, looked_up, tunnel);
    if (tunnel->hello == NULL || tunnel->lookup == NULL)
        connection_end(connection);
    else if (tunnel->lookup->outcome != LOOKUP_PENDING)
        looked_up(tunnel->lookup);
    else
        deadline_set(&connection->deadline, DEADLINE_CONNECT, settings.timeout_ms[DEADLINE_CONNECT],
                     too_slow);
}

static void looked_up(struct lookup *lookup)
{
    struct tunnel *tunnel = lookup->owner;
    struct connection *connection = tunnel->connection;
    enum reason reason;
    if (!lookup_is_good(lookup, &reason)) {
        tunnel_refuse(connection, reason, 0);
        return;
    }
    if (send(connection->client.fd, agreed, sizeof agreed - 1, MSG_NOSIGNAL) !=
        (ssize_t)sizeof agreed - 1) {
        connection_end(connection);
        return;
    }
    connection->client.ready = hello_ready;
    deadline_set(&connection->deadline, DEADLINE_HELLO, settings.timeout_ms[DEADLINE_HELLO],
                 too_slow);
    /* Some send it before they have the answer. */
    if (sbx_bytes_size(&connection->input) > 0)
        judge(tunnel, sbx_bytes_data(&connection->input), sbx_bytes_size(&connection->input));
    else
        watch_want(&connection->client, UV_READABLE);
}

/* The tunnel is gone before the refusal, which is the connection's. */
static void tunnel_refuse(struct connection *connection, enum reason reason, int status)
{
    tunnel_end(sbx_take(connection->tunnel));
    connection_refuse_for(connection, reason, status);
}

static void hello_ready(struct watch *watch, int events, bool failed)
{
    uint8_t piece[HELLO_ROOM];
    struct connection *connection = connection_of(watch);
    ssize_t got = failed ? 0 : recv(watch->fd, piece, sizeof piece, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0)
        connection_end(connection);
    else
        judge(connection->tunnel, piece, (size_t)got);
}

static void judge(struct tunnel *tunnel, const void *piece, size_t size)
{
    struct connection *connection = tunnel->connection;
    struct sbx_egress_refusal refusal;
    enum sbx_egress_hello_verdict verdict =
        sbx_egress_hello_feed(tunnel->hello, piece, size, &refusal);
    sbx_bytes_free(&connection->input);
    switch (verdict) {
    case SBX_EGRESS_HELLO_MORE:
        watch_want(&connection->client, UV_READABLE);
        return;
    case SBX_EGRESS_HELLO_REFUSED:
        connection_note(connection, reason_of(refusal.reason));
        connection_end(connection);
        return;
    case SBX_EGRESS_HELLO_NO_MEMORY:
        connection_end(connection);
        return;
    case SBX_EGRESS_HELLO_GOOD:
        break;
    }
    deadline_clear(&connection->deadline);
    watch_want(&connection->client, 0);
    dial_start(&tunnel->server, sbx_take(tunnel->lookup), dialled);
}

static void dialled(struct dial *dial, enum dial_outcome outcome)
{
    struct tunnel *tunnel = (struct tunnel *)dial;
    if (outcome != DIAL_CONNECTED) {
        connection_note(tunnel->connection,
                        outcome == DIAL_FAILED ? REASON_UPSTREAM_FAILED : REASON_TIMEOUT);
        connection_end(tunnel->connection);
        return;
    }
    dial->watch.ready = server_ready;
    tunnel->connection->client.ready = client_ready;
    flow(tunnel, true, true, false);
}

static void client_ready(struct watch *watch, int events, bool failed)
{
    flow(connection_of(watch)->tunnel, events & UV_READABLE, events & UV_WRITABLE, failed);
}

static void server_ready(struct watch *watch, int events, bool failed)
{
    flow((struct tunnel *)watch, events & UV_WRITABLE, events & UV_READABLE, failed);
}

static void flow(struct tunnel *tunnel, bool up, bool down, bool failed)
{
    struct connection *connection = tunnel->connection;
    int client = connection->client.fd, server = tunnel->server.watch.fd;
    bool whole = send_first(tunnel);
    if (up && whole && tunnel->hello == NULL)
        whole = move(&tunnel->up, client, server, &metrics.bytes_up);
    if (down)
        whole = move(&tunnel->down, server, client, &metrics.bytes_down) && whole;
    if (!whole || failed) {
        reset_both(tunnel);
        connection_end(connection);
    } else if (tunnel->up.shut && tunnel->down.shut) {
        connection_end(connection);
    } else {
        deadline_set(&connection->deadline, DEADLINE_IDLE, settings.timeout_ms[DEADLINE_IDLE],
                     too_slow);
        want(tunnel);
    }
}

/* The ClientHello and whatever came with it. */
static bool send_first(struct tunnel *tunnel)
{
    if (tunnel->hello == NULL)
        return true;
    size_t size;
    const uint8_t *data = sbx_egress_hello_data(tunnel->hello, &size);
    ssize_t sent = send(tunnel->server.watch.fd, data + tunnel->hello_sent,
                        size - tunnel->hello_sent, MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN || errno == EINTR;
    metrics.bytes_up += (uint64_t)sent;
    tunnel->hello_sent += (size_t)sent;
    if (tunnel->hello_sent == size)
        sbx_egress_hello_free(sbx_take(tunnel->hello));
    return true;
}

/* False: the source broke off, and the other end must learn that it did. */
static bool move(struct way *way, int from, int to, uint64_t *counted)
{
    bool whole = true;
    for (int turn = 0; turn < TURNS_MAX && !way->ended && way->held == 0; turn++) {
        if (way->pipe == NULL)
            way->pipe = pipe_take();
        if (way->pipe == NULL)
            return false;
        ssize_t got =
            splice(from, NULL, way->pipe->in, NULL, TURN_BYTES, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (got < 0) {
            whole = errno == EAGAIN || errno == EINTR;
            break;
        }
        way->ended = got == 0;
        way->held = (size_t)got;
        if (!drain(way, to, counted) || got < LOOKS_DRAINED)
            break;
    }
    if (way->held > 0)
        drain(way, to, counted);
    settle(way, to);
    return whole;
}

/* False: there is no room now. */
static bool drain(struct way *way, int to, uint64_t *counted)
{
    while (way->held > 0) {
        ssize_t put =
            splice(way->pipe->out, NULL, to, NULL, way->held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (put < 0 && (errno == EAGAIN || errno == EINTR))
            return false;
        if (put <= 0) {
            /* It takes no more, but may still have something to say. */
            pipe_give(sbx_take(way->pipe), false);
            way->held = 0;
            way->ended = way->shut = true;
            return false;
        }
        way->held -= (size_t)put;
        *counted += (uint64_t)put;
    }
    return true;
}

static void settle(struct way *way, int to)
{
    if (way->held > 0)
        return;
    pipe_give(sbx_take(way->pipe), true);
    if (way->ended && !way->shut) {
        shutdown(to, SHUT_WR);
        way->shut = true;
    }
}

static void want(struct tunnel *tunnel)
{
    bool first = tunnel->hello != NULL;
    bool take_up = !tunnel->up.ended && tunnel->up.held == 0 && !first;
    bool take_down = !tunnel->down.ended && tunnel->down.held == 0;
    watch_want(&tunnel->connection->client,
               (take_up ? UV_READABLE : 0) | (tunnel->down.held > 0 ? UV_WRITABLE : 0));
    watch_want(&tunnel->server.watch,
               (take_down ? UV_READABLE : 0) | (tunnel->up.held > 0 || first ? UV_WRITABLE : 0));
}

static void too_slow(struct deadline *deadline)
{
    struct connection *connection = connection_of_deadline(deadline);
    if (deadline->kind == DEADLINE_CONNECT) {
        tunnel_refuse(connection, REASON_TIMEOUT, 504);
        return;
    }
    if (deadline->kind == DEADLINE_HELLO)
        connection_note(connection, REASON_TIMEOUT);
    connection_end(connection);
}

/* Cut off, not ended: whoever reads must not take what came for all there was. */
static void reset_both(struct tunnel *tunnel)
{
    static const struct linger none = {1, 0};
    setsockopt(tunnel->connection->client.fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    setsockopt(tunnel->server.watch.fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
}

void tunnel_end(struct tunnel *tunnel)
{
    metrics.tunnels--;
    pipe_give(sbx_take(tunnel->up.pipe), false);
    pipe_give(sbx_take(tunnel->down.pipe), false);
    lookup_free(sbx_take(tunnel->lookup));
    sbx_egress_hello_free(sbx_take(tunnel->hello));
    tunnel->connection = NULL;
    dial_end(&tunnel->server, server_closed);
}

static void server_closed(struct watch *watch)
{
    free((struct tunnel *)watch);
}
