/* One workspace in the admin API: see admin_workspace.h. */

#include "admin_workspace.h"
#include "connection.h"
#include "egress/policy.h"
#include "exchange.h"
#include "journal.h"
#include "settings.h"
#include "util/fail.h"
#include "util/json.h"
#include "util/memory.h"
#include <string.h>

static sandbox_status read_registration(const cJSON *json, struct registration *into,
                                        sandbox_error *error);
static sandbox_status read_source(const cJSON *source, union address *into, sandbox_error *error);
static sandbox_status read_key(const cJSON *key, const char **into, sandbox_error *error);
static sandbox_status read_limits(const cJSON *limits, struct registration *into,
                                  sandbox_error *error);
static sandbox_status read_limit(const cJSON *limits, const char *name, unsigned most,
                                 unsigned *into, sandbox_error *error);
static sandbox_status make_policy(const cJSON *json, struct sbx_egress_policy **out,
                                  sandbox_error *error);
static void change_key(struct workspace *workspace, const char *key);
static void close_denied(struct workspace *workspace);
static void fail_with(struct admin_answer *answer, const sandbox_error *error);

void admin_workspace_put(const char *id, const struct admin_request *request,
                         struct admin_answer *answer)
{
    sandbox_error error;
    SBX_ON_EXIT(sbx_secret_free_json) cJSON *json = NULL;
    struct registration registration = {
        .id = id, .connections_max = settings.connections, .rate = settings.rate};
    struct workspace *workspace = NULL;
    bool replaced = false;
    sandbox_status status =
        sbx_egress_json_parse(request->body, request->body_size, ADMIN_BODY_MAX, &json, &error);
    if (status == SANDBOX_OK)
        status = read_registration(json, &registration, &error);
    if (status == SANDBOX_OK)
        status = make_policy(json, &registration.policy, &error);
    if (status == SANDBOX_OK)
        status = registry_put(&registration, &workspace, &replaced, &error);
    if (status != SANDBOX_OK) {
        fail_with(answer, &error);
        return;
    }
    cJSON *object = admin_workspace_json(workspace);
    admin_tell(answer, replaced ? 200 : 201, object, object != NULL);
}

static sandbox_status read_registration(const cJSON *json, struct registration *into,
                                        sandbox_error *error)
{
    static const char *const names[] = {"source", "key", "policy", "transformations", "limits"};
    sandbox_status status = sbx_egress_json_members(json, "a registration", names,
                                                    sizeof names / sizeof names[0], error);
    if (status == SANDBOX_OK)
        status =
            read_source(cJSON_GetObjectItemCaseSensitive(json, "source"), &into->source, error);
    if (status == SANDBOX_OK)
        status = read_key(cJSON_GetObjectItemCaseSensitive(json, "key"), &into->key, error);
    if (status == SANDBOX_OK)
        status = read_limits(cJSON_GetObjectItemCaseSensitive(json, "limits"), into, error);
    return status;
}

static sandbox_status read_source(const cJSON *source, union address *into, sandbox_error *error)
{
    static const char *const names[] = {"address", "socket"};
    if (!cJSON_IsObject(source))
        return sbx_fail(error, SANDBOX_INVALID, "'source' must be there, an object");
    sandbox_status status = sbx_egress_json_members(source, "'source'", names, 2, error);
    if (status != SANDBOX_OK)
        return status;
    const char *address = sbx_json_text(source, "address"), *path = sbx_json_text(source, "socket");
    if ((address[0] == '\0') == (path[0] == '\0'))
        return sbx_fail(error, SANDBOX_INVALID, "'source' has either 'address' or 'socket'");
    if (path[0] != '\0')
        return address_parse_path(path, into)
                   ? SANDBOX_OK
                   : sbx_fail(error, SANDBOX_INVALID,
                              "'source': a socket's path is absolute and at most 107 bytes");
    if (!address_parse(address, into))
        return sbx_fail(error, SANDBOX_INVALID, "'source': 'address' is no IP address");
    address_unmap(into);
    return SANDBOX_OK;
}

static sandbox_status read_key(const cJSON *key, const char **into, sandbox_error *error)
{
    *into = cJSON_IsString(key) ? key->valuestring : "";
    if (strlen(*into) != KEY_DIGITS || strspn(*into, "0123456789abcdef") != KEY_DIGITS)
        return sbx_fail(error, SANDBOX_INVALID,
                        "'key' must be there: 64 lower-case hexadecimal digits");
    return SANDBOX_OK;
}

static sandbox_status read_limits(const cJSON *limits, struct registration *into,
                                  sandbox_error *error)
{
    static const char *const names[] = {"connections", "rate"};
    if (limits == NULL)
        return SANDBOX_OK;
    if (!cJSON_IsObject(limits))
        return sbx_fail(error, SANDBOX_INVALID, "'limits' is no object");
    sandbox_status status = sbx_egress_json_members(limits, "'limits'", names, 2, error);
    if (status == SANDBOX_OK)
        status = read_limit(limits, "connections", 65536, &into->connections_max, error);
    if (status == SANDBOX_OK)
        status = read_limit(limits, "rate", 1000000, &into->rate, error);
    return status;
}

static sandbox_status read_limit(const cJSON *limits, const char *name, unsigned most,
                                 unsigned *into, sandbox_error *error)
{
    const cJSON *limit = cJSON_GetObjectItemCaseSensitive(limits, name);
    if (limit == NULL)
        return SANDBOX_OK;
    int64_t number = sbx_json_number(limit);
    if (!cJSON_IsNumber(limit) || number < 1 || number > most ||
        limit->valuedouble != (double)number)
        return sbx_fail(error, SANDBOX_INVALID, "'limits': '%s' is a whole number from 1 to %u",
                        name, most);
    *into = (unsigned)number;
    return SANDBOX_OK;
}

static sandbox_status make_policy(const cJSON *json, struct sbx_egress_policy **out,
                                  sandbox_error *error)
{
    struct sbx_egress_change change = {
        .policy = cJSON_GetObjectItemCaseSensitive(json, "policy"),
        .transformations = cJSON_GetObjectItemCaseSensitive(json, "transformations"),
    };
    struct sbx_egress_policy *nothing = registry_new_policy();
    if (nothing == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a policy");
    sandbox_status status = sbx_egress_policy_change(nothing, &change, out, error);
    sbx_egress_policy_drop(nothing);
    return status;
}

void admin_workspace_patch(struct workspace *workspace, const struct admin_request *request,
                           struct admin_answer *answer)
{
    static const char *const names[] = {"policy", "transformations", "add", "close_denied", "key"};
    sandbox_error error;
    SBX_ON_EXIT(sbx_secret_free_json) cJSON *json = NULL;
    struct sbx_egress_policy *policy = NULL;
    sandbox_status status =
        sbx_egress_json_parse(request->body, request->body_size, ADMIN_BODY_MAX, &json, &error);
    if (status == SANDBOX_OK)
        status = sbx_egress_json_members(json, "a change", names, sizeof names / sizeof names[0],
                                         &error);
    const cJSON *closing = cJSON_GetObjectItemCaseSensitive(json, "close_denied");
    if (status == SANDBOX_OK && closing != NULL && !cJSON_IsBool(closing))
        status = sbx_fail(&error, SANDBOX_INVALID, "'close_denied' is true or false");
    struct sbx_egress_change change = {
        .policy = cJSON_GetObjectItemCaseSensitive(json, "policy"),
        .transformations = cJSON_GetObjectItemCaseSensitive(json, "transformations"),
        .add = cJSON_GetObjectItemCaseSensitive(json, "add"),
    };
    const cJSON *new_key = cJSON_GetObjectItemCaseSensitive(json, "key");
    const char *key = NULL;
    if (status == SANDBOX_OK && new_key != NULL)
        status = read_key(new_key, &key, &error);
    if (status == SANDBOX_OK)
        status = sbx_egress_policy_change(workspace->policy, &change, &policy, &error);
    if (status != SANDBOX_OK) {
        fail_with(answer, &error);
        return;
    }
    sbx_egress_policy_drop(workspace->policy);
    workspace->policy = policy;
    if (key != NULL)
        change_key(workspace, key);
    exchanges_policy_changed(workspace->exchanges);
    journal_event("changed", "workspace", workspace->id);
    if (cJSON_IsTrue(closing))
        close_denied(workspace);
    cJSON *object = admin_workspace_json(workspace);
    admin_tell(answer, 200, object, object != NULL);
}

/* Another run: what the former one has opened does not go on. */
static void change_key(struct workspace *workspace, const char *key)
{
    struct connection *next;
    memcpy(workspace->key, key, KEY_DIGITS);
    for (struct connection *one = workspace->connections; one != NULL; one = next) {
        next = one->after;
        connection_end(one);
    }
}

/* What is under way to a host that is no longer allowed. */
static void close_denied(struct workspace *workspace)
{
    struct connection *next;
    for (struct connection *one = workspace->connections; one != NULL; one = next) {
        struct sbx_egress_host host;
        next = one->after;
        if ((one->state != CONNECTION_TUNNEL && one->state != CONNECTION_EXCHANGE) ||
            one->host == NULL)
            continue;
        /* A literal of IPv6 is kept without its brackets, and no policy names literals. */
        bool known = sbx_egress_host_read(one->host, strlen(one->host), &host) == NULL;
        bool allowed = known && (one->kind == KIND_HTTP
                                     ? sbx_egress_policy_allows_http(workspace->policy, &host)
                                     : sbx_egress_policy_allows(workspace->policy, &host));
        if (!allowed) {
            connection_note(one, REASON_HOST_NOT_ALLOWED);
            connection_end(one);
        }
    }
}

cJSON *admin_workspace_json(const struct workspace *workspace)
{
    char text[ADDRESS_TEXT];
    bool is_local = workspace->source.any.sa_family == AF_UNIX;
    if (!is_local)
        address_print(&workspace->source, text);
    cJSON *object = cJSON_CreateObject();
    cJSON *source = cJSON_AddObjectToObject(object, "source");
    cJSON *policy = sbx_egress_policy_tell(workspace->policy);
    cJSON *rules = sbx_egress_policy_tell_rules(workspace->policy);
    bool kept = policy != NULL && cJSON_AddItemToObject(object, "policy", policy);
    bool rules_kept = rules != NULL && cJSON_AddItemToObject(object, "transformations", rules);
    cJSON *limits = cJSON_AddObjectToObject(object, "limits");
    if (source != NULL && kept && rules_kept && limits != NULL &&
        sbx_json_set_text(object, "id", workspace->id) &&
        sbx_json_set_text(source, is_local ? "socket" : "address",
                          is_local ? workspace->source.local.sun_path : text) &&
        sbx_json_set_integer(limits, "connections", workspace->connections_max) &&
        sbx_json_set_integer(limits, "rate", workspace->rate) &&
        sbx_json_set_integer(object, "connections", workspace->connection_count) &&
        sbx_json_set_integer(object, "refused", (int64_t)workspace->refused))
        return object;
    if (!kept)
        cJSON_Delete(policy);
    if (!rules_kept)
        cJSON_Delete(rules);
    cJSON_Delete(object);
    return NULL;
}

static void fail_with(struct admin_answer *answer, const sandbox_error *error)
{
    switch (error->status) {
    case SANDBOX_EXISTS:
        admin_fail(answer, 409, "in-use", error->message);
        break;
    case SANDBOX_UNSUPPORTED:
        admin_fail(answer, 400, "cidrs-unsupported", error->message);
        break;
    case SANDBOX_LIMIT:
    case SANDBOX_NO_MEMORY:
        admin_fail(answer, 507, "limit", error->message);
        break;
    default:
        admin_fail(answer, 400, "bad-request", error->message);
    }
}
