/*
 * What `sandbox doctor` reads: every answer of a cluster is noted under what was asked, and judged
 * from there. So a description is those notes, and judging it again takes the very same way.
 */

#include "drivers/gke/doctor.h"
#include "util/fail.h"
#include "util/memory.h"
#include <stdio.h>

#define ITEMS_MAX 15000 /* of one list: the nodes of the largest cluster that GKE has */

static const cJSON *note(struct sbx_gke_view *view, const char *asked, sandbox_status status,
                         cJSON *object, const sandbox_error *error);
static sandbox_status tell(const cJSON *answer, const cJSON **object, sandbox_error *error);
static sandbox_status absent(const char *asked, sandbox_error *error);
static bool has_label(const cJSON *object, const char *selector);
static bool is_answer(const cJSON *answer);

bool sbx_gke_view_begin(struct sbx_gke_view *view, struct sbx_kubernetes *cluster)
{
    *view = (struct sbx_gke_view){.cluster = cluster, .answers = cJSON_CreateObject()};
    return view->answers != NULL;
}

void sbx_gke_view_clear(struct sbx_gke_view *view)
{
    sbx_json_free(&view->answers);
}

void sbx_gke_view_path(const struct sbx_resource *resource, const char *space, const char *name,
                       char out[SBX_GKE_ASKED])
{
    bool is_core = *resource->group == '\0', is_spaced = !resource->cluster_scoped && space != NULL;
    snprintf(out, SBX_GKE_ASKED, "/%s%s/%s%s%s/%s%s%s", is_core ? "api" : "apis/", resource->group,
             resource->version, is_spaced ? "/namespaces/" : "", is_spaced ? space : "",
             resource->plural, *name == '\0' ? "" : "/", name);
}

sandbox_status sbx_gke_view_failed(struct sbx_gke_view *view, const char *asked,
                                   const sandbox_error *why, sandbox_error *error)
{
    return tell(note(view, asked, why->status, NULL, why), NULL, error);
}

static const cJSON *known(const struct sbx_gke_view *view, const char *asked)
{
    return cJSON_GetObjectItemCaseSensitive(view->answers, asked);
}

sandbox_status sbx_gke_view_read(struct sbx_gke_view *view, const char *path,
                                 const struct sbx_wait *wait, const cJSON **out,
                                 sandbox_error *error)
{
    const cJSON *answer = known(view, path);
    if (answer == NULL && view->cluster == NULL)
        return absent(path, error);
    if (answer == NULL) {
        cJSON *object = NULL;
        sandbox_error own = {0};
        sandbox_status status = sbx_kubernetes_read(view->cluster, path, wait, &object, &own);
        answer = note(view, path, status, object, &own);
    }
    return tell(answer, out, error);
}

sandbox_status sbx_gke_view_get(struct sbx_gke_view *view, const struct sbx_resource *resource,
                                const char *space, const char *name, const struct sbx_wait *wait,
                                const cJSON **out, sandbox_error *error)
{
    char path[SBX_GKE_ASKED], all[SBX_GKE_ASKED];
    sbx_gke_view_path(resource, space, name, path);
    const cJSON *answer = known(view, path);
    if (answer == NULL && view->cluster == NULL) {
        /* What others have printed is lists. */
        const cJSON *item = NULL;
        sbx_gke_view_path(resource, space, "", all);
        cJSON_ArrayForEach(item, sbx_gke_at(known(view, all), "object", "items", NULL))
        {
            if (strcmp(sbx_gke_text(item, "metadata", "name", NULL), name) == 0) {
                *out = item;
                return SANDBOX_OK;
            }
        }
        return absent(path, error);
    }
    if (answer == NULL) {
        cJSON *object = NULL;
        sandbox_error own = {0};
        sandbox_status status =
            sbx_kubernetes_get(view->cluster, resource, space, name, wait, &object, &own);
        answer = note(view, path, status, object, &own);
    }
    return tell(answer, out, error);
}

/* ---- lists ---- */

struct gathering {
    cJSON *items;
    int most;
    bool out_of_memory;
};

static bool gather(void *user_data, const cJSON *object)
{
    struct gathering *gathering = user_data;
    cJSON *copy = cJSON_Duplicate(object, true);
    sbx_gke_cut(copy);
    gathering->out_of_memory = copy == NULL || !cJSON_AddItemToArray(gathering->items, copy);
    if (gathering->out_of_memory)
        cJSON_Delete(copy);
    return !gathering->out_of_memory && --gathering->most > 0;
}

static const cJSON *ask_list(struct sbx_gke_view *view, const struct sbx_gke_question *question,
                             const char *asked, const struct sbx_wait *wait)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *list = cJSON_CreateObject();
    struct gathering gathering = {.items = cJSON_AddArrayToObject(list, "items"),
                                  .most = question->only_first ? 1 : ITEMS_MAX};
    sandbox_error own = {0};
    if (gathering.items == NULL)
        return NULL;
    sandbox_status status = sbx_kubernetes_list(view->cluster, question->resource, question->space,
                                                question->selector, wait, gather, &gathering, &own);
    if (gathering.out_of_memory)
        return NULL;
    return note(view, asked, status, status == SANDBOX_OK ? sbx_take(list) : NULL, &own);
}

sandbox_status sbx_gke_view_list(struct sbx_gke_view *view, const struct sbx_gke_question *question,
                                 const struct sbx_wait *wait,
                                 bool (*visit)(void *user_data, const cJSON *object),
                                 void *user_data, sandbox_error *error)
{
    char asked[SBX_GKE_ASKED];
    const cJSON *list = NULL, *item = NULL;
    sbx_gke_view_path(question->resource, question->space, "", asked);
    const cJSON *answer = known(view, asked);
    if (answer == NULL && view->cluster == NULL)
        return absent(asked, error);
    if (answer == NULL)
        answer = ask_list(view, question, asked, wait);
    sandbox_status status = tell(answer, &list, error);
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(list, "items"))
    {
        if (has_label(item, question->selector) && !visit(user_data, item))
            break;
    }
    return status;
}

/* "NAME=VALUE", as all of ours are. */
static bool has_label(const cJSON *object, const char *selector)
{
    char name[128];
    const char *equals = selector == NULL ? NULL : strchr(selector, '=');
    if (equals == NULL)
        return true;
    snprintf(name, sizeof name, "%.*s", (int)(equals - selector), selector);
    return strcmp(sbx_gke_text(object, "metadata", "labels", name, NULL), equals + 1) == 0;
}

/* ---- rights ---- */

sandbox_status sbx_gke_view_may(struct sbx_gke_view *view, const char *verb,
                                const struct sbx_resource *resource, const char *part,
                                const char *space, const struct sbx_wait *wait, bool *allowed,
                                sandbox_error *error)
{
    char path[SBX_GKE_ASKED], asked[SBX_GKE_ASKED + 64];
    const cJSON *said = NULL;
    sbx_gke_view_path(resource, space, part, path);
    snprintf(asked, sizeof asked, "may %s %s", verb, path);
    const cJSON *answer = known(view, asked);
    if (answer == NULL && view->cluster == NULL)
        return absent("what this account may do", error);
    if (answer == NULL) {
        cJSON *object = cJSON_CreateObject();
        sandbox_error own = {0};
        sandbox_status status =
            sbx_kubernetes_may(view->cluster, verb, resource, part, space, wait, allowed, &own);
        if (!sbx_json_set_flag(object, "allowed", *allowed))
            sbx_json_free(&object);
        answer = note(view, asked, status, object, &own);
    }
    sandbox_status status = tell(answer, &said, error);
    *allowed = sbx_json_flag(said, "allowed");
    return status;
}

/* ---- notes ---- */

/* Takes the object. NULL: no memory. */
static const cJSON *note(struct sbx_gke_view *view, const char *asked, sandbox_status status,
                         cJSON *object, const sandbox_error *error)
{
    cJSON *answer = cJSON_AddObjectToObject(view->answers, asked);
    bool noted = answer != NULL;
    if (status == SANDBOX_OK) {
        sbx_gke_cut(object);
        noted = noted && object != NULL && cJSON_AddItemToObject(answer, "object", object);
        object = noted ? NULL : object;
    } else {
        noted = noted && sbx_json_set_text(answer, "failed", sandbox_status_name(status)) &&
                sbx_json_set_text(answer, "reason", error->reason) &&
                sbx_json_set_text(answer, "message", error->message);
    }
    cJSON_Delete(object);
    return noted ? answer : NULL;
}

static sandbox_status status_of(const cJSON *answer)
{
    const char *name = sbx_json_text(answer, "failed");
    for (int number = SANDBOX_INVALID; number >= SANDBOX_NOT_RESTORED; number--) {
        if (strcmp(sandbox_status_name((sandbox_status)number), name) == 0)
            return (sandbox_status)number;
    }
    return SANDBOX_OK;
}

static sandbox_status tell(const cJSON *answer, const cJSON **object, sandbox_error *error)
{
    if (answer == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to look at a cluster");
    sandbox_status status = status_of(answer);
    if (status != SANDBOX_OK)
        return sbx_fail_for(error, status, sbx_json_text(answer, "reason"), "%s",
                            sbx_json_text(answer, "message"));
    *object = cJSON_GetObjectItemCaseSensitive(answer, "object");
    return SANDBOX_OK;
}

static sandbox_status absent(const char *asked, sandbox_error *error)
{
    return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "not-described", "%s is not in the description",
                        asked);
}

static bool is_answer(const cJSON *answer)
{
    const cJSON *object = cJSON_GetObjectItemCaseSensitive(answer, "object");
    bool failed = status_of(answer) != SANDBOX_OK && *sbx_json_text(answer, "message") != '\0' &&
                  strlen(sbx_json_text(answer, "reason")) < sizeof((sandbox_error *)0)->reason;
    return cJSON_IsObject(answer) && answer->string != NULL && (failed || cJSON_IsObject(object));
}

const char *sbx_gke_view_damage(const struct sbx_gke_view *view)
{
    const cJSON *answer = NULL;
    cJSON_ArrayForEach(answer, view->answers)
    {
        if (!is_answer(answer))
            return answer->string == NULL ? "" : answer->string;
    }
    return NULL;
}
