/*
 * files [URI]: writes a file in a workspace, lets a command work on it, lists and reads what
 * came of it.
 */

#include <sandbox/sandbox.h>
#include <stdio.h>
#include <string.h>

static const char poem[] = "roses\nviolets\napples\n";

static sandbox_status sort_poem(sandbox_workspace *workspace, sandbox_error *error)
{
    sandbox_process_result *result;
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS,
                                       .command = "sort poem.txt >sorted.txt", .directory = "work"};
    sandbox_status status = sandbox_process_run(workspace, &options, NULL, NULL, &result, error);
    if (status != SANDBOX_OK)
        return status;
    printf("sort ended with %d\n", result->exit.code);
    sandbox_process_result_free(result);
    return SANDBOX_OK;
}

static sandbox_status show(sandbox_workspace *workspace, sandbox_error *error)
{
    sandbox_file_list *list;
    sandbox_status status = sandbox_file_list_directory(workspace, "work", NULL, &list, error);
    if (status != SANDBOX_OK)
        return status;
    for (size_t i = 0; i < sandbox_file_list_count(list); i++) {
        const sandbox_file_info *info = sandbox_file_list_at(list, i);
        printf("%s: %llu bytes\n", info->name, (unsigned long long)info->file_size);
    }
    sandbox_file_list_free(list);

    uint8_t *data;
    size_t data_size;
    status = sandbox_file_read(workspace, "work/sorted.txt", NULL, NULL, &data, &data_size, error);
    if (status == SANDBOX_OK) {
        fwrite(data, 1, data_size, stdout);
        sandbox_bytes_free(data);
    }
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
    if (status == SANDBOX_OK) /* missing directories are made */
        status =
            sandbox_file_write(workspace, "work/poem.txt", poem, strlen(poem), NULL, NULL, &error);
    if (status == SANDBOX_OK)
        status = sort_poem(workspace, &error);
    if (status == SANDBOX_OK)
        status = show(workspace, &error);
    if (status != SANDBOX_OK)
        fprintf(stderr, "files: %s\n", error.message);
    if (workspace != NULL && sandbox_workspace_delete(workspace, NULL, &error) != SANDBOX_OK)
        fprintf(stderr, "files: left behind: %s\n", error.message);
    sandbox_workspace_free(workspace);
    sandbox_client_free(client);
    return status == SANDBOX_OK ? 0 : 1;
}
