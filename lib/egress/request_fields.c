/* The fields that go to the server in place of those that came. */

#include "egress/fields.h"
#include "egress/request.h"
#include "util/locked.h"
#include "util/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define OWN_LINES 4 /* Host, Accept-Encoding, framing, Connection */
#define OWN_BYTES (SBX_EGRESS_NAME_MAX + 160)

struct sbx_egress_fields {
    size_t count, rules;
    const char **lines; /* into `texts` */
    char *texts;        /* locked where rules put anything in */
    size_t used, room;
    bool is_locked;
};

/* What is known of a request while its fields are made. */
struct making {
    const struct sbx_egress_head *head;
    const struct sbx_egress_request *request;
    struct sbx_egress_field kept[SBX_EGRESS_FIELDS_MAX];
    size_t kept_count;
    const struct sbx_egress_rule *host_rules[SBX_EGRESS_RULES_MAX];
    size_t host_rule_count;
    const struct sbx_egress_rule *applied[SBX_EGRESS_RULES_MAX];
    size_t applied_count;
};

static void find_rules(struct making *making, const struct sbx_egress_policy *policy);
static bool check_connection(const struct making *making, struct sbx_egress_refusal *refusal);
static bool names_credential(const struct making *making, struct sbx_egress_text list);
static void keep_fields(struct making *making);
static bool is_named_by_connection(const struct sbx_egress_head *head, struct sbx_egress_text name);
static bool check_path(const struct making *making, struct sbx_egress_refusal *refusal);
static void match_rules(struct making *making);
static struct sbx_egress_fields *fields_new(const struct making *making);
static void write_all(struct sbx_egress_fields *fields, const struct making *making);
static void write_framing(struct sbx_egress_fields *fields, const struct sbx_egress_head *head);
static bool is_set(const struct making *making, size_t first, struct sbx_egress_text name);
static void line(struct sbx_egress_fields *fields, struct sbx_egress_text name,
                 struct sbx_egress_text value);
static void own_line(struct sbx_egress_fields *fields, const char *name, const char *value);

bool sbx_egress_fields_make(const struct sbx_egress_head *head,
                            const struct sbx_egress_request *request,
                            const struct sbx_egress_policy *policy, struct sbx_egress_fields **out,
                            struct sbx_egress_refusal *refusal)
{
    struct making making = {.head = head, .request = request};
    find_rules(&making, policy);
    if (!check_connection(&making, refusal))
        return false;
    keep_fields(&making);
    if (!check_path(&making, refusal))
        return false;
    match_rules(&making);

    struct sbx_egress_fields *fields = fields_new(&making);
    if (fields == NULL) {
        sbx_egress_refuse(refusal, 503, "no-memory", "the proxy has no memory left");
        return false;
    }
    write_all(fields, &making);
    *out = fields;
    return true;
}

void sbx_egress_fields_free(struct sbx_egress_fields *fields)
{
    if (fields == NULL)
        return;
    if (fields->is_locked) {
        sbx_locked_free(fields->texts);
    } else if (fields->texts != NULL) {
        sbx_wipe(fields->texts, fields->used);
        free(fields->texts);
    }
    free(fields->lines);
    free(fields);
}

size_t sbx_egress_fields_count(const struct sbx_egress_fields *fields)
{
    return fields->count;
}

const char *sbx_egress_fields_at(const struct sbx_egress_fields *fields, size_t index)
{
    return fields->lines[index];
}

size_t sbx_egress_fields_rules(const struct sbx_egress_fields *fields)
{
    return fields->rules;
}

bool sbx_egress_head_write(const struct sbx_egress_head *head,
                           const struct sbx_egress_request *request,
                           const struct sbx_egress_fields *fields, struct sbx_bytes *out)
{
    bool written = sbx_bytes_append(out, head->method.data, head->method.size) &&
                   sbx_bytes_append(out, " ", 1) &&
                   sbx_bytes_append(out, request->path.data, request->path.size) &&
                   sbx_bytes_append(out, " HTTP/1.1\r\n", 11);
    for (size_t i = 0; written && i < fields->count; i++)
        written = sbx_bytes_append(out, fields->lines[i], strlen(fields->lines[i])) &&
                  sbx_bytes_append(out, "\r\n", 2);
    return written && sbx_bytes_append(out, "\r\n", 2);
}

/* Only a route puts credentials in: plain HTTP would show them to everybody on the way. */
static void find_rules(struct making *making, const struct sbx_egress_policy *policy)
{
    if (making->request->kind != SBX_EGRESS_ROUTE)
        return;
    for (size_t i = 0; i < sbx_egress_policy_rule_count(policy); i++) {
        const struct sbx_egress_rule *rule = sbx_egress_policy_rule_at(policy, i);
        if (sbx_egress_host_equal(sbx_egress_rule_host(rule), &making->request->host))
            making->host_rules[making->host_rule_count++] = rule;
    }
}

/* Taken away as a hop-by-hop field, it would make a rule see another request than the guest sent.
 */
static bool check_connection(const struct making *making, struct sbx_egress_refusal *refusal)
{
    for (size_t i = 0; i < making->head->field_count; i++) {
        const struct sbx_egress_field *field = &making->head->fields[i];
        if (sbx_egress_text_is(field->name, "connection") &&
            names_credential(making, field->value)) {
            sbx_egress_refuse(refusal, 400, SBX_EGRESS_BAD_REQUEST,
                              "Connection names a field that carries a credential");
            return false;
        }
    }
    return true;
}

static bool names_credential(const struct making *making, struct sbx_egress_text list)
{
    size_t start = 0;
    for (size_t i = 0; i <= list.size; i++) {
        if (i < list.size && list.data[i] != ',' && list.data[i] != ' ' && list.data[i] != '\t')
            continue;
        struct sbx_egress_text word = {list.data + start, i - start};
        for (size_t k = 0; word.size > 0 && k < making->host_rule_count; k++)
            if (sbx_egress_rule_uses(making->host_rules[k], word))
                return true;
        start = i + 1;
    }
    return false;
}

static void keep_fields(struct making *making)
{
    for (size_t i = 0; i < making->head->field_count; i++) {
        const struct sbx_egress_field *field = &making->head->fields[i];
        if (!sbx_egress_is_hop_by_hop(field->name) &&
            !is_named_by_connection(making->head, field->name))
            making->kept[making->kept_count++] = *field;
    }
}

static bool is_named_by_connection(const struct sbx_egress_head *head, struct sbx_egress_text name)
{
    for (size_t i = 0; i < head->field_count; i++)
        if (sbx_egress_text_is(head->fields[i].name, "connection") &&
            sbx_egress_list_has(head->fields[i].value, name))
            return true;
    return false;
}

static bool check_path(const struct making *making, struct sbx_egress_refusal *refusal)
{
    for (size_t i = 0; i < making->host_rule_count; i++) {
        if (sbx_egress_rule_has_path(making->host_rules[i]) &&
            sbx_egress_path_is_ambiguous(making->request->path)) {
            sbx_egress_refuse(refusal, 400, SBX_EGRESS_BAD_REQUEST,
                              "the path can be read as another one (dot segments, encoded "
                              "slashes), and a credential depends on it");
            return false;
        }
    }
    return true;
}

static void match_rules(struct making *making)
{
    const struct sbx_egress_subject subject = {
        .method = making->head->method,
        .path = making->request->path,
        .fields = making->kept,
        .field_count = making->kept_count,
    };
    for (size_t i = 0; i < making->host_rule_count; i++)
        if (sbx_egress_rule_matches(making->host_rules[i], &subject))
            making->applied[making->applied_count++] = making->host_rules[i];
}

static struct sbx_egress_fields *fields_new(const struct making *making)
{
    size_t lines = making->kept_count + OWN_LINES;
    size_t room = OWN_BYTES;
    for (size_t i = 0; i < making->kept_count; i++)
        room += making->kept[i].name.size + making->kept[i].value.size + 3;
    for (size_t i = 0; i < making->applied_count; i++) {
        const struct sbx_egress_rule *rule = making->applied[i];
        lines += sbx_egress_rule_set_count(rule);
        for (size_t k = 0; k < sbx_egress_rule_set_count(rule); k++) {
            struct sbx_egress_field field = sbx_egress_rule_set_at(rule, k);
            room += field.name.size + field.value.size + 3;
        }
    }
    struct sbx_egress_fields *fields = calloc(1, sizeof *fields);
    if (fields == NULL)
        return NULL;
    fields->is_locked = making->applied_count > 0;
    fields->lines = calloc(lines, sizeof *fields->lines);
    fields->texts = fields->is_locked ? sbx_locked_new(room) : malloc(room);
    fields->room = room;
    if (fields->lines == NULL || fields->texts == NULL) {
        sbx_egress_fields_free(fields);
        return NULL;
    }
    return fields;
}

static void write_all(struct sbx_egress_fields *fields, const struct making *making)
{
    bool has_rules = making->host_rule_count > 0;
    own_line(fields, "Host", making->request->host.name);
    for (size_t i = 0; i < making->kept_count; i++) {
        struct sbx_egress_text name = making->kept[i].name;
        bool hides = sbx_egress_text_is(name, "accept-encoding") ||
                     sbx_egress_text_is(name, "range") || sbx_egress_text_is(name, "if-range");
        if (!(has_rules && hides) && !is_set(making, 0, name))
            line(fields, name, making->kept[i].value);
    }
    for (size_t i = 0; i < making->applied_count; i++) {
        for (size_t k = 0; k < sbx_egress_rule_set_count(making->applied[i]); k++) {
            struct sbx_egress_field field = sbx_egress_rule_set_at(making->applied[i], k);
            if (!is_set(making, i + 1, field.name))
                line(fields, field.name, field.value);
        }
    }
    fields->rules = making->applied_count;
    /* What comes back has to be readable, and in one piece. */
    if (has_rules)
        own_line(fields, "Accept-Encoding", "identity");
    if (making->request->kind == SBX_EGRESS_HTTP)
        write_framing(fields, making->head);
}

static void write_framing(struct sbx_egress_fields *fields, const struct sbx_egress_head *head)
{
    char number[24];
    snprintf(number, sizeof number, "%llu", (unsigned long long)head->body_size);
    bool has_length = false;
    for (size_t i = 0; i < head->field_count; i++)
        has_length |= sbx_egress_text_is(head->fields[i].name, "content-length");
    if (head->body == SBX_EGRESS_BODY_CHUNKED)
        own_line(fields, "Transfer-Encoding", "chunked");
    else if (has_length)
        own_line(fields, "Content-Length", number);
    own_line(fields, "Connection", "close");
}

/* Whether a rule that applies, from that one on, sets a field of that name. */
static bool is_set(const struct making *making, size_t first, struct sbx_egress_text name)
{
    for (size_t i = first; i < making->applied_count; i++) {
        for (size_t k = 0; k < sbx_egress_rule_set_count(making->applied[i]); k++) {
            struct sbx_egress_field field = sbx_egress_rule_set_at(making->applied[i], k);
            if (field.name.size == name.size &&
                strncasecmp(field.name.data, name.data, name.size) == 0)
                return true;
        }
    }
    return false;
}

static void line(struct sbx_egress_fields *fields, struct sbx_egress_text name,
                 struct sbx_egress_text value)
{
    size_t size = name.size + value.size + 3;
    if (fields->room - fields->used < size)
        return;
    char *at = fields->texts + fields->used;
    const char *colon = value.size == 0 ? ":" : ": ";
    fields->lines[fields->count++] = at;
    memcpy(at, name.data, name.size);
    memcpy(at + name.size, colon, strlen(colon));
    if (value.size > 0)
        memcpy(at + name.size + 2, value.data, value.size);
    at[name.size + strlen(colon) + value.size] = '\0';
    fields->used += size;
}

static void own_line(struct sbx_egress_fields *fields, const char *name, const char *value)
{
    line(fields, (struct sbx_egress_text){name, strlen(name)},
         (struct sbx_egress_text){value, strlen(value)});
}
