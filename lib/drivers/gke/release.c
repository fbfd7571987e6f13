/* Ending a sealed instance whose snapshot is verified, and what follows a resume. */

#include "drivers/gke/snapshot.h"
#include "util/fail.h"
#include "util/memory.h"

static bool is_ending(struct sbx_gke *driver, const struct sbx_record *record,
                      const struct sbx_wait *wait);
static sandbox_status check_snapshot(struct sbx_gke *driver, const struct sbx_record *record,
                                     const struct sbx_wait *wait, sandbox_error *error);

sandbox_status sbx_gke_release(void *state, const struct sbx_record *record,
                               const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_gke *driver = state;
    struct sbx_gke_incarnation of;
    SBX_ON_EXIT(sbx_json_free) cJSON *sandbox = NULL;
    sandbox_error why = {0};
    sandbox_status status = check_snapshot(driver, record, wait, &why);
    if (status != SANDBOX_OK && !is_ending(driver, record, wait)) {
        if (error != NULL)
            *error = why;
        return status;
    }
    status = sbx_gke_set_mode(driver, record, "Suspended", wait, &sandbox, error);
    bool there = status == SANDBOX_OK;
    if (status == SANDBOX_NOT_FOUND)
        status = SANDBOX_OK;
    if (status == SANDBOX_OK && sbx_gke_incarnation_read(record->incarnation, &of))
        status = sbx_gke_await_pod_gone(driver, &of, wait, error);
    if (status == SANDBOX_OK && there)
        status = sbx_gke_await_suspended(driver, sandbox, wait, error);
    return status;
}

/* Then the Pod is ended by the cluster or has gone: there is nothing to hold back any more. */
static bool is_ending(struct sbx_gke *driver, const struct sbx_record *record,
                      const struct sbx_wait *wait)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *sandbox = NULL;
    sandbox_status status = sbx_gke_sandbox_of(driver, record, wait, NULL, &sandbox, NULL);
    return status == SANDBOX_NOT_FOUND ||
           (status == SANDBOX_OK &&
            strcmp(sbx_gke_text(sandbox, "spec", "operatingMode", NULL), "Suspended") == 0);
}

/* Once more, right before the only copy of the memory is given up. */
static sandbox_status check_snapshot(struct sbx_gke *driver, const struct sbx_record *record,
                                     const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_verdict verdict = {0};
    const struct sbx_snapshot *kept = sbx_record_snapshot(record, record->snapshot);
    if (kept == NULL)
        return sbx_fail(error, SANDBOX_FAILED, "the record of '%s' names no snapshot",
                        record->name);
    sandbox_status status = sbx_gke_judge(driver, record, kept, wait, &verdict, NULL, error);
    if (status != SANDBOX_OK || verdict.verdict == SANDBOX_VERDICT_INTACT)
        return status;
    if (verdict.verdict == SANDBOX_VERDICT_CANNOT_TELL)
        return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "cannot-verify",
                            "the Pod of '%s' is kept, for its snapshot could not be looked at: %s",
                            record->name, verdict.evidence);
    return sbx_fail_for(error, SANDBOX_FAILED, "snapshot-lost",
                        "the Pod of '%s' is kept, for its snapshot was lost: %s", record->name,
                        verdict.evidence);
}

sandbox_status sbx_gke_settled(void *state, const struct sbx_record *record,
                               const struct sbx_wait *wait, sandbox_error *error)
{
    return sbx_gke_claim_pin(state, record, NULL, wait, NULL, error);
}
