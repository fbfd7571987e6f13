/* Records as JSON, and the table of states. */

#include "core/record.h"
#include "util/fail.h"
#include "util/memory.h"
#include <stdio.h>

#define FORMAT 1

static const struct {
    sandbox_state state;
    const char *word;
} states[] = {
#define STATE(name, number, word) {SANDBOX_STATE_##name, word},
#define TRANSITION(from, to, operation)
#include "core/transitions.def"
#undef STATE
#undef TRANSITION
};

static const struct {
    sandbox_state from, to;
    const char *operation;
} transitions[] = {
#define STATE(name, number, word)
#define TRANSITION(from, to, operation) {SANDBOX_STATE_##from, SANDBOX_STATE_##to, operation},
#include "core/transitions.def"
#undef STATE
#undef TRANSITION
};

#define STATE(name, number, word) \
    _Static_assert(SANDBOX_STATE_##name == (number), "the table and the header differ");
#define TRANSITION(from, to, operation)
#include "core/transitions.def"
#undef STATE
#undef TRANSITION

static sandbox_status read_fields(struct sbx_record *record, sandbox_error *error);
static bool write_fields(struct sbx_record *record);
static bool write_strings(struct sbx_record *record, const char *name, char **texts);

const char *sandbox_state_name(sandbox_state state)
{
    for (size_t n = 0; n < sizeof states / sizeof states[0]; n++) {
        if (states[n].state == state)
            return states[n].word;
    }
    return "unknown";
}

bool sbx_transition_allowed(sandbox_state from, sandbox_state to, const char *operation)
{
    for (size_t n = 0; n < sizeof transitions / sizeof transitions[0]; n++) {
        if (transitions[n].from == from && transitions[n].to == to &&
            strcmp(transitions[n].operation, operation) == 0)
            return true;
    }
    return false;
}

bool sbx_record_is_claimed_by(const struct sbx_record *stored, const struct sbx_record *actor)
{
    return strcmp(stored->id, actor->id) == 0 && stored->epoch == actor->epoch &&
           strcmp(stored->operation.id, actor->operation.id) == 0;
}

bool sbx_name_is_valid(const char *name)
{
    size_t length = name == NULL ? 0 : strnlen(name, SBX_NAME_MAX + 1);
    if (length == 0 || length > SBX_NAME_MAX || name[0] == '-' || name[length - 1] == '-')
        return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == length;
}

void sbx_record_clear(struct sbx_record *record)
{
    free(record->image);
    sbx_free_strings(record->labels);
    sbx_free_strings(record->checks);
    cJSON_Delete(record->egress);
    free(record->snapshots);
    cJSON_Delete(record->json);
    free(record->stored);
    *record = (struct sbx_record){0};
}

sandbox_status sbx_record_decode(const char *text, size_t size, struct sbx_record *out,
                                 sandbox_error *error)
{
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
    sandbox_status status = sbx_json_parse(text, size, SBX_RECORD_MAX, &record.json, error);
    if (status == SANDBOX_OK)
        status = read_fields(&record, error);
    if (status != SANDBOX_OK)
        return status;
    *out = record;
    record = (struct sbx_record){0};
    return SANDBOX_OK;
}

sandbox_status sbx_record_encode(struct sbx_record *record, char **text, sandbox_error *error)
{
    if (record->json == NULL)
        record->json = cJSON_CreateObject();
    char *printed = NULL;
    if (record->json != NULL && write_fields(record))
        printed = cJSON_PrintUnformatted(record->json);
    if (printed == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a workspace's record");
    if (strlen(printed) > SBX_RECORD_MAX) {
        free(printed);
        return sbx_fail(error, SANDBOX_LIMIT, "the workspace's record would be over %u bytes",
                        SBX_RECORD_MAX);
    }
    *text = printed;
    return SANDBOX_OK;
}

/*
 * Fields are read in the order in which they are written, so that each look-up begins where the
 * last one ended: a list of ten thousand records is mostly this.
 */
struct cursor {
    const cJSON *object, *next;
};

static const cJSON *find(struct cursor *cursor, const char *name)
{
    const cJSON *begin = cursor->next == NULL ? cursor->object->child : cursor->next;
    for (const cJSON *at = begin; at != NULL; at = at->next) {
        if (at->string != NULL && strcmp(at->string, name) == 0) {
            cursor->next = at->next;
            return at;
        }
    }
    for (const cJSON *at = cursor->object->child; at != begin; at = at->next) {
        if (at->string != NULL && strcmp(at->string, name) == 0) {
            cursor->next = at->next;
            return at;
        }
    }
    return NULL;
}

static const char *find_text(struct cursor *cursor, const char *name)
{
    const char *text = cJSON_GetStringValue(find(cursor, name));
    return text == NULL ? "" : text;
}

/* Copies a string that must fit, since a cut one would mean something else. */
static bool take_text(struct cursor *cursor, const char *name, char *place, size_t size)
{
    const char *text = find_text(cursor, name);
    size_t length = strlen(text);
    if (length >= size)
        return false;
    memcpy(place, text, length + 1);
    return true;
}

static uint32_t take_number(struct cursor *cursor, const char *name)
{
    int64_t number = sbx_json_number(find(cursor, name));
    return number < 0 ? 0 : number > UINT32_MAX ? UINT32_MAX : (uint32_t)number;
}

static bool take_strings(struct cursor *cursor, const char *name, int limit, char ***out)
{
    const cJSON *array = find(cursor, name);
    int count = cJSON_GetArraySize(array);
    if (count == 0)
        return true;
    if (count > limit)
        return false;
    *out = calloc((size_t)count + 1, sizeof **out);
    size_t at = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, array)
    {
        const char *text = cJSON_GetStringValue(item);
        if (*out == NULL || text == NULL)
            return false;
        (*out)[at] = sbx_copy(text);
        if ((*out)[at++] == NULL)
            return false;
    }
    return true;
}

static bool take_operation(struct cursor *outer, struct sbx_operation *operation)
{
    struct cursor cursor = {.object = find(outer, "operation")};
    if (!cJSON_IsObject(cursor.object))
        return true;
    bool good = take_text(&cursor, "kind", operation->kind, sizeof operation->kind) &&
                take_text(&cursor, "id", operation->id, sizeof operation->id) &&
                take_text(&cursor, "step", operation->step, sizeof operation->step) &&
                take_text(&cursor, "owner", operation->owner, sizeof operation->owner);
    operation->lease_ms = take_number(&cursor, "lease_ms");
    operation->renewals = take_number(&cursor, "renewals");
    operation->wanted = cJSON_IsTrue(find(&cursor, "wanted"));
    good = good && take_text(&cursor, "spare", operation->spare, sizeof operation->spare);
    return good;
}

static bool take_state(struct cursor *cursor, struct sbx_record *record)
{
    const char *word = find_text(cursor, "state");
    for (size_t n = 0; n < sizeof states / sizeof states[0]; n++) {
        if (strcmp(states[n].word, word) == 0)
            record->state = states[n].state;
    }
    return record->state != 0;
}

static bool take_image(struct cursor *cursor, struct sbx_record *record)
{
    const char *image = find_text(cursor, "image");
    if (*image != '\0')
        record->image = sbx_copy(image);
    return *image == '\0' || record->image != NULL;
}

static void take_limits(struct cursor *cursor, struct sbx_record *record)
{
    record->memory_mib = take_number(cursor, "memory_mib");
    record->cpu_millis = take_number(cursor, "cpu_millis");
    record->process_limit = take_number(cursor, "process_limit");
    record->disk_mib = take_number(cursor, "disk_mib");
    record->created_ms = sbx_json_number(find(cursor, "created_ms"));
    record->expires_ms = sbx_json_number(find(cursor, "expires_ms"));
}

static bool take_egress(struct cursor *cursor, struct sbx_record *record)
{
    const cJSON *egress = find(cursor, "egress");
    if (egress == NULL)
        return true;
    record->egress = cJSON_IsObject(egress) ? cJSON_Duplicate(egress, true) : NULL;
    return record->egress != NULL;
}

static sandbox_status read_fields(struct sbx_record *record, sandbox_error *error)
{
    struct cursor cursor = {.object = record->json};
    uint8_t id[SBX_ID_BYTES];
    uint32_t format = cJSON_IsObject(record->json) ? take_number(&cursor, "format") : 0;
    if (format == 0)
        return sbx_fail(error, SANDBOX_FAILED, "not a workspace's record");
    if (format > FORMAT)
        return sbx_fail(error, SANDBOX_UNSUPPORTED,
                        "the record was written by a newer library; use that one");
    bool good = take_text(&cursor, "id", record->id, sizeof record->id) &&
                sbx_id_parse(record->id, id) &&
                take_text(&cursor, "name", record->name, sizeof record->name) &&
                sbx_name_is_valid(record->name) &&
                take_text(&cursor, "driver", record->driver, sizeof record->driver) &&
                take_state(&cursor, record);
    if (good) {
        record->epoch = take_number(&cursor, "epoch");
        good = take_operation(&cursor, &record->operation) &&
               take_text(&cursor, "incarnation", record->incarnation,
                         sizeof record->incarnation) &&
               take_text(&cursor, "run", record->run, sizeof record->run);
        record->key_id = take_number(&cursor, "key_id");
        good = good && take_text(&cursor, "user", record->user, sizeof record->user) &&
               take_image(&cursor, record) &&
               take_strings(&cursor, "labels", SBX_LABELS_MAX, &record->labels);
        take_limits(&cursor, record);
        good = good && sbx_record_read_snapshots(record) &&
               take_strings(&cursor, "checks", SBX_CHECKS_MAX, &record->checks);
        record->suspend_after_idle_ms =
            (uint64_t)sbx_json_number(find(&cursor, "suspend_after_idle_ms"));
        good = good && take_egress(&cursor, record);
    }
    return good ? SANDBOX_OK : sbx_fail(error, SANDBOX_FAILED, "a damaged workspace record");
}

static bool write_strings(struct sbx_record *record, const char *name, char **texts)
{
    sbx_json_remove(record->json, name);
    if (texts == NULL)
        return true;
    cJSON *array = cJSON_AddArrayToObject(record->json, name);
    for (size_t n = 0; array != NULL && texts[n] != NULL; n++) {
        cJSON *text = cJSON_CreateString(texts[n]);
        if (text == NULL || !cJSON_AddItemToArray(array, text)) {
            cJSON_Delete(text);
            return false;
        }
    }
    return array != NULL;
}

static bool write_operation(struct sbx_record *record)
{
    const struct sbx_operation *operation = &record->operation;
    sbx_json_remove(record->json, "operation");
    if (operation->kind[0] == '\0')
        return true;
    cJSON *object = cJSON_AddObjectToObject(record->json, "operation");
    return object != NULL && sbx_json_set_text(object, "kind", operation->kind) &&
           sbx_json_set_text(object, "id", operation->id) &&
           sbx_json_set_text(object, "step", operation->step) &&
           sbx_json_set_text(object, "owner", operation->owner) &&
           sbx_json_set_integer(object, "lease_ms", operation->lease_ms) &&
           sbx_json_set_integer(object, "renewals", operation->renewals) &&
           (operation->spare[0] == '\0' ||
            sbx_json_set_text(object, "spare", operation->spare)) &&
           (!operation->wanted || cJSON_AddTrueToObject(object, "wanted") != NULL);
}

static bool write_egress(struct sbx_record *record)
{
    sbx_json_remove(record->json, "egress");
    if (record->egress == NULL)
        return true;
    cJSON *copy = cJSON_Duplicate(record->egress, true);
    if (copy != NULL && cJSON_AddItemToObject(record->json, "egress", copy))
        return true;
    cJSON_Delete(copy);
    return false;
}

static bool write_limits(struct sbx_record *record)
{
    cJSON *json = record->json;
    return sbx_json_set_integer(json, "memory_mib", record->memory_mib) &&
           sbx_json_set_integer(json, "cpu_millis", record->cpu_millis) &&
           sbx_json_set_integer(json, "process_limit", record->process_limit) &&
           sbx_json_set_integer(json, "disk_mib", record->disk_mib) &&
           sbx_json_set_integer(json, "created_ms", record->created_ms) &&
           sbx_json_set_integer(json, "expires_ms", record->expires_ms);
}

static bool write_fields(struct sbx_record *record)
{
    cJSON *json = record->json;
    return sbx_json_set_integer(json, "format", FORMAT) &&
           sbx_json_set_text(json, "id", record->id) &&
           sbx_json_set_text(json, "name", record->name) &&
           sbx_json_set_text(json, "driver", record->driver) &&
           sbx_json_set_text(json, "state", sandbox_state_name(record->state)) &&
           sbx_json_set_integer(json, "epoch", record->epoch) && write_operation(record) &&
           sbx_json_set_text(json, "incarnation", record->incarnation) &&
           sbx_json_set_text(json, "run", record->run) &&
           sbx_json_set_integer(json, "key_id", record->key_id) &&
           sbx_json_set_text(json, "user", record->user) &&
           sbx_json_set_text(json, "image", record->image == NULL ? "" : record->image) &&
           write_strings(record, "labels", record->labels) && write_limits(record) &&
           sbx_record_write_snapshots(record) && write_strings(record, "checks", record->checks) &&
           sbx_json_set_integer(json, "suspend_after_idle_ms",
                                (int64_t)record->suspend_after_idle_ms) &&
           write_egress(record);
}
