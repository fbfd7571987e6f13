/* A look into a message of protocol buffers without unpacking it. */
#ifndef SBX_UTIL_WIRE_H
#define SBX_UTIL_WIRE_H

#include <stddef.h>
#include <stdint.h>

struct sbx_wire_bytes {
    const uint8_t *data; /* borrowed from the message */
    size_t size;
};

/*
 * Where the field begins, and its bytes, if it is the last one and has at least `least` of them:
 * the message is all before it. Else `size`, and nothing is found; whatever is not understood is
 * left to protobuf-c.
 */
size_t sbx_wire_last_field(const uint8_t *bytes, size_t size, unsigned field, size_t least,
                           struct sbx_wire_bytes *found);

#endif
