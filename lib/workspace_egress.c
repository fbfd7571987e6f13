/* The way out of a workspace: the public functions. The work is core's. */

#include "core/client.h"
#include "core/egress.h"
#include "core/session.h"
#include "core/store.h"
#include "util/fail.h"
#include "util/memory.h"
#include <time.h>

#define EGRESS_MS 30000u

struct sandbox_egress_view {
    struct sbx_record record;
    cJSON *told; /* what the proxy says; NULL: it does not know the workspace */
    sandbox_egress_info info;
    sandbox_egress_rule *rules;
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
static bool fill_view(sandbox_egress_view *view);
static bool fill_rules(sandbox_egress_view *view, const cJSON *rules);
static bool fill_log(sandbox_egress_log *log);
static int64_t read_time(const char *text);

static void free_view(sandbox_egress_view **view)
{
    sandbox_egress_view_free(*view);
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
                                      sandbox_egress_view **out, sandbox_error *error)
{
    struct sbx_wait wait;
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
    SBX_ON_EXIT(free_view) sandbox_egress_view *view = NULL;
    sandbox_status status = begin(workspace, out, call, &wait, &record, error);
    if (status != SANDBOX_OK)
        return status;
    view = calloc(1, sizeof *view);
    if (view == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for an egress policy");
    view->record = record;
    record = (struct sbx_record){0};
    if (view->record.egress != NULL)
        status = ask(workspace, SBX_EGRESS_LOOK, &wait, &view->told, error);
    if (status == SANDBOX_OK && !fill_view(view))
        status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for an egress policy");
    if (status == SANDBOX_OK)
        *out = sbx_take(view);
    return status;
}

const sandbox_egress_info *sandbox_egress_view_info(const sandbox_egress_view *view)
{
    return view == NULL ? NULL : &view->info;
}

const sandbox_egress_rule *sandbox_egress_view_rule(const sandbox_egress_view *view, size_t index)
{
    return view == NULL || index >= view->info.rule_count ? NULL : &view->rules[index];
}

void sandbox_egress_view_free(sandbox_egress_view *view)
{
    if (view == NULL)
        return;
    for (size_t n = 0; view->rules != NULL && n < view->info.rule_count; n++)
        free((void *)(uintptr_t)view->rules[n].headers);
    free(view->rules);
    free((void *)(uintptr_t)view->info.allow);
    free((void *)(uintptr_t)view->info.http);
    cJSON_Delete(view->told);
    sbx_record_clear(&view->record);
    free(view);
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

static bool fill_view(sandbox_egress_view *view)
{
    const cJSON *policy = view->record.egress;
    view->info = (sandbox_egress_info){
        .size = sizeof view->info,
        .mode = policy == NULL ? SANDBOX_EGRESS_UNSET : sbx_egress_mode_of(policy),
        .ech = policy == NULL ? SANDBOX_EGRESS_ECH_UNSET : sbx_egress_ech_of(policy),
        .allow = list_texts(cJSON_GetObjectItemCaseSensitive(policy, "allow")),
        .http = list_texts(cJSON_GetObjectItemCaseSensitive(policy, "http")),
        .registered = view->told != NULL,
        .connections = (uint32_t)sbx_json_integer(view->told, "connections"),
        .refused = (uint64_t)sbx_json_integer(view->told, "refused"),
    };
    return view->info.allow != NULL && view->info.http != NULL &&
           fill_rules(view, cJSON_GetObjectItemCaseSensitive(view->told, "transformations"));
}

static bool fill_rules(sandbox_egress_view *view, const cJSON *rules)
{
    view->rules = calloc((size_t)cJSON_GetArraySize(rules) + 1, sizeof *view->rules);
    const cJSON *rule;
    cJSON_ArrayForEach(rule, rules)
    {
        if (view->rules == NULL)
            return false;
        const char *const *headers = list_texts(cJSON_GetObjectItemCaseSensitive(rule, "headers"));
        view->rules[view->info.rule_count++] = (sandbox_egress_rule){
            .size = sizeof view->rules[0], .host = sbx_json_text(rule, "host"), .headers = headers};
        if (headers == NULL)
            return false;
    }
    return view->rules != NULL;
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
