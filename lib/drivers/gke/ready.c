/*
 * Waiting for a Sandbox's Pod to be ready, and for it to be gone. Everything is a watch; what will
 * never come is told at once, and what did not come in time is told with what the cluster says of
 * it.
 */

#include "drivers/gke/gke.h"
#include "util/fail.h"
#include "util/memory.h"
#include <stdio.h>

#define LOOK_MS 3000u

/* What one wait is for, and what it saw. */
struct wanted {
    const char *claim_uid; /* that the Sandbox must be controlled by */
    const char *not_uid;   /* of a Pod that does not count */
};

static bool has_sandbox(void *user_data, const cJSON *claim);
static bool has_pod(void *user_data, const cJSON *sandbox);
static bool is_up(void *user_data, const cJSON *sandbox);
static bool is_running(void *user_data, const cJSON *pod);
static bool is_suspended(void *user_data, const cJSON *sandbox);
static sandbox_status refuse(const cJSON *object, sandbox_error *error);
static sandbox_status explain(struct sbx_gke *driver, const struct sbx_record *record,
                              sandbox_error *error);

sandbox_status sbx_gke_await_pod_gone(struct sbx_gke *driver,
                                      const struct sbx_gke_incarnation *incarnation,
                                      const struct sbx_wait *wait, sandbox_error *error)
{
    return sbx_gke_await_gone(driver, &sbx_gke_pods, incarnation->pod, incarnation->uid, wait,
                              error);
}

sandbox_status sbx_gke_await_suspended(struct sbx_gke *driver, const cJSON *sandbox,
                                       const struct sbx_wait *wait, sandbox_error *error)
{
    return sbx_kubernetes_await(driver->cluster, &sbx_gke_sandboxes, driver->space,
                                sbx_gke_text(sandbox, "metadata", "name", NULL), sandbox,
                                is_suspended, NULL, wait, NULL, error);
}

/* A Sandbox that is gone makes no Pod either. */
static bool is_suspended(void *user_data, const cJSON *sandbox)
{
    return sandbox == NULL || sbx_gke_sandbox_is_suspended(sandbox);
}

/*
 * The claim tells the Sandbox's name before anything is ready. Then the Pod is watched and not the
 * Sandbox alone, since a Sandbox does not say that its Pod crashes again and again.
 */
static sandbox_status await_all(struct sbx_gke *driver, const struct sbx_record *record,
                                const struct sbx_gke_seen *known, const struct sbx_wait *wait,
                                cJSON **sandbox, cJSON **pod, sandbox_error *error)
{
    char name[SBX_GKE_NAME];
    SBX_ON_EXIT(sbx_json_free) cJSON *claim = NULL;
    SBX_ON_EXIT(sbx_json_free) cJSON *seen = NULL;
    struct wanted wanted = {.not_uid = known->not_uid};
    sbx_gke_claim_name(record, name);
    sandbox_status status =
        sbx_kubernetes_await(driver->cluster, &sbx_gke_claims, driver->space, name, known->claim,
                             has_sandbox, &wanted, wait, &claim, error);
    if (status == SANDBOX_OK && *sbx_gke_text(claim, "status", "sandbox", "name", NULL) == '\0')
        return refuse(claim, error);
    wanted.claim_uid = sbx_gke_uid(claim);
    if (status == SANDBOX_OK)
        status = sbx_kubernetes_await(driver->cluster, &sbx_gke_sandboxes, driver->space,
                                      sbx_gke_text(claim, "status", "sandbox", "name", NULL),
                                      known->sandbox, has_pod, &wanted, wait, &seen, error);
    if (status == SANDBOX_OK && (seen == NULL || sbx_gke_is_hopeless(seen, (char[300]){0})))
        return refuse(seen, error);
    if (status == SANDBOX_OK)
        status = sbx_kubernetes_await(driver->cluster, &sbx_gke_pods, driver->space,
                                      sbx_gke_pod_name(seen), NULL, is_running, &wanted, wait, pod,
                                      error);
    if (status == SANDBOX_OK && !sbx_gke_pod_is_ready(*pod))
        return refuse(*pod, error);
    if (status == SANDBOX_OK)
        status = sbx_kubernetes_await(driver->cluster, &sbx_gke_sandboxes, driver->space,
                                      sbx_gke_text(seen, "metadata", "name", NULL), seen, is_up,
                                      &wanted, wait, sandbox, error);
    if (status == SANDBOX_OK && !sbx_gke_sandbox_is_ready(*sandbox))
        return refuse(*sandbox, error);
    return status;
}

sandbox_status sbx_gke_await_ready(struct sbx_gke *driver, const struct sbx_record *record,
                                   const struct sbx_gke_seen *known, const struct sbx_wait *wait,
                                   char incarnation[SBX_INCARNATION_TEXT], cJSON **pod,
                                   sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *sandbox = NULL;
    SBX_ON_EXIT(sbx_json_free) cJSON *seen = NULL;
    sandbox_status status = await_all(driver, record, known, wait, &sandbox, &seen, error);
    if (status == SANDBOX_TIMED_OUT)
        return explain(driver, record, error);
    if (status == SANDBOX_OK)
        status = sbx_gke_image_check(record, seen, error);
    if (status != SANDBOX_OK)
        return status;
    if (!sbx_gke_is_controlled_by(seen, sbx_gke_uid(sandbox)) ||
        !sbx_gke_incarnation_of(sandbox, seen, incarnation))
        return sbx_fail_for(error, SANDBOX_FAILED, "never-ready",
                            "the Pod '%s' is not one of the Sandbox '%s', or their names are too "
                            "long",
                            sbx_gke_text(seen, "metadata", "name", NULL),
                            sbx_gke_text(sandbox, "metadata", "name", NULL));
    if (pod != NULL)
        *pod = sbx_take(seen);
    return SANDBOX_OK;
}

static bool has_sandbox(void *user_data, const cJSON *claim)
{
    char why[300];
    return claim == NULL || *sbx_gke_text(claim, "status", "sandbox", "name", NULL) != '\0' ||
           sbx_gke_is_hopeless(claim, why);
}

/* There is a Pod to look at, or there never will be. Two claims may want one Sandbox for a moment.
 */
static bool has_pod(void *user_data, const cJSON *sandbox)
{
    const struct wanted *wanted = user_data;
    char why[300];
    if (sandbox == NULL || sbx_gke_is_hopeless(sandbox, why))
        return true;
    return sbx_gke_is_controlled_by(sandbox, wanted->claim_uid) &&
           (sbx_gke_sandbox_is_ready(sandbox) ||
            sbx_gke_condition_is_current(sandbox, "PodScheduled"));
}

static bool is_up(void *user_data, const cJSON *sandbox)
{
    const struct wanted *wanted = user_data;
    char why[300];
    return sandbox == NULL || sbx_gke_is_hopeless(sandbox, why) ||
           (sbx_gke_sandbox_is_ready(sandbox) &&
            sbx_gke_is_controlled_by(sandbox, wanted->claim_uid));
}

/* One that is being deleted will be followed by another. */
static bool is_running(void *user_data, const cJSON *pod)
{
    const struct wanted *wanted = user_data;
    char why[300];
    if (pod == NULL || strcmp(sbx_gke_uid(pod), wanted->not_uid) == 0 ||
        sbx_gke_at(pod, "metadata", "deletionTimestamp", NULL) != NULL)
        return false;
    return sbx_gke_pod_is_ready(pod) || sbx_gke_is_hopeless(pod, why);
}

/* Of a claim, Sandbox or Pod that will never be ready; NULL: it was removed. */
static sandbox_status refuse(const cJSON *object, sandbox_error *error)
{
    char why[300] = "";
    if (object == NULL)
        return sbx_fail_for(error, SANDBOX_FAILED, "never-ready",
                            "somebody removed the claim or its Sandbox meanwhile");
    (void)sbx_gke_is_hopeless(object, why);
    const char *kind = sbx_gke_text(object, "kind", NULL);
    const char *name = sbx_gke_text(object, "metadata", "name", NULL);
    if (strncmp(why, "WarmPoolNotFound", 16) == 0 || strncmp(why, "TemplateNotFound", 16) == 0)
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-such-pool",
                            "%s; make it with 'sandbox manifests gke', or name another pool", why);
    if (strstr(why, "exceeded quota") != NULL)
        return sbx_fail_for(error, SANDBOX_LIMIT, "kubernetes-quota", "%s", why);
    return sbx_fail_for(error, SANDBOX_FAILED,
                        strcmp(kind, "Pod") == 0 ? "pod-ended" : "never-ready",
                        "the %s '%s' will not be ready: %s", kind, name, why);
}

/* The deadline has passed: a last look says what it waited for. */
static sandbox_status explain(struct sbx_gke *driver, const struct sbx_record *record,
                              sandbox_error *error)
{
    struct sbx_wait soon = sbx_wait_alone(LOOK_MS);
    SBX_ON_EXIT(sbx_json_free) cJSON *claim = NULL;
    SBX_ON_EXIT(sbx_json_free) cJSON *sandbox = NULL;
    SBX_ON_EXIT(sbx_json_free) cJSON *pod = NULL;
    char trouble[200] = "";
    (void)sbx_gke_sandbox_of(driver, record, &soon, &claim, &sandbox, NULL);
    if (sandbox != NULL)
        (void)sbx_gke_pod_of(driver, sandbox, &soon, &pod, NULL);
    if (pod != NULL)
        sbx_gke_pod_trouble(pod, trouble, sizeof trouble);
    const cJSON *ready = sbx_gke_condition(sandbox != NULL ? sandbox : claim, "Ready");
    return sbx_fail(
        error, SANDBOX_TIMED_OUT, "'%s' was not ready in time: %s%s%s%s%s", record->name,
        ready == NULL ? "its claim was not answered; does the Agent Sandbox controller run?"
                      : sbx_json_text(ready, "reason"),
        ready == NULL ? "" : ": ", sbx_json_text(ready, "message"), trouble[0] == '\0' ? "" : "; ",
        trouble);
}
