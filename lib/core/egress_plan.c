/* From a caller's options and the policy that there is to the policy that is wanted. */

#include "core/egress.h"
#include "egress/policy.h"
#include "egress/scrub.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/options.h"

#define TEXT_MAX (1u << 20) /* the proxy takes no more */

static const char *const modes[] = {
    [SANDBOX_EGRESS_UNSET] = "none",
    [SANDBOX_EGRESS_CUSTOM] = "custom",
    [SANDBOX_EGRESS_ALLOW_ALL] = "allow-all",
    [SANDBOX_EGRESS_DENY_ALL] = "deny-all",
};
static const char *const hellos[] = {
    [SANDBOX_EGRESS_ECH_UNSET] = "",
    [SANDBOX_EGRESS_ECH_DENY] = "deny",
    [SANDBOX_EGRESS_ECH_ALLOW_GREASE] = "allow-grease",
};

static sandbox_status check_choices(const sandbox_egress_options *options, sandbox_error *error);
static sandbox_status read_rules(const char *text, cJSON **out, sandbox_error *error);
static sandbox_status make_policy(const cJSON *old, const sandbox_egress_options *options,
                                  cJSON **out, sandbox_error *error);
static bool begin_policy(const cJSON *old, const sandbox_egress_options *options, cJSON *policy);
static bool set_list(cJSON *object, const char *name, const char *const *texts);
static sandbox_status settle(const cJSON *policy, const cJSON *add, cJSON **out,
                             sandbox_error *error);
static sandbox_status remove_hosts(cJSON *policy, const char *const *hosts, sandbox_error *error);
static sandbox_status check_whole(const struct sbx_egress_plan *plan, sandbox_error *error);
static sandbox_status make_whole(const struct sbx_egress_plan *plan, struct sbx_egress_policy **out,
                                 sandbox_error *error);

const char *sandbox_egress_mode_name(sandbox_egress_mode mode)
{
    return (unsigned)mode < sizeof modes / sizeof modes[0] ? modes[mode] : "unknown";
}

sandbox_egress_mode sbx_egress_mode_of(const cJSON *policy)
{
    const char *word = sbx_json_text(policy, "mode");
    for (size_t n = 1; n < sizeof modes / sizeof modes[0]; n++) {
        if (strcmp(word, modes[n]) == 0)
            return (sandbox_egress_mode)n;
    }
    return SANDBOX_EGRESS_UNSET;
}

sandbox_egress_ech sbx_egress_ech_of(const cJSON *policy)
{
    return strcmp(sbx_json_text(policy, "ech"), hellos[SANDBOX_EGRESS_ECH_ALLOW_GREASE]) == 0
               ? SANDBOX_EGRESS_ECH_ALLOW_GREASE
               : SANDBOX_EGRESS_ECH_DENY;
}

void sbx_egress_plan_clear(struct sbx_egress_plan *plan)
{
    sbx_json_free(&plan->policy);
    sbx_secret_free_json(&plan->transformations);
    sbx_secret_free_json(&plan->added);
    *plan = (struct sbx_egress_plan){0};
}

sandbox_status sbx_egress_plan_make(const cJSON *old, const sandbox_egress_options *given,
                                    struct sbx_egress_plan *out, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_egress_plan_clear) struct sbx_egress_plan plan = {0};
    sandbox_egress_options options;
    if (given == NULL)
        return SANDBOX_OK;
    sandbox_status status = sbx_options_adopt(&options, sizeof options, given, error);
    if (status == SANDBOX_OK)
        status = check_choices(&options, error);
    if (status == SANDBOX_OK)
        status = make_policy(old, &options, &plan.policy, error);
    if (status == SANDBOX_OK && options.transformations != NULL)
        status = read_rules(options.transformations, &plan.transformations, error);
    if (status == SANDBOX_OK && options.add_transformations != NULL)
        status = read_rules(options.add_transformations, &plan.added, error);
    if (status == SANDBOX_OK)
        status = check_whole(&plan, error);
    if (status != SANDBOX_OK)
        return status;
    plan.close_denied = options.close_denied;
    *out = plan;
    plan = (struct sbx_egress_plan){0};
    return SANDBOX_OK;
}

static sandbox_status check_choices(const sandbox_egress_options *options, sandbox_error *error)
{
    if ((unsigned)options->mode > SANDBOX_EGRESS_DENY_ALL)
        return sbx_fail(error, SANDBOX_INVALID, "the egress 'mode' is none of the known values");
    if ((unsigned)options->ech > SANDBOX_EGRESS_ECH_ALLOW_GREASE)
        return sbx_fail(error, SANDBOX_INVALID, "the egress 'ech' is none of the known values");
    const char *const *const lists[] = {options->allow, options->http, options->add_allow,
                                        options->add_http, options->remove};
    for (size_t n = 0; n < sizeof lists / sizeof lists[0]; n++) {
        for (size_t at = 0; lists[n] != NULL && lists[n][at] != NULL; at++) {
            if (strchr(lists[n][at], '/') != NULL)
                return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "cidrs-unsupported",
                                    "'%.100s' is no host: ranges of addresses and URLs cannot be "
                                    "allowed; name hosts, like api.example.com or *.example.com",
                                    lists[n][at]);
        }
    }
    return SANDBOX_OK;
}

static sandbox_status read_rules(const char *text, cJSON **out, sandbox_error *error)
{
    sandbox_status status = sbx_egress_json_parse(text, strlen(text), TEXT_MAX, out, error);
    if (status == SANDBOX_OK && !cJSON_IsArray(*out))
        status = sbx_fail(error, SANDBOX_INVALID, "transformations are a JSON array");
    return status;
}

static sandbox_status make_policy(const cJSON *old, const sandbox_egress_options *options,
                                  cJSON **out, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *policy = cJSON_CreateObject();
    SBX_ON_EXIT(sbx_json_free) cJSON *add = cJSON_CreateObject();
    if (policy == NULL || add == NULL || !begin_policy(old, options, policy) ||
        !set_list(add, "allow", options->add_allow) || !set_list(add, "http", options->add_http))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for an egress policy");
    sandbox_status status = settle(policy, add, out, error);
    if (status == SANDBOX_OK && options->remove != NULL && options->remove[0] != NULL)
        status = remove_hosts(*out, options->remove, error);
    return status;
}

/* What was there, with what is given in its place. */
static bool begin_policy(const cJSON *old, const sandbox_egress_options *options, cJSON *policy)
{
    static const char *const lists[] = {"allow", "http"};
    const char *const *const given[] = {options->allow, options->http};
    sandbox_egress_mode mode = options->mode;
    sandbox_egress_ech ech =
        options->ech == SANDBOX_EGRESS_ECH_UNSET ? sbx_egress_ech_of(old) : options->ech;
    bool named = (options->allow != NULL && options->allow[0] != NULL) ||
                 (options->http != NULL && options->http[0] != NULL);
    if (mode == SANDBOX_EGRESS_UNSET)
        mode = sbx_egress_mode_of(old);
    /* Whoever names hosts wants them reached. */
    if (mode == SANDBOX_EGRESS_UNSET ||
        (options->mode == SANDBOX_EGRESS_UNSET && mode == SANDBOX_EGRESS_DENY_ALL && named))
        mode = SANDBOX_EGRESS_CUSTOM;
    for (size_t n = 0; n < 2; n++) {
        const cJSON *was = cJSON_GetObjectItemCaseSensitive(old, lists[n]);
        /* A mode that denies all takes the old lists with it. */
        if (given[n] == NULL && was != NULL && mode != SANDBOX_EGRESS_DENY_ALL) {
            cJSON *copy = cJSON_Duplicate(was, true);
            if (copy == NULL || !cJSON_AddItemToObject(policy, lists[n], copy))
                return false;
        } else if (!set_list(policy, lists[n], given[n])) {
            return false;
        }
    }
    return sbx_json_set_text(policy, "mode", modes[mode]) &&
           sbx_json_set_text(policy, "ech", hellos[ech]);
}

static bool set_list(cJSON *object, const char *name, const char *const *texts)
{
    if (texts == NULL)
        return true;
    cJSON *array = cJSON_AddArrayToObject(object, name);
    for (size_t n = 0; array != NULL && texts[n] != NULL; n++) {
        cJSON *text = cJSON_CreateString(texts[n]);
        if (text == NULL || !cJSON_AddItemToArray(array, text)) {
            cJSON_Delete(text);
            return false;
        }
    }
    return array != NULL;
}

/* As the proxy itself would read it, so that what is wrong is known before anything is stored. */
static sandbox_status settle(const cJSON *policy, const cJSON *add, cJSON **out,
                             sandbox_error *error)
{
    static const uint8_t key[SBX_EGRESS_DIGEST_KEY];
    struct sbx_egress_change change = {.policy = policy, .add = add};
    struct sbx_egress_policy *nothing = sbx_egress_policy_new(key), *settled = NULL;
    if (nothing == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for an egress policy");
    sandbox_status status = sbx_egress_policy_change(nothing, &change, &settled, error);
    sbx_egress_policy_drop(nothing);
    if (status != SANDBOX_OK)
        return status;
    *out = sbx_egress_policy_tell(settled);
    sbx_egress_policy_drop(settled);
    return *out == NULL ? sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for an egress policy")
                        : SANDBOX_OK;
}

static void take_out(cJSON *list, const cJSON *hosts)
{
    const cJSON *host;
    cJSON_ArrayForEach(host, hosts)
    {
        cJSON *next;
        for (cJSON *at = list == NULL ? NULL : list->child; at != NULL; at = next) {
            next = at->next;
            if (strcmp(at->valuestring, host->valuestring) == 0)
                cJSON_Delete(cJSON_DetachItemViaPointer(list, at));
        }
    }
}

/* Both as they are settled, since a host has many spellings. */
static sandbox_status remove_hosts(cJSON *policy, const char *const *hosts, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *wanted = cJSON_CreateObject();
    SBX_ON_EXIT(sbx_json_free) cJSON *settled = NULL;
    if (sbx_egress_mode_of(policy) == SANDBOX_EGRESS_ALLOW_ALL)
        return sbx_fail(error, SANDBOX_INVALID,
                        "every host is allowed, so none can be removed; set the mode to custom, "
                        "and name those that may be reached");
    if (wanted == NULL || !set_list(wanted, "allow", hosts) ||
        !sbx_json_set_text(wanted, "mode", modes[SANDBOX_EGRESS_CUSTOM]))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for an egress policy");
    sandbox_status status = settle(wanted, NULL, &settled, error);
    if (status != SANDBOX_OK)
        return status;
    const cJSON *gone = cJSON_GetObjectItemCaseSensitive(settled, "allow");
    take_out(cJSON_GetObjectItemCaseSensitive(policy, "allow"), gone);
    take_out(cJSON_GetObjectItemCaseSensitive(policy, "http"), gone);
    return SANDBOX_OK;
}

static sandbox_status check_whole(const struct sbx_egress_plan *plan, sandbox_error *error)
{
    struct sbx_egress_policy *whole = NULL;
    sandbox_status status = make_whole(plan, &whole, error);
    sbx_egress_policy_drop(whole);
    return status;
}

sandbox_status sbx_egress_plan_screen(const struct sbx_egress_plan *plan,
                                      const char *const *environment, sandbox_error *error)
{
    struct sbx_egress_policy *whole = NULL;
    struct sbx_egress_scrub *scrub = NULL;
    if (environment == NULL || (plan->transformations == NULL && plan->added == NULL))
        return SANDBOX_OK;
    sandbox_status status = make_whole(plan, &whole, error);
    if (status == SANDBOX_OK)
        status = sbx_egress_scrub_new(whole, NULL, &scrub, error);
    for (size_t n = 0; status == SANDBOX_OK && scrub != NULL && environment[n] != NULL; n++) {
        if (sbx_egress_scrub_finds(scrub, environment[n], strlen(environment[n])))
            status = sbx_fail_for(error, SANDBOX_DENIED, "credential",
                                  "entry %zu of the environment carries a credential that is to "
                                  "stay outside; give its placeholder",
                                  n + 1);
    }
    sbx_egress_scrub_free(scrub);
    sbx_egress_policy_drop(whole);
    return status;
}

static sandbox_status make_whole(const struct sbx_egress_plan *plan, struct sbx_egress_policy **out,
                                 sandbox_error *error)
{
    static const uint8_t key[SBX_EGRESS_DIGEST_KEY];
    SBX_ON_EXIT(sbx_json_free) cJSON *add = cJSON_CreateObject();
    struct sbx_egress_policy *nothing = sbx_egress_policy_new(key);
    if (nothing == NULL || add == NULL ||
        (plan->added != NULL &&
         !cJSON_AddItemReferenceToObject(add, "transformations", plan->added))) {
        sbx_egress_policy_drop(nothing);
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for an egress policy");
    }
    struct sbx_egress_change change = {
        .policy = plan->policy, .transformations = plan->transformations, .add = add};
    sandbox_status status = sbx_egress_policy_change(nothing, &change, out, error);
    sbx_egress_policy_drop(nothing);
    return status;
}
