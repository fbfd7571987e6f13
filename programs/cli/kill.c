/* sandbox kill: sends a signal to a command and its group. */

#include "cli.h"

#include <signal.h>
#include <string.h>

struct settings {
    const char *signal;
};

static int send_signal(struct cli *cli, const void *given, const struct cli_words *words);
static int signal_number(const char *name);

static const struct cli_option options[] = {
    {'s', "signal", "SIGNAL", "a name like INT or a number; default: TERM", CLI_TEXT,
     offsetof(struct settings, signal)},
    {.name = NULL},
};

const struct cli_verb cli_kill = {
    .name = "kill",
    .usage = "[-s SIGNAL] NAME ID",
    .summary = "send a signal to a command of a workspace",
    .text = "It goes to the command's group; KILL also to every descendant that left it. One that\n"
            "has ended is no failure.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .least = 2,
    .most = 2,
    .raw_after = -1,
    .complete = CLI_COMPLETE_PROCESS,
    .run = send_signal,
};

static int send_signal(struct cli *cli, const void *given, const struct cli_words *words)
{
    const struct settings *settings = given;
    const char *name = words->word[0];
    int number = signal_number(settings->signal != NULL ? settings->signal : "TERM");
    if (number == 0)
        return cli_usage(cli, "no signal '%s'", settings->signal);

    CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
    CLI_ON_EXIT(cli_process_free) sandbox_process *process = NULL;
    sandbox_error error = {0};
    sandbox_status status = cli_find(cli, name, &workspace, &error);
    if (status == SANDBOX_OK)
        status = cli_find_process(cli, workspace, words->word[1], &process, &error);
    sandbox_call call = cli_call(cli);
    if (status == SANDBOX_OK)
        status = sandbox_process_signal(process, number, &call, &error);
    return status == SANDBOX_OK ? CLI_OK : cli_fail(cli, &error, name);
}

static int signal_number(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } signals[] = {
        {"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT}, {"ABRT", SIGABRT},
        {"KILL", SIGKILL}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"PIPE", SIGPIPE},
        {"ALRM", SIGALRM}, {"TERM", SIGTERM}, {"CONT", SIGCONT}, {"STOP", SIGSTOP},
        {"TSTP", SIGTSTP}, {"TTIN", SIGTTIN}, {"TTOU", SIGTTOU}, {"WINCH", SIGWINCH},
    };
    uint64_t number;
    if (cli_number(name, 64, &number))
        return (int)number;
    if (strncasecmp(name, "SIG", 3) == 0)
        name += 3;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        if (strcasecmp(name, signals[i].name) == 0)
            return signals[i].number;
    return 0;
}
