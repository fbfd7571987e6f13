/*
 * The first message of TLS: put together over segments and records, then read whole.
 *
 * What came is kept as it came, for the server gets exactly that. The records are walked as they
 * come in; the message itself is looked at once, when it is whole.
 */

#include "egress/client_hello.h"
#include "egress/client_hello_parts.h"

#include <stdlib.h>
#include <string.h>

#define RECORD_HEADER  5
#define RECORD_MAX     16384
#define HANDSHAKE      22
#define CLIENT_HELLO   1
#define MESSAGE_HEADER 4

struct sbx_egress_hello {
    struct sbx_egress_host host;
    enum sbx_egress_ech ech;
    struct sbx_bytes data;
    size_t walked; /* bytes of `data` in whole records */
    size_t records;
    size_t message; /* bytes of the message in these records */
};

static enum sbx_egress_hello_verdict walk(struct sbx_egress_hello *hello,
                                          struct sbx_egress_refusal *refusal);
static enum sbx_egress_hello_verdict walk_record(struct sbx_egress_hello *hello,
                                                 struct sbx_egress_refusal *refusal);
static enum sbx_egress_hello_verdict judge(struct sbx_egress_hello *hello, size_t size,
                                           struct sbx_egress_refusal *refusal);
static size_t collect(const struct sbx_egress_hello *hello, uint8_t *out, size_t room);
static enum sbx_egress_hello_verdict refuse(struct sbx_egress_refusal *refusal, const char *reason,
                                            const char *text);

struct sbx_egress_hello *sbx_egress_hello_new(const struct sbx_egress_host *host,
                                              enum sbx_egress_ech ech)
{
    struct sbx_egress_hello *hello = calloc(1, sizeof *hello);
    if (hello == NULL)
        return NULL;
    hello->host = *host;
    hello->ech = ech;
    return hello;
}

void sbx_egress_hello_free(struct sbx_egress_hello *hello)
{
    if (hello == NULL)
        return;
    sbx_bytes_free(&hello->data);
    free(hello);
}

enum sbx_egress_hello_verdict sbx_egress_hello_feed(struct sbx_egress_hello *hello,
                                                    const void *data, size_t size,
                                                    struct sbx_egress_refusal *refusal)
{
    /* The walk stops at what is too much; so it never holds more than that and one piece. */
    hello->data.limit = SBX_EGRESS_HELLO_HELD + RECORD_HEADER + size;
    if (!sbx_bytes_append(&hello->data, data, size))
        return SBX_EGRESS_HELLO_NO_MEMORY;
    return walk(hello, refusal);
}

const uint8_t *sbx_egress_hello_data(const struct sbx_egress_hello *hello, size_t *size)
{
    *size = sbx_bytes_size(&hello->data);
    return sbx_bytes_data(&hello->data);
}

size_t sbx_egress_hello_used(const struct sbx_egress_hello *hello)
{
    return hello->walked;
}

static enum sbx_egress_hello_verdict walk(struct sbx_egress_hello *hello,
                                          struct sbx_egress_refusal *refusal)
{
    const uint8_t *data = sbx_bytes_data(&hello->data);
    for (;;) {
        size_t left = sbx_bytes_size(&hello->data) - hello->walked;
        /* Told at the first byte: whoever speaks something else may wait for us to speak. */
        if (left > 0 && data[hello->walked] != HANDSHAKE)
            return refuse(refusal, hello->records == 0 ? SBX_EGRESS_NOT_TLS : SBX_EGRESS_BAD_HELLO,
                          "the tunnel does not begin with TLS");
        if (left > 1 && data[hello->walked + 1] != 3)
            return refuse(refusal, SBX_EGRESS_NOT_TLS, "the tunnel does not begin with TLS");
        if (left < RECORD_HEADER)
            return SBX_EGRESS_HELLO_MORE;
        enum sbx_egress_hello_verdict verdict = walk_record(hello, refusal);
        if (verdict != SBX_EGRESS_HELLO_MORE)
            return verdict;
        if (sbx_bytes_size(&hello->data) - hello->walked == left)
            return SBX_EGRESS_HELLO_MORE;
    }
}

/* One record: MORE when it is taken, or not there whole (then nothing has moved). */
static enum sbx_egress_hello_verdict walk_record(struct sbx_egress_hello *hello,
                                                 struct sbx_egress_refusal *refusal)
{
    const uint8_t *record = sbx_bytes_data(&hello->data) + hello->walked;
    size_t left = sbx_bytes_size(&hello->data) - hello->walked;
    size_t size = (size_t)record[3] << 8 | record[4];
    if (size == 0 || size > RECORD_MAX)
        return refuse(refusal, SBX_EGRESS_BAD_HELLO, "a record of TLS has a wrong length");
    if (hello->records == SBX_EGRESS_HELLO_RECORDS)
        return refuse(refusal, SBX_EGRESS_BAD_HELLO, "the ClientHello comes in too many records");
    if (hello->message + size > MESSAGE_HEADER + SBX_EGRESS_HELLO_MAX)
        return refuse(refusal, SBX_EGRESS_BAD_HELLO, "the ClientHello is too large");
    if (left - RECORD_HEADER < size) {
        /* What it says of itself is known before it is whole. */
        if (hello->message == 0 && left > RECORD_HEADER && record[RECORD_HEADER] != CLIENT_HELLO)
            return refuse(refusal, SBX_EGRESS_BAD_HELLO, "the first message is no ClientHello");
        return SBX_EGRESS_HELLO_MORE;
    }
    hello->walked += RECORD_HEADER + size;
    hello->message += size;
    hello->records++;

    uint8_t header[MESSAGE_HEADER] = {0};
    size_t there = collect(hello, header, sizeof header);
    if (header[0] != CLIENT_HELLO)
        return refuse(refusal, SBX_EGRESS_BAD_HELLO, "the first message is no ClientHello");
    if (there < MESSAGE_HEADER)
        return SBX_EGRESS_HELLO_MORE;
    size_t body = (size_t)header[1] << 16 | (size_t)header[2] << 8 | header[3];
    if (body > SBX_EGRESS_HELLO_MAX)
        return refuse(refusal, SBX_EGRESS_BAD_HELLO, "the ClientHello is too large");
    if (hello->message < MESSAGE_HEADER + body)
        return SBX_EGRESS_HELLO_MORE;
    if (hello->message > MESSAGE_HEADER + body)
        return refuse(refusal, SBX_EGRESS_BAD_HELLO, "something stands behind the ClientHello");
    return judge(hello, body, refusal);
}

static enum sbx_egress_hello_verdict judge(struct sbx_egress_hello *hello, size_t size,
                                           struct sbx_egress_refusal *refusal)
{
    const char *reason = NULL;
    const char *text = NULL;
    if (hello->records == 1) {
        const uint8_t *message = sbx_bytes_data(&hello->data) + RECORD_HEADER + MESSAGE_HEADER;
        text = sbx_egress_hello_judge(message, size, &hello->host, hello->ech, &reason);
    } else {
        uint8_t *message = malloc(MESSAGE_HEADER + size);
        if (message == NULL)
            return SBX_EGRESS_HELLO_NO_MEMORY;
        collect(hello, message, MESSAGE_HEADER + size);
        text = sbx_egress_hello_judge(message + MESSAGE_HEADER, size, &hello->host, hello->ech,
                                      &reason);
        free(message);
    }
    return text == NULL ? SBX_EGRESS_HELLO_GOOD : refuse(refusal, reason, text);
}

/* The message's first bytes, out of the records that were walked. How many. */
static size_t collect(const struct sbx_egress_hello *hello, uint8_t *out, size_t room)
{
    const uint8_t *data = sbx_bytes_data(&hello->data);
    size_t copied = 0;
    for (size_t at = 0; at < hello->walked && copied < room;) {
        size_t size = (size_t)data[at + 3] << 8 | data[at + 4];
        size_t part = size < room - copied ? size : room - copied;
        memcpy(out + copied, data + at + RECORD_HEADER, part);
        copied += part;
        at += RECORD_HEADER + size;
    }
    return copied;
}

static enum sbx_egress_hello_verdict refuse(struct sbx_egress_refusal *refusal, const char *reason,
                                            const char *text)
{
    sbx_egress_refuse(refusal, 0, reason, "%s", text);
    return SBX_EGRESS_HELLO_REFUSED;
}
