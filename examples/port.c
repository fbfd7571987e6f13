/*
 * port [URI]: starts a web server in a workspace and asks it for a page through its agent.
 */

#include <poll.h>
#include <sandbox/sandbox.h>
#include <stdio.h>
#include <string.h>

#define PORT 8421

static const char request[] = "GET / HTTP/1.0\r\n\r\n";

/* A service: the workspace counts as idle although it runs. */
static sandbox_status start_server(sandbox_workspace *workspace, sandbox_error *error)
{
    sandbox_process *process;
    sandbox_process_options options = {
        SANDBOX_PROCESS_OPTIONS,
        .command = "echo 'a page from inside' >index.html; "
                   "exec python3 -m http.server 8421 --bind 127.0.0.1",
        .role = SANDBOX_ROLE_SERVICE,
        .when_full = SANDBOX_WHEN_FULL_DROP_OLDEST,
    };
    sandbox_status status = sandbox_process_start(workspace, &options, NULL, &process, error);
    if (status == SANDBOX_OK)
        sandbox_process_free(process); /* it goes on */
    return status;
}

static sandbox_status ask(sandbox_workspace *workspace, sandbox_error *error)
{
    sandbox_connection *connection;
    sandbox_status status;
    for (int tries = 0;; tries++) {
        status = sandbox_port_dial(workspace, PORT, NULL, &connection, error);
        if (status == SANDBOX_OK)
            break;
        if (strcmp(error->reason, "connection-refused") != 0 || tries == 600)
            return status;
        poll(NULL, 0, 100); /* it is not listening yet */
    }
    status = sandbox_connection_write(connection, request, strlen(request), NULL, error);
    while (status == SANDBOX_OK) {
        const uint8_t *data;
        size_t data_size = 0;
        status = sandbox_connection_read(connection, NULL, &data, &data_size, error);
        if (status != SANDBOX_OK || data_size == 0)
            break;
        fwrite(data, 1, data_size, stdout);
    }
    sandbox_connection_free(connection);
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
        status = start_server(workspace, &error);
    if (status == SANDBOX_OK)
        status = ask(workspace, &error);
    if (status != SANDBOX_OK)
        fprintf(stderr, "port: %s\n", error.message);
    if (workspace != NULL && sandbox_workspace_delete(workspace, NULL, &error) != SANDBOX_OK)
        fprintf(stderr, "port: left behind: %s\n", error.message);
    sandbox_workspace_free(workspace);
    sandbox_client_free(client);
    return status == SANDBOX_OK ? 0 : 1;
}
