/* The platform's process: found by its socket, started if there is none, looked at by a doctor. */

#include "drivers/memory/memory.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include "util/place.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROGRAM "sandbox-memory-platform"

static sandbox_status start_platform(const struct sbx_memory *driver, const struct sbx_wait *wait,
                                     sandbox_error *error);
static sandbox_status check_peer(int fd, const char *socket, sandbox_error *error);
static char *directory_of(const struct sbx_memory *driver);
static sandbox_status check_directory(const struct sbx_memory *driver, const char *directory,
                                      sandbox_error *error);

sandbox_status sbx_memory_connect(const struct sbx_memory *driver, const struct sbx_wait *wait,
                                  int *fd, sandbox_error *error)
{
    sandbox_status status = sbx_memory_connect_running(driver, wait, fd, error);
    if (status != SANDBOX_NOT_FOUND)
        return status;
    status = sbx_memory_directory(driver, error);
    if (status != SANDBOX_OK)
        return status;

    /* Under a lock, so that of two callers one starts it and the other finds it. */
    SBX_ON_EXIT(sbx_close_fd) int lock = -1;
    SBX_ON_EXIT(sbx_free_text) char *path = sbx_format("%s.start", driver->socket);
    if (path == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    status = sbx_file_lock(AT_FDCWD, path, true, wait, &lock, error);
    if (status == SANDBOX_OK)
        status = sbx_memory_connect_running(driver, wait, fd, error);
    if (status != SANDBOX_NOT_FOUND)
        return status;
    status = start_platform(driver, wait, error);
    return status == SANDBOX_OK ? sbx_memory_connect_running(driver, wait, fd, error) : status;
}

sandbox_status sbx_memory_connect_running(const struct sbx_memory *driver,
                                          const struct sbx_wait *wait, int *fd,
                                          sandbox_error *error)
{
    struct sbx_channel channel = SBX_CHANNEL;
    sandbox_status status = sbx_channel_connect_unix(&channel, driver->socket, wait, error);
    /* A socket that nobody listens on was left by a platform that is gone. */
    if (status == SANDBOX_NOT_FOUND || status == SANDBOX_UNAVAILABLE)
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-platform",
                            "no memory platform listens on '%s'", driver->socket);
    if (status == SANDBOX_OK)
        status = check_peer(channel.read_fd, driver->socket, error);
    if (status == SANDBOX_OK)
        *fd = channel.read_fd;
    else
        sbx_channel_end(&channel);
    return status;
}

/* Whoever listens there is told secrets and obeyed. */
static sandbox_status check_peer(int fd, const char *path, sandbox_error *error)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return sbx_fail_errno(error, errno, "cannot tell who listens on '%s'", path);
    if (peer.uid != geteuid() && peer.uid != 0)
        return sbx_fail_for(error, SANDBOX_DENIED, "foreign-platform",
                            "the process on '%s' belongs to another user; choose another socket, "
                            "as in memory:/PATH/OF/MINE",
                            path);
    return SANDBOX_OK;
}

sandbox_status sbx_memory_directory(const struct sbx_memory *driver, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *directory = directory_of(driver);
    if (directory == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    /* Root's workspaces belong to another user, who must be able to walk through. */
    sandbox_status status =
        sbx_directory_make(AT_FDCWD, directory, geteuid() == 0 ? 0711 : 0700, error);
    return status == SANDBOX_OK ? check_directory(driver, directory, error) : status;
}

static char *directory_of(const struct sbx_memory *driver)
{
    char *directory = sbx_copy(driver->socket);
    char *slash = directory == NULL ? NULL : strrchr(directory, '/');
    if (slash != NULL)
        slash[slash == directory ? 1 : 0] = '\0';
    return directory;
}

static sandbox_status check_directory(const struct sbx_memory *driver, const char *directory,
                                      sandbox_error *error)
{
    struct stat facts;
    if (lstat(directory, &facts) < 0)
        return sbx_fail_errno(error, errno, "cannot look at '%s'", directory);
    bool ours = facts.st_uid == geteuid() || (!driver->own_directory && facts.st_uid == 0);
    bool writable = (facts.st_mode & 022) != 0 && (facts.st_mode & S_ISVTX) == 0;
    if (S_ISDIR(facts.st_mode) && ours && !writable)
        return SANDBOX_OK;
    return sbx_fail_for(error, SANDBOX_DENIED, "unsafe-directory",
                        "'%s' belongs to or can be changed by another user; choose another "
                        "socket, as in memory:/PATH/OF/MINE",
                        directory);
}

/*
 * The program detaches itself once its socket listens: it is then nobody's child, in a session of
 * its own, and holds none of the caller's descriptors.
 */
static sandbox_status start_platform(const struct sbx_memory *driver, const struct sbx_wait *wait,
                                     sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *program = NULL;
    SBX_ON_EXIT(sbx_free_text) char *agent = NULL;
    SBX_ON_EXIT(sbx_free_text) char *directory = sbx_format("%s.state", driver->socket);
    if (directory == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    sandbox_status status = sbx_place_find(PROGRAM, &program, error);
    if (status == SANDBOX_OK && driver->agent == NULL)
        status = sbx_place_find("sandbox-agent", &agent, error);
    if (status != SANDBOX_OK)
        return status == SANDBOX_NOT_FOUND ? sbx_fail_for(error, SANDBOX_UNSUPPORTED, "no-helper",
                                                          "the memory platform's programs are not "
                                                          "installed")
                                           : status;
    const char *const argv[] = {program,        "--detach", "--socket",
                                driver->socket, "--agent",  agent == NULL ? driver->agent : agent,
                                "--state",      directory,  NULL};
    const struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv, .own_session = true};
    SBX_ON_EXIT(sbx_free_text) char *text = NULL;
    int code = 0;
    status = sbx_child_run(&options, wait, &code, &text, error);
    if (status == SANDBOX_OK && code != 0)
        return sbx_fail(error, SANDBOX_UNAVAILABLE, "the memory platform did not start: %s",
                        *text == '\0' ? "it said nothing" : text);
    return status;
}

static void examine_programs(const struct sbx_memory *driver, struct sbx_findings_sink *sink)
{
    static const char *const names[] = {PROGRAM, "sandbox-agent"};
    for (size_t n = 0; n < 2; n++) {
        SBX_ON_EXIT(sbx_free_text) char *path = NULL;
        sandbox_error error = {0};
        if (n == 1 && driver->agent != NULL) {
            bool there = access(driver->agent, X_OK) == 0;
            sink->add(sink, there ? SANDBOX_SEVERITY_GOOD : SANDBOX_SEVERITY_PROBLEM, "agent",
                      driver->agent, there ? "" : "name a program that can be run");
        } else if (sbx_place_find(names[n], &path, &error) == SANDBOX_OK) {
            sink->add(sink, SANDBOX_SEVERITY_GOOD, n == 0 ? "platform" : "agent", path, "");
        } else {
            sink->add(sink, SANDBOX_SEVERITY_PROBLEM, n == 0 ? "platform" : "agent", error.message,
                      "install all of libsandbox");
        }
    }
}

sandbox_status sbx_memory_examine(const char *rest, const struct sbx_wait *wait,
                                  struct sbx_findings_sink *sink, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_memory_settings_clear) struct sbx_memory driver = {0};
    sandbox_status status = sbx_memory_settings_read(rest, &driver, error);
    if (status != SANDBOX_OK)
        return status;
    sink->add(sink, SANDBOX_SEVERITY_NOTE, "isolation",
              "none: commands run on this machine as its own processes",
              "use it for tests and examples only");
    examine_programs(&driver, sink);

    SBX_ON_EXIT(sbx_close_fd) int fd = -1;
    sandbox_error found = {0};
    status = sbx_memory_connect_running(&driver, wait, &fd, &found);
    if (status == SANDBOX_OK) {
        sink->add(sink, SANDBOX_SEVERITY_GOOD, "socket", driver.socket, "");
    } else if (status == SANDBOX_NOT_FOUND) {
        SBX_ON_EXIT(sbx_free_text) char *directory = directory_of(&driver);
        if (directory == NULL)
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
        status = check_directory(&driver, directory, &found);
        bool good = status == SANDBOX_OK || status == SANDBOX_NOT_FOUND;
        sink->add(sink, good ? SANDBOX_SEVERITY_GOOD : SANDBOX_SEVERITY_PROBLEM, "socket",
                  good ? "no platform runs yet; the first use starts it" : found.message,
                  good ? "" : "choose another socket, as in memory:/PATH/OF/MINE");
    } else {
        sink->add(sink, SANDBOX_SEVERITY_PROBLEM, "socket", found.message,
                  "end the process that listens there, or choose another socket");
    }
    return SANDBOX_OK;
}
