/* sandbox suspend: a workspace into a verified snapshot. */

#include "progress.h"
#include "suspending.h"

struct settings {
    const char *keep, *quiet_for;
    struct cli_words checks;
    bool force, interruptible;
};

static int suspend(struct cli *cli, const void *given, const struct cli_words *words);
static int run(struct cli *cli, const char *name, const sandbox_suspend_options *wanted);
static bool settle_quiet(const struct cli *cli, const char *text, uint32_t *out_ms);

static const struct cli_option options[] = {
    CLI_KEEP_OPTION(struct settings),
    {'f', "force", NULL, "also if somebody works in it", CLI_FLAG,
     offsetof(struct settings, force)},
    {0, "interruptible", NULL, "give up if somebody wants to work meanwhile", CLI_FLAG,
     offsetof(struct settings, interruptible)},
    {0, "quiet-for", "DURATION", "traffic so recently counts as work: 30s; 0: never", CLI_TEXT,
     offsetof(struct settings, quiet_for)},
    CLI_CHECK_OPTION(struct settings),
    {.name = NULL},
};

const struct cli_verb cli_suspend = {
    .name = "suspend",
    .usage = "[OPTIONS] NAME",
    .summary = "keep a workspace in a snapshot and end its sandbox",
    .text = "Done only once the snapshot is complete and verified; 'sandbox resume' brings the\n"
            "workspace back with its processes. One in which somebody works is a failure (exit\n"
            "code 6) that says who. One that is suspended already is no failure. With -q the\n"
            "snapshot's id only. The password of a server that --check asks is taken from\n"
            "OPENCODE_SERVER_PASSWORD.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .least = 1,
    .most = 1,
    .raw_after = -1,
    .json = true,
    .complete = CLI_COMPLETE_WORKSPACE,
    .run = suspend,
};

static int suspend(struct cli *cli, const void *given, const struct cli_words *words)
{
    const struct settings *settings = given;
    CLI_ON_EXIT(cli_checks_free) struct cli_checks checks = {0};
    sandbox_suspend_options wanted = {SANDBOX_SUSPEND_OPTIONS, .force = settings->force,
                                      .interruptible = settings->interruptible};
    if (!cli_keep_settle(cli, settings->keep, &wanted.keep) ||
        !settle_quiet(cli, settings->quiet_for, &wanted.quiet_ms) ||
        !cli_checks_settle(cli, &settings->checks, &checks))
        return CLI_USAGE;
    wanted.checks = checks.check;
    wanted.check_count = checks.count;
    return run(cli, words->word[0], &wanted);
}

static int run(struct cli *cli, const char *name, const sandbox_suspend_options *wanted)
{
    CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
    sandbox_suspend_result result = {SANDBOX_SUSPEND_RESULT};
    sandbox_error error = {0};
    if (cli_find(cli, name, &workspace, &error) != SANDBOX_OK)
        return cli_fail(cli, &error, name);
    struct cli_progress progress;
    sandbox_call call = cli_call(cli);
    cli_progress_begin(cli, &progress);
    sandbox_status status = sandbox_workspace_suspend(workspace, wanted, &call, &result, &error);
    cli_progress_end(&progress);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, name);
    cli_suspend_print(cli, sandbox_workspace_name(workspace), "suspended", &result);
    return CLI_OK;
}

static bool settle_quiet(const struct cli *cli, const char *text, uint32_t *out_ms)
{
    uint64_t ms = 0;
    if (text == NULL)
        return true;
    if (!cli_duration(text, false, &ms) || ms >= SANDBOX_FOREVER) {
        cli_usage(cli, "--quiet-for: '%s' is no duration of at most 49 days; say it like 30s or 0",
                  text);
        return false;
    }
    *out_ms = ms == 0 ? SANDBOX_FOREVER : (uint32_t)ms; /* which never looks */
    return true;
}
