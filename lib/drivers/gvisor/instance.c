/*
 * The life of an instance: a sandbox process, known by host boot, number and start time, and
 * what lies about it. Nothing here believes runsc about what runs; the process table is asked.
 */

#include "drivers/gvisor/gvisor.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/log.h"
#include "util/memory.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define START_MS    60000
#define CLEAN_UP_MS 20000
#define LOG_MAX     (1u << 20)

static void describe_end(struct sbx_gvisor *driver, const struct sbx_record *record, char *detail,
                         size_t size);
static pid_t read_pid(struct sbx_gvisor *driver, const char *id);
static sandbox_status end_instance(struct sbx_gvisor *driver, const char *id,
                                   const struct sbx_wait *wait, sandbox_error *error);
static bool has_remains(struct sbx_gvisor *driver, const char *id, bool remove);
static void unmount_beneath(const char *directory);
static sandbox_status remove_all_but_files(struct sbx_gvisor *driver, const char *id,
                                           sandbox_error *error);

sandbox_status sbx_gvisor_provision(void *state, const struct sbx_record *record,
                                    const struct sbx_wait *wait,
                                    char incarnation[SBX_INCARNATION_TEXT], sandbox_error *error)
{
    struct sbx_gvisor *driver = state;
    SBX_ON_EXIT(sbx_close_fd) int lock = -1;
    sandbox_status status = sbx_gvisor_fence(driver, record, wait, &lock, error);
    if (status != SANDBOX_OK)
        return status;
    if (sbx_gvisor_processes(driver, record->id) > 0)
        return sbx_fail_for(error, SANDBOX_CONFLICT, "instance-exists",
                            "processes of '%s' still run; discard its instance first",
                            record->name);

    status = sbx_gvisor_seal_empty(driver, record->id, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_instance_start(driver, record, &(struct sbx_gvisor_origin){0}, NULL,
                                           wait, incarnation, error);
    if (status != SANDBOX_OK)
        sbx_gvisor_instance_clear(driver, record);
    return status;
}

sandbox_status sbx_gvisor_inspect(void *state, const struct sbx_record *record,
                                  const struct sbx_wait *wait, struct sbx_instance *out,
                                  sandbox_error *error)
{
    struct sbx_gvisor *driver = state;
    struct sbx_instance seen = {.presence = SBX_PRESENCE_RUNNING};
    pid_t pid = read_pid(driver, record->id);
    if (sbx_gvisor_is_running(driver, record->id, record->incarnation)) {
        snprintf(seen.incarnation, sizeof seen.incarnation, "%s", record->incarnation);
    } else if (sbx_gvisor_incarnation(driver, record->id, pid, seen.incarnation) ||
               sbx_gvisor_has_sandbox(driver, record->id)) {
        seen.presence = SBX_PRESENCE_OTHER;
    } else if (has_remains(driver, record->id, false) ||
               sbx_gvisor_processes(driver, record->id) > 0) {
        seen.presence = SBX_PRESENCE_STOPPED;
        describe_end(driver, record, seen.detail, sizeof seen.detail);
    } else {
        seen.presence = SBX_PRESENCE_ABSENT;
    }
    /* Whoever has no descriptor left sees no process at all: that is not an end. */
    uint64_t myself = sbx_gvisor_started(getpid());
    if (seen.presence != SBX_PRESENCE_RUNNING &&
        (myself == 0 || myself == SBX_GVISOR_CANNOT_TELL))
        return sbx_fail(error, SANDBOX_UNAVAILABLE,
                        "cannot look for the instance of '%s' among this machine's processes",
                        record->name);
    *out = seen;
    return SANDBOX_OK;
}

sandbox_status sbx_gvisor_discard(void *state, const struct sbx_record *record,
                                  const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_gvisor *driver = state;
    SBX_ON_EXIT(sbx_close_fd) int lock = -1;
    sandbox_status status = sbx_gvisor_fence(driver, record, wait, &lock, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_instance_end(driver, record->id, wait, error);
    return status;
}

sandbox_status sbx_gvisor_destroy(void *state, const struct sbx_record *record,
                                  const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_gvisor *driver = state;
    SBX_ON_EXIT(sbx_close_fd) int lock = -1;
    sandbox_status status = sbx_gvisor_fence(driver, record, wait, &lock, error);
    if (status == SANDBOX_OK)
        status = end_instance(driver, record->id, wait, error);
    char path[64];
    snprintf(path, sizeof path, "workspaces/%s", record->id);
    if (status == SANDBOX_OK)
        status = sbx_tree_remove(driver->directory, path, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_sweep_now(driver, record->id, wait, error);
    if (status != SANDBOX_OK)
        return status;
    snprintf(path, sizeof path, "locks/%s.relay", record->id);
    unlinkat(driver->directory, path, 0);
    snprintf(path, sizeof path, "locks/%s.instance", record->id);
    unlinkat(driver->directory, path, 0); /* it is held: see sbx_file_lock() */
    sbx_gvisor_pins_collect(driver);
    return SANDBOX_OK;
}

static void describe_end(struct sbx_gvisor *driver, const struct sbx_record *record, char *detail,
                         size_t size)
{
    char boot[40] = "";
    bool same_boot =
        sbx_gvisor_boot_id(boot) && strncmp(boot, record->incarnation, strlen(boot)) == 0;
    if (sbx_gvisor_limits_killed(&driver->limits, record->id) > 0)
        snprintf(detail, size, "killed: it used more than its %u MiB of memory",
                 record->memory_mib);
    else if (record->incarnation[0] != '\0' && !same_boot)
        snprintf(detail, size, "the host was restarted");
    else
        snprintf(detail, size, "its sandbox was killed or ended");
}

bool sbx_gvisor_incarnation(const struct sbx_gvisor *driver, const char *id, pid_t pid,
                            char incarnation[SBX_INCARNATION_TEXT])
{
    char boot[40];
    uint64_t started = sbx_gvisor_started(pid);
    if (started == 0 || started == SBX_GVISOR_CANNOT_TELL ||
        !sbx_gvisor_is_sandbox(driver, pid, id) || !sbx_gvisor_boot_id(boot))
        return false;
    snprintf(incarnation, SBX_INCARNATION_TEXT, "%s:%d:%llu", boot, (int)pid,
             (unsigned long long)started);
    return true;
}

bool sbx_gvisor_is_running(const struct sbx_gvisor *driver, const char *id, const char *incarnation)
{
    char now[SBX_INCARNATION_TEXT];
    const char *colon = strchr(incarnation, ':');
    return colon != NULL &&
           sbx_gvisor_incarnation(driver, id, (pid_t)strtol(colon + 1, NULL, 10), now) &&
           strcmp(now, incarnation) == 0;
}

sandbox_status sbx_gvisor_instance_start(struct sbx_gvisor *driver, const struct sbx_record *record,
                                         const struct sbx_gvisor_origin *origin, const char *image,
                                         const struct sbx_wait *wait,
                                         char incarnation[SBX_INCARNATION_TEXT],
                                         sandbox_error *error)
{
    struct sbx_gvisor_start start = {.image = image};
    sandbox_status status = end_instance(driver, record->id, wait, error); /* old remains */
    if (status == SANDBOX_OK)
        status = sbx_gvisor_limits_make(&driver->limits, record, start.memory_group,
                                        start.cpu_group, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_bundle_make(driver, record, origin, wait, &start.bundle, error);
    SBX_ON_EXIT(sbx_channel_end) struct sbx_channel early = SBX_CHANNEL;
    if (status == SANDBOX_OK)
        status = sbx_gvisor_launch(driver, record, &start, wait, &early, error);
    sbx_gvisor_bundle_clear(&start.bundle);
    if (status != SANDBOX_OK)
        return status;

    pid_t pid = read_pid(driver, record->id);
    if (!sbx_gvisor_incarnation(driver, record->id, pid, incarnation))
        return sbx_gvisor_explain(driver, record->id, 0, error);
    return sbx_gvisor_await_agent(driver, record->id, pid, &early, wait, error);
}

sandbox_status sbx_gvisor_instance_end(struct sbx_gvisor *driver, const char *id,
                                       const struct sbx_wait *wait, sandbox_error *error)
{
    sandbox_status status = end_instance(driver, id, wait, error);
    return status != SANDBOX_OK ? status : remove_all_but_files(driver, id, error);
}

void sbx_gvisor_instance_clear(struct sbx_gvisor *driver, const struct sbx_record *record)
{
    struct sbx_wait alone = sbx_wait_alone(CLEAN_UP_MS);
    sandbox_error left = {0};
    if (sbx_gvisor_instance_end(driver, record->id, &alone, &left) != SANDBOX_OK)
        sbx_log(SANDBOX_LOG_WARNING, "something of '%s' may be left: %s", record->name,
                left.message);
}

sandbox_status sbx_gvisor_seal_empty(struct sbx_gvisor *driver, const char *id,
                                     sandbox_error *error)
{
    char path[64];
    snprintf(path, sizeof path, "workspaces/%s/files/seal", id);
    return sbx_tree_remove(driver->directory, path, error);
}

static pid_t read_pid(struct sbx_gvisor *driver, const char *id)
{
    char path[80];
    snprintf(path, sizeof path, "workspaces/%s/sandbox.pid", id);
    uint8_t *text = NULL;
    size_t size = 0;
    pid_t pid = 0;
    if (sbx_file_read(driver->directory, path, 64, &text, &size, NULL) == SANDBOX_OK)
        pid = (pid_t)strtol((const char *)text, NULL, 10);
    free(text);
    return pid;
}

/*
 * `runsc delete` takes seconds, and forgets processes it lost sight of: the processes are ended
 * here, and then runsc's own notes are only files.
 */
static sandbox_status end_instance(struct sbx_gvisor *driver, const char *id,
                                   const struct sbx_wait *wait, sandbox_error *error)
{
    sandbox_status status = sbx_gvisor_processes_end(driver, id, wait, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_limits_remove(&driver->limits, id, wait, error);
    if (status != SANDBOX_OK)
        return status;
    sbx_gvisor_ready_forget(driver, id);
    SBX_ON_EXIT(sbx_free_text) char *place = sbx_gvisor_path(driver, "workspaces/%s", id);
    if (place == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    unmount_beneath(place);
    if (has_remains(driver, id, true) && has_remains(driver, id, false))
        return sbx_fail(error, SANDBOX_FAILED, "cannot remove what runsc noted in '%s'",
                        driver->runsc_root);
    return SANDBOX_OK;
}

/* What runsc keeps of it, by any version's naming: the id is in every name. */
static bool has_remains(struct sbx_gvisor *driver, const char *id, bool remove)
{
    int fd = openat(driver->directory, "runsc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *notes = fd < 0 ? NULL : fdopendir(fd);
    if (notes == NULL) {
        sbx_close_fd(&fd);
        return false;
    }
    bool found = false;
    for (struct dirent *entry; (entry = readdir(notes)) != NULL;) {
        if (strstr(entry->d_name, id) == NULL)
            continue;
        found = true;
        if (remove)
            (void)sbx_tree_remove(dirfd(notes), entry->d_name, NULL);
    }
    closedir(notes);
    return found;
}

/* Mount points of /proc are written with \040 for a space and the like. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; to++) {
        if (from[0] == '\\' && from[1] != '\0' && from[2] != '\0' && from[3] != '\0') {
            *to = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

/* We make none that are seen here; an older start, or somebody's own, would be in the way. */
static void unmount_beneath(const char *directory)
{
    uint8_t *text = NULL;
    size_t size = 0, prefix = strlen(directory);
    if (sbx_file_read(AT_FDCWD, "/proc/self/mountinfo", 64u << 20, &text, &size, NULL) !=
        SANDBOX_OK)
        return;
    SBX_ON_EXIT(sbx_free_text) char *all = (char *)text;
    char *end = NULL;
    for (char *line = all; *line != '\0'; line = end + (*end == '\n')) {
        end = line + strcspn(line, "\n");
        char point[SBX_GVISOR_PATH];
        if (sscanf(line, "%*s %*s %*s %*s %4095s", point) != 1)
            continue;
        unescape(point);
        if (strncmp(point, directory, prefix) == 0 && point[prefix] == '/')
            (void)umount2(point, MNT_DETACH | UMOUNT_NOFOLLOW);
        if (*end == '\0')
            break;
    }
}

static sandbox_status remove_all_but_files(struct sbx_gvisor *driver, const char *id,
                                           sandbox_error *error)
{
    static const char *const parts[] = {"bundle", "layer", "sandbox.pid", "runsc.log",
                                        "checkpoint.log"};
    sandbox_status status = SANDBOX_OK;
    for (size_t n = 0; n < sizeof parts / sizeof parts[0] && status == SANDBOX_OK; n++) {
        char path[96];
        snprintf(path, sizeof path, "workspaces/%s/%s", id, parts[n]);
        status = sbx_tree_remove(driver->directory, path, error);
    }
    return status;
}
