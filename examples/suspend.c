/*
 * suspend [URI]: suspends a workspace in which a process counts, and resumes it. The process goes
 * on where it was, and the handle on it reads on without a gap.
 */

#include <inttypes.h>
#include <sandbox/sandbox.h>
#include <stdio.h>

/* Shows what it prints until that many numbers have come. */
static sandbox_status read_numbers(sandbox_process *counter, unsigned count, sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    while (count > 0 && status == SANDBOX_OK) {
        sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
        status = sandbox_process_next(counter, NULL, &event, error);
        if (event.data_size > 0)
            fwrite(event.data, 1, event.data_size, stdout);
        for (size_t i = 0; i < event.data_size && count > 0; i++)
            count -= event.data[i] == '\n';
    }
    return status;
}

static sandbox_status sleep_and_wake(sandbox_workspace *workspace, sandbox_error *error)
{
    sandbox_suspend_result slept = {SANDBOX_SUSPEND_RESULT};
    sandbox_resume_result woke = {SANDBOX_RESUME_RESULT};
    sandbox_status status = sandbox_workspace_suspend(workspace, NULL, NULL, &slept, error);
    if (status != SANDBOX_OK)
        return status;
    printf("suspended: no sandbox, all is in %" PRIu64 " bytes\n", slept.bytes);
    status = sandbox_workspace_resume(workspace, NULL, NULL, &woke, error);
    if (status == SANDBOX_OK)
        printf("resumed: %s, proven by %s\n", woke.restored ? "restored" : "not restored",
               woke.proof == SANDBOX_PROOF_MEMORY ? "memory" : "files");
    return status;
}

static sandbox_status count_on(sandbox_workspace *workspace, sandbox_error *error)
{
    /* A service does not count as work that must not be suspended. */
    sandbox_process_options options = {
        SANDBOX_PROCESS_OPTIONS, .role = SANDBOX_ROLE_SERVICE,
        .command = "n=0; while sleep 0.1; do echo $n; n=$((n+1)); done"};
    sandbox_process *counter = NULL;
    sandbox_status status = sandbox_process_start(workspace, &options, NULL, &counter, error);
    if (status == SANDBOX_OK)
        status = read_numbers(counter, 5, error);
    if (status == SANDBOX_OK)
        status = sleep_and_wake(workspace, error);
    if (status == SANDBOX_OK)
        status = read_numbers(counter, 5, error);
    sandbox_process_free(counter);
    return status;
}

int main(int count, char **arguments)
{
    sandbox_error error;
    sandbox_client *client = NULL;
    sandbox_workspace *workspace = NULL;
    sandbox_client_options where = {SANDBOX_CLIENT_OPTIONS, .uri = count > 1 ? arguments[1] : NULL};
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .expires_after_ms = 600000};
    sandbox_status status = sandbox_client_open(&where, NULL, &client, &error);
    if (status == SANDBOX_OK)
        status = sandbox_workspace_create(client, &options, NULL, &workspace, &error);
    if (status == SANDBOX_OK)
        status = count_on(workspace, &error);
    if (status != SANDBOX_OK)
        fprintf(stderr, "suspend: %s\n", error.message);
    if (workspace != NULL && sandbox_workspace_delete(workspace, NULL, &error) != SANDBOX_OK)
        fprintf(stderr, "suspend: left behind: %s\n", error.message);
    sandbox_workspace_free(workspace);
    sandbox_client_free(client);
    return status == SANDBOX_OK ? 0 : 1;
}
