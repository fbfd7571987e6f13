/* Many objects of a cluster: page by page, by a selector, by a name; and the events about one. */

#include "cloud/kubernetes_parts.h"
#include "util/fail.h"
#include "util/json.h"
#include "util/memory.h"
#include <stdio.h>
#include <stdlib.h>

#define PAGE         500
#define RESTARTS_MAX 10
#define QUERY_MAX    16384
#define EVENTS_MAX   1000

struct list {
    struct sbx_kubernetes *cluster;
    const struct sbx_resource *resource;
    const char *space, *labels, *fields; /* selectors, or NULL */
    const struct sbx_wait *wait;
    bool (*visit)(void *user_data, const cJSON *object);
    void *user_data;

    char *url, *doing;
    int limit;
    char *at;    /* where the next page begins; NULL: at the front */
    char *last;  /* the key of the last object that was visited */
    bool sorted; /* the keys came in their order */
    bool restarted, ended, stopped;
    char version[SBX_KUBERNETES_VERSION];
};

static sandbox_status walk(struct list *given, sandbox_error *error);
static sandbox_status fetch_page(struct list *list, cJSON **page, sandbox_error *error);
static char *page_url(const struct list *list);
static bool begin_again(struct list *list, sandbox_status status, const sandbox_error *why,
                        unsigned *restarts);
static sandbox_status visit_page(struct list *list, cJSON *page, sandbox_error *error);
static sandbox_status visit_one(struct list *list, cJSON *object, sandbox_error *error);
static bool complete(const struct sbx_resource *resource, cJSON *object);

sandbox_status sbx_kubernetes_list(struct sbx_kubernetes *cluster,
                                   const struct sbx_resource *resource, const char *space,
                                   const char *selector, const struct sbx_wait *wait,
                                   bool (*visit)(void *user_data, const cJSON *object),
                                   void *user_data, sandbox_error *error)
{
    struct list list = {.cluster = cluster,
                        .resource = resource,
                        .space = space,
                        .labels = selector,
                        .wait = wait,
                        .visit = visit,
                        .user_data = user_data};
    return walk(&list, error);
}

struct found {
    const char *name;
    cJSON *object;
    bool no_memory;
};

static bool keep_named(void *user_data, const cJSON *object)
{
    struct found *found = user_data;
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(object, "metadata");
    if (strcmp(sbx_json_text(metadata, "name"), found->name) != 0)
        return true;
    found->object = cJSON_Duplicate(object, true);
    found->no_memory = found->object == NULL;
    return false;
}

sandbox_status sbx_kubernetes_find(struct sbx_kubernetes *cluster,
                                   const struct sbx_resource *resource, const char *space,
                                   const char *name, const struct sbx_wait *wait, cJSON **object,
                                   char *version, sandbox_error *error)
{
    struct found found = {.name = name};
    SBX_ON_EXIT(sbx_free_text) char *fields = sbx_format("metadata.name=%s", name);
    if (fields == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
    struct list list = {.cluster = cluster,
                        .resource = resource,
                        .space = space,
                        .fields = fields,
                        .wait = wait,
                        .visit = keep_named,
                        .user_data = &found};
    sandbox_status status = walk(&list, error);
    if (status == SANDBOX_OK && found.no_memory)
        status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for an object");
    if (status == SANDBOX_OK && list.version[0] == '\0')
        status = sbx_fail_for(error, SANDBOX_FAILED, "malformed-answer",
                              "%s: a list of %s has no resourceVersion",
                              sbx_kubeconfig_title(cluster->config), resource->plural);
    if (status != SANDBOX_OK) {
        cJSON_Delete(found.object);
        return status;
    }
    memcpy(version, list.version, sizeof list.version);
    *object = found.object;
    return status;
}

struct events {
    cJSON *kept[EVENTS_MAX];
    size_t count;
    bool no_memory;
};

static bool keep_event(void *user_data, const cJSON *event)
{
    struct events *events = user_data;
    cJSON *copy = cJSON_Duplicate(event, true);
    events->no_memory = copy == NULL;
    if (events->no_memory)
        return false;
    events->kept[events->count++] = copy;
    return events->count < EVENTS_MAX;
}

static void free_events(struct events **events)
{
    for (size_t each = 0; *events != NULL && each < (*events)->count; each++)
        cJSON_Delete((*events)->kept[each]);
    free(*events);
}

/* An event that is told again has its last time; a new one only that of its making. */
static const char *event_time(const cJSON *event)
{
    const cJSON *series = cJSON_GetObjectItemCaseSensitive(event, "series");
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(event, "metadata");
    const char *times[] = {sbx_json_text(series, "lastObservedTime"),
                           sbx_json_text(event, "lastTimestamp"), sbx_json_text(event, "eventTime"),
                           sbx_json_text(metadata, "creationTimestamp")};
    size_t each = 0;
    while (each < 3 && times[each][0] == '\0')
        each++;
    return times[each];
}

static uint64_t event_version(const cJSON *event)
{
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(event, "metadata");
    return strtoull(sbx_json_text(metadata, "resourceVersion"), NULL, 10);
}

/* To the second, which all of the times have, and then by the order in which they were written. */
static int compare_events(const void *left, const void *right)
{
    const cJSON *one = *(cJSON *const *)left, *other = *(cJSON *const *)right;
    int order = strncmp(event_time(one), event_time(other), strlen("2006-01-02T15:04:05"));
    if (order != 0)
        return order;
    uint64_t first = event_version(one), second = event_version(other);
    return (first > second) - (first < second);
}

sandbox_status sbx_kubernetes_events(struct sbx_kubernetes *cluster, const char *space,
                                     const char *kind, const char *name, const char *uid,
                                     const struct sbx_wait *wait,
                                     bool (*visit)(void *user_data, const cJSON *event),
                                     void *user_data, sandbox_error *error)
{
    static const struct sbx_resource resource = {"", "v1", "events", "Event", false};
    SBX_ON_EXIT(free_events) struct events *events = calloc(1, sizeof *events);
    SBX_ON_EXIT(sbx_free_text)
    char *fields = sbx_format("involvedObject.kind=%s,involvedObject.name=%s%s%s", kind, name,
                              uid == NULL ? "" : ",involvedObject.uid=", uid == NULL ? "" : uid);
    if (events == NULL || fields == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a list of events");
    struct list list = {.cluster = cluster,
                        .resource = &resource,
                        .space = space,
                        .fields = fields,
                        .wait = wait,
                        .visit = keep_event,
                        .user_data = events};
    sandbox_status status = walk(&list, error);
    if (status == SANDBOX_OK && events->no_memory)
        status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a list of events");
    if (status != SANDBOX_OK)
        return status;
    qsort(events->kept, events->count, sizeof events->kept[0], compare_events);
    for (size_t each = 0; each < events->count && visit(user_data, events->kept[each]); each++)
        continue;
    return status;
}

static void end_walk(struct list **list)
{
    free((*list)->url);
    free((*list)->doing);
    free((*list)->at);
    free((*list)->last);
}

static sandbox_status walk(struct list *given, sandbox_error *error)
{
    SBX_ON_EXIT(end_walk) struct list *list = given;
    list->limit = PAGE;
    list->sorted = true;
    list->url = sbx_kubernetes_url(list->cluster, list->resource, list->space, NULL, NULL);
    list->doing = sbx_format("list %s", list->resource->plural);
    if (list->url == NULL || list->doing == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");

    unsigned restarts = 0;
    while (!list->ended) {
        SBX_ON_EXIT(sbx_json_free) cJSON *page = NULL;
        sandbox_error why = {0};
        sandbox_status status = fetch_page(list, &page, &why);
        if (status == SANDBOX_OK)
            status = visit_page(list, page, &why);
        else if (begin_again(list, status, &why, &restarts))
            continue;
        if (status != SANDBOX_OK) {
            if (error != NULL)
                *error = why;
            return status;
        }
    }
    return SANDBOX_OK;
}

static sandbox_status fetch_page(struct list *list, cJSON **page, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *url = page_url(list);
    if (url == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
    struct sbx_kubernetes_request request = {
        .method = "GET", .url = url, .doing = list->doing, .repeatable = true};
    return sbx_kubernetes_ask(list->cluster, &request, list->wait, page, error);
}

static bool add_value(struct sbx_bytes *url, const char *name, const char *value)
{
    return value == NULL || value[0] == '\0' ||
           (sbx_bytes_append(url, name, strlen(name)) && sbx_http_escape(url, value));
}

static char *page_url(const struct list *list)
{
    struct sbx_bytes url = SBX_BYTES(QUERY_MAX);
    char limit[32];
    snprintf(limit, sizeof limit, "?limit=%d", list->limit);
    bool made = sbx_bytes_append(&url, list->url, strlen(list->url)) &&
                sbx_bytes_append(&url, limit, strlen(limit)) &&
                add_value(&url, "&labelSelector=", list->labels) &&
                add_value(&url, "&fieldSelector=", list->fields) &&
                add_value(&url, "&continue=", list->at) && sbx_bytes_append(&url, "", 1);
    char *text = made ? sbx_copy((const char *)sbx_bytes_data(&url)) : NULL;
    sbx_bytes_free(&url);
    return text;
}

/*
 * A page that came too late for the version of the first one: all over again, without those that
 * were visited. A page that is too large: smaller ones.
 */
static bool begin_again(struct list *list, sandbox_status status, const sandbox_error *why,
                        unsigned *restarts)
{
    if (status == SANDBOX_LIMIT && strcmp(why->reason, "answer-too-large") == 0 &&
        list->limit > 1) {
        list->limit = list->limit > 10 ? list->limit / 10 : 1;
        return true;
    }
    if (why->http_status != 410 || list->at == NULL || ++*restarts > RESTARTS_MAX)
        return false;
    free(list->at);
    list->at = NULL;
    list->restarted = true;
    return true;
}

static sandbox_status visit_page(struct list *list, cJSON *page, sandbox_error *error)
{
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(page, "metadata");
    const cJSON *items = cJSON_GetObjectItemCaseSensitive(page, "items");
    const char *at = sbx_json_text(metadata, "continue");
    const char *version = sbx_json_text(metadata, "resourceVersion");
    /* Some servers write null for an empty list; what has none at all is no list. */
    if (items == NULL || !(cJSON_IsArray(items) || cJSON_IsNull(items)) ||
        strlen(version) >= sizeof list->version || strlen(at) >= QUERY_MAX / 4)
        return sbx_fail_for(error, SANDBOX_FAILED, "malformed-answer", "%s: the list of %s is none",
                            sbx_kubeconfig_title(list->cluster->config), list->resource->plural);
    snprintf(list->version, sizeof list->version, "%s", version);
    list->ended = at[0] == '\0';
    free(list->at);
    list->at = list->ended ? NULL : sbx_copy(at);
    if (!list->ended && list->at == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a list");

    sandbox_status status = SANDBOX_OK;
    for (cJSON *each = items->child; each != NULL && status == SANDBOX_OK && !list->stopped;
         each = each->next)
        status = visit_one(list, each, error);
    list->ended = list->ended || list->stopped;
    return status;
}

static sandbox_status visit_one(struct list *list, cJSON *object, sandbox_error *error)
{
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(object, "metadata");
    SBX_ON_EXIT(sbx_free_text)
    char *key =
        sbx_format("%s/%s", sbx_json_text(metadata, "namespace"), sbx_json_text(metadata, "name"));
    if (!cJSON_IsObject(object))
        return SANDBOX_OK;
    if (key == NULL || !complete(list->resource, object))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a list");
    bool is_later = list->last == NULL || strcmp(key, list->last) > 0;
    if (!is_later && list->restarted && list->sorted)
        return SANDBOX_OK; /* visited before */
    list->sorted = list->sorted && is_later;
    if (is_later) {
        free(list->last);
        list->last = sbx_take(key);
    }
    list->stopped = !list->visit(list->user_data, object);
    return SANDBOX_OK;
}

/* In lists the server leaves out what is the same for all. */
static bool complete(const struct sbx_resource *resource, cJSON *object)
{
    if (sbx_json_text(object, "kind")[0] == '\0' &&
        !sbx_json_set_text(object, "kind", resource->kind))
        return false;
    if (sbx_json_text(object, "apiVersion")[0] != '\0')
        return true;
    SBX_ON_EXIT(sbx_free_text)
    char *version = sbx_format("%s%s%s", resource->group, resource->group[0] == '\0' ? "" : "/",
                               resource->version);
    return version != NULL && sbx_json_set_text(object, "apiVersion", version);
}
