/* Where snapshots are, whether one can be taken, and their end. */

#include "drivers/gvisor/snapshot.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MARGIN_BYTES (UINT64_C(64) << 20) /* and a twentieth of what is needed */
#define CPUINFO_MAX  (16u << 20)

const char sbx_gvisor_flags[] = "--network=none --ignore-cgroups --overlay2=root:memory";

static sandbox_status check_room(struct sbx_gvisor *driver, const struct sbx_record *record,
                                 bool memory, const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status measure_room(int workspace, uint64_t *left, sandbox_error *error);
static sandbox_status measure_files(int workspace, const struct sbx_wait *wait, uint64_t *bytes,
                                    sandbox_error *error);
static bool can_clone(int directory);
static sandbox_status check_manifest(const struct sbx_record *record,
                                     const struct sbx_snapshot *snapshot,
                                     const struct sbx_gvisor_manifest *manifest, const char *digest,
                                     sandbox_error *error);

bool sbx_gvisor_snapshot_path(const char *workspace, const char *snapshot, const char *ending,
                              char path[SBX_GVISOR_SNAPSHOT_PATH])
{
    uint8_t id[SBX_ID_BYTES];
    if (!sbx_id_parse(workspace, id) || !sbx_id_parse(snapshot, id))
        return false; /* nothing else may become part of a path */
    return (size_t)snprintf(path, SBX_GVISOR_SNAPSHOT_PATH, "workspaces/%s/snapshots/%s%s",
                            workspace, snapshot, ending) < SBX_GVISOR_SNAPSHOT_PATH;
}

/* The sentry of 2022 can save no TCP socket that sits in an epoll set. */
bool sbx_gvisor_needs_parking(void *state, const struct sbx_record *record)
{
    struct sbx_gvisor_pins pins;
    SBX_ON_EXIT(sbx_gvisor_runtime_clear) struct sbx_gvisor_runtime runtime = {0};
    return sbx_gvisor_pins_of(state, record->id, &pins, NULL) != SANDBOX_OK ||
           sbx_gvisor_runtime_pinned(state, pins.runtime, &runtime, NULL) != SANDBOX_OK ||
           runtime.runsc.needs_shim;
}

sandbox_status sbx_gvisor_snapshot_prepare(void *state, const struct sbx_record *record,
                                           const struct sbx_snapshot *snapshot,
                                           const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_gvisor *driver = state;
    bool memory = snapshot->kind == SANDBOX_KEEP_MEMORY;
    char path[SBX_GVISOR_SNAPSHOT_PATH];
    if (!sbx_gvisor_snapshot_path(record->id, snapshot->id, "", path))
        return sbx_fail(error, SANDBOX_INVALID, "'%s' is no snapshot's id", snapshot->id);
    if (memory || snapshot->seal_hash[0] != '\0') {
        if (!sbx_gvisor_is_running(driver, record->id, record->incarnation))
            return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "no-instance",
                                "the recorded instance of '%s' does not run", record->name);
    }
    if (memory) {
        struct sbx_gvisor_pins pins;
        sandbox_status status = sbx_gvisor_pins_of(driver, record->id, &pins, error);
        if (status != SANDBOX_OK)
            return status;
    }
    return check_room(driver, record, memory, wait, error);
}

sandbox_status sbx_gvisor_snapshot_remove(void *state, const struct sbx_record *record,
                                          const char *snapshot_id, const struct sbx_wait *wait,
                                          sandbox_error *error)
{
    struct sbx_gvisor *driver = state;
    char fresh[SBX_GVISOR_SNAPSHOT_PATH];
    if (!sbx_gvisor_snapshot_path(record->id, snapshot_id, ".new", fresh))
        return sbx_fail(error, SANDBOX_INVALID, "'%s' is no snapshot's id", snapshot_id);
    SBX_ON_EXIT(sbx_close_fd) int lock = -1;
    sandbox_status status = sbx_gvisor_fence(driver, record, wait, &lock, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_sweep(driver, record->id, snapshot_id, wait, error);
    if (status == SANDBOX_OK)
        status = sbx_tree_remove(driver->directory, fresh, error);
    if (status == SANDBOX_OK)
        sbx_gvisor_pins_collect(driver);
    return status;
}

sandbox_status sbx_gvisor_snapshot_open(struct sbx_gvisor *driver, const struct sbx_record *record,
                                        const struct sbx_snapshot *snapshot, int *directory,
                                        struct sbx_gvisor_manifest *manifest, sandbox_error *error)
{
    char path[SBX_GVISOR_SNAPSHOT_PATH], digest[SBX_HASH_TEXT] = "";
    if (!sbx_gvisor_snapshot_path(record->id, snapshot->id, "", path))
        return sbx_fail(error, SANDBOX_INVALID, "'%s' is no snapshot's id", snapshot->id);
    SBX_ON_EXIT(sbx_close_fd)
    int opened = openat(driver->directory, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (opened < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "snapshot-missing",
                            "the snapshot '%s' is not there", snapshot->id);
    if (opened < 0)
        return sbx_fail_errno(error, errno, "cannot open the snapshot '%s'", snapshot->id);
    SBX_ON_EXIT(sbx_gvisor_manifest_clear) struct sbx_gvisor_manifest read = {0};
    sandbox_error why = {0};
    sandbox_status status = sbx_gvisor_manifest_read(opened, "manifest.json", &read, digest, &why);
    if (status == SANDBOX_NOT_FOUND)
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "snapshot-missing",
                            "'manifest.json' of the snapshot is missing");
    bool is_damaged = strcmp(why.reason, "snapshot-damaged") == 0;
    if (status != SANDBOX_OK && !is_damaged) {
        if (error != NULL)
            *error = why;
        return status;
    }
    if (is_damaged)
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "snapshot-damaged", "%s", why.message);
    status = check_manifest(record, snapshot, &read, digest, error);
    if (status != SANDBOX_OK)
        return status;
    *directory = sbx_take_fd(&opened);
    *manifest = read;
    read = (struct sbx_gvisor_manifest){0};
    return SANDBOX_OK;
}

/* The first line of that kind; all processors of a machine are alike here. */
char *sbx_gvisor_features(void)
{
    static const char *const names[] = {"\nflags", "\nFeatures"};
    uint8_t *data = NULL;
    size_t size = 0;
    if (sbx_file_read(AT_FDCWD, "/proc/cpuinfo", CPUINFO_MAX, &data, &size, NULL) != SANDBOX_OK)
        return NULL;
    SBX_ON_EXIT(sbx_free_text) char *text = (char *)data;
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        const char *line = strstr(text, names[n]);
        const char *colon = line == NULL ? NULL : strchr(line, ':');
        if (colon == NULL)
            continue;
        colon += strspn(colon, ": \t");
        return sbx_format("%.*s", (int)strcspn(colon, "\n"), colon);
    }
    return sbx_copy("");
}

bool sbx_gvisor_features_suffice(const char *features, char missing[32])
{
    SBX_ON_EXIT(sbx_free_text) char *now = sbx_gvisor_features();
    SBX_ON_EXIT(sbx_free_text) char *padded = now == NULL ? NULL : sbx_format(" %s ", now);
    for (const char *at = features; padded != NULL && *at != '\0';) {
        size_t size = strcspn(at, " ");
        char word[64];
        snprintf(word, sizeof word, " %.*s ", size < 60 ? (int)size : 60, at);
        if (size > 0 && strstr(padded, word) == NULL) {
            snprintf(missing, 32, "%.*s", size < 31 ? (int)size : 31, at);
            return false;
        }
        at += size + (at[size] == ' ');
    }
    return padded != NULL;
}

static sandbox_status check_room(struct sbx_gvisor *driver, const struct sbx_record *record,
                                 bool memory, const struct sbx_wait *wait, sandbox_error *error)
{
    char path[64];
    snprintf(path, sizeof path, "workspaces/%s", record->id);
    SBX_ON_EXIT(sbx_close_fd)
    int workspace =
        openat(driver->directory, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (workspace < 0)
        return sbx_fail_errno(error, errno, "cannot look at the workspace's directory");
    uint64_t needed = 0;
    if (!can_clone(workspace)) {
        sandbox_status status = measure_files(workspace, wait, &needed, error);
        if (status != SANDBOX_OK)
            return status;
    }
    if (memory)
        needed += sbx_gvisor_memory_used(record);
    needed += needed / 20 + MARGIN_BYTES;
    uint64_t left = 0;
    sandbox_status status = measure_room(workspace, &left, error);
    if (status == SANDBOX_OK && needed > left) { /* some may be about to come back */
        status = sbx_gvisor_sweep_now(driver, NULL, wait, error);
        if (status == SANDBOX_OK)
            status = measure_room(workspace, &left, error);
    }
    if (status != SANDBOX_OK || needed <= left)
        return status;
    return sbx_fail_for(error, SANDBOX_LIMIT, "no-room",
                        "a snapshot may take %" PRIu64 " MiB, and '%s' has %" PRIu64
                        " MiB left; make room, or delete old snapshots",
                        (needed >> 20) + 1, driver->settings.state, left >> 20);
}

static sandbox_status measure_room(int workspace, uint64_t *left, sandbox_error *error)
{
    struct statvfs facts;
    if (fstatvfs(workspace, &facts) < 0)
        return sbx_fail_errno(error, errno, "cannot look at the workspace's directory");
    *left = (uint64_t)facts.f_bavail * facts.f_frsize;
    return SANDBOX_OK;
}

static sandbox_status measure_files(int workspace, const struct sbx_wait *wait, uint64_t *bytes,
                                    sandbox_error *error)
{
    SBX_ON_EXIT(sbx_close_fd)
    int files = openat(workspace, "files", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (files < 0)
        return sbx_fail_errno(error, errno, "cannot open the workspace's files");
    struct sbx_tree_job job = {.wait = wait};
    struct sbx_tree_facts facts;
    sandbox_status status = sbx_tree_measure(files, &job, &facts, error);
    if (status == SANDBOX_OK)
        *bytes = facts.bytes;
    return status;
}

/* Tried, not asked for by name; nothing that is made here is ever seen. */
static bool can_clone(int directory)
{
    SBX_ON_EXIT(sbx_close_fd)
    int from = openat(directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    SBX_ON_EXIT(sbx_close_fd) int to = openat(directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return from >= 0 && to >= 0 && sbx_write_all(from, "x", 1) == 0 &&
           ioctl(to, FICLONE, from) == 0;
}

static sandbox_status check_manifest(const struct sbx_record *record,
                                     const struct sbx_snapshot *snapshot,
                                     const struct sbx_gvisor_manifest *manifest, const char *digest,
                                     sandbox_error *error)
{
    if (strcmp(digest, snapshot->digest) != 0)
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "snapshot-damaged",
                            "'manifest.json' of the snapshot is not the one that was recorded");
    if (strcmp(manifest->workspace, record->id) != 0 ||
        strcmp(manifest->snapshot, snapshot->id) != 0 || manifest->kind != snapshot->kind ||
        strcmp(manifest->run, snapshot->run) != 0 || manifest->tree[0] == '\0' ||
        strcmp(manifest->seal_hash, snapshot->seal_hash) != 0)
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "snapshot-damaged",
                            "'manifest.json' is of another snapshot or workspace");
    return SANDBOX_OK;
}
