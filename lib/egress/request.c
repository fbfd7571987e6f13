/* What is to be done with a request. */

#include "egress/request.h"
#include "egress/fields.h"

#include <string.h>
#include <strings.h>

#define HTTPS_PORT 443
#define HTTP_PORT  80

static bool read_request(const struct sbx_egress_head *head, struct sbx_egress_request *out,
                         struct sbx_egress_refusal *refusal);
static bool read_tunnel(const struct sbx_egress_head *head, struct sbx_egress_request *out,
                        struct sbx_egress_refusal *refusal);
static bool read_absolute(const struct sbx_egress_head *head, struct sbx_egress_request *out,
                          struct sbx_egress_refusal *refusal);
static bool read_route(const struct sbx_egress_head *head, struct sbx_egress_request *out,
                       struct sbx_egress_refusal *refusal);
static bool settle_path(const struct sbx_egress_head *head, struct sbx_egress_request *out,
                        struct sbx_egress_refusal *refusal);
static bool check_host_field(const struct sbx_egress_head *head,
                             const struct sbx_egress_request *request,
                             struct sbx_egress_refusal *refusal);
static bool decide(const struct sbx_egress_policy *policy, const struct sbx_egress_request *request,
                   struct sbx_egress_refusal *refusal);
static struct sbx_egress_text split(struct sbx_egress_text text, struct sbx_egress_text *rest);
static bool begins(struct sbx_egress_text text, const char *with);
static bool bad(struct sbx_egress_refusal *refusal, const char *what);

const char *sbx_egress_kind_name(enum sbx_egress_kind kind)
{
    switch (kind) {
    case SBX_EGRESS_CONNECT:
        return "connect";
    case SBX_EGRESS_HTTP:
        return "http";
    case SBX_EGRESS_ROUTE:
        return "route";
    case SBX_EGRESS_NONE:
        break;
    }
    return "none";
}

bool sbx_egress_request_judge(const struct sbx_egress_head *head,
                              const struct sbx_egress_policy *policy,
                              struct sbx_egress_request *out, struct sbx_egress_refusal *refusal)
{
    memset(out, 0, sizeof *out);
    return read_request(head, out, refusal) && check_host_field(head, out, refusal) &&
           decide(policy, out, refusal);
}

static bool read_request(const struct sbx_egress_head *head, struct sbx_egress_request *out,
                         struct sbx_egress_refusal *refusal)
{
    if (sbx_egress_text_is(head->method, "CONNECT"))
        return read_tunnel(head, out, refusal);
    if (begins(head->target, "http://"))
        return read_absolute(head, out, refusal);
    if (begins(head->target, "https://"))
        return bad(refusal, "an https URL goes through a tunnel (CONNECT) or a route "
                            "(/https/HOST/...), not to the proxy as it is");
    if (head->target.size >= 7 && memcmp(head->target.data, "/https/", 7) == 0)
        return read_route(head, out, refusal);
    if (head->target.data[0] == '/' || sbx_egress_text_is(head->target, "*"))
        return bad(refusal, "this proxy has no pages; the only path is /https/HOST/...");
    return bad(refusal, "the target is none that this proxy passes on");
}

static bool read_tunnel(const struct sbx_egress_head *head, struct sbx_egress_request *out,
                        struct sbx_egress_refusal *refusal)
{
    out->kind = SBX_EGRESS_CONNECT;
    if (head->body != SBX_EGRESS_BODY_NONE)
        return bad(refusal, "CONNECT has no body");
    const char *fault =
        sbx_egress_authority_read(head->target.data, head->target.size, 0, &out->host, &out->port);
    return fault == NULL || bad(refusal, fault);
}

static bool read_absolute(const struct sbx_egress_head *head, struct sbx_egress_request *out,
                          struct sbx_egress_refusal *refusal)
{
    struct sbx_egress_text text = {head->target.data + strlen("http://"),
                                   head->target.size - strlen("http://")};
    out->kind = SBX_EGRESS_HTTP;
    struct sbx_egress_text authority = split(text, &out->path);
    const char *fault = sbx_egress_authority_read(authority.data, authority.size, HTTP_PORT,
                                                  &out->host, &out->port);
    if (fault != NULL)
        return bad(refusal, fault);
    return settle_path(head, out, refusal);
}

/* The host is cut out before anything normalises the path: "/https/a/../b/" goes to a. */
static bool read_route(const struct sbx_egress_head *head, struct sbx_egress_request *out,
                       struct sbx_egress_refusal *refusal)
{
    struct sbx_egress_text text = {head->target.data + strlen("/https/"),
                                   head->target.size - strlen("/https/")};
    out->kind = SBX_EGRESS_ROUTE;
    struct sbx_egress_text authority = split(text, &out->path);
    const char *fault = sbx_egress_authority_read(authority.data, authority.size, HTTPS_PORT,
                                                  &out->host, &out->port);
    if (fault != NULL)
        return bad(refusal, fault);
    if (!settle_path(head, out, refusal))
        return false;
    for (size_t i = 0; i < head->field_count; i++) {
        if (!sbx_egress_text_is(head->fields[i].name, "upgrade"))
            continue;
        sbx_egress_refuse(refusal, 501, SBX_EGRESS_UPGRADE,
                          "a route does not change to another protocol");
        return false;
    }
    return true;
}

static bool settle_path(const struct sbx_egress_head *head, struct sbx_egress_request *out,
                        struct sbx_egress_refusal *refusal)
{
    if (out->path.size > 0 && out->path.data[0] != '/')
        return bad(refusal, "a query stands right behind the host, without a '/'");
    if (out->path.size == 0 && sbx_egress_text_is(head->method, "OPTIONS"))
        out->path = (struct sbx_egress_text){"*", 1};
    else if (out->path.size == 0)
        out->path = (struct sbx_egress_text){"/", 1};
    return true;
}

/*
 * It decides nothing. But it has to be a host, and in front of a tunnel the same one, for else the
 * client and the proxy do not speak of the same thing.
 */
static bool check_host_field(const struct sbx_egress_head *head,
                             const struct sbx_egress_request *request,
                             struct sbx_egress_refusal *refusal)
{
    struct sbx_egress_host host;
    uint16_t port = 0;
    if (head->host.data == NULL)
        return true;
    if (sbx_egress_authority_read(head->host.data, head->host.size, request->port, &host, &port) !=
        NULL)
        return bad(refusal, "the Host field is no host");
    if (request->kind == SBX_EGRESS_CONNECT &&
        (!sbx_egress_host_equal(&host, &request->host) || port != request->port))
        return bad(refusal, "the Host field names another host than the tunnel's");
    return true;
}

static bool decide(const struct sbx_egress_policy *policy, const struct sbx_egress_request *request,
                   struct sbx_egress_refusal *refusal)
{
    const struct sbx_egress_host *host = &request->host;
    bool is_plain = request->kind == SBX_EGRESS_HTTP;
    if (host->is_literal) {
        const char *kind = sbx_egress_address_kind(&host->address);
        if (kind != NULL)
            sbx_egress_refuse(refusal, 403, SBX_EGRESS_PRIVATE_ADDRESS,
                              "a %s address was asked for", kind);
        else
            sbx_egress_refuse(refusal, 403, SBX_EGRESS_HOST_REFUSED,
                              "an address was asked for; only names are allowed");
        return false;
    }
    bool allowed = is_plain ? sbx_egress_policy_allows_http(policy, host)
                            : sbx_egress_policy_allows(policy, host);
    if (!allowed) {
        sbx_egress_refuse(refusal, 403, SBX_EGRESS_HOST_REFUSED, "'%s' is not allowed%s",
                          host->name, is_plain ? " over plain HTTP" : "");
        return false;
    }
    if (request->port != (is_plain ? HTTP_PORT : HTTPS_PORT)) {
        sbx_egress_refuse(refusal, 403, SBX_EGRESS_PORT_REFUSED, "port %u of '%s' is not allowed",
                          (unsigned)request->port, host->name);
        return false;
    }
    return true;
}

/* The authority, and behind it the path with its query: of "host?query" only the query. */
static struct sbx_egress_text split(struct sbx_egress_text text, struct sbx_egress_text *rest)
{
    size_t size = 0;
    while (size < text.size && text.data[size] != '/' && text.data[size] != '?')
        size++;
    *rest = (struct sbx_egress_text){text.data + size, text.size - size};
    return (struct sbx_egress_text){text.data, size};
}

static bool begins(struct sbx_egress_text text, const char *with)
{
    size_t size = strlen(with);
    return text.size >= size && strncasecmp(text.data, with, size) == 0;
}

static bool bad(struct sbx_egress_refusal *refusal, const char *what)
{
    sbx_egress_refuse(refusal, 400, SBX_EGRESS_BAD_REQUEST, "%s", what);
    return false;
}
