/* The options that say how a command is run, shared by exec and run. */

#include "commanding.h"

#include "terminal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool check(const struct cli *cli, const struct cli_commanding *commanding,
                  const char *const *argv);
static const char *terminal_type(void);

bool cli_command_settle(const struct cli *cli, const struct cli_commanding *commanding,
                        const char *const *argv, struct cli_command *command)
{
    if (!check(cli, commanding, argv) ||
        !cli_settle_env(cli, &commanding->env, &command->env, &command->owned))
        return false;
    command->raw = commanding->terminal && isatty(STDIN_FILENO);
    command->options = (sandbox_process_options){
        SANDBOX_PROCESS_OPTIONS,
        .command = commanding->line,
        .argv = commanding->line == NULL ? argv : NULL,
        .env = command->env.word,
        .directory = commanding->directory,
        .user = commanding->user,
        .login_shell = commanding->login,
        .terminal = commanding->terminal,
        .terminal_type = commanding->terminal ? terminal_type() : NULL,
        .input = commanding->input ? SANDBOX_INPUT_PIPE : SANDBOX_INPUT_NONE,
        .deadline_ms = (uint32_t)commanding->deadline_ms,
    };
    unsigned rows, columns;
    if (commanding->terminal && cli_terminal_size(&rows, &columns)) {
        command->options.rows = (uint16_t)rows;
        command->options.columns = (uint16_t)columns;
    }
    return true;
}

void cli_command_free(struct cli_command *command)
{
    cli_words_free(&command->env);
    cli_owned_free(&command->owned);
}

static bool check(const struct cli *cli, const struct cli_commanding *commanding,
                  const char *const *argv)
{
    bool has_words = argv != NULL && argv[0] != NULL;
    if (commanding->line == NULL && !has_words)
        cli_usage(cli, "no command; give it after '--', or a line with -c");
    else if (commanding->line != NULL && has_words)
        cli_usage(cli, "both -c and words of a command; give one");
    else if (commanding->login && commanding->line == NULL)
        cli_usage(cli, "--login needs -c: only a shell reads profile files");
    else if (commanding->deadline_ms > UINT32_MAX)
        cli_usage(cli, "--deadline: at most 49 days");
    else
        return true;
    return false;
}

/* What this side's terminal is called, if the name could be one. */
static const char *terminal_type(void)
{
    const char *type = getenv("TERM");
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789+-._";
    if (type == NULL || type[0] == '\0' || strlen(type) > 63 || type[0] == '.')
        return NULL;
    return type[strspn(type, allowed)] == '\0' ? type : NULL;
}
