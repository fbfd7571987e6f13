/* The GKE driver's table, its kinds of objects, and its opening. */

#include "drivers/gke/gke.h"
#include "drivers/gke/setup.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/owner.h"
#include <stdlib.h>

#define LOOK_MS   10000u
#define AGENTS    "agents.x-k8s.io"
#define CLAIMS    "extensions.agents.x-k8s.io"
#define SNAPSHOTS "podsnapshot.gke.io"

static sandbox_status open_driver(const char *rest, const struct sbx_wait *wait, void **state,
                                  sandbox_error *error);
static void close_driver(void *state);
static bool can(void *state, sandbox_ability ability);
static sandbox_status owner_name(void *state, char owner[128], sandbox_error *error);
static bool owner_is_gone(void *state, const char *owner);
static sandbox_status settle_names(struct sbx_gke *driver, sandbox_error *error);
static void abandon(struct sbx_gke **driver);

const struct sbx_resource sbx_gke_claims = {CLAIMS, "v1beta1", "sandboxclaims", "SandboxClaim",
                                            false};
const struct sbx_resource sbx_gke_sandboxes = {AGENTS, "v1beta1", "sandboxes", "Sandbox", false};
const struct sbx_resource sbx_gke_templates = {CLAIMS, "v1beta1", "sandboxtemplates",
                                               "SandboxTemplate", false};
const struct sbx_resource sbx_gke_pools = {CLAIMS, "v1beta1", "sandboxwarmpools", "SandboxWarmPool",
                                           false};
const struct sbx_resource sbx_gke_pods = {"", "v1", "pods", "Pod", false};
const struct sbx_resource sbx_gke_config_maps = {"", "v1", "configmaps", "ConfigMap", false};
const struct sbx_resource sbx_gke_secrets = {"", "v1", "secrets", "Secret", false};
const struct sbx_resource sbx_gke_snapshots = {SNAPSHOTS, "v1", "podsnapshots", "PodSnapshot",
                                               false};
const struct sbx_resource sbx_gke_triggers = {SNAPSHOTS, "v1", "podsnapshotmanualtriggers",
                                              "PodSnapshotManualTrigger", false};
const struct sbx_resource sbx_gke_policies = {SNAPSHOTS, "v1", "podsnapshotpolicies",
                                              "PodSnapshotPolicy", false};
const struct sbx_resource sbx_gke_storages = {SNAPSHOTS, "v1", "podsnapshotstorageconfigs",
                                              "PodSnapshotStorageConfig", true};

const struct sbx_driver sbx_driver_gke = {
    .name = "gke",
    .open = open_driver,
    .close = close_driver,
    .can = can,
    .examine = sbx_gke_examine,
    .describe = sbx_gke_describe,
    .judge_description = sbx_gke_judge_description,
    .manifests = sbx_gke_manifests,
    .manifests_apply = sbx_gke_manifests_apply,
    .record_load = sbx_gke_record_load,
    .record_store = sbx_gke_record_store,
    .record_remove = sbx_gke_record_remove,
    .record_list = sbx_gke_record_list,
    .secret = sbx_gke_secret,
    .owner_name = owner_name,
    .owner_is_gone = owner_is_gone,
    .provision = sbx_gke_provision,
    .inspect = sbx_gke_inspect,
    .discard = sbx_gke_discard,
    .destroy = sbx_gke_destroy,
    .connect = sbx_gke_connect,
    .is_direct = sbx_gke_is_direct,
    .connect_direct = sbx_gke_connect_direct,
    .renewed = sbx_gke_renewed,
    .snapshot_prepare = sbx_gke_snapshot_prepare,
    .snapshot_take = sbx_gke_snapshot_take,
    .snapshot_adopt = sbx_gke_snapshot_adopt,
    .snapshot_verify = sbx_gke_snapshot_verify,
    .snapshot_remove = sbx_gke_snapshot_remove,
    .restore = sbx_gke_restore,
    .evidence = sbx_gke_evidence,
    .release = sbx_gke_release,
    .settled = sbx_gke_settled,
    .egress_open = sbx_gke_egress_open,
    .egress_ask = sbx_gke_egress_ask,
    .egress_forget = sbx_gke_egress_forget,
};

static sandbox_status open_driver(const char *rest, const struct sbx_wait *wait, void **state,
                                  sandbox_error *error)
{
    SBX_ON_EXIT(abandon) struct sbx_gke *driver = calloc(1, sizeof *driver);
    if (driver == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a client");
    pthread_mutex_init(&driver->lock, NULL);
    sandbox_status status = sbx_gke_settings_read(rest, driver, error);
    if (status == SANDBOX_OK)
        status = sbx_gke_egress_settle(driver, error);
    if (status != SANDBOX_OK)
        return status;
    struct sbx_kubernetes_options options = {.context = driver->context,
                                             .in_cluster = *driver->context == '\0'};
    status = sbx_kubernetes_open(&options, &driver->cluster, error);
    if (status == SANDBOX_OK)
        status = settle_names(driver, error);
    if (status == SANDBOX_OK)
        *state = sbx_take(driver);
    return status;
}

static sandbox_status settle_names(struct sbx_gke *driver, sandbox_error *error)
{
    if (*driver->space == '\0') {
        free(driver->space);
        driver->space = sbx_copy(sbx_kubernetes_namespace(driver->cluster));
    }
    if (driver->space != NULL)
        driver->title = sbx_format("gke://%s/%s", driver->context, driver->space);
    return driver->title != NULL ? SANDBOX_OK
                                 : sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a client");
}

static void close_driver(void *state)
{
    struct sbx_gke *driver = state;
    sbx_kubernetes_close(driver->cluster);
    sbx_http_stop(driver->http);
    sbx_gke_settings_clear(driver);
    sbx_wipe(driver->keys, sizeof driver->keys);
    pthread_mutex_destroy(&driver->lock);
    free(driver);
}

static bool can(void *state, sandbox_ability ability)
{
    const struct sbx_wait wait = sbx_wait_alone(LOOK_MS);
    struct sbx_gke_limits limits = {0};
    switch (ability) {
    case SANDBOX_CAN_LIMIT_MEMORY: /* the pool's template does */
        return sbx_gke_limits(state, &wait, &limits, NULL) == SANDBOX_OK && limits.memory_mib != 0;
    case SANDBOX_CAN_LIMIT_CPU:
        return sbx_gke_limits(state, &wait, &limits, NULL) == SANDBOX_OK && limits.cpu_millis != 0;
    case SANDBOX_CAN_LIMIT_PROCESSES: /* the agent does */
    case SANDBOX_CAN_USE_IMAGES:
    case SANDBOX_CAN_KEEP_MEMORY:
        return true;
    case SANDBOX_CAN_REACH_OUT:
        return sbx_gke_egress_is_set(state);
    case SANDBOX_CAN_LIMIT_DISK:
    case SANDBOX_CAN_KEEP_FILES: /* alone, without the processes */
        return false;
    }
    return false;
}

/*
 * Owners live on any machine. Of one on another machine, in another boot or container nothing is
 * known here: only its lease tells.
 */
static sandbox_status owner_name(void *state, char owner[128], sandbox_error *error)
{
    return sbx_owner_name(owner, error);
}

static bool owner_is_gone(void *state, const char *owner)
{
    return sbx_owner_is_gone(owner, SBX_OWNER_ANYWHERE);
}

static void abandon(struct sbx_gke **driver)
{
    if (*driver != NULL)
        close_driver(*driver);
}
