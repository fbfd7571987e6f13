/* Who may act on a workspace now, and whether another owner has ended. */

#include "drivers/gvisor/gvisor.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include "util/owner.h"
#include <stdio.h>
#include <unistd.h>

static sandbox_status check_record(struct sbx_gvisor *driver, const struct sbx_record *record,
                                   const struct sbx_wait *wait, bool *missing,
                                   sandbox_error *error);

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
    return sbx_owner_name(owner, error);
}

bool sbx_gvisor_owner_is_gone(void *state, const char *owner)
{
    return sbx_owner_is_gone(owner, SBX_OWNER_HERE);
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
    if (*missing || !sbx_record_is_claimed_by(&stored, record))
        return sbx_fail_for(error, SANDBOX_CONFLICT, "stale-epoch",
                            "another operation has taken over the workspace '%s'", record->name);
    return SANDBOX_OK;
}
