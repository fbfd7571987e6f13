/*
 * Taking a snapshot: a trigger, then the PodSnapshot that GKE makes of it, until that one can be
 * restored. What the trigger says is not enough: it is done long before.
 */

#include "drivers/gke/snapshot.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"
#include <stdio.h>

#define GIVE_UP_MS     10000u
#define FIRST_PAUSE_MS 250u
#define CREATE_TRIES   3

struct taking {
    struct sbx_gke *driver;
    const struct sbx_record *record;
    struct sbx_snapshot *snapshot;
    const struct sbx_wait *wait;
    struct sbx_gke_incarnation of;
    cJSON *sandbox;
    char trigger_name[SBX_GKE_NAME];
    struct sbx_gke_taken taken;
    bool too_early; /* the node's snapshot agent is not up yet */
};

static sandbox_status begin(struct taking *taking, sandbox_error *error);
static sandbox_status attempt(struct taking *taking, int number, sandbox_error *error);
static sandbox_status trigger(struct taking *taking, sandbox_error *error);
static sandbox_status await_trigger(struct taking *taking, sandbox_error *error);
static sandbox_status await_ready(struct taking *taking, sandbox_error *error);
static void give_up(struct taking *taking, sandbox_status status);

sandbox_status sbx_gke_snapshot_take(void *state, const struct sbx_record *record,
                                     struct sbx_snapshot *snapshot, struct sbx_progress *progress,
                                     const struct sbx_wait *wait, sandbox_error *error)
{
    struct taking taking = {.driver = state, .record = record, .snapshot = snapshot, .wait = wait};
    uint32_t pause_ms = FIRST_PAUSE_MS;
    sandbox_status status = begin(&taking, error);
    bool begun = status == SANDBOX_OK;
    if (begun)
        status = attempt(&taking, 1, error);
    for (int n = 2; taking.too_early && n <= SBX_GKE_ATTEMPTS; n++, pause_ms *= 2) {
        sandbox_error over = {0};
        /* Its words are worth more than those of a deadline. */
        if (sbx_wait_pause(wait, pause_ms, &over) != SANDBOX_OK) {
            status = over.status == SANDBOX_CANCELLED ? SANDBOX_CANCELLED : status;
            break;
        }
        status = attempt(&taking, n, error);
    }
    if (status == SANDBOX_OK &&
        !sbx_gke_digest(taking.taken.pod_snapshot, record, snapshot, snapshot->digest))
        status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to describe a snapshot");
    if (status == SANDBOX_OK)
        snapshot->bytes = 0; /* GKE does not tell */
    else if (begun)
        give_up(&taking, status);
    sbx_gke_taken_clear(&taking.taken);
    cJSON_Delete(taking.sandbox);
    return status;
}

/* The very instance that was sealed. */
static sandbox_status begin(struct taking *taking, sandbox_error *error)
{
    struct sbx_gke *driver = taking->driver;
    const struct sbx_record *record = taking->record;
    SBX_ON_EXIT(sbx_json_free) cJSON *pod = NULL;
    sandbox_error left = {0};
    if (taking->snapshot->kind != SANDBOX_KEEP_MEMORY)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "keep-files",
                            "the files of '%s' alone cannot be kept on gke:", record->name);
    sandbox_status status = sbx_gke_fence(driver, record, taking->wait, &taking->sandbox, error);
    if (status == SANDBOX_OK && !sbx_gke_incarnation_read(record->incarnation, &taking->of))
        return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "instance-gone",
                            "the record of '%s' names no Pod", record->name);
    if (status == SANDBOX_OK && taking->sandbox != NULL)
        status = sbx_gke_pod_of(driver, taking->sandbox, taking->wait, &pod, error);
    if (status != SANDBOX_OK)
        return status;
    if (pod == NULL || strcmp(sbx_gke_uid(pod), taking->of.uid) != 0 ||
        sbx_gke_at(pod, "metadata", "deletionTimestamp", NULL) != NULL)
        return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "instance-gone",
                            "the Pod of '%s' is not the one that was sealed", record->name);
    if (sbx_gke_sweep(driver, record, taking->wait, &left) != SANDBOX_OK)
        sbx_log(SANDBOX_LOG_WARNING, "old PodSnapshots of '%s' are left: %s", record->name,
                left.message);
    return SANDBOX_OK;
}

/* A trigger works once: each attempt has one of its own. */
static sandbox_status attempt(struct taking *taking, int number, sandbox_error *error)
{
    char base[SBX_GKE_NAME];
    taking->too_early = false;
    sbx_gke_taken_clear(&taking->taken);
    sbx_gke_trigger_name(taking->record, taking->snapshot->id, base);
    if (number == 1)
        snprintf(taking->trigger_name, sizeof taking->trigger_name, "%s", base);
    else
        snprintf(taking->trigger_name, sizeof taking->trigger_name, "%.240s-%d", base, number);
    sandbox_status status = trigger(taking, error);
    if (status == SANDBOX_OK)
        status = await_trigger(taking, error);
    if (status == SANDBOX_OK)
        status = await_ready(taking, error);
    if (!taking->too_early)
        return status;
    sbx_log(SANDBOX_LOG_WARNING, "the snapshot of '%s' is tried again: %s", taking->record->name,
            error == NULL ? "" : error->message);
    sandbox_status away = sbx_gke_take_away(taking->driver, taking->record, taking->snapshot->id,
                                            GIVE_UP_MS, taking->wait, NULL);
    taking->too_early = away == SANDBOX_OK;
    return status;
}

/* Whoever deletes the claim, which controls the Sandbox, deletes its triggers. */
static bool put_owner(cJSON *object, const cJSON *sandbox)
{
    const cJSON *claim = sbx_gke_controller(sandbox);
    cJSON *owner = sbx_gke_object(&sbx_gke_claims, "");
    sbx_json_remove(owner, "metadata");
    bool made = sbx_gke_put(owner, sbx_json_text(claim, "name"), "name", NULL) &&
                sbx_gke_put(owner, sbx_json_text(claim, "uid"), "uid", NULL);
    cJSON *metadata = cJSON_GetObjectItemCaseSensitive(object, "metadata");
    cJSON *owners = cJSON_AddArrayToObject(metadata, "ownerReferences");
    if (made && cJSON_AddItemToArray(owners, owner))
        return true;
    cJSON_Delete(owner);
    return false;
}

static cJSON *describe(const struct taking *taking)
{
    cJSON *object = sbx_gke_object(&sbx_gke_triggers, taking->trigger_name);
    if (sbx_gke_put_labels(object, taking->record->id) &&
        sbx_gke_put(object, taking->snapshot->id, "metadata", "labels", SBX_GKE_SNAPSHOT, NULL) &&
        sbx_gke_put(object, taking->of.pod, "spec", "targetPod", NULL) &&
        put_owner(object, taking->sandbox))
        return object;
    cJSON_Delete(object);
    return NULL;
}

static sandbox_status trigger(struct taking *taking, sandbox_error *error)
{
    struct sbx_gke *driver = taking->driver;
    SBX_ON_EXIT(sbx_json_free) cJSON *object = describe(taking);
    sandbox_status status = SANDBOX_UNKNOWN;
    if (object == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a trigger");
    /* An answer that is lost is asked for again: of one name there is one trigger. */
    for (int n = 0; n < CREATE_TRIES && status == SANDBOX_UNKNOWN; n++)
        status = sbx_kubernetes_create(driver->cluster, &sbx_gke_triggers, driver->space, object,
                                       taking->wait, &taking->taken.trigger, error);
    if (status != SANDBOX_EXISTS)
        return status;
    status = sbx_kubernetes_get(driver->cluster, &sbx_gke_triggers, driver->space,
                                taking->trigger_name, taking->wait, &taking->taken.trigger, error);
    const char *target = sbx_gke_text(taking->taken.trigger, "spec", "targetPod", NULL);
    if (status == SANDBOX_OK && (strcmp(target, taking->of.pod) != 0 ||
                                 !sbx_gke_is_ours(taking->taken.trigger, taking->record->id)))
        return sbx_fail(error, SANDBOX_CONFLICT, "the trigger '%s' is not ours",
                        taking->trigger_name);
    return status;
}

static bool trigger_ended(void *user_data, const cJSON *object)
{
    return object == NULL || sbx_gke_trigger_progress(object, NULL) != SBX_GKE_UNDER_WAY;
}

static sandbox_status failed(const struct taking *taking, const char *why, sandbox_error *error)
{
    return sbx_fail_for(error, SANDBOX_FAILED, "snapshot-failed",
                        "GKE made no snapshot of '%s': %s", taking->record->name, why);
}

static sandbox_status await_trigger(struct taking *taking, sandbox_error *error)
{
    struct sbx_gke *driver = taking->driver;
    char why[SBX_GKE_WHY];
    SBX_ON_EXIT(sbx_json_free) cJSON *known = sbx_take(taking->taken.trigger);
    sandbox_status status = sbx_kubernetes_await(driver->cluster, &sbx_gke_triggers, driver->space,
                                                 taking->trigger_name, known, trigger_ended, NULL,
                                                 taking->wait, &taking->taken.trigger, error);
    if (status != SANDBOX_OK)
        return status;
    if (taking->taken.trigger == NULL)
        return failed(taking, "somebody deleted its trigger", error);
    if (sbx_gke_trigger_progress(taking->taken.trigger, why) == SBX_GKE_DONE)
        return SANDBOX_OK;
    /* What a fresh node says until its snapshot agent has come up. */
    taking->too_early = strstr(why, "storage backend may not be available") != NULL;
    return failed(taking, why, error);
}

static bool pod_snapshot_ended(void *user_data, const cJSON *object)
{
    return object == NULL || sbx_gke_pod_snapshot_progress(object, NULL) != SBX_GKE_UNDER_WAY;
}

static sandbox_status await_ready(struct taking *taking, sandbox_error *error)
{
    struct sbx_gke *driver = taking->driver;
    char why[SBX_GKE_WHY];
    const char *name = sbx_gke_trigger_made(taking->taken.trigger);
    sandbox_status status = sbx_kubernetes_await(driver->cluster, &sbx_gke_snapshots, driver->space,
                                                 name, NULL, pod_snapshot_ended, NULL, taking->wait,
                                                 &taking->taken.pod_snapshot, error);
    if (status != SANDBOX_OK)
        return status;
    if (taking->taken.pod_snapshot == NULL)
        return failed(taking, "its PodSnapshot was deleted", error);
    if (sbx_gke_pod_snapshot_progress(taking->taken.pod_snapshot, why) != SBX_GKE_DONE) {
        taking->too_early = strstr(why, "storage backend may not be available") != NULL;
        return failed(taking, why, error);
    }
    if (!sbx_gke_is_of(taking->taken.pod_snapshot, taking->snapshot->incarnation,
                       taking->taken.trigger, why))
        return failed(taking, why, error);
    return SANDBOX_OK;
}

/*
 * Whoever gave up wants the instance back. Without it, what GKE still works on may be all there is:
 * then it stays for snapshot_adopt().
 */
static void give_up(struct taking *taking, sandbox_status status)
{
    struct sbx_gke *driver = taking->driver;
    SBX_ON_EXIT(sbx_json_free) cJSON *pod = NULL;
    sandbox_error left = {0};
    struct sbx_wait alone = sbx_wait_alone(GIVE_UP_MS);
    if (status == SANDBOX_CONFLICT)
        return;
    sandbox_status found = sbx_gke_find(driver, &sbx_gke_pods, taking->of.pod, &alone, &pod, &left);
    bool there = pod != NULL && strcmp(sbx_gke_uid(pod), taking->of.uid) == 0;
    if (there)
        found = sbx_gke_take_away(driver, taking->record, taking->snapshot->id, GIVE_UP_MS, &alone,
                                  &left);
    if (found != SANDBOX_OK && found != SANDBOX_NOT_FOUND)
        sbx_log(SANDBOX_LOG_WARNING, "what was begun of a snapshot of '%s' is left: %s",
                taking->record->name, left.message);
}
