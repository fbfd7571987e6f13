/*
 * A refusal: what the guest is told, what metrics count and the log carries.
 */
#ifndef SBX_EGRESS_REFUSAL_H
#define SBX_EGRESS_REFUSAL_H

#include "util/bytes.h"

/* The reasons that the engine gives; the program has more. Stable words. */
#define SBX_EGRESS_BAD_REQUEST     "bad-request"
#define SBX_EGRESS_HOST_REFUSED    "host-not-allowed"
#define SBX_EGRESS_PORT_REFUSED    "port-not-allowed"
#define SBX_EGRESS_PRIVATE_ADDRESS "private-address"
#define SBX_EGRESS_UPGRADE         "upgrade"
#define SBX_EGRESS_NO_SNI          "no-sni"
#define SBX_EGRESS_SNI_MISMATCH    "sni-mismatch"
#define SBX_EGRESS_ECH             "ech"
#define SBX_EGRESS_NOT_TLS         "not-tls"
#define SBX_EGRESS_BAD_HELLO       "bad-hello"
/* Those of the admin API alone, in `reason` of an error; it has "bad-request", too. */
#define SBX_EGRESS_TOO_LARGE "too-large"
#define SBX_EGRESS_LIMIT     "limit"
#define SBX_EGRESS_NO_RANGES "cidrs-unsupported"

struct sbx_egress_refusal {
    int status;         /* of HTTP; 0 for a tunnel, which is closed without a word */
    const char *reason; /* static */
    char text[400];     /* one line of ASCII: no address, no secret, of the request only a host */
};

/* Fills one in. The text is cut where it is too long, and bytes that are no visible ASCII become
 * '?'. */
void sbx_egress_refuse(struct sbx_egress_refusal *refusal, int status, const char *reason,
                       const char *format, ...) __attribute__((format(printf, 4, 5)));

/*
 * The whole answer: status line, X-Proxy-Error, the text and how it may be allowed as the body,
 * Connection: close.
 *
 * @return false: no memory, or over the limit of `out` (2 KiB are enough)
 */
bool sbx_egress_refusal_write(const struct sbx_egress_refusal *refusal, struct sbx_bytes *out);

#endif
