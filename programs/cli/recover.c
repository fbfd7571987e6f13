/* sandbox recover: ends what dead owners left half done. */

#include "json.h"
#include "progress.h"

struct settings {
    char none;
};

static int recover(struct cli *cli, const void *given, const struct cli_words *words);

static const struct cli_option options[] = {{.name = NULL}};

const struct cli_verb cli_recover = {
    .name = "recover",
    .usage = "",
    .summary = "finish or undo every operation whose owner has died",
    .text = "open, suspend, resume and delete do this too, for their workspace. Prints how many\n"
            "there were. Operations whose owner lives are left alone.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .raw_after = -1,
    .json = true,
    .run = recover,
};

static int recover(struct cli *cli, const void *given, const struct cli_words *words)
{
    sandbox_error error = {0};
    sandbox_client *client;
    size_t count = 0;
    if (cli_client(cli, &client, &error) != SANDBOX_OK)
        return cli_fail(cli, &error, NULL);
    struct cli_progress progress;
    cli_show_warnings(cli);
    sandbox_call call = cli_call(cli);
    cli_progress_begin(cli, &progress);
    sandbox_status status = sandbox_client_recover(client, &call, &count, &error);
    cli_progress_end(&progress);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, NULL);
    struct cli_json json = {0};
    if (cli->json) {
        cli_json_object(&json, NULL);
        cli_json_size(&json, "recovered", count);
        cli_json_end(&json, '}');
    } else
        printf("%zu\n", count);
    return CLI_OK;
}
