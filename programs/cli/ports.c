/* sandbox ports: what listens inside a workspace. */

#include "cli.h"
#include "json.h"
#include "table.h"
#include "text.h"

struct settings {
    char none;
};

static int list(struct cli *cli, const void *given, const struct cli_words *words);
static int print(const struct cli *cli, const sandbox_port_list *found);

static const struct cli_option options[] = {{.name = NULL}};

const struct cli_verb cli_ports = {
    .name = "ports",
    .usage = "NAME",
    .summary = "show what listens inside a workspace",
    .text = "",
    .options = options,
    .settings_size = sizeof(struct settings),
    .least = 1,
    .most = 1,
    .raw_after = -1,
    .json = true,
    .complete = CLI_COMPLETE_WORKSPACE,
    .run = list,
};

static int list(struct cli *cli, const void *given, const struct cli_words *words)
{
    const char *name = words->word[0];
    CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
    sandbox_port_list *found = NULL;
    sandbox_error error = {0};
    sandbox_status status = cli_find(cli, name, &workspace, &error);
    sandbox_call call = cli_call(cli);
    if (status == SANDBOX_OK)
        status = sandbox_port_list_all(workspace, &call, &found, &error);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, name);
    int code = print(cli, found);
    sandbox_port_list_free(found);
    return code;
}

static int print(const struct cli *cli, const sandbox_port_list *found)
{
    static const char *const headings[] = {"PORT", "ADDRESS", "PID", NULL};
    CLI_ON_EXIT(cli_table_free) struct cli_table table;
    struct cli_json json = {0};
    cli_table_begin(&table, headings);
    if (cli->json)
        cli_json_array(&json, NULL);
    for (size_t i = 0; i < sandbox_port_list_count(found); i++) {
        const sandbox_port_info *info = sandbox_port_list_at(found, i);
        char port[CLI_SHORT_BYTES], pid[CLI_SHORT_BYTES];
        snprintf(port, sizeof port, "%u", info->port);
        snprintf(pid, sizeof pid, "%lld", (long long)info->pid);
        const char *cells[] = {port, info->address, info->pid != 0 ? pid : "-"};
        if (!cli->json) {
            cli_table_add(&table, cells);
            continue;
        }
        cli_json_object(&json, NULL);
        cli_json_number(&json, "port", info->port);
        cli_json_text(&json, "address", info->address);
        cli_json_number(&json, "pid", info->pid);
        cli_json_end(&json, '}');
    }
    if (cli->json)
        cli_json_end(&json, ']');
    else if (!cli_table_print(&table)) {
        cli_complain("no memory for the table");
        return CLI_FAILED;
    }
    return CLI_OK;
}
