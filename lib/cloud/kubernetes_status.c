/* What a cluster's answer means where it is no success. */

#include "cloud/kubernetes_parts.h"
#include "util/fail.h"
#include "util/json.h"
#include "util/memory.h"
#include <stdio.h>

#define STATUS_MAX (1u << 20)
#define WORDS_MAX  160 /* of an answer that is no Status */

static void read_details(const cJSON *status, struct sbx_kubernetes_status *out);
static void read_words(const struct sbx_http_answer *answer, char *words, size_t size);

struct verdict {
    sandbox_status status;
    const char *reason;
};

static struct verdict judge(long code, const struct sbx_kubernetes_status *said);

void sbx_kubernetes_status_read(const struct sbx_http_answer *answer,
                                struct sbx_kubernetes_status *out)
{
    *out = (struct sbx_kubernetes_status){.retry_after_ms = answer->retry_after_ms};
    SBX_ON_EXIT(sbx_json_free) cJSON *status = NULL;
    const void *text = sbx_bytes_data(&answer->body);
    size_t size = sbx_bytes_size(&answer->body);
    if (size == 0 || sbx_json_parse(text, size, STATUS_MAX, &status, NULL) != SANDBOX_OK ||
        strcmp(sbx_json_text(status, "kind"), "Status") != 0)
        return;
    out->is_status = true;
    snprintf(out->reason, sizeof out->reason, "%s", sbx_json_text(status, "reason"));
    snprintf(out->message, sizeof out->message, "%s", sbx_json_text(status, "message"));
    read_details(status, out);
}

sandbox_status sbx_kubernetes_fail(const struct sbx_kubernetes *cluster,
                                   const struct sbx_http_answer *answer, const char *doing,
                                   sandbox_error *error)
{
    struct sbx_kubernetes_status said;
    sbx_kubernetes_status_read(answer, &said);
    struct verdict verdict = judge(answer->status, &said);
    char words[sizeof said.message];
    if (said.message[0] != '\0')
        memcpy(words, said.message, sizeof words);
    else
        read_words(answer, words, sizeof words);
    sbx_fail_for(error, verdict.status, verdict.reason, "%s: cannot %s: %s",
                 sbx_kubeconfig_title(cluster->config), doing, words);
    if (error != NULL)
        error->http_status = (int)answer->status;
    return verdict.status;
}

static void read_details(const cJSON *status, struct sbx_kubernetes_status *out)
{
    const cJSON *details = cJSON_GetObjectItemCaseSensitive(status, "details");
    snprintf(out->name, sizeof out->name, "%s", sbx_json_text(details, "name"));
    int64_t seconds = sbx_json_integer(details, "retryAfterSeconds");
    if (out->retry_after_ms < 0 && seconds > 0 && seconds < 86400)
        out->retry_after_ms = 1000 * seconds;
    const cJSON *cause;
    cJSON_ArrayForEach(cause, cJSON_GetObjectItemCaseSensitive(details, "causes"))
    {
        if (strcmp(sbx_json_text(cause, "reason"), "ResourceVersionTooLarge") == 0)
            out->version_too_large = true;
    }
}

/* A proxy's page, or nothing: its beginning is better than no word at all. */
static void read_words(const struct sbx_http_answer *answer, char *words, size_t size)
{
    size_t length = sbx_bytes_size(&answer->body);
    const char *text = (const char *)sbx_bytes_data(&answer->body);
    length = length > WORDS_MAX ? WORDS_MAX : length;
    while (length > 0 && (unsigned char)text[length - 1] <= ' ')
        length--;
    snprintf(words, size, "HTTP %ld%s%.*s", answer->status, length > 0 ? ", " : "", (int)length,
             length > 0 ? text : "");
    for (char *at = words; *at != '\0'; at++)
        *at = *at == '\n' || *at == '\r' || *at == '\t' ? ' ' : *at;
}

/*
 * A 404 that names no object says that the server knows nothing of the kind. To take that for "the
 * object is not there" would lose it.
 */
static struct verdict judge(long code, const struct sbx_kubernetes_status *said)
{
    bool is_quota = said->is_status && strstr(said->message, "exceeded quota") != NULL;
    switch (code) {
    case 401:
        return (struct verdict){SANDBOX_DENIED, "kubernetes-denied"};
    case 403:
        return is_quota ? (struct verdict){SANDBOX_LIMIT, "kubernetes-quota"}
                        : (struct verdict){SANDBOX_DENIED, "kubernetes-denied"};
    case 404:
        return said->is_status && said->name[0] != '\0'
                   ? (struct verdict){SANDBOX_NOT_FOUND, "no-such-object"}
                   : (struct verdict){SANDBOX_UNSUPPORTED, "no-such-kind"};
    case 409:
        return strcmp(said->reason, "AlreadyExists") == 0
                   ? (struct verdict){SANDBOX_EXISTS, "object-exists"}
                   : (struct verdict){SANDBOX_CONFLICT, "object-changed"};
    case 408:
    case 410:
    case 429:
        return (struct verdict){SANDBOX_UNAVAILABLE, "kubernetes-unavailable"};
    default:
        if (code >= 500)
            return (struct verdict){SANDBOX_UNAVAILABLE, "kubernetes-unavailable"};
        if (code >= 400)
            return (struct verdict){SANDBOX_INVALID, "kubernetes-refused"};
        return (struct verdict){SANDBOX_FAILED, "malformed-answer"};
    }
}
