/* The job of a workspace that is suspended and comes back. */

#include "torture.h"

static sandbox_status take_events_from_now(struct world *world, sandbox_error *error);
static sandbox_status take_service(struct world *world, sandbox_error *error);
static sandbox_status take_activity(struct world *world, sandbox_error *error);
static sandbox_status take_suspend(struct world *world, sandbox_error *error);
static sandbox_status take_snapshots(struct world *world, sandbox_error *error);
static sandbox_status take_verification(struct world *world, sandbox_error *error);
static sandbox_status take_resume(struct world *world, sandbox_error *error);
static sandbox_status take_checkpoint(struct world *world, sandbox_error *error);
static sandbox_status take_snapshot_deletion(struct world *world, sandbox_error *error);
static sandbox_status take_idle(struct world *world, sandbox_error *error);
static sandbox_status take_recovery(struct world *world, sandbox_error *error);
static sandbox_status take_opening(struct world *world, sandbox_error *error);
static sandbox_status take_events(struct world *world, sandbox_error *error);

const struct step suspend_steps[] = {
    {"open a client", take_client},
    {"watch the client", take_events_from_now},
    {"create a workspace", take_workspace},
    {"write a file", take_write},
    {"start a service", take_service},
    {"ask for activity", take_activity},
    {"suspend", take_suspend},
    {"list snapshots", take_snapshots},
    {"verify", take_verification},
    {"resume", take_resume},
    {"checkpoint", take_checkpoint},
    {"delete a snapshot", take_snapshot_deletion},
    {"suspend what is idle", take_idle},
    {"recover", take_recovery},
    {"open", take_opening},
    {"take events", take_events},
};
const size_t suspend_step_count = sizeof suspend_steps / sizeof suspend_steps[0];

static sandbox_status take_events_from_now(struct world *world, sandbox_error *error)
{
    return sandbox_client_watch(world->client, &world->watch, error);
}

static sandbox_status take_service(struct world *world, sandbox_error *error)
{
    const sandbox_process_options options = {
        SANDBOX_PROCESS_OPTIONS, .command = "exec sleep 1000", .role = SANDBOX_ROLE_SERVICE};
    return sandbox_process_start(world->workspace, &options, &in_time, &world->process, error);
}

static sandbox_status take_activity(struct world *world, sandbox_error *error)
{
    sandbox_activity activity = {SANDBOX_ACTIVITY};
    return sandbox_workspace_activity(world->workspace, &in_time, &activity, error);
}

static sandbox_status take_suspend(struct world *world, sandbox_error *error)
{
    const sandbox_suspend_options options = {
        SANDBOX_SUSPEND_OPTIONS, .keep = SANDBOX_KEEP_MEMORY, .force = true};
    return sandbox_workspace_suspend(world->workspace, &options, &in_time, NULL, error);
}

static sandbox_status take_snapshots(struct world *world, sandbox_error *error)
{
    sandbox_snapshot_list *list = NULL;
    sandbox_status status = sandbox_snapshot_list_all(world->workspace, &in_time, &list, error);
    sandbox_snapshot_list_free(list);
    return status;
}

/* An older failure may have left no snapshot. */
static sandbox_status take_verification(struct world *world, sandbox_error *error)
{
    sandbox_snapshot_list *list = NULL;
    sandbox_verification found = {SANDBOX_VERIFICATION};
    sandbox_status status = sandbox_snapshot_list_all(world->workspace, &in_time, &list, error);
    if (status == SANDBOX_OK && sandbox_snapshot_list_count(list) > 0)
        status = sandbox_snapshot_verify(world->workspace, sandbox_snapshot_list_at(list, 0)->id,
                                         &in_time, &found, error);
    sandbox_snapshot_list_free(list);
    return status;
}

static sandbox_status take_resume(struct world *world, sandbox_error *error)
{
    return sandbox_workspace_resume(world->workspace, NULL, &in_time, NULL, error);
}

static sandbox_status take_checkpoint(struct world *world, sandbox_error *error)
{
    const sandbox_suspend_options options = {SANDBOX_SUSPEND_OPTIONS, .keep = SANDBOX_KEEP_FILES};
    return sandbox_workspace_checkpoint(world->workspace, &options, &in_time, NULL, error);
}

static sandbox_status take_snapshot_deletion(struct world *world, sandbox_error *error)
{
    sandbox_snapshot_list *list = NULL;
    sandbox_status status = sandbox_snapshot_list_all(world->workspace, &in_time, &list, error);
    for (size_t each = 0; status == SANDBOX_OK && each < sandbox_snapshot_list_count(list);
         each++) {
        const sandbox_snapshot_info *info = sandbox_snapshot_list_at(list, each);
        if (!info->is_recovery_point)
            status = sandbox_snapshot_delete(world->workspace, info->id, &in_time, error);
    }
    sandbox_snapshot_list_free(list);
    return status;
}

static sandbox_status take_idle(struct world *world, sandbox_error *error)
{
    const sandbox_idle_options options = {SANDBOX_IDLE_OPTIONS, .idle_ms = 1};
    return sandbox_client_suspend_idle(world->client, &options, &in_time, NULL, error);
}

static sandbox_status take_recovery(struct world *world, sandbox_error *error)
{
    return sandbox_client_recover(world->client, &in_time, NULL, error);
}

static sandbox_status take_opening(struct world *world, sandbox_error *error)
{
    const sandbox_workspace_options options = {
        SANDBOX_WORKSPACE_OPTIONS, .name = NAME, .from = SANDBOX_FROM_LIVE_FILES};
    sandbox_workspace *again = NULL;
    sandbox_status status =
        sandbox_workspace_open(world->client, &options, &in_time, &again, error);
    if (status == SANDBOX_OK)
        sandbox_workspace_free(again);
    return status;
}

/* All that there are; then there is nothing to wait for. */
static sandbox_status take_events(struct world *world, sandbox_error *error)
{
    const sandbox_call at_once = {SANDBOX_CALL, .timeout_ms = 1};
    sandbox_event event = {SANDBOX_EVENT};
    sandbox_status status = SANDBOX_OK;
    while (world->watch != NULL && status == SANDBOX_OK)
        status = sandbox_watch_next(world->watch, &at_once, &event, error);
    return status == SANDBOX_TIMED_OUT ? SANDBOX_OK : status;
}
