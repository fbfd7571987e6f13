/*
 * Taking a snapshot, and finishing one whose taker has died. Both go the same way: the tree is
 * copied and the parts are digested only once nothing of it changes any more, and the new
 * directory gets its name when all of it is durable.
 */

#include "drivers/gvisor/snapshot.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/log.h"
#include "util/memory.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONFIG_MAX  (1u << 20)
#define LIST_BUFFER (256u << 10)

/* One being made. */
struct making {
    struct sbx_gvisor *driver;
    const struct sbx_record *record;
    struct sbx_snapshot *snapshot;
    const struct sbx_wait *wait;
    struct sbx_progress *progress;
    struct sbx_crew *crew;
    struct sbx_gvisor_manifest manifest;
    char path[SBX_GVISOR_SNAPSHOT_PATH], fresh[SBX_GVISOR_SNAPSHOT_PATH];
    int directory; /* of the new one */
    int lock, channels;
    int told; /* by the checkpoint */
    int list; /* files.list while it is written */
    struct sbx_bytes lines;
    uint64_t copied;
};

static sandbox_status begin(struct making *making, struct sbx_gvisor *driver,
                            const struct sbx_record *record, struct sbx_snapshot *snapshot,
                            sandbox_error *error);
static void end_making(struct making *making);
static sandbox_status make_directory(struct making *making, sandbox_error *error);
static void spread(int state, const char *folder);
static sandbox_status take_memory(struct making *making, sandbox_error *error);
static sandbox_status describe_memory(struct making *making, struct sbx_gvisor_runtime *runtime,
                                      sandbox_error *error);
static sandbox_status checkpoint(struct making *making, sandbox_error *error);
static sandbox_status describe(struct making *making, sandbox_error *error);
static sandbox_status copy_tree(struct making *making, sandbox_error *error);
static sandbox_status list_line(void *user_data, const char *line, size_t size, const char *path,
                                sandbox_error *error);
static sandbox_status write_lines(struct making *making, sandbox_error *error);
static void tell_copied(void *user_data, uint64_t bytes);
static sandbox_status list_parts(struct making *making, sandbox_error *error);
static sandbox_status complete(struct making *making, sandbox_error *error);
static sandbox_status settle(struct making *making, int directory, const char *digest,
                             sandbox_error *error);
static sandbox_status find_complete(struct making *making, sandbox_error *error);
static sandbox_status finish_begun(struct making *making, sandbox_error *error);
static void forget(struct making *making);

sandbox_status sbx_gvisor_snapshot_take(void *state, const struct sbx_record *record,
                                        struct sbx_snapshot *snapshot,
                                        struct sbx_progress *progress, const struct sbx_wait *wait,
                                        sandbox_error *error)
{
    SBX_ON_EXIT(end_making) struct making making = {.wait = wait, .progress = progress};
    sandbox_status status = begin(&making, state, record, snapshot, error);
    if (status == SANDBOX_OK && faccessat(making.driver->directory, making.path, F_OK, 0) == 0)
        return sbx_fail_for(error, SANDBOX_EXISTS, "snapshot-exists",
                            "there is a snapshot '%s' already", snapshot->id);
    if (status == SANDBOX_OK)
        status = make_directory(&making, error);
    if (status != SANDBOX_OK)
        return status;
    if (snapshot->kind == SANDBOX_KEEP_MEMORY)
        return take_memory(&making, error);

    status = describe(&making, error);
    if (status == SANDBOX_OK)
        status = copy_tree(&making, error);
    if (status == SANDBOX_OK)
        status = complete(&making, error);
    if (status != SANDBOX_OK)
        forget(&making);
    return status;
}

sandbox_status sbx_gvisor_snapshot_adopt(void *state, const struct sbx_record *record,
                                         struct sbx_snapshot *snapshot, const struct sbx_wait *wait,
                                         sandbox_error *error)
{
    SBX_ON_EXIT(end_making) struct making making = {.wait = wait};
    /* Whoever still works on it holds the lock; a runsc that was killed left the sandbox to it. */
    sandbox_status status = begin(&making, state, record, snapshot, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_checkpoint_quiet(making.driver, record, wait, error);
    if (status == SANDBOX_OK)
        status = find_complete(&making, error);
    if (status != SANDBOX_NOT_FOUND)
        return status;
    making.directory = openat(making.driver->directory, making.fresh,
                              O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (making.directory < 0 && errno != ENOENT)
        return sbx_fail_errno(error, errno, "cannot open the snapshot '%s'", snapshot->id);
    if (making.directory >= 0 && snapshot->kind == SANDBOX_KEEP_MEMORY &&
        sbx_gvisor_checkpoint_finished(making.directory))
        return finish_begun(&making, error);
    forget(&making);
    return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-such-snapshot",
                        "the snapshot '%s' was begun and not completed", snapshot->id);
}

static sandbox_status begin(struct making *making, struct sbx_gvisor *driver,
                            const struct sbx_record *record, struct sbx_snapshot *snapshot,
                            sandbox_error *error)
{
    making->driver = driver;
    making->record = record;
    making->snapshot = snapshot;
    making->directory = making->lock = making->channels = making->told = making->list = -1;
    making->lines.limit = 2 * LIST_BUFFER;
    if (!sbx_gvisor_snapshot_path(record->id, snapshot->id, "", making->path) ||
        !sbx_gvisor_snapshot_path(record->id, snapshot->id, ".new", making->fresh))
        return sbx_fail(error, SANDBOX_INVALID, "'%s' is no snapshot's id", snapshot->id);
    making->crew = sbx_crew_new();
    if (making->crew == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a snapshot");
    return sbx_gvisor_fence(driver, record, making->wait, &making->lock, error);
}

static void end_making(struct making *making)
{
    sbx_gvisor_manifest_clear(&making->manifest);
    sbx_crew_free(making->crew);
    sbx_bytes_free(&making->lines);
    sbx_close_fd(&making->list);
    sbx_close_fd(&making->told);
    sbx_close_fd(&making->channels);
    sbx_close_fd(&making->directory);
    sbx_close_fd(&making->lock);
}

static sandbox_status make_directory(struct making *making, sandbox_error *error)
{
    char folder[64];
    int state = making->driver->directory;
    snprintf(folder, sizeof folder, "workspaces/%s/snapshots", making->record->id);
    sandbox_status status = sbx_gvisor_directory(state, folder, 0700, error);
    if (status == SANDBOX_OK)
        spread(state, folder);
    if (status == SANDBOX_OK)
        status = sbx_tree_remove(state, making->fresh, error); /* of a taker that died */
    if (status == SANDBOX_OK)
        status = sbx_gvisor_directory(state, making->fresh, 0700, error);
    if (status != SANDBOX_OK)
        return status;
    making->directory =
        openat(state, making->fresh, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return making->directory >= 0 ? SANDBOX_OK
                                  : sbx_fail_errno(error, errno, "cannot make a snapshot");
}

/*
 * ext4 puts the files of a new snapshot where those of a removed one were, and looks long at each
 * number that was in use a minute ago: a copy took ten times as long. As the tops of trees of
 * their own, snapshots lie apart. A file system that does not know the flag has no such trouble.
 */
static void spread(int state, const char *folder)
{
    SBX_ON_EXIT(sbx_close_fd)
    int fd = openat(state, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int flags = 0;
    if (fd < 0 || ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0 || (flags & FS_TOPDIR_FL) != 0)
        return;
    flags |= FS_TOPDIR_FL;
    (void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
}

/* Until runsc is started nothing has changed; from then on only what it leaves counts. */
static sandbox_status take_memory(struct making *making, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_gvisor_runtime_clear) struct sbx_gvisor_runtime runtime = {0};
    const struct sbx_record *record = making->record;
    sandbox_status status =
        sbx_gvisor_is_running(making->driver, record->id, record->incarnation)
            ? SANDBOX_OK
            : sbx_fail_for(error, SANDBOX_UNAVAILABLE, "no-instance",
                           "the recorded instance of '%s' does not run", record->name);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_channels_hold(making->driver, record, making->wait, &making->channels,
                                          error);
    if (status == SANDBOX_OK)
        status = describe_memory(making, &runtime, error);
    /* Made here, so that it can be watched before there is anything in it. */
    if (status == SANDBOX_OK)
        status = sbx_gvisor_directory(making->directory, "image", 0700, error);
    if (status == SANDBOX_OK) {
        SBX_ON_EXIT(sbx_free_text)
        char *place = sbx_gvisor_path(making->driver, "%s", making->fresh);
        const int locks[2] = {making->lock, making->channels};
        status = place == NULL ? sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path")
                               : sbx_gvisor_checkpoint_start(making->driver, record->id, place,
                                                             &runtime, locks, &making->told, error);
    }
    if (status != SANDBOX_OK) {
        forget(making);
        return status;
    }
    return checkpoint(making, error);
}

/* The copies of files, and a look at all of the base, go on while runsc writes. */
static sandbox_status checkpoint(struct making *making, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_gvisor_side_join) struct sbx_gvisor_side side = {0};
    sandbox_error why = {0};
    struct sbx_gvisor_manifest *manifest = &making->manifest;
    sandbox_status copied = SANDBOX_OK;
    if (manifest->contents[0] == '\0')
        copied = sbx_gvisor_side_start(&side, making->driver, &manifest->pins,
                                       making->record->image, NULL, making->wait, &why);
    if (copied == SANDBOX_OK)
        copied = copy_tree(making, &why);
    sandbox_status status = SANDBOX_OK;
    if (copied != SANDBOX_TIMED_OUT && copied != SANDBOX_CANCELLED)
        status = sbx_gvisor_checkpoint_await(making->driver, making->record, making->directory,
                                             making->told, making->wait, error);
    /* Nobody's time is up for the process that goes on: what it makes is there to be adopted. */
    if (status == SANDBOX_TIMED_OUT || status == SANDBOX_CANCELLED)
        return status;
    if (status != SANDBOX_OK) {
        forget(making);
        return status;
    }
    if (copied == SANDBOX_OK)
        copied = sbx_gvisor_side_end(&side, &why);
    if (copied == SANDBOX_OK && manifest->contents[0] == '\0')
        memcpy(manifest->contents, side.contents, sizeof side.contents);
    if (copied == SANDBOX_OK)
        copied = complete(making, &why);
    if (copied != SANDBOX_OK && error != NULL)
        *error = why;
    return copied;
}

/* What is known before it begins, and would not be known any more to whoever has to finish it. */
static sandbox_status describe_memory(struct making *making, struct sbx_gvisor_runtime *runtime,
                                      sandbox_error *error)
{
    struct sbx_gvisor_manifest *manifest = &making->manifest;
    struct sbx_gvisor *driver = making->driver;
    char path[80], digest[SBX_HASH_TEXT];
    snprintf(path, sizeof path, "workspaces/%s/bundle/config.json", making->record->id);
    uint8_t *data = NULL, hash[SBX_DIGEST_BYTES];
    size_t size = 0;
    sandbox_status status = sbx_file_read(driver->directory, path, CONFIG_MAX, &data, &size, error);
    SBX_ON_EXIT(sbx_free_text) char *config = (char *)data;
    if (status == SANDBOX_OK)
        status = sbx_gvisor_file(making->directory, "config.json", config, size, 0600, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_pins_of(driver, making->record->id, &manifest->pins, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_runtime_pinned(driver, manifest->pins.runtime, runtime, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_held_list(driver, making->record, &manifest->pins, config,
                                      making->directory, manifest->contents, error);
    if (status == SANDBOX_OK)
        status = describe(making, error);
    if (status != SANDBOX_OK)
        return status;
    sbx_sha256(config, size, hash);
    sbx_hex_print(hash, sizeof hash, manifest->spec);
    snprintf(manifest->version, sizeof manifest->version, "%s", runtime->runsc.version);
    snprintf(manifest->platform, sizeof manifest->platform, "%s",
             sbx_gvisor_platform(driver, &runtime->runsc));
    snprintf(manifest->flags, sizeof manifest->flags, "%s", sbx_gvisor_flags);
    manifest->features = sbx_gvisor_features();
    if (manifest->features == NULL)
        return sbx_fail(error, SANDBOX_FAILED, "cannot read /proc/cpuinfo");
    return sbx_gvisor_manifest_write(making->directory, "begun.json", manifest, digest, error);
}

static sandbox_status describe(struct making *making, sandbox_error *error)
{
    struct sbx_gvisor_manifest *manifest = &making->manifest;
    const struct sbx_snapshot *snapshot = making->snapshot;
    memcpy(manifest->workspace, making->record->id, sizeof manifest->workspace);
    memcpy(manifest->snapshot, snapshot->id, sizeof manifest->snapshot);
    memcpy(manifest->run, snapshot->run, sizeof manifest->run);
    memcpy(manifest->seal_hash, snapshot->seal_hash, sizeof manifest->seal_hash);
    manifest->kind = snapshot->kind;
    manifest->epoch = making->record->epoch;
    manifest->created_ms =
        snapshot->created_ms > 0 ? snapshot->created_ms : sbx_clock_wall(&sbx_system_clock);
    if (manifest->kind != SANDBOX_KEEP_MEMORY)
        manifest->features = sbx_copy("");
    return manifest->kind != SANDBOX_KEEP_MEMORY && manifest->features == NULL
               ? sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a snapshot")
               : SANDBOX_OK;
}

static sandbox_status copy_tree(struct making *making, sandbox_error *error)
{
    char path[64];
    snprintf(path, sizeof path, "workspaces/%s/files", making->record->id);
    SBX_ON_EXIT(sbx_close_fd)
    int files =
        openat(making->driver->directory, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (files < 0)
        return sbx_fail_errno(error, errno, "cannot open the workspace's files");
    making->list = openat(making->directory, "files.list",
                          O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (making->list < 0)
        return sbx_fail_errno(error, errno, "cannot write the snapshot's list of files");
    struct sbx_tree_job job = {.wait = making->wait,
                               .crew = making->crew,
                               .line = list_line,
                               .moved = tell_copied,
                               .user_data = making};
    struct sbx_tree_facts facts;
    sandbox_status status = sbx_tree_copy(files, making->directory, "files", &job, &facts, error);
    if (status == SANDBOX_OK)
        status = write_lines(making, error);
    sbx_close_fd(&making->list);
    if (status != SANDBOX_OK)
        return status;
    sbx_hex_print(facts.digest, sizeof facts.digest, making->manifest.tree);
    making->manifest.tree_entries = facts.entries;
    making->manifest.tree_bytes = facts.bytes;
    return SANDBOX_OK;
}

static sandbox_status list_line(void *user_data, const char *line, size_t size, const char *path,
                                sandbox_error *error)
{
    struct making *making = user_data;
    if (!sbx_bytes_append(&making->lines, line, size))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a list of files");
    return sbx_bytes_size(&making->lines) < LIST_BUFFER ? SANDBOX_OK : write_lines(making, error);
}

static sandbox_status write_lines(struct making *making, sandbox_error *error)
{
    size_t size = sbx_bytes_size(&making->lines);
    int failed = size == 0 ? 0 : sbx_write_all(making->list, sbx_bytes_data(&making->lines), size);
    sbx_bytes_skip(&making->lines, size);
    return failed == 0 ? SANDBOX_OK
                       : sbx_fail_errno(error, failed, "cannot write the snapshot's list of files");
}

static void tell_copied(void *user_data, uint64_t bytes)
{
    struct making *making = user_data;
    making->copied += bytes;
    if (making->progress != NULL && making->progress->moved != NULL)
        making->progress->moved(making->progress, "copy", making->copied, 0);
}

/* All that is there beside the tree, and nothing that only the making needed. */
static sandbox_status list_parts(struct making *making, sandbox_error *error)
{
    struct sbx_gvisor_manifest *manifest = &making->manifest;
    sandbox_status status = sbx_gvisor_part_add(making->directory, manifest, "files.list", error);
    if (status != SANDBOX_OK || manifest->kind != SANDBOX_KEEP_MEMORY)
        return status;
    status = sbx_gvisor_part_add(making->directory, manifest, "config.json", error);
    if (status == SANDBOX_OK && faccessat(making->directory, "base.list", F_OK, 0) == 0)
        status = sbx_gvisor_part_add(making->directory, manifest, "base.list", error);
    int fd = openat(making->directory, "image", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *image = fd < 0 ? NULL : fdopendir(fd);
    if (image == NULL) {
        sbx_close_fd(&fd);
        return sbx_fail(error, SANDBOX_FAILED, "runsc has left no image");
    }
    size_t found = 0;
    for (struct dirent *entry; status == SANDBOX_OK && (entry = readdir(image)) != NULL;) {
        char path[SBX_GVISOR_PART_PATH + 128];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof path, "image/%.255s", entry->d_name);
        status = sbx_gvisor_part_add(making->directory, manifest, path, error);
        found++;
    }
    closedir(image);
    if (status == SANDBOX_OK && found == 0)
        status = sbx_fail(error, SANDBOX_FAILED, "runsc has left no image");
    return status;
}

/* Digests all, and gives it its name once it is durable. */
static sandbox_status complete(struct making *making, sandbox_error *error)
{
    struct sbx_gvisor_manifest *manifest = &making->manifest;
    char digest[SBX_HASH_TEXT];
    sandbox_status status = list_parts(making, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_parts_digest(making->directory, manifest, false, making->crew,
                                         making->progress, making->wait, NULL, error);
    if (status == SANDBOX_OK && making->told >= 0)
        status = sbx_gvisor_checkpoint_end(making->told, making->wait, error);
    if (status == SANDBOX_OK)
        status =
            sbx_gvisor_manifest_write(making->directory, "manifest.json", manifest, digest, error);
    if (status == SANDBOX_OK && syncfs(making->directory) < 0)
        status = sbx_fail_errno(error, errno, "cannot make the snapshot durable");
    if (status == SANDBOX_OK && renameat(making->driver->directory, making->fresh,
                                         making->driver->directory, making->path) < 0)
        status = sbx_fail_errno(error, errno, "cannot complete the snapshot");
    return status != SANDBOX_OK ? status : settle(making, making->directory, digest, error);
}

/* It has its name. What only the making needed goes now: before, a crash would have lost it all. */
static sandbox_status settle(struct making *making, int directory, const char *digest,
                             sandbox_error *error)
{
    static const char *const scraps[] = {"begun.json", "finished", "finished.new"};
    char folder[64];
    for (size_t n = 0; n < sizeof scraps / sizeof scraps[0]; n++) {
        if (unlinkat(directory, scraps[n], 0) < 0 && errno != ENOENT)
            return sbx_fail_errno(error, errno, "cannot complete the snapshot");
    }
    snprintf(folder, sizeof folder, "workspaces/%s/snapshots", making->record->id);
    sandbox_status status = sbx_directory_sync(directory, ".", error);
    if (status == SANDBOX_OK)
        status = sbx_directory_sync(making->driver->directory, folder, error);
    if (status != SANDBOX_OK)
        return status;
    if (making->snapshot->kind == SANDBOX_KEEP_MEMORY)
        sbx_gvisor_checkpoint_over(making->driver, making->record, making->wait);
    snprintf(making->snapshot->digest, SBX_HASH_TEXT, "%s", digest);
    making->snapshot->bytes = sbx_gvisor_manifest_bytes(&making->manifest);
    return SANDBOX_OK;
}

/* SANDBOX_NOT_FOUND: there is none of that name. */
static sandbox_status find_complete(struct making *making, sandbox_error *error)
{
    char digest[SBX_HASH_TEXT];
    SBX_ON_EXIT(sbx_close_fd)
    int directory = openat(making->driver->directory, making->path,
                           O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (directory < 0)
        return sbx_fail_errno(error, errno, "cannot open the snapshot '%s'", making->snapshot->id);
    struct sbx_gvisor_manifest *manifest = &making->manifest;
    sandbox_status status =
        sbx_gvisor_manifest_read(directory, "manifest.json", manifest, digest, error);
    if (status == SANDBOX_OK && (strcmp(manifest->workspace, making->record->id) != 0 ||
                                 strcmp(manifest->snapshot, making->snapshot->id) != 0 ||
                                 strcmp(manifest->seal_hash, making->snapshot->seal_hash) != 0))
        status = sbx_fail_for(error, SANDBOX_FAILED, "snapshot-damaged",
                              "what is there is not the snapshot '%s'", making->snapshot->id);
    if (status != SANDBOX_OK)
        return status == SANDBOX_NOT_FOUND ? SANDBOX_FAILED : status;
    return settle(making, directory, digest, error);
}

/* The image is there; the files are still as they were, for nobody was let in meanwhile. */
static sandbox_status finish_begun(struct making *making, sandbox_error *error)
{
    char digest[SBX_HASH_TEXT];
    static const char *const again[] = {"files", "files.links", "files.list", "manifest.json"};
    struct sbx_gvisor_manifest *manifest = &making->manifest;
    sandbox_status status =
        sbx_gvisor_manifest_read(making->directory, "begun.json", manifest, digest, error);
    if (status == SANDBOX_OK && (strcmp(manifest->snapshot, making->snapshot->id) != 0 ||
                                 strcmp(manifest->seal_hash, making->snapshot->seal_hash) != 0))
        status = sbx_fail_for(error, SANDBOX_FAILED, "snapshot-damaged",
                              "what was begun is not the snapshot '%s'", making->snapshot->id);
    for (size_t n = 0; status == SANDBOX_OK && n < sizeof again / sizeof again[0]; n++)
        status = sbx_tree_remove(making->directory, again[n], error);
    if (status == SANDBOX_OK)
        status = copy_tree(making, error);
    if (status == SANDBOX_OK && manifest->contents[0] == '\0')
        status = sbx_gvisor_pins_print(making->driver, &manifest->pins, making->record->image,
                                       making->wait, manifest->contents, error);
    return status != SANDBOX_OK ? status : complete(making, error);
}

/* The caller's time may be up; half a snapshot helps nobody. */
static void forget(struct making *making)
{
    sandbox_error left = {0};
    sbx_close_fd(&making->list);
    sbx_close_fd(&making->directory);
    if (sbx_tree_remove(making->driver->directory, making->fresh, &left) != SANDBOX_OK)
        sbx_log(SANDBOX_LOG_WARNING, "something of a snapshot of '%s' may be left: %s",
                making->record->name, left.message);
}
