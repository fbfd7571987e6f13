/* What policy.c and policy_change.c share: how a policy stands in memory. */
#ifndef SBX_EGRESS_POLICY_PARTS_H
#define SBX_EGRESS_POLICY_PARTS_H

#include "egress/policy.h"

#include <stdatomic.h>

enum egress_mode { MODE_CUSTOM, MODE_ALLOW_ALL, MODE_DENY_ALL };

struct sbx_egress_policy {
    atomic_uint references;
    enum egress_mode mode;
    enum sbx_egress_ech ech;
    struct sbx_egress_hosts *allow;
    struct sbx_egress_hosts *http;
    struct sbx_egress_rule **rules; /* kept */
    size_t rule_count;
    uint8_t key[SBX_EGRESS_DIGEST_KEY];
};

#endif
