/*
 * `sandbox manifests gke`: all that a cluster needs before workspaces can be made in it, filled in,
 * printed and applied in an order in which nothing refers to what is not there yet.
 */

#include "cloud/kubeconfig.h"
#include "drivers/gke/setup.h"
#include "util/bytes.h"
#include "util/fail.h"
#include "util/json.h"
#include "util/memory.h"
#include <arpa/inet.h>
#include <stdio.h>

#define TEXT_MAX (256u << 10)

/* One set-up with everything settled. */
struct set_up {
    struct sbx_gke settings;
    sandbox_manifests_options options;
    char pool[SBX_GKE_NAME]; /* with the image's digits */
    char storage[SBX_GKE_NAME], class_name[SBX_GKE_NAME];
    char account_space[SBX_GKE_NAME], account[SBX_GKE_NAME], binding[3 * SBX_GKE_NAME];
    char cidr[80];
    int port;                       /* of the egress proxy; 0: none */
    char proxy_space[SBX_GKE_NAME]; /* of the one that is set up; "": none is */
};

static sandbox_status settle(const char *rest, const sandbox_manifests_options *options,
                             struct set_up *out, sandbox_error *error);
static void clear(struct set_up *set_up);
static sandbox_status settle_image(struct set_up *set_up, sandbox_error *error);
static sandbox_status settle_egress(struct set_up *set_up, sandbox_error *error);
static sandbox_status settle_proxy(struct set_up *set_up, sandbox_error *error);
static sandbox_status settle_account(struct set_up *set_up, sandbox_error *error);
static sandbox_status make(const struct set_up *set_up, enum sbx_gke_manifest_place place,
                           cJSON **out, sandbox_error *error);
static bool fill(const struct set_up *set_up, enum sbx_gke_manifest_place place, cJSON *object);
static sandbox_status print(const struct sbx_gke_manifest *manifest, const cJSON *object,
                            struct sbx_manifests_sink *sink, sandbox_error *error);
static bool is_wanted(const struct set_up *set_up, enum sbx_gke_manifest_place place);
static const char *space_of(const struct set_up *set_up, enum sbx_gke_manifest_place place);

sandbox_status sbx_gke_manifests(const char *rest, const sandbox_manifests_options *options,
                                 struct sbx_manifests_sink *sink, sandbox_error *error)
{
    SBX_ON_EXIT(clear) struct set_up set_up = {.port = 0};
    sandbox_status status = settle(rest, options, &set_up, error);
    for (unsigned place = 0; place < SBX_GKE_MANIFESTS && status == SANDBOX_OK; place++) {
        SBX_ON_EXIT(sbx_json_free) cJSON *object = NULL;
        if (!is_wanted(&set_up, place))
            continue;
        status = make(&set_up, place, &object, error);
        if (status == SANDBOX_OK)
            status = print(&sbx_gke_manifest_texts[place], object, sink, error);
    }
    return status;
}

sandbox_status sbx_gke_manifests_apply(const char *rest, const sandbox_manifests_options *options,
                                       const struct sbx_wait *wait, struct sbx_manifests_sink *sink,
                                       sandbox_error *error)
{
    SBX_ON_EXIT(clear) struct set_up set_up = {.port = 0};
    sandbox_status status = settle(rest, options, &set_up, error);
    struct sbx_kubernetes_options whose = {.context = set_up.settings.context,
                                           .in_cluster = set_up.settings.context != NULL &&
                                                         *set_up.settings.context == '\0'};
    if (status == SANDBOX_OK)
        status = sbx_kubernetes_open(&whose, &set_up.settings.cluster, error);
    for (unsigned place = 0; place < SBX_GKE_MANIFESTS && status == SANDBOX_OK; place++) {
        SBX_ON_EXIT(sbx_json_free) cJSON *object = NULL;
        const struct sbx_gke_manifest *manifest = &sbx_gke_manifest_texts[place];
        if (!is_wanted(&set_up, place))
            continue;
        status = make(&set_up, place, &object, error);
        if (status == SANDBOX_OK)
            status = sbx_kubernetes_apply(set_up.settings.cluster, manifest->resource,
                                          space_of(&set_up, place), object, set_up.options.force,
                                          wait, NULL, error);
        if (status == SANDBOX_OK)
            status = print(manifest, object, sink, error);
    }
    return status;
}

/* ---- settling ---- */

static void clear(struct set_up *set_up)
{
    sbx_kubernetes_close(set_up->settings.cluster);
    sbx_gke_settings_clear(&set_up->settings);
}

static sandbox_status settle(const char *rest, const sandbox_manifests_options *options,
                             struct set_up *out, sandbox_error *error)
{
    sandbox_status status = sbx_gke_settings_read(rest, &out->settings, error);
    if (status != SANDBOX_OK)
        return status;
    sandbox_manifests_options *settled = &out->options;
    *settled = *options;
    if (*out->settings.space == '\0' || *out->settings.pool == '\0')
        return sbx_fail(error, SANDBOX_INVALID,
                        "the URI must name both: gke://CONTEXT/NAMESPACE?pool=NAME");
    if (settled->agent_image == NULL || *settled->agent_image == '\0')
        return sbx_fail(error, SANDBOX_INVALID,
                        "an image with the agent is needed (--agent-image): deploy/agent says how "
                        "to build one");
    if (settled->bucket == NULL || *settled->bucket == '\0')
        return sbx_fail(error, SANDBOX_INVALID,
                        "a bucket for the snapshots is needed (--bucket NAME)");
    if (settled->path == NULL)
        settled->path = out->settings.space;
    if (settled->machine_family == NULL)
        settled->machine_family = "n2";
    if (strncmp(settled->machine_family, "e2", 2) == 0)
        return sbx_fail(error, SANDBOX_INVALID,
                        "Pod snapshots do not work on E2; choose another "
                        "machine family, such as n2");
    if (!sbx_name_is_valid(settled->machine_family))
        return sbx_fail(error, SANDBOX_INVALID, "'%.60s' is no machine family",
                        settled->machine_family);
    settled->replicas = settled->replicas == 0 ? 2 : settled->replicas;
    settled->memory_mib = settled->memory_mib == 0 ? 1024 : settled->memory_mib;
    settled->cpu_millis = settled->cpu_millis == 0 ? 1000 : settled->cpu_millis;
    snprintf(out->storage, sizeof out->storage, "%s-%s", out->settings.space, out->settings.pool);
    snprintf(out->class_name, sizeof out->class_name, "sandbox-%s", settled->machine_family);
    status = settle_image(out, error);
    if (status == SANDBOX_OK)
        status = settle_egress(out, error);
    return status == SANDBOX_OK ? settle_account(out, error) : status;
}

static sandbox_status settle_image(struct set_up *set_up, sandbox_error *error)
{
    sandbox_manifests_options *options = &set_up->options;
    /* Without one the pool keeps its plain name, which workspaces without an image ask for. */
    struct sbx_record record = {.image = (char *)(uintptr_t)options->image};
    sandbox_status status = sbx_gke_pool_of(&set_up->settings, &record, set_up->pool, error);
    if (options->image == NULL)
        options->image = "debian:12";
    if (status == SANDBOX_OK && strlen(set_up->pool) > 57) /* Pods get six letters more */
        status = sbx_fail(error, SANDBOX_INVALID, "'%s' is too long for a pool's name; shorten it",
                          set_up->pool);
    return status;
}

static sandbox_status settle_egress(struct set_up *set_up, sandbox_error *error)
{
    const char *egress = set_up->options.egress;
    if (set_up->options.egress_image != NULL)
        return settle_proxy(set_up, error);
    if (egress == NULL)
        return SANDBOX_OK;
    char address[64], end = '\0';
    const char *colon = strrchr(egress, ':');
    bool is_v6 = *egress == '[';
    size_t size = colon == NULL ? 0 : (size_t)(colon - egress);
    if (is_v6 && size > 2)
        snprintf(address, sizeof address, "%.*s", (int)(size - 2), egress + 1);
    else
        snprintf(address, sizeof address, "%.*s", (int)size, egress);
    uint8_t bytes[16];
    bool is_good = inet_pton(is_v6 ? AF_INET6 : AF_INET, address, bytes) == 1 &&
                   sscanf(colon + 1, "%d%c", &set_up->port, &end) == 1 && set_up->port > 0 &&
                   set_up->port < 65536;
    if (!is_good)
        return sbx_fail(error, SANDBOX_INVALID,
                        "the egress proxy must be ADDRESS:PORT with numbers, since a network "
                        "policy knows no names; not '%.80s'",
                        egress);
    snprintf(set_up->cidr, sizeof set_up->cidr, "%s/%d", address, is_v6 ? 128 : 32);
    return SANDBOX_OK;
}

static sandbox_status settle_proxy(struct set_up *set_up, sandbox_error *error)
{
    if (set_up->options.egress != NULL)
        return sbx_fail(error, SANDBOX_INVALID,
                        "either an egress proxy is there (--egress) or one is set up "
                        "(--egress-proxy), not both");
    if (!sbx_gke_image_is_pinned(set_up->options.egress_image))
        return sbx_fail(error, SANDBOX_INVALID,
                        "the egress proxy's image is pinned by its digest, as in NAME@sha256:…, "
                        "since it holds credentials; not '%.100s'",
                        set_up->options.egress_image);
    snprintf(set_up->proxy_space, SBX_GKE_NAME, "%s" SBX_GKE_PROXY_SPACE, set_up->settings.space);
    if (!sbx_name_is_valid(set_up->proxy_space))
        return sbx_fail(error, SANDBOX_INVALID,
                        "the namespace's name is too long for '%.80s', which the egress proxy gets",
                        set_up->proxy_space);
    set_up->port = SBX_GKE_PROXY_PORT;
    return SANDBOX_OK;
}

static sandbox_status settle_account(struct set_up *set_up, sandbox_error *error)
{
    const char *given = set_up->options.service_account, *space = set_up->settings.space;
    const char *slash = given == NULL ? NULL : strchr(given, '/');
    snprintf(set_up->account_space, SBX_GKE_NAME, "%.*s",
             slash == NULL ? (int)strlen(space) : (int)(slash - given),
             slash == NULL ? space : given);
    snprintf(set_up->account, SBX_GKE_NAME, "%s",
             given == NULL   ? "sandbox-client"
             : slash == NULL ? given
                             : slash + 1);
    snprintf(set_up->binding, sizeof set_up->binding, "sandbox-%s-%s-%s", space,
             set_up->account_space, set_up->account);
    if (sbx_name_is_valid(set_up->account_space) && sbx_name_is_valid(set_up->account))
        return SANDBOX_OK;
    return sbx_fail(error, SANDBOX_INVALID, "'%.80s' is no service account; write [NAMESPACE/]NAME",
                    given);
}

static bool is_of_proxy(enum sbx_gke_manifest_place place)
{
    return place >= SBX_GKE_OF_PROXY_SPACE && place <= SBX_GKE_OF_PROXY;
}

static bool is_wanted(const struct set_up *set_up, enum sbx_gke_manifest_place place)
{
    if (place == SBX_GKE_OF_CLIENT)
        return set_up->options.service_account == NULL;
    if (is_of_proxy(place))
        return set_up->proxy_space[0] != '\0';
    return place != SBX_GKE_OF_CLASS || !set_up->options.own_nodes;
}

/* ---- making ---- */

static const char *space_of(const struct set_up *set_up, enum sbx_gke_manifest_place place)
{
    return is_of_proxy(place) ? set_up->proxy_space : set_up->settings.space;
}

static const char *name_of(const struct set_up *set_up, enum sbx_gke_manifest_place place)
{
    switch (place) {
    case SBX_GKE_OF_SPACE:
        return set_up->settings.space;
    case SBX_GKE_OF_CLIENT:
        return set_up->account;
    case SBX_GKE_OF_ROLE:
        return "sandbox-client";
    case SBX_GKE_OF_BINDING:
    case SBX_GKE_OF_CLUSTER_BINDING:
        return set_up->binding;
    case SBX_GKE_OF_CLUSTER_ROLE:
        return "sandbox-client";
    case SBX_GKE_OF_ACCOUNT:
        return "sandbox-workspace";
    case SBX_GKE_OF_CLASS:
        return set_up->class_name;
    case SBX_GKE_OF_STORAGE:
        return set_up->storage;
    case SBX_GKE_OF_NETWORK:
    case SBX_GKE_OF_POLICY:
        return set_up->settings.pool;
    case SBX_GKE_OF_PROXY_SPACE:
        return set_up->proxy_space;
    case SBX_GKE_OF_PROXY_NETWORK:
    case SBX_GKE_OF_PROXY_SERVICE:
    case SBX_GKE_OF_PROXY:
        return SBX_GKE_PROXY;
    case SBX_GKE_OF_TEMPLATE:
    case SBX_GKE_OF_POOL:
    case SBX_GKE_MANIFESTS:
        break;
    }
    return set_up->pool;
}

static sandbox_status make(const struct set_up *set_up, enum sbx_gke_manifest_place place,
                           cJSON **out, sandbox_error *error)
{
    const struct sbx_gke_manifest *manifest = &sbx_gke_manifest_texts[place];
    SBX_ON_EXIT(sbx_json_free) cJSON *body = NULL;
    SBX_ON_EXIT(sbx_json_free)
    cJSON *object = sbx_gke_object(manifest->resource, name_of(set_up, place));
    sandbox_status status =
        sbx_yaml_parse(manifest->text, strlen(manifest->text), "a manifest", &body, error);
    if (status != SANDBOX_OK)
        return status;
    bool good = object != NULL;
    if (good && !manifest->resource->cluster_scoped)
        good = sbx_gke_put(object, space_of(set_up, place), "metadata", "namespace", NULL);
    good = good && sbx_gke_put(object, "libsandbox", "metadata", "labels",
                               "app.kubernetes.io/part-of", NULL);
    while (good && body->child != NULL) {
        cJSON *item = cJSON_DetachItemViaPointer(body, body->child);
        good = cJSON_AddItemToObject(object, item->string, item);
    }
    if (!good || !fill(set_up, place, object))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for manifests");
    *out = sbx_take(object);
    return SANDBOX_OK;
}

/* A part of an object that is filled in. NULL if it is not there. */
static cJSON *part_of(cJSON *object, const char *first, const char *second)
{
    cJSON *part = cJSON_GetObjectItemCaseSensitive(object, first);
    return second == NULL ? part : cJSON_GetObjectItemCaseSensitive(part, second);
}

static bool put_number(cJSON *object, const char *name, int64_t number)
{
    return object != NULL && sbx_json_set_integer(object, name, number);
}

static bool put_text(cJSON *object, const char *name, const char *text)
{
    return object != NULL && sbx_json_set_text(object, name, text);
}

static cJSON *add_to(cJSON *list)
{
    cJSON *item = cJSON_CreateObject();
    if (item != NULL && cJSON_AddItemToArray(list, item))
        return item;
    cJSON_Delete(item);
    return NULL;
}

static bool add_strings(cJSON *object, const char *name, const char *const *strings)
{
    cJSON *list = object == NULL ? NULL : cJSON_AddArrayToObject(object, name);
    bool good = list != NULL;
    for (; good && *strings != NULL; strings++)
        good = cJSON_AddItemToArray(list, cJSON_CreateString(*strings));
    return good;
}

static bool add_rule(cJSON *rules, const struct sbx_gke_right *right, const char *const *verbs,
                     const char *only)
{
    char name[100];
    snprintf(name, sizeof name, "%s%s%s", right->resource->plural, *right->part == '\0' ? "" : "/",
             right->part);
    const char *const groups[] = {right->resource->group, NULL}, *const names[] = {name, NULL};
    const char *const only_names[] = {only, NULL};
    cJSON *rule = add_to(rules);
    return add_strings(rule, "apiGroups", groups) && add_strings(rule, "resources", names) &&
           (only == NULL || add_strings(rule, "resourceNames", only_names)) &&
           add_strings(rule, "verbs", verbs);
}

/* Of what stands inside of namespaces, or outside. The keys' Secret is the only one to be read. */
static bool add_rules(cJSON *object, bool outside)
{
    static const char *const get[] = {"get", NULL}, *const create[] = {"create", NULL};
    cJSON *rules = cJSON_AddArrayToObject(object, "rules");
    bool good = rules != NULL;
    for (const struct sbx_gke_right *right = sbx_gke_rights; good && right->resource != NULL;
         right++) {
        if (right->resource->cluster_scoped != outside)
            continue;
        if (right->resource == &sbx_gke_secrets)
            good = add_rule(rules, right, get, SBX_GKE_KEYS_SECRET) &&
                   add_rule(rules, right, create, NULL);
        else
            good = add_rule(rules, right, right->verbs, NULL);
    }
    return good;
}

static bool fill_binding(const struct set_up *set_up, cJSON *object, const char *kind)
{
    cJSON *subject = cJSON_GetArrayItem(part_of(object, "subjects", NULL), 0);
    return put_text(part_of(object, "roleRef", NULL), "kind", kind) &&
           put_text(part_of(object, "roleRef", NULL), "name", "sandbox-client") &&
           put_text(subject, "name", set_up->account) &&
           put_text(subject, "namespace", set_up->account_space);
}

/* The one way out, where there is one. */
static bool fill_egress(const struct set_up *set_up, cJSON *policy)
{
    if (set_up->port == 0)
        return policy != NULL;
    cJSON *rule = add_to(part_of(policy, "egress", NULL));
    cJSON *to = rule == NULL ? NULL : add_to(cJSON_AddArrayToObject(rule, "to"));
    cJSON *port = rule == NULL ? NULL : add_to(cJSON_AddArrayToObject(rule, "ports"));
    if (set_up->proxy_space[0] == '\0' && !sbx_gke_put(to, set_up->cidr, "ipBlock", "cidr", NULL))
        return false;
    if (set_up->proxy_space[0] != '\0' &&
        (!sbx_gke_put(to, set_up->proxy_space, "namespaceSelector", "matchLabels",
                      SBX_GKE_SPACE_LABEL, NULL) ||
         !sbx_gke_put(to, SBX_GKE_PROXY, "podSelector", "matchLabels", SBX_GKE_PROXY_LABEL, NULL)))
        return false;
    return port != NULL && put_text(port, "protocol", "TCP") &&
           put_number(port, "port", set_up->port);
}

/* The one way in, where there is one: to the agent, from Pods that say what they are. */
static bool fill_ingress(const struct set_up *set_up, cJSON *policy)
{
    if (!set_up->settings.direct)
        return policy != NULL;
    cJSON *rule = add_to(part_of(policy, "ingress", NULL));
    cJSON *from = rule == NULL ? NULL : add_to(cJSON_AddArrayToObject(rule, "from"));
    cJSON *port = rule == NULL ? NULL : add_to(cJSON_AddArrayToObject(rule, "ports"));
    return from != NULL && port != NULL &&
           sbx_gke_put(from, set_up->account_space, "namespaceSelector", "matchLabels",
                       SBX_GKE_SPACE_LABEL, NULL) &&
           sbx_gke_put(from, "true", "podSelector", "matchLabels", SBX_GKE_CLIENT_LABEL, NULL) &&
           put_text(port, "protocol", "TCP") && put_number(port, "port", SBX_GKE_PORT);
}

/* The agent listens there too. */
static bool fill_channel(const struct set_up *set_up, cJSON *container)
{
    char address[24];
    if (!set_up->settings.direct)
        return container != NULL;
    snprintf(address, sizeof address, "[::]:%d", SBX_GKE_PORT);
    cJSON *command = part_of(container, "command", NULL);
    cJSON *port = container == NULL ? NULL : add_to(cJSON_AddArrayToObject(container, "ports"));
    return command != NULL && port != NULL &&
           cJSON_AddItemToArray(command, cJSON_CreateString("--tcp")) &&
           cJSON_AddItemToArray(command, cJSON_CreateString(address)) &&
           put_text(port, "name", "agent") && put_number(port, "containerPort", SBX_GKE_PORT);
}

static bool fill_pod_label(const struct set_up *set_up, cJSON *labels)
{
    return put_text(labels, SBX_GKE_POOL_LABEL, set_up->settings.pool);
}

static bool fill_class(const struct set_up *set_up, cJSON *object)
{
    cJSON *first = add_to(part_of(part_of(object, "spec", NULL), "priorities", NULL));
    return put_text(first, "machineFamily", set_up->options.machine_family);
}

static bool fill_limits(const struct set_up *set_up, cJSON *container)
{
    char memory[24], processors[24];
    const sandbox_manifests_options *options = &set_up->options;
    snprintf(memory, sizeof memory, "%uMi", options->memory_mib);
    snprintf(processors, sizeof processors, "%um", options->cpu_millis);
    cJSON *limits = part_of(container, "resources", "limits");
    cJSON *requests = part_of(container, "resources", "requests");
    /* Memory is what is there; processors are shared by those that sleep. */
    bool good = put_text(limits, "cpu", processors) && put_text(limits, "memory", memory) &&
                put_text(requests, "memory", memory);
    snprintf(processors, sizeof processors, "%um",
             options->cpu_millis < 400 ? options->cpu_millis : options->cpu_millis / 4);
    return good && put_text(requests, "cpu", processors);
}

static bool fill_template(const struct set_up *set_up, cJSON *object)
{
    const sandbox_manifests_options *options = &set_up->options;
    cJSON *spec = part_of(object, "spec", NULL);
    cJSON *pod = part_of(spec, "podTemplate", "spec");
    cJSON *metadata = part_of(spec, "podTemplate", "metadata");
    cJSON *container = cJSON_GetArrayItem(part_of(pod, "containers", NULL), 0);
    cJSON *agent = cJSON_GetArrayItem(part_of(pod, "initContainers", NULL), 0);
    const char *key =
        options->own_nodes ? "cloud.google.com/machine-family" : "cloud.google.com/compute-class";
    return fill_egress(set_up, part_of(spec, "networkPolicy", NULL)) &&
           fill_ingress(set_up, part_of(spec, "networkPolicy", NULL)) &&
           fill_channel(set_up, container) &&
           fill_pod_label(set_up, part_of(metadata, "labels", NULL)) &&
           put_text(part_of(pod, "nodeSelector", NULL), key,
                    options->own_nodes ? options->machine_family : set_up->class_name) &&
           put_text(pod, "serviceAccountName", "sandbox-workspace") &&
           put_text(agent, "image", options->agent_image) &&
           put_text(container, "image", options->image) && fill_limits(set_up, container);
}

static bool fill_policy(const struct set_up *set_up, cJSON *object)
{
    cJSON *spec = part_of(object, "spec", NULL);
    cJSON *group = part_of(spec, "snapshotGroupingRules", "groupByLabelValue");
    return put_text(spec, "storageConfigName", set_up->storage) &&
           fill_pod_label(set_up, part_of(part_of(spec, "selector", NULL), "matchLabels", NULL)) &&
           put_number(part_of(group, "groupRetentionPolicy", NULL), "maxSnapshotCountPerGroup",
                      SBX_GKE_RETENTION);
}

static bool fill_network(const struct set_up *set_up, cJSON *object)
{
    cJSON *spec = part_of(object, "spec", NULL);
    return fill_pod_label(set_up,
                          part_of(part_of(spec, "podSelector", NULL), "matchLabels", NULL)) &&
           fill_egress(set_up, spec) && fill_ingress(set_up, spec);
}

/* Workspaces of this namespace, whatever their pool; and whoever uses the library. */
static bool fill_proxy_network(const struct set_up *set_up, cJSON *object)
{
    const char *const spaces[] = {set_up->settings.space, set_up->account_space};
    cJSON *rules = part_of(part_of(object, "spec", NULL), "ingress", NULL);
    bool good = true;
    for (int n = 0; n < 2 && good; n++) {
        cJSON *from = part_of(cJSON_GetArrayItem(rules, n), "from", NULL);
        good = sbx_gke_put(cJSON_GetArrayItem(from, 0), spaces[n], "namespaceSelector",
                           "matchLabels", SBX_GKE_SPACE_LABEL, NULL);
    }
    return good;
}

static bool fill_proxy(const struct set_up *set_up, cJSON *object)
{
    cJSON *pod = part_of(part_of(part_of(object, "spec", NULL), "template", NULL), "spec", NULL);
    return put_text(cJSON_GetArrayItem(part_of(pod, "containers", NULL), 0), "image",
                    set_up->options.egress_image);
}

static bool fill(const struct set_up *set_up, enum sbx_gke_manifest_place place, cJSON *object)
{
    const sandbox_manifests_options *options = &set_up->options;
    switch (place) {
    case SBX_GKE_OF_ROLE:
    case SBX_GKE_OF_CLUSTER_ROLE:
        return add_rules(object, place == SBX_GKE_OF_CLUSTER_ROLE);
    case SBX_GKE_OF_BINDING:
        return fill_binding(set_up, object, "Role");
    case SBX_GKE_OF_CLUSTER_BINDING:
        return fill_binding(set_up, object, "ClusterRole");
    case SBX_GKE_OF_NETWORK:
        return fill_network(set_up, object);
    case SBX_GKE_OF_PROXY_NETWORK:
        return fill_proxy_network(set_up, object);
    case SBX_GKE_OF_PROXY:
        return fill_proxy(set_up, object);
    case SBX_GKE_OF_CLASS:
        return fill_class(set_up, object);
    case SBX_GKE_OF_STORAGE:
        return sbx_gke_put(object, options->bucket, "spec", "snapshotStorageConfig", "gcs",
                           "bucket", NULL) &&
               sbx_gke_put(object, options->path, "spec", "snapshotStorageConfig", "gcs", "path",
                           NULL);
    case SBX_GKE_OF_POLICY:
        return fill_policy(set_up, object);
    case SBX_GKE_OF_TEMPLATE:
        return fill_template(set_up, object);
    case SBX_GKE_OF_POOL:
        return put_number(part_of(object, "spec", NULL), "replicas", options->replicas) &&
               sbx_gke_put(object, set_up->pool, "spec", "sandboxTemplateRef", "name", NULL);
    case SBX_GKE_OF_SPACE:
    case SBX_GKE_OF_CLIENT:
    case SBX_GKE_OF_ACCOUNT:
    case SBX_GKE_OF_PROXY_SPACE:
    case SBX_GKE_OF_PROXY_SERVICE:
    case SBX_GKE_MANIFESTS:
        break;
    }
    return true;
}

/* ---- printing ---- */

static sandbox_status print(const struct sbx_gke_manifest *manifest, const cJSON *object,
                            struct sbx_manifests_sink *sink, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_bytes_free) struct sbx_bytes text = SBX_BYTES(TEXT_MAX);
    SBX_ON_EXIT(sbx_free_text) char *yaml = sbx_yaml_print(object);
    bool good = yaml != NULL;
    for (const char *at = manifest->comment; good && *at != '\0';) {
        int size = (int)strcspn(at, "\n");
        good = sbx_bytes_format(&text, "# %.*s\n", size, at);
        at += size + (at[size] == '\n');
    }
    if (!good || !sbx_bytes_append(&text, yaml, strlen(yaml) + 1))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for manifests");
    sink->add(sink, manifest->resource->kind, sbx_gke_text(object, "metadata", "namespace", NULL),
              sbx_gke_text(object, "metadata", "name", NULL), (const char *)sbx_bytes_data(&text));
    return SANDBOX_OK;
}
