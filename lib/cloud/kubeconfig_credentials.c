/*
 * Credentials while a process lives: what stands in the kubeconfig, token and certificate files
 * that are read again, and plugins that are run again.
 */

#include "cloud/kubeconfig_parts.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"
#include <stdatomic.h>
#include <stdlib.h>

#define FILES_AGE_MS 10000
/* A credential is renewed so long before it ends, but not before half of its time has passed. */
#define RENEW_BEFORE_MS 60000

/* What requests carry. Never changed once it is made; the last one to drop it wipes it. */
struct sbx_kubernetes_bundle {
    atomic_uint holders;
    char *ca, *certificate, *key, *server_name, *proxy;
    char **headers;
};

static sandbox_status from_files(struct sbx_kubeconfig *config, uint64_t refused,
                                 sandbox_error *error);
static sandbox_status from_plugin(struct sbx_kubeconfig *config, uint64_t refused,
                                  const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status run_plugin(struct sbx_kubeconfig *config, const struct sbx_wait *wait,
                                 sandbox_error *error);
static sandbox_status make_bundle(const struct sbx_kubeconfig *config, const char *authorization,
                                  const char *certificate, const char *key,
                                  struct sbx_kubernetes_bundle **out, sandbox_error *error);
static void adopt(struct sbx_kubeconfig *config, struct sbx_kubernetes_bundle *bundle);

sandbox_status sbx_kubeconfig_access(struct sbx_kubeconfig *config, uint64_t refused,
                                     const struct sbx_wait *wait, struct sbx_kubernetes_access *out,
                                     sandbox_error *error)
{
    pthread_mutex_lock(&config->lock);
    sandbox_status status = config->user.plugin == NULL ? from_files(config, refused, error)
                                                        : from_plugin(config, refused, wait, error);
    if (status == SANDBOX_OK && config->number == refused)
        status = sbx_fail_for(error, SANDBOX_DENIED, "credential-refused",
                              "%s: the cluster does not accept its credential, and there is no "
                              "other; sign in again (for GKE: gcloud auth login)",
                              config->title);
    if (status == SANDBOX_OK) {
        struct sbx_kubernetes_bundle *bundle = config->current;
        atomic_fetch_add(&bundle->holders, 1);
        *out = (struct sbx_kubernetes_access){
            .peer = {.ca = bundle->ca,
                     .certificate = bundle->certificate,
                     .key = bundle->key,
                     .server_name = bundle->server_name,
                     .proxy = bundle->proxy,
                     .insecure = config->insecure},
            .headers = (const char *const *)bundle->headers,
            .bundle = bundle,
            .number = config->number,
        };
    }
    pthread_mutex_unlock(&config->lock);
    return status;
}

void sbx_kubernetes_access_end(struct sbx_kubernetes_access *access)
{
    sbx_kubernetes_bundle_drop(access->bundle);
    *access = (struct sbx_kubernetes_access){0};
}

void sbx_kubernetes_bundle_drop(struct sbx_kubernetes_bundle *bundle)
{
    if (bundle == NULL || atomic_fetch_sub(&bundle->holders, 1) != 1)
        return;
    free(bundle->ca);
    sbx_secret_free(bundle->certificate);
    sbx_secret_free(bundle->key);
    free(bundle->server_name);
    sbx_secret_free(bundle->proxy);
    sbx_secret_free_strings(bundle->headers);
    free(bundle);
}

/* ---- files ---- */

/* A token as "Authorization: Bearer …". */
static sandbox_status read_token_file(const char *path, char **out, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_secret_free_text) char *text = NULL;
    sandbox_status status = sbx_secret_read(path, &text, error);
    if (status != SANDBOX_OK)
        return status;
    static const char blanks[] = " \t\r\n";
    char *token = text + strspn(text, blanks);
    size_t length = strlen(token);
    while (length > 0 && strchr(blanks, token[length - 1]) != NULL)
        token[--length] = '\0';
    if (!sbx_is_header_text(token))
        return sbx_fail(error, SANDBOX_INVALID, "'%s' holds no token", path);
    *out = sbx_format("Authorization: Bearer %s", token);
    return *out == NULL ? sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a token") : SANDBOX_OK;
}

static sandbox_status read_files(const struct sbx_kubeconfig *config,
                                 struct sbx_kubernetes_bundle **out, sandbox_error *error)
{
    const struct sbx_kubeconfig_user *user = &config->user;
    SBX_ON_EXIT(sbx_secret_free_text) char *token = NULL;
    SBX_ON_EXIT(sbx_secret_free_text) char *certificate = NULL;
    SBX_ON_EXIT(sbx_secret_free_text) char *key = NULL;
    sandbox_status status = SANDBOX_OK;
    if (user->token_path != NULL)
        status = read_token_file(user->token_path, &token, error);
    /* What stands in the kubeconfig beside the file serves until the file can be read. */
    if (status != SANDBOX_OK && user->authorization != NULL && config->current == NULL)
        status = SANDBOX_OK;
    if (status == SANDBOX_OK && user->certificate_path != NULL)
        status = sbx_kubeconfig_read_pem(user->certificate_path, &certificate, error);
    if (status == SANDBOX_OK && user->key_path != NULL)
        status = sbx_kubeconfig_read_pem(user->key_path, &key, error);
    if (status != SANDBOX_OK)
        return status;
    return make_bundle(config, token == NULL ? user->authorization : token,
                       certificate == NULL ? user->certificate : certificate,
                       key == NULL ? user->key : key, out, error);
}

/* Under the lock: the files are small and on this machine. */
static sandbox_status from_files(struct sbx_kubeconfig *config, uint64_t refused,
                                 sandbox_error *error)
{
    const struct sbx_kubeconfig_user *user = &config->user;
    bool has_files =
        user->token_path != NULL || user->certificate_path != NULL || user->key_path != NULL;
    int64_t now = sbx_clock_monotonic(config->clock);
    bool is_fresh = config->current != NULL && config->number != refused &&
                    (!has_files || now - config->read_ms < FILES_AGE_MS);
    if (is_fresh || (config->current != NULL && !has_files))
        return SANDBOX_OK;
    config->read_ms = now;
    struct sbx_kubernetes_bundle *bundle = NULL;
    sandbox_error why;
    sandbox_status status = read_files(config, &bundle, &why);
    if (status == SANDBOX_OK) {
        adopt(config, bundle);
        return SANDBOX_OK;
    }
    if (config->current != NULL) {
        sbx_log(SANDBOX_LOG_WARNING, "%s: the credential of before is used on: %s", config->title,
                why.message);
        return SANDBOX_OK;
    }
    if (status == SANDBOX_NO_MEMORY)
        return sbx_fail(error, status, "%s", why.message);
    return sbx_fail_for(error, SANDBOX_DENIED, "credential-file", "%s: %s", config->title,
                        why.message);
}

/* ---- plugins ---- */

/* With the lock held, which is given up while a plugin runs. */
static sandbox_status from_plugin(struct sbx_kubeconfig *config, uint64_t refused,
                                  const struct sbx_wait *wait, sandbox_error *error)
{
    for (;;) {
        if (config->current != NULL && config->number != refused &&
            sbx_clock_wall(config->clock) < config->renew_ms)
            return SANDBOX_OK;
        if (!config->running)
            return run_plugin(config, wait, error);
        /* Somebody's run is ours too, whatever comes of it; but not one that its caller gave up. */
        uint64_t runs = config->runs;
        while (config->running && config->runs == runs) {
            sandbox_status status = sbx_wait_condition(wait, &config->ran, &config->lock, error);
            if (status != SANDBOX_OK)
                return status;
        }
        if (config->runs == runs)
            continue;
        if (config->failure.status != SANDBOX_OK) {
            if (error != NULL)
                *error = config->failure;
            return config->failure.status;
        }
        return SANDBOX_OK;
    }
}

static sandbox_status run_plugin(struct sbx_kubeconfig *config, const struct sbx_wait *wait,
                                 sandbox_error *error)
{
    config->running = true;
    pthread_mutex_unlock(&config->lock);

    SBX_ON_EXIT(sbx_plugin_credential_clear) struct sbx_plugin_credential credential = {0};
    struct sbx_kubernetes_bundle *bundle = NULL;
    sandbox_error why = {.status = SANDBOX_OK};
    sandbox_status status =
        sbx_kubeconfig_plugin_run(config->user.plugin, config->title, wait, &credential, &why);
    SBX_ON_EXIT(sbx_secret_free_text) char *token = NULL;
    if (status == SANDBOX_OK && credential.token != NULL) {
        token = sbx_format("Authorization: Bearer %s", credential.token);
        if (token == NULL)
            status = sbx_fail(&why, SANDBOX_NO_MEMORY, "no memory for a token");
    }
    const struct sbx_kubeconfig_user *user = &config->user;
    bool has_certificate = credential.certificate != NULL;
    if (status == SANDBOX_OK)
        status =
            make_bundle(config, token, has_certificate ? credential.certificate : user->certificate,
                        has_certificate ? credential.key : user->key, &bundle, &why);

    pthread_mutex_lock(&config->lock);
    config->running = false;
    if (status == SANDBOX_OK) {
        adopt(config, bundle);
        int64_t now = sbx_clock_wall(config->clock);
        int64_t left = credential.expires_ms - now;
        config->renew_ms = credential.expires_ms == INT64_MAX ? INT64_MAX
                           : left / 2 < RENEW_BEFORE_MS       ? now + left / 2
                                                        : credential.expires_ms - RENEW_BEFORE_MS;
    }
    if (status == SANDBOX_OK || status == SANDBOX_DENIED) {
        config->runs++;
        config->failure = why;
    }
    pthread_cond_broadcast(&config->ran);
    if (status != SANDBOX_OK && error != NULL)
        *error = why;
    return status;
}

/* ---- bundles ---- */

static bool copy_if(char **out, const char *text)
{
    *out = sbx_copy(text);
    return text == NULL || *out != NULL;
}

static sandbox_status make_bundle(const struct sbx_kubeconfig *config, const char *authorization,
                                  const char *certificate, const char *key,
                                  struct sbx_kubernetes_bundle **out, sandbox_error *error)
{
    const char *const *impersonation = (const char *const *)config->user.impersonation;
    struct sbx_kubernetes_bundle *bundle = calloc(1, sizeof *bundle);
    bool good = bundle != NULL;
    if (good) {
        atomic_init(&bundle->holders, 1);
        bundle->headers = calloc(sbx_count_strings(impersonation) + 2, sizeof *bundle->headers);
        good = bundle->headers != NULL && copy_if(&bundle->ca, config->ca) &&
               copy_if(&bundle->certificate, certificate) && copy_if(&bundle->key, key) &&
               copy_if(&bundle->server_name, config->server_name) &&
               copy_if(&bundle->proxy, config->proxy);
    }
    size_t used = 0;
    if (good && authorization != NULL)
        good = copy_if(&bundle->headers[used++], authorization);
    for (size_t n = 0; good && impersonation != NULL && impersonation[n] != NULL; n++)
        good = copy_if(&bundle->headers[used++], impersonation[n]);
    if (good) {
        *out = bundle;
        return SANDBOX_OK;
    }
    sbx_kubernetes_bundle_drop(bundle);
    return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a credential");
}

static bool is_same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* One that says the same as before is not a fresh one: it would be refused again. */
static void adopt(struct sbx_kubeconfig *config, struct sbx_kubernetes_bundle *bundle)
{
    const struct sbx_kubernetes_bundle *before = config->current;
    bool is_same = before != NULL && is_same_text(before->certificate, bundle->certificate) &&
                   is_same_text(before->key, bundle->key) &&
                   is_same_text(before->headers[0], bundle->headers[0]);
    if (is_same) {
        sbx_kubernetes_bundle_drop(bundle);
        return;
    }
    sbx_kubernetes_bundle_drop(config->current);
    config->current = bundle;
    config->number++;
}
