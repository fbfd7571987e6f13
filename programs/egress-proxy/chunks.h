/*
 * The chunked coding of a request's body, read strictly: exact line ends, no sign, no blank, no
 * size that does not fit. Extensions and trailers are read over and dropped.
 */
#ifndef EGRESS_CHUNKS_H
#define EGRESS_CHUNKS_H

#include "util/bytes.h"

enum chunks_state {
    CHUNKS_SIZE,
    CHUNKS_EXTENSION,
    CHUNKS_SIZE_END,
    CHUNKS_DATA,
    CHUNKS_DATA_END,
    CHUNKS_DATA_LINE,
    CHUNKS_TRAILER,
    CHUNKS_TRAILER_END,
    CHUNKS_DONE,
    CHUNKS_BAD,
};

/* All zero at first. */
struct chunks {
    enum chunks_state state;
    unsigned digits;
    size_t overhead; /* bytes of extensions of one chunk, or of all trailers */
    size_t line;     /* bytes of this trailer's line */
    uint64_t left;   /* of this chunk's data */
};

/*
 * Reads from `data`, appends the body to `out`, and stops at the end of the body, at `room` bytes
 * of it, or at what is wrong.
 *
 * @return how much it has read
 */
size_t chunks_read(struct chunks *chunks, const uint8_t *data, size_t size, size_t room,
                   struct sbx_bytes *out);

#endif
