/* sandbox resume: a workspace comes back from its snapshot. */

#include "reaching.h"
#include "resuming.h"

#include <string.h>

struct settings {
    const char *snapshot, *accept, *from;
    struct cli_words env;
    struct cli_reaching reaching;
};

static int resume(struct cli *cli, const void *given, const struct cli_words *words);
static bool settle(const struct cli *cli, const struct settings *settings,
                   sandbox_resume_options *wanted);

static const struct cli_option options[] = {
    {0, "snapshot", "ID", "from this one; default: the recovery point", CLI_TEXT,
     offsetof(struct settings, snapshot)},
    {0, "accept", "LESS", "files: without its processes; cold: whatever is there", CLI_TEXT,
     offsetof(struct settings, accept)},
    {0, "from", "SOURCE", "an interrupted one: live-files or snapshot", CLI_TEXT,
     offsetof(struct settings, from)},
    {'e', "env", "NAME[=VALUE]", "instead of what create or open gave it", CLI_LIST,
     offsetof(struct settings, env)},
    CLI_REACHING_OPTIONS(struct settings),
    {.name = NULL},
};

const struct cli_verb cli_resume = {
    .name = "resume",
    .usage = "[OPTIONS] NAME",
    .summary = "bring a suspended workspace back, proven to be the same",
    .text = "Done only once another sandbox has proven that it holds what was suspended. Where\n"
            "that fails the workspace is blocked, its snapshot is kept, and the exit code is 10.\n"
            "--accept says what else will do where memory cannot be restored: files, a fresh\n"
            "start over the snapshot's files; cold, over the files that are there, unproven.\n"
            "--from says how one goes on whose sandbox is gone: over its files as they were\n"
            "left, or from its recovery point; the files are then kept as a snapshot.\n"
            "One that runs is no failure. The first digits of a snapshot's id are enough.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .least = 1,
    .most = 1,
    .raw_after = -1,
    .json = true,
    .complete = CLI_COMPLETE_WORKSPACE,
    .run = resume,
};

static int resume(struct cli *cli, const void *given, const struct cli_words *words)
{
    const struct settings *settings = given;
    const char *name = words->word[0];
    CLI_ON_EXIT(cli_words_free) struct cli_words env = {0};
    CLI_ON_EXIT(cli_owned_free) struct cli_words owned = {0};
    CLI_ON_EXIT(cli_reached_free) struct cli_reached reached = {.secrets = NULL};
    CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
    sandbox_resume_options wanted = {SANDBOX_RESUME_OPTIONS};
    sandbox_error error = {0};
    char snapshot[CLI_SNAPSHOT_BYTES];
    if (!settle(cli, settings, &wanted) || !cli_settle_env(cli, &settings->env, &env, &owned) ||
        !cli_reaching_settle(cli, &settings->reaching, &reached, &wanted.egress))
        return CLI_USAGE;
    wanted.env = env.word;
    sandbox_status status = cli_find(cli, name, &workspace, &error);
    if (status == SANDBOX_OK && settings->snapshot != NULL) {
        status = cli_find_snapshot(cli, workspace, settings->snapshot, snapshot, &error);
        wanted.snapshot = snapshot;
    }
    return status == SANDBOX_OK ? cli_bring_back(cli, workspace, &wanted)
                                : cli_fail(cli, &error, name);
}

static bool settle(const struct cli *cli, const struct settings *settings,
                   sandbox_resume_options *wanted)
{
    const char *accept = settings->accept;
    if (accept != NULL && strcmp(accept, "files") == 0)
        wanted->accept = SANDBOX_ACCEPT_FILES;
    else if (accept != NULL && strcmp(accept, "cold") == 0)
        wanted->accept = SANDBOX_ACCEPT_COLD;
    else if (accept != NULL) {
        cli_usage(cli, "--accept: '%s' is neither files nor cold", accept);
        return false;
    }
    return cli_from_settle(cli, settings->from, &wanted->from);
}
