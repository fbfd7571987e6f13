/* Rules that put real credentials into requests: what they match, and what they set. */

#include "egress/rules_parts.h"
#include "egress/rules_regex.h"
#include "util/locked.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define REGEX_TEXT_MAX 4096 /* longer texts match no expression */

static void free_matcher(struct egress_matcher *matcher);
static bool has_method(const struct sbx_egress_rule *rule, struct sbx_egress_text method);
static bool fits(const struct egress_matcher *matcher, struct sbx_egress_text text);
static bool has_field(const struct egress_pair *pair, const struct sbx_egress_subject *subject);
static bool has_parameter(const struct egress_pair *pair, struct sbx_egress_text query);
static bool parameter_is(const struct egress_pair *pair, struct sbx_egress_text parameter);
static bool decode(struct sbx_egress_text text, char *out, size_t room, size_t *size);
static int hex_digit(char c);
static struct sbx_egress_text cut(struct sbx_egress_text *rest, char at);
static bool same_name(struct sbx_egress_text one, struct sbx_egress_text other);

struct sbx_egress_rule *sbx_egress_rule_keep(struct sbx_egress_rule *rule)
{
    atomic_fetch_add(&rule->references, 1);
    return rule;
}

void sbx_egress_rule_drop(struct sbx_egress_rule *rule)
{
    if (rule == NULL || atomic_fetch_sub(&rule->references, 1) != 1)
        return;
    free_matcher(&rule->path);
    for (size_t i = 0; i < rule->query_count; i++)
        free_matcher(&rule->queries[i].value);
    for (size_t i = 0; i < rule->header_count; i++)
        free_matcher(&rule->headers[i].value);
    sbx_locked_free(rule->texts);
    free(rule);
}

const struct sbx_egress_host *sbx_egress_rule_host(const struct sbx_egress_rule *rule)
{
    return &rule->host;
}

bool sbx_egress_rule_matches(const struct sbx_egress_rule *rule,
                             const struct sbx_egress_subject *subject)
{
    struct sbx_egress_text query = subject->path;
    struct sbx_egress_text path = cut(&query, '?');
    if (!has_method(rule, subject->method) || !fits(&rule->path, path))
        return false;
    for (size_t i = 0; i < rule->query_count; i++)
        if (!has_parameter(&rule->queries[i], query))
            return false;
    for (size_t i = 0; i < rule->header_count; i++)
        if (!has_field(&rule->headers[i], subject))
            return false;
    return true;
}

bool sbx_egress_rule_has_path(const struct sbx_egress_rule *rule)
{
    return rule->path.kind != MATCH_ANY;
}

bool sbx_egress_rule_uses(const struct sbx_egress_rule *rule, struct sbx_egress_text name)
{
    for (size_t i = 0; i < rule->header_count; i++)
        if (same_name(rule->headers[i].name, name))
            return true;
    for (size_t i = 0; i < rule->set_count; i++)
        if (same_name(rule->sets[i].name, name))
            return true;
    return false;
}

size_t sbx_egress_rule_set_count(const struct sbx_egress_rule *rule)
{
    return rule->set_count;
}

struct sbx_egress_field sbx_egress_rule_set_at(const struct sbx_egress_rule *rule, size_t index)
{
    return rule->sets[index];
}

struct sbx_egress_text sbx_egress_rule_placeholder(const struct sbx_egress_rule *rule, size_t index)
{
    for (size_t i = 0; i < rule->header_count; i++)
        if (rule->headers[i].value.kind == MATCH_EXACT &&
            same_name(rule->headers[i].name, rule->sets[index].name))
            return rule->headers[i].value.text;
    return (struct sbx_egress_text){NULL, 0};
}

bool sbx_egress_path_is_ambiguous(struct sbx_egress_text path)
{
    struct sbx_egress_text query = path;
    struct sbx_egress_text rest = cut(&query, '?');
    for (size_t i = 0; i < rest.size; i++)
        if (rest.data[i] == '\\' ||
            (rest.data[i] == '%' && rest.size - i >= 3 &&
             (strncasecmp(rest.data + i, "%2f", 3) == 0 ||
              strncasecmp(rest.data + i, "%5c", 3) == 0 || /* a backslash */
              strncasecmp(rest.data + i, "%2e", 3) == 0 || strncmp(rest.data + i, "%00", 3) == 0)))
            return true;
    for (bool is_first = true; rest.size > 0 || is_first; is_first = false) {
        struct sbx_egress_text segment = cut(&rest, '/');
        /* Some servers cut what stands behind a semicolon off first. */
        struct sbx_egress_text name = segment;
        name = cut(&name, ';');
        if ((name.size == 1 && name.data[0] == '.') ||
            (name.size == 2 && memcmp(name.data, "..", 2) == 0))
            return true;
        /* An empty one inside is left out by some. */
        if (segment.size == 0 && !is_first && rest.size > 0)
            return true;
    }
    return false;
}

cJSON *sbx_egress_rule_tell(const struct sbx_egress_rule *rule)
{
    cJSON *told = cJSON_CreateObject();
    cJSON *names = NULL;
    bool done = cJSON_AddStringToObject(told, "host", rule->host.name) != NULL &&
                (names = cJSON_AddArrayToObject(told, "headers")) != NULL &&
                cJSON_AddStringToObject(told, "digest", rule->digest) != NULL;
    for (size_t i = 0; done && i < rule->set_count; i++) {
        cJSON *name = cJSON_CreateString(rule->sets[i].name.data);
        done = cJSON_AddItemToArray(names, name) != 0;
    }
    if (!done) {
        cJSON_Delete(told);
        return NULL;
    }
    return told;
}

bool sbx_egress_text_equal(struct sbx_egress_text one, struct sbx_egress_text other)
{
    return one.size == other.size && (one.size == 0 || memcmp(one.data, other.data, one.size) == 0);
}

static void free_matcher(struct egress_matcher *matcher)
{
    sbx_egress_regex_free(matcher->regex);
}

static bool has_method(const struct sbx_egress_rule *rule, struct sbx_egress_text method)
{
    for (size_t i = 0; i < rule->method_count; i++)
        if (sbx_egress_text_equal(rule->methods[i], method))
            return true;
    return rule->method_count == 0;
}

static bool fits(const struct egress_matcher *matcher, struct sbx_egress_text text)
{
    char whole[REGEX_TEXT_MAX + 1];
    switch (matcher->kind) {
    case MATCH_ANY:
        return true;
    case MATCH_EXACT:
        return sbx_egress_text_equal(matcher->text, text);
    case MATCH_START:
        return text.size >= matcher->text.size &&
               memcmp(text.data, matcher->text.data, matcher->text.size) == 0;
    case MATCH_REGEX:
        break;
    }
    if (text.size > REGEX_TEXT_MAX)
        return false;
    if (text.size > 0)
        memcpy(whole, text.data, text.size);
    whole[text.size] = '\0';
    /* A NUL inside, out of "%00", would let the expression see only what stands before it. */
    return strlen(whole) == text.size && sbx_egress_regex_fits(matcher->regex, whole);
}

static bool has_field(const struct egress_pair *pair, const struct sbx_egress_subject *subject)
{
    for (size_t i = 0; i < subject->field_count; i++)
        if (same_name(pair->name, subject->fields[i].name) &&
            fits(&pair->value, subject->fields[i].value))
            return true;
    return false;
}

static bool has_parameter(const struct egress_pair *pair, struct sbx_egress_text query)
{
    while (query.size > 0)
        if (parameter_is(pair, cut(&query, '&')))
            return true;
    return false;
}

static bool parameter_is(const struct egress_pair *pair, struct sbx_egress_text parameter)
{
    char decoded[REGEX_TEXT_MAX];
    size_t size = 0;
    struct sbx_egress_text value = parameter;
    struct sbx_egress_text name = cut(&value, '=');
    if (!decode(name, decoded, sizeof decoded, &size) ||
        !sbx_egress_text_equal(pair->name, (struct sbx_egress_text){decoded, size}))
        return false;
    return decode(value, decoded, sizeof decoded, &size) &&
           fits(&pair->value, (struct sbx_egress_text){decoded, size});
}

/* As forms are: percent signs, and plus for a blank. What is neither is matched by nothing. */
static bool decode(struct sbx_egress_text text, char *out, size_t room, size_t *size)
{
    *size = 0;
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i] == '+' ? ' ' : text.data[i];
        if (text.data[i] == '%') {
            int high = text.size - i < 3 ? -1 : hex_digit(text.data[i + 1]);
            int low = text.size - i < 3 ? -1 : hex_digit(text.data[i + 2]);
            if (high < 0 || low < 0)
                return false;
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (*size == room)
            return false;
        out[(*size)++] = c;
    }
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* What stands before the first of that byte; `rest` is what stands behind it. */
static struct sbx_egress_text cut(struct sbx_egress_text *rest, char at)
{
    const char *found = rest->size == 0 ? NULL : memchr(rest->data, at, rest->size);
    struct sbx_egress_text before = *rest;
    if (found == NULL) {
        rest->data += rest->size;
        rest->size = 0;
    } else {
        before.size = (size_t)(found - rest->data);
        rest->data = found + 1;
        rest->size -= before.size + 1;
    }
    return before;
}

static bool same_name(struct sbx_egress_text one, struct sbx_egress_text other)
{
    return one.size == other.size && strncasecmp(one.data, other.data, one.size) == 0;
}
