/* Bytes as text: base64. */

#include "util/base64.h"
#include "util/fail.h"
#include "util/memory.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int digit_of(char letter);

char *sbx_base64_text(const void *data, size_t size)
{
    const uint8_t *bytes = data;
    char *text = malloc((size + 2) / 3 * 4 + 1);
    if (text == NULL)
        return NULL;
    size_t used = 0;
    for (size_t at = 0; at < size; at += 3) {
        size_t left = size - at;
        uint32_t group = (uint32_t)bytes[at] << 16;
        group |= left > 1 ? (uint32_t)bytes[at + 1] << 8 : 0;
        group |= left > 2 ? bytes[at + 2] : 0;
        text[used++] = alphabet[group >> 18];
        text[used++] = alphabet[group >> 12 & 63];
        text[used++] = left > 1 ? alphabet[group >> 6 & 63] : '=';
        text[used++] = left > 2 ? alphabet[group & 63] : '=';
    }
    text[used] = '\0';
    return text;
}

sandbox_status sbx_base64_parse(const char *text, uint8_t **data, size_t *size,
                                sandbox_error *error)
{
    uint8_t *bytes = malloc(strlen(text) / 4 * 3 + 4);
    if (bytes == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for base64");
    uint32_t group = 0;
    size_t used = 0, digits = 0, padding = 0;
    for (const char *at = text; *at != '\0'; at++) {
        if (strchr(" \t\r\n", *at) != NULL)
            continue;
        int digit = digit_of(*at);
        padding += *at == '=';
        if ((*at != '=' && (digit < 0 || padding > 0)) || padding > 2) {
            sbx_wipe(bytes, used); /* keys and tokens come in base64 */
            free(bytes);
            return sbx_fail(error, SANDBOX_INVALID, "not base64");
        }
        if (*at == '=')
            continue;
        group = group << 6 | (uint32_t)digit;
        if (++digits % 4 != 0)
            continue;
        bytes[used++] = (uint8_t)(group >> 16);
        bytes[used++] = (uint8_t)(group >> 8);
        bytes[used++] = (uint8_t)group;
    }
    if ((digits + padding) % 4 != 0) {
        sbx_wipe(bytes, used);
        free(bytes);
        return sbx_fail(error, SANDBOX_INVALID, "not base64: it was cut off");
    }
    if (digits % 4 >= 2)
        bytes[used++] = (uint8_t)(digits % 4 == 2 ? group >> 4 : group >> 10);
    if (digits % 4 == 3)
        bytes[used++] = (uint8_t)(group >> 2);
    bytes[used] = 0;
    *data = bytes;
    *size = used;
    return SANDBOX_OK;
}

static int digit_of(char letter)
{
    const char *at = letter == '\0' ? NULL : strchr(alphabet, letter);
    return at == NULL ? -1 : (int)(at - alphabet);
}
