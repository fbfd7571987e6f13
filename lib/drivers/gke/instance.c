/*
 * The life of an instance: a Sandbox and the Pod that it has now. A Pod's name comes again with the
 * next one, its UID never does: by that it is known.
 */

#include "drivers/gke/gke.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"
#include <stdio.h>

#define CLEAN_UP_MS 60000u

static sandbox_status start(struct sbx_gke *driver, const struct sbx_record *record,
                            const struct sbx_wait *wait, bool *made, bool *begun,
                            sandbox_error *error);
static sandbox_status start_again(struct sbx_gke *driver, const struct sbx_record *record,
                                  const struct sbx_wait *wait, bool *begun, sandbox_error *error);
static void undo(struct sbx_gke *driver, const struct sbx_record *record, bool made);
static sandbox_status end(struct sbx_gke *driver, const struct sbx_record *record,
                          const struct sbx_wait *wait, sandbox_error *error);

sandbox_status sbx_gke_sandbox_find(struct sbx_gke *driver, const struct sbx_record *record,
                                    const struct sbx_wait *wait, cJSON **claim, cJSON **sandbox,
                                    sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *found = NULL;
    SBX_ON_EXIT(sbx_json_free) cJSON *owned = NULL;
    *sandbox = NULL;
    sandbox_status status = sbx_gke_claim_get(driver, record, wait, &found, error);
    const char *name = sbx_gke_text(found, "status", "sandbox", "name", NULL);
    if (status == SANDBOX_OK && *name != '\0')
        status = sbx_gke_find(driver, &sbx_gke_sandboxes, name, wait, &owned, error);
    if (status != SANDBOX_OK)
        return status;
    /* Two claims may want one Sandbox for a moment: it is its controller's. */
    if (owned != NULL && sbx_gke_is_controlled_by(owned, sbx_gke_uid(found)))
        *sandbox = sbx_take(owned);
    if (claim != NULL)
        *claim = sbx_take(found);
    return SANDBOX_OK;
}

sandbox_status sbx_gke_sandbox_of(struct sbx_gke *driver, const struct sbx_record *record,
                                  const struct sbx_wait *wait, cJSON **claim, cJSON **sandbox,
                                  sandbox_error *error)
{
    sandbox_status status = sbx_gke_sandbox_find(driver, record, wait, claim, sandbox, error);
    if (status == SANDBOX_OK && *sandbox == NULL)
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-instance", "'%s' has no Sandbox in '%s'",
                            record->name, driver->title);
    return status;
}

/* The claim's name is made of the workspace's id, so no other workspace's is named so. */
static bool is_of_claim(const cJSON *sandbox, const struct sbx_record *record)
{
    char name[SBX_GKE_NAME];
    const cJSON *owner = sbx_gke_controller(sandbox);
    sbx_gke_claim_name(record, name);
    return strcmp(sbx_json_text(owner, "kind"), sbx_gke_claims.kind) == 0 &&
           strcmp(sbx_json_text(owner, "name"), name) == 0;
}

sandbox_status sbx_gke_sandbox_named(struct sbx_gke *driver, const struct sbx_record *record,
                                     const struct sbx_wait *wait, cJSON **sandbox,
                                     sandbox_error *error)
{
    struct sbx_gke_incarnation of;
    SBX_ON_EXIT(sbx_json_free) cJSON *found = NULL;
    sandbox_status status = SANDBOX_OK;
    /* While it is suspended there is no instance, and the Sandbox is that of its snapshot. */
    const struct sbx_snapshot *snapshot = sbx_record_snapshot(record, record->snapshot);
    const char *incarnation = record->incarnation;
    if (*incarnation == '\0' && snapshot != NULL)
        incarnation = snapshot->incarnation;
    if (sbx_gke_incarnation_read(incarnation, &of))
        status = sbx_gke_find(driver, &sbx_gke_sandboxes, of.sandbox, wait, &found, error);
    if (status == SANDBOX_OK && !is_of_claim(found, record))
        return sbx_gke_sandbox_find(driver, record, wait, NULL, sandbox, error);
    *sandbox = sbx_take(found);
    return status;
}

sandbox_status sbx_gke_pod_of(struct sbx_gke *driver, const cJSON *sandbox,
                              const struct sbx_wait *wait, cJSON **pod, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *found = NULL;
    *pod = NULL;
    sandbox_status status =
        sbx_gke_find(driver, &sbx_gke_pods, sbx_gke_pod_name(sandbox), wait, &found, error);
    if (found != NULL && sbx_gke_is_controlled_by(found, sbx_gke_uid(sandbox)))
        *pod = sbx_take(found);
    return status;
}

sandbox_status sbx_gke_set_mode(struct sbx_gke *driver, const struct sbx_record *record,
                                const char *mode, const struct sbx_wait *wait, cJSON **sandbox,
                                sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *seen = NULL;
    for (;;) {
        sbx_json_free(&seen);
        sandbox_status status = sbx_gke_fence(driver, record, wait, &seen, error);
        if (status != SANDBOX_OK)
            return status;
        if (seen == NULL)
            return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-instance",
                                "'%s' has no Sandbox in '%s'", record->name, driver->title);
        if (strcmp(sbx_gke_text(seen, "spec", "operatingMode", NULL), mode) == 0)
            break;
        SBX_ON_EXIT(sbx_json_free) cJSON *patch = cJSON_CreateObject();
        SBX_ON_EXIT(sbx_json_free) cJSON *changed = NULL;
        if (!sbx_gke_put(patch, sbx_gke_version(seen), "metadata", "resourceVersion", NULL) ||
            !sbx_gke_put(patch, mode, "spec", "operatingMode", NULL))
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
        status = sbx_kubernetes_patch(driver->cluster, &sbx_gke_sandboxes, driver->space,
                                      sbx_gke_text(seen, "metadata", "name", NULL), "", patch, wait,
                                      &changed, error);
        if (status == SANDBOX_OK) {
            sbx_json_free(&seen);
            seen = sbx_take(changed);
            break;
        }
        if (status != SANDBOX_CONFLICT)
            return status;
        status = sbx_wait_check(wait, error);
        if (status != SANDBOX_OK)
            return status;
    }
    if (sandbox != NULL)
        *sandbox = sbx_take(seen);
    return SANDBOX_OK;
}

sandbox_status sbx_gke_provision(void *state, const struct sbx_record *record,
                                 const struct sbx_wait *wait,
                                 char incarnation[SBX_INCARNATION_TEXT], sandbox_error *error)
{
    struct sbx_gke *driver = state;
    bool made = false, begun = false;
    sandbox_status status = sbx_gke_limits_check(driver, record, wait, error);
    if (status == SANDBOX_OK)
        status = sbx_gke_check_record(driver, record, wait, error);
    if (status == SANDBOX_OK)
        status = start(driver, record, wait, &made, &begun, error);
    if (status == SANDBOX_OK)
        status = sbx_gke_await_ready(driver, record, &(struct sbx_gke_seen){.not_uid = ""}, wait,
                                     incarnation, NULL, error);
    /* Whoever has taken over since has found no claim of ours to remove. */
    if (status == SANDBOX_OK)
        status = sbx_gke_check_record(driver, record, wait, error);
    if (status == SANDBOX_OK && made)
        status = sbx_gke_claim_keep(driver, record, wait, error);
    if (status != SANDBOX_OK && begun)
        undo(driver, record, made);
    return status;
}

/* `begun`: there may be something to undo; `made`: a claim of this very call. */
static sandbox_status start(struct sbx_gke *driver, const struct sbx_record *record,
                            const struct sbx_wait *wait, bool *made, bool *begun,
                            sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *claim = NULL;
    sandbox_status status = sbx_wait_check(wait, error);
    if (status == SANDBOX_OK)
        status = sbx_gke_claim_make(driver, record, wait, &claim, error);
    if (status == SANDBOX_EXISTS)
        return start_again(driver, record, wait, begun, error);
    *made = *begun = status == SANDBOX_OK || status == SANDBOX_UNKNOWN ||
                     status == SANDBOX_TIMED_OUT || status == SANDBOX_CANCELLED ||
                     status == SANDBOX_UNAVAILABLE;
    return status;
}

/*
 * The claim of an instance that was ended is used again, for its Sandbox's name is what the
 * snapshots of the workspace are kept under. The next Pod starts cold: without an empty pin GKE
 * would restore the last snapshot.
 */
static sandbox_status start_again(struct sbx_gke *driver, const struct sbx_record *record,
                                  const struct sbx_wait *wait, bool *begun, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *sandbox = NULL;
    SBX_ON_EXIT(sbx_json_free) cJSON *pod = NULL;
    sandbox_status status = sbx_gke_fence(driver, record, wait, &sandbox, error);
    if (status == SANDBOX_OK && sandbox != NULL)
        status = sbx_gke_pod_of(driver, sandbox, wait, &pod, error);
    if (status != SANDBOX_OK)
        return status;
    if (sandbox == NULL || pod != NULL || !sbx_gke_sandbox_is_suspended(sandbox))
        return sbx_fail_for(error, SANDBOX_CONFLICT, "instance-exists",
                            "'%s' has an instance already, or one is being made; discard it first",
                            record->name);
    *begun = true;
    status = sbx_gke_claim_pin(driver, record, "", wait, NULL, error);
    if (status == SANDBOX_OK)
        status = sbx_gke_set_mode(driver, record, "Running", wait, NULL, error);
    return status;
}

/* The caller's wait may be used up or cancelled: cleaning up has its own time. */
static void undo(struct sbx_gke *driver, const struct sbx_record *record, bool made)
{
    struct sbx_wait alone = sbx_wait_alone(CLEAN_UP_MS);
    sandbox_error left = {0};
    sandbox_status status = made ? sbx_gke_claim_remove(driver, record, &alone, &left)
                                 : end(driver, record, &alone, &left);
    if (status != SANDBOX_OK)
        sbx_log(SANDBOX_LOG_WARNING, "something of '%s' may be left in '%s': %s", record->name,
                driver->title, left.message);
}

sandbox_status sbx_gke_discard(void *state, const struct sbx_record *record,
                               const struct sbx_wait *wait, sandbox_error *error)
{
    return end(state, record, wait, error);
}

/* Suspending takes no snapshot: one is only ever made by a trigger. */
static sandbox_status end(struct sbx_gke *driver, const struct sbx_record *record,
                          const struct sbx_wait *wait, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *sandbox = NULL;
    SBX_ON_EXIT(sbx_json_free) cJSON *pod = NULL;
    sandbox_status status = sbx_gke_set_mode(driver, record, "Suspended", wait, &sandbox, error);
    if (status ==
        SANDBOX_NOT_FOUND) /* at most a claim that waits for a Sandbox, which it must not get */
        return sbx_gke_claim_remove(driver, record, wait, error);
    if (status == SANDBOX_OK)
        status = sbx_gke_pod_of(driver, sandbox, wait, &pod, error);
    if (status == SANDBOX_OK && pod != NULL)
        status =
            sbx_gke_await_gone(driver, &sbx_gke_pods, sbx_gke_text(pod, "metadata", "name", NULL),
                               sbx_gke_uid(pod), wait, error);
    if (status == SANDBOX_OK)
        status = sbx_gke_await_suspended(driver, sandbox, wait, error);
    return status;
}

sandbox_status sbx_gke_destroy(void *state, const struct sbx_record *record,
                               const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_gke *driver = state;
    /* First the Pod: a snapshot of it that is under way would come after all others are gone. */
    sandbox_status status = end(driver, record, wait, error);
    /* Without its triggers nobody would know what lies in the bucket; they go with the claim. */
    if (status == SANDBOX_OK)
        status = sbx_gke_snapshots_remove_all(driver, record, wait, error);
    if (status == SANDBOX_OK)
        status = sbx_gke_claim_remove(driver, record, wait, error);
    /* A cluster that knows no claims holds none; at most one that was never finished, and ends. */
    if (status == SANDBOX_UNSUPPORTED && record->incarnation[0] == '\0' &&
        record->snapshot_count == 0)
        status = sbx_gke_check_record(driver, record, wait, error);
    return status;
}
