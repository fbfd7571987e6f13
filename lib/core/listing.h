/*
 * Lists of workspaces: entries that several lists share, since most records have not changed
 * between one listing and the next. A client keeps its last whole list for that.
 */
#ifndef SBX_CORE_LISTING_H
#define SBX_CORE_LISTING_H

#include "core/record.h"
#include "util/wait.h"
#include <pthread.h>
#include <stdatomic.h>

/* A record and what is shown of it; the one owns the strings of the other. Never altered. */
struct sbx_entry {
    atomic_uint references;
    struct sbx_record record;
    sandbox_workspace_info info;
};

struct sbx_listing {
    struct sbx_entry **entries; /* by name once sorted */
    size_t count, capacity;
};

/* The last whole list, for its entries. */
struct sbx_list_cache {
    pthread_mutex_t lock;
    struct sbx_listing last;
};

/* Takes the record over, on success. */
sandbox_status sbx_entry_new(struct sbx_record *record, struct sbx_entry **out,
                             sandbox_error *error);
void sbx_entry_drop(struct sbx_entry *entry);

/* Takes the entry over, also on failure. */
sandbox_status sbx_listing_add(struct sbx_listing *listing, struct sbx_entry *entry,
                               sandbox_error *error);
void sbx_listing_sort(struct sbx_listing *listing);
void sbx_listing_clear(struct sbx_listing *listing);

void sbx_list_cache_init(struct sbx_list_cache *cache);
void sbx_list_cache_free(struct sbx_list_cache *cache);
/* The entry of that very version, kept for the caller; NULL: not known. */
struct sbx_entry *sbx_list_cache_find(struct sbx_list_cache *cache, const char *name,
                                      const char *version);
/* A sorted whole list takes the last one's place. Without memory nothing is cached. */
void sbx_list_cache_store(struct sbx_list_cache *cache, const struct sbx_listing *listing);

#endif
