/* Lists of workspaces, and what one listing leaves for the next. */

#include "core/listing.h"
#include "util/fail.h"
#include "util/memory.h"

#define LIST_MAX 1000000u
#define CACHE_MAX 20000u /* entries of about 1 KiB */

static const char *const nothing[] = {NULL};

static int compare_entries(const void *a, const void *b);

sandbox_status sbx_entry_new(struct sbx_record *record, struct sbx_entry **out,
                             sandbox_error *error)
{
    struct sbx_entry *entry = calloc(1, sizeof *entry);
    if (entry == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a list");
    atomic_init(&entry->references, 1);
    entry->record = *record;
    *record = (struct sbx_record){0};
    struct sbx_record *own = &entry->record;
    cJSON_Delete(sbx_take(own->json));
    const struct sbx_snapshot *point = sbx_record_snapshot(own, own->snapshot);
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
        .labels = own->labels == NULL ? nothing : (const char *const *)own->labels,
        .memory_mib = own->memory_mib,
        .cpu_millis = own->cpu_millis,
        .process_limit = own->process_limit,
        .disk_mib = own->disk_mib,
        .created_ms = own->created_ms,
        .expires_ms = own->expires_ms,
        .step = own->operation.step,
        .snapshot = own->snapshot,
        .snapshot_ms = point == NULL ? 0 : point->created_ms,
        .snapshot_count = (uint32_t)own->snapshot_count,
        .retain = own->retain,
        .suspend_after_idle_ms = own->suspend_after_idle_ms,
        .checks = own->checks == NULL ? nothing : (const char *const *)own->checks,
    };
    *out = entry;
    return SANDBOX_OK;
}

void sbx_entry_drop(struct sbx_entry *entry)
{
    if (entry == NULL || atomic_fetch_sub(&entry->references, 1) != 1)
        return;
    sbx_record_clear(&entry->record);
    free(entry);
}

sandbox_status sbx_listing_add(struct sbx_listing *listing, struct sbx_entry *entry,
                               sandbox_error *error)
{
    if (listing->count == LIST_MAX) {
        sbx_entry_drop(entry);
        return sbx_fail(error, SANDBOX_LIMIT, "more than %u workspaces", LIST_MAX);
    }
    if (listing->count == listing->capacity) {
        size_t capacity = listing->capacity == 0 ? 1 : listing->capacity * 2;
        struct sbx_entry **larger =
            realloc(listing->entries, capacity * sizeof(struct sbx_entry *));
        if (larger == NULL) {
            sbx_entry_drop(entry);
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a list");
        }
        listing->entries = larger;
        listing->capacity = capacity;
    }
    listing->entries[listing->count++] = entry;
    return SANDBOX_OK;
}

void sbx_listing_sort(struct sbx_listing *listing)
{
    if (listing->count > 1)
        qsort(listing->entries, listing->count, sizeof(struct sbx_entry *), compare_entries);
}

void sbx_listing_clear(struct sbx_listing *listing)
{
    for (size_t n = 0; n < listing->count; n++)
        sbx_entry_drop(listing->entries[n]);
    free(listing->entries);
    *listing = (struct sbx_listing){0};
}

void sbx_list_cache_init(struct sbx_list_cache *cache)
{
    pthread_mutex_init(&cache->lock, NULL);
}

void sbx_list_cache_free(struct sbx_list_cache *cache)
{
    sbx_listing_clear(&cache->last);
    pthread_mutex_destroy(&cache->lock);
}

struct sbx_entry *sbx_list_cache_find(struct sbx_list_cache *cache, const char *name,
                                      const char *version)
{
    struct sbx_entry *found = NULL;
    pthread_mutex_lock(&cache->lock);
    size_t low = 0, high = cache->last.count;
    while (low < high && found == NULL) {
        size_t middle = low + (high - low) / 2;
        struct sbx_entry *entry = cache->last.entries[middle];
        int order = strcmp(name, entry->record.name);
        if (order == 0)
            found = entry;
        else if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    if (found != NULL && strcmp(found->record.version, version) == 0)
        atomic_fetch_add(&found->references, 1);
    else
        found = NULL;
    pthread_mutex_unlock(&cache->lock);
    return found;
}

void sbx_list_cache_store(struct sbx_list_cache *cache, const struct sbx_listing *listing)
{
    struct sbx_listing next = {0};
    if (listing->count <= CACHE_MAX)
        next.entries = calloc(listing->count + 1, sizeof(struct sbx_entry *));
    if (next.entries != NULL) {
        next.count = next.capacity = listing->count;
        for (size_t n = 0; n < listing->count; n++) {
            next.entries[n] = listing->entries[n];
            atomic_fetch_add(&next.entries[n]->references, 1);
        }
    }
    pthread_mutex_lock(&cache->lock);
    struct sbx_listing last = cache->last;
    cache->last = next;
    pthread_mutex_unlock(&cache->lock);
    sbx_listing_clear(&last);
}

static int compare_entries(const void *a, const void *b)
{
    const struct sbx_entry *const *left = a, *const *right = b;
    return strcmp((*left)->record.name, (*right)->record.name);
}
