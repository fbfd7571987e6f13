/* What is known of workspaces: one, or all of them. */

#include "core/client.h"
#include "core/lifecycle.h"
#include "core/listing.h"
#include "core/session.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"
#include "util/options.h"

#define LIST_MS 30000u

struct sandbox_workspace_list {
    struct sbx_listing listing;
};

struct listing {
    sandbox_client *client;
    const char *const *labels;
    sandbox_workspace_list *list;
    sandbox_status status;
    sandbox_error *error;
};

static bool take_record(void *user_data, const char *name, const char *text, size_t size,
                        const char *version);
static sandbox_status decode_entry(const char *name, const char *text, size_t size,
                                   const char *version, struct sbx_entry **out,
                                   sandbox_error *error);

sandbox_status sandbox_workspace_list_all(sandbox_client *client,
                                          const sandbox_list_options *given,
                                          const sandbox_call *call, sandbox_workspace_list **out,
                                          sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_list_options options;
    sandbox_status status = sbx_client_check(client, error);
    if (status == SANDBOX_OK && out == NULL)
        status = sbx_fail(error, SANDBOX_INVALID, "no place to put the list");
    if (status == SANDBOX_OK)
        status = sbx_options_adopt(&options, sizeof options, given, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, LIST_MS, error);
    if (status != SANDBOX_OK)
        return status;

    struct listing listing = {.client = client, .labels = options.labels, .error = error};
    listing.list = calloc(1, sizeof *listing.list);
    if (listing.list == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a list");
    status = client->driver->record_list(client->state, &wait, take_record, &listing, error);
    if (status == SANDBOX_OK)
        status = listing.status;
    if (status != SANDBOX_OK) {
        sandbox_workspace_list_free(listing.list);
        return status;
    }
    sbx_listing_sort(&listing.list->listing);
    if (options.labels == NULL)
        sbx_list_cache_store(&client->listed, &listing.list->listing);
    *out = listing.list;
    return SANDBOX_OK;
}

sandbox_status sandbox_workspace_inspect(sandbox_workspace *workspace, const sandbox_call *call,
                                         sandbox_workspace_list **out, sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK && out == NULL)
        status = sbx_fail(error, SANDBOX_INVALID, "no place to put the answer");
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, LIST_MS, error);
    if (status != SANDBOX_OK)
        return status;

    sandbox_client *client = workspace->client;
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
    status = sbx_store_load(client, workspace->name, &wait, &record, error);
    if (status == SANDBOX_NOT_FOUND ||
        (status == SANDBOX_OK && strcmp(record.id, workspace->id) != 0)) {
        atomic_store(&workspace->gone, true);
        return sbx_workspace_check(workspace, error);
    }
    struct sbx_instance instance = {.presence = SBX_PRESENCE_RUNNING};
    if (status == SANDBOX_OK && record.state == SANDBOX_STATE_RUNNING)
        status = client->driver->inspect(client->state, &record, &wait, &instance, error);
    if (status == SANDBOX_OK && instance.presence != SBX_PRESENCE_RUNNING) {
        status = sbx_life_interrupt(client, &record, &wait, error);
        if (status == SANDBOX_OK)
            record.state = SANDBOX_STATE_INTERRUPTED;
    }
    if (status != SANDBOX_OK)
        return status;

    sandbox_workspace_list *list = calloc(1, sizeof *list);
    if (list == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a workspace's facts");
    struct sbx_entry *entry = NULL;
    status = sbx_entry_new(&record, &entry, error);
    if (status == SANDBOX_OK)
        status = sbx_listing_add(&list->listing, entry, error);
    if (status == SANDBOX_OK)
        *out = list;
    else
        sandbox_workspace_list_free(list);
    return status;
}

size_t sandbox_workspace_list_count(const sandbox_workspace_list *list)
{
    return list == NULL ? 0 : list->listing.count;
}

const sandbox_workspace_info *sandbox_workspace_list_at(const sandbox_workspace_list *list,
                                                        size_t index)
{
    return index < sandbox_workspace_list_count(list) ? &list->listing.entries[index]->info : NULL;
}

void sandbox_workspace_list_free(sandbox_workspace_list *list)
{
    if (list != NULL)
        sbx_listing_clear(&list->listing);
    free(list);
}

static bool carries(const struct sbx_record *record, const char *wanted)
{
    for (size_t n = 0; record->labels != NULL && record->labels[n] != NULL; n++) {
        if (strcmp(record->labels[n], wanted) == 0)
            return true;
    }
    return false;
}

static bool take_record(void *user_data, const char *name, const char *text, size_t size,
                        const char *version)
{
    struct listing *listing = user_data;
    sandbox_client *client = listing->client;
    struct sbx_entry *entry = sbx_list_cache_find(&client->listed, name, version);
    if (entry == NULL)
        listing->status = decode_entry(name, text, size, version, &entry, listing->error);
    if (entry == NULL)
        return listing->status == SANDBOX_OK;

    const struct sbx_record *record = &entry->record;
    bool wanted = record->operation.kind[0] != '\0' || !sbx_life_is_expired(client, record);
    for (size_t n = 0; wanted && listing->labels != NULL && listing->labels[n] != NULL; n++)
        wanted = carries(record, listing->labels[n]);
    if (wanted)
        listing->status = sbx_listing_add(&listing->list->listing, entry, listing->error);
    else
        sbx_entry_drop(entry);
    return listing->status == SANDBOX_OK;
}

/* One damaged record must not hide all the others: SANDBOX_OK and no entry. */
static sandbox_status decode_entry(const char *name, const char *text, size_t size,
                                   const char *version, struct sbx_entry **out,
                                   sandbox_error *error)
{
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
    sandbox_error problem = {0};
    sandbox_status status = sbx_record_decode(text, size, &record, &problem);
    if (status == SANDBOX_NO_MEMORY)
        return sbx_fail(error, status, "%s", problem.message);
    if (status != SANDBOX_OK) {
        sbx_log(SANDBOX_LOG_WARNING, "the record of '%s' is passed over: %s", name,
                problem.message);
        return SANDBOX_OK;
    }
    size_t length = strlen(version);
    if (length < sizeof record.version)
        memcpy(record.version, version, length + 1);
    return sbx_entry_new(&record, out, error);
}
