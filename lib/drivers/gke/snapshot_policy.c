/*
 * The policy that decides how GKE snapshots a Pod. A policy that is not as we need it would lose
 * snapshots, mix those of workspaces, or end the instance: better told before than found out after.
 */

#include "drivers/gke/snapshot.h"
#include "util/fail.h"
#include "util/memory.h"
#include <stdio.h>

#define HOW "apply what 'sandbox manifests gke' prints, or change the policy"

static bool selects(const cJSON *policy, const cJSON *labels);
static bool matches_expression(const cJSON *expression, const cJSON *labels);
static sandbox_status judge_policy(const cJSON *policy, const struct sbx_record *record,
                                   sandbox_error *error);
static sandbox_status judge_storage(const cJSON *storage, const char *name, sandbox_error *error);

sandbox_status sbx_gke_policy_check(struct sbx_gke *driver, const struct sbx_record *record,
                                    const cJSON *pod, const struct sbx_wait *wait,
                                    sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *storage = NULL;
    struct sbx_gke_choice choice;
    sbx_gke_choice_begin(&choice, record, pod);
    sandbox_status status = sbx_kubernetes_list(driver->cluster, &sbx_gke_policies, driver->space,
                                                NULL, wait, sbx_gke_choice_visit, &choice, error);
    status = sbx_gke_choice_end(&choice, driver, status, error);
    if (status != SANDBOX_OK)
        return status;
    status = sbx_kubernetes_get(driver->cluster, &sbx_gke_storages, NULL, choice.storage, wait,
                                &storage, error);
    return sbx_gke_choice_storage(&choice, storage, status, error);
}

void sbx_gke_choice_begin(struct sbx_gke_choice *choice, const struct sbx_record *record,
                          const cJSON *pod)
{
    *choice = (struct sbx_gke_choice){.record = record,
                                      .labels = sbx_gke_at(pod, "metadata", "labels", NULL)};
}

sandbox_status sbx_gke_choice_end(const struct sbx_gke_choice *choice, const struct sbx_gke *driver,
                                  sandbox_status listed, sandbox_error *error)
{
    if (listed == SANDBOX_NOT_FOUND || listed == SANDBOX_UNSUPPORTED)
        return sbx_fail_for(error, SANDBOX_FAILED, "no-pod-snapshots",
                            "the cluster serves no podsnapshot.gke.io/v1: enable Pod snapshots "
                            "(gcloud container clusters update --enable-pod-snapshots)");
    if (listed != SANDBOX_OK)
        return listed;
    if (!choice->selected)
        return sbx_fail_for(error, SANDBOX_FAILED, "no-snapshot-policy",
                            "no PodSnapshotPolicy in namespace '%s' selects the Pod of '%s': " HOW,
                            driver->space, choice->record->name);
    if (!choice->good && error != NULL)
        *error = choice->why;
    return choice->good ? SANDBOX_OK : choice->status;
}

sandbox_status sbx_gke_choice_storage(const struct sbx_gke_choice *choice, const cJSON *storage,
                                      sandbox_status read, sandbox_error *error)
{
    if (read == SANDBOX_NOT_FOUND)
        return sbx_fail_for(error, SANDBOX_FAILED, "no-snapshot-storage",
                            "there is no PodSnapshotStorageConfig '%s': " HOW, choice->storage);
    return read == SANDBOX_OK ? judge_storage(storage, choice->storage, error) : read;
}

sandbox_status sbx_gke_policy_of(struct sbx_gke *driver, const cJSON *pod_snapshot,
                                 const struct sbx_wait *wait, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *policy = NULL;
    SBX_ON_EXIT(sbx_json_free) cJSON *found = NULL;
    const char *name =
        sbx_json_text(cJSON_GetObjectItemCaseSensitive(pod_snapshot, "spec"), "policyName");
    if (name[0] == '\0')
        return SANDBOX_OK;
    sandbox_status status = sbx_kubernetes_get(driver->cluster, &sbx_gke_policies, driver->space,
                                               name, wait, &policy, error);
    if (status == SANDBOX_NOT_FOUND)
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-snapshot-policy",
                            "the PodSnapshotPolicy '%s' that it was taken under is gone; apply it "
                            "again",
                            name);
    const char *storage =
        sbx_json_text(cJSON_GetObjectItemCaseSensitive(policy, "spec"), "storageConfigName");
    if (status == SANDBOX_OK)
        status = sbx_kubernetes_get(driver->cluster, &sbx_gke_storages, NULL, storage, wait, &found,
                                    error);
    if (status == SANDBOX_OK)
        status = judge_storage(found, storage, error);
    if (status == SANDBOX_NOT_FOUND)
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-snapshot-storage",
                            "the PodSnapshotStorageConfig '%s' that it lies in is gone; apply it "
                            "again",
                            storage);
    return status;
}

bool sbx_gke_choice_visit(void *user_data, const cJSON *policy)
{
    struct sbx_gke_choice *choice = user_data;
    sandbox_error error = {0};
    const cJSON *spec = cJSON_GetObjectItemCaseSensitive(policy, "spec");
    if (!selects(policy, choice->labels))
        return true;
    sandbox_status status = judge_policy(policy, choice->record, &error);
    choice->good = status == SANDBOX_OK;
    if (choice->good)
        snprintf(choice->storage, sizeof choice->storage, "%.253s",
                 sbx_json_text(spec, "storageConfigName"));
    else if (!choice->selected) {
        choice->status = status;
        choice->why = error;
    }
    choice->selected = true;
    return !choice->good;
}

/* ---- selectors ---- */

static bool selects(const cJSON *policy, const cJSON *labels)
{
    const cJSON *spec = cJSON_GetObjectItemCaseSensitive(policy, "spec");
    const cJSON *selector = cJSON_GetObjectItemCaseSensitive(spec, "selector");
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(selector, "matchLabels"))
    {
        const cJSON *label = cJSON_GetObjectItemCaseSensitive(labels, item->string);
        if (!cJSON_IsString(label) || !cJSON_IsString(item) ||
            strcmp(label->valuestring, item->valuestring) != 0)
            return false;
    }
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(selector, "matchExpressions"))
    {
        if (!matches_expression(item, labels))
            return false;
    }
    return true;
}

static bool matches_expression(const cJSON *expression, const cJSON *labels)
{
    const char *wanted = sbx_json_text(expression, "operator");
    const cJSON *label = cJSON_GetObjectItemCaseSensitive(labels, sbx_json_text(expression, "key"));
    const cJSON *value = NULL;
    bool is_in = false;
    if (strcmp(wanted, "Exists") == 0)
        return label != NULL;
    if (strcmp(wanted, "DoesNotExist") == 0)
        return label == NULL;
    cJSON_ArrayForEach(value, cJSON_GetObjectItemCaseSensitive(expression, "values"))
    {
        is_in = is_in || (cJSON_IsString(value) && cJSON_IsString(label) &&
                          strcmp(value->valuestring, label->valuestring) == 0);
    }
    return strcmp(wanted, "In") == 0 ? is_in : strcmp(wanted, "NotIn") == 0 && !is_in;
}

/* ---- what a policy must say ---- */

static bool is_grouped(const cJSON *rules)
{
    const cJSON *label = NULL;
    const cJSON *group = cJSON_GetObjectItemCaseSensitive(rules, "groupByLabelValue");
    cJSON_ArrayForEach(label, cJSON_GetObjectItemCaseSensitive(group, "labels"))
    {
        if (cJSON_IsString(label) && strcmp(label->valuestring, SBX_GKE_NAME_HASH) == 0)
            return true;
    }
    return false;
}

static sandbox_status refuse(const cJSON *policy, sandbox_error *error, const char *what)
{
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(policy, "metadata");
    return sbx_fail_for(error, SANDBOX_FAILED, "snapshot-policy", "PodSnapshotPolicy '%s' %s: " HOW,
                        sbx_json_text(metadata, "name"), what);
}

static sandbox_status judge_policy(const cJSON *policy, const struct sbx_record *record,
                                   sandbox_error *error)
{
    char what[160];
    const cJSON *spec = cJSON_GetObjectItemCaseSensitive(policy, "spec");
    const cJSON *trigger = cJSON_GetObjectItemCaseSensitive(spec, "triggerConfig");
    const cJSON *rules = cJSON_GetObjectItemCaseSensitive(spec, "snapshotGroupingRules");
    const cJSON *group = cJSON_GetObjectItemCaseSensitive(rules, "groupByLabelValue");
    const char *after = sbx_json_text(trigger, "postCheckpoint");
    const char *scope = sbx_json_text(spec, "snapshotScope");
    int64_t most = sbx_json_integer(cJSON_GetObjectItemCaseSensitive(group, "groupRetentionPolicy"),
                                    "maxSnapshotCountPerGroup");
    if (strcmp(sbx_json_text(trigger, "type"), "manual") != 0)
        return refuse(policy, error, "has no triggerConfig.type 'manual'");
    /* A snapshot that turns out to be of no use leaves the instance to go on with. */
    if (after[0] != '\0' && strcmp(after, "resume") != 0)
        return refuse(policy, error, "has no triggerConfig.postCheckpoint 'resume'");
    if (scope[0] != '\0' && strcmp(scope, "whole-pod") != 0)
        return refuse(policy, error, "does not keep memory (snapshotScope is not 'whole-pod')");
    if (!is_grouped(rules))
        return refuse(policy, error,
                      "does not group by the label " SBX_GKE_NAME_HASH
                      ", so that it would mix workspaces");
    /* Ours go first: GKE's own limit must never reach one that is kept, nor the one being made. */
    if (most > 0 && most < (int64_t)record->retain + 2) {
        snprintf(
            what, sizeof what,
            "keeps %lld snapshots of a workspace, and this one keeps %u (maxSnapshotCountPerGroup"
            " must be at least %u)",
            (long long)most, record->retain, record->retain + 2);
        return refuse(policy, error, what);
    }
    if (sbx_gke_condition_is(policy, "Ready", "False")) {
        snprintf(what, sizeof what, "is not Ready (%.120s)",
                 sbx_json_text(sbx_gke_condition(policy, "Ready"), "message"));
        return refuse(policy, error, what);
    }
    return SANDBOX_OK;
}

static sandbox_status judge_storage(const cJSON *storage, const char *name, sandbox_error *error)
{
    if (sbx_gke_condition_is(storage, "Ready", "False"))
        return sbx_fail_for(error, SANDBOX_FAILED, "no-snapshot-storage",
                            "PodSnapshotStorageConfig '%s' is not Ready: %s", name,
                            sbx_json_text(sbx_gke_condition(storage, "Ready"), "message"));
    return SANDBOX_OK;
}
