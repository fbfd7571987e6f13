/* A look at every byte of a snapshot, and at what does not belong to it. */

#include "drivers/gvisor/snapshot.h"
#include "util/fail.h"
#include "util/memory.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define BUFFER (64u << 10)

/* The list of files, read beside the tree. */
struct list {
    int fd;
    char *buffer;
    size_t at, end;
    struct sbx_progress *progress;
    uint64_t done, total;
};

static sandbox_status look(struct sbx_gvisor *driver, const struct sbx_record *record,
                           const struct sbx_snapshot *snapshot, struct sbx_progress *progress,
                           const struct sbx_wait *wait, struct sbx_verdict *out,
                           sandbox_error *error);
static sandbox_status check_names(int directory, const char *folder,
                                  const struct sbx_gvisor_manifest *manifest, sandbox_error *error);
static bool belongs(const struct sbx_gvisor_manifest *manifest, const char *folder,
                    const char *name);
static sandbox_status check_tree(int directory, const struct sbx_gvisor_manifest *manifest,
                                 struct sbx_crew *crew, struct sbx_progress *progress,
                                 const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status compare_line(void *user_data, const char *line, size_t size, const char *path,
                                   sandbox_error *error);
static void tell_read(void *user_data, uint64_t bytes);
static bool is_over(sandbox_status status);

sandbox_status sbx_gvisor_snapshot_verify(void *state, const struct sbx_record *record,
                                          const struct sbx_snapshot *snapshot,
                                          struct sbx_progress *progress,
                                          const struct sbx_wait *wait, struct sbx_verdict *out,
                                          sandbox_error *error)
{
    sandbox_error why = {0};
    *out = (struct sbx_verdict){.verdict = SANDBOX_VERDICT_INTACT};
    sandbox_status status = look(state, record, snapshot, progress, wait, out, &why);
    if (is_over(status)) {
        if (error != NULL)
            *error = why;
        return status;
    }
    if (status == SANDBOX_OK)
        return SANDBOX_OK;
    out->verdict = strcmp(why.reason, "snapshot-damaged") == 0   ? SANDBOX_VERDICT_DAMAGED
                   : strcmp(why.reason, "snapshot-missing") == 0 ? SANDBOX_VERDICT_MISSING
                                                                 : SANDBOX_VERDICT_CANNOT_TELL;
    snprintf(out->evidence, sizeof out->evidence, "%.*s", (int)sizeof out->evidence - 1,
             why.message);
    return SANDBOX_OK;
}

static sandbox_status look(struct sbx_gvisor *driver, const struct sbx_record *record,
                           const struct sbx_snapshot *snapshot, struct sbx_progress *progress,
                           const struct sbx_wait *wait, struct sbx_verdict *out,
                           sandbox_error *error)
{
    SBX_ON_EXIT(sbx_close_fd) int directory = -1;
    SBX_ON_EXIT(sbx_gvisor_manifest_clear) struct sbx_gvisor_manifest manifest = {0};
    SBX_ON_EXIT(sbx_crew_end) struct sbx_crew *crew = sbx_crew_new();
    if (crew == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to read a snapshot");
    sandbox_status status =
        sbx_gvisor_snapshot_open(driver, record, snapshot, &directory, &manifest, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_parts_look(directory, &manifest, error);
    if (status == SANDBOX_OK)
        status = check_names(directory, "", &manifest, error);
    if (status == SANDBOX_OK && manifest.kind == SANDBOX_KEEP_MEMORY)
        status = check_names(directory, "image/", &manifest, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_parts_digest(directory, &manifest, true, crew, progress, wait,
                                         &out->bytes, error);
    out->files = (uint32_t)manifest.part_count;
    if (status == SANDBOX_OK)
        status = check_tree(directory, &manifest, crew, progress, wait, error);
    if (status != SANDBOX_OK)
        return status;
    uint64_t files = out->files + manifest.tree_entries;
    out->files = files > UINT32_MAX ? UINT32_MAX : (uint32_t)files;
    out->bytes += manifest.tree_bytes;
    return SANDBOX_OK;
}

/* `folder` is "" or "image/". */
static sandbox_status check_names(int directory, const char *folder,
                                  const struct sbx_gvisor_manifest *manifest, sandbox_error *error)
{
    int fd = openat(directory, *folder == '\0' ? "." : folder,
                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *names = fd < 0 ? NULL : fdopendir(fd);
    if (names == NULL) {
        int number = errno;
        sbx_close_fd(&fd);
        return sbx_fail_errno(error, number, "cannot list the snapshot");
    }
    sandbox_status status = SANDBOX_OK;
    struct dirent *entry;
    while (status == SANDBOX_OK && (errno = 0, entry = readdir(names)) != NULL) {
        if (!belongs(manifest, folder, entry->d_name))
            status = sbx_fail_for(error, SANDBOX_NOT_RESTORED, "snapshot-damaged",
                                  "'%s%s' does not belong to the snapshot", folder, entry->d_name);
    }
    if (status == SANDBOX_OK && errno != 0)
        status = sbx_fail_errno(error, errno, "cannot list the snapshot");
    closedir(names);
    return status;
}

static bool belongs(const struct sbx_gvisor_manifest *manifest, const char *folder,
                    const char *name)
{
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return true;
    if (*folder == '\0' && (strcmp(name, "manifest.json") == 0 || strcmp(name, "files") == 0 ||
                            (strcmp(name, "image") == 0 && manifest->kind == SANDBOX_KEEP_MEMORY)))
        return true;
    size_t size = strlen(folder);
    for (size_t n = 0; n < manifest->part_count; n++) {
        const char *path = manifest->parts[n].path;
        if (strncmp(path, folder, size) == 0 && strcmp(path + size, name) == 0)
            return true;
    }
    return false;
}

static sandbox_status check_tree(int directory, const struct sbx_gvisor_manifest *manifest,
                                 struct sbx_crew *crew, struct sbx_progress *progress,
                                 const struct sbx_wait *wait, sandbox_error *error)
{
    char digest[SBX_GVISOR_DIGEST_TEXT];
    SBX_ON_EXIT(sbx_close_fd)
    int files = openat(directory, "files", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (files < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "snapshot-missing",
                            "the files of the snapshot are missing");
    SBX_ON_EXIT(sbx_close_fd)
    int list_fd = openat(directory, "files.list", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (files < 0 || list_fd < 0)
        return sbx_fail_errno(error, errno, "cannot read the files of the snapshot");
    SBX_ON_EXIT(sbx_free_text) char *buffer = malloc(BUFFER);
    if (buffer == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to read a snapshot");
    struct list list = {
        .fd = list_fd, .buffer = buffer, .progress = progress, .total = manifest->tree_bytes};
    struct sbx_tree_job job = {
        .wait = wait, .crew = crew, .line = compare_line, .moved = tell_read, .user_data = &list};
    struct sbx_tree_facts facts;
    sandbox_status status = sbx_tree_digest(files, &job, &facts, error);
    if (status != SANDBOX_OK)
        return status;
    sbx_hex_print(facts.digest, sizeof facts.digest, digest);
    if (strcmp(digest, manifest->tree) != 0 || facts.skipped > 0 || list.at != list.end ||
        read(list.fd, buffer, 1) != 0)
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "snapshot-damaged",
                            "the files of the snapshot are not those that were recorded");
    return SANDBOX_OK;
}

/* The list itself has been compared with its digest: here it tells which file it is. */
static sandbox_status compare_line(void *user_data, const char *line, size_t size, const char *path,
                                   sandbox_error *error)
{
    struct list *list = user_data;
    while (size > 0) {
        if (list->at == list->end) {
            ssize_t got = read(list->fd, list->buffer, BUFFER);
            if (got < 0 && errno == EINTR)
                continue;
            if (got < 0)
                return sbx_fail_errno(error, errno, "cannot read 'files.list' of the snapshot");
            list->at = 0;
            list->end = (size_t)got;
        }
        size_t piece = list->end - list->at < size ? list->end - list->at : size;
        if (piece == 0 || memcmp(list->buffer + list->at, line, piece) != 0)
            return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "snapshot-damaged",
                                "the files of the snapshot differ from what was recorded at "
                                "'files/%s'",
                                path);
        list->at += piece;
        line += piece;
        size -= piece;
    }
    return SANDBOX_OK;
}

static void tell_read(void *user_data, uint64_t bytes)
{
    struct list *list = user_data;
    list->done += bytes;
    if (list->progress != NULL && list->progress->moved != NULL)
        list->progress->moved(list->progress, "verify", list->done, list->total);
}

/* What says nothing about the snapshot, but about the call. */
static bool is_over(sandbox_status status)
{
    return status == SANDBOX_TIMED_OUT || status == SANDBOX_CANCELLED ||
           status == SANDBOX_NO_MEMORY || status == SANDBOX_INVALID;
}
