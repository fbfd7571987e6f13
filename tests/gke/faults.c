/*
 * What goes wrong around a snapshot on GKE: triggers that fail, come late or never, storage that is
 * not up yet, a cluster that answers with errors, watches that break, snapshots that are lost,
 * swapped or cannot be deleted. Each time the workspace goes on as it was, or is suspended for
 * good, or is blocked with its snapshot kept. Numbers are those of the upstream client's known
 * faults.
 */

#include "rig.h"
#include <stdio.h>
#include <string.h>

#define SHORT_MS 700u

static sandbox_client *client;
static sandbox_workspace *workspace;
static sandbox_error error;

static void behave(const char *how, const char *more)
{
    harness_tell("{\"do\":\"behave\",\"object\":\"*\",\"how\":\"%s\",\"times\":1%s}", how, more);
}

static void clear(void)
{
    harness_tell("{\"do\":\"clear\"}");
}

static sandbox_status suspend(uint32_t timeout_ms)
{
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = timeout_ms};
    return sandbox_workspace_suspend(workspace, NULL, &call, NULL, &error);
}

static sandbox_status resume(uint32_t timeout_ms)
{
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = timeout_ms};
    return sandbox_workspace_resume(workspace, NULL, &call, NULL, &error);
}

static void require_goes_on(const char *what)
{
    require(scenario_state(workspace) == SANDBOX_STATE_RUNNING, "%s: not running", what);
    require(scenario_has_kept(workspace), "%s: the file was lost", what);
    scenario_require_works(workspace);
    /* 42: nothing of what was begun stays. */
    require(rig_object_count("podsnapshotmanualtriggers") == 0, "%s: a trigger is left", what);
    require(rig_object_count("podsnapshots") == 0, "%s: a PodSnapshot is left", what);
}

static bool is_held(void *data)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *answer = harness_ask("{\"do\":\"state\"}");
    const cJSON *behaviours = cJSON_GetObjectItemCaseSensitive(answer, "behaviours");
    return sbx_json_integer(behaviours, "held") > 0;
}

static bool is_suspending(void)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *all = rig_objects("sandboxes", rig_sandbox(workspace));
    const cJSON *spec = cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(all, 0), "spec");
    return strcmp(sbx_json_text(spec, "operatingMode"), "Suspended") == 0;
}

/* ---- suspending; the workspace runs and has no snapshot ---- */

static void trigger_fails(void)
{
    behave("trigger-failed", "");
    require(suspend(0) == SANDBOX_FAILED && strcmp(error.reason, "snapshot-failed") == 0 &&
                strstr(error.message, "context deadline exceeded") != NULL,
            "%s (%s)", error.message, error.reason);
    require_goes_on("a trigger that failed");
}

/* So many, and all of them Ready. */
static bool came(void *data)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *all = rig_objects("podsnapshots", NULL);
    unsigned ready = 0;
    const cJSON *one, *condition;
    cJSON_ArrayForEach(one, all)
    {
        const cJSON *status = cJSON_GetObjectItemCaseSensitive(one, "status");
        cJSON_ArrayForEach(condition, cJSON_GetObjectItemCaseSensitive(status, "conditions"))
        {
            ready += strcmp(sbx_json_text(condition, "type"), "Ready") == 0 &&
                     strcmp(sbx_json_text(condition, "status"), "True") == 0;
        }
    }
    return cJSON_GetArraySize(all) == (int)ready && ready == *(unsigned *)data;
}

/* It is given up, and makes its PodSnapshot all the same, later: the next suspend removes that one.
 */
static void trigger_never_ends(void)
{
    unsigned one = 1;
    behave("trigger-never", "");
    require(suspend(SHORT_MS) == SANDBOX_TIMED_OUT, "%s", error.message);
    require_goes_on("a trigger that never ended");
    clear();
    require(harness_await(came, &one), "the trigger that was held back made nothing");
    scenario_suspend(workspace);
    require(harness_await(came, &one), "%u PodSnapshots are left",
            rig_object_count("podsnapshots"));
    scenario_resume(workspace, "a trigger that came late");
}

static void snapshot_fails(void)
{
    behave("snapshot-failed", ",\"message\":\"no room in the bucket\"");
    require(suspend(0) == SANDBOX_FAILED && strstr(error.message, "no room in the bucket") != NULL,
            "%s (%s)", error.message, error.reason);
    require_goes_on("a PodSnapshot that failed");
}

static void snapshot_never_comes(void)
{
    behave("snapshot-never", "");
    require(suspend(SHORT_MS) == SANDBOX_TIMED_OUT, "%s", error.message);
    clear();
    require_goes_on("a PodSnapshot that never was ready");
}

static void policy_is_gone(void)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *all = rig_objects("podsnapshotpolicies", "standard");
    cJSON *policy = cJSON_GetArrayItem(all, 0);
    cJSON *metadata = cJSON_GetObjectItemCaseSensitive(policy, "metadata");
    sbx_json_remove(metadata, "resourceVersion");
    sbx_json_remove(metadata, "uid");
    SBX_ON_EXIT(sbx_free_text) char *text = cJSON_PrintUnformatted(policy);
    harness_tell("{\"do\":\"remove\",\"resource\":\"podsnapshotpolicies\",\"name\":\"standard\"}");
    require(suspend(0) == SANDBOX_FAILED && strcmp(error.reason, "no-snapshot-policy") == 0,
            "%s (%s)", error.message, error.reason);
    harness_tell("{\"do\":\"put\",\"resource\":\"podsnapshotpolicies\",\"object\":%s}", text);
    require_goes_on("a policy that is gone");
}

static void policy_keeps_too_few(void)
{
    static const char *const patch =
        "{\"do\":\"edit\",\"resource\":\"podsnapshotpolicies\",\"name\":\"standard\",\"patch\":"
        "{\"spec\":{\"snapshotGroupingRules\":{\"groupByLabelValue\":{\"groupRetentionPolicy\":"
        "{\"maxSnapshotCountPerGroup\":%u}}}}}}";
    harness_tell(patch, 3u);
    require(suspend(0) == SANDBOX_FAILED && strcmp(error.reason, "snapshot-policy") == 0, "%s (%s)",
            error.message, error.reason);
    harness_tell(patch, 8u);
    require_goes_on("a policy that keeps too few");
}

static void the_owner_cannot_keep_files(void)
{
    sandbox_suspend_options options = {SANDBOX_SUSPEND_OPTIONS, .keep = SANDBOX_KEEP_FILES};
    require(sandbox_workspace_suspend(workspace, &options, NULL, NULL, &error) ==
                    SANDBOX_UNSUPPORTED &&
                strcmp(error.reason, "keep-files") == 0,
            "%s (%s)", error.message, error.reason);
    require_goes_on("files alone");
}

/* 38: Complete is not Ready. The Pod is not ended before. */
static void suspend_waits_for_ready(void)
{
    behave("snapshot-late", "");
    struct scenario_child *child = scenario_start("suspend", "subject");
    scenario_go(&child, 1);
    require(harness_await(is_held, NULL), "nothing was held back");
    require(!is_suspending(), "38: suspended before the PodSnapshot was Ready");
    /* 43: the watch that waits for it breaks, and what it remembers is too old. */
    harness_tell("{\"do\":\"compact\"}");
    harness_tell("{\"do\":\"close-watches\"}");
    harness_tell("{\"do\":\"behave\",\"how\":\"go\"}");
    int code = scenario_wait(child);
    require(code == CHILD_OK, "38: the suspend ended with %d", code);
    clear();
    scenario_resume(workspace, "a suspend that waited");
}

/* A fresh node, whose snapshot agent comes up a moment later. */
static void storage_comes_up(void)
{
    harness_tell(
        "{\"do\":\"behave\",\"object\":\"*\",\"how\":\"storage-unavailable\",\"times\":2}");
    require(suspend(0) == SANDBOX_OK, "%s", error.message);
    scenario_resume(workspace, "storage that came up");
}

/* ---- resuming; the workspace is suspended ---- */

/* 39: an error is an error, and no success. */
static void cluster_refuses(void)
{
    harness_tell("{\"do\":\"deny\",\"verb\":\"get\",\"resource\":\"sandboxes\",\"name\":\"*\"}");
    int code = scenario_run("resume", "subject", STRIKE_NEVER, 0, "");
    clear();
    require(code == CHILD_STATUS(SANDBOX_DENIED), "39: resumed without a cluster: code %d", code);
    require(rig_instances() == 0, "39: an instance is left");
    scenario_resume(workspace, "a cluster that refused");
}

/* 3, 37: names and hashes come of the Sandbox's name, not of what its status says. */
static void status_is_thin(void)
{
    harness_tell("{\"do\":\"edit\",\"resource\":\"sandboxes\",\"name\":\"%s\",\"patch\":"
                 "{\"status\":{\"selector\":null,\"podIPs\":null}}}",
                 rig_sandbox(workspace));
    scenario_resume(workspace, "3: a Sandbox without a selector");
}

/* 4: an old controller leaves Suspended=True behind. */
static void suspended_is_stale(void)
{
    behave("stale-suspended", "");
    scenario_resume(workspace, "4: a stale Suspended");
    clear();
}

/* 40: without its snapshot it is not started cold. */
static void snapshot_is_gone(void)
{
    harness_tell("{\"do\":\"remove\",\"resource\":\"podsnapshots\",\"name\":\"%s\"}",
                 rig_pod_snapshot(workspace));
    require(resume(0) == SANDBOX_NOT_RESTORED && strcmp(error.reason, "snapshot-missing") == 0,
            "40: %s (%s)", error.message, error.reason);
    require(scenario_state(workspace) == SANDBOX_STATE_BLOCKED && rig_instances() == 0,
            "40: it is not blocked");
}

static void snapshot_is_not_ready_any_more(void)
{
    harness_tell("{\"do\":\"behave\",\"how\":\"lose-snapshot\",\"object\":\"%s\"}",
                 rig_pod_snapshot(workspace));
    require(resume(0) == SANDBOX_NOT_RESTORED && strcmp(error.reason, "snapshot-damaged") == 0,
            "%s (%s)", error.message, error.reason);
    require(rig_instances() == 0, "an instance is left");
}

/* The same name, and another one under it. */
static void snapshot_is_swapped(void)
{
    char name[256];
    snprintf(name, sizeof name, "%s", rig_pod_snapshot(workspace));
    SBX_ON_EXIT(sbx_json_free) cJSON *all = rig_objects("podsnapshots", name);
    cJSON *object = cJSON_GetArrayItem(all, 0);
    cJSON *metadata = cJSON_GetObjectItemCaseSensitive(object, "metadata");
    sbx_json_remove(metadata, "resourceVersion");
    sbx_json_remove(metadata, "uid");
    SBX_ON_EXIT(sbx_free_text) char *text = cJSON_PrintUnformatted(object);
    harness_tell("{\"do\":\"remove\",\"resource\":\"podsnapshots\",\"name\":\"%s\"}", name);
    harness_tell("{\"do\":\"put\",\"resource\":\"podsnapshots\",\"object\":%s}", text);
    require(resume(0) == SANDBOX_NOT_RESTORED && strcmp(error.reason, "snapshot-damaged") == 0,
            "%s (%s)", error.message, error.reason);
    require(rig_instances() == 0, "an instance is left");
}

/* ---- losing the Pod ---- */

/* 33: the Sandbox never makes another Pod for one that failed. */
static void pod_is_evicted(void)
{
    scenario_suspend(workspace);
    scenario_resume(workspace, "before an eviction");
    harness_tell("{\"do\":\"behave\",\"how\":\"evict\",\"object\":\"%s\"}", rig_sandbox(workspace));
    require(suspend(0) == SANDBOX_INTERRUPTED, "33: %s", error.message);
    require(scenario_state(workspace) == SANDBOX_STATE_INTERRUPTED, "33: not interrupted");
    require(rig_instances() <= 1, "33: two instances");
}

/* ---- deleting ---- */

static sandbox_status delete_within(uint32_t timeout_ms)
{
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = timeout_ms};
    return sandbox_workspace_delete(workspace, &call, &error);
}

static void deletion_is_slow(void)
{
    behave("snapshot-slow-delete", "");
    sandbox_status status = delete_within(SHORT_MS);
    require(status == SANDBOX_TIMED_OUT, "a slow deletion: %s (%s)", error.message,
            sandbox_status_name(status));
    require(rig_object_count("sandboxclaims") == 1, "the claim went before the snapshot");
    clear();
    require(delete_within(0) == SANDBOX_OK, "%s", error.message);
}

static void deletion_is_denied(void)
{
    harness_tell(
        "{\"do\":\"deny\",\"verb\":\"delete\",\"resource\":\"podsnapshots\",\"name\":\"*\"}");
    require(delete_within(0) == SANDBOX_DENIED && strcmp(error.reason, "snapshot-kept") == 0,
            "%s (%s)", error.message, error.reason);
    clear();
    require(delete_within(0) == SANDBOX_OK, "%s", error.message);
}

/* Its owner died while GKE was at a snapshot: that one does not come after the deletion. */
static void deletion_overtakes_a_snapshot(void)
{
    behave("trigger-late", "");
    struct scenario_child *child = scenario_start("suspend", "subject");
    scenario_go(&child, 1);
    require(harness_await(is_held, NULL), "nothing was held back");
    scenario_kill(child);
    require(scenario_wait(child) == CHILD_KILLED, "the owner was not killed");
    require(delete_within(0) == SANDBOX_OK, "%s", error.message);
    clear();
}

static void nothing(void)
{
}

static void deletion_is_usual(void)
{
    require(delete_within(0) == SANDBOX_OK, "%s", error.message);
}

/* ---- all ---- */

struct trial {
    void (*during)(void);
    bool suspended;    /* before */
    void (*end)(void); /* how it is deleted; NULL: it goes on with the next */
};

static const struct trial trials[] = {
    {trigger_fails, false, NULL},
    {snapshot_fails, false, NULL},
    {snapshot_never_comes, false, NULL},
    {policy_is_gone, false, NULL},
    {policy_keeps_too_few, false, NULL},
    {the_owner_cannot_keep_files, false, NULL},
    {trigger_never_ends, false, NULL},
    {suspend_waits_for_ready, false, NULL},
    {storage_comes_up, false, NULL},
    {cluster_refuses, true, NULL},
    {status_is_thin, true, NULL},
    {suspended_is_stale, true, NULL},
    {snapshot_is_gone, true, deletion_is_usual},
    {snapshot_is_not_ready_any_more, true, deletion_is_slow},
    {snapshot_is_swapped, true, deletion_is_usual},
    {nothing, false, deletion_overtakes_a_snapshot},
    {pod_is_evicted, false, deletion_is_denied},
};

static void begin_subject(void)
{
    scenario_make("subject");
    workspace = scenario_find(client, "subject");
}

int main(int argc, char **argv)
{
    rig_begin(argc, argv);
    client = scenario_client();
    begin_subject();
    size_t count = sizeof trials / sizeof trials[0];
    for (size_t n = 0; n < count; n++) {
        if (trials[n].suspended)
            scenario_suspend(workspace);
        trials[n].during();
        clear();
        if (trials[n].end == NULL)
            continue;
        trials[n].end();
        sandbox_workspace_free(workspace);
        scenario_require_nothing_left("a trial");
        if (n + 1 < count)
            begin_subject();
    }
    sandbox_client_free(client);
    printf("%zu faults, all of them survived\n", count);
    return scenario_end();
}
