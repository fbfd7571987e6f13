/* The example of the README: one command in a workspace of its own. */

#include <sandbox/sandbox.h>
#include <stdio.h>

int main(void)
{
    sandbox_error error;
    sandbox_client *client = NULL;
    sandbox_workspace *workspace = NULL;
    sandbox_process_result *result = NULL;
    sandbox_status status = sandbox_client_open(NULL, NULL, &client, &error);
    if (status == SANDBOX_OK)
        status = sandbox_workspace_create(client, NULL, NULL, &workspace, &error);
    if (status == SANDBOX_OK)
        status = sandbox_process_run(
            workspace,
            &(sandbox_process_options){SANDBOX_PROCESS_OPTIONS, .command = "uname -sr; id"},
            NULL, NULL, &result, &error);
    if (status == SANDBOX_OK)
        fwrite(result->output, 1, result->output_size, stdout);
    if (status != SANDBOX_OK)
        fprintf(stderr, "%s: %s\n", sandbox_status_name(status), error.message);

    if (workspace != NULL && sandbox_workspace_delete(workspace, NULL, &error) != SANDBOX_OK)
        fprintf(stderr, "the workspace is left behind: %s\n", error.message);
    sandbox_process_result_free(result);
    sandbox_workspace_free(workspace);
    sandbox_client_free(client);
    return status == SANDBOX_OK ? 0 : 1;
}
