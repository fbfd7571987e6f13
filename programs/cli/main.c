/* The command `sandbox`: workspaces for people and scripts, over the public API alone. */

#include "cli.h"
#include "signals.h"

#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool hold_standard_streams(void);
static int run_verb(struct cli *cli, char **arguments);
static int run_parsed(struct cli *cli, const void *settings, const struct cli_words *words);
static void print_log(sandbox_log_level level, const char *line, void *user_data);

const struct cli_verb *const cli_verbs[] = {
    &cli_create,       &cli_open,
    &cli_list,         &cli_inspect,
    &cli_exec,         &cli_run,
    &cli_ps,           &cli_kill,
    &cli_attach,       &cli_cp,
    &cli_ls,           &cli_cat,
    &cli_ports,        &cli_port_forward,
    &cli_stats,        &cli_suspend,
    &cli_resume,       &cli_snapshots,
    &cli_verify,       &cli_checkpoint,
    &cli_restore,      &cli_snapshot_delete,
    &cli_suspend_idle, &cli_recover,
    &cli_renew,        &cli_delete,
    &cli_sweep,        &cli_doctor,
    &cli_manifests,    &cli_egress,
    &cli_version,      &cli_completion,
    &cli_help,         NULL,
};

const struct cli_option cli_global_options[] = {
    {'u', "uri", "URI", "where workspaces live; default: $SANDBOX_URI, then gvisor:", CLI_TEXT,
     offsetof(struct cli, uri)},
    {0, "timeout", "SECONDS", "end the whole command after this", CLI_SECONDS,
     offsetof(struct cli, timeout_ms)},
    {0, "json", NULL, "print one JSON document", CLI_FLAG, offsetof(struct cli, json)},
    {'q', "quiet", NULL, "no notes, hints and progress; names and ids only", CLI_FLAG,
     offsetof(struct cli, quiet)},
    {'v', "verbose", NULL, "show the library's log on standard error", CLI_FLAG,
     offsetof(struct cli, verbose)},
    {'h', "help", NULL, "show help", CLI_FLAG, offsetof(struct cli, help)},
    {0, "version", NULL, "show the version", CLI_FLAG, offsetof(struct cli, version)},
    {.name = NULL},
};

int main(int count, char **arguments)
{
    struct cli cli = {0};
    if (!hold_standard_streams())
        return CLI_FAILED;
    setlocale(LC_CTYPE, "C.UTF-8"); /* for the width of characters; messages stay as they are */
    int code = CLI_USAGE;
    if (count > 0)
        arguments++;
    if (cli_parse_global(&cli, &arguments)) {
        if (cli.version)
            cli.verb = &cli_version;
        else if (*arguments != NULL)
            cli.verb = cli_verb_find(*arguments);
        if (cli.verb != NULL)
            code = run_verb(&cli, *arguments == NULL ? arguments : arguments + 1);
        else if (*arguments != NULL)
            cli_usage(&cli, "no verb '%s'", *arguments);
        else
            cli_print_overview(cli.help ? stdout : stderr);
        if (cli.help && cli.verb == NULL && *arguments == NULL)
            code = CLI_OK;
    }
    cli_flush(&code);
    sandbox_client_free(cli.client);
    return code;
}

/* A stream that was closed must not become one of our sockets. */
static bool hold_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) != fd)
            return false;
    return true;
}

static int run_verb(struct cli *cli, char **arguments)
{
    struct cli_words words = {0, NULL};
    void *settings = calloc(1, cli->verb->settings_size);
    if (settings == NULL) {
        cli_complain("no memory for the command line");
        return CLI_FAILED;
    }
    int code = cli->verb->runs_command ? CLI_OWN_FAILURE : CLI_USAGE;
    if (cli_parse(cli, arguments, settings, &words))
        code = run_parsed(cli, settings, &words);
    cli_words_free(&words);
    cli_settings_free(cli->verb, settings);
    return code;
}

static int run_parsed(struct cli *cli, const void *settings, const struct cli_words *words)
{
    if (cli->help) {
        cli_print_verb_help(stdout, cli->verb);
        return CLI_OK;
    }
    if (cli->uri == NULL || cli->uri[0] == '\0') {
        const char *uri = getenv("SANDBOX_URI");
        cli->uri = uri != NULL && uri[0] != '\0' ? uri : NULL;
    }
    if (cli->timeout_ms > 0)
        cli->deadline_ms = cli_monotonic_ms() + (int64_t)cli->timeout_ms;
    if (cli->verbose)
        sandbox_set_log(SANDBOX_LOG_DEBUG, print_log, NULL);
    if (!cli_signals_start())
        return cli->verb->runs_command ? CLI_OWN_FAILURE : CLI_FAILED;
    return cli->verb->run(cli, settings, words);
}

void cli_show_warnings(const struct cli *cli)
{
    if (!cli->verbose)
        sandbox_set_log(SANDBOX_LOG_WARNING, print_log, NULL);
}

static void print_log(sandbox_log_level level, const char *line, void *user_data)
{
    static const char *const names[] = {"off", "error", "warning", "info", "debug"};
    cli_complain("%s: %s", level <= SANDBOX_LOG_DEBUG ? names[level] : "log", line);
}
