/*
 * reach_out [URI]: a workspace that may reach one host, with a credential that it never sees. What
 * its commands were refused is told afterwards.
 */

#include <sandbox/sandbox.h>
#include <stdio.h>

/* Inside there is PLACEHOLDER alone; on the way to this host the real key takes its place. */
static const char rules[] =
    "[{\"match\": {\"host\": \"api.example.com\","
    "            \"headers\": [{\"name\": \"x-api-key\", \"value_exact\": \"PLACEHOLDER\"}]},"
    "  \"set\": {\"x-api-key\": \"the-real-key-of-this-example\"}}]";

static sandbox_status show_policy(sandbox_workspace *workspace, sandbox_error *error)
{
    sandbox_egress_list *list = NULL;
    sandbox_status status = sandbox_egress_inspect(workspace, NULL, &list, error);
    for (size_t i = 0; i < sandbox_egress_list_count(list); i++) {
        const sandbox_egress_info *info = sandbox_egress_list_at(list, i);
        for (const char *const *host = info->allow; *host != NULL; host++)
            printf("may reach %s\n", *host);
        for (const char *const *known = info->credentials; *known != NULL; known++)
            printf("a credential for %s\n", *known);
    }
    sandbox_egress_list_free(list);
    return status;
}

/* The route of a host that is not allowed. */
static sandbox_status try_another(sandbox_workspace *workspace, sandbox_error *error)
{
    sandbox_process_options options = {
        SANDBOX_PROCESS_OPTIONS,
        .command = "curl -sS -m 20 http://127.0.0.1:3128/https/elsewhere.example.net/"};
    sandbox_process_result *result = NULL;
    sandbox_egress_log *log = NULL;
    sandbox_status status = sandbox_process_run(workspace, &options, NULL, NULL, &result, error);
    if (status == SANDBOX_OK)
        printf("%s", (const char *)result->output);
    sandbox_process_result_free(result);
    if (status == SANDBOX_OK)
        status = sandbox_egress_read_log(workspace, NULL, &log, error);
    for (size_t i = 0; i < sandbox_egress_log_count(log); i++)
        printf("refused: %s, %s\n", sandbox_egress_log_at(log, i)->host,
               sandbox_egress_log_at(log, i)->reason);
    sandbox_egress_log_free(log);
    return status;
}

int main(int count, char **arguments)
{
    static const char *const allowed[] = {"api.example.com", NULL};
    sandbox_error error;
    sandbox_client *client = NULL;
    sandbox_workspace *workspace = NULL;
    sandbox_client_options where = {SANDBOX_CLIENT_OPTIONS, .uri = count > 1 ? arguments[1] : NULL};
    sandbox_egress_options egress = {SANDBOX_EGRESS_OPTIONS, .allow = allowed,
                                     .transformations = rules};
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .expires_after_ms = 600000,
                                         .egress = &egress};
    sandbox_status status = sandbox_client_open(&where, NULL, &client, &error);
    if (status == SANDBOX_OK && !sandbox_client_can(client, SANDBOX_CAN_REACH_OUT)) {
        printf("this platform gives workspaces no way out\n");
        sandbox_client_free(client);
        return 0;
    }
    if (status == SANDBOX_OK)
        status = sandbox_workspace_create(client, &options, NULL, &workspace, &error);
    if (status == SANDBOX_OK)
        status = show_policy(workspace, &error);
    if (status == SANDBOX_OK)
        status = try_another(workspace, &error);
    if (status != SANDBOX_OK)
        fprintf(stderr, "reach_out: %s\n", error.message);
    if (workspace != NULL && sandbox_workspace_delete(workspace, NULL, &error) != SANDBOX_OK)
        fprintf(stderr, "reach_out: left behind: %s\n", error.message);
    sandbox_workspace_free(workspace);
    sandbox_client_free(client);
    return status == SANDBOX_OK ? 0 : 1;
}
