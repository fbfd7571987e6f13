/* What one workspace may reach: made, asked, told. */

#include "egress/policy_parts.h"
#include "util/memory.h"

#include <stdlib.h>
#include <string.h>

static bool tell_hosts(cJSON *told, const char *name, const struct sbx_egress_hosts *hosts);

static const char *const mode_names[] = {"custom", "allow-all", "deny-all"};

struct sbx_egress_policy *sbx_egress_policy_new(const uint8_t key[SBX_EGRESS_DIGEST_KEY])
{
    struct sbx_egress_policy *policy = calloc(1, sizeof *policy);
    if (policy == NULL)
        return NULL;
    policy->references = 1;
    policy->mode = MODE_DENY_ALL;
    policy->allow = sbx_egress_hosts_new();
    policy->http = sbx_egress_hosts_new();
    memcpy(policy->key, key, sizeof policy->key);
    if (policy->allow == NULL || policy->http == NULL) {
        sbx_egress_policy_drop(policy);
        return NULL;
    }
    return policy;
}

struct sbx_egress_policy *sbx_egress_policy_keep(struct sbx_egress_policy *policy)
{
    atomic_fetch_add(&policy->references, 1);
    return policy;
}

void sbx_egress_policy_drop(struct sbx_egress_policy *policy)
{
    if (policy == NULL || atomic_fetch_sub(&policy->references, 1) != 1)
        return;
    sbx_egress_hosts_free(policy->allow);
    sbx_egress_hosts_free(policy->http);
    for (size_t i = 0; i < policy->rule_count; i++)
        sbx_egress_rule_drop(policy->rules[i]);
    free(policy->rules);
    sbx_wipe(policy->key, sizeof policy->key);
    free(policy);
}

bool sbx_egress_policy_allows(const struct sbx_egress_policy *policy,
                              const struct sbx_egress_host *host)
{
    if (host->is_literal)
        return false;
    if (sbx_egress_hosts_has(policy->allow, host))
        return true;
    return policy->mode == MODE_ALLOW_ALL && !sbx_egress_host_is_local(host);
}

bool sbx_egress_policy_allows_http(const struct sbx_egress_policy *policy,
                                   const struct sbx_egress_host *host)
{
    return sbx_egress_hosts_has(policy->http, host);
}

enum sbx_egress_ech sbx_egress_policy_ech(const struct sbx_egress_policy *policy)
{
    return policy->ech;
}

size_t sbx_egress_policy_rule_count(const struct sbx_egress_policy *policy)
{
    return policy->rule_count;
}

const struct sbx_egress_rule *sbx_egress_policy_rule_at(const struct sbx_egress_policy *policy,
                                                        size_t index)
{
    return policy->rules[index];
}

cJSON *sbx_egress_policy_tell(const struct sbx_egress_policy *policy)
{
    cJSON *told = cJSON_CreateObject();
    const char *ech = policy->ech == SBX_EGRESS_ECH_DENY ? "deny" : "allow-grease";
    if (cJSON_AddStringToObject(told, "mode", mode_names[policy->mode]) == NULL ||
        !tell_hosts(told, "allow", policy->allow) || !tell_hosts(told, "http", policy->http) ||
        cJSON_AddStringToObject(told, "ech", ech) == NULL) {
        cJSON_Delete(told);
        return NULL;
    }
    return told;
}

cJSON *sbx_egress_policy_tell_rules(const struct sbx_egress_policy *policy)
{
    cJSON *told = cJSON_CreateArray();
    for (size_t i = 0; told != NULL && i < policy->rule_count; i++) {
        cJSON *rule = sbx_egress_rule_tell(policy->rules[i]);
        if (!cJSON_AddItemToArray(told, rule)) {
            cJSON_Delete(told);
            return NULL;
        }
    }
    return told;
}

static bool tell_hosts(cJSON *told, const char *name, const struct sbx_egress_hosts *hosts)
{
    cJSON *list = cJSON_AddArrayToObject(told, name);
    for (size_t i = 0; list != NULL && i < sbx_egress_hosts_count(hosts); i++) {
        cJSON *pattern = cJSON_CreateString(sbx_egress_hosts_at(hosts, i));
        if (!cJSON_AddItemToArray(list, pattern))
            return false;
    }
    return list != NULL;
}
