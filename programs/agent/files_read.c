/*
 * Reading: the content of a file, and the names in a directory, in pieces as the caller takes them.
 */

#include "files.h"

#include "files_change.h"
#include "util/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define BATCH (1u << 20)  /* read by one piece of work; the call's queue holds as much */
#define LIST_MAX 100000u  /* names told of one directory */
#define LIST_BATCH 256u

struct read_job {
    struct agent_job job;
    char path[AGENT_PATH_MAX];
    bool follow_out, opened, told_size, ended;
    bool blocked; /* the call's queue is full */
    bool holding; /* a batch was read and not sent yet: it is read ahead while the queue drains */
    int fd;
    uint64_t offset, left, file_size;
    uint8_t *data; /* BATCH bytes */
    size_t data_size;
};

struct list_job {
    struct agent_job job;
    char path[AGENT_PATH_MAX];
    DIR *directory;
    unsigned told;
    bool ended, wants;
    struct agent_about *abouts; /* LIST_BATCH */
    unsigned about_count;
};

static void read_work(struct agent_job *job);
static bool open_file(struct read_job *read_job);
static void read_done(struct agent_job *job);
static void send_batch(struct read_job *read_job);
static void read_free(struct agent_job *job);
static void list_work(struct agent_job *job);
static bool open_directory(struct list_job *list);
static void list_done(struct agent_job *job);
static void list_free(struct agent_job *job);

static const struct agent_job_kind read_kind = {.work = read_work, .done = read_done,
                                                .free = read_free};
static const struct agent_job_kind list_kind = {.work = list_work, .done = list_done,
                                                .free = list_free};

void agent_read_message(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__ReadRequest *request = (const Sandbox__V1__ReadRequest *)message;
    struct read_job *read_job = agent_job_new(call, &read_kind, sizeof *read_job);
    if (read_job == NULL)
        return;
    read_job->fd = -1;
    read_job->follow_out = request->follow_out;
    read_job->offset = request->offset;
    read_job->left = request->length == 0 ? UINT64_MAX : request->length;
    if (request->offset > INT64_MAX)
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid", "no file has such an offset");
    else if (agent_path_take(call, &request->path, read_job->path))
        agent_job_start(&read_job->job);
}

void agent_read_ready(struct agent_call *call)
{
    struct read_job *read_job = agent_call_data(call);
    if (read_job == NULL)
        return;
    read_job->blocked = false;
    if (read_job->holding)
        send_batch(read_job);
}

static void read_work(struct agent_job *job)
{
    struct read_job *read_job = (struct read_job *)job;
    if (!read_job->opened && !open_file(read_job))
        return;
    read_job->data_size = 0;
    while (!read_job->ended && read_job->data_size < BATCH) {
        size_t size = BATCH - read_job->data_size;
        if (size > read_job->left)
            size = (size_t)read_job->left;
        ssize_t got = size == 0 ? 0
                                : pread(read_job->fd, read_job->data + read_job->data_size, size,
                                        (off_t)(read_job->offset + read_job->data_size));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            agent_job_fail_errno(job, errno, "cannot read '%s'", read_job->path);
            return;
        }
        read_job->ended = got == 0;
        read_job->data_size += (size_t)got;
        if (read_job->left != UINT64_MAX)
            read_job->left -= (uint64_t)got;
    }
}

static bool open_file(struct read_job *read_job)
{
    struct agent_job *job = &read_job->job;
    struct agent_place place = AGENT_PLACE;
    struct stat about;
    unsigned way = AGENT_PLACE_FOLLOW | (read_job->follow_out ? AGENT_PLACE_OUT : 0);
    int number = agent_place_find(job, read_job->path, way, &place);
    if (number == 0) {
        /* A fifo without a writer would keep the thread for ever. */
        read_job->fd = openat(place.parent, place.name,
                              O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        number = read_job->fd < 0 || fstat(read_job->fd, &about) != 0 ? errno : 0;
    }
    agent_place_close(&place);
    if (number == 0 && S_ISDIR(about.st_mode))
        number = EISDIR;
    if (number != 0) {
        agent_job_fail_errno(job, number, "cannot open '%s'", read_job->path);
        return false;
    }
    if (!S_ISREG(about.st_mode)) {
        agent_job_fail(job, SANDBOX_INVALID, "not-regular", "'%s' is no regular file",
                       read_job->path);
        return false;
    }
    read_job->file_size = (uint64_t)about.st_size;
    read_job->data = malloc(BATCH);
    if (read_job->data == NULL) {
        agent_job_fail(job, SANDBOX_NO_MEMORY, "no-memory", "the agent has no memory");
        return false;
    }
    read_job->opened = true;
    return true;
}

static void read_done(struct agent_job *job)
{
    struct read_job *read_job = (struct read_job *)job;
    read_job->holding = true;
    if (!read_job->blocked)
        send_batch(read_job);
}

static void send_batch(struct read_job *read_job)
{
    struct agent_job *job = &read_job->job;
    bool room = true;
    read_job->holding = false;
    for (size_t at = 0; at < read_job->data_size || !read_job->told_size;) {
        Sandbox__V1__FileChunk chunk = SANDBOX__V1__FILE_CHUNK__INIT;
        size_t size = read_job->data_size - at;
        chunk.offset = read_job->offset + at;
        chunk.data.data = read_job->data + at;
        chunk.data.len = size > AGENT_CHUNK ? AGENT_CHUNK : size;
        chunk.file_size = read_job->told_size ? 0 : read_job->file_size;
        read_job->told_size = true;
        room = agent_call_send(job->call, &chunk.base);
        at += chunk.data.len;
    }
    read_job->offset += read_job->data_size;
    read_job->blocked = !room;
    if (read_job->ended)
        agent_call_finish(job->call);
    else if (!agent_call_is_over(job->call))
        agent_job_start(job);
}

static void read_free(struct agent_job *job)
{
    struct read_job *read_job = (struct read_job *)job;
    sbx_close_fd(&read_job->fd);
    free(read_job->data);
}

void agent_list_message(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__PathRequest *request = (const Sandbox__V1__PathRequest *)message;
    struct list_job *list = agent_job_new(call, &list_kind, sizeof *list);
    if (list != NULL && agent_path_take(call, &request->path, list->path))
        agent_job_start(&list->job);
}

void agent_list_ready(struct agent_call *call)
{
    struct list_job *list = agent_call_data(call);
    if (list == NULL || !list->wants)
        return;
    list->wants = false;
    agent_job_start(&list->job);
}

static void list_work(struct agent_job *job)
{
    struct list_job *list = (struct list_job *)job;
    if (list->directory == NULL && !open_directory(list))
        return;
    list->about_count = 0;
    while (list->about_count < LIST_BATCH) {
        errno = 0;
        struct dirent *entry = readdir(list->directory);
        if (entry == NULL && errno != 0) {
            agent_job_fail_errno(job, errno, "cannot list '%s'", list->path);
            return;
        }
        list->ended = entry == NULL;
        if (list->ended)
            return;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        int number = agent_about_read(dirfd(list->directory), entry->d_name,
                                      &list->abouts[list->about_count]);
        if (number == ENOENT)
            continue; /* removed since */
        if (number != 0) {
            agent_job_fail_errno(job, number, "cannot look at what is in '%s'", list->path);
            return;
        }
        list->about_count++;
        if (++list->told > LIST_MAX) {
            agent_job_fail(job, SANDBOX_LIMIT, "limit",
                           "'%s' holds more than %u entries; look at it with a command",
                           list->path, LIST_MAX);
            return;
        }
    }
}

static bool open_directory(struct list_job *list)
{
    struct agent_place place = AGENT_PLACE;
    int number = agent_place_find(&list->job, list->path, AGENT_PLACE_FOLLOW, &place);
    if (number == 0) {
        int fd = openat(place.parent, place.name,
                        O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        list->directory = fd < 0 ? NULL : fdopendir(fd);
        number = list->directory == NULL ? errno : 0;
        if (list->directory == NULL && fd >= 0)
            close(fd);
    }
    agent_place_close(&place);
    list->abouts = number == 0 ? calloc(LIST_BATCH, sizeof *list->abouts) : NULL;
    if (number == 0 && list->abouts == NULL)
        number = ENOMEM;
    if (number != 0)
        agent_job_fail_errno(&list->job, number, "cannot list '%s'", list->path);
    return number == 0;
}

static void list_done(struct agent_job *job)
{
    struct list_job *list = (struct list_job *)job;
    bool room = true;
    for (unsigned i = 0; i < list->about_count; i++) {
        Sandbox__V1__FileInfo info = SANDBOX__V1__FILE_INFO__INIT;
        agent_about_tell(&list->abouts[i], &info);
        room = agent_call_send(job->call, &info.base);
    }
    if (list->ended)
        agent_call_finish(job->call);
    else if (room)
        agent_job_start(job);
    else
        list->wants = true;
}

static void list_free(struct agent_job *job)
{
    struct list_job *list = (struct list_job *)job;
    if (list->directory != NULL)
        closedir(list->directory);
    free(list->abouts);
}
