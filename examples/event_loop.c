/*
 * event_loop [URI]: one poll() over a command's output and a connection to a port, as a program
 * with an event loop of its own does it: no thread, and no call that waits.
 */

#include <poll.h>
#include <sandbox/sandbox.h>
#include <stdio.h>
#include <string.h>

#define PORT 8422
#define LOOP_MS 60000

struct work {
    sandbox_process *server;
    sandbox_connection *connection;
    bool asked, answered, ended;
};

/* It says "ready" once it listens, answers one connection with what it is sent, and ends. */
static const char server[] =
    "import socket\n"
    "s = socket.socket(); s.bind(('127.0.0.1', 8422)); s.listen(1); print('ready', flush=True)\n"
    "c = s.accept()[0]\n"
    "while data := c.recv(4096): c.sendall(data.upper())\n";

/* A timeout of one millisecond looks without waiting. */
static const sandbox_call at_once = {SANDBOX_CALL, .timeout_ms = 1};

static sandbox_status ask(sandbox_workspace *workspace, struct work *work, sandbox_error *error)
{
    sandbox_status status =
        sandbox_port_dial(workspace, PORT, NULL, &work->connection, error);
    if (status == SANDBOX_OK)
        status = sandbox_connection_write(work->connection, "a question\n", 11, NULL, error);
    /* The server reads to the end, so it must be told that there is one. */
    if (status == SANDBOX_OK)
        status = sandbox_connection_end_output(work->connection, NULL, error);
    work->asked = true;
    return status;
}

static sandbox_status take_output(sandbox_workspace *workspace, struct work *work,
                                  sandbox_error *error)
{
    sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
    sandbox_status status = sandbox_process_next(work->server, &at_once, &event, error);
    if (status == SANDBOX_TIMED_OUT)
        return SANDBOX_OK;
    if (status != SANDBOX_OK)
        return status;
    if (event.kind == SANDBOX_PROCESS_EXIT)
        work->ended = true;
    else
        fwrite(event.data, 1, event.data_size, stdout);
    bool is_ready = event.kind == SANDBOX_PROCESS_STDOUT && !work->asked;
    return is_ready ? ask(workspace, work, error) : SANDBOX_OK;
}

static sandbox_status take_answer(struct work *work, sandbox_error *error)
{
    const uint8_t *data = NULL;
    size_t data_size = 0;
    sandbox_status status =
        sandbox_connection_read(work->connection, &at_once, &data, &data_size, error);
    if (status == SANDBOX_TIMED_OUT)
        return SANDBOX_OK;
    if (status == SANDBOX_OK && data_size == 0)
        work->answered = true;
    else if (status == SANDBOX_OK)
        fwrite(data, 1, data_size, stdout);
    return status;
}

static sandbox_status loop(sandbox_workspace *workspace, struct work *work, sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    while (status == SANDBOX_OK && !(work->answered && work->ended)) {
        bool waits = work->connection != NULL && !work->answered;
        struct pollfd watched[2] = {
            {work->ended ? -1 : sandbox_process_descriptor(work->server), POLLIN, 0},
            {waits ? sandbox_connection_descriptor(work->connection) : -1, POLLIN, 0},
        };
        if (poll(watched, 2, LOOP_MS) <= 0) {
            snprintf(error->message, sizeof error->message, "nothing happened for a minute");
            return SANDBOX_TIMED_OUT;
        }
        if (watched[0].revents != 0)
            status = take_output(workspace, work, error);
        if (status == SANDBOX_OK && watched[1].revents != 0)
            status = take_answer(work, error);
    }
    return status;
}

static sandbox_status serve(sandbox_workspace *workspace, sandbox_error *error)
{
    struct work work = {0};
    const char *const argv[] = {"python3", "-c", server, NULL};
    const sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .argv = argv};
    sandbox_status status =
        sandbox_process_start(workspace, &options, NULL, &work.server, error);
    if (status == SANDBOX_OK) {
        printf("process %lld\n", (long long)sandbox_process_pid(work.server));
        status = loop(workspace, &work, error);
    }
    sandbox_process_exit end;
    if (status == SANDBOX_OK)
        status = sandbox_process_wait(work.server, NULL, &end, error);
    if (status == SANDBOX_OK)
        printf("ended with %d\n", end.code);
    sandbox_connection_free(work.connection);
    sandbox_process_free(work.server);
    return status;
}

int main(int count, char **arguments)
{
    sandbox_error error;
    sandbox_client *client = NULL;
    sandbox_workspace *workspace = NULL;
    sandbox_client_options where = {SANDBOX_CLIENT_OPTIONS,
                                    .uri = count > 1 ? arguments[1] : NULL};
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS,
                                         .expires_after_ms = 10 * 60 * 1000};
    sandbox_status status = sandbox_client_open(&where, NULL, &client, &error);
    if (status == SANDBOX_OK)
        status = sandbox_workspace_create(client, &options, NULL, &workspace, &error);
    if (status == SANDBOX_OK)
        status = serve(workspace, &error);
    if (status != SANDBOX_OK)
        fprintf(stderr, "event_loop: %s\n", error.message);
    if (workspace != NULL && sandbox_workspace_delete(workspace, NULL, &error) != SANDBOX_OK)
        fprintf(stderr, "event_loop: left behind: %s\n", error.message);
    sandbox_workspace_free(workspace);
    sandbox_client_free(client);
    return status == SANDBOX_OK ? 0 : 1;
}
