/* sandbox version: of this command, and of the library it runs with. */

#include "cli.h"
#include "json.h"

struct settings {
    char none;
};

static int print(struct cli *cli, const void *given, const struct cli_words *words);

static const struct cli_option options[] = {{.name = NULL}};

const struct cli_verb cli_version = {
    .name = "version",
    .usage = "",
    .summary = "show the versions of this command and its library",
    .text = "",
    .options = options,
    .settings_size = sizeof(struct settings),
    .raw_after = -1,
    .json = true,
    .run = print,
};

static int print(struct cli *cli, const void *given, const struct cli_words *words)
{
    struct cli_json json = {0};
    if (cli->json) {
        cli_json_object(&json, NULL);
        cli_json_text(&json, "command", SANDBOX_VERSION);
        cli_json_text(&json, "library", sandbox_version());
        cli_json_end(&json, '}');
    } else
        printf("sandbox %s, libsandbox %s\n", SANDBOX_VERSION, sandbox_version());
    return CLI_OK;
}
