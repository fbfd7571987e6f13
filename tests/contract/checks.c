/* What the suites share: see checks.h. */

#include "checks.h"
#include <stdio.h>
#include <stdlib.h>

sandbox_error error;

/* For whoever looks for the cause of a failure: SANDBOX_TEST_LOG=1. */
static void show(sandbox_log_level level, const char *line, void *user_data)
{
    fprintf(stderr, "log %d: %s\n", (int)level, line);
}

int contract_main(Suite *(*make)(void))
{
    if (!harness_begin())
        return HARNESS_SKIP;
    if (getenv("SANDBOX_TEST_LOG") != NULL)
        sandbox_set_log(SANDBOX_LOG_DEBUG, show, NULL);
    SRunner *runner = srunner_create(make());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    harness_end();
    return failed == 0 ? 0 : 1;
}

void contract_open(const char *name, const char *const *env, sandbox_client **client,
                   sandbox_workspace **workspace)
{
    sandbox_client_options options = {SANDBOX_CLIENT_OPTIONS, .uri = harness_uri()};
    sandbox_workspace_options how = {SANDBOX_WORKSPACE_OPTIONS, .name = name, .env = env};
    good(sandbox_client_open(&options, NULL, client, &error));
    good(sandbox_workspace_open(*client, &how, NULL, workspace, &error));
}

void contract_close(sandbox_client *client, sandbox_workspace *workspace)
{
    good(sandbox_workspace_delete(workspace, NULL, &error));
    sandbox_workspace_free(workspace);
    sandbox_client_free(client);
}

unsigned long contract_count(unsigned long usual)
{
    const char *given = getenv("SANDBOX_TEST_COUNT");
    unsigned long count = given == NULL ? 0 : strtoul(given, NULL, 10);
    return count == 0 ? usual : count;
}
