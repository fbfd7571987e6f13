/*
 * What was removed by name goes from the disk here. A file system may wait for the disk at each
 * file, a third of a second for a gigabyte, and nobody needs to wait for that: it goes in a thread
 * of the driver, or in whatever process opens the state directory next.
 *
 * removed/WORKSPACE.SNAPSHOT is nobody's any more. Whoever empties one holds a lock on it.
 */

#include "drivers/gvisor/gvisor.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/log.h"
#include "util/memory.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#define FOLDER       "removed"
#define LAST_MS      2000u /* that a client's end waits for it */
#define BUSY_LOOK_MS 10u   /* a lock wakes nobody who waits only for a while */

static int move(struct sbx_gvisor *driver, const char *from, const char *to);
static sandbox_status remove_there(struct sbx_gvisor *driver, const char *path,
                                   const struct sbx_wait *wait, sandbox_error *error);
static bool start(struct sbx_gvisor *driver);
static void *serve(void *data);
static DIR *list(struct sbx_gvisor *driver);
static sandbox_status empty(struct sbx_gvisor *driver, const char *name, bool patient,
                            const struct sbx_wait *wait, sandbox_error *error);
static int is_stopped(void *user_data);

void sbx_gvisor_sweep_begin(struct sbx_gvisor *driver)
{
    DIR *all = list(driver);
    bool found = false;
    for (struct dirent *entry; all != NULL && !found && (entry = readdir(all)) != NULL;)
        found = entry->d_name[0] != '.';
    if (all != NULL)
        closedir(all);
    if (found)
        (void)start(driver);
}

sandbox_status sbx_gvisor_sweep(struct sbx_gvisor *driver, const char *id, const char *snapshot,
                                const struct sbx_wait *wait, sandbox_error *error)
{
    char folder[64], path[SBX_GVISOR_PATH], name[SBX_GVISOR_PATH];
    snprintf(folder, sizeof folder, "workspaces/%s/snapshots", id);
    snprintf(path, sizeof path, "%s/%s", folder, snapshot);
    snprintf(name, sizeof name, FOLDER "/%s.%s", id, snapshot);
    int failed = move(driver, path, name);
    if (failed == ENOTEMPTY || failed == EEXIST) { /* somebody has put it back meanwhile */
        sandbox_status status = sbx_gvisor_sweep_now(driver, id, wait, error);
        if (status != SANDBOX_OK)
            return status;
        failed = move(driver, path, name);
    }
    if (failed == EXDEV) /* the workspaces lie on a disk of their own */
        return remove_there(driver, path, wait, error);
    if (failed != 0 && failed != ENOENT)
        return sbx_fail_errno(error, failed, "cannot remove the snapshot '%s'", snapshot);
    if (failed == ENOENT)
        return SANDBOX_OK;
    /* Once the record does not name it any more, it must not be back after a loss of power. */
    sandbox_status status = sbx_directory_sync(driver->directory, folder, error);
    if (status == SANDBOX_OK && !start(driver))
        status = sbx_gvisor_sweep_now(driver, id, wait, error);
    return status;
}

sandbox_status sbx_gvisor_sweep_now(struct sbx_gvisor *driver, const char *id,
                                    const struct sbx_wait *wait, sandbox_error *error)
{
    DIR *all = list(driver);
    if (all == NULL)
        return errno == ENOENT ? SANDBOX_OK
                               : sbx_fail_errno(error, errno, "cannot list what was removed");
    sandbox_status status = SANDBOX_OK;
    for (struct dirent *entry; status == SANDBOX_OK && (entry = readdir(all)) != NULL;) {
        if (entry->d_name[0] != '.' && (id == NULL || strncmp(entry->d_name, id, strlen(id)) == 0))
            status = empty(driver, entry->d_name, true, wait, error);
    }
    closedir(all);
    return status;
}

void sbx_gvisor_sweep_end(struct sbx_gvisor *driver)
{
    struct sbx_gvisor_sweeper *sweeper = &driver->sweeper;
    struct sbx_wait last = sbx_wait_alone(LAST_MS);
    pthread_mutex_lock(&driver->mutex);
    while (sweeper->busy &&
           sbx_wait_condition(&last, &sweeper->idle, &driver->mutex, NULL) == SANDBOX_OK)
        continue;
    bool started = sweeper->started;
    pthread_mutex_unlock(&driver->mutex);
    atomic_store(&sweeper->stop, true);
    if (started)
        pthread_join(sweeper->thread, NULL);
}

static int move(struct sbx_gvisor *driver, const char *from, const char *to)
{
    return renameat(driver->directory, from, driver->directory, to) == 0 ? 0 : errno;
}

/* Half of it must never be taken for it. */
static sandbox_status remove_there(struct sbx_gvisor *driver, const char *path,
                                   const struct sbx_wait *wait, sandbox_error *error)
{
    char away[SBX_GVISOR_PATH + 8];
    snprintf(away, sizeof away, "%s.away", path);
    sandbox_status status = sbx_gvisor_remove(driver->directory, away, wait, error);
    int failed = status == SANDBOX_OK ? move(driver, path, away) : 0;
    if (failed != 0 && failed != ENOENT)
        return sbx_fail_errno(error, failed, "cannot remove '%s'", path);
    return status != SANDBOX_OK ? status : sbx_gvisor_remove(driver->directory, away, wait, error);
}

/* False: there can be no thread. */
static bool start(struct sbx_gvisor *driver)
{
    struct sbx_gvisor_sweeper *sweeper = &driver->sweeper;
    sigset_t everything, before;
    sigfillset(&everything);
    pthread_mutex_lock(&driver->mutex);
    sweeper->again = true;
    bool busy = sweeper->busy;
    if (!busy) {
        if (sweeper->started)
            pthread_join(sweeper->thread, NULL); /* it has said that it is done */
        pthread_sigmask(SIG_SETMASK, &everything, &before);
        busy = pthread_create(&sweeper->thread, NULL, serve, driver) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        sweeper->started = sweeper->busy = busy;
    }
    pthread_mutex_unlock(&driver->mutex);
    return busy;
}

static void *serve(void *data)
{
    struct sbx_gvisor *driver = data;
    struct sbx_gvisor_sweeper *sweeper = &driver->sweeper;
    struct sbx_wait wait = {
        .deadline_ms = INT64_MAX, .interrupted = is_stopped, .user_data = sweeper};
    pthread_mutex_lock(&driver->mutex);
    while (sweeper->again && !atomic_load(&sweeper->stop)) {
        sweeper->again = false;
        pthread_mutex_unlock(&driver->mutex);
        DIR *all = list(driver);
        for (struct dirent *entry; all != NULL && (entry = readdir(all)) != NULL;) {
            sandbox_error left = {0};
            if (entry->d_name[0] == '.' || atomic_load(&sweeper->stop) ||
                empty(driver, entry->d_name, false, &wait, &left) == SANDBOX_OK)
                continue;
            /* It costs room, and not safety. */
            if (left.status != SANDBOX_CANCELLED)
                sbx_log(SANDBOX_LOG_WARNING, "a removed snapshot is left on the disk: %s",
                        left.message);
        }
        if (all != NULL)
            closedir(all);
        pthread_mutex_lock(&driver->mutex);
    }
    sweeper->busy = false;
    pthread_cond_broadcast(&sweeper->idle);
    pthread_mutex_unlock(&driver->mutex);
    return NULL;
}

static DIR *list(struct sbx_gvisor *driver)
{
    int fd = openat(driver->directory, FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *all = fd < 0 ? NULL : fdopendir(fd);
    if (all == NULL)
        sbx_close_fd(&fd);
    return all;
}

/* Who is not patient leaves it to whoever is at it already. */
static sandbox_status empty(struct sbx_gvisor *driver, const char *name, bool patient,
                            const struct sbx_wait *wait, sandbox_error *error)
{
    char path[SBX_GVISOR_PATH];
    if ((size_t)snprintf(path, sizeof path, FOLDER "/%s", name) >= sizeof path)
        return SANDBOX_OK; /* no name of ours */
    SBX_ON_EXIT(sbx_close_fd)
    int held = openat(driver->directory, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (held < 0)
        return errno == ENOENT ? SANDBOX_OK
                               : sbx_fail_errno(error, errno, "cannot remove '%s'", path);
    while (flock(held, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return sbx_fail_errno(error, errno, "cannot lock '%s'", path);
        sandbox_status status = patient ? sbx_wait_pause(wait, BUSY_LOOK_MS, error) : SANDBOX_OK;
        if (status != SANDBOX_OK || !patient)
            return status;
    }
    return sbx_gvisor_remove(driver->directory, path, wait, error);
}

static int is_stopped(void *user_data)
{
    struct sbx_gvisor_sweeper *sweeper = user_data;
    return atomic_load(&sweeper->stop);
}
