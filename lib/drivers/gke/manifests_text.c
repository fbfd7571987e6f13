/* The objects that `sandbox manifests gke` makes, before names and numbers are filled in. */

#include "drivers/gke/setup.h"

static const struct sbx_resource namespaces = {"", "v1", "namespaces", "Namespace", true};
static const struct sbx_resource accounts = {"", "v1", "serviceaccounts", "ServiceAccount", false};
static const struct sbx_resource roles = {"rbac.authorization.k8s.io", "v1", "roles", "Role",
                                          false};
static const struct sbx_resource bindings = {"rbac.authorization.k8s.io", "v1", "rolebindings",
                                             "RoleBinding", false};
static const struct sbx_resource cluster_roles = {"rbac.authorization.k8s.io", "v1", "clusterroles",
                                                  "ClusterRole", true};
static const struct sbx_resource cluster_bindings = {
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", true};
static const struct sbx_resource networks = {"networking.k8s.io", "v1", "networkpolicies",
                                             "NetworkPolicy", false};
static const struct sbx_resource classes = {"cloud.google.com", "v1", "computeclasses",
                                            "ComputeClass", true};

static const char empty[] = "{}";

static const char account_text[] = "automountServiceAccountToken: false\n";

static const char binding_text[] = "roleRef:\n"
                                   "  apiGroup: rbac.authorization.k8s.io\n"
                                   "subjects:\n"
                                   "- kind: ServiceAccount\n";

static const char network_text[] = "spec:\n"
                                   "  podSelector: {matchLabels: {}}\n"
                                   "  policyTypes: [Ingress, Egress]\n"
                                   "  ingress: []\n"
                                   "  egress: []\n";

static const char class_text[] = "spec:\n"
                                 "  priorities: []\n"
                                 "  nodePoolAutoCreation: {enabled: true}\n"
                                 "  whenUnsatisfiable: DoNotScaleUp\n";

static const char policy_text[] = "spec:\n"
                                  "  selector: {matchLabels: {}}\n"
                                  "  triggerConfig: {type: manual, postCheckpoint: resume}\n"
                                  "  snapshotGroupingRules:\n"
                                  "    groupByLabelValue:\n"
                                  "      labels: [agents.x-k8s.io/sandbox-name-hash]\n"
                                  "      groupRetentionPolicy: {}\n";

static const char template_text[] =
    "spec:\n"
    "  networkPolicyManagement: Managed\n"
    "  networkPolicy: {ingress: [], egress: []}\n"
    "  envVarsInjectionPolicy: Disallowed\n"
    "  volumeClaimTemplatesPolicy: Disallowed\n"
    "  podTemplate:\n"
    "    metadata: {labels: {}}\n"
    "    spec:\n"
    "      runtimeClassName: gvisor\n"
    "      nodeSelector: {sandbox.gke.io/runtime: gvisor}\n"
    "      tolerations:\n"
    "      - {key: sandbox.gke.io/runtime, operator: Equal, value: gvisor, effect: NoSchedule}\n"
    "      automountServiceAccountToken: false\n"
    "      enableServiceLinks: false\n"
    "      restartPolicy: Never\n"
    "      terminationGracePeriodSeconds: 10\n"
    "      dnsPolicy: None\n"
    "      dnsConfig: {nameservers: ['127.0.0.1']}\n"
    "      securityContext:\n"
    "        {runAsUser: 1000, runAsGroup: 1000, fsGroup: 1000, runAsNonRoot: true}\n"
    "      initContainers:\n"
    "      - name: agent\n"
    "        command: [/sandbox-agent, install, /sandbox/agent]\n"
    "        resources:\n"
    "          requests: {cpu: 10m, memory: 16Mi}\n"
    "          limits: {cpu: 100m, memory: 64Mi}\n"
    "        securityContext:\n"
    "          allowPrivilegeEscalation: false\n"
    "          capabilities: {drop: [ALL]}\n"
    "        volumeMounts: [{name: agent, mountPath: /sandbox/agent}]\n"
    "      containers:\n"
    "      - name: workspace\n"
    "        command: [/sandbox/agent/sandbox-agent, serve, --init, --socket, '@sandbox-agent',\n"
    "          --workspace, /workspace, --seal, /sandbox/seal/seal]\n"
    "        workingDir: /workspace\n"
    "        env: [{name: HOME, value: /home/sandbox}]\n"
    "        readinessProbe:\n"
    "          exec: {command: [/sandbox/agent/sandbox-agent, health, '@sandbox-agent']}\n"
    "          periodSeconds: 1\n"
    "          timeoutSeconds: 5\n"
    "        resources: {requests: {}, limits: {}}\n"
    "        securityContext:\n"
    "          allowPrivilegeEscalation: false\n"
    "          capabilities: {drop: [ALL]}\n"
    "        volumeMounts:\n"
    "        - {name: agent, mountPath: /sandbox/agent, readOnly: true}\n"
    "        - {name: seal, mountPath: /sandbox/seal}\n"
    "        - {name: workspace, mountPath: /workspace}\n"
    "        - {name: home, mountPath: /home/sandbox}\n"
    "      volumes:\n"
    "      - {name: agent, emptyDir: {}}\n"
    "      - {name: seal, emptyDir: {}}\n"
    "      - {name: workspace, emptyDir: {}}\n"
    "      - {name: home, emptyDir: {}}\n";

static const char pool_text[] = "spec:\n"
                                "  updateStrategy: {type: OnReplenish}\n";

const struct sbx_gke_manifest sbx_gke_manifest_texts[] = {
    [SBX_GKE_OF_SPACE] = {&namespaces, "Workspaces, their records and their keys.", empty},
    [SBX_GKE_OF_CLIENT] = {&accounts, "Whoever uses the library runs as this.", empty},
    [SBX_GKE_OF_ROLE] = {&roles,
                         "All that the library does in the namespace, and no more.\n"
                         "Whoever may create a PodSnapshotManualTrigger can copy a workspace's "
                         "memory: give it to nobody else.",
                         empty},
    [SBX_GKE_OF_BINDING] = {&bindings, "", binding_text},
    [SBX_GKE_OF_CLUSTER_ROLE] = {&cluster_roles,
                                 "Where snapshots are stored is told outside of namespaces.",
                                 empty},
    [SBX_GKE_OF_CLUSTER_BINDING] = {&cluster_bindings, "", binding_text},
    [SBX_GKE_OF_ACCOUNT] =
        {&accounts,
         "The Pods' own account: it may do nothing in the cluster. Snapshots are "
         "written to the bucket as it:\n"
         "give it roles/storage.bucketViewer and roles/storage.objectUser there.",
         account_text},
    [SBX_GKE_OF_NETWORK] =
        {&networks,
         "Nothing comes in but, with channel=pod, to the agent from Pods of the client's namespace "
         "that carry the label sandbox.users.io/client: \"true\".\n"
         "Nothing goes out but to the egress proxy; no DNS and no metadata server.\n"
         "The API server's exec needs none of it.",
         network_text},
    [SBX_GKE_OF_CLASS] = {&classes,
                          "One machine family: a snapshot is restored only on the family it was "
                          "taken on, and E2 has none.",
                          class_text},
    [SBX_GKE_OF_STORAGE] =
        {&sbx_gke_storages,
         "A bucket in the cluster's own region, with uniform access, hierarchical "
         "namespace and no soft delete.",
         empty},
    [SBX_GKE_OF_POLICY] =
        {&sbx_gke_policies,
         "A group for each workspace. The library removes older snapshots itself; "
         "this limit is a backstop.",
         policy_text},
    [SBX_GKE_OF_TEMPLATE] =
        {&sbx_gke_templates,
         "No liveness probe: a Pod stands still while it is snapshotted, and "
         "would be killed for it.\n"
         "Changing anything here makes snapshots that were taken before useless: "
         "make a new pool instead.",
         template_text},
    [SBX_GKE_OF_POOL] = {&sbx_gke_pools, "Ready Pods that wait for workspaces.", pool_text},
    [SBX_GKE_MANIFESTS] = {0},
};
