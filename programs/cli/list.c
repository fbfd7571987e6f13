/* sandbox list: the workspaces of a platform. */

#include "facts.h"
#include "table.h"
#include "text.h"

#include <string.h>

struct settings {
    struct cli_words labels;
};

static int list(struct cli *cli, const void *given, const struct cli_words *words);
static int print(const struct cli *cli, const sandbox_workspace_list *found);
static int print_table(const sandbox_workspace_list *found);

static const struct cli_option options[] = {
    {'l', "label", "KEY=VALUE", "only those that carry it; all of several", CLI_LIST,
     offsetof(struct settings, labels)},
    {.name = NULL},
};

const struct cli_verb cli_list = {
    .name = "list",
    .usage = "[-l KEY=VALUE]…",
    .summary = "show the workspaces there are",
    .text = "States are as recorded; 'sandbox inspect' asks whether one is still alive. RECOVERY\n"
            "is how old the recovery point is: processes that began later end with the sandbox\n"
            "if that is lost. With -q names only.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .raw_after = -1,
    .json = true,
    .run = list,
};

static int list(struct cli *cli, const void *given, const struct cli_words *words)
{
    const struct settings *settings = given;
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
    int code = print(cli, found);
    sandbox_workspace_list_free(found);
    return code;
}

static int print(const struct cli *cli, const sandbox_workspace_list *found)
{
    size_t count = sandbox_workspace_list_count(found);
    if (cli->json) {
        struct cli_json json = {0};
        cli_json_array(&json, NULL);
        for (size_t i = 0; i < count; i++)
            cli_facts_json(&json, sandbox_workspace_list_at(found, i));
        cli_json_end(&json, ']');
        return CLI_OK;
    }
    if (!cli->quiet)
        return print_table(found);
    for (size_t i = 0; i < count; i++)
        printf("%s\n", sandbox_workspace_list_at(found, i)->name);
    return CLI_OK;
}

static int print_table(const sandbox_workspace_list *found)
{
    CLI_ON_EXIT(cli_table_free) struct cli_table table;
    static const char *const headings[] = {"NAME",    "STATE",  "AGE", "RECOVERY",
                                           "EXPIRES", "LABELS", NULL};
    int64_t now = cli_wall_ms();
    cli_table_begin(&table, headings);
    for (size_t i = 0; i < sandbox_workspace_list_count(found); i++) {
        const sandbox_workspace_info *info = sandbox_workspace_list_at(found, i);
        char age[CLI_SHORT_BYTES], recovery[CLI_SHORT_BYTES], expires[CLI_SHORT_BYTES],
            labels[1024];
        cli_facts_labels(info, labels, sizeof labels);
        const char *cells[] = {info->name,
                               sandbox_state_name(info->state),
                               cli_text_age(now - info->created_ms, age),
                               cli_facts_recovery(info, now, recovery),
                               cli_facts_expiry(info, now, expires),
                               labels};
        cli_table_add(&table, cells);
    }
    if (cli_table_print(&table))
        return CLI_OK;
    cli_complain("no memory for the table");
    return CLI_FAILED;
}
