/* sandbox restore: back to an older snapshot, without losing what there is now. */

#include "progress.h"
#include "resuming.h"
#include "suspending.h"

struct settings {
    bool force;
};

static int restore(struct cli *cli, const void *given, const struct cli_words *words);
static sandbox_status state_of(const struct cli *cli, sandbox_workspace *workspace,
                               sandbox_state *out, sandbox_error *error);
static sandbox_status keep_present(const struct cli *cli, sandbox_workspace *workspace,
                                   const char *spare, bool force, sandbox_error *error);

static const struct cli_option options[] = {
    {'f', "force", NULL, "also if somebody works in it", CLI_FLAG,
     offsetof(struct settings, force)},
    {.name = NULL},
};

const struct cli_verb cli_restore = {
    .name = "restore",
    .usage = "[--force] NAME SNAPSHOT",
    .summary = "go back to an older snapshot of a workspace",
    .text = "A running workspace is suspended first, and of an interrupted one the files are\n"
            "kept: the way it is now is a snapshot too afterwards. Then as 'sandbox resume'.\n"
            "The first digits of the snapshot's id are enough.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .least = 2,
    .most = 2,
    .raw_after = -1,
    .json = true,
    .complete = CLI_COMPLETE_SNAPSHOT,
    .run = restore,
};

static int restore(struct cli *cli, const void *given, const struct cli_words *words)
{
    const struct settings *settings = given;
    const char *name = words->word[0];
    CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
    sandbox_error error = {0};
    sandbox_state state = SANDBOX_STATE_RUNNING;
    char snapshot[CLI_SNAPSHOT_BYTES];
    sandbox_status status = cli_find(cli, name, &workspace, &error);
    if (status == SANDBOX_OK)
        status = cli_find_snapshot(cli, workspace, words->word[1], snapshot, &error);
    if (status == SANDBOX_OK)
        status = state_of(cli, workspace, &state, &error);
    bool lost = state == SANDBOX_STATE_INTERRUPTED;
    if (status == SANDBOX_OK && !lost && state != SANDBOX_STATE_BLOCKED)
        status = keep_present(cli, workspace, snapshot, settings->force, &error);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, name);
    sandbox_resume_options wanted = {SANDBOX_RESUME_OPTIONS, .snapshot = snapshot};
    wanted.from = lost ? SANDBOX_FROM_SNAPSHOT : SANDBOX_FROM_NOTHING;
    return cli_bring_back(cli, workspace, &wanted);
}

static sandbox_status state_of(const struct cli *cli, sandbox_workspace *workspace,
                               sandbox_state *out, sandbox_error *error)
{
    sandbox_workspace_list *found = NULL;
    sandbox_call call = cli_call(cli);
    sandbox_status status = sandbox_workspace_inspect(workspace, &call, &found, error);
    if (status != SANDBOX_OK)
        return status;
    *out = sandbox_workspace_list_at(found, 0)->state;
    sandbox_workspace_list_free(found);
    return SANDBOX_OK;
}

/* Of one that is suspended already nothing new is made. */
static sandbox_status keep_present(const struct cli *cli, sandbox_workspace *workspace,
                                   const char *spare, bool force, sandbox_error *error)
{
    sandbox_suspend_options wanted = {SANDBOX_SUSPEND_OPTIONS, .force = force, .spare = spare};
    sandbox_suspend_result result = {SANDBOX_SUSPEND_RESULT};
    struct cli_progress progress;
    sandbox_call call = cli_call(cli);
    cli_progress_begin(cli, &progress);
    sandbox_status status = sandbox_workspace_suspend(workspace, &wanted, &call, &result, error);
    cli_progress_end(&progress);
    if (status == SANDBOX_OK)
        cli_note(cli, "what it was until now is in snapshot %.12s", result.snapshot);
    return status;
}
