/*
 * Credential plugins: programs that a kubeconfig names, run without a shell, that print an
 * ExecCredential.
 */

#include "cloud/kubeconfig_parts.h"
#include "util/base64.h"
#include "util/child.h"
#include "util/fail.h"
#include "util/json.h"
#include "util/memory.h"
#include <stdio.h>
#include <unistd.h>

/* A plugin that asks a cloud takes seconds. One that hangs must not hold up a caller for ever. */
#define RUN_MS       60000
#define OUTPUT_BYTES (256u << 10)
#define WORDS_BYTES  (16u << 10)
#define STRINGS_MAX  1000

static sandbox_status check(const struct sbx_kubeconfig_entry *user, const cJSON *exec,
                            sandbox_error *error);
static sandbox_status read_command(const struct sbx_kubeconfig_entry *user, const cJSON *exec,
                                   struct sbx_kubeconfig_plugin *plugin, sandbox_error *error);
static sandbox_status read_arguments(const struct sbx_kubeconfig_entry *user, const cJSON *exec,
                                     struct sbx_kubeconfig_plugin *plugin, sandbox_error *error);
static sandbox_status read_environment(const struct sbx_kubeconfig_entry *user, const cJSON *exec,
                                       char *info, struct sbx_kubeconfig_plugin *plugin,
                                       sandbox_error *error);
static char *print_info(const struct sbx_kubeconfig_entry *cluster, const cJSON *exec,
                        const char *ca);
static char **whole_environment(const struct sbx_kubeconfig_plugin *plugin);
static sandbox_status tell_failure(const struct sbx_kubeconfig_plugin *plugin, const char *title,
                                   int code, const struct sbx_bytes *words, sandbox_error *error);
static sandbox_status read_credential(const struct sbx_kubeconfig_plugin *plugin, const char *title,
                                      const struct sbx_bytes *output,
                                      struct sbx_plugin_credential *out, sandbox_error *error);

sandbox_status sbx_kubeconfig_plugin_read(const struct sbx_kubeconfig_entry *user,
                                          const struct sbx_kubeconfig_entry *cluster,
                                          const char *ca, struct sbx_kubeconfig_plugin **out,
                                          sandbox_error *error)
{
    const cJSON *exec = sbx_kubeconfig_value(user->values, "exec");
    sandbox_status status = check(user, exec, error);
    if (status != SANDBOX_OK)
        return status;
    struct sbx_kubeconfig_plugin *plugin = calloc(1, sizeof *plugin);
    char *info = print_info(cluster, exec, ca);
    if (plugin == NULL || info == NULL) {
        free(plugin);
        sbx_secret_free(info);
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a kubeconfig");
    }
    status = read_environment(user, exec, info, plugin, error);
    if (status == SANDBOX_OK)
        status = read_command(user, exec, plugin, error);
    if (status == SANDBOX_OK)
        status = read_arguments(user, exec, plugin, error);
    if (status == SANDBOX_OK)
        *out = sbx_take(plugin);
    sbx_kubeconfig_plugin_free(plugin);
    return status;
}

void sbx_kubeconfig_plugin_free(struct sbx_kubeconfig_plugin *plugin)
{
    if (plugin == NULL)
        return;
    free(plugin->command);
    free(plugin->hint);
    free(plugin->version);
    sbx_secret_free_strings(plugin->argv);
    sbx_secret_free_strings(plugin->env);
    free(plugin);
}

sandbox_status sbx_kubeconfig_plugin_run(const struct sbx_kubeconfig_plugin *plugin,
                                         const char *title, const struct sbx_wait *wait,
                                         struct sbx_plugin_credential *out, sandbox_error *error)
{
    struct sbx_bytes output = SBX_BYTES(OUTPUT_BYTES), words = SBX_BYTES(WORDS_BYTES);
    char **env = whole_environment(plugin);
    /* At once as large as they may become: no half of a token stays behind in freed memory. */
    bool has_room = env != NULL && sbx_bytes_room(&output, OUTPUT_BYTES) != NULL &&
                    sbx_bytes_room(&words, WORDS_BYTES) != NULL;
    /* A session of its own has no terminal: the plugin cannot ask a person who is not there. */
    struct sbx_child_options options = {SBX_CHILD_OPTIONS,
                                        .argv = (const char *const *)plugin->argv,
                                        .env = (const char *const *)env,
                                        .directory = ".",
                                        .own_session = true,
                                        .die_with_parent = true};
    struct sbx_wait bounded = sbx_wait_within(wait, RUN_MS);
    int code = 0;
    sandbox_error why;
    sandbox_status status =
        has_room ? sbx_child_run_apart(&options, &bounded, &code, &output, &words, &why)
                 : sbx_fail(&why, SANDBOX_NO_MEMORY, "no memory for a credential plugin");
    bool is_callers = status == SANDBOX_NO_MEMORY || sbx_wait_check(wait, NULL) != SANDBOX_OK;
    if (status == SANDBOX_OK && code == 0)
        status = read_credential(plugin, title, &output, out, error);
    else if (status == SANDBOX_OK)
        status = tell_failure(plugin, title, code, &words, error);
    else if (is_callers)
        status = sbx_fail_for(error, status, why.reason, "%s", why.message);
    else if (status == SANDBOX_TIMED_OUT)
        status = sbx_fail_for(error, SANDBOX_DENIED, "credential-plugin",
                              "%s: the credential plugin '%s' did not end within %d s", title,
                              plugin->command, RUN_MS / 1000);
    else
        status = sbx_fail_for(error, SANDBOX_DENIED, "credential-plugin",
                              "%s: the credential plugin cannot be run: %s%s%s", title, why.message,
                              plugin->hint[0] == '\0' ? "" : "; ", plugin->hint);
    sbx_secret_free_strings(env);
    sbx_bytes_wipe(&output);
    sbx_bytes_wipe(&words);
    return status;
}

void sbx_plugin_credential_clear(struct sbx_plugin_credential *credential)
{
    sbx_secret_free(credential->token);
    sbx_secret_free(credential->certificate);
    sbx_secret_free(credential->key);
    *credential = (struct sbx_plugin_credential){0};
}

static sandbox_status check(const struct sbx_kubeconfig_entry *user, const cJSON *exec,
                            sandbox_error *error)
{
    if (!cJSON_IsObject(exec))
        return sbx_kubeconfig_wrong(user, error, "'exec' must be a mapping");
    const char *version = NULL, *mode = NULL;
    sandbox_status status = sbx_kubeconfig_text(user, exec, "apiVersion", &version, error);
    if (status == SANDBOX_OK)
        status = sbx_kubeconfig_text(user, exec, "interactiveMode", &mode, error);
    if (status != SANDBOX_OK)
        return status;
    if (strcmp(version, "client.authentication.k8s.io/v1") != 0 &&
        strcmp(version, "client.authentication.k8s.io/v1beta1") != 0)
        return sbx_kubeconfig_wrong(user, error,
                                    "its plugin speaks '%s'; it must be "
                                    "client.authentication.k8s.io/v1 or v1beta1",
                                    version);
    if (strcmp(mode, "Always") == 0)
        return sbx_kubeconfig_wrong(user, error,
                                    "its plugin must ask a person (interactiveMode "
                                    "Always), which a library cannot; use another credential");
    if (*mode == '\0' || strcmp(mode, "Never") == 0 || strcmp(mode, "IfAvailable") == 0)
        return SANDBOX_OK;
    return sbx_kubeconfig_wrong(user, error,
                                "no interactiveMode '%s'; it is Never, IfAvailable or "
                                "Always",
                                mode);
}

/* A name goes through PATH; a relative path begins at the kubeconfig's folder. */
static sandbox_status read_command(const struct sbx_kubeconfig_entry *user, const cJSON *exec,
                                   struct sbx_kubeconfig_plugin *plugin, sandbox_error *error)
{
    const char *command = NULL, *hint = NULL;
    sandbox_status status = sbx_kubeconfig_text(user, exec, "command", &command, error);
    if (status == SANDBOX_OK)
        status = sbx_kubeconfig_text(user, exec, "installHint", &hint, error);
    if (status != SANDBOX_OK)
        return status;
    if (*command == '\0')
        return sbx_kubeconfig_wrong(user, error, "its plugin ('exec') has no 'command'");
    bool is_relative = *command != '/' && strchr(command, '/') != NULL;
    plugin->command =
        is_relative ? sbx_format("%s/%s", user->file->folder, command) : sbx_copy(command);
    plugin->hint = malloc(200);
    plugin->version = sbx_copy(sbx_json_text(exec, "apiVersion"));
    if (plugin->command == NULL || plugin->hint == NULL || plugin->version == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a kubeconfig");
    /* Hints are often paragraphs: in one line, from their beginning. */
    size_t used = 0;
    for (const char *at = hint; *at != '\0' && used < 199; at++) {
        bool is_blank = strchr(" \t\r\n", *at) != NULL;
        if (!is_blank)
            plugin->hint[used++] = *at;
        else if (used > 0 && plugin->hint[used - 1] != ' ')
            plugin->hint[used++] = ' ';
    }
    plugin->hint[used] = '\0';
    return SANDBOX_OK;
}

static sandbox_status read_arguments(const struct sbx_kubeconfig_entry *user, const cJSON *exec,
                                     struct sbx_kubeconfig_plugin *plugin, sandbox_error *error)
{
    const cJSON *list = sbx_kubeconfig_value(exec, "args"), *item = NULL;
    int count = cJSON_GetArraySize(list);
    if ((list != NULL && !cJSON_IsArray(list)) || count > STRINGS_MAX)
        return sbx_kubeconfig_wrong(user, error,
                                    "'args' of its plugin must be a list of texts, at "
                                    "most %d",
                                    STRINGS_MAX);
    plugin->argv = calloc((size_t)count + 2, sizeof *plugin->argv);
    bool good = plugin->argv != NULL && (plugin->argv[0] = sbx_copy(plugin->command)) != NULL;
    size_t used = 1;
    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsString(item))
            return sbx_kubeconfig_wrong(user, error,
                                        "'args' of its plugin must be texts; put them "
                                        "in quotes");
        good = good && (plugin->argv[used++] = sbx_copy(item->valuestring)) != NULL;
    }
    return good ? SANDBOX_OK : sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a kubeconfig");
}

/* Takes `info`. */
static sandbox_status read_environment(const struct sbx_kubeconfig_entry *user, const cJSON *exec,
                                       char *info, struct sbx_kubeconfig_plugin *plugin,
                                       sandbox_error *error)
{
    const cJSON *list = sbx_kubeconfig_value(exec, "env"), *item = NULL;
    int count = cJSON_GetArraySize(list);
    bool is_list = (list == NULL || cJSON_IsArray(list)) && count <= STRINGS_MAX;
    if (is_list)
        plugin->env = calloc((size_t)count + 2, sizeof *plugin->env);
    if (plugin->env == NULL)
        sbx_secret_free(info);
    if (!is_list)
        return sbx_kubeconfig_wrong(user, error,
                                    "'env' of its plugin must be a list of name and "
                                    "value, at most %d",
                                    STRINGS_MAX);
    if (plugin->env == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a kubeconfig");
    size_t used = 0;
    plugin->env[used++] = info;
    cJSON_ArrayForEach(item, list)
    {
        const char *name = sbx_json_text(item, "name"), *value = NULL;
        sandbox_status status = sbx_kubeconfig_text(user, item, "value", &value, error);
        if (status != SANDBOX_OK)
            return status;
        if (*name == '\0' || strchr(name, '=') != NULL)
            return sbx_kubeconfig_wrong(user, error,
                                        "an entry of its plugin's 'env' has no name, "
                                        "or '=' in it");
        plugin->env[used] = sbx_format("%s=%s", name, value);
        if (plugin->env[used++] == NULL)
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a kubeconfig");
    }
    return SANDBOX_OK;
}

/* What the plugin may know of the cluster, under the names of ExecCredential. */
static bool add_cluster(cJSON *spec, const struct sbx_kubeconfig_entry *cluster, const char *ca)
{
    static const char *const same[] = {
        "server",    "tls-server-name",     "insecure-skip-tls-verify",
        "proxy-url", "disable-compression", NULL};
    cJSON *out = cJSON_AddObjectToObject(spec, "cluster");
    bool good = out != NULL;
    for (size_t n = 0; same[n] != NULL && good; n++) {
        const cJSON *value = sbx_kubeconfig_value(cluster->values, same[n]);
        good = value == NULL || cJSON_AddItemToObject(out, same[n], cJSON_Duplicate(value, true));
    }
    SBX_ON_EXIT(sbx_free_text) char *data = ca == NULL ? NULL : sbx_base64_text(ca, strlen(ca));
    if (good && ca != NULL)
        good = data != NULL && sbx_json_set_text(out, "certificate-authority-data", data);
    const cJSON *extension = NULL;
    cJSON_ArrayForEach(extension, sbx_kubeconfig_value(cluster->values, "extensions"))
    {
        const cJSON *config = sbx_kubeconfig_value(extension, "extension");
        if (good && config != NULL &&
            strcmp(sbx_json_text(extension, "name"), "client.authentication.k8s.io/exec") == 0)
            good = cJSON_AddItemToObject(out, "config", cJSON_Duplicate(config, true));
    }
    return good;
}

/* The whole entry of the environment; a proxy's password may be in it. NULL: no memory. */
static char *print_info(const struct sbx_kubeconfig_entry *cluster, const cJSON *exec,
                        const char *ca)
{
    SBX_ON_EXIT(sbx_secret_free_json) cJSON *info = cJSON_CreateObject();
    cJSON *spec = NULL;
    bool good = info != NULL &&
                sbx_json_set_text(info, "apiVersion", sbx_json_text(exec, "apiVersion")) &&
                sbx_json_set_text(info, "kind", "ExecCredential") &&
                (spec = cJSON_AddObjectToObject(info, "spec")) != NULL &&
                sbx_json_set_flag(spec, "interactive", false);
    if (good && sbx_json_flag(exec, "provideClusterInfo"))
        good = add_cluster(spec, cluster, ca);
    SBX_ON_EXIT(sbx_secret_free_text) char *text = good ? cJSON_PrintUnformatted(info) : NULL;
    return text == NULL ? NULL : sbx_format("KUBERNETES_EXEC_INFO=%s", text);
}

/* Ours, as every program that a person starts would have it, with the kubeconfig's put over it. */
static char **whole_environment(const struct sbx_kubeconfig_plugin *plugin)
{
    size_t count = sbx_count_strings((const char *const *)environ), used = 0;
    size_t added = sbx_count_strings((const char *const *)plugin->env);
    char **env = calloc(count + added + 1, sizeof *env);
    bool good = env != NULL;
    for (size_t n = 0; good && n < count; n++) {
        bool replaced = false;
        size_t name_size = strcspn(environ[n], "=") + 1;
        for (size_t other = 0; other < added && !replaced; other++)
            replaced = strncmp(environ[n], plugin->env[other], name_size) == 0;
        if (!replaced)
            good = (env[used++] = sbx_copy(environ[n])) != NULL;
    }
    for (size_t n = 0; good && n < added; n++)
        good = (env[used++] = sbx_copy(plugin->env[n])) != NULL;
    if (good)
        return env;
    sbx_secret_free_strings(env);
    return NULL;
}

static sandbox_status tell_failure(const struct sbx_kubeconfig_plugin *plugin, const char *title,
                                   int code, const struct sbx_bytes *words, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_secret_free_text)
    char *text =
        sbx_format("%.*s", (int)sbx_bytes_size(words), (const char *)sbx_bytes_data(words));
    char said[180] = "";
    if (text != NULL)
        sbx_plugin_words(text, said, sizeof said);
    return sbx_fail_for(error, SANDBOX_DENIED, "credential-plugin",
                        "%s: the credential plugin '%s' ended with code %d%s%s", title,
                        plugin->command, code, *said == '\0' ? " and said nothing" : ": ", said);
}

static sandbox_status refuse(const struct sbx_kubeconfig_plugin *plugin, const char *title,
                             const char *what, sandbox_error *error)
{
    return sbx_fail_for(error, SANDBOX_DENIED, "credential-plugin",
                        "%s: the credential plugin '%s' printed %s", title, plugin->command, what);
}

/* "2026-11-30T12:00:00Z", with fractions and offsets too. False: that is no time. */
static bool read_time(const char *text, int64_t *ms)
{
    int year, month, day, hour, minute, second, used = 0;
    if (sscanf(text, "%4d-%2d-%2d%*1[Tt]%2d:%2d:%2d%n", &year, &month, &day, &hour, &minute,
               &second, &used) != 6 ||
        used == 0 || year < 1970)
        return false;
    text += used;
    if (*text == '.')
        text += 1 + strspn(text + 1, "0123456789");
    int offset_hour = 0, offset_minute = 0, end = 0;
    char sign = *text;
    bool has_offset = (sign == '+' || sign == '-') &&
                      sscanf(text + 1, "%2d:%2d%n", &offset_hour, &offset_minute, &end) == 2;
    if (has_offset ? text[1 + end] != '\0' : (*text != 'Z' && *text != 'z') || text[1] != '\0')
        return false;
    struct tm parts = {.tm_year = year - 1900,
                       .tm_mon = month - 1,
                       .tm_mday = day,
                       .tm_hour = hour,
                       .tm_min = minute,
                       .tm_sec = second};
    int64_t seconds = (int64_t)timegm(&parts);
    int64_t offset = (int64_t)offset_hour * 3600 + (int64_t)offset_minute * 60;
    *ms = (sign == '-' ? seconds + offset : seconds - offset) * 1000;
    return true;
}

static sandbox_status take_status(const struct sbx_kubeconfig_plugin *plugin, const char *title,
                                  const cJSON *status, struct sbx_plugin_credential *taken,
                                  sandbox_error *error)
{
    const char *token = sbx_json_text(status, "token");
    const char *certificate = sbx_json_text(status, "clientCertificateData");
    const char *key = sbx_json_text(status, "clientKeyData");
    const char *expires = sbx_json_text(status, "expirationTimestamp");
    if (*token == '\0' && *certificate == '\0')
        return refuse(plugin, title, "neither a token nor a certificate", error);
    if ((*certificate == '\0') != (*key == '\0'))
        return refuse(plugin, title, "only one of certificate and key", error);
    if (*token != '\0' && !sbx_is_header_text(token))
        return refuse(plugin, title, "a token with control characters in it", error);
    taken->expires_ms = INT64_MAX;
    if (*expires != '\0' && !read_time(expires, &taken->expires_ms))
        return refuse(plugin, title, "an expirationTimestamp that is no time", error);
    taken->token = *token == '\0' ? NULL : sbx_copy(token);
    taken->certificate = *certificate == '\0' ? NULL : sbx_copy(certificate);
    taken->key = *key == '\0' ? NULL : sbx_copy(key);
    if ((*token != '\0' && taken->token == NULL) ||
        (*key != '\0' && (taken->certificate == NULL || taken->key == NULL)))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a credential");
    return SANDBOX_OK;
}

static sandbox_status read_credential(const struct sbx_kubeconfig_plugin *plugin, const char *title,
                                      const struct sbx_bytes *output,
                                      struct sbx_plugin_credential *out, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_secret_free_json) cJSON *json = NULL;
    if (sbx_json_parse(sbx_bytes_data(output), sbx_bytes_size(output), OUTPUT_BYTES, &json, NULL) !=
        SANDBOX_OK)
        return refuse(plugin, title, "no ExecCredential in JSON", error);
    const char *version = sbx_json_text(json, "apiVersion");
    if (strcmp(sbx_json_text(json, "kind"), "ExecCredential") != 0)
        return refuse(plugin, title, "JSON that is no ExecCredential", error);
    if (strcmp(version, plugin->version) != 0)
        return sbx_fail_for(error, SANDBOX_DENIED, "credential-plugin",
                            "%s: the credential plugin '%s' printed another apiVersion than '%s', "
                            "which the kubeconfig asks for",
                            title, plugin->command, plugin->version);
    SBX_ON_EXIT(sbx_plugin_credential_clear) struct sbx_plugin_credential taken = {0};
    sandbox_status status =
        take_status(plugin, title, cJSON_GetObjectItemCaseSensitive(json, "status"), &taken, error);
    if (status == SANDBOX_OK) {
        *out = taken;
        taken = (struct sbx_plugin_credential){0};
    }
    return status;
}
