/* What `sandbox doctor` finds of a pool: whether it is there, how it is snapshotted, what it
 * reaches. */

#include "drivers/gke/doctor.h"
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

void sbx_gke_look_at_pool(const struct sbx_gke_look *look, const cJSON **template)
{
    const cJSON *pool = NULL;
    const struct sbx_gke *driver = look->driver;
    sandbox_error error = {0};
    if (*driver->pool == '\0') {
        sbx_found(look->sink, SANDBOX_SEVERITY_PROBLEM, "pool",
                  "add ?pool=NAME to the URI; " MANIFESTS " makes one",
                  "the URI names no warm pool, so no workspace can be made");
        return;
    }
    sandbox_status status = sbx_gke_view_get(look->view, &sbx_gke_pools, driver->space,
                                             driver->pool, look->wait, &pool, &error);
    const char *name = sbx_gke_text(pool, "spec", "sandboxTemplateRef", "name", NULL);
    if (status == SANDBOX_OK)
        status = sbx_gke_view_get(look->view, &sbx_gke_templates, driver->space, name, look->wait,
                                  template, &error);
    if (sbx_gke_is_missing(status))
        sbx_found(look->sink, SANDBOX_SEVERITY_PROBLEM, pool == NULL ? "pool" : "template",
                  MANIFESTS, "%s", error.message);
    else if (status != SANDBOX_OK)
        sbx_gke_not_known(look, pool == NULL ? "pool" : "template", &error);
    if (status != SANDBOX_OK)
        return;
    look_at_ready(look, pool);
    sbx_gke_look_at_template(look, *template);
    look_at_policy(look, *template);
    look_at_network(look, *template);
    sbx_gke_look_at_proxy(look, *template);
    look_at_account(look, *template);
}

static void look_at_ready(const struct sbx_gke_look *look, const cJSON *pool)
{
    const cJSON *status = sbx_gke_at(pool, "status", NULL);
    int64_t wanted = sbx_json_integer(sbx_gke_at(pool, "spec", NULL), "replicas");
    int64_t ready = sbx_json_integer(status, "readyReplicas");
    bool good = wanted > 0 && ready > 0;
    sbx_found(look->sink, good ? SANDBOX_SEVERITY_GOOD : SANDBOX_SEVERITY_NOTE, "pool",
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

/* As sbx_gke_policy_check(), of what the view holds. */
static sandbox_status check_policy(const struct sbx_gke_look *look, const struct sbx_record *record,
                                   const cJSON *pod, sandbox_error *error)
{
    const struct sbx_gke_question question = {.resource = &sbx_gke_policies,
                                              .space = look->driver->space};
    const cJSON *storage = NULL;
    struct sbx_gke_choice choice;
    sbx_gke_choice_begin(&choice, record, pod);
    sandbox_status status =
        sbx_gke_view_list(look->view, &question, look->wait, sbx_gke_choice_visit, &choice, error);
    status = sbx_gke_choice_end(&choice, look->driver, status, error);
    if (status != SANDBOX_OK)
        return status;
    status = sbx_gke_view_get(look->view, &sbx_gke_storages, NULL, choice.storage, look->wait,
                              &storage, error);
    return sbx_gke_choice_storage(&choice, storage, status, error);
}

static void look_at_policy(const struct sbx_gke_look *look, const cJSON *template)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *pod = sample_pod(template);
    struct sbx_record record = {.retain = SBX_GKE_RETENTION - 2};
    sandbox_error error = {0};
    snprintf(record.name, sizeof record.name, "%.60s", look->driver->pool);
    if (pod == NULL)
        return;
    sandbox_status status = check_policy(look, &record, pod, &error);
    bool is_known = status == SANDBOX_FAILED &&
                    !(look->view->is_partial && strcmp(error.reason, "no-snapshot-policy") == 0);
    if (status == SANDBOX_OK)
        sbx_found(look->sink, SANDBOX_SEVERITY_GOOD, "policy", "",
                  "memory is kept, a group for each workspace");
    else if (is_known)
        sbx_found(look->sink, SANDBOX_SEVERITY_PROBLEM, "policy", MANIFESTS, "%s", error.message);
    else
        sbx_gke_not_known(look, "policy", &error);
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
        sbx_found(look->sink, SANDBOX_SEVERITY_PROBLEM, "network", MANIFESTS,
                  "no network policy holds for the pool's Pods: they reach everything, the "
                  "cluster and the metadata server too");
    else if (network->out == ANYWHERE)
        sbx_found(look->sink, SANDBOX_SEVERITY_NOTE, "network",
                  MANIFESTS ", with --egress-proxy or --egress for a proxy that checks",
                  "workspaces reach the Internet as they like");
    else
        sbx_found(look->sink, SANDBOX_SEVERITY_GOOD, "network", "",
                  network->out == LIMITED ? "workspaces reach only what a policy names"
                                          : "workspaces reach nothing");
    if (network->is_denied && network->in == ANYWHERE)
        sbx_found(look->sink, SANDBOX_SEVERITY_PROBLEM, "network", MANIFESTS,
                  "anybody in the cluster reaches the pool's Pods");
}

/* The template's own rules, which its controller makes a policy of, and those of the namespace. */
static void look_at_network(const struct sbx_gke_look *look, const cJSON *template)
{
    const struct sbx_gke_question question = {.resource = &sbx_gke_networks,
                                              .space = look->driver->space};
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
        sbx_gke_view_list(look->view, &question, look->wait, visit_network, &network, &error);
    if (status == SANDBOX_OK && look->view->is_partial)
        status = sbx_fail(&error, SANDBOX_UNAVAILABLE,
                          "a network policy for the pool's Pods is not in the description");
    if (status != SANDBOX_OK && !network.is_denied)
        sbx_gke_not_known(look, "network", &error);
    else
        tell_network(look, &network);
}

/* ---- the bucket ---- */

/* Kubernetes does not know what an account may do in a bucket: the grants are told, not judged. */
static void look_at_account(const struct sbx_gke_look *look, const cJSON *template)
{
    const cJSON *account = NULL;
    sandbox_error error = {0};
    const char *name =
        sbx_gke_text(template, "spec", "podTemplate", "spec", "serviceAccountName", NULL);
    name = *name == '\0' ? "default" : name;
    sandbox_status status = sbx_gke_view_get(look->view, &sbx_gke_accounts, look->driver->space,
                                             name, look->wait, &account, &error);
    const char *google = sbx_gke_annotation(account, "iam.gke.io/gcp-service-account");
    if (status != SANDBOX_OK && !sbx_gke_is_missing(status))
        sbx_gke_not_known(look, "identity", &error);
    if (sbx_gke_is_missing(status))
        sbx_found(look->sink, SANDBOX_SEVERITY_PROBLEM, "identity", MANIFESTS,
                  "there is no service account '%s', which the pool's Pods run as", name);
    else if (*google != '\0')
        sbx_found(look->sink, SANDBOX_SEVERITY_NOTE, "identity",
                  "grant it roles/storage.bucketViewer and roles/storage.objectUser on the "
                  "snapshots' bucket",
                  "snapshots are written as %s, by Workload Identity of '%s'", google, name);
    else
        sbx_found(look->sink, SANDBOX_SEVERITY_NOTE, "identity",
                  "grant roles/storage.bucketViewer and roles/storage.objectUser on the bucket "
                  "to principal://iam.googleapis.com/projects/NUMBER/locations/global/"
                  "workloadIdentityPools/PROJECT.svc.id.goog/subject/ns/NAMESPACE/sa/ACCOUNT",
                  "snapshots are written by Workload Identity as ns/%s/sa/%s; whether the bucket "
                  "lets it cannot be seen from here",
                  look->driver->space, name);
}
