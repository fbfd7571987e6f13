/* What is counted, and how it is told. No workspace's id: that would be one series each. */
#ifndef EGRESS_METRICS_H
#define EGRESS_METRICS_H

#include "ring.h"
#include "util/bytes.h"

struct metrics {
    uint64_t connections, tunnels; /* open now */
    uint64_t connections_total, credentials_total;
    uint64_t requests_total[KIND_COUNT];
    uint64_t refused_total[REASON_COUNT];
    uint64_t bytes_up, bytes_down;
};

extern struct metrics metrics;

bool metrics_print(struct sbx_bytes *out);

#endif
