/* JSON with limits, over cJSON. */

#include "util/json.h"
#include "util/fail.h"
#include "util/memory.h"
#include <string.h>

/* The largest whole number that a double holds without a gap. */
#define EXACT_MAX 9007199254740992.0

sandbox_status sbx_json_parse(const void *text, size_t size, size_t limit, cJSON **out,
                              sandbox_error *error)
{
    if (size > limit)
        return sbx_fail(error, SANDBOX_LIMIT, "JSON of %zu bytes; at most %zu are allowed", size,
                        limit);
    const char *end = NULL;
    cJSON *json = cJSON_ParseWithLengthOpts(text, size, &end, 0);
    if (json == NULL)
        return sbx_fail(error, SANDBOX_FAILED, "not valid JSON");
    for (const char *at = end; at < (const char *)text + size; at++) {
        if (*at != ' ' && *at != '\n' && *at != '\r' && *at != '\t' && *at != '\0') {
            cJSON_Delete(json);
            return sbx_fail(error, SANDBOX_FAILED, "bytes after the end of the JSON value");
        }
    }
    *out = json;
    return SANDBOX_OK;
}

const char *sbx_json_text(const cJSON *object, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    return text == NULL ? "" : text;
}

int64_t sbx_json_integer(const cJSON *object, const char *name)
{
    return sbx_json_number(cJSON_GetObjectItemCaseSensitive(object, name));
}

int64_t sbx_json_number(const cJSON *item)
{
    if (!cJSON_IsNumber(item) || item->valuedouble != item->valuedouble)
        return 0;
    if (item->valuedouble > EXACT_MAX)
        return (int64_t)EXACT_MAX;
    if (item->valuedouble < -EXACT_MAX)
        return -(int64_t)EXACT_MAX;
    return (int64_t)item->valuedouble;
}

bool sbx_json_flag(const cJSON *object, const char *name)
{
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, name));
}

static bool set_item(cJSON *object, const char *name, cJSON *item)
{
    if (item == NULL)
        return false;
    sbx_json_remove(object, name);
    if (cJSON_AddItemToObject(object, name, item))
        return true;
    cJSON_Delete(item);
    return false;
}

bool sbx_json_set_text(cJSON *object, const char *name, const char *text)
{
    return set_item(object, name, cJSON_CreateString(text));
}

bool sbx_json_set_integer(cJSON *object, const char *name, int64_t number)
{
    return set_item(object, name, cJSON_CreateNumber((double)number));
}

bool sbx_json_set_flag(cJSON *object, const char *name, bool value)
{
    return set_item(object, name, cJSON_CreateBool(value));
}

void sbx_json_remove(cJSON *object, const char *name)
{
    while (cJSON_GetObjectItemCaseSensitive(object, name) != NULL)
        cJSON_DeleteItemFromObjectCaseSensitive(object, name);
}

void sbx_json_free(cJSON **json)
{
    cJSON_Delete(*json);
    *json = NULL;
}

/* As deep as the parser let it become. */
static void wipe(const cJSON *json)
{
    for (const cJSON *item = json; item != NULL; item = item->next) {
        if (item->valuestring != NULL)
            sbx_wipe(item->valuestring, strlen(item->valuestring));
        wipe(item->child);
    }
}

void sbx_secret_free_json(cJSON **json)
{
    wipe(*json);
    sbx_json_free(json);
}
