/* sandbox stats: what a workspace uses. */

#include "cli.h"
#include "json.h"
#include "text.h"

struct settings {
    char none;
};

static int measure(struct cli *cli, const void *given, const struct cli_words *words);
static sandbox_status ask_activity(const struct cli *cli, sandbox_workspace *workspace,
                                   sandbox_activity *out, sandbox_error *error);
static void print_json(const sandbox_workspace_stats *stats, const sandbox_activity *activity);
static void print_text(const sandbox_workspace_stats *stats, const sandbox_activity *activity);
static void print_known(const char *key, uint64_t value, const char *shown);

static const struct cli_option options[] = {{.name = NULL}};

const struct cli_verb cli_stats = {
    .name = "stats",
    .usage = "NAME",
    .summary = "show what a workspace uses",
    .text = "As its agent measures it, from inside. What is active keeps it from being suspended.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .least = 1,
    .most = 1,
    .raw_after = -1,
    .json = true,
    .complete = CLI_COMPLETE_WORKSPACE,
    .run = measure,
};

static int measure(struct cli *cli, const void *given, const struct cli_words *words)
{
    const char *name = words->word[0];
    CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
    sandbox_workspace_stats stats = {SANDBOX_WORKSPACE_STATS};
    sandbox_activity activity = {SANDBOX_ACTIVITY};
    sandbox_error error = {0};
    sandbox_status status = cli_find(cli, name, &workspace, &error);
    sandbox_call call = cli_call(cli);
    if (status == SANDBOX_OK)
        status = sandbox_workspace_measure(workspace, &call, &stats, &error);
    if (status == SANDBOX_OK)
        status = ask_activity(cli, workspace, &activity, &error);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, name);
    if (cli->json)
        print_json(&stats, &activity);
    else
        print_text(&stats, &activity);
    return CLI_OK;
}

/* An agent of before 0.2 does not know who is active. */
static sandbox_status ask_activity(const struct cli *cli, sandbox_workspace *workspace,
                                   sandbox_activity *out, sandbox_error *error)
{
    sandbox_call call = cli_call(cli);
    sandbox_status status = sandbox_workspace_activity(workspace, &call, out, error);
    return status == SANDBOX_UNSUPPORTED ? SANDBOX_OK : status;
}

static void print_json(const sandbox_workspace_stats *stats, const sandbox_activity *activity)
{
    struct cli_json json = {0};
    cli_json_object(&json, NULL);
    cli_json_size(&json, "uptime_ms", stats->uptime_ms);
    cli_json_size(&json, "memory_bytes", stats->memory_bytes);
    cli_json_size(&json, "agent_memory_bytes", stats->agent_memory_bytes);
    cli_json_size(&json, "cpu_ms", stats->cpu_ms);
    cli_json_size(&json, "disk_used_bytes", stats->disk_used_bytes);
    cli_json_size(&json, "disk_free_bytes", stats->disk_free_bytes);
    cli_json_number(&json, "processes", stats->processes);
    cli_json_number(&json, "connections", stats->connections);
    cli_json_size(&json, "idle_ms", stats->idle_ms);
    cli_json_number(&json, "active_tasks", stats->active_tasks);
    cli_json_number(&json, "active_terminals", activity->terminals);
    if (activity->had_traffic)
        cli_json_size(&json, "traffic_idle_ms", activity->traffic_idle_ms);
    else
        cli_json_null(&json, "traffic_idle_ms");
    cli_json_text(&json, "active", activity->who);
    cli_json_end(&json, '}');
}

static void print_text(const sandbox_workspace_stats *stats, const sandbox_activity *activity)
{
    char shown[CLI_SHORT_BYTES], who[sizeof activity->who];
    printf("%-14s %s\n", "uptime", cli_text_age((int64_t)stats->uptime_ms, shown));
    printf("%-14s %s\n", "idle", cli_text_age((int64_t)stats->idle_ms, shown));
    if (activity->who[0] != '\0') {
        cli_text_clean(activity->who, who, sizeof who);
        printf("%-14s %s\n", "active", who);
    }
    print_known("memory", stats->memory_bytes, cli_text_size(stats->memory_bytes, shown));
    print_known("agent memory", stats->agent_memory_bytes,
                cli_text_size(stats->agent_memory_bytes, shown));
    snprintf(shown, sizeof shown, "%.2f s", (double)stats->cpu_ms / 1000);
    print_known("cpu", stats->cpu_ms, shown);
    printf("%-14s %s\n", "disk used", cli_text_size(stats->disk_used_bytes, shown));
    printf("%-14s %s\n", "disk free", cli_text_size(stats->disk_free_bytes, shown));
    printf("%-14s %u\n", "processes", stats->processes);
    printf("%-14s %u\n", "active tasks", stats->active_tasks);
    printf("%-14s %u\n", "connections", stats->connections);
}

static void print_known(const char *key, uint64_t value, const char *shown)
{
    printf("%-14s %s\n", key, value != 0 ? shown : "not known");
}
