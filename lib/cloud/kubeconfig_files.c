/*
 * What stands in the kubeconfig files: $KUBECONFIG is a list of them, and for each name the first
 * file that has it wins.
 */

#include "cloud/kubeconfig_parts.h"
#include "util/base64.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/json.h"
#include "util/memory.h"
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>

#define FILES_MAX 64

static sandbox_status read_list(const char *list, struct sbx_kubeconfig_files *files,
                                sandbox_error *error);
static sandbox_status read_one(const char *path, size_t size, bool may_be_missing,
                               struct sbx_kubeconfig_files *files, sandbox_error *error);
static sandbox_status check_file(const struct sbx_kubeconfig_file *file, sandbox_error *error);
static char *folder_of(const char *path);
static void list_of(const char *kind, char out[16]);

sandbox_status sbx_kubeconfig_files_read(const char *path, struct sbx_kubeconfig_files *out,
                                         sandbox_error *error)
{
    SBX_ON_EXIT(sbx_kubeconfig_files_clear) struct sbx_kubeconfig_files files = {0};
    files.files = calloc(FILES_MAX, sizeof *files.files);
    if (files.files == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a kubeconfig");
    const char *list = getenv("KUBECONFIG"), *home = getenv("HOME");
    SBX_ON_EXIT(sbx_free_text)
    char *usual = sbx_format("%s/.kube/config", home == NULL ? "" : home);
    if (usual == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    sandbox_status status = SANDBOX_OK;
    if (path != NULL)
        status = read_one(path, strlen(path), false, &files, error);
    else if (list != NULL && *list != '\0')
        status = read_list(list, &files, error);
    else
        status = read_one(usual, strlen(usual), true, &files, error);
    if (status != SANDBOX_OK)
        return status;
    if (files.count == 0)
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-kubeconfig",
                            "there is no kubeconfig at '%s'; make one (for GKE: gcloud container "
                            "clusters get-credentials CLUSTER) or name it in KUBECONFIG",
                            list != NULL && *list != '\0' ? list : usual);
    *out = files;
    files = (struct sbx_kubeconfig_files){0};
    return SANDBOX_OK;
}

void sbx_kubeconfig_files_clear(struct sbx_kubeconfig_files *files)
{
    for (size_t n = 0; n < files->count; n++) {
        free(files->files[n].path);
        free(files->files[n].folder);
        sbx_secret_free_json(&files->files[n].json);
    }
    free(files->files);
    *files = (struct sbx_kubeconfig_files){0};
}

const char *sbx_kubeconfig_current(const struct sbx_kubeconfig_files *files)
{
    for (size_t n = 0; n < files->count; n++) {
        const char *name = sbx_json_text(files->files[n].json, "current-context");
        if (*name != '\0')
            return name;
    }
    return "";
}

sandbox_status sbx_kubeconfig_find(const struct sbx_kubeconfig_files *files, const char *kind,
                                   const char *name, struct sbx_kubeconfig_entry *out,
                                   sandbox_error *error)
{
    char list[16];
    list_of(kind, list);
    *out = (struct sbx_kubeconfig_entry){.kind = kind, .name = name};
    for (size_t n = 0; n < files->count && out->values == NULL; n++) {
        const cJSON *item = NULL;
        cJSON_ArrayForEach(item, sbx_kubeconfig_value(files->files[n].json, list))
        {
            if (strcmp(sbx_json_text(item, "name"), name) != 0)
                continue;
            if (out->values != NULL)
                return sbx_kubeconfig_wrong(out, error, "stands there twice; remove one of them");
            out->file = &files->files[n];
            out->values = sbx_kubeconfig_value(item, kind);
            if (out->values == NULL)
                return sbx_kubeconfig_wrong(out, error, "nothing stands under '%s:'", kind);
            if (!cJSON_IsObject(out->values))
                return sbx_kubeconfig_wrong(out, error, "'%s' must be a mapping", kind);
        }
    }
    if (out->values != NULL)
        return SANDBOX_OK;
    return sbx_fail(error, SANDBOX_NOT_FOUND, "no %s '%s'", kind, name);
}

void sbx_kubeconfig_names(const struct sbx_kubeconfig_files *files, const char *kind, char *out,
                          size_t size)
{
    char list[16];
    list_of(kind, list);
    size_t used = 0;
    *out = '\0';
    for (size_t n = 0; n < files->count; n++) {
        const cJSON *item = NULL;
        cJSON_ArrayForEach(item, sbx_kubeconfig_value(files->files[n].json, list))
        {
            const char *name = sbx_json_text(item, "name");
            size_t needed = strlen(name) + 4;
            if (*name == '\0')
                continue;
            if (used + needed + sizeof ", …" > size) {
                snprintf(out + used, size - used, used == 0 ? "" : ", …");
                return;
            }
            used +=
                (size_t)snprintf(out + used, size - used, "%s'%s'", used == 0 ? "" : ", ", name);
        }
    }
}

sandbox_status sbx_kubeconfig_wrong(const struct sbx_kubeconfig_entry *entry, sandbox_error *error,
                                    const char *format, ...)
{
    char what[240];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return sbx_fail_for(error, SANDBOX_INVALID, "kubeconfig", "%s: %s '%s': %s", entry->file->path,
                        entry->kind, entry->name, what);
}

const cJSON *sbx_kubeconfig_value(const cJSON *values, const char *field)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(values, field);
    return cJSON_IsNull(value) ? NULL : value;
}

sandbox_status sbx_kubeconfig_text(const struct sbx_kubeconfig_entry *entry, const cJSON *values,
                                   const char *field, const char **out, sandbox_error *error)
{
    const cJSON *value = sbx_kubeconfig_value(values, field);
    if (value != NULL && !cJSON_IsString(value))
        return sbx_kubeconfig_wrong(entry, error, "'%s' must be a text; put it in quotes", field);
    *out = value == NULL ? "" : value->valuestring;
    return SANDBOX_OK;
}

sandbox_status sbx_kubeconfig_flag(const struct sbx_kubeconfig_entry *entry, const char *field,
                                   bool *out, sandbox_error *error)
{
    const cJSON *value = sbx_kubeconfig_value(entry->values, field);
    if (value != NULL && !cJSON_IsBool(value))
        return sbx_kubeconfig_wrong(entry, error, "'%s' must be true or false", field);
    *out = cJSON_IsTrue(value);
    return SANDBOX_OK;
}

sandbox_status sbx_kubeconfig_path(const struct sbx_kubeconfig_entry *entry, const char *field,
                                   char **out, sandbox_error *error)
{
    const char *path = NULL;
    sandbox_status status = sbx_kubeconfig_text(entry, entry->values, field, &path, error);
    if (status != SANDBOX_OK)
        return status;
    *out = NULL;
    if (*path == '\0')
        return SANDBOX_OK;
    *out = *path == '/' ? sbx_copy(path) : sbx_format("%s/%s", entry->file->folder, path);
    return *out == NULL ? sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path") : SANDBOX_OK;
}

sandbox_status sbx_kubeconfig_data(const struct sbx_kubeconfig_entry *entry, const char *field,
                                   char **out, sandbox_error *error)
{
    char name[64];
    snprintf(name, sizeof name, "%s-data", field);
    const char *text = NULL;
    sandbox_status status = sbx_kubeconfig_text(entry, entry->values, name, &text, error);
    if (status != SANDBOX_OK)
        return status;
    *out = NULL;
    if (*text == '\0')
        return SANDBOX_OK;
    uint8_t *data = NULL;
    size_t size = 0;
    status = sbx_base64_parse(text, &data, &size, NULL);
    if (status == SANDBOX_NO_MEMORY)
        return sbx_fail(error, status, "no memory for a kubeconfig");
    if (status != SANDBOX_OK)
        return sbx_kubeconfig_wrong(entry, error,
                                    "'%s' is no base64; write the whole PEM file in "
                                    "it (base64 -w0 FILE)",
                                    name);
    SBX_ON_EXIT(sbx_secret_free_text) char *pem = (char *)data;
    if (strlen(pem) != size || strstr(pem, "-----BEGIN ") == NULL)
        return sbx_kubeconfig_wrong(entry, error, "'%s' holds no PEM ('-----BEGIN …')", name);
    *out = sbx_take(pem);
    return SANDBOX_OK;
}

sandbox_status sbx_kubeconfig_read_pem(const char *path, char **out, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_secret_free_text) char *pem = NULL;
    sandbox_status status = sbx_secret_read(path, &pem, error);
    if (status != SANDBOX_OK)
        return status;
    if (strstr(pem, "-----BEGIN ") == NULL)
        return sbx_fail(error, SANDBOX_INVALID, "'%s' holds no PEM ('-----BEGIN …')", path);
    *out = sbx_take(pem);
    return SANDBOX_OK;
}

/* A file that is named but not there is skipped: half of a list is often on another machine. */
static sandbox_status read_list(const char *list, struct sbx_kubeconfig_files *files,
                                sandbox_error *error)
{
    for (const char *at = list; *at != '\0';) {
        size_t size = strcspn(at, ":");
        sandbox_status status = size == 0 ? SANDBOX_OK : read_one(at, size, true, files, error);
        if (status != SANDBOX_OK)
            return status;
        at += size + (at[size] == ':');
    }
    return SANDBOX_OK;
}

static sandbox_status read_one(const char *path, size_t size, bool may_be_missing,
                               struct sbx_kubeconfig_files *files, sandbox_error *error)
{
    if (files->count == FILES_MAX)
        return sbx_fail_for(error, SANDBOX_INVALID, "kubeconfig",
                            "KUBECONFIG names more than %d files", FILES_MAX);
    struct sbx_kubeconfig_file *file = &files->files[files->count];
    file->path = sbx_format("%.*s", (int)size, path);
    if (file->path == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    files->count++;
    uint8_t *text = NULL;
    size_t text_size = 0;
    sandbox_error why;
    sandbox_status status =
        sbx_file_read(AT_FDCWD, file->path, SBX_KUBECONFIG_BYTES, &text, &text_size, &why);
    if (status == SANDBOX_NOT_FOUND && may_be_missing) {
        files->count--;
        sbx_free_text(&file->path);
        return SANDBOX_OK;
    }
    if (status == SANDBOX_NOT_FOUND)
        return sbx_fail_for(error, status, "no-kubeconfig", "no kubeconfig: %s", why.message);
    if (status != SANDBOX_OK)
        return sbx_fail_for(error, status == SANDBOX_NO_MEMORY ? status : SANDBOX_INVALID,
                            "kubeconfig", "no usable kubeconfig: %s", why.message);
    status = sbx_yaml_parse(text, text_size, file->path, &file->json, error);
    sbx_wipe(text, text_size);
    free(text);
    file->folder = folder_of(file->path);
    if (status == SANDBOX_OK && file->folder == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    return status == SANDBOX_OK ? check_file(file, error) : status;
}

/* What is looked up by name must be lists of named things, or it would pass for missing. */
static sandbox_status check_file(const struct sbx_kubeconfig_file *file, sandbox_error *error)
{
    static const char *const lists[] = {"clusters", "contexts", "users", NULL};
    if (!cJSON_IsObject(file->json))
        return sbx_fail_for(error, SANDBOX_INVALID, "kubeconfig",
                            "%s: no kubeconfig; it must hold clusters, contexts and users",
                            file->path);
    const cJSON *current = sbx_kubeconfig_value(file->json, "current-context");
    if (current != NULL && !cJSON_IsString(current))
        return sbx_fail_for(error, SANDBOX_INVALID, "kubeconfig",
                            "%s: 'current-context' must be a text; put it in quotes", file->path);
    for (size_t n = 0; lists[n] != NULL; n++) {
        const cJSON *list = sbx_kubeconfig_value(file->json, lists[n]), *item = NULL;
        bool good = list == NULL || cJSON_IsArray(list);
        cJSON_ArrayForEach(item, list)
        {
            good = good && cJSON_IsString(cJSON_GetObjectItemCaseSensitive(item, "name"));
        }
        if (!good)
            return sbx_fail_for(error, SANDBOX_INVALID, "kubeconfig",
                                "%s: '%s' must be a list of entries with a 'name' in quotes",
                                file->path, lists[n]);
    }
    return SANDBOX_OK;
}

/* Of the file itself, not of what a link leads to: as kubectl does. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        return sbx_copy(".");
    return slash == path ? sbx_copy("/") : sbx_format("%.*s", (int)(slash - path), path);
}

static void list_of(const char *kind, char out[16])
{
    snprintf(out, 16, "%ss", kind);
}
