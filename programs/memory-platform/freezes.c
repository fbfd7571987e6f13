/*
 * Frozen agents. The memory of a snapshot is the sealed agent itself with all that it started,
 * stopped: it can be let go on once. An instance made of it that nobody has opened can go back.
 */

#include "places.h"
#include "util/memory.h"
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

void platform_agent_signal(const struct platform_agent *agent, int signal_number)
{
    sbx_child_signal(&agent->child, signal_number);
}

bool platform_agent_is_stopped(const struct platform_agent *agent)
{
    siginfo_t how = {0};
    return waitid(P_PID, (id_t)agent->child.pid, &how, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
           how.si_pid == agent->child.pid;
}

struct platform_snapshot *platform_snapshot_find(struct platform_place *place, const char *id)
{
    struct platform_snapshot *snapshot = place->snapshots;
    while (snapshot != NULL && strcmp(snapshot->id, id) != 0)
        snapshot = snapshot->next;
    return snapshot;
}

void platform_freeze(struct platform_place *place, struct platform_place *owner,
                     struct platform_snapshot *snapshot)
{
    snapshot->frozen = place->agent;
    snapshot->frozen.watch->place = owner;
    snapshot->frozen.watch->snapshot = snapshot;
    uv_timer_stop(&snapshot->frozen.watch->attempt);
    place->agent = (struct platform_agent){.child = SBX_CHILD};
    place->state = INSTANCE_STOPPED;
    platform_instance_clear(place);
}

void platform_thaw(struct platform_place *place, struct platform_snapshot *snapshot)
{
    place->agent = snapshot->frozen;
    snapshot->frozen = (struct platform_agent){.child = SBX_CHILD};
    struct agent_watch *watch = place->agent.watch;
    snprintf(place->memory_place, sizeof place->memory_place, "%s", watch->place->id);
    snprintf(place->memory_snapshot, sizeof place->memory_snapshot, "%s", snapshot->id);
    watch->place = place;
    watch->snapshot = NULL;
}

/* Where its memory came from, if that is still there and empty. */
static struct platform_snapshot *origin(const struct platform_place *place,
                                        struct platform_place **owner)
{
    *owner = platform_place_find(place->memory_place);
    struct platform_snapshot *snapshot =
        *owner == NULL ? NULL : platform_snapshot_find(*owner, place->memory_snapshot);
    return snapshot == NULL || snapshot->frozen.child.pid != 0 ? NULL : snapshot;
}

bool platform_may_refreeze(const struct platform_place *place)
{
    struct platform_place *owner;
    if (place->state != INSTANCE_STARTING && place->state != INSTANCE_RUNNING)
        return false;
    for (const struct platform_request *at = place->waiting; at != NULL; at = at->next) {
        if (at->operation->run != platform_discard || platform_record_is_precious(at))
            return false;
    }
    return origin(place, &owner) != NULL;
}

bool platform_refreeze(struct platform_place *place)
{
    if (!place->freezing)
        platform_agent_signal(&place->agent, SIGSTOP);
    place->freezing = true;
    struct platform_place *owner;
    struct platform_snapshot *snapshot = origin(place, &owner);
    if (snapshot == NULL || !platform_agent_is_stopped(&place->agent))
        return false;
    struct platform_request *starting = sbx_take(place->provision);
    platform_freeze(place, owner, snapshot);
    if (starting != NULL)
        platform_request_fail(starting, SANDBOX_CONFLICT, "stale-epoch",
                              "the instance was discarded before it could be reached");
    return true;
}

void platform_frozen_kill(struct platform_place *place)
{
    for (struct platform_snapshot *at = place->snapshots; at != NULL; at = at->next)
        platform_agent_signal(&at->frozen, SIGKILL);
}

bool platform_has_frozen(const struct platform_place *place)
{
    for (const struct platform_snapshot *at = place->snapshots; at != NULL; at = at->next) {
        if (at->frozen.child.pid != 0)
            return true;
    }
    return false;
}

void platform_frozen_ended(struct platform_place *place, struct platform_snapshot *snapshot)
{
    (void)platform_agent_reap(&snapshot->frozen);
    platform_agent_unlink(&snapshot->frozen);
    platform_orphans_sweep();
    platform_place_proceed(place);
    platform_look_idle();
}

size_t platform_frozen_count(void)
{
    size_t count = 0;
    for (struct platform_place *place = platform_places(); place != NULL; place = place->next) {
        for (struct platform_snapshot *at = place->snapshots; at != NULL; at = at->next)
            count += at->frozen.child.pid != 0;
    }
    return count;
}
