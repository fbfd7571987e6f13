/* sandbox run: a command in a workspace of its own, which goes afterwards. */

#include "commanding.h"
#include "follow.h"
#include "making.h"
#include "signals.h"

#define DEFAULT_EXPIRY_MS (3600u * 1000)
#define DELETE_MS         60000

struct settings {
    struct cli_making making;
    struct cli_commanding commanding;
    const char *name;
    bool keep;
};

static int run(struct cli *cli, const void *given, const struct cli_words *words);
static int run_inside(struct cli *cli, const struct cli_command *command,
                      sandbox_workspace *workspace);
static int remove_workspace(const struct cli *cli, sandbox_workspace *workspace, int code);

static const struct cli_option options[] = {
    {0, "name", "NAME", "of the workspace; default: a fresh one", CLI_TEXT,
     offsetof(struct settings, name)},
    {0, "keep", NULL, "keep the workspace, and tell its name", CLI_FLAG,
     offsetof(struct settings, keep)},
    CLI_COMMANDING_OPTIONS(struct settings),
    CLI_MAKING_OPTIONS(struct settings),
    {.name = NULL},
};

const struct cli_verb cli_run = {
    .name = "run",
    .usage = "[OPTIONS] -- ARGV…  |  -c LINE",
    .summary = "run a command in a fresh workspace and delete that",
    .text = "Takes the options of create and of exec. The workspace expires after an hour unless\n"
            "--expires says otherwise: a 'sandbox' that was killed leaves nothing for long.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .most = CLI_MANY,
    .raw_after = 0,
    .runs_command = true,
    .run = run,
};

static int run(struct cli *cli, const void *given, const struct cli_words *words)
{
    const struct settings *settings = given;
    CLI_ON_EXIT(cli_made_of_free) struct cli_made_of made_of = {0};
    CLI_ON_EXIT(cli_command_free) struct cli_command command = {0};
    CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
    sandbox_workspace_options wanted;
    if (!cli_command_settle(cli, &settings->commanding, words->word, &command) ||
        !cli_making_settle(cli, &settings->making, &made_of, &wanted))
        return CLI_OWN_FAILURE;
    wanted.name = settings->name;
    if (wanted.expires_after_ms == 0)
        wanted.expires_after_ms = DEFAULT_EXPIRY_MS;

    sandbox_error error = {0};
    sandbox_client *client;
    sandbox_status status = cli_client(cli, &client, &error);
    sandbox_call call = cli_call(cli);
    if (status == SANDBOX_OK)
        status = sandbox_workspace_create(client, &wanted, &call, &workspace, &error);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, wanted.name);

    int code = run_inside(cli, &command, workspace);
    if (!settings->keep)
        return remove_workspace(cli, workspace, code);
    cli_note(cli, "kept workspace %s", sandbox_workspace_name(workspace));
    return code;
}

static int run_inside(struct cli *cli, const struct cli_command *command,
                      sandbox_workspace *workspace)
{
    CLI_ON_EXIT(cli_process_free) sandbox_process *process = NULL;
    const char *name = sandbox_workspace_name(workspace);
    sandbox_error error = {0};
    sandbox_call call = cli_call(cli);
    sandbox_status status =
        sandbox_process_start(workspace, &command->options, &call, &process, &error);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, name);
    struct cli_follow how = {
        .input = command->options.input == SANDBOX_INPUT_PIPE || command->raw,
        .raw = command->raw,
        .signals = true,
        .kill_on_timeout = true,
    };
    return cli_follow(cli, process, &how, name);
}

/* Neither --timeout nor the signal that ended the command may leave the workspace behind. */
static int remove_workspace(const struct cli *cli, sandbox_workspace *workspace, int code)
{
    cli_signals_forgive();
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = DELETE_MS};
    sandbox_error error = {0};
    if (sandbox_workspace_delete(workspace, &call, &error) == SANDBOX_OK)
        return code;
    cli_complain("workspace %s is left behind: %s", sandbox_workspace_name(workspace),
                 error.message);
    cli_hint(cli, "sandbox delete %s", sandbox_workspace_name(workspace));
    return code == CLI_OK ? CLI_OWN_FAILURE : code;
}
