/*
 * Writing one file. The content goes to a temporary in the same directory and takes the file's
 * place by rename at the commit. What is appended waits in a temporary too and is added at the
 * commit: in order and never lost, but not in one step should the machine die in the middle.
 */

#include "files.h"

#include "files_change.h"
#include "util/bytes.h"
#include "util/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define BATCH      (1u << 20) /* worth a turn of a thread, which costs more than its bytes */
#define QUEUE_HIGH (2u << 20)
#define QUEUE_MAX  (8u << 20)
#define MODE_DEFAULT 0644

struct write_job {
    struct agent_job job;
    bool opened;            /* `open` came */
    bool committed;         /* `commit` came */
    bool paused;
    struct sbx_bytes queue; /* came since the work began */

    /* The work's own. */
    char path[AGENT_PATH_MAX];
    uint32_t mode;
    bool append, exclusive, no_parents, follow_out;
    struct sbx_bytes batch;
    bool commits, complete;
    struct agent_place place;
    bool exists;
    struct stat old;
    int fd; /* the temporary */
    char temporary[AGENT_TEMPORARY_TEXT]; /* "": none */
    uint64_t written;
};

static void take_open(struct write_job *write_job, const Sandbox__V1__FileWriteOpen *open);
static bool is_worth_it(const struct write_job *write_job);
static void start(struct write_job *write_job);
static void work(struct agent_job *job);
static int open_temporary(struct write_job *write_job);
static int look_at_old(struct write_job *write_job);
static int write_all(int fd, const uint8_t *data, size_t size);
static int commit(struct write_job *write_job);
static int commit_append(struct write_job *write_job);
static int copy_to_end(struct write_job *write_job, int target);
static void sync_directory(int parent);
static void done(struct agent_job *job);
static void abandon(struct agent_job *job);
static void free_job(struct agent_job *job);

static const struct agent_job_kind kind = {.work = work, .done = done, .abandon = abandon,
                                           .free = free_job};

void agent_write_message(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__FileWrite *request = (const Sandbox__V1__FileWrite *)message;
    struct write_job *write_job = agent_call_data(call);
    if (write_job == NULL) {
        write_job = agent_job_new(call, &kind, sizeof *write_job);
        if (write_job == NULL)
            return;
        write_job->queue.limit = write_job->batch.limit = QUEUE_MAX;
        write_job->place.parent = write_job->fd = -1;
    }
    if (write_job->opened == (request->open != NULL) || write_job->committed) {
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "malformed",
                        "the first message holds `open`, no other does, and none follows `commit`");
        return;
    }
    if (request->open != NULL)
        take_open(write_job, request->open);
    if (agent_call_is_over(call))
        return;
    if (request->data.len > AGENT_CHUNK) {
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "message-too-large",
                        "a piece of data is larger than 256 KiB");
        return;
    }
    if (!sbx_bytes_append(&write_job->queue, request->data.data, request->data.len)) {
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "no-memory", "the agent has no memory");
        return;
    }
    write_job->committed = request->commit;
    if (!write_job->job.working && is_worth_it(write_job))
        start(write_job);
    if (sbx_bytes_size(&write_job->queue) > QUEUE_HIGH) {
        write_job->paused = true;
        agent_call_pause(call);
    }
}

static void take_open(struct write_job *write_job, const Sandbox__V1__FileWriteOpen *open)
{
    struct agent_call *call = write_job->job.call;
    if (open->mode > 07777)
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid", "a mode has 12 bits at most");
    else if (agent_path_take(call, &open->path, write_job->path))
        write_job->opened = true;
    write_job->mode = open->mode;
    write_job->append = open->append;
    write_job->exclusive = open->exclusive;
    write_job->no_parents = open->no_parents;
    write_job->follow_out = open->follow_out;
}

void agent_write_end(struct agent_call *call)
{
    const struct write_job *write_job = agent_call_data(call);
    if (write_job == NULL || !write_job->committed)
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "no-commit",
                        "the call ended without a commit; nothing was written");
}

/* The first bytes are, so that what is wrong with the place is told early. */
static bool is_worth_it(const struct write_job *write_job)
{
    return write_job->committed || write_job->fd < 0 ||
           sbx_bytes_size(&write_job->queue) >= BATCH;
}

/* What came so far becomes the work's. */
static void start(struct write_job *write_job)
{
    struct sbx_bytes empty = write_job->batch;
    write_job->batch = write_job->queue;
    write_job->queue = empty;
    write_job->commits = write_job->committed;
    agent_job_start(&write_job->job);
}

static void work(struct agent_job *job)
{
    struct write_job *write_job = (struct write_job *)job;
    int number = write_job->fd < 0 ? open_temporary(write_job) : 0;
    size_t size = sbx_bytes_size(&write_job->batch);
    if (number == 0)
        number = write_all(write_job->fd, sbx_bytes_data(&write_job->batch), size);
    if (number == 0)
        write_job->written += size;
    sbx_bytes_skip(&write_job->batch, size);
    if (number == 0 && write_job->commits)
        number = write_job->append ? commit_append(write_job) : commit(write_job);
    if (number != 0 && job->status == SANDBOX_OK)
        agent_job_fail_errno(job, number, "cannot write '%s'", write_job->path);
    write_job->complete = number == 0 && write_job->commits;
}

static int open_temporary(struct write_job *write_job)
{
    unsigned way = (write_job->no_parents ? 0 : AGENT_PLACE_MAKE) |
                   (write_job->exclusive ? 0 : AGENT_PLACE_FOLLOW) |
                   (write_job->follow_out ? AGENT_PLACE_OUT : 0);
    int number = agent_place_find(&write_job->job, write_job->path, way, &write_job->place);
    if (number == 0)
        number = look_at_old(write_job);
    if (number != 0)
        return number;
    if (!agent_temporary_name(write_job->temporary))
        return EIO;
    write_job->fd = openat(write_job->place.parent, write_job->temporary,
                           O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (write_job->fd >= 0)
        return 0;
    write_job->temporary[0] = 0;
    return errno;
}

static int look_at_old(struct write_job *write_job)
{
    const struct agent_place *place = &write_job->place;
    if (strcmp(place->name, ".") == 0)
        return EISDIR;
    if (fstatat(place->parent, place->name, &write_job->old, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : errno;
    write_job->exists = true;
    if (write_job->exclusive)
        return EEXIST;
    if (S_ISDIR(write_job->old.st_mode))
        return EISDIR;
    if (!S_ISREG(write_job->old.st_mode)) {
        agent_job_fail(&write_job->job, SANDBOX_INVALID, "not-regular",
                       "'%s' is there and is no regular file", write_job->path);
        return EINVAL;
    }
    return 0;
}

static int write_all(int fd, const uint8_t *data, size_t size)
{
    while (size > 0) {
        ssize_t written = write(fd, data, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return errno;
        data += written;
        size -= (size_t)written;
    }
    return 0;
}

static int commit(struct write_job *write_job)
{
    const struct agent_place *place = &write_job->place;
    mode_t mode = write_job->mode != 0 ? write_job->mode
                  : write_job->exists  ? write_job->old.st_mode & 07777
                                       : MODE_DEFAULT;
    /* A user cannot give files away, and need not: then it is the user's own file now. */
    if (write_job->exists && (write_job->old.st_uid != geteuid() ||
                              write_job->old.st_gid != getegid()) &&
        fchown(write_job->fd, write_job->old.st_uid, write_job->old.st_gid) != 0 &&
        write_job->mode == 0)
        mode &= 01777; /* set-user bits would then mean somebody else */
    if (fchmod(write_job->fd, mode) != 0 || fsync(write_job->fd) != 0)
        return errno;
    int number = 0;
    if (write_job->exclusive)
        number = agent_rename_new(place->parent, write_job->temporary, place->parent,
                                  place->name);
    else if (renameat(place->parent, write_job->temporary, place->parent, place->name) != 0)
        number = errno;
    if (number != 0)
        return number;
    write_job->temporary[0] = 0;
    sync_directory(place->parent);
    return 0;
}

/* The file to add to; `made`: there was none before. */
static int open_target(const struct write_job *write_job, bool *made)
{
    const struct agent_place *place = &write_job->place;
    int flags = O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    int target = openat(place->parent, place->name, flags);
    *made = target < 0 && errno == ENOENT;
    if (*made)
        target = openat(place->parent, place->name, flags | O_CREAT | O_EXCL, 0600);
    /* Another call made it in between. */
    if (target < 0 && *made && errno == EEXIST && !write_job->exclusive) {
        *made = false;
        target = openat(place->parent, place->name, flags);
    }
    return target;
}

static int commit_append(struct write_job *write_job)
{
    const struct agent_place *place = &write_job->place;
    bool made = false;
    SBX_ON_EXIT(sbx_close_fd) int target = open_target(write_job, &made);
    if (target < 0)
        return errno;
    int number = !made && write_job->exclusive ? EEXIST : copy_to_end(write_job, target);
    mode_t mode = write_job->mode != 0 ? write_job->mode : MODE_DEFAULT;
    if (number == 0 && (made || write_job->mode != 0) && fchmod(target, mode) != 0)
        number = errno;
    if (number == 0 && fsync(target) != 0)
        number = errno;
    if (number != 0 && made)
        (void)unlinkat(place->parent, place->name, 0);
    if (number == 0 && made)
        sync_directory(place->parent);
    return number;
}

static int copy_to_end(struct write_job *write_job, int target)
{
    struct stat before, after;
    int number = fstat(target, &before) == 0 ? 0 : errno;
    uint8_t *piece = malloc(AGENT_CHUNK);
    if (piece == NULL)
        return ENOMEM;
    uint64_t copied = 0;
    while (number == 0 && copied < write_job->written) {
        ssize_t got = pread(write_job->fd, piece, AGENT_CHUNK, (off_t)copied);
        if (got < 0 && errno == EINTR)
            continue;
        number = got < 0 ? errno : got == 0 ? EIO : write_all(target, piece, (size_t)got);
        if (number == 0)
            copied += (uint64_t)got;
    }
    free(piece);
    /* A full disk takes back what it took, if nobody else wrote meanwhile. */
    if (number != 0 && fstat(target, &after) == 0 &&
        (uint64_t)(after.st_size - before.st_size) <= copied + AGENT_CHUNK)
        (void)!ftruncate(target, before.st_size);
    return number;
}

/* A directory that cannot be read cannot be synced; the file's own content is safe anyway. */
static void sync_directory(int parent)
{
    SBX_ON_EXIT(sbx_close_fd) int fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        (void)fsync(fd);
}

static void done(struct agent_job *job)
{
    struct write_job *write_job = (struct write_job *)job;
    if (write_job->complete) {
        Sandbox__V1__FileWriteReply reply = SANDBOX__V1__FILE_WRITE_REPLY__INIT;
        reply.written = write_job->written;
        agent_call_answer(job->call, &reply.base);
        return;
    }
    if (is_worth_it(write_job))
        start(write_job);
    if (write_job->paused) {
        write_job->paused = false;
        agent_call_resume(job->call);
    }
}

static void abandon(struct agent_job *job)
{
    struct write_job *write_job = (struct write_job *)job;
    if (write_job->temporary[0] != 0)
        (void)unlinkat(write_job->place.parent, write_job->temporary, 0);
    sbx_close_fd(&write_job->fd);
    agent_place_close(&write_job->place);
}

static void free_job(struct agent_job *job)
{
    struct write_job *write_job = (struct write_job *)job;
    sbx_close_fd(&write_job->fd);
    agent_place_close(&write_job->place);
    sbx_bytes_free(&write_job->queue);
    sbx_bytes_free(&write_job->batch);
}
