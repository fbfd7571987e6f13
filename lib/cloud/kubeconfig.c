/* Where a cluster is and who we are there: a context of a kubeconfig, or a Pod's own account. */

#include "cloud/kubeconfig_parts.h"
#include "util/fail.h"
#include "util/memory.h"
#include <stdio.h>
#include <strings.h>

#define ACCOUNT_FOLDER "/var/run/secrets/kubernetes.io/serviceaccount"
#define SPACE_MAX      63 /* of a namespace's name */

static sandbox_status create(struct sbx_kubeconfig **out, sandbox_error *error);
static void forget(struct sbx_kubeconfig **config);
static sandbox_status read_context(const struct sbx_kubernetes_options *options,
                                   struct sbx_kubeconfig *config, sandbox_error *error);
static sandbox_status find_context(const struct sbx_kubeconfig_files *files, const char *wanted,
                                   struct sbx_kubeconfig_entry *out, sandbox_error *error);
static sandbox_status find_of_context(const struct sbx_kubeconfig_files *files,
                                      const struct sbx_kubeconfig_entry *context, const char *kind,
                                      struct sbx_kubeconfig_entry *out, sandbox_error *error);
static sandbox_status read_cluster(const struct sbx_kubeconfig_entry *cluster,
                                   struct sbx_kubeconfig *config, sandbox_error *error);
static sandbox_status read_authority(const struct sbx_kubeconfig_entry *cluster,
                                     struct sbx_kubeconfig *config, sandbox_error *error);
static sandbox_status read_account(const struct sbx_kubernetes_options *options,
                                   struct sbx_kubeconfig *config, sandbox_error *error);

sandbox_status sbx_kubeconfig_read(const struct sbx_kubernetes_options *options,
                                   struct sbx_kubeconfig **out, sandbox_error *error)
{
    SBX_ON_EXIT(forget) struct sbx_kubeconfig *config = NULL;
    sandbox_status status = create(&config, error);
    if (status == SANDBOX_OK)
        status = options->in_cluster ? read_account(options, config, error)
                                     : read_context(options, config, error);
    if (status == SANDBOX_OK)
        *out = sbx_take(config);
    return status;
}

void sbx_kubeconfig_free(struct sbx_kubeconfig *config)
{
    if (config == NULL)
        return;
    free(config->server);
    free(config->space);
    free(config->title);
    free(config->ca);
    free(config->server_name);
    sbx_secret_free(config->proxy); /* its URL may hold a password */
    sbx_kubeconfig_user_clear(&config->user);
    sbx_kubernetes_bundle_drop(config->current);
    pthread_cond_destroy(&config->ran);
    pthread_mutex_destroy(&config->lock);
    free(config);
}

const char *sbx_kubeconfig_server(const struct sbx_kubeconfig *config)
{
    return config->server;
}

const char *sbx_kubeconfig_namespace(const struct sbx_kubeconfig *config)
{
    return config->space;
}

const char *sbx_kubeconfig_title(const struct sbx_kubeconfig *config)
{
    return config->title;
}

void sbx_kubeconfig_set_clock(struct sbx_kubeconfig *config, const struct sbx_clock *clock)
{
    config->clock = clock;
}

static sandbox_status create(struct sbx_kubeconfig **out, sandbox_error *error)
{
    struct sbx_kubeconfig *config = calloc(1, sizeof *config);
    if (config == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a kubeconfig");
    int failed = pthread_mutex_init(&config->lock, NULL);
    if (failed == 0) {
        failed = sbx_condition_init(&config->ran);
        if (failed != 0)
            pthread_mutex_destroy(&config->lock);
    }
    if (failed != 0) {
        free(config);
        return sbx_fail_errno(error, failed, "cannot make a lock");
    }
    config->clock = &sbx_system_clock;
    *out = config;
    return SANDBOX_OK;
}

static void forget(struct sbx_kubeconfig **config)
{
    sbx_kubeconfig_free(*config);
}

static sandbox_status read_context(const struct sbx_kubernetes_options *options,
                                   struct sbx_kubeconfig *config, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_kubeconfig_files_clear) struct sbx_kubeconfig_files files = {0};
    struct sbx_kubeconfig_entry context = {0}, cluster = {0}, user = {0};
    sandbox_status status = sbx_kubeconfig_files_read(options->kubeconfig, &files, error);
    if (status == SANDBOX_OK)
        status = find_context(&files, options->context, &context, error);
    if (status == SANDBOX_OK)
        status = find_of_context(&files, &context, "cluster", &cluster, error);
    if (status == SANDBOX_OK)
        status = find_of_context(&files, &context, "user", &user, error);
    if (status == SANDBOX_OK)
        status = read_cluster(&cluster, config, error);
    if (status == SANDBOX_OK && user.values != NULL)
        status = sbx_kubeconfig_user_read(&user, &cluster, config->ca, &config->user, error);
    const char *space = NULL;
    if (status == SANDBOX_OK)
        status = sbx_kubeconfig_text(&context, context.values, "namespace", &space, error);
    if (status != SANDBOX_OK)
        return status;
    config->space = sbx_copy(*space == '\0' ? "default" : space);
    config->title = sbx_format("context '%s'", context.name);
    if (config->space == NULL || config->title == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a kubeconfig");
    return SANDBOX_OK;
}

/* `wanted` NULL or "": the current one. */
static sandbox_status find_context(const struct sbx_kubeconfig_files *files, const char *wanted,
                                   struct sbx_kubeconfig_entry *out, sandbox_error *error)
{
    const char *name = wanted != NULL && *wanted != '\0' ? wanted : sbx_kubeconfig_current(files);
    char there[160];
    sbx_kubeconfig_names(files, "context", there, sizeof there);
    if (*name == '\0')
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-such-context",
                            "%s: no current-context; name one of its contexts: %s",
                            files->files[0].path, *there == '\0' ? "there are none" : there);
    sandbox_status status = sbx_kubeconfig_find(files, "context", name, out, error);
    if (status != SANDBOX_NOT_FOUND)
        return status;
    return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-such-context",
                        "%s: no context '%s'; there are: %s", files->files[0].path, name,
                        *there == '\0' ? "none" : there);
}

/* A context without a user is allowed: `out->values` is NULL then. */
static sandbox_status find_of_context(const struct sbx_kubeconfig_files *files,
                                      const struct sbx_kubeconfig_entry *context, const char *kind,
                                      struct sbx_kubeconfig_entry *out, sandbox_error *error)
{
    const char *name = NULL;
    sandbox_status status = sbx_kubeconfig_text(context, context->values, kind, &name, error);
    if (status != SANDBOX_OK)
        return status;
    *out = (struct sbx_kubeconfig_entry){0};
    bool may_be_missing = strcmp(kind, "user") == 0;
    if (*name == '\0' && may_be_missing)
        return SANDBOX_OK;
    if (*name == '\0')
        return sbx_kubeconfig_wrong(context, error, "it names no %s", kind);
    status = sbx_kubeconfig_find(files, kind, name, out, error);
    if (status != SANDBOX_NOT_FOUND)
        return status;
    return sbx_kubeconfig_wrong(context, error, "its %s '%s' stands in none of the files", kind,
                                name);
}

static bool has_scheme(const char *url, const char *scheme)
{
    return strncasecmp(url, scheme, strlen(scheme)) == 0 && url[strlen(scheme)] != '\0';
}

static sandbox_status read_server(const struct sbx_kubeconfig_entry *cluster,
                                  struct sbx_kubeconfig *config, sandbox_error *error)
{
    const char *server = NULL;
    sandbox_status status = sbx_kubeconfig_text(cluster, cluster->values, "server", &server, error);
    if (status != SANDBOX_OK)
        return status;
    if (*server == '\0')
        return sbx_kubeconfig_wrong(cluster, error, "it has no 'server'");
    if ((!has_scheme(server, "https://") && !has_scheme(server, "http://")) ||
        strpbrk(server, "?#@ \\\"<>") != NULL || !sbx_is_header_text(server))
        return sbx_kubeconfig_wrong(cluster, error,
                                    "'server' must be https://HOST[:PORT][/PATH], "
                                    "without a user, '?' or '#'");
    config->server = sbx_copy(server);
    if (config->server == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a kubeconfig");
    for (size_t size = strlen(config->server); config->server[size - 1] == '/'; size--)
        config->server[size - 1] = '\0';
    return SANDBOX_OK;
}

static sandbox_status read_proxy(const struct sbx_kubeconfig_entry *cluster,
                                 struct sbx_kubeconfig *config, sandbox_error *error)
{
    const char *proxy = NULL;
    sandbox_status status =
        sbx_kubeconfig_text(cluster, cluster->values, "proxy-url", &proxy, error);
    if (status != SANDBOX_OK || *proxy == '\0')
        return status;
    if ((!has_scheme(proxy, "http://") && !has_scheme(proxy, "https://") &&
         !has_scheme(proxy, "socks5://")) ||
        !sbx_is_header_text(proxy))
        return sbx_kubeconfig_wrong(cluster, error,
                                    "'proxy-url' must begin with http://, https:// "
                                    "or socks5://");
    config->proxy = sbx_copy(proxy);
    return config->proxy == NULL ? sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a kubeconfig")
                                 : SANDBOX_OK;
}

static sandbox_status read_cluster(const struct sbx_kubeconfig_entry *cluster,
                                   struct sbx_kubeconfig *config, sandbox_error *error)
{
    const char *name = NULL;
    sandbox_status status = read_server(cluster, config, error);
    if (status == SANDBOX_OK)
        status = read_proxy(cluster, config, error);
    if (status == SANDBOX_OK)
        status = sbx_kubeconfig_flag(cluster, "insecure-skip-tls-verify", &config->insecure, error);
    if (status == SANDBOX_OK)
        status = sbx_kubeconfig_text(cluster, cluster->values, "tls-server-name", &name, error);
    if (status == SANDBOX_OK)
        status = read_authority(cluster, config, error);
    if (status != SANDBOX_OK || *name == '\0')
        return status;
    if (!sbx_is_header_text(name) || strpbrk(name, " /:") != NULL)
        return sbx_kubeconfig_wrong(cluster, error, "'tls-server-name' must be a host's name");
    config->server_name = sbx_copy(name);
    return config->server_name == NULL
               ? sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a kubeconfig")
               : SANDBOX_OK;
}

static sandbox_status read_authority(const struct sbx_kubeconfig_entry *cluster,
                                     struct sbx_kubeconfig *config, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *path = NULL;
    sandbox_status status =
        sbx_kubeconfig_data(cluster, "certificate-authority", &config->ca, error);
    if (status == SANDBOX_OK && config->ca == NULL)
        status = sbx_kubeconfig_path(cluster, "certificate-authority", &path, error);
    if (status != SANDBOX_OK)
        return status;
    sandbox_error why;
    if (path != NULL) {
        status = sbx_kubeconfig_read_pem(path, &config->ca, &why);
        if (status == SANDBOX_NO_MEMORY)
            return sbx_fail(error, status, "%s", why.message);
        if (status != SANDBOX_OK)
            return sbx_kubeconfig_wrong(cluster, error, "certificate-authority: %s", why.message);
    }
    if (config->ca != NULL && config->insecure)
        return sbx_kubeconfig_wrong(cluster, error,
                                    "it has a certificate-authority and "
                                    "insecure-skip-tls-verify; remove the latter");
    return SANDBOX_OK;
}

/* ---- in a Pod ---- */

/* `out` stays as it is where there is no such file. */
static sandbox_status read_account_file(const char *folder, const char *name, char **out,
                                        sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *path = sbx_format("%s/%s", folder, name);
    if (path == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    sandbox_status status = sbx_secret_read(path, out, error);
    return status == SANDBOX_NOT_FOUND ? SANDBOX_OK : status;
}

static bool is_host(const char *host)
{
    static const char may[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:";
    return *host != '\0' && host[strspn(host, may)] == '\0';
}

static bool is_port(const char *port)
{
    return *port != '\0' && strlen(port) <= 5 && port[strspn(port, "0123456789")] == '\0';
}

static sandbox_status read_account(const struct sbx_kubernetes_options *options,
                                   struct sbx_kubeconfig *config, sandbox_error *error)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
    const char *folder = options->account == NULL ? ACCOUNT_FOLDER : options->account;
    if (host == NULL || port == NULL || !is_host(host) || !is_port(port))
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-kubeconfig",
                            "this process runs in no Pod (KUBERNETES_SERVICE_HOST and _PORT do not "
                            "say where the cluster is); name a context of a kubeconfig");
    SBX_ON_EXIT(sbx_free_text) char *space = NULL;
    sandbox_status status = read_account_file(folder, "ca.crt", &config->ca, error);
    if (status == SANDBOX_OK)
        status = read_account_file(folder, "namespace", &space, error);
    if (status != SANDBOX_OK)
        return status;
    if (config->ca == NULL || strstr(config->ca, "-----BEGIN ") == NULL)
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-kubeconfig",
                            "no ca.crt in '%s'; the Pod needs a service account "
                            "(automountServiceAccountToken) to use its own cluster",
                            folder);
    size_t size = space == NULL ? 0 : strcspn(space, " \t\r\n");
    if (size > SPACE_MAX)
        return sbx_fail_for(error, SANDBOX_INVALID, "kubeconfig",
                            "'%s/namespace' does not hold a namespace's name", folder);
    bool is_v6 = strchr(host, ':') != NULL;
    config->server =
        sbx_format("https://%s%s%s:%s", is_v6 ? "[" : "", host, is_v6 ? "]" : "", port);
    config->space = size == 0 ? sbx_copy("default") : sbx_format("%.*s", (int)size, space);
    config->title = sbx_copy("this Pod's service account");
    config->user.token_path = sbx_format("%s/token", folder);
    if (config->server == NULL || config->space == NULL || config->title == NULL ||
        config->user.token_path == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a kubeconfig");
    return SANDBOX_OK;
}
