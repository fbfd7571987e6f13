/* The refusals that the admin API tells: see admin_log.h. */

#include "admin_log.h"
#include "admin_workspace.h"
#include "connection.h"
#include "registry.h"
#include <stdlib.h>
#include <string.h>

#define TOLD_MAX 1000u /* of everybody's; each may ask for its own */

/* One refusal and whose it is; both borrowed. */
struct entry {
    const struct refusal *refusal;
    const char *workspace;
};

struct collection {
    struct entry *entries;
    size_t count, capacity;
};

static void collect(const struct ring *ring, const char *workspace, struct collection *into);
static void collect_one(struct workspace *workspace, void *user_data);
static int by_number(const void *a, const void *b);
static void tell(const struct collection *found, struct admin_answer *answer);

void admin_log_answer(const char *target, struct admin_answer *answer)
{
    static const char query[] = "/v1/log?workspace=";
    bool all = strcmp(target, "/v1/log") == 0;
    bool named = strncmp(target, query, sizeof query - 1) == 0;
    struct workspace *one = named ? registry_find(target + sizeof query - 1) : NULL;
    if (!all && one == NULL) {
        admin_fail(answer, named ? 404 : 400, named ? "not-found" : "bad-request",
                   named ? "no such workspace" : "the only parameter is 'workspace'");
        return;
    }
    struct collection found = {NULL, 0,
                               all ? ((size_t)registry_count() + 1) * RING_SIZE : RING_SIZE};
    found.entries = calloc(found.capacity, sizeof *found.entries);
    if (found.entries != NULL && !all) {
        collect_one(one, &found);
    } else if (found.entries != NULL) {
        collect(connection_strangers(), "", &found);
        registry_each(collect_one, &found);
        qsort(found.entries, found.count, sizeof *found.entries, by_number);
    }
    tell(&found, answer);
}

static void tell(const struct collection *found, struct admin_answer *answer)
{
    cJSON *object = cJSON_CreateObject();
    cJSON *list = cJSON_AddArrayToObject(object, "refusals");
    bool whole = found->entries != NULL && list != NULL;
    size_t first = found->count > TOLD_MAX ? found->count - TOLD_MAX : 0;
    for (size_t i = first; i < found->count && whole; i++) {
        cJSON *told = refusal_json(found->entries[i].refusal, found->entries[i].workspace);
        whole = told != NULL && cJSON_AddItemToArray(list, told);
    }
    free(found->entries);
    admin_tell(answer, 200, object, whole);
}

static void collect_one(struct workspace *workspace, void *user_data)
{
    collect(&workspace->ring, workspace->id, user_data);
}

static void collect(const struct ring *ring, const char *workspace, struct collection *into)
{
    for (unsigned i = 0; i < ring->count && into->count < into->capacity; i++) {
        into->entries[into->count] = (struct entry){ring_at(ring, i), workspace};
        into->count++;
    }
}

static int by_number(const void *a, const void *b)
{
    const struct entry *one = a, *other = b;
    return one->refusal->number < other->refusal->number ? -1 : 1;
}
