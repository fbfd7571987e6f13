/* Who may act on a workspace now, and whether another owner has ended. */

#include "drivers/gvisor/gvisor.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static sandbox_status check_record(struct sbx_gvisor *driver, const struct sbx_record *record,
                                   const struct sbx_wait *wait, bool *missing,
                                   sandbox_error *error);
static uint64_t pid_namespace(void);

sandbox_status sbx_gvisor_fence(struct sbx_gvisor *driver, const struct sbx_record *record,
                                const struct sbx_wait *wait, int *lock, sandbox_error *error)
{
    char path[64];
    snprintf(path, sizeof path, "locks/%s.instance", record->id);
    SBX_ON_EXIT(sbx_close_fd) int held = -1;
    sandbox_status status = sbx_file_lock(driver->directory, path, true, wait, &held, error);
    if (status != SANDBOX_OK)
        return status;
    bool missing = false;
    status = check_record(driver, record, wait, &missing, error);
    if (missing) /* nobody will ever need this lock again */
        unlinkat(driver->directory, path, 0);
    if (status == SANDBOX_OK)
        *lock = sbx_take_fd(&held);
    return status;
}

sandbox_status sbx_gvisor_owner_name(void *state, char owner[128], sandbox_error *error)
{
    char boot[40];
    if (!sbx_gvisor_boot_id(boot))
        return sbx_fail(error, SANDBOX_FAILED, "cannot read the host's boot id in /proc");
    pid_t pid = getpid();
    snprintf(owner, 128, "%s:%" PRIu64 ":%d:%" PRIu64, boot, pid_namespace(), (int)pid,
             sbx_gvisor_started(pid));
    return SANDBOX_OK;
}

/* Only what is certain: another PID namespace's processes cannot be seen from here. */
bool sbx_gvisor_owner_is_gone(void *state, const char *owner)
{
    char boot[40], their_boot[40] = "";
    uint64_t namespace_number = 0, started = 0;
    int pid = 0;
    if (sscanf(owner, "%39[0-9a-f-]:%" SCNu64 ":%d:%" SCNu64, their_boot, &namespace_number, &pid,
               &started) != 4 ||
        pid <= 0 || !sbx_gvisor_boot_id(boot))
        return false;
    if (strcmp(boot, their_boot) != 0)
        return true;
    if (namespace_number != pid_namespace())
        return false;
    uint64_t now = sbx_gvisor_started(pid);
    return now != started && now != SBX_GVISOR_CANNOT_TELL;
}

static sandbox_status check_record(struct sbx_gvisor *driver, const struct sbx_record *record,
                                   const struct sbx_wait *wait, bool *missing, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *text = NULL;
    size_t size = 0;
    char version[SBX_VERSION_TEXT];
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record stored = {0};
    sandbox_status status =
        sbx_gvisor_record_load(driver, record->name, wait, &text, &size, version, error);
    if (status == SANDBOX_OK)
        status = sbx_record_decode(text, size, &stored, error);
    if (status != SANDBOX_OK && status != SANDBOX_NOT_FOUND)
        return status;
    *missing = status == SANDBOX_NOT_FOUND;
    if (*missing || strcmp(stored.id, record->id) != 0 || stored.epoch != record->epoch ||
        strcmp(stored.operation.id, record->operation.id) != 0)
        return sbx_fail_for(error, SANDBOX_CONFLICT, "stale-epoch",
                            "another operation has taken over the workspace '%s'", record->name);
    return SANDBOX_OK;
}

static uint64_t pid_namespace(void)
{
    struct stat facts;
    return stat("/proc/self/ns/pid", &facts) < 0 ? 0 : (uint64_t)facts.st_ino;
}
