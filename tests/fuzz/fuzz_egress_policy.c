/*
 * What the admin API is given for a workspace: a policy, transformations, additions. What is taken
 * can be told and read again; what is not says why in one line; and no request makes it fall over.
 */

#include "egress/request.h"
#include "egress/scrub.h"
#include "util/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_change(const struct sbx_egress_policy *old, const cJSON *json);
static void check_told(const struct sbx_egress_policy *policy);
static void check_use(const struct sbx_egress_policy *policy);
static void check_failed(sandbox_status status, const sandbox_error *error);
static void expect(bool right);

static const char request_text[] = "GET /https/a.example/v1/x?q=1&r=%41 HTTP/1.1\r\n"
                                   "Host: 127.0.0.1:3128\r\nX-Api-Key: PLACEHOLDER\r\n"
                                   "Authorization: Bearer aaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t key[SBX_EGRESS_DIGEST_KEY] = {7};
    sandbox_error error = {0};
    cJSON *json = NULL;
    sandbox_status status = sbx_egress_json_parse(data == NULL ? (const uint8_t *)"" : data, size,
                                                  1 << 16, &json, &error);
    if (status != SANDBOX_OK) {
        check_failed(status, &error);
        return 0;
    }
    struct sbx_egress_policy *old = sbx_egress_policy_new(key);
    if (old != NULL)
        check_change(old, json);
    sbx_egress_policy_drop(old);
    sbx_secret_free_json(&json);
    return 0;
}

static void check_change(const struct sbx_egress_policy *old, const cJSON *json)
{
    const struct sbx_egress_change change = {
        cJSON_GetObjectItemCaseSensitive(json, "policy"),
        cJSON_GetObjectItemCaseSensitive(json, "transformations"),
        cJSON_GetObjectItemCaseSensitive(json, "add"),
    };
    sandbox_error error = {0};
    struct sbx_egress_policy *policy = NULL;
    sandbox_status status = sbx_egress_policy_change(old, &change, &policy, &error);
    if (status != SANDBOX_OK) {
        expect(policy == NULL);
        check_failed(status, &error);
        return;
    }
    check_told(policy);
    check_use(policy);
    sbx_egress_policy_drop(policy);
}

static void check_told(const struct sbx_egress_policy *policy)
{
    cJSON *told = sbx_egress_policy_tell(policy);
    cJSON *rules = sbx_egress_policy_tell_rules(policy);
    expect(told != NULL && rules != NULL);
    expect((size_t)cJSON_GetArraySize(rules) == sbx_egress_policy_rule_count(policy));
    const struct sbx_egress_change again = {told, NULL, NULL};
    struct sbx_egress_policy *same = NULL;
    expect(sbx_egress_policy_change(policy, &again, &same, NULL) == SANDBOX_OK);
    cJSON *told_again = sbx_egress_policy_tell(same);
    expect(cJSON_Compare(told, told_again, 1));
    sbx_egress_policy_drop(same);
    cJSON_Delete(told_again);
    cJSON_Delete(told);
    cJSON_Delete(rules);
}

static void check_use(const struct sbx_egress_policy *policy)
{
    static struct sbx_egress_head head;
    struct sbx_egress_refusal refusal;
    struct sbx_egress_request request;
    struct sbx_egress_fields *fields = NULL;
    struct sbx_egress_scrub *scrub = NULL;
    struct sbx_bytes out = SBX_BYTES(1 << 16);
    expect(sbx_egress_head_parse(request_text, sizeof request_text - 1, &head, &refusal));
    bool allowed = sbx_egress_request_judge(&head, policy, &request, &refusal);
    expect(allowed == sbx_egress_policy_allows(policy, &request.host));
    if (sbx_egress_fields_make(&head, &request, policy, &fields, &refusal))
        for (size_t i = 0; i < sbx_egress_fields_count(fields); i++)
            expect(strpbrk(sbx_egress_fields_at(fields, i), "\r\n") == NULL);
    sbx_egress_fields_free(fields);
    if (sbx_egress_scrub_new(policy, &request.host, &scrub, NULL) == SANDBOX_OK && scrub != NULL)
        expect(sbx_egress_scrub_feed(scrub, request_text, sizeof request_text, &out) &&
               sbx_egress_scrub_end(scrub, &out));
    sbx_egress_scrub_free(scrub);
    sbx_bytes_free(&out);
}

static void check_failed(sandbox_status status, const sandbox_error *error)
{
    expect(status == error->status && error->message[0] != '\0');
    expect(strpbrk(error->message, "\r\n") == NULL);
}

static void expect(bool right)
{
    if (!right)
        abort();
}
