/* sandbox ps: the commands that were started in a workspace. */

#include "cli.h"
#include "json.h"
#include "table.h"
#include "text.h"

struct settings {
    char none;
};

static int list(struct cli *cli, const void *given, const struct cli_words *words);
static int print(const struct cli *cli, const sandbox_process_list *found);
static void print_json(const sandbox_process_list *found);
static int print_table(const sandbox_process_list *found);
static const char *standing(const sandbox_process_info *info, char out[CLI_SHORT_BYTES]);

static const struct cli_option options[] = {{.name = NULL}};

const struct cli_verb cli_ps = {
    .name = "ps",
    .usage = "NAME",
    .summary = "show the commands of a workspace",
    .text = "Those that were started through the library and are still known, also ended ones.\n"
            "The first digits of an id are enough wherever one is asked for. With -q whole ids\n"
            "only.",
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
    sandbox_process_list *found = NULL;
    sandbox_error error = {0};
    sandbox_status status = cli_find(cli, name, &workspace, &error);
    sandbox_call call = cli_call(cli);
    if (status == SANDBOX_OK)
        status = sandbox_process_list_all(workspace, &call, &found, &error);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, name);
    int code = print(cli, found);
    sandbox_process_list_free(found);
    return code;
}

static int print(const struct cli *cli, const sandbox_process_list *found)
{
    if (cli->json) {
        print_json(found);
        return CLI_OK;
    }
    if (!cli->quiet)
        return print_table(found);
    for (size_t i = 0; i < sandbox_process_list_count(found); i++)
        printf("%s\n", sandbox_process_list_at(found, i)->id);
    return CLI_OK;
}

static void print_json(const sandbox_process_list *found)
{
    struct cli_json json = {0};
    cli_json_array(&json, NULL);
    for (size_t i = 0; i < sandbox_process_list_count(found); i++) {
        const sandbox_process_info *info = sandbox_process_list_at(found, i);
        cli_json_object(&json, NULL);
        cli_json_text(&json, "id", info->id);
        cli_json_number(&json, "pid", info->pid);
        cli_json_bool(&json, "running", info->running);
        if (info->running)
            cli_json_null(&json, "exit");
        else {
            cli_json_object(&json, "exit");
            cli_json_number(&json, "code", info->exit.code);
            cli_json_number(&json, "signal", info->exit.signal);
            cli_json_bool(&json, "timed_out", info->exit.timed_out);
            cli_json_end(&json, '}');
        }
        cli_json_text(&json, "role", info->role == SANDBOX_ROLE_SERVICE ? "service" : "task");
        cli_json_bool(&json, "terminal", info->terminal);
        cli_json_text(&json, "command", info->command);
        cli_json_text(&json, "user", info->user);
        cli_json_number(&json, "started_ms", info->started_ms);
        cli_json_number(&json, "descendants", info->descendants);
        cli_json_size(&json, "output_bytes", info->output_bytes);
        cli_json_size(&json, "error_bytes", info->error_bytes);
        cli_json_end(&json, '}');
    }
    cli_json_end(&json, ']');
}

static int print_table(const sandbox_process_list *found)
{
    static const char *const headings[] = {"ID",   "PID",    "STATE",   "AGE", "ROLE",
                                           "USER", "OUTPUT", "COMMAND", NULL};
    CLI_ON_EXIT(cli_table_free) struct cli_table table;
    int64_t now = cli_wall_ms();
    cli_table_begin(&table, headings);
    for (size_t i = 0; i < sandbox_process_list_count(found); i++) {
        const sandbox_process_info *info = sandbox_process_list_at(found, i);
        char id[13], pid[CLI_SHORT_BYTES], state[CLI_SHORT_BYTES], age[CLI_SHORT_BYTES],
            output[CLI_SHORT_BYTES];
        snprintf(id, sizeof id, "%s", info->id);
        snprintf(pid, sizeof pid, "%lld", (long long)info->pid);
        const char *cells[] = {id,
                               pid,
                               standing(info, state),
                               cli_text_age(now - info->started_ms, age),
                               info->role == SANDBOX_ROLE_SERVICE ? "service" : "task",
                               info->user,
                               cli_text_size(info->output_bytes + info->error_bytes, output),
                               info->command};
        cli_table_add(&table, cells);
    }
    if (cli_table_print(&table))
        return CLI_OK;
    cli_complain("no memory for the table");
    return CLI_FAILED;
}

static const char *standing(const sandbox_process_info *info, char out[CLI_SHORT_BYTES])
{
    if (info->running)
        return "running";
    if (info->exit.timed_out)
        return "timed out";
    if (info->exit.signal != 0)
        snprintf(out, CLI_SHORT_BYTES, "signal %d", info->exit.signal);
    else
        snprintf(out, CLI_SHORT_BYTES, "exit %d", info->exit.code);
    return out;
}
