/*
 * The Watch call: looks when inotify has something, tells it, and waits while the caller is slow.
 */

#include "files_watch.h"

#include "files_change.h"
#include "loop.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

struct watch_job {
    struct agent_job job;
    char path[AGENT_PATH_MAX];
    bool recursive, begun, full;
    struct agent_sight sight;
    struct agent_watch *watch; /* owns the inotify descriptor once it is there */
};

static void work(struct agent_job *job);
static void done(struct agent_job *job);
static void look(void *user_data);
static void free_job(struct agent_job *job);

static const struct agent_job_kind kind = {.work = work, .done = done, .free = free_job};

void agent_watch_message(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__WatchRequest *request = (const Sandbox__V1__WatchRequest *)message;
    struct watch_job *watch_job = agent_job_new(call, &kind, sizeof *watch_job);
    if (watch_job == NULL)
        return;
    watch_job->sight.inotify = watch_job->sight.root = -1;
    watch_job->recursive = request->recursive;
    if (agent_path_take(call, &request->path, watch_job->path))
        agent_job_start(&watch_job->job);
}

/* The caller took what was queued. */
void agent_watch_ready(struct agent_call *call)
{
    struct watch_job *watch_job = agent_call_data(call);
    if (watch_job == NULL || !watch_job->full)
        return;
    watch_job->full = false;
    agent_watch_for(watch_job->watch, UV_READABLE);
}

static void work(struct agent_job *job)
{
    struct watch_job *watch_job = (struct watch_job *)job;
    struct agent_place place = AGENT_PLACE;
    int number;
    if (watch_job->begun) {
        number = agent_sight_look(&watch_job->sight);
    } else {
        number = agent_place_find(job, watch_job->path, AGENT_PLACE_FOLLOW, &place);
        if (number == 0)
            number = agent_sight_open(&watch_job->sight, place.parent, place.name,
                                      watch_job->recursive);
        agent_place_close(&place);
    }
    if (number == E2BIG)
        agent_job_fail(job, SANDBOX_LIMIT, "limit",
                       "'%s' holds more directories than can be watched (%u, or the system's "
                       "limit)",
                       watch_job->path, AGENT_WATCH_DIRECTORIES);
    else if (number != 0)
        agent_job_fail_errno(job, number, "cannot watch '%s'", watch_job->path);
}

static ProtobufCBinaryData bytes_of(char *text)
{
    return (ProtobufCBinaryData){text == NULL ? 0 : strlen(text), (uint8_t *)text};
}

static void done(struct agent_job *job)
{
    struct watch_job *watch_job = (struct watch_job *)job;
    struct agent_sight *sight = &watch_job->sight;
    bool room = true;
    if (!watch_job->begun) {
        /* Its descriptor is the watch's from here on, whatever becomes of it. */
        watch_job->watch = agent_watch_open(sight->inotify, look, watch_job);
        if (watch_job->watch == NULL) {
            sight->inotify = -1;
            agent_call_fail(job->call, AGENT_RESOURCE_EXHAUSTED, "no-memory",
                            "the agent has no memory");
            return;
        }
        Sandbox__V1__FileChange begun = SANDBOX__V1__FILE_CHANGE__INIT;
        watch_job->begun = true;
        room = agent_call_send(job->call, &begun.base);
    }
    for (size_t i = 0; i < sight->change_count; i++) {
        const struct agent_change *change = &sight->changes[i];
        Sandbox__V1__FileChange told = SANDBOX__V1__FILE_CHANGE__INIT;
        told.kind = (Sandbox__V1__FileChange__Kind)change->kind;
        told.path = bytes_of(change->path);
        told.new_path = bytes_of(change->new_path);
        room = agent_call_send(job->call, &told.base);
    }
    agent_sight_forget_changes(sight);
    watch_job->full = !room;
    if (room)
        agent_watch_for(watch_job->watch, UV_READABLE);
}

static void look(void *user_data)
{
    struct watch_job *watch_job = user_data;
    agent_watch_for(watch_job->watch, 0);
    if (!agent_call_is_over(watch_job->job.call))
        agent_job_start(&watch_job->job);
}

static void free_job(struct agent_job *job)
{
    struct watch_job *watch_job = (struct watch_job *)job;
    agent_sight_close(&watch_job->sight);
    if (watch_job->watch != NULL)
        agent_watch_close(&watch_job->watch);
    else if (watch_job->sight.inotify >= 0)
        close(watch_job->sight.inotify);
}
