/* Suspend, resume, checkpoint, recover: the public functions. The work is core's. */

#include "checks.h"
#include "core/egress.h"
#include "core/lifecycle.h"
#include "core/recover.h"
#include "core/resume.h"
#include "core/session.h"
#include "core/store.h"
#include "core/suspend.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/options.h"

#define SUSPEND_MS 300000u
#define RECOVER_MS 600000u
#define QUIET_MS   30000u
#define FINISH_MS  10000u

static sandbox_status suspend(sandbox_workspace *workspace, const sandbox_suspend_options *given,
                              bool checkpoint, const sandbox_call *call,
                              sandbox_suspend_result *result, sandbox_error *error);
static void put_session(sandbox_workspace *workspace, struct sbx_session *session);

sandbox_status sandbox_workspace_suspend(sandbox_workspace *workspace,
                                         const sandbox_suspend_options *options,
                                         const sandbox_call *call, sandbox_suspend_result *result,
                                         sandbox_error *error)
{
    return suspend(workspace, options, false, call, result, error);
}

sandbox_status sandbox_workspace_checkpoint(sandbox_workspace *workspace,
                                            const sandbox_suspend_options *options,
                                            const sandbox_call *call,
                                            sandbox_suspend_result *result, sandbox_error *error)
{
    return suspend(workspace, options, true, call, result, error);
}

static sandbox_status settle_options(const sandbox_suspend_options *given,
                                     sandbox_suspend_options *settled, sandbox_error *error)
{
    sandbox_status status = sbx_options_adopt(settled, sizeof *settled, given, error);
    if (status != SANDBOX_OK)
        return status;
    if ((unsigned)settled->keep > SANDBOX_KEEP_FILES)
        return sbx_fail(error, SANDBOX_INVALID, "'keep' is none of the known values");
    uint8_t id[SBX_ID_BYTES];
    if (settled->spare != NULL && !sbx_id_parse(settled->spare, id))
        return sbx_fail(error, SANDBOX_INVALID, "'spare' is no snapshot's id");
    if (settled->quiet_ms == 0)
        settled->quiet_ms = QUIET_MS;
    if (settled->finish_ms == 0)
        settled->finish_ms = FINISH_MS;
    return SANDBOX_OK;
}

/* The checks that the record names come first: whoever made the workspace knows what runs in it. */
static sandbox_status settle_checks(sandbox_workspace *workspace, sandbox_suspend_options *options,
                                    const struct sbx_wait *wait, struct sbx_checks *checks,
                                    bool *runs, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
    sandbox_status status =
        sbx_store_load(workspace->client, workspace->name, wait, &record, error);
    if (status == SANDBOX_NOT_FOUND)
        return SANDBOX_OK; /* what follows says so */
    if (status == SANDBOX_OK)
        status = sbx_checks_settle((const char *const *)record.checks, options->checks,
                                   options->check_count, checks, error);
    *runs = record.state == SANDBOX_STATE_RUNNING && record.operation.kind[0] == '\0';
    options->checks = checks->all;
    options->check_count = checks->count;
    return status;
}

/*
 * Shutting others out cuts their connections into the workspace. So the agent is asked once before:
 * whoever is refused anyhow disturbs nobody. What cannot be asked is left to the suspend itself.
 */
static sandbox_status look_first(sandbox_workspace *workspace,
                                 const sandbox_suspend_options *options,
                                 const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_session *session = NULL;
    struct sbx_gate_activity seen;
    sandbox_status status = sbx_workspace_session(workspace, wait, &session, NULL);
    if (status == SANDBOX_OK)
        status = sbx_gate_activity(session, wait, &seen, NULL);
    sbx_session_drop(session);
    return status != SANDBOX_OK
               ? SANDBOX_OK
               : sbx_suspend_judge(workspace->name, &seen, options->quiet_ms, error);
}

static sandbox_status suspend(sandbox_workspace *workspace, const sandbox_suspend_options *given,
                              bool checkpoint, const sandbox_call *call,
                              sandbox_suspend_result *result, sandbox_error *error)
{
    struct sbx_wait wait;
    struct sbx_checks checks = {0};
    bool runs = false;
    struct sbx_suspend_request request = {.checkpoint = checkpoint, .handle = workspace};
    sandbox_suspend_result done = {SANDBOX_SUSPEND_RESULT};
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, SUSPEND_MS, error);
    if (status == SANDBOX_OK)
        status = settle_options(given, &request.options, error);
    if (status == SANDBOX_OK)
        status = settle_checks(workspace, &request.options, &wait, &checks, &runs, error);
    if (status == SANDBOX_OK && runs && !checkpoint && !request.options.force)
        status = look_first(workspace, &request.options, &wait, error);
    if (status != SANDBOX_OK)
        return status;
    sandbox_client *client = workspace->client;
    int64_t begun = sbx_clock_monotonic(client->clock);
    status =
        sbx_life_suspend(client, workspace->name, workspace->id, &request, &wait, &done, error);
    if (status != SANDBOX_OK)
        return status;
    done.took_ms = (uint32_t)(sbx_clock_monotonic(client->clock) - begun);
    put_session(workspace, NULL);
    return result == NULL ? SANDBOX_OK : sbx_options_fill(result, &done, sizeof done, error);
}

/* What is wrong in itself is told before anything is brought back. */
static sandbox_status check_egress(const sandbox_resume_options *options, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_egress_plan_clear) struct sbx_egress_plan plan = {0};
    sandbox_status status = sbx_egress_plan_make(NULL, options->egress, &plan, error);
    return status == SANDBOX_OK ? sbx_egress_plan_screen(&plan, options->env, error) : status;
}

sandbox_status sandbox_workspace_resume(sandbox_workspace *workspace,
                                        const sandbox_resume_options *given,
                                        const sandbox_call *call, sandbox_resume_result *result,
                                        sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_resume_options options;
    struct sbx_session *session = NULL;
    sandbox_resume_result done = {SANDBOX_RESUME_RESULT, .hook_code = -1};
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, SUSPEND_MS, error);
    if (status == SANDBOX_OK)
        status = sbx_options_adopt(&options, sizeof options, given, error);
    if (status == SANDBOX_OK && ((unsigned)options.accept > SANDBOX_ACCEPT_COLD ||
                                 (unsigned)options.from > SANDBOX_FROM_SNAPSHOT))
        status = sbx_fail(error, SANDBOX_INVALID, "'accept' or 'from' is none of the known values");
    if (status == SANDBOX_OK)
        status = sbx_workspace_environment_check(options.env, error);
    if (status == SANDBOX_OK)
        status = check_egress(&options, error);
    if (status != SANDBOX_OK)
        return status;
    sandbox_client *client = workspace->client;
    struct sbx_resume_request request = {.accept = options.accept,
                                         .from = options.from,
                                         .snapshot = options.snapshot,
                                         .environment = options.env,
                                         .keep_environment = options.env == NULL,
                                         .egress = options.egress};
    int64_t begun = sbx_clock_monotonic(client->clock);
    status = sbx_life_resume(client, workspace->name, workspace->id, &request, &wait, &done,
                             &session, error);
    if (status != SANDBOX_OK)
        return status;
    done.took_ms = (uint32_t)(sbx_clock_monotonic(client->clock) - begun);
    if (session != NULL)
        put_session(workspace, session);
    return result == NULL ? SANDBOX_OK : sbx_options_fill(result, &done, sizeof done, error);
}

/* The handle's next call uses it; takes it over. NULL: the next call makes its own. */
static void put_session(sandbox_workspace *workspace, struct sbx_session *session)
{
    pthread_mutex_lock(&workspace->lock);
    struct sbx_session *former = workspace->session;
    workspace->session = session;
    pthread_mutex_unlock(&workspace->lock);
    sbx_session_drop(former);
}

sandbox_status sandbox_client_recover(sandbox_client *client, const sandbox_call *call,
                                      size_t *count, sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_status status = sbx_client_check(client, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, RECOVER_MS, error);
    return status == SANDBOX_OK ? sbx_life_recover(client, &wait, count, error) : status;
}
