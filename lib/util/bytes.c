/* A growing queue of bytes with a limit. */

#include "util/bytes.h"
#include "util/memory.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool make_room(struct sbx_bytes *bytes, size_t size);

uint8_t *sbx_bytes_room(struct sbx_bytes *bytes, size_t size)
{
    if (size > bytes->limit || sbx_bytes_size(bytes) > bytes->limit - size)
        return NULL;
    if (bytes->start == bytes->end)
        bytes->start = bytes->end = 0;
    if (bytes->memory == NULL || bytes->capacity - bytes->end < size) {
        if (!make_room(bytes, size))
            return NULL;
    }
    return bytes->memory + bytes->end;
}

void sbx_bytes_grow(struct sbx_bytes *bytes, size_t size)
{
    bytes->end += size;
}

bool sbx_bytes_append(struct sbx_bytes *bytes, const void *data, size_t size)
{
    if (size == 0)
        return true;
    uint8_t *room = sbx_bytes_room(bytes, size);
    if (room == NULL)
        return false;
    memcpy(room, data, size);
    bytes->end += size;
    return true;
}

bool sbx_bytes_format(struct sbx_bytes *bytes, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (size < 0)
        return false;
    char *room = (char *)sbx_bytes_room(bytes, (size_t)size + 1);
    if (room == NULL)
        return false;
    va_start(arguments, format);
    vsnprintf(room, (size_t)size + 1, format, arguments);
    va_end(arguments);
    bytes->end += (size_t)size;
    return true;
}

void sbx_bytes_skip(struct sbx_bytes *bytes, size_t size)
{
    bytes->start += size;
    if (bytes->start == bytes->end)
        bytes->start = bytes->end = 0;
}

void sbx_bytes_free(struct sbx_bytes *bytes)
{
    free(bytes->memory);
    *bytes = (struct sbx_bytes){.limit = bytes->limit};
}

void sbx_bytes_wipe(struct sbx_bytes *bytes)
{
    sbx_wipe(bytes->memory, bytes->capacity);
    sbx_bytes_free(bytes);
}

/* Moving is cheap only where little is left; otherwise the memory doubles. */
static bool make_room(struct sbx_bytes *bytes, size_t size)
{
    size_t used = sbx_bytes_size(bytes);
    if (bytes->start >= used && bytes->capacity - used >= size) {
        memmove(bytes->memory, bytes->memory + bytes->start, used);
        bytes->start = 0;
        bytes->end = used;
        return true;
    }
    size_t capacity = bytes->capacity < 256 ? 256 : bytes->capacity * 2;
    if (capacity < used + size)
        capacity = used + size;
    uint8_t *memory = malloc(capacity);
    if (memory == NULL)
        return false;
    if (used > 0)
        memcpy(memory, bytes->memory + bytes->start, used);
    free(bytes->memory);
    bytes->memory = memory;
    bytes->capacity = capacity;
    bytes->start = 0;
    bytes->end = used;
    return true;
}
