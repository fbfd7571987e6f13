/*
 * GKE that restores something else than what was asked, says nothing of it, or says it late: cold
 * starts, other snapshots, those of other workspaces, Pods that crash, are replaced or started anew
 * in their place. None may be accepted, no good snapshot may be lost, the workspace is blocked, and
 * the next honest resume works. A036 to A041; upstream's 2, 4, 34, 36, 40, 41, 44.
 *
 * SANDBOX_TEST_COUNT says how many lies are told; default 13, each lie once.
 */

#include "rig.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long somebody waits for a word that does not come; a Pod must get ready in it. */
#define SHORT_MS 2500u

struct lie {
    const char *how;
    const char *reasons[2]; /* what a resume says that was told it twice */
    bool at_once;           /* no second try is made */
    bool passes;            /* it may be over before anybody looks: then what is there is true */
};

static const struct lie lies[] = {
    {"cold", {"not-proven"}, false},
    {"cold-event", {"not-proven"}, false},
    {"cold-lying", {"not-proven"}, false},
    {"node-new", {"not-proven"}, false},
    {"other-snapshot", {"not-proven"}, false},
    {"foreign-snapshot", {"not-proven"}, false},
    {"condition-false", {"not-proven"}, false},
    {"condition-other", {"not-proven"}, false},
    {"crash", {"restore-crashed"}, true},
    {"replaced", {"no-answer", "not-proven"}, false, true},
    {"restarted", {"not-proven", "no-answer"}, false},
    {"condition-absent", {"evidence-missing"}, true},
    {"condition-late", {"evidence-missing"}, true},
};
#define LIES (sizeof lies / sizeof lies[0])

static unsigned told, accepted, destroyed, second_tries, late_words;

static void script(const char *how, unsigned times)
{
    harness_tell("{\"do\":\"behave\",\"object\":\"*\",\"how\":\"%s\",\"times\":%u}", how, times);
}

static void require_intact(sandbox_workspace *workspace, const char *after)
{
    sandbox_verification seen = {SANDBOX_VERIFICATION};
    sandbox_error error = {0};
    sandbox_status status = sandbox_snapshot_verify(workspace, NULL, NULL, &seen, &error);
    bool intact = status == SANDBOX_OK && seen.verdict == SANDBOX_VERDICT_INTACT;
    destroyed += !intact;
    require(intact, "%s: the snapshot is %s: %s", after, sandbox_verdict_name(seen.verdict),
            status == SANDBOX_OK ? seen.evidence : error.message);
}

static bool is_among(const char *reason, const struct lie *lie)
{
    return strcmp(reason, lie->reasons[0]) == 0 ||
           (lie->reasons[1] != NULL && strcmp(reason, lie->reasons[1]) == 0);
}

/* Told until somebody gives up: refused, blocked, kept. */
static void lie_for_good(sandbox_workspace *workspace, const struct lie *lie)
{
    sandbox_resume_result result = {SANDBOX_RESUME_RESULT};
    sandbox_error error = {0};
    bool waits = strncmp(lie->how, "condition-absent", 16) == 0 ||
                 strncmp(lie->how, "condition-late", 14) == 0;
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = waits ? SHORT_MS : 0};
    script(lie->how, lie->at_once ? 1 : 2);
    sandbox_status status = sandbox_workspace_resume(workspace, NULL, &call, &result, &error);
    told++;
    if (lie->passes && status == SANDBOX_OK && result.proof == SANDBOX_PROOF_MEMORY) {
        harness_tell("{\"do\":\"clear\"}");
        require(scenario_has_kept(workspace), "'%s': the file was lost", lie->how);
        return;
    }
    accepted += status == SANDBOX_OK;
    require(status == SANDBOX_NOT_RESTORED, "'%s': %s (%s)", lie->how, error.message,
            sandbox_status_name(status));
    require(is_among(error.reason, lie), "'%s': reason %s: %s", lie->how, error.reason,
            error.message);
    require(scenario_state(workspace) == SANDBOX_STATE_BLOCKED, "'%s': not blocked", lie->how);
    require(rig_instances() == (waits ? 1u : 0u), "'%s': %u instances are left", lie->how,
            rig_instances());
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "true"};
    sandbox_process *process = NULL;
    require(sandbox_process_start(workspace, &options, NULL, &process, &error) ==
                SANDBOX_NOT_RESTORED,
            "'%s': work was let in", lie->how);
    require_intact(workspace, lie->how);
    /* What GKE had to say comes at last. */
    if (waits)
        rig_confirm_restore(workspace);
    harness_tell("{\"do\":\"clear\"}");
    scenario_resume(workspace, lie->how);
}

/* Once: that instance is removed, and the second try is the true one. */
static void lie_once(sandbox_workspace *workspace, const struct lie *lie)
{
    sandbox_resume_result result = {SANDBOX_RESUME_RESULT};
    sandbox_error error = {0};
    script(lie->how, 1);
    sandbox_status status = sandbox_workspace_resume(workspace, NULL, NULL, &result, &error);
    harness_tell("{\"do\":\"clear\"}");
    told++;
    require(status == SANDBOX_OK, "'%s' once: %s", lie->how, error.message);
    accepted += !(result.restored && result.proof == SANDBOX_PROOF_MEMORY);
    require((result.attempts == 2 || lie->passes) && result.restored, "'%s' once: %u attempts",
            lie->how, result.attempts);
    second_tries++;
    require(scenario_has_kept(workspace), "'%s' once: the file was lost", lie->how);
    scenario_require_works(workspace);
}

static bool is_held(void *data)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *answer = harness_ask("{\"do\":\"state\"}");
    const cJSON *behaviours = cJSON_GetObjectItemCaseSensitive(answer, "behaviours");
    return sbx_json_integer(behaviours, "held") > 0;
}

/* The word comes while somebody waits for it: one try, and it counts. Upstream's 2. */
static void word_comes_late(sandbox_workspace *workspace)
{
    script("condition-late", 1);
    struct scenario_child *resuming = scenario_start("resume", "victim");
    scenario_go(&resuming, 1);
    require(harness_await(is_held, NULL), "nothing was held back");
    harness_tell("{\"do\":\"behave\",\"how\":\"go\"}");
    int code = scenario_wait(resuming);
    harness_tell("{\"do\":\"clear\"}");
    require(code == CHILD_OK, "a late word: the resume ended with %d", code);
    require(scenario_has_kept(workspace), "a late word: the file was lost");
    late_words++;
}

int main(int argc, char **argv)
{
    rig_begin(argc, argv);
    unsigned count = rig_count(13);
    sandbox_client *client = scenario_client();
    scenario_make_suspended("other"); /* what a foreign restore brings */
    scenario_make("victim");
    sandbox_workspace *victim = scenario_find(client, "victim");
    scenario_suspend(victim);
    scenario_resume(victim, "the first suspend");
    while (told < count) {
        const struct lie *lie = &lies[told % LIES];
        scenario_suspend(victim);
        if (told / LIES % 2 == 0 || lie->at_once)
            lie_for_good(victim, lie);
        else
            lie_once(victim, lie);
        require(rig_pin(victim)[0] == '\0', "'%s': the pin stays after the resume", lie->how);
    }
    scenario_suspend(victim);
    word_comes_late(victim);
    sandbox_workspace_free(victim);
    scenario_delete(client, "victim");
    scenario_delete(client, "other");
    sandbox_client_free(client);
    scenario_require_nothing_left("all the lies");
    printf("%u lies, %u accepted, %u snapshots destroyed; %u second tries were true, %u words came "
           "late\n",
           told, accepted, destroyed, second_tries, late_words);
    return scenario_end();
}
