/* curl's handles of one workspace, driven by the loop: see exchange_parts.h. */

#include "exchange_parts.h"
#include "proxy.h"
#include "util/memory.h"
#include <stdlib.h>
#include <string.h>

#define KEPT_MAX      32
#define SCRUBS_MAX    32  /* kept for all workspaces: what may be locked has a limit */
#define KEPT_OPEN_MAX 32L /* connections to servers that wait for the next request */

/* What looks through answers of a host, under the policy that is in force. */
struct kept_scrub {
    char *host;
    struct sbx_egress_scrub *scrub;
};

/*
 * A workspace has its own, so that a connection that one has proven itself on is never another's.
 */
struct exchanges {
    CURLM *multi;
    uv_timer_t timer;
    CURL *kept[KEPT_MAX]; /* handles without a request */
    unsigned kept_count;
    struct kept_scrub scrubs[KEPT_MAX];
    unsigned scrub_count;
    struct exchange *fresh; /* have something for their guests */
    bool ending;
};

/* One of curl's sockets. It is curl that closes the descriptor. */
struct speaking {
    uv_poll_t poll;
    struct exchanges *home;
    curl_socket_t fd;
};

static unsigned scrubs_kept;

static int socket_changed(CURL *easy, curl_socket_t fd, int what, void *user_data, void *known);
static void socket_ready(uv_poll_t *poll, int status, int events);
static void socket_gone(uv_handle_t *handle);
static int timer_changed(CURLM *multi, long in_ms, void *user_data);
static void timer_fired(uv_timer_t *timer);
static void collect(struct exchanges *exchanges);
static void timer_gone(uv_handle_t *handle);

struct exchanges *exchanges_of(struct workspace *workspace)
{
    if (workspace->exchanges != NULL)
        return workspace->exchanges;
    struct exchanges *exchanges = calloc(1, sizeof *exchanges);
    if (exchanges == NULL)
        return NULL;
    exchanges->multi = curl_door.multi_init();
    if (exchanges->multi == NULL) {
        free(exchanges);
        return NULL;
    }
    uv_timer_init(&proxy.loop, &exchanges->timer);
    exchanges->timer.data = exchanges;
    curl_door.multi_setopt(exchanges->multi, CURLMOPT_SOCKETFUNCTION, socket_changed);
    curl_door.multi_setopt(exchanges->multi, CURLMOPT_SOCKETDATA, exchanges);
    curl_door.multi_setopt(exchanges->multi, CURLMOPT_TIMERFUNCTION, timer_changed);
    curl_door.multi_setopt(exchanges->multi, CURLMOPT_TIMERDATA, exchanges);
    curl_door.multi_setopt(exchanges->multi, CURLMOPT_MAXCONNECTS, KEPT_OPEN_MAX);
    curl_door.multi_setopt(exchanges->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    workspace->exchanges = exchanges;
    return exchanges;
}

void exchanges_free(struct exchanges *exchanges)
{
    if (exchanges == NULL)
        return;
    exchanges->ending = true;
    exchanges_policy_changed(exchanges);
    while (exchanges->kept_count > 0)
        curl_door.easy_cleanup(exchanges->kept[--exchanges->kept_count]);
    curl_door.multi_cleanup(exchanges->multi);
    uv_close((uv_handle_t *)&exchanges->timer, timer_gone);
}

void exchanges_close(void)
{
    curl_door_close();
}

bool exchanges_take_scrub(struct exchanges *exchanges, const struct exchange *exchange,
                          struct sbx_egress_scrub **out)
{
    for (unsigned i = 0; i < exchanges->scrub_count; i++) {
        if (strcmp(exchanges->scrubs[i].host, exchange->host.name) != 0 ||
            exchange->policy != exchange->connection->workspace->policy)
            continue;
        *out = exchanges->scrubs[i].scrub;
        free(exchanges->scrubs[i].host);
        exchanges->scrubs[i] = exchanges->scrubs[--exchanges->scrub_count];
        scrubs_kept--;
        return true;
    }
    return sbx_egress_scrub_new(exchange->policy, &exchange->host, out, NULL) == SANDBOX_OK;
}

void exchanges_give_scrub(struct exchanges *exchanges, const struct exchange *exchange,
                          struct sbx_egress_scrub *scrub)
{
    char *host = sbx_copy(exchange->host.name);
    if (host == NULL || exchanges->scrub_count == KEPT_MAX || scrubs_kept == SCRUBS_MAX ||
        exchange->policy != exchange->connection->workspace->policy) {
        free(host);
        sbx_egress_scrub_free(scrub);
        return;
    }
    exchanges->scrubs[exchanges->scrub_count++] = (struct kept_scrub){host, scrub};
    scrubs_kept++;
}

void exchanges_policy_changed(struct exchanges *exchanges)
{
    while (exchanges != NULL && exchanges->scrub_count > 0) {
        struct kept_scrub *last = &exchanges->scrubs[--exchanges->scrub_count];
        sbx_egress_scrub_free(last->scrub);
        scrubs_kept--;
        free(last->host);
    }
}

CURL *exchanges_take(struct exchanges *exchanges)
{
    if (exchanges->kept_count > 0)
        return exchanges->kept[--exchanges->kept_count];
    return curl_door.easy_init();
}

void exchanges_give(struct exchanges *exchanges, CURL *easy)
{
    if (exchanges->kept_count == KEPT_MAX) {
        curl_door.easy_cleanup(easy);
        return;
    }
    curl_door.easy_reset(easy);
    exchanges->kept[exchanges->kept_count++] = easy;
}

bool exchanges_add(struct exchanges *exchanges, struct exchange *exchange)
{
    exchange->added = curl_door.multi_add_handle(exchanges->multi, exchange->easy) == CURLM_OK;
    return exchange->added;
}

void exchanges_remove(struct exchanges *exchanges, struct exchange *exchange)
{
    exchange->added = false;
    curl_door.multi_remove_handle(exchanges->multi, exchange->easy);
}

void exchanges_flush_later(struct exchanges *exchanges, struct exchange *exchange)
{
    if (exchange->output_fresh)
        return;
    exchange->output_fresh = true;
    exchange->next_fresh = exchanges->fresh;
    exchanges->fresh = exchange;
}

void exchanges_flush_not(struct exchanges *exchanges, struct exchange *exchange)
{
    if (!exchange->output_fresh)
        return;
    struct exchange **place = &exchanges->fresh;
    while (*place != exchange)
        place = &(*place)->next_fresh;
    *place = exchange->next_fresh;
    exchange->output_fresh = false;
}

static int socket_changed(CURL *easy, curl_socket_t fd, int what, void *user_data, void *known)
{
    struct exchanges *exchanges = user_data;
    struct speaking *speaking = known;
    if (what == CURL_POLL_REMOVE) {
        if (speaking != NULL)
            uv_close((uv_handle_t *)&speaking->poll, socket_gone);
        if (!exchanges->ending)
            curl_door.multi_assign(exchanges->multi, fd, NULL);
        return 0;
    }
    if (speaking == NULL) {
        speaking = calloc(1, sizeof *speaking);
        if (speaking == NULL || uv_poll_init(&proxy.loop, &speaking->poll, fd) != 0) {
            free(speaking);
            return -1;
        }
        speaking->poll.data = speaking;
        speaking->home = exchanges;
        speaking->fd = fd;
        curl_door.multi_assign(exchanges->multi, fd, speaking);
    }
    uv_poll_start(&speaking->poll,
                  (what & CURL_POLL_IN ? UV_READABLE : 0) |
                      (what & CURL_POLL_OUT ? UV_WRITABLE : 0),
                  socket_ready);
    return 0;
}

static void socket_ready(uv_poll_t *poll, int status, int events)
{
    struct speaking *speaking = poll->data;
    struct exchanges *exchanges = speaking->home;
    int running;
    int what = status < 0 ? CURL_CSELECT_ERR
                          : (events & UV_READABLE ? CURL_CSELECT_IN : 0) |
                                (events & UV_WRITABLE ? CURL_CSELECT_OUT : 0);
    curl_door.multi_socket_action(exchanges->multi, speaking->fd, what, &running);
    collect(exchanges);
}

static void socket_gone(uv_handle_t *handle)
{
    free(handle->data);
}

static int timer_changed(CURLM *multi, long in_ms, void *user_data)
{
    struct exchanges *exchanges = user_data;
    if (exchanges->ending)
        return 0;
    if (in_ms < 0)
        uv_timer_stop(&exchanges->timer);
    else
        uv_timer_start(&exchanges->timer, timer_fired, (uint64_t)in_ms, 0);
    return 0;
}

static void timer_fired(uv_timer_t *timer)
{
    struct exchanges *exchanges = timer->data;
    int running;
    curl_door.multi_socket_action(exchanges->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    collect(exchanges);
}

static void collect(struct exchanges *exchanges)
{
    int waiting;
    CURLMsg *message;
    while ((message = curl_door.multi_info_read(exchanges->multi, &waiting)) != NULL) {
        char *owner = NULL;
        CURLcode result = message->data.result;
        if (message->msg != CURLMSG_DONE)
            continue;
        curl_door.easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &owner);
        exchange_done((struct exchange *)(void *)owner, result);
    }
    while (exchanges->fresh != NULL) {
        struct exchange *fresh = exchanges->fresh;
        if (exchange_flush(fresh))
            exchange_want(fresh);
        else
            connection_end(fresh->connection);
    }
}

static void timer_gone(uv_handle_t *handle)
{
    free(handle->data);
}
