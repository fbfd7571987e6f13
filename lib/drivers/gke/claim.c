/*
 * The claim of a workspace: what asks the pool for a Sandbox, and what everything else hangs on.
 * Its name is made of the workspace's id, so that a try whose answer was lost is found again.
 */

#include "drivers/gke/gke.h"
#include "util/clock.h"
#include "util/fail.h"
#include "util/memory.h"
#include <stdio.h>

/* A creator that has not finished by then has died, or its caller has given up. */
#define UNFINISHED_MS (2 * 3600 * 1000)
/* After a workspace has expired any client may still remove it with its snapshots. */
#define GRACE_MS (3600 * 1000)
#define GONE_MS  180000u
#define LOOK_MS  3000u

static cJSON *make(const char *pool, const struct sbx_record *record);
static bool put_end(cJSON *object, int64_t ms, const char *policy);
static bool is_gone(void *user_data, const cJSON *object);
static sandbox_status still_there(struct sbx_gke *driver, const struct sbx_resource *resource,
                                  const char *name, sandbox_error *error);
static bool has_arrived(void *user_data, const cJSON *object);

sandbox_status sbx_gke_claim_get(struct sbx_gke *driver, const struct sbx_record *record,
                                 const struct sbx_wait *wait, cJSON **claim, sandbox_error *error)
{
    char name[SBX_GKE_NAME];
    cJSON *found = NULL;
    sbx_gke_claim_name(record, name);
    sandbox_status status = sbx_gke_find(driver, &sbx_gke_claims, name, wait, &found, error);
    if (found != NULL && !sbx_gke_is_ours(found, record->id)) {
        cJSON_Delete(found);
        return sbx_fail_for(error, SANDBOX_CONFLICT, "not-ours",
                            "the SandboxClaim '%s' in '%s' was not made by the library", name,
                            driver->title);
    }
    if (status == SANDBOX_OK)
        *claim = found;
    return status;
}

sandbox_status sbx_gke_claim_make(struct sbx_gke *driver, const struct sbx_record *record,
                                  const struct sbx_wait *wait, cJSON **claim, sandbox_error *error)
{
    char pool[SBX_GKE_NAME];
    sandbox_status status = sbx_gke_pool_of(driver, record, pool, error);
    if (status != SANDBOX_OK)
        return status;
    SBX_ON_EXIT(sbx_json_free) cJSON *object = make(pool, record);
    if (object == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a claim");
    for (;;) {
        status = sbx_kubernetes_create(driver->cluster, &sbx_gke_claims, driver->space, object,
                                       wait, claim, error);
        if (status == SANDBOX_UNSUPPORTED)
            return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "no-agent-sandbox",
                                "the cluster of '%s' has no Agent Sandbox of version v1beta1; "
                                "'sandbox doctor' tells what is to be installed",
                                driver->title);
        if (status != SANDBOX_EXISTS)
            return status;
        SBX_ON_EXIT(sbx_json_free) cJSON *found = NULL;
        sandbox_error own = {0};
        sandbox_status seen = sbx_gke_claim_get(driver, record, wait, &found, &own);
        if (seen == SANDBOX_OK && found == NULL)
            continue; /* it has just gone */
        bool going = sbx_gke_at(found, "metadata", "deletionTimestamp", NULL) != NULL;
        if (seen == SANDBOX_OK && going)
            seen = sbx_gke_await_gone(driver, &sbx_gke_claims,
                                      sbx_gke_text(found, "metadata", "name", NULL),
                                      sbx_gke_uid(found), wait, &own);
        if (seen == SANDBOX_OK && going)
            continue;
        if (seen != SANDBOX_OK) {
            if (error != NULL)
                *error = own;
            return seen;
        }
        *claim = sbx_take(found);
        /* An earlier try of this very call may have made it. */
        return strcmp(sbx_gke_annotation(*claim, SBX_GKE_OPERATION_ANNOTATION),
                      record->operation.id) == 0 &&
                       record->incarnation[0] == '\0'
                   ? SANDBOX_OK
                   : SANDBOX_EXISTS;
    }
}

static cJSON *make(const char *pool, const struct sbx_record *record)
{
    char name[SBX_GKE_NAME], now[32];
    int64_t now_ms = sbx_clock_wall(&sbx_system_clock);
    sbx_gke_claim_name(record, name);
    sbx_gke_time(now_ms, now);
    cJSON *object = sbx_gke_object(&sbx_gke_claims, name);
    if (sbx_gke_put_labels(object, record->id) &&
        sbx_gke_put(object, now, "metadata", "annotations",
                    "agents.x-k8s.io/client-first-requested-at", NULL) &&
        sbx_gke_put(object, record->operation.id, "metadata", "annotations",
                    SBX_GKE_OPERATION_ANNOTATION, NULL) &&
        sbx_gke_put(object, record->name, "metadata", "annotations", "sandbox.users.io/name",
                    NULL) &&
        sbx_gke_put(object, pool, "spec", "warmPoolRef", "name", NULL) &&
        put_end(object, now_ms + UNFINISHED_MS, "Delete"))
        return object;
    cJSON_Delete(object);
    return NULL;
}

static bool put_end(cJSON *object, int64_t ms, const char *policy)
{
    char text[32];
    sbx_gke_time(ms, text);
    return sbx_gke_put(object, text, "spec", "lifecycle", "shutdownTime", NULL) &&
           sbx_gke_put(object, policy, "spec", "lifecycle", "shutdownPolicy", NULL);
}

/* Retain: the claim stays, and by it whoever removes the workspace finds what else there is. */
sandbox_status sbx_gke_claim_keep(struct sbx_gke *driver, const struct sbx_record *record,
                                  const struct sbx_wait *wait, sandbox_error *error)
{
    char name[SBX_GKE_NAME];
    SBX_ON_EXIT(sbx_json_free) cJSON *patch = cJSON_CreateObject();
    bool filled = record->expires_ms == 0 ? sbx_gke_put(patch, NULL, "spec", "lifecycle", NULL)
                                          : put_end(patch, record->expires_ms + GRACE_MS, "Retain");
    if (!filled)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
    sbx_gke_claim_name(record, name);
    return sbx_kubernetes_patch(driver->cluster, &sbx_gke_claims, driver->space, name, "", patch,
                                wait, NULL, error);
}

/* Two renewals may pass each other on the way here: the record's word counts, so it is looked at
 * again. */
sandbox_status sbx_gke_renewed(void *state, const struct sbx_record *record,
                               const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_gke *driver = state;
    int64_t wanted = record->expires_ms;
    for (;;) {
        struct sbx_record at_that_time = *record; /* borrows all of it */
        at_that_time.expires_ms = wanted;
        sandbox_status status = sbx_gke_claim_keep(driver, &at_that_time, wait, error);
        if (status != SANDBOX_OK)
            return status == SANDBOX_NOT_FOUND ? SANDBOX_OK : status; /* there is nothing to end */
        SBX_ON_EXIT(sbx_free_text) char *text = NULL;
        SBX_ON_EXIT(sbx_record_clear) struct sbx_record stored = {0};
        size_t size = 0;
        char version[SBX_VERSION_TEXT];
        status = sbx_gke_record_load(driver, record->name, wait, &text, &size, version, error);
        if (status == SANDBOX_OK)
            status = sbx_record_decode(text, size, &stored, error);
        if (status != SANDBOX_OK)
            return status;
        if (stored.expires_ms == wanted || strcmp(stored.id, record->id) != 0)
            return SANDBOX_OK;
        wanted = stored.expires_ms;
    }
}

sandbox_status sbx_gke_claim_pin(struct sbx_gke *driver, const struct sbx_record *record,
                                 const char *value, const struct sbx_wait *wait, cJSON **claim,
                                 sandbox_error *error)
{
    char name[SBX_GKE_NAME];
    SBX_ON_EXIT(sbx_json_free) cJSON *patch = cJSON_CreateObject();
    SBX_ON_EXIT(sbx_json_free) cJSON *patched = NULL;
    if (!sbx_gke_put(patch, value, "spec", "additionalPodMetadata", "annotations",
                     SBX_GKE_RESTORE_ANNOTATION, NULL))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
    sbx_gke_claim_name(record, name);
    sandbox_status status = sbx_kubernetes_patch(driver->cluster, &sbx_gke_claims, driver->space,
                                                 name, "", patch, wait, &patched, error);
    if (status != SANDBOX_OK)
        return status;
    status = sbx_kubernetes_await(driver->cluster, &sbx_gke_sandboxes, driver->space,
                                  sbx_gke_text(patched, "status", "sandbox", "name", NULL), NULL,
                                  has_arrived, (void *)(uintptr_t)value, wait, NULL, error);
    if (status == SANDBOX_OK && claim != NULL)
        *claim = sbx_take(patched);
    return status;
}

static bool has_arrived(void *user_data, const cJSON *object)
{
    const char *wanted = user_data;
    const char *seen =
        cJSON_GetStringValue(sbx_gke_at(object, "spec", "podTemplate", "metadata", "annotations",
                                        SBX_GKE_RESTORE_ANNOTATION, NULL));
    if (object == NULL || wanted == NULL || seen == NULL)
        return object == NULL || (wanted == NULL && seen == NULL);
    return strcmp(seen, wanted) == 0;
}

sandbox_status sbx_gke_claim_remove(struct sbx_gke *driver, const struct sbx_record *record,
                                    const struct sbx_wait *wait, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *claim = NULL;
    SBX_ON_EXIT(sbx_json_free) cJSON *sandbox = NULL;
    SBX_ON_EXIT(sbx_json_free) cJSON *pod = NULL;
    sandbox_status status = sbx_gke_sandbox_find(driver, record, wait, &claim, &sandbox, error);
    if (status == SANDBOX_OK && sandbox != NULL)
        status = sbx_gke_pod_of(driver, sandbox, wait, &pod, error);
    if (status != SANDBOX_OK || claim == NULL)
        return status;
    const char *name = sbx_gke_text(claim, "metadata", "name", NULL);
    struct sbx_delete_options options = {.uid = sbx_gke_uid(claim), .propagation = "Foreground"};
    status = sbx_kubernetes_delete(driver->cluster, &sbx_gke_claims, driver->space, name, &options,
                                   wait, error);
    /* Gone already, or another one bears its name now, which is not this one. */
    if (status == SANDBOX_NOT_FOUND || status == SANDBOX_CONFLICT)
        status = SANDBOX_OK;
    if (status == SANDBOX_OK)
        status = sbx_gke_await_gone(driver, &sbx_gke_claims, name, sbx_gke_uid(claim), wait, error);
    if (status == SANDBOX_OK && sandbox != NULL)
        status = sbx_gke_await_gone(driver, &sbx_gke_sandboxes,
                                    sbx_gke_text(sandbox, "metadata", "name", NULL),
                                    sbx_gke_uid(sandbox), wait, error);
    if (status == SANDBOX_OK && pod != NULL)
        status =
            sbx_gke_await_gone(driver, &sbx_gke_pods, sbx_gke_text(pod, "metadata", "name", NULL),
                               sbx_gke_uid(pod), wait, error);
    return status;
}

sandbox_status sbx_gke_await_gone(struct sbx_gke *driver, const struct sbx_resource *resource,
                                  const char *name, const char *uid, const struct sbx_wait *wait,
                                  sandbox_error *error)
{
    struct sbx_wait bounded = sbx_wait_within(wait, GONE_MS);
    sandbox_status status =
        sbx_kubernetes_await(driver->cluster, resource, driver->space, name, NULL, is_gone,
                             (void *)(uintptr_t)uid, &bounded, NULL, error);
    if (status == SANDBOX_TIMED_OUT && sbx_wait_check(wait, NULL) == SANDBOX_OK)
        return still_there(driver, resource, name, error);
    return status;
}

static bool is_gone(void *user_data, const cJSON *object)
{
    const char *uid = user_data;
    return object == NULL || strcmp(sbx_gke_uid(object), uid) != 0;
}

static sandbox_status still_there(struct sbx_gke *driver, const struct sbx_resource *resource,
                                  const char *name, sandbox_error *error)
{
    struct sbx_wait soon = sbx_wait_alone(LOOK_MS);
    SBX_ON_EXIT(sbx_json_free) cJSON *object = NULL;
    (void)sbx_kubernetes_get(driver->cluster, resource, driver->space, name, &soon, &object, NULL);
    const char *holder = cJSON_GetStringValue(
        cJSON_GetArrayItem(sbx_gke_at(object, "metadata", "finalizers", NULL), 0));
    return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "still-there",
                        "the %s '%s' in '%s' is still there after %u s%s%s%s; look what holds it, "
                        "then try again",
                        resource->kind, name, driver->title, GONE_MS / 1000,
                        holder == NULL ? "" : ": it waits for the finalizer '",
                        holder == NULL ? "" : holder, holder == NULL ? "" : "'");
}
