/* Requests to an egress proxy's admin API, and what its answers mean: see egress_admin.h. */

#include "cloud/egress_admin.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/random.h"
#include <stdio.h>

#define ANSWER_MAX (4u << 20)
#define ANSWER_MS  10000u /* it answers from memory */
/* A text that grows leaves copies behind: larger than what the proxy takes for a registration. */
#define BODY_ROOM (1 << 20)

struct question {
    const char *method;
    char path[160];
    const cJSON *body;
};

static sandbox_status ask(struct sbx_http *http, const struct sbx_egress_admin *admin,
                          const struct question *question, const struct sbx_wait *wait,
                          cJSON **answer, sandbox_error *error);
static sandbox_status judge(const struct sbx_http_answer *got, cJSON **answer,
                            sandbox_error *error);
static sandbox_status judge_refusal(long code, const cJSON *said, sandbox_error *error);
static sandbox_status change_key(struct sbx_http *http, const struct sbx_egress_admin *admin,
                                 const char *workspace_id, const char *key,
                                 const struct sbx_wait *wait, sandbox_error *error);

bool sbx_egress_admin_key(char key[SBX_EGRESS_KEY_TEXT])
{
    uint8_t bytes[(SBX_EGRESS_KEY_TEXT - 1) / 2];
    bool drawn = sbx_random(bytes, sizeof bytes);
    if (drawn)
        sbx_hex_print(bytes, sizeof bytes, key);
    sbx_wipe(bytes, sizeof bytes);
    return drawn;
}

sandbox_status sbx_egress_admin_hello(struct sbx_http *http, const struct sbx_egress_admin *admin,
                                      const struct sbx_wait *wait, sandbox_error *error)
{
    struct question question = {.method = "GET", .path = "/v1/version"};
    return ask(http, admin, &question, wait, NULL, error);
}

sandbox_status sbx_egress_admin_put(struct sbx_http *http, const struct sbx_egress_admin *admin,
                                    const char *workspace_id, const cJSON *source, const char *key,
                                    const cJSON *registration, bool keep,
                                    const struct sbx_wait *wait, sandbox_error *error)
{
    if (keep) {
        sandbox_status changed = change_key(http, admin, workspace_id, key, wait, error);
        if (changed != SANDBOX_NOT_FOUND)
            return changed;
    }
    struct question question = {.method = "PUT"};
    snprintf(question.path, sizeof question.path, "/v1/workspaces/%s", workspace_id);
    SBX_ON_EXIT(sbx_secret_free_json) cJSON *body = cJSON_Duplicate(registration, true);
    cJSON *copy = body == NULL ? NULL : cJSON_Duplicate(source, true);
    if (copy == NULL || !cJSON_AddItemToObject(body, "source", copy) ||
        !sbx_json_set_text(body, "key", key))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a registration");
    question.body = body;
    return ask(http, admin, &question, wait, NULL, error);
}

static sandbox_status change_key(struct sbx_http *http, const struct sbx_egress_admin *admin,
                                 const char *workspace_id, const char *key,
                                 const struct sbx_wait *wait, sandbox_error *error)
{
    struct question question = {.method = "PATCH"};
    snprintf(question.path, sizeof question.path, "/v1/workspaces/%s", workspace_id);
    SBX_ON_EXIT(sbx_secret_free_json) cJSON *body = cJSON_CreateObject();
    if (body == NULL || !sbx_json_set_text(body, "key", key))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a registration");
    question.body = body;
    return ask(http, admin, &question, wait, NULL, error);
}

sandbox_status sbx_egress_admin_ask(struct sbx_http *http, const struct sbx_egress_admin *admin,
                                    const char *workspace_id, enum sbx_egress_question question,
                                    const cJSON *body, const struct sbx_wait *wait, cJSON **answer,
                                    sandbox_error *error)
{
    static const struct {
        const char *method, *path;
    } known[] = {
        [SBX_EGRESS_LOOK] = {"GET", "/v1/workspaces/%s"},
        [SBX_EGRESS_LOG] = {"GET", "/v1/log?workspace=%s"},
        [SBX_EGRESS_CHANGE] = {"PATCH", "/v1/workspaces/%s"},
        [SBX_EGRESS_CHECK] = {"POST", "/v1/workspaces/%s/check"},
    };
    sandbox_error own = {0};
    error = error == NULL ? &own : error; /* its reason counts */
    struct question asked = {.method = known[question].method, .body = body};
    const char *place = strstr(known[question].path, "%s");
    snprintf(asked.path, sizeof asked.path, "%.*s%s%s", (int)(place - known[question].path),
             known[question].path, workspace_id, place + 2);
    sandbox_status status = ask(http, admin, &asked, wait, answer, error);
    if (status == SANDBOX_UNAVAILABLE && strcmp(error->reason, "no-proxy") == 0)
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "not-registered",
                            "no egress proxy answers: nothing goes out");
    return status;
}

sandbox_status sbx_egress_admin_forget(struct sbx_http *http, const struct sbx_egress_admin *admin,
                                       const char *workspace_id, const struct sbx_wait *wait,
                                       sandbox_error *error)
{
    struct question question = {.method = "DELETE"};
    snprintf(question.path, sizeof question.path, "/v1/workspaces/%s", workspace_id);
    sandbox_error own = {0};
    error = error == NULL ? &own : error;
    sandbox_status status = ask(http, admin, &question, wait, NULL, error);
    bool is_none = status == SANDBOX_UNAVAILABLE && strcmp(error->reason, "no-proxy") == 0;
    return status == SANDBOX_NOT_FOUND || is_none ? SANDBOX_OK : status;
}

static sandbox_status ask(struct sbx_http *http, const struct sbx_egress_admin *admin,
                          const struct question *question, const struct sbx_wait *wait,
                          cJSON **answer, sandbox_error *error)
{
    sandbox_error own = {0};
    error = error == NULL ? &own : error;
    SBX_ON_EXIT(sbx_free_text) char *url = sbx_format("%s%s", admin->url, question->path);
    SBX_ON_EXIT(sbx_secret_free_text)
    char *token =
        admin->token == NULL ? NULL : sbx_format("Authorization: Bearer %s", admin->token);
    SBX_ON_EXIT(sbx_secret_free_text)
    char *body =
        question->body == NULL ? NULL : cJSON_PrintBuffered(question->body, BODY_ROOM, false);
    if (url == NULL || (admin->token != NULL && token == NULL) ||
        (question->body != NULL && body == NULL))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request to the egress proxy");
    /* No other proxy may come between: the body can hold credentials. */
    const struct sbx_http_peer peer = {.proxy = "", .socket = admin->socket};
    const char *const headers[] = {"Sandbox-Protocol: 1", "Content-Type: application/json", token,
                                   NULL};
    const struct sbx_http_request request = {.peer = &peer,
                                             .method = question->method,
                                             .url = url,
                                             .headers = headers,
                                             .body = body,
                                             .body_size = body == NULL ? 0 : strlen(body),
                                             .answer_max = ANSWER_MAX};
    struct sbx_wait soon = sbx_wait_within(wait, ANSWER_MS);
    struct sbx_http_answer got = {0};
    sandbox_status status = sbx_http_do(http, &request, &soon, &got, NULL, error);
    if (status == SANDBOX_UNAVAILABLE) {
        char words[160];
        snprintf(words, sizeof words, "%.159s", error->message);
        status = sbx_fail_for(error, SANDBOX_UNAVAILABLE, "no-proxy",
                              "the egress proxy does not answer: %s", words);
    }
    if (status == SANDBOX_OK)
        status = judge(&got, answer, error);
    sbx_http_answer_free(&got);
    return status;
}

static sandbox_status judge(const struct sbx_http_answer *got, cJSON **answer, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_secret_free_json) cJSON *said = NULL;
    sandbox_status status = SANDBOX_OK;
    if (sbx_bytes_size(&got->body) > 0)
        status = sbx_json_parse(sbx_bytes_data(&got->body), sbx_bytes_size(&got->body), ANSWER_MAX,
                                &said, error);
    if (status != SANDBOX_OK)
        return sbx_fail_for(error, SANDBOX_FAILED, "other-proxy",
                            "what answers as the egress proxy is none (HTTP %ld)", got->status);
    if (got->status < 200 || got->status > 299)
        return judge_refusal(got->status, said, error);
    if (answer != NULL)
        *answer = sbx_take(said);
    return SANDBOX_OK;
}

/* Its sentences name members and hosts, never a value. */
static sandbox_status judge_refusal(long code, const cJSON *said, sandbox_error *error)
{
    const cJSON *fault = cJSON_GetObjectItemCaseSensitive(said, "error");
    const char *reason = sbx_json_text(fault, "reason"), *words = sbx_json_text(fault, "message");
    if (error != NULL)
        error->http_status = (int)code;
    if (code == 404)
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "not-registered",
                            "the egress proxy does not know the workspace");
    if (strcmp(reason, "cidrs-unsupported") == 0)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, reason, "%.200s", words);
    if (strcmp(reason, "protocol") == 0)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "other-protocol",
                            "the egress proxy is of another version: %.160s", words);
    if (code == 401)
        return sbx_fail_for(error, SANDBOX_DENIED, "unauthorized",
                            "the egress proxy's admin API wants a token, and not this one");
    if (code == 413 || code == 507)
        return sbx_fail_for(error, SANDBOX_LIMIT, "egress-limit", "the egress proxy: %.200s",
                            words);
    if (code == 400)
        return sbx_fail_for(error, SANDBOX_INVALID, "bad-egress", "%.230s", words);
    return sbx_fail_for(error, SANDBOX_FAILED, "egress-proxy",
                        "the egress proxy: %.200s (HTTP %ld)",
                        words[0] == '\0' ? "no reason given" : words, code);
}
