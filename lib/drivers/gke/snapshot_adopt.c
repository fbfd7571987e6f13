/* What became of a snapshot whose taker has died. */

#include "drivers/gke/snapshot.h"
#include "util/fail.h"
#include "util/memory.h"

/* For a snapshot that does not come, while the instance that it was taken of is there. */
#define ADOPT_MS 30000u

static bool trigger_ended(void *user_data, const cJSON *trigger)
{
    return trigger == NULL || sbx_gke_trigger_progress(trigger, NULL) != SBX_GKE_UNDER_WAY;
}

static bool pod_snapshot_ended(void *user_data, const cJSON *pod_snapshot)
{
    return pod_snapshot == NULL ||
           sbx_gke_pod_snapshot_progress(pod_snapshot, NULL) != SBX_GKE_UNDER_WAY;
}

static sandbox_status await_end(struct sbx_gke *driver, const struct sbx_resource *resource,
                                cJSON **object, bool (*ended)(void *, const cJSON *),
                                const struct sbx_wait *wait, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text)
    char *name = sbx_copy(sbx_gke_text(*object, "metadata", "name", NULL));
    cJSON *now = NULL;
    if (name == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to wait for a snapshot");
    sandbox_status status = sbx_kubernetes_await(driver->cluster, resource, driver->space, name,
                                                 *object, ended, NULL, wait, &now, error);
    if (status == SANDBOX_OK) {
        cJSON_Delete(*object);
        *object = now;
    }
    return status;
}

/* Whatever works on it has ended, or `wait` has. */
static sandbox_status await_taken(struct sbx_gke *driver, const struct sbx_record *record,
                                  const char *snapshot_id, struct sbx_gke_taken *taken,
                                  const struct sbx_wait *wait, sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    if (taken->trigger != NULL &&
        sbx_gke_trigger_progress(taken->trigger, NULL) == SBX_GKE_UNDER_WAY) {
        status = await_end(driver, &sbx_gke_triggers, &taken->trigger, trigger_ended, wait, error);
        sbx_gke_taken_clear(taken);
        if (status == SANDBOX_OK)
            status = sbx_gke_taken_find(driver, record, snapshot_id, wait, taken, error);
    }
    if (status == SANDBOX_OK && taken->pod_snapshot != NULL &&
        sbx_gke_pod_snapshot_progress(taken->pod_snapshot, NULL) == SBX_GKE_UNDER_WAY)
        status = await_end(driver, &sbx_gke_snapshots, &taken->pod_snapshot, pod_snapshot_ended,
                           wait, error);
    return status;
}

/* The sealed instance still runs: then a snapshot that does not come is no loss. */
static sandbox_status is_replaceable(struct sbx_gke *driver, const struct sbx_snapshot *snapshot,
                                     const struct sbx_wait *wait, bool *replaceable,
                                     sandbox_error *error)
{
    struct sbx_gke_incarnation of;
    SBX_ON_EXIT(sbx_json_free) cJSON *pod = NULL;
    *replaceable = false;
    if (!sbx_gke_incarnation_read(snapshot->incarnation, &of))
        return SANDBOX_OK;
    sandbox_status status = sbx_gke_find(driver, &sbx_gke_pods, of.pod, wait, &pod, error);
    *replaceable = pod != NULL && strcmp(sbx_gke_uid(pod), of.uid) == 0 &&
                   sbx_gke_at(pod, "metadata", "deletionTimestamp", NULL) == NULL;
    return status;
}

sandbox_status sbx_gke_snapshot_adopt(void *state, const struct sbx_record *record,
                                      struct sbx_snapshot *snapshot, const struct sbx_wait *wait,
                                      sandbox_error *error)
{
    struct sbx_gke *driver = state;
    SBX_ON_EXIT(sbx_gke_taken_clear) struct sbx_gke_taken taken = {0};
    struct sbx_wait patience = sbx_wait_within(wait, ADOPT_MS);
    char why[SBX_GKE_WHY];
    bool replaceable = false;
    sandbox_status status = sbx_gke_fence(driver, record, wait, NULL, error);
    if (status == SANDBOX_OK)
        status = is_replaceable(driver, snapshot, wait, &replaceable, error);
    if (status == SANDBOX_OK)
        status = sbx_gke_taken_find(driver, record, snapshot->id, wait, &taken, error);
    if (status == SANDBOX_OK) {
        status = await_taken(driver, record, snapshot->id, &taken, replaceable ? &patience : wait,
                             error);
        /* Our own patience has ended, not the caller's. */
        if (status == SANDBOX_TIMED_OUT && replaceable && sbx_wait_check(wait, NULL) == SANDBOX_OK)
            status = SANDBOX_OK;
    }
    if (status != SANDBOX_OK)
        return status;
    bool complete = taken.pod_snapshot != NULL &&
                    sbx_gke_pod_snapshot_progress(taken.pod_snapshot, why) == SBX_GKE_DONE &&
                    sbx_gke_is_of(taken.pod_snapshot, snapshot->incarnation, taken.trigger, why);
    if (complete)
        return sbx_gke_digest(taken.pod_snapshot, record, snapshot, snapshot->digest)
                   ? SANDBOX_OK
                   : sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to look at a snapshot");
    status = sbx_gke_take_away(driver, record, snapshot->id, ADOPT_MS, wait, error);
    return status == SANDBOX_OK ? sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-such-snapshot",
                                               "no snapshot of '%s' was completed", record->name)
                                : status;
}
