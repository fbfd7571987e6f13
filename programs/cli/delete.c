/* sandbox delete: deletes workspaces by name, by label, or all. */

#include "cli.h"

struct settings {
    struct cli_words labels;
    bool all, yes, force;
};

static int delete_workspaces(struct cli *cli, const void *given, const struct cli_words *words);
static int check(const struct cli *cli, const struct settings *settings, size_t names);
static int delete_listed(struct cli *cli, const struct settings *settings);
static int delete_named(struct cli *cli, const char *name, bool force);

static const struct cli_option options[] = {
    {'l', "label", "KEY=VALUE", "those that carry it; all of several", CLI_LIST,
     offsetof(struct settings, labels)},
    {0, "all", NULL, "every workspace there is; needs --yes", CLI_FLAG,
     offsetof(struct settings, all)},
    {'y', "yes", NULL, "with --all: yes, really", CLI_FLAG, offsetof(struct settings, yes)},
    {'f', "force", NULL, "one that does not exist is no failure", CLI_FLAG,
     offsetof(struct settings, force)},
    {.name = NULL},
};

const struct cli_verb cli_delete = {
    .name = "delete",
    .usage = "NAME…  |  -l KEY=VALUE  |  --all --yes",
    .summary = "delete workspaces with all that is in them",
    .text = "Waits until nothing of them is left. Goes on with the others after a failure; the\n"
            "exit code is the first failure's.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .most = CLI_MANY,
    .raw_after = -1,
    .complete = CLI_COMPLETE_WORKSPACES,
    .run = delete_workspaces,
};

static int delete_workspaces(struct cli *cli, const void *given, const struct cli_words *words)
{
    const struct settings *settings = given;
    int code = check(cli, settings, words->count);
    if (code != CLI_OK)
        return code;
    if (words->count == 0)
        return delete_listed(cli, settings);
    for (size_t i = 0; i < words->count; i++) {
        int failed = delete_named(cli, words->word[i], settings->force);
        code = code == CLI_OK ? failed : code;
    }
    return code;
}

static int check(const struct cli *cli, const struct settings *settings, size_t names)
{
    int ways = (names > 0) + settings->all + (settings->labels.count > 0);
    if (ways == 0)
        return cli_usage(cli, "which one? Give a name, -l or --all");
    if (ways > 1)
        return cli_usage(cli, "names, -l and --all exclude each other");
    if (settings->all && !settings->yes)
        return cli_usage(cli, "--all deletes every workspace there is; say --yes if you mean it");
    return CLI_OK;
}

static int delete_listed(struct cli *cli, const struct settings *settings)
{
    sandbox_list_options wanted = {SANDBOX_LIST_OPTIONS, .labels = settings->labels.word};
    sandbox_error error = {0};
    sandbox_client *client;
    sandbox_workspace_list *found = NULL;
    sandbox_status status = cli_client(cli, &client, &error);
    sandbox_call call = cli_call(cli);
    if (status == SANDBOX_OK)
        status = sandbox_workspace_list_all(client, &wanted, &call, &found, &error);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, NULL);
    int code = CLI_OK;
    for (size_t i = 0; i < sandbox_workspace_list_count(found); i++) {
        /* By id: a name could be somebody's fresh workspace by now. Gone meanwhile is fine. */
        int failed = delete_named(cli, sandbox_workspace_list_at(found, i)->id, true);
        code = code == CLI_OK ? failed : code;
    }
    sandbox_workspace_list_free(found);
    return code;
}

static int delete_named(struct cli *cli, const char *name, bool force)
{
    CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
    sandbox_error error = {0};
    sandbox_status status = cli_find(cli, name, &workspace, &error);
    if (status == SANDBOX_NOT_FOUND && force)
        return CLI_OK;
    sandbox_call call = cli_call(cli);
    if (status == SANDBOX_OK)
        status = sandbox_workspace_delete(workspace, &call, &error);
    return status == SANDBOX_OK ? CLI_OK : cli_fail(cli, &error, name);
}
