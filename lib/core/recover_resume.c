/* The end of a resume whose owner has died, or whose last step failed: part of recover.h. */

#include "core/gate.h"
#include "core/operation.h"
#include "core/recover.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"

#define MOVING_MS 20u

static sandbox_status settle_keeping(sandbox_client *client, struct sbx_record *record,
                                     const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status judge_restored(sandbox_client *client, struct sbx_record *record,
                                     const struct sbx_wait *wait, sandbox_state *state,
                                     sandbox_error *error);

/* It is known to hold nothing: then it may go like any other. */
sandbox_status sbx_record_forget_precious(struct sbx_record *record, void *unused,
                                          sandbox_error *error)
{
    record->precious = false;
    return SANDBOX_OK;
}

sandbox_status sbx_settle_resume(sandbox_client *client, struct sbx_record *record,
                                 const struct sbx_wait *wait, sandbox_error *error)
{
    if (strcmp(record->operation.step, SBX_STEP_KEEP) == 0)
        return settle_keeping(client, record, wait, error);
    struct sbx_instance instance = {0};
    sandbox_state state = SANDBOX_STATE_SUSPENDED;
    sandbox_status status =
        client->driver->inspect(client->state, record, wait, &instance, error);
    /* It may have been opened and lost since: what it wrote is asked about, not overwritten. */
    if (record->precious && (instance.presence == SBX_PRESENCE_ABSENT ||
                             instance.presence == SBX_PRESENCE_STOPPED))
        state = SANDBOX_STATE_INTERRUPTED;
    if (status == SANDBOX_OK && instance.presence == SBX_PRESENCE_RUNNING)
        status = judge_restored(client, record, wait, &state, error);
    if (status != SANDBOX_OK)
        return status;
    if (state == SANDBOX_STATE_SUSPENDED && record->precious)
        status = sbx_operation_step(client, record,
                                    (struct sbx_step){.step = "back",
                                                      .also = sbx_record_forget_precious},
                                    wait, error);
    if (status != SANDBOX_OK || state == SANDBOX_STATE_RUNNING)
        return status;
    if (state == SANDBOX_STATE_BLOCKED)
        return sbx_operation_step(client, record, (struct sbx_step){.state = state}, wait, error);
    /* An incarnation that never came into the record was never opened either. */
    return sbx_give_up_instance(client, record, state, wait, error);
}

/* The interrupted files were to be kept first: that is done, or it is as if nothing had begun. */
static sandbox_status settle_keeping(sandbox_client *client, struct sbx_record *record,
                                     const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_snapshot made = record->making;
    sandbox_status status = SANDBOX_NOT_FOUND;
    if (made.id[0] != '\0')
        status = client->driver->snapshot_adopt(client->state, record, &made, wait, error);
    if (status == SANDBOX_OK)
        status = client->driver->snapshot_remove(client->state, record, made.id, wait, error);
    if (status != SANDBOX_OK && status != SANDBOX_NOT_FOUND)
        return status;
    return sbx_give_up_instance(client, record, SANDBOX_STATE_INTERRUPTED, wait, error);
}

static sandbox_status open_with_next(sandbox_client *client, struct sbx_record *record,
                                     const struct sbx_wait *wait, sandbox_error *error)
{
    uint8_t token[SBX_TOKEN_BYTES];
    struct sbx_session *session = NULL;
    struct sbx_opening opening = {.token = token, .keep_environment = true};
    sandbox_status status = sbx_gate_token(client, record->id, record->next_run,
                                           &record->next_key_id, wait, token, error);
    if (status == SANDBOX_OK)
        status = sbx_gate_connect(client, record, token, wait, &session, NULL, error);
    if (status == SANDBOX_OK)
        status = sbx_gate_open(client, record, session, &opening, wait, NULL, error);
    sbx_session_drop(session);
    sbx_wipe(token, sizeof token);
    return status;
}

/*
 * A sealed agent is asked for its proof with our epoch before it is thrown away: from then on it
 * opens to no older operation, whose owner may only have been slow. SANDBOX_BUSY: it was opened
 * just before.
 */
static sandbox_status shut_out_older(sandbox_client *client, struct sbx_record *record,
                                     const struct sbx_wait *wait, sandbox_error *error)
{
    uint8_t token[SBX_TOKEN_BYTES];
    struct sbx_proven proven;
    sandbox_error own = {0};
    struct sbx_session *session = NULL;
    const struct sbx_snapshot *from = sbx_record_snapshot(record, record->snapshot);
    if (from == NULL || from->seal_hash[0] == '\0')
        return SANDBOX_OK;
    uint32_t key_id = from->key_id;
    sandbox_status status =
        sbx_gate_token(client, record->id, from->run, &key_id, wait, token, error);
    if (status == SANDBOX_OK)
        status = sbx_gate_connect(client, record, token, wait, &session, NULL, error);
    sbx_wipe(token, sizeof token);
    if (status != SANDBOX_OK)
        return status;
    do
        status = sbx_gate_prove(session, record->epoch, wait, &proven, &own);
    while (sbx_gate_is_moving(status, &own) && sbx_wait_pause(wait, MOVING_MS, NULL) == SANDBOX_OK);
    sbx_session_drop(session);
    if (status == SANDBOX_FAILED && strcmp(own.reason, "not-sealed") == 0)
        return SANDBOX_BUSY;
    /* Another's agent: nothing of ours is in it. */
    if (status == SANDBOX_DENIED)
        return SANDBOX_OK;
    return status == SANDBOX_OK ? status
                                : sbx_fail_for(error, status, own.reason, "%s", own.message);
}

static sandbox_status look_at_gate(sandbox_client *client, const struct sbx_record *record,
                                   const struct sbx_wait *wait, struct sbx_health *health,
                                   sandbox_error *error)
{
    struct sbx_session *session = NULL;
    sandbox_status status = sbx_gate_connect(client, record, NULL, wait, &session, health, error);
    sbx_session_drop(session);
    return status;
}

/*
 * The instance that a dead owner restored. Open: only our Open can have done that, and the token
 * that it gave proves it. Sealed: nobody ever worked in it. No answer: that depends on whether it
 * may have been opened.
 */
static sandbox_status judge_restored(sandbox_client *client, struct sbx_record *record,
                                     const struct sbx_wait *wait, sandbox_state *state,
                                     sandbox_error *error)
{
    struct sbx_health health = {.gate = SANDBOX__V1__GATE__GATE_UNSPECIFIED};
    sandbox_status status = look_at_gate(client, record, wait, &health, error);
    if (status == SANDBOX_OK && health.gate == SANDBOX__V1__GATE__GATE_SEALED) {
        status = shut_out_older(client, record, wait, error);
        if (status == SANDBOX_BUSY)
            status = look_at_gate(client, record, wait, &health, error);
    }
    if (status == SANDBOX_CANCELLED || status == SANDBOX_NO_MEMORY || status == SANDBOX_CONFLICT)
        return status;
    bool open = health.gate == SANDBOX__V1__GATE__GATE_OPEN;
    if (status == SANDBOX_OK && !open)
        return SANDBOX_OK; /* suspended still */
    bool ours = open && record->next_run[0] != '\0';
    if (status == SANDBOX_OK && ours)
        status = open_with_next(client, record, wait, error);
    if (status == SANDBOX_OK && ours) {
        *state = SANDBOX_STATE_RUNNING;
        struct sbx_step step = {.state = *state, .precious = true, .also = sbx_record_adopt_run};
        status = sbx_operation_step(client, record, step, wait, error);
        if (status == SANDBOX_OK)
            sbx_resume_settled(client, record, wait);
        return status;
    }
    *state = record->precious ? SANDBOX_STATE_BLOCKED : SANDBOX_STATE_SUSPENDED;
    return SANDBOX_OK;
}

/* The run that Open began is the run now. */
sandbox_status sbx_record_adopt_run(struct sbx_record *record, void *unused, sandbox_error *error)
{
    memcpy(record->run, record->next_run, sizeof record->run);
    record->key_id = record->next_key_id;
    bool cold = strcmp(record->operation.step, SBX_STEP_OPEN_COLD) == 0;
    struct sbx_snapshot *from = sbx_record_snapshot(record, record->snapshot);
    record->generation += !cold;
    if (from != NULL && !cold)
        from->proven = true;
    return sbx_record_clear_making(record, NULL, error);
}

void sbx_resume_settled(sandbox_client *client, const struct sbx_record *record,
                        const struct sbx_wait *wait)
{
    sandbox_error error = {0};
    if (client->driver->settled != NULL &&
        client->driver->settled(client->state, record, wait, &error) != SANDBOX_OK)
        sbx_log(SANDBOX_LOG_WARNING, "'%s' runs; what was set up to restore it is left: %s",
                record->name, error.message);
}
