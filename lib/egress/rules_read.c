/* One of the admin API's transformations, read and checked: what is wrong with it is told at once.
 */

#include "egress/fields.h"
#include "egress/policy.h"
#include "egress/rules_parts.h"
#include "egress/rules_regex.h"
#include "util/digest.h"
#include "util/fail.h"
#include "util/locked.h"
#include "util/memory.h"
#include "util/random.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Which of the matchers a place may have, and under which names. */
struct names {
    const char *exact, *starts_with, *regex;
};

static const struct names plain_names = {"exact", "starts_with", "regex"};
static const struct names value_names = {"value_exact", "value_starts_with", "value_regex"};

static size_t text_room(const cJSON *json);
static struct sbx_egress_text store(struct sbx_egress_rule *rule, char kind, const char *text);
static sandbox_status read_all(struct sbx_egress_rule *rule, const cJSON *json,
                               sandbox_error *error);
static sandbox_status read_host(struct sbx_egress_rule *rule, const cJSON *match,
                                sandbox_error *error);
static sandbox_status read_methods(struct sbx_egress_rule *rule, const cJSON *match,
                                   sandbox_error *error);
static sandbox_status read_path(struct sbx_egress_rule *rule, const cJSON *match,
                                sandbox_error *error);
static sandbox_status read_pairs(struct sbx_egress_rule *rule, const cJSON *match, const char *what,
                                 struct egress_pair *pairs, size_t *count, sandbox_error *error);
static sandbox_status read_pair(struct sbx_egress_rule *rule, const cJSON *json, const char *what,
                                struct egress_pair *pair, sandbox_error *error);
static sandbox_status read_matcher(struct sbx_egress_rule *rule, const cJSON *json,
                                   const char *what, const struct names *names,
                                   struct egress_matcher *matcher, sandbox_error *error);
static sandbox_status read_sets(struct sbx_egress_rule *rule, const cJSON *set,
                                sandbox_error *error);
static sandbox_status wrong(sandbox_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void drop(struct sbx_egress_rule **rule);

sandbox_status sbx_egress_rule_read(const cJSON *json, const uint8_t key[SBX_EGRESS_DIGEST_KEY],
                                    struct sbx_egress_rule **out, sandbox_error *error)
{
    SBX_ON_EXIT(drop) struct sbx_egress_rule *rule = calloc(1, sizeof *rule);
    if (rule == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a transformation");
    rule->references = 1;
    rule->room = text_room(json) + SBX_EGRESS_NAME_MAX + 3;
    rule->texts = sbx_locked_new(rule->room);
    if (rule->texts == NULL)
        return sbx_fail_for(error, SANDBOX_LIMIT, SBX_EGRESS_LIMIT,
                            "no more memory may be locked for credentials");

    sandbox_status status = read_all(rule, json, error);
    if (status != SANDBOX_OK)
        return status;
    uint8_t digest[SBX_DIGEST_BYTES];
    if (!sbx_hmac_sha256(key, SBX_EGRESS_DIGEST_KEY, rule->texts, rule->used, digest))
        return sbx_fail(error, SANDBOX_FAILED, "a transformation's digest could not be made");
    sbx_hex_print(digest, (SBX_EGRESS_DIGEST_TEXT - 1) / 2, rule->digest);
    *out = sbx_take(rule);
    return SANDBOX_OK;
}

/* Room for every text and name in it, each with its letter and its end. */
static size_t text_room(const cJSON *json)
{
    size_t room = 0;
    if (json == NULL)
        return 0;
    if (json->string != NULL)
        room += strlen(json->string) + 2;
    if (json->valuestring != NULL)
        room += strlen(json->valuestring) + 2;
    for (const cJSON *child = json->child; child != NULL; child = child->next)
        room += text_room(child);
    return room;
}

static struct sbx_egress_text store(struct sbx_egress_rule *rule, char kind, const char *text)
{
    size_t size = strlen(text);
    if (rule->room - rule->used < size + 2)
        return (struct sbx_egress_text){"", 0};
    char *at = rule->texts + rule->used;
    at[0] = kind;
    memcpy(at + 1, text, size + 1);
    rule->used += size + 2;
    return (struct sbx_egress_text){at + 1, size};
}

static sandbox_status read_all(struct sbx_egress_rule *rule, const cJSON *json,
                               sandbox_error *error)
{
    static const char *const members[] = {"match", "set"};
    static const char *const matches[] = {"host", "method", "path", "query", "headers"};
    const cJSON *match = cJSON_GetObjectItemCaseSensitive(json, "match");
    sandbox_status status = sbx_egress_json_members(json, "the transformation", members, 2, error);
    if (status == SANDBOX_OK && match == NULL)
        status = wrong(error, "match is missing");
    if (status == SANDBOX_OK)
        status = sbx_egress_json_members(match, "match", matches, 5, error);
    if (status == SANDBOX_OK)
        status = read_host(rule, match, error);
    if (status == SANDBOX_OK)
        status = read_methods(rule, match, error);
    if (status == SANDBOX_OK)
        status = read_path(rule, match, error);
    if (status == SANDBOX_OK)
        status = read_pairs(rule, match, "query", rule->queries, &rule->query_count, error);
    if (status == SANDBOX_OK)
        status = read_pairs(rule, match, "headers", rule->headers, &rule->header_count, error);
    if (status == SANDBOX_OK)
        status = read_sets(rule, cJSON_GetObjectItemCaseSensitive(json, "set"), error);
    return status;
}

static sandbox_status read_host(struct sbx_egress_rule *rule, const cJSON *match,
                                sandbox_error *error)
{
    const char *host = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(match, "host"));
    if (host == NULL)
        return wrong(error, "match.host is missing");
    if (strchr(host, '*') != NULL)
        return wrong(error, "match.host is a pattern; a credential belongs to exactly one host");
    const char *fault = sbx_egress_host_read(host, strlen(host), &rule->host);
    if (fault != NULL)
        return wrong(error, "match.host: %s", fault);
    if (rule->host.is_literal)
        return wrong(error, "match.host is an address; a credential belongs to a name");
    store(rule, 'h', rule->host.name);
    return SANDBOX_OK;
}

static sandbox_status read_methods(struct sbx_egress_rule *rule, const cJSON *match,
                                   sandbox_error *error)
{
    const cJSON *methods = cJSON_GetObjectItemCaseSensitive(match, "method");
    if (methods == NULL)
        return SANDBOX_OK;
    if (!cJSON_IsArray(methods) || methods->child == NULL ||
        cJSON_GetArraySize(methods) > SBX_EGRESS_MATCHES_MAX)
        return wrong(error, "match.method is no list of 1 to %d methods", SBX_EGRESS_MATCHES_MAX);
    for (const cJSON *method = methods->child; method != NULL; method = method->next) {
        const char *text = cJSON_GetStringValue(method);
        if (text == NULL || !sbx_egress_is_method((struct sbx_egress_text){text, strlen(text)}))
            return wrong(error, "match.method: one of them is no method in upper case");
        rule->methods[rule->method_count++] = store(rule, 'm', text);
    }
    return SANDBOX_OK;
}

static sandbox_status read_path(struct sbx_egress_rule *rule, const cJSON *match,
                                sandbox_error *error)
{
    const cJSON *path = cJSON_GetObjectItemCaseSensitive(match, "path");
    if (path == NULL)
        return SANDBOX_OK;
    static const char *const members[] = {"exact", "starts_with", "regex"};
    sandbox_status status = sbx_egress_json_members(path, "match.path", members, 3, error);
    if (status == SANDBOX_OK)
        status = read_matcher(rule, path, "match.path", &plain_names, &rule->path, error);
    if (status != SANDBOX_OK)
        return status;
    if (rule->path.kind == MATCH_ANY)
        return wrong(error, "match.path has neither exact nor starts_with nor regex");
    if (rule->path.kind != MATCH_REGEX && rule->path.text.data[0] != '/')
        return wrong(error, "match.path does not begin with '/'");
    return SANDBOX_OK;
}

static sandbox_status read_pairs(struct sbx_egress_rule *rule, const cJSON *match, const char *what,
                                 struct egress_pair *pairs, size_t *count, sandbox_error *error)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(match, what);
    if (list == NULL)
        return SANDBOX_OK;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) > SBX_EGRESS_MATCHES_MAX)
        return wrong(error, "match.%s is no list of at most %d", what, SBX_EGRESS_MATCHES_MAX);
    for (const cJSON *item = list->child; item != NULL; item = item->next) {
        /* Counted first: what a failed one has compiled is freed with the rule. */
        struct egress_pair *pair = &pairs[(*count)++];
        sandbox_status status = read_pair(rule, item, what, pair, error);
        if (status != SANDBOX_OK)
            return status;
    }
    return SANDBOX_OK;
}

static sandbox_status read_pair(struct sbx_egress_rule *rule, const cJSON *json, const char *what,
                                struct egress_pair *pair, sandbox_error *error)
{
    static const char *const members[] = {"name", "value_exact", "value_starts_with",
                                          "value_regex"};
    char place[32];
    snprintf(place, sizeof place, "match.%s[%d]", what,
             (int)(what[0] == 'q' ? rule->query_count : rule->header_count) - 1);
    sandbox_status status = sbx_egress_json_members(json, place, members, 4, error);
    if (status != SANDBOX_OK)
        return status;
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "name"));
    if (name == NULL || name[0] == '\0')
        return wrong(error, "%s.name is missing", place);
    if (strlen(name) > SBX_EGRESS_VALUE_MAX)
        return wrong(error, "%s.name is too long", place);
    if (what[0] == 'h' && !sbx_egress_is_token((struct sbx_egress_text){name, strlen(name)}))
        return wrong(error, "%s.name is no name of a header", place);
    pair->name = store(rule, what[0] == 'q' ? 'q' : 'f', name);
    return read_matcher(rule, json, place, &value_names, &pair->value, error);
}

static sandbox_status read_matcher(struct sbx_egress_rule *rule, const cJSON *json,
                                   const char *what, const struct names *names,
                                   struct egress_matcher *matcher, sandbox_error *error)
{
    const char *const choices[] = {names->exact, names->starts_with, names->regex};
    static const enum egress_match kinds[] = {MATCH_EXACT, MATCH_START, MATCH_REGEX};
    for (size_t i = 0; i < 3; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, choices[i]);
        const char *text = cJSON_GetStringValue(item);
        if (item == NULL)
            continue;
        if (text == NULL)
            return wrong(error, "%s.%s is no text", what, choices[i]);
        if (matcher->kind != MATCH_ANY)
            return wrong(error, "%s has two ways to match", what);
        if (text[0] == '\0' && kinds[i] != MATCH_EXACT)
            return wrong(error, "%s.%s is empty", what, choices[i]);
        if (text[0] == '\0' && names == &plain_names)
            return wrong(error, "%s.%s is empty", what, choices[i]);
        if (strlen(text) > SBX_EGRESS_VALUE_MAX)
            return wrong(error, "%s.%s is too long", what, choices[i]);
        matcher->kind = kinds[i];
        matcher->text = store(rule, "esr"[i], text);
        if (kinds[i] == MATCH_REGEX) {
            sandbox_status status = sbx_egress_regex_new(text, what, &matcher->regex, error);
            if (status != SANDBOX_OK)
                return status;
        }
    }
    return SANDBOX_OK;
}

static sandbox_status read_sets(struct sbx_egress_rule *rule, const cJSON *set,
                                sandbox_error *error)
{
    if (!cJSON_IsObject(set) || set->child == NULL)
        return wrong(error, "set has no header to set");
    for (const cJSON *item = set->child; item != NULL; item = item->next) {
        struct sbx_egress_text name = {item->string, strlen(item->string)};
        const char *value = cJSON_GetStringValue(item);
        if (rule->set_count == SBX_EGRESS_SETS_MAX)
            return wrong(error, "set has more than %d headers", SBX_EGRESS_SETS_MAX);
        if (name.size > 128 || !sbx_egress_is_token(name))
            return wrong(error, "set: a name is no name of a header");
        if (sbx_egress_is_reserved(name))
            return wrong(error, "set: '%s' belongs to the connection or its framing", name.data);
        for (size_t i = 0; i < rule->set_count; i++)
            if (sbx_egress_text_is(name, rule->sets[i].name.data))
                return wrong(error, "set: '%s' is there twice", name.data);
        if (value == NULL || value[0] == '\0')
            return wrong(error, "set: the value of '%s' is no text or empty", name.data);
        if (strlen(value) > SBX_EGRESS_VALUE_MAX ||
            !sbx_egress_is_value((struct sbx_egress_text){value, strlen(value)}))
            return wrong(error,
                         "set: the value of '%s' is too long, or has control bytes, or blanks at "
                         "its ends",
                         name.data);
        struct sbx_egress_field *field = &rule->sets[rule->set_count++];
        field->name = store(rule, 'n', name.data);
        field->value = store(rule, 'v', value);
    }
    return SANDBOX_OK;
}

static sandbox_status wrong(sandbox_error *error, const char *format, ...)
{
    char text[240];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return sbx_fail_for(error, SANDBOX_INVALID, SBX_EGRESS_BAD_REQUEST, "%s", text);
}

static void drop(struct sbx_egress_rule **rule)
{
    sbx_egress_rule_drop(*rule);
}
