/* sandbox renew: lets a workspace live longer. */

#include "cli.h"

#include <string.h>

struct settings {
    char none;
};

static int renew(struct cli *cli, const void *given, const struct cli_words *words);

static const struct cli_option options[] = {{.name = NULL}};

const struct cli_verb cli_renew = {
    .name = "renew",
    .usage = "NAME DURATION|never",
    .summary = "let a workspace live that much longer from now",
    .text = "A duration is like 90s, 15m, 2h or 3d; 'never' lets it live for ever.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .least = 2,
    .most = 2,
    .raw_after = -1,
    .complete = CLI_COMPLETE_WORKSPACE,
    .run = renew,
};

static int renew(struct cli *cli, const void *given, const struct cli_words *words)
{
    const char *name = words->word[0], *duration = words->word[1];
    uint64_t ms = 0;
    bool for_ever = strcmp(duration, "never") == 0;
    if (!for_ever && (!cli_duration(duration, false, &ms) || ms == 0))
        return cli_usage(cli, "'%s' is no duration; say it like 90s, 15m, 2h, 3d or never",
                         duration);
    CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
    sandbox_error error = {0};
    sandbox_status status = cli_find(cli, name, &workspace, &error);
    sandbox_call call = cli_call(cli);
    if (status == SANDBOX_OK)
        status = sandbox_workspace_renew(workspace, ms, &call, &error);
    return status == SANDBOX_OK ? CLI_OK : cli_fail(cli, &error, name);
}
