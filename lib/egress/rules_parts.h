/* What rules.c and rules_read.c share: how a rule stands in memory. */
#ifndef SBX_EGRESS_RULES_PARTS_H
#define SBX_EGRESS_RULES_PARTS_H

#include "egress/rules.h"

#include <regex.h>
#include <stdatomic.h>

enum egress_match { MATCH_ANY, MATCH_EXACT, MATCH_START, MATCH_REGEX };

struct egress_matcher {
    enum egress_match kind;
    struct sbx_egress_text text;
    regex_t *regex; /* of MATCH_REGEX */
};

/* A parameter or a field. */
struct egress_pair {
    struct sbx_egress_text name;
    struct egress_matcher value;
};

struct sbx_egress_rule {
    atomic_uint references;
    struct sbx_egress_host host;
    char digest[SBX_EGRESS_DIGEST_TEXT];
    struct sbx_egress_text methods[SBX_EGRESS_MATCHES_MAX];
    size_t method_count;
    struct egress_matcher path;
    struct egress_pair queries[SBX_EGRESS_MATCHES_MAX];
    size_t query_count;
    struct egress_pair headers[SBX_EGRESS_MATCHES_MAX];
    size_t header_count;
    struct sbx_egress_field sets[SBX_EGRESS_SETS_MAX];
    size_t set_count;
    /* All texts, in locked memory: for each a letter that says what it is, the text, NUL. */
    char *texts;
    size_t used, room;
};

bool sbx_egress_text_equal(struct sbx_egress_text one, struct sbx_egress_text other);

#endif
