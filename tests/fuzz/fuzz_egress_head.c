/*
 * The head of a request: the guest writes it. Whatever passes has one reading, goes to a host that
 * the policy names, and gets the real value only for the placeholder.
 */

#include "egress/fields.h"
#include "egress/request.h"
#include "util/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct sbx_egress_policy *policy_of_test(void);
static enum sbx_egress_head_state scan_slowly(const char *data, size_t size, size_t *looked);
static void judge(const char *data, size_t size, const struct sbx_egress_policy *policy);
static void check_request(const struct sbx_egress_head *head,
                          const struct sbx_egress_request *request,
                          const struct sbx_egress_policy *policy);
static void check_sent(const struct sbx_egress_request *request, const char *data, size_t size,
                       const struct sbx_bytes *sent);
static void expect(bool right);

static const char policy_text[] = "{\"allow\":[\"api.example.com\",\"*.cdn.example.net\"],"
                                  "\"http\":[\"deb.example.org\"]}";
static const char rules_text[] =
    "[{\"match\":{\"host\":\"api.example.com\",\"headers\":[{\"name\":\"x-api-key\","
    "\"value_exact\":\"PLACEHOLDER-5f2c\"}],\"query\":[{\"name\":\"q\",\"value_regex\":\"a+\"}],"
    "\"path\":{\"starts_with\":\"/v1/\"}},\"set\":{\"x-api-key\":\"REAL-SECRET-91ab\"}},"
    "{\"match\":{\"host\":\"api.example.com\",\"headers\":[{\"name\":\"x-api-key\","
    "\"value_exact\":\"PLACEHOLDER-5f2c\"}]},\"set\":{\"x-api-key\":\"REAL-SECRET-91ab\"}}]";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Where it stands exactly, so that a sanitizer sees a byte too far. */
    char *text = malloc(size == 0 ? 1 : size);
    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    struct sbx_egress_refusal refusal = {0};
    size_t whole = 0;
    size_t slow = 0;
    enum sbx_egress_head_state state = sbx_egress_head_scan(text, size, &whole, &refusal);
    expect(scan_slowly(text, size, &slow) == state);
    if (state == SBX_EGRESS_HEAD_WHOLE) {
        expect(slow == whole && whole <= SBX_EGRESS_HEAD_MAX);
        judge(text, whole, policy_of_test());
    } else if (state == SBX_EGRESS_HEAD_BAD) {
        expect(refusal.status >= 400 && refusal.text[0] != '\0');
    }
    free(text);
    return 0;
}

static const struct sbx_egress_policy *policy_of_test(void)
{
    static struct sbx_egress_policy *policy;
    if (policy != NULL)
        return policy;
    static const uint8_t key[SBX_EGRESS_DIGEST_KEY] = {1};
    struct sbx_egress_policy *empty = sbx_egress_policy_new(key);
    cJSON *hosts = cJSON_Parse(policy_text);
    cJSON *rules = cJSON_Parse(rules_text);
    const struct sbx_egress_change change = {hosts, rules, NULL};
    expect(sbx_egress_policy_change(empty, &change, &policy, NULL) == SANDBOX_OK);
    cJSON_Delete(hosts);
    cJSON_Delete(rules);
    sbx_egress_policy_drop(empty);
    return policy;
}

static enum sbx_egress_head_state scan_slowly(const char *data, size_t size, size_t *looked)
{
    struct sbx_egress_refusal refusal;
    enum sbx_egress_head_state state = SBX_EGRESS_HEAD_MORE;
    for (size_t there = 0; there <= size && state == SBX_EGRESS_HEAD_MORE; there++)
        state = sbx_egress_head_scan(data, there, looked, &refusal);
    return state;
}

static void judge(const char *data, size_t size, const struct sbx_egress_policy *policy)
{
    static struct sbx_egress_head head;
    struct sbx_egress_refusal refusal = {0};
    struct sbx_egress_request request;
    struct sbx_bytes answer = SBX_BYTES(2048);
    bool passes = sbx_egress_head_parse(data, size, &head, &refusal) &&
                  sbx_egress_request_judge(&head, policy, &request, &refusal);
    struct sbx_egress_fields *fields = NULL;
    if (passes) {
        check_request(&head, &request, policy);
        passes = sbx_egress_fields_make(&head, &request, policy, &fields, &refusal);
    }
    if (passes) {
        struct sbx_bytes sent = SBX_BYTES(1 << 20);
        expect(sbx_egress_head_write(&head, &request, fields, &sent));
        if (request.kind != SBX_EGRESS_CONNECT)
            check_sent(&request, data, size, &sent);
        sbx_bytes_free(&sent);
    } else {
        expect(refusal.status >= 400 && refusal.reason != NULL && refusal.text[0] != '\0');
        expect(sbx_egress_refusal_write(&refusal, &answer));
    }
    sbx_bytes_free(&answer);
    sbx_egress_fields_free(fields);
}

static void check_request(const struct sbx_egress_head *head,
                          const struct sbx_egress_request *request,
                          const struct sbx_egress_policy *policy)
{
    bool is_plain = request->kind == SBX_EGRESS_HTTP;
    expect(request->port == (is_plain ? 80 : 443) && !request->host.is_literal);
    expect(is_plain ? sbx_egress_policy_allows_http(policy, &request->host)
                    : sbx_egress_policy_allows(policy, &request->host));
    expect(strlen(request->host.name) == request->host.size);
    expect(head->minor == 0 || head->host.data != NULL);
    expect(request->kind != SBX_EGRESS_CONNECT || head->body == SBX_EGRESS_BODY_NONE);
}

/* What goes out is a head that is read in one way, too, and says no more than it may. */
static void check_sent(const struct sbx_egress_request *request, const char *data, size_t size,
                       const struct sbx_bytes *sent)
{
    static struct sbx_egress_head again;
    struct sbx_egress_refusal refusal = {0};
    const char *text = (const char *)sbx_bytes_data(sent);
    bool parsed = sbx_egress_head_parse(text, sbx_bytes_size(sent), &again, &refusal);
    expect(parsed || refusal.status == 431);
    if (!parsed)
        return;
    expect(sbx_egress_text_is(again.host, request->host.name));
    for (size_t i = 0; i < again.field_count; i++)
        expect(!sbx_egress_text_is(again.fields[i].name, "te") &&
               !sbx_egress_text_is(again.fields[i].name, "upgrade") &&
               !sbx_egress_text_is(again.fields[i].name, "proxy-authorization"));
    bool had = memmem(data, size, "REAL-SECRET-91ab", 16) != NULL;
    bool has = memmem(text, sbx_bytes_size(sent), "REAL-SECRET-91ab", 16) != NULL;
    bool asked = memmem(data, size, "PLACEHOLDER-5f2c", 16) != NULL;
    expect(!has || had || (asked && request->kind == SBX_EGRESS_ROUTE));
}

static void expect(bool right)
{
    if (!right)
        abort();
}
