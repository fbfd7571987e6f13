/*
 * What a suspend asks beside the agent: the checks that a workspace's record names, and those
 * that the caller gives.
 */
#ifndef SBX_CHECKS_H
#define SBX_CHECKS_H

#include "core/record.h"
#include <sandbox/activity.h>

#define SBX_CHECKS_GIVEN_MAX 64

/* Ready to be asked. Pointers lead into it: it is not to be moved once it is settled. */
struct sbx_checks {
    size_t count;
    sandbox_check all[SBX_CHECKS_MAX + SBX_CHECKS_GIVEN_MAX];
    sandbox_opencode opencode[SBX_CHECKS_MAX]; /* what those of the record are asked with */
};

/* Whether all of them are known, as sandbox_workspace_options.checks. NULL: none. */
sandbox_status sbx_checks_validate(const char *const *checks, sandbox_error *error);

/* `recorded` as in a record, NULL for none; `given` is borrowed as long as `out` is used. */
sandbox_status sbx_checks_settle(const char *const *recorded, const sandbox_check *given,
                                 size_t given_count, struct sbx_checks *out,
                                 sandbox_error *error);

#endif
