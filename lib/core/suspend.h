/* Suspending, and the checkpoint that goes on at once; see doc/lifecycle.md. */
#ifndef SBX_CORE_SUSPEND_H
#define SBX_CORE_SUSPEND_H

#include "core/client.h"
#include "core/gate.h"

struct sbx_suspend_request {
    sandbox_suspend_options options; /* checked and filled up */
    bool checkpoint;
    sandbox_workspace *handle; /* whose session may be used, where nobody works with it; or NULL */
};

/*
 * By name and id. `result` is filled on success. For a checkpoint the workspace runs again when
 * it returns; what its resume found is in the log.
 */
sandbox_status sbx_life_suspend(sandbox_client *client, const char *name, const char *id,
                                const struct sbx_suspend_request *request,
                                const struct sbx_wait *wait, sandbox_suspend_result *result,
                                sandbox_error *error);

/* SANDBOX_BUSY, with a message that says who, if what the agent sees is activity. */
sandbox_status sbx_suspend_judge(const char *name, const struct sbx_gate_activity *seen,
                                 uint32_t quiet_ms, sandbox_error *error);

#endif
