/* How what is known of a workspace is shown, shared by list and inspect. */

#include "facts.h"

#include <string.h>

static void write_labels(struct cli_json *json, const sandbox_workspace_info *info);
static void write_limit(struct cli_json *json, const char *key, uint32_t limit);
static void write_snapshots(struct cli_json *json, const sandbox_workspace_info *info);

void cli_facts_json(struct cli_json *json, const sandbox_workspace_info *info)
{
    cli_json_object(json, NULL);
    cli_json_text(json, "id", info->id);
    cli_json_text(json, "name", info->name);
    cli_json_text(json, "driver", info->driver);
    cli_json_text(json, "state", sandbox_state_name(info->state));
    cli_json_number(json, "epoch", info->epoch);
    cli_json_text(json, "user", info->user);
    cli_json_text(json, "image", info->image);
    cli_json_text(json, "incarnation", info->incarnation);
    cli_json_text(json, "operation", info->operation);
    cli_json_text(json, "step", info->step);
    write_labels(json, info);
    write_limit(json, "memory_mib", info->memory_mib);
    write_limit(json, "cpu_millis", info->cpu_millis);
    write_limit(json, "process_limit", info->process_limit);
    write_limit(json, "disk_mib", info->disk_mib);
    cli_json_number(json, "created_ms", info->created_ms);
    if (info->expires_ms != 0)
        cli_json_number(json, "expires_ms", info->expires_ms);
    else
        cli_json_null(json, "expires_ms");
    write_snapshots(json, info);
    cli_json_end(json, '}');
}

void cli_facts_labels(const sandbox_workspace_info *info, char *out, size_t out_size)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; info->labels != NULL && info->labels[i] != NULL; i++) {
        int added =
            snprintf(out + used, out_size - used, "%s%s", i > 0 ? "," : "", info->labels[i]);
        if (added < 0 || (size_t)added >= out_size - used)
            return;
        used += (size_t)added;
    }
}

const char *cli_facts_recovery(const sandbox_workspace_info *info, int64_t now_ms,
                               char out[CLI_SHORT_BYTES])
{
    if (info->snapshot[0] != '\0')
        return cli_text_age(now_ms - info->snapshot_ms, out);
    snprintf(out, CLI_SHORT_BYTES, "none");
    return out;
}

const char *cli_facts_expiry(const sandbox_workspace_info *info, int64_t now_ms,
                             char out[CLI_SHORT_BYTES])
{
    char left[CLI_SHORT_BYTES];
    if (info->expires_ms == 0)
        snprintf(out, CLI_SHORT_BYTES, "never");
    else if (info->expires_ms <= now_ms)
        snprintf(out, CLI_SHORT_BYTES, "passed");
    else
        snprintf(out, CLI_SHORT_BYTES, "in %.27s", cli_text_age(info->expires_ms - now_ms, left));
    return out;
}

static void write_labels(struct cli_json *json, const sandbox_workspace_info *info)
{
    cli_json_object(json, "labels");
    for (size_t i = 0; info->labels != NULL && info->labels[i] != NULL; i++) {
        const char *label = info->labels[i];
        char key[256];
        size_t size = strcspn(label, "=");
        snprintf(key, sizeof key, "%.*s", (int)size, label);
        cli_json_text(json, key, label[size] == '=' ? label + size + 1 : "");
    }
    cli_json_end(json, '}');
}

static void write_limit(struct cli_json *json, const char *key, uint32_t limit)
{
    if (limit != 0)
        cli_json_number(json, key, limit);
    else
        cli_json_null(json, key);
}

static void write_snapshots(struct cli_json *json, const sandbox_workspace_info *info)
{
    bool has_one = info->snapshot[0] != '\0';
    cli_json_text(json, "snapshot", has_one ? info->snapshot : NULL);
    if (has_one)
        cli_json_number(json, "snapshot_ms", info->snapshot_ms);
    else
        cli_json_null(json, "snapshot_ms");
    cli_json_number(json, "snapshot_count", info->snapshot_count);
    cli_json_number(json, "retain", info->retain);
    if (info->suspend_after_idle_ms != 0)
        cli_json_size(json, "suspend_after_idle_ms", info->suspend_after_idle_ms);
    else
        cli_json_null(json, "suspend_after_idle_ms");
    cli_json_array(json, "checks");
    for (size_t i = 0; info->checks != NULL && info->checks[i] != NULL; i++)
        cli_json_text(json, NULL, info->checks[i]);
    cli_json_end(json, ']');
}
