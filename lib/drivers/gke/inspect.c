/* Looking at an instance. */

#include "drivers/gke/gke.h"
#include "util/memory.h"
#include <stdio.h>

static void judge(const cJSON *sandbox, const cJSON *pod,
                  const struct sbx_gke_incarnation *recorded, struct sbx_instance *out);
static void add_event(struct sbx_gke *driver, const struct sbx_gke_incarnation *recorded,
                      const struct sbx_wait *wait, struct sbx_instance *out);
static bool take_warning(void *user_data, const cJSON *event);

sandbox_status sbx_gke_inspect(void *state, const struct sbx_record *record,
                               const struct sbx_wait *wait, struct sbx_instance *out,
                               sandbox_error *error)
{
    struct sbx_gke *driver = state;
    SBX_ON_EXIT(sbx_json_free) cJSON *claim = NULL;
    SBX_ON_EXIT(sbx_json_free) cJSON *sandbox = NULL;
    SBX_ON_EXIT(sbx_json_free) cJSON *pod = NULL;
    struct sbx_gke_incarnation recorded = {0};
    struct sbx_instance seen = {.presence = SBX_PRESENCE_ABSENT};
    sandbox_status status = sbx_gke_sandbox_of(driver, record, wait, &claim, &sandbox, error);
    if (status == SANDBOX_NOT_FOUND) {
        if (claim != NULL) {
            seen.presence = SBX_PRESENCE_STOPPED;
            snprintf(seen.detail, sizeof seen.detail, "its claim has no Sandbox: %.120s",
                     sbx_json_text(sbx_gke_condition(claim, "Ready"), "message"));
        }
        *out = seen;
        return SANDBOX_OK;
    }
    if (status == SANDBOX_OK)
        status = sbx_gke_pod_of(driver, sandbox, wait, &pod, error);
    if (status != SANDBOX_OK)
        return status;
    (void)sbx_gke_incarnation_read(record->incarnation, &recorded);
    judge(sandbox, pod, &recorded, &seen);
    if (seen.presence == SBX_PRESENCE_STOPPED && seen.detail[0] == '\0')
        add_event(driver, &recorded, wait, &seen);
    *out = seen;
    return SANDBOX_OK;
}

/* By the Sandbox's mode and the Pod, never by a condition that may be an old one. */
static void judge(const cJSON *sandbox, const cJSON *pod,
                  const struct sbx_gke_incarnation *recorded, struct sbx_instance *out)
{
    bool suspends = strcmp(sbx_gke_text(sandbox, "spec", "operatingMode", NULL), "Suspended") == 0;
    bool going = sbx_gke_at(pod, "metadata", "deletionTimestamp", NULL) != NULL;
    uint32_t restarts = sbx_gke_pod_restarts(pod);
    out->presence = SBX_PRESENCE_STOPPED;
    if (pod == NULL && suspends) {
        out->presence = SBX_PRESENCE_ABSENT;
    } else if (pod == NULL) {
        return; /* its events may tell */
    } else if (sbx_gke_pod_has_ended(pod)) {
        sbx_gke_pod_trouble(pod, out->detail, sizeof out->detail);
    } else if (suspends || going) {
        snprintf(out->detail, sizeof out->detail, "its Pod is being %s",
                 suspends ? "suspended" : "deleted");
    } else if (!sbx_gke_pod_is_recorded(pod, recorded)) {
        out->presence = SBX_PRESENCE_OTHER;
        (void)sbx_gke_incarnation_of(sandbox, pod, out->incarnation);
    } else if (restarts != recorded->restarts) {
        /* The UID is the same, and nothing of what ran is left. */
        snprintf(out->detail, sizeof out->detail,
                 "its container was started anew in its place (%u restarts)", restarts);
    } else {
        out->presence = SBX_PRESENCE_RUNNING;
        (void)sbx_gke_incarnation_of(sandbox, pod, out->incarnation);
    }
}

bool sbx_gke_pod_is_recorded(const cJSON *pod, const struct sbx_gke_incarnation *recorded)
{
    return recorded->uid[0] != '\0' && strcmp(sbx_gke_uid(pod), recorded->uid) == 0 &&
           strcmp(sbx_gke_text(pod, "metadata", "name", NULL), recorded->pod) == 0;
}

/* Why a Pod is gone is in its events, for an hour. */
static void add_event(struct sbx_gke *driver, const struct sbx_gke_incarnation *recorded,
                      const struct sbx_wait *wait, struct sbx_instance *out)
{
    snprintf(out->detail, sizeof out->detail, "its Pod is gone");
    if (recorded->uid[0] != '\0')
        (void)sbx_kubernetes_events(driver->cluster, driver->space, "Pod", recorded->pod,
                                    recorded->uid, wait, take_warning, out, NULL);
}

/* The last one stays. */
static bool take_warning(void *user_data, const cJSON *event)
{
    struct sbx_instance *out = user_data;
    if (strcmp(sbx_json_text(event, "type"), "Warning") == 0)
        snprintf(out->detail, sizeof out->detail, "its Pod is gone: %.40s: %.90s",
                 sbx_json_text(event, "reason"), sbx_json_text(event, "message"));
    return true;
}
