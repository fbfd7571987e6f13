/*
 * Bringing a workspace back, in strict order: claim, verify the snapshot, restore exactly that
 * one, have a different incarnation prove that it holds what was sealed, and only then open it.
 */

#include "core/resume.h"
#include "core/events.h"
#include "core/gate.h"
#include "core/janitor.h"
#include "core/lifecycle.h"
#include "core/operation.h"
#include "core/recover.h"
#include "core/session.h"
#include "core/start.h"
#include "core/store.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"
#include <stdio.h>

#define CLEAN_UP_MS 120000u

/* How a look at the record goes on. */
enum next_step {
    NEXT_LOOK_AGAIN, /* something was waited for, or changed */
    NEXT_DONE,
    NEXT_BRING_BACK, /* it is claimed */
};

struct resumption {
    sandbox_client *client;
    const char *name, *id;
    const struct sbx_resume_request *request;
    const struct sbx_wait *wait;
    struct sbx_record record;
    sandbox_resume_result *result;
    struct sbx_session *session;
};

static sandbox_status look(struct resumption *resumption, enum next_step *next,
                           sandbox_error *error);
static sandbox_status claim(struct resumption *resumption, enum next_step *next,
                            sandbox_error *error);
static sandbox_status keep_live_files(struct resumption *resumption, sandbox_error *error);
static sandbox_status run(struct resumption *resumption, bool interrupted, sandbox_error *error);

sandbox_status sbx_life_resume(sandbox_client *client, const char *name, const char *id,
                               const struct sbx_resume_request *request,
                               const struct sbx_wait *wait, sandbox_resume_result *result,
                               struct sbx_session **session, sandbox_error *error)
{
    struct resumption resumption = {.client = client, .name = name, .id = id, .request = request,
                                    .wait = wait, .result = result};
    enum next_step next = NEXT_LOOK_AGAIN;
    sandbox_error own = {0};
    error = error == NULL ? &own : error;
    sandbox_status status = SANDBOX_OK;
    while (status == SANDBOX_OK && next == NEXT_LOOK_AGAIN) {
        sbx_record_clear(&resumption.record);
        status = look(&resumption, &next, error);
        if (status == SANDBOX_OK && next == NEXT_LOOK_AGAIN)
            status = sbx_wait_check(wait, error);
    }
    if (status == SANDBOX_OK && session != NULL)
        *session = sbx_take(resumption.session);
    sbx_session_drop(resumption.session);
    sbx_record_clear(&resumption.record);
    return status;
}

/* It runs, says the record; does it? */
static sandbox_status look_at_running(struct resumption *resumption, enum next_step *next,
                                      sandbox_error *error)
{
    sandbox_client *client = resumption->client;
    struct sbx_record *record = &resumption->record;
    struct sbx_instance instance = {0};
    sandbox_status status =
        client->driver->inspect(client->state, record, resumption->wait, &instance, error);
    if (status != SANDBOX_OK)
        return status;
    if (instance.presence == SBX_PRESENCE_RUNNING) {
        *next = NEXT_DONE;
        resumption->result->restored = true;
        return SANDBOX_OK;
    }
    status = sbx_life_interrupt(client, record, resumption->wait, error);
    return status == SANDBOX_CONFLICT ? SANDBOX_OK : status;
}

static sandbox_status look_at_interrupted(struct resumption *resumption, enum next_step *next,
                                          sandbox_error *error)
{
    struct sbx_record *record = &resumption->record;
    switch (resumption->request->from) {
    case SANDBOX_FROM_SNAPSHOT:
        return claim(resumption, next, error);
    case SANDBOX_FROM_LIVE_FILES: {
        sandbox_workspace *workspace = NULL;
        sandbox_status status =
            sbx_start_again(resumption->client, record, resumption->request->environment,
                            resumption->request->egress, resumption->wait, &workspace, error);
        sbx_workspace_drop(workspace);
        if (status == SANDBOX_CONFLICT)
            return SANDBOX_OK;
        *next = NEXT_DONE;
        resumption->result->attempts = 1;
        return status;
    }
    default:
        return sbx_start_lost(resumption->client, record->name, "", error);
    }
}

static sandbox_status look(struct resumption *resumption, enum next_step *next,
                           sandbox_error *error)
{
    sandbox_client *client = resumption->client;
    struct sbx_record *record = &resumption->record;
    const struct sbx_wait *wait = resumption->wait;
    sandbox_status status = sbx_store_load(client, resumption->name, wait, record, error);
    if (status == SANDBOX_NOT_FOUND ||
        (status == SANDBOX_OK && (strcmp(record->id, resumption->id) != 0 ||
                                  record->state == SANDBOX_STATE_DELETING)))
        return sbx_fail_for(error, SANDBOX_CLOSED, "workspace-deleted",
                            "the workspace '%s' was deleted", resumption->name);
    if (status != SANDBOX_OK)
        return status;
    if (record->operation.kind[0] != '\0')
        return sbx_operation_settle(client, record, wait, error);
    switch (record->state) {
    case SANDBOX_STATE_RUNNING:
        return look_at_running(resumption, next, error);
    case SANDBOX_STATE_INTERRUPTED:
        return look_at_interrupted(resumption, next, error);
    case SANDBOX_STATE_SUSPENDED:
    case SANDBOX_STATE_BLOCKED:
        return claim(resumption, next, error);
    default:
        return sbx_fail(error, SANDBOX_FAILED, "'%s' is %s and nobody is at it; delete it",
                        record->name, sandbox_state_name(record->state));
    }
}

/*
 * An instance that may have been opened did not answer last time. What it says now decides; it is
 * never thrown away for being silent.
 */
static sandbox_status judge_blocked(struct resumption *resumption, enum next_step *next,
                                    sandbox_error *error)
{
    struct sbx_record *record = &resumption->record;
    sandbox_status status =
        sbx_settle_resume(resumption->client, record, resumption->wait, error);
    if (status == SANDBOX_OK && record->state == SANDBOX_STATE_BLOCKED)
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "no-answer",
                            "the instance of '%s' may hold work and does not answer; it is kept: "
                            "try again, or delete the workspace",
                            record->name);
    *next = NEXT_LOOK_AGAIN;
    return status;
}

static sandbox_status claim(struct resumption *resumption, enum next_step *next,
                            sandbox_error *error)
{
    sandbox_client *client = resumption->client;
    struct sbx_record *record = &resumption->record;
    const char *wanted = resumption->request->snapshot;
    bool interrupted = record->state == SANDBOX_STATE_INTERRUPTED;
    bool blocked = record->state == SANDBOX_STATE_BLOCKED;
    if (client->driver->restore == NULL)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "no-snapshots",
                            "the %s driver cannot resume", client->driver->name);
    if (sbx_record_snapshot(record, wanted == NULL ? record->snapshot : wanted) == NULL)
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-such-snapshot",
                            wanted == NULL ? "'%s' has no snapshot"
                                           : "'%s' has no snapshot of that id",
                            record->name);
    struct sbx_claim meant = {client,  resumption->id, "resume", SANDBOX_STATE_RESUMING, "",
                              NULL,    interrupted ? SBX_STEP_KEEP : NULL};
    sandbox_status status = sbx_store_change(client, resumption->name, resumption->wait,
                                             sbx_change_claim, &meant, record, error);
    if (status == SANDBOX_CONFLICT || status == SANDBOX_NOT_FOUND)
        return SANDBOX_OK; /* somebody was faster: look again */
    if (status != SANDBOX_OK)
        return status;
    sbx_events_state(client, record, "resume");
    struct sbx_lease lease;
    sbx_lease_begin(client, &lease, record->name, record->operation.id);
    *next = NEXT_DONE;
    if (blocked && record->precious)
        status = judge_blocked(resumption, next, error);
    else
        status = run(resumption, interrupted, error);
    sbx_lease_end(client, &lease);
    return status;
}

static sandbox_status choose_snapshot(struct sbx_record *record, void *user_data,
                                      sandbox_error *error)
{
    const char *wanted = user_data;
    if (sbx_record_snapshot(record, wanted) == NULL)
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-such-snapshot",
                            "'%s' has no snapshot of that id any more", record->name);
    snprintf(record->snapshot, sizeof record->snapshot, "%s", wanted);
    return SANDBOX_OK;
}

/* A step that has no instance yet failed: as it was before. */
static void turn_back(struct resumption *resumption)
{
    struct sbx_wait alone = sbx_wait_alone(CLEAN_UP_MS);
    sandbox_error left = {0};
    if (sbx_settle_resume(resumption->client, &resumption->record, &alone, &left) != SANDBOX_OK)
        sbx_log(SANDBOX_LOG_ERROR, "the resume of '%s' stands still, the next caller goes on: %s",
                resumption->name, left.message);
}

static sandbox_status run(struct resumption *resumption, bool interrupted, sandbox_error *error)
{
    sandbox_client *client = resumption->client;
    struct sbx_record *record = &resumption->record;
    const char *wanted = resumption->request->snapshot;
    sandbox_status status = SANDBOX_OK;
    if (interrupted && client->driver->can(client->state, SANDBOX_CAN_KEEP_FILES))
        status = keep_live_files(resumption, error);
    if (status == SANDBOX_OK && wanted != NULL && strcmp(wanted, record->snapshot) != 0)
        status = sbx_operation_step(client, record,
                                    (struct sbx_step){.step = "choose",
                                                      .also = choose_snapshot,
                                                      .user_data = (void *)(uintptr_t)wanted},
                                    resumption->wait, error);
    if (status != SANDBOX_OK) {
        turn_back(resumption);
        return status;
    }
    return sbx_bring_back(client, record, resumption->request, resumption->wait,
                          resumption->result, &resumption->session, error);
}

static sandbox_status note_keeping(struct sbx_record *record, void *user_data,
                                   sandbox_error *error)
{
    const struct sbx_snapshot *snapshot = user_data;
    record->making = *snapshot;
    record->precious = false; /* there is no instance any more */
    return SANDBOX_OK;
}

/* Beside the others; the recovery point stays what it was. */
static sandbox_status note_kept(struct sbx_record *record, void *user_data, sandbox_error *error)
{
    const struct sbx_snapshot *snapshot = user_data;
    record->making = (struct sbx_snapshot){0};
    return sbx_record_add_snapshot(record, snapshot, error);
}

/* Whoever chooses the snapshot does not lose what came after it. */
static sandbox_status keep_live_files(struct resumption *resumption, sandbox_error *error)
{
    sandbox_client *client = resumption->client;
    const struct sbx_driver *driver = client->driver;
    struct sbx_record *record = &resumption->record;
    struct sbx_reporter reporter;
    struct sbx_snapshot kept = {.kind = SANDBOX_KEEP_FILES, .epoch = record->epoch,
                                .created_ms = sbx_clock_wall(client->clock)};
    memcpy(kept.incarnation, record->incarnation, sizeof kept.incarnation);
    if (!sbx_id_fresh(kept.id))
        return sbx_fail(error, SANDBOX_FAILED, "the kernel gives no random bytes");
    struct sbx_step keeping = {.step = SBX_STEP_KEEP, .also = note_keeping, .user_data = &kept};
    sandbox_status status = sbx_operation_step(client, record, keeping, resumption->wait, error);
    if (status == SANDBOX_OK)
        status = driver->discard(client->state, record, resumption->wait, error);
    if (status == SANDBOX_OK)
        status = driver->snapshot_prepare(client->state, record, &kept, resumption->wait, error);
    sbx_reporter_begin(&reporter, client, record);
    if (status == SANDBOX_OK)
        status = driver->snapshot_take(client->state, record, &kept, &reporter.progress,
                                       resumption->wait, error);
    if (status != SANDBOX_OK)
        return status;
    struct sbx_step step = {.step = "restore", .incarnation = "", .also = note_kept,
                            .user_data = &kept};
    return sbx_operation_step(client, record, step, resumption->wait, error);
}

static void report(struct sbx_progress *progress, const char *step, uint64_t done, uint64_t total)
{
    struct sbx_reporter *reporter = (struct sbx_reporter *)(void *)progress;
    sbx_events_progress(reporter->client, reporter->name, reporter->id, reporter->operation, step,
                        done, total);
}

void sbx_reporter_begin(struct sbx_reporter *reporter, sandbox_client *client,
                        const struct sbx_record *record)
{
    *reporter = (struct sbx_reporter){.progress = {.moved = report}, .client = client};
    memcpy(reporter->name, record->name, sizeof reporter->name);
    memcpy(reporter->id, record->id, sizeof reporter->id);
    memcpy(reporter->operation, record->operation.kind, sizeof reporter->operation);
}
