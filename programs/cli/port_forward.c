/* sandbox port-forward: ports on this machine that lead into a workspace, until a signal. */

#include "cli.h"
#include "json.h"
#include "signals.h"

#include <poll.h>
#include <string.h>

#define LOOK_MS 5000 /* how often it asks whether the workspace is still there */

struct settings {
    const char *address;
};

static int forward(struct cli *cli, const void *given, const struct cli_words *words);
static bool parse_ports(const struct cli *cli, const char *word, sandbox_forward_options *out);
static int open_all(struct cli *cli, sandbox_workspace *workspace,
                    const sandbox_forward_options *wanted, sandbox_forward **forwards,
                    size_t count);
static void print(const struct cli *cli, const sandbox_forward_options *wanted,
                  sandbox_forward *const *forwards, size_t count);
static int stay(struct cli *cli, sandbox_workspace *workspace);
static bool is_gone(const struct cli *cli, sandbox_workspace *workspace, sandbox_error *error);

static const struct cli_option options[] = {
    {0, "address", "ADDRESS", "listen there; default: 127.0.0.1, others are open to others",
     CLI_TEXT, offsetof(struct settings, address)},
    {.name = NULL},
};

const struct cli_verb cli_port_forward = {
    .name = "port-forward",
    .usage = "[--address ADDRESS] NAME [HOST_PORT:]PORT…",
    .summary = "lead ports of this machine into a workspace",
    .text = "Prints an address for each and runs until SIGINT or SIGTERM. HOST_PORT is any free\n"
            "one where it is left out or 0. A suspend ends what is connected; new connections are\n"
            "taken after the resume.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .least = 2,
    .most = 65,
    .raw_after = -1,
    .json = true,
    .complete = CLI_COMPLETE_WORKSPACE,
    .run = forward,
};

static int forward(struct cli *cli, const void *given, const struct cli_words *words)
{
    const struct settings *settings = given;
    const char *name = words->word[0];
    sandbox_forward_options wanted[64];
    sandbox_forward *forwards[64] = {NULL};
    size_t count = words->count - 1;
    for (size_t i = 0; i < count; i++) {
        if (!parse_ports(cli, words->word[i + 1], &wanted[i]))
            return CLI_USAGE;
        wanted[i].host_address = settings->address;
    }
    CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
    sandbox_error error = {0};
    if (cli_find(cli, name, &workspace, &error) != SANDBOX_OK)
        return cli_fail(cli, &error, name);
    int code = open_all(cli, workspace, wanted, forwards, count);
    if (code == CLI_OK) {
        print(cli, wanted, forwards, count);
        code = cli_flush(&code) ? stay(cli, workspace) : code;
    }
    for (size_t i = 0; i < count; i++)
        sandbox_forward_free(forwards[i]);
    return code;
}

static bool parse_ports(const struct cli *cli, const char *word, sandbox_forward_options *out)
{
    char host[8] = "0";
    const char *colon = strchr(word, ':');
    const char *inside = colon != NULL ? colon + 1 : word;
    if (colon != NULL)
        snprintf(host, sizeof host, "%.*s", (int)(colon - word), word);
    uint64_t host_port, port;
    if (!cli_number(host, 65535, &host_port) || !cli_number(inside, 65535, &port) || port == 0 ||
        (colon != NULL && (size_t)(colon - word) >= sizeof host)) {
        cli_usage(cli, "'%s' is no [HOST_PORT:]PORT", word);
        return false;
    }
    *out = (sandbox_forward_options){SANDBOX_FORWARD_OPTIONS, .port = (uint16_t)port,
                                     .host_port = (uint16_t)host_port};
    return true;
}

static int open_all(struct cli *cli, sandbox_workspace *workspace,
                    const sandbox_forward_options *wanted, sandbox_forward **forwards, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sandbox_error error = {0};
        sandbox_call call = cli_call(cli);
        if (sandbox_port_forward(workspace, &wanted[i], &call, &forwards[i], &error) != SANDBOX_OK)
            return cli_fail(cli, &error, sandbox_workspace_name(workspace));
    }
    return CLI_OK;
}

static void print(const struct cli *cli, const sandbox_forward_options *wanted,
                  sandbox_forward *const *forwards, size_t count)
{
    struct cli_json json = {0};
    if (cli->json)
        cli_json_array(&json, NULL);
    for (size_t i = 0; i < count; i++) {
        const char *address = wanted[i].host_address ? wanted[i].host_address : "127.0.0.1";
        unsigned host_port = sandbox_forward_host_port(forwards[i]);
        bool v6 = strchr(address, ':') != NULL;
        if (!cli->json) {
            printf("%s%s%s:%u -> %u\n", v6 ? "[" : "", address, v6 ? "]" : "", host_port,
                   wanted[i].port);
            continue;
        }
        cli_json_object(&json, NULL);
        cli_json_text(&json, "host_address", address);
        cli_json_number(&json, "host_port", host_port);
        cli_json_number(&json, "port", wanted[i].port);
        cli_json_end(&json, '}');
    }
    if (cli->json)
        cli_json_end(&json, ']');
}

/* Until a signal, which is the way to end it, or until --timeout. */
static int stay(struct cli *cli, sandbox_workspace *workspace)
{
    for (;;) {
        int64_t wait_ms = LOOK_MS;
        if (cli->timeout_ms > 0) {
            int64_t left = cli->deadline_ms - cli_monotonic_ms();
            if (left <= 0)
                return CLI_OK;
            wait_ms = left < wait_ms ? left : wait_ms;
        }
        struct pollfd watched = {cli_signals_descriptor(), POLLIN, 0};
        poll(&watched, 1, (int)wait_ms);
        if (cli_signals_received() != 0)
            return CLI_OK;
        sandbox_error error = {0};
        if (is_gone(cli, workspace, &error))
            return cli_fail(cli, &error, sandbox_workspace_name(workspace));
    }
}

/* A platform that does not answer for a moment is no reason to end. */
static bool is_gone(const struct cli *cli, sandbox_workspace *workspace, sandbox_error *error)
{
    sandbox_workspace_list *found;
    sandbox_call call = cli_call(cli);
    sandbox_status status = sandbox_workspace_inspect(workspace, &call, &found, error);
    if (status != SANDBOX_OK)
        return status == SANDBOX_CLOSED || status == SANDBOX_NOT_FOUND;
    sandbox_state state = sandbox_workspace_list_at(found, 0)->state;
    sandbox_workspace_list_free(found);
    /* What is suspended or blocked takes new connections again once it is resumed. */
    if (state != SANDBOX_STATE_INTERRUPTED && state != SANDBOX_STATE_DELETING &&
        state != SANDBOX_STATE_GONE)
        return false;
    error->status = state == SANDBOX_STATE_INTERRUPTED ? SANDBOX_INTERRUPTED : SANDBOX_NOT_FOUND;
    snprintf(error->message, sizeof error->message, "the workspace is %s",
             sandbox_state_name(state));
    return true;
}
