/* What is counted, and how it is told: see metrics.h. */

#include "metrics.h"
#include "registry.h"
#include <inttypes.h>

struct metrics metrics;

static bool print_one(struct sbx_bytes *out, const char *name, const char *type, const char *help,
                      uint64_t value);
static bool print_head(struct sbx_bytes *out, const char *name, const char *help);

bool metrics_print(struct sbx_bytes *out)
{
    bool whole =
        print_one(out, "workspaces", "gauge", "Registered workspaces.", registry_count()) &&
        print_one(out, "connections", "gauge", "Open connections.", metrics.connections) &&
        print_one(out, "tunnels", "gauge", "Open tunnels.", metrics.tunnels) &&
        print_one(out, "connections_total", "counter", "Connections of registered workspaces.",
                  metrics.connections_total) &&
        print_one(out, "credentials_total", "counter", "Requests that got a credential.",
                  metrics.credentials_total) &&
        print_head(out, "requests_total", "Requests that were allowed.");
    for (int kind = KIND_CONNECT; kind < KIND_COUNT && whole; kind++)
        whole = sbx_bytes_format(out, "sandbox_egress_requests_total{kind=\"%s\"} %" PRIu64 "\n",
                                 kind_word((enum request_kind)kind), metrics.requests_total[kind]);
    whole = whole && print_head(out, "refused_total", "Refusals by reason.");
    for (int reason = 0; reason < REASON_COUNT && whole; reason++)
        whole = sbx_bytes_format(out, "sandbox_egress_refused_total{reason=\"%s\"} %" PRIu64 "\n",
                                 reason_word((enum reason)reason), metrics.refused_total[reason]);
    return whole && print_head(out, "bytes_total", "Bytes carried for workspaces.") &&
           sbx_bytes_format(out,
                            "sandbox_egress_bytes_total{direction=\"up\"} %" PRIu64 "\n"
                            "sandbox_egress_bytes_total{direction=\"down\"} %" PRIu64 "\n",
                            metrics.bytes_up, metrics.bytes_down);
}

static bool print_one(struct sbx_bytes *out, const char *name, const char *type, const char *help,
                      uint64_t value)
{
    return sbx_bytes_format(out,
                            "# HELP sandbox_egress_%s %s\n# TYPE sandbox_egress_%s %s\n"
                            "sandbox_egress_%s %" PRIu64 "\n",
                            name, help, name, type, name, value);
}

static bool print_head(struct sbx_bytes *out, const char *name, const char *help)
{
    return sbx_bytes_format(out, "# HELP sandbox_egress_%s %s\n# TYPE sandbox_egress_%s counter\n",
                            name, help, name);
}
