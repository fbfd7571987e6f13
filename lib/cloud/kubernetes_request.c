/* One request to a cluster, with everything that is tried again in its one place. */

#include "cloud/kubernetes_parts.h"
#include "util/fail.h"
#include "util/json.h"
#include "util/log.h"
#include "util/memory.h"
#include "util/random.h"
#include <stdio.h>

#define HEADERS_MAX        128
#define RETRY_AFTER_MAX_MS 30000

/* One call, over all its tries. */
struct call {
    struct sbx_kubernetes *cluster;
    const struct sbx_kubernetes_request *request;
    const struct sbx_wait *wait;
    const char *body;
    size_t body_size;
    unsigned failures; /* that count: where the server did not say when to come again */
    uint64_t refused;  /* the credential that was answered 401, or 0 */
    bool was_silent;   /* the last try had no answer in its time */
};

/* How one try ended. */
struct
try {
    sandbox_status status;
    bool sent;
    struct sbx_http_answer answer;
    sandbox_error why;
    uint64_t credential;
};

enum next { END, AT_ONCE, AFTER_PAUSE };

static void try_once(struct call *call, struct try *try);
static enum next judge(struct call *call, struct try *try, int64_t *retry_after_ms);
static enum next judge_lost(struct call *call, struct try *try);
static enum next judge_answer(struct call *call, struct try *try, int64_t *retry_after_ms);
static enum next judge_trouble(struct call *call, struct try *try,
                               const struct sbx_kubernetes_status *said, int64_t *retry_after_ms);
static bool pause_before_next(struct call *call, struct try *try, int64_t retry_after_ms);
static sandbox_status finish(struct call *call, struct try *try, cJSON **out, sandbox_error *error);

sandbox_status sbx_kubernetes_ask(struct sbx_kubernetes *cluster,
                                  const struct sbx_kubernetes_request *request,
                                  const struct sbx_wait *wait, cJSON **out, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_secret_free_text) char *body = NULL;
    if (request->body != NULL) {
        body = cJSON_PrintUnformatted(request->body);
        if (body == NULL)
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
    }
    struct call call = {.cluster = cluster,
                        .request = request,
                        .wait = wait,
                        .body = body,
                        .body_size = body == NULL ? 0 : strlen(body)};
    for (;;) {
        struct try try = {0};
        int64_t retry_after_ms = -1;
        try_once(&call, &try);
        enum next next = judge(&call, &try, &retry_after_ms);
        if (next == END ||
            (next == AFTER_PAUSE && !pause_before_next(&call, &try, retry_after_ms))) {
            sandbox_status status = finish(&call, &try, out, error);
            sbx_http_answer_free(&try.answer);
            return status;
        }
        sbx_http_answer_free(&try.answer);
    }
}

const char **sbx_kubernetes_headers(const struct sbx_kubernetes_access *access,
                                    const char *content_type)
{
    const char **headers = calloc(HEADERS_MAX + 3, sizeof *headers);
    if (headers == NULL)
        return NULL;
    size_t count = 0;
    headers[count++] = "Accept: application/json";
    if (content_type != NULL)
        headers[count++] = content_type;
    for (size_t each = 0;
         access->headers != NULL && access->headers[each] != NULL && each < HEADERS_MAX; each++)
        headers[count++] = access->headers[each];
    return headers;
}

void sbx_kubernetes_headers_free(const char ***headers)
{
    free((void *)*headers);
}

uint32_t sbx_kubernetes_pause_ms(const struct sbx_kubernetes *cluster, unsigned failures,
                                 int64_t retry_after_ms)
{
    const struct sbx_kubernetes_pace *pace = &cluster->pace;
    uint32_t pause = pace->first_pause_ms;
    for (unsigned each = 1; each < failures && pause < pace->longest_pause_ms; each++)
        pause *= 2;
    if (pause > pace->longest_pause_ms)
        pause = pace->longest_pause_ms;
    /* Many that failed together must not come back together. */
    uint32_t drawn = 0;
    (void)sbx_random(&drawn, sizeof drawn);
    uint32_t spread = drawn % (pause / 2 + 1);
    if (retry_after_ms < 0)
        return pause - spread;
    if (retry_after_ms > RETRY_AFTER_MAX_MS)
        retry_after_ms = RETRY_AFTER_MAX_MS;
    return (uint32_t)retry_after_ms + spread;
}

static void try_once(struct call *call, struct try *try)
{
    struct sbx_kubernetes *cluster = call->cluster;
    const struct sbx_kubernetes_request *request = call->request;
    SBX_ON_EXIT(sbx_kubernetes_access_end) struct sbx_kubernetes_access access = {0};
    try->answer.retry_after_ms = -1;
    try->status =
        sbx_kubeconfig_access(cluster->config, call->refused, call->wait, &access, &try->why);
    if (try->status != SANDBOX_OK)
        return;
    try->credential = access.number;

    char type[96];
    snprintf(type, sizeof type, "Content-Type: %s", request->type == NULL ? "" : request->type);
    SBX_ON_EXIT(sbx_kubernetes_headers_free)
    const char **headers = sbx_kubernetes_headers(&access, request->type == NULL ? NULL : type);
    if (headers == NULL) {
        try->status = sbx_fail(&try->why, SANDBOX_NO_MEMORY, "no memory for a request");
        return;
    }
    struct sbx_http_request http = {.peer = &access.peer,
                                    .method = request->method,
                                    .url = request->url,
                                    .headers = headers,
                                    .body = call->body,
                                    .body_size = call->body_size,
                                    .on_fresh_connection = call->was_silent};
    bool reads = strcmp(request->method, "GET") == 0;
    struct sbx_wait wait =
        sbx_wait_within(call->wait, reads ? cluster->pace.read_ms : cluster->pace.write_ms);
    try->status = sbx_http_do(cluster->http, &http, &wait, &try->answer, &try->sent, &try->why);
}

static enum next judge(struct call *call, struct try *try, int64_t *retry_after_ms)
{
    if (try->status == SANDBOX_OK)
        return judge_answer(call, try, retry_after_ms);
    bool is_over = sbx_wait_check(call->wait, NULL) != SANDBOX_OK;
    bool is_lost = try->sent && !call->request->repeatable;
    call->was_silent = try->status == SANDBOX_TIMED_OUT;
    if (try->status == SANDBOX_UNAVAILABLE || (!is_over && (call->was_silent || is_lost)))
        return judge_lost(call, try);
    /* Not ours to go on; but the caller must look before he does it again. */
    if (is_lost)
        snprintf(try->why.reason, sizeof try->why.reason, "answer-lost");
    return END;
}

/* Nobody answered: the server may have done it or not. */
static enum next judge_lost(struct call *call, struct try *try)
{
    char words[sizeof try->why.message];
    snprintf(words, sizeof words, "%s",
             call->was_silent ? "the server did not answer in time" : try->why.message);
    const char *title = sbx_kubeconfig_title(call->cluster->config);
    if (try->sent && !call->request->repeatable) {
        try->status = sbx_fail_for(&try->why, SANDBOX_UNKNOWN, "answer-lost",
                                   "%s: it is not known whether it did %s: %s", title,
                                   call->request->doing, words);
        return END;
    }
    try->status = sbx_fail_for(&try->why, SANDBOX_UNAVAILABLE, "kubernetes-unavailable",
                               "%s: cannot %s: %s", title, call->request->doing, words);
    return ++call->failures < call->cluster->pace.tries ? AFTER_PAUSE : END;
}

static enum next judge_answer(struct call *call, struct try *try, int64_t *retry_after_ms)
{
    const struct sbx_http_answer *answer = &try->answer;
    call->was_silent = false;
    if (answer->status >= 200 && answer->status < 300)
        return END;
    struct sbx_kubernetes_status said;
    sbx_kubernetes_status_read(answer, &said);
    try->status = sbx_kubernetes_fail(call->cluster, answer, call->request->doing, &try->why);

    if (answer->status == 401 && call->refused == 0) {
        call->refused = try->credential;
        return AT_ONCE;
    }
    if (answer->status == 409 && call->request->blind && strcmp(said.reason, "Conflict") == 0)
        return ++call->failures < call->cluster->pace.tries ? AFTER_PAUSE : END;
    if (try->status == SANDBOX_UNAVAILABLE && answer->status != 410)
        return judge_trouble(call, try, &said, retry_after_ms);
    return END;
}

/*
 * 429 and 5xx. Throttled requests were not carried out, and neither were those that the server
 * wants to see again; of any other failure of a server's inside that is not sure.
 */
static enum next judge_trouble(struct call *call, struct try *try,
                               const struct sbx_kubernetes_status *said, int64_t *retry_after_ms)
{
    bool was_refused =
        try->answer.status == 429 || (try->answer.status == 503 && said->retry_after_ms >= 0);
    if (!call->request->repeatable && !was_refused) {
        try->why.status = try->status = SANDBOX_UNKNOWN;
        snprintf(try->why.reason, sizeof try->why.reason, "answer-lost");
        return END;
    }
    *retry_after_ms = said->retry_after_ms;
    /* A server that says when to come again is asked for as long as the caller waits. */
    if (said->retry_after_ms >= 0)
        return AFTER_PAUSE;
    return ++call->failures < call->cluster->pace.tries ? AFTER_PAUSE : END;
}

/* False: what stands in `try` is what is told. A pause longer than the wait helps nobody. */
static bool pause_before_next(struct call *call, struct try *try, int64_t retry_after_ms)
{
    uint32_t pause = sbx_kubernetes_pause_ms(call->cluster, call->failures, retry_after_ms);
    sbx_log(SANDBOX_LOG_DEBUG, "%s; tried again in %u ms", try->why.message, pause);
    uint32_t left = sbx_wait_left_ms(call->wait);
    if (left != SANDBOX_FOREVER && left <= pause)
        return false;
    sandbox_error why;
    sandbox_status status = sbx_wait_pause(call->wait, pause, &why);
    if (status == SANDBOX_OK)
        return true;
    if (status == SANDBOX_CANCELLED) {
        try->status = status;
        try->why = why;
    }
    return false;
}

static sandbox_status finish(struct call *call, struct try *try, cJSON **out, sandbox_error *error)
{
    const struct sbx_bytes *body = &try->answer.body;
    if (try->status == SANDBOX_OK && out != NULL) {
        cJSON *object = NULL;
        sandbox_status parsed = sbx_bytes_size(body) == 0
                                    ? SANDBOX_FAILED
                                    : sbx_json_parse(sbx_bytes_data(body), sbx_bytes_size(body),
                                                     SBX_HTTP_ANSWER_MAX, &object, NULL);
        if (parsed == SANDBOX_OK && cJSON_IsObject(object)) {
            *out = object;
        } else {
            cJSON_Delete(object);
            try->status =
                sbx_fail_for(&try->why, SANDBOX_FAILED, "malformed-answer",
                             "%s: to '%s' the answer is no JSON object",
                             sbx_kubeconfig_title(call->cluster->config), call->request->doing);
        }
    }
    if (try->status != SANDBOX_OK && error != NULL)
        *error = try->why;
    return try->status;
}
