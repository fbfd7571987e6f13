/* The answer, from curl's bytes to the guest: see exchange_parts.h. */

#include "exchange_parts.h"
#include "metrics.h"
#include "util/memory.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#define NAMES_MAX 64 /* that Connection fields of one answer may name */

/* One line of the answer's head. */
struct line {
    const char *name, *value;
    size_t name_size, value_size;
};

static bool begin_head(struct exchange *exchange, const char *line, size_t size);
static bool whole_head(struct exchange *exchange);
static bool choose_frame(struct exchange *exchange, bool *decoded);
static bool next_line(const char **place, const char *end, struct line *line);
static bool is_name(const struct line *line, const char *name);
static bool is_number(const struct line *line);
static bool is_between_hops(struct exchange *exchange, const struct line *line);
static bool names_it(struct line connection, const struct line *line);
static bool print_line(struct exchange *exchange, struct sbx_bytes *to, const struct line *line);
static bool print_value(struct exchange *exchange, struct sbx_bytes *to, const char *value,
                        size_t size);
static bool is_readable(const struct line *line);
static bool pass_on(struct exchange *exchange, const void *data, size_t size);

/* Called by curl for each line of each head, also of those before the last, and of trailers. */
size_t exchange_take_line(char *line, size_t size, size_t count, void *user_data)
{
    struct exchange *exchange = user_data;
    size_t whole = size * count;
    bool worked;
    exchange_alive(exchange);
    if (exchange->head_sent) {
        /* A trailer. */
        worked = sbx_bytes_append(&exchange->trailers, line, whole);
    } else if (whole > 5 && memcmp(line, "HTTP/", 5) == 0) {
        worked = begin_head(exchange, line, whole);
    } else if (whole <= 2) {
        /* 1xx are curl's business; what it upgrades to was never asked for. */
        worked = exchange->status < 200 || whole_head(exchange);
    } else {
        worked = sbx_bytes_append(&exchange->lines, line, whole);
    }
    return worked ? whole : 0;
}

static bool begin_head(struct exchange *exchange, const char *line, size_t size)
{
    const char *blank = memchr(line, ' ', size);
    sbx_bytes_skip(&exchange->lines, sbx_bytes_size(&exchange->lines));
    exchange->status = 0;
    if (blank != NULL && line + size - blank > 4)
        for (int i = 1; i <= 3 && blank[i] >= '0' && blank[i] <= '9'; i++)
            exchange->status = exchange->status * 10 + (blank[i] - '0');
    const char *phrase =
        blank == NULL ? NULL : memchr(blank + 1, ' ', (size_t)(line + size - blank - 1));
    size_t phrase_size = phrase == NULL ? 0 : (size_t)(line + size - phrase - 1);
    while (phrase_size > 0 && phrase[phrase_size] < ' ')
        phrase_size--;
    snprintf(exchange->phrase, sizeof exchange->phrase, "%.*s", (int)phrase_size,
             phrase_size == 0 ? "" : phrase + 1);
    return exchange->status >= 100 && exchange->status <= 999;
}

/* Prints it for the guest. */
static bool whole_head(struct exchange *exchange)
{
    struct line line;
    bool decoded = false;
    struct sbx_bytes *output = &exchange->output;
    const char *place = (const char *)sbx_bytes_data(&exchange->lines);
    const char *end = place + sbx_bytes_size(&exchange->lines);
    if (!choose_frame(exchange, &decoded) ||
        !sbx_bytes_format(output, "HTTP/1.1 %d ", exchange->status) ||
        !print_value(exchange, output, exchange->phrase, strlen(exchange->phrase)) ||
        !sbx_bytes_append(output, "\r\n", 2))
        return false;
    while (next_line(&place, end, &line)) {
        bool framing = is_name(&line, "content-length") &&
                       (exchange->frame == FRAME_CHUNKED || exchange->frame == FRAME_CLOSE);
        if (framing || (decoded && is_name(&line, "content-encoding")) ||
            is_between_hops(exchange, &line))
            continue;
        if (!print_line(exchange, output, &line))
            return false;
    }
    if (exchange->frame == FRAME_CHUNKED &&
        !sbx_bytes_format(output, "Transfer-Encoding: chunked\r\n"))
        return false;
    if ((!exchange->keeps_alive || exchange->frame == FRAME_CLOSE) &&
        !sbx_bytes_format(output, "Connection: close\r\n"))
        return false;
    exchange->head_sent = sbx_bytes_append(output, "\r\n", 2);
    exchanges_flush_later(exchange->home, exchange);
    return exchange->head_sent;
}

/* How the guest learns where the body ends; and whether what is scrubbed can be read at all. */
static bool choose_frame(struct exchange *exchange, bool *decoded)
{
    struct line line;
    bool has_length = false;
    const char *place = (const char *)sbx_bytes_data(&exchange->lines);
    const char *end = place + sbx_bytes_size(&exchange->lines);
    bool has_body = !exchange->is_head && exchange->status != 204 && exchange->status != 304;
    while (next_line(&place, end, &line)) {
        if (is_name(&line, "content-length")) {
            /* Of two, each reader takes the one it likes. */
            if (has_length || !is_number(&line))
                exchange->failure = REASON_UPSTREAM_FAILED;
            has_length = true;
        }
        if (exchange->scrub == NULL || !has_body || !is_name(&line, "content-encoding"))
            continue;
        *decoded = true;
        if (!is_readable(&line))
            exchange->failure = REASON_CANNOT_SCRUB;
    }
    /* Two parts that were asked for apart may each hold half of a value. */
    if (exchange->scrub != NULL && exchange->status == 206)
        exchange->failure = REASON_CANNOT_SCRUB;
    if (!has_body)
        exchange->frame = FRAME_NONE;
    else if (has_length && exchange->scrub == NULL)
        exchange->frame = FRAME_LENGTH;
    else
        exchange->frame = exchange->is_http10 ? FRAME_CLOSE : FRAME_CHUNKED;
    return exchange->failure == REASON_COUNT;
}

/* Lines without a name are no fields and are left out. */
static bool next_line(const char **place, const char *end, struct line *line)
{
    while (*place < end) {
        const char *begin = *place, *stop = memchr(begin, '\n', (size_t)(end - begin));
        stop = stop == NULL ? end : stop;
        *place = stop < end ? stop + 1 : end;
        const char *colon = memchr(begin, ':', (size_t)(stop - begin));
        if (colon == NULL || colon == begin || *begin == ' ' || *begin == '\t')
            continue;
        const char *value = colon + 1;
        while (value < stop && (*value == ' ' || *value == '\t'))
            value++;
        while (stop > value && (stop[-1] == '\r' || stop[-1] == ' ' || stop[-1] == '\t'))
            stop--;
        *line = (struct line){begin, value, (size_t)(colon - begin), (size_t)(stop - value)};
        return true;
    }
    return false;
}

static bool is_name(const struct line *line, const char *name)
{
    return line->name_size == strlen(name) && strncasecmp(line->name, name, line->name_size) == 0;
}

static bool is_number(const struct line *line)
{
    for (size_t i = 0; i < line->value_size; i++)
        if (line->value[i] < '0' || line->value[i] > '9')
            return false;
    return line->value_size > 0;
}

static bool is_between_hops(struct exchange *exchange, const struct line *line)
{
    static const char *const names[] = {
        "connection", "keep-alive", "proxy-connection", "proxy-authenticate",
        "te",         "trailer",    "upgrade",          "transfer-encoding",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (is_name(line, names[i]))
            return true;
    struct line other;
    const char *place = (const char *)sbx_bytes_data(&exchange->lines);
    const char *end = place + sbx_bytes_size(&exchange->lines);
    while (next_line(&place, end, &other))
        if (is_name(&other, "connection") && names_it(other, line))
            return true;
    return false;
}

static bool names_it(struct line connection, const struct line *line)
{
    const char *place = connection.value, *end = place + connection.value_size;
    for (int i = 0; i < NAMES_MAX && place < end; i++) {
        const char *comma = memchr(place, ',', (size_t)(end - place));
        const char *stop = comma == NULL ? end : comma;
        while (place < stop && *place == ' ')
            place++;
        size_t size = (size_t)(stop - place);
        while (size > 0 && place[size - 1] == ' ')
            size--;
        if (size == line->name_size && strncasecmp(place, line->name, size) == 0)
            return true;
        place = comma == NULL ? end : comma + 1;
    }
    return false;
}

static bool print_line(struct exchange *exchange, struct sbx_bytes *to, const struct line *line)
{
    return sbx_bytes_append(to, line->name, line->name_size) && sbx_bytes_append(to, ": ", 2) &&
           print_value(exchange, to, line->value, line->value_size) &&
           sbx_bytes_append(to, "\r\n", 2);
}

static bool print_value(struct exchange *exchange, struct sbx_bytes *to, const char *value,
                        size_t size)
{
    if (exchange->scrub != NULL)
        return sbx_egress_scrub_text(exchange->scrub, value, size, to);
    return size == 0 || sbx_bytes_append(to, value, size);
}

/* What curl decodes. Anything else cannot be looked through. */
static bool is_readable(const struct line *line)
{
    static const char *const codings[] = {"identity", "gzip", "x-gzip", "deflate", "br", "zstd"};
    for (size_t i = 0; i < sizeof codings / sizeof codings[0]; i++)
        if (strlen(codings[i]) == line->value_size &&
            strncasecmp(line->value, codings[i], line->value_size) == 0)
            return true;
    return false;
}

size_t exchange_take_piece(char *piece, size_t size, size_t count, void *user_data)
{
    struct exchange *exchange = user_data;
    size_t whole = size * count;
    exchange_alive(exchange);
    if (sbx_bytes_size(&exchange->output) >= OUTPUT_HIGH) {
        exchange->output_waits = true;
        exchange_want(exchange);
        return CURL_WRITEFUNC_PAUSE;
    }
    if (exchange->scrub == NULL)
        return pass_on(exchange, piece, whole) ? whole : 0;
    SBX_ON_EXIT(sbx_bytes_wipe) struct sbx_bytes clean = SBX_BYTES(OUTPUT_MAX / 2);
    bool worked = sbx_egress_scrub_feed(exchange->scrub, piece, whole, &clean) &&
                  pass_on(exchange, sbx_bytes_data(&clean), sbx_bytes_size(&clean));
    return worked ? whole : 0;
}

/* In the answer's frame, and as much as goes at once. */
static bool pass_on(struct exchange *exchange, const void *data, size_t size)
{
    struct sbx_bytes *output = &exchange->output;
    bool chunked = exchange->frame == FRAME_CHUNKED;
    if (size == 0 || exchange->frame == FRAME_NONE)
        return true;
    if ((chunked && !sbx_bytes_format(output, "%zx\r\n", size)) ||
        !sbx_bytes_append(output, data, size) || (chunked && !sbx_bytes_append(output, "\r\n", 2)))
        return false;
    metrics.bytes_down += size;
    exchanges_flush_later(exchange->home, exchange);
    return sbx_bytes_size(output) < OUTPUT_HIGH / 2 || exchange_send(exchange);
}

bool exchange_finish_answer(struct exchange *exchange)
{
    struct line line;
    if (!exchange->head_sent)
        return false;
    if (exchange->scrub != NULL) {
        SBX_ON_EXIT(sbx_bytes_wipe) struct sbx_bytes clean = SBX_BYTES(OUTPUT_MAX / 2);
        if (!sbx_egress_scrub_end(exchange->scrub, &clean) ||
            !pass_on(exchange, sbx_bytes_data(&clean), sbx_bytes_size(&clean)))
            return false;
    }
    if (exchange->frame != FRAME_CHUNKED)
        return true;
    if (!sbx_bytes_append(&exchange->output, "0\r\n", 3))
        return false;
    const char *place = (const char *)sbx_bytes_data(&exchange->trailers);
    const char *end = place + sbx_bytes_size(&exchange->trailers);
    while (next_line(&place, end, &line)) {
        bool framing = is_name(&line, "content-length") || is_name(&line, "content-encoding");
        if (!framing && !is_between_hops(exchange, &line) &&
            !print_line(exchange, &exchange->output, &line))
            return false;
    }
    return sbx_bytes_append(&exchange->output, "\r\n", 2);
}

bool exchange_send(struct exchange *exchange)
{
    struct sbx_bytes *output = &exchange->output;
    while (sbx_bytes_size(output) > 0) {
        ssize_t sent = send(exchange->connection->client.fd, sbx_bytes_data(output),
                            sbx_bytes_size(output), MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            return true;
        if (sent <= 0) {
            exchange->guest_gone = true;
            return false;
        }
        sbx_bytes_skip(output, (size_t)sent);
        exchange_alive(exchange);
    }
    return true;
}
