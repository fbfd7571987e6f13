/* Every operation whose owner has died, one after another. */

#include "core/lifecycle.h"
#include "core/operation.h"
#include "core/store.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"

#define RECOVER_MAX 100000u

/* Names that were found: working while listing would hold the driver's list open. */
struct abandoned {
    sandbox_client *client;
    char (*names)[SBX_NAME_MAX + 1];
    size_t count;
    bool out_of_memory;
};

static bool note(void *user_data, const char *name, const char *text, size_t size,
                 const char *version)
{
    struct abandoned *found = user_data;
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
    if (sbx_record_decode(text, size, &record, NULL) != SANDBOX_OK ||
        record.operation.kind[0] == '\0')
        return true;
    /* Where only leases tell, settling waits for the lease; a living owner is left alone. */
    if (found->client->driver->owner_is_gone != NULL &&
        !sbx_operation_is_abandoned(found->client, &record))
        return true;
    char(*larger)[SBX_NAME_MAX + 1] = realloc(found->names, (found->count + 1) * sizeof *larger);
    found->out_of_memory = larger == NULL;
    if (larger == NULL)
        return false;
    found->names = larger;
    memcpy(larger[found->count], record.name, sizeof *larger);
    return ++found->count < RECOVER_MAX;
}

sandbox_status sbx_life_recover(sandbox_client *client, const struct sbx_wait *wait,
                                size_t *count, sandbox_error *error)
{
    struct abandoned found = {.client = client};
    sandbox_status first = client->driver->record_list(client->state, wait, note, &found, error);
    if (first == SANDBOX_OK && found.out_of_memory)
        first = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for what is to be recovered");
    size_t settled = 0;
    for (size_t n = 0; n < found.count; n++) {
        SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
        sandbox_error own = {0};
        sandbox_status status = sbx_store_load(client, found.names[n], wait, &record, &own);
        if (status == SANDBOX_OK && record.operation.kind[0] != '\0')
            status = sbx_operation_settle(client, &record, wait, &own);
        settled += status == SANDBOX_OK;
        if (status == SANDBOX_OK || status == SANDBOX_NOT_FOUND)
            continue;
        /* One that stands still must not keep the others from being ended. */
        sbx_log(SANDBOX_LOG_WARNING, "'%s' could not be recovered: %s", found.names[n],
                own.message);
        if (first == SANDBOX_OK)
            first = sbx_fail_for(error, status, own.reason, "%s", own.message);
    }
    free(found.names);
    if (count != NULL)
        *count = settled;
    return first;
}
