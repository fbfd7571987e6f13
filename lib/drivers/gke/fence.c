/*
 * Who may act on a workspace now. An owner can be slow rather than dead, so every change of a
 * Sandbox is a compare-and-swap on a version of it that was seen after its epoch, and then the
 * record, were looked at.
 */

#include "drivers/gke/gke.h"
#include "util/fail.h"
#include "util/memory.h"
#include <stdio.h>

static sandbox_status stale(const struct sbx_record *record, sandbox_error *error);
static sandbox_status write_epoch(struct sbx_gke *driver, uint32_t epoch,
                                  const struct sbx_wait *wait, cJSON **sandbox,
                                  sandbox_error *error);

sandbox_status sbx_gke_check_record(struct sbx_gke *driver, const struct sbx_record *record,
                                    const struct sbx_wait *wait, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *text = NULL;
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record stored = {0};
    size_t size = 0;
    char version[SBX_VERSION_TEXT];
    sandbox_status status =
        sbx_gke_record_load(driver, record->name, wait, &text, &size, version, error);
    if (status == SANDBOX_OK)
        status = sbx_record_decode(text, size, &stored, error);
    if (status == SANDBOX_NOT_FOUND ||
        (status == SANDBOX_OK && !sbx_record_is_claimed_by(&stored, record)))
        return stale(record, error);
    return status;
}

sandbox_status sbx_gke_fence(struct sbx_gke *driver, const struct sbx_record *record,
                             const struct sbx_wait *wait, cJSON **sandbox, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *seen = NULL;
    sandbox_status status;
    do {
        sbx_json_free(&seen);
        status = sbx_gke_sandbox_named(driver, record, wait, &seen, error);
        if (status != SANDBOX_OK)
            return status;
        const char *noted = sbx_gke_annotation(seen, SBX_GKE_EPOCH_ANNOTATION);
        unsigned long long epoch = strtoull(noted, NULL, 10);
        if (epoch > record->epoch)
            return stale(record, error);
        if (seen != NULL && epoch < record->epoch)
            status = write_epoch(driver, record->epoch, wait, &seen, error);
        if (status == SANDBOX_CONFLICT && sbx_wait_check(wait, error) != SANDBOX_OK)
            return sbx_wait_check(wait, error);
    } while (status == SANDBOX_CONFLICT);
    if (status == SANDBOX_OK)
        status = sbx_gke_check_record(driver, record, wait, error);
    if (status == SANDBOX_OK && sandbox != NULL)
        *sandbox = sbx_take(seen);
    return status;
}

/* CONFLICT: it was changed meanwhile, or is gone. */
static sandbox_status write_epoch(struct sbx_gke *driver, uint32_t epoch,
                                  const struct sbx_wait *wait, cJSON **sandbox,
                                  sandbox_error *error)
{
    char text[16];
    cJSON *written = NULL;
    snprintf(text, sizeof text, "%u", epoch);
    SBX_ON_EXIT(sbx_json_free) cJSON *patch = cJSON_CreateObject();
    if (!sbx_gke_put(patch, sbx_gke_version(*sandbox), "metadata", "resourceVersion", NULL) ||
        !sbx_gke_put(patch, text, "metadata", "annotations", SBX_GKE_EPOCH_ANNOTATION, NULL))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
    sandbox_status status = sbx_kubernetes_patch(driver->cluster, &sbx_gke_sandboxes, driver->space,
                                                 sbx_gke_text(*sandbox, "metadata", "name", NULL),
                                                 "", patch, wait, &written, error);
    if (status == SANDBOX_OK) {
        cJSON_Delete(*sandbox);
        *sandbox = written;
    }
    return status == SANDBOX_NOT_FOUND ? SANDBOX_CONFLICT : status;
}

static sandbox_status stale(const struct sbx_record *record, sandbox_error *error)
{
    return sbx_fail_for(error, SANDBOX_CONFLICT, "stale-epoch",
                        "another operation has taken over the workspace '%s'", record->name);
}
