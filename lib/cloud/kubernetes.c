/* A Kubernetes cluster: opened, closed, addressed and asked what it is. */

#include "cloud/kubernetes_parts.h"
#include "util/fail.h"
#include "util/json.h"
#include "util/memory.h"

#define URL_MAX 8192

static const struct sbx_kubernetes_pace usual_pace = {
    .tries = 10,
    .first_pause_ms = 100,
    .longest_pause_ms = 5000,
    /* No answer of a server that is well takes longer; its own limit is 60 s. */
    .read_ms = 30000,
    .write_ms = 65000,
    .watch_seconds = 60,
    .slack_seconds = 10,
    .linger_ms = 60000,
    .ping_ms = 20000,
    .silence_ms = 60000,
    .close_ms = 5000,
};

static void close_half(struct sbx_kubernetes **cluster);

sandbox_status sbx_kubernetes_open(const struct sbx_kubernetes_options *options,
                                   struct sbx_kubernetes **out, sandbox_error *error)
{
    SBX_ON_EXIT(close_half) struct sbx_kubernetes *cluster = calloc(1, sizeof *cluster);
    if (cluster == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a cluster");
    pthread_mutex_init(&cluster->lock, NULL);
    cluster->pace = usual_pace;
    sandbox_status status = sbx_kubeconfig_read(options, &cluster->config, error);
    if (status == SANDBOX_OK)
        status = sbx_http_start(&cluster->http, error);
    if (status == SANDBOX_OK)
        cluster->sessions = sbx_http_sessions_new();
    if (status == SANDBOX_OK)
        status = sbx_kubernetes_watches_new(cluster, &cluster->watches, error);
    if (status == SANDBOX_OK)
        *out = sbx_take(cluster);
    return status;
}

void sbx_kubernetes_close(struct sbx_kubernetes *cluster)
{
    if (cluster == NULL)
        return;
    sbx_kubernetes_watches_free(cluster->watches);
    sbx_loop_stop(cluster->loop);
    sbx_http_sessions_drop(cluster->sessions);
    sbx_http_stop(cluster->http);
    sbx_kubeconfig_free(cluster->config);
    pthread_mutex_destroy(&cluster->lock);
    free(cluster);
}

static void close_half(struct sbx_kubernetes **cluster)
{
    sbx_kubernetes_close(*cluster);
}

const char *sbx_kubernetes_namespace(const struct sbx_kubernetes *cluster)
{
    return sbx_kubeconfig_namespace(cluster->config);
}

sandbox_status sbx_kubernetes_loop(struct sbx_kubernetes *cluster, struct sbx_loop **out,
                                   sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    pthread_mutex_lock(&cluster->lock);
    if (cluster->loop == NULL)
        status = sbx_loop_start(&cluster->loop, error);
    *out = cluster->loop;
    pthread_mutex_unlock(&cluster->lock);
    return status;
}

static bool add_part(struct sbx_bytes *url, const char *part)
{
    return part == NULL || part[0] == '\0' ||
           (sbx_bytes_append(url, "/", 1) && sbx_http_escape(url, part));
}

char *sbx_kubernetes_url(const struct sbx_kubernetes *cluster, const struct sbx_resource *resource,
                         const char *space, const char *name, const char *part)
{
    struct sbx_bytes url = SBX_BYTES(URL_MAX);
    const char *server = sbx_kubeconfig_server(cluster->config);
    bool in_space = !resource->cluster_scoped && space != NULL && space[0] != '\0';
    bool made = sbx_bytes_append(&url, server, strlen(server)) &&
                add_part(&url, resource->group[0] == '\0' ? "api" : "apis") &&
                add_part(&url, resource->group) && add_part(&url, resource->version) &&
                (!in_space || (add_part(&url, "namespaces") && add_part(&url, space))) &&
                add_part(&url, resource->plural) && add_part(&url, name) && add_part(&url, part) &&
                sbx_bytes_append(&url, "", 1);
    char *text = made ? sbx_copy((const char *)sbx_bytes_data(&url)) : NULL;
    sbx_bytes_free(&url);
    return text;
}

sandbox_status sbx_kubernetes_read(struct sbx_kubernetes *cluster, const char *path,
                                   const struct sbx_wait *wait, cJSON **out, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text)
    char *url = sbx_format("%s%s", sbx_kubeconfig_server(cluster->config), path);
    SBX_ON_EXIT(sbx_free_text) char *doing = sbx_format("read '%s'", path);
    if (url == NULL || doing == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
    struct sbx_kubernetes_request request = {
        .method = "GET", .url = url, .doing = doing, .repeatable = true};
    sandbox_error why = {0};
    sandbox_status status = sbx_kubernetes_ask(cluster, &request, wait, out, &why);
    /* Of a path it is no news about a kind, only that nothing is there. */
    if (status == SANDBOX_UNSUPPORTED && why.http_status == 404)
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-such-object", "%s", why.message);
    if (status != SANDBOX_OK && error != NULL)
        *error = why;
    return status;
}

/* cJSON owns what was added to it, also where a later step fails. */
static cJSON *access_review(const char *verb, const struct sbx_resource *resource, const char *part,
                            const char *space)
{
    cJSON *review = cJSON_CreateObject();
    cJSON *spec = cJSON_AddObjectToObject(review, "spec");
    cJSON *asked = cJSON_AddObjectToObject(spec, "resourceAttributes");
    bool made = asked != NULL &&
                sbx_json_set_text(review, "apiVersion", "authorization.k8s.io/v1") &&
                sbx_json_set_text(review, "kind", "SelfSubjectAccessReview") &&
                sbx_json_set_text(asked, "verb", verb) &&
                sbx_json_set_text(asked, "group", resource->group) &&
                sbx_json_set_text(asked, "resource", resource->plural);
    if (made && !resource->cluster_scoped && space != NULL)
        made = sbx_json_set_text(asked, "namespace", space);
    if (made && part != NULL && part[0] != '\0')
        made = sbx_json_set_text(asked, "subresource", part);
    if (!made)
        cJSON_Delete(review);
    return made ? review : NULL;
}

sandbox_status sbx_kubernetes_may(struct sbx_kubernetes *cluster, const char *verb,
                                  const struct sbx_resource *resource, const char *part,
                                  const char *space, const struct sbx_wait *wait, bool *allowed,
                                  sandbox_error *error)
{
    static const struct sbx_resource reviews = {
        "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", true};
    SBX_ON_EXIT(sbx_free_text) char *url = sbx_kubernetes_url(cluster, &reviews, NULL, NULL, NULL);
    SBX_ON_EXIT(sbx_json_free) cJSON *review = access_review(verb, resource, part, space);
    if (url == NULL || review == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
    struct sbx_kubernetes_request request = {.method = "POST",
                                             .url = url,
                                             .type = "application/json",
                                             .body = review,
                                             .doing = "ask what is allowed",
                                             .repeatable = true};
    SBX_ON_EXIT(sbx_json_free) cJSON *answer = NULL;
    sandbox_status status = sbx_kubernetes_ask(cluster, &request, wait, &answer, error);
    if (status != SANDBOX_OK)
        return status;
    const cJSON *verdict = cJSON_GetObjectItemCaseSensitive(answer, "status");
    *allowed = sbx_json_flag(verdict, "allowed");
    return SANDBOX_OK;
}
