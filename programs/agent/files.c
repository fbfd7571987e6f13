/* The Files service: its methods, and those that are one question and one answer. */

#include "files.h"

#include "files_change.h"

#include "files.pb-c.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A request of two paths at most, and its answer. */
struct change {
    struct agent_job job;
    char path[AGENT_PATH_MAX], second[AGENT_PATH_MAX];
    bool recursive, replace, hard;
    uint32_t mode;
    int (*make)(struct change *change); /* 0 or an errno value */
    struct agent_about about;
    bool tells_about;
};

static void work(struct agent_job *job);
static void done(struct agent_job *job);
static int look(struct change *change);
static int remove_it(struct change *change);
static int rename_it(struct change *change);
static int make_directory(struct change *change);
static int set_mode(struct change *change);
static int link_it(struct change *change);

static const struct agent_job_kind kind = {.work = work, .done = done};

#define REQUEST(name) &sandbox__v1__##name##__descriptor

const struct agent_method agent_file_methods[] = {
    {.path = "/sandbox.v1.Files/Read", .request = REQUEST(read_request),
     .message = agent_read_message, .ready = agent_read_ready, .gone = agent_job_gone},
    {.path = "/sandbox.v1.Files/Write", .request = REQUEST(file_write), .lends = 2,
     .message = agent_write_message, .end = agent_write_end, .gone = agent_job_gone},
    {.path = "/sandbox.v1.Files/Stat", .request = REQUEST(path_request),
     .message = agent_stat_message, .gone = agent_job_gone},
    {.path = "/sandbox.v1.Files/List", .request = REQUEST(path_request),
     .message = agent_list_message, .ready = agent_list_ready, .gone = agent_job_gone},
    {.path = "/sandbox.v1.Files/Remove", .request = REQUEST(remove_request),
     .message = agent_remove_message, .gone = agent_job_gone},
    {.path = "/sandbox.v1.Files/Rename", .request = REQUEST(rename_request),
     .message = agent_rename_message, .gone = agent_job_gone},
    {.path = "/sandbox.v1.Files/MakeDirectory", .request = REQUEST(make_directory_request),
     .message = agent_make_directory_message, .gone = agent_job_gone},
    {.path = "/sandbox.v1.Files/SetMode", .request = REQUEST(set_mode_request),
     .message = agent_set_mode_message, .gone = agent_job_gone},
    {.path = "/sandbox.v1.Files/Link", .request = REQUEST(link_request),
     .message = agent_link_message, .gone = agent_job_gone},
    {.path = "/sandbox.v1.Files/Watch", .request = REQUEST(watch_request),
     .message = agent_watch_message, .ready = agent_watch_ready, .gone = agent_job_gone,
     .passive = true, .lasts = true},
    {.path = "/sandbox.v1.Files/Upload", .request = REQUEST(tree_chunk), .lends = 2,
     .message = agent_upload_message, .end = agent_upload_end, .gone = agent_job_gone},
    {.path = "/sandbox.v1.Files/Download", .request = REQUEST(tree_request),
     .message = agent_download_message, .ready = agent_download_ready, .gone = agent_job_gone},
    {0},
};

static struct change *begin(struct agent_call *call, const ProtobufCBinaryData *path,
                            int (*make)(struct change *change))
{
    struct change *change = agent_job_new(call, &kind, sizeof *change);
    if (change == NULL || !agent_path_take(call, path, change->path))
        return NULL; /* the job goes with the call */
    change->make = make;
    return change;
}

void agent_stat_message(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__PathRequest *request = (const Sandbox__V1__PathRequest *)message;
    struct change *change = begin(call, &request->path, look);
    if (change == NULL)
        return;
    change->tells_about = true;
    agent_job_start(&change->job);
}

void agent_remove_message(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__RemoveRequest *request = (const Sandbox__V1__RemoveRequest *)message;
    struct change *change = begin(call, &request->path, remove_it);
    if (change == NULL)
        return;
    change->recursive = request->recursive;
    agent_job_start(&change->job);
}

void agent_rename_message(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__RenameRequest *request = (const Sandbox__V1__RenameRequest *)message;
    struct change *change = begin(call, &request->from, rename_it);
    if (change == NULL || !agent_path_take(call, &request->to, change->second))
        return;
    change->replace = request->replace;
    agent_job_start(&change->job);
}

void agent_make_directory_message(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__MakeDirectoryRequest *request =
        (const Sandbox__V1__MakeDirectoryRequest *)message;
    struct change *change = begin(call, &request->path, make_directory);
    if (change == NULL)
        return;
    change->recursive = request->parents;
    change->mode = request->mode == 0 ? 0755 : request->mode;
    agent_job_start(&change->job);
}

void agent_set_mode_message(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__SetModeRequest *request = (const Sandbox__V1__SetModeRequest *)message;
    struct change *change = begin(call, &request->path, set_mode);
    if (change == NULL)
        return;
    change->mode = request->mode;
    agent_job_start(&change->job);
}

void agent_link_message(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__LinkRequest *request = (const Sandbox__V1__LinkRequest *)message;
    struct change *change = begin(call, &request->path, link_it);
    if (change == NULL || !agent_path_take(call, &request->target, change->second))
        return;
    change->replace = request->replace;
    change->hard = request->hard;
    agent_job_start(&change->job);
}

static void work(struct agent_job *job)
{
    struct change *change = (struct change *)job;
    if (change->mode > 07777) {
        agent_job_fail(job, SANDBOX_INVALID, "invalid", "a mode has 12 bits at most");
        return;
    }
    int number = change->make(change);
    if (number != 0 && job->status == SANDBOX_OK)
        agent_job_fail_errno(job, number, "'%s'", change->path);
}

static void done(struct agent_job *job)
{
    struct change *change = (struct change *)job;
    Sandbox__V1__FileInfo info = SANDBOX__V1__FILE_INFO__INIT;
    Sandbox__V1__FilesReply reply = SANDBOX__V1__FILES_REPLY__INIT;
    if (change->tells_about) {
        agent_about_tell(&change->about, &info);
        agent_call_answer(job->call, &info.base);
    } else {
        agent_call_answer(job->call, &reply.base);
    }
}

int agent_about_read(int parent, const char *name, struct agent_about *about)
{
    about->target[0] = 0;
    snprintf(about->name, sizeof about->name, "%s", name);
    if (fstatat(parent, name, &about->stat, AT_SYMLINK_NOFOLLOW) != 0)
        return errno;
    if (!S_ISLNK(about->stat.st_mode))
        return 0;
    ssize_t size = readlinkat(parent, name, about->target, sizeof about->target - 1);
    about->target[size < 0 ? 0 : size] = 0;
    return 0;
}

static ProtobufCBinaryData bytes_of(char *text)
{
    return (ProtobufCBinaryData){strlen(text), (uint8_t *)text};
}

void agent_about_tell(struct agent_about *about, Sandbox__V1__FileInfo *info)
{
    const struct stat *stat = &about->stat;
    info->name = bytes_of(about->name);
    info->target = bytes_of(about->target);
    info->kind = S_ISREG(stat->st_mode)   ? SANDBOX__V1__FILE_INFO__KIND__KIND_REGULAR
                 : S_ISDIR(stat->st_mode) ? SANDBOX__V1__FILE_INFO__KIND__KIND_DIRECTORY
                 : S_ISLNK(stat->st_mode) ? SANDBOX__V1__FILE_INFO__KIND__KIND_LINK
                                          : SANDBOX__V1__FILE_INFO__KIND__KIND_OTHER;
    info->mode = stat->st_mode & 07777;
    info->uid = stat->st_uid;
    info->gid = stat->st_gid;
    info->size = stat->st_size < 0 ? 0 : (uint64_t)stat->st_size;
    info->modified_ms = (int64_t)stat->st_mtim.tv_sec * 1000 + stat->st_mtim.tv_nsec / 1000000;
    info->links = stat->st_nlink;
}

static int look(struct change *change)
{
    struct agent_place place = AGENT_PLACE;
    int number = agent_place_find(&change->job, change->path, 0, &place);
    if (number == 0)
        number = agent_about_read(place.parent, place.name, &change->about);
    agent_place_close(&place);
    return number;
}

static int remove_it(struct change *change)
{
    struct agent_place place = AGENT_PLACE;
    int number = agent_place_find(&change->job, change->path, 0, &place);
    if (number == 0 && strcmp(place.name, ".") == 0)
        number = EBUSY; /* the workspace's directory itself, or the root */
    else if (number == 0 && change->recursive)
        number = sbx_tree_erase(place.parent, place.name, &change->job.stop);
    else if (number == 0 && unlinkat(place.parent, place.name, 0) != 0)
        number = (errno == EISDIR || errno == EPERM) &&
                         unlinkat(place.parent, place.name, AT_REMOVEDIR) == 0
                     ? 0
                     : errno;
    agent_place_close(&place);
    return number;
}

static int rename_it(struct change *change)
{
    struct agent_place from = AGENT_PLACE, to = AGENT_PLACE;
    int number = agent_place_find(&change->job, change->path, 0, &from);
    if (number == 0)
        number = agent_place_find(&change->job, change->second, 0, &to);
    if (number == 0) {
        if (!change->replace)
            number = agent_rename_new(from.parent, from.name, to.parent, to.name);
        else if (renameat(from.parent, from.name, to.parent, to.name) != 0)
            number = errno;
        if (number == EXDEV)
            agent_job_fail(&change->job, SANDBOX_UNSUPPORTED, "other-mount",
                           "the two places are on different mounts; copy and remove instead");
    }
    agent_place_close(&from);
    agent_place_close(&to);
    return number;
}

static int make_directory(struct change *change)
{
    struct agent_place place = AGENT_PLACE;
    struct stat about;
    unsigned way = change->recursive ? AGENT_PLACE_MAKE | AGENT_PLACE_FOLLOW : 0;
    int number = agent_place_find(&change->job, change->path, way, &place);
    if (number != 0)
        return number;
    if (mkdirat(place.parent, place.name, change->mode & 0777) == 0) {
        /* Whatever the umask took. */
        if (fchmodat(place.parent, place.name, change->mode, 0) != 0)
            number = errno;
    } else {
        number = errno;
        if (number == EEXIST && change->recursive &&
            fstatat(place.parent, place.name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISDIR(about.st_mode))
            number = 0;
    }
    agent_place_close(&place);
    return number;
}

static int set_mode(struct change *change)
{
    struct agent_place place = AGENT_PLACE;
    int number = agent_place_find(&change->job, change->path, AGENT_PLACE_FOLLOW, &place);
    if (number == 0 && fchmodat(place.parent, place.name, change->mode, 0) != 0)
        number = errno;
    agent_place_close(&place);
    return number;
}

static int make_link(struct change *change, int at, const char *name)
{
    if (!change->hard)
        return symlinkat(change->second, at, name) == 0 ? 0 : errno;
    struct agent_place target = AGENT_PLACE;
    int number = agent_place_find(&change->job, change->second, 0, &target);
    if (number == 0 && linkat(target.parent, target.name, at, name, 0) != 0)
        number = errno;
    agent_place_close(&target);
    if (number == EXDEV)
        agent_job_fail(&change->job, SANDBOX_UNSUPPORTED, "other-mount",
                       "a hard link's two names must be on one mount");
    return number;
}

static int link_it(struct change *change)
{
    struct agent_place place = AGENT_PLACE;
    char temporary[AGENT_TEMPORARY_TEXT];
    int number = agent_place_find(&change->job, change->path, 0, &place);
    if (number == 0 && !change->replace) {
        number = make_link(change, place.parent, place.name);
    } else if (number == 0) {
        number = agent_temporary_name(temporary) ? make_link(change, place.parent, temporary)
                                                 : EIO;
        if (number == 0 && renameat(place.parent, temporary, place.parent, place.name) != 0)
            number = errno;
        /* Two names of one file are left both by a rename. */
        (void)unlinkat(place.parent, temporary, 0);
    }
    agent_place_close(&place);
    return number;
}
