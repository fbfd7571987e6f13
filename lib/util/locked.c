/* Memory for secrets: never swapped out, in no core dump, wiped when it is given back. */

#include "util/locked.h"
#include "util/memory.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* In front of what the caller gets, which stays aligned for anything. */
union start {
    size_t mapped;
    max_align_t aligned;
};

void *sbx_locked_new(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (size > SIZE_MAX / 2)
        return NULL;
    size_t mapped = (size + sizeof(union start) + page - 1) / page * page;
    union start *start =
        mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    if (mlock(start, mapped) != 0) {
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
    munmap(start, mapped);
}
