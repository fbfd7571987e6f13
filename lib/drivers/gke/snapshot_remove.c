/*
 * Removing snapshots. The PodSnapshot goes first, since GKE deletes its objects in the bucket only
 * while it knows of it; its trigger last, since that is how it is found again.
 */

#include "drivers/gke/snapshot.h"
#include "util/bytes.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"
#include <stdio.h>

#define TRIGGERED_BY  "gke-pod-snapshot-triggered-by"
#define PREFIX_FORMAT "sandbox-%.12s-" /* of the names of a workspace's triggers */
#define REMOVE_MS     10000u
#define ROUNDS        3
#define NAMES_MAX     4096
#define GROUP_BYTES   512 /* of name hashes: mostly there is one */

/* Objects to delete: names and UIDs, collected before the first deletion. */
struct names {
    struct sbx_gke_named {
        char name[SBX_GKE_NAME], uid[SBX_GKE_UID];
    } * items;
    size_t count;
    const char *prefix;              /* NULL, or what the trigger's name begins with */
    const struct sbx_record *keeper; /* NULL, or whose snapshots are left out */
    bool out_of_memory;
};

static void names_free(struct names *names);
static bool visit(void *user_data, const cJSON *object);
static sandbox_status collect(struct sbx_gke *driver, const struct sbx_resource *resource,
                              const char *selector, const struct sbx_wait *wait,
                              struct names *names, sandbox_error *error);
static sandbox_status delete_one(struct sbx_gke *driver, const struct sbx_resource *resource,
                                 const char *name, const char *uid, const struct sbx_wait *wait,
                                 sandbox_error *error);
static sandbox_status await_gone(struct sbx_gke *driver, const char *name, const char *uid,
                                 const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status delete_triggers(struct sbx_gke *driver, const char *selector,
                                      const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status describe_group(struct sbx_gke *driver, const struct sbx_record *record,
                                     const struct sbx_wait *wait, struct sbx_bytes *group,
                                     sandbox_error *error);
static sandbox_status delete_group(struct sbx_gke *driver, const struct sbx_record *record,
                                   const struct sbx_bytes *group, const struct sbx_wait *wait,
                                   size_t *count, sandbox_error *error);

sandbox_status sbx_gke_snapshot_remove(void *state, const struct sbx_record *record,
                                       const char *snapshot_id, const struct sbx_wait *wait,
                                       sandbox_error *error)
{
    sandbox_status status = sbx_gke_fence(state, record, wait, NULL, error);
    if (status != SANDBOX_OK)
        return status;
    return sbx_gke_take_away(state, record, snapshot_id, REMOVE_MS, wait, error);
}

sandbox_status sbx_gke_take_away(struct sbx_gke *driver, const struct sbx_record *record,
                                 const char *snapshot_id, uint32_t patience_ms,
                                 const struct sbx_wait *wait, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_gke_taken_clear) struct sbx_gke_taken taken = {0};
    struct sbx_wait patience = sbx_wait_within(wait, patience_ms);
    char selector[160];
    sandbox_status status = sbx_gke_taken_find(driver, record, snapshot_id, wait, &taken, error);
    const char *name = sbx_gke_text(taken.pod_snapshot, "metadata", "name", NULL);
    if (status == SANDBOX_OK && taken.pod_snapshot != NULL) {
        const char *uid = sbx_gke_uid(taken.pod_snapshot);
        status = delete_one(driver, &sbx_gke_snapshots, name, uid, wait, error);
        if (status == SANDBOX_OK)
            status = await_gone(driver, name, uid, &patience, error);
        if (status == SANDBOX_TIMED_OUT && sbx_wait_check(wait, NULL) == SANDBOX_OK) {
            sbx_log(SANDBOX_LOG_WARNING, "GKE is still deleting PodSnapshot '%s' of '%s'", name,
                    record->name);
            status = SANDBOX_OK;
        }
    }
    if (status != SANDBOX_OK)
        return status;
    snprintf(selector, sizeof selector, SBX_GKE_WORKSPACE "=%s," SBX_GKE_SNAPSHOT "=%s", record->id,
             snapshot_id);
    return delete_triggers(driver, selector, wait, error);
}

sandbox_status sbx_gke_snapshots_remove_all(struct sbx_gke *driver, const struct sbx_record *record,
                                            const struct sbx_wait *wait, sandbox_error *error)
{
    char selector[120];
    size_t count = 1;
    SBX_ON_EXIT(sbx_bytes_free) struct sbx_bytes group = SBX_BYTES(GROUP_BYTES);
    sandbox_status status = describe_group(driver, record, wait, &group, error);
    /* One that was under way when its trigger went may come once more. */
    for (int n = 0; n < ROUNDS && status == SANDBOX_OK && count > 0; n++)
        status = delete_group(driver, record, &group, wait, &count, error);
    snprintf(selector, sizeof selector, SBX_GKE_WORKSPACE "=%s", record->id);
    if (status == SANDBOX_OK)
        status = delete_triggers(driver, selector, wait, error);
    return status;
}

sandbox_status sbx_gke_sweep(struct sbx_gke *driver, const struct sbx_record *record,
                             const struct sbx_wait *wait, sandbox_error *error)
{
    char prefix[32], hash[9], selector[120];
    struct sbx_gke_incarnation of;
    if (!sbx_gke_incarnation_read(record->incarnation, &of))
        return SANDBOX_OK;
    sbx_gke_name_hash(of.sandbox, hash);
    snprintf(prefix, sizeof prefix, PREFIX_FORMAT, record->id);
    snprintf(selector, sizeof selector, SBX_GKE_NAME_HASH "=%s", hash);
    SBX_ON_EXIT(names_free) struct names orphans = {.prefix = prefix, .keeper = record};
    sandbox_status status = collect(driver, &sbx_gke_snapshots, selector, wait, &orphans, error);
    for (size_t n = 0; n < orphans.count && status == SANDBOX_OK; n++)
        status = delete_one(driver, &sbx_gke_snapshots, orphans.items[n].name, orphans.items[n].uid,
                            wait, error);
    return status;
}

static void names_free(struct names *names)
{
    free(names->items);
}

/* `name`: of a trigger, from the snapshot's id on. */
static bool is_kept(const struct sbx_record *record, const char *name)
{
    char id[SBX_ID_TEXT];
    snprintf(id, sizeof id, "%.32s", name);
    return strcmp(id, record->making.id) == 0 || sbx_record_snapshot(record, id) != NULL;
}

static bool visit(void *user_data, const cJSON *object)
{
    struct names *names = user_data;
    const char *by = sbx_gke_text(object, "metadata", "labels", TRIGGERED_BY, NULL);
    if (names->prefix != NULL && strncmp(by, names->prefix, strlen(names->prefix)) != 0)
        return true;
    if (names->keeper != NULL && is_kept(names->keeper, by + strlen(names->prefix)))
        return true;
    struct sbx_gke_named *larger = realloc(names->items, (names->count + 1) * sizeof *names->items);
    names->out_of_memory = larger == NULL;
    if (larger == NULL)
        return false;
    names->items = larger;
    struct sbx_gke_named *item = &larger[names->count++];
    snprintf(item->name, sizeof item->name, "%s", sbx_gke_text(object, "metadata", "name", NULL));
    snprintf(item->uid, sizeof item->uid, "%s", sbx_gke_uid(object));
    return names->count < NAMES_MAX;
}

static sandbox_status collect(struct sbx_gke *driver, const struct sbx_resource *resource,
                              const char *selector, const struct sbx_wait *wait,
                              struct names *names, sandbox_error *error)
{
    sandbox_status status = sbx_kubernetes_list(driver->cluster, resource, driver->space, selector,
                                                wait, visit, names, error);
    /* A cluster without this kind has none of it. */
    if (status == SANDBOX_NOT_FOUND)
        return SANDBOX_OK;
    if (status == SANDBOX_OK && names->out_of_memory)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to list snapshots");
    return status;
}

static sandbox_status delete_one(struct sbx_gke *driver, const struct sbx_resource *resource,
                                 const char *name, const char *uid, const struct sbx_wait *wait,
                                 sandbox_error *error)
{
    struct sbx_delete_options only = {.uid = uid};
    char cause[160];
    sandbox_error own = {0};
    error = error == NULL ? &own : error;
    sandbox_status status =
        sbx_kubernetes_delete(driver->cluster, resource, driver->space, name, &only, wait, error);
    /* A namesake was made since: that one is not ours to delete, and ours is gone. */
    if (status == SANDBOX_NOT_FOUND || status == SANDBOX_CONFLICT)
        return SANDBOX_OK;
    if (status != SANDBOX_DENIED)
        return status;
    snprintf(cause, sizeof cause, "%.159s", error->message);
    return sbx_fail_for(error, SANDBOX_DENIED, "snapshot-kept",
                        "the cluster does not let this account delete %s '%s': %s; give it the "
                        "verb delete on %s.%s",
                        resource->kind, name, cause, resource->plural, resource->group);
}

static bool is_gone(void *user_data, const cJSON *object)
{
    return object == NULL || strcmp(sbx_gke_uid(object), user_data) != 0;
}

static sandbox_status await_gone(struct sbx_gke *driver, const char *name, const char *uid,
                                 const struct sbx_wait *wait, sandbox_error *error)
{
    return sbx_kubernetes_await(driver->cluster, &sbx_gke_snapshots, driver->space, name, NULL,
                                is_gone, (void *)(uintptr_t)uid, wait, NULL, error);
}

static sandbox_status delete_triggers(struct sbx_gke *driver, const char *selector,
                                      const struct sbx_wait *wait, sandbox_error *error)
{
    SBX_ON_EXIT(names_free) struct names triggers = {0};
    sandbox_status status = collect(driver, &sbx_gke_triggers, selector, wait, &triggers, error);
    for (size_t n = 0; n < triggers.count && status == SANDBOX_OK; n++)
        status = delete_one(driver, &sbx_gke_triggers, triggers.items[n].name,
                            triggers.items[n].uid, wait, error);
    return status;
}

static bool add_sandbox(struct sbx_bytes *group, const char *name)
{
    char hash[9];
    sbx_gke_name_hash(name, hash);
    bool known = sbx_bytes_size(group) > 0 &&
                 memmem(sbx_bytes_data(group), sbx_bytes_size(group), hash, 8) != NULL;
    return known || name[0] == '\0' ||
           sbx_bytes_format(group, "%s%s", sbx_bytes_size(group) == 0 ? "" : ",", hash);
}

static bool add_incarnation(struct sbx_bytes *group, const char *incarnation)
{
    struct sbx_gke_incarnation of;
    return !sbx_gke_incarnation_read(incarnation, &of) || add_sandbox(group, of.sandbox);
}

/* Of which Sandboxes there may be snapshots: the hashes of their names. */
static sandbox_status describe_group(struct sbx_gke *driver, const struct sbx_record *record,
                                     const struct sbx_wait *wait, struct sbx_bytes *group,
                                     sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *claim = NULL;
    sandbox_status status = sbx_gke_claim_get(driver, record, wait, &claim, error);
    if (status != SANDBOX_OK)
        return status;
    bool fits = add_sandbox(group, sbx_gke_text(claim, "status", "sandbox", "name", NULL)) &&
                add_incarnation(group, record->incarnation) &&
                add_incarnation(group, record->making.incarnation);
    for (size_t n = 0; n < record->snapshot_count; n++)
        fits = fits && add_incarnation(group, record->snapshots[n].incarnation);
    if (!fits || !sbx_bytes_append(group, "", 1))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to list snapshots");
    return SANDBOX_OK;
}

/* Of the workspace's Sandboxes, and by triggers of ours: their names tell whose they are. */
static sandbox_status delete_group(struct sbx_gke *driver, const struct sbx_record *record,
                                   const struct sbx_bytes *group, const struct sbx_wait *wait,
                                   size_t *count, sandbox_error *error)
{
    char prefix[32], selector[GROUP_BYTES + 64];
    snprintf(prefix, sizeof prefix, PREFIX_FORMAT, record->id);
    snprintf(selector, sizeof selector, SBX_GKE_NAME_HASH " in (%s)",
             (const char *)sbx_bytes_data(group));
    SBX_ON_EXIT(names_free) struct names snapshots = {.prefix = prefix};
    *count = 0;
    if (sbx_bytes_size(group) <= 1)
        return SANDBOX_OK;
    sandbox_status status = collect(driver, &sbx_gke_snapshots, selector, wait, &snapshots, error);
    *count = snapshots.count;
    for (size_t n = 0; n < snapshots.count && status == SANDBOX_OK; n++)
        status = delete_one(driver, &sbx_gke_snapshots, snapshots.items[n].name,
                            snapshots.items[n].uid, wait, error);
    for (size_t n = 0; n < snapshots.count && status == SANDBOX_OK; n++) {
        status = await_gone(driver, snapshots.items[n].name, snapshots.items[n].uid, wait, error);
        if (status == SANDBOX_TIMED_OUT)
            return sbx_fail_for(error, status, "snapshot-kept",
                                "GKE is still deleting PodSnapshot '%s' of '%s' (its finalizer may "
                                "take minutes): delete again",
                                snapshots.items[n].name, record->name);
    }
    return status;
}
