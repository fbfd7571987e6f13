/* A workspace's carrier: one process, known by the lock that it holds. */

#include "cloud/http.h"
#include "drivers/gvisor/gvisor.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include "util/place.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define END_LOOK_MS 5u

static sandbox_status take_lock(struct sbx_gvisor *driver, const char *id,
                                const struct sbx_wait *wait, int *lock, sandbox_error *error);
static void end_holder(int lock);
static sandbox_status run(struct sbx_gvisor *driver, const struct sbx_record *record,
                          const char *key, int lock, const struct sbx_wait *wait,
                          sandbox_error *error);
static char *make_uri(const struct sbx_gvisor *driver);
static int pipe_with(const char *text);

sandbox_status sbx_gvisor_carrier_start(struct sbx_gvisor *driver, const struct sbx_record *record,
                                        const char *key, const struct sbx_wait *wait,
                                        sandbox_error *error)
{
    SBX_ON_EXIT(sbx_close_fd) int lock = -1;
    sandbox_status status = take_lock(driver, record->id, wait, &lock, error);
    return status == SANDBOX_OK ? run(driver, record, key, lock, wait, error) : status;
}

sandbox_status sbx_gvisor_carrier_end(struct sbx_gvisor *driver, const char *id,
                                      const struct sbx_wait *wait, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_close_fd) int lock = -1;
    char path[64];
    snprintf(path, sizeof path, SBX_GVISOR_EGRESS_FILE, id, ".carrier");
    if (faccessat(driver->directory, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        return SANDBOX_OK;
    sandbox_status status = take_lock(driver, id, wait, &lock, error);
    if (status == SANDBOX_OK)
        (void)unlinkat(driver->directory, path, 0);
    return status;
}

/* Whoever holds it is ended first. The file may be removed and made again meanwhile. */
static sandbox_status take_lock(struct sbx_gvisor *driver, const char *id,
                                const struct sbx_wait *wait, int *lock, sandbox_error *error)
{
    char path[64];
    snprintf(path, sizeof path, SBX_GVISOR_EGRESS_FILE, id, ".carrier");
    for (;;) {
        SBX_ON_EXIT(sbx_close_fd)
        int fd = openat(driver->directory, path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        struct stat held, there;
        if (fd < 0)
            return sbx_fail_errno(error, errno, "cannot open '%s'", path);
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            if (fstat(fd, &held) == 0 &&
                fstatat(driver->directory, path, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
                held.st_ino == there.st_ino) {
                *lock = sbx_take_fd(&fd);
                return SANDBOX_OK;
            }
            continue;
        }
        end_holder(fd);
        sandbox_status status = sbx_wait_pause(wait, END_LOOK_MS, error);
        if (status != SANDBOX_OK)
            return status;
    }
}

/* Its number is good for as long as the lock is held: asked again once we have a hold of it. */
static void end_holder(int lock)
{
    char text[16] = "";
    if (pread(lock, text, sizeof text - 1, 0) <= 0)
        return; /* one that is just starting */
    long pid = strtol(text, NULL, 10);
    if (pid <= 1)
        return;
    SBX_ON_EXIT(sbx_close_fd) int pidfd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    if (pidfd < 0)
        return;
    if (flock(lock, LOCK_EX | LOCK_NB) == 0)
        (void)flock(lock, LOCK_UN);
    else
        (void)syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0);
}

static sandbox_status run(struct sbx_gvisor *driver, const struct sbx_record *record,
                          const char *key, int lock, const struct sbx_wait *wait,
                          sandbox_error *error)
{
    char socket_path[64], lock_text[16];
    snprintf(socket_path, sizeof socket_path, SBX_GVISOR_EGRESS_FILE, record->id, ".sock");
    snprintf(lock_text, sizeof lock_text, "%d", lock);
    SBX_ON_EXIT(sbx_free_text) char *program = NULL;
    SBX_ON_EXIT(sbx_free_text) char *uri = make_uri(driver);
    SBX_ON_EXIT(sbx_free_text) char *socket = sbx_gvisor_path(driver, "%s", socket_path);
    SBX_ON_EXIT(sbx_free_text)
    char *log = sbx_gvisor_path(driver, "workspaces/%s/egress.log", record->id);
    SBX_ON_EXIT(sbx_free_text) char *text = NULL;
    int code = 0;
    if (uri == NULL || socket == NULL || log == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a command line");
    sandbox_status status = sbx_place_find("sandbox-egress-carrier", &program, error);
    if (status != SANDBOX_OK)
        return status;
    const char *argv[] = {program, "--uri",    uri,       "--workspace", record->name,
                          "--id",  record->id, "--proxy", socket,        "--log",
                          log,     "--lock",   lock_text, NULL};
    SBX_ON_EXIT(sbx_close_fd) int input = pipe_with(key);
    if (input < 0)
        return sbx_fail_errno(error, errno, "cannot make a pipe to the carrier");
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv, .inherit = &lock,
                                        .inherit_count = 1, .own_session = true};
    options.input = input;
    status = sbx_child_run(&options, wait, &code, &text, error);
    if (status == SANDBOX_OK && code != 0)
        return sbx_fail(error, SANDBOX_FAILED, "the egress carrier does not start: %.200s",
                        text == NULL || *text == '\0' ? "it said nothing" : text);
    return status;
}

/* The same state, and the same runsc, wherever it is. */
static char *make_uri(const struct sbx_gvisor *driver)
{
    struct sbx_bytes uri = SBX_BYTES(3 * 2 * SBX_GVISOR_PATH);
    char *text = NULL;
    if (sbx_bytes_append(&uri, "gvisor:", 7) && sbx_http_escape(&uri, driver->settings.state) &&
        sbx_bytes_append(&uri, "?runsc=", 7) && sbx_http_escape(&uri, driver->settings.runsc))
        text = sbx_copy_bytes(sbx_bytes_data(&uri), sbx_bytes_size(&uri));
    sbx_bytes_free(&uri);
    return text;
}

/* A pipe that holds the text already, and ends. -1: errno says why. */
static int pipe_with(const char *text)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    ssize_t size = (ssize_t)strlen(text);
    bool whole = write(ends[1], text, (size_t)size) == size;
    close(ends[1]);
    if (whole)
        return ends[0];
    close(ends[0]);
    errno = EIO;
    return -1;
}
