/* Unpredictable bytes and the ids made of them. */

#include "util/random.h"
#include <errno.h>
#include <string.h>
#include <sys/random.h>

bool sbx_random(void *data, size_t size)
{
    uint8_t *at = data;
    while (size > 0) {
        ssize_t got = getrandom(at, size, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        size -= (size_t)got;
    }
    return true;
}

bool sbx_id_fresh(char text[SBX_ID_TEXT])
{
    uint8_t bytes[SBX_ID_BYTES];
    if (!sbx_random(bytes, sizeof bytes))
        return false;
    sbx_id_print(bytes, text);
    return true;
}

bool sbx_id_parse(const char *text, uint8_t bytes[SBX_ID_BYTES])
{
    return sbx_hex_parse(text, bytes, SBX_ID_BYTES);
}

void sbx_id_print(const uint8_t bytes[SBX_ID_BYTES], char text[SBX_ID_TEXT])
{
    sbx_hex_print(bytes, SBX_ID_BYTES, text);
}

void sbx_hex_print(const uint8_t *bytes, size_t size, char *text)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t n = 0; n < size; n++) {
        text[2 * n] = digits[bytes[n] >> 4];
        text[2 * n + 1] = digits[bytes[n] & 15];
    }
    text[2 * size] = '\0';
}

static int digit_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return -1;
}

bool sbx_hex_parse(const char *text, uint8_t *bytes, size_t size)
{
    if (text == NULL || strlen(text) != 2 * size)
        return false;
    for (size_t n = 0; n < size; n++) {
        int high = digit_value(text[2 * n]), low = digit_value(text[2 * n + 1]);
        if (high < 0 || low < 0)
            return false;
        bytes[n] = (uint8_t)(high << 4 | low);
    }
    return true;
}
