/* Percent-decoding. */

#include "util/uri.h"
#include "util/fail.h"
#include "util/random.h"
#include <stdlib.h>

sandbox_status sbx_uri_decode(const char *text, size_t size, char **out, sandbox_error *error)
{
    char *decoded = malloc(size + 1);
    if (decoded == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a URI");
    size_t used = 0;
    for (size_t at = 0; at < size; at++) {
        uint8_t byte = (uint8_t)text[at];
        if (byte == '%') {
            const char digits[3] = {at + 1 < size ? text[at + 1] : '\0',
                                    at + 2 < size ? text[at + 2] : '\0', '\0'};
            if (!sbx_hex_parse(digits, &byte, 1) || byte == 0) {
                free(decoded);
                return sbx_fail(error, SANDBOX_INVALID,
                                "the URI has a '%%' without two hexadecimal digits of a byte; "
                                "write '%%25' for the sign itself");
            }
            at += 2;
        }
        decoded[used++] = (char)byte;
    }
    decoded[used] = '\0';
    *out = decoded;
    return SANDBOX_OK;
}
