/*
 * Suspending, in strict order: claim, shut others out, ask whether anybody works, seal, snapshot,
 * verify, release. Before the snapshot is taken a failure opens the gate again; after it the
 * suspend is finished from the snapshot just made. Both are one function, sbx_settle_suspend().
 */

#include "core/suspend.h"
#include "core/events.h"
#include "core/gate.h"
#include "core/janitor.h"
#include "core/operation.h"
#include "core/recover.h"
#include "core/resume.h"
#include "core/retention.h"
#include "core/session.h"
#include "core/start.h"
#include "core/store.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"
#include <stdio.h>

#define CLEAN_UP_MS 120000u
#define READY_MS 1000u

/* One suspend under way. */
struct suspension {
    sandbox_client *client;
    const char *name;
    const struct sbx_suspend_request *request;
    const struct sbx_wait *wait;
    struct sbx_record record; /* claimed by us */
    struct sbx_session *session;
    struct sbx_snapshot snapshot;
    struct sbx_seal seal;
    char why_files[200];
};

static sandbox_status claim(sandbox_client *client, const char *name, const char *id,
                            const struct sbx_suspend_request *request,
                            const struct sbx_wait *wait, struct sbx_record *record,
                            bool *suspended, sandbox_error *error);
static sandbox_status run_steps(struct suspension *suspension, sandbox_error *error);
static sandbox_status close_gate(struct suspension *suspension, sandbox_error *error);
static sandbox_status ask_activity(struct suspension *suspension, sandbox_error *error);
static sandbox_status ask_checks(struct suspension *suspension, sandbox_error *error);
static sandbox_status look_for_wishes(struct suspension *suspension, sandbox_error *error);
static sandbox_status seal(struct suspension *suspension, sandbox_error *error);
static sandbox_status take(struct suspension *suspension, sandbox_error *error);
static sandbox_status go_on(struct suspension *suspension, sandbox_error *error);
static sandbox_status mend(struct suspension *suspension, sandbox_status status,
                           sandbox_error *error);
static void fill_result(const struct suspension *suspension, sandbox_suspend_result *result);

sandbox_status sbx_life_suspend(sandbox_client *client, const char *name, const char *id,
                                const struct sbx_suspend_request *request,
                                const struct sbx_wait *wait, sandbox_suspend_result *result,
                                sandbox_error *error)
{
    struct suspension suspension = {.client = client, .name = name, .request = request,
                                    .wait = wait};
    bool suspended = false;
    sandbox_error own = {0};
    error = error == NULL ? &own : error;
    sandbox_status status =
        claim(client, name, id, request, wait, &suspension.record, &suspended, error);
    if (status == SANDBOX_OK && !suspended) {
        struct sbx_lease lease;
        sbx_lease_begin(client, &lease, name, suspension.record.operation.id);
        status = run_steps(&suspension, error);
        sbx_session_drop(sbx_take(suspension.session));
        if (status != SANDBOX_OK)
            status = mend(&suspension, status, error);
        sbx_lease_end(client, &lease);
    }
    if (status == SANDBOX_OK)
        fill_result(&suspension, result);
    sbx_record_clear(&suspension.record);
    return status;
}

/* A state in which there is nothing to suspend. */
static sandbox_status refuse(const struct sbx_record *record, sandbox_error *error)
{
    switch (record->state) {
    case SANDBOX_STATE_INTERRUPTED:
        return sbx_fail_for(error, SANDBOX_INTERRUPTED, "interrupted",
                            "the instance of '%s' is gone: there is nothing to suspend; open it "
                            "from its live files or its snapshot",
                            record->name);
    case SANDBOX_STATE_BLOCKED:
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "blocked",
                            "'%s' is blocked: its last resume was not proven; resume it",
                            record->name);
    case SANDBOX_STATE_SUSPENDED:
        return sbx_fail_for(error, SANDBOX_SUSPENDED, "suspended",
                            "'%s' is suspended; resume it first", record->name);
    default:
        return sbx_fail_for(error, SANDBOX_CLOSED, "workspace-deleted",
                            "the workspace '%s' is being deleted", record->name);
    }
}

static sandbox_status claim(sandbox_client *client, const char *name, const char *id,
                            const struct sbx_suspend_request *request,
                            const struct sbx_wait *wait, struct sbx_record *record,
                            bool *suspended, sandbox_error *error)
{
    struct sbx_claim claim = {
        client, id, request->checkpoint ? "checkpoint" : "suspend", SANDBOX_STATE_SUSPENDING,
        "",     NULL, NULL, request->options.spare};
    if (client->driver->snapshot_take == NULL)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "no-snapshots",
                            "the %s driver cannot suspend", client->driver->name);
    for (;;) {
        sbx_record_clear(record);
        sandbox_status status = sbx_store_load(client, name, wait, record, error);
        if (status == SANDBOX_NOT_FOUND || (status == SANDBOX_OK && strcmp(record->id, id) != 0))
            return sbx_fail_for(error, SANDBOX_CLOSED, "workspace-deleted",
                                "the workspace '%s' was deleted", name);
        if (status == SANDBOX_OK && record->operation.kind[0] != '\0') {
            status = sbx_operation_settle(client, record, wait, error);
            if (status == SANDBOX_OK)
                continue;
        }
        if (status != SANDBOX_OK)
            return status;
        *suspended = record->state == SANDBOX_STATE_SUSPENDED && !request->checkpoint;
        if (*suspended)
            return SANDBOX_OK;
        if (record->state != SANDBOX_STATE_RUNNING)
            return refuse(record, error);
        status = sbx_store_change(client, name, wait, sbx_change_claim, &claim, record, error);
        if (status == SANDBOX_OK)
            sbx_events_state(client, record, claim.kind);
        if (status != SANDBOX_CONFLICT && status != SANDBOX_NOT_FOUND)
            return status;
        status = sbx_wait_check(wait, error);
        if (status != SANDBOX_OK)
            return status;
    }
}

static sandbox_status run_steps(struct suspension *suspension, sandbox_error *error)
{
    bool asks = !suspension->request->options.force && !suspension->request->checkpoint;
    sandbox_status status = close_gate(suspension, error);
    if (status == SANDBOX_OK && asks)
        status = ask_activity(suspension, error);
    if (status == SANDBOX_OK)
        status = look_for_wishes(suspension, error);
    if (status == SANDBOX_OK)
        status = seal(suspension, error);
    if (status == SANDBOX_OK)
        status = look_for_wishes(suspension, error);
    if (status == SANDBOX_OK)
        status = take(suspension, error);
    if (status != SANDBOX_OK)
        return status;
    if (suspension->request->checkpoint)
        return go_on(suspension, error);
    sbx_events_step(suspension->client, &suspension->record, "release");
    return sbx_finish_suspend(suspension->client, &suspension->record, suspension->wait, error);
}

/* Lost, killed, rebooted: then the record must say so. */
static sandbox_status check_instance(struct suspension *suspension, sandbox_status status,
                                     sandbox_error *error)
{
    struct sbx_instance instance = {0};
    const struct sbx_driver *driver = suspension->client->driver;
    struct sbx_wait soon = sbx_wait_alone(10000);
    if (status == SANDBOX_CANCELLED ||
        driver->inspect(suspension->client->state, &suspension->record, &soon, &instance, NULL) !=
            SANDBOX_OK ||
        instance.presence == SBX_PRESENCE_RUNNING)
        return status;
    return sbx_start_lost(suspension->client, suspension->record.name, instance.detail, error);
}

/* Making a channel takes longer than all that is said on it: one that is there is as good. */
static sandbox_status connect_agent(struct suspension *suspension,
                                    const uint8_t token[SBX_TOKEN_BYTES], sandbox_error *error)
{
    struct sbx_health health;
    struct sbx_record *record = &suspension->record;
    sandbox_workspace *handle = suspension->request->handle;
    struct sbx_session *ready = handle == NULL ? NULL : sbx_workspace_take_session(handle);
    if (ready != NULL) {
        struct sbx_wait soon = sbx_wait_within(suspension->wait, READY_MS);
        sbx_session_identify(ready, token, record->epoch);
        if (sbx_gate_health(ready, &soon, &health, NULL) == SANDBOX_OK) {
            suspension->session = ready;
            return SANDBOX_OK;
        }
        sbx_session_drop(ready);
    }
    return sbx_gate_connect(suspension->client, record, token, suspension->wait,
                            &suspension->session, NULL, error);
}

static sandbox_status close_gate(struct suspension *suspension, sandbox_error *error)
{
    sandbox_client *client = suspension->client;
    struct sbx_record *record = &suspension->record;
    uint8_t token[SBX_TOKEN_BYTES];
    sbx_events_step(client, record, "quiesce");
    sandbox_status status = sbx_gate_token(client, record->id, record->run, &record->key_id,
                                           suspension->wait, token, error);
    if (status != SANDBOX_OK)
        return status;
    status = connect_agent(suspension, token, error);
    sbx_wipe(token, sizeof token);
    if (status != SANDBOX_OK)
        return check_instance(suspension, status, error);
    status = sbx_gate_quiesce(suspension->session, record->epoch,
                              suspension->request->options.finish_ms, suspension->wait, error);
    if (status == SANDBOX_UNSUPPORTED)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "old-agent",
                            "the agent in '%s' is of a version that cannot be suspended; keep it "
                            "running, or delete it and make it anew",
                            record->name);
    return status;
}

static sandbox_status ask_activity(struct suspension *suspension, sandbox_error *error)
{
    struct sbx_gate_activity seen;
    sbx_events_step(suspension->client, &suspension->record, "activity");
    sandbox_status status =
        sbx_gate_activity(suspension->session, suspension->wait, &seen, error);
    if (status == SANDBOX_OK)
        status = sbx_suspend_judge(suspension->record.name, &seen,
                                   suspension->request->options.quiet_ms, error);
    return status == SANDBOX_OK ? ask_checks(suspension, error) : status;
}

sandbox_status sbx_suspend_judge(const char *name, const struct sbx_gate_activity *seen,
                                 uint32_t quiet_ms, sandbox_error *error)
{
    if (seen->tasks > 0 || seen->terminals > 0)
        return sbx_fail_for(error, SANDBOX_BUSY, "active", "'%s' is active: %s", name,
                            seen->who[0] != '\0' ? seen->who : "a process that was not named");
    if (seen->had_traffic && quiet_ms != SANDBOX_FOREVER && seen->traffic_idle_ms < quiet_ms)
        return sbx_fail_for(error, SANDBOX_BUSY, "active",
                            "'%s' is active: bytes went through a port or a terminal %llu ms ago",
                            name, (unsigned long long)seen->traffic_idle_ms);
    return SANDBOX_OK;
}

/* A handle whose calls carry the operation's epoch, so that the gate lets them in. */
static sandbox_status ask_checks(struct suspension *suspension, sandbox_error *error)
{
    const sandbox_suspend_options *options = &suspension->request->options;
    const struct sbx_wait *wait = suspension->wait;
    sandbox_workspace *asked = NULL;
    if (options->check_count == 0)
        return SANDBOX_OK;
    sandbox_status status = sbx_workspace_new(suspension->client, suspension->record.name,
                                              suspension->record.id, &asked, error);
    if (status == SANDBOX_OK) {
        asked->session = sbx_session_keep(suspension->session);
        asked->borrowed = true;
    }
    for (size_t n = 0; n < options->check_count && status == SANDBOX_OK; n++) {
        bool active = false;
        char who[200] = "";
        sandbox_call call = {SANDBOX_CALL, .timeout_ms = sbx_wait_left_ms(wait),
                             .cancel = wait->cancel, .interrupted = wait->interrupted,
                             .user_data = wait->user_data};
        status = options->checks[n].ask(asked, &call, options->checks[n].user_data, &active, who,
                                        error);
        who[sizeof who - 1] = '\0';
        if (status == SANDBOX_OK && active)
            status = sbx_fail_for(error, SANDBOX_BUSY, "active", "'%s' is active: %s",
                                  suspension->record.name, who);
    }
    sbx_workspace_drop(asked);
    return status;
}

/* Somebody wants to work, and the caller would rather let them. */
static sandbox_status look_for_wishes(struct suspension *suspension, sandbox_error *error)
{
    struct sbx_health health = {.refused_calls = 0};
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record now = {0};
    sandbox_status status = SANDBOX_OK;
    if (!suspension->request->options.interruptible)
        return SANDBOX_OK;
    /* A sealed agent has ended all channels; whoever was refused has left a word in the record. */
    if (suspension->seal.hash[0] == '\0')
        status = sbx_gate_health(suspension->session, suspension->wait, &health, error);
    if (status == SANDBOX_OK)
        status = sbx_store_load(suspension->client, suspension->record.name, suspension->wait,
                                &now, error);
    if (status != SANDBOX_OK)
        return status;
    if (health.refused_calls == 0 && !now.operation.wanted)
        return SANDBOX_OK;
    return sbx_fail_for(error, SANDBOX_BUSY, "wanted",
                        "'%s' goes on running: a request came while it was being suspended",
                        suspension->record.name);
}

static sandbox_status prepare(struct suspension *suspension, sandbox_keep kind,
                              sandbox_error *error)
{
    suspension->snapshot.kind = kind;
    return suspension->client->driver->snapshot_prepare(suspension->client->state,
                                                        &suspension->record,
                                                        &suspension->snapshot, suspension->wait,
                                                        error);
}

/* MEMORY where that can be. An empty hash afterwards: it cannot, `why_files` says why. */
static sandbox_status seal_memory(struct suspension *suspension, sandbox_error *error)
{
    const struct sbx_driver *driver = suspension->client->driver;
    sandbox_status status = prepare(suspension, SANDBOX_KEEP_MEMORY, error);
    if (status == SANDBOX_UNSUPPORTED) {
        snprintf(suspension->why_files, sizeof suspension->why_files, "%.199s", error->message);
        return SANDBOX_OK;
    }
    if (status != SANDBOX_OK)
        return status;
    bool park = driver->needs_parking != NULL &&
                driver->needs_parking(suspension->client->state, &suspension->record);
    status = sbx_gate_seal(suspension->session, suspension->record.epoch, park, suspension->wait,
                           &suspension->seal, error);
    if (status == SANDBOX_OK && suspension->seal.hash[0] == '\0')
        snprintf(suspension->why_files, sizeof suspension->why_files,
                 "this runtime cannot save what is held by %.150s", suspension->seal.obstacles);
    return status;
}

static sandbox_status seal(struct suspension *suspension, sandbox_error *error)
{
    struct sbx_record *record = &suspension->record;
    sandbox_keep keep = suspension->request->options.keep;
    sandbox_status status = SANDBOX_OK;
    sbx_events_step(suspension->client, record, "seal");
    if (!sbx_id_fresh(suspension->snapshot.id))
        return sbx_fail(error, SANDBOX_FAILED, "the kernel gives no random bytes");
    if (keep != SANDBOX_KEEP_FILES)
        status = seal_memory(suspension, error);
    if (status == SANDBOX_OK && keep == SANDBOX_KEEP_MEMORY && suspension->seal.hash[0] == '\0')
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "memory-cannot-be-kept",
                            "the memory of '%s' cannot be kept: %s; keep its files instead",
                            record->name, suspension->why_files);
    if (status == SANDBOX_OK && suspension->seal.hash[0] == '\0') {
        status = prepare(suspension, SANDBOX_KEEP_FILES, error);
        if (status == SANDBOX_OK)
            status = sbx_gate_seal(suspension->session, record->epoch, false, suspension->wait,
                                   &suspension->seal, error);
    }
    if (status != SANDBOX_OK)
        return status;
    struct sbx_snapshot *snapshot = &suspension->snapshot;
    memcpy(snapshot->seal_hash, suspension->seal.hash, sizeof snapshot->seal_hash);
    memcpy(snapshot->run, record->run, sizeof snapshot->run);
    memcpy(snapshot->incarnation, record->incarnation, sizeof snapshot->incarnation);
    snapshot->key_id = record->key_id;
    snapshot->epoch = record->epoch;
    snapshot->created_ms = sbx_clock_wall(suspension->client->clock);
    return SANDBOX_OK;
}

static sandbox_status note_making(struct sbx_record *record, void *user_data,
                                  sandbox_error *error)
{
    const struct sbx_snapshot *snapshot = user_data;
    record->making = *snapshot;
    return SANDBOX_OK;
}

/* From its intent in the record to its place in the list. */
static sandbox_status take(struct suspension *suspension, sandbox_error *error)
{
    sandbox_client *client = suspension->client;
    const struct sbx_driver *driver = client->driver;
    struct sbx_record *record = &suspension->record;
    struct sbx_snapshot *snapshot = &suspension->snapshot;
    struct sbx_reporter reporter;
    struct sbx_verdict verdict = {0};
    sbx_events_step(client, record, "snapshot");
    struct sbx_step making = {.step = "snapshot", .also = note_making, .user_data = snapshot};
    sandbox_status status = sbx_operation_step(client, record, making, suspension->wait, error);
    if (status != SANDBOX_OK)
        return status;
    /* A channel that is open while memory is saved would make it useless. */
    sbx_session_drop(sbx_take(suspension->session));
    sbx_reporter_begin(&reporter, client, record);
    status = driver->snapshot_take(client->state, record, snapshot, &reporter.progress,
                                   suspension->wait, error);
    if (status != SANDBOX_OK)
        return status;
    sbx_events_step(client, record, "verify");
    status = driver->snapshot_verify(client->state, record, snapshot, &reporter.progress,
                                     suspension->wait, &verdict, error);
    if (status == SANDBOX_OK && verdict.verdict != SANDBOX_VERDICT_INTACT)
        status = sbx_fail_for(error, SANDBOX_FAILED, "snapshot-damaged",
                              "the snapshot just made of '%s' is not intact: %s", record->name,
                              verdict.evidence);
    if (status != SANDBOX_OK)
        return status;
    struct sbx_step kept = {.step = SBX_STEP_RELEASE, .also = sbx_record_keep_made,
                            .user_data = snapshot};
    /* A checkpoint does not release: whoever takes over must not take it for a suspend. */
    if (suspension->request->checkpoint)
        kept.step = SBX_STEP_GO_ON;
    return sbx_operation_step(client, record, kept, suspension->wait, error);
}

/* The checkpoint's other half: the workspace runs on, in the same instance or in another. */
static sandbox_status go_on(struct suspension *suspension, sandbox_error *error)
{
    sandbox_client *client = suspension->client;
    struct sbx_record *record = &suspension->record;
    struct sbx_instance instance = {0};
    struct sbx_session *session = NULL;
    struct sbx_pruned pruned;
    sbx_prune(client, record, suspension->wait, &pruned);
    sandbox_status status =
        client->driver->inspect(client->state, record, suspension->wait, &instance, error);
    bool there = instance.presence == SBX_PRESENCE_RUNNING;
    struct sbx_step step = {.step = there ? SBX_STEP_REOPEN : SBX_STEP_GO_ON,
                            .also = sbx_record_drop_pruned, .user_data = &pruned};
    if (status == SANDBOX_OK && (there || pruned.count > 0))
        status = sbx_operation_step(client, record, step, suspension->wait, error);
    if (status != SANDBOX_OK)
        return status;
    if (there) {
        status = sbx_reopen(client, record, suspension->wait, &session, error);
        sbx_session_drop(session);
        if (status != SANDBOX_OK)
            return status;
        return sbx_operation_step(client, record,
                                  (struct sbx_step){.state = SANDBOX_STATE_RUNNING},
                                  suspension->wait, error);
    }
    status = client->driver->release(client->state, record, suspension->wait, error);
    if (status == SANDBOX_OK)
        status = sbx_operation_step(client, record,
                                    (struct sbx_step){.state = SANDBOX_STATE_RESUMING,
                                                      .step = "restore", .incarnation = ""},
                                    suspension->wait, error);
    if (status != SANDBOX_OK)
        return status;
    struct sbx_resume_request request = {.keep_environment = true, .keep_egress = true};
    sandbox_resume_result result = {SANDBOX_RESUME_RESULT};
    status = sbx_bring_back(client, record, &request, suspension->wait, &result, &session, error);
    sbx_session_drop(session);
    return status;
}

/*
 * A step failed. The caller's time may be up: what follows has its own. The answer stays the
 * caller's, unless the suspend was finished all the same.
 */
static sandbox_status mend(struct suspension *suspension, sandbox_status status,
                           sandbox_error *error)
{
    sandbox_client *client = suspension->client;
    struct sbx_record *record = &suspension->record;
    struct sbx_wait alone = sbx_wait_alone(CLEAN_UP_MS);
    sandbox_error left = {0};
    char ours[SBX_ID_TEXT];
    memcpy(ours, record->operation.id, sizeof ours);
    if (record->state != SANDBOX_STATE_SUSPENDING)
        return status;
    /* A write may have been made whose answer was lost: what counts is what stands there. */
    sbx_record_clear(record);
    sandbox_status settled =
        sbx_store_load(client, suspension->name, &alone, record, &left);
    if (settled == SANDBOX_OK && strcmp(record->operation.id, ours) != 0)
        return status; /* somebody took it over, and will end it */
    if (settled == SANDBOX_OK)
        settled = sbx_settle_suspend(client, record, &alone, &left);
    if (settled != SANDBOX_OK) {
        sbx_log(SANDBOX_LOG_ERROR, "the suspend of '%s' stands still, the next caller goes on: %s",
                suspension->name, left.message);
        return status;
    }
    if (record->state == SANDBOX_STATE_SUSPENDED && !suspension->request->checkpoint)
        return SANDBOX_OK;
    if (record->state == SANDBOX_STATE_INTERRUPTED && status != SANDBOX_INTERRUPTED) {
        char cause[160];
        snprintf(cause, sizeof cause, "%.159s", error->message);
        return sbx_fail_for(error, SANDBOX_INTERRUPTED, "interrupted",
                            "the instance of '%s' was lost while it was suspended (%s); its files "
                            "are kept",
                            record->name, cause);
    }
    return status;
}

static void fill_result(const struct suspension *suspension, sandbox_suspend_result *result)
{
    const struct sbx_record *record = &suspension->record;
    const struct sbx_snapshot *kept = sbx_record_snapshot(record, record->snapshot);
    if (kept == NULL)
        return;
    snprintf(result->snapshot, sizeof result->snapshot, "%s", kept->id);
    snprintf(result->why_files, sizeof result->why_files, "%s", suspension->why_files);
    result->kept = kept->kind;
    result->bytes = kept->bytes;
    result->stopped = suspension->seal.stopped;
    result->parked = suspension->seal.parked;
}
