/* Records through the driver: load, and change by compare-and-swap until it holds. */

#include "core/store.h"
#include "util/fail.h"
#include "util/memory.h"

static sandbox_status store(sandbox_client *client, struct sbx_record *record,
                            const struct sbx_wait *wait, sandbox_error *error);
static bool remember(const struct sbx_record *known, const char *name, struct sbx_record *out);

sandbox_status sbx_store_load(sandbox_client *client, const char *name, const struct sbx_wait *wait,
                              struct sbx_record *out, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *text = NULL;
    size_t size = 0;
    char version[SBX_VERSION_TEXT] = "";
    sandbox_status status =
        client->driver->record_load(client->state, name, wait, &text, &size, version, error);
    if (status == SANDBOX_OK)
        status = sbx_record_decode(text, size, out, error);
    if (status == SANDBOX_OK) {
        memcpy(out->version, version, sizeof out->version);
        out->stored = sbx_take(text);
    }
    return status;
}

sandbox_status sbx_store_add(sandbox_client *client, struct sbx_record *record,
                             const struct sbx_wait *wait, sandbox_error *error)
{
    record->version[0] = '\0';
    return store(client, record, wait, error);
}

sandbox_status sbx_store_change(sandbox_client *client, const char *name,
                                const struct sbx_wait *wait, sbx_change change, void *user_data,
                                struct sbx_record *out, sandbox_error *error)
{
    for (bool first = true;; first = false) {
        SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
        sandbox_status status = SANDBOX_OK;
        bool is_known = first && remember(out, name, &record);
        if (!is_known)
            status = sbx_store_load(client, name, wait, &record, error);
        if (status == SANDBOX_OK)
            status = change(&record, user_data, is_known ? NULL : error);
        if (status != SANDBOX_OK && is_known)
            continue; /* of the one that is stored now it may be true */
        if (status != SANDBOX_OK)
            return status;

        status = store(client, &record, wait, error);
        if (status == SANDBOX_OK && out != NULL) {
            sbx_record_clear(out);
            *out = record;
            record = (struct sbx_record){0};
        }
        if (status != SANDBOX_CONFLICT)
            return status;
        status = sbx_wait_check(wait, error);
        if (status != SANDBOX_OK)
            return status;
    }
}

sandbox_status sbx_store_remove(sandbox_client *client, const char *name, const char *operation_id,
                                const struct sbx_wait *wait, sandbox_error *error)
{
    for (;;) {
        SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
        sandbox_status status = sbx_store_load(client, name, wait, &record, error);
        if (status == SANDBOX_NOT_FOUND)
            return SANDBOX_OK;
        if (status != SANDBOX_OK)
            return status;
        if (strcmp(record.operation.id, operation_id) != 0)
            return sbx_fail_for(error, SANDBOX_CONFLICT, "operation-taken",
                                "another caller took the deletion over");
        status = client->driver->record_remove(client->state, name, record.version, wait, error);
        if (status != SANDBOX_CONFLICT)
            return status;
    }
}

/* As it was stored, whatever was done to it since. */
static bool remember(const struct sbx_record *known, const char *name, struct sbx_record *out)
{
    if (known == NULL || known->stored == NULL || strcmp(known->name, name) != 0 ||
        sbx_record_decode(known->stored, strlen(known->stored), out, NULL) != SANDBOX_OK)
        return false;
    memcpy(out->version, known->version, sizeof out->version);
    return true;
}

static sandbox_status store(sandbox_client *client, struct sbx_record *record,
                            const struct sbx_wait *wait, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *text = NULL;
    sandbox_status status = sbx_record_encode(record, &text, error);
    if (status != SANDBOX_OK)
        return status;
    char version[SBX_VERSION_TEXT] = "";
    status = client->driver->record_store(client->state, record->name, text, strlen(text),
                                          record->version, version, wait, error);
    if (status == SANDBOX_OK) {
        memcpy(record->version, version, sizeof record->version);
        free(record->stored);
        record->stored = sbx_take(text);
    }
    return status;
}
