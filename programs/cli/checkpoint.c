/* sandbox checkpoint: a snapshot of a workspace that goes on. */

#include "progress.h"
#include "suspending.h"

struct settings {
    const char *keep;
};

static int checkpoint(struct cli *cli, const void *given, const struct cli_words *words);

static const struct cli_option options[] = {
    CLI_KEEP_OPTION(struct settings),
    {.name = NULL},
};

const struct cli_verb cli_checkpoint = {
    .name = "checkpoint",
    .usage = "[--keep WHAT] NAME",
    .summary = "make a snapshot of a workspace that goes on running",
    .text = "The snapshot becomes the recovery point: what is restored if the sandbox is lost.\n"
            "Where the platform cannot copy a running sandbox, the workspace stands still while\n"
            "it is frozen, restored and proven. With -q the snapshot's id only.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .least = 1,
    .most = 1,
    .raw_after = -1,
    .json = true,
    .complete = CLI_COMPLETE_WORKSPACE,
    .run = checkpoint,
};

static int checkpoint(struct cli *cli, const void *given, const struct cli_words *words)
{
    const struct settings *settings = given;
    const char *name = words->word[0];
    CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
    sandbox_suspend_options wanted = {SANDBOX_SUSPEND_OPTIONS};
    sandbox_suspend_result result = {SANDBOX_SUSPEND_RESULT};
    sandbox_error error = {0};
    if (!cli_keep_settle(cli, settings->keep, &wanted.keep))
        return CLI_USAGE;
    if (cli_find(cli, name, &workspace, &error) != SANDBOX_OK)
        return cli_fail(cli, &error, name);
    struct cli_progress progress;
    sandbox_call call = cli_call(cli);
    cli_progress_begin(cli, &progress);
    sandbox_status status =
        sandbox_workspace_checkpoint(workspace, &wanted, &call, &result, &error);
    cli_progress_end(&progress);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, name);
    cli_suspend_print(cli, sandbox_workspace_name(workspace), "goes on", &result);
    return CLI_OK;
}
