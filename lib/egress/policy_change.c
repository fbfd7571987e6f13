/* A new policy out of an old one and what the admin API says. */

#include "egress/policy_parts.h"
#include "util/fail.h"
#include "util/json.h"
#include "util/memory.h"

#include <stdlib.h>
#include <string.h>

static sandbox_status take_old(struct sbx_egress_policy *policy,
                               const struct sbx_egress_policy *old,
                               const struct sbx_egress_change *change, sandbox_error *error);
static sandbox_status copy_hosts(struct sbx_egress_hosts *to, const struct sbx_egress_hosts *from,
                                 sandbox_error *error);
static sandbox_status read_policy(struct sbx_egress_policy *policy, const cJSON *json,
                                  sandbox_error *error);
static sandbox_status read_mode(struct sbx_egress_policy *policy, const cJSON *json,
                                sandbox_error *error);
static sandbox_status read_ech(struct sbx_egress_policy *policy, const cJSON *json,
                               sandbox_error *error);
static sandbox_status read_added(struct sbx_egress_policy *policy, const cJSON *json,
                                 sandbox_error *error);
static sandbox_status add_hosts(struct sbx_egress_hosts *hosts, const cJSON *json, const char *what,
                                sandbox_error *error);
static sandbox_status add_rules(struct sbx_egress_policy *policy, const cJSON *json,
                                const char *what, sandbox_error *error);
static sandbox_status add_rule(struct sbx_egress_policy *policy, struct sbx_egress_rule *rule,
                               sandbox_error *error);
static sandbox_status no_memory(sandbox_error *error);
static void drop(struct sbx_egress_policy **policy);

sandbox_status sbx_egress_policy_change(const struct sbx_egress_policy *old,
                                        const struct sbx_egress_change *change,
                                        struct sbx_egress_policy **out, sandbox_error *error)
{
    SBX_ON_EXIT(drop) struct sbx_egress_policy *policy = sbx_egress_policy_new(old->key);
    if (policy == NULL)
        return no_memory(error);
    sandbox_status status = take_old(policy, old, change, error);
    if (status == SANDBOX_OK && change->policy != NULL)
        status = read_policy(policy, change->policy, error);
    if (status == SANDBOX_OK && change->transformations != NULL)
        status = add_rules(policy, change->transformations, "transformations", error);
    if (status == SANDBOX_OK && change->add != NULL)
        status = read_added(policy, change->add, error);
    if (status == SANDBOX_OK)
        *out = sbx_take(policy);
    return status;
}

/* What the change does not replace. */
static sandbox_status take_old(struct sbx_egress_policy *policy,
                               const struct sbx_egress_policy *old,
                               const struct sbx_egress_change *change, sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    if (change->policy == NULL) {
        policy->mode = old->mode;
        policy->ech = old->ech;
        status = copy_hosts(policy->allow, old->allow, error);
        if (status == SANDBOX_OK)
            status = copy_hosts(policy->http, old->http, error);
    }
    for (size_t i = 0; change->transformations == NULL && i < old->rule_count; i++) {
        if (status == SANDBOX_OK)
            status = add_rule(policy, old->rules[i], error);
    }
    return status;
}

static sandbox_status copy_hosts(struct sbx_egress_hosts *to, const struct sbx_egress_hosts *from,
                                 sandbox_error *error)
{
    for (size_t i = 0; i < sbx_egress_hosts_count(from); i++) {
        const char *pattern = sbx_egress_hosts_at(from, i);
        const char *fault = NULL;
        if (sbx_egress_hosts_add(to, pattern, strlen(pattern), &fault) != SBX_EGRESS_HOSTS_ADDED)
            return no_memory(error);
    }
    return SANDBOX_OK;
}

static sandbox_status read_policy(struct sbx_egress_policy *policy, const cJSON *json,
                                  sandbox_error *error)
{
    static const char *const members[] = {"mode", "allow", "http", "cidrs", "ech"};
    sandbox_status status = sbx_egress_json_members(json, "policy", members, 5, error);
    if (status == SANDBOX_OK && cJSON_HasObjectItem(json, "cidrs"))
        status = sbx_fail_for(error, SANDBOX_UNSUPPORTED, SBX_EGRESS_NO_RANGES,
                              "policy.cidrs: ranges of addresses cannot be allowed, only names");
    if (status == SANDBOX_OK)
        status = read_mode(policy, json, error);
    if (status == SANDBOX_OK)
        status = read_ech(policy, json, error);
    if (status == SANDBOX_OK)
        status = add_hosts(policy->allow, cJSON_GetObjectItemCaseSensitive(json, "allow"),
                           "policy.allow", error);
    if (status == SANDBOX_OK)
        status = add_hosts(policy->http, cJSON_GetObjectItemCaseSensitive(json, "http"),
                           "policy.http", error);
    if (status == SANDBOX_OK && policy->mode == MODE_DENY_ALL &&
        sbx_egress_hosts_count(policy->allow) + sbx_egress_hosts_count(policy->http) > 0)
        status = sbx_fail_for(error, SANDBOX_INVALID, SBX_EGRESS_BAD_REQUEST,
                              "policy.mode is deny-all, and policy names hosts all the same");
    return status;
}

static sandbox_status read_mode(struct sbx_egress_policy *policy, const cJSON *json,
                                sandbox_error *error)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, "mode");
    const char *mode = item == NULL ? "custom" : cJSON_GetStringValue(item);
    if (mode != NULL && strcmp(mode, "custom") == 0)
        policy->mode = MODE_CUSTOM;
    else if (mode != NULL && strcmp(mode, "allow-all") == 0)
        policy->mode = MODE_ALLOW_ALL;
    else if (mode != NULL && strcmp(mode, "deny-all") == 0)
        policy->mode = MODE_DENY_ALL;
    else
        return sbx_fail_for(error, SANDBOX_INVALID, SBX_EGRESS_BAD_REQUEST,
                            "policy.mode is none of custom, allow-all and deny-all");
    return SANDBOX_OK;
}

static sandbox_status read_ech(struct sbx_egress_policy *policy, const cJSON *json,
                               sandbox_error *error)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, "ech");
    const char *ech = item == NULL ? "deny" : cJSON_GetStringValue(item);
    if (ech != NULL && strcmp(ech, "deny") == 0)
        policy->ech = SBX_EGRESS_ECH_DENY;
    else if (ech != NULL && strcmp(ech, "allow-grease") == 0)
        policy->ech = SBX_EGRESS_ECH_ALLOW_GREASE;
    else
        return sbx_fail_for(error, SANDBOX_INVALID, SBX_EGRESS_BAD_REQUEST,
                            "policy.ech is neither deny nor allow-grease");
    return SANDBOX_OK;
}

static sandbox_status read_added(struct sbx_egress_policy *policy, const cJSON *json,
                                 sandbox_error *error)
{
    static const char *const members[] = {"allow", "http", "transformations"};
    sandbox_status status = sbx_egress_json_members(json, "add", members, 3, error);
    if (status == SANDBOX_OK)
        status = add_hosts(policy->allow, cJSON_GetObjectItemCaseSensitive(json, "allow"),
                           "add.allow", error);
    if (status == SANDBOX_OK)
        status = add_hosts(policy->http, cJSON_GetObjectItemCaseSensitive(json, "http"), "add.http",
                           error);
    if (status == SANDBOX_OK && cJSON_HasObjectItem(json, "transformations"))
        status = add_rules(policy, cJSON_GetObjectItemCaseSensitive(json, "transformations"),
                           "add.transformations", error);
    if (policy->mode == MODE_DENY_ALL &&
        sbx_egress_hosts_count(policy->allow) + sbx_egress_hosts_count(policy->http) > 0)
        policy->mode = MODE_CUSTOM;
    return status;
}

static sandbox_status add_hosts(struct sbx_egress_hosts *hosts, const cJSON *json, const char *what,
                                sandbox_error *error)
{
    if (json == NULL)
        return SANDBOX_OK;
    if (!cJSON_IsArray(json))
        return sbx_fail_for(error, SANDBOX_INVALID, SBX_EGRESS_BAD_REQUEST, "%s is no list", what);
    size_t index = 0;
    for (const cJSON *item = json->child; item != NULL; item = item->next, index++) {
        const char *pattern = cJSON_GetStringValue(item);
        const char *fault = "it is no text";
        enum sbx_egress_hosts_added added = SBX_EGRESS_HOSTS_BAD;
        if (pattern != NULL)
            added = sbx_egress_hosts_add(hosts, pattern, strlen(pattern), &fault);
        if (added == SBX_EGRESS_HOSTS_BAD)
            return sbx_fail_for(error, SANDBOX_INVALID, SBX_EGRESS_BAD_REQUEST, "%s[%zu]: %s", what,
                                index, fault);
        if (added == SBX_EGRESS_HOSTS_FULL)
            return sbx_fail_for(error, SANDBOX_LIMIT, SBX_EGRESS_LIMIT, "%s: more than %d hosts",
                                what, SBX_EGRESS_HOSTS_MAX);
        if (added == SBX_EGRESS_HOSTS_NO_MEMORY)
            return no_memory(error);
    }
    return SANDBOX_OK;
}

static sandbox_status add_rules(struct sbx_egress_policy *policy, const cJSON *json,
                                const char *what, sandbox_error *error)
{
    if (!cJSON_IsArray(json))
        return sbx_fail_for(error, SANDBOX_INVALID, SBX_EGRESS_BAD_REQUEST, "%s is no list", what);
    size_t index = 0;
    for (const cJSON *item = json->child; item != NULL; item = item->next, index++) {
        struct sbx_egress_rule *rule = NULL;
        sandbox_error inner = {0};
        sandbox_status status = sbx_egress_rule_read(item, policy->key, &rule, &inner);
        if (status == SANDBOX_NO_MEMORY)
            return no_memory(error);
        if (status != SANDBOX_OK)
            return sbx_fail_for(error, status, inner.reason, "%s[%zu]: %s", what, index,
                                inner.message);
        status = add_rule(policy, rule, error);
        sbx_egress_rule_drop(rule);
        if (status != SANDBOX_OK)
            return status;
    }
    return SANDBOX_OK;
}

static sandbox_status add_rule(struct sbx_egress_policy *policy, struct sbx_egress_rule *rule,
                               sandbox_error *error)
{
    if (policy->rule_count == SBX_EGRESS_RULES_MAX)
        return sbx_fail_for(error, SANDBOX_LIMIT, SBX_EGRESS_LIMIT, "more than %d transformations",
                            SBX_EGRESS_RULES_MAX);
    struct sbx_egress_rule **rules =
        realloc(policy->rules, (policy->rule_count + 1) * sizeof *rules);
    if (rules == NULL)
        return no_memory(error);
    policy->rules = rules;
    policy->rules[policy->rule_count++] = sbx_egress_rule_keep(rule);
    return SANDBOX_OK;
}

static sandbox_status no_memory(sandbox_error *error)
{
    return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a policy");
}

static void drop(struct sbx_egress_policy **policy)
{
    sbx_egress_policy_drop(*policy);
}
