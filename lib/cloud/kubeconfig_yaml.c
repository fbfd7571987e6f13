/* YAML as JSON, by libyaml: one document, no aliases, with limits on bytes, depth and nodes. */

#include "cloud/kubeconfig_parts.h"
#include "util/bytes.h"
#include "util/fail.h"
#include "util/json.h"
#include "util/memory.h"
#include <yaml.h>

#define DEPTH_MAX 64
#define NODES_MAX 200000
/* Each key is compared with all before it. */
#define KEYS_MAX 1000
/* Longer digits are no number that anybody means. */
#define NUMBER_MAX  40
#define PRINTED_MAX (4u << 20)

struct reader {
    yaml_parser_t parser;
    const char *title;
    size_t nodes, depth;
    sandbox_error *error;
    sandbox_status status; /* of the first thing that went wrong */
};

static cJSON *read_document(struct reader *reader);
static bool next_event(struct reader *reader, yaml_event_t *event);
static void end_event(yaml_event_t *event);
static cJSON *read_node(struct reader *reader, yaml_event_t *event);
static cJSON *read_list(struct reader *reader);
static cJSON *read_mapping(struct reader *reader);
static cJSON *read_scalar(struct reader *reader, const yaml_event_t *event);
static cJSON *resolve(const char *text);
static bool is_number(const char *text);
static bool is_one_of(const char *text, const char *const *words);
static void complain(struct reader *reader, const char *what);
static bool emit_document(yaml_emitter_t *emitter, const cJSON *json);
static bool emit_node(yaml_emitter_t *emitter, const cJSON *json);
static bool emit_scalar(yaml_emitter_t *emitter, const char *text, bool is_text);

sandbox_status sbx_yaml_parse(const void *text, size_t size, const char *title, cJSON **out,
                              sandbox_error *error)
{
    if (size > SBX_KUBECONFIG_BYTES)
        return sbx_fail_for(error, SANDBOX_INVALID, "kubeconfig",
                            "%s: larger than %u bytes, so it is not read", title,
                            SBX_KUBECONFIG_BYTES);
    struct reader reader = {.title = title, .error = error, .status = SANDBOX_OK};
    if (yaml_parser_initialize(&reader.parser) == 0)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a YAML parser");
    yaml_parser_set_input_string(&reader.parser, text, size);
    cJSON *document = read_document(&reader);
    /* Tokens and keys went through here. */
    sbx_wipe(reader.parser.raw_buffer.start,
             (size_t)(reader.parser.raw_buffer.end - reader.parser.raw_buffer.start));
    sbx_wipe(reader.parser.buffer.start,
             (size_t)(reader.parser.buffer.end - reader.parser.buffer.start));
    yaml_parser_delete(&reader.parser);
    if (reader.status == SANDBOX_OK)
        *out = document;
    else
        sbx_secret_free_json(&document);
    return reader.status;
}

/* An empty file is an empty mapping: that is what a kubeconfig without anything is. */
static cJSON *read_document(struct reader *reader)
{
    cJSON *document = NULL;
    yaml_event_t event;
    for (unsigned documents = 0; next_event(reader, &event);) {
        yaml_event_type_t type = event.type;
        if (type == YAML_DOCUMENT_START_EVENT && documents++ > 0)
            complain(reader, "a second document begins; only one may stand in a file");
        else if (type != YAML_STREAM_START_EVENT && type != YAML_STREAM_END_EVENT &&
                 type != YAML_DOCUMENT_START_EVENT && type != YAML_DOCUMENT_END_EVENT)
            document = read_node(reader, &event);
        end_event(&event);
        if (type == YAML_STREAM_END_EVENT)
            break;
    }
    if (reader->status == SANDBOX_OK && (document == NULL || cJSON_IsNull(document))) {
        cJSON_Delete(document);
        document = cJSON_CreateObject();
        if (document == NULL)
            complain(reader, NULL);
    }
    return document;
}

/* False: something went wrong, now or before. */
static bool next_event(struct reader *reader, yaml_event_t *event)
{
    if (reader->status != SANDBOX_OK)
        return false;
    if (yaml_parser_parse(&reader->parser, event) != 0)
        return true;
    if (reader->parser.error == YAML_MEMORY_ERROR) {
        complain(reader, NULL);
        return false;
    }
    if (reader->parser.error != YAML_READER_ERROR) /* that one leaves it at the beginning */
        reader->parser.mark = reader->parser.problem_mark;
    complain(reader, reader->parser.problem == NULL ? "not YAML" : reader->parser.problem);
    return false;
}

static void end_event(yaml_event_t *event)
{
    if (event->type == YAML_SCALAR_EVENT)
        sbx_wipe(event->data.scalar.value, event->data.scalar.length);
    yaml_event_delete(event);
}

/* NULL: `reader->status` says why. */
static cJSON *read_node(struct reader *reader, yaml_event_t *event)
{
    if (++reader->nodes > NODES_MAX) {
        complain(reader, "more entries than anybody needs (200,000)");
        return NULL;
    }
    if (event->type == YAML_SCALAR_EVENT)
        return read_scalar(reader, event);
    if (event->type == YAML_ALIAS_EVENT) {
        complain(reader, "aliases ('*name') are not taken; write out what it stands for");
        return NULL;
    }
    if (reader->depth >= DEPTH_MAX) {
        complain(reader, "nested more than 64 deep");
        return NULL;
    }
    reader->depth++;
    cJSON *json =
        event->type == YAML_SEQUENCE_START_EVENT ? read_list(reader) : read_mapping(reader);
    reader->depth--;
    if (reader->status != SANDBOX_OK)
        sbx_secret_free_json(&json);
    return json;
}

static cJSON *read_list(struct reader *reader)
{
    cJSON *list = cJSON_CreateArray();
    if (list == NULL)
        complain(reader, NULL);
    yaml_event_t event;
    while (next_event(reader, &event)) {
        bool ended = event.type == YAML_SEQUENCE_END_EVENT;
        cJSON *item = ended ? NULL : read_node(reader, &event);
        if (item != NULL && !cJSON_AddItemToArray(list, item)) {
            sbx_secret_free_json(&item);
            complain(reader, NULL);
        }
        end_event(&event);
        if (ended)
            break;
    }
    return list;
}

/* The value of a key: takes what follows in the stream. */
static void read_member(struct reader *reader, cJSON *mapping, const char *key)
{
    yaml_event_t event;
    if (!next_event(reader, &event))
        return;
    cJSON *value = read_node(reader, &event);
    end_event(&event);
    if (value == NULL || cJSON_AddItemToObject(mapping, key, value))
        return;
    sbx_secret_free_json(&value);
    complain(reader, NULL);
}

static cJSON *read_mapping(struct reader *reader)
{
    cJSON *mapping = cJSON_CreateObject();
    if (mapping == NULL)
        complain(reader, NULL);
    yaml_event_t event;
    for (unsigned keys = 0; next_event(reader, &event); keys++) {
        bool ended = event.type == YAML_MAPPING_END_EVENT;
        const char *key =
            event.type == YAML_SCALAR_EVENT ? (const char *)event.data.scalar.value : NULL;
        if (ended)
            ;
        else if (key == NULL || strlen(key) != event.data.scalar.length)
            complain(reader, "a key that is no text");
        else if (keys >= KEYS_MAX)
            complain(reader, "more keys in one mapping than anybody needs (1,000)");
        else if (cJSON_GetObjectItemCaseSensitive(mapping, key) != NULL)
            complain(reader, "a key stands there twice");
        else
            read_member(reader, mapping, key);
        end_event(&event);
        if (ended)
            break;
    }
    return mapping;
}

static cJSON *read_scalar(struct reader *reader, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    const char *tag = (const char *)event->data.scalar.tag;
    if (strlen(text) != event->data.scalar.length) {
        complain(reader, "a zero byte in a text");
        return NULL;
    }
    bool is_text = !event->data.scalar.plain_implicit;
    if (tag != NULL && strcmp(tag, "!") != 0) {
        is_text = strcmp(tag, YAML_STR_TAG) == 0;
        bool is_known = is_text || strcmp(tag, YAML_INT_TAG) == 0 ||
                        strcmp(tag, YAML_FLOAT_TAG) == 0 || strcmp(tag, YAML_BOOL_TAG) == 0 ||
                        strcmp(tag, YAML_NULL_TAG) == 0;
        if (!is_known) {
            complain(reader, "a tag ('!…') that means nothing here");
            return NULL;
        }
    }
    cJSON *json = is_text ? cJSON_CreateString(text) : resolve(text);
    if (json == NULL)
        complain(reader, NULL);
    return json;
}

/* A plain scalar: what Kubernetes' own tools take it for. */
static cJSON *resolve(const char *text)
{
    static const char *const nothing[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const yes[] = {"true", "True", "TRUE", "yes", "Yes",
                                      "YES",  "on",   "On",   "ON",  NULL};
    static const char *const no[] = {"false", "False", "FALSE", "no",  "No",
                                     "NO",    "off",   "Off",   "OFF", NULL};
    if (is_one_of(text, nothing))
        return cJSON_CreateNull();
    if (is_one_of(text, yes))
        return cJSON_CreateTrue();
    if (is_one_of(text, no))
        return cJSON_CreateFalse();
    /* By its parser, which knows the locale's decimal point. */
    return is_number(text) ? cJSON_Parse(text) : cJSON_CreateString(text);
}

/* As JSON writes them. Everything else that looks like one ("007", "0x1f", ".5") stays text. */
static bool is_number(const char *text)
{
    static const char digits[] = "0123456789";
    const char *at = text + (*text == '-');
    size_t whole = strspn(at, digits);
    if (strlen(text) > NUMBER_MAX || whole == 0 || (whole > 1 && *at == '0'))
        return false;
    at += whole;
    if (*at == '.') {
        size_t fraction = strspn(at + 1, digits);
        if (fraction == 0)
            return false;
        at += 1 + fraction;
    }
    if (*at == 'e' || *at == 'E') {
        at += at[1] == '+' || at[1] == '-' ? 2 : 1;
        size_t exponent = strspn(at, digits);
        if (exponent == 0)
            return false;
        at += exponent;
    }
    return *at == '\0';
}

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words != NULL; words++) {
        if (strcmp(text, *words) == 0)
            return true;
    }
    return false;
}

/* `what` NULL: no memory. Never any of the file's own text, which may be a credential. */
static void complain(struct reader *reader, const char *what)
{
    if (reader->status != SANDBOX_OK)
        return;
    if (what == NULL)
        reader->status =
            sbx_fail(reader->error, SANDBOX_NO_MEMORY, "no memory for %s", reader->title);
    else
        reader->status =
            sbx_fail_for(reader->error, SANDBOX_INVALID, "kubeconfig", "%s: line %zu: %s",
                         reader->title, reader->parser.mark.line + 1, what);
}

/* ---- printing ---- */

static int take_printed(void *user_data, unsigned char *text, size_t size)
{
    return sbx_bytes_append(user_data, text, size);
}

char *sbx_yaml_print(const cJSON *json)
{
    SBX_ON_EXIT(sbx_bytes_free) struct sbx_bytes printed = SBX_BYTES(PRINTED_MAX);
    yaml_emitter_t emitter;
    if (yaml_emitter_initialize(&emitter) == 0)
        return NULL;
    yaml_emitter_set_output(&emitter, take_printed, &printed);
    yaml_emitter_set_unicode(&emitter, 1);
    yaml_emitter_set_width(&emitter, -1);
    bool good = emit_document(&emitter, json) && sbx_bytes_append(&printed, "", 1);
    yaml_emitter_delete(&emitter);
    return good ? sbx_copy((const char *)sbx_bytes_data(&printed)) : NULL;
}

static bool emit_document(yaml_emitter_t *emitter, const cJSON *json)
{
    yaml_event_t event;
    bool good = yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING) != 0 &&
                yaml_emitter_emit(emitter, &event) != 0;
    good = good && yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 1) != 0 &&
           yaml_emitter_emit(emitter, &event) != 0;
    good = good && emit_node(emitter, json);
    good = good && yaml_document_end_event_initialize(&event, 1) != 0 &&
           yaml_emitter_emit(emitter, &event) != 0;
    return good && yaml_stream_end_event_initialize(&event) != 0 &&
           yaml_emitter_emit(emitter, &event) != 0;
}

/* Lists of plain values stay in one line, as people write commands. */
static bool is_short(const cJSON *list)
{
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, list)
    {
        if (cJSON_IsObject(item) || cJSON_IsArray(item))
            return false;
    }
    return true;
}

static bool emit_children(yaml_emitter_t *emitter, const cJSON *json)
{
    const cJSON *item = NULL;
    bool good = true;
    cJSON_ArrayForEach(item, json)
    {
        if (good && cJSON_IsObject(json))
            good = emit_scalar(emitter, item->string, true);
        good = good && emit_node(emitter, item);
    }
    return good;
}

static bool emit_node(yaml_emitter_t *emitter, const cJSON *json)
{
    yaml_event_t event;
    if (cJSON_IsObject(json) || cJSON_IsArray(json)) {
        bool is_list = cJSON_IsArray(json),
             is_flow = is_list ? is_short(json) : json->child == NULL;
        int made = is_list
                       ? yaml_sequence_start_event_initialize(&event, NULL, NULL, 1,
                                                              is_flow ? YAML_FLOW_SEQUENCE_STYLE
                                                                      : YAML_BLOCK_SEQUENCE_STYLE)
                       : yaml_mapping_start_event_initialize(&event, NULL, NULL, 1,
                                                             is_flow ? YAML_FLOW_MAPPING_STYLE
                                                                     : YAML_BLOCK_MAPPING_STYLE);
        if (made == 0 || yaml_emitter_emit(emitter, &event) == 0 || !emit_children(emitter, json))
            return false;
        made = is_list ? yaml_sequence_end_event_initialize(&event)
                       : yaml_mapping_end_event_initialize(&event);
        return made != 0 && yaml_emitter_emit(emitter, &event) != 0;
    }
    if (cJSON_IsString(json))
        return emit_scalar(emitter, json->valuestring, true);
    SBX_ON_EXIT(sbx_free_text) char *text = cJSON_PrintUnformatted(json);
    return text != NULL && emit_scalar(emitter, text, false);
}

/* A text that some reader of YAML may take for something else stands in quotes. */
static bool emit_scalar(yaml_emitter_t *emitter, const char *text, bool is_text)
{
    static const char *const words[] = {"y", "Y", "n", "N", NULL};
    SBX_ON_EXIT(sbx_json_free) cJSON *resolved = resolve(text);
    bool is_odd = !cJSON_IsString(resolved) || is_one_of(text, words) ||
                  strchr("0123456789+-.=<@", *text) != NULL;
    yaml_event_t event;
    return resolved != NULL &&
           yaml_scalar_event_initialize(&event, NULL, NULL, (yaml_char_t *)text, (int)strlen(text),
                                        !(is_text && is_odd), 1,
                                        is_text && is_odd ? YAML_DOUBLE_QUOTED_SCALAR_STYLE
                                                          : YAML_PLAIN_SCALAR_STYLE) != 0 &&
           yaml_emitter_emit(emitter, &event) != 0;
}
