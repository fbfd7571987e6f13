/* sandbox inspect: asks the platform how one workspace stands. */

#include "facts.h"
#include "table.h"

struct settings {
    char none;
};

static int inspect(struct cli *cli, const void *given, const struct cli_words *words);
static void print(const sandbox_workspace_info *info);
static void print_snapshots(const sandbox_workspace_info *info);
static void print_limit(const char *key, uint32_t limit, const char *unit);
static void print_text(const char *key, const char *value);

static const struct cli_option options[] = {{.name = NULL}};

const struct cli_verb cli_inspect = {
    .name = "inspect",
    .usage = "NAME",
    .summary = "ask how a workspace stands now",
    .text = "NAME is its name or its id.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .least = 1,
    .most = 1,
    .raw_after = -1,
    .json = true,
    .complete = CLI_COMPLETE_WORKSPACE,
    .run = inspect,
};

static int inspect(struct cli *cli, const void *given, const struct cli_words *words)
{
    const char *name = words->word[0];
    CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
    sandbox_workspace_list *found = NULL;
    sandbox_error error = {0};
    sandbox_status status = cli_find(cli, name, &workspace, &error);
    sandbox_call call = cli_call(cli);
    if (status == SANDBOX_OK)
        status = sandbox_workspace_inspect(workspace, &call, &found, &error);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, name);
    const sandbox_workspace_info *info = sandbox_workspace_list_at(found, 0);
    struct cli_json json = {0};
    if (cli->json)
        cli_facts_json(&json, info);
    else
        print(info);
    sandbox_workspace_list_free(found);
    return CLI_OK;
}

static void print(const sandbox_workspace_info *info)
{
    char moment[CLI_SHORT_BYTES], expiry[CLI_SHORT_BYTES], labels[4096];
    const char *state = sandbox_state_name(info->state);
    const char *paint = cli_paint(state);
    cli_facts_labels(info, labels, sizeof labels);
    print_text("name", info->name);
    print_text("id", info->id);
    print_text("driver", info->driver);
    printf("%-12s %s%s%s\n", "state", paint, state, paint[0] != '\0' ? cli_paint_end() : "");
    if (info->operation[0] != '\0')
        printf("%-12s %s%s%s\n", "operation", info->operation, info->step[0] != '\0' ? ": " : "",
               info->step);
    print_text("user", info->user);
    print_text("image", info->image[0] != '\0' ? info->image : "base");
    if (info->incarnation[0] != '\0')
        print_text("incarnation", info->incarnation);
    print_limit("memory", info->memory_mib, " MiB");
    if (info->cpu_millis != 0)
        printf("%-12s %.2f\n", "cpu", (double)info->cpu_millis / 1000);
    else
        print_text("cpu", "no limit");
    print_limit("processes", info->process_limit, "");
    print_limit("disk", info->disk_mib, " MiB");
    print_text("created", cli_text_time(info->created_ms, moment));
    if (info->expires_ms != 0)
        printf("%-12s %s (%s)\n", "expires", cli_text_time(info->expires_ms, moment),
               cli_facts_expiry(info, cli_wall_ms(), expiry));
    else
        print_text("expires", "never");
    print_text("labels", labels);
    print_snapshots(info);
}

/* What would be left if the sandbox were lost now, beside its files. */
static void print_snapshots(const sandbox_workspace_info *info)
{
    char moment[CLI_SHORT_BYTES], age[CLI_SHORT_BYTES];
    if (info->snapshot[0] != '\0')
        printf("%-12s %.12s, %s (%s ago)\n", "recovery", info->snapshot,
               cli_text_time(info->snapshot_ms, moment),
               cli_facts_recovery(info, cli_wall_ms(), age));
    else
        print_text("recovery", "none");
    printf("%-12s %u (%u are kept)\n", "snapshots", info->snapshot_count, info->retain);
    if (info->suspend_after_idle_ms != 0)
        printf("%-12s suspended after %s\n", "idle",
               cli_text_age((int64_t)info->suspend_after_idle_ms, age));
    for (size_t i = 0; info->checks != NULL && info->checks[i] != NULL; i++)
        print_text("check", info->checks[i]);
}

static void print_limit(const char *key, uint32_t limit, const char *unit)
{
    if (limit == 0)
        print_text(key, "no limit");
    else
        printf("%-12s %u%s\n", key, limit, unit);
}

static void print_text(const char *key, const char *value)
{
    char clean[4096];
    cli_text_clean(value, clean, sizeof clean);
    printf("%-12s %s\n", key, clean);
}
