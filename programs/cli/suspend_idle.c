/* sandbox suspend-idle: suspends the workspaces where nobody works. */

#include "json.h"
#include "progress.h"
#include "suspending.h"

struct settings {
    uint64_t idle_ms, max_busy_ms;
    const char *keep;
    struct cli_words labels, checks;
    uint32_t parallel;
};

static int suspend_idle(struct cli *cli, const void *given, const struct cli_words *words);
static int run(struct cli *cli, const sandbox_idle_options *wanted);
static void print(const struct cli *cli, const sandbox_idle_result *result);

static const struct cli_option options[] = {
    {0, "idle", "DURATION", "idle for that long; default: what each one says, or 15m", CLI_DURATION,
     offsetof(struct settings, idle_ms)},
    {'l', "label", "KEY=VALUE", "only those that carry it; all of several", CLI_LIST,
     offsetof(struct settings, labels)},
    {0, "parallel", "N", "that many at once; default: 4", CLI_NUMBER,
     offsetof(struct settings, parallel)},
    {0, "max-busy", "DURATION", "by force, what says for longer that it is busy", CLI_DURATION,
     offsetof(struct settings, max_busy_ms)},
    CLI_KEEP_OPTION(struct settings),
    CLI_CHECK_OPTION(struct settings),
    {.name = NULL},
};

const struct cli_verb cli_suspend_idle = {
    .name = "suspend-idle",
    .usage = "[OPTIONS]",
    .summary = "suspend the workspaces where nobody works",
    .text = "For a timer: run it every minute or so. One that somebody comes back to meanwhile\n"
            "goes on. Prints how many were suspended, are active, and failed; exit code 1 if any\n"
            "failed. With -q the number of the suspended only.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .raw_after = -1,
    .json = true,
    .run = suspend_idle,
};

static int suspend_idle(struct cli *cli, const void *given, const struct cli_words *words)
{
    const struct settings *settings = given;
    CLI_ON_EXIT(cli_checks_free) struct cli_checks checks = {0};
    sandbox_idle_options wanted = {
        SANDBOX_IDLE_OPTIONS,
        .idle_ms = settings->idle_ms,
        .max_busy_ms = settings->max_busy_ms,
        .labels = settings->labels.word,
        .parallel = settings->parallel,
    };
    if (!cli_keep_settle(cli, settings->keep, &wanted.keep) ||
        !cli_checks_settle(cli, &settings->checks, &checks))
        return CLI_USAGE;
    wanted.checks = checks.check;
    wanted.check_count = checks.count;
    return run(cli, &wanted);
}

static int run(struct cli *cli, const sandbox_idle_options *wanted)
{
    sandbox_idle_result result = {SANDBOX_IDLE_RESULT};
    sandbox_error error = {0};
    sandbox_client *client;
    if (cli_client(cli, &client, &error) != SANDBOX_OK)
        return cli_fail(cli, &error, NULL);
    struct cli_progress progress;
    cli_show_warnings(cli); /* they say which one failed, and why */
    sandbox_call call = cli_call(cli);
    cli_progress_begin(cli, &progress);
    sandbox_status status = sandbox_client_suspend_idle(client, wanted, &call, &result, &error);
    cli_progress_end(&progress);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, NULL);
    print(cli, &result);
    return result.failed == 0 ? CLI_OK : CLI_FAILED;
}

static void print(const struct cli *cli, const sandbox_idle_result *result)
{
    struct cli_json json = {0};
    if (cli->json) {
        cli_json_object(&json, NULL);
        cli_json_number(&json, "suspended", result->suspended);
        cli_json_number(&json, "active", result->active);
        cli_json_number(&json, "failed", result->failed);
        cli_json_end(&json, '}');
    } else if (cli->quiet)
        printf("%u\n", result->suspended);
    else
        printf("%u suspended, %u active, %u failed\n", result->suspended, result->active,
               result->failed);
}
