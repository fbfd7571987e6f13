/* The chunked coding of a request's body: cut anywhere, it reads the same. */

#include "chunks.h"

#include <stdlib.h>
#include <string.h>

#define BODY_MAX (1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t read_in_pieces(const uint8_t *data, size_t size, size_t piece, struct chunks *chunks,
                             struct sbx_bytes *out);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct chunks whole = {.state = CHUNKS_SIZE}, cut = {.state = CHUNKS_SIZE};
    struct sbx_bytes one = SBX_BYTES(BODY_MAX), other = SBX_BYTES(BODY_MAX);
    size_t read = read_in_pieces(data, size, size, &whole, &one);
    size_t again = read_in_pieces(data, size, 1 + size % 7, &cut, &other);
    if (whole.state != cut.state || read != again ||
        sbx_bytes_size(&one) != sbx_bytes_size(&other) ||
        (sbx_bytes_size(&one) > 0 &&
         memcmp(sbx_bytes_data(&one), sbx_bytes_data(&other), sbx_bytes_size(&one)) != 0))
        abort();
    if (sbx_bytes_size(&one) > size)
        abort();
    sbx_bytes_free(&one);
    sbx_bytes_free(&other);
    return 0;
}

static size_t read_in_pieces(const uint8_t *data, size_t size, size_t piece, struct chunks *chunks,
                             struct sbx_bytes *out)
{
    size_t place = 0;
    while (place < size && chunks->state < CHUNKS_DONE) {
        size_t some = size - place < piece ? size - place : piece;
        size_t read = chunks_read(chunks, data + place, some, BODY_MAX, out);
        if (read == 0 && chunks->state < CHUNKS_DONE)
            abort();
        place += read;
    }
    return place;
}
