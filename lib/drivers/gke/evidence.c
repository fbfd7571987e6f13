/*
 * What GKE itself says of a restore: the Pod's condition PodRestored, which may come after Ready,
 * and its events. A restore that does not match is a cold start without a word, so that nothing
 * said is no evidence either way: what the agent proves decides then.
 */

#include "drivers/gke/snapshot.h"
#include "util/fail.h"
#include "util/memory.h"
#include <ctype.h>
#include <stdio.h>
#include <strings.h>

#define EVIDENCE_MS 30000u

/* The Pod that is waited for. */
struct watched {
    const char *uid, *pod_snapshot;
};

struct heard {
    const char *pod_snapshot;
    struct sbx_restored *out;
};

static sandbox_status look(struct sbx_gke *driver, const struct sbx_gke_incarnation *of,
                           const char *pod_snapshot, const struct sbx_wait *wait,
                           struct sbx_restored *out, sandbox_error *error);
static bool is_decided(void *user_data, const cJSON *pod);
static bool visit_event(void *user_data, const cJSON *event);
static bool names(const char *message, const char *pod_snapshot);
static bool holds(const char *text, const char *part);

sandbox_status sbx_gke_evidence(void *state, const struct sbx_record *record,
                                const struct sbx_snapshot *snapshot, const struct sbx_wait *wait,
                                struct sbx_restored *out, sandbox_error *error)
{
    struct sbx_gke *driver = state;
    struct sbx_gke_incarnation of;
    SBX_ON_EXIT(sbx_gke_taken_clear) struct sbx_gke_taken taken = {0};
    *out = (struct sbx_restored){.evidence = SBX_EVIDENCE_MISSING};
    memcpy(out->incarnation, record->incarnation, sizeof out->incarnation);
    if (!sbx_gke_incarnation_read(record->incarnation, &of))
        return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "instance-gone",
                            "the record of '%s' names no Pod", record->name);
    sandbox_status status = sbx_gke_taken_find(driver, record, snapshot->id, wait, &taken, error);
    if (status != SANDBOX_OK)
        return status;
    const char *name = taken.pod_snapshot != NULL
                           ? sbx_gke_text(taken.pod_snapshot, "metadata", "name", NULL)
                           : sbx_gke_trigger_made(taken.trigger);
    /* Restored from what is not there any more: its name is needed, and nobody knows it. */
    if (*name == '\0')
        return SANDBOX_OK;
    status = sbx_gke_evidence_events(driver, of.pod, of.uid, name, wait, out, error);
    if (status == SANDBOX_OK && out->evidence == SBX_EVIDENCE_MISSING)
        status = look(driver, &of, name, wait, out, error);
    return status;
}

/* Until the condition is there, or patience has ended: then it is missing, and that is no failure.
 */
static sandbox_status look(struct sbx_gke *driver, const struct sbx_gke_incarnation *of,
                           const char *pod_snapshot, const struct sbx_wait *wait,
                           struct sbx_restored *out, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *pod = NULL;
    struct sbx_wait patience = sbx_wait_within(wait, EVIDENCE_MS);
    struct watched watched = {of->uid, pod_snapshot};
    sandbox_status status =
        sbx_kubernetes_await(driver->cluster, &sbx_gke_pods, driver->space, of->pod, NULL,
                             is_decided, &watched, &patience, &pod, error);
    if (status == SANDBOX_TIMED_OUT) {
        struct sbx_wait soon = sbx_wait_alone(5000);
        return sbx_gke_evidence_events(driver, of->pod, of->uid, pod_snapshot, &soon, out, error);
    }
    if (status != SANDBOX_OK)
        return status;
    if (pod == NULL || strcmp(sbx_gke_uid(pod), of->uid) != 0) {
        out->evidence = SBX_EVIDENCE_CONTRARY;
        snprintf(out->detail, sizeof out->detail, "the Pod that was restored was replaced");
        return SANDBOX_OK;
    }
    sbx_gke_evidence_of(pod, pod_snapshot, out);
    /* A word against it may stand beside a condition that is for it. */
    if (out->evidence == SBX_EVIDENCE_CONFIRMED)
        status = sbx_gke_evidence_events(driver, of->pod, of->uid, pod_snapshot, wait, out, error);
    return status;
}

static bool is_decided(void *user_data, const cJSON *pod)
{
    const struct watched *watched = user_data;
    struct sbx_restored seen = {.evidence = SBX_EVIDENCE_MISSING};
    if (pod == NULL || strcmp(sbx_gke_uid(pod), watched->uid) != 0)
        return true;
    sbx_gke_evidence_of(pod, watched->pod_snapshot, &seen);
    return seen.evidence != SBX_EVIDENCE_MISSING;
}

void sbx_gke_evidence_of(const cJSON *pod, const char *pod_snapshot, struct sbx_restored *out)
{
    static const char *const against[] = {"fail", "error", "cold", "mismatch", "fallback", "skip"};
    const cJSON *restored = sbx_gke_condition(pod, "PodRestored");
    const char *reason = sbx_json_text(restored, "reason");
    const char *message = sbx_json_text(restored, "message");
    out->evidence = SBX_EVIDENCE_MISSING;
    if (restored != NULL)
        snprintf(out->detail, sizeof out->detail, "PodRestored %.8s %.40s: %.90s",
                 sbx_json_text(restored, "status"), reason, message);
    if (sbx_gke_pod_restarts(pod) > 0) {
        out->evidence = SBX_EVIDENCE_CONTRARY;
        snprintf(out->detail, sizeof out->detail,
                 "its container was started anew after the restore, and holds nothing of it");
        return;
    }
    if (strcmp(sbx_json_text(restored, "status"), "True") == 0) {
        /* Without any name it may be about any snapshot. */
        out->evidence = names(message, pod_snapshot) ? SBX_EVIDENCE_CONFIRMED
                        : message[0] != '\0'         ? SBX_EVIDENCE_CONTRARY
                                                     : SBX_EVIDENCE_MISSING;
        return;
    }
    for (size_t n = 0; n < sizeof against / sizeof against[0] && restored != NULL; n++) {
        if (holds(reason, against[n]) || holds(message, against[n]))
            out->evidence = SBX_EVIDENCE_CONTRARY;
    }
}

sandbox_status sbx_gke_evidence_events(struct sbx_gke *driver, const char *pod, const char *uid,
                                       const char *pod_snapshot, const struct sbx_wait *wait,
                                       struct sbx_restored *out, sandbox_error *error)
{
    struct heard heard = {pod_snapshot, out};
    sandbox_status status = sbx_kubernetes_events(driver->cluster, driver->space, "Pod", pod, uid,
                                                  wait, visit_event, &heard, error);
    /* An account that may not read events goes by the condition. */
    return status == SANDBOX_DENIED ? SANDBOX_OK : status;
}

/* "Successfully restored the pod from PodSnapshot NAMESPACE/NAME", "falling back to a cold start …"
 */
static bool visit_event(void *user_data, const cJSON *event)
{
    struct heard *heard = user_data;
    const char *reason = sbx_json_text(event, "reason");
    const char *message = sbx_json_text(event, "message");
    bool is_theirs = strcmp(reason, "GKEPodSnapshotting") == 0;
    bool is_cold = (is_theirs && holds(message, "cold start")) ||
                   strcmp(reason, "FallbackToColdStart") == 0 ||
                   strcmp(reason, "FailedRestore") == 0 || strcmp(reason, "RestoreFailed") == 0 ||
                   strcmp(reason, "SkipRestore") == 0;
    bool is_other = is_theirs && holds(message, "restored") && holds(message, "from PodSnapshot") &&
                    !names(message, heard->pod_snapshot);
    if (!is_cold && !is_other)
        return true;
    heard->out->evidence = SBX_EVIDENCE_CONTRARY;
    snprintf(heard->out->detail, sizeof heard->out->detail, "%.30s: %.120s", reason, message);
    return false;
}

static bool is_of_name(char byte)
{
    return isalnum((unsigned char)byte) || byte == '-' || byte == '.';
}

/* The whole name, not a part of a longer one. */
static bool names(const char *message, const char *pod_snapshot)
{
    size_t size = strlen(pod_snapshot);
    for (const char *at = message; size > 0 && (at = strstr(at, pod_snapshot)) != NULL; at++) {
        bool begins = at == message || !is_of_name(at[-1]);
        bool full_stop = at[size] == '.' && !is_of_name(at[size + 1]);
        if (begins && (!is_of_name(at[size]) || full_stop))
            return true;
    }
    return false;
}

/* Whatever the case. */
static bool holds(const char *text, const char *part)
{
    return strcasestr(text, part) != NULL;
}
