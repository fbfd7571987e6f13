/* Memory for secrets: never swapped out, in no core dump, wiped when it is given back. */

#include "util/locked.h"
#include "util/memory.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define SPARE_MAX 32

/* In front of what the caller gets, which stays aligned for anything. */
union start {
    size_t mapped;
    max_align_t aligned;
};

/* Single pages that are wiped and wait, locked, for the next secret: each costs four calls. */
static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static union start *spare[SPARE_MAX];
static unsigned spare_count;

static union start *take_spare(void);
static bool keep_spare(union start *start);
static bool drop_spare(void);

void *sbx_locked_new(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (size > SIZE_MAX / 2)
        return NULL;
    size_t mapped = (size + sizeof(union start) + page - 1) / page * page;
    union start *start = mapped == page ? take_spare() : NULL;
    if (start != NULL) {
        start->mapped = mapped;
        return start + 1;
    }
    start = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    /* Where little may be locked, the spare pages may be what is missing. */
    if (mlock(start, mapped) != 0 && (!drop_spare() || mlock(start, mapped) != 0)) {
        munmap(start, mapped);
        return NULL;
    }
    /* A kernel without it dumps the pages only where the program may be dumped at all. */
    (void)madvise(start, mapped, MADV_DONTDUMP);
    start->mapped = mapped;
    return start + 1;
}

void sbx_locked_free(void *memory)
{
    if (memory == NULL)
        return;
    union start *start = (union start *)memory - 1;
    size_t mapped = start->mapped;
    sbx_wipe(start, mapped);
    if (mapped > (size_t)sysconf(_SC_PAGESIZE) || !keep_spare(start))
        munmap(start, mapped);
}

static union start *take_spare(void)
{
    pthread_mutex_lock(&spare_lock);
    union start *start = spare_count == 0 ? NULL : spare[--spare_count];
    pthread_mutex_unlock(&spare_lock);
    return start;
}

static bool keep_spare(union start *start)
{
    pthread_mutex_lock(&spare_lock);
    bool kept = spare_count < SPARE_MAX;
    if (kept)
        spare[spare_count++] = start;
    pthread_mutex_unlock(&spare_lock);
    return kept;
}

/* All of them. False: there were none. */
static bool drop_spare(void)
{
    bool dropped = false;
    union start *start;
    for (; (start = take_spare()) != NULL; dropped = true)
        munmap(start, (size_t)sysconf(_SC_PAGESIZE));
    return dropped;
}
