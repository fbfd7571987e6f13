/* One object of a cluster: fetched, made, changed, deleted. */

#include "cloud/kubernetes_parts.h"
#include "util/fail.h"
#include "util/json.h"
#include "util/memory.h"

#define WRITING "?fieldManager=libsandbox"
#define STRICT  WRITING "&fieldValidation=Strict"

/* What is the same about all of them. */
struct target {
    struct sbx_kubernetes *cluster;
    const struct sbx_resource *resource;
    const char *space, *name, *part;
    const struct sbx_wait *wait;
};

static sandbox_status ask(const struct target *target, const char *query,
                          struct sbx_kubernetes_request *request, const char *verb, cJSON **out,
                          sandbox_error *error);
static cJSON *delete_options(const struct sbx_delete_options *options);

static const cJSON *metadata(const cJSON *object)
{
    return cJSON_GetObjectItemCaseSensitive(object, "metadata");
}

static bool has_version(const cJSON *object)
{
    return sbx_json_text(metadata(object), "resourceVersion")[0] != '\0';
}

sandbox_status sbx_kubernetes_get(struct sbx_kubernetes *cluster,
                                  const struct sbx_resource *resource, const char *space,
                                  const char *name, const struct sbx_wait *wait, cJSON **out,
                                  sandbox_error *error)
{
    struct target target = {cluster, resource, space, name, NULL, wait};
    struct sbx_kubernetes_request request = {.method = "GET", .repeatable = true};
    return ask(&target, "", &request, "get", out, error);
}

sandbox_status sbx_kubernetes_create(struct sbx_kubernetes *cluster,
                                     const struct sbx_resource *resource, const char *space,
                                     const cJSON *object, const struct sbx_wait *wait, cJSON **out,
                                     sandbox_error *error)
{
    const char *name = sbx_json_text(metadata(object), "name");
    const char *beginning = sbx_json_text(metadata(object), "generateName");
    /* A conflict here is one of the server's own, over a quota: nothing was made. */
    struct sbx_kubernetes_request request = {.method = "POST",
                                             .type = "application/json",
                                             .body = object,
                                             .repeatable = name[0] != '\0',
                                             .blind = true};
    struct target target = {cluster, resource, space, name[0] != '\0' ? name : beginning,
                            NULL,    wait};
    return ask(&target, STRICT, &request, "create", out, error);
}

sandbox_status sbx_kubernetes_patch(struct sbx_kubernetes *cluster,
                                    const struct sbx_resource *resource, const char *space,
                                    const char *name, const char *part, const cJSON *patch,
                                    const struct sbx_wait *wait, cJSON **out, sandbox_error *error)
{
    struct target target = {cluster, resource, space, name, part, wait};
    struct sbx_kubernetes_request request = {.method = "PATCH",
                                             .type = "application/merge-patch+json",
                                             .body = patch,
                                             .repeatable = true,
                                             .blind = !has_version(patch)};
    return ask(&target, STRICT, &request, "patch", out, error);
}

sandbox_status sbx_kubernetes_replace(struct sbx_kubernetes *cluster,
                                      const struct sbx_resource *resource, const char *space,
                                      const char *name, const cJSON *object,
                                      const struct sbx_wait *wait, cJSON **out,
                                      sandbox_error *error)
{
    struct target target = {cluster, resource, space, name, NULL, wait};
    struct sbx_kubernetes_request request = {.method = "PUT",
                                             .type = "application/json",
                                             .body = object,
                                             .repeatable = true,
                                             .blind = !has_version(object)};
    return ask(&target, STRICT, &request, "replace", out, error);
}

sandbox_status sbx_kubernetes_apply(struct sbx_kubernetes *cluster,
                                    const struct sbx_resource *resource, const char *space,
                                    const cJSON *object, bool force, const struct sbx_wait *wait,
                                    cJSON **out, sandbox_error *error)
{
    struct target target = {cluster, resource, space, sbx_json_text(metadata(object), "name"),
                            NULL,    wait};
    /* Without force a conflict is another manager's field, and stays one. */
    struct sbx_kubernetes_request request = {.method = "PATCH",
                                             .type = "application/apply-patch+yaml",
                                             .body = object,
                                             .repeatable = true,
                                             .blind = force && !has_version(object)};
    return ask(&target, force ? STRICT "&force=true" : STRICT, &request, "apply", out, error);
}

sandbox_status sbx_kubernetes_delete(struct sbx_kubernetes *cluster,
                                     const struct sbx_resource *resource, const char *space,
                                     const char *name, const struct sbx_delete_options *options,
                                     const struct sbx_wait *wait, sandbox_error *error)
{
    static const struct sbx_delete_options none;
    if (options == NULL)
        options = &none;
    SBX_ON_EXIT(sbx_json_free) cJSON *body = delete_options(options);
    if (body == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
    struct target target = {cluster, resource, space, name, NULL, wait};
    /* Without a precondition a second one may hit a namesake that was made in between. */
    struct sbx_kubernetes_request request = {.method = "DELETE",
                                             .type = "application/json",
                                             .body = body,
                                             .repeatable =
                                                 options->uid != NULL || options->version != NULL};
    return ask(&target, WRITING, &request, "delete", NULL, error);
}

static sandbox_status ask(const struct target *target, const char *query,
                          struct sbx_kubernetes_request *request, const char *verb, cJSON **out,
                          sandbox_error *error)
{
    const struct sbx_resource *resource = target->resource;
    bool in_space = !resource->cluster_scoped;
    const char *space = in_space && target->space != NULL ? target->space : "";
    /* Without a name the URL would be that of them all. */
    if (target->name == NULL || target->name[0] == '\0' || (in_space && space[0] == '\0'))
        return sbx_fail(error, SANDBOX_INVALID, "cannot %s one of the %s without a %s", verb,
                        resource->plural, in_space && space[0] == '\0' ? "namespace" : "name");
    bool is_new = strcmp(request->method, "POST") == 0;
    SBX_ON_EXIT(sbx_free_text)
    char *place = sbx_kubernetes_url(target->cluster, resource, space, is_new ? NULL : target->name,
                                     target->part);
    SBX_ON_EXIT(sbx_free_text) char *url = place == NULL ? NULL : sbx_format("%s%s", place, query);
    SBX_ON_EXIT(sbx_free_text)
    char *doing = sbx_format("%s %s '%s'%s%s%s", verb, resource->plural, target->name,
                             in_space ? " in '" : "", space, in_space ? "'" : "");
    if (url == NULL || doing == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
    request->url = url;
    request->doing = doing;
    return sbx_kubernetes_ask(target->cluster, request, target->wait, out, error);
}

static cJSON *delete_options(const struct sbx_delete_options *options)
{
    cJSON *body = cJSON_CreateObject();
    bool made = sbx_json_set_text(body, "apiVersion", "v1") &&
                sbx_json_set_text(body, "kind", "DeleteOptions");
    if (made && options->propagation != NULL)
        made = sbx_json_set_text(body, "propagationPolicy", options->propagation);
    if (made && options->at_once)
        made = sbx_json_set_integer(body, "gracePeriodSeconds", 0);
    if (made && (options->uid != NULL || options->version != NULL)) {
        cJSON *only = cJSON_AddObjectToObject(body, "preconditions");
        made = only != NULL &&
               (options->uid == NULL || sbx_json_set_text(only, "uid", options->uid)) &&
               (options->version == NULL ||
                sbx_json_set_text(only, "resourceVersion", options->version));
    }
    if (!made)
        cJSON_Delete(body);
    return made ? body : NULL;
}
