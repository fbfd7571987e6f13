/* Deleting: instance, files, record, in the order that leaks nothing. */

#include "core/delete.h"
#include "core/egress.h"
#include "core/janitor.h"
#include "core/lifecycle.h"
#include "core/operation.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"

#define SWEEP_MAX 100000

static sandbox_status claim_and_delete(sandbox_client *client, const char *name,
                                       struct sbx_claim *claim, const struct sbx_wait *wait,
                                       sandbox_error *error);
static void let_go(sandbox_client *client, const struct sbx_record *record);

sandbox_status sbx_life_delete(sandbox_client *client, const char *name, const char *id,
                               const struct sbx_wait *wait, sandbox_error *error)
{
    for (;;) {
        SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
        sandbox_status status = sbx_store_load(client, name, wait, &record, error);
        if (status == SANDBOX_NOT_FOUND || (status == SANDBOX_OK && strcmp(record.id, id) != 0))
            return SANDBOX_OK;
        if (status == SANDBOX_OK && record.operation.kind[0] != '\0') {
            status = sbx_operation_wait(client, &record, wait, error);
            if (status == SANDBOX_OK)
                continue; /* it is over: look again */
        }
        if (status != SANDBOX_OK && status != SANDBOX_CONFLICT)
            return status;
        status = sbx_delete_over(client, name, id, record.operation.id, wait, error);
        if (status != SANDBOX_CONFLICT)
            return status;
        status = sbx_wait_check(wait, error);
        if (status != SANDBOX_OK)
            return status;
    }
}

sandbox_status sbx_delete_over(sandbox_client *client, const char *name, const char *id,
                               const char *operation_id, const struct sbx_wait *wait,
                               sandbox_error *error)
{
    char over[SBX_ID_TEXT];
    memcpy(over, operation_id, strlen(operation_id) + 1);
    struct sbx_claim claim = {client, id, "delete", SANDBOX_STATE_DELETING, over, NULL};
    return claim_and_delete(client, name, &claim, wait, error);
}

sandbox_status sbx_delete_leftover(sandbox_client *client, const struct sbx_record *seen,
                                   const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_claim claim = {client, seen->id, "delete", SANDBOX_STATE_DELETING,
                              seen->operation.id, seen};
    return claim_and_delete(client, seen->name, &claim, wait, error);
}

static sandbox_status claim_and_delete(sandbox_client *client, const char *name,
                                       struct sbx_claim *claim, const struct sbx_wait *wait,
                                       sandbox_error *error)
{
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
    sandbox_status status =
        sbx_store_change(client, name, wait, sbx_change_claim, claim, &record, error);
    if (status == SANDBOX_NOT_FOUND)
        return SANDBOX_OK;
    if (status != SANDBOX_OK)
        return status;

    struct sbx_lease lease;
    sbx_lease_begin(client, &lease, name, record.operation.id);
    sbx_egress_forget(client, &record);
    status = client->driver->destroy(client->state, &record, wait, error);
    sbx_lease_end(client, &lease);
    if (status == SANDBOX_OK)
        status = sbx_store_remove(client, name, record.operation.id, wait, error);
    if (status != SANDBOX_OK)
        let_go(client, &record);
    return status;
}

/* It stays `deleting`, with nobody at it, so that the next caller goes on at once. */
static void let_go(sandbox_client *client, const struct sbx_record *record)
{
    struct sbx_wait wait = sbx_wait_alone(5000);
    struct sbx_step step = {.operation_id = record->operation.id};
    sandbox_error error = {0};
    if (sbx_store_change(client, record->name, &wait, sbx_change_step, &step, NULL, &error) !=
        SANDBOX_OK)
        sbx_log(SANDBOX_LOG_WARNING, "the deletion of '%s' stands still: %s", record->name,
                error.message);
}

/* Names and ids that were found: deleting while listing would hold the driver's list open. */
struct leftovers {
    sandbox_client *client;
    struct leftover {
        char name[SBX_NAME_MAX + 1];
        char id[SBX_ID_TEXT];
        char operation_id[SBX_ID_TEXT];
        uint32_t epoch;
        int64_t expires_ms;
    } *found;
    size_t count;
    bool out_of_memory;
};

static bool note_leftover(void *user_data, const char *name, const char *text, size_t size,
                          const char *version)
{
    struct leftovers *leftovers = user_data;
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
    if (sbx_record_decode(text, size, &record, NULL) != SANDBOX_OK)
        return true;
    bool under_way = record.operation.kind[0] != '\0';
    /* A half made one and a half deleted one are leftovers; all else holds somebody's work. */
    bool leftover_kind = strcmp(record.operation.kind, "create") == 0 ||
                         strcmp(record.operation.kind, "delete") == 0;
    bool abandoned = under_way && leftover_kind &&
                     sbx_operation_is_abandoned(leftovers->client, &record);
    bool stands_still = !under_way && record.state == SANDBOX_STATE_DELETING;
    bool expired = !under_way && sbx_life_is_expired(leftovers->client, &record);
    if (!abandoned && !stands_still && !expired)
        return true;

    struct leftover *larger =
        realloc(leftovers->found, (leftovers->count + 1) * sizeof *leftovers->found);
    leftovers->out_of_memory = larger == NULL;
    if (larger == NULL)
        return false;
    leftovers->found = larger;
    struct leftover *leftover = &larger[leftovers->count];
    memcpy(leftover->name, record.name, sizeof record.name);
    memcpy(leftover->id, record.id, sizeof record.id);
    memcpy(leftover->operation_id, record.operation.id, sizeof record.operation.id);
    leftover->epoch = record.epoch;
    leftover->expires_ms = record.expires_ms;
    return ++leftovers->count < SWEEP_MAX;
}

sandbox_status sbx_life_sweep(sandbox_client *client, const struct sbx_wait *wait, size_t *count,
                              sandbox_error *error)
{
    struct leftovers leftovers = {.client = client};
    sandbox_status status =
        client->driver->record_list(client->state, wait, note_leftover, &leftovers, error);
    if (status == SANDBOX_OK && leftovers.out_of_memory)
        status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for what is to be deleted");
    size_t deleted = 0;
    for (size_t n = 0; n < leftovers.count && status == SANDBOX_OK; n++) {
        struct sbx_record seen = {.epoch = leftovers.found[n].epoch,
                                  .expires_ms = leftovers.found[n].expires_ms};
        memcpy(seen.name, leftovers.found[n].name, sizeof seen.name);
        memcpy(seen.id, leftovers.found[n].id, sizeof seen.id);
        memcpy(seen.operation.id, leftovers.found[n].operation_id, sizeof seen.operation.id);
        status = sbx_delete_leftover(client, &seen, wait, error);
        deleted += status == SANDBOX_OK;
        if (status == SANDBOX_CONFLICT)
            status = SANDBOX_OK; /* no leftover any more, or somebody else is at it */
    }
    free(leftovers.found);
    if (count != NULL)
        *count = deleted;
    return status;
}
