/*
 * runsc checkpoint. It cannot be called back, and old ones end the sandbox whatever comes of it.
 * So it runs in a process of its own that holds the workspace's locks, goes on if we are killed,
 * and leaves a mark once runsc has said that the image is complete.
 */

#include "drivers/gvisor/snapshot.h"
#include "util/child.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHANNELS_MS 5000
#define START_MS    20000
#define AGAIN_MS    20
#define FAILED_MS   3000
#define ENDING_MS   20000
#define TOLD_MAX    64
/* From this version on it was seen to take the flag: uncompressed is as good, and much faster. */
#define COMPRESSION_SEEN 20260101

/*
 * The first shell leaves a second one behind, so that nobody has to wait for it. A killed runsc
 * leaves no mark: what it wrote is not known to be complete. The mark names the boot, because it
 * is made before the image is durable, and says so once it is.
 */
static const char checkpoint_script[] =
    "trap '' PIPE\n"
    "messages=$1 boot=$2\n"
    "shift 2\n"
    "(\n"
    "    \"$@\" >\"$messages\" 2>&1 </dev/null || { echo \"failed $?\"; exit; }\n"
    "    echo \"$boot\" >finished || { echo 'failed 0'; exit; }\n"
    "    echo finished\n"
    "    sync -f . && echo durable >>finished\n"
    ") &\n";

static sandbox_status hear(int told, const struct sbx_wait *wait, char text[TOLD_MAX],
                           sandbox_error *error);
static void let_die(struct sbx_gvisor *driver, const struct sbx_record *record,
                    uint32_t at_most_ms, const struct sbx_wait *wait);
static sandbox_status explain(struct sbx_gvisor *driver, const char *id, long code,
                              sandbox_error *error);
static pid_t pid_of(const struct sbx_record *record);
static bool look_at_files(pid_t pid,
                          bool (*visit)(int files, const char *name, const char *target,
                                        void *data),
                          void *data);

sandbox_status sbx_gvisor_channels_hold(struct sbx_gvisor *driver, const struct sbx_record *record,
                                        const struct sbx_wait *wait, int *lock,
                                        sandbox_error *error)
{
    char path[64];
    snprintf(path, sizeof path, "locks/%s.relay", record->id);
    sbx_gvisor_ready_forget(driver, record->id);
    struct sbx_wait bounded = sbx_wait_within(wait, CHANNELS_MS);
    SBX_ON_EXIT(sbx_close_fd) int held = -1;
    sandbox_status status = sbx_file_lock(driver->directory, path, true, &bounded, &held, NULL);
    /* A `runsc exec` of somebody else: runsc would report success and the image be useless. */
    int pidfd = -1;
    while (status == SANDBOX_OK && sbx_gvisor_attached(driver, record->id, &pidfd) > 0) {
        status = pidfd < 0 ? sbx_wait_pause(&bounded, AGAIN_MS, NULL)
                           : sbx_wait_descriptor(&bounded, pidfd, POLLIN, NULL);
        sbx_close_fd(&pidfd);
    }
    if (status == SANDBOX_OK) {
        *lock = sbx_take_fd(&held);
        return SANDBOX_OK;
    }
    status = sbx_wait_check(wait, error);
    return status != SANDBOX_OK
               ? status
               : sbx_fail_for(error, SANDBOX_BUSY, "channel-open",
                              "somebody else's connection or `runsc exec` into '%s' does not end; "
                              "end it and try again",
                              record->name);
}

sandbox_status sbx_gvisor_checkpoint_start(struct sbx_gvisor *driver, const char *id,
                                           const char *place,
                                           const struct sbx_gvisor_runtime *runtime,
                                           const int locks[2], int *told, sandbox_error *error)
{
    char boot[40];
    SBX_ON_EXIT(sbx_free_text) char *root = sbx_format("--root=%s", driver->runsc_root);
    SBX_ON_EXIT(sbx_free_text)
    char *log = sbx_format("--log=%s/workspaces/%s/runsc.log", driver->settings.state, id);
    SBX_ON_EXIT(sbx_free_text)
    char *messages = sbx_gvisor_path(driver, "workspaces/%s/checkpoint.log", id);
    SBX_ON_EXIT(sbx_free_text) char *image = sbx_format("--image-path=%s/image", place);
    SBX_ON_EXIT(sbx_free_text)
    char *platform = sbx_format("--platform=%s", sbx_gvisor_platform(driver, &runtime->runsc));
    if (root == NULL || log == NULL || messages == NULL || image == NULL || platform == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a command line");
    if (!sbx_gvisor_boot_id(boot))
        return sbx_fail(error, SANDBOX_FAILED, "cannot read the host's boot id in /proc");
    bool uncompressed = runtime->runsc.date >= COMPRESSION_SEEN;
    const char *argv[] = {"/bin/sh",
                          "-c",
                          checkpoint_script,
                          "checkpoint",
                          messages,
                          boot,
                          runtime->path,
                          root,
                          log,
                          "--log-format=json",
                          platform,
                          "--network=none",
                          "--ignore-cgroups",
                          "--overlay2=root:memory",
                          "checkpoint",
                          image,
                          uncompressed ? "--compression=none" : id,
                          uncompressed ? id : NULL,
                          NULL};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return sbx_fail_errno(error, errno, "cannot make a pipe");
    SBX_ON_EXIT(sbx_close_fd) int ours = ends[0];
    SBX_ON_EXIT(sbx_close_fd) int theirs = ends[1];
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv,       .directory = place,
                                        .inherit = locks,  .inherit_count = 2, .own_session = true};
    options.output = theirs;
    SBX_ON_EXIT(sbx_child_end) struct sbx_child child = SBX_CHILD;
    struct sbx_wait bounded = sbx_wait_alone(START_MS);
    int code = -1;
    sandbox_status status = sbx_child_start(&child, &options, error);
    if (status == SANDBOX_OK)
        status = sbx_child_wait(&child, &bounded, &code, error);
    if (status == SANDBOX_OK && code != 0)
        status = sbx_fail(error, SANDBOX_FAILED, "cannot start a checkpoint: code %d", code);
    if (status == SANDBOX_OK)
        *told = sbx_take_fd(&ours);
    return status;
}

sandbox_status sbx_gvisor_checkpoint_await(struct sbx_gvisor *driver,
                                           const struct sbx_record *record, int directory, int told,
                                           const struct sbx_wait *wait, sandbox_error *error)
{
    char text[TOLD_MAX] = "";
    SBX_ON_EXIT(sbx_gvisor_ahead_end) struct sbx_gvisor_ahead ahead;
    sandbox_status status = SANDBOX_OK;
    if (sbx_gvisor_ahead_begin(&ahead, directory, told))
        status = sbx_gvisor_ahead_go(&ahead, told, wait, error);
    if (status == SANDBOX_OK)
        status = hear(told, wait, text, error);
    if (status != SANDBOX_OK || strcmp(text, "finished\n") == 0)
        return status;
    /* The sandbox may still be at it, and be gone when it is done. */
    status = sbx_gvisor_checkpoint_quiet(driver, record, wait, error);
    if (status == SANDBOX_OK)
        let_die(driver, record, FAILED_MS, wait);
    long code = strncmp(text, "failed ", 7) == 0 ? strtol(text + 7, NULL, 10) : 137;
    return status != SANDBOX_OK ? status : explain(driver, record->id, code, error);
}

sandbox_status sbx_gvisor_checkpoint_end(int told, const struct sbx_wait *wait,
                                         sandbox_error *error)
{
    char text[TOLD_MAX];
    sandbox_status status;
    do
        status = hear(told, wait, text, error);
    while (status == SANDBOX_OK && text[0] != '\0');
    return status;
}

void sbx_gvisor_checkpoint_over(struct sbx_gvisor *driver, const struct sbx_record *record,
                                const struct sbx_wait *wait)
{
    let_die(driver, record, ENDING_MS, wait);
}

bool sbx_gvisor_checkpoint_finished(int directory)
{
    uint8_t *data = NULL;
    size_t size = 0;
    char boot[40];
    if (sbx_file_read(directory, "finished", 256, &data, &size, NULL) != SANDBOX_OK ||
        !sbx_gvisor_boot_id(boot)) {
        free(data);
        return false;
    }
    SBX_ON_EXIT(sbx_free_text) char *text = (char *)data;
    return strncmp(text, boot, strlen(boot)) == 0 || strstr(text, "\ndurable\n") != NULL;
}

static bool is_image(int files, const char *name, const char *target, void *data)
{
    return strstr(target, "/snapshots/") != NULL && strstr(target, ".new/image/") != NULL &&
           strstr(target, (const char *)data) != NULL;
}

sandbox_status sbx_gvisor_checkpoint_quiet(struct sbx_gvisor *driver,
                                           const struct sbx_record *record,
                                           const struct sbx_wait *wait, sandbox_error *error)
{
    char id[SBX_ID_TEXT];
    bool was_busy = false;
    memcpy(id, record->id, sizeof id);
    while (sbx_gvisor_is_running(driver, record->id, record->incarnation) &&
           look_at_files(pid_of(record), is_image, id)) {
        sandbox_status status = sbx_wait_pause(wait, AGAIN_MS, error);
        if (status != SANDBOX_OK)
            return status;
        was_busy = true;
    }
    if (was_busy)
        let_die(driver, record, FAILED_MS, wait);
    return SANDBOX_OK;
}

/*
 * A checkpoint ends the sandbox, and with an old runsc a failed one does so too, a moment after it
 * is over: whoever looked in that moment would take it for one that goes on.
 */
static void let_die(struct sbx_gvisor *driver, const struct sbx_record *record,
                    uint32_t at_most_ms, const struct sbx_wait *wait)
{
    struct sbx_wait bounded = sbx_wait_within(wait, at_most_ms);
    /* Opened first: what runs then is what the descriptor is of. */
    SBX_ON_EXIT(sbx_close_fd) int pidfd = (int)syscall(SYS_pidfd_open, pid_of(record), 0);
    if (pidfd >= 0 && sbx_gvisor_is_running(driver, record->id, record->incarnation))
        (void)sbx_wait_descriptor(&bounded, pidfd, POLLIN, NULL);
}

static bool add_memory(int files, const char *name, const char *target, void *data)
{
    struct stat facts;
    uint64_t *bytes = data;
    if (strncmp(target, "/memfd:", 7) == 0 && strstr(target, "memory") != NULL &&
        fstatat(files, name, &facts, 0) == 0)
        *bytes += (uint64_t)facts.st_blocks * 512;
    return false;
}

/* The guest's memory is a nameless file of the sandbox; its size in core does not show it. */
uint64_t sbx_gvisor_memory_used(const struct sbx_record *record)
{
    uint64_t bytes = 0;
    (void)look_at_files(pid_of(record), add_memory, &bytes);
    return bytes > 0 ? bytes : (uint64_t)record->memory_mib << 20;
}

/* One line of it; "" at the end. */
static sandbox_status hear(int told, const struct sbx_wait *wait, char text[TOLD_MAX],
                           sandbox_error *error)
{
    size_t used = 0;
    while (used + 1 < TOLD_MAX && (used == 0 || text[used - 1] != '\n')) {
        sandbox_status status = sbx_wait_descriptor(wait, told, POLLIN, error);
        if (status != SANDBOX_OK)
            return status;
        ssize_t got = read(told, text + used, 1);
        if (got < 0 && errno != EINTR && errno != EAGAIN)
            return sbx_fail_errno(error, errno, "cannot hear of a checkpoint");
        if (got == 0)
            break;
        used += got > 0;
    }
    text[used] = '\0';
    return SANDBOX_OK;
}

static sandbox_status explain(struct sbx_gvisor *driver, const char *id, long code,
                              sandbox_error *error)
{
    static const char *const logs[] = {"checkpoint.log", "runsc.log", NULL};
    char words[200];
    sbx_gvisor_last_words(driver, id, logs, words);
    return sbx_fail_for(error, SANDBOX_FAILED, "checkpoint-failed",
                        "runsc could not save the memory (code %ld): %s", code,
                        words[0] == '\0' ? "it left no message" : words);
}

static pid_t pid_of(const struct sbx_record *record)
{
    const char *colon = strchr(record->incarnation, ':');
    return colon == NULL ? 0 : (pid_t)strtol(colon + 1, NULL, 10);
}

/* Whether `visit` said yes to one of the process's open files. */
static bool look_at_files(pid_t pid,
                          bool (*visit)(int files, const char *name, const char *target,
                                        void *data),
                          void *data)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *files = pid <= 0 ? NULL : opendir(path);
    bool found = false;
    for (struct dirent *entry; files != NULL && !found && (entry = readdir(files)) != NULL;) {
        char target[SBX_GVISOR_PATH];
        ssize_t size = readlinkat(dirfd(files), entry->d_name, target, sizeof target - 1);
        if (size <= 0)
            continue;
        target[size] = '\0';
        found = visit(dirfd(files), entry->d_name, target, data);
    }
    if (files != NULL)
        closedir(files);
    return found;
}
