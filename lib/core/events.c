/* Events: queues of bounded length, one for each watch. */

#include "core/events.h"
#include "core/client.h"
#include "util/fail.h"
#include "util/memory.h"
#include <stdio.h>

#define FIRST_ROOM 16u

/* A ring that grows up to SBX_EVENTS_MAX. All of it is guarded by the lock of `events`. */
struct sbx_watch {
    struct sbx_events *events;
    struct sbx_watch *previous, *next;
    pthread_cond_t changed;
    sandbox_event *queue;
    size_t room, start, count; /* `room` is a power of two */
    uint64_t lost;             /* before the first one in the queue; the last at `lost_ms` */
    int64_t lost_ms;
};

static void tell(sandbox_client *client, const sandbox_event *event);
static void append(struct sbx_watch *watch, const sandbox_event *event);
static bool replace(struct sbx_watch *watch, const sandbox_event *event);
static bool enlarge(struct sbx_watch *watch);
static sandbox_event *at(struct sbx_watch *watch, size_t index);
static void take_one(struct sbx_watch *watch, sandbox_event *out);

void sbx_events_init(struct sbx_events *events)
{
    pthread_mutex_init(&events->lock, NULL);
    atomic_init(&events->watch_count, 0);
    events->first = NULL;
}

void sbx_events_free(struct sbx_events *events)
{
    pthread_mutex_destroy(&events->lock);
}

void sbx_events_state(sandbox_client *client, const struct sbx_record *record,
                      const char *operation)
{
    if (atomic_load(&client->events.watch_count) == 0)
        return;
    if (operation == NULL)
        operation = record->operation.kind;
    sandbox_event event = {SANDBOX_EVENT, .kind = SANDBOX_EVENT_STATE, .state = record->state};
    snprintf(event.workspace, sizeof event.workspace, "%s", record->name);
    snprintf(event.id, sizeof event.id, "%s", record->id);
    snprintf(event.operation, sizeof event.operation, "%s", operation);
    snprintf(event.text, sizeof event.text, "%s", operation);
    tell(client, &event);
}

void sbx_events_step(sandbox_client *client, const struct sbx_record *record, const char *step)
{
    if (atomic_load(&client->events.watch_count) == 0)
        return;
    sandbox_event event = {SANDBOX_EVENT, .kind = SANDBOX_EVENT_STEP, .state = record->state};
    snprintf(event.workspace, sizeof event.workspace, "%s", record->name);
    snprintf(event.id, sizeof event.id, "%s", record->id);
    snprintf(event.operation, sizeof event.operation, "%s", record->operation.kind);
    snprintf(event.text, sizeof event.text, "%s", step);
    tell(client, &event);
}

void sbx_events_progress(sandbox_client *client, const char *name, const char *id,
                         const char *operation, const char *step, uint64_t done, uint64_t total)
{
    if (atomic_load(&client->events.watch_count) == 0)
        return;
    sandbox_event event = {SANDBOX_EVENT, .kind = SANDBOX_EVENT_PROGRESS, .done = done,
                           .total = total};
    snprintf(event.workspace, sizeof event.workspace, "%s", name);
    snprintf(event.id, sizeof event.id, "%s", id);
    snprintf(event.operation, sizeof event.operation, "%s", operation);
    snprintf(event.text, sizeof event.text, "%s", step);
    tell(client, &event);
}

sandbox_status sbx_watch_begin(struct sbx_events *events, struct sbx_watch **out,
                               sandbox_error *error)
{
    struct sbx_watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL || sbx_condition_init(&watch->changed) != 0) {
        free(watch);
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a watch");
    }
    watch->events = events;
    pthread_mutex_lock(&events->lock);
    bool full = atomic_load(&events->watch_count) >= SBX_WATCHES_MAX;
    if (!full) {
        watch->next = events->first;
        if (watch->next != NULL)
            watch->next->previous = watch;
        events->first = watch;
        atomic_fetch_add(&events->watch_count, 1);
    }
    pthread_mutex_unlock(&events->lock);
    if (full) {
        pthread_cond_destroy(&watch->changed);
        free(watch);
        return sbx_fail_for(error, SANDBOX_LIMIT, "too-many-watches",
                            "the client has %d watches; free one first", SBX_WATCHES_MAX);
    }
    *out = watch;
    return SANDBOX_OK;
}

sandbox_status sbx_watch_take(struct sbx_watch *watch, const struct sbx_wait *wait,
                              sandbox_event *out, sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    pthread_mutex_lock(&watch->events->lock);
    while (status == SANDBOX_OK && watch->count == 0 && watch->lost == 0)
        status = sbx_wait_condition(wait, &watch->changed, &watch->events->lock, error);
    if (status == SANDBOX_OK)
        take_one(watch, out);
    pthread_mutex_unlock(&watch->events->lock);
    return status;
}

void sbx_watch_end(struct sbx_watch *watch)
{
    struct sbx_events *events = watch->events;
    pthread_mutex_lock(&events->lock);
    if (watch->previous != NULL)
        watch->previous->next = watch->next;
    else
        events->first = watch->next;
    if (watch->next != NULL)
        watch->next->previous = watch->previous;
    atomic_fetch_sub(&events->watch_count, 1);
    pthread_mutex_unlock(&events->lock);
    pthread_cond_destroy(&watch->changed);
    free(watch->queue);
    free(watch);
}

/* To every watch. The time is taken under the lock: in the order in which they are queued. */
static void tell(sandbox_client *client, const sandbox_event *event)
{
    struct sbx_events *events = &client->events;
    sandbox_event stamped = *event;
    pthread_mutex_lock(&events->lock);
    stamped.time_ms = sbx_clock_wall(client->clock);
    for (struct sbx_watch *watch = events->first; watch != NULL; watch = watch->next) {
        if (event->kind != SANDBOX_EVENT_PROGRESS || !replace(watch, &stamped))
            append(watch, &stamped);
        pthread_cond_signal(&watch->changed);
    }
    pthread_mutex_unlock(&events->lock);
}

/* The oldest one makes room: what comes last is how things stand. */
static void append(struct sbx_watch *watch, const sandbox_event *event)
{
    if (watch->count == watch->room && !enlarge(watch)) {
        watch->lost++;
        watch->lost_ms = watch->room == 0 ? event->time_ms : at(watch, 0)->time_ms;
        if (watch->room == 0)
            return;
        watch->start = (watch->start + 1) & (watch->room - 1);
        watch->count--;
    }
    *at(watch, watch->count++) = *event;
}

/* Whether there was an older one to be replaced: several steps may move at once. */
static bool replace(struct sbx_watch *watch, const sandbox_event *event)
{
    for (size_t index = watch->count; index > 0; index--) {
        sandbox_event *older = at(watch, index - 1);
        if (strcmp(older->id, event->id) != 0)
            continue;
        if (older->kind != SANDBOX_EVENT_PROGRESS)
            return false;
        if (strcmp(older->text, event->text) == 0) {
            *older = *event;
            return true;
        }
    }
    return false;
}

/* False: it is as long as it may be, or there is no memory. */
static bool enlarge(struct sbx_watch *watch)
{
    size_t room = watch->room == 0 ? FIRST_ROOM : 2 * watch->room;
    sandbox_event *queue =
        room > SBX_EVENTS_MAX ? NULL : reallocarray(NULL, room, sizeof *queue);
    if (queue == NULL)
        return false;
    for (size_t index = 0; index < watch->count; index++)
        queue[index] = *at(watch, index);
    free(watch->queue);
    watch->queue = queue;
    watch->room = room;
    watch->start = 0;
    return true;
}

static sandbox_event *at(struct sbx_watch *watch, size_t index)
{
    return &watch->queue[(watch->start + index) & (watch->room - 1)];
}

static void take_one(struct sbx_watch *watch, sandbox_event *out)
{
    if (watch->lost > 0) {
        *out = (sandbox_event){SANDBOX_EVENT, .kind = SANDBOX_EVENT_LOST,
                               .time_ms = watch->lost_ms, .done = watch->lost};
        watch->lost = 0;
        return;
    }
    *out = *at(watch, 0);
    watch->start = (watch->start + 1) & (watch->room - 1);
    watch->count--;
}
