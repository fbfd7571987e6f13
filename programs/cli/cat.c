/* sandbox cat: the content of files of a workspace, on standard output. */

#include "cli.h"
#include "transfer.h"

struct settings {
    char none;
};

static int print_files(struct cli *cli, const void *given, const struct cli_words *words);

static const struct cli_option options[] = {{.name = NULL}};

const struct cli_verb cli_cat = {
    .name = "cat",
    .usage = "NAME:PATH…",
    .summary = "print files of a workspace",
    .text = "Byte for byte. Goes on with the others after a failure; the exit code is the first\n"
            "failure's.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .least = 1,
    .most = CLI_MANY,
    .raw_after = -1,
    .complete = CLI_COMPLETE_WORKSPACE,
    .run = print_files,
};

static int print_files(struct cli *cli, const void *given, const struct cli_words *words)
{
    int code = CLI_OK;
    for (size_t i = 0; i < words->count; i++) {
        struct cli_place place = cli_place_of(words->word[i]);
        if (place.name[0] == '\0')
            return cli_usage(cli, "'%s' is no NAME:PATH", words->word[i]);
        CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
        sandbox_error error = {0};
        int failed;
        if (cli_find(cli, place.name, &workspace, &error) == SANDBOX_OK)
            failed = cli_transfer_out(cli, workspace, place.path);
        else
            failed = cli_fail(cli, &error, place.name);
        if (failed >= CLI_SIGNALLED)
            return failed;
        code = code == CLI_OK ? failed : code;
    }
    return code;
}
