/* sandbox open: a running workspace of that name, whatever it takes. */

#include "making.h"
#include "progress.h"
#include "resuming.h"

struct settings {
    struct cli_making making;
    const char *from;
};

static int open_workspace(struct cli *cli, const void *given, const struct cli_words *words);

static const struct cli_option options[] = {
    {0, "from", "SOURCE", "how an interrupted one goes on: live-files or snapshot", CLI_TEXT,
     offsetof(struct settings, from)},
    CLI_MAKING_USER_OPTIONS(struct settings),
    CLI_MAKING_OPTIONS(struct settings),
    {.name = NULL},
};

const struct cli_verb cli_open = {
    .name = "open",
    .usage = "[OPTIONS] NAME",
    .summary = "find a workspace, or make it, and print its name",
    .text = "Waits for another's operation on it, and resumes a suspended one. The options of\n"
            "create count if there is none. One whose instance is gone (killed, out of memory,\n"
            "reboot) is a failure (exit code 7) unless --from says how to go on: over the files\n"
            "as they were left, or from the recovery point; those files are then kept too.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .least = 1,
    .most = 1,
    .raw_after = -1,
    .complete = CLI_COMPLETE_WORKSPACE,
    .run = open_workspace,
};

static int open_workspace(struct cli *cli, const void *given, const struct cli_words *words)
{
    const struct settings *settings = given;
    CLI_ON_EXIT(cli_made_of_free) struct cli_made_of made_of = {0};
    CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
    sandbox_workspace_options wanted;
    if (!cli_making_settle(cli, &settings->making, &made_of, &wanted))
        return CLI_USAGE;
    wanted.name = words->word[0];
    if (!cli_from_settle(cli, settings->from, &wanted.from))
        return CLI_USAGE;

    sandbox_error error = {0};
    sandbox_client *client;
    if (cli_client(cli, &client, &error) != SANDBOX_OK)
        return cli_fail(cli, &error, wanted.name);
    struct cli_progress progress;
    sandbox_call call = cli_call(cli);
    cli_progress_begin(cli, &progress);
    sandbox_status status = sandbox_workspace_open(client, &wanted, &call, &workspace, &error);
    cli_progress_end(&progress);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, wanted.name);
    printf("%s\n", sandbox_workspace_name(workspace));
    return CLI_OK;
}
