/*
 * The operator's own proxy between this one and the servers. It is asked for the address that was
 * judged: by name it could be led elsewhere, and the judgement would be worth nothing.
 */

#include "dial_proxy.h"
#include "settings.h"
#include "util/memory.h"
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define ANSWER_MAX 8192u

static void answer_ready(struct watch *watch, int events, bool failed);
static bool is_agreed(const char *answer);

void dial_proxy_ask(struct dial *dial)
{
    char host[ADDRESS_TEXT];
    const union address *address = &dial->lookup->addresses[dial->next - 1];
    address_print(address, host);
    bool is_v6 = address->any.sa_family == AF_INET6;
    const char *authorization = settings.upstream_authorization;
    SBX_ON_EXIT(sbx_secret_free_text)
    char *head = sbx_format(
        "CONNECT %s%s%s:%u HTTP/1.1\r\nHost: %s%s%s:%u\r\n%s%s%s\r\n", is_v6 ? "[" : "", host,
        is_v6 ? "]" : "", dial->lookup->port, is_v6 ? "[" : "", host, is_v6 ? "]" : "",
        dial->lookup->port, authorization == NULL ? "" : "Proxy-Authorization: ",
        authorization == NULL ? "" : authorization, authorization == NULL ? "" : "\r\n");
    dial->answer = calloc(1, ANSWER_MAX + 1);
    dial->answer_size = 0;
    /* A new connection has room for all of it. */
    if (head == NULL || dial->answer == NULL ||
        send(dial->watch.fd, head, strlen(head), MSG_NOSIGNAL) != (ssize_t)strlen(head)) {
        free(sbx_take(dial->answer));
        dial_finish(dial, false);
        return;
    }
    dial->watch.ready = answer_ready;
    watch_want(&dial->watch, UV_READABLE);
}

static void answer_ready(struct watch *watch, int events, bool failed)
{
    struct dial *dial = (struct dial *)((char *)watch - offsetof(struct dial, watch));
    ssize_t got = failed ? -1
                         : recv(watch->fd, dial->answer + dial->answer_size,
                                ANSWER_MAX - dial->answer_size, 0);
    if (!failed && got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got > 0)
        dial->answer_size += (size_t)got;
    const char *end = got > 0 ? strstr(dial->answer, "\r\n\r\n") : NULL;
    if (got > 0 && end == NULL && dial->answer_size < ANSWER_MAX)
        return;
    /* Nobody speaks before the guest: whatever follows the answer does not belong there. */
    bool agreed = end != NULL && (size_t)(end + 4 - dial->answer) == dial->answer_size &&
                  is_agreed(dial->answer);
    free(sbx_take(dial->answer));
    dial_finish(dial, agreed);
}

static bool is_agreed(const char *answer)
{
    return (strncmp(answer, "HTTP/1.1 2", 10) == 0 || strncmp(answer, "HTTP/1.0 2", 10) == 0) &&
           answer[10] >= '0' && answer[10] <= '9';
}
