/*
 * A platform that lies about what it restored, with the real agent in it: a cold one, that of an
 * older snapshot, that of another workspace, one that answers nothing, and evidence that says
 * otherwise. None may be accepted, no good snapshot may be lost, and the next honest resume works.
 * A036 to A041. SANDBOX_TEST_COUNT says how many lies are told; default 100.
 */

#include "scenario.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SILENCE_MS 400u /* how long somebody waits for an agent that answers nothing */

static const char *const lies[] = {"cold", "older", "foreign", "silent", "evidence-contrary"};
#define LIES (sizeof lies / sizeof lies[0])

static unsigned told, accepted, destroyed, second_tries;

static void script(const char *lie, unsigned times)
{
    harness_tell("{\"do\":\"script\",\"rules\":[{\"on\":\"restore\",\"nth\":1,"
                 "\"do\":\"%s\"}%s%s%s]}",
                 lie, times > 1 ? ",{\"on\":\"restore\",\"nth\":2,\"do\":\"" : "",
                 times > 1 ? lie : "", times > 1 ? "\"}" : "");
}

static void require_intact(sandbox_workspace *workspace, const char *after)
{
    sandbox_verification seen = {SANDBOX_VERIFICATION};
    sandbox_error error = {0};
    sandbox_status status = sandbox_snapshot_verify(workspace, NULL, NULL, &seen, &error);
    bool intact = status == SANDBOX_OK && seen.verdict == SANDBOX_VERDICT_INTACT;
    destroyed += !intact;
    require(intact, "%s: the snapshot is %s", after, sandbox_verdict_name(seen.verdict));
}

/* The same lie twice: refused, blocked, kept. */
static void lie_twice(sandbox_workspace *workspace, const char *lie)
{
    sandbox_resume_result result = {SANDBOX_RESUME_RESULT};
    sandbox_error error = {0};
    bool silent = strcmp(lie, "silent") == 0;
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = silent ? SILENCE_MS : 0};
    script(lie, 2);
    sandbox_status status = sandbox_workspace_resume(workspace, NULL, &call, &result, &error);
    harness_tell("{\"do\":\"script\",\"rules\":[]}");
    told++;
    accepted += status == SANDBOX_OK;
    require(status == SANDBOX_NOT_RESTORED, "'%s' twice: %s (%s)", lie, error.message,
            sandbox_status_name(status));
    require(strcmp(error.reason, silent ? "no-answer" : "not-proven") == 0, "'%s': reason %s", lie,
            error.reason);
    require(scenario_state(workspace) == SANDBOX_STATE_BLOCKED, "'%s' twice: not blocked", lie);
    require(harness_count("instances") == 0, "'%s' twice: an instance is left", lie);
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "true"};
    sandbox_process *process = NULL;
    require(sandbox_process_start(workspace, &options, NULL, &process, &error) ==
                SANDBOX_NOT_RESTORED,
            "'%s' twice: work was let in", lie);
    require_intact(workspace, lie);
    scenario_resume(workspace, lie);
}

/* Once: discarded, and the second try is the true one. */
static void lie_once(sandbox_workspace *workspace, const char *lie)
{
    sandbox_resume_result result = {SANDBOX_RESUME_RESULT};
    sandbox_error error = {0};
    script(lie, 1);
    sandbox_status status = sandbox_workspace_resume(workspace, NULL, NULL, &result, &error);
    harness_tell("{\"do\":\"script\",\"rules\":[]}");
    told++;
    require(status == SANDBOX_OK, "'%s' once: %s", lie, error.message);
    accepted += !(result.restored && result.proof == SANDBOX_PROOF_MEMORY);
    require(result.attempts == 2 && result.restored, "'%s' once: %u attempts", lie,
            result.attempts);
    second_tries++;
    require(scenario_has_kept(workspace), "'%s' once: the file was lost", lie);
    scenario_require_works(workspace);
}

int main(int argc, char **argv)
{
    scenario_begin(argc, argv);
    const char *given = getenv("SANDBOX_TEST_COUNT");
    unsigned long count = given == NULL ? 0 : strtoul(given, NULL, 10);
    count = count == 0 ? 100 : count;
    sandbox_client *client = scenario_client();
    scenario_make_suspended("other"); /* what a foreign restore brings */
    scenario_make("victim");
    sandbox_workspace *victim = scenario_find(client, "victim");
    scenario_suspend(victim);
    scenario_resume(victim, "the first suspend");
    while (told < count) {
        const char *lie = lies[told % LIES];
        scenario_suspend(victim);
        /* One that is silent costs its whole wait; the second try is the same as for the others. */
        if (told / LIES % 2 == 0 || strcmp(lie, "silent") == 0)
            lie_twice(victim, lie);
        else
            lie_once(victim, lie);
    }
    sandbox_workspace_free(victim);
    scenario_delete(client, "victim");
    scenario_delete(client, "other");
    sandbox_client_free(client);
    scenario_require_nothing_left("all the lies");
    printf("%u lies, %u accepted, %u snapshots destroyed; %u second tries were true\n", told,
           accepted, destroyed, second_tries);
    return scenario_end();
}
