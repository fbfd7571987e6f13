/* The admin API's JSON, read strictly. */

#include "util/json.h"
#include "egress/policy.h"
#include "util/fail.h"
#include "util/memory.h"

#include <string.h>

#define MEMBERS_MAX 64 /* of one object */

static bool has_nul(const char *text, size_t size);
static sandbox_status check_objects(const cJSON *json, sandbox_error *error);
static bool is_plain(const char *name);

sandbox_status sbx_egress_json_parse(const void *text, size_t size, size_t limit, cJSON **out,
                                     sandbox_error *error)
{
    if (size > limit)
        return sbx_fail_for(error, SANDBOX_LIMIT, SBX_EGRESS_TOO_LARGE,
                            "the body has more than %zu bytes", limit);
    if (has_nul(text, size))
        return sbx_fail_for(error, SANDBOX_INVALID, SBX_EGRESS_BAD_REQUEST,
                            "the JSON has a NUL in it");
    SBX_ON_EXIT(sbx_secret_free_json) cJSON *json = NULL;
    if (sbx_json_parse(text, size, limit, &json, NULL) != SANDBOX_OK)
        return sbx_fail_for(error, SANDBOX_INVALID, SBX_EGRESS_BAD_REQUEST, "the body is no JSON");
    sandbox_status status = check_objects(json, error);
    if (status == SANDBOX_OK)
        *out = sbx_take(json);
    return status;
}

sandbox_status sbx_egress_json_members(const cJSON *object, const char *what,
                                       const char *const *names, size_t count, sandbox_error *error)
{
    if (!cJSON_IsObject(object))
        return sbx_fail_for(error, SANDBOX_INVALID, SBX_EGRESS_BAD_REQUEST, "%s is no object",
                            what);
    for (const cJSON *member = object->child; member != NULL; member = member->next) {
        size_t i = 0;
        while (i < count && strcmp(member->string, names[i]) != 0)
            i++;
        if (i == count && is_plain(member->string))
            return sbx_fail_for(error, SANDBOX_INVALID, SBX_EGRESS_BAD_REQUEST,
                                "%s has no member '%s'", what, member->string);
        if (i == count)
            return sbx_fail_for(error, SANDBOX_INVALID, SBX_EGRESS_BAD_REQUEST,
                                "%s has a member that is not known", what);
    }
    return SANDBOX_OK;
}

/* Also as the escape "\u0000", which would end the string early in C. */
static bool has_nul(const char *text, size_t size)
{
    bool in_string = false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\0')
            return true;
        if (text[i] == '"')
            in_string = !in_string;
        if (!in_string || text[i] != '\\')
            continue;
        if (size - i >= 6 && memcmp(text + i + 1, "u0000", 5) == 0)
            return true;
        i++;
        if (i < size && text[i] == '\0')
            return true;
    }
    return false;
}

/* Of two members of one name cJSON gives the first, and others the last. */
static sandbox_status check_objects(const cJSON *json, sandbox_error *error)
{
    size_t members = 0;
    for (const cJSON *child = json->child; child != NULL; child = child->next) {
        if (cJSON_IsObject(json) && ++members > MEMBERS_MAX)
            return sbx_fail_for(error, SANDBOX_INVALID, SBX_EGRESS_BAD_REQUEST,
                                "an object has more than %d members", MEMBERS_MAX);
        for (const cJSON *other = json->child; cJSON_IsObject(json) && other != child;
             other = other->next)
            if (strcmp(other->string, child->string) == 0)
                return sbx_fail_for(error, SANDBOX_INVALID, SBX_EGRESS_BAD_REQUEST,
                                    "an object has a member twice");
        sandbox_status status = check_objects(child, error);
        if (status != SANDBOX_OK)
            return status;
    }
    return SANDBOX_OK;
}

/* Whether it may be told: a word of an API, and no value that strayed into its place. */
static bool is_plain(const char *name)
{
    size_t size = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_");
    return name[size] == '\0' && size > 0 && size <= 24;
}
