/* The forms in which a server may show a value that it was sent. */

#include "egress/scrub_parts.h"
#include "util/base64.h"
#include "util/memory.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char removed[] = "[removed]";
static const char plain_base64[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char url_base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
static const char lower_hex[] = "0123456789abcdef";
static const char upper_hex[] = "0123456789ABCDEF";

static bool add_value(struct sbx_egress_scrub *scrub, struct sbx_egress_text value,
                      struct sbx_egress_text placeholder);
static bool add_basic(struct sbx_egress_scrub *scrub, struct sbx_egress_text token);
static bool is_basic(struct sbx_egress_text value);
static struct sbx_egress_text token_of(struct sbx_egress_text value);
static void add_forms(struct sbx_egress_scrub *scrub, struct sbx_egress_text value,
                      struct sbx_egress_text replacement);
static void add(struct sbx_egress_scrub *scrub, size_t size, struct sbx_egress_text replacement);
static void mark(struct sbx_egress_scrub *scrub, const struct egress_needle *needle);
static struct sbx_egress_text copy(struct sbx_egress_scrub *scrub, struct sbx_egress_text text);
static size_t write_base64(uint8_t *out, struct sbx_egress_text value, size_t offset,
                           const char *alphabet);
static size_t write_hex(uint8_t *out, struct sbx_egress_text value, const char *digits);
static size_t write_percent(uint8_t *out, struct sbx_egress_text value, const char *digits);
static size_t write_json(uint8_t *out, struct sbx_egress_text value, bool escapes_slash);

size_t sbx_egress_forms_texts(struct sbx_egress_text value)
{
    if (token_of(value).data == NULL)
        return 1;
    return is_basic(value) ? 4 : 2;
}

size_t sbx_egress_forms_room(struct sbx_egress_text value)
{
    size_t of_each = value.size /* as it is */ + 6 * (value.size * 4 / 3 + 4) /* base64 */ +
                     2 * 2 * value.size /* hexadecimal */ + 2 * 3 * value.size /* percent */ +
                     2 * 2 * value.size /* JSON */ +
                     (value.size + 2 * sizeof removed) /* what replaces them */;
    return sbx_egress_forms_texts(value) * of_each;
}

bool sbx_egress_forms_add(struct sbx_egress_scrub *scrub, const struct sbx_egress_rule *rule)
{
    for (size_t i = 0; i < sbx_egress_rule_set_count(rule); i++)
        if (!add_value(scrub, sbx_egress_rule_set_at(rule, i).value,
                       sbx_egress_rule_placeholder(rule, i)))
            return false;
    return true;
}

static bool add_value(struct sbx_egress_scrub *scrub, struct sbx_egress_text value,
                      struct sbx_egress_text placeholder)
{
    struct sbx_egress_text none = {removed, sizeof removed - 1};
    struct sbx_egress_text token = token_of(value);
    struct sbx_egress_text shown = placeholder.data == NULL ? none : token_of(placeholder);
    /* A placeholder much longer than the value would make answers grow without a bound. */
    if (placeholder.data == NULL || placeholder.size > value.size + sizeof removed)
        placeholder = none;
    if (shown.data == NULL || shown.size > token.size + sizeof removed)
        shown = none;
    add_forms(scrub, value, placeholder);
    if (token.data == NULL)
        return true;
    add_forms(scrub, token, shown);
    if (is_basic(value))
        return add_basic(scrub, token);
    return true;
}

static bool add_basic(struct sbx_egress_scrub *scrub, struct sbx_egress_text token)
{
    struct sbx_egress_text none = {removed, sizeof removed - 1};
    char *text = sbx_copy_bytes(token.data, token.size);
    uint8_t *decoded = NULL;
    size_t size = 0;
    sandbox_status status =
        text == NULL ? SANDBOX_NO_MEMORY : sbx_base64_parse(text, &decoded, &size, NULL);
    sbx_secret_free(text);
    if (status != SANDBOX_OK)
        return status != SANDBOX_NO_MEMORY; /* no base64: then nobody decodes it either */
    struct sbx_egress_text pair = {(const char *)decoded, size};
    add_forms(scrub, pair, none);
    const char *colon = size == 0 ? NULL : memchr(pair.data, ':', size);
    if (colon != NULL)
        add_forms(scrub,
                  (struct sbx_egress_text){colon + 1, size - (size_t)(colon + 1 - pair.data)},
                  none);
    sbx_wipe(decoded, size);
    free(decoded);
    return true;
}

static bool is_basic(struct sbx_egress_text value)
{
    return value.size > 6 && strncasecmp(value.data, "basic ", 6) == 0;
}

/* What stands behind the scheme ("Bearer …"), or NULL data. */
static struct sbx_egress_text token_of(struct sbx_egress_text value)
{
    const char *blank = memchr(value.data, ' ', value.size);
    if (blank == NULL)
        return (struct sbx_egress_text){NULL, 0};
    const char *end = value.data + value.size;
    while (blank < end && *blank == ' ')
        blank++;
    return (struct sbx_egress_text){blank, (size_t)(end - blank)};
}

static void add_forms(struct sbx_egress_scrub *scrub, struct sbx_egress_text value,
                      struct sbx_egress_text replacement)
{
    if (value.size < SBX_EGRESS_SCRUB_MIN)
        return;
    struct sbx_egress_text shown = copy(scrub, replacement);
    struct sbx_egress_text none =
        copy(scrub, (struct sbx_egress_text){removed, sizeof removed - 1});

    memcpy(scrub->texts + scrub->used, value.data, value.size);
    add(scrub, value.size, shown);
    for (size_t offset = 0; offset < 3; offset++) {
        add(scrub, write_base64(scrub->texts + scrub->used, value, offset, plain_base64), none);
        add(scrub, write_base64(scrub->texts + scrub->used, value, offset, url_base64), none);
    }
    add(scrub, write_hex(scrub->texts + scrub->used, value, lower_hex), none);
    add(scrub, write_hex(scrub->texts + scrub->used, value, upper_hex), none);
    add(scrub, write_percent(scrub->texts + scrub->used, value, lower_hex), none);
    add(scrub, write_percent(scrub->texts + scrub->used, value, upper_hex), none);
    add(scrub, write_json(scrub->texts + scrub->used, value, false), none);
    add(scrub, write_json(scrub->texts + scrub->used, value, true), none);
}

/* What was written behind the texts becomes a needle, if it is a new one. */
static void add(struct sbx_egress_scrub *scrub, size_t size, struct sbx_egress_text replacement)
{
    struct egress_needle needle = {scrub->texts + scrub->used, size, replacement.data,
                                   replacement.size};
    for (size_t i = 0; i < scrub->count; i++)
        if (scrub->needles[i].size == size &&
            memcmp(scrub->needles[i].data, needle.data, size) == 0)
            return;
    mark(scrub, &needle);
    scrub->needles[scrub->count++] = needle;
    scrub->used += size;
    if (size > scrub->longest)
        scrub->longest = size;
}

static void mark(struct sbx_egress_scrub *scrub, const struct egress_needle *needle)
{
    unsigned pair = EGRESS_PAIR(needle->data);
    scrub->pairs[pair / 8] |= (uint8_t)(1U << pair % 8);
    scrub->firsts[needle->data[0] / 8] |= (uint8_t)(1U << needle->data[0] % 8);
}

static struct sbx_egress_text copy(struct sbx_egress_scrub *scrub, struct sbx_egress_text text)
{
    char *at = (char *)scrub->texts + scrub->used;
    memcpy(at, text.data, text.size);
    scrub->used += text.size;
    return (struct sbx_egress_text){at, text.size};
}

/*
 * With `offset` unknown bytes in front and unknown ones behind: only the letters that depend on
 * nothing else.
 */
static size_t write_base64(uint8_t *out, struct sbx_egress_text value, size_t offset,
                           const char *alphabet)
{
    size_t first = (offset * 8 + 5) / 6;
    size_t last = (offset + value.size) * 8 / 6;
    for (size_t letter = first; letter < last; letter++) {
        size_t bit = letter * 6 - offset * 8;
        unsigned high = (uint8_t)value.data[bit / 8];
        unsigned low = bit / 8 + 1 < value.size ? (uint8_t)value.data[bit / 8 + 1] : 0;
        out[letter - first] = (uint8_t)alphabet[((high << 8 | low) >> (10 - bit % 8)) & 63];
    }
    return last - first;
}

static size_t write_hex(uint8_t *out, struct sbx_egress_text value, const char *digits)
{
    for (size_t i = 0; i < value.size; i++) {
        out[2 * i] = (uint8_t)digits[(uint8_t)value.data[i] >> 4];
        out[2 * i + 1] = (uint8_t)digits[(uint8_t)value.data[i] & 15];
    }
    return 2 * value.size;
}

static size_t write_percent(uint8_t *out, struct sbx_egress_text value, const char *digits)
{
    size_t size = 0;
    for (size_t i = 0; i < value.size; i++) {
        char c = value.data[i];
        if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
            strchr("-_.~", c) != NULL) {
            out[size++] = (uint8_t)c;
        } else {
            out[size++] = '%';
            out[size++] = (uint8_t)digits[(uint8_t)c >> 4];
            out[size++] = (uint8_t)digits[(uint8_t)c & 15];
        }
    }
    return size;
}

static size_t write_json(uint8_t *out, struct sbx_egress_text value, bool escapes_slash)
{
    size_t size = 0;
    for (size_t i = 0; i < value.size; i++) {
        char c = value.data[i];
        if (c == '"' || c == '\\' || (c == '/' && escapes_slash))
            out[size++] = '\\';
        out[size++] = (uint8_t)c;
    }
    return size;
}
