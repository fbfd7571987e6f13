/* The head of a request, read strictly. */

#include "egress/head.h"
#include "egress/fields.h"

#include <string.h>

static bool bad(struct sbx_egress_refusal *refusal, const char *what);
static bool read_line(struct sbx_egress_text *rest, struct sbx_egress_text *line);
static bool read_request_line(struct sbx_egress_text line, struct sbx_egress_head *out,
                              struct sbx_egress_refusal *refusal);
static bool read_version(struct sbx_egress_text version, struct sbx_egress_head *out,
                         struct sbx_egress_refusal *refusal);
static bool is_target(struct sbx_egress_text target);
static bool read_field(struct sbx_egress_text line, struct sbx_egress_head *out,
                       struct sbx_egress_refusal *refusal);
static bool check(struct sbx_egress_head *out, struct sbx_egress_refusal *refusal);
static bool take_field(const struct sbx_egress_field *field, struct sbx_egress_head *out,
                       struct sbx_egress_text *length, struct sbx_egress_text *coding,
                       struct sbx_egress_refusal *refusal);
static bool check_framing(struct sbx_egress_head *out, struct sbx_egress_text length,
                          struct sbx_egress_text coding, struct sbx_egress_refusal *refusal);
static bool read_length(struct sbx_egress_text text, uint64_t *out);
static struct sbx_egress_text trim(struct sbx_egress_text text);

enum sbx_egress_head_state sbx_egress_head_scan(const char *data, size_t size, size_t *looked,
                                                struct sbx_egress_refusal *refusal)
{
    for (size_t i = *looked; i < size; i++) {
        unsigned char c = (unsigned char)data[i];
        bool after_return = i > 0 && data[i - 1] == '\r';
        if (i == SBX_EGRESS_HEAD_MAX) {
            sbx_egress_refuse(refusal, 431, SBX_EGRESS_BAD_REQUEST,
                              "the head of the request has more than %d bytes",
                              SBX_EGRESS_HEAD_MAX);
            return SBX_EGRESS_HEAD_BAD;
        }
        if ((c == '\n') != after_return) {
            bad(refusal, "a line of the request's head does not end with CR and LF");
            return SBX_EGRESS_HEAD_BAD;
        }
        if ((c < ' ' && c != '\r' && c != '\n' && c != '\t') || c == 0x7f) {
            bad(refusal, "the head of the request has a control byte");
            return SBX_EGRESS_HEAD_BAD;
        }
        if (c == '\n' && i >= 3 && data[i - 2] == '\n') {
            *looked = i + 1;
            return SBX_EGRESS_HEAD_WHOLE;
        }
        if (c == '\n' && i == 1) {
            bad(refusal, "the request begins with an empty line");
            return SBX_EGRESS_HEAD_BAD;
        }
    }
    *looked = size;
    return SBX_EGRESS_HEAD_MORE;
}

bool sbx_egress_head_parse(const char *data, size_t size, struct sbx_egress_head *out,
                           struct sbx_egress_refusal *refusal)
{
    size_t looked = 0;
    enum sbx_egress_head_state state = sbx_egress_head_scan(data, size, &looked, refusal);
    if (state == SBX_EGRESS_HEAD_BAD)
        return false;
    if (state == SBX_EGRESS_HEAD_MORE || looked != size)
        return bad(refusal, "the head of the request is not whole");

    memset(out, 0, sizeof *out);
    struct sbx_egress_text rest = {data, size};
    struct sbx_egress_text line;
    if (!read_line(&rest, &line) || !read_request_line(line, out, refusal))
        return false;
    while (read_line(&rest, &line) && line.size > 0) {
        if (out->field_count == SBX_EGRESS_FIELDS_MAX) {
            sbx_egress_refuse(refusal, 431, SBX_EGRESS_BAD_REQUEST,
                              "the request has more than %d fields", SBX_EGRESS_FIELDS_MAX);
            return false;
        }
        if (!read_field(line, out, refusal))
            return false;
    }
    return check(out, refusal);
}

static bool bad(struct sbx_egress_refusal *refusal, const char *what)
{
    sbx_egress_refuse(refusal, 400, SBX_EGRESS_BAD_REQUEST, "%s", what);
    return false;
}

/* The scan has found that every line ends in the one right way. */
static bool read_line(struct sbx_egress_text *rest, struct sbx_egress_text *line)
{
    const char *end = rest->size == 0 ? NULL : memchr(rest->data, '\r', rest->size);
    if (end == NULL)
        return false;
    *line = (struct sbx_egress_text){rest->data, (size_t)(end - rest->data)};
    rest->data = end + 2;
    rest->size -= line->size + 2;
    return true;
}

static bool read_request_line(struct sbx_egress_text line, struct sbx_egress_head *out,
                              struct sbx_egress_refusal *refusal)
{
    const char *first = memchr(line.data, ' ', line.size);
    if (first == NULL)
        return bad(refusal, "the request's line is not method, target, version");
    const char *end = line.data + line.size;
    const char *second = memchr(first + 1, ' ', (size_t)(end - first - 1));
    if (second == NULL)
        return bad(refusal, "the request's line is not method, target, version");

    out->method = (struct sbx_egress_text){line.data, (size_t)(first - line.data)};
    out->target = (struct sbx_egress_text){first + 1, (size_t)(second - first - 1)};
    struct sbx_egress_text version = {second + 1, (size_t)(end - second - 1)};
    if (!sbx_egress_is_method(out->method))
        return bad(refusal, "the method is not in upper case, or no method");
    if (!read_version(version, out, refusal))
        return false;
    if (!is_target(out->target))
        return bad(refusal, "the target has a byte that belongs into no target");
    return true;
}

static bool read_version(struct sbx_egress_text version, struct sbx_egress_head *out,
                         struct sbx_egress_refusal *refusal)
{
    const char *text = version.data;
    bool is_digits = version.size == 8 && memcmp(text, "HTTP/", 5) == 0 && text[5] >= '0' &&
                     text[5] <= '9' && text[6] == '.' && text[7] >= '0' && text[7] <= '9';
    if (!is_digits)
        return bad(refusal, "the version is no version of HTTP");
    if (text[5] != '1' || text[7] > '1') {
        sbx_egress_refuse(refusal, 505, SBX_EGRESS_BAD_REQUEST, "only HTTP/1.1 and 1.0 are spoken");
        return false;
    }
    out->minor = (unsigned)(text[7] - '0');
    return true;
}

static bool is_target(struct sbx_egress_text target)
{
    for (size_t i = 0; i < target.size; i++)
        if (target.data[i] <= ' ' || target.data[i] > '~' || target.data[i] == '#')
            return false;
    return target.size > 0;
}

static bool read_field(struct sbx_egress_text line, struct sbx_egress_head *out,
                       struct sbx_egress_refusal *refusal)
{
    const char *colon = memchr(line.data, ':', line.size);
    if (line.data[0] == ' ' || line.data[0] == '\t')
        return bad(refusal, "a field goes on in a second line");
    if (colon == NULL)
        return bad(refusal, "a field has no colon");
    struct sbx_egress_field field = {.name = {line.data, (size_t)(colon - line.data)}};
    field.value = trim((struct sbx_egress_text){colon + 1, line.size - field.name.size - 1});
    if (!sbx_egress_is_token(field.name))
        return bad(refusal, "a field's name is no name, or a blank stands before its colon");
    if (!sbx_egress_is_value(field.value))
        return bad(refusal, "a field has a control byte");
    out->fields[out->field_count++] = field;
    return true;
}

static bool check(struct sbx_egress_head *out, struct sbx_egress_refusal *refusal)
{
    struct sbx_egress_text length = {NULL, 0};
    struct sbx_egress_text coding = {NULL, 0};
    out->keeps_alive = out->minor == 1;
    for (size_t i = 0; i < out->field_count; i++)
        if (!take_field(&out->fields[i], out, &length, &coding, refusal))
            return false;
    if (out->minor == 1 && out->host.data == NULL)
        return bad(refusal, "the Host field is missing");
    if (!check_framing(out, length, coding, refusal))
        return false;
    if (sbx_egress_text_is(out->method, "TRACE") || sbx_egress_text_is(out->method, "TRACK")) {
        sbx_egress_refuse(refusal, 405, SBX_EGRESS_BAD_REQUEST,
                          "a method that sends the request back is not passed on");
        return false;
    }
    return true;
}

static bool take_field(const struct sbx_egress_field *field, struct sbx_egress_head *out,
                       struct sbx_egress_text *length, struct sbx_egress_text *coding,
                       struct sbx_egress_refusal *refusal)
{
    static const struct sbx_egress_text close = {"close", 5};
    static const struct sbx_egress_text keep_alive = {"keep-alive", 10};
    if (sbx_egress_text_is(field->name, "host")) {
        if (out->host.data != NULL)
            return bad(refusal, "the Host field is there twice");
        out->host = field->value;
    } else if (sbx_egress_text_is(field->name, "content-length")) {
        if (length->data != NULL)
            return bad(refusal, "Content-Length is there twice");
        *length = field->value;
    } else if (sbx_egress_text_is(field->name, "transfer-encoding")) {
        if (coding->data != NULL)
            return bad(refusal, "Transfer-Encoding is there twice");
        *coding = field->value;
    } else if (sbx_egress_text_is(field->name, "expect")) {
        if (!sbx_egress_text_is(field->value, "100-continue"))
            return bad(refusal, "something else than 100-continue is expected");
        out->expects_continue = out->minor == 1;
    } else if (sbx_egress_text_is(field->name, "connection") ||
               sbx_egress_text_is(field->name, "proxy-connection")) {
        if (sbx_egress_list_has(field->value, close))
            out->keeps_alive = false;
        else if (out->minor == 0 && sbx_egress_list_has(field->value, keep_alive))
            out->keeps_alive = true;
    }
    return true;
}

static bool check_framing(struct sbx_egress_head *out, struct sbx_egress_text length,
                          struct sbx_egress_text coding, struct sbx_egress_refusal *refusal)
{
    if (coding.data != NULL) {
        if (length.data != NULL)
            return bad(refusal, "Content-Length and Transfer-Encoding stand side by side");
        if (out->minor == 0)
            return bad(refusal, "HTTP/1.0 has no Transfer-Encoding");
        if (sbx_egress_text_is(coding, "identity")) {
            sbx_egress_refuse(refusal, 501, SBX_EGRESS_BAD_REQUEST,
                              "the only Transfer-Encoding taken is chunked");
            return false;
        }
        if (!sbx_egress_text_is(coding, "chunked"))
            return bad(refusal, "the only Transfer-Encoding taken is chunked");
        out->body = SBX_EGRESS_BODY_CHUNKED;
    } else if (length.data != NULL) {
        if (!read_length(length, &out->body_size))
            return bad(refusal, "Content-Length is no plain number");
        out->body = out->body_size == 0 ? SBX_EGRESS_BODY_NONE : SBX_EGRESS_BODY_LENGTH;
    }
    return true;
}

/* At most 18 digits: it stays below 2^63 everywhere. */
static bool read_length(struct sbx_egress_text text, uint64_t *out)
{
    uint64_t number = 0;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return false;
        number = number * 10 + (uint64_t)(text.data[i] - '0');
    }
    *out = number;
    return text.size > 0 && text.size <= 18;
}

static struct sbx_egress_text trim(struct sbx_egress_text text)
{
    while (text.size > 0 && (text.data[0] == ' ' || text.data[0] == '\t')) {
        text.data++;
        text.size--;
    }
    while (text.size > 0 && (text.data[text.size - 1] == ' ' || text.data[text.size - 1] == '\t'))
        text.size--;
    return text;
}
