/* sandbox sweep: deletes the workspaces whose time has run out. */

#include "cli.h"
#include "json.h"

struct settings {
    char none;
};

static int sweep(struct cli *cli, const void *given, const struct cli_words *words);

static const struct cli_option options[] = {{.name = NULL}};

const struct cli_verb cli_sweep = {
    .name = "sweep",
    .usage = "",
    .summary = "delete the workspaces whose time has run out",
    .text = "create and open do this too, for what they come across. Prints how many went.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .raw_after = -1,
    .json = true,
    .run = sweep,
};

static int sweep(struct cli *cli, const void *given, const struct cli_words *words)
{
    sandbox_error error = {0};
    sandbox_client *client;
    size_t count = 0;
    sandbox_status status = cli_client(cli, &client, &error);
    sandbox_call call = cli_call(cli);
    if (status == SANDBOX_OK)
        status = sandbox_client_sweep(client, &call, &count, &error);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, NULL);
    struct cli_json json = {0};
    if (cli->json) {
        cli_json_object(&json, NULL);
        cli_json_size(&json, "deleted", count);
        cli_json_end(&json, '}');
    } else
        printf("%zu\n", count);
    return CLI_OK;
}
