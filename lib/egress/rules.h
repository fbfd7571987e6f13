/*
 * Rules put real credentials into requests on a credential route: when all of "match" holds, every
 * field of each name in "set" is removed and one with the value is put in. All rules that match
 * apply, in their order; of two that set one field the later holds. No rule sees what another has
 * set.
 *
 * A rule has exactly one host, never a pattern. Regular expressions are POSIX extended ones (the C
 * library's), over the whole text, of at most 256 bytes and no more than 1,000 signs once their
 * repetitions are written out, without back references, so that none takes long or much memory;
 * texts over 4 KiB match none.
 *
 * Rules are immutable and counted; any thread may read them. Values, and the placeholders that they
 * are put in for, stand in locked memory.
 */
#ifndef SBX_EGRESS_RULES_H
#define SBX_EGRESS_RULES_H

#include "egress/head.h"
#include "egress/host.h"
#include <cjson/cJSON.h>
#include <sandbox/error.h>

#define SBX_EGRESS_RULES_MAX   256        /* of one workspace */
#define SBX_EGRESS_MATCHES_MAX 16         /* fields, methods or parameters that one rule matches */
#define SBX_EGRESS_SETS_MAX    16         /* fields that one rule sets */
#define SBX_EGRESS_VALUE_MAX   (8 * 1024) /* bytes of a value */
#define SBX_EGRESS_REGEX_MAX   256
#define SBX_EGRESS_DIGEST_TEXT 13 /* 12 hexadecimal digits and the end */
#define SBX_EGRESS_DIGEST_KEY  32

struct sbx_egress_rule;

/*
 * Reads one of the admin API's transformations: {"match": {"host": …, "method": […], "path": {…},
 * "query": […], "headers": […]}, "set": {NAME: VALUE, …}}.
 *
 * @param key  for the digest: drawn once by the program
 * @return SANDBOX_OK, SANDBOX_INVALID (one sentence that names the member and tells no value),
 *         SANDBOX_LIMIT (no locked memory) or SANDBOX_NO_MEMORY
 */
sandbox_status sbx_egress_rule_read(const cJSON *json, const uint8_t key[SBX_EGRESS_DIGEST_KEY],
                                    struct sbx_egress_rule **out, sandbox_error *error);
struct sbx_egress_rule *sbx_egress_rule_keep(struct sbx_egress_rule *rule);
void sbx_egress_rule_drop(struct sbx_egress_rule *rule); /* the last one wipes; NULL allowed */

const struct sbx_egress_host *sbx_egress_rule_host(const struct sbx_egress_rule *rule);
/* What may be told: {"host": …, "headers": [NAME, …], "digest": …}. NULL: no memory. */
cJSON *sbx_egress_rule_tell(const struct sbx_egress_rule *rule);

/* What rules are matched against: a request without its hop-by-hop fields. */
struct sbx_egress_subject {
    struct sbx_egress_text method;
    struct sbx_egress_text path; /* with the query */
    const struct sbx_egress_field *fields;
    size_t field_count;
};

/* The host is not looked at: the caller has chosen the rule by it. */
bool sbx_egress_rule_matches(const struct sbx_egress_rule *rule,
                             const struct sbx_egress_subject *subject);
bool sbx_egress_rule_has_path(const struct sbx_egress_rule *rule);
/* Whether the rule matches or sets a field of that name. */
bool sbx_egress_rule_uses(const struct sbx_egress_rule *rule, struct sbx_egress_text name);

size_t sbx_egress_rule_set_count(const struct sbx_egress_rule *rule);
struct sbx_egress_field sbx_egress_rule_set_at(const struct sbx_egress_rule *rule, size_t index);
/* What the guest has in place of that value: the exact value that the rule matches in the same
   field, or NULL data. */
struct sbx_egress_text sbx_egress_rule_placeholder(const struct sbx_egress_rule *rule,
                                                   size_t index);

/* Whether a path could be read as another one: dot segments, encoded dots, slashes, backslashes. */
bool sbx_egress_path_is_ambiguous(struct sbx_egress_text path);

#endif
