/*
 * What a server answers to the handshake, read from memory: HTTP/1.1 as far as it takes to find
 * the frames behind a 101, or the words of a refusal.
 */

#include "cloud/websocket.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HEAD_MAX (32u << 10)
#define BODY_MAX (64u << 10)

/* What of the head says how long the body is. */
struct body {
    bool chunked, has_length;
    size_t length;
};

static const uint8_t *find_end(const uint8_t *data, size_t size);
static bool read_head(const uint8_t *data, size_t size, struct sbx_upgrade *out, struct body *body);
static bool read_line(const char *line, size_t size, struct sbx_upgrade *out, struct body *body);
static enum sbx_upgrade_state read_body(const uint8_t *data, size_t size, bool ended,
                                        const struct body *body, struct sbx_upgrade *out);
static enum sbx_upgrade_state read_chunks(const uint8_t *data, size_t size, struct sbx_bytes *out);

enum sbx_upgrade_state sbx_upgrade_read(const uint8_t *data, size_t size, bool ended,
                                        struct sbx_upgrade *out)
{
    *out = (struct sbx_upgrade){.answer = {.retry_after_ms = -1, .body = SBX_BYTES(BODY_MAX)}};
    struct body body = {0};
    const uint8_t *end = find_end(data, size < HEAD_MAX ? size : HEAD_MAX);
    if (end == NULL)
        return ended || size >= HEAD_MAX ? SBX_UPGRADE_BROKEN : SBX_UPGRADE_UNFINISHED;
    size_t head = (size_t)(end - data);
    if (!read_head(data, head, out, &body))
        return SBX_UPGRADE_BROKEN;
    out->size = head;
    out->answer.status = out->status;
    if (out->status == 101)
        return SBX_UPGRADE_WHOLE;
    enum sbx_upgrade_state state = read_body(end, size - head, ended, &body, out);
    if (state != SBX_UPGRADE_WHOLE)
        sbx_bytes_free(&out->answer.body);
    return state;
}

/* Behind the empty line. */
static const uint8_t *find_end(const uint8_t *data, size_t size)
{
    for (size_t at = 3; at < size; at++) {
        if (memcmp(data + at - 3, "\r\n\r\n", 4) == 0)
            return data + at + 1;
    }
    return NULL;
}

static bool read_head(const uint8_t *data, size_t size, struct sbx_upgrade *out, struct body *body)
{
    const char *line = (const char *)data, *end = line + size;
    /* "HTTP/1.x NNN": no zero byte is in what sscanf looks at, the empty line ends it. */
    char first[16] = {0};
    memcpy(first, data, size < sizeof first - 1 ? size : sizeof first - 1);
    int minor, used = 0;
    if (sscanf(first, "HTTP/1.%1d %3ld%n", &minor, &out->status, &used) != 2 || used != 12 ||
        (out->status < 200 && out->status != 101))
        return false;
    while (line < end) {
        const char *stop = memchr(line, '\r', (size_t)(end - line));
        if (stop == NULL || stop + 1 == end || stop[1] != '\n')
            return false;
        if (line != (const char *)data && !read_line(line, (size_t)(stop - line), out, body))
            return false;
        line = stop + 2;
    }
    return true;
}

/* The value's place and size where the line is that header. */
static const char *value_of(const char *line, size_t *size, const char *name)
{
    size_t length = strlen(name);
    if (*size <= length || strncasecmp(line, name, length) != 0 || line[length] != ':')
        return NULL;
    const char *value = line + length + 1, *end = line + *size;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *size = (size_t)(end - value);
    return value;
}

static bool keep_value(const char *line, size_t size, const char *name, char *out, size_t out_size)
{
    const char *value = value_of(line, &size, name);
    if (value == NULL || size >= out_size)
        return false;
    memcpy(out, value, size);
    out[size] = '\0';
    return true;
}

/* Digits only, and not too many. */
static bool is_number(const char *text, size_t most)
{
    size_t digits = strspn(text, "0123456789");
    return digits > 0 && digits <= most && text[digits] == '\0';
}

/* False: it says something that cannot be. */
static bool read_line(const char *line, size_t size, struct sbx_upgrade *out, struct body *body)
{
    char value[96];
    if (keep_value(line, size, "Upgrade", value, sizeof value))
        out->to_websocket = strcasecmp(value, "websocket") == 0;
    else if (keep_value(line, size, "Transfer-Encoding", value, sizeof value))
        body->chunked = strcasecmp(value, "chunked") == 0;
    else if (keep_value(line, size, "Retry-After", value, sizeof value) && is_number(value, 6))
        out->answer.retry_after_ms = strtol(value, NULL, 10) * 1000;
    else if (keep_value(line, size, "Content-Length", value, sizeof value)) {
        if (!is_number(value, 12))
            return false;
        body->has_length = true;
        body->length = (size_t)strtoull(value, NULL, 10);
    } else if (keep_value(line, size, "Sec-WebSocket-Accept", out->accept, sizeof out->accept) ||
               keep_value(line, size, "Sec-WebSocket-Protocol", out->protocol,
                          sizeof out->protocol)) {
        return true;
    } else {
        keep_value(line, size, "Content-Type", out->answer.content_type,
                   sizeof out->answer.content_type);
    }
    return true;
}

/* What is longer than we keep is cut: it is only words. */
static enum sbx_upgrade_state read_body(const uint8_t *data, size_t size, bool ended,
                                        const struct body *body, struct sbx_upgrade *out)
{
    if (body->chunked) {
        enum sbx_upgrade_state state = read_chunks(data, size, &out->answer.body);
        return state == SBX_UPGRADE_UNFINISHED && ended ? SBX_UPGRADE_BROKEN : state;
    }
    size_t wanted = body->has_length && body->length < BODY_MAX ? body->length : BODY_MAX;
    if (size < wanted && !ended)
        return SBX_UPGRADE_UNFINISHED;
    return sbx_bytes_append(&out->answer.body, data, size < wanted ? size : wanted)
               ? SBX_UPGRADE_WHOLE
               : SBX_UPGRADE_BROKEN;
}

static enum sbx_upgrade_state read_chunks(const uint8_t *data, size_t size, struct sbx_bytes *out)
{
    for (;;) {
        const uint8_t *line_end = size == 0 ? NULL : memchr(data, '\n', size);
        if (line_end == NULL)
            return size > 256 ? SBX_UPGRADE_BROKEN : SBX_UPGRADE_UNFINISHED;
        char text[10] = {0};
        size_t line = (size_t)(line_end - data) + 1;
        memcpy(text, data, line < sizeof text - 1 ? line : sizeof text - 1);
        size_t chunk =
            strspn(text, "0123456789abcdefABCDEF") > 0 ? strtoul(text, NULL, 16) : SIZE_MAX;
        if (chunk == 0)
            return SBX_UPGRADE_WHOLE;
        if (chunk > BODY_MAX)
            return SBX_UPGRADE_BROKEN;
        data += line;
        size -= line;
        if (size < chunk + 2)
            return SBX_UPGRADE_UNFINISHED;
        if (!sbx_bytes_append(out, data, chunk))
            return SBX_UPGRADE_WHOLE; /* enough words */
        data += chunk + 2;
        size -= chunk + 2;
    }
}
