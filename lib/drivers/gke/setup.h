/* What sets a cluster up, and what looks whether it is: manifests and doctor. */
#ifndef SBX_DRIVERS_GKE_SETUP_H
#define SBX_DRIVERS_GKE_SETUP_H

#include "drivers/gke/gke.h"

#define SBX_GKE_POOL_LABEL  "sandbox.users.io/pool" /* on Pods: which policies are theirs */
#define SBX_GKE_CLIENT_LABEL "sandbox.users.io/client" /* on Pods that use channel=pod */
#define SBX_GKE_AGENT       "/sandbox/agent/sandbox-agent"
#define SBX_GKE_PROXY       "sandbox-egress-proxy" /* of all that is the egress proxy's */
#define SBX_GKE_PROXY_SPACE "-egress"              /* after the workspaces' namespace */
#define SBX_GKE_PROXY_LABEL "app.kubernetes.io/name"
#define SBX_GKE_PROXY_PORT  3128
#define SBX_GKE_SPACE_LABEL "kubernetes.io/metadata.name" /* of namespaces, by Kubernetes */
#define SBX_GKE_KEYS_SECRET "sandbox-keys"
#define SBX_GKE_RETENTION   8 /* of the PodSnapshotPolicy: the library removes its own before */

/* ---- rights.c ---- */

struct sbx_gke_right {
    const struct sbx_resource *resource; /* NULL ends the table */
    const char *part;
    const char *verbs[7]; /* ended by NULL */
};

extern const struct sbx_gke_right sbx_gke_rights[];
extern const struct sbx_resource sbx_gke_events;

/* ---- manifests_text.c ---- */

/* One object as it is before it is filled in; `comment` says why it is there. */
struct sbx_gke_manifest {
    const struct sbx_resource *resource; /* NULL ends the table */
    const char *comment, *text;
};

extern const struct sbx_gke_manifest sbx_gke_manifest_texts[];
/* Their places in the table, which is the order of application. */
enum sbx_gke_manifest_place {
    SBX_GKE_OF_SPACE,
    SBX_GKE_OF_CLIENT,
    SBX_GKE_OF_ROLE,
    SBX_GKE_OF_BINDING,
    SBX_GKE_OF_CLUSTER_ROLE,
    SBX_GKE_OF_CLUSTER_BINDING,
    SBX_GKE_OF_ACCOUNT,
    SBX_GKE_OF_NETWORK,
    SBX_GKE_OF_PROXY_SPACE,
    SBX_GKE_OF_PROXY_NETWORK,
    SBX_GKE_OF_PROXY_SERVICE,
    SBX_GKE_OF_PROXY,
    SBX_GKE_OF_CLASS,
    SBX_GKE_OF_STORAGE,
    SBX_GKE_OF_POLICY,
    SBX_GKE_OF_TEMPLATE,
    SBX_GKE_OF_POOL,
    SBX_GKE_MANIFESTS
};

/* ---- manifests.c ---- */

sandbox_status sbx_gke_manifests(const char *rest, const sandbox_manifests_options *options,
                                 struct sbx_manifests_sink *sink, sandbox_error *error);
sandbox_status sbx_gke_manifests_apply(const char *rest, const sandbox_manifests_options *options,
                                       const struct sbx_wait *wait, struct sbx_manifests_sink *sink,
                                       sandbox_error *error);

#endif
