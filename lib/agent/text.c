/* Text that a stranger wrote, made fit to be shown. */

#include "agent/text.h"
#include <string.h>

static size_t character_size(const uint8_t *bytes, size_t size);
static bool is_forbidden(const uint8_t *bytes);
static bool is_control(const uint8_t *bytes, size_t size);
static int hex_digit(uint8_t digit);

void sbx_text_clean(const uint8_t *bytes, size_t size, char *text, size_t text_size)
{
    size_t used = 0;
    for (size_t at = 0; at < size;) {
        size_t whole = character_size(bytes + at, size - at);
        bool control = whole > 0 && is_control(bytes + at, whole);
        size_t written = whole == 0 || control ? 1 : whole;
        if (used + written >= text_size)
            break;
        if (whole == 0)
            text[used] = '?';
        else if (control)
            text[used] = ' ';
        else
            memcpy(text + used, bytes + at, whole);
        used += written;
        at += whole == 0 ? 1 : whole;
    }
    text[used] = '\0';
}

size_t sbx_text_decode_percent(uint8_t *bytes, size_t size)
{
    size_t used = 0;
    for (size_t at = 0; at < size; at++) {
        int high = at + 2 < size && bytes[at] == '%' ? hex_digit(bytes[at + 1]) : -1;
        int low = high >= 0 ? hex_digit(bytes[at + 2]) : -1;
        if (low >= 0) {
            bytes[used++] = (uint8_t)(high * 16 + low);
            at += 2;
        } else {
            bytes[used++] = bytes[at];
        }
    }
    return used;
}

bool sbx_text_word(const uint8_t *bytes, size_t size, char *word, size_t word_size)
{
    word[0] = '\0';
    if (size == 0 || size >= word_size)
        return false;
    for (size_t at = 0; at < size; at++) {
        bool fits = (bytes[at] >= 'a' && bytes[at] <= 'z') ||
                    (bytes[at] >= '0' && bytes[at] <= '9') || bytes[at] == '-';
        if (!fits)
            return false;
    }
    memcpy(word, bytes, size);
    word[size] = '\0';
    return true;
}

/*
 * Of the UTF-8 character that begins here; 0 if none does. Refuses overlong forms and surrogates.
 */
static size_t character_size(const uint8_t *bytes, size_t size)
{
    uint8_t lead = bytes[0];
    if (lead < 0x80)
        return 1;
    size_t whole = lead >= 0xf0 && lead <= 0xf4 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || size < whole)
        return 0;
    for (size_t at = 1; at < whole; at++) {
        if ((bytes[at] & 0xc0) != 0x80)
            return 0;
    }
    return is_forbidden(bytes) ? 0 : whole;
}

/* Overlong forms, surrogates, and what lies above Unicode: seen in the second byte. */
static bool is_forbidden(const uint8_t *bytes)
{
    switch (bytes[0]) {
    case 0xe0:
        return bytes[1] < 0xa0;
    case 0xed:
        return bytes[1] >= 0xa0;
    case 0xf0:
        return bytes[1] < 0x90;
    case 0xf4:
        return bytes[1] >= 0x90;
    default:
        return false;
    }
}

/* C0, DEL, C1, and the two separators that some terminals and log viewers take for line ends. */
static bool is_control(const uint8_t *bytes, size_t size)
{
    if (size == 1)
        return bytes[0] < 0x20 || bytes[0] == 0x7f;
    if (size == 2)
        return bytes[0] == 0xc2 && bytes[1] < 0xa0;
    return size == 3 && bytes[0] == 0xe2 && bytes[1] == 0x80 &&
           (bytes[2] == 0xa8 || bytes[2] == 0xa9);
}

static int hex_digit(uint8_t digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return -1;
}
