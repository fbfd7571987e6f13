/* Workspaces: the public functions. Arguments are checked here, the work is core's. */

#include "checks.h"
#include "core/client.h"
#include "core/egress.h"
#include "core/lifecycle.h"
#include "core/session.h"
#include "guard.pb-c.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/options.h"
#include <stdio.h>

#define CREATE_MS       120000u
#define FIND_MS         30000u
#define DELETE_MS       60000u
#define MEASURE_MS      30000u
#define ENVIRONMENT_MAX (1u << 20)
#define LABEL_MAX       256

static sandbox_status settle_call(sandbox_client *client, const sandbox_call *call,
                                  uint32_t default_ms, const void *out, struct sbx_wait *wait,
                                  sandbox_error *error);
static sandbox_status check_limits(const sandbox_workspace_options *settled, sandbox_error *error);
static sandbox_status check_labels(const char *const *labels, sandbox_error *error);

sandbox_status sandbox_workspace_create(sandbox_client *client,
                                        const sandbox_workspace_options *given,
                                        const sandbox_call *call, sandbox_workspace **out,
                                        sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_workspace_options options;
    char fresh[SBX_ID_TEXT];
    sandbox_status status = settle_call(client, call, CREATE_MS, out, &wait, error);
    if (status == SANDBOX_OK)
        status = sbx_workspace_options_settle(&options, given, error);
    if (status != SANDBOX_OK)
        return status;
    if (options.name == NULL && !sbx_id_fresh(fresh))
        return sbx_fail(error, SANDBOX_FAILED, "the kernel gives no random bytes");
    if (options.name == NULL) {
        fresh[0] = 'w'; /* a name that a person can tell from an id */
        fresh[13] = '\0';
        options.name = fresh;
    }
    if (options.from != SANDBOX_FROM_NOTHING)
        return sbx_fail(error, SANDBOX_INVALID, "'from' is for opening, not for creating");
    return sbx_life_create(client, &options, &wait, out, error);
}

sandbox_status sandbox_workspace_find(sandbox_client *client, const char *name,
                                      const sandbox_call *call, sandbox_workspace **out,
                                      sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_status status = settle_call(client, call, FIND_MS, out, &wait, error);
    if (status == SANDBOX_OK && !sbx_name_is_valid(name))
        status = sbx_fail(error, SANDBOX_INVALID,
                          "not a workspace's name: 1 to 63 of a-z, 0-9 and '-', beginning and "
                          "ending with a letter or digit");
    return status == SANDBOX_OK ? sbx_life_find(client, name, &wait, out, error) : status;
}

/* What is wrong in itself is told before anything is brought back or made. */
static sandbox_status check_egress(const sandbox_workspace_options *options, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_egress_plan_clear) struct sbx_egress_plan plan = {0};
    sandbox_status status = sbx_egress_plan_make(NULL, options->egress, &plan, error);
    return status == SANDBOX_OK ? sbx_egress_plan_screen(&plan, options->env, error) : status;
}

sandbox_status sandbox_workspace_open(sandbox_client *client,
                                      const sandbox_workspace_options *given,
                                      const sandbox_call *call, sandbox_workspace **out,
                                      sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_workspace_options options;
    sandbox_status status = settle_call(client, call, CREATE_MS, out, &wait, error);
    if (status == SANDBOX_OK)
        status = sbx_workspace_options_settle(&options, given, error);
    if (status == SANDBOX_OK && options.name == NULL)
        status = sbx_fail(error, SANDBOX_INVALID, "opening a workspace needs its name");
    if (status == SANDBOX_OK)
        status = check_egress(&options, error);
    return status == SANDBOX_OK ? sbx_life_open(client, &options, &wait, out, error) : status;
}

sandbox_status sandbox_workspace_delete(sandbox_workspace *workspace, const sandbox_call *call,
                                        sandbox_error *error)
{
    struct sbx_wait wait;
    if (workspace == NULL)
        return sbx_fail(error, SANDBOX_INVALID, "no workspace given");
    sandbox_status status =
        settle_call(workspace->client, call, DELETE_MS, workspace, &wait, error);
    if (status != SANDBOX_OK || atomic_load(&workspace->gone))
        return status;
    status = sbx_life_delete(workspace->client, workspace->name, workspace->id, &wait, error);
    if (status != SANDBOX_OK)
        return status;
    atomic_store(&workspace->gone, true);
    pthread_mutex_lock(&workspace->lock);
    struct sbx_session *session = sbx_take(workspace->session);
    pthread_mutex_unlock(&workspace->lock);
    if (session != NULL)
        sbx_session_cut(session);
    sbx_session_drop(session);
    return SANDBOX_OK;
}

sandbox_status sandbox_workspace_renew(sandbox_workspace *workspace, uint64_t expires_after_ms,
                                       const sandbox_call *call, sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, FIND_MS, error);
    return status == SANDBOX_OK ? sbx_life_renew(workspace, expires_after_ms, &wait, error)
                                : status;
}

void sandbox_workspace_free(sandbox_workspace *workspace)
{
    sbx_workspace_drop(workspace);
}

const char *sandbox_workspace_name(const sandbox_workspace *workspace)
{
    return workspace == NULL ? "" : workspace->name;
}

const char *sandbox_workspace_id(const sandbox_workspace *workspace)
{
    return workspace == NULL ? "" : workspace->id;
}

sandbox_status sandbox_workspace_measure(sandbox_workspace *workspace, const sandbox_call *call,
                                         sandbox_workspace_stats *out, sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, MEASURE_MS, error);
    if (status != SANDBOX_OK)
        return status;
    Sandbox__V1__StatsRequest request = SANDBOX__V1__STATS_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    status = sbx_workspace_call(workspace, "/sandbox.v1.Guard/Stats", &request.base, true,
                                &sandbox__v1__stats_reply__descriptor, &wait, &reply, error);
    if (status != SANDBOX_OK)
        return status;
    const Sandbox__V1__StatsReply *stats = (const Sandbox__V1__StatsReply *)reply;
    sandbox_workspace_stats measured = {
        .size = sizeof measured,
        .uptime_ms = stats->uptime_ms,
        .memory_bytes = stats->memory_bytes,
        .agent_memory_bytes = stats->agent_memory_bytes,
        .cpu_ms = stats->cpu_ms,
        .disk_used_bytes = stats->disk_used_bytes,
        .disk_free_bytes = stats->disk_free_bytes,
        .processes = stats->processes,
        .connections = stats->connections,
        .idle_ms = stats->idle_ms,
        .active_tasks = stats->active_tasks,
    };
    protobuf_c_message_free_unpacked(reply, NULL);
    return sbx_options_fill(out, &measured, sizeof measured, error);
}

sandbox_status sbx_workspace_options_settle(sandbox_workspace_options *settled,
                                            const sandbox_workspace_options *given,
                                            sandbox_error *error)
{
    sandbox_status status = sbx_options_adopt(settled, sizeof *settled, given, error);
    if (status != SANDBOX_OK)
        return status;
    if (settled->name != NULL && !sbx_name_is_valid(settled->name))
        return sbx_fail(error, SANDBOX_INVALID,
                        "not a workspace's name: 1 to 63 of a-z, 0-9 and '-', beginning and "
                        "ending with a letter or digit");
    if (settled->image != NULL && *settled->image == '\0')
        settled->image = NULL;
    if (settled->user == NULL || *settled->user == '\0')
        settled->user = "sandbox";
    if (strcmp(settled->user, "sandbox") != 0 && strcmp(settled->user, "root") != 0)
        return sbx_fail(error, SANDBOX_INVALID, "'user' must be \"sandbox\" or \"root\"");
    if ((unsigned)settled->from > SANDBOX_FROM_SNAPSHOT)
        return sbx_fail(error, SANDBOX_INVALID, "'from' is none of the known values");
    status = check_limits(settled, error);
    if (status != SANDBOX_OK)
        return status;
    if (settled->process_limit == 0)
        settled->process_limit = 4096;
    status = sbx_checks_validate(settled->checks, error);
    if (status == SANDBOX_OK)
        status = check_labels(settled->labels, error);
    return status == SANDBOX_OK ? sbx_workspace_environment_check(settled->env, error) : status;
}

static sandbox_status check_limits(const sandbox_workspace_options *settled, sandbox_error *error)
{
    if (settled->memory_mib != 0 && settled->memory_mib < 64)
        return sbx_fail(error, SANDBOX_INVALID, "'memory_mib' must be at least 64");
    if (settled->cpu_millis != 0 && settled->cpu_millis < 10)
        return sbx_fail(error, SANDBOX_INVALID, "'cpu_millis' must be at least 10");
    if (settled->process_limit != 0 && settled->process_limit < 8)
        return sbx_fail(error, SANDBOX_INVALID, "'process_limit' must be at least 8");
    if (settled->retain > SBX_RETAIN_MAX)
        return sbx_fail(error, SANDBOX_INVALID, "'retain' must be at most %d", SBX_RETAIN_MAX);
    return SANDBOX_OK;
}

static sandbox_status settle_call(sandbox_client *client, const sandbox_call *call,
                                  uint32_t default_ms, const void *out, struct sbx_wait *wait,
                                  sandbox_error *error)
{
    sandbox_status status = sbx_client_check(client, error);
    if (status == SANDBOX_OK && out == NULL)
        status = sbx_fail(error, SANDBOX_INVALID, "no place to put the answer");
    return status == SANDBOX_OK ? sbx_wait_begin(wait, call, default_ms, error) : status;
}

static sandbox_status check_labels(const char *const *labels, sandbox_error *error)
{
    size_t count = sbx_count_strings(labels);
    if (count > SBX_LABELS_MAX)
        return sbx_fail(error, SANDBOX_LIMIT, "%zu labels; at most %d are allowed", count,
                        SBX_LABELS_MAX);
    for (size_t n = 0; n < count; n++) {
        size_t key = strcspn(labels[n], "=");
        if (key == 0 || labels[n][key] != '=' || strlen(labels[n]) > LABEL_MAX)
            return sbx_fail(error, SANDBOX_INVALID,
                            "label %zu is not \"key=value\" of at most %d bytes", n + 1, LABEL_MAX);
        for (const char *at = labels[n]; *at != '\0'; at++) {
            if ((unsigned char)*at < 0x20 || (unsigned char)*at >= 0x7f)
                return sbx_fail(error, SANDBOX_INVALID, "label %zu is not printable ASCII", n + 1);
        }
    }
    return SANDBOX_OK;
}

/* Names only: a value may be a secret and must not come back in a message. */
sandbox_status sbx_workspace_environment_check(const char *const *env, sandbox_error *error)
{
    size_t total = 0;
    for (size_t n = 0; env != NULL && env[n] != NULL; n++) {
        size_t name = strcspn(env[n], "=");
        if (name == 0 || env[n][name] != '=')
            return sbx_fail(error, SANDBOX_INVALID, "environment entry %zu is not \"NAME=value\"",
                            n + 1);
        total += strlen(env[n]) + 1;
        if (total > ENVIRONMENT_MAX)
            return sbx_fail(error, SANDBOX_LIMIT, "an environment of over %u bytes",
                            ENVIRONMENT_MAX);
    }
    return SANDBOX_OK;
}
