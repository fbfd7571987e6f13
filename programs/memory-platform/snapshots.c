/*
 * Snapshots: prepared, taken, adopted, removed. One lies in a directory of its own: "files", the
 * workspace's; "seal", its agent's seal file; "listing", what verify.c compares them with. While
 * it is made its directory is called "ID.part".
 */

#include "places.h"
#include "trees.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SEAL_BYTES_MAX (64u << 10)

static struct platform_job *begin_making(struct platform_request *request);
static void measure(struct platform_job *job);
static void prepared(struct platform_job *job);
static bool has_stopped(struct platform_job *job);
static void copy_stopped(struct platform_job *job);
static void copy(struct platform_job *job);
static void copied(struct platform_job *job);
static void go_on_midway(struct platform_request *request);
static void complete(struct platform_job *job);
static bool has_ended(struct platform_job *job);
static void consumed(struct platform_job *job);
static void drop_part(struct platform_job *job);
static void undone(struct platform_job *job);
static void drop(struct platform_job *job);
static void dropped(struct platform_job *job);

static unsigned count_of(const struct platform_place *place)
{
    unsigned count = 0;
    for (const struct platform_snapshot *at = place->snapshots; at != NULL; at = at->next)
        count++;
    return count;
}

/* The job of a prepare or take; NULL: it waits, or was refused. */
static struct platform_job *begin_making(struct platform_request *request)
{
    if (!platform_record_fence(request))
        return NULL;
    struct platform_place *place = platform_place_find(platform_request_text(request, "id"));
    if (place == NULL) {
        platform_request_fail(request, SANDBOX_UNAVAILABLE, "instance-gone",
                              "the workspace has neither an instance nor files");
        return NULL;
    }
    struct platform_job *job = platform_job_begin(place, request);
    if (job == NULL)
        return NULL;
    const char *kind = platform_request_text(request, "kind");
    job->memory = strcmp(kind, "memory") == 0;
    job->sealed = sbx_json_flag(request->body, "sealed");
    if (!job->memory && strcmp(kind, "files") != 0)
        platform_job_refuse(job, SANDBOX_UNSUPPORTED, "", "no kind of snapshot: '%.20s'", kind);
    else if (platform_snapshot_find(place, job->snapshot) != NULL)
        platform_job_refuse(job, SANDBOX_EXISTS, "snapshot-exists",
                            "there is a snapshot of that id");
    else if (count_of(place) >= PLATFORM_SNAPSHOTS_MAX)
        platform_job_refuse(job, SANDBOX_LIMIT, "too-many-snapshots",
                            "the workspace has %d snapshots; delete some", PLATFORM_SNAPSHOTS_MAX);
    else if (job->memory && place->state != INSTANCE_RUNNING)
        platform_job_refuse(job, SANDBOX_UNAVAILABLE, "instance-gone",
                            "the recorded instance does not run");
    else
        return job;
    return NULL;
}

/* ---- prepare ---- */

void platform_snapshot_prepare(struct platform_request *request)
{
    struct platform_job *job = begin_making(request);
    if (job != NULL)
        platform_job_work(job, measure, prepared);
}

static void measure(struct platform_job *job)
{
    struct tree_count count = {0};
    struct statvfs room;
    if (tree_measure(job->place->directory, &count, &job->error) != SANDBOX_OK)
        return;
    job->bytes = count.bytes;
    if (statvfs(platform.snapshots, &room) < 0)
        (void)sbx_fail_errno(&job->error, errno, "cannot tell how much room there is");
    else
        job->room = (uint64_t)room.f_bavail * room.f_frsize;
}

static void prepared(struct platform_job *job)
{
    if (job->error.status == SANDBOX_OK && job->bytes > job->room)
        platform_job_refuse(job, SANDBOX_LIMIT, "disk-full",
                            "the snapshot takes %llu bytes and the disk has room for %llu; make "
                            "room on it",
                            (unsigned long long)job->bytes, (unsigned long long)job->room);
    else
        platform_job_end(job, NULL);
}

/* ---- take ---- */

/* Whether the request speaks of this very instance, or of files without one. */
static bool is_of_instance(const struct platform_job *job)
{
    const struct platform_place *place = job->place;
    if (!job->sealed)
        return !job->memory && !platform_instance_has_agent(place);
    return place->state == INSTANCE_RUNNING &&
           strcmp(place->incarnation, platform_request_text(job->request, "incarnation")) == 0;
}

void platform_snapshot_take(struct platform_request *request)
{
    struct platform_job *job = begin_making(request);
    if (job == NULL)
        return;
    if (!is_of_instance(job)) {
        platform_job_refuse(job, SANDBOX_CONFLICT, "instance-gone",
                            "what a snapshot is to be taken of is not there");
    } else if (job->memory || job->fault == PLATFORM_FAULT_CONSUME_AND_FAIL) {
        platform_agent_signal(&job->place->agent, SIGSTOP);
        platform_job_await(job, has_stopped, copy_stopped);
    } else {
        platform_job_work(job, copy, copied);
    }
}

static bool has_stopped(struct platform_job *job)
{
    return job->place->state != INSTANCE_RUNNING || platform_agent_is_stopped(&job->place->agent);
}

static void copy_stopped(struct platform_job *job)
{
    platform_job_work(job, copy, copied);
}

static sandbox_status copy_seal(struct platform_job *job, struct tree_count *count)
{
    struct stat facts;
    SBX_ON_EXIT(sbx_free_text) char *seal = sbx_format("%s/seal", job->part);
    if (seal == NULL)
        return sbx_fail(&job->error, SANDBOX_UNAVAILABLE, "the platform has no memory");
    if (lstat(job->seal, &facts) < 0 || !S_ISREG(facts.st_mode) || facts.st_size > SEAL_BYTES_MAX)
        return sbx_fail_for(&job->error, SANDBOX_FAILED, "not-sealed",
                            "the instance has no seal file; seal its agent first");
    return tree_put(job->seal, seal, count, &job->error);
}

/* On a thread. */
static void copy(struct platform_job *job)
{
    struct tree_count count = {0};
    SBX_ON_EXIT(sbx_free_text) char *files = sbx_format("%s/files", job->part);
    if (files == NULL) {
        (void)sbx_fail(&job->error, SANDBOX_UNAVAILABLE, "the platform has no memory");
        return;
    }
    sandbox_status status = sbx_tree_remove(AT_FDCWD, job->part, &job->error);
    if (status == SANDBOX_OK)
        status = sbx_directory_make(AT_FDCWD, job->part, 0700, &job->error);
    if (status == SANDBOX_OK)
        status = tree_put(job->place->directory, files, &count, &job->error);
    if (status == SANDBOX_OK && job->fault == PLATFORM_FAULT_HALF_MADE) {
        (void)sbx_fail_for(&job->error, SANDBOX_UNAVAILABLE, "scripted",
                           "the platform was told to leave a half made snapshot");
        return;
    }
    if (status == SANDBOX_OK && job->sealed)
        status = copy_seal(job, &count);
    if (status == SANDBOX_OK)
        status = platform_job_list(job, job->part);
    job->bytes = count.bytes;
    if (status != SANDBOX_OK)
        drop_part(job);
}

static void copied(struct platform_job *job)
{
    if (job->error.status != SANDBOX_OK) {
        undone(job);
    } else if (job->fault == PLATFORM_FAULT_CONSUME_AND_FAIL) {
        platform_instance_kill(job->place);
        platform_job_await(job, has_ended, consumed);
    } else if (job->fault == PLATFORM_FAULT_HANG_MIDWAY) {
        platform_fault_hold(sbx_take(job->request), go_on_midway);
    } else {
        complete(job);
    }
}

static void go_on_midway(struct platform_request *request)
{
    struct platform_place *place = platform_place_find(platform_request_text(request, "id"));
    place->job->request = request;
    complete(place->job);
}

/* Changes one byte of what is on the disk. */
static void damage(const struct platform_job *job)
{
    SBX_ON_EXIT(sbx_free_text)
    char *path = sbx_format("%s/%s", job->directory, job->sealed ? "seal" : "listing");
    SBX_ON_EXIT(sbx_close_fd) int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    uint8_t byte = 0;
    if (fd >= 0 && pread(fd, &byte, 1, 0) >= 0) {
        byte ^= 1;
        (void)!pwrite(fd, &byte, 1, 0);
    }
}

static cJSON *facts_of(const struct platform_snapshot *snapshot)
{
    cJSON *answer = cJSON_CreateObject();
    cJSON_AddStringToObject(answer, "digest", snapshot->digest);
    cJSON_AddNumberToObject(answer, "bytes", (double)snapshot->bytes);
    return answer;
}

/* From here on it is there. */
static void complete(struct platform_job *job)
{
    struct platform_place *place = job->place;
    if (job->memory && place->state != INSTANCE_RUNNING) {
        (void)sbx_fail_for(&job->error, SANDBOX_UNAVAILABLE, "instance-gone",
                           "the instance ended while a snapshot was taken of it");
        platform_job_work(job, drop_part, undone);
        return;
    }
    struct platform_snapshot *snapshot = calloc(1, sizeof *snapshot);
    if (snapshot == NULL || rename(job->part, job->directory) < 0) {
        free(snapshot);
        (void)sbx_fail_errno(&job->error, errno, "cannot keep the snapshot");
        platform_job_work(job, drop_part, undone);
        return;
    }
    snprintf(snapshot->id, sizeof snapshot->id, "%s", job->snapshot);
    memcpy(snapshot->digest, job->digest, sizeof snapshot->digest);
    snapshot->bytes = job->bytes;
    snapshot->frozen = (struct platform_agent){.child = SBX_CHILD};
    struct platform_snapshot **at = &place->snapshots;
    while (*at != NULL)
        at = &(*at)->next;
    *at = snapshot;
    if (job->memory)
        platform_freeze(place, place, snapshot);
    if (job->fault == PLATFORM_FAULT_DAMAGE)
        damage(job);
    platform_job_end(job, facts_of(snapshot));
}

static bool has_ended(struct platform_job *job)
{
    return !platform_instance_has_agent(job->place) && platform_orphans_sweep() == 0;
}

static void consumed(struct platform_job *job)
{
    platform_instance_clear(job->place);
    (void)sbx_fail_for(&job->error, SANDBOX_FAILED, "scripted",
                       "the platform was told to lose the instance");
    platform_job_work(job, drop_part, undone);
}

/* On a thread. What it says of a failure is nothing new. */
static void drop_part(struct platform_job *job)
{
    (void)sbx_tree_remove(AT_FDCWD, job->part, NULL);
}

/* The instance goes on as it was, if there is one. */
static void undone(struct platform_job *job)
{
    if (job->place->state == INSTANCE_RUNNING)
        platform_agent_signal(&job->place->agent, SIGCONT);
    platform_job_end(job, NULL);
}

/* ---- adopt, remove ---- */

static void not_there(struct platform_job *job)
{
    platform_job_refuse(job, SANDBOX_NOT_FOUND, "no-such-snapshot",
                        "the platform holds no such snapshot");
}

/* A take goes on whatever becomes of its caller; whoever comes here has waited for its end. */
void platform_snapshot_adopt(struct platform_request *request)
{
    if (!platform_record_fence(request))
        return;
    struct platform_place *place = platform_place_find(platform_request_text(request, "id"));
    if (place == NULL) {
        platform_request_fail(request, SANDBOX_NOT_FOUND, "no-such-snapshot",
                              "the platform holds no such snapshot");
        return;
    }
    struct platform_job *job = platform_job_begin(place, request);
    if (job == NULL)
        return;
    const struct platform_snapshot *snapshot = platform_snapshot_find(place, job->snapshot);
    if (snapshot != NULL)
        platform_job_end(job, facts_of(snapshot));
    else
        platform_job_work(job, drop_part, not_there);
}

static bool has_let_go(struct platform_job *job)
{
    const struct platform_snapshot *snapshot = platform_snapshot_find(job->place, job->snapshot);
    return (snapshot == NULL || snapshot->frozen.child.pid == 0) && platform_orphans_sweep() == 0;
}

static void drop_ended(struct platform_job *job)
{
    platform_job_work(job, drop, dropped);
}

void platform_snapshot_remove(struct platform_request *request)
{
    if (!platform_record_fence(request))
        return;
    struct platform_place *place = platform_place_find(platform_request_text(request, "id"));
    if (place == NULL) {
        platform_request_answer(request, NULL);
        return;
    }
    struct platform_job *job = platform_job_begin(place, request);
    if (job == NULL)
        return;
    struct platform_snapshot *snapshot = platform_snapshot_find(place, job->snapshot);
    if (snapshot != NULL)
        platform_agent_signal(&snapshot->frozen, SIGKILL);
    platform_job_await(job, has_let_go, drop_ended);
}

/* On a thread. */
static void drop(struct platform_job *job)
{
    if (sbx_tree_remove(AT_FDCWD, job->part, &job->error) == SANDBOX_OK)
        (void)sbx_tree_remove(AT_FDCWD, job->directory, &job->error);
}

static void dropped(struct platform_job *job)
{
    struct platform_snapshot **at = &job->place->snapshots;
    while (*at != NULL && strcmp((*at)->id, job->snapshot) != 0)
        at = &(*at)->next;
    if (*at != NULL && job->error.status == SANDBOX_OK) {
        struct platform_snapshot *snapshot = *at;
        *at = snapshot->next;
        free(snapshot);
    }
    platform_job_end(job, NULL);
}

/* ---- all of them ---- */

void platform_snapshots_free(struct platform_place *place)
{
    while (place->snapshots != NULL) {
        struct platform_snapshot *snapshot = place->snapshots;
        place->snapshots = snapshot->next;
        free(snapshot);
    }
}

static size_t count_entries(const char *path)
{
    DIR *directory = opendir(path);
    size_t count = 0;
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;)
        count += entry->d_name[0] != '.';
    if (directory != NULL)
        closedir(directory);
    return count;
}

size_t platform_snapshot_count(void)
{
    DIR *directory = opendir(platform.snapshots);
    size_t count = 0;
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        SBX_ON_EXIT(sbx_free_text)
        char *path = sbx_format("%s/%s", platform.snapshots, entry->d_name);
        if (path != NULL && entry->d_name[0] != '.')
            count += count_entries(path);
    }
    if (directory != NULL)
        closedir(directory);
    return count;
}
