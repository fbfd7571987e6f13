/*
 * The first message of TLS, as it comes through a tunnel: whether it names the host that the tunnel
 * was asked for. Nothing may go to the server before the verdict.
 *
 * The message is put together over segments and records, within limits, and read whole; what is not
 * exactly one ClientHello with exactly one name is refused, for two readers must not find two names
 * in it. A second ClientHello (after a HelloRetryRequest) is not seen: the server has to compare.
 *
 * One thread at a time for each reader.
 */
#ifndef SBX_EGRESS_CLIENT_HELLO_H
#define SBX_EGRESS_CLIENT_HELLO_H

#include "egress/host.h"
#include "egress/refusal.h"

#define SBX_EGRESS_HELLO_MAX     (32 * 1024) /* bytes of the message */
#define SBX_EGRESS_HELLO_RECORDS 512         /* records that it may come in */
/* Bytes that a reader holds at most, before what comes after the message in the last piece. */
#define SBX_EGRESS_HELLO_HELD (SBX_EGRESS_HELLO_MAX + 5 * SBX_EGRESS_HELLO_RECORDS)

enum sbx_egress_ech {
    SBX_EGRESS_ECH_DENY,
    /* Taken, since browsers always send it; whether it hides another name cannot be seen. */
    SBX_EGRESS_ECH_ALLOW_GREASE,
};

enum sbx_egress_hello_verdict {
    SBX_EGRESS_HELLO_MORE,    /* undecided: read on, within a deadline */
    SBX_EGRESS_HELLO_GOOD,    /* send sbx_egress_hello_data() upstream, then carry bytes */
    SBX_EGRESS_HELLO_REFUSED, /* close: nothing goes upstream */
    SBX_EGRESS_HELLO_NO_MEMORY,
};

struct sbx_egress_hello;

/*
 * @param host  copied: the host of the CONNECT
 * @return NULL: no memory. About 300 bytes; the data is kept in one piece that grows as it comes
 */
struct sbx_egress_hello *sbx_egress_hello_new(const struct sbx_egress_host *host,
                                              enum sbx_egress_ech ech);
void sbx_egress_hello_free(struct sbx_egress_hello *hello); /* NULL allowed */

/*
 * Takes the next bytes of the tunnel, all of them: what follows the message in the same piece is
 * kept with it and not judged. Not to be called any more once the verdict is not MORE.
 *
 * @param refusal  written when it is REFUSED; `status` is 0
 */
enum sbx_egress_hello_verdict sbx_egress_hello_feed(struct sbx_egress_hello *hello,
                                                    const void *data, size_t size,
                                                    struct sbx_egress_refusal *refusal);

/* All that was fed, in order. Borrowed until the next feed or free. */
const uint8_t *sbx_egress_hello_data(const struct sbx_egress_hello *hello, size_t *size);
/* Once it is GOOD: how many of these bytes are the records of the message. */
size_t sbx_egress_hello_used(const struct sbx_egress_hello *hello);

#endif
