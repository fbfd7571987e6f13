/*
 * changes [URI]: watches a folder of a workspace, changes it in every way there is, and shows
 * what the watch tells.
 */

#include <sandbox/sandbox.h>
#include <stdio.h>

static sandbox_status change_files(sandbox_workspace *workspace, sandbox_error *error)
{
    const sandbox_change_options parents = {SANDBOX_CHANGE_OPTIONS, .recursive = true};
    sandbox_status status =
        sandbox_file_make_directory(workspace, "watched/inner", &parents, NULL, error);
    if (status == SANDBOX_OK)
        status = sandbox_file_write(workspace, "watched/draft", "text\n", 5, NULL, NULL, error);
    if (status == SANDBOX_OK)
        status = sandbox_file_set_mode(workspace, "watched/draft", 0600, NULL, error);
    if (status == SANDBOX_OK)
        status = sandbox_file_rename(workspace, "watched/draft", "watched/final", NULL, NULL,
                                     error);
    if (status == SANDBOX_OK)
        status = sandbox_file_link(workspace, "final", "watched/newest", NULL, NULL, error);
    if (status == SANDBOX_OK)
        status = sandbox_file_remove(workspace, "watched/inner", &parents, NULL, error);
    /* The sign by which the reader below knows that it has seen everything. */
    if (status == SANDBOX_OK)
        status = sandbox_file_write(workspace, "watched/end", "", 0, NULL, NULL, error);
    return status;
}

static bool is_end(const sandbox_file_event *event)
{
    const char *path = event->new_path[0] != '\0' ? event->new_path : event->path;
    return path[0] == 'e' && path[1] == 'n' && path[2] == 'd' && path[3] == '\0';
}

static sandbox_status print_changes(sandbox_file_watch *watch, sandbox_error *error)
{
    static const char *const words[] = {"", "created", "modified", "removed", "moved",
                                        "too much happened"};
    const sandbox_call soon = {SANDBOX_CALL, .timeout_ms = 30000};
    for (;;) {
        sandbox_file_event event = {SANDBOX_FILE_EVENT};
        sandbox_status status = sandbox_file_watch_next(watch, &soon, &event, error);
        if (status != SANDBOX_OK)
            return status;
        printf("%s %s %s\n", words[event.change], event.path, event.new_path);
        if (is_end(&event) || event.change == SANDBOX_FILE_OVERFLOW)
            return SANDBOX_OK;
    }
}

static sandbox_status watch_changes(sandbox_workspace *workspace, sandbox_error *error)
{
    sandbox_file_watch *watch = NULL;
    sandbox_status status =
        sandbox_file_make_directory(workspace, "watched", NULL, NULL, error);
    if (status == SANDBOX_OK)
        status = sandbox_file_watch_open(workspace, "watched", NULL, NULL, &watch, error);
    if (status == SANDBOX_OK)
        status = change_files(workspace, error);
    if (status == SANDBOX_OK)
        status = print_changes(watch, error);
    sandbox_file_watch_free(watch);
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
        status = watch_changes(workspace, &error);
    if (status != SANDBOX_OK)
        fprintf(stderr, "changes: %s\n", error.message);
    if (workspace != NULL && sandbox_workspace_delete(workspace, NULL, &error) != SANDBOX_OK)
        fprintf(stderr, "changes: left behind: %s\n", error.message);
    sandbox_workspace_free(workspace);
    sandbox_client_free(client);
    return status == SANDBOX_OK ? 0 : 1;
}
