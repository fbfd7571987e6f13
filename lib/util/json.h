/* JSON with limits, over cJSON. */
#ifndef SBX_UTIL_JSON_H
#define SBX_UTIL_JSON_H

#include <cjson/cJSON.h>
#include <sandbox/error.h>

/* Parses exactly one value of at most `limit` bytes. Free with cJSON_Delete(). */
sandbox_status sbx_json_parse(const void *text, size_t size, size_t limit, cJSON **out,
                              sandbox_error *error);
/* "" if there is no such string. Borrowed. */
const char *sbx_json_text(const cJSON *object, const char *name);
/* 0 if it is no number (NULL allowed), clamped to what is exact in a double. */
int64_t sbx_json_number(const cJSON *item);
int64_t sbx_json_integer(const cJSON *object, const char *name);
bool sbx_json_flag(const cJSON *object, const char *name);
/* False on no memory. They replace what was there. */
bool sbx_json_set_text(cJSON *object, const char *name, const char *text);
bool sbx_json_set_integer(cJSON *object, const char *name, int64_t number);
bool sbx_json_set_flag(cJSON *object, const char *name, bool value);
/* All of that name: a second one would be read in place of the one that is written now. */
void sbx_json_remove(cJSON *object, const char *name);

void sbx_json_free(cJSON **json);        /* for SBX_ON_EXIT */
void sbx_secret_free_json(cJSON **json); /* the same, and no text of it stays in freed memory */

#endif
