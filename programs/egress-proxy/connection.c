/* A connection out of a workspace: see connection.h. */

#include "connection.h"
#include "exchange.h"
#include "journal.h"
#include "metrics.h"
#include "proxy.h"
#include "settings.h"
#include "tunnel.h"
#include "util/clock.h"
#include "util/digest.h"
#include "util/memory.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define INPUT_MAX     (64u * 1024)
#define HEAD_ROOM     4096u
#define STRANGERS_MAX 256 /* refused connections of nobody that are still being closed */
#define LINES_RATE    20  /* of the log, a second and workspace */

static const char preface[] = "SANDBOX-EGRESS/1 ";
#define PREFACE_BYTES (sizeof preface - 1 + KEY_DIGITS + 2)

static unsigned strangers;
static struct connection *strangers_open;
static struct ring strangers_ring;
static struct allowance strangers_telling;

static void join(struct connection *connection, struct workspace *workspace);
static bool is_within_limits(struct connection *connection, enum reason *reason);
static void ready(struct watch *watch, int events, bool failed);
static void read_on(struct connection *connection);
static bool check_preface(struct connection *connection);
static bool key_is_right(const struct connection *connection, const char *line);
static void look_for_head(struct connection *connection);
static void dispatch(struct connection *connection, size_t head_size);
static void remember(struct connection *connection, const struct sbx_egress_request *request);
static void too_slow(struct deadline *deadline);
static void discard(struct watch *watch, int events, bool failed);
static void gone(struct watch *watch);

void connection_begin(int fd, struct workspace *workspace)
{
    struct connection *connection = calloc(1, sizeof *connection);
    bool too_many = workspace == NULL && strangers >= STRANGERS_MAX;
    if (connection == NULL || too_many || !watch_open(&connection->client, fd, ready)) {
        if (connection == NULL || too_many)
            close(fd);
        free(connection);
        return;
    }
    connection->input = (struct sbx_bytes)SBX_BYTES(INPUT_MAX);
    join(connection, workspace);
    enum reason reason;
    if (!is_within_limits(connection, &reason)) {
        connection_refuse_for(connection, reason, 0);
        return;
    }
    deadline_set(&connection->deadline, DEADLINE_HEAD, settings.timeout_ms[DEADLINE_HEAD],
                 too_slow);
    watch_want(&connection->client, UV_READABLE);
    /* Most have already said something. */
    ready(&connection->client, UV_READABLE, false);
}

static void join(struct connection *connection, struct workspace *workspace)
{
    struct connection **first = workspace == NULL ? &strangers_open : &workspace->connections;
    connection->workspace = workspace;
    connection->after = *first;
    if (connection->after != NULL)
        connection->after->before = connection;
    *first = connection;
    metrics.connections++;
    if (workspace == NULL) {
        strangers++;
    } else {
        metrics.connections_total++;
        workspace->connection_count++;
    }
}

static bool is_within_limits(struct connection *connection, enum reason *reason)
{
    struct workspace *workspace = connection->workspace;
    if (workspace == NULL)
        *reason = REASON_UNKNOWN_SOURCE;
    else if (proxy.ending)
        *reason = REASON_SHUTTING_DOWN;
    else if (workspace->connection_count > workspace->connections_max)
        *reason = REASON_TOO_MANY_CONNECTIONS;
    else if (!allowance_take(&workspace->opening, workspace->rate, 2 * workspace->rate))
        *reason = REASON_RATE;
    else
        return true;
    return false;
}

static void ready(struct watch *watch, int events, bool failed)
{
    struct connection *connection = connection_of(watch);
    switch (failed ? RECEIVED_END : connection_receive(connection, HEAD_ROOM)) {
    case RECEIVED:
        read_on(connection);
        break;
    case RECEIVED_NOTHING:
        break;
    case RECEIVED_END:
        /* Half of a request is one that is not, whatever comes after it. */
        if (!failed && connection->state == CONNECTION_PREFACE)
            connection_refuse_for(connection, REASON_WRONG_KEY, 0);
        else if (!failed && sbx_bytes_size(&connection->input) > 0)
            connection_refuse_for(connection, REASON_BAD_REQUEST, 0);
        else
            connection_end(connection);
        break;
    }
}

enum receipt connection_receive(struct connection *connection, size_t room)
{
    uint8_t *to = sbx_bytes_room(&connection->input, room);
    if (to == NULL)
        return RECEIVED_END;
    ssize_t got = recv(connection->client.fd, to, room, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return RECEIVED_NOTHING;
    if (got <= 0)
        return RECEIVED_END;
    sbx_bytes_grow(&connection->input, (size_t)got);
    return RECEIVED;
}

static void read_on(struct connection *connection)
{
    if (connection->state == CONNECTION_PREFACE && !check_preface(connection))
        return;
    look_for_head(connection);
}

/* True: it is there and right, and gone from the input. */
static bool check_preface(struct connection *connection)
{
    const char *data = (const char *)sbx_bytes_data(&connection->input);
    size_t size = sbx_bytes_size(&connection->input);
    size_t known = size < sizeof preface - 1 ? size : sizeof preface - 1;
    bool begins = memcmp(data, preface, known) == 0;
    if (begins && size < PREFACE_BYTES)
        return false;
    if (!begins || !key_is_right(connection, data)) {
        connection_refuse_for(connection, REASON_WRONG_KEY, 0);
        return false;
    }
    sbx_bytes_skip(&connection->input, PREFACE_BYTES);
    connection->state = CONNECTION_HEAD;
    return true;
}

static bool key_is_right(const struct connection *connection, const char *line)
{
    return sbx_equal_secret(line + sizeof preface - 1, connection->workspace->key, KEY_DIGITS) &&
           memcmp(line + PREFACE_BYTES - 2, "\r\n", 2) == 0;
}

static void look_for_head(struct connection *connection)
{
    struct sbx_egress_refusal refusal;
    size_t size = sbx_bytes_size(&connection->input);
    if (size == 0)
        return;
    if (connection->deadline.kind == DEADLINE_IDLE)
        deadline_set(&connection->deadline, DEADLINE_HEAD, settings.timeout_ms[DEADLINE_HEAD],
                     too_slow);
    switch (sbx_egress_head_scan((const char *)sbx_bytes_data(&connection->input), size,
                                 &connection->looked, &refusal)) {
    case SBX_EGRESS_HEAD_MORE:
        break;
    case SBX_EGRESS_HEAD_BAD:
        connection_refuse(connection, &refusal);
        break;
    case SBX_EGRESS_HEAD_WHOLE:
        deadline_clear(&connection->deadline);
        watch_want(&connection->client, 0);
        dispatch(connection, connection->looked);
        break;
    }
}

static void dispatch(struct connection *connection, size_t head_size)
{
    struct sbx_egress_head head;
    struct sbx_egress_request request;
    struct sbx_egress_refusal refusal;
    struct sbx_egress_policy *policy = connection->workspace->policy;
    const char *data = (const char *)sbx_bytes_data(&connection->input);
    connection->looked = 0;
    if (!sbx_egress_head_parse(data, head_size, &head, &refusal)) {
        connection_refuse(connection, &refusal);
        return;
    }
    bool allowed = sbx_egress_request_judge(&head, policy, &request, &refusal);
    remember(connection, &request);
    if (!allowed) {
        connection_refuse(connection, &refusal);
        return;
    }
    metrics.requests_total[connection->kind]++;
    connection->served = true;
    if (request.kind == SBX_EGRESS_CONNECT) {
        sbx_bytes_skip(&connection->input, head_size);
        connection->state = CONNECTION_TUNNEL;
        tunnel_start(connection, &request.host, sbx_egress_policy_ech(policy));
        return;
    }
    connection->state = CONNECTION_EXCHANGE;
    exchange_start(connection, &head, head_size, &request);
}

static void remember(struct connection *connection, const struct sbx_egress_request *request)
{
    static const uint8_t kinds[] = {KIND_NONE, KIND_CONNECT, KIND_HTTP, KIND_ROUTE};
    free(connection->host);
    connection->host = request->host.size == 0 ? NULL : sbx_copy(request->host.name);
    connection->port = request->port;
    connection->kind = kinds[request->kind];
}

void connection_go_on(struct connection *connection)
{
    connection->state = CONNECTION_HEAD;
    connection->client.ready = ready;
    deadline_set(&connection->deadline, DEADLINE_IDLE, settings.timeout_ms[DEADLINE_IDLE],
                 too_slow);
    watch_want(&connection->client, UV_READABLE);
    if (proxy.ending || connection->ended)
        connection_end(connection);
    else if (sbx_bytes_size(&connection->input) == 0)
        sbx_bytes_free(&connection->input);
    else
        look_for_head(connection);
}

static void too_slow(struct deadline *deadline)
{
    struct connection *connection = connection_of_deadline(deadline);
    bool silent = connection->served && sbx_bytes_size(&connection->input) == 0;
    if (deadline->kind == DEADLINE_HEAD && !silent)
        connection_refuse_for(connection, REASON_TIMEOUT, 0);
    else
        connection_end(connection);
}

void connection_refuse_for(struct connection *connection, enum reason reason, int status)
{
    struct sbx_egress_refusal refusal;
    const char *host = connection->host == NULL ? "" : connection->host;
    sbx_egress_refuse(&refusal, status == 0 ? reason_status(reason) : status, reason_word(reason),
                      "%s%s%s", host, host[0] == '\0' ? "" : ": ", reason_text(reason));
    connection_refuse(connection, &refusal);
}

void connection_refuse(struct connection *connection, const struct sbx_egress_refusal *refusal)
{
    SBX_ON_EXIT(sbx_bytes_free) struct sbx_bytes answer = SBX_BYTES(4096);
    connection_note(connection, reason_of(refusal->reason));
    /* So little that it fits into what the kernel holds; a guest that lets none of it in gets none.
     */
    if (sbx_egress_refusal_write(refusal, &answer))
        (void)send(connection->client.fd, sbx_bytes_data(&answer), sbx_bytes_size(&answer),
                   MSG_NOSIGNAL);
    connection_linger(connection);
}

/* Closing at once would throw the answer away where the guest has sent more than was read. */
void connection_linger(struct connection *connection)
{
    connection->state = CONNECTION_LINGERS;
    sbx_bytes_free(&connection->input);
    if (shutdown(connection->client.fd, SHUT_WR) < 0) {
        connection_end(connection);
        return;
    }
    connection->client.ready = discard;
    deadline_set(&connection->deadline, DEADLINE_LINGER, LINGER_MS, too_slow);
    watch_want(&connection->client, UV_READABLE);
}

static void discard(struct watch *watch, int events, bool failed)
{
    char bin[HEAD_ROOM];
    ssize_t got = failed ? 0 : recv(watch->fd, bin, sizeof bin, 0);
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    connection_end(connection_of(watch));
}

void connection_note(struct connection *connection, enum reason reason)
{
    struct workspace *workspace = connection->workspace;
    static uint64_t number, strangers_suppressed;
    number++;
    struct refusal refusal = {
        .number = number,
        .at_ms = sbx_clock_wall(&sbx_system_clock),
        .reason = reason,
        .kind = (enum request_kind)connection->kind,
        .port = connection->port,
    };
    snprintf(refusal.host, sizeof refusal.host, "%s",
             connection->host == NULL ? "" : connection->host);
    metrics.refused_total[reason]++;
    ring_add(workspace == NULL ? &strangers_ring : &workspace->ring, &refusal);
    uint64_t *suppressed = workspace == NULL ? &strangers_suppressed : &workspace->suppressed;
    if (workspace != NULL)
        workspace->refused++;
    if (!allowance_take(workspace == NULL ? &strangers_telling : &workspace->telling, LINES_RATE,
                        LINES_RATE)) {
        ++*suppressed;
        return;
    }
    journal_refusal(&refusal, workspace == NULL ? "" : workspace->id, *suppressed);
    *suppressed = 0;
}

const struct ring *connection_strangers(void)
{
    return &strangers_ring;
}

void connections_close(void)
{
    while (strangers_open != NULL)
        connection_end(strangers_open);
    ring_free(&strangers_ring);
}

void connection_end(struct connection *connection)
{
    struct workspace *workspace = connection->workspace;
    deadline_clear(&connection->deadline);
    if (connection->tunnel != NULL)
        tunnel_end(sbx_take(connection->tunnel));
    if (connection->exchange != NULL)
        exchange_end(sbx_take(connection->exchange));
    metrics.connections--;
    if (connection->before != NULL)
        connection->before->after = connection->after;
    else
        *(workspace == NULL ? &strangers_open : &workspace->connections) = connection->after;
    if (connection->after != NULL)
        connection->after->before = connection->before;
    if (workspace == NULL)
        strangers--;
    else
        workspace->connection_count--;
    sbx_bytes_free(&connection->input);
    watch_close(&connection->client, gone);
    proxy_idle_changed();
}

static void gone(struct watch *watch)
{
    struct connection *connection = connection_of(watch);
    free(connection->host);
    free(connection);
}
