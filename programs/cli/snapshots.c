/* sandbox snapshots: what snapshots a workspace has. */

#include "json.h"
#include "suspending.h"
#include "table.h"
#include "text.h"

struct settings {
    char none;
};

static int list(struct cli *cli, const void *given, const struct cli_words *words);
static int print(const struct cli *cli, const sandbox_snapshot_list *found);
static void print_json(const sandbox_snapshot_list *found);
static int print_table(const sandbox_snapshot_list *found);

static const struct cli_option options[] = {{.name = NULL}};

const struct cli_verb cli_snapshots = {
    .name = "snapshots",
    .usage = "NAME",
    .summary = "show the snapshots of a workspace",
    .text = "The newest first. The recovery point is what a resume takes. 'proven': a resume from\n"
            "it was proven once. The first digits of an id are enough wherever one is asked for.\n"
            "With -q whole ids only.",
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
    sandbox_snapshot_list *found = NULL;
    sandbox_error error = {0};
    sandbox_status status = cli_find(cli, name, &workspace, &error);
    sandbox_call call = cli_call(cli);
    if (status == SANDBOX_OK)
        status = sandbox_snapshot_list_all(workspace, &call, &found, &error);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, name);
    int code = print(cli, found);
    sandbox_snapshot_list_free(found);
    return code;
}

static int print(const struct cli *cli, const sandbox_snapshot_list *found)
{
    if (cli->json) {
        print_json(found);
        return CLI_OK;
    }
    if (!cli->quiet)
        return print_table(found);
    for (size_t i = 0; i < sandbox_snapshot_list_count(found); i++)
        printf("%s\n", sandbox_snapshot_list_at(found, i)->id);
    return CLI_OK;
}

static void print_json(const sandbox_snapshot_list *found)
{
    struct cli_json json = {0};
    cli_json_array(&json, NULL);
    for (size_t i = 0; i < sandbox_snapshot_list_count(found); i++) {
        const sandbox_snapshot_info *info = sandbox_snapshot_list_at(found, i);
        cli_json_object(&json, NULL);
        cli_json_text(&json, "id", info->id);
        cli_json_text(&json, "kept", cli_keep_name(info->kept));
        cli_json_bool(&json, "is_recovery_point", info->is_recovery_point);
        cli_json_bool(&json, "was_proven", info->was_proven);
        cli_json_bool(&json, "has_seal", info->has_seal);
        cli_json_number(&json, "created_ms", info->created_ms);
        cli_json_size(&json, "bytes", info->bytes);
        cli_json_end(&json, '}');
    }
    cli_json_end(&json, ']');
}

static int print_table(const sandbox_snapshot_list *found)
{
    static const char *const headings[] = {"ID", "CREATED", "AGE", "KEPT", "SIZE", "WHAT", NULL};
    CLI_ON_EXIT(cli_table_free) struct cli_table table;
    int64_t now = cli_wall_ms();
    cli_table_begin(&table, headings);
    for (size_t i = 0; i < sandbox_snapshot_list_count(found); i++) {
        const sandbox_snapshot_info *info = sandbox_snapshot_list_at(found, i);
        char id[13], created[CLI_SHORT_BYTES], age[CLI_SHORT_BYTES], size[CLI_SHORT_BYTES],
            what[64];
        snprintf(id, sizeof id, "%s", info->id);
        snprintf(what, sizeof what, "%s%s%s", info->is_recovery_point ? "recovery point" : "",
                 info->is_recovery_point && info->was_proven ? ", " : "",
                 info->was_proven  ? "proven"
                 : !info->has_seal ? "files of a lost sandbox"
                                   : "");
        const char *cells[] = {id,
                               cli_text_time(info->created_ms, created),
                               cli_text_age(now - info->created_ms, age),
                               cli_keep_name(info->kept),
                               cli_text_size(info->bytes, size),
                               what};
        cli_table_add(&table, cells);
    }
    if (cli_table_print(&table))
        return CLI_OK;
    cli_complain("no memory for the table");
    return CLI_FAILED;
}
