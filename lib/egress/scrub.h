/*
 * Takes real values out of an answer, wherever its pieces are cut.
 *
 * Looked for is every value that a rule may put in for the host, as it is and in the forms that
 * servers show it in: without its scheme ("Bearer …"), what Basic carries, and all of these in
 * base64 (at any offset, both alphabets), hexadecimal, percent-encoded and with JSON's escapes.
 * Values of fewer than 8 bytes are too common to look for. In place of a value comes the
 * placeholder that the guest has for it, of another form "[removed]"; so lengths change.
 *
 * Held back is only the end of a piece that could be the beginning of a value: an event stream
 * flows. What a server returns in a transformed way (compressed, encrypted, in two answers) cannot
 * be found.
 *
 * One thread at a time for each scrubber. What it knows stands in locked memory.
 */
#ifndef SBX_EGRESS_SCRUB_H
#define SBX_EGRESS_SCRUB_H

#include "egress/policy.h"
#include "util/bytes.h"

#define SBX_EGRESS_SCRUB_MIN 8 /* bytes of the shortest value that is looked for */

struct sbx_egress_scrub;

/*
 * For the answers of one host; NULL: of every host. Copies what it needs of the policy.
 *
 * @param out  on SANDBOX_OK: NULL where the host has no rule, and nothing is to be scrubbed
 * @return SANDBOX_OK, SANDBOX_NO_MEMORY or SANDBOX_LIMIT (no locked memory)
 */
sandbox_status sbx_egress_scrub_new(const struct sbx_egress_policy *policy,
                                    const struct sbx_egress_host *host,
                                    struct sbx_egress_scrub **out, sandbox_error *error);
void sbx_egress_scrub_free(struct sbx_egress_scrub *scrub); /* wipes; NULL allowed */

/*
 * The next piece of a body; appends to `out` what is safe to pass on.
 *
 * @return false: no memory, or over the limit of `out`; then the answer is to be broken off
 */
bool sbx_egress_scrub_feed(struct sbx_egress_scrub *scrub, const void *data, size_t size,
                           struct sbx_bytes *out);
/* The end of a body: appends what was held back. The scrubber begins anew. */
bool sbx_egress_scrub_end(struct sbx_egress_scrub *scrub, struct sbx_bytes *out);
/* One whole text, a field's value for example. Touches nothing of a body in between. */
bool sbx_egress_scrub_text(const struct sbx_egress_scrub *scrub, const void *data, size_t size,
                           struct sbx_bytes *out);
/* Whether a text holds a value that is looked for, in any form. */
bool sbx_egress_scrub_finds(const struct sbx_egress_scrub *scrub, const void *data, size_t size);

#endif
