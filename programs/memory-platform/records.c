/* The records of workspaces: texts with a version each, changed by compare-and-swap. */

#include "platform.h"
#include "util/memory.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NAME_MAX_BYTES 63
/* A page of a listing ends at this many bytes of text: escaped, it still fits into one line. */
#define PAGE_BYTES (256u << 10)

struct record {
    char name[NAME_MAX_BYTES + 1];
    char *text;
    size_t size;
    uint64_t version;
    struct record *next; /* in the order of names */
};

static struct record *records;
static size_t record_count;
static uint64_t last_version; /* of any record: a removed and remade one never repeats one */

static struct record **place_of(const char *name);
static void add_version(cJSON *object, uint64_t version);
static bool is_version(const struct record *record, const char *text);

void platform_record_load(struct platform_request *request)
{
    const char *name = platform_request_text(request, "name");
    struct record *record = *place_of(name);
    if (record == NULL || strcmp(record->name, name) != 0) {
        platform_request_fail(request, SANDBOX_NOT_FOUND, "no-such-workspace",
                              "there is no workspace '%.63s'", name);
        return;
    }
    cJSON *answer = cJSON_CreateObject();
    cJSON_AddStringToObject(answer, "text", record->text);
    add_version(answer, record->version);
    platform_request_answer(request, answer);
}

static struct record *new_record(const char *name, struct record **place)
{
    struct record *record = calloc(1, sizeof *record);
    if (record == NULL)
        return NULL;
    snprintf(record->name, sizeof record->name, "%s", name);
    record->next = *place;
    *place = record;
    record_count++;
    return record;
}

/* Answers the request if it may not be: then false. */
static bool may_store(struct platform_request *request, const struct record *record,
                      const char *name, const char *text)
{
    const char *expected = platform_request_text(request, "expected");
    bool good_name = *name != '\0' && strlen(name) <= NAME_MAX_BYTES;
    if (!good_name || *text == '\0' || strlen(text) > PLATFORM_RECORD_MAX)
        platform_request_fail(request, SANDBOX_INVALID, "",
                              "not a record: name of 1 to %d bytes, "
                              "text of 1 to %u",
                              NAME_MAX_BYTES, PLATFORM_RECORD_MAX);
    else if (*expected == '\0' && record != NULL)
        platform_request_fail(request, SANDBOX_EXISTS, "name-taken",
                              "there is a workspace '%s' already", name);
    else if (*expected != '\0' && (record == NULL || !is_version(record, expected)))
        platform_request_fail(request, SANDBOX_CONFLICT, "record-changed",
                              "the record of '%s' was changed by somebody else", name);
    else if (record == NULL && record_count >= PLATFORM_RECORDS_MAX)
        platform_request_fail(request, SANDBOX_LIMIT, "too-many-workspaces",
                              "the memory platform holds %d workspaces", PLATFORM_RECORDS_MAX);
    else
        return true;
    return false;
}

void platform_record_store(struct platform_request *request)
{
    const char *name = platform_request_text(request, "name");
    const char *text = platform_request_text(request, "text");
    struct record **place = place_of(name);
    struct record *record = *place != NULL && strcmp((*place)->name, name) == 0 ? *place : NULL;
    if (!may_store(request, record, name, text))
        return;
    char *copy = sbx_copy(text);
    if (copy != NULL && record == NULL)
        record = new_record(name, place);
    if (copy == NULL || record == NULL) {
        free(copy);
        platform_request_fail(request, SANDBOX_UNAVAILABLE, "", "the platform has no memory");
        return;
    }
    free(record->text);
    record->text = copy;
    record->size = strlen(copy);
    record->version = ++last_version;
    cJSON *answer = cJSON_CreateObject();
    add_version(answer, record->version);
    platform_request_answer(request, answer);
}

void platform_record_remove(struct platform_request *request)
{
    const char *name = platform_request_text(request, "name");
    struct record **place = place_of(name);
    struct record *record = *place;
    if (record == NULL || strcmp(record->name, name) != 0) {
        platform_request_answer(request, NULL);
        return;
    }
    if (!is_version(record, platform_request_text(request, "expected"))) {
        platform_request_fail(request, SANDBOX_CONFLICT, "record-changed",
                              "the record of '%s' was changed by somebody else", name);
        return;
    }
    *place = record->next;
    record_count--;
    free(record->text);
    free(record);
    platform_request_answer(request, NULL);
    platform_look_idle();
}

void platform_record_list(struct platform_request *request)
{
    const char *after = platform_request_text(request, "after");
    cJSON *answer = cJSON_CreateObject();
    cJSON *list = cJSON_AddArrayToObject(answer, "records");
    struct record *record = *place_of(after);
    if (record != NULL && strcmp(record->name, after) == 0)
        record = record->next;
    size_t total = 0;
    for (; record != NULL && (total == 0 || total + record->size <= PAGE_BYTES);
         record = record->next) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", record->name);
        cJSON_AddStringToObject(item, "text", record->text);
        add_version(item, record->version);
        cJSON_AddItemToArray(list, item);
        total += record->size + 1;
    }
    cJSON_AddBoolToObject(answer, "more", record != NULL);
    platform_request_answer(request, answer);
}

size_t platform_record_count(void)
{
    return record_count;
}

static bool matches(struct platform_request *request, const struct record *record)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *json = NULL;
    if (sbx_json_parse(record->text, record->size, PLATFORM_RECORD_MAX, &json, NULL) != SANDBOX_OK)
        return false;
    const cJSON *operation = cJSON_GetObjectItemCaseSensitive(json, "operation");
    return strcmp(sbx_json_text(json, "id"), platform_request_text(request, "id")) == 0 &&
           sbx_json_integer(json, "epoch") == sbx_json_integer(request->body, "epoch") &&
           strcmp(sbx_json_text(operation, "id"), platform_request_text(request, "operation")) == 0;
}

bool platform_record_fence(struct platform_request *request)
{
    const char *name = platform_request_text(request, "name");
    struct record *record = *place_of(name);
    if (record != NULL && strcmp(record->name, name) == 0 && matches(request, record))
        return true;
    platform_request_fail(request, SANDBOX_CONFLICT, "stale-epoch",
                          "another operation has taken over the workspace '%.63s'", name);
    return false;
}

bool platform_record_is_precious(const struct platform_request *request)
{
    const char *name = platform_request_text(request, "name");
    const struct record *record = *place_of(name);
    SBX_ON_EXIT(sbx_json_free) cJSON *json = NULL;
    return record != NULL && strcmp(record->name, name) == 0 &&
           sbx_json_parse(record->text, record->size, PLATFORM_RECORD_MAX, &json, NULL) ==
               SANDBOX_OK &&
           sbx_json_flag(json, "precious");
}

void platform_records_free(void)
{
    while (records != NULL) {
        struct record *record = records;
        records = record->next;
        free(record->text);
        free(record);
    }
    record_count = 0;
}

/* Where a record of that name is, or belongs. */
static struct record **place_of(const char *name)
{
    struct record **at = &records;
    while (*at != NULL && strcmp((*at)->name, name) < 0)
        at = &(*at)->next;
    return at;
}

static void add_version(cJSON *object, uint64_t version)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, version);
    cJSON_AddStringToObject(object, "version", text);
}

static bool is_version(const struct record *record, const char *text)
{
    char own[24];
    snprintf(own, sizeof own, "%" PRIu64, record->version);
    return strcmp(own, text) == 0;
}
