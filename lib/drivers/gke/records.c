/*
 * Records, each a ConfigMap. Its resourceVersion is the record's version: the cluster counts it up
 * with every write of anything, and never back.
 */

#include "drivers/gke/gke.h"
#include "util/fail.h"
#include "util/memory.h"
#include <stdio.h>

static const char prefix[] = "sandbox-record-";

static sandbox_status get(struct sbx_gke *driver, const char *name, const struct sbx_wait *wait,
                          cJSON **out, sandbox_error *error);
static cJSON *make(const char *name, const char *text, size_t size, const char *write);
static sandbox_status settle(struct sbx_gke *driver, const char *name, const char *expected,
                             const char *write, sandbox_status status, const struct sbx_wait *wait,
                             char version[SBX_VERSION_TEXT], sandbox_error *error);
static sandbox_status changed(const char *name, sandbox_error *error);
static bool visit_one(void *user_data, const cJSON *object);

static void copy_version(const cJSON *object, char version[SBX_VERSION_TEXT])
{
    snprintf(version, SBX_VERSION_TEXT, "%s", sbx_gke_version(object));
}

sandbox_status sbx_gke_record_load(void *state, const char *name, const struct sbx_wait *wait,
                                   char **text, size_t *size, char version[SBX_VERSION_TEXT],
                                   sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *object = NULL;
    sandbox_status status = get(state, name, wait, &object, error);
    if (status != SANDBOX_OK)
        return status;
    char *copy = sbx_copy(sbx_gke_text(object, "data", "record", NULL));
    if (copy == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a workspace's record");
    *text = copy;
    *size = strlen(copy);
    copy_version(object, version);
    return SANDBOX_OK;
}

static sandbox_status get(struct sbx_gke *driver, const char *name, const struct sbx_wait *wait,
                          cJSON **out, sandbox_error *error)
{
    char object_name[SBX_GKE_NAME];
    sbx_gke_record_name(name, object_name);
    sandbox_status status = sbx_kubernetes_get(driver->cluster, &sbx_gke_config_maps, driver->space,
                                               object_name, wait, out, error);
    if (status == SANDBOX_NOT_FOUND)
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-such-workspace",
                            "there is no workspace '%s' in '%s'", name, driver->title);
    if (status != SANDBOX_OK || sbx_gke_is_ours(*out, NULL))
        return status;
    sbx_json_free(out);
    return sbx_fail_for(
        error, SANDBOX_CONFLICT, "not-ours",
        "the ConfigMap '%s' in '%s' is not the library's: it has no label " SBX_GKE_MANAGED
        "=" SBX_GKE_MANAGER "; remove it, or take another workspace name",
        object_name, driver->title);
}

/*
 * Every store bears a word of its own: by it an answer that was lost is found again, and two stores
 * of one text are two versions.
 */
sandbox_status sbx_gke_record_store(void *state, const char *name, const char *text, size_t size,
                                    const char *expected, char version[SBX_VERSION_TEXT],
                                    const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_gke *driver = state;
    char write[SBX_ID_TEXT], object_name[SBX_GKE_NAME];
    if (size > SBX_RECORD_MAX)
        return sbx_fail(error, SANDBOX_LIMIT,
                        "the record of '%s' would have %zu bytes; at most %u are allowed: give it "
                        "fewer labels",
                        name, size, SBX_RECORD_MAX);
    if (!sbx_id_fresh(write))
        return sbx_fail(error, SANDBOX_FAILED, "the kernel gives no random bytes");
    SBX_ON_EXIT(sbx_json_free) cJSON *object = make(name, text, size, write);
    SBX_ON_EXIT(sbx_json_free) cJSON *stored = NULL;
    bool is_new = *expected == '\0';
    if (object == NULL ||
        (!is_new && !sbx_gke_put(object, expected, "metadata", "resourceVersion", NULL)))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a workspace's record");
    sbx_gke_record_name(name, object_name);
    sandbox_status status =
        is_new ? sbx_kubernetes_create(driver->cluster, &sbx_gke_config_maps, driver->space, object,
                                       wait, &stored, error)
               : sbx_kubernetes_patch(driver->cluster, &sbx_gke_config_maps, driver->space,
                                      object_name, "", object, wait, &stored, error);
    if (status != SANDBOX_OK)
        return settle(driver, name, expected, write, status, wait, version, error);
    copy_version(stored, version);
    return SANDBOX_OK;
}

static cJSON *make(const char *name, const char *text, size_t size, const char *write)
{
    char object_name[SBX_GKE_NAME];
    sbx_gke_record_name(name, object_name);
    SBX_ON_EXIT(sbx_free_text) char *copy = sbx_copy_bytes(text, size);
    SBX_ON_EXIT(sbx_json_free) cJSON *record = NULL;
    cJSON *object = sbx_gke_object(&sbx_gke_config_maps, object_name);
    (void)sbx_json_parse(text, size, SBX_RECORD_MAX, &record, NULL);
    if (copy != NULL && sbx_gke_put(object, copy, "data", "record", NULL) &&
        sbx_gke_put_labels(object, sbx_json_text(record, "id")) &&
        sbx_gke_put(object, write, "metadata", "annotations", SBX_GKE_WRITE_ANNOTATION, NULL))
        return object;
    cJSON_Delete(object);
    return NULL;
}

/*
 * A store that did not succeed, or whose answer was lost: it may have been carried out by an
 * earlier try all the same. What is stored now tells, unless somebody else has written since.
 */
static sandbox_status settle(struct sbx_gke *driver, const char *name, const char *expected,
                             const char *write, sandbox_status status, const struct sbx_wait *wait,
                             char version[SBX_VERSION_TEXT], sandbox_error *error)
{
    bool is_new = *expected == '\0';
    if (status == SANDBOX_NOT_FOUND && !is_new)
        return changed(name, error);
    if (status != SANDBOX_EXISTS && status != SANDBOX_CONFLICT && status != SANDBOX_UNKNOWN)
        return status;
    SBX_ON_EXIT(sbx_json_free) cJSON *object = NULL;
    sandbox_error problem = {0};
    sandbox_status seen = get(driver, name, wait, &object, &problem);
    if (seen == SANDBOX_OK &&
        strcmp(sbx_gke_annotation(object, SBX_GKE_WRITE_ANNOTATION), write) == 0) {
        copy_version(object, version);
        return SANDBOX_OK;
    }
    if (seen == SANDBOX_CONFLICT) {
        if (error != NULL)
            *error = problem; /* "not-ours" */
        return seen;
    }
    if (status == SANDBOX_UNKNOWN) {
        bool unchanged = seen == SANDBOX_OK ? strcmp(sbx_gke_version(object), expected) == 0
                                            : seen == SANDBOX_NOT_FOUND && is_new;
        return unchanged ? sbx_fail(error, SANDBOX_UNAVAILABLE,
                                    "the cluster broke the connection and did not store the "
                                    "record of '%s'",
                                    name)
                         : status; /* the error still says why */
    }
    if (!is_new)
        return changed(name, error);
    return sbx_fail_for(error, SANDBOX_EXISTS, "name-taken", "there is a workspace '%s' already",
                        name);
}

static sandbox_status changed(const char *name, sandbox_error *error)
{
    return sbx_fail_for(error, SANDBOX_CONFLICT, "record-changed",
                        "the record of '%s' was changed or removed by somebody else", name);
}

sandbox_status sbx_gke_record_remove(void *state, const char *name, const char *expected,
                                     const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_gke *driver = state;
    char object_name[SBX_GKE_NAME];
    struct sbx_delete_options options = {.version = expected};
    sbx_gke_record_name(name, object_name);
    sandbox_status status = sbx_kubernetes_delete(
        driver->cluster, &sbx_gke_config_maps, driver->space, object_name, &options, wait, error);
    if (status == SANDBOX_NOT_FOUND)
        return SANDBOX_OK;
    return status == SANDBOX_CONFLICT ? changed(name, error) : status;
}

struct listing {
    bool (*visit)(void *user_data, const char *name, const char *text, size_t size,
                  const char *version);
    void *user_data;
};

sandbox_status sbx_gke_record_list(void *state, const struct sbx_wait *wait,
                                   bool (*visit)(void *user_data, const char *name,
                                                 const char *text, size_t size,
                                                 const char *version),
                                   void *user_data, sandbox_error *error)
{
    struct sbx_gke *driver = state;
    struct listing listing = {visit, user_data};
    return sbx_kubernetes_list(driver->cluster, &sbx_gke_config_maps, driver->space,
                               SBX_GKE_MANAGED "=" SBX_GKE_MANAGER, wait, visit_one, &listing,
                               error);
}

static bool visit_one(void *user_data, const cJSON *object)
{
    const struct listing *listing = user_data;
    const char *name = sbx_gke_text(object, "metadata", "name", NULL);
    const char *text = sbx_gke_text(object, "data", "record", NULL);
    char version[SBX_VERSION_TEXT];
    size_t size = sizeof prefix - 1;
    if (strncmp(name, prefix, size) != 0 || !sbx_name_is_valid(name + size) || *text == '\0')
        return true;
    copy_version(object, version);
    return listing->visit(listing->user_data, name + size, text, strlen(text), version);
}
