/* What curl is told about a request: see exchange_parts.h. */

#include "exchange_parts.h"
#include "own.h"
#include "settings.h"
#include "util/memory.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define PLACE_TEXT (ADDRESS_TEXT + 2)

#define SETTING(option, value)                                                                     \
    (curl_door.easy_setopt(exchange->easy, (option), (value)) == CURLE_OK)

static bool set_target(struct exchange *exchange, bool over_tls);
static bool set_way(struct exchange *exchange);
static bool set_addresses(struct exchange *exchange);
static bool set_proxy(struct exchange *exchange);
static bool add_authorization(struct exchange *exchange);
static void print_place(const union address *address, char text[PLACE_TEXT]);
static bool set_trust(struct exchange *exchange);
static bool set_body(struct exchange *exchange);
static bool set_fields(struct exchange *exchange);
static bool add_guests(struct exchange *exchange, const char *field);
static bool add_field(struct curl_slist **list, const char *field);
static bool set_functions(struct exchange *exchange);
static curl_socket_t open_socket(void *unused, curlsocktype purpose, struct curl_sockaddr *to);

bool exchange_set_up(struct exchange *exchange)
{
    bool over_tls = exchange->connection->kind == KIND_ROUTE;
    exchange->easy = exchanges_take(exchange->home);
    return exchange->easy != NULL && set_target(exchange, over_tls) && set_way(exchange) &&
           set_trust(exchange) && set_body(exchange) && set_fields(exchange) &&
           set_functions(exchange);
}

/* The path goes out byte for byte as it came in. */
static bool set_target(struct exchange *exchange, bool over_tls)
{
    bool is_v6 = exchange->host.is_literal && exchange->host.address.size == 16;
    SBX_ON_EXIT(sbx_free_text)
    char *url = sbx_format("%s://%s%s%s:%u/", over_tls ? "https" : "http", is_v6 ? "[" : "",
                           exchange->host.name, is_v6 ? "]" : "", exchange->connection->port);
    return url != NULL && SETTING(CURLOPT_URL, url) &&
           SETTING(CURLOPT_PROTOCOLS_STR, over_tls ? "https" : "http") &&
           SETTING(CURLOPT_REQUEST_TARGET, exchange->path) && SETTING(CURLOPT_PATH_AS_IS, 1L) &&
           SETTING(CURLOPT_FOLLOWLOCATION, 0L) &&
           SETTING(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
}

/* Only to the addresses that were judged, directly or through the operator's proxy. */
static bool set_way(struct exchange *exchange)
{
    return settings.has_upstream_proxy ? set_proxy(exchange) : set_addresses(exchange);
}

static bool set_addresses(struct exchange *exchange)
{
    char place[PLACE_TEXT];
    const struct lookup *lookup = exchange->lookup;
    SBX_ON_EXIT(sbx_bytes_free) struct sbx_bytes pin = SBX_BYTES(4096);
    bool whole = sbx_bytes_format(&pin, "%s:%u:", exchange->host.name, lookup->port);
    for (size_t i = 0; i < lookup->count && whole; i++) {
        print_place(&lookup->addresses[i], place);
        whole = sbx_bytes_format(&pin, "%s%s", i == 0 ? "" : ",", place);
    }
    return whole && sbx_bytes_append(&pin, "", 1) &&
           add_field(&exchange->pinned, (const char *)sbx_bytes_data(&pin)) &&
           SETTING(CURLOPT_PROXY, "") &&
           (exchange->host.is_literal || SETTING(CURLOPT_RESOLVE, exchange->pinned));
}

/* It is asked for the address, so that a name cannot lead it elsewhere. */
static bool set_proxy(struct exchange *exchange)
{
    char place[PLACE_TEXT];
    print_place(&exchange->lookup->addresses[0], place);
    SBX_ON_EXIT(sbx_free_text) char *pin = sbx_format("::%s:", place);
    print_place(&settings.upstream_proxy, place);
    bool is_v6 = settings.upstream_proxy.any.sa_family == AF_INET6;
    SBX_ON_EXIT(sbx_free_text)
    char *url = sbx_format(
        "http://%s:%u", place,
        ntohs(is_v6 ? settings.upstream_proxy.v6.sin6_port : settings.upstream_proxy.v4.sin_port));
    if (pin == NULL || url == NULL || !add_field(&exchange->pinned, pin) ||
        !add_authorization(exchange))
        return false;
    return SETTING(CURLOPT_PROXY, url) && SETTING(CURLOPT_NOPROXY, "") &&
           SETTING(CURLOPT_HTTPPROXYTUNNEL, 1L) && SETTING(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L) &&
           SETTING(CURLOPT_CONNECT_TO, exchange->pinned) &&
           SETTING(CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE) &&
           SETTING(CURLOPT_PROXYHEADER, exchange->proxy_fields);
}

/* What is for the operator's proxy goes to it alone. */
static bool add_authorization(struct exchange *exchange)
{
    if (settings.upstream_authorization == NULL)
        return true;
    SBX_ON_EXIT(sbx_secret_free_text)
    char *field = sbx_format("Proxy-Authorization: %s", settings.upstream_authorization);
    return field != NULL && add_field(&exchange->proxy_fields, field);
}

/* In brackets where it needs them. */
static void print_place(const union address *address, char text[PLACE_TEXT])
{
    char plain[ADDRESS_TEXT];
    bool is_v6 = address->any.sa_family == AF_INET6;
    address_print(address, plain);
    snprintf(text, PLACE_TEXT, "%s%s%s", is_v6 ? "[" : "", plain, is_v6 ? "]" : "");
}

static bool set_trust(struct exchange *exchange)
{
    return SETTING(CURLOPT_SSL_VERIFYPEER, 1L) && SETTING(CURLOPT_SSL_VERIFYHOST, 2L) &&
           SETTING(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) &&
           (settings.ca_file == NULL || SETTING(CURLOPT_CAINFO, settings.ca_file));
}

static bool set_body(struct exchange *exchange)
{
    if (exchange->is_head)
        return SETTING(CURLOPT_NOBODY, 1L);
    if (exchange->body != SBX_EGRESS_BODY_NONE && !SETTING(CURLOPT_UPLOAD, 1L))
        return false;
    if (exchange->body == SBX_EGRESS_BODY_LENGTH &&
        !SETTING(CURLOPT_INFILESIZE_LARGE,
                 (curl_off_t)(exchange->body_left + sbx_bytes_size(&exchange->upload))))
        return false;
    return SETTING(CURLOPT_CUSTOMREQUEST, exchange->method) &&
           SETTING(CURLOPT_UPLOAD_BUFFERSIZE, (long)PIECE_BYTES);
}

/* What curl would put in by itself is taken out, and what it frames is not given twice. */
static bool set_fields(struct exchange *exchange)
{
    static const char *const left_out[] = {
        "content-length:", "transfer-encoding:", "connection:", "expect:", "accept-encoding:"};
    bool accepts = false, whole = add_field(&exchange->fields, "Expect:");
    for (size_t i = 0; i < sbx_egress_fields_count(exchange->made) && whole; i++) {
        const char *field = sbx_egress_fields_at(exchange->made, i);
        bool skip = false;
        accepts = accepts || strncasecmp(field, "accept:", 7) == 0;
        for (size_t k = 0; k < sizeof left_out / sizeof left_out[0]; k++)
            skip = skip || strncasecmp(field, left_out[k], strlen(left_out[k])) == 0;
        if (strncasecmp(field, "accept-encoding:", 16) == 0)
            skip = exchange->scrub != NULL;
        if (!skip)
            whole = add_guests(exchange, field);
    }
    sbx_egress_fields_free(sbx_take(exchange->made));
    if (whole && !accepts)
        whole = add_field(&exchange->fields, "Accept:");
    bool silent = exchange->body == SBX_EGRESS_BODY_NONE;
    if (whole && silent && strcmp(exchange->method, "GET") != 0 && !exchange->is_head)
        whole = add_field(&exchange->fields, "Content-Length: 0");
    /* Asks for none, and decodes what comes all the same. */
    if (whole && exchange->scrub != NULL)
        whole = SETTING(CURLOPT_ACCEPT_ENCODING, "identity");
    return whole && SETTING(CURLOPT_HTTPHEADER, exchange->fields);
}

/* A field without a value is spelt with ';' for curl: with ':' it would take one out. */
static bool add_guests(struct exchange *exchange, const char *field)
{
    size_t size = strlen(field);
    if (field[size - 1] != ':')
        return add_field(&exchange->fields, field);
    SBX_ON_EXIT(sbx_free_text) char *empty = sbx_format("%.*s;", (int)(size - 1), field);
    return empty != NULL && add_field(&exchange->fields, empty);
}

static bool add_field(struct curl_slist **list, const char *field)
{
    struct curl_slist *longer = curl_door.slist_append(*list, field);
    if (longer == NULL)
        return false;
    *list = longer;
    return true;
}

static bool set_functions(struct exchange *exchange)
{
    return SETTING(CURLOPT_READFUNCTION, exchange_give_body) &&
           SETTING(CURLOPT_READDATA, exchange) &&
           SETTING(CURLOPT_HEADERFUNCTION, exchange_take_line) &&
           SETTING(CURLOPT_HEADERDATA, exchange) &&
           SETTING(CURLOPT_WRITEFUNCTION, exchange_take_piece) &&
           SETTING(CURLOPT_WRITEDATA, exchange) && SETTING(CURLOPT_PRIVATE, exchange) &&
           SETTING(CURLOPT_OPENSOCKETFUNCTION, open_socket) &&
           SETTING(CURLOPT_CONNECTTIMEOUT_MS, (long)settings.timeout_ms[DEADLINE_CONNECT]) &&
           SETTING(CURLOPT_NOSIGNAL, 1L) && SETTING(CURLOPT_BUFFERSIZE, (long)ANSWER_PIECE) &&
           SETTING(CURLOPT_FORBID_REUSE, exchange->connection->kind == KIND_ROUTE ? 0L : 1L);
}

/* The last word on where a connection goes, whatever led there. */
static curl_socket_t open_socket(void *unused, curlsocktype purpose, struct curl_sockaddr *to)
{
    union address address = {.any = {0}};
    if (to->addrlen > sizeof address)
        return CURL_SOCKET_BAD;
    memcpy(&address, &to->addr, to->addrlen);
    bool open = settings.has_upstream_proxy ? address_same(&address, &settings.upstream_proxy)
                                            : own_address_is_open(&address);
    return open ? socket(to->family, to->socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, to->protocol)
                : CURL_SOCKET_BAD;
}
