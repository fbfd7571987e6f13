/*
 * What is to be done with a request, and what goes to the server in its place.
 *
 * A request is a tunnel (CONNECT HOST:443), a plain one (http://HOST/… of a host that the policy
 * has in "http", port 80) or one on a credential route (/https/HOST/…). Everything else is refused.
 * The order is fixed: shape, then host and port, then what the policy says; so a refusal for a host
 * tells nothing about the policy of another.
 *
 * Pure functions.
 */
#ifndef SBX_EGRESS_REQUEST_H
#define SBX_EGRESS_REQUEST_H

#include "egress/head.h"
#include "egress/host.h"
#include "egress/policy.h"

enum sbx_egress_kind {
    SBX_EGRESS_NONE, /* refused before its kind was known */
    SBX_EGRESS_CONNECT,
    SBX_EGRESS_HTTP,
    SBX_EGRESS_ROUTE,
};

/* "none", "connect", "http" or "route": for logs and metrics. Static. */
const char *sbx_egress_kind_name(enum sbx_egress_kind kind);

struct sbx_egress_request {
    enum sbx_egress_kind kind;   /* also of a refused one, as far as it was read */
    struct sbx_egress_host host; /* likewise; `size` is 0 where none was read */
    uint16_t port;               /* likewise; 443, or 80 of a plain one */
    /* What to ask the server for, byte for byte as it came: "/path?query", or "*". Points into the
       head, or is static. Nothing may normalise it (with curl: CURLOPT_PATH_AS_IS). */
    struct sbx_egress_text path;
};

/*
 * Reads and judges. The name is not resolved yet: the addresses are to be judged too.
 *
 * @param out      always written, as far as it was read
 * @param refusal  written when it is refused
 * @return whether it may go on
 */
bool sbx_egress_request_judge(const struct sbx_egress_head *head,
                              const struct sbx_egress_policy *policy,
                              struct sbx_egress_request *out, struct sbx_egress_refusal *refusal);

/*
 * The fields that go to the server. Hop-by-hop fields and those that Connection names are gone
 * before rules are matched. Host comes first, made from the request's host.
 *
 * For a plain request, framing follows: Content-Length or Transfer-Encoding: chunked as
 * `head->body` says (trailers are to be dropped), and Connection: close.
 *
 * For a route, whoever sends it frames it. Rules have set their values; where the host has any
 * rule, Accept-Encoding is identity, Range and If-Range are gone, and the answer is to be scrubbed
 * (scrub.h). The values stand in locked memory.
 */
struct sbx_egress_fields;

/*
 * @param head     the one that was judged
 * @param out      written on true; free it with sbx_egress_fields_free()
 * @param refusal  written on false: a credential's field is named by Connection, a path that a rule
 *                 would match has two readings, or (503) no locked memory is left
 */
bool sbx_egress_fields_make(const struct sbx_egress_head *head,
                            const struct sbx_egress_request *request,
                            const struct sbx_egress_policy *policy, struct sbx_egress_fields **out,
                            struct sbx_egress_refusal *refusal);
void sbx_egress_fields_free(struct sbx_egress_fields *fields); /* wipes; NULL allowed */

size_t sbx_egress_fields_count(const struct sbx_egress_fields *fields);
/* "Name: value", without CRLF; "Name:" for an empty value. Borrowed. */
const char *sbx_egress_fields_at(const struct sbx_egress_fields *fields, size_t index);
/* How many rules have put a value in. */
size_t sbx_egress_fields_rules(const struct sbx_egress_fields *fields);

/* Of a plain request: the whole head that goes to the server. False: no memory or over the limit.
 */
bool sbx_egress_head_write(const struct sbx_egress_head *head,
                           const struct sbx_egress_request *request,
                           const struct sbx_egress_fields *fields, struct sbx_bytes *out);

#endif
