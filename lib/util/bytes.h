/*
 * A growing queue of bytes with a limit given at its birth: append at the end, take from the front.
 */
#ifndef SBX_UTIL_BYTES_H
#define SBX_UTIL_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sbx_bytes {
    uint8_t *memory;
    size_t start, end, capacity, limit;
};

#define SBX_BYTES(limit_bytes) {NULL, 0, 0, 0, (limit_bytes)}

static inline size_t sbx_bytes_size(const struct sbx_bytes *bytes)
{
    return bytes->end - bytes->start;
}

static inline const uint8_t *sbx_bytes_data(const struct sbx_bytes *bytes)
{
    return bytes->memory == NULL ? NULL : bytes->memory + bytes->start;
}

/* Room for `size` more bytes at the end, or NULL: no memory, or over the limit. */
uint8_t *sbx_bytes_room(struct sbx_bytes *bytes, size_t size);
/* After sbx_bytes_room(): that many of them were filled. */
void sbx_bytes_grow(struct sbx_bytes *bytes, size_t size);
bool sbx_bytes_append(struct sbx_bytes *bytes, const void *data, size_t size);
bool sbx_bytes_format(struct sbx_bytes *bytes, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Drop from the front. */
void sbx_bytes_skip(struct sbx_bytes *bytes, size_t size);
/* Gives memory back; the limit stays. */
void sbx_bytes_free(struct sbx_bytes *bytes);
/* The same of what may be secret. What grew has left copies behind: give it all its room first. */
void sbx_bytes_wipe(struct sbx_bytes *bytes);

#endif
