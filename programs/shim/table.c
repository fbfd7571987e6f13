/* The table of what is in epoll sets: buckets by descriptor, entries by index. */

#include "table.h"

#define BUCKETS 4096u

/* None has the index 0. Pages of it that were never used cost nothing. */
static struct table_entry entries[TABLE_MAX + 1];
static uint16_t buckets[BUCKETS];
static uint16_t unused;  /* those that were used once */
static uint16_t highest; /* beyond it none was ever used */

static uint16_t *bucket_of(int fd)
{
    return &buckets[(unsigned)fd % BUCKETS];
}

bool table_may_know(int fd)
{
    return __atomic_load_n(bucket_of(fd), __ATOMIC_RELAXED) != 0;
}

struct table_entry *table_find(int set, int fd)
{
    for (uint16_t at = *bucket_of(fd); at != 0; at = entries[at].next) {
        if (entries[at].fd == fd && entries[at].set == set)
            return &entries[at];
    }
    return NULL;
}

struct table_entry *table_add(int set, int fd)
{
    struct table_entry *entry = table_find(set, fd);
    if (entry != NULL)
        return entry;
    uint16_t index = unused;
    if (index != 0)
        unused = entries[index].next;
    else if (highest < TABLE_MAX)
        index = ++highest;
    else
        return NULL;
    uint16_t *bucket = bucket_of(fd);
    entries[index] = (struct table_entry){.set = set, .fd = fd, .next = *bucket, .used = true};
    __atomic_store_n(bucket, index, __ATOMIC_RELAXED);
    return &entries[index];
}

void table_remove(struct table_entry *entry)
{
    uint16_t index = (uint16_t)(entry - entries);
    uint16_t *link = bucket_of(entry->fd);
    while (*link != index)
        link = &entries[*link].next;
    __atomic_store_n(link, entry->next, __ATOMIC_RELAXED);
    entry->used = false;
    entry->next = unused;
    unused = index;
}

void table_remove_stale(int fd, uint64_t inode)
{
    uint16_t next;
    for (uint16_t at = *bucket_of(fd); at != 0; at = next) {
        next = entries[at].next;
        if (entries[at].fd == fd && entries[at].inode != inode)
            table_remove(&entries[at]);
    }
}

void table_remove_set(int set)
{
    for (struct table_entry *entry = table_next(NULL); entry != NULL; entry = table_next(entry)) {
        if (entry->set == set)
            table_remove(entry);
    }
}

struct table_entry *table_next(struct table_entry *at)
{
    size_t index = at == NULL ? 1 : (size_t)(at - entries) + 1;
    while (index <= highest && !entries[index].used)
        index++;
    return index <= highest ? &entries[index] : NULL;
}
