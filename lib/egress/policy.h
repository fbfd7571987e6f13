/*
 * What one workspace may reach, and the rules that put its credentials in.
 *
 * A policy is immutable: a change makes a new one from the old and puts nothing in force if it is
 * wrong in any part. Policies are counted, so that what is under way ends under the one that it
 * began with; any thread may read one.
 */
#ifndef SBX_EGRESS_POLICY_H
#define SBX_EGRESS_POLICY_H

#include "egress/client_hello.h"
#include "egress/host.h"
#include "egress/rules.h"

struct sbx_egress_policy;

/*
 * One that allows nothing and has no rule.
 *
 * @param key  copied: for the digests of rules
 * @return NULL: no memory
 */
struct sbx_egress_policy *sbx_egress_policy_new(const uint8_t key[SBX_EGRESS_DIGEST_KEY]);
struct sbx_egress_policy *sbx_egress_policy_keep(struct sbx_egress_policy *policy);
void sbx_egress_policy_drop(struct sbx_egress_policy *policy); /* NULL allowed */

/* The admin API's JSON for a policy, each part NULL where it is not given. Borrowed. */
struct sbx_egress_change {
    const cJSON *policy; /* {"mode", "allow", "http", "cidrs", "ech"}: instead of the old */
    const cJSON *transformations; /* […]: instead of the old */
    const cJSON *add;             /* {"allow", "http", "transformations"}: in addition */
};

/*
 * The old policy with a change. "policy" and "transformations" do not touch each other, whichever
 * is given first; "add" comes after both. Hosts added to deny-all make it custom.
 *
 * @param old  not changed
 * @param out  written on SANDBOX_OK; drop it with sbx_egress_policy_drop()
 * @return SANDBOX_OK, SANDBOX_INVALID (one sentence that names the member), SANDBOX_UNSUPPORTED
 * with the reason "cidrs-unsupported", SANDBOX_LIMIT or SANDBOX_NO_MEMORY
 */
sandbox_status sbx_egress_policy_change(const struct sbx_egress_policy *old,
                                        const struct sbx_egress_change *change,
                                        struct sbx_egress_policy **out, sandbox_error *error);

/*
 * The admin API's body as JSON. Refused besides what is no JSON: more than `limit` bytes, an object
 * with one member twice, and NUL in any text, which C would cut it at.
 *
 * @param out  free it with sbx_secret_free_json()
 */
sandbox_status sbx_egress_json_parse(const void *text, size_t size, size_t limit, cJSON **out,
                                     sandbox_error *error);
/*
 * Whether an object has no member but these.
 *
 * @param what  of the sentence: "'colour' is no member of WHAT"
 */
sandbox_status sbx_egress_json_members(const cJSON *object, const char *what,
                                       const char *const *names, size_t count,
                                       sandbox_error *error);

/* Tunnels and routes. */
bool sbx_egress_policy_allows(const struct sbx_egress_policy *policy,
                              const struct sbx_egress_host *host);
/* Plain HTTP. */
bool sbx_egress_policy_allows_http(const struct sbx_egress_policy *policy,
                                   const struct sbx_egress_host *host);
enum sbx_egress_ech sbx_egress_policy_ech(const struct sbx_egress_policy *policy);

size_t sbx_egress_policy_rule_count(const struct sbx_egress_policy *policy);
const struct sbx_egress_rule *sbx_egress_policy_rule_at(const struct sbx_egress_policy *policy,
                                                        size_t index);

/* {"mode", "allow", "http", "ech"}, as settled. NULL: no memory. */
cJSON *sbx_egress_policy_tell(const struct sbx_egress_policy *policy);
/* [{"host", "headers", "digest"}, …]. NULL: no memory. */
cJSON *sbx_egress_policy_tell_rules(const struct sbx_egress_policy *policy);

#endif
