/* From a snapshot to an open agent: verify, restore, prove, open. Part of resume.h. */

#include "core/egress.h"
#include "core/events.h"
#include "core/gate.h"
#include "core/janitor.h"
#include "core/operation.h"
#include "core/recover.h"
#include "core/resume.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"
#include <stdio.h>

#define CLEAN_UP_MS 120000u
#define ATTEMPTS 2
#define EVIDENCE_MS 30000u
#define EVIDENCE_LOOK_MS 50u

struct revival {
    sandbox_client *client;
    struct sbx_record *record;
    const struct sbx_resume_request *request;
    const struct sbx_wait *wait;
    sandbox_resume_result *result;
    struct sbx_snapshot snapshot;
    sandbox_keep keep; /* what is restored of it */
    struct sbx_restored restored;
    struct sbx_reporter reporter;
    struct sbx_session *session;
    bool cold;       /* a fresh instance over the live files: nothing is proven */
};

static sandbox_status verify(struct revival *revival, sandbox_error *error);
static sandbox_status try_all(struct revival *revival, sandbox_error *error);
static sandbox_status attempt(struct revival *revival, sandbox_error *error);
static sandbox_status restore(struct revival *revival, sandbox_error *error);
static sandbox_status prove(struct revival *revival, sandbox_error *error);
static sandbox_status await_evidence(struct revival *revival, sandbox_error *error);
static sandbox_status start_cold(struct revival *revival, sandbox_error *error);
static sandbox_status open_agent(struct revival *revival, sandbox_error *error);
static sandbox_status give_up(struct revival *revival, sandbox_status status,
                              sandbox_error *error);

sandbox_status sbx_bring_back(sandbox_client *client, struct sbx_record *record,
                              const struct sbx_resume_request *request,
                              const struct sbx_wait *wait, sandbox_resume_result *result,
                              struct sbx_session **session, sandbox_error *error)
{
    struct revival revival = {.client = client, .record = record, .request = request,
                              .wait = wait, .result = result};
    sandbox_error own = {0};
    error = error == NULL ? &own : error;
    const struct sbx_snapshot *chosen = sbx_record_snapshot(record, record->snapshot);
    if (chosen == NULL)
        return sbx_fail(error, SANDBOX_FAILED, "a damaged workspace record");
    revival.snapshot = *chosen;
    revival.keep = chosen->kind;
    sbx_reporter_begin(&revival.reporter, client, record);
    sandbox_status status = try_all(&revival, error);
    if (status == SANDBOX_OK)
        status = open_agent(&revival, error);
    else
        status = give_up(&revival, status, error);
    if (status == SANDBOX_OK)
        *session = sbx_take(revival.session);
    sbx_session_drop(revival.session);
    return status;
}

/* A status that says something about the snapshot or the instance, not about the caller. */
static bool is_verdict(sandbox_status status)
{
    return status == SANDBOX_NOT_RESTORED || status == SANDBOX_UNSUPPORTED ||
           status == SANDBOX_FAILED;
}

static sandbox_status try_all(struct revival *revival, sandbox_error *error)
{
    sandbox_accept accept = revival->request->accept;
    sandbox_status status = verify(revival, error);
    if (status == SANDBOX_OK)
        status = attempt(revival, error);
    bool kept = status == SANDBOX_NOT_RESTORED && strcmp(error->reason, "evidence-missing") == 0;
    if (is_verdict(status) && !kept && accept >= SANDBOX_ACCEPT_FILES &&
        revival->snapshot.kind == SANDBOX_KEEP_MEMORY) {
        sbx_log(SANDBOX_LOG_WARNING, "the memory of '%s' is not restored, its files are: %s",
                revival->record->name, error->message);
        revival->keep = SANDBOX_KEEP_FILES;
        status = attempt(revival, error);
    }
    if (is_verdict(status) && !kept && accept == SANDBOX_ACCEPT_COLD) {
        sbx_log(SANDBOX_LOG_WARNING, "'%s' is started cold over the files that are there: %s",
                revival->record->name, error->message);
        status = start_cold(revival, error);
    }
    return status;
}

static sandbox_status verify(struct revival *revival, sandbox_error *error)
{
    struct sbx_verdict verdict = {0};
    const char *name = revival->record->name;
    sbx_events_step(revival->client, revival->record, "verify");
    sandbox_status status = revival->client->driver->snapshot_verify(
        revival->client->state, revival->record, &revival->snapshot,
        &revival->reporter.progress, revival->wait, &verdict, error);
    if (status != SANDBOX_OK)
        return status;
    switch (verdict.verdict) {
    case SANDBOX_VERDICT_INTACT:
        return SANDBOX_OK;
    case SANDBOX_VERDICT_DAMAGED:
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "snapshot-damaged",
                            "the snapshot of '%s' is damaged and is not restored: %s; repair it, "
                            "or choose another one",
                            name, verdict.evidence);
    case SANDBOX_VERDICT_MISSING:
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "snapshot-missing",
                            "the snapshot of '%s' is missing: %s; put it back, or choose another "
                            "one",
                            name, verdict.evidence);
    default:
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "cannot-verify",
                            "the snapshot of '%s' could not be looked at: %s; try again", name,
                            verdict.evidence);
    }
}

/* The instance holds nothing that anybody was promised: no snapshot is taken of it. */
static sandbox_status discard(struct revival *revival, const struct sbx_wait *wait,
                              sandbox_error *error)
{
    sbx_session_drop(sbx_take(revival->session));
    return revival->client->driver->discard(revival->client->state, revival->record, wait, error);
}

/* Contrary evidence, or none at all: away with that instance, and the same snapshot once more. */
static sandbox_status attempt(struct revival *revival, sandbox_error *error)
{
    for (unsigned number = 1;; number++) {
        sandbox_status status = restore(revival, error);
        if (status == SANDBOX_OK)
            status = prove(revival, error);
        bool again = status == SANDBOX_NOT_RESTORED &&
                     (strcmp(error->reason, "not-proven") == 0 ||
                      strcmp(error->reason, "no-answer") == 0);
        if (!again)
            return status;
        sbx_log(SANDBOX_LOG_WARNING, "%s", error->message);
        char message[sizeof error->message], reason[sizeof error->reason];
        memcpy(message, error->message, sizeof message);
        memcpy(reason, error->reason, sizeof reason);
        struct sbx_wait alone = sbx_wait_alone(CLEAN_UP_MS);
        sandbox_status gone = discard(revival, &alone, error);
        if (gone != SANDBOX_OK)
            return gone;
        if (number == ATTEMPTS || sbx_wait_check(revival->wait, NULL) != SANDBOX_OK)
            return sbx_fail_for(error, status, reason, "%s", message);
    }
}

/*
 * An instance that was kept sealed, since the platform's evidence was late, is still there after
 * a block; then it only has to prove itself.
 */
static bool is_kept(struct revival *revival)
{
    struct sbx_instance instance = {0};
    const struct sbx_driver *driver = revival->client->driver;
    return revival->record->incarnation[0] != '\0' && revival->keep == revival->snapshot.kind &&
           driver->evidence != NULL &&
           driver->inspect(revival->client->state, revival->record, revival->wait, &instance,
                           NULL) == SANDBOX_OK &&
           instance.presence == SBX_PRESENCE_RUNNING;
}

static sandbox_status restore(struct revival *revival, sandbox_error *error)
{
    const struct sbx_driver *driver = revival->client->driver;
    struct sbx_record *record = revival->record;
    revival->restored = (struct sbx_restored){0};
    if (is_kept(revival)) {
        /* The platform is asked again after the proof. */
        revival->restored.evidence = SBX_EVIDENCE_MISSING;
        memcpy(revival->restored.incarnation, record->incarnation,
               sizeof revival->restored.incarnation);
        return SANDBOX_OK;
    }
    sbx_events_step(revival->client, record, "restore");
    /* What a blocked try may have left. */
    sandbox_status status =
        driver->discard(revival->client->state, record, revival->wait, error);
    if (status == SANDBOX_OK)
        status = driver->restore(revival->client->state, record, &revival->snapshot,
                                 revival->keep, &revival->reporter.progress, revival->wait,
                                 &revival->restored, error);
    if (status != SANDBOX_OK)
        return status;
    revival->result->attempts++;
    struct sbx_step step = {.step = "prove", .incarnation = revival->restored.incarnation,
                            .also = sbx_record_forget_precious};
    status = sbx_operation_step(revival->client, record, step, revival->wait, error);
    if (status != SANDBOX_OK)
        return status;
    if (strcmp(revival->restored.incarnation, revival->snapshot.incarnation) == 0)
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "not-proven",
                            "the platform gave the old instance of '%s' for a restored one",
                            record->name);
    return SANDBOX_OK;
}

static sandbox_status not_proven(struct revival *revival, const char *what, sandbox_error *error)
{
    return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "not-proven",
                        "what was started for '%s' is not what was suspended: %s%s%s",
                        revival->record->name, what,
                        revival->restored.detail[0] != '\0' ? "; the platform says: " : "",
                        revival->restored.detail);
}

/* A session that carries the token of the run that was sealed. */
static sandbox_status connect_agent(struct revival *revival, struct sbx_health *health,
                              sandbox_error *error)
{
    uint8_t token[SBX_TOKEN_BYTES] = {0};
    struct sbx_snapshot *snapshot = &revival->snapshot;
    bool sealed = snapshot->seal_hash[0] != '\0';
    sandbox_status status = SANDBOX_OK;
    if (sealed)
        status = sbx_gate_token(revival->client, revival->record->id, snapshot->run,
                                &snapshot->key_id, revival->wait, token, error);
    if (status == SANDBOX_OK)
        status = sbx_gate_connect(revival->client, revival->record, sealed ? token : NULL,
                                  revival->wait, &revival->session, health, error);
    sbx_wipe(token, sizeof token);
    return status;
}

static sandbox_status judge_answer(struct revival *revival, sandbox_status status,
                                   sandbox_error *error)
{
    /* The caller has gone, or the machine has no more: nothing was learnt about the instance. */
    if (status == SANDBOX_CANCELLED || status == SANDBOX_NO_MEMORY)
        return status;
    if (status == SANDBOX_UNAVAILABLE || status == SANDBOX_TIMED_OUT ||
        status == SANDBOX_UNKNOWN) {
        char cause[160];
        snprintf(cause, sizeof cause, "%.159s", error->message);
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "no-answer",
                            "the agent that was started for '%s' did not prove itself: %s",
                            revival->record->name, cause);
    }
    return not_proven(revival, "its agent holds no such seal", error);
}

static sandbox_status prove(struct revival *revival, sandbox_error *error)
{
    struct sbx_health health;
    struct sbx_proven proven;
    uint8_t id[SBX_ID_BYTES] = {0};
    const struct sbx_snapshot *snapshot = &revival->snapshot;
    sbx_events_step(revival->client, revival->record, "prove");
    if (revival->restored.evidence == SBX_EVIDENCE_CONTRARY)
        return not_proven(revival, "it holds another state", error);
    sandbox_status status = connect_agent(revival, &health, error);
    if (status != SANDBOX_OK)
        return judge_answer(revival, status, error);
    if (snapshot->seal_hash[0] == '\0') {
        /* Files of a lost instance: the driver has compared every byte, the agent is fresh. */
        if (health.gate != SANDBOX__V1__GATE__GATE_NOT_OPENED)
            return not_proven(revival, "its agent is not a fresh one", error);
        revival->result->proof = SANDBOX_PROOF_FILES;
        return SANDBOX_OK;
    }
    status = sbx_gate_prove(revival->session, revival->record->epoch, revival->wait, &proven,
                            error);
    if (status != SANDBOX_OK)
        return judge_answer(revival, status, error);
    (void)sbx_id_parse(revival->record->id, id);
    if (strcmp(proven.hash, snapshot->seal_hash) != 0)
        return not_proven(revival, "its agent holds another seal", error);
    if (!proven.has_workspace_id || memcmp(proven.workspace_id, id, sizeof id) != 0)
        return not_proven(revival, "its agent is another workspace's", error);
    if (revival->keep == SANDBOX_KEEP_MEMORY && !proven.in_memory)
        return not_proven(revival, "its memory is a fresh one", error);
    if (!proven.in_file)
        return not_proven(revival, "its files are not the sealed ones", error);
    revival->result->proof = proven.in_memory ? SANDBOX_PROOF_MEMORY : SANDBOX_PROOF_FILES;
    return await_evidence(revival, error);
}

/* The nonce is right; a platform that says so itself may do so later. */
static sandbox_status await_evidence(struct revival *revival, sandbox_error *error)
{
    const struct sbx_driver *driver = revival->client->driver;
    struct sbx_wait patience = sbx_wait_within(revival->wait, EVIDENCE_MS);
    while (revival->restored.evidence == SBX_EVIDENCE_MISSING) {
        sandbox_status status =
            driver->evidence(revival->client->state, revival->record, &revival->snapshot, &patience,
                             &revival->restored, error);
        if (status == SANDBOX_OK && revival->restored.evidence == SBX_EVIDENCE_MISSING)
            status = sbx_wait_pause(&patience, EVIDENCE_LOOK_MS, error);
        if (status == SANDBOX_TIMED_OUT)
            return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "evidence-missing",
                                "the agent of '%s' proved itself, but the platform does not "
                                "confirm the restore; it is kept sealed: resume again",
                                revival->record->name);
        if (status != SANDBOX_OK)
            return status;
    }
    return revival->restored.evidence == SBX_EVIDENCE_CONTRARY
               ? not_proven(revival, "it holds another state", error)
               : SANDBOX_OK;
}

/* Only where the caller said that it may be. */
static sandbox_status start_cold(struct revival *revival, sandbox_error *error)
{
    const struct sbx_driver *driver = revival->client->driver;
    struct sbx_record *record = revival->record;
    struct sbx_health health;
    char incarnation[SBX_INCARNATION_TEXT] = "";
    sandbox_status status = discard(revival, revival->wait, error);
    if (status == SANDBOX_OK)
        status = driver->provision(revival->client->state, record, revival->wait, incarnation,
                                   error);
    if (status != SANDBOX_OK)
        return status;
    revival->cold = true;
    revival->result->attempts++;
    revival->result->proof = SANDBOX_PROOF_NONE;
    struct sbx_step step = {.step = "prove", .incarnation = incarnation,
                            .also = sbx_record_forget_precious};
    status = sbx_operation_step(revival->client, record, step, revival->wait, error);
    if (status == SANDBOX_OK)
        status = sbx_gate_connect(revival->client, record, NULL, revival->wait,
                                  &revival->session, &health, error);
    if (status == SANDBOX_OK && health.gate != SANDBOX__V1__GATE__GATE_NOT_OPENED)
        status = not_proven(revival, "its agent is not a fresh one", error);
    return status;
}

static sandbox_status note_next_run(struct sbx_record *record, void *user_data,
                                    sandbox_error *error)
{
    const struct sbx_record *ours = user_data;
    memcpy(record->next_run, ours->next_run, sizeof record->next_run);
    record->next_key_id = ours->next_key_id;
    return SANDBOX_OK;
}

static void fill_result(const struct revival *revival, const struct sbx_opened *opened)
{
    sandbox_resume_result *result = revival->result;
    const struct sbx_snapshot *snapshot = &revival->snapshot;
    int64_t asleep = sbx_clock_wall(revival->client->clock) - snapshot->created_ms;
    result->restored = !revival->cold;
    result->kept = revival->keep;
    if (revival->cold) /* of a platform that keeps no files there is nothing to be kept */
        result->kept = revival->client->driver->can(revival->client->state, SANDBOX_CAN_KEEP_FILES)
                           ? SANDBOX_KEEP_FILES
                           : SANDBOX_KEEP_BEST;
    result->clock_failed = opened->clock_failed;
    result->entropy_failed = !opened->entropy_added;
    result->continued = opened->continued;
    result->deadlines_kept = opened->deadlines_kept;
    result->connections_reset = opened->connections_reset;
    result->generation = opened->generation;
    result->hook_code = opened->hook_code;
    result->skew_ms = opened->clock_stepped_ms;
    result->asleep_ms = asleep > 0 ? (uint64_t)asleep : 0;
    if (!revival->cold)
        snprintf(result->snapshot, sizeof result->snapshot, "%s", snapshot->id);
}

/* The record says first that the instance may hold work, and with which token it will be open. */
static sandbox_status announce(struct revival *revival, uint8_t token[SBX_TOKEN_BYTES],
                               sandbox_error *error)
{
    struct sbx_record *record = revival->record;
    struct sbx_record next = {0};
    if (!sbx_id_fresh(next.next_run))
        return sbx_fail(error, SANDBOX_FAILED, "the kernel gives no random bytes");
    sandbox_status status = sbx_gate_token(revival->client, record->id, next.next_run,
                                           &next.next_key_id, revival->wait, token, error);
    struct sbx_step step = {.step = revival->cold ? SBX_STEP_OPEN_COLD : SBX_STEP_OPEN,
                            .precious = true, .also = note_next_run, .user_data = &next};
    if (status == SANDBOX_OK)
        status = sbx_operation_step(revival->client, record, step, revival->wait, error);
    return status;
}

static sandbox_status open_agent(struct revival *revival, sandbox_error *error)
{
    sandbox_client *client = revival->client;
    struct sbx_record *record = revival->record;
    uint8_t token[SBX_TOKEN_BYTES] = {0};
    struct sbx_opened opened = {0};
    struct sbx_opening opening = {.token = token,
                                  .environment = revival->request->environment,
                                  .keep_environment = revival->request->keep_environment,
                                  .seal_hash = revival->cold ? "" : revival->snapshot.seal_hash,
                                  .restored = true};
    sbx_events_step(client, record, "open");
    sandbox_status status = announce(revival, token, error);
    if (status == SANDBOX_OK)
        status = sbx_gate_open(client, record, revival->session, &opening, revival->wait, &opened,
                               error);
    struct sbx_step step = {.state = SANDBOX_STATE_RUNNING, .precious = true,
                            .also = sbx_record_adopt_run};
    if (status == SANDBOX_OK)
        status = sbx_operation_step(client, record, step, revival->wait, error);
    if (status == SANDBOX_OK)
        sbx_session_identify(revival->session, token, record->epoch);
    sbx_wipe(token, sizeof token);
    if (status != SANDBOX_OK)
        return give_up(revival, status, error);
    sbx_janitor_notice(client);
    sbx_resume_settled(client, record, revival->wait);
    sbx_egress_come_back(client, record, revival->session, revival->request->egress,
                         revival->request->keep_egress, revival->wait);
    fill_result(revival, &opened);
    return SANDBOX_OK;
}

static sandbox_status block(struct revival *revival, bool discards, const struct sbx_wait *wait,
                            sandbox_error *error)
{
    struct sbx_step step = {.state = SANDBOX_STATE_BLOCKED};
    if (discards) {
        sandbox_status status = discard(revival, wait, error);
        if (status != SANDBOX_OK)
            return status;
        step.incarnation = "";
        /* No Open was sent; the word of it may stand there by a write whose answer was lost. */
        step.also = sbx_record_forget_precious;
    }
    return sbx_operation_step(revival->client, revival->record, step, wait, error);
}

/*
 * It did not come back. Once the record says `precious` the agent may be open: then only what it
 * says itself decides. Before that nothing is lost with the instance. The snapshot stays in any
 * case.
 */
static sandbox_status give_up(struct revival *revival, sandbox_status status,
                              sandbox_error *error)
{
    struct sbx_record *record = revival->record;
    struct sbx_wait alone = sbx_wait_alone(CLEAN_UP_MS);
    sandbox_error left = {0};
    bool taken = status == SANDBOX_CONFLICT && strcmp(error->reason, "operation-taken") == 0;
    bool kept = status == SANDBOX_NOT_RESTORED && strcmp(error->reason, "evidence-missing") == 0;
    bool over = status == SANDBOX_CANCELLED || status == SANDBOX_TIMED_OUT;
    sbx_session_drop(sbx_take(revival->session));
    if (taken)
        return status;
    sandbox_status settled;
    bool opening = strcmp(record->operation.step, SBX_STEP_OPEN) == 0 ||
                   strcmp(record->operation.step, SBX_STEP_OPEN_COLD) == 0;
    if (opening || over)
        settled = sbx_settle_resume(revival->client, record, &alone, &left);
    else
        settled = block(revival, !kept, &alone, &left);
    if (settled != SANDBOX_OK)
        sbx_log(SANDBOX_LOG_ERROR, "the resume of '%s' stands still, the next caller goes on: %s",
                record->name, left.message);
    if (settled == SANDBOX_OK && record->state == SANDBOX_STATE_RUNNING) {
        /* It was opened after all; only what the agent said of it is lost. */
        struct sbx_opened unknown = {.entropy_added = true};
        fill_result(revival, &unknown);
        return SANDBOX_OK;
    }
    return status;
}
