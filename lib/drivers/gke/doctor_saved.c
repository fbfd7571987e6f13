/* A cluster's description as a text: written, and read again; or put together from kubectl's lists.
 */

#include "cloud/kubeconfig.h"
#include "drivers/gke/doctor.h"
#include "util/clock.h"
#include "util/fail.h"
#include "util/memory.h"
#include <stdio.h>

#define KIND      "SandboxClusterDescription"
#define VERSION   1
#define DEPTH_MAX 64
#define ITEMS_MAX 20000
#define BYTES_MAX (16u << 20)

static sandbox_status bad(const char *title, const char *what, sandbox_error *error);
static sandbox_status parse(const char *title, const void *text, size_t size, cJSON **out,
                            sandbox_error *error);
static bool is_deep(const cJSON *json, unsigned depth);
static sandbox_status take_own(const char *title, cJSON *json, struct sbx_gke *driver,
                               struct sbx_gke_view *view, sandbox_error *error);
static sandbox_status take_list(const char *title, cJSON *json, struct sbx_gke *driver,
                                struct sbx_gke_view *view, sandbox_error *error);

/* ---- what is left out ---- */

/* Noise, and what may be a secret. */
static void cut_fields(cJSON *object)
{
    static const char applied[] = "kubectl.kubernetes.io/last-applied-configuration";
    static const char *const names[] = {
        "managedFields", applied,    "images",     "addresses", "volumesInUse", "volumesAttached",
        "podCIDR",       "podCIDRs", "providerID", "data",      "stringData",   "binaryData"};
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++)
        sbx_json_remove(object, names[n]);
    cJSON *variable = NULL;
    cJSON_ArrayForEach(variable, cJSON_GetObjectItemCaseSensitive(object, "env"))
    {
        sbx_json_remove(variable, "value");
    }
}

void sbx_gke_cut(cJSON *object)
{
    cJSON *item = NULL;
    if (cJSON_IsObject(object))
        cut_fields(object);
    cJSON_ArrayForEach(item, object)
    {
        sbx_gke_cut(item);
    }
}

/* ---- writing ---- */

sandbox_status sbx_gke_description_print(const struct sbx_gke *driver,
                                         const struct sbx_gke_view *view, char **text,
                                         sandbox_error *error)
{
    char now[32];
    SBX_ON_EXIT(sbx_json_free) cJSON *json = cJSON_CreateObject();
    sbx_gke_time(sbx_clock_wall(&sbx_system_clock), now);
    cJSON *answers = cJSON_Duplicate(view->answers, true);
    if (json == NULL || answers == NULL || !sbx_json_set_text(json, "kind", KIND) ||
        !sbx_json_set_integer(json, "version", VERSION) || !sbx_json_set_text(json, "saved", now) ||
        !sbx_json_set_text(json, "context", driver->context) ||
        !sbx_json_set_text(json, "namespace", driver->space) ||
        !sbx_json_set_text(json, "pool", driver->pool) ||
        !sbx_json_set_text(json, "channel", driver->direct ? "pod" : "exec") ||
        !cJSON_AddItemToObject(json, "answers", answers)) {
        cJSON_Delete(answers);
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a description");
    }
    *text = cJSON_Print(json);
    return *text != NULL ? SANDBOX_OK
                         : sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a description");
}

/* ---- reading ---- */

sandbox_status sbx_gke_description_read(const char *title, const void *text, size_t size,
                                        struct sbx_gke *driver, struct sbx_gke_view *view,
                                        sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *json = NULL;
    sandbox_status status = parse(title, text, size, &json, error);
    if (status != SANDBOX_OK)
        return status;
    if (strcmp(sbx_json_text(json, "kind"), KIND) == 0)
        status = take_own(title, json, driver, view, error);
    else
        status = take_list(title, json, driver, view, error);
    return status;
}

static sandbox_status bad(const char *title, const char *what, sandbox_error *error)
{
    return sbx_fail_for(error, SANDBOX_INVALID, "bad-description",
                        "'%.100s' is no description of a cluster: %.150s; save one with 'sandbox "
                        "doctor --save'",
                        title, what);
}

static sandbox_status parse(const char *title, const void *text, size_t size, cJSON **out,
                            sandbox_error *error)
{
    sandbox_error own = {0};
    const char *first = text;
    size_t n = 0;
    while (n < size && strchr(" \t\r\n", first[n]) != NULL && first[n] != '\0')
        n++;
    sandbox_status status = n < size && first[n] == '{'
                                ? sbx_json_parse(text, size, BYTES_MAX, out, &own)
                                : sbx_yaml_parse(text, size, "it", out, &own);
    if (status == SANDBOX_NO_MEMORY)
        return sbx_fail(error, status, "%s", own.message);
    if (status != SANDBOX_OK)
        return bad(title, own.message, error);
    return is_deep(*out, 0) ? bad(title, "it is nested too deeply", error) : SANDBOX_OK;
}

static bool is_deep(const cJSON *json, unsigned depth)
{
    const cJSON *item = NULL;
    if (depth > DEPTH_MAX)
        return true;
    cJSON_ArrayForEach(item, json)
    {
        if (is_deep(item, depth + 1))
            return true;
    }
    return false;
}

/* What the URI says goes before what the file says. */
static bool settle(char **setting, const char *value)
{
    if (**setting != '\0')
        return true;
    char *copy = sbx_copy(value);
    if (copy == NULL)
        return false;
    free(*setting);
    *setting = copy;
    return true;
}

static sandbox_status settle_all(const char *title, const char *context, const char *space,
                                 const char *pool, struct sbx_gke *driver, sandbox_error *error)
{
    if ((*space != '\0' && !sbx_name_is_valid(space)) ||
        (*pool != '\0' && !sbx_name_is_valid(pool)))
        return bad(title, "its namespace or pool is no name", error);
    if (settle(&driver->context, context) && settle(&driver->space, space) &&
        settle(&driver->pool, pool))
        return SANDBOX_OK;
    return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a description");
}

static sandbox_status take_own(const char *title, cJSON *json, struct sbx_gke *driver,
                               struct sbx_gke_view *view, sandbox_error *error)
{
    char what[100];
    int64_t version = sbx_json_integer(json, "version");
    if (version != VERSION) {
        snprintf(what, sizeof what, "its version is %lld, and this program knows version %d",
                 (long long)version, VERSION);
        return bad(title, what, error);
    }
    cJSON *answers = cJSON_DetachItemFromObjectCaseSensitive(json, "answers");
    if (!cJSON_IsObject(answers)) {
        cJSON_Delete(answers);
        return bad(title, "it has no answers", error);
    }
    cJSON_Delete(view->answers);
    view->answers = answers;
    const char *damage = sbx_gke_view_damage(view);
    if (damage != NULL) {
        snprintf(what, sizeof what, "the answer to '%.60s' is damaged", damage);
        return bad(title, what, error);
    }
    driver->direct = driver->direct || strcmp(sbx_json_text(json, "channel"), "pod") == 0;
    return settle_all(title, sbx_json_text(json, "context"), sbx_json_text(json, "namespace"),
                      sbx_json_text(json, "pool"), driver, error);
}

/* ---- what kubectl prints ---- */

/* A kind that findings are made of, or NULL. */
static const struct sbx_resource *resource_of(const cJSON *object)
{
    static const struct sbx_resource *const resources[] = {
        &sbx_gke_pools,    &sbx_gke_templates,   &sbx_gke_sandboxes, &sbx_gke_policies,
        &sbx_gke_storages, &sbx_gke_networks,    &sbx_gke_nodes,     &sbx_gke_accounts,
        &sbx_gke_runtimes, &sbx_gke_deployments, &sbx_gke_pods};
    char version[128];
    for (size_t n = 0; n < sizeof resources / sizeof resources[0]; n++) {
        const struct sbx_resource *one = resources[n];
        snprintf(version, sizeof version, "%s%s%s", one->group, *one->group == '\0' ? "" : "/",
                 one->version);
        if (strcmp(sbx_json_text(object, "kind"), one->kind) == 0 &&
            strcmp(sbx_json_text(object, "apiVersion"), version) == 0)
            return one;
    }
    return NULL;
}

/* The "object" of the answer under that name, made where there is none. */
static cJSON *answer_at(struct sbx_gke_view *view, const char *asked)
{
    cJSON *answer = cJSON_GetObjectItemCaseSensitive(view->answers, asked);
    if (answer == NULL)
        answer = cJSON_AddObjectToObject(view->answers, asked);
    cJSON *object = cJSON_GetObjectItemCaseSensitive(answer, "object");
    return object != NULL ? object : cJSON_AddObjectToObject(answer, "object");
}

/* What there is one of is served too. Takes the item; false: no memory. */
static bool take_item(struct sbx_gke_view *view, const struct sbx_resource *resource, cJSON *item)
{
    char asked[SBX_GKE_ASKED];
    snprintf(asked, sizeof asked, "/apis/%s/%s", resource->group, resource->version);
    bool taken = *resource->group == '\0' || answer_at(view, asked) != NULL;
    char space[64];
    snprintf(space, sizeof space, "%.63s", sbx_gke_text(item, "metadata", "namespace", NULL));
    sbx_gke_view_path(resource, space, "", asked);
    cJSON *list = answer_at(view, asked);
    cJSON *items = cJSON_GetObjectItemCaseSensitive(list, "items");
    if (items == NULL)
        items = cJSON_AddArrayToObject(list, "items");
    sbx_gke_cut(item);
    if (taken && items != NULL && cJSON_AddItemToArray(items, item))
        return true;
    cJSON_Delete(item);
    return false;
}

/* Several lists, or objects, may stand in a list. */
static sandbox_status take_objects(const char *title, cJSON *json, const char *wanted,
                                   struct sbx_gke_view *view, cJSON **pool, unsigned *count,
                                   sandbox_error *error)
{
    cJSON *items = cJSON_GetObjectItemCaseSensitive(json, "items");
    for (cJSON *item = items == NULL ? NULL : items->child, *next = NULL; item != NULL;
         item = next) {
        next = item->next;
        const struct sbx_resource *resource = resource_of(item);
        if (resource == NULL)
            continue;
        if (++*count > ITEMS_MAX)
            return bad(title, "it holds more than 20,000 objects", error);
        const char *name = sbx_gke_text(item, "metadata", "name", NULL);
        if (resource == &sbx_gke_pools && (*wanted == '\0' || strcmp(name, wanted) == 0))
            *pool = *pool == NULL ? item : items; /* several are none */
        if (!take_item(view, resource, cJSON_DetachItemViaPointer(items, item)))
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a description");
    }
    return SANDBOX_OK;
}

static sandbox_status take_list(const char *title, cJSON *json, struct sbx_gke *driver,
                                struct sbx_gke_view *view, sandbox_error *error)
{
    cJSON *pool = NULL;
    unsigned count = 0;
    if (!cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(json, "items")))
        return bad(title, "it is neither one nor a List as kubectl prints it", error);
    view->is_partial = true;
    sandbox_status status = take_objects(title, json, driver->pool, view, &pool, &count, error);
    if (status != SANDBOX_OK)
        return status;
    if (count == 0)
        return bad(title, "it holds no object of a kind that is looked at", error);
    status = settle_all(title, "", sbx_gke_text(pool, "metadata", "namespace", NULL),
                        sbx_gke_text(pool, "metadata", "name", NULL), driver, error);
    if (status == SANDBOX_OK && *driver->pool == '\0')
        return sbx_fail_for(error, SANDBOX_INVALID, "bad-description",
                            "'%.100s' holds no SandboxWarmPool, or several: say which one with -u "
                            "gke:///NAMESPACE?pool=NAME",
                            title);
    return status == SANDBOX_OK && *driver->space == '\0'
               ? bad(title, "its objects are in no namespace", error)
               : status;
}
