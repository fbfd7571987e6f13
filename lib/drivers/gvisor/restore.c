/*
 * From a snapshot to a sealed instance. The files are made what the snapshot says, and runsc or a
 * fresh agent starts over them. What runsc cannot restore is refused before it is asked: it takes
 * any image and goes on with whatever memory it finds there.
 */

#include "drivers/gvisor/snapshot.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define CONFIG_MAX (1u << 20)

/* One restore. */
struct restoring {
    struct sbx_gvisor *driver;
    const struct sbx_record *record;
    const struct sbx_snapshot *snapshot;
    struct sbx_progress *progress;
    const struct sbx_wait *wait;
    struct sbx_gvisor_manifest manifest;
    int directory;
    uint64_t copied;
};

static sandbox_status check_runtime(struct restoring *restoring, sandbox_error *error);
static sandbox_status restore_files(struct restoring *restoring, sandbox_error *error);
static sandbox_status is_as_recorded(struct restoring *restoring, int workspace, bool *same,
                                     sandbox_error *error);
static sandbox_status copy_files(struct restoring *restoring, int workspace, sandbox_error *error);
static void tell_copied(void *user_data, uint64_t bytes);
static sandbox_status start(struct restoring *restoring, sandbox_keep keep,
                            char incarnation[SBX_INCARNATION_TEXT], sandbox_error *error);
static sandbox_status start_fresh(struct restoring *restoring,
                                  char incarnation[SBX_INCARNATION_TEXT], sandbox_error *error);
static sandbox_status start_image(struct restoring *restoring,
                                  char incarnation[SBX_INCARNATION_TEXT], sandbox_error *error);
static void end_restoring(struct restoring *restoring);

sandbox_status sbx_gvisor_restore(void *state, const struct sbx_record *record,
                                  const struct sbx_snapshot *snapshot, sandbox_keep keep,
                                  struct sbx_progress *progress, const struct sbx_wait *wait,
                                  struct sbx_restored *out, sandbox_error *error)
{
    struct sbx_gvisor *driver = state;
    SBX_ON_EXIT(end_restoring)
    struct restoring restoring = {.driver = driver,
                                  .record = record,
                                  .snapshot = snapshot,
                                  .progress = progress,
                                  .wait = wait,
                                  .directory = -1};
    SBX_ON_EXIT(sbx_close_fd) int lock = -1;
    sandbox_status status = sbx_gvisor_fence(driver, record, wait, &lock, error);
    if (status != SANDBOX_OK)
        return status;
    if (sbx_gvisor_processes(driver, record->id) > 0)
        return sbx_fail_for(error, SANDBOX_CONFLICT, "instance-exists",
                            "processes of '%s' still run; discard its instance first",
                            record->name);
    status = sbx_gvisor_snapshot_open(driver, record, snapshot, &restoring.directory,
                                      &restoring.manifest, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_parts_look(restoring.directory, &restoring.manifest, error);
    if (status == SANDBOX_OK && keep == SANDBOX_KEEP_MEMORY)
        status = check_runtime(&restoring, error);
    if (status == SANDBOX_OK)
        status = restore_files(&restoring, error);
    if (status != SANDBOX_OK)
        return status;

    struct sbx_restored restored = {.evidence = SBX_EVIDENCE_NONE};
    status = start(&restoring, keep, restored.incarnation, error);
    if (status == SANDBOX_OK && strcmp(restored.incarnation, snapshot->incarnation) == 0)
        status = sbx_fail_for(error, SANDBOX_NOT_RESTORED, "same-incarnation",
                              "what runs is the very instance that the snapshot was taken of");
    if (status != SANDBOX_OK) {
        sbx_gvisor_instance_clear(driver, record);
        return status;
    }
    *out = restored;
    return SANDBOX_OK;
}

/* What would make the memory meet another machine than it was taken from. */
static sandbox_status check_runtime(struct restoring *restoring, sandbox_error *error)
{
    const struct sbx_gvisor_manifest *manifest = &restoring->manifest;
    char missing[32] = "";
    SBX_ON_EXIT(sbx_gvisor_runtime_clear) struct sbx_gvisor_runtime runtime = {0};
    if (manifest->kind != SANDBOX_KEEP_MEMORY)
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "only-files",
                            "the snapshot holds files and no memory");
    sandbox_status status = sbx_gvisor_pins_find(restoring->driver, &manifest->pins, error);
    if (status == SANDBOX_OK)
        status =
            sbx_gvisor_runtime_pinned(restoring->driver, manifest->pins.runtime, &runtime, error);
    if (status != SANDBOX_OK)
        return status;
    const char *platform = sbx_gvisor_platform(restoring->driver, &runtime.runsc);
    if (strcmp(runtime.runsc.version, manifest->version) != 0)
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "runtime-differs",
                            "the snapshot was taken by runsc %s, and its copy is of %s",
                            manifest->version, runtime.runsc.version);
    if (strcmp(platform, manifest->platform) != 0)
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "runtime-differs",
                            "the snapshot was taken on the platform %s, and the URI asks for %s; "
                            "open it with platform=%s",
                            manifest->platform, platform, manifest->platform);
    if (strcmp(manifest->flags, sbx_gvisor_flags) != 0)
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "runtime-differs",
                            "the snapshot was taken with the flags '%s', and this one uses '%s'",
                            manifest->flags, sbx_gvisor_flags);
    if (!sbx_gvisor_features_suffice(manifest->features, missing))
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "runtime-differs",
                            "the snapshot was taken on a processor with '%s', and this one has "
                            "it not",
                            missing);
    return SANDBOX_OK;
}

/* Kept as they are where they are still the recorded ones, as they are after a suspend. */
static sandbox_status restore_files(struct restoring *restoring, sandbox_error *error)
{
    char path[64];
    snprintf(path, sizeof path, "workspaces/%s", restoring->record->id);
    SBX_ON_EXIT(sbx_close_fd)
    int workspace =
        openat(restoring->driver->directory, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (workspace < 0)
        return sbx_fail_errno(error, errno, "cannot open the workspace's directory");
    bool same = false;
    sandbox_status status = is_as_recorded(restoring, workspace, &same, error);
    if (status == SANDBOX_OK)
        status = sbx_tree_remove(workspace, "files.new", error);
    if (status != SANDBOX_OK || same)
        return status;
    status = sbx_tree_remove(workspace, "files.new.links", error);
    if (status == SANDBOX_OK)
        status = copy_files(restoring, workspace, error);
    if (status == SANDBOX_OK &&
        renameat2(workspace, "files.new", workspace, "files", RENAME_EXCHANGE) < 0 &&
        (errno != ENOENT || renameat(workspace, "files.new", workspace, "files") < 0))
        status = sbx_fail_errno(error, errno, "cannot put the snapshot's files in place");
    if (status == SANDBOX_OK)
        status = sbx_directory_sync(workspace, ".", error);
    /* Now the former files, or what was copied of the new ones. */
    sandbox_status removed =
        sbx_tree_remove(workspace, "files.new", status == SANDBOX_OK ? error : NULL);
    return status != SANDBOX_OK ? status : removed;
}

/* Whatever cannot be read there is replaced. */
static sandbox_status is_as_recorded(struct restoring *restoring, int workspace, bool *same,
                                     sandbox_error *error)
{
    SBX_ON_EXIT(sbx_crew_end) struct sbx_crew *crew = sbx_crew_new();
    struct sbx_tree_job job = {.wait = restoring->wait, .crew = crew};
    struct sbx_tree_facts facts;
    char digest[SBX_GVISOR_DIGEST_TEXT];
    SBX_ON_EXIT(sbx_close_fd)
    int files = openat(workspace, "files", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    sandbox_status status =
        files < 0 ? SANDBOX_NOT_FOUND : sbx_tree_digest(files, &job, &facts, NULL);
    if (status == SANDBOX_OK) {
        sbx_hex_print(facts.digest, sizeof facts.digest, digest);
        *same = strcmp(digest, restoring->manifest.tree) == 0;
    }
    return sbx_wait_check(restoring->wait, error);
}

static sandbox_status copy_files(struct restoring *restoring, int workspace, sandbox_error *error)
{
    struct sbx_tree_job job = {
        .wait = restoring->wait, .moved = tell_copied, .user_data = restoring};
    struct sbx_tree_facts facts;
    char digest[SBX_GVISOR_DIGEST_TEXT];
    SBX_ON_EXIT(sbx_close_fd)
    int files =
        openat(restoring->directory, "files", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (files < 0)
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "snapshot-missing",
                            "the files of the snapshot are missing");
    sandbox_status status = sbx_tree_copy(files, workspace, "files.new", &job, &facts, error);
    if (status != SANDBOX_OK)
        return status;
    sbx_hex_print(facts.digest, sizeof facts.digest, digest);
    if (strcmp(digest, restoring->manifest.tree) != 0)
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "snapshot-damaged",
                            "the files of the snapshot are not those that were recorded");
    /* From now on they may be all that is left of what the guest had made durable. */
    return syncfs(workspace) == 0
               ? SANDBOX_OK
               : sbx_fail_errno(error, errno, "cannot make the snapshot's files durable");
}

static void tell_copied(void *user_data, uint64_t bytes)
{
    struct restoring *restoring = user_data;
    restoring->copied += bytes;
    if (restoring->progress != NULL && restoring->progress->moved != NULL)
        restoring->progress->moved(restoring->progress, "copy", restoring->copied,
                                   restoring->manifest.tree_bytes);
}

static sandbox_status start(struct restoring *restoring, sandbox_keep keep,
                            char incarnation[SBX_INCARNATION_TEXT], sandbox_error *error)
{
    if (keep != SANDBOX_KEEP_MEMORY)
        return start_fresh(restoring, incarnation, error);
    if (sbx_gvisor_held_has_list(&restoring->manifest)) {
        sandbox_status same = sbx_gvisor_held_check(restoring->driver, &restoring->manifest,
                                                    restoring->record->image,
                                                    restoring->directory, error);
        return same != SANDBOX_OK ? same : start_image(restoring, incarnation, error);
    }
    /* Nobody is let in before both are known, so a look at all of it costs no time of its own. */
    SBX_ON_EXIT(sbx_gvisor_side_join) struct sbx_gvisor_side side = {0};
    sandbox_status status = sbx_gvisor_side_start(
        &side, restoring->driver, &restoring->manifest.pins, restoring->record->image,
        restoring->manifest.contents, restoring->wait, error);
    if (status == SANDBOX_OK)
        status = start_image(restoring, incarnation, error);
    if (!side.started)
        return status;
    sandbox_error why = {0};
    sandbox_status checked = sbx_gvisor_side_end(&side, &why);
    if (checked == SANDBOX_OK)
        return status;
    if (error != NULL)
        *error = why;
    return checked;
}

/* Whose instance was lost in the middle of a suspend has a seal that nobody recorded. */
static sandbox_status start_fresh(struct restoring *restoring,
                                  char incarnation[SBX_INCARNATION_TEXT], sandbox_error *error)
{
    struct sbx_gvisor_origin origin = {0};
    sandbox_status status = SANDBOX_OK;
    if (restoring->snapshot->seal_hash[0] == '\0')
        status = sbx_gvisor_seal_empty(restoring->driver, restoring->record->id, error);
    if (status != SANDBOX_OK)
        return status;
    return sbx_gvisor_instance_start(restoring->driver, restoring->record, &origin, NULL,
                                     restoring->wait, incarnation, error);
}

static sandbox_status start_image(struct restoring *restoring,
                                  char incarnation[SBX_INCARNATION_TEXT], sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text)
    char *image = sbx_gvisor_path(restoring->driver, "workspaces/%s/snapshots/%s/image",
                                  restoring->record->id, restoring->snapshot->id);
    if (image == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    uint8_t *data = NULL, hash[SBX_DIGEST_BYTES];
    size_t size = 0;
    char spec[SBX_GVISOR_DIGEST_TEXT];
    sandbox_status status =
        sbx_file_read(restoring->directory, "config.json", CONFIG_MAX, &data, &size, error);
    if (status != SANDBOX_OK)
        return status;
    SBX_ON_EXIT(sbx_free_text) char *config = (char *)data;
    sbx_sha256(config, size, hash);
    sbx_hex_print(hash, sizeof hash, spec);
    if (strcmp(spec, restoring->manifest.spec) != 0)
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "snapshot-damaged",
                            "'config.json' of the snapshot is not what was recorded");
    const struct sbx_gvisor_origin origin = {.pins = &restoring->manifest.pins, .config = config};
    return sbx_gvisor_instance_start(restoring->driver, restoring->record, &origin, image,
                                     restoring->wait, incarnation, error);
}

static void end_restoring(struct restoring *restoring)
{
    sbx_gvisor_manifest_clear(&restoring->manifest);
    sbx_close_fd(&restoring->directory);
}
