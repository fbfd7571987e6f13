/* The way out of a workspace: the public functions. The work is core's. */

#include "core/client.h"
#include "core/egress.h"
#include "core/session.h"
#include "core/store.h"
#include "util/fail.h"
#include "util/memory.h"
#include <time.h>

#define EGRESS_MS 30000u

struct sandbox_egress_list {
    struct sbx_record record;
    cJSON *told; /* what the proxy says; NULL: it does not know the workspace */
    sandbox_egress_info info;
    char **credentials;
};

struct sandbox_egress_log {
    cJSON *told; /* NULL: nothing */
    size_t count;
    sandbox_egress_refusal *refusals;
};

static sandbox_status begin(sandbox_workspace *workspace, const void *out, const sandbox_call *call,
                            struct sbx_wait *wait, struct sbx_record *record, sandbox_error *error);
static sandbox_status ask(sandbox_workspace *workspace, enum sbx_egress_question question,
                          const struct sbx_wait *wait, cJSON **told, sandbox_error *error);
static const char **list_texts(const cJSON *array);
static bool fill_list(sandbox_egress_list *list, const sandbox_client *client);
static bool name_credentials(sandbox_egress_list *list, const cJSON *rules);
static bool fill_log(sandbox_egress_log *log);
static int64_t read_time(const char *text);

static void free_list(sandbox_egress_list **list)
{
    sandbox_egress_list_free(*list);
}

static void free_log(sandbox_egress_log **log)
{
    sandbox_egress_log_free(*log);
}

sandbox_status sandbox_egress_set(sandbox_workspace *workspace,
                                  const sandbox_egress_options *options, const sandbox_call *call,
                                  sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK && options == NULL)
        status = sbx_fail(error, SANDBOX_INVALID, "no egress policy given");
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, EGRESS_MS, error);
    return status == SANDBOX_OK ? sbx_egress_change(workspace, options, &wait, error) : status;
}

sandbox_status sandbox_egress_inspect(sandbox_workspace *workspace, const sandbox_call *call,
                                      sandbox_egress_list **out, sandbox_error *error)
{
    struct sbx_wait wait;
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
    SBX_ON_EXIT(free_list) sandbox_egress_list *list = NULL;
    sandbox_status status = begin(workspace, out, call, &wait, &record, error);
    if (status != SANDBOX_OK)
        return status;
    list = calloc(1, sizeof *list);
    if (list == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for an egress policy");
    list->record = record;
    record = (struct sbx_record){0};
    if (list->record.egress != NULL)
        status = ask(workspace, SBX_EGRESS_LOOK, &wait, &list->told, error);
    if (status == SANDBOX_OK && !fill_list(list, workspace->client))
        status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for an egress policy");
    if (status == SANDBOX_OK)
        *out = sbx_take(list);
    return status;
}

size_t sandbox_egress_list_count(const sandbox_egress_list *list)
{
    return list != NULL;
}

const sandbox_egress_info *sandbox_egress_list_at(const sandbox_egress_list *list, size_t index)
{
    return list == NULL || index > 0 ? NULL : &list->info;
}

void sandbox_egress_list_free(sandbox_egress_list *list)
{
    if (list == NULL)
        return;
    free((void *)(uintptr_t)list->info.allow);
    free((void *)(uintptr_t)list->info.http);
    sbx_free_strings(list->credentials);
    cJSON_Delete(list->told);
    sbx_record_clear(&list->record);
    free(list);
}

sandbox_status sandbox_egress_read_log(sandbox_workspace *workspace, const sandbox_call *call,
                                       sandbox_egress_log **out, sandbox_error *error)
{
    struct sbx_wait wait;
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
    SBX_ON_EXIT(free_log) sandbox_egress_log *log = NULL;
    sandbox_status status = begin(workspace, out, call, &wait, &record, error);
    if (status != SANDBOX_OK)
        return status;
    log = calloc(1, sizeof *log);
    if (log == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a log");
    if (record.egress != NULL)
        status = ask(workspace, SBX_EGRESS_LOG, &wait, &log->told, error);
    if (status == SANDBOX_OK && !fill_log(log))
        status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a log");
    if (status == SANDBOX_OK)
        *out = sbx_take(log);
    return status;
}

size_t sandbox_egress_log_count(const sandbox_egress_log *log)
{
    return log == NULL ? 0 : log->count;
}

const sandbox_egress_refusal *sandbox_egress_log_at(const sandbox_egress_log *log, size_t index)
{
    return log == NULL || index >= log->count ? NULL : &log->refusals[index];
}

void sandbox_egress_log_free(sandbox_egress_log *log)
{
    if (log == NULL)
        return;
    cJSON_Delete(log->told);
    free(log->refusals);
    free(log);
}

static sandbox_status begin(sandbox_workspace *workspace, const void *out, const sandbox_call *call,
                            struct sbx_wait *wait, struct sbx_record *record, sandbox_error *error)
{
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK && out == NULL)
        status = sbx_fail(error, SANDBOX_INVALID, "no place to put the answer");
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(wait, call, EGRESS_MS, error);
    if (status != SANDBOX_OK)
        return status;
    status = sbx_store_load(workspace->client, workspace->name, wait, record, error);
    if (status == SANDBOX_NOT_FOUND ||
        (status == SANDBOX_OK && strcmp(record->id, workspace->id) != 0)) {
        atomic_store(&workspace->gone, true);
        return sbx_workspace_check(workspace, error);
    }
    return status;
}

/* Whom the proxy does not know, nothing is known of. */
static sandbox_status ask(sandbox_workspace *workspace, enum sbx_egress_question question,
                          const struct sbx_wait *wait, cJSON **told, sandbox_error *error)
{
    const sandbox_client *client = workspace->client;
    if (client->driver->egress_ask == NULL)
        return SANDBOX_OK;
    sandbox_status status =
        client->driver->egress_ask(client->state, workspace->id, question, NULL, wait, told, error);
    return status == SANDBOX_NOT_FOUND ? SANDBOX_OK : status;
}

/* The array's own texts, NULL-terminated. NULL: no memory. */
static const char **list_texts(const cJSON *array)
{
    size_t count = 0;
    const char **texts = calloc((size_t)cJSON_GetArraySize(array) + 1, sizeof *texts);
    const cJSON *item;
    cJSON_ArrayForEach(item, array)
    {
        const char *text = cJSON_GetStringValue(item);
        if (texts != NULL && text != NULL)
            texts[count++] = text;
    }
    return texts;
}

static bool fill_list(sandbox_egress_list *list, const sandbox_client *client)
{
    const cJSON *policy = list->record.egress;
    bool named =
        name_credentials(list, cJSON_GetObjectItemCaseSensitive(list->told, "transformations"));
    list->info = (sandbox_egress_info){
        .size = sizeof list->info,
        .mode = policy == NULL ? SANDBOX_EGRESS_UNSET : sbx_egress_mode_of(policy),
        .ech = policy == NULL ? SANDBOX_EGRESS_ECH_UNSET : sbx_egress_ech_of(policy),
        .allow = list_texts(cJSON_GetObjectItemCaseSensitive(policy, "allow")),
        .http = list_texts(cJSON_GetObjectItemCaseSensitive(policy, "http")),
        .credentials = (const char *const *)list->credentials,
        .available = sandbox_client_can(client, SANDBOX_CAN_REACH_OUT),
        .registered = list->told != NULL,
        .connections = (uint32_t)sbx_json_integer(list->told, "connections"),
        .refused = (uint64_t)sbx_json_integer(list->told, "refused"),
    };
    return named && list->info.allow != NULL && list->info.http != NULL;
}

static bool name_credentials(sandbox_egress_list *list, const cJSON *rules)
{
    size_t count = 0;
    list->credentials = calloc((size_t)cJSON_GetArraySize(rules) + 1, sizeof *list->credentials);
    if (list->credentials == NULL)
        return false;
    const cJSON *rule;
    cJSON_ArrayForEach(rule, rules)
    {
        char *text = sbx_format("%s:", sbx_json_text(rule, "host"));
        const cJSON *header, *headers = cJSON_GetObjectItemCaseSensitive(rule, "headers");
        cJSON_ArrayForEach(header, headers)
        {
            const char *name = cJSON_GetStringValue(header);
            char *longer = text == NULL
                               ? NULL
                               : sbx_format("%s%s %s", text, header == headers->child ? "" : ",",
                                            name == NULL ? "" : name);
            free(text);
            text = longer;
        }
        if (text == NULL)
            return false;
        list->credentials[count++] = text;
    }
    return true;
}

static bool fill_log(sandbox_egress_log *log)
{
    const cJSON *refusals = cJSON_GetObjectItemCaseSensitive(log->told, "refusals"), *refusal;
    log->refusals = calloc((size_t)cJSON_GetArraySize(refusals) + 1, sizeof *log->refusals);
    cJSON_ArrayForEach(refusal, refusals)
    {
        if (log->refusals == NULL)
            return false;
        log->refusals[log->count++] = (sandbox_egress_refusal){
            .size = sizeof log->refusals[0],
            .time_ms = read_time(sbx_json_text(refusal, "time")),
            .reason = sbx_json_text(refusal, "reason"),
            .kind = sbx_json_text(refusal, "kind"),
            .host = sbx_json_text(refusal, "host"),
            .port = (uint32_t)sbx_json_integer(refusal, "port"),
        };
    }
    return log->refusals != NULL;
}

/* "2026-12-01T06:00:00.000Z"; 0 for anything else. */
static int64_t read_time(const char *text)
{
    struct tm parts = {0};
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &parts);
    if (rest == NULL || *rest != '.')
        return 0;
    return (int64_t)timegm(&parts) * 1000 + strtol(rest + 1, NULL, 10);
}
