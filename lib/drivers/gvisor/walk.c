/*
 * Walking on all cores: see walk.h. One level of the tree after the other, so that there is no
 * recursion, and no descriptor is held for a level.
 */

#include "drivers/gvisor/walk.h"
#include "util/crew.h"
#include "util/fail.h"
#include "util/memory.h"

struct sbx_walk_list {
    char **paths;
    size_t count, room;
};

struct walk {
    sbx_walk_visit *visit;
    void *data;
    struct sbx_walk_list level;               /* being visited */
    struct sbx_walk_list below[SBX_CREW_MAX]; /* by hand: what was named meanwhile */
};

static sandbox_status visit_one(void *data, unsigned hand, uint64_t index, sandbox_error *error);
static sandbox_status append(struct sbx_walk_list *list, char *path, sandbox_error *error);
static sandbox_status go_down(struct walk *walk, unsigned hands, sandbox_error *error);
static void clear(struct sbx_walk_list *list);
static void end(struct walk *walk);

sandbox_status sbx_walk(const char *const *first, sbx_walk_visit *visit, void *data,
                        const struct sbx_wait *wait, sandbox_error *error)
{
    return sbx_walk_by(0, first, visit, data, wait, error);
}

sandbox_status sbx_walk_by(unsigned hands, const char *const *first, sbx_walk_visit *visit,
                           void *data, const struct sbx_wait *wait, sandbox_error *error)
{
    SBX_ON_EXIT(end) struct walk walk = {.visit = visit, .data = data};
    SBX_ON_EXIT(sbx_crew_end)
    struct sbx_crew *crew = hands == 0 ? sbx_crew_new() : sbx_crew_of(hands);
    if (crew == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a walk");
    sandbox_status status = SANDBOX_OK;
    for (size_t n = 0; first[n] != NULL && status == SANDBOX_OK; n++)
        status = append(&walk.level, sbx_copy(first[n]), error);
    while (status == SANDBOX_OK && walk.level.count > 0) {
        status = sbx_crew_run(crew, walk.level.count, visit_one, &walk, wait, error);
        if (status == SANDBOX_OK)
            status = go_down(&walk, sbx_crew_size(crew), error);
    }
    return status;
}

sandbox_status sbx_walk_add(struct sbx_walk_list *below, const char *path, const char *name,
                            sandbox_error *error)
{
    return append(below, sbx_format("%s/%s", path, name), error);
}

static sandbox_status visit_one(void *data, unsigned hand, uint64_t index, sandbox_error *error)
{
    struct walk *walk = data;
    return walk->visit(walk->data, walk->level.paths[index], &walk->below[hand], error);
}

static sandbox_status append(struct sbx_walk_list *list, char *path, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *held = path;
    if (list->count == list->room) {
        size_t room = list->room == 0 ? 64 : list->room * 2;
        char **larger = realloc(list->paths, room * sizeof *larger);
        if (larger == NULL)
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a walk");
        list->paths = larger;
        list->room = room;
    }
    if (held == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a walk");
    list->paths[list->count++] = sbx_take(held);
    return SANDBOX_OK;
}

/* What was named becomes the level. */
static sandbox_status go_down(struct walk *walk, unsigned hands, sandbox_error *error)
{
    clear(&walk->level);
    sandbox_status status = SANDBOX_OK;
    for (unsigned hand = 0; hand < hands; hand++) {
        struct sbx_walk_list *list = &walk->below[hand];
        for (size_t n = 0; n < list->count && status == SANDBOX_OK; n++)
            status = append(&walk->level, sbx_take(list->paths[n]), error);
        clear(list);
    }
    return status;
}

static void clear(struct sbx_walk_list *list)
{
    for (size_t n = 0; n < list->count; n++)
        free(list->paths[n]);
    list->count = 0;
}

static void end(struct walk *walk)
{
    clear(&walk->level);
    free(walk->level.paths);
    for (size_t hand = 0; hand < SBX_CREW_MAX; hand++) {
        clear(&walk->below[hand]);
        free(walk->below[hand].paths);
    }
}
