/*
 * Restoring: the claim names the PodSnapshot, the Sandbox is set running, and its new Pod is looked
 * at. GKE does not fail a restore that does not fit, it starts an empty Pod: what came is told by
 * evidence.c, and proven by the agent.
 */

#include "drivers/gke/snapshot.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"
#include <stdio.h>

#define ORDERLY_MS 45000u /* a Pod has 30 s to end in good order */
#define UNDO_MS    60000u

static sandbox_status refuse(const struct sbx_record *record, const struct sbx_verdict *verdict,
                             sandbox_error *error);
static sandbox_status check(struct sbx_gke *driver, const struct sbx_record *record,
                            const struct sbx_snapshot *snapshot, const struct sbx_wait *wait,
                            char pod_snapshot[SBX_GKE_NAME], struct sbx_gke_incarnation *of,
                            sandbox_error *error);
static sandbox_status start(struct sbx_gke *driver, const struct sbx_record *record,
                            const char *pod_snapshot, const struct sbx_gke_incarnation *of,
                            const struct sbx_wait *wait, struct sbx_restored *out,
                            sandbox_error *error);
static sandbox_status tell_crash(const struct sbx_record *record, sandbox_status status,
                                 sandbox_error *error);
static void undo(struct sbx_gke *driver, const struct sbx_record *record);

sandbox_status sbx_gke_restore(void *state, const struct sbx_record *record,
                               const struct sbx_snapshot *snapshot, sandbox_keep keep,
                               struct sbx_progress *progress, const struct sbx_wait *wait,
                               struct sbx_restored *out, sandbox_error *error)
{
    struct sbx_gke *driver = state;
    struct sbx_gke_incarnation of;
    char pod_snapshot[SBX_GKE_NAME] = "";
    sandbox_error own = {0};
    error = error == NULL ? &own : error;
    *out = (struct sbx_restored){.evidence = SBX_EVIDENCE_MISSING};
    if (keep != SANDBOX_KEEP_MEMORY || snapshot->kind != SANDBOX_KEEP_MEMORY)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "keep-files",
                            "a Pod snapshot is restored whole: the files of '%s' alone cannot be",
                            record->name);
    sandbox_status status = check(driver, record, snapshot, wait, pod_snapshot, &of, error);
    if (status != SANDBOX_OK)
        return status;
    status = start(driver, record, pod_snapshot, &of, wait, out, error);
    if (status == SANDBOX_OK)
        return SANDBOX_OK;
    if (status == SANDBOX_FAILED)
        status = tell_crash(record, status, error);
    if (status != SANDBOX_CONFLICT)
        undo(driver, record);
    return status;
}

/* Only its own Sandbox can be restored from it, and only if it is as it was. */
static sandbox_status check(struct sbx_gke *driver, const struct sbx_record *record,
                            const struct sbx_snapshot *snapshot, const struct sbx_wait *wait,
                            char pod_snapshot[SBX_GKE_NAME], struct sbx_gke_incarnation *of,
                            sandbox_error *error)
{
    struct sbx_verdict verdict = {0};
    SBX_ON_EXIT(sbx_json_free) cJSON *sandbox = NULL;
    sandbox_status status = sbx_gke_fence(driver, record, wait, &sandbox, error);
    if (status != SANDBOX_OK)
        return status;
    if (!sbx_gke_incarnation_read(snapshot->incarnation, of) ||
        strcmp(sbx_gke_text(sandbox, "metadata", "name", NULL), of->sandbox) != 0)
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "no-sandbox",
                            "the Sandbox that '%s' was suspended in is gone, and GKE restores a "
                            "snapshot in no other; the snapshot is kept",
                            record->name);
    status = sbx_gke_judge(driver, record, snapshot, wait, &verdict, pod_snapshot, error);
    if (status == SANDBOX_OK && verdict.verdict != SANDBOX_VERDICT_INTACT)
        status = refuse(record, &verdict, error);
    return status;
}

static sandbox_status refuse(const struct sbx_record *record, const struct sbx_verdict *verdict,
                             sandbox_error *error)
{
    const char *reason = verdict->verdict == SANDBOX_VERDICT_DAMAGED   ? "snapshot-damaged"
                         : verdict->verdict == SANDBOX_VERDICT_MISSING ? "snapshot-missing"
                                                                       : "cannot-verify";
    return sbx_fail_for(error, SANDBOX_NOT_RESTORED, reason,
                        "the snapshot of '%s' is not restored: %s", record->name,
                        verdict->evidence);
}

static sandbox_status start(struct sbx_gke *driver, const struct sbx_record *record,
                            const char *pod_snapshot, const struct sbx_gke_incarnation *of,
                            const struct sbx_wait *wait, struct sbx_restored *out,
                            sandbox_error *error)
{
    struct sbx_gke_incarnation now;
    SBX_ON_EXIT(sbx_json_free) cJSON *sandbox = NULL;
    SBX_ON_EXIT(sbx_json_free) cJSON *claim = NULL;
    SBX_ON_EXIT(sbx_json_free) cJSON *pod = NULL;
    sandbox_status status = sbx_gke_claim_pin(driver, record, pod_snapshot, wait, &claim, error);
    if (status == SANDBOX_OK)
        status = sbx_gke_set_mode(driver, record, "Running", wait, &sandbox, error);
    const struct sbx_gke_seen known = {of->uid, claim, sandbox};
    if (status == SANDBOX_OK)
        status = sbx_gke_await_ready(driver, record, &known, wait, out->incarnation, &pod, error);
    if (status != SANDBOX_OK)
        return status;
    sbx_gke_evidence_of(pod, pod_snapshot, out);
    if (sbx_gke_incarnation_read(out->incarnation, &now))
        status = sbx_gke_evidence_events(driver, now.pod, now.uid, pod_snapshot, wait, out, error);
    return status;
}

/* There is no way from a restore that crashes to a cold start: the Pod crashes for ever. */
static sandbox_status tell_crash(const struct sbx_record *record, sandbox_status status,
                                 sandbox_error *error)
{
    char cause[200];
    if (strcmp(error->reason, "pod-ended") != 0)
        return status;
    snprintf(cause, sizeof cause, "%.199s", error->message);
    return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "restore-crashed",
                        "the restore of '%s' crashed and its Pod was removed; the snapshot is "
                        "kept: %s",
                        record->name, cause);
}

/* A Pod that a node cannot end, since its restore broke in the middle, is taken from the node. */
static void remove_stuck(struct sbx_gke *driver, const struct sbx_record *record,
                         const struct sbx_wait *wait)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *sandbox = NULL;
    SBX_ON_EXIT(sbx_json_free) cJSON *pod = NULL;
    if (sbx_gke_fence(driver, record, wait, &sandbox, NULL) != SANDBOX_OK || sandbox == NULL ||
        sbx_gke_pod_of(driver, sandbox, wait, &pod, NULL) != SANDBOX_OK || pod == NULL)
        return;
    struct sbx_delete_options now = {.uid = sbx_gke_uid(pod), .at_once = true};
    (void)sbx_kubernetes_delete(driver->cluster, &sbx_gke_pods, driver->space,
                                sbx_gke_text(pod, "metadata", "name", NULL), &now, wait, NULL);
}

static void undo(struct sbx_gke *driver, const struct sbx_record *record)
{
    struct sbx_wait orderly = sbx_wait_alone(ORDERLY_MS), alone = sbx_wait_alone(UNDO_MS);
    sandbox_error left = {0};
    sandbox_status status = sbx_gke_discard(driver, record, &orderly, &left);
    if (status == SANDBOX_TIMED_OUT) {
        remove_stuck(driver, record, &alone);
        status = sbx_gke_discard(driver, record, &alone, &left);
    }
    if (status != SANDBOX_OK)
        sbx_log(SANDBOX_LOG_WARNING, "what a failed restore of '%s' began is left: %s",
                record->name, left.message);
}
