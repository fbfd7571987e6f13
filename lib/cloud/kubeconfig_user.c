/* A user's entry of a kubeconfig: certificate, token, password, plugin, and whom it acts as. */

#include "cloud/kubeconfig_parts.h"
#include "util/base64.h"
#include "util/fail.h"
#include "util/memory.h"
#include <stdio.h>

#define IMPERSONATION_MAX 256

static sandbox_status read_token(const struct sbx_kubeconfig_entry *entry,
                                 struct sbx_kubeconfig_user *user, sandbox_error *error);
static sandbox_status read_password(const struct sbx_kubeconfig_entry *entry,
                                    struct sbx_kubeconfig_user *user, sandbox_error *error);
static sandbox_status read_certificate(const struct sbx_kubeconfig_entry *entry,
                                       struct sbx_kubeconfig_user *user, sandbox_error *error);
static sandbox_status read_impersonation(const struct sbx_kubeconfig_entry *entry,
                                         struct sbx_kubeconfig_user *user, sandbox_error *error);
static sandbox_status refuse_provider(const struct sbx_kubeconfig_entry *entry,
                                      sandbox_error *error);

sandbox_status sbx_kubeconfig_user_read(const struct sbx_kubeconfig_entry *entry,
                                        const struct sbx_kubeconfig_entry *cluster, const char *ca,
                                        struct sbx_kubeconfig_user *out, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_kubeconfig_user_clear) struct sbx_kubeconfig_user user = {0};
    sandbox_status status = read_token(entry, &user, error);
    if (status == SANDBOX_OK)
        status = read_password(entry, &user, error);
    if (status == SANDBOX_OK)
        status = read_certificate(entry, &user, error);
    if (status == SANDBOX_OK)
        status = read_impersonation(entry, &user, error);
    if (status == SANDBOX_OK)
        status = refuse_provider(entry, error);
    /* What stands there as a token or password is used before a plugin would be asked. */
    bool needs_plugin = user.authorization == NULL && user.token_path == NULL;
    if (status == SANDBOX_OK && needs_plugin && sbx_kubeconfig_value(entry->values, "exec") != NULL)
        status = sbx_kubeconfig_plugin_read(entry, cluster, ca, &user.plugin, error);
    if (status != SANDBOX_OK)
        return status;
    *out = user;
    user = (struct sbx_kubeconfig_user){0};
    return SANDBOX_OK;
}

void sbx_kubeconfig_user_clear(struct sbx_kubeconfig_user *user)
{
    sbx_secret_free(user->authorization);
    free(user->token_path);
    free(user->certificate_path);
    free(user->key_path);
    sbx_secret_free(user->certificate);
    sbx_secret_free(user->key);
    sbx_secret_free_strings(user->impersonation);
    sbx_kubeconfig_plugin_free(user->plugin);
    *user = (struct sbx_kubeconfig_user){0};
}

static sandbox_status read_token(const struct sbx_kubeconfig_entry *entry,
                                 struct sbx_kubeconfig_user *user, sandbox_error *error)
{
    const char *token = NULL;
    sandbox_status status = sbx_kubeconfig_text(entry, entry->values, "token", &token, error);
    if (status == SANDBOX_OK)
        status = sbx_kubeconfig_path(entry, "tokenFile", &user->token_path, error);
    if (status != SANDBOX_OK || *token == '\0')
        return status;
    if (!sbx_is_header_text(token))
        return sbx_kubeconfig_wrong(entry, error, "its token has line ends or control characters");
    user->authorization = sbx_format("Authorization: Bearer %s", token);
    return user->authorization == NULL
               ? sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a kubeconfig")
               : SANDBOX_OK;
}

static sandbox_status read_password(const struct sbx_kubeconfig_entry *entry,
                                    struct sbx_kubeconfig_user *user, sandbox_error *error)
{
    const char *name = NULL, *password = NULL;
    sandbox_status status = sbx_kubeconfig_text(entry, entry->values, "username", &name, error);
    if (status == SANDBOX_OK)
        status = sbx_kubeconfig_text(entry, entry->values, "password", &password, error);
    if (status != SANDBOX_OK || (*name == '\0' && *password == '\0'))
        return status;
    if (user->authorization != NULL || user->token_path != NULL)
        return sbx_kubeconfig_wrong(entry, error, "it has a token and a password; remove one");
    if (strchr(name, ':') != NULL)
        return sbx_kubeconfig_wrong(entry, error, "a username cannot hold ':'");
    SBX_ON_EXIT(sbx_secret_free_text) char *pair = sbx_format("%s:%s", name, password);
    SBX_ON_EXIT(sbx_secret_free_text)
    char *text = pair == NULL ? NULL : sbx_base64_text(pair, strlen(pair));
    user->authorization = text == NULL ? NULL : sbx_format("Authorization: Basic %s", text);
    return user->authorization == NULL
               ? sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a kubeconfig")
               : SANDBOX_OK;
}

static sandbox_status read_certificate(const struct sbx_kubeconfig_entry *entry,
                                       struct sbx_kubeconfig_user *user, sandbox_error *error)
{
    sandbox_status status =
        sbx_kubeconfig_data(entry, "client-certificate", &user->certificate, error);
    if (status == SANDBOX_OK)
        status = sbx_kubeconfig_data(entry, "client-key", &user->key, error);
    if (status == SANDBOX_OK && user->certificate == NULL)
        status = sbx_kubeconfig_path(entry, "client-certificate", &user->certificate_path, error);
    if (status == SANDBOX_OK && user->key == NULL)
        status = sbx_kubeconfig_path(entry, "client-key", &user->key_path, error);
    if (status != SANDBOX_OK)
        return status;
    bool has_certificate = user->certificate != NULL || user->certificate_path != NULL;
    bool has_key = user->key != NULL || user->key_path != NULL;
    if (has_certificate == has_key)
        return SANDBOX_OK;
    return sbx_kubeconfig_wrong(entry, error, "it has a client-%s and no client-%s",
                                has_key ? "key" : "certificate", has_key ? "certificate" : "key");
}

/* The next header, or INVALID. `headers` has room for IMPERSONATION_MAX. */
static sandbox_status add_header(const struct sbx_kubeconfig_entry *entry, char **headers,
                                 const char *name, const char *value, sandbox_error *error)
{
    size_t count = sbx_count_strings((const char *const *)headers);
    if (count == IMPERSONATION_MAX)
        return sbx_kubeconfig_wrong(entry, error, "it acts as more than %d groups and extras",
                                    IMPERSONATION_MAX);
    if (!sbx_is_header_text(value))
        return sbx_kubeconfig_wrong(entry, error,
                                    "what it acts as ('as…') is empty or has control "
                                    "characters");
    headers[count] = sbx_format("%s: %s", name, value);
    return headers[count] == NULL ? sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a kubeconfig")
                                  : SANDBOX_OK;
}

/* A header for each text of a list. */
static sandbox_status add_headers(const struct sbx_kubeconfig_entry *entry, char **headers,
                                  const char *name, const cJSON *list, sandbox_error *error)
{
    const cJSON *item = NULL;
    sandbox_status status = SANDBOX_OK;
    if (list != NULL && !cJSON_IsArray(list))
        return sbx_kubeconfig_wrong(entry, error,
                                    "'as-groups' and each of 'as-user-extra' must be "
                                    "lists");
    cJSON_ArrayForEach(item, list)
    {
        if (status == SANDBOX_OK)
            status = add_header(entry, headers, name, cJSON_IsString(item) ? item->valuestring : "",
                                error);
    }
    return status;
}

/* A key may be a URL: what may not stand in a header's name is percent-encoded. */
static bool print_extra_name(const char *key, char *out, size_t size)
{
    static const char may[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                              "!#$&'*+-.^_`|~";
    size_t used = (size_t)snprintf(out, size, "Impersonate-Extra-");
    for (const char *at = key; *at != '\0'; at++) {
        if (used + 4 > size)
            return false;
        bool is_plain = strchr(may, *at) != NULL;
        used += (size_t)snprintf(out + used, size - used, is_plain ? "%c" : "%%%02X",
                                 (unsigned char)*at);
    }
    return *key != '\0';
}

static sandbox_status read_impersonation(const struct sbx_kubeconfig_entry *entry,
                                         struct sbx_kubeconfig_user *user, sandbox_error *error)
{
    const char *as = NULL, *uid = NULL;
    const cJSON *groups = sbx_kubeconfig_value(entry->values, "as-groups");
    const cJSON *extras = sbx_kubeconfig_value(entry->values, "as-user-extra"), *extra = NULL;
    sandbox_status status = sbx_kubeconfig_text(entry, entry->values, "as", &as, error);
    if (status == SANDBOX_OK)
        status = sbx_kubeconfig_text(entry, entry->values, "as-uid", &uid, error);
    if (status != SANDBOX_OK)
        return status;
    if (*as == '\0' && *uid == '\0' && groups == NULL && extras == NULL)
        return SANDBOX_OK;
    if (*as == '\0')
        return sbx_kubeconfig_wrong(entry, error,
                                    "it acts as a uid, groups or extras ('as-…') "
                                    "and as no user ('as')");
    if (extras != NULL && !cJSON_IsObject(extras))
        return sbx_kubeconfig_wrong(entry, error, "'as-user-extra' must be a mapping");
    user->impersonation = calloc(IMPERSONATION_MAX + 1, sizeof *user->impersonation);
    if (user->impersonation == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a kubeconfig");
    status = add_header(entry, user->impersonation, "Impersonate-User", as, error);
    if (status == SANDBOX_OK && *uid != '\0')
        status = add_header(entry, user->impersonation, "Impersonate-Uid", uid, error);
    if (status == SANDBOX_OK)
        status = add_headers(entry, user->impersonation, "Impersonate-Group", groups, error);
    cJSON_ArrayForEach(extra, extras)
    {
        char name[300];
        if (status == SANDBOX_OK && !print_extra_name(extra->string, name, sizeof name))
            status = sbx_kubeconfig_wrong(entry, error,
                                          "a key of 'as-user-extra' is empty or too "
                                          "long");
        if (status == SANDBOX_OK)
            status = add_headers(entry, user->impersonation, name, extra, error);
    }
    return status;
}

static sandbox_status refuse_provider(const struct sbx_kubeconfig_entry *entry,
                                      sandbox_error *error)
{
    const cJSON *provider = sbx_kubeconfig_value(entry->values, "auth-provider");
    if (provider == NULL)
        return SANDBOX_OK;
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(provider, "name"));
    return sbx_kubeconfig_wrong(entry, error,
                                "'auth-provider' ('%.40s') is no longer used by any "
                                "client; for GKE install gke-gcloud-auth-plugin and run gcloud "
                                "container clusters get-credentials CLUSTER",
                                name == NULL ? "" : name);
}
