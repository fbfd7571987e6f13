/* sandbox snapshot-delete: snapshots go that are not needed. */

#include "cli.h"

struct settings {
    char none;
};

static int delete_snapshots(struct cli *cli, const void *given, const struct cli_words *words);
static sandbox_status delete_one(struct cli *cli, sandbox_workspace *workspace, const char *given,
                                 sandbox_error *error);

static const struct cli_option options[] = {{.name = NULL}};

const struct cli_verb cli_snapshot_delete = {
    .name = "snapshot-delete",
    .usage = "NAME SNAPSHOT…",
    .summary = "delete older snapshots of a workspace",
    .text = "Not the recovery point: a resume needs it. Old snapshots go by themselves beyond\n"
            "the number that create --retain says. Goes on with the others after a failure.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .least = 2,
    .most = CLI_MANY,
    .raw_after = -1,
    .complete = CLI_COMPLETE_SNAPSHOT,
    .run = delete_snapshots,
};

static int delete_snapshots(struct cli *cli, const void *given, const struct cli_words *words)
{
    const char *name = words->word[0];
    CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
    sandbox_error error = {0};
    int code = CLI_OK;
    if (cli_find(cli, name, &workspace, &error) != SANDBOX_OK)
        return cli_fail(cli, &error, name);
    for (size_t i = 1; i < words->count; i++) {
        error = (sandbox_error){0};
        if (delete_one(cli, workspace, words->word[i], &error) == SANDBOX_OK)
            continue;
        int failed = cli_fail(cli, &error, name);
        code = code == CLI_OK ? failed : code;
    }
    return code;
}

static sandbox_status delete_one(struct cli *cli, sandbox_workspace *workspace, const char *given,
                                 sandbox_error *error)
{
    char snapshot[CLI_SNAPSHOT_BYTES];
    sandbox_status status = cli_find_snapshot(cli, workspace, given, snapshot, error);
    sandbox_call call = cli_call(cli);
    return status == SANDBOX_OK ? sandbox_snapshot_delete(workspace, snapshot, &call, error)
                                : status;
}
