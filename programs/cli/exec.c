/* sandbox exec: runs a command in a workspace as if it ran here. */

#include "commanding.h"
#include "follow.h"

struct settings {
    struct cli_commanding commanding;
    const char *id;
    bool detach, service;
};

static int execute(struct cli *cli, const void *given, const struct cli_words *words);
static int start(struct cli *cli, const struct settings *settings, const char *name,
                 const struct cli_command *command);

static const struct cli_option options[] = {
    CLI_COMMANDING_OPTIONS(struct settings),
    {0, "id", "ID", "32 hexadecimal digits: a second start with it attaches", CLI_TEXT,
     offsetof(struct settings, id)},
    {'d', "detach", NULL, "do not follow it: print its id, let it run", CLI_FLAG,
     offsetof(struct settings, detach)},
    {0, "service", NULL, "a server: the workspace is not busy while it runs", CLI_FLAG,
     offsetof(struct settings, service)},
    {.name = NULL},
};

const struct cli_verb cli_exec = {
    .name = "exec",
    .usage = "[OPTIONS] NAME -- ARGV…  |  NAME -c LINE",
    .summary = "run a command in a workspace as if it ran here",
    .text = "ARGV is run as it is, without a shell. A first SIGINT or SIGTERM goes to the\n"
            "command, a second one ends only 'sandbox'. With -t keys go to the command, Ctrl-C\n"
            "too. A detached command drops its oldest output where nobody reads it.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .least = 1,
    .most = CLI_MANY,
    .raw_after = 1,
    .runs_command = true,
    .complete = CLI_COMPLETE_WORKSPACE,
    .run = execute,
};

static int execute(struct cli *cli, const void *given, const struct cli_words *words)
{
    const struct settings *settings = given;
    CLI_ON_EXIT(cli_command_free) struct cli_command command = {0};
    if (!cli_command_settle(cli, &settings->commanding, words->word + 1, &command))
        return CLI_OWN_FAILURE;
    command.options.id = settings->id;
    command.options.role = settings->service ? SANDBOX_ROLE_SERVICE : SANDBOX_ROLE_TASK;
    if (settings->detach) {
        command.options.when_full = SANDBOX_WHEN_FULL_DROP_OLDEST;
        if (settings->commanding.input)
            return cli_usage(cli, "-i and --detach exclude each other");
    }
    return start(cli, settings, words->word[0], &command);
}

static int start(struct cli *cli, const struct settings *settings, const char *name,
                 const struct cli_command *command)
{
    CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
    CLI_ON_EXIT(cli_process_free) sandbox_process *process = NULL;
    sandbox_error error = {0};
    sandbox_status status = cli_find(cli, name, &workspace, &error);
    sandbox_call call = cli_call(cli);
    if (status == SANDBOX_OK)
        status = sandbox_process_start(workspace, &command->options, &call, &process, &error);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, name);
    if (settings->detach) {
        printf("%s\n", sandbox_process_id(process));
        return CLI_OK;
    }
    struct cli_follow how = {
        .input = settings->commanding.input || command->raw,
        .raw = command->raw,
        .signals = true,
        .kill_on_timeout = true,
    };
    return cli_follow(cli, process, &how, name);
}
