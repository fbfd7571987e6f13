/* sandbox egress: what a workspace may reach, and what it was refused. */

#include "json.h"
#include "reaching.h"
#include "table.h"
#include "text.h"

#include <string.h>

struct settings {
    struct cli_reaching reaching;
    bool http, all, none, close;
};

static int run(struct cli *cli, const void *given, const struct cli_words *words);
static int show(struct cli *cli, sandbox_workspace *workspace);
static void print_json(const sandbox_egress_list *list);
static void print_text(const char *name, const sandbox_egress_list *list);
static int change(struct cli *cli, sandbox_workspace *workspace, const struct settings *settings,
                  const struct cli_words *words);
static bool settle_change(struct cli *cli, const struct settings *settings, const char *action,
                          const char *const *hosts, sandbox_egress_options *wanted);
static int show_log(struct cli *cli, sandbox_workspace *workspace);
static void print_log_json(const sandbox_egress_log *log);
static int print_log_table(const sandbox_egress_log *log);

static const struct cli_option options[] = {
    {0, "http", NULL, "allow, set: the hosts are for plain HTTP", CLI_FLAG,
     offsetof(struct settings, http)},
    {0, "all", NULL, "set: every public host, over TLS", CLI_FLAG, offsetof(struct settings, all)},
    {0, "none", NULL, "set: nothing", CLI_FLAG, offsetof(struct settings, none)},
    {0, "close", NULL, "close what is open to hosts that are not allowed any more", CLI_FLAG,
     offsetof(struct settings, close)},
    CLI_REACHING_SECRETS(struct settings),
    {.name = NULL},
};

const struct cli_verb cli_egress = {
    .name = "egress",
    .usage = "show|set|allow|deny|log NAME [HOST…]",
    .summary = "say what a workspace may reach",
    .text =
        "show   the policy, and for which hosts credentials are put in\n"
        "set    exactly these hosts; with --all or --none everything or nothing\n"
        "allow  these hosts too\n"
        "deny   these hosts no more\n"
        "log    what was refused, and why\n"
        "\n"
        "A host is exact, or *.NAME for everything below a name. A workspace that does not run\n"
        "keeps the policy for when it does. Credentials (--transformations, for set and allow)\n"
        "are put in on the way out and are never inside; a resume forgets them.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .least = 2,
    .most = CLI_MANY,
    .raw_after = -1,
    .json = true,
    .run = run,
};

static int run(struct cli *cli, const void *given, const struct cli_words *words)
{
    static const char *const actions[] = {"show", "set", "allow", "deny", "log"};
    const char *action = words->word[0], *name = words->word[1];
    CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
    sandbox_error error = {0};
    size_t known = 0;
    while (known < sizeof actions / sizeof actions[0] && strcmp(actions[known], action) != 0)
        known++;
    bool changes = known >= 1 && known <= 3;
    if (known == sizeof actions / sizeof actions[0])
        return cli_usage(cli, "'%s' is none of show, set, allow, deny and log", action);
    if (!changes && words->count > 2)
        return cli_usage(cli, "'%s' takes no hosts", action);
    if (cli_find(cli, name, &workspace, &error) != SANDBOX_OK)
        return cli_fail(cli, &error, name);
    return known == 0 ? show(cli, workspace)
           : changes  ? change(cli, workspace, given, words)
                      : show_log(cli, workspace);
}

static int show(struct cli *cli, sandbox_workspace *workspace)
{
    const char *name = sandbox_workspace_name(workspace);
    sandbox_egress_list *list = NULL;
    sandbox_error error = {0};
    sandbox_call call = cli_call(cli);
    if (sandbox_egress_inspect(workspace, &call, &list, &error) != SANDBOX_OK)
        return cli_fail(cli, &error, name);
    if (cli->json)
        print_json(list);
    else
        print_text(name, list);
    sandbox_egress_list_free(list);
    return CLI_OK;
}

static void json_list(struct cli_json *json, const char *key, const char *const *texts)
{
    cli_json_array(json, key);
    for (; *texts != NULL; texts++)
        cli_json_text(json, NULL, *texts);
    cli_json_end(json, ']');
}

static void print_json(const sandbox_egress_list *list)
{
    const sandbox_egress_info *info = sandbox_egress_list_at(list, 0);
    struct cli_json json = {0};
    cli_json_object(&json, NULL);
    cli_json_text(&json, "mode", sandbox_egress_mode_name(info->mode));
    json_list(&json, "allow", info->allow);
    json_list(&json, "http", info->http);
    cli_json_text(&json, "ech",
                  info->ech == SANDBOX_EGRESS_ECH_ALLOW_GREASE ? "allow-grease" : "deny");
    cli_json_bool(&json, "registered", info->registered);
    cli_json_number(&json, "connections", info->connections);
    cli_json_size(&json, "refused", info->refused);
    json_list(&json, "credentials", info->credentials);
    cli_json_end(&json, '}');
}

static void print_list(const char *what, const char *const *texts)
{
    for (; *texts != NULL; texts++)
        printf("%-12s %s\n", what, *texts);
}

static void print_text(const char *name, const sandbox_egress_list *list)
{
    const sandbox_egress_info *info = sandbox_egress_list_at(list, 0);
    printf("%-12s %s\n", "mode", sandbox_egress_mode_name(info->mode));
    print_list("allow", info->allow);
    print_list("http", info->http);
    print_list("credential", info->credentials);
    if (info->mode == SANDBOX_EGRESS_UNSET)
        return;
    printf("%-12s %s\n", "in force", info->registered ? "yes" : "no: the proxy does not know it");
    if (info->registered)
        printf("%-12s %u open, %llu refused\n", "connections", info->connections,
               (unsigned long long)info->refused);
}

static int change(struct cli *cli, sandbox_workspace *workspace, const struct settings *settings,
                  const struct cli_words *words)
{
    CLI_ON_EXIT(cli_reached_free) struct cli_reached reached = {.secrets = NULL};
    const sandbox_egress_options *none;
    sandbox_error error = {0};
    if (!cli_reaching_settle(cli, &settings->reaching, &reached, &none) ||
        !settle_change(cli, settings, words->word[0], words->word + 2, &reached.options))
        return CLI_USAGE;
    sandbox_call call = cli_call(cli);
    if (sandbox_egress_set(workspace, &reached.options, &call, &error) != SANDBOX_OK)
        return cli_fail(cli, &error, words->word[1]);
    return CLI_OK;
}

/* What is wrong with the words, or NULL. */
static const char *problem_of(const struct settings *settings, const char *action, bool named)
{
    bool sets = strcmp(action, "set") == 0, denies = strcmp(action, "deny") == 0;
    bool has_secrets = settings->reaching.transformations != NULL;
    if ((settings->all || settings->none) && (!sets || named))
        return "--all and --none go with set, and without hosts";
    if (settings->all && settings->none)
        return "--all and --none are not both to be had";
    if (denies && (settings->http || has_secrets))
        return "deny takes the hosts from both lists, and has no credentials";
    if (!named && !settings->all && !settings->none && !has_secrets)
        return "no hosts given";
    return NULL;
}

static bool settle_change(struct cli *cli, const struct settings *settings, const char *action,
                          const char *const *hosts, sandbox_egress_options *wanted)
{
    static const char *const nothing[] = {NULL};
    bool named = hosts[0] != NULL, adds = strcmp(action, "allow") == 0;
    const char *problem = problem_of(settings, action, named);
    if (problem != NULL) {
        cli_usage(cli, "%s", problem);
        return false;
    }
    wanted->close_denied = settings->close;
    if (settings->all || settings->none)
        wanted->mode = settings->all ? SANDBOX_EGRESS_ALLOW_ALL : SANDBOX_EGRESS_DENY_ALL;
    if (adds) {
        /* Beside those that are there already. */
        *(settings->http ? &wanted->add_http : &wanted->add_allow) = hosts;
        wanted->add_transformations = wanted->transformations;
        wanted->transformations = NULL;
    } else if (strcmp(action, "deny") == 0) {
        wanted->remove = hosts;
    } else if (named) {
        wanted->mode = SANDBOX_EGRESS_CUSTOM;
        wanted->allow = settings->http ? nothing : hosts;
        wanted->http = settings->http ? hosts : nothing;
    }
    return true;
}

static int show_log(struct cli *cli, sandbox_workspace *workspace)
{
    sandbox_egress_log *log = NULL;
    sandbox_error error = {0};
    int code = CLI_OK;
    sandbox_call call = cli_call(cli);
    if (sandbox_egress_read_log(workspace, &call, &log, &error) != SANDBOX_OK)
        return cli_fail(cli, &error, sandbox_workspace_name(workspace));
    if (cli->json)
        print_log_json(log);
    else
        code = print_log_table(log);
    sandbox_egress_log_free(log);
    return code;
}

static void print_log_json(const sandbox_egress_log *log)
{
    struct cli_json json = {0};
    cli_json_array(&json, NULL);
    for (size_t i = 0; i < sandbox_egress_log_count(log); i++) {
        const sandbox_egress_refusal *refusal = sandbox_egress_log_at(log, i);
        cli_json_object(&json, NULL);
        cli_json_number(&json, "time_ms", refusal->time_ms);
        cli_json_text(&json, "reason", refusal->reason);
        cli_json_text(&json, "kind", refusal->kind);
        cli_json_text(&json, "host", refusal->host);
        cli_json_number(&json, "port", refusal->port);
        cli_json_end(&json, '}');
    }
    cli_json_end(&json, ']');
}

static int print_log_table(const sandbox_egress_log *log)
{
    static const char *const headings[] = {"TIME", "REASON", "KIND", "PORT", "HOST", NULL};
    CLI_ON_EXIT(cli_table_free) struct cli_table table;
    cli_table_begin(&table, headings);
    for (size_t i = 0; i < sandbox_egress_log_count(log); i++) {
        const sandbox_egress_refusal *refusal = sandbox_egress_log_at(log, i);
        char when[CLI_SHORT_BYTES], port[CLI_SHORT_BYTES] = "";
        if (refusal->port != 0)
            snprintf(port, sizeof port, "%u", refusal->port);
        const char *cells[] = {cli_text_time(refusal->time_ms, when), refusal->reason,
                               refusal->kind, port, refusal->host};
        cli_table_add(&table, cells);
    }
    if (cli_table_print(&table))
        return CLI_OK;
    cli_complain("no memory for the table");
    return CLI_FAILED;
}
