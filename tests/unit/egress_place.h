/* What the tests of the egress policy share: policies out of JSON, and requests judged by them. */
#ifndef EGRESS_PLACE_H
#define EGRESS_PLACE_H

#include "egress/request.h"
#include "egress/scrub.h"
#include "util/json.h"
#include "util/memory.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static const uint8_t egress_key[SBX_EGRESS_DIGEST_KEY] = "a key for digests";

#define REAL_SECRET "REAL-SECRET-91ab"
#define PLACEHOLDER "PLACEHOLDER-5f2c"

#define TABLE_POLICY                                                                               \
    "{\"mode\": \"custom\", \"allow\": [\"api.example.com\", \"*.cdn.example.net\","               \
    " \"github.com\"], \"http\": [\"deb.example.org\"]}"
#define TABLE_RULES                                                                                \
    "[{\"match\": {\"host\": \"api.example.com\", \"headers\": [{\"name\": \"x-api-key\","         \
    " \"value_exact\": \"" PLACEHOLDER "\"}]}, \"set\": {\"x-api-key\": \"" REAL_SECRET "\"}},"    \
    "{\"match\": {\"host\": \"github.com\", \"headers\": [{\"name\": \"authorization\","           \
    " \"value_exact\": \"Basic UExBQ0VIT0xERVI=\"}]},"                                             \
    " \"set\": {\"authorization\": \"Basic UkVBTC1TRUNSRVQ=\"}}]"

__attribute__((unused)) static cJSON *egress_json(const char *text)
{
    cJSON *json = NULL;
    sandbox_error error = {0};
    if (text != NULL)
        ck_assert_msg(sbx_egress_json_parse(text, strlen(text), 1 << 20, &json, &error) ==
                          SANDBOX_OK,
                      "%s: %s", text, error.message);
    return json;
}

/* The old policy (NULL: a fresh one) with a change, each part as JSON or NULL. The old one stays.
 */
__attribute__((unused)) static sandbox_status egress_change(struct sbx_egress_policy *old,
                                                            const char *policy, const char *rules,
                                                            const char *add,
                                                            struct sbx_egress_policy **out,
                                                            sandbox_error *error)
{
    struct sbx_egress_policy *base =
        old == NULL ? sbx_egress_policy_new(egress_key) : sbx_egress_policy_keep(old);
    ck_assert_ptr_nonnull(base);
    cJSON *parts[] = {egress_json(policy), egress_json(rules), egress_json(add)};
    const struct sbx_egress_change change = {parts[0], parts[1], parts[2]};
    sandbox_status status = sbx_egress_policy_change(base, &change, out, error);
    for (size_t i = 0; i < 3; i++)
        cJSON_Delete(parts[i]);
    sbx_egress_policy_drop(base);
    return status;
}

/* One that must be right. */
__attribute__((unused)) static struct sbx_egress_policy *egress_policy(const char *policy,
                                                                       const char *rules)
{
    struct sbx_egress_policy *out = NULL;
    sandbox_error error = {0};
    ck_assert_msg(egress_change(NULL, policy, rules, NULL, &out, &error) == SANDBOX_OK, "%s",
                  error.message);
    return out;
}

/* A host that must be right. */
__attribute__((unused)) static struct sbx_egress_host egress_host(const char *text)
{
    struct sbx_egress_host host;
    const char *fault = sbx_egress_host_read(text, strlen(text), &host);
    ck_assert_msg(fault == NULL, "%s: %s", text, fault);
    return host;
}

/* What became of a request. */
struct egress_result {
    bool allowed;
    struct sbx_egress_request request;
    struct sbx_egress_refusal refusal;
    struct sbx_bytes sent; /* the head that goes to the server; free it */
};

__attribute__((unused)) static struct egress_result egress_ask(
    const struct sbx_egress_policy *policy, const char *bytes, size_t size)
{
    static struct sbx_egress_head head;
    struct egress_result result = {.sent = SBX_BYTES(1 << 20)};
    struct sbx_egress_fields *fields = NULL;
    size_t looked = 0;
    if (sbx_egress_head_scan(bytes, size, &looked, &result.refusal) != SBX_EGRESS_HEAD_WHOLE ||
        !sbx_egress_head_parse(bytes, looked, &head, &result.refusal) ||
        !sbx_egress_request_judge(&head, policy, &result.request, &result.refusal))
        return result;
    if (result.request.kind != SBX_EGRESS_CONNECT) {
        if (!sbx_egress_fields_make(&head, &result.request, policy, &fields, &result.refusal))
            return result;
        ck_assert(sbx_egress_head_write(&head, &result.request, fields, &result.sent));
        sbx_egress_fields_free(fields);
    }
    ck_assert(sbx_bytes_append(&result.sent, "", 1));
    result.allowed = true;
    return result;
}

#endif
