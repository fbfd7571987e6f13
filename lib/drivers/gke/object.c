/* Kubernetes objects as JSON: made, filled in and read by paths. */

#include "drivers/gke/gke.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool put(cJSON *object, const char *text, const char *first, va_list path);
static const cJSON *walk(const cJSON *object, const char *first, va_list path);

cJSON *sbx_gke_object(const struct sbx_resource *resource, const char *name)
{
    cJSON *object = cJSON_CreateObject();
    char version[128];
    snprintf(version, sizeof version, "%s%s%s", resource->group,
             resource->group[0] == '\0' ? "" : "/", resource->version);
    if (sbx_gke_put(object, version, "apiVersion", NULL) &&
        sbx_gke_put(object, resource->kind, "kind", NULL) &&
        sbx_gke_put(object, name, "metadata", "name", NULL))
        return object;
    cJSON_Delete(object);
    return NULL;
}

bool sbx_gke_put(cJSON *object, const char *text, ...)
{
    va_list path;
    va_start(path, text);
    bool is_put = put(object, text, va_arg(path, const char *), path);
    va_end(path);
    return is_put;
}

static bool put(cJSON *object, const char *text, const char *first, va_list path)
{
    const char *name = first;
    for (const char *next; object != NULL && (next = va_arg(path, const char *)) != NULL;
         name = next) {
        cJSON *inner = cJSON_GetObjectItemCaseSensitive(object, name);
        object = inner != NULL ? inner : cJSON_AddObjectToObject(object, name);
    }
    if (object == NULL)
        return false;
    if (text != NULL)
        return sbx_json_set_text(object, name, text);
    sbx_json_remove(object, name);
    return cJSON_AddNullToObject(object, name) != NULL;
}

bool sbx_gke_put_labels(cJSON *object, const char *workspace_id)
{
    return sbx_gke_put(object, SBX_GKE_MANAGER, "metadata", "labels", SBX_GKE_MANAGED, NULL) &&
           sbx_gke_put(object, workspace_id, "metadata", "labels", SBX_GKE_WORKSPACE, NULL);
}

const cJSON *sbx_gke_at(const cJSON *object, ...)
{
    va_list path;
    va_start(path, object);
    const cJSON *found = walk(object, va_arg(path, const char *), path);
    va_end(path);
    return found;
}

static const cJSON *walk(const cJSON *object, const char *first, va_list path)
{
    for (const char *name = first; name != NULL; name = va_arg(path, const char *))
        object = cJSON_GetObjectItemCaseSensitive(object, name);
    return object;
}

const char *sbx_gke_text(const cJSON *object, ...)
{
    va_list path;
    va_start(path, object);
    const char *text = cJSON_GetStringValue(walk(object, va_arg(path, const char *), path));
    va_end(path);
    return text == NULL ? "" : text;
}

const cJSON *sbx_gke_named(const cJSON *list, const char *name)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        if (strcmp(sbx_json_text(item, "name"), name) == 0)
            return item;
    }
    return NULL;
}

sandbox_status sbx_gke_find(struct sbx_gke *driver, const struct sbx_resource *resource,
                            const char *name, const struct sbx_wait *wait, cJSON **out,
                            sandbox_error *error)
{
    sandbox_error why = {0};
    *out = NULL;
    sandbox_status status =
        sbx_kubernetes_get(driver->cluster, resource, driver->space, name, wait, out, &why);
    if (status != SANDBOX_OK && status != SANDBOX_NOT_FOUND && error != NULL)
        *error = why;
    return status == SANDBOX_NOT_FOUND ? SANDBOX_OK : status;
}

bool sbx_gke_is_ours(const cJSON *object, const char *workspace_id)
{
    const cJSON *labels = sbx_gke_at(object, "metadata", "labels", NULL);
    return strcmp(sbx_json_text(labels, SBX_GKE_MANAGED), SBX_GKE_MANAGER) == 0 &&
           (workspace_id == NULL ||
            strcmp(sbx_json_text(labels, SBX_GKE_WORKSPACE), workspace_id) == 0);
}
