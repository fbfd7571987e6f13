/* A WebSocket over a connection of libcurl's: CURLOPT_CONNECT_ONLY, then bytes both ways. */

#include "cloud/websocket.h"
#include "util/base64.h"
#include "util/digest.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/random.h"
#include <poll.h>
#include <sandbox/version.h>
#include <strings.h>

#define PIECE        (64u << 10)
#define MOVE_MAX     (1u << 20) /* bytes in one move: others are to have their turn */
#define ANSWER_MAX   (160u << 10)
#define REQUEST_MAX  (160u << 10)
#define KEY_BYTES    16
#define CONNECT_WAIT 1000

struct sbx_websocket {
    CURLM *multi; /* holds the connection as long as the handle is in it */
    CURL *easy;
    struct sbx_http_sessions *sessions; /* while the handle lives */
    struct curl_slist *kept;            /* for the handle */
    curl_socket_t descriptor;
    char protocol[64];
    struct sbx_frames *frames;
    struct sbx_bytes early; /* frames that came right behind the answer */
    size_t tried;           /* of the output, and refused: TLS wants the same again */
    bool broken, stuck;     /* stuck: not all that came was taken */
    char reason[160];
    char trouble[CURL_ERROR_SIZE];
    size_t input_start, input_end;
    uint8_t input[PIECE];
};

static sandbox_status connect_to(struct sbx_websocket *socket,
                                 const struct sbx_websocket_request *request,
                                 const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status shake_hands(struct sbx_websocket *socket,
                                  const struct sbx_websocket_request *request,
                                  const struct sbx_wait *wait, struct sbx_upgrade *answer,
                                  bool *sent, sandbox_error *error);
static bool write_request(const struct sbx_websocket_request *request, const char *key,
                          struct sbx_bytes *out);
static sandbox_status send_all(struct sbx_websocket *socket, const struct sbx_bytes *text,
                               const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status receive_answer(struct sbx_websocket *socket, const struct sbx_wait *wait,
                                     struct sbx_upgrade *answer, sandbox_error *error);
static sandbox_status judge(struct sbx_websocket *socket, const char *key, const char *offered,
                            const struct sbx_upgrade *answer, sandbox_error *error);
static bool receive(struct sbx_websocket *socket, size_t *moved, bool *heard);
static void transmit(struct sbx_websocket *socket, size_t *moved);

static void free_socket(struct sbx_websocket **socket)
{
    sbx_websocket_free(*socket);
}

sandbox_status sbx_websocket_open(const struct sbx_websocket_request *request,
                                  const struct sbx_wait *wait, struct sbx_websocket **out,
                                  struct sbx_http_answer *refused, bool *sent, sandbox_error *error)
{
    *out = NULL;
    *sent = false;
    SBX_ON_EXIT(free_socket) struct sbx_websocket *socket = malloc(sizeof *socket);
    if (socket == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a WebSocket");
    memset(socket, 0, offsetof(struct sbx_websocket, input));
    socket->early = (struct sbx_bytes)SBX_BYTES(ANSWER_MAX);
    sandbox_status status = connect_to(socket, request, wait, error);
    if (status != SANDBOX_OK)
        return status;
    struct sbx_upgrade answer;
    status = shake_hands(socket, request, wait, &answer, sent, error);
    if (status != SANDBOX_OK)
        return status;
    if (answer.status == 101)
        *out = sbx_take(socket);
    else
        *refused = answer.answer;
    return SANDBOX_OK;
}

const char *sbx_websocket_protocol(const struct sbx_websocket *socket)
{
    return socket->protocol;
}

int sbx_websocket_descriptor(const struct sbx_websocket *socket)
{
    return socket->descriptor;
}

sandbox_status sbx_websocket_begin(struct sbx_websocket *socket,
                                   const struct sbx_websocket_sink *sink, sandbox_error *error)
{
    socket->frames = sbx_frames_new(sink);
    return socket->frames != NULL ? SANDBOX_OK
                                  : sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a WebSocket");
}

struct sbx_frames *sbx_websocket_frames(struct sbx_websocket *socket)
{
    return socket->frames;
}

void sbx_websocket_free(struct sbx_websocket *socket)
{
    if (socket == NULL)
        return;
    if (socket->multi != NULL && socket->easy != NULL)
        curl_multi_remove_handle(socket->multi, socket->easy);
    curl_easy_cleanup(socket->easy);
    curl_multi_cleanup(socket->multi);
    sbx_http_sessions_drop(socket->sessions);
    curl_slist_free_all(socket->kept);
    sbx_frames_free(socket->frames);
    sbx_bytes_free(&socket->early);
    free(socket);
}

/* ---- the handshake, on its caller's thread ---- */

/* Alone in a multi handle, since only that can be waited for under a deadline. */
static sandbox_status set_up(struct sbx_websocket *socket,
                             const struct sbx_websocket_request *request, sandbox_error *error)
{
    socket->easy = curl_easy_init();
    socket->multi = curl_multi_init();
    if (socket->easy == NULL || socket->multi == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a connection");
    sandbox_status status =
        sbx_http_dress(socket->easy, request->peer, request->url, &socket->kept, error);
    if (status != SANDBOX_OK)
        return status;
    CURL *easy = socket->easy;
    socket->sessions = sbx_http_sessions_use(request->sessions, easy);
    bool good =
        curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, socket->trouble) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_CONNECT_ONLY, 1L) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_HTTPPROXYTUNNEL, 1L) == CURLE_OK &&
        curl_multi_add_handle(socket->multi, easy) == CURLM_OK;
    return good ? SANDBOX_OK : sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a connection");
}

static sandbox_status connect_to(struct sbx_websocket *socket,
                                 const struct sbx_websocket_request *request,
                                 const struct sbx_wait *wait, sandbox_error *error)
{
    sandbox_status status = set_up(socket, request, error);
    while (status == SANDBOX_OK) {
        int running = 0, left = 0, slice = sbx_wait_slice_ms(wait);
        curl_multi_perform(socket->multi, &running);
        const CURLMsg *message = curl_multi_info_read(socket->multi, &left);
        if (message != NULL) {
            CURLcode code = message->data.result;
            if (code == CURLE_OK)
                code = curl_easy_getinfo(socket->easy, CURLINFO_ACTIVESOCKET, &socket->descriptor);
            if (code != CURLE_OK)
                return sbx_http_fail(
                    code, socket->trouble[0] != '\0' ? socket->trouble : curl_easy_strerror(code),
                    error);
            return SANDBOX_OK;
        }
        curl_multi_poll(socket->multi, NULL, 0,
                        slice < 0 || slice > CONNECT_WAIT ? CONNECT_WAIT : slice, NULL);
        status = sbx_wait_check(wait, error);
    }
    return status;
}

/* What the server is to answer to a key. free(); NULL: no memory. */
static char *make_accept(const char *key)
{
    char text[64];
    uint8_t digest[SBX_SHA1_BYTES];
    int size = snprintf(text, sizeof text, "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
    sbx_sha1(text, (size_t)size, digest);
    return sbx_base64_text(digest, sizeof digest);
}

static sandbox_status shake_hands(struct sbx_websocket *socket,
                                  const struct sbx_websocket_request *request,
                                  const struct sbx_wait *wait, struct sbx_upgrade *answer,
                                  bool *sent, sandbox_error *error)
{
    uint8_t random[KEY_BYTES];
    if (!sbx_random(random, sizeof random))
        return sbx_fail(error, SANDBOX_FAILED, "the kernel gives no random bytes");
    SBX_ON_EXIT(sbx_free_text) char *key = sbx_base64_text(random, sizeof random);
    SBX_ON_EXIT(sbx_free_text) char *accept = key == NULL ? NULL : make_accept(key);
    if (accept == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a WebSocket");

    SBX_ON_EXIT(sbx_bytes_wipe) struct sbx_bytes text = SBX_BYTES(REQUEST_MAX);
    if (!write_request(request, key, &text))
        return sbx_fail(error, SANDBOX_LIMIT, "the command is too long for one request");
    *sent = true;
    sandbox_status status = send_all(socket, &text, wait, error);
    if (status == SANDBOX_OK)
        status = receive_answer(socket, wait, answer, error);
    if (status == SANDBOX_OK && answer->status == 101)
        status = judge(socket, accept, request->protocols, answer, error);
    return status;
}

static bool write_request(const struct sbx_websocket_request *request, const char *key,
                          struct sbx_bytes *out)
{
    size_t host_size;
    const char *host = sbx_http_authority(request->url, &host_size);
    /* All room at once: growing would leave copies of credentials behind. */
    if (sbx_bytes_room(out, REQUEST_MAX) == NULL ||
        !sbx_bytes_format(out,
                          "GET %s HTTP/1.1\r\nHost: %.*s\r\n"
                          "User-Agent: libsandbox/" SANDBOX_VERSION "\r\n",
                          host + host_size, (int)host_size, host))
        return false;
    for (size_t at = 0; request->headers != NULL && request->headers[at] != NULL; at++) {
        if (!sbx_bytes_format(out, "%s\r\n", request->headers[at]))
            return false;
    }
    return sbx_bytes_format(out,
                            "Connection: Upgrade\r\nUpgrade: websocket\r\n"
                            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n"
                            "Sec-WebSocket-Protocol: %s\r\n\r\n",
                            key, request->protocols);
}

static sandbox_status fail_broken(sandbox_error *error)
{
    return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "kubernetes-unavailable",
                        "the connection to the Kubernetes API server broke before it answered");
}

static sandbox_status send_all(struct sbx_websocket *socket, const struct sbx_bytes *text,
                               const struct sbx_wait *wait, sandbox_error *error)
{
    const uint8_t *data = sbx_bytes_data(text);
    size_t left = sbx_bytes_size(text);
    while (left > 0) {
        size_t size = 0;
        CURLcode code = curl_easy_send(socket->easy, data, left, &size);
        if (code != CURLE_OK && code != CURLE_AGAIN)
            return fail_broken(error);
        data += size;
        left -= size;
        if (left == 0)
            break;
        sandbox_status status = sbx_wait_descriptor(wait, socket->descriptor, POLLOUT, error);
        if (status != SANDBOX_OK)
            return status;
    }
    return SANDBOX_OK;
}

static sandbox_status receive_answer(struct sbx_websocket *socket, const struct sbx_wait *wait,
                                     struct sbx_upgrade *answer, sandbox_error *error)
{
    struct sbx_bytes *bytes = &socket->early;
    for (;;) {
        size_t size = 0;
        uint8_t *room = sbx_bytes_room(bytes, 4096);
        if (room == NULL)
            return fail_broken(error);
        CURLcode code = curl_easy_recv(socket->easy, room, 4096, &size);
        if (code == CURLE_AGAIN) {
            sandbox_status status = sbx_wait_descriptor(wait, socket->descriptor, POLLIN, error);
            if (status != SANDBOX_OK)
                return status;
            continue;
        }
        sbx_bytes_grow(bytes, size);
        bool ended = code != CURLE_OK || size == 0;
        enum sbx_upgrade_state state =
            sbx_upgrade_read(sbx_bytes_data(bytes), sbx_bytes_size(bytes), ended, answer);
        if (state == SBX_UPGRADE_WHOLE)
            return SANDBOX_OK;
        if (ended)
            return fail_broken(error);
        if (state == SBX_UPGRADE_BROKEN)
            return sbx_fail_for(error, SANDBOX_FAILED, "no-websocket",
                                "what answers as the Kubernetes API server speaks no HTTP/1.1");
    }
}

/* One of the offered, letter by letter. */
static bool was_offered(const char *offered, const char *protocol)
{
    size_t size = strlen(protocol);
    for (const char *at = offered; size > 0 && at != NULL;) {
        at += strspn(at, ", ");
        if (strncmp(at, protocol, size) == 0 && (at[size] == '\0' || at[size] == ','))
            return true;
        at = strchr(at, ',');
    }
    return false;
}

static sandbox_status judge(struct sbx_websocket *socket, const char *accept, const char *offered,
                            const struct sbx_upgrade *answer, sandbox_error *error)
{
    if (!answer->to_websocket || strcmp(answer->accept, accept) != 0)
        return sbx_fail_for(error, SANDBOX_FAILED, "no-websocket",
                            "the Kubernetes API server did not agree to a WebSocket; is there a "
                            "proxy between that does not know them?");
    if (!was_offered(offered, answer->protocol))
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "no-websocket",
                            "the Kubernetes API server speaks none of the protocols %s", offered);
    snprintf(socket->protocol, sizeof socket->protocol, "%s", answer->protocol);
    sbx_bytes_skip(&socket->early, answer->size);
    return SANDBOX_OK;
}

/* ---- afterwards, on whichever thread watches ---- */

enum sbx_websocket_state sbx_websocket_move(struct sbx_websocket *socket, bool *heard)
{
    size_t moved = 0;
    bool more = receive(socket, &moved, heard);
    transmit(socket, &moved);
    /* What was in the way may just have gone out. */
    more = more || (socket->stuck && sbx_frames_can_take(socket->frames));
    if (socket->broken)
        return SBX_WEBSOCKET_OVER;
    if (!sbx_frames_are_over(socket->frames))
        return more ? SBX_WEBSOCKET_BUSY : SBX_WEBSOCKET_QUIET;
    sbx_frames_reason(socket->frames, socket->reason);
    return SBX_WEBSOCKET_OVER;
}

short sbx_websocket_events(const struct sbx_websocket *socket)
{
    size_t size;
    (void)sbx_frames_output(socket->frames, &size);
    return (short)((socket->stuck ? 0 : POLLIN) | (size == 0 ? 0 : POLLOUT));
}

void sbx_websocket_reason(const struct sbx_websocket *socket, char text[160])
{
    memcpy(text, socket->reason, sizeof socket->reason);
}

static void break_off(struct sbx_websocket *socket, const char *reason)
{
    socket->broken = true;
    snprintf(socket->reason, sizeof socket->reason, "%s", reason);
}

/* False: all was taken. */
static bool take(struct sbx_websocket *socket)
{
    const uint8_t *early = sbx_bytes_data(&socket->early);
    size_t size = sbx_bytes_size(&socket->early);
    if (size > 0) {
        size_t taken = sbx_frames_take(socket->frames, early, size);
        sbx_bytes_skip(&socket->early, taken);
        if (taken < size)
            return true;
        sbx_bytes_free(&socket->early);
    }
    size = socket->input_end - socket->input_start;
    if (size > 0)
        socket->input_start +=
            sbx_frames_take(socket->frames, socket->input + socket->input_start, size);
    return socket->input_start < socket->input_end;
}

/*
 * Until nothing is there, or nobody has room for it. TLS may hold bytes that the descriptor does
 * not show, so only CURLE_AGAIN says that nothing is there. True: there may be more.
 */
static bool receive(struct sbx_websocket *socket, size_t *moved, bool *heard)
{
    while (*moved < MOVE_MAX) {
        socket->stuck = take(socket);
        if (socket->stuck || sbx_frames_are_over(socket->frames))
            return false;
        socket->input_start = socket->input_end = 0;
        CURLcode code = curl_easy_recv(socket->easy, socket->input, PIECE, &socket->input_end);
        if (code == CURLE_AGAIN)
            return false;
        if (code != CURLE_OK || socket->input_end == 0) {
            break_off(socket, "the connection to the Kubernetes API server broke");
            return false;
        }
        *heard = true;
        *moved += socket->input_end;
    }
    return true;
}

static void transmit(struct sbx_websocket *socket, size_t *moved)
{
    while (!socket->broken) {
        size_t size, sent = 0;
        const uint8_t *data = sbx_frames_output(socket->frames, &size);
        if (size == 0)
            return;
        if (socket->tried > 0)
            size = socket->tried;
        CURLcode code = curl_easy_send(socket->easy, data, size, &sent);
        socket->tried = code == CURLE_AGAIN ? size : 0;
        if (code == CURLE_AGAIN)
            return;
        if (code != CURLE_OK) {
            break_off(socket, "the connection to the Kubernetes API server broke");
            return;
        }
        *moved += sent;
        sbx_frames_sent(socket->frames, sent);
    }
}
