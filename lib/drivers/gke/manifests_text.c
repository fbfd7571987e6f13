/* The objects that `sandbox manifests gke` makes, before names and numbers are filled in. */

#include "drivers/gke/doctor.h"

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
static const struct sbx_resource services = {"", "v1", "services", "Service", false};
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

/* From workspaces, and from whoever uses the library. Out: names, and what is public. */
static const char proxy_network_text[] =
    "spec:\n"
    "  podSelector: {matchLabels: {app.kubernetes.io/name: sandbox-egress-proxy}}\n"
    "  policyTypes: [Ingress, Egress]\n"
    "  ingress:\n"
    "  - from:\n"
    "    - namespaceSelector: {matchLabels: {}}\n"
    "      podSelector:\n"
    "        matchExpressions: [{key: sandbox.users.io/pool, operator: Exists}]\n"
    "    ports: [{protocol: TCP, port: 3128}]\n"
    "  - from:\n"
    "    - namespaceSelector: {matchLabels: {}}\n"
    "      podSelector: {matchLabels: {sandbox.users.io/client: 'true'}}\n"
    "    ports: [{protocol: TCP, port: 3129}]\n"
    "  egress:\n"
    "  - to:\n"
    "    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}\n"
    "      podSelector:\n"
    "        matchExpressions:\n"
    "        - {key: k8s-app, operator: In, values: [kube-dns, node-local-dns]}\n"
    "    - ipBlock: {cidr: 169.254.20.10/32}\n"
    "    - ipBlock: {cidr: 169.254.169.254/32}\n"
    "    ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]\n"
    "  - to:\n"
    "    - ipBlock:\n"
    "        cidr: 0.0.0.0/0\n"
    "        except: [0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16,\n"
    "          172.16.0.0/12, 192.0.0.0/24, 192.168.0.0/16, 198.18.0.0/15, 224.0.0.0/4,\n"
    "          240.0.0.0/4]\n"
    "    - ipBlock:\n"
    "        cidr: '2000::/3'\n"
    "        except: ['2001::/23', '2001:db8::/32', '2002::/16']\n"
    "    ports: [{protocol: TCP, port: 443}, {protocol: TCP, port: 80}]\n";

static const char proxy_service_text[] =
    "spec:\n"
    "  type: ClusterIP\n"
    "  selector: {app.kubernetes.io/name: sandbox-egress-proxy}\n"
    "  ports:\n"
    "  - {name: egress, protocol: TCP, port: 3128, targetPort: egress}\n"
    "  - {name: admin, protocol: TCP, port: 3129, targetPort: admin}\n";

static const char proxy_text[] =
    "spec:\n"
    "  replicas: 1\n"
    "  strategy: {type: Recreate}\n"
    "  selector: {matchLabels: {app.kubernetes.io/name: sandbox-egress-proxy}}\n"
    "  template:\n"
    "    metadata:\n"
    "      labels: {app.kubernetes.io/name: sandbox-egress-proxy}\n"
    "      annotations: {cluster-autoscaler.kubernetes.io/safe-to-evict: 'false'}\n"
    "    spec:\n"
    "      automountServiceAccountToken: false\n"
    "      enableServiceLinks: false\n"
    "      terminationGracePeriodSeconds: 10\n"
    "      securityContext:\n"
    "        {runAsUser: 65534, runAsGroup: 65534, runAsNonRoot: true,\n"
    "          seccompProfile: {type: RuntimeDefault}}\n"
    "      containers:\n"
    "      - name: proxy\n"
    "        args: [--listen, '0.0.0.0:3128', --admin, '0.0.0.0:3129']\n"
    "        env:\n"
    "        - name: SANDBOX_PROXY_TOKEN\n"
    "          valueFrom: {secretKeyRef: {name: sandbox-egress-proxy, key: token}}\n"
    "        ports:\n"
    "        - {name: egress, protocol: TCP, containerPort: 3128}\n"
    "        - {name: admin, protocol: TCP, containerPort: 3129}\n"
    "        readinessProbe: {tcpSocket: {port: admin}, periodSeconds: 5}\n"
    "        resources:\n"
    "          requests: {cpu: 250m, memory: 256Mi}\n"
    "          limits: {cpu: '2', memory: 1Gi}\n"
    "        securityContext:\n"
    "          allowPrivilegeEscalation: false\n"
    "          readOnlyRootFilesystem: true\n"
    "          capabilities: {drop: [ALL]}\n";

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
    [SBX_GKE_OF_PROXY_SPACE] = {&namespaces,
                                "The egress proxy's own: whoever may exec into Pods beside "
                                "workspaces must not come to the "
                                "credentials that it holds.",
                                empty},
    [SBX_GKE_OF_PROXY_NETWORK] =
        {&networks,
         "In: workspaces, and to the admin API Pods that carry the label sandbox.users.io/client: "
         "\"true\" in the client's namespace.\n"
         "Out: the cluster's DNS in each of the forms that GKE has, and public addresses; nothing "
         "of "
         "the cluster, and of the metadata server its DNS only.",
         proxy_network_text},
    [SBX_GKE_OF_PROXY_SERVICE] =
        {&services,
         "Its address is the URI's egress=http://ADDRESS:3128 and admin=http://ADDRESS:3129. The "
         "proxy sees the Pods' own addresses through it.",
         proxy_service_text},
    [SBX_GKE_OF_PROXY] =
        {&sbx_gke_deployments,
         "One, and never two at once: who is registered is in its memory only.\n"
         "It starts once there is a token for its admin API, in this namespace:\n"
         "printf %s \"$(openssl rand -hex 32)\" |\n"
         "  kubectl create secret generic sandbox-egress-proxy --from-file=token=/dev/stdin -n "
         "NAMESPACE",
         proxy_text},
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
