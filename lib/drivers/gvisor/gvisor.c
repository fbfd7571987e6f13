/* The gVisor driver's table, and its opening: the state directory, runsc, what limits there are. */

#include "cloud/http.h"
#include "drivers/gvisor/snapshot.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const folders[] = {"records", "locks",    "workspaces", "runsc",  "base",
                                      "agents",  "runtimes", "secrets",    "removed", "egress"};

static sandbox_status open_driver(const char *rest, const struct sbx_wait *wait, void **state,
                                  sandbox_error *error);
static void close_driver(void *state);
static bool can(void *state, sandbox_ability ability);
static sandbox_status open_state(struct sbx_gvisor *driver, sandbox_error *error);
static void abandon(struct sbx_gvisor **driver);

const struct sbx_driver sbx_driver_gvisor = {
    .name = "gvisor",
    .open = open_driver,
    .close = close_driver,
    .can = can,
    .examine = sbx_gvisor_examine,
    .record_load = sbx_gvisor_record_load,
    .record_store = sbx_gvisor_record_store,
    .record_remove = sbx_gvisor_record_remove,
    .record_list = sbx_gvisor_record_list,
    .secret = sbx_gvisor_secret,
    .owner_name = sbx_gvisor_owner_name,
    .owner_is_gone = sbx_gvisor_owner_is_gone,
    .provision = sbx_gvisor_provision,
    .inspect = sbx_gvisor_inspect,
    .discard = sbx_gvisor_discard,
    .destroy = sbx_gvisor_destroy,
    .connect = sbx_gvisor_connect,
    .needs_parking = sbx_gvisor_needs_parking,
    .snapshot_prepare = sbx_gvisor_snapshot_prepare,
    .snapshot_take = sbx_gvisor_snapshot_take,
    .snapshot_adopt = sbx_gvisor_snapshot_adopt,
    .snapshot_verify = sbx_gvisor_snapshot_verify,
    .snapshot_remove = sbx_gvisor_snapshot_remove,
    .restore = sbx_gvisor_restore,
    .release = sbx_gvisor_discard,
    .egress_open = sbx_gvisor_egress_open,
    .egress_ask = sbx_gvisor_egress_ask,
    .egress_forget = sbx_gvisor_egress_forget,
};

static sandbox_status open_driver(const char *rest, const struct sbx_wait *wait, void **state,
                                  sandbox_error *error)
{
    SBX_ON_EXIT(abandon) struct sbx_gvisor *driver = calloc(1, sizeof *driver);
    if (driver == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a client");
    driver->directory = -1;
    driver->host = "/";
    pthread_mutex_init(&driver->mutex, NULL);
    if (sbx_condition_init(&driver->sweeper.idle) != 0)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a client");
    driver->cache = sbx_gvisor_cache_new();
    if (driver->cache == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a client");

    sandbox_status status = sbx_gvisor_settings_read(rest, &driver->settings, error);
    if (status != SANDBOX_OK)
        return status;
    if (geteuid() != 0)
        return sbx_fail_for(error, SANDBOX_DENIED, "needs-root",
                            "the gvisor driver must run as root: it makes mounts and owns '%s'",
                            driver->settings.state);
    char *runsc = NULL;
    status = sbx_gvisor_runsc_find(driver->settings.runsc, &runsc, error);
    if (status != SANDBOX_OK)
        return status;
    free(driver->settings.runsc);
    driver->settings.runsc = runsc;

    status = open_state(driver, error);
    if (status != SANDBOX_OK)
        return status;
    sbx_gvisor_limits_probe(&driver->limits);
    sbx_gvisor_sweep_begin(driver);
    *state = sbx_take(driver);
    return SANDBOX_OK;
}

static void close_driver(void *state)
{
    struct sbx_gvisor *driver = state;
    sbx_gvisor_ready_forget(driver, NULL);
    sbx_gvisor_sweep_end(driver);
    sbx_http_stop(driver->http);
    sbx_gvisor_settings_clear(&driver->settings);
    sbx_gvisor_cache_free(driver->cache);
    sbx_close_fd(&driver->directory);
    sbx_gvisor_runtime_clear(&driver->runtime);
    free(driver->runsc_root);
    pthread_cond_destroy(&driver->sweeper.idle);
    pthread_mutex_destroy(&driver->mutex);
    free(driver);
}

static bool can(void *state, sandbox_ability ability)
{
    const struct sbx_gvisor *driver = state;
    switch (ability) {
    case SANDBOX_CAN_LIMIT_MEMORY:
        return driver->limits.memory;
    case SANDBOX_CAN_LIMIT_CPU:
        return driver->limits.cpu;
    case SANDBOX_CAN_LIMIT_PROCESSES: /* the agent does */
    case SANDBOX_CAN_USE_IMAGES:
    case SANDBOX_CAN_KEEP_FILES:
    case SANDBOX_CAN_REACH_OUT:
    case SANDBOX_CAN_KEEP_MEMORY: /* every runsc that is not too old for the driver */
        return true;
    case SANDBOX_CAN_LIMIT_DISK:
        return false;
    }
    return false;
}

sandbox_status sbx_gvisor_abilities(struct sbx_gvisor *driver, const struct sbx_wait *wait,
                                    struct sbx_gvisor_runsc *out, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_gvisor_runtime_clear) struct sbx_gvisor_runtime runtime = {0};
    sandbox_status status = sbx_gvisor_runtime(driver, wait, &runtime, error);
    if (status == SANDBOX_OK)
        *out = runtime.runsc;
    return status;
}

char *sbx_gvisor_path(const struct sbx_gvisor *driver, const char *format, ...)
{
    char rest[SBX_GVISOR_PATH];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(rest, sizeof rest, format, arguments);
    va_end(arguments);
    if (size < 0 || (size_t)size >= sizeof rest)
        return NULL;
    return sbx_format("%s/%s", driver->settings.state, rest);
}

sandbox_status sbx_gvisor_directory(int at, const char *path, mode_t mode, sandbox_error *error)
{
    if (mkdirat(at, path, mode) < 0 && errno != EEXIST)
        return sbx_fail_errno(error, errno, "cannot make the directory '%s'", path);
    SBX_ON_EXIT(sbx_close_fd)
    int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fchmod(fd, mode) < 0)
        return sbx_fail_errno(error, errno, "cannot use the directory '%s'", path);
    return SANDBOX_OK;
}

sandbox_status sbx_gvisor_file(int at, const char *path, const void *data, size_t size, mode_t mode,
                               sandbox_error *error)
{
    if (unlinkat(at, path, 0) < 0 && errno != ENOENT)
        return sbx_fail_errno(error, errno, "cannot replace '%s'", path);
    SBX_ON_EXIT(sbx_close_fd)
    int fd = openat(at, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int failed = fd < 0 ? errno : sbx_write_all(fd, data, size);
    if (failed == 0 && fchmod(fd, mode) < 0)
        failed = errno;
    if (failed != 0)
        return sbx_fail_errno(error, failed, "cannot write '%s'", path);
    return SANDBOX_OK;
}

static sandbox_status open_state(struct sbx_gvisor *driver, sandbox_error *error)
{
    sandbox_status status = sbx_directory_make(AT_FDCWD, driver->settings.state, 0700, error);
    if (status != SANDBOX_OK)
        return status;
    /* One name for it whatever links led there: processes are known by it. */
    char *real = realpath(driver->settings.state, NULL);
    if (real == NULL)
        return sbx_fail_errno(error, errno, "cannot use '%s'", driver->settings.state);
    free(driver->settings.state);
    driver->settings.state = real;

    struct stat facts;
    driver->directory = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (driver->directory < 0 || fstat(driver->directory, &facts) < 0)
        return sbx_fail_errno(error, errno, "cannot use '%s'", real);
    if (facts.st_uid != geteuid() || (facts.st_mode & 022) != 0)
        return sbx_fail_for(error, SANDBOX_DENIED, "unsafe-state-directory",
                            "'%s' belongs to or can be written by others; make it root's alone "
                            "(chown root, chmod 700) or choose another directory",
                            real);
    for (size_t n = 0; n < sizeof folders / sizeof folders[0]; n++) {
        status = sbx_gvisor_directory(driver->directory, folders[n], 0700, error);
        if (status != SANDBOX_OK)
            return status;
    }
    driver->runsc_root = sbx_gvisor_path(driver, "runsc");
    return driver->runsc_root == NULL ? sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a client")
                                      : SANDBOX_OK;
}

static void abandon(struct sbx_gvisor **driver)
{
    if (*driver != NULL)
        close_driver(*driver);
}
