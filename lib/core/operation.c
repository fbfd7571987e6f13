/* Operations: claims, steps, leases, and take-over. */

#include "core/operation.h"
#include "core/delete.h"
#include "core/events.h"
#include "core/janitor.h"
#include "core/lifecycle.h"
#include "core/recover.h"
#include "core/store.h"
#include "util/fail.h"
#include "util/memory.h"
#include <stdio.h>

/* The platform has no way to wake us for a record: looking costs one small read. */
#define LOOK_MS 20u
#define EXPIRY_MAX_MS ((uint64_t)1 << 50) /* some 35,000 years */

static sandbox_status undo_restart(sandbox_client *client, const struct sbx_record *record,
                                   const struct sbx_wait *wait, sandbox_error *error);

sandbox_status sbx_operation_begin(sandbox_client *client, struct sbx_record *record,
                                   const char *kind, sandbox_error *error)
{
    struct sbx_operation operation = {.lease_ms = SBX_LEASE_MS};
    snprintf(operation.kind, sizeof operation.kind, "%s", kind);
    snprintf(operation.step, sizeof operation.step, "begin");
    if (!sbx_id_fresh(operation.id))
        return sbx_fail(error, SANDBOX_FAILED, "the kernel gives no random bytes");
    if (client->driver->owner_name != NULL) {
        sandbox_status status =
            client->driver->owner_name(client->state, operation.owner, error);
        if (status != SANDBOX_OK)
            return status;
    }
    record->operation = operation;
    return SANDBOX_OK;
}

bool sbx_operation_is_abandoned(const sandbox_client *client, const struct sbx_record *record)
{
    return client->driver->owner_is_gone != NULL && record->operation.owner[0] != '\0' &&
           client->driver->owner_is_gone(client->state, record->operation.owner);
}

sandbox_status sbx_operation_wait(sandbox_client *client, const struct sbx_record *record,
                                  const struct sbx_wait *wait, sandbox_error *error)
{
    uint32_t renewals = record->operation.renewals;
    int64_t seen_ms = sbx_clock_monotonic(client->clock);
    for (;;) {
        SBX_ON_EXIT(sbx_record_clear) struct sbx_record now = {0};
        sandbox_status status = sbx_store_load(client, record->name, wait, &now, error);
        if (status == SANDBOX_NOT_FOUND)
            return SANDBOX_OK;
        if (status != SANDBOX_OK)
            return status;
        if (strcmp(now.operation.id, record->operation.id) != 0)
            return SANDBOX_OK;
        int64_t time_ms = sbx_clock_monotonic(client->clock);
        if (now.operation.renewals != renewals) {
            renewals = now.operation.renewals;
            seen_ms = time_ms;
        }
        if (sbx_operation_is_abandoned(client, &now) ||
            time_ms - seen_ms > (int64_t)now.operation.lease_ms)
            return sbx_fail_for(error, SANDBOX_CONFLICT, "abandoned",
                                "the %s of '%s' was abandoned", now.operation.kind, now.name);
        status = sbx_wait_pause(wait, LOOK_MS, error);
        if (status == SANDBOX_TIMED_OUT)
            return sbx_fail_for(error, SANDBOX_BUSY, "operation-under-way",
                                "another %s of '%s' is under way", now.operation.kind, now.name);
        if (status != SANDBOX_OK)
            return status;
    }
}

sandbox_status sbx_operation_settle(sandbox_client *client, const struct sbx_record *record,
                                    const struct sbx_wait *wait, sandbox_error *error)
{
    sandbox_status status = sbx_operation_wait(client, record, wait, error);
    if (status == SANDBOX_BUSY)
        return sbx_fail_for(error, SANDBOX_TIMED_OUT, "operation-under-way",
                            "another %s of '%s' is still under way", record->operation.kind,
                            record->name);
    if (status != SANDBOX_CONFLICT)
        return status;
    if (strcmp(record->operation.kind, "restart") == 0)
        return undo_restart(client, record, wait, error);
    if (sbx_recover_is_for(record))
        return sbx_recover(client, record, wait, error);
    /* It may have ended well after all, just before its owner did: then it is not a leftover. */
    status = sbx_delete_leftover(client, record, wait, error);
    return status == SANDBOX_CONFLICT ? SANDBOX_OK : status;
}

/* The files are older than the operation that died: they stay. */
static sandbox_status undo_restart(sandbox_client *client, const struct sbx_record *record,
                                   const struct sbx_wait *wait, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record claimed = {0};
    struct sbx_claim claim = {client, record->id, "restart", SANDBOX_STATE_CREATING,
                              record->operation.id, NULL};
    sandbox_status status = sbx_store_change(client, record->name, wait, sbx_change_claim,
                                             &claim, &claimed, error);
    if (status == SANDBOX_CONFLICT || status == SANDBOX_NOT_FOUND)
        return SANDBOX_OK; /* somebody else is at it */
    if (status != SANDBOX_OK)
        return status;

    struct sbx_lease lease;
    sbx_lease_begin(client, &lease, claimed.name, claimed.operation.id);
    status = client->driver->discard(client->state, &claimed, wait, error);
    sbx_lease_end(client, &lease);
    if (status != SANDBOX_OK)
        return status;
    struct sbx_step step = {.operation_id = claimed.operation.id,
                            .state = SANDBOX_STATE_INTERRUPTED,
                            .incarnation = ""};
    return sbx_store_change(client, record->name, wait, sbx_change_step, &step, NULL, error);
}

sandbox_status sbx_operation_step(sandbox_client *client, struct sbx_record *record,
                                  struct sbx_step step, const struct sbx_wait *wait,
                                  sandbox_error *error)
{
    char operation_id[SBX_ID_TEXT], kind[sizeof record->operation.kind];
    memcpy(operation_id, record->operation.id, sizeof operation_id);
    memcpy(kind, record->operation.kind, sizeof kind);
    step.operation_id = operation_id;
    sandbox_state before = record->state;
    sandbox_status status =
        sbx_store_change(client, record->name, wait, sbx_change_step, &step, record, error);
    if (status == SANDBOX_OK && record->state != before)
        sbx_events_state(client, record, kind);
    return status;
}

static sandbox_status count_wish(struct sbx_record *record, void *user_data, sandbox_error *error)
{
    const struct sbx_record *seen = user_data;
    if (strcmp(record->operation.id, seen->operation.id) != 0 || record->operation.wanted)
        return sbx_fail(error, SANDBOX_CONFLICT, "there is nothing to ask for");
    record->operation.wanted = true;
    return SANDBOX_OK;
}

void sbx_operation_want(sandbox_client *client, const struct sbx_record *record,
                        const struct sbx_wait *wait)
{
    (void)sbx_store_change(client, record->name, wait, count_wish, (void *)(uintptr_t)record, NULL,
                           NULL);
}

sandbox_status sbx_change_step(struct sbx_record *record, void *user_data, sandbox_error *error)
{
    const struct sbx_step *step = user_data;
    if (strcmp(record->operation.id, step->operation_id) != 0)
        return sbx_fail_for(error, SANDBOX_CONFLICT, "operation-taken",
                            "another caller took over the operation on '%s'", record->name);
    if (step->state != 0) {
        if (!sbx_transition_allowed(record->state, step->state, record->operation.kind))
            return sbx_fail(error, SANDBOX_FAILED, "no way from '%s' to '%s' by %s",
                            sandbox_state_name(record->state), sandbox_state_name(step->state),
                            record->operation.kind);
        record->state = step->state;
    }
    if (step->incarnation != NULL)
        snprintf(record->incarnation, sizeof record->incarnation, "%s", step->incarnation);
    if (step->key_id != 0)
        record->key_id = step->key_id;
    record->precious = record->precious || step->precious;
    if (step->also != NULL) {
        sandbox_status status = step->also(record, step->user_data, error);
        if (status != SANDBOX_OK)
            return status;
    }
    if (step->step != NULL)
        snprintf(record->operation.step, sizeof record->operation.step, "%s", step->step);
    else
        record->operation = (struct sbx_operation){0};
    return SANDBOX_OK;
}

sandbox_status sbx_change_claim(struct sbx_record *record, void *user_data,
                                sandbox_error *error)
{
    const struct sbx_claim *claim = user_data;
    if (strcmp(record->id, claim->id) != 0)
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-such-workspace",
                            "there is no such workspace '%s' any more", record->name);
    if (claim->seen != NULL && (record->epoch != claim->seen->epoch ||
                                record->expires_ms != claim->seen->expires_ms))
        return sbx_fail_for(error, SANDBOX_CONFLICT, "changed-meanwhile",
                            "'%s' has changed meanwhile", record->name);
    if (strcmp(record->operation.id, claim->over) != 0)
        return sbx_fail_for(error, SANDBOX_CONFLICT, "operation-under-way",
                            "another %s of '%s' is under way", record->operation.kind,
                            record->name);
    /* Taking over one's own kind of operation is no step of the table. */
    bool same = strcmp(record->operation.kind, claim->kind) == 0 && record->state == claim->state;
    if (!same && !sbx_transition_allowed(record->state, claim->state, claim->kind))
        return sbx_fail_for(error, SANDBOX_CONFLICT, "wrong-state", "'%s' is %s", record->name,
                            sandbox_state_name(record->state));
    char step[sizeof record->operation.step], spare[sizeof record->operation.spare];
    memcpy(step, record->operation.step, sizeof step);
    memcpy(spare, record->operation.spare, sizeof spare);
    record->state = claim->state;
    record->epoch++;
    /* A new instance must not be reachable with what the old one knew. */
    if (strcmp(claim->kind, "restart") == 0 && !sbx_id_fresh(record->run))
        return sbx_fail(error, SANDBOX_FAILED, "the kernel gives no random bytes");
    sandbox_status status = sbx_operation_begin(claim->client, record, claim->kind, error);
    /* Whoever goes on must know how far it had come. */
    if (same) {
        memcpy(record->operation.step, step, sizeof step);
        memcpy(record->operation.spare, spare, sizeof spare);
    }
    if (!same && claim->step != NULL)
        snprintf(record->operation.step, sizeof record->operation.step, "%s", claim->step);
    if (claim->spare != NULL)
        snprintf(record->operation.spare, sizeof record->operation.spare, "%s", claim->spare);
    return status;
}

sandbox_status sbx_change_interrupt(struct sbx_record *record, void *user_data,
                                    sandbox_error *error)
{
    const struct sbx_record *seen = user_data;
    if (strcmp(record->id, seen->id) != 0 || record->epoch != seen->epoch ||
        strcmp(record->incarnation, seen->incarnation) != 0 ||
        !sbx_transition_allowed(record->state, SANDBOX_STATE_INTERRUPTED, "-"))
        return sbx_fail(error, SANDBOX_CONFLICT, "'%s' has changed meanwhile", seen->name);
    record->state = SANDBOX_STATE_INTERRUPTED;
    return SANDBOX_OK;
}

sandbox_status sbx_change_renew(struct sbx_record *record, void *user_data,
                                sandbox_error *error)
{
    const struct sbx_renewal *renewal = user_data;
    if (strcmp(record->id, renewal->id) != 0 || record->state == SANDBOX_STATE_DELETING ||
        sbx_life_is_expired(renewal->client, record))
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-such-workspace",
                            "there is no such workspace '%s' any more", record->name);
    record->expires_ms = renewal->expires_ms;
    return SANDBOX_OK;
}

int64_t sbx_expiry_after(const sandbox_client *client, uint64_t ms)
{
    return sbx_clock_wall(client->clock) + (int64_t)(ms < EXPIRY_MAX_MS ? ms : EXPIRY_MAX_MS);
}
