/* sandbox manifests: what a cluster needs before workspaces can be made in it. */

#include "cli.h"
#include "json.h"

#include <string.h>

#define DEFAULT_URI "gke:///workspaces?pool=standard"

struct settings {
    sandbox_manifests_options options;
    bool apply;
};

static int show(struct cli *cli, const void *given, const struct cli_words *words);
static void print_yaml(const sandbox_manifests *manifests);
static void print_json(const sandbox_manifests *manifests);
static void print_applied(const struct cli *cli, const sandbox_manifests *manifests);

#define OPTION(field) offsetof(struct settings, options.field)

static const struct cli_option options[] = {
    {0, "agent-image", "IMAGE", "holds the agent at /sandbox-agent; needed", CLI_TEXT,
     OPTION(agent_image)},
    {0, "bucket", "NAME", "where snapshots lie; needed", CLI_TEXT, OPTION(bucket)},
    {0, "path", "PATH", "within the bucket; default: the namespace", CLI_TEXT, OPTION(path)},
    {0, "image", "NAME@sha256:…", "of the workspaces, with a pool of its own; default debian:12",
     CLI_TEXT, OPTION(image)},
    {0, "egress", "ADDRESS:PORT", "the only place that is reached; default: none", CLI_TEXT,
     OPTION(egress)},
    {0, "egress-proxy", "IMAGE", "sets up an egress proxy, the only place that is reached",
     CLI_TEXT, OPTION(egress_image)},
    {0, "replicas", "COUNT", "Pods that wait ready; default 2", CLI_NUMBER, OPTION(replicas)},
    {0, "memory", "MIB", "of a workspace; default 1024", CLI_NUMBER, OPTION(memory_mib)},
    {0, "cpus", "NUMBER", "processors of a workspace; default 1", CLI_MILLIS, OPTION(cpu_millis)},
    {0, "machine-family", "NAME", "of the nodes; default n2", CLI_TEXT, OPTION(machine_family)},
    {0, "own-nodes", NULL, "use nodes that are there; make no compute class", CLI_FLAG,
     OPTION(own_nodes)},
    {0, "service-account", "NAME", "[NAMESPACE/]NAME that uses it; default: one is made", CLI_TEXT,
     OPTION(service_account)},
    {0, "apply", NULL, "apply them to the cluster of -u, and say what was", CLI_FLAG,
     offsetof(struct settings, apply)},
    {0, "force", NULL, "take over fields that somebody else has set", CLI_FLAG, OPTION(force)},
    {.name = NULL},
};

const struct cli_verb cli_manifests = {
    .name = "manifests",
    .usage = "gke",
    .summary = "print or apply what a cluster needs",
    .text =
        "As YAML, in the order of application: namespace, rights, network policy, egress proxy,\n"
        "compute class, snapshot storage and policy, template, pool. The namespace and the pool\n"
        "are those of -u, by default workspaces and standard. Exit code 0 when all is applied.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .least = 1,
    .most = 1,
    .raw_after = -1,
    .json = true,
    .run = show,
};

static int show(struct cli *cli, const void *given, const struct cli_words *words)
{
    const struct settings *settings = given;
    sandbox_manifests_options wanted = settings->options;
    sandbox_manifests *manifests;
    sandbox_error error = {0};
    bool is_cluster = cli->uri != NULL && strncmp(cli->uri, "gke:", 4) == 0;
    if (strcmp(words->word[0], "gke") != 0)
        return cli_usage(cli, "there are manifests for gke only, not for '%s'", words->word[0]);
    if (settings->apply && !is_cluster)
        return cli_usage(cli, "--apply needs -u gke://CONTEXT/NAMESPACE?pool=NAME");
    wanted.size = sizeof wanted;
    const char *uri = is_cluster ? cli->uri : DEFAULT_URI;
    sandbox_call call = cli_call(cli);
    sandbox_status status = settings->apply
                                ? sandbox_manifests_apply(uri, &wanted, &call, &manifests, &error)
                                : sandbox_manifests_render(uri, &wanted, &manifests, &error);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, NULL);
    if (cli->json)
        print_json(manifests);
    else if (settings->apply)
        print_applied(cli, manifests);
    else
        print_yaml(manifests);
    sandbox_manifests_free(manifests);
    return CLI_OK;
}

static void print_yaml(const sandbox_manifests *manifests)
{
    for (size_t i = 0; i < sandbox_manifests_count(manifests); i++)
        printf("%s%s", i == 0 ? "" : "---\n", sandbox_manifests_at(manifests, i)->text);
}

static void print_json(const sandbox_manifests *manifests)
{
    struct cli_json json = {0};
    cli_json_array(&json, NULL);
    for (size_t i = 0; i < sandbox_manifests_count(manifests); i++) {
        const sandbox_manifest *manifest = sandbox_manifests_at(manifests, i);
        cli_json_object(&json, NULL);
        cli_json_text(&json, "kind", manifest->kind);
        cli_json_text(&json, "namespace", manifest->space);
        cli_json_text(&json, "name", manifest->name);
        cli_json_text(&json, "text", manifest->text);
        cli_json_end(&json, '}');
    }
    cli_json_end(&json, ']');
}

static void print_applied(const struct cli *cli, const sandbox_manifests *manifests)
{
    for (size_t i = 0; i < sandbox_manifests_count(manifests) && !cli->quiet; i++) {
        const sandbox_manifest *manifest = sandbox_manifests_at(manifests, i);
        printf("%s %s applied\n", manifest->kind, manifest->name);
    }
}
