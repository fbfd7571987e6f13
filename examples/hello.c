/*
 * hello [URI]: makes a workspace, runs one command in it, shows what it said, deletes it.
 */

#include <sandbox/sandbox.h>
#include <stdio.h>

static int fail(const sandbox_error *error)
{
    fprintf(stderr, "hello: %s\n", error->message);
    return 1;
}

static int say_hello(sandbox_workspace *workspace)
{
    sandbox_error error;
    sandbox_process_result *result;
    const char *const argv[] = {"echo", "Hello from inside", NULL};
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .argv = argv};
    if (sandbox_process_run(workspace, &options, NULL, NULL, &result, &error) != SANDBOX_OK)
        return fail(&error);

    fwrite(result->output, 1, result->output_size, stdout);
    int code = result->exit.code;
    sandbox_process_result_free(result);
    return code;
}

int main(int count, char **arguments)
{
    sandbox_error error;
    sandbox_client *client;
    sandbox_client_options where = {SANDBOX_CLIENT_OPTIONS, .uri = count > 1 ? arguments[1] : NULL};
    if (sandbox_client_open(&where, NULL, &client, &error) != SANDBOX_OK)
        return fail(&error);

    /* If this program dies, the workspace goes by itself. */
    sandbox_workspace *workspace;
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS,
                                         .expires_after_ms = 10 * 60 * 1000};
    int code;
    if (sandbox_workspace_create(client, &options, NULL, &workspace, &error) == SANDBOX_OK) {
        code = say_hello(workspace);
        if (sandbox_workspace_delete(workspace, NULL, &error) != SANDBOX_OK)
            code = fail(&error);
        sandbox_workspace_free(workspace);
    } else
        code = fail(&error);
    sandbox_client_free(client);
    return code;
}
