/* A look into a message of protocol buffers without unpacking it. */

#include "util/wire.h"
#include <stdbool.h>

#define WIRE_VARINT 0
#define WIRE_BYTES  2

/* False where the bytes are no number. */
static bool read_varint(const uint8_t *bytes, size_t size, size_t *at, uint64_t *number)
{
    *number = 0;
    for (unsigned shift = 0; shift < 64 && *at < size; shift += 7) {
        uint8_t byte = bytes[(*at)++];
        *number |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

size_t sbx_wire_last_field(const uint8_t *bytes, size_t size, unsigned field, size_t least,
                           struct sbx_wire_bytes *found)
{
    *found = (struct sbx_wire_bytes){NULL, 0};
    for (size_t at = 0; at < size;) {
        size_t begin = at;
        uint64_t tag, number;
        if (!read_varint(bytes, size, &at, &tag) || !read_varint(bytes, size, &at, &number))
            break;
        if ((tag & 7) == WIRE_VARINT)
            continue;
        if ((tag & 7) != WIRE_BYTES || number > size - at)
            break;
        if (tag >> 3 == field && number == size - at && number >= least) {
            *found = (struct sbx_wire_bytes){bytes + at, (size_t)number};
            return begin;
        }
        at += (size_t)number;
    }
    return size;
}
