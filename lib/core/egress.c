/* A workspace's way out, from its record to the proxy and the agent: see egress.h. */

#include "core/egress.h"
#include "core/gate.h"
#include "core/lifecycle.h"
#include "core/operation.h"
#include "core/session.h"
#include "core/store.h"
#include "egress.pb-c.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"
#include <stdio.h>

#define FORGET_MS 5000u
#define LOOK_MS   5000u

/* What goes through a change of the record. */
struct storing {
    const char *id;
    const sandbox_egress_options *options;
    struct sbx_egress_plan *plan;
};

static sandbox_status make_registration(const struct sbx_record *record,
                                        const struct sbx_egress_plan *plan, cJSON **out,
                                        sandbox_error *error);
static sandbox_status tell_agent(sandbox_client *client, struct sbx_record *record,
                                 struct sbx_session *session, const struct sbx_egress_way *way,
                                 const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status change_policy(struct sbx_record *record, void *user_data,
                                    sandbox_error *error);
static sandbox_status store_policy(sandbox_workspace *workspace,
                                   const sandbox_egress_options *options,
                                   const struct sbx_wait *wait, struct sbx_egress_plan *plan,
                                   struct sbx_record *record, sandbox_error *error);
static sandbox_status tell_latest(const sandbox_workspace *workspace, const cJSON *told,
                                  const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status tell_proxy(sandbox_client *client, const struct sbx_record *record,
                                 const struct sbx_egress_plan *plan, const struct sbx_wait *wait,
                                 sandbox_error *error);

sandbox_status sbx_egress_establish(sandbox_client *client, struct sbx_record *record,
                                    struct sbx_session *session, const struct sbx_egress_plan *plan,
                                    bool keep, const struct sbx_wait *wait, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_secret_free_json) cJSON *registration = NULL;
    struct sbx_egress_way way = {.address = ""};
    if (record->egress == NULL)
        return SANDBOX_OK;
    if (client->driver->egress_open == NULL)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "no-egress",
                            "the %s driver gives workspaces no way out", client->driver->name);
    sandbox_status status = make_registration(record, plan, &registration, error);
    if (status == SANDBOX_OK)
        status = client->driver->egress_open(client->state, record, registration, keep, wait, &way,
                                             error);
    if (status == SANDBOX_OK)
        status = tell_agent(client, record, session, &way, wait, error);
    sbx_wipe(&way, sizeof way);
    return status;
}

/* The copies of secrets are wiped with the registration. */
static sandbox_status make_registration(const struct sbx_record *record,
                                        const struct sbx_egress_plan *plan, cJSON **out,
                                        sandbox_error *error)
{
    SBX_ON_EXIT(sbx_secret_free_json) cJSON *made = cJSON_CreateObject();
    cJSON *policy = cJSON_Duplicate(record->egress, true);
    if (made == NULL || policy == NULL || !cJSON_AddItemToObject(made, "policy", policy)) {
        cJSON_Delete(policy);
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a registration");
    }
    cJSON *rules = cJSON_AddArrayToObject(made, "transformations");
    const cJSON *const given[] = {plan == NULL ? NULL : plan->transformations,
                                  plan == NULL ? NULL : plan->added};
    for (size_t n = 0; n < 2; n++) {
        const cJSON *rule;
        cJSON_ArrayForEach(rule, given[n])
        {
            cJSON *copy = cJSON_Duplicate(rule, true);
            if (copy == NULL || !cJSON_AddItemToArray(rules, copy)) {
                sbx_secret_free_json(&copy);
                return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a registration");
            }
        }
    }
    if (rules == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a registration");
    *out = sbx_take(made);
    return SANDBOX_OK;
}

/* The key is nobody's on the way: where the session goes to an address, another one is made. */
static sandbox_status tell_agent(sandbox_client *client, struct sbx_record *record,
                                 struct sbx_session *session, const struct sbx_egress_way *way,
                                 const struct sbx_wait *wait, sandbox_error *error)
{
    static char anthropic[] = "ANTHROPIC_BASE_URL=https://api.anthropic.com";
    static char openai[] = "OPENAI_BASE_URL=https://api.openai.com/v1";
    static char *base_urls[] = {anthropic, openai};
    struct sbx_session *own = NULL;
    sandbox_status status = SANDBOX_OK;
    if (sbx_session_is_direct(session)) {
        uint8_t token[SBX_TOKEN_BYTES];
        status = sbx_life_token(client, record, wait, token, error);
        if (status == SANDBOX_OK)
            status = sbx_gate_connect(client, record, token, wait, &own, NULL, error);
        sbx_wipe(token, sizeof token);
        session = own;
    }
    if (status != SANDBOX_OK)
        return status;
    Sandbox__V1__EgressOpenRequest request = SANDBOX__V1__EGRESS_OPEN_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    request.address = (char *)(uintptr_t)way->address;
    request.key = (ProtobufCBinaryData){strlen(way->key), (uint8_t *)(uintptr_t)way->key};
    request.base_urls = base_urls;
    request.n_base_urls = sizeof base_urls / sizeof base_urls[0];
    status = sbx_session_call(session, "/sandbox.v1.Egress/Open", &request.base, true,
                              &sandbox__v1__egress_open_reply__descriptor, wait, &reply, error);
    if (status == SANDBOX_OK)
        protobuf_c_message_free_unpacked(reply, NULL);
    sbx_session_drop(own);
    if (status == SANDBOX_UNSUPPORTED)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "old-agent",
                            "the agent in '%s' is of a version that gives no way out; make the "
                            "workspace anew",
                            record->name);
    return status;
}

void sbx_egress_come_back(sandbox_client *client, struct sbx_record *record,
                          struct sbx_session *session, const sandbox_egress_options *options,
                          bool keep, const struct sbx_wait *wait)
{
    SBX_ON_EXIT(sbx_egress_plan_clear) struct sbx_egress_plan plan = {0};
    sandbox_error error = {0};
    char id[SBX_ID_TEXT];
    memcpy(id, record->id, sizeof id);
    struct storing storing = {id, options, &plan};
    sandbox_status status = SANDBOX_OK;
    if (options != NULL)
        status =
            sbx_store_change(client, record->name, wait, change_policy, &storing, record, &error);
    if (status == SANDBOX_OK)
        status = sbx_egress_establish(client, record, session, &plan, keep, wait, &error);
    if (status != SANDBOX_OK)
        sbx_log(SANDBOX_LOG_WARNING, "'%s' runs, but nothing goes out of it: %s", record->name,
                error.message);
}

void sbx_egress_look_after(sandbox_client *client, struct sbx_record *record,
                           struct sbx_session *session, const struct sbx_wait *wait)
{
    struct sbx_wait soon = sbx_wait_within(wait, LOOK_MS);
    if (record->egress == NULL || client->driver->egress_ask == NULL ||
        client->driver->egress_ask(client->state, record->id, SBX_EGRESS_LOOK, NULL, &soon, NULL,
                                   NULL) != SANDBOX_NOT_FOUND)
        return;
    sbx_egress_come_back(client, record, session, NULL, false, wait);
}

void sbx_egress_forget(sandbox_client *client, const struct sbx_record *record)
{
    struct sbx_wait soon = sbx_wait_alone(FORGET_MS);
    sandbox_error error = {0};
    if (record->egress == NULL || client->driver->egress_forget == NULL)
        return;
    if (client->driver->egress_forget(client->state, record->id, &soon, &error) != SANDBOX_OK)
        sbx_log(SANDBOX_LOG_WARNING,
                "the egress proxy was not told to forget '%s', and holds its credentials: %s",
                record->name, error.message);
}

sandbox_status sbx_egress_change(sandbox_workspace *workspace,
                                 const sandbox_egress_options *options, const struct sbx_wait *wait,
                                 sandbox_error *error)
{
    sandbox_client *client = workspace->client;
    SBX_ON_EXIT(sbx_egress_plan_clear) struct sbx_egress_plan plan = {0};
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
    struct sbx_session *session = NULL;
    if (client->driver->egress_open == NULL)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "no-egress",
                            "the %s driver gives workspaces no way out", client->driver->name);
    sandbox_status status = store_policy(workspace, options, wait, &plan, &record, error);
    if (status != SANDBOX_OK || record.state != SANDBOX_STATE_RUNNING)
        return status;
    status = tell_proxy(client, &record, &plan, wait, error);
    if (status == SANDBOX_OK)
        status = tell_latest(workspace, plan.policy, wait, error);
    if (status != SANDBOX_NOT_FOUND)
        return status;
    /* It does not know the workspace, or there is none: from the beginning. */
    status = sbx_workspace_session(workspace, wait, &session, error);
    if (status == SANDBOX_OK)
        status = sbx_egress_establish(client, &record, session, &plan, false, wait, error);
    sbx_session_drop(session);
    return status;
}

/*
 * Of two that change the policy at once, the first to store it may be the last to tell the proxy.
 * Whoever tells it looks at what is stored afterwards.
 */
static sandbox_status tell_latest(const sandbox_workspace *workspace, const cJSON *told,
                                  const struct sbx_wait *wait, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_egress_plan_clear) struct sbx_egress_plan latest = {0};
    for (;;) {
        SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
        sandbox_status status =
            sbx_store_load(workspace->client, workspace->name, wait, &record, error);
        if (status != SANDBOX_OK || strcmp(record.id, workspace->id) != 0 ||
            cJSON_Compare(record.egress, told, true))
            return status == SANDBOX_NOT_FOUND ? SANDBOX_OK : status;
        sbx_egress_plan_clear(&latest);
        latest.policy = sbx_take(record.egress);
        status = tell_proxy(workspace->client, &record, &latest, wait, error);
        if (status != SANDBOX_OK)
            return status == SANDBOX_NOT_FOUND ? SANDBOX_OK : status;
        told = latest.policy;
    }
}

static sandbox_status change_policy(struct sbx_record *record, void *user_data,
                                    sandbox_error *error)
{
    struct storing *storing = user_data;
    struct sbx_egress_plan *plan = storing->plan;
    if (strcmp(record->id, storing->id) != 0)
        return sbx_fail(error, SANDBOX_NOT_FOUND, "another workspace bears the name");
    sbx_egress_plan_clear(plan);
    sandbox_status status = sbx_egress_plan_make(record->egress, storing->options, plan, error);
    if (status != SANDBOX_OK)
        return status;
    bool has_rules = cJSON_GetArraySize(plan->transformations) > 0 || plan->added != NULL;
    if (has_rules && record->state != SANDBOX_STATE_RUNNING)
        return sbx_fail_for(
            error, record->state == SANDBOX_STATE_SUSPENDED ? SANDBOX_SUSPENDED : SANDBOX_BUSY,
            "not-running",
            "'%s' is %s: credentials are kept in the proxy's memory while a "
            "workspace runs; resume it and give them then",
            record->name, sandbox_state_name(record->state));
    cJSON *policy = cJSON_Duplicate(plan->policy, true);
    if (policy == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for an egress policy");
    cJSON_Delete(record->egress);
    record->egress = policy;
    return SANDBOX_OK;
}

/* A suspend or resume that is under way ends first: what follows depends on what comes of it. */
static sandbox_status store_policy(sandbox_workspace *workspace,
                                   const sandbox_egress_options *options,
                                   const struct sbx_wait *wait, struct sbx_egress_plan *plan,
                                   struct sbx_record *record, sandbox_error *error)
{
    sandbox_client *client = workspace->client;
    struct storing storing = {workspace->id, options, plan};
    for (;;) {
        sbx_record_clear(record);
        sandbox_status status = sbx_store_load(client, workspace->name, wait, record, error);
        if (status == SANDBOX_OK && strcmp(record->id, workspace->id) == 0 &&
            record->operation.kind[0] != '\0') {
            status = sbx_operation_settle(client, record, wait, error);
            if (status == SANDBOX_OK)
                continue;
            return status;
        }
        if (status == SANDBOX_OK)
            status = sbx_store_change(client, workspace->name, wait, change_policy, &storing,
                                      record, error);
        if (status == SANDBOX_NOT_FOUND) {
            atomic_store(&workspace->gone, true);
            return sbx_workspace_check(workspace, error);
        }
        return status;
    }
}

static bool refer(cJSON *object, const char *name, cJSON *value)
{
    return value == NULL || cJSON_AddItemReferenceToObject(object, name, value);
}

static sandbox_status tell_proxy(sandbox_client *client, const struct sbx_record *record,
                                 const struct sbx_egress_plan *plan, const struct sbx_wait *wait,
                                 sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *body = cJSON_CreateObject();
    cJSON *add = plan->added == NULL ? NULL : cJSON_AddObjectToObject(body, "add");
    bool whole =
        body != NULL && refer(body, "policy", plan->policy) &&
        refer(body, "transformations", plan->transformations) &&
        (plan->added == NULL || (add != NULL && refer(add, "transformations", plan->added))) &&
        sbx_json_set_flag(body, "close_denied", plan->close_denied);
    if (!whole)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for an egress policy");
    return client->driver->egress_ask(client->state, record->id, SBX_EGRESS_CHANGE, body, wait,
                                      NULL, error);
}
