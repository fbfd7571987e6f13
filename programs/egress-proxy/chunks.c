/* The chunked coding of a request's body: see chunks.h. */

#include "chunks.h"

#define DIGITS_MAX   15   /* so that a size always fits */
#define OVERHEAD_MAX 4096 /* of what is not the body */

static void read_control(struct chunks *chunks, uint8_t byte);
static void read_size(struct chunks *chunks, uint8_t byte);
static void read_trailer(struct chunks *chunks, uint8_t byte);
static bool is_overhead(struct chunks *chunks, uint8_t byte);
static int digit_of(uint8_t byte);

size_t chunks_read(struct chunks *chunks, const uint8_t *data, size_t size, size_t room,
                   struct sbx_bytes *out)
{
    size_t place = 0;
    while (place < size && chunks->state < CHUNKS_DONE) {
        if (chunks->state != CHUNKS_DATA) {
            read_control(chunks, data[place++]);
            continue;
        }
        size_t piece = size - place < room ? size - place : room;
        if (piece > chunks->left)
            piece = (size_t)chunks->left;
        if (piece == 0)
            break;
        if (!sbx_bytes_append(out, data + place, piece)) {
            chunks->state = CHUNKS_BAD;
            break;
        }
        place += piece;
        room -= piece;
        chunks->left -= piece;
        if (chunks->left == 0)
            chunks->state = CHUNKS_DATA_END;
    }
    return place;
}

static void read_control(struct chunks *chunks, uint8_t byte)
{
    switch (chunks->state) {
    case CHUNKS_SIZE:
        read_size(chunks, byte);
        break;
    case CHUNKS_EXTENSION:
        if (byte == '\r')
            chunks->state = CHUNKS_SIZE_END;
        else if (!is_overhead(chunks, byte))
            chunks->state = CHUNKS_BAD;
        break;
    case CHUNKS_SIZE_END:
        if (byte != '\n')
            chunks->state = CHUNKS_BAD;
        else
            chunks->state = chunks->left == 0 ? CHUNKS_TRAILER : CHUNKS_DATA;
        chunks->digits = 0;
        chunks->overhead = chunks->line = 0;
        break;
    case CHUNKS_DATA_END:
        chunks->state = byte == '\r' ? CHUNKS_DATA_LINE : CHUNKS_BAD;
        break;
    case CHUNKS_DATA_LINE:
        chunks->state = byte == '\n' ? CHUNKS_SIZE : CHUNKS_BAD;
        break;
    default:
        read_trailer(chunks, byte);
    }
}

static void read_size(struct chunks *chunks, uint8_t byte)
{
    int digit = digit_of(byte);
    if (digit >= 0 && chunks->digits < DIGITS_MAX) {
        chunks->left = chunks->left * 16 + (uint64_t)digit;
        chunks->digits++;
    } else if (chunks->digits > 0 && byte == ';') {
        chunks->state = CHUNKS_EXTENSION;
    } else {
        chunks->state = chunks->digits > 0 && byte == '\r' ? CHUNKS_SIZE_END : CHUNKS_BAD;
    }
}

/* Lines up to an empty one. */
static void read_trailer(struct chunks *chunks, uint8_t byte)
{
    if (chunks->state == CHUNKS_TRAILER) {
        if (byte == '\r')
            chunks->state = CHUNKS_TRAILER_END;
        else if (!is_overhead(chunks, byte))
            chunks->state = CHUNKS_BAD;
        else
            chunks->line++;
        return;
    }
    if (byte != '\n')
        chunks->state = CHUNKS_BAD;
    else
        chunks->state = chunks->line == 0 ? CHUNKS_DONE : CHUNKS_TRAILER;
    chunks->line = 0;
}

static bool is_overhead(struct chunks *chunks, uint8_t byte)
{
    return ++chunks->overhead <= OVERHEAD_MAX && (byte >= ' ' || byte == '\t') && byte != 0x7f;
}

static int digit_of(uint8_t byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    if (byte >= 'a' && byte <= 'f')
        return byte - 'a' + 10;
    if (byte >= 'A' && byte <= 'F')
        return byte - 'A' + 10;
    return -1;
}
