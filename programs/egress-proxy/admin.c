/* The admin API's connections: see admin.h. */

#include "admin.h"
#include "admin_api.h"
#include "admin_check.h"
#include "deadline.h"
#include "journal.h"
#include "listener.h"
#include "proxy.h"
#include "settings.h"
#include "util/memory.h"
#include "version.h"
#include "watch.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINKS_MAX  64u
#define ANSWER_MAX (64u * 1024 * 1024)

struct admin_link {
    struct watch watch;
    struct deadline deadline;
    struct sbx_bytes head, body; /* both may hold secrets */
    size_t looked, body_size;
    struct sbx_bytes answer;
    bool keeps_alive;
    struct admin_link *before, *after;
};

static struct {
    struct watch listener;
    struct admin_link *links;
    unsigned link_count;
    bool is_open;
} admin;

static void someone_comes(struct watch *watch, int events, bool failed);
static void begin(int fd);
static void ready(struct watch *watch, int events, bool failed);
static void read_head(struct admin_link *link);
static void read_body(struct admin_link *link);
static void whole_head(struct admin_link *link);
static bool prepare(struct admin_link *link, const struct sbx_egress_head *head,
                    struct admin_answer *answer);
static void serve(struct admin_link *link);
static void send_answer(struct admin_link *link, struct admin_answer *answer);
static void send_on(struct admin_link *link);
static void too_slow(struct deadline *deadline);
static void end(struct admin_link *link);
static void gone(struct watch *watch);

bool admin_open(void)
{
    int fd = listen_on(&settings.admin);
    if (fd < 0 || !watch_open(&admin.listener, fd, someone_comes)) {
        fprintf(stderr, "sandbox-egress-proxy: --admin: %s\n", strerror(errno));
        return false;
    }
    admin.is_open = true;
    watch_want(&admin.listener, UV_READABLE);
    return true;
}

void admin_close(void)
{
    if (!admin.is_open)
        return;
    admin.is_open = false;
    if (settings.admin.any.sa_family == AF_UNIX)
        unlink(settings.admin.local.sun_path);
    watch_close(&admin.listener, NULL);
    while (admin.links != NULL)
        end(admin.links);
}

static void someone_comes(struct watch *watch, int events, bool failed)
{
    for (;;) {
        union address from;
        socklen_t size = sizeof from;
        int fd = accept4(watch->fd, &from.any, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return;
        if (admin.link_count >= LINKS_MAX)
            close(fd);
        else
            begin(fd);
    }
}

static void begin(int fd)
{
    struct admin_link *link = calloc(1, sizeof *link);
    if (link == NULL || !watch_open(&link->watch, fd, ready)) {
        if (link == NULL)
            close(fd);
        free(link);
        return;
    }
    link->head = (struct sbx_bytes)SBX_BYTES(SBX_EGRESS_HEAD_MAX);
    link->body = (struct sbx_bytes)SBX_BYTES(ADMIN_CHECK_MAX);
    link->answer = (struct sbx_bytes)SBX_BYTES(ANSWER_MAX);
    link->after = admin.links;
    if (link->after != NULL)
        link->after->before = link;
    admin.links = link;
    admin.link_count++;
    deadline_set(&link->deadline, DEADLINE_ADMIN, ADMIN_MS, too_slow);
    watch_want(&link->watch, UV_READABLE);
}

static void ready(struct watch *watch, int events, bool failed)
{
    struct admin_link *link = (struct admin_link *)watch;
    if (failed)
        end(link);
    else if (sbx_bytes_size(&link->answer) > 0)
        send_on(link);
    else if (link->body_size > 0)
        read_body(link);
    else
        read_head(link);
}

static void read_head(struct admin_link *link)
{
    /* All its room at once: what grows leaves copies behind, and a body may begin in here. */
    uint8_t *room = sbx_bytes_room(&link->head, SBX_EGRESS_HEAD_MAX - sbx_bytes_size(&link->head));
    size_t size = SBX_EGRESS_HEAD_MAX - sbx_bytes_size(&link->head);
    ssize_t got = room == NULL || size == 0 ? 0 : recv(link->watch.fd, room, size, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        end(link);
        return;
    }
    sbx_bytes_grow(&link->head, (size_t)got);
    whole_head(link);
}

static void whole_head(struct admin_link *link)
{
    struct sbx_egress_head head;
    struct sbx_egress_refusal refusal;
    struct admin_answer answer = {.type = "application/json", .body = SBX_BYTES(ANSWER_MAX)};
    const char *data = (const char *)sbx_bytes_data(&link->head);
    switch (sbx_egress_head_scan(data, sbx_bytes_size(&link->head), &link->looked, &refusal)) {
    case SBX_EGRESS_HEAD_MORE:
        return;
    case SBX_EGRESS_HEAD_BAD:
        break;
    case SBX_EGRESS_HEAD_WHOLE:
        if (!sbx_egress_head_parse(data, link->looked, &head, &refusal))
            break;
        if (!prepare(link, &head, &answer)) {
            link->keeps_alive = false;
            send_answer(link, &answer);
        } else if (sbx_bytes_size(&link->body) == link->body_size) {
            serve(link);
        }
        return;
    }
    link->keeps_alive = false;
    admin_fail(&answer, refusal.status, "bad-request", refusal.text);
    send_answer(link, &answer);
}

/* True: it may be asked, and what has come of the body is where it belongs. */
static bool prepare(struct admin_link *link, const struct sbx_egress_head *head,
                    struct admin_answer *answer)
{
    const uint8_t *rest = sbx_bytes_data(&link->head) + link->looked;
    size_t rest_size = sbx_bytes_size(&link->head) - link->looked;
    if (!admin_check(head, answer))
        return false;
    uint64_t most = admin_asks_for_check(head->target) ? ADMIN_CHECK_MAX : ADMIN_BODY_MAX;
    if (head->body == SBX_EGRESS_BODY_CHUNKED || head->body_size > most) {
        admin_fail(answer, 413, "too-large",
                   "bodies have a Content-Length of at most 1 MiB; those of a check, 8 MiB");
        return false;
    }
    link->keeps_alive = head->keeps_alive;
    link->body_size = (size_t)head->body_size;
    if (rest_size > link->body_size) {
        admin_fail(answer, 400, "bad-request", "one request at a time: wait for the answer");
        return false;
    }
    if (link->body_size > 0 && (sbx_bytes_room(&link->body, link->body_size) == NULL ||
                                !sbx_bytes_append(&link->body, rest, rest_size))) {
        admin_fail(answer, 507, "limit", "no memory for the body");
        return false;
    }
    if (head->expects_continue && rest_size < link->body_size) {
        static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
        (void)send(link->watch.fd, go_on, sizeof go_on - 1, MSG_NOSIGNAL);
    }
    return true;
}

static void read_body(struct admin_link *link)
{
    size_t missing = link->body_size - sbx_bytes_size(&link->body);
    uint8_t *room = sbx_bytes_room(&link->body, missing);
    ssize_t got = room == NULL ? 0 : recv(link->watch.fd, room, missing, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        end(link);
        return;
    }
    sbx_bytes_grow(&link->body, (size_t)got);
    if ((size_t)got == missing)
        serve(link);
}

static void serve(struct admin_link *link)
{
    struct sbx_egress_head head;
    struct sbx_egress_refusal refusal;
    struct admin_answer answer = {.type = "application/json", .body = SBX_BYTES(ANSWER_MAX)};
    if (!sbx_egress_head_parse((const char *)sbx_bytes_data(&link->head), link->looked, &head,
                               &refusal)) {
        end(link);
        return;
    }
    struct admin_request request = {
        .method = head.method,
        .target = head.target,
        .body = sbx_bytes_data(&link->body),
        .body_size = sbx_bytes_size(&link->body),
    };
    admin_answer(&request, &answer);
    send_answer(link, &answer);
}

static void send_answer(struct admin_link *link, struct admin_answer *answer)
{
    sbx_bytes_wipe(&link->head);
    sbx_bytes_wipe(&link->body);
    link->looked = link->body_size = 0;
    bool whole = sbx_bytes_format(&link->answer,
                                  "HTTP/1.1 %d %s\r\nSandbox-Protocol: %d\r\n"
                                  "Content-Type: %s\r\nContent-Length: %zu\r\n"
                                  "Cache-Control: no-store\r\n%s\r\n",
                                  answer->status, admin_phrase(answer->status), PROXY_PROTOCOL,
                                  answer->type, sbx_bytes_size(&answer->body),
                                  link->keeps_alive ? "" : "Connection: close\r\n") &&
                 (sbx_bytes_size(&answer->body) == 0 ||
                  sbx_bytes_append(&link->answer, sbx_bytes_data(&answer->body),
                                   sbx_bytes_size(&answer->body)));
    sbx_bytes_free(&answer->body);
    if (whole)
        send_on(link);
    else
        end(link);
}

static void send_on(struct admin_link *link)
{
    ssize_t sent = send(link->watch.fd, sbx_bytes_data(&link->answer),
                        sbx_bytes_size(&link->answer), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        end(link);
        return;
    }
    if (sent > 0)
        sbx_bytes_skip(&link->answer, (size_t)sent);
    bool all = sbx_bytes_size(&link->answer) == 0;
    if (all && !link->keeps_alive) {
        shutdown(link->watch.fd, SHUT_WR);
        end(link);
        return;
    }
    if (all)
        sbx_bytes_free(&link->answer);
    deadline_set(&link->deadline, DEADLINE_ADMIN, ADMIN_MS, too_slow);
    watch_want(&link->watch, all ? UV_READABLE : UV_WRITABLE);
}

static void too_slow(struct deadline *deadline)
{
    end((struct admin_link *)((char *)deadline - offsetof(struct admin_link, deadline)));
}

static void end(struct admin_link *link)
{
    if (link->before != NULL)
        link->before->after = link->after;
    else
        admin.links = link->after;
    if (link->after != NULL)
        link->after->before = link->before;
    admin.link_count--;
    deadline_clear(&link->deadline);
    sbx_bytes_wipe(&link->head);
    sbx_bytes_wipe(&link->body);
    sbx_bytes_free(&link->answer);
    watch_close(&link->watch, gone);
}

static void gone(struct watch *watch)
{
    free((struct admin_link *)watch);
}
