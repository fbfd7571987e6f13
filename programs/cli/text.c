/* Text for people: what a stranger wrote made harmless, sizes and ages made short. */

#include "text.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

static uint32_t code_point(const char *text, size_t size);
static size_t columns_of(const char *text, size_t size);

void cli_text_clean(const char *text, char *out, size_t out_size)
{
    size_t used = 0;
    while (*text != '\0') {
        size_t size = cli_text_character(text);
        uint32_t code = size > 0 ? code_point(text, size) : 0;
        /* C0, DEL, C1, and the marks that turn the direction of writing. */
        bool harmless = size > 0 && code >= 0x20 && (code < 0x7f || code > 0x9f) &&
                        !(code >= 0x202a && code <= 0x202e) &&
                        !(code >= 0x2066 && code <= 0x2069) && code != 0x2028 && code != 0x2029;
        size_t copied = harmless ? size : 1;
        if (used + copied >= out_size)
            break;
        memcpy(out + used, harmless ? text : "?", copied);
        used += copied;
        text += size > 0 ? size : 1;
    }
    out[used] = '\0';
}

size_t cli_text_character(const char *text)
{
    const unsigned char *byte = (const unsigned char *)text;
    size_t size = byte[0] < 0x80   ? 1
                  : byte[0] < 0xc2 ? 0
                  : byte[0] < 0xe0 ? 2
                  : byte[0] < 0xf0 ? 3
                  : byte[0] < 0xf5 ? 4
                                   : 0;
    for (size_t i = 1; i < size; i++)
        if ((byte[i] & 0xc0) != 0x80)
            return 0;
    if ((byte[0] == 0xe0 && byte[1] < 0xa0) || (byte[0] == 0xed && byte[1] > 0x9f) ||
        (byte[0] == 0xf0 && byte[1] < 0x90) || (byte[0] == 0xf4 && byte[1] > 0x8f))
        return 0;
    return size;
}

size_t cli_text_columns(const char *text)
{
    size_t columns = 0;
    for (size_t size; *text != '\0'; text += size) {
        size = cli_text_character(text);
        size = size > 0 ? size : 1;
        columns += columns_of(text, size);
    }
    return columns;
}

void cli_text_cut(char *text, size_t columns)
{
    if (cli_text_columns(text) <= columns)
        return;
    size_t taken = 0;
    char *end = text;
    for (;;) {
        size_t size = cli_text_character(end);
        size = size > 0 ? size : 1;
        size_t wide = columns_of(end, size);
        if (taken + wide + 1 > columns)
            break;
        taken += wide;
        end += size;
    }
    /* What goes is at least one character; '…' takes three bytes, which may be more than that. */
    const char *mark = strlen(end) >= 3 ? "…" : ".";
    memcpy(end, mark, strlen(mark) + 1);
}

const char *cli_text_age(int64_t ms, char out[CLI_SHORT_BYTES])
{
    int64_t seconds = ms < 0 ? 0 : ms / 1000;
    if (seconds < 120)
        snprintf(out, CLI_SHORT_BYTES, "%llds", (long long)seconds);
    else if (seconds < 120 * 60)
        snprintf(out, CLI_SHORT_BYTES, "%lldm", (long long)(seconds / 60));
    else if (seconds < 48 * 3600)
        snprintf(out, CLI_SHORT_BYTES, "%lldh", (long long)(seconds / 3600));
    else
        snprintf(out, CLI_SHORT_BYTES, "%lldd", (long long)(seconds / 86400));
    return out;
}

const char *cli_text_took(uint32_t ms, char out[CLI_SHORT_BYTES])
{
    if (ms < 1000)
        snprintf(out, CLI_SHORT_BYTES, "%u ms", ms);
    else
        snprintf(out, CLI_SHORT_BYTES, "%.1f s", (double)ms / 1000);
    return out;
}

const char *cli_text_size(uint64_t bytes, char out[CLI_SHORT_BYTES])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        snprintf(out, CLI_SHORT_BYTES, "%u B", (unsigned)bytes);
        return out;
    }
    double size = (double)bytes / 1024;
    size_t unit = 0;
    for (; size >= 1024 && unit < 5; unit++)
        size /= 1024;
    snprintf(out, CLI_SHORT_BYTES, size < 100 ? "%.1f %s" : "%.0f %s", size, units[unit]);
    return out;
}

const char *cli_text_time(int64_t unix_ms, char out[CLI_SHORT_BYTES])
{
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm parts;
    if (gmtime_r(&seconds, &parts) == NULL ||
        strftime(out, CLI_SHORT_BYTES, "%Y-%m-%d %H:%M:%SZ", &parts) == 0)
        snprintf(out, CLI_SHORT_BYTES, "?");
    return out;
}

static uint32_t code_point(const char *text, size_t size)
{
    const unsigned char *byte = (const unsigned char *)text;
    if (size == 1)
        return byte[0];
    uint32_t code = byte[0] & (0xffu >> (size + 1));
    for (size_t i = 1; i < size; i++)
        code = code << 6 | (byte[i] & 0x3fu);
    return code;
}

static size_t columns_of(const char *text, size_t size)
{
    if (size == 1)
        return 1;
    int width = wcwidth((wchar_t)code_point(text, size));
    return width < 0 ? 1 : (size_t)width;
}
