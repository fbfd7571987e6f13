/* The wrapped allocation functions, on whichever thread the library calls them. */

#include "allocations.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t limit);

static atomic_ulong reached, wanted;
static atomic_bool armed, failed;

void allocations_arm(unsigned long failing)
{
    atomic_store(&reached, 0);
    atomic_store(&wanted, failing);
    atomic_store(&failed, false);
    atomic_store(&armed, true);
}

unsigned long allocations_disarm(void)
{
    atomic_store(&armed, false);
    return atomic_load(&reached);
}

bool allocations_failed(void)
{
    return atomic_load(&failed);
}

static bool fails_now(void)
{
    if (!atomic_load(&armed) || atomic_fetch_add(&reached, 1) + 1 != atomic_load(&wanted))
        return false;
    atomic_store(&failed, true);
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails_now() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    return fails_now() ? NULL : __real_realloc(memory, size);
}

char *__wrap_strdup(const char *text)
{
    return __wrap_strndup(text, strlen(text));
}

char *__wrap_strndup(const char *text, size_t limit)
{
    size_t size = strnlen(text, limit);
    char *copy = __wrap_malloc(size + 1);
    if (copy != NULL) {
        memcpy(copy, text, size);
        copy[size] = '\0';
    }
    return copy;
}
