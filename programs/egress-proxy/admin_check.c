/* Looks for a workspace's credentials in texts: see admin_check.h. */

#include "admin_check.h"
#include "admin_workspace.h"
#include "egress/policy.h"
#include "egress/scrub.h"
#include "util/fail.h"
#include "util/json.h"
#include "util/memory.h"
#include <string.h>

static sandbox_status check_body(const struct admin_request *request, cJSON **json,
                                 sandbox_error *error);
static bool any_holds(const struct sbx_egress_scrub *scrub, const cJSON *texts);
static bool name_hosts(const struct sbx_egress_policy *policy, const cJSON *texts, cJSON *hosts);

static void free_scrub(struct sbx_egress_scrub **scrub)
{
    sbx_egress_scrub_free(*scrub);
}

void admin_check_texts(const struct workspace *workspace, const struct admin_request *request,
                       struct admin_answer *answer)
{
    sandbox_error error;
    SBX_ON_EXIT(sbx_secret_free_json) cJSON *json = NULL;
    SBX_ON_EXIT(free_scrub) struct sbx_egress_scrub *scrub = NULL;
    sandbox_status status = check_body(request, &json, &error);
    if (status == SANDBOX_OK)
        status = sbx_egress_scrub_new(workspace->policy, NULL, &scrub, &error);
    if (status != SANDBOX_OK) {
        bool ours = status == SANDBOX_NO_MEMORY || status == SANDBOX_LIMIT;
        admin_fail(answer, ours ? 507 : 400, ours ? "limit" : "bad-request", error.message);
        return;
    }
    const cJSON *texts = cJSON_GetObjectItemCaseSensitive(json, "texts");
    bool secret = scrub != NULL && any_holds(scrub, texts);
    cJSON *object = cJSON_CreateObject();
    cJSON *hosts = cJSON_AddArrayToObject(object, "hosts");
    bool whole = hosts != NULL && sbx_json_set_flag(object, "secret", secret) &&
                 (!secret || name_hosts(workspace->policy, texts, hosts));
    admin_tell(answer, 200, object, whole);
}

static sandbox_status check_body(const struct admin_request *request, cJSON **json,
                                 sandbox_error *error)
{
    static const char *const names[] = {"texts"};
    sandbox_status status =
        sbx_egress_json_parse(request->body, request->body_size, ADMIN_CHECK_MAX, json, error);
    if (status == SANDBOX_OK)
        status = sbx_egress_json_members(*json, "a check", names, 1, error);
    const cJSON *texts = cJSON_GetObjectItemCaseSensitive(*json, "texts"), *text;
    if (status == SANDBOX_OK && !cJSON_IsArray(texts))
        status = sbx_fail(error, SANDBOX_INVALID, "'texts' must be there, an array");
    cJSON_ArrayForEach(text, texts)
    {
        if (status == SANDBOX_OK && !cJSON_IsString(text))
            status = sbx_fail(error, SANDBOX_INVALID, "'texts' holds texts only");
    }
    return status;
}

static bool any_holds(const struct sbx_egress_scrub *scrub, const cJSON *texts)
{
    const cJSON *text;
    cJSON_ArrayForEach(text, texts)
    {
        if (sbx_egress_scrub_finds(scrub, text->valuestring, strlen(text->valuestring)))
            return true;
    }
    return false;
}

/* Which hosts' credentials they are, each once. */
static bool name_hosts(const struct sbx_egress_policy *policy, const cJSON *texts, cJSON *hosts)
{
    sandbox_error error;
    for (size_t i = 0; i < sbx_egress_policy_rule_count(policy); i++) {
        const struct sbx_egress_host *host =
            sbx_egress_rule_host(sbx_egress_policy_rule_at(policy, i));
        SBX_ON_EXIT(free_scrub) struct sbx_egress_scrub *scrub = NULL;
        const cJSON *known;
        bool told = false;
        cJSON_ArrayForEach(known, hosts)
        {
            told = told || strcmp(known->valuestring, host->name) == 0;
        }
        if (told)
            continue;
        if (sbx_egress_scrub_new(policy, host, &scrub, &error) != SANDBOX_OK)
            return false;
        cJSON *name = any_holds(scrub, texts) ? cJSON_CreateString(host->name) : NULL;
        if (name != NULL && !cJSON_AddItemToArray(hosts, name)) {
            cJSON_Delete(name);
            return false;
        }
    }
    return true;
}
