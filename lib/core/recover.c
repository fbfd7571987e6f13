/* Finishing or rolling back what a dead owner left of a suspend, a checkpoint or a resume. */

#include "core/recover.h"
#include "core/egress.h"
#include "core/events.h"
#include "core/gate.h"
#include "core/janitor.h"
#include "core/operation.h"
#include "core/retention.h"
#include "core/store.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"
#include <stdio.h>

#define MOVING_MS 20u

static sandbox_status release_or_reopen(sandbox_client *client, struct sbx_record *record,
                                        const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status complete_made(sandbox_client *client, struct sbx_record *record,
                                    const struct sbx_wait *wait, struct sbx_snapshot *made,
                                    bool *complete, sandbox_error *error);
static sandbox_status go_on_running(sandbox_client *client, struct sbx_record *record,
                                    struct sbx_snapshot *made, bool complete,
                                    const struct sbx_wait *wait, sandbox_error *error);

bool sbx_recover_is_for(const struct sbx_record *record)
{
    const char *kind = record->operation.kind;
    return strcmp(kind, "suspend") == 0 || strcmp(kind, "resume") == 0 ||
           strcmp(kind, "checkpoint") == 0;
}

sandbox_status sbx_recover(sandbox_client *client, const struct sbx_record *record,
                           const struct sbx_wait *wait, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record claimed = {0};
    struct sbx_claim claim = {client,        record->id,           record->operation.kind,
                              record->state, record->operation.id, NULL};
    sandbox_status status = sbx_store_change(client, record->name, wait, sbx_change_claim,
                                             &claim, &claimed, error);
    if (status == SANDBOX_CONFLICT || status == SANDBOX_NOT_FOUND)
        return SANDBOX_OK; /* it went on, or somebody else is at it */
    if (status != SANDBOX_OK)
        return status;
    sbx_log(SANDBOX_LOG_INFO, "the %s of '%s' was abandoned in step '%s' and is taken over",
            claimed.operation.kind, claimed.name, claimed.operation.step);
    struct sbx_lease lease;
    sbx_lease_begin(client, &lease, claimed.name, claimed.operation.id);
    status = claimed.state == SANDBOX_STATE_RESUMING
                 ? sbx_settle_resume(client, &claimed, wait, error)
                 : sbx_settle_suspend(client, &claimed, wait, error);
    sbx_lease_end(client, &lease);
    return status == SANDBOX_CONFLICT ? SANDBOX_OK : status;
}

sandbox_status sbx_settle_suspend(sandbox_client *client, struct sbx_record *record,
                                  const struct sbx_wait *wait, sandbox_error *error)
{
    /* The snapshot was verified and stands in the list: there is no way back, nor any need. */
    if (strcmp(record->operation.step, SBX_STEP_RELEASE) == 0)
        return release_or_reopen(client, record, wait, error);
    /* A checkpoint's snapshot stands in the list already, and its instance may be there or gone. */
    bool listed = strcmp(record->operation.step, SBX_STEP_GO_ON) == 0;
    struct sbx_snapshot made = record->making;
    struct sbx_instance instance = {0};
    bool complete = false;
    sandbox_status status = SANDBOX_OK;
    if (made.id[0] != '\0')
        status = complete_made(client, record, wait, &made, &complete, error);
    if (status == SANDBOX_OK)
        status = client->driver->inspect(client->state, record, wait, &instance, error);
    if (status != SANDBOX_OK)
        return status;
    if (instance.presence == SBX_PRESENCE_RUNNING)
        return go_on_running(client, record, &made, complete, wait, error);
    if (instance.presence == SBX_PRESENCE_OTHER)
        return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "other-instance",
                            "another instance than the recorded one runs for '%s'; end it, then "
                            "try again",
                            record->name);
    /* It was opened again, and worked in, before it was lost: its files are newer than any copy. */
    bool reopened = strcmp(record->operation.step, SBX_STEP_REOPEN) == 0;
    if (listed)
        return sbx_finish_suspend(client, record, wait, error);
    if (!complete || reopened)
        return sbx_give_up_instance(client, record, SANDBOX_STATE_INTERRUPTED, wait, error);
    status = sbx_operation_step(client, record,
                                (struct sbx_step){.step = SBX_STEP_RELEASE,
                                                  .also = sbx_record_keep_made,
                                                  .user_data = &made},
                                wait, error);
    return status == SANDBOX_OK ? sbx_finish_suspend(client, record, wait, error) : status;
}

/* But a snapshot that was lost since, while the sealed instance is there: that one goes on. */
static sandbox_status release_or_reopen(sandbox_client *client, struct sbx_record *record,
                                        const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_instance instance = {0};
    sandbox_error why = {0};
    sandbox_status status = sbx_finish_suspend(client, record, wait, &why);
    bool lost =
        status == SANDBOX_FAILED && strcmp(why.reason, "snapshot-lost") == 0 &&
        client->driver->inspect(client->state, record, wait, &instance, NULL) == SANDBOX_OK &&
        instance.presence == SBX_PRESENCE_RUNNING;
    if (!lost) {
        if (error != NULL)
            *error = why;
        return status;
    }
    sbx_log(SANDBOX_LOG_WARNING, "'%s' is opened again: %s", record->name, why.message);
    return go_on_running(client, record, NULL, false, wait, error);
}

/* What the dead owner was making: finished and looked at, or removed. */
static sandbox_status complete_made(sandbox_client *client, struct sbx_record *record,
                                    const struct sbx_wait *wait, struct sbx_snapshot *made,
                                    bool *complete, sandbox_error *error)
{
    const struct sbx_driver *driver = client->driver;
    struct sbx_verdict verdict = {0};
    sandbox_status status = driver->snapshot_adopt(client->state, record, made, wait, error);
    if (status == SANDBOX_NOT_FOUND)
        return SANDBOX_OK;
    if (status == SANDBOX_OK)
        status = driver->snapshot_verify(client->state, record, made, NULL, wait, &verdict, error);
    if (status != SANDBOX_OK)
        return status;
    *complete = verdict.verdict == SANDBOX_VERDICT_INTACT;
    if (*complete)
        return SANDBOX_OK;
    /* It may be all there is. */
    if (verdict.verdict == SANDBOX_VERDICT_CANNOT_TELL)
        return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "cannot-verify",
                            "the unfinished snapshot of '%s' could not be looked at: %s; try again",
                            record->name, verdict.evidence);
    sbx_log(SANDBOX_LOG_WARNING, "the unfinished snapshot of '%s' is of no use: %s", record->name,
            verdict.evidence);
    return driver->snapshot_remove(client->state, record, made->id, wait, error);
}

/* Before the point of no return, or on a platform where a snapshot does not end the instance. */
sandbox_status sbx_record_clear_making(struct sbx_record *record, void *user_data,
                                       sandbox_error *error)
{
    const struct sbx_snapshot *complete = user_data;
    sandbox_status status = SANDBOX_OK;
    if (complete != NULL)
        status = sbx_record_keep_made(record, user_data, error);
    record->making = (struct sbx_snapshot){0};
    record->next_run[0] = '\0';
    record->next_key_id = 0;
    return status;
}

static sandbox_status go_on_running(sandbox_client *client, struct sbx_record *record,
                                    struct sbx_snapshot *made, bool complete,
                                    const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_session *session = NULL;
    struct sbx_step noted = {.step = SBX_STEP_REOPEN, .also = sbx_record_clear_making};
    noted.user_data = complete ? made : NULL;
    sandbox_status status = sbx_operation_step(client, record, noted, wait, error);
    if (status == SANDBOX_OK)
        status = sbx_reopen(client, record, wait, &session, error);
    sbx_session_drop(session);
    if (status != SANDBOX_OK)
        return status;
    return sbx_operation_step(client, record,
                              (struct sbx_step){.state = SANDBOX_STATE_RUNNING}, wait, error);
}

static sandbox_status reopen_once(sandbox_client *client, struct sbx_record *record,
                                  const uint8_t *token, const struct sbx_wait *wait,
                                  struct sbx_session **out, sandbox_error *error)
{
    struct sbx_session *session = NULL;
    struct sbx_health health;
    struct sbx_proven proven = {.hash = ""};
    struct sbx_opening opening = {.token = token, .keep_environment = true};
    sandbox_status status =
        sbx_gate_connect(client, record, token, wait, &session, &health, error);
    /* It is the very incarnation that was sealed: its own word for the seal is good enough. */
    if (status == SANDBOX_OK && health.gate == SANDBOX__V1__GATE__GATE_SEALED)
        status = sbx_gate_prove(session, record->epoch, wait, &proven, error);
    opening.seal_hash = proven.hash;
    if (status == SANDBOX_OK)
        status = sbx_gate_open(client, record, session, &opening, wait, NULL, error);
    /* The seal has ended what was there of a way out. */
    if (status == SANDBOX_OK && health.gate == SANDBOX__V1__GATE__GATE_SEALED)
        sbx_egress_come_back(client, record, session, NULL, true, wait);
    if (status == SANDBOX_OK)
        *out = session;
    else
        sbx_session_drop(session);
    return status;
}

sandbox_status sbx_reopen(sandbox_client *client, struct sbx_record *record,
                          const struct sbx_wait *wait, struct sbx_session **out,
                          sandbox_error *error)
{
    uint8_t token[SBX_TOKEN_BYTES];
    sandbox_error own = {0};
    error = error == NULL ? &own : error;
    sandbox_status status =
        sbx_gate_token(client, record->id, record->run, &record->key_id, wait, token, error);
    if (status != SANDBOX_OK)
        return status;
    /* A seal whose caller has gone may still be under way; it ends by itself. */
    do
        status = reopen_once(client, record, token, wait, out, error);
    while (sbx_gate_is_moving(status, error) &&
           sbx_wait_pause(wait, MOVING_MS, NULL) == SANDBOX_OK);
    sbx_wipe(token, sizeof token);
    return status;
}

/* No instance that counts: what is left of it goes, the files stay. */
sandbox_status sbx_give_up_instance(sandbox_client *client, struct sbx_record *record,
                                    sandbox_state state, const struct sbx_wait *wait,
                                    sandbox_error *error)
{
    sandbox_status status = client->driver->discard(client->state, record, wait, error);
    if (status != SANDBOX_OK)
        return status;
    sbx_egress_forget(client, record);
    struct sbx_step step = {.state = state, .incarnation = "", .also = sbx_record_clear_making};
    return sbx_operation_step(client, record, step, wait, error);
}

sandbox_status sbx_record_keep_made(struct sbx_record *record, void *made, sandbox_error *error)
{
    const struct sbx_snapshot *snapshot = made;
    record->making = (struct sbx_snapshot){0};
    if (sbx_record_snapshot(record, snapshot->id) == NULL) {
        sandbox_status status = sbx_record_add_snapshot(record, snapshot, error);
        if (status != SANDBOX_OK)
            return status;
    }
    memcpy(record->snapshot, snapshot->id, sizeof record->snapshot);
    return SANDBOX_OK;
}

static sandbox_status end_suspend(struct sbx_record *record, void *user_data,
                                  sandbox_error *error)
{
    record->precious = false;
    (void)sbx_record_drop_pruned(record, user_data, error);
    return sbx_record_clear_making(record, NULL, error);
}

sandbox_status sbx_finish_suspend(sandbox_client *client, struct sbx_record *record,
                                  const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_pruned pruned;
    sandbox_status status = client->driver->release(client->state, record, wait, error);
    if (status != SANDBOX_OK)
        return status;
    sbx_egress_forget(client, record);
    sbx_prune(client, record, wait, &pruned);
    struct sbx_step step = {.state = SANDBOX_STATE_SUSPENDED, .incarnation = "",
                            .also = end_suspend, .user_data = &pruned};
    return sbx_operation_step(client, record, step, wait, error);
}
