/* sandbox create: makes a workspace and prints its name. */

#include "making.h"

struct settings {
    struct cli_making making;
};

static int create(struct cli *cli, const void *given, const struct cli_words *words);

static const struct cli_option options[] = {
    CLI_MAKING_USER_OPTIONS(struct settings),
    CLI_MAKING_OPTIONS(struct settings),
    {.name = NULL},
};

const struct cli_verb cli_create = {
    .name = "create",
    .usage = "[OPTIONS] [NAME]",
    .summary = "make a workspace and print its name",
    .text = "A name has 1 to 63 of a-z, 0-9 and '-'; without one a fresh one is drawn. A taken\n"
            "name is a failure (exit code 4), never a silent reuse.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .most = 1,
    .raw_after = -1,
    .run = create,
};

static int create(struct cli *cli, const void *given, const struct cli_words *words)
{
    const struct settings *settings = given;
    const char *name = words->count > 0 ? words->word[0] : NULL;
    CLI_ON_EXIT(cli_made_of_free) struct cli_made_of made_of = {0};
    CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
    sandbox_workspace_options wanted;
    if (!cli_making_settle(cli, &settings->making, &made_of, &wanted))
        return CLI_USAGE;
    wanted.name = name;

    sandbox_error error = {0};
    sandbox_client *client;
    sandbox_status status = cli_client(cli, &client, &error);
    sandbox_call call = cli_call(cli);
    if (status == SANDBOX_OK)
        status = sandbox_workspace_create(client, &wanted, &call, &workspace, &error);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, name);
    printf("%s\n", sandbox_workspace_name(workspace));
    return CLI_OK;
}
