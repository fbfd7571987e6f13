/* One HTTP transfer: what libcurl is told of it, and what comes back. */

#include "cloud/http_parts.h"
#include "util/clock.h"
#include "util/fail.h"
#include "util/memory.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sandbox/version.h>
#include <stdio.h>
#include <strings.h>
#include <time.h>

#define CONNECT_MS 10000L
/* A peer that acknowledges nothing for so long is gone, whatever the connection has waited for. */
#define UNANSWERED_MS      30000
#define KEEP_ALIVE_SECONDS 20L
#define HEADER_BYTES_MAX   (256u << 10)
#define RETRY_AFTER_MAX_S  86400

static bool copy_request(struct sbx_http_transfer *transfer,
                         const struct sbx_http_request *request);
static sandbox_status set_up(struct sbx_http_transfer *transfer,
                             const struct sbx_http_request *request, sandbox_error *error);
static bool set_way(CURL *easy, const struct sbx_http_peer *peer);
static bool set_trust(CURL *easy, const struct sbx_http_peer *peer);
static bool set_blob(CURL *easy, CURLoption option, const char *text);
static sandbox_status set_url(CURL *easy, const struct sbx_http_peer *peer, const char *url,
                              struct curl_slist **kept, sandbox_error *error);
static bool redirect(CURL *easy, CURLU *parts, const char *server_name, struct curl_slist **kept);
static bool set_headers(struct sbx_http_transfer *transfer, const struct sbx_http_request *request);
static bool set_request(struct sbx_http_transfer *transfer, const struct sbx_http_request *request);
static bool set_callbacks(struct sbx_http_transfer *transfer);
static curl_socket_t open_socket(void *user_data, curlsocktype purpose,
                                 struct curl_sockaddr *address);
static int before_request(void *user_data, char *their_address, char *our_address, int their_port,
                          int our_port);
static size_t take_header(char *data, size_t one, size_t size, void *user_data);
static size_t take_body(char *data, size_t one, size_t size, void *user_data);

bool sbx_http_escape(struct sbx_bytes *out, const char *text)
{
    static const char digits[] = "0123456789ABCDEF";
    for (const char *at = text; *at != '\0'; at++) {
        unsigned char byte = (unsigned char)*at;
        bool plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                     (byte >= '0' && byte <= '9') || strchr("-._~", byte) != NULL;
        char escaped[3] = {'%', digits[byte >> 4], digits[byte & 15]};
        if (!sbx_bytes_append(out, plain ? at : escaped, plain ? 1 : sizeof escaped))
            return false;
    }
    return true;
}

const char *sbx_http_authority(const char *url, size_t *size)
{
    const char *scheme_end = strstr(url, "://");
    const char *host = scheme_end == NULL ? url : scheme_end + 3;
    *size = strcspn(host, "/?#");
    return host;
}

void sbx_http_answer_free(struct sbx_http_answer *answer)
{
    sbx_bytes_wipe(&answer->body);
}

sandbox_status sbx_http_dress(CURL *easy, const struct sbx_http_peer *peer, const char *url,
                              struct curl_slist **kept, sandbox_error *error)
{
    static const struct sbx_http_peer defaults;
    if (peer == NULL)
        peer = &defaults;
    *kept = NULL;
    if (!set_way(easy, peer) || !set_trust(easy, peer))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a connection");
    return set_url(easy, peer, url, kept, error);
}

sandbox_status sbx_http_transfer_new(const struct sbx_http_request *request, bool copy,
                                     struct sbx_http_transfer **out, sandbox_error *error)
{
    struct sbx_http_transfer *transfer = calloc(1, sizeof *transfer);
    if (transfer == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
    size_t most = request->answer_max == 0 ? SBX_HTTP_ANSWER_MAX : request->answer_max;
    transfer->answer.body = (struct sbx_bytes)SBX_BYTES(most);
    transfer->answer.retry_after_ms = -1;
    transfer->piece = request->piece;
    transfer->user_data = request->user_data;
    transfer->body_size = request->body_size;
    if (request->peer != NULL)
        transfer->peer = *request->peer;

    transfer->easy = curl_easy_init();
    sandbox_status status = SANDBOX_OK;
    if (transfer->easy == NULL || (copy && !copy_request(transfer, request)))
        status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
    if (status == SANDBOX_OK)
        status = set_up(transfer, request, error);
    if (status == SANDBOX_OK)
        *out = transfer;
    else
        sbx_http_transfer_free(transfer);
    return status;
}

void sbx_http_transfer_free(struct sbx_http_transfer *transfer)
{
    if (transfer == NULL)
        return;
    curl_easy_cleanup(transfer->easy);
    for (struct curl_slist *each = transfer->headers; each != NULL; each = each->next)
        sbx_wipe(each->data, strlen(each->data));
    curl_slist_free_all(transfer->headers);
    curl_slist_free_all(transfer->kept);
    for (size_t each = 0; each < sizeof transfer->copied / sizeof transfer->copied[0]; each++)
        sbx_secret_free(transfer->copied[each]);
    if (transfer->body != NULL)
        sbx_wipe(transfer->body, transfer->body_size);
    free(transfer->body);
    sbx_http_answer_free(&transfer->answer);
    free(transfer);
}

/* Replaces the borrowed texts by copies of our own. */
static bool copy_request(struct sbx_http_transfer *transfer, const struct sbx_http_request *request)
{
    struct sbx_http_peer *peer = &transfer->peer;
    const char **texts[] = {&peer->ca, &peer->certificate, &peer->key, &peer->server_name,
                            &peer->proxy, &peer->socket};
    for (size_t each = 0; each < sizeof texts / sizeof texts[0]; each++) {
        if (*texts[each] == NULL)
            continue;
        transfer->copied[each] = sbx_copy(*texts[each]);
        if (transfer->copied[each] == NULL)
            return false;
        *texts[each] = transfer->copied[each];
    }
    if (request->body == NULL)
        return true;
    transfer->body = sbx_copy_bytes(request->body, request->body_size);
    return transfer->body != NULL;
}

static sandbox_status set_up(struct sbx_http_transfer *transfer,
                             const struct sbx_http_request *request, sandbox_error *error)
{
    sandbox_status status =
        sbx_http_dress(transfer->easy, &transfer->peer, request->url, &transfer->kept, error);
    if (status != SANDBOX_OK)
        return status;
    if (!set_headers(transfer, request) || !set_request(transfer, request) ||
        !set_callbacks(transfer))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
    return SANDBOX_OK;
}

/* How the server is reached. Nothing of the host process's own is used: no netrc, no cookies. */
static bool set_way(CURL *easy, const struct sbx_http_peer *peer)
{
    bool set = curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_USERAGENT, "libsandbox/" SANDBOX_VERSION) == CURLE_OK;
    if (set && peer->proxy != NULL) {
        /* What was configured goes before the environment, its exceptions too. */
        set = curl_easy_setopt(easy, CURLOPT_PROXY, peer->proxy) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_NOPROXY, "") == CURLE_OK;
    }
    if (set && peer->socket != NULL)
        set = curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, peer->socket) == CURLE_OK;
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, KEEP_ALIVE_SECONDS);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, KEEP_ALIVE_SECONDS / 2);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    /* A name server that does not answer must not hold up the thread when a transfer ends. */
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    return set;
}

/* With a CA of its own a cluster is known by that one alone, and not by the system's too. */
static bool set_trust(CURL *easy, const struct sbx_http_peer *peer)
{
    if (peer->insecure) {
        curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
    } else if (peer->ca != NULL) {
        curl_easy_setopt(easy, CURLOPT_CAINFO, NULL);
        curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
        if (!set_blob(easy, CURLOPT_CAINFO_BLOB, peer->ca))
            return false;
    }
    return (peer->certificate == NULL || set_blob(easy, CURLOPT_SSLCERT_BLOB, peer->certificate)) &&
           (peer->key == NULL || set_blob(easy, CURLOPT_SSLKEY_BLOB, peer->key));
}

static bool set_blob(CURL *easy, CURLoption option, const char *text)
{
    struct curl_blob blob = {(void *)(uintptr_t)text, strlen(text), CURL_BLOB_NOCOPY};
    return curl_easy_setopt(easy, option, &blob) == CURLE_OK;
}

static void free_parts(CURLU **parts)
{
    curl_url_cleanup(*parts);
}

static void free_curl_text(char **text)
{
    curl_free(*text);
}

static sandbox_status set_url(CURL *easy, const struct sbx_http_peer *peer, const char *url,
                              struct curl_slist **kept, sandbox_error *error)
{
    SBX_ON_EXIT(free_parts) CURLU *parts = curl_url();
    if (parts == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a URL");
    if (curl_url_set(parts, CURLUPART_URL, url, CURLU_PATH_AS_IS) != CURLUE_OK)
        return sbx_fail_for(error, SANDBOX_INVALID, "bad-url", "'%s' is no URL", url);

    SBX_ON_EXIT(free_curl_text) char *scheme = NULL;
    bool is_plain = curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                    strcmp(scheme, "http") == 0;
    /*
     * Without TLS nothing tells HTTP/2 ahead. With it requests wait for the first connection, to
     * share it if it can be shared.
     */
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION,
                     is_plain ? (long)CURL_HTTP_VERSION_1_1 : (long)CURL_HTTP_VERSION_2TLS);
    curl_easy_setopt(easy, CURLOPT_PIPEWAIT, is_plain ? 0L : 1L);

    bool set = peer->server_name == NULL || is_plain
                   ? curl_easy_setopt(easy, CURLOPT_URL, url) == CURLE_OK
                   : redirect(easy, parts, peer->server_name, kept);
    return set ? SANDBOX_OK : sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a URL");
}

/* The URL names the server as its certificate does; the connection goes where it always went. */
static bool redirect(CURL *easy, CURLU *parts, const char *server_name, struct curl_slist **kept)
{
    SBX_ON_EXIT(free_curl_text) char *host = NULL;
    SBX_ON_EXIT(free_curl_text) char *port = NULL;
    SBX_ON_EXIT(free_curl_text) char *url = NULL;
    if (curl_url_get(parts, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) != CURLUE_OK ||
        curl_url_set(parts, CURLUPART_HOST, server_name, 0) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_URL, &url, 0) != CURLUE_OK)
        return false;
    SBX_ON_EXIT(sbx_free_text) char *way = sbx_format("::%s:%s", host, port);
    *kept = way == NULL ? NULL : curl_slist_append(NULL, way);
    return *kept != NULL && curl_easy_setopt(easy, CURLOPT_CONNECT_TO, *kept) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_URL, url) == CURLE_OK;
}

static bool add_header(struct sbx_http_transfer *transfer, const char *header)
{
    struct curl_slist *longer = curl_slist_append(transfer->headers, header);
    if (longer != NULL)
        transfer->headers = longer;
    return longer != NULL;
}

/* The server is called what its URL says, whatever its certificate says. */
static bool add_host(struct sbx_http_transfer *transfer, const char *url)
{
    size_t size;
    const char *host = sbx_http_authority(url, &size);
    SBX_ON_EXIT(sbx_free_text) char *header = sbx_format("Host: %.*s", (int)size, host);
    return header != NULL && add_header(transfer, header);
}

static bool set_headers(struct sbx_http_transfer *transfer, const struct sbx_http_request *request)
{
    /* No round trip to ask whether a body may come. */
    if (!add_header(transfer, "Expect:"))
        return false;
    if (transfer->peer.server_name != NULL && !add_host(transfer, request->url))
        return false;
    for (const char *const *each = request->headers; each != NULL && *each != NULL; each++) {
        if (!add_header(transfer, *each))
            return false;
    }
    return curl_easy_setopt(transfer->easy, CURLOPT_HTTPHEADER, transfer->headers) == CURLE_OK;
}

static bool set_request(struct sbx_http_transfer *transfer, const struct sbx_http_request *request)
{
    CURL *easy = transfer->easy;
    const void *body = transfer->body != NULL ? transfer->body : request->body;
    if (request->on_fresh_connection)
        curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    if (body != NULL) {
        curl_easy_setopt(easy, CURLOPT_POST, 1L);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)transfer->body_size);
    }
    return curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method) == CURLE_OK;
}

static bool set_callbacks(struct sbx_http_transfer *transfer)
{
    CURL *easy = transfer->easy;
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, before_request);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, transfer);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, transfer);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->trouble);
    return curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer) == CURLE_OK;
}

static curl_socket_t open_socket(void *user_data, curlsocktype purpose,
                                 struct curl_sockaddr *address)
{
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    unsigned most = UNANSWERED_MS;
    if (fd >= 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &most, sizeof most);
    return fd < 0 ? CURL_SOCKET_BAD : fd;
}

/*
 * libcurl sends a request a second time, even a POST, where a connection from its pool ends before
 * an answer. Whether that is right only our caller knows.
 */
static int before_request(void *user_data, char *their_address, char *our_address, int their_port,
                          int our_port)
{
    struct sbx_http_transfer *transfer = user_data;
    if (transfer->sent)
        return CURL_PREREQFUNC_ABORT;
    transfer->sent = true;
    return CURL_PREREQFUNC_OK;
}

static void note_heard(struct sbx_http_transfer *transfer)
{
    if (transfer->silent_ms > 0)
        transfer->heard_at_ms = sbx_clock_monotonic(&sbx_system_clock);
}

/* The value of the header if it is the one of that name ("name:"). */
static bool read_header(const char *line, size_t size, const char *name, char *value,
                        size_t value_size)
{
    size_t skip = strlen(name);
    if (size < skip || strncasecmp(line, name, skip) != 0)
        return false;
    while (skip < size && (line[skip] == ' ' || line[skip] == '\t'))
        skip++;
    while (size > skip && (unsigned char)line[size - 1] <= ' ')
        size--;
    snprintf(value, value_size, "%.*s", (int)(size - skip), line + skip);
    return true;
}

/* Seconds, or a date. */
static int64_t read_retry_after(const char *value)
{
    int64_t seconds = 0;
    if (value[0] != '\0' && strspn(value, "0123456789") == strlen(value)) {
        seconds = strtoll(value, NULL, 10);
    } else {
        time_t date = curl_getdate(value, NULL);
        if (date < 0)
            return -1;
        seconds = (int64_t)date - sbx_clock_wall(&sbx_system_clock) / 1000;
    }
    if (seconds < 0)
        seconds = 0;
    return 1000 * (seconds > RETRY_AFTER_MAX_S ? RETRY_AFTER_MAX_S : seconds);
}

static size_t take_header(char *data, size_t one, size_t size, void *user_data)
{
    struct sbx_http_transfer *transfer = user_data;
    struct sbx_http_answer *answer = &transfer->answer;
    char value[128];
    note_heard(transfer);
    transfer->header_bytes += size;
    if (transfer->header_bytes > HEADER_BYTES_MAX) {
        transfer->too_large = true;
        return 0;
    }
    if (size > 5 && memcmp(data, "HTTP/", 5) == 0) {
        answer->content_type[0] = '\0';
        answer->retry_after_ms = -1;
    } else if (read_header(data, size, "content-type:", value, sizeof value)) {
        snprintf(answer->content_type, sizeof answer->content_type, "%.95s", value);
    } else if (read_header(data, size, "retry-after:", value, sizeof value)) {
        answer->retry_after_ms = read_retry_after(value);
    }
    return size;
}

static size_t take_body(char *data, size_t one, size_t size, void *user_data)
{
    struct sbx_http_transfer *transfer = user_data;
    note_heard(transfer);
    long code = 0;
    if (transfer->piece != NULL)
        curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &code);
    if (code >= 200 && code < 300) {
        transfer->cut = !transfer->piece(transfer->user_data, data, size);
        return transfer->cut ? 0 : size;
    }
    struct sbx_bytes *body = &transfer->answer.body;
    transfer->too_large = size > body->limit - sbx_bytes_size(body);
    if (transfer->too_large)
        return 0;
    transfer->no_memory = !sbx_bytes_append(body, data, size);
    return transfer->no_memory ? 0 : size;
}
