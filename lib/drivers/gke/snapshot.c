/* Snapshots on GKE: preparing one, finding it again, judging it. */

#include "drivers/gke/snapshot.h"
#include "util/bytes.h"
#include "util/digest.h"
#include "util/fail.h"
#include "util/memory.h"
#include <stdarg.h>
#include <stdio.h>

#define TRIGGERED_BY "gke-pod-snapshot-triggered-by"
#define ORIGIN_POD   "podsnapshot.gke.io/origin-pod"

/* What a list of triggers is searched for. */
struct search {
    cJSON *found;
    bool out_of_memory;
};

static bool visit_trigger(void *user_data, const cJSON *trigger);
static bool visit_pod_snapshot(void *user_data, const cJSON *pod_snapshot);
static sandbox_status find_by_label(struct sbx_gke *driver, const struct sbx_record *record,
                                    const char *snapshot_id, const struct sbx_wait *wait,
                                    cJSON **out, sandbox_error *error);
static sandbox_status judge(struct sbx_gke *driver, const struct sbx_record *record,
                            const struct sbx_snapshot *snapshot, const struct sbx_wait *wait,
                            struct sbx_verdict *out, cJSON **pod_snapshot, sandbox_error *error);
static sandbox_status tell(struct sbx_verdict *out, sandbox_verdict verdict, const char *format,
                           ...) __attribute__((format(printf, 3, 4)));

/* ---- the table's entries ---- */

sandbox_status sbx_gke_snapshot_prepare(void *state, const struct sbx_record *record,
                                        const struct sbx_snapshot *snapshot,
                                        const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_gke *driver = state;
    struct sbx_gke_incarnation of;
    SBX_ON_EXIT(sbx_json_free) cJSON *pod = NULL;
    if (snapshot->kind != SANDBOX_KEEP_MEMORY)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "keep-files",
                            "a Pod snapshot keeps files and memory together: the files of '%s' "
                            "alone cannot be kept on gke:; keep its memory",
                            record->name);
    sandbox_status status = SANDBOX_NOT_FOUND;
    if (sbx_gke_incarnation_read(record->incarnation, &of))
        status = sbx_kubernetes_get(driver->cluster, &sbx_gke_pods, driver->space, of.pod, wait,
                                    &pod, error);
    if (status == SANDBOX_NOT_FOUND ||
        (status == SANDBOX_OK && strcmp(sbx_gke_uid(pod), of.uid) != 0))
        return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "instance-gone",
                            "the Pod of '%s' is not there any more: nothing can be snapshotted",
                            record->name);
    if (status == SANDBOX_OK)
        status = sbx_gke_policy_check(driver, record, pod, wait, error);
    /* A resume that was cut short after its Open may have left it. */
    if (status == SANDBOX_OK && sbx_gke_annotation(pod, SBX_GKE_RESTORE_ANNOTATION)[0] != '\0')
        status = sbx_gke_claim_pin(driver, record, NULL, wait, NULL, error);
    return status;
}

/* What is over the caller's head, and says nothing about the snapshot. */
static bool is_over(sandbox_status status)
{
    return status == SANDBOX_TIMED_OUT || status == SANDBOX_CANCELLED ||
           status == SANDBOX_NO_MEMORY || status == SANDBOX_UNAVAILABLE;
}

sandbox_status sbx_gke_snapshot_verify(void *state, const struct sbx_record *record,
                                       const struct sbx_snapshot *snapshot,
                                       struct sbx_progress *progress, const struct sbx_wait *wait,
                                       struct sbx_verdict *out, sandbox_error *error)
{
    struct sbx_gke *driver = state;
    sandbox_error why = {0};
    SBX_ON_EXIT(sbx_json_free) cJSON *pod_snapshot = NULL;
    sandbox_status status = judge(driver, record, snapshot, wait, out, &pod_snapshot, &why);
    if (status == SANDBOX_OK && out->verdict == SANDBOX_VERDICT_INTACT) {
        status = sbx_gke_policy_of(driver, pod_snapshot, wait, &why);
        if (status == SANDBOX_NOT_FOUND)
            return tell(out, SANDBOX_VERDICT_CANNOT_TELL, "%s", why.message);
    }
    if (status == SANDBOX_OK)
        return SANDBOX_OK;
    if (is_over(status)) {
        if (error != NULL)
            *error = why;
        return status;
    }
    return tell(out, SANDBOX_VERDICT_CANNOT_TELL, "%s", why.message);
}

sandbox_status sbx_gke_judge(struct sbx_gke *driver, const struct sbx_record *record,
                             const struct sbx_snapshot *snapshot, const struct sbx_wait *wait,
                             struct sbx_verdict *out, char pod_snapshot[SBX_GKE_NAME],
                             sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *found = NULL;
    sandbox_status status = judge(driver, record, snapshot, wait, out, &found, error);
    if (status == SANDBOX_OK && out->verdict == SANDBOX_VERDICT_INTACT && pod_snapshot != NULL)
        snprintf(pod_snapshot, SBX_GKE_NAME, "%s", sbx_gke_text(found, "metadata", "name", NULL));
    return status;
}

/* ---- finding ---- */

void sbx_gke_taken_clear(struct sbx_gke_taken *taken)
{
    sbx_json_free(&taken->trigger);
    sbx_json_free(&taken->pod_snapshot);
}

sandbox_status sbx_gke_taken_find(struct sbx_gke *driver, const struct sbx_record *record,
                                  const char *snapshot_id, const struct sbx_wait *wait,
                                  struct sbx_gke_taken *out, sandbox_error *error)
{
    struct search search = {0};
    char selector[160];
    snprintf(selector, sizeof selector, SBX_GKE_WORKSPACE "=%s," SBX_GKE_SNAPSHOT "=%s", record->id,
             snapshot_id);
    *out = (struct sbx_gke_taken){0};
    sandbox_status status = sbx_kubernetes_list(driver->cluster, &sbx_gke_triggers, driver->space,
                                                selector, wait, visit_trigger, &search, error);
    out->trigger = search.found;
    if (status == SANDBOX_OK && search.out_of_memory)
        status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a trigger");
    const char *name = sbx_gke_trigger_made(out->trigger);
    if (status == SANDBOX_OK && name[0] != '\0')
        status = sbx_gke_find(driver, &sbx_gke_snapshots, name, wait, &out->pod_snapshot, error);
    /* The trigger is gone, or does not say yet what it made. */
    else if (status == SANDBOX_OK)
        status = find_by_label(driver, record, snapshot_id, wait, &out->pod_snapshot, error);
    if (status != SANDBOX_OK)
        sbx_gke_taken_clear(out);
    return status;
}

/* The one that made a snapshot before one that did not; else the later attempt. */
static bool visit_trigger(void *user_data, const cJSON *trigger)
{
    struct search *search = user_data;
    bool made = sbx_gke_trigger_made(trigger)[0] != '\0';
    const char *name = sbx_gke_text(trigger, "metadata", "name", NULL);
    if (search->found != NULL) {
        const char *other = sbx_gke_text(search->found, "metadata", "name", NULL);
        bool other_made = sbx_gke_trigger_made(search->found)[0] != '\0';
        if (other_made != made ? other_made : strcmp(name, other) < 0)
            return true;
    }
    sbx_json_free(&search->found);
    search->found = cJSON_Duplicate(trigger, true);
    search->out_of_memory = search->found == NULL;
    return !search->out_of_memory;
}

static sandbox_status find_by_label(struct sbx_gke *driver, const struct sbx_record *record,
                                    const char *snapshot_id, const struct sbx_wait *wait,
                                    cJSON **out, sandbox_error *error)
{
    char name[SBX_GKE_NAME];
    struct search search = {0};
    sbx_gke_trigger_name(record, snapshot_id, name);
    struct sbx_bytes selector = SBX_BYTES(2048);
    bool fits = sbx_bytes_format(&selector, TRIGGERED_BY " in (%s", name);
    for (int n = 2; n <= SBX_GKE_ATTEMPTS; n++)
        fits = fits && sbx_bytes_format(&selector, ",%s-%d", name, n);
    fits = fits && sbx_bytes_append(&selector, ")", 2);
    sandbox_status status =
        fits ? sbx_kubernetes_list(driver->cluster, &sbx_gke_snapshots, driver->space,
                                   (const char *)sbx_bytes_data(&selector), wait,
                                   visit_pod_snapshot, &search, error)
             : sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to look for a snapshot");
    sbx_bytes_free(&selector);
    *out = search.found;
    if (status == SANDBOX_OK && search.out_of_memory)
        status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a snapshot");
    return status;
}

/* One that can be restored before all others. */
static bool visit_pod_snapshot(void *user_data, const cJSON *pod_snapshot)
{
    struct search *search = user_data;
    sbx_json_free(&search->found);
    search->found = cJSON_Duplicate(pod_snapshot, true);
    search->out_of_memory = search->found == NULL;
    return !search->out_of_memory &&
           sbx_gke_pod_snapshot_progress(pod_snapshot, NULL) != SBX_GKE_DONE;
}

/* ---- what they say ---- */

const char *sbx_gke_trigger_made(const cJSON *trigger)
{
    const cJSON *made = sbx_gke_at(trigger, "status", "snapshotCreated", NULL);
    return cJSON_IsString(made) ? made->valuestring : sbx_json_text(made, "name");
}

static void note(char why[SBX_GKE_WHY], const cJSON *condition)
{
    if (why != NULL)
        snprintf(why, SBX_GKE_WHY, "%.30s %.40s: %.110s", sbx_json_text(condition, "type"),
                 sbx_json_text(condition, "reason"), sbx_json_text(condition, "message"));
}

static bool has_failed(const cJSON *condition)
{
    const char *reason = sbx_json_text(condition, "reason");
    return strcmp(sbx_json_text(condition, "status"), "False") == 0 &&
           (strcmp(reason, "Failed") == 0 || strcmp(reason, "Error") == 0);
}

enum sbx_gke_progress sbx_gke_trigger_progress(const cJSON *trigger, char why[SBX_GKE_WHY])
{
    const cJSON *triggered = sbx_gke_condition(trigger, "Triggered");
    if (why != NULL)
        why[0] = '\0';
    if (triggered == NULL)
        return SBX_GKE_UNDER_WAY;
    note(why, triggered);
    if (has_failed(triggered))
        return SBX_GKE_FAILED;
    bool complete = strcmp(sbx_json_text(triggered, "status"), "True") == 0;
    return complete && sbx_gke_trigger_made(trigger)[0] != '\0' ? SBX_GKE_DONE : SBX_GKE_UNDER_WAY;
}

enum sbx_gke_progress sbx_gke_pod_snapshot_progress(const cJSON *pod_snapshot,
                                                    char why[SBX_GKE_WHY])
{
    static const char *const all[] = {"Checkpoint", "StorageReplicated", "Ready"};
    bool is_true = true;
    if (why != NULL)
        snprintf(why, SBX_GKE_WHY, "nothing is said of it yet");
    if (sbx_gke_text(pod_snapshot, "metadata", "deletionTimestamp", NULL)[0] != '\0') {
        if (why != NULL)
            snprintf(why, SBX_GKE_WHY, "it is being deleted");
        return SBX_GKE_FAILED;
    }
    for (size_t n = 0; n < sizeof all / sizeof all[0]; n++) {
        const cJSON *condition = sbx_gke_condition(pod_snapshot, all[n]);
        bool holds = strcmp(sbx_json_text(condition, "status"), "True") == 0;
        if (condition != NULL && !holds && is_true)
            note(why, condition);
        if (has_failed(condition))
            return SBX_GKE_FAILED;
        is_true = is_true && holds;
    }
    return is_true ? SBX_GKE_DONE : SBX_GKE_UNDER_WAY;
}

/* "POD" or "NAMESPACE/POD" */
static const char *origin_of(const cJSON *pod_snapshot)
{
    const char *origin = sbx_gke_annotation(pod_snapshot, ORIGIN_POD);
    const char *slash = strrchr(origin, '/');
    return slash == NULL ? origin : slash + 1;
}

static const char *label_of(const cJSON *object, const char *name)
{
    return sbx_gke_text(object, "metadata", "labels", name, NULL);
}

bool sbx_gke_is_of(const cJSON *pod_snapshot, const char *incarnation, const cJSON *trigger,
                   char why[SBX_GKE_WHY])
{
    struct sbx_gke_incarnation of;
    char hash[9];
    const char *origin = origin_of(pod_snapshot);
    const char *group = label_of(pod_snapshot, SBX_GKE_NAME_HASH);
    const char *by = label_of(pod_snapshot, TRIGGERED_BY);
    const char *ours = sbx_gke_text(trigger, "metadata", "name", NULL);
    if (!sbx_gke_incarnation_read(incarnation, &of)) {
        snprintf(why, SBX_GKE_WHY, "the record does not say of which Pod it was taken");
        return false;
    }
    sbx_gke_name_hash(of.sandbox, hash);
    bool same_pod = origin[0] == '\0' || strcmp(origin, of.pod) == 0;
    bool same_group = group[0] == '\0' || strcmp(group, hash) == 0;
    bool same_trigger = by[0] == '\0' || trigger == NULL || strcmp(by, ours) == 0;
    if (!same_pod || !same_group || !same_trigger)
        snprintf(why, SBX_GKE_WHY, "it was taken of Pod '%.60s' (group '%.10s') for '%.70s'",
                 origin, group, by);
    return same_pod && same_group && same_trigger;
}

static bool digest_with(const cJSON *pod_snapshot, const struct sbx_record *record,
                        const struct sbx_snapshot *snapshot, const char *path,
                        char out[SBX_HASH_TEXT])
{
    uint8_t digest[SBX_DIGEST_BYTES];
    SBX_ON_EXIT(sbx_free_text)
    char *text =
        sbx_format("podsnapshot\nname=%s\nuid=%s\ncreated=%s\npolicy=%s\norigin=%s\n"
                   "group=%s\npath=%s\nworkspace=%s\nsnapshot=%s\nseal=%s\n",
                   sbx_gke_text(pod_snapshot, "metadata", "name", NULL), sbx_gke_uid(pod_snapshot),
                   sbx_gke_text(pod_snapshot, "metadata", "creationTimestamp", NULL),
                   sbx_gke_text(pod_snapshot, "spec", "policyName", NULL), origin_of(pod_snapshot),
                   label_of(pod_snapshot, SBX_GKE_NAME_HASH), path, record->id, snapshot->id,
                   snapshot->seal_hash);
    if (text == NULL)
        return false;
    sbx_sha256(text, strlen(text), digest);
    sbx_hex_print(digest, sizeof digest, out);
    return true;
}

bool sbx_gke_digest(const cJSON *pod_snapshot, const struct sbx_record *record,
                    const struct sbx_snapshot *snapshot, char out[SBX_HASH_TEXT])
{
    return digest_with(
        pod_snapshot, record, snapshot,
        sbx_gke_text(pod_snapshot, "status", "storageStatus", "gcs", "observedGCSPath", NULL), out);
}

/* ---- judging ---- */

static sandbox_status tell(struct sbx_verdict *out, sandbox_verdict verdict, const char *format,
                           ...)
{
    va_list arguments;
    va_start(arguments, format);
    out->verdict = verdict;
    vsnprintf(out->evidence, sizeof out->evidence, format, arguments);
    va_end(arguments);
    return SANDBOX_OK;
}

static sandbox_status judge_found(const cJSON *pod_snapshot, const struct sbx_record *record,
                                  const struct sbx_snapshot *snapshot, struct sbx_verdict *out,
                                  sandbox_error *error)
{
    char digest[SBX_HASH_TEXT], early[SBX_HASH_TEXT], why[SBX_GKE_WHY];
    const char *name = sbx_gke_text(pod_snapshot, "metadata", "name", NULL);
    /* Where its bytes lie may have been told only after it was ready. */
    if (!sbx_gke_digest(pod_snapshot, record, snapshot, digest) ||
        !digest_with(pod_snapshot, record, snapshot, "", early))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to look at a snapshot");
    if (strcmp(digest, snapshot->digest) != 0 && strcmp(early, snapshot->digest) != 0)
        return tell(out, SANDBOX_VERDICT_DAMAGED,
                    "PodSnapshot '%.63s' is not the one that was taken", name);
    if (!sbx_gke_is_of(pod_snapshot, snapshot->incarnation, NULL, why))
        return tell(out, SANDBOX_VERDICT_DAMAGED, "PodSnapshot '%.63s': %.150s", name, why);
    switch (sbx_gke_pod_snapshot_progress(pod_snapshot, why)) {
    case SBX_GKE_DONE:
        return tell(out, SANDBOX_VERDICT_INTACT, "%s", "");
    case SBX_GKE_FAILED:
        return tell(out, SANDBOX_VERDICT_DAMAGED, "PodSnapshot '%.63s': %.150s", name, why);
    default:
        break;
    }
    /* It was ready once. */
    bool is_false = sbx_gke_condition_is(pod_snapshot, "Ready", "False");
    return tell(out, is_false ? SANDBOX_VERDICT_DAMAGED : SANDBOX_VERDICT_CANNOT_TELL,
                "PodSnapshot '%.63s' is not Ready any more: %.140s", name, why);
}

static sandbox_status judge(struct sbx_gke *driver, const struct sbx_record *record,
                            const struct sbx_snapshot *snapshot, const struct sbx_wait *wait,
                            struct sbx_verdict *out, cJSON **pod_snapshot, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_gke_taken_clear) struct sbx_gke_taken taken = {0};
    *out = (struct sbx_verdict){.verdict = SANDBOX_VERDICT_CANNOT_TELL};
    sandbox_status status = sbx_gke_taken_find(driver, record, snapshot->id, wait, &taken, error);
    if (status != SANDBOX_OK)
        return status;
    if (taken.pod_snapshot == NULL) {
        const char *name = sbx_gke_trigger_made(taken.trigger);
        return tell(out, SANDBOX_VERDICT_MISSING, "there is no PodSnapshot%s%.63s%s",
                    name[0] != '\0' ? " '" : " of it", name, name[0] != '\0' ? "'" : "");
    }
    status = judge_found(taken.pod_snapshot, record, snapshot, out, error);
    if (status == SANDBOX_OK)
        *pod_snapshot = sbx_take(taken.pod_snapshot);
    return status;
}
