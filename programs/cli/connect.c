/* What every verb begins with: the client, the workspace, the process; and the clocks. */

#include "cli.h"
#include "signals.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PROCESS_ID_DIGITS 32

static sandbox_status find_by_start(struct cli *cli, sandbox_workspace *workspace,
                                    const char *start, char found[PROCESS_ID_DIGITS + 1],
                                    sandbox_error *error);
static sandbox_status find_snapshot_in(const sandbox_snapshot_list *list, const char *start,
                                       char out[CLI_SNAPSHOT_BYTES], sandbox_error *error);
static sandbox_status fail(sandbox_error *error, sandbox_status status, const char *reason,
                           const char *format, ...) CLI_PRINTF(4, 5);

sandbox_call cli_call(const struct cli *cli)
{
    return cli_call_within(cli, 0);
}

sandbox_call cli_call_within(const struct cli *cli, uint32_t default_ms)
{
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = default_ms, .cancel = cli_signals_cancel()};
    if (cli->timeout_ms == 0)
        return call;
    int64_t left = cli->deadline_ms - cli_monotonic_ms();
    left = left < 1 ? 1 : left;
    call.timeout_ms = left < SANDBOX_FOREVER ? (uint32_t)left : SANDBOX_FOREVER;
    return call;
}

sandbox_status cli_client(struct cli *cli, sandbox_client **out, sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    if (cli->client == NULL) {
        sandbox_client_options options = {SANDBOX_CLIENT_OPTIONS, .uri = cli->uri};
        sandbox_call call = cli_call(cli);
        status = sandbox_client_open(&options, &call, &cli->client, error);
    }
    if (status == SANDBOX_OK)
        *out = cli->client;
    return status;
}

sandbox_status cli_find(struct cli *cli, const char *name, sandbox_workspace **out,
                        sandbox_error *error)
{
    sandbox_client *client;
    sandbox_status status = cli_client(cli, &client, error);
    if (status != SANDBOX_OK)
        return status;
    sandbox_call call = cli_call(cli);
    return sandbox_workspace_find(client, name, &call, out, error);
}

sandbox_status cli_find_process(struct cli *cli, sandbox_workspace *workspace, const char *id,
                                sandbox_process **out, sandbox_error *error)
{
    char whole[PROCESS_ID_DIGITS + 1];
    if (strlen(id) < PROCESS_ID_DIGITS) {
        sandbox_status status = find_by_start(cli, workspace, id, whole, error);
        if (status != SANDBOX_OK)
            return status;
        id = whole;
    }
    sandbox_call call = cli_call(cli);
    return sandbox_process_find(workspace, id, &call, out, error);
}

sandbox_status cli_find_snapshot(struct cli *cli, sandbox_workspace *workspace, const char *id,
                                 char out[CLI_SNAPSHOT_BYTES], sandbox_error *error)
{
    sandbox_snapshot_list *list = NULL;
    sandbox_call call = cli_call(cli);
    sandbox_status status = sandbox_snapshot_list_all(workspace, &call, &list, error);
    if (status == SANDBOX_OK)
        status = find_snapshot_in(list, id, out, error);
    sandbox_snapshot_list_free(list);
    return status;
}

int64_t cli_monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t cli_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool cli_settle_env(const struct cli *cli, const struct cli_words *given, struct cli_words *out,
                    struct cli_words *owned)
{
    for (size_t i = 0; i < given->count; i++) {
        const char *word = given->word[i];
        if (strchr(word, '=') == NULL) {
            const char *value = getenv(word);
            if (value == NULL) {
                cli_usage(cli, "variable %s is not set here; give it as %s=VALUE", word, word);
                return false;
            }
            size_t size = strlen(word) + strlen(value) + 2;
            char *line = malloc(size);
            if (line == NULL || !cli_words_add(owned, line)) {
                free(line);
                return false;
            }
            snprintf(line, size, "%s=%s", word, value);
            word = line;
        }
        if (!cli_words_add(out, word))
            return false;
    }
    return true;
}

void cli_owned_free(struct cli_words *owned)
{
    for (size_t i = 0; i < owned->count; i++)
        free((void *)(uintptr_t)owned->word[i]);
    cli_words_free(owned);
}

void cli_workspace_free(sandbox_workspace **workspace)
{
    sandbox_workspace_free(*workspace);
}

void cli_process_free(sandbox_process **process)
{
    sandbox_process_free(*process);
}

struct cli_place cli_place_of(const char *word)
{
    struct cli_place place = {"", word};
    size_t size = strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789-");
    if (word[size] != ':' || size == 0 || size >= sizeof place.name || word[0] == '-')
        return place;
    memcpy(place.name, word, size);
    place.name[size] = '\0';
    place.path = word[size + 1] != '\0' ? word + size + 1 : ".";
    return place;
}

static sandbox_status find_by_start(struct cli *cli, sandbox_workspace *workspace,
                                    const char *start, char found[PROCESS_ID_DIGITS + 1],
                                    sandbox_error *error)
{
    sandbox_process_list *list;
    sandbox_call call = cli_call(cli);
    sandbox_status status = sandbox_process_list_all(workspace, &call, &list, error);
    if (status != SANDBOX_OK)
        return status;
    size_t matches = 0;
    for (size_t i = 0; i < sandbox_process_list_count(list); i++) {
        const char *id = sandbox_process_list_at(list, i)->id;
        if (start[0] == '\0' || strncmp(id, start, strlen(start)) != 0)
            continue;
        snprintf(found, PROCESS_ID_DIGITS + 1, "%s", id);
        matches++;
    }
    sandbox_process_list_free(list);
    if (matches == 0)
        return fail(error, SANDBOX_NOT_FOUND, "no-such-process", "no process '%.32s'", start);
    if (matches > 1)
        return fail(error, SANDBOX_INVALID, "ambiguous",
                    "several processes begin with '%.32s'; give more of the id", start);
    return SANDBOX_OK;
}

static sandbox_status find_snapshot_in(const sandbox_snapshot_list *list, const char *start,
                                       char out[CLI_SNAPSHOT_BYTES], sandbox_error *error)
{
    size_t matches = 0;
    for (size_t i = 0; i < sandbox_snapshot_list_count(list); i++) {
        const char *id = sandbox_snapshot_list_at(list, i)->id;
        if (start[0] == '\0' || strncmp(id, start, strlen(start)) != 0)
            continue;
        snprintf(out, CLI_SNAPSHOT_BYTES, "%s", id);
        matches++;
    }
    if (matches == 0)
        return fail(error, SANDBOX_NOT_FOUND, "no-such-snapshot", "no snapshot '%.39s'", start);
    if (matches > 1)
        return fail(error, SANDBOX_INVALID, "ambiguous",
                    "several snapshots begin with '%.39s'; give more of the id", start);
    return SANDBOX_OK;
}

static sandbox_status fail(sandbox_error *error, sandbox_status status, const char *reason,
                           const char *format, ...)
{
    va_list values;
    *error = (sandbox_error){.status = status};
    snprintf(error->reason, sizeof error->reason, "%s", reason);
    va_start(values, format);
    vsnprintf(error->message, sizeof error->message, format, values);
    va_end(values);
    return status;
}
