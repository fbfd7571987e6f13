/*
 * What the driver may have to do to a cluster, verb by verb: the role that `sandbox manifests gke`
 * makes, and what `sandbox doctor` asks about, so that the two never differ.
 */

#include "drivers/gke/doctor.h"

const struct sbx_gke_right sbx_gke_rights[] = {
    {&sbx_gke_claims, "", {"get", "list", "watch", "create", "patch", "delete"}},
    {&sbx_gke_sandboxes, "", {"get", "list", "watch", "patch"}},
    {&sbx_gke_pools, "", {"get"}},
    {&sbx_gke_templates, "", {"get"}},
    {&sbx_gke_pods, "", {"get", "list", "watch", "delete"}},
    /* A WebSocket's handshake is a GET; from Kubernetes 1.35 on it must be allowed to create too.
     */
    {&sbx_gke_pods, "exec", {"get", "create"}},
    {&sbx_gke_events, "", {"list"}},
    {&sbx_gke_config_maps, "", {"get", "list", "create", "patch", "delete"}},
    {&sbx_gke_secrets, "", {"get", "create"}},
    {&sbx_gke_triggers, "", {"get", "list", "watch", "create", "delete"}},
    {&sbx_gke_snapshots, "", {"get", "list", "watch", "delete"}},
    {&sbx_gke_policies, "", {"get", "list"}},
    {&sbx_gke_storages, "", {"get"}},
    {0},
};

const struct sbx_resource sbx_gke_events = {"", "v1", "events", "Event", false};
/* These are looked at only. */
const struct sbx_resource sbx_gke_networks = {"networking.k8s.io", "v1", "networkpolicies",
                                              "NetworkPolicy", false};
const struct sbx_resource sbx_gke_nodes = {"", "v1", "nodes", "Node", true};
const struct sbx_resource sbx_gke_accounts = {"", "v1", "serviceaccounts", "ServiceAccount", false};
const struct sbx_resource sbx_gke_runtimes = {"node.k8s.io", "v1", "runtimeclasses", "RuntimeClass",
                                              true};
const struct sbx_resource sbx_gke_deployments = {"apps", "v1", "deployments", "Deployment", false};
