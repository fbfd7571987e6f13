/*
 * HTTP into a workspace: libcurl on one end of a local socket, the agent's port connection on the
 * other, and the calling thread carries between them.
 *
 * libcurl 7.88 cannot be handed a socket that is connected already. So it gets one to connect,
 * with an address that nobody else knows, and whoever is not this process is turned away.
 */

#include "guest_http.h"
#include "agent/text.h"
#include "util/bytes.h"
#include "util/fail.h"
#include "util/memory.h"
#include <curl/curl.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sandbox/ports.h>
#include <stdio.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define REQUEST_MS 20000u /* a guest under load is slow, one that hangs is not waited for */
#define HEADERS_MAX (64u << 10)
#define ITEMS_MAX 250000u /* of one answer: each takes some 80 bytes of memory */
#define PIECE 16384

struct sbx_guest_http {
    sandbox_workspace *workspace;
    uint16_t port;
    CURLM *multi;
    CURL *easy;
    /* Of the request under way: */
    const struct sbx_wait *wait;
    sandbox_connection *connection;
    int listener_fd;      /* until curl has connected */
    int near_fd;          /* our end of what it has connected */
    const uint8_t *data;  /* from the guest, borrowed from the connection */
    size_t data_size;
    bool guest_ended;
    struct sbx_bytes body;
    size_t header_bytes;
    char cursor[SBX_GUEST_CURSOR_TEXT];
    sandbox_error failed; /* what curl cannot know */
};

static sandbox_status set_up(struct sbx_guest_http *http, const char *user, const char *password,
                             sandbox_error *error);
static void begin(struct sbx_guest_http *http, const struct sbx_wait *wait);
static void end(struct sbx_guest_http *http);
static CURLcode perform(struct sbx_guest_http *http);
static bool accept_curl(struct sbx_guest_http *http);
static bool carry(struct sbx_guest_http *http, short from_curl, short from_guest);
static sandbox_status judge(struct sbx_guest_http *http, CURLcode code, sandbox_error *error);
static bool has_few_items(const uint8_t *text, size_t size);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool is_ready;

static void begin_curl(void)
{
    is_ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

static void free_http(struct sbx_guest_http **http)
{
    sbx_guest_http_free(*http);
}

sandbox_status sbx_guest_http_open(sandbox_workspace *workspace, uint16_t port, const char *user,
                                   const char *password, struct sbx_guest_http **out,
                                   sandbox_error *error)
{
    pthread_once(&once, begin_curl);
    SBX_ON_EXIT(free_http) struct sbx_guest_http *http = calloc(1, sizeof *http);
    if (http == NULL || !is_ready)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for an HTTP client");
    http->workspace = workspace;
    http->port = port;
    http->listener_fd = http->near_fd = -1;
    http->body = (struct sbx_bytes)SBX_BYTES(SBX_GUEST_ANSWER_MAX);
    sandbox_status status = set_up(http, user, password, error);
    if (status == SANDBOX_OK)
        *out = sbx_take(http);
    return status;
}

void sbx_guest_http_free(struct sbx_guest_http *http)
{
    if (http == NULL)
        return;
    if (http->multi != NULL && http->easy != NULL)
        curl_multi_remove_handle(http->multi, http->easy);
    curl_easy_cleanup(http->easy);
    curl_multi_cleanup(http->multi);
    end(http);
    free(http);
}

char *sbx_guest_http_escape(const char *text)
{
    char *escaped = curl_easy_escape(NULL, text, 0);
    char *copy = sbx_copy(escaped);
    curl_free(escaped);
    return copy;
}

sandbox_status sbx_guest_http_get(struct sbx_guest_http *http, const char *path,
                                  const struct sbx_wait *wait, cJSON **answer,
                                  char cursor[SBX_GUEST_CURSOR_TEXT], sandbox_error *error)
{
    struct sbx_wait request = sbx_wait_within(wait, REQUEST_MS);
    SBX_ON_EXIT(sbx_free_text) char *url = sbx_format("http://127.0.0.1:%u%s", http->port, path);
    if (url == NULL || curl_easy_setopt(http->easy, CURLOPT_URL, url) != CURLE_OK)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
    begin(http, &request);
    CURLcode code = perform(http);
    sandbox_status status = judge(http, code, error);
    const uint8_t *text = sbx_bytes_data(&http->body);
    size_t size = sbx_bytes_size(&http->body);
    if (status == SANDBOX_OK && (size == 0 || !has_few_items(text, size) ||
                                 sbx_json_parse(text, size, size, answer, NULL) != SANDBOX_OK))
        status = sbx_fail_for(error, SANDBOX_UNAVAILABLE, "check-failed",
                              "the server on port %u answers no JSON, or too much of it",
                              http->port);
    if (status == SANDBOX_OK && cursor != NULL)
        memcpy(cursor, http->cursor, SBX_GUEST_CURSOR_TEXT);
    end(http);
    return status;
}

sandbox_call sbx_guest_call(const struct sbx_wait *wait, uint32_t at_most_ms)
{
    uint32_t left = sbx_wait_left_ms(wait);
    left = left < at_most_ms ? left : at_most_ms;
    return (sandbox_call){SANDBOX_CALL, .timeout_ms = left == 0 ? 1 : left,
                          .cancel = wait->cancel, .interrupted = wait->interrupted,
                          .user_data = wait->user_data};
}

/* The kernel draws the name. False: errno says why. */
static bool listen_somewhere(int *listener_fd, struct curl_sockaddr *address)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t size = sizeof name;
    *listener_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*listener_fd < 0 ||
        bind(*listener_fd, (struct sockaddr *)&name, sizeof name.sun_family) < 0 ||
        listen(*listener_fd, 1) < 0 ||
        getsockname(*listener_fd, (struct sockaddr *)&name, &size) < 0)
        return false;
    if (size > sizeof address->addr) {
        errno = ENAMETOOLONG;
        return false;
    }
    address->family = AF_UNIX;
    address->protocol = 0;
    address->addrlen = size;
    memcpy(&address->addr, &name, size);
    return true;
}

/* curl asks for a socket and where to connect it: to us, once the guest's side stands. */
static curl_socket_t open_socket(void *user_data, curlsocktype purpose,
                                 struct curl_sockaddr *address)
{
    struct sbx_guest_http *http = user_data;
    sandbox_call call = sbx_guest_call(http->wait, SANDBOX_FOREVER);
    if (purpose != CURLSOCKTYPE_IPCXN || http->connection != NULL ||
        sandbox_port_dial(http->workspace, http->port, &call, &http->connection, &http->failed) !=
            SANDBOX_OK)
        return CURL_SOCKET_BAD;
    int fd = -1;
    if (listen_somewhere(&http->listener_fd, address))
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        (void)sbx_fail_errno(&http->failed, errno, "cannot make a socket");
    return fd < 0 ? CURL_SOCKET_BAD : fd;
}

static size_t take_header(char *text, size_t size, size_t count, void *user_data)
{
    static const char name[] = "x-next-cursor:";
    struct sbx_guest_http *http = user_data;
    size *= count;
    http->header_bytes += size;
    if (http->header_bytes > HEADERS_MAX)
        return 0;
    if (size < sizeof name || strncasecmp(text, name, sizeof name - 1) != 0)
        return size;
    const char *value = text + sizeof name - 1, *last = text + size;
    while (value < last && (*value == ' ' || *value == '\t'))
        value++;
    while (last > value && (last[-1] == '\n' || last[-1] == '\r' || last[-1] == ' '))
        last--;
    if ((size_t)(last - value) >= sizeof http->cursor)
        return 0;
    snprintf(http->cursor, sizeof http->cursor, "%.*s", (int)(last - value), value);
    return size;
}

static size_t take_body(char *data, size_t size, size_t count, void *user_data)
{
    struct sbx_guest_http *http = user_data;
    return sbx_bytes_append(&http->body, data, size * count) ? size * count : 0;
}

static sandbox_status set_up(struct sbx_guest_http *http, const char *user, const char *password,
                             sandbox_error *error)
{
    http->multi = curl_multi_init();
    http->easy = curl_easy_init();
    bool is_set = http->multi != NULL && http->easy != NULL;
    CURL *easy = http->easy;
    is_set = is_set && curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK;
    is_set = is_set && curl_easy_setopt(easy, CURLOPT_PROXY, "") == CURLE_OK;
    is_set = is_set && curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http") == CURLE_OK;
    is_set = is_set && curl_easy_setopt(easy, CURLOPT_HTTP_VERSION,
                                        (long)CURL_HTTP_VERSION_1_1) == CURLE_OK;
    is_set = is_set && curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L) == CURLE_OK;
    is_set = is_set && curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket) == CURLE_OK;
    is_set = is_set && curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, http) == CURLE_OK;
    is_set = is_set && curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header) == CURLE_OK;
    is_set = is_set && curl_easy_setopt(easy, CURLOPT_HEADERDATA, http) == CURLE_OK;
    is_set = is_set && curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body) == CURLE_OK;
    is_set = is_set && curl_easy_setopt(easy, CURLOPT_WRITEDATA, http) == CURLE_OK;
    if (password != NULL) {
        is_set = is_set && curl_easy_setopt(easy, CURLOPT_HTTPAUTH, CURLAUTH_BASIC) == CURLE_OK;
        is_set = is_set && curl_easy_setopt(easy, CURLOPT_USERNAME, user) == CURLE_OK;
        is_set = is_set && curl_easy_setopt(easy, CURLOPT_PASSWORD, password) == CURLE_OK;
    }
    return is_set ? SANDBOX_OK
                  : sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for an HTTP client");
}

static void begin(struct sbx_guest_http *http, const struct sbx_wait *wait)
{
    http->wait = wait;
    http->guest_ended = false;
    http->header_bytes = 0;
    http->cursor[0] = '\0';
    http->failed = (sandbox_error){0};
}

static void end(struct sbx_guest_http *http)
{
    sbx_close_fd(&http->listener_fd);
    sbx_close_fd(&http->near_fd);
    sandbox_connection_free(sbx_take(http->connection));
    http->data_size = 0;
    sbx_bytes_free(&http->body);
    http->wait = NULL;
}

/* One transfer, from its beginning to its end. CURLE_OK: `failed` may say more. */
static CURLcode perform(struct sbx_guest_http *http)
{
    if (curl_multi_add_handle(http->multi, http->easy) != CURLM_OK)
        return CURLE_OUT_OF_MEMORY;
    CURLcode code = CURLE_OK;
    struct curl_waitfd ends[2] = {{.fd = -1}, {.fd = -1}};
    for (int running = 1, queued = 0; code == CURLE_OK;) {
        if (curl_multi_perform(http->multi, &running) != CURLM_OK)
            code = CURLE_OUT_OF_MEMORY;
        const CURLMsg *message = curl_multi_info_read(http->multi, &queued);
        if (message != NULL && message->msg == CURLMSG_DONE) {
            code = message->data.result;
            break;
        }
        if (!accept_curl(http) || !carry(http, ends[0].revents, ends[1].revents))
            code = CURLE_RECV_ERROR;
        /* With bytes to hand on, the guest has to wait until curl has taken them. */
        bool full = http->data_size > 0;
        int fd = http->near_fd < 0 ? http->listener_fd : http->near_fd;
        ends[0] = (struct curl_waitfd){.fd = fd,
                                       .events = full ? CURL_WAIT_POLLIN | CURL_WAIT_POLLOUT
                                                      : CURL_WAIT_POLLIN};
        ends[1] = (struct curl_waitfd){.fd = sandbox_connection_descriptor(http->connection),
                                       .events = CURL_WAIT_POLLIN};
        bool stands = http->near_fd >= 0 && !full && !http->guest_ended;
        unsigned count = fd < 0 ? 0 : stands ? 2 : 1;
        int slice = sbx_wait_slice_ms(http->wait);
        if (code == CURLE_OK &&
            curl_multi_poll(http->multi, ends, count, slice, NULL) != CURLM_OK)
            code = CURLE_OUT_OF_MEMORY;
        if (code == CURLE_OK && sbx_wait_check(http->wait, &http->failed) != SANDBOX_OK)
            code = CURLE_OPERATION_TIMEDOUT;
    }
    curl_multi_remove_handle(http->multi, http->easy);
    return code;
}

/* False: it cannot be accepted. Connecting a local socket takes no time, but curl may wait. */
static bool accept_curl(struct sbx_guest_http *http)
{
    while (http->listener_fd >= 0 && http->near_fd < 0) {
        struct ucred peer = {.pid = 0};
        socklen_t size = sizeof peer;
        int fd = accept4(http->listener_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid == getpid())
            http->near_fd = fd;
        else
            close(fd);
    }
    if (http->near_fd >= 0)
        sbx_close_fd(&http->listener_fd);
    return true;
}

/* The request on its way in. */
static bool carry_request(struct sbx_guest_http *http)
{
    uint8_t piece[PIECE];
    ssize_t size = recv(http->near_fd, piece, sizeof piece, MSG_DONTWAIT);
    sandbox_call call = sbx_guest_call(http->wait, SANDBOX_FOREVER);
    return size <= 0 || sandbox_connection_write(http->connection, piece, (size_t)size, &call,
                                                 &http->failed) == SANDBOX_OK;
}

/* The next bytes of the answer, if there are some. */
static bool take_data(struct sbx_guest_http *http)
{
    sandbox_error error = {0};
    sandbox_call call = sbx_guest_call(http->wait, 1);
    sandbox_status status = sandbox_connection_read(http->connection, &call, &http->data,
                                                    &http->data_size, &error);
    if (status == SANDBOX_TIMED_OUT && error.reason[0] == '\0')
        return true;
    if (status != SANDBOX_OK) {
        http->failed = error;
        return false;
    }
    http->guest_ended = http->data_size == 0;
    if (http->guest_ended)
        (void)shutdown(http->near_fd, SHUT_WR);
    return true;
}

static bool carry(struct sbx_guest_http *http, short from_curl, short from_guest)
{
    if ((from_curl & CURL_WAIT_POLLIN) != 0 && !carry_request(http))
        return false;
    if (from_guest != 0 && http->data_size == 0 && !http->guest_ended && !take_data(http))
        return false;
    if (http->data_size == 0)
        return true;
    ssize_t sent = send(http->near_fd, http->data, http->data_size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
        http->data += sent;
        http->data_size -= (size_t)sent;
    }
    return true;
}

/* What became of the request. Words of the server's own are not repeated. */
static sandbox_status judge(struct sbx_guest_http *http, CURLcode code, sandbox_error *error)
{
    sandbox_status status = http->failed.status;
    if (status == SANDBOX_TIMED_OUT)
        return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "check-failed",
                            "the server on port %u did not answer in time", http->port);
    if (status != SANDBOX_OK && strcmp(http->failed.reason, "connection-reset") != 0) {
        if (error != NULL)
            *error = http->failed;
        return status;
    }
    if (code == CURLE_OUT_OF_MEMORY)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
    if (code != CURLE_OK)
        return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "check-failed",
                            "the server on port %u gave no whole answer, or too long a one: %s",
                            http->port, curl_easy_strerror(code));
    long answered = 0;
    const char *type = NULL;
    curl_easy_getinfo(http->easy, CURLINFO_RESPONSE_CODE, &answered);
    curl_easy_getinfo(http->easy, CURLINFO_CONTENT_TYPE, &type);
    if (answered == 401)
        return sbx_fail_for(error, SANDBOX_DENIED, "check-denied",
                            "the server on port %u wants another password", http->port);
    if (answered != 200)
        return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "check-failed",
                            "the server on port %u answered with HTTP status %ld", http->port,
                            answered);
    /* A page for people, where there is no such path. */
    if (type == NULL || strncasecmp(type, "application/json", 16) != 0)
        return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "check-failed",
                            "the server on port %u answers something else than JSON", http->port);
    return SANDBOX_OK;
}

/* Whether parsing takes a bearable amount of memory. */
static bool has_few_items(const uint8_t *text, size_t size)
{
    size_t items = 0;
    bool in_string = false;
    for (size_t at = 0; at < size; at++) {
        if (in_string && text[at] == '\\')
            at++;
        else if (text[at] == '"')
            in_string = !in_string;
        else if (!in_string && (text[at] == ',' || text[at] == '[' || text[at] == '{'))
            items++;
    }
    return items <= ITEMS_MAX;
}
