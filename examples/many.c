/* many [URI]: several workspaces at once over one client, each from a thread of its own. */

#include <pthread.h>
#include <sandbox/sandbox.h>
#include <stdio.h>
#include <string.h>

#define WORKSPACES 4

struct job {
    sandbox_client *client; /* shared: any thread may use it at any time */
    int number;
    char answer[32];
    bool done;
};

static sandbox_status compute(struct job *job, sandbox_workspace *workspace, sandbox_error *error)
{
    char line[64];
    snprintf(line, sizeof line, "echo $((%d * %d))", job->number, job->number);
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = line};
    sandbox_process_result *result;
    sandbox_status status = sandbox_process_run(workspace, &options, NULL, NULL, &result, error);
    if (status != SANDBOX_OK)
        return status;
    snprintf(job->answer, sizeof job->answer, "%s", (const char *)result->output);
    job->answer[strcspn(job->answer, "\n")] = '\0';
    job->done = result->exit.code == 0;
    sandbox_process_result_free(result);
    return SANDBOX_OK;
}

static void *work(void *user_data)
{
    struct job *job = user_data;
    sandbox_error error;
    sandbox_workspace *workspace = NULL;
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS,
                                         .expires_after_ms = 10 * 60 * 1000};
    sandbox_status status =
        sandbox_workspace_create(job->client, &options, NULL, &workspace, &error);
    if (status == SANDBOX_OK)
        status = compute(job, workspace, &error);
    if (status != SANDBOX_OK)
        fprintf(stderr, "many: %d: %s\n", job->number, error.message);
    if (workspace != NULL && sandbox_workspace_delete(workspace, NULL, &error) != SANDBOX_OK)
        fprintf(stderr, "many: %d: left behind: %s\n", job->number, error.message);
    sandbox_workspace_free(workspace);
    return NULL;
}

int main(int count, char **arguments)
{
    sandbox_error error;
    sandbox_client *client;
    sandbox_client_options where = {SANDBOX_CLIENT_OPTIONS, .uri = count > 1 ? arguments[1] : NULL};
    if (sandbox_client_open(&where, NULL, &client, &error) != SANDBOX_OK) {
        fprintf(stderr, "many: %s\n", error.message);
        return 1;
    }
    struct job jobs[WORKSPACES];
    pthread_t threads[WORKSPACES];
    bool started[WORKSPACES];
    for (int i = 0; i < WORKSPACES; i++) {
        jobs[i] = (struct job){.client = client, .number = i + 1};
        started[i] = pthread_create(&threads[i], NULL, work, &jobs[i]) == 0;
    }
    int failed = 0;
    for (int i = 0; i < WORKSPACES; i++) {
        if (started[i])
            pthread_join(threads[i], NULL);
        printf("%d squared is %s\n", i + 1, jobs[i].done ? jobs[i].answer : "not known");
        failed += !jobs[i].done;
    }
    sandbox_client_free(client);
    return failed > 0;
}
