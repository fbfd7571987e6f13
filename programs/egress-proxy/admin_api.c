/* What the admin API answers: see admin_api.h. */

#include "admin_api.h"
#include "admin_check.h"
#include "admin_log.h"
#include "admin_workspace.h"
#include "journal.h"
#include "metrics.h"
#include "registry.h"
#include "settings.h"
#include "util/digest.h"
#include "util/json.h"
#include "version.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKSPACE_PATH "/v1/workspaces/"
#define CHECK_PATH     "/check"

static bool token_is_right(struct sbx_egress_text given);
static bool is(const struct admin_request *request, const char *method);
static void answer_version(struct admin_answer *answer);
static void answer_list(struct admin_answer *answer);
static void list_one(struct workspace *workspace, void *user_data);
static void answer_metrics(struct admin_answer *answer);
static void answer_workspace(const struct admin_request *request, char *id,
                             struct admin_answer *answer);
static void answer_check(const struct admin_request *request, const struct workspace *workspace,
                         struct admin_answer *answer);

bool admin_check(const struct sbx_egress_head *head, struct admin_answer *answer)
{
    struct sbx_egress_text token = {NULL, 0};
    bool ours = true;
    char protocol[12];
    snprintf(protocol, sizeof protocol, "%d", PROXY_PROTOCOL);
    for (size_t i = 0; i < head->field_count; i++) {
        const struct sbx_egress_field *field = &head->fields[i];
        if (sbx_egress_text_is(field->name, "authorization"))
            token = field->value;
        else if (sbx_egress_text_is(field->name, "sandbox-protocol"))
            ours = ours && sbx_egress_text_is(field->value, protocol);
    }
    if (settings.admin_token != NULL && !token_is_right(token)) {
        journal_event("admin-refused", "reason", "unauthorized");
        admin_fail(answer, 401, "unauthorized", "no token, or not this one");
        return false;
    }
    if (!ours) {
        admin_fail(answer, 400, "protocol", "this proxy speaks Sandbox-Protocol 1");
        return false;
    }
    return true;
}

/* How long it takes tells the token's length at most: digests of the same size are compared. */
static bool token_is_right(struct sbx_egress_text given)
{
    static const char scheme[] = "Bearer ";
    uint8_t have[SBX_DIGEST_BYTES], wanted[SBX_DIGEST_BYTES];
    struct sbx_egress_text begin = {given.data, sizeof scheme - 1};
    if (given.size < sizeof scheme || !sbx_egress_text_is(begin, scheme))
        return false;
    sbx_sha256(given.data + sizeof scheme - 1, given.size - (sizeof scheme - 1), have);
    sbx_sha256(settings.admin_token, strlen(settings.admin_token), wanted);
    return sbx_equal_secret(have, wanted, sizeof have);
}

void admin_answer(const struct admin_request *request, struct admin_answer *answer)
{
    char target[WORKSPACE_ID_MAX * 2];
    if (request->target.size >= sizeof target) {
        admin_fail(answer, 404, "not-found", "no such path");
        return;
    }
    snprintf(target, sizeof target, "%.*s", (int)request->target.size, request->target.data);
    bool one = strncmp(target, WORKSPACE_PATH, sizeof WORKSPACE_PATH - 1) == 0;
    bool log = strncmp(target, "/v1/log", 7) == 0 && (target[7] == '\0' || target[7] == '?');
    bool all = strcmp(target, "/v1/workspaces") == 0, version = strcmp(target, "/v1/version") == 0;
    if (one)
        answer_workspace(request, target + sizeof WORKSPACE_PATH - 1, answer);
    else if (!log && !all && !version && strcmp(target, "/metrics") != 0)
        admin_fail(answer, 404, "not-found", "no such path");
    else if (!is(request, "GET"))
        admin_fail(answer, 405, "method", "only GET");
    else if (log)
        admin_log_answer(target, answer);
    else if (all)
        answer_list(answer);
    else if (version)
        answer_version(answer);
    else
        answer_metrics(answer);
}

static bool is(const struct admin_request *request, const char *method)
{
    return sbx_egress_text_is(request->method, method);
}

static void answer_version(struct admin_answer *answer)
{
    cJSON *object = cJSON_CreateObject();
    bool whole = object != NULL && sbx_json_set_text(object, "version", PROXY_VERSION) &&
                 sbx_json_set_integer(object, "protocol", PROXY_PROTOCOL) &&
                 sbx_json_set_integer(object, "workspaces", registry_count());
    admin_tell(answer, 200, object, whole);
}

/* What goes through all workspaces, and whether memory was enough so far. */
struct walk {
    cJSON *list;
    bool whole;
};

static void answer_list(struct admin_answer *answer)
{
    cJSON *object = cJSON_CreateObject();
    struct walk walk = {cJSON_AddArrayToObject(object, "workspaces"), true};
    walk.whole = walk.list != NULL;
    registry_each(list_one, &walk);
    admin_tell(answer, 200, object, walk.whole);
}

static void list_one(struct workspace *workspace, void *user_data)
{
    struct walk *walk = user_data;
    cJSON *one = walk->whole ? admin_workspace_json(workspace) : NULL;
    walk->whole = one != NULL && cJSON_AddItemToArray(walk->list, one);
}

static void answer_metrics(struct admin_answer *answer)
{
    answer->status = 200;
    answer->type = "text/plain; version=0.0.4";
    if (!metrics_print(&answer->body))
        admin_fail(answer, 507, "limit", "no memory");
}

bool admin_asks_for_check(struct sbx_egress_text target)
{
    size_t size = sizeof CHECK_PATH - 1;
    return target.size > size && memcmp(target.data + target.size - size, CHECK_PATH, size) == 0;
}

static void answer_workspace(const struct admin_request *request, char *id,
                             struct admin_answer *answer)
{
    bool checks = admin_asks_for_check(request->target);
    if (checks)
        id[strlen(id) - (sizeof CHECK_PATH - 1)] = '\0';
    if (!registry_id_is_good(id)) {
        admin_fail(answer, 400, "bad-request", "an id is 1 to 128 of A-Z a-z 0-9 . _ -");
        return;
    }
    if (is(request, "PUT") && !checks) {
        admin_workspace_put(id, request, answer);
        return;
    }
    struct workspace *workspace = registry_find(id);
    if (checks) {
        answer_check(request, workspace, answer);
    } else if (!is(request, "GET") && !is(request, "PATCH") && !is(request, "DELETE")) {
        admin_fail(answer, 405, "method", "only GET, PUT, PATCH and DELETE");
    } else if (workspace == NULL) {
        admin_fail(answer, 404, "not-found", "no such workspace");
    } else if (is(request, "GET")) {
        cJSON *object = admin_workspace_json(workspace);
        admin_tell(answer, 200, object, object != NULL);
    } else if (is(request, "PATCH")) {
        admin_workspace_patch(workspace, request, answer);
    } else {
        registry_forget(workspace);
        answer->status = 204;
    }
}

static void answer_check(const struct admin_request *request, const struct workspace *workspace,
                         struct admin_answer *answer)
{
    if (!is(request, "POST"))
        admin_fail(answer, 405, "method", "only POST");
    else if (workspace == NULL)
        admin_fail(answer, 404, "not-found", "no such workspace");
    else
        admin_check_texts(workspace, request, answer);
}

void admin_tell(struct admin_answer *answer, int status, cJSON *object, bool whole)
{
    char *text = whole ? cJSON_PrintUnformatted(object) : NULL;
    cJSON_Delete(object);
    answer->status = status;
    if (text == NULL || !sbx_bytes_append(&answer->body, text, strlen(text)))
        admin_fail(answer, 507, "limit", "no memory for the answer");
    cJSON_free(text);
}

void admin_fail(struct admin_answer *answer, int status, const char *reason, const char *message)
{
    cJSON *object = cJSON_CreateObject();
    cJSON *error = cJSON_AddObjectToObject(object, "error");
    char *text = error != NULL && sbx_json_set_text(error, "reason", reason) &&
                         sbx_json_set_text(error, "message", message)
                     ? cJSON_PrintUnformatted(object)
                     : NULL;
    cJSON_Delete(object);
    answer->status = status;
    sbx_bytes_skip(&answer->body, sbx_bytes_size(&answer->body));
    /* Without memory the status has to do. */
    if (text != NULL)
        (void)sbx_bytes_append(&answer->body, text, strlen(text));
    cJSON_free(text);
}

const char *admin_phrase(int status)
{
    static const struct {
        int status;
        const char *phrase;
    } phrases[] = {
        {200, "OK"},
        {201, "Created"},
        {204, "No Content"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {409, "Conflict"},
        {413, "Content Too Large"},
        {431, "Request Header Fields Too Large"},
        {501, "Not Implemented"},
        {505, "HTTP Version Not Supported"},
        {507, "Insufficient Storage"},
    };
    for (size_t i = 0; i < sizeof phrases / sizeof phrases[0]; i++)
        if (phrases[i].status == status)
            return phrases[i].phrase;
    return "Unknown";
}
