/* What is known of workspaces: one, or all of them. */

#include "core/client.h"
#include "core/lifecycle.h"
#include "core/session.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"
#include "util/options.h"

#define LIST_MS 30000u
#define LIST_MAX 1000000u

/* A record and what is shown of it; the one owns the strings of the other. */
struct entry {
    struct sbx_record record;
    sandbox_workspace_info info;
};

struct sandbox_workspace_list {
    struct entry **entries;
    size_t count, capacity;
};

struct listing {
    sandbox_client *client;
    const char *const *labels;
    sandbox_workspace_list *list;
    sandbox_status status;
    sandbox_error *error;
};

static const char *const no_labels[] = {NULL};

static bool take_record(void *user_data, const char *name, const char *text, size_t size,
                        const char *version);
static sandbox_status add_entry(sandbox_workspace_list *list, struct sbx_record *record,
                                sandbox_error *error);
static int compare_entries(const void *a, const void *b);

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
    if (listing.list->count > 1)
        qsort(listing.list->entries, listing.list->count, sizeof(struct entry *),
              compare_entries);
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
    status = add_entry(list, &record, error);
    if (status == SANDBOX_OK)
        *out = list;
    else
        sandbox_workspace_list_free(list);
    return status;
}

size_t sandbox_workspace_list_count(const sandbox_workspace_list *list)
{
    return list == NULL ? 0 : list->count;
}

const sandbox_workspace_info *sandbox_workspace_list_at(const sandbox_workspace_list *list,
                                                        size_t index)
{
    return index < sandbox_workspace_list_count(list) ? &list->entries[index]->info : NULL;
}

void sandbox_workspace_list_free(sandbox_workspace_list *list)
{
    for (size_t n = 0; list != NULL && n < list->count; n++) {
        sbx_record_clear(&list->entries[n]->record);
        free(list->entries[n]);
    }
    if (list != NULL)
        free(list->entries);
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
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
    sandbox_error problem = {0};
    if (sbx_record_decode(text, size, &record, &problem) != SANDBOX_OK) {
        /* One damaged record must not hide all the others. */
        sbx_log(SANDBOX_LOG_WARNING, "the record of '%s' is passed over: %s", name,
                problem.message);
        return true;
    }
    if (record.operation.kind[0] == '\0' && sbx_life_is_expired(listing->client, &record))
        return true;
    for (size_t n = 0; listing->labels != NULL && listing->labels[n] != NULL; n++) {
        if (!carries(&record, listing->labels[n]))
            return true;
    }
    listing->status = add_entry(listing->list, &record, listing->error);
    return listing->status == SANDBOX_OK;
}

/* Takes the record over. */
static sandbox_status add_entry(sandbox_workspace_list *list, struct sbx_record *record,
                                sandbox_error *error)
{
    if (list->count == LIST_MAX)
        return sbx_fail(error, SANDBOX_LIMIT, "more than %u workspaces", LIST_MAX);
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 1 : list->capacity * 2;
        struct entry **larger = realloc(list->entries, capacity * sizeof(struct entry *));
        if (larger == NULL)
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a list");
        list->entries = larger;
        list->capacity = capacity;
    }
    struct entry *entry = calloc(1, sizeof *entry);
    if (entry == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a list");
    entry->record = *record;
    *record = (struct sbx_record){0};
    struct sbx_record *own = &entry->record;
    cJSON_Delete(sbx_take(own->json));
    entry->info = (sandbox_workspace_info){
        .size = sizeof entry->info,
        .id = own->id,
        .name = own->name,
        .driver = own->driver,
        .state = own->state,
        .epoch = own->epoch,
        .user = own->user,
        .image = own->image == NULL ? "" : own->image,
        .incarnation = own->incarnation,
        .operation = own->operation.kind,
        .labels = own->labels == NULL ? no_labels : (const char *const *)own->labels,
        .memory_mib = own->memory_mib,
        .cpu_millis = own->cpu_millis,
        .process_limit = own->process_limit,
        .disk_mib = own->disk_mib,
        .created_ms = own->created_ms,
        .expires_ms = own->expires_ms,
    };
    list->entries[list->count++] = entry;
    return SANDBOX_OK;
}

static int compare_entries(const void *a, const void *b)
{
    const struct entry *const *left = a, *const *right = b;
    return strcmp((*left)->record.name, (*right)->record.name);
}
