/* sandbox attach: follows a command that was started before. */

#include "cli.h"
#include "follow.h"
#include "terminal.h"

#include <unistd.h>

struct settings {
    bool input, terminal;
    uint64_t output_offset, error_offset;
};

static int attach(struct cli *cli, const void *given, const struct cli_words *words);
static void tell_size(struct cli *cli, sandbox_process *process);

static const struct cli_option options[] = {
    {0, "offset", "BYTES", "skip that much of its standard output", CLI_OFFSET,
     offsetof(struct settings, output_offset)},
    {0, "error-offset", "BYTES", "skip that much of its standard error", CLI_OFFSET,
     offsetof(struct settings, error_offset)},
    {'i', "stdin", NULL, "forward standard input, if it was started with one", CLI_FLAG,
     offsetof(struct settings, input)},
    {'t', "terminal", NULL, "forward keys and size, if it has a terminal", CLI_FLAG,
     offsetof(struct settings, terminal)},
    {.name = NULL},
};

const struct cli_verb cli_attach = {
    .name = "attach",
    .usage = "[OPTIONS] NAME ID",
    .summary = "follow a command that was started before",
    .text = "Shows its output from the first byte that is kept and ends as exec does. A signal\n"
            "ends only 'sandbox': the command goes on.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .least = 2,
    .most = 2,
    .raw_after = -1,
    .runs_command = true,
    .complete = CLI_COMPLETE_PROCESS,
    .run = attach,
};

static int attach(struct cli *cli, const void *given, const struct cli_words *words)
{
    const struct settings *settings = given;
    const char *name = words->word[0];
    CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
    CLI_ON_EXIT(cli_process_free) sandbox_process *process = NULL;
    sandbox_error error = {0};
    sandbox_status status = cli_find(cli, name, &workspace, &error);
    if (status == SANDBOX_OK)
        status = cli_find_process(cli, workspace, words->word[1], &process, &error);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, name);
    bool raw = settings->terminal && isatty(STDIN_FILENO);
    if (raw)
        tell_size(cli, process);
    struct cli_follow how = {
        .input = settings->input || raw,
        .raw = raw,
        .output_offset = settings->output_offset,
        .error_offset = settings->error_offset,
    };
    return cli_follow(cli, process, &how, name);
}

static void tell_size(struct cli *cli, sandbox_process *process)
{
    unsigned rows, columns;
    sandbox_call call = cli_call(cli);
    sandbox_error error = {0};
    if (cli_terminal_size(&rows, &columns) &&
        sandbox_process_resize(process, (uint16_t)columns, (uint16_t)rows, &call, &error) !=
            SANDBOX_OK)
        cli_note(cli, "%s", error.message);
}
