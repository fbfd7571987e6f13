/*
 * stream_output [URI]: shows a command's output while it runs, each stream under its own name,
 * and answers its question.
 */

#include <sandbox/sandbox.h>
#include <stdio.h>
#include <string.h>

static const char line[] = "for i in 1 2 3; do echo line $i; echo note $i >&2; done; "
                           "echo 'your name?'; read name; echo \"hello $name\"; exit 7";

static sandbox_status follow(sandbox_process *process, sandbox_error *error)
{
    sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
    sandbox_status status = sandbox_process_write(process, "Ada\n", 4, NULL, error);
    while (status == SANDBOX_OK) {
        status = sandbox_process_next(process, NULL, &event, error);
        if (status != SANDBOX_OK)
            break;
        if (event.kind == SANDBOX_PROCESS_EXIT) {
            printf("[ended with %d]\n", event.exit.code);
            return SANDBOX_OK;
        }
        /* Bytes, in pieces of any size: a line may come in two, and so may a character. */
        printf("[%s] %.*s", event.kind == SANDBOX_PROCESS_STDERR ? "stderr" : "stdout",
               (int)event.data_size, (const char *)event.data);
    }
    return status;
}

static sandbox_status run(sandbox_workspace *workspace, sandbox_error *error)
{
    sandbox_process *process;
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = line,
                                       .input = SANDBOX_INPUT_PIPE, .deadline_ms = 60 * 1000};
    sandbox_status status = sandbox_process_start(workspace, &options, NULL, &process, error);
    if (status != SANDBOX_OK)
        return status;
    status = follow(process, error);
    sandbox_process_free(process);
    return status;
}

int main(int count, char **arguments)
{
    sandbox_error error;
    sandbox_client *client = NULL;
    sandbox_workspace *workspace = NULL;
    sandbox_client_options where = {SANDBOX_CLIENT_OPTIONS, .uri = count > 1 ? arguments[1] : NULL};
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS,
                                         .expires_after_ms = 10 * 60 * 1000};

    sandbox_status status = sandbox_client_open(&where, NULL, &client, &error);
    if (status == SANDBOX_OK)
        status = sandbox_workspace_create(client, &options, NULL, &workspace, &error);
    if (status == SANDBOX_OK)
        status = run(workspace, &error);
    if (status != SANDBOX_OK)
        fprintf(stderr, "stream_output: %s\n", error.message);
    if (workspace != NULL && sandbox_workspace_delete(workspace, NULL, &error) != SANDBOX_OK)
        fprintf(stderr, "stream_output: left behind: %s\n", error.message);
    sandbox_workspace_free(workspace);
    sandbox_client_free(client);
    return status == SANDBOX_OK ? 0 : 1;
}
