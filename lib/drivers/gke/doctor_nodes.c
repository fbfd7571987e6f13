/* What `sandbox doctor` finds of the nodes that workspaces run on, and of where that is. */

#include "drivers/gke/doctor.h"
#include "util/json.h"
#include "util/memory.h"
#include <stdio.h>

#define FEW 4 /* different words of one kind that are told */

/* Different words, in the order in which they come. */
struct words {
    char word[FEW][64];
    unsigned count; /* of all; those past FEW are not kept */
};

struct nodes {
    unsigned count, e2;
    struct words families, versions, regions;
    unsigned without_identity;
};

static bool visit_node(void *user_data, const cJSON *node);
static void tell_nodes(const struct sbx_gke_look *look, const struct nodes *nodes, bool is_tied);
static void look_at_residency(const struct sbx_gke_look *look, const struct nodes *nodes);

void sbx_gke_look_at_nodes(const struct sbx_gke_look *look, const cJSON *template)
{
    const cJSON *selector =
        sbx_gke_at(template, "spec", "podTemplate", "spec", "nodeSelector", NULL);
    bool is_tied = sbx_gke_at(selector, "cloud.google.com/machine-family", NULL) != NULL ||
                   sbx_gke_at(selector, "cloud.google.com/compute-class", NULL) != NULL;
    struct nodes nodes = {.count = 0};
    sandbox_error error = {0};
    const struct sbx_gke_question question = {.resource = &sbx_gke_nodes,
                                              .selector = "sandbox.gke.io/runtime=gvisor"};
    sandbox_status status =
        sbx_gke_view_list(look->view, &question, look->wait, visit_node, &nodes, &error);
    if (status != SANDBOX_OK)
        sbx_gke_not_known(look, "nodes", &error);
    else
        tell_nodes(look, &nodes, is_tied);
    look_at_residency(look, &nodes);
}

static void add_word(struct words *words, const char *word)
{
    for (unsigned n = 0; n < words->count && n < FEW; n++) {
        if (strcmp(words->word[n], word) == 0)
            return;
    }
    if (*word == '\0')
        return;
    if (words->count < FEW)
        snprintf(words->word[words->count], sizeof words->word[0], "%.63s", word);
    words->count++;
}

static void print_words(const struct words *words, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (unsigned n = 0; n < words->count && n < FEW && used < size; n++)
        used +=
            (size_t)snprintf(out + used, size - used, "%s%s", n == 0 ? "" : ", ", words->word[n]);
    if (words->count > FEW && used < size)
        snprintf(out + used, size - used, ", …");
}

static bool visit_node(void *user_data, const cJSON *node)
{
    struct nodes *nodes = user_data;
    const cJSON *labels = sbx_gke_at(node, "metadata", "labels", NULL);
    const char *type = sbx_json_text(labels, "node.kubernetes.io/instance-type");
    const char *told = sbx_json_text(labels, "cloud.google.com/machine-family");
    char family[64];
    snprintf(family, sizeof family, "%.*s", (int)strcspn(type, "-"), type);
    nodes->count++;
    add_word(&nodes->families, *told != '\0' ? told : family);
    add_word(&nodes->versions, sbx_gke_text(node, "status", "nodeInfo", "kubeletVersion", NULL));
    add_word(&nodes->regions, sbx_json_text(labels, "topology.kubernetes.io/region"));
    nodes->e2 += strcmp(*told != '\0' ? told : family, "e2") == 0;
    nodes->without_identity +=
        strcmp(sbx_json_text(labels, "iam.gke.io/gke-metadata-server-enabled"), "true") != 0;
    return true;
}

static void tell_nodes(const struct sbx_gke_look *look, const struct nodes *nodes, bool is_tied)
{
    char families[300], versions[300];
    print_words(&nodes->families, families, sizeof families);
    print_words(&nodes->versions, versions, sizeof versions);
    if (nodes->count == 0) {
        sbx_found(look->sink, SANDBOX_SEVERITY_NOTE, "nodes",
                  "where nothing makes nodes by need, add a pool with --sandbox type=gvisor",
                  "no node runs gVisor now: the first Pod waits for one");
        return;
    }
    if (nodes->e2 > 0)
        sbx_found(look->sink, SANDBOX_SEVERITY_PROBLEM, "nodes",
                  "use another machine family, such as n2 ('sandbox manifests gke' ties Pods "
                  "to one)",
                  "%u of %u gVisor nodes are E2, on which no Pod snapshot can be taken", nodes->e2,
                  nodes->count);
    else
        sbx_found(look->sink, SANDBOX_SEVERITY_GOOD, "nodes", "", "%u with gVisor, %s",
                  nodes->count, families);
    if (nodes->families.count > 1 && !is_tied)
        sbx_found(look->sink, SANDBOX_SEVERITY_PROBLEM, "nodes",
                  "tie the pool's Pods to one machine family, as 'sandbox manifests gke' does",
                  "machine families are mixed (%s): a snapshot of one is not restored on another",
                  families);
    if (nodes->versions.count > 1)
        sbx_found(
            look->sink, SANDBOX_SEVERITY_NOTE, "nodes", "finish the upgrade of the node pools",
            "versions are mixed (%s): a snapshot may not be restored on another version", versions);
    if (nodes->without_identity > 0)
        sbx_found(look->sink, SANDBOX_SEVERITY_NOTE, "nodes",
                  "gcloud container node-pools update POOL --workload-metadata=GKE_METADATA",
                  "%u of %u gVisor nodes do not say that Workload Identity is on; snapshots are "
                  "written by it",
                  nodes->without_identity, nodes->count);
}

static bool take_bucket(void *user_data, const cJSON *storage)
{
    const cJSON *gcs = sbx_gke_at(storage, "spec", "snapshotStorageConfig", "gcs", NULL);
    struct words *buckets = user_data;
    char place[64];
    snprintf(place, sizeof place, "gs://%.50s", sbx_json_text(gcs, "bucket"));
    add_word(buckets, place);
    return true;
}

/* Where things are is for people to judge; that they are several settings is what they must know.
 */
static void look_at_residency(const struct sbx_gke_look *look, const struct nodes *nodes)
{
    struct words buckets = {.count = 0};
    char places[300], regions[300];
    const struct sbx_gke_question question = {.resource = &sbx_gke_storages};
    (void)sbx_gke_view_list(look->view, &question, look->wait, take_bucket, &buckets, NULL);
    print_words(&buckets, places, sizeof places);
    print_words(&nodes->regions, regions, sizeof regions);
    sbx_found(look->sink, SANDBOX_SEVERITY_NOTE, "residency",
              "gcloud storage buckets describe gs://BUCKET --format='value(location)'; the model "
              "endpoint's region is set where the agent is",
              "workspaces run in %s; snapshots lie in %s, whose location is a setting of its own, "
              "and so is the region of the model that agents call",
              *regions == '\0' ? "a region that cannot be seen" : regions,
              *places == '\0' ? "a bucket that cannot be seen" : places);
}
