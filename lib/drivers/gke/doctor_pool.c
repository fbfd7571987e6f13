/* What `sandbox doctor` finds of a pool: whether it is there, how it is snapshotted, what it
 * reaches. */

#include "drivers/gke/setup.h"
#include "drivers/gke/snapshot.h"
#include "util/fail.h"
#include "util/json.h"
#include "util/memory.h"
#include <stdio.h>

#define MANIFESTS "apply what 'sandbox manifests gke' prints"

static void look_at_ready(const struct sbx_gke_look *look, const cJSON *pool);
static void look_at_policy(const struct sbx_gke_look *look, const cJSON *template);
static void look_at_network(const struct sbx_gke_look *look, const cJSON *template);
static void look_at_account(const struct sbx_gke_look *look, const cJSON *template);

void sbx_gke_look_at_pool(const struct sbx_gke_look *look, cJSON **template)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *pool = NULL;
    const struct sbx_gke *driver = look->driver;
    sandbox_error error = {0};
    if (*driver->pool == '\0') {
        sbx_gke_found(look, SANDBOX_SEVERITY_PROBLEM, "pool",
                      "add ?pool=NAME to the URI; " MANIFESTS " makes one",
                      "the URI names no warm pool, so no workspace can be made");
        return;
    }
    sandbox_status status = sbx_kubernetes_get(driver->cluster, &sbx_gke_pools, driver->space,
                                               driver->pool, look->wait, &pool, &error);
    const char *name = sbx_gke_text(pool, "spec", "sandboxTemplateRef", "name", NULL);
    if (status == SANDBOX_OK)
        status = sbx_kubernetes_get(driver->cluster, &sbx_gke_templates, driver->space, name,
                                    look->wait, template, &error);
    if (status != SANDBOX_OK) {
        sbx_gke_found(look,
                      status == SANDBOX_DENIED ? SANDBOX_SEVERITY_NOTE : SANDBOX_SEVERITY_PROBLEM,
                      pool == NULL ? "pool" : "template", MANIFESTS, "%s", error.message);
        return;
    }
    look_at_ready(look, pool);
    sbx_gke_look_at_template(look, *template);
    look_at_policy(look, *template);
    look_at_network(look, *template);
    look_at_account(look, *template);
}

static void look_at_ready(const struct sbx_gke_look *look, const cJSON *pool)
{
    const cJSON *status = sbx_gke_at(pool, "status", NULL);
    int64_t wanted = sbx_json_integer(sbx_gke_at(pool, "spec", NULL), "replicas");
    int64_t ready = sbx_json_integer(status, "readyReplicas");
    bool good = wanted > 0 && ready > 0;
    sbx_gke_found(look, good ? SANDBOX_SEVERITY_GOOD : SANDBOX_SEVERITY_NOTE, "pool",
                  good          ? ""
                  : wanted == 0 ? "give it more replicas"
                                : "kubectl describe its Pods: they may lack nodes or an image",
                  "%s: %lld of %lld Pods are ready%s", look->driver->pool, (long long)ready,
                  (long long)wanted, good ? "" : ", so a new workspace waits for one");
}

/* A Pod as the template makes it, for what looks at Pods. NULL: no memory. */
static cJSON *sample_pod(const cJSON *template)
{
    cJSON *pod = cJSON_CreateObject();
    const cJSON *labels = sbx_gke_at(template, "spec", "podTemplate", "metadata", "labels", NULL);
    cJSON *copy = labels == NULL ? cJSON_CreateObject() : cJSON_Duplicate(labels, true);
    cJSON *metadata = pod == NULL ? NULL : cJSON_AddObjectToObject(pod, "metadata");
    if (copy != NULL && metadata != NULL && cJSON_AddItemToObject(metadata, "labels", copy)) {
        if (sbx_json_set_text(copy, SBX_GKE_NAME_HASH, "00000000"))
            return pod;
    } else {
        cJSON_Delete(copy);
    }
    cJSON_Delete(pod);
    return NULL;
}

static void look_at_policy(const struct sbx_gke_look *look, const cJSON *template)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *pod = sample_pod(template);
    struct sbx_record record = {.retain = SBX_GKE_RETENTION - 2};
    sandbox_error error = {0};
    snprintf(record.name, sizeof record.name, "%.60s", look->driver->pool);
    if (pod == NULL)
        return;
    sandbox_status status = sbx_gke_policy_check(look->driver, &record, pod, look->wait, &error);
    if (status == SANDBOX_OK)
        sbx_gke_found(look, SANDBOX_SEVERITY_GOOD, "policy", "",
                      "memory is kept, a group for each workspace");
    else
        sbx_gke_found(look,
                      status == SANDBOX_FAILED ? SANDBOX_SEVERITY_PROBLEM : SANDBOX_SEVERITY_NOTE,
                      "policy", MANIFESTS, "%s", error.message);
}

/* ---- the network ---- */

/* Nothing, somewhere, or everywhere. */
enum reach { NOWHERE, LIMITED, ANYWHERE };

static enum reach reach_of(const cJSON *rules, const char *direction)
{
    enum reach reach = NOWHERE;
    const cJSON *rule = NULL, *peer = NULL;
    cJSON_ArrayForEach(rule, rules)
    {
        const cJSON *peers = cJSON_GetObjectItemCaseSensitive(rule, direction);
        if (cJSON_GetArraySize(peers) == 0)
            return ANYWHERE;
        reach = LIMITED;
        cJSON_ArrayForEach(peer, peers)
        {
            const char *range = sbx_gke_text(peer, "ipBlock", "cidr", NULL);
            if (strcmp(range, "0.0.0.0/0") == 0 || strcmp(range, "::/0") == 0)
                return ANYWHERE;
        }
    }
    return reach;
}

struct network {
    const cJSON *labels;
    bool is_denied; /* some policy holds for the Pods, in both directions */
    enum reach out, in;
};

static bool has_word(const cJSON *list, const char *word)
{
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, list)
    {
        if (cJSON_IsString(item) && strcmp(item->valuestring, word) == 0)
            return true;
    }
    return false;
}

static bool visit_network(void *user_data, const cJSON *policy)
{
    struct network *network = user_data;
    const cJSON *spec = sbx_gke_at(policy, "spec", NULL), *label = NULL;
    const cJSON *types = sbx_gke_at(spec, "policyTypes", NULL);
    cJSON_ArrayForEach(label, sbx_gke_at(spec, "podSelector", "matchLabels", NULL))
    {
        if (!cJSON_IsString(label) ||
            strcmp(sbx_json_text(network->labels, label->string), label->valuestring) != 0)
            return true;
    }
    if (cJSON_GetArraySize(sbx_gke_at(spec, "podSelector", "matchExpressions", NULL)) > 0 ||
        !has_word(types, "Egress") || !has_word(types, "Ingress"))
        return true;
    enum reach out = reach_of(sbx_gke_at(spec, "egress", NULL), "to");
    enum reach in = reach_of(sbx_gke_at(spec, "ingress", NULL), "from");
    network->is_denied = true;
    network->out = out > network->out ? out : network->out;
    network->in = in > network->in ? in : network->in;
    return true;
}

static void tell_network(const struct sbx_gke_look *look, const struct network *network)
{
    if (!network->is_denied)
        sbx_gke_found(look, SANDBOX_SEVERITY_PROBLEM, "network", MANIFESTS,
                      "no network policy holds for the pool's Pods: they reach everything, the "
                      "cluster and the metadata server too");
    else if (network->out == ANYWHERE)
        sbx_gke_found(look, SANDBOX_SEVERITY_NOTE, "network",
                      MANIFESTS ", with --egress for a proxy that checks",
                      "workspaces reach the Internet as they like");
    else
        sbx_gke_found(look, SANDBOX_SEVERITY_GOOD, "network", "",
                      network->out == LIMITED ? "workspaces reach only what a policy names"
                                              : "workspaces reach nothing");
    if (network->is_denied && network->in == ANYWHERE)
        sbx_gke_found(look, SANDBOX_SEVERITY_PROBLEM, "network", MANIFESTS,
                      "anybody in the cluster reaches the pool's Pods");
}

/* The template's own rules, which its controller makes a policy of, and those of the namespace. */
static void look_at_network(const struct sbx_gke_look *look, const cJSON *template)
{
    static const struct sbx_resource policies = {"networking.k8s.io", "v1", "networkpolicies",
                                                 "NetworkPolicy", false};
    const cJSON *spec = sbx_gke_at(template, "spec", NULL);
    const cJSON *own = sbx_gke_at(spec, "networkPolicy", NULL);
    struct network network = {.labels =
                                  sbx_gke_at(spec, "podTemplate", "metadata", "labels", NULL)};
    sandbox_error error = {0};
    if (strcmp(sbx_gke_text(spec, "networkPolicyManagement", NULL), "Unmanaged") != 0) {
        network.is_denied = true;
        /* Without rules of its own the controller's let everything out that is public. */
        network.out = own == NULL ? ANYWHERE : reach_of(sbx_gke_at(own, "egress", NULL), "to");
        network.in = reach_of(sbx_gke_at(own, "ingress", NULL), "from");
    }
    sandbox_status status =
        sbx_kubernetes_list(look->driver->cluster, &policies, look->driver->space, NULL, look->wait,
                            visit_network, &network, &error);
    if (status != SANDBOX_OK && !network.is_denied)
        sbx_gke_found(look, SANDBOX_SEVERITY_NOTE, "network", "look with more rights",
                      "not known: %s", error.message);
    else
        tell_network(look, &network);
}

/* ---- the bucket ---- */

/* Kubernetes does not know what an account may do in a bucket: the grants are told, not judged. */
static void look_at_account(const struct sbx_gke_look *look, const cJSON *template)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *account = NULL;
    const char *name =
        sbx_gke_text(template, "spec", "podTemplate", "spec", "serviceAccountName", NULL);
    char path[600];
    name = *name == '\0' ? "default" : name;
    snprintf(path, sizeof path, "/api/v1/namespaces/%s/serviceaccounts/%.253s", look->driver->space,
             name);
    sandbox_status status = sbx_gke_look_at(look, path, "identity", &account);
    const char *google = sbx_gke_annotation(account, "iam.gke.io/gcp-service-account");
    if (status == SANDBOX_NOT_FOUND)
        sbx_gke_found(look, SANDBOX_SEVERITY_PROBLEM, "identity", MANIFESTS,
                      "there is no service account '%s', which the pool's Pods run as", name);
    else if (*google != '\0')
        sbx_gke_found(look, SANDBOX_SEVERITY_NOTE, "identity",
                      "grant it roles/storage.bucketViewer and roles/storage.objectUser on the "
                      "snapshots' bucket",
                      "snapshots are written as %s, by Workload Identity of '%s'", google, name);
    else
        sbx_gke_found(
            look, SANDBOX_SEVERITY_NOTE, "identity",
            "grant roles/storage.bucketViewer and roles/storage.objectUser on the bucket "
            "to principal://iam.googleapis.com/projects/NUMBER/locations/global/"
            "workloadIdentityPools/PROJECT.svc.id.goog/subject/ns/NAMESPACE/sa/ACCOUNT",
            "snapshots are written by Workload Identity as ns/%s/sa/%s; whether the bucket "
            "lets it cannot be seen from here",
            look->driver->space, name);
}
