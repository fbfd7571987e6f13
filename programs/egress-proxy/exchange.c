/* One request and its answer: see exchange.h. */

#include "exchange_parts.h"
#include "metrics.h"
#include "proxy.h"
#include "settings.h"
#include "util/memory.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static bool prepare(struct exchange *exchange, const struct sbx_egress_head *head,
                    const struct sbx_egress_request *request, struct sbx_egress_refusal *refusal);
static void looked_up(struct lookup *lookup);
static void begin(struct exchange *exchange);
static void refuse(struct connection *connection, enum reason reason, int status);
static void refuse_body(struct connection *connection);
static void client_ready(struct watch *watch, int events, bool failed);
static bool read_more(struct exchange *exchange);
static void end_or_go_on(struct exchange *exchange);
static void break_off(struct exchange *exchange);
static enum reason reason_of_result(CURLcode result, int *status);
static void too_slow(struct deadline *deadline);

void exchange_start(struct connection *connection, const struct sbx_egress_head *head,
                    size_t head_size, const struct sbx_egress_request *request)
{
    struct sbx_egress_refusal refusal;
    struct exchange *exchange = calloc(1, sizeof *exchange);
    if (exchange == NULL) {
        connection_end(connection);
        return;
    }
    exchange->connection = connection;
    connection->exchange = exchange;
    exchange->failure = REASON_COUNT;
    exchange->upload = (struct sbx_bytes)SBX_BYTES(PIECE_BYTES);
    exchange->lines = (struct sbx_bytes)SBX_BYTES(ANSWER_HEAD_MAX);
    exchange->trailers = (struct sbx_bytes)SBX_BYTES(ANSWER_HEAD_MAX);
    exchange->output = (struct sbx_bytes)SBX_BYTES(OUTPUT_MAX);
    sbx_egress_refuse(&refusal, 503, reason_word(REASON_UPSTREAM_FAILED), "no memory is left");
    if (!prepare(exchange, head, request, &refusal)) {
        exchange_end(sbx_take(connection->exchange));
        connection_refuse(connection, &refusal);
        return;
    }
    sbx_bytes_skip(&connection->input, head_size);
    exchange->lookup = lookup_start(exchange->host.name, connection->port, looked_up, exchange);
    if (exchange->lookup == NULL)
        connection_end(connection);
    else if (exchange->lookup->outcome != LOOKUP_PENDING)
        looked_up(exchange->lookup);
    else
        deadline_set(&connection->deadline, DEADLINE_CONNECT, settings.timeout_ms[DEADLINE_CONNECT],
                     too_slow);
}

/* Everything that is needed of the head, which goes, and of the policy, which may change. */
static bool prepare(struct exchange *exchange, const struct sbx_egress_head *head,
                    const struct sbx_egress_request *request, struct sbx_egress_refusal *refusal)
{
    struct workspace *workspace = exchange->connection->workspace;
    exchange->host = request->host;
    exchange->method = sbx_format("%.*s", (int)head->method.size, head->method.data);
    exchange->path = sbx_format("%.*s", (int)request->path.size, request->path.data);
    exchange->is_http10 = head->minor == 0;
    exchange->is_head = sbx_egress_text_is(head->method, "HEAD");
    exchange->keeps_alive = head->keeps_alive && !exchange->is_http10;
    exchange->body = head->body;
    exchange->body_left = head->body == SBX_EGRESS_BODY_LENGTH ? head->body_size : 0;
    exchange->upload_whole = head->body == SBX_EGRESS_BODY_NONE;
    exchange->wants_continue = head->expects_continue && !exchange->upload_whole;
    if (exchange->method == NULL || exchange->path == NULL)
        return false;
    exchange->policy = sbx_egress_policy_keep(workspace->policy);
    return sbx_egress_fields_make(head, request, workspace->policy, &exchange->made, refusal);
}

static void looked_up(struct lookup *lookup)
{
    struct exchange *exchange = lookup->owner;
    struct connection *connection = exchange->connection;
    enum reason reason;
    if (!lookup_is_good(lookup, &reason))
        refuse(connection, reason, 0);
    else
        begin(exchange);
}

static void begin(struct exchange *exchange)
{
    struct connection *connection = exchange->connection;
    if (!curl_door_open()) {
        refuse(connection, REASON_UPSTREAM_FAILED, 503);
        return;
    }
    if (!exchange_take_body(exchange)) {
        refuse_body(connection);
        return;
    }
    metrics.credentials_total += sbx_egress_fields_rules(exchange->made) > 0;
    exchange->home = exchanges_of(connection->workspace);
    if (exchange->home == NULL ||
        (connection->kind == KIND_ROUTE &&
         !exchanges_take_scrub(exchange->home, exchange, &exchange->scrub)) ||
        !exchange_set_up(exchange) || !exchanges_add(exchange->home, exchange)) {
        refuse(connection, REASON_UPSTREAM_FAILED, 503);
        return;
    }
    connection->client.ready = client_ready;
    exchange_alive(exchange);
    exchange_want(exchange);
}

/* The exchange is gone before the refusal, which is the connection's. */
static void refuse(struct connection *connection, enum reason reason, int status)
{
    exchange_end(sbx_take(connection->exchange));
    connection_refuse_for(connection, reason, status);
}

static void refuse_body(struct connection *connection)
{
    struct sbx_egress_refusal refusal;
    sbx_egress_refuse(&refusal, 400, reason_word(REASON_BAD_REQUEST),
                      "the chunks of the body are malformed");
    exchange_end(sbx_take(connection->exchange));
    connection_refuse(connection, &refusal);
}

static void client_ready(struct watch *watch, int events, bool failed)
{
    struct connection *connection = connection_of(watch);
    struct exchange *exchange = connection->exchange;
    if (failed) {
        connection_end(connection);
        return;
    }
    if ((events & UV_WRITABLE) && !exchange_send(exchange)) {
        connection_end(connection);
        return;
    }
    if ((events & UV_READABLE) && !read_more(exchange))
        return;
    if (!exchange_flush(exchange)) {
        connection_end(connection);
        return;
    }
    if (exchange->complete && sbx_bytes_size(&exchange->output) == 0)
        end_or_go_on(exchange);
    else
        exchange_want(exchange);
}

bool exchange_flush(struct exchange *exchange)
{
    for (;;) {
        exchanges_flush_not(exchange->home, exchange);
        if (!exchange_send(exchange))
            return false;
        if (!exchange->output_waits || sbx_bytes_size(&exchange->output) >= OUTPUT_HIGH)
            return true;
        /* More of the answer may come before this returns. */
        exchange->output_waits = false;
        curl_door.easy_pause(exchange->easy, CURLPAUSE_CONT);
        if (!exchange->output_fresh)
            return true;
    }
}

/* False: the connection has ended. */
static bool read_more(struct exchange *exchange)
{
    struct connection *connection = exchange->connection;
    switch (connection_receive(connection, PIECE_BYTES / 4)) {
    case RECEIVED_NOTHING:
        return true;
    case RECEIVED_END:
        connection->ended = true;
        if (exchange->upload_whole)
            return true; /* it has asked, and may still be waiting for the answer */
        connection_end(connection);
        return false;
    case RECEIVED:
        break;
    }
    exchange_alive(exchange);
    if (!exchange_take_body(exchange)) {
        if (exchange->head_sent) {
            break_off(exchange);
            connection_end(connection);
        } else {
            refuse_body(connection);
        }
        return false;
    }
    if (exchange->upload_waits &&
        (exchange->upload_whole || sbx_bytes_size(&exchange->upload) > 0)) {
        exchange->upload_waits = false;
        curl_door.easy_pause(exchange->easy,
                             exchange->output_waits ? CURLPAUSE_RECV : CURLPAUSE_CONT);
    }
    return true;
}

void exchange_want(struct exchange *exchange)
{
    struct connection *connection = exchange->connection;
    size_t waiting = sbx_bytes_size(&connection->input);
    bool room = exchange->upload_whole ? waiting < PIECE_BYTES / 4
                                       : waiting == 0 && sbx_bytes_size(&exchange->upload) == 0;
    bool more = sbx_bytes_size(&exchange->output) > 0;
    watch_want(&connection->client,
               (room && !connection->ended ? UV_READABLE : 0) | (more ? UV_WRITABLE : 0));
}

void exchange_alive(struct exchange *exchange)
{
    deadline_set(&exchange->connection->deadline, DEADLINE_IDLE, settings.timeout_ms[DEADLINE_IDLE],
                 too_slow);
}

void exchange_done(struct exchange *exchange, CURLcode result)
{
    struct connection *connection = exchange->connection;
    int status = 0;
    bool answered = exchange->head_sent || exchange->complete;
    exchanges_remove(exchange->home, exchange);
    exchanges_flush_not(exchange->home, exchange);
    if (exchange->guest_gone) {
        connection_end(connection);
    } else if (exchange->failure != REASON_COUNT && !answered) {
        refuse(connection, exchange->failure, 0);
    } else if (result != CURLE_OK && !answered) {
        enum reason reason = reason_of_result(result, &status);
        refuse(connection, reason, status);
    } else if (result != CURLE_OK || !exchange_finish_answer(exchange) ||
               !exchange_send(exchange)) {
        connection_note(connection, exchange->failure != REASON_COUNT ? exchange->failure
                                                                      : REASON_UPSTREAM_FAILED);
        (void)exchange_send(exchange);
        break_off(exchange);
        connection_end(connection);
    } else {
        exchange->complete = true;
        exchanges_flush_not(exchange->home, exchange);
        if (sbx_bytes_size(&exchange->output) == 0)
            end_or_go_on(exchange);
        else
            exchange_want(exchange);
    }
}

static void end_or_go_on(struct exchange *exchange)
{
    struct connection *connection = exchange->connection;
    /* What is left of a body that the server did not want would look like another request. */
    bool again = exchange->keeps_alive && exchange->upload_whole &&
                 exchange->frame != FRAME_CLOSE && !proxy.ending;
    exchange_end(sbx_take(connection->exchange));
    if (again)
        connection_go_on(connection);
    else
        connection_linger(connection);
}

/* Whoever reads must not take what came for all there was. */
static void break_off(struct exchange *exchange)
{
    static const struct linger none = {1, 0};
    setsockopt(exchange->connection->client.fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
}

static enum reason reason_of_result(CURLcode result, int *status)
{
    switch (result) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
        return REASON_CERTIFICATE;
    case CURLE_BAD_CONTENT_ENCODING:
        return REASON_CANNOT_SCRUB;
    case CURLE_OPERATION_TIMEDOUT:
        *status = 504;
        return REASON_TIMEOUT;
    default:
        return REASON_UPSTREAM_FAILED;
    }
}

static void too_slow(struct deadline *deadline)
{
    struct connection *connection = connection_of_deadline(deadline);
    struct exchange *exchange = connection->exchange;
    if (!exchange->head_sent) {
        refuse(connection, REASON_TIMEOUT, exchange->upload_waits ? 408 : 504);
        return;
    }
    connection_note(connection, REASON_TIMEOUT);
    break_off(exchange);
    connection_end(connection);
}

void exchange_end(struct exchange *exchange)
{
    if (exchange->added)
        exchanges_remove(exchange->home, exchange);
    exchanges_flush_not(exchange->home, exchange);
    lookup_free(exchange->lookup);
    if (exchange->easy != NULL) {
        exchanges_give(exchange->home, exchange->easy);
        curl_door.slist_free_all(exchange->fields);
        curl_door.slist_free_all(exchange->pinned);
        curl_door.slist_free_all(exchange->proxy_fields);
    }
    sbx_egress_fields_free(exchange->made);
    if (exchange->scrub != NULL && exchange->complete)
        exchanges_give_scrub(exchange->home, exchange, exchange->scrub);
    else
        sbx_egress_scrub_free(exchange->scrub);
    sbx_egress_policy_drop(exchange->policy);
    sbx_bytes_free(&exchange->upload);
    sbx_bytes_wipe(&exchange->lines);
    sbx_bytes_wipe(&exchange->trailers);
    sbx_bytes_free(&exchange->output);
    free(exchange->method);
    free(exchange->path);
    free(exchange);
}
