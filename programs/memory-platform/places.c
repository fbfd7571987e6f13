/* Workspaces' directories, and ending what runs over them: discard, destroy, kill. */

#include "places.h"
#include "util/file.h"
#include "util/memory.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static struct platform_place *places;
static size_t place_count;

static void end_first(struct platform_request *request);
static void serve(struct platform_place *place);
static void remove_directory(uv_work_t *work);
static void removed(uv_work_t *work, int status);
static void forget(struct platform_place *place);

struct platform_place *platform_places(void)
{
    return places;
}

struct platform_place *platform_place_find(const char *id)
{
    struct platform_place *place = places;
    while (place != NULL && strcmp(place->id, id) != 0)
        place = place->next;
    return place;
}

struct platform_place *platform_place_take(struct platform_request *request)
{
    const char *id = platform_request_text(request, "id");
    struct platform_place *place = platform_place_find(id);
    if (place != NULL)
        return place;
    uint8_t bytes[SBX_ID_BYTES];
    if (!sbx_id_parse(id, bytes)) {
        platform_request_fail(request, SANDBOX_INVALID, "", "not a workspace id: '%.40s'", id);
        return NULL;
    }
    /* The directory itself is the agent's to make, so that it belongs to the workspace's user. */
    place = place_count < PLATFORM_PLACES_MAX ? calloc(1, sizeof *place) : NULL;
    char *directory = place == NULL ? NULL : sbx_format("%s/%s", platform.workspaces, id);
    if (directory == NULL) {
        free(place);
        platform_request_fail(request, SANDBOX_LIMIT, "", "no room for another workspace");
        return NULL;
    }
    snprintf(place->id, sizeof place->id, "%s", id);
    place->directory = directory;
    place->agent = (struct platform_agent){.child = SBX_CHILD};
    place->next = places;
    places = place;
    place_count++;
    return place;
}

void platform_discard(struct platform_request *request)
{
    if (platform_record_fence(request))
        end_first(request);
}

void platform_destroy(struct platform_request *request)
{
    if (platform_record_fence(request))
        end_first(request);
}

/* As discard, but the instance does not go back into a snapshot. */
void platform_release(struct platform_request *request)
{
    if (platform_record_fence(request))
        end_first(request);
}

void platform_kill(struct platform_request *request)
{
    end_first(request);
}

static void end_first(struct platform_request *request)
{
    struct platform_place *place = platform_place_find(platform_request_text(request, "id"));
    if (place == NULL) {
        platform_request_answer(request, NULL);
        return;
    }
    platform_list_add(&place->waiting, request);
    platform_place_proceed(place);
}

static void run_all(struct platform_request *list)
{
    while (list != NULL) {
        struct platform_request *request = list;
        list = request->next;
        request->next = NULL;
        request->operation->run(request);
    }
}

static bool is_destroyed(const struct platform_place *place)
{
    const struct platform_request *at = place->waiting;
    while (at != NULL && at->operation->run != platform_destroy)
        at = at->next;
    return at != NULL;
}

void platform_place_proceed(struct platform_place *place)
{
    if (place->job != NULL) {
        platform_job_look(place->job);
        return;
    }
    if (place->removers != NULL)
        return;
    if (place->waiting == NULL) {
        run_all(sbx_take(place->queue));
        return;
    }
    if (platform_may_refreeze(place)) {
        if (!platform_refreeze(place))
            return;
    } else if (platform_instance_has_agent(place)) {
        platform_instance_kill(place);
        return;
    }
    if (is_destroyed(place)) {
        platform_frozen_kill(place);
        if (platform_has_frozen(place))
            return;
    }
    if (platform_orphans_sweep() == 0)
        serve(place);
}

void platform_orphans_ended(void)
{
    platform_orphans_sweep();
    struct platform_place *next;
    for (struct platform_place *place = places; place != NULL; place = next) {
        next = place->next;
        if (place->job != NULL || place->waiting != NULL)
            platform_place_proceed(place);
    }
}

/* Nothing of the instance runs any more. */
static void serve(struct platform_place *place)
{
    struct platform_request *list = sbx_take(place->waiting);
    while (list != NULL) {
        struct platform_request *request = list;
        list = request->next;
        if (request->operation->run != platform_kill)
            platform_instance_clear(place);
        if (request->operation->run == platform_destroy)
            platform_list_add(&place->removers, request);
        else
            platform_request_answer(request, NULL);
    }
    if (place->removers == NULL) {
        platform_place_proceed(place);
        return;
    }
    place->removal.data = place;
    if (uv_queue_work(&platform.loop, &place->removal, remove_directory, removed) != 0)
        removed(&place->removal, UV_ENOMEM);
}

/* On a thread of the pool: a tree may be large. */
static void remove_directory(uv_work_t *work)
{
    struct platform_place *place = work->data;
    sandbox_error *error = &place->removal_error;
    *error = (sandbox_error){0};
    SBX_ON_EXIT(sbx_free_text) char *seals = sbx_format("%s/%s", platform.seals, place->id);
    SBX_ON_EXIT(sbx_free_text) char *kept = sbx_format("%s/%s", platform.snapshots, place->id);
    sandbox_status status = SANDBOX_NO_MEMORY;
    if (seals != NULL && kept != NULL)
        status = sbx_tree_remove(AT_FDCWD, kept, error);
    if (status == SANDBOX_OK)
        status = sbx_tree_remove(AT_FDCWD, seals, error);
    if (status == SANDBOX_OK)
        status = sbx_tree_remove(AT_FDCWD, place->directory, error);
    error->status = status;
}

static void removed(uv_work_t *work, int status)
{
    struct platform_place *place = work->data;
    sandbox_error error = place->removal_error;
    if (status != 0)
        error.status = SANDBOX_UNAVAILABLE;
    struct platform_request *list = sbx_take(place->removers), *queue = NULL;
    bool gone = error.status == SANDBOX_OK && place->waiting == NULL;
    if (gone) {
        queue = sbx_take(place->queue);
        forget(place);
    }
    while (list != NULL) {
        struct platform_request *request = list;
        list = request->next;
        if (error.status == SANDBOX_OK)
            platform_request_answer(request, NULL);
        else
            platform_request_fail(request, error.status, error.reason, "%s", error.message);
    }
    run_all(queue);
    if (!gone)
        platform_place_proceed(place);
    platform_look_idle();
}

size_t platform_directory_count(void)
{
    DIR *directory = opendir(platform.workspaces);
    size_t count = 0;
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;)
        count += entry->d_name[0] != '.';
    if (directory != NULL)
        closedir(directory);
    return count;
}

static void forget(struct platform_place *place)
{
    struct platform_place **at = &places;
    while (*at != place)
        at = &(*at)->next;
    *at = place->next;
    place_count--;
    platform_instance_clear(place);
    platform_snapshots_free(place);
    free(place->directory);
    free(place);
}

static void end_all(struct platform_request **list)
{
    while (*list != NULL) {
        struct platform_request *request = *list;
        platform_list_remove(list, request);
        platform_request_end(request);
    }
}

void platform_instances_free(void)
{
    while (places != NULL) {
        struct platform_place *place = places;
        end_all(&place->waiting);
        end_all(&place->queue);
        if (place->provision != NULL)
            platform_request_end(sbx_take(place->provision));
        if (place->job != NULL && place->job->request != NULL)
            platform_request_end(place->job->request);
        platform_job_free(place->job);
        forget(place);
    }
}
