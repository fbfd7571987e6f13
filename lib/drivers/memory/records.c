/* Records and the token secret, as the platform keeps them. */

#include "drivers/memory/memory.h"
#include "util/fail.h"
#include "util/memory.h"
#include <stdio.h>

static sandbox_status find_out(void *state, const char *name, const char *text,
                               const char *expected, char version[SBX_VERSION_TEXT],
                               const struct sbx_wait *wait, sandbox_error *error);

static void copy_version(const cJSON *from, char version[SBX_VERSION_TEXT])
{
    snprintf(version, SBX_VERSION_TEXT, "%s", sbx_json_text(from, "version"));
}

static cJSON *about(const char *what, const char *name)
{
    cJSON *request = sbx_memory_request(what);
    if (request != NULL && sbx_json_set_text(request, "name", name))
        return request;
    cJSON_Delete(request);
    return NULL;
}

sandbox_status sbx_memory_record_load(void *state, const char *name, const struct sbx_wait *wait,
                                      char **text, size_t *size, char version[SBX_VERSION_TEXT],
                                      sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *answer = NULL;
    sandbox_status status =
        sbx_memory_ask(state, about("record.load", name), false, wait, &answer, error);
    if (status != SANDBOX_OK)
        return status;
    char *copy = sbx_copy(sbx_json_text(answer, "text"));
    if (copy == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a workspace's record");
    *text = copy;
    *size = strlen(copy);
    copy_version(answer, version);
    return SANDBOX_OK;
}

sandbox_status sbx_memory_record_store(void *state, const char *name, const char *text, size_t size,
                                       const char *expected, char version[SBX_VERSION_TEXT],
                                       const struct sbx_wait *wait, sandbox_error *error)
{
    if (size > SBX_RECORD_MAX)
        return sbx_fail(error, SANDBOX_LIMIT, "a record of %zu bytes; at most %u are kept", size,
                        SBX_RECORD_MAX);
    SBX_ON_EXIT(sbx_free_text) char *copy = sbx_copy_bytes(text, size);
    cJSON *request = copy == NULL ? NULL : about("record.store", name);
    if (request != NULL && (!sbx_json_set_text(request, "text", copy) ||
                            !sbx_json_set_text(request, "expected", expected)))
        sbx_json_free(&request);
    SBX_ON_EXIT(sbx_json_free) cJSON *answer = NULL;
    sandbox_status status = sbx_memory_ask(state, request, true, wait, &answer, error);
    if (status == SANDBOX_OK)
        copy_version(answer, version);
    return status == SANDBOX_UNKNOWN ? find_out(state, name, copy, expected, version, wait, error)
                                     : status;
}

/* The answer to a store was lost: what is stored now tells, unless somebody else wrote since. */
static sandbox_status find_out(void *state, const char *name, const char *text,
                               const char *expected, char version[SBX_VERSION_TEXT],
                               const struct sbx_wait *wait, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *stored = NULL;
    size_t size = 0;
    char now[SBX_VERSION_TEXT] = "";
    sandbox_error problem = {0};
    sandbox_status status =
        sbx_memory_record_load(state, name, wait, &stored, &size, now, &problem);
    if (status == SANDBOX_OK && strcmp(stored, text) == 0 && strcmp(now, expected) != 0) {
        memcpy(version, now, SBX_VERSION_TEXT);
        return SANDBOX_OK;
    }
    bool unchanged = status == SANDBOX_OK ? strcmp(now, expected) == 0
                                          : status == SANDBOX_NOT_FOUND && *expected == '\0';
    return unchanged ? sbx_fail(error, SANDBOX_UNAVAILABLE,
                                "the memory platform broke the connection and did not store")
                     : SANDBOX_UNKNOWN; /* the error still says why */
}

sandbox_status sbx_memory_record_remove(void *state, const char *name, const char *expected,
                                        const struct sbx_wait *wait, sandbox_error *error)
{
    cJSON *request = about("record.remove", name);
    if (request != NULL && !sbx_json_set_text(request, "expected", expected))
        sbx_json_free(&request);
    return sbx_memory_ask(state, request, false, wait, NULL, error);
}

/* False: the visitor wants no more. `after` becomes the last name of the page. */
static bool visit_page(const cJSON *answer, char after[SBX_NAME_MAX + 1],
                       bool (*visit)(void *user_data, const char *name, const char *text,
                                     size_t size, const char *version),
                       void *user_data)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(answer, "records");
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        const char *name = sbx_json_text(item, "name");
        const char *text = sbx_json_text(item, "text");
        char version[SBX_VERSION_TEXT];
        copy_version(item, version);
        snprintf(after, SBX_NAME_MAX + 1, "%s", name);
        if (!visit(user_data, name, text, strlen(text), version))
            return false;
    }
    return true;
}

sandbox_status sbx_memory_record_list(void *state, const struct sbx_wait *wait,
                                      bool (*visit)(void *user_data, const char *name,
                                                    const char *text, size_t size,
                                                    const char *version),
                                      void *user_data, sandbox_error *error)
{
    char after[SBX_NAME_MAX + 1] = "";
    for (bool more = true; more;) {
        cJSON *request = sbx_memory_request("record.list");
        if (request != NULL && !sbx_json_set_text(request, "after", after))
            sbx_json_free(&request);
        SBX_ON_EXIT(sbx_json_free) cJSON *answer = NULL;
        sandbox_status status = sbx_memory_ask(state, request, false, wait, &answer, error);
        if (status != SANDBOX_OK)
            return status;
        more = visit_page(answer, after, visit, user_data) && sbx_json_flag(answer, "more");
    }
    return SANDBOX_OK;
}

/* The text stays in the answer's tree until it is wiped here. */
sandbox_status sbx_memory_secret(void *state, uint32_t *key_id, uint8_t key[32],
                                 const struct sbx_wait *wait, sandbox_error *error)
{
    cJSON *request = sbx_memory_request("secret");
    if (request != NULL && !sbx_json_set_integer(request, "key_id", *key_id))
        sbx_json_free(&request);
    SBX_ON_EXIT(sbx_json_free) cJSON *answer = NULL;
    sandbox_status status = sbx_memory_ask(state, request, false, wait, &answer, error);
    if (status != SANDBOX_OK)
        return status;
    char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(answer, "key"));
    bool good = text != NULL && sbx_hex_parse(text, key, 32);
    if (text != NULL)
        sbx_wipe(text, strlen(text));
    if (!good)
        return sbx_fail(error, SANDBOX_FAILED, "the memory platform told no usable secret");
    *key_id = (uint32_t)sbx_json_integer(answer, "key_id");
    return SANDBOX_OK;
}
