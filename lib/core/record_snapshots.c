/* The part of a record that is about snapshots: which there are, which one counts. */

#include "core/record.h"
#include "util/fail.h"
#include "util/memory.h"
#include <stdio.h>

static bool read_snapshot(const cJSON *object, struct sbx_snapshot *out);
static bool write_snapshot(cJSON *object, const struct sbx_snapshot *snapshot);

struct sbx_snapshot *sbx_record_snapshot(const struct sbx_record *record, const char *id)
{
    for (size_t n = 0; n < record->snapshot_count; n++) {
        if (*id != '\0' && strcmp(record->snapshots[n].id, id) == 0)
            return &record->snapshots[n];
    }
    return NULL;
}

sandbox_status sbx_record_add_snapshot(struct sbx_record *record,
                                       const struct sbx_snapshot *snapshot, sandbox_error *error)
{
    if (record->snapshot_count >= SBX_SNAPSHOTS_MAX)
        return sbx_fail_for(error, SANDBOX_LIMIT, "too-many-snapshots",
                            "'%s' has %zu snapshots already; delete some", record->name,
                            record->snapshot_count);
    struct sbx_snapshot *larger =
        realloc(record->snapshots, (record->snapshot_count + 1) * sizeof *larger);
    if (larger == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a workspace's record");
    larger[record->snapshot_count++] = *snapshot;
    record->snapshots = larger;
    return SANDBOX_OK;
}

void sbx_record_drop_snapshot(struct sbx_record *record, const char *id)
{
    struct sbx_snapshot *found = sbx_record_snapshot(record, id);
    if (found == NULL)
        return;
    size_t after = record->snapshot_count - (size_t)(found - record->snapshots) - 1;
    memmove(found, found + 1, after * sizeof *found);
    record->snapshot_count--;
}

/* A string that is missing is ""; one that does not fit would mean something else. */
static bool take(const cJSON *object, const char *name, char *place, size_t size)
{
    const char *text = sbx_json_text(object, name);
    size_t length = strlen(text);
    if (length >= size)
        return false;
    memcpy(place, text, length + 1);
    return true;
}

static uint32_t take_number(const cJSON *object, const char *name)
{
    int64_t number = sbx_json_number(cJSON_GetObjectItemCaseSensitive(object, name));
    return number < 0 ? 0 : number > UINT32_MAX ? UINT32_MAX : (uint32_t)number;
}

static bool read_snapshot(const cJSON *object, struct sbx_snapshot *out)
{
    struct sbx_snapshot snapshot = {0};
    uint8_t id[SBX_ID_BYTES];
    const char *kind = sbx_json_text(object, "kind");
    if (!take(object, "id", snapshot.id, sizeof snapshot.id) || !sbx_id_parse(snapshot.id, id) ||
        !take(object, "seal_hash", snapshot.seal_hash, sizeof snapshot.seal_hash) ||
        !take(object, "digest", snapshot.digest, sizeof snapshot.digest) ||
        !take(object, "run", snapshot.run, sizeof snapshot.run) ||
        !take(object, "incarnation", snapshot.incarnation, sizeof snapshot.incarnation))
        return false;
    if (strcmp(kind, "memory") == 0)
        snapshot.kind = SANDBOX_KEEP_MEMORY;
    else if (strcmp(kind, "files") == 0)
        snapshot.kind = SANDBOX_KEEP_FILES;
    else
        return false;
    snapshot.key_id = take_number(object, "key_id");
    snapshot.epoch = take_number(object, "epoch");
    snapshot.created_ms = sbx_json_number(cJSON_GetObjectItemCaseSensitive(object, "created_ms"));
    int64_t bytes = sbx_json_number(cJSON_GetObjectItemCaseSensitive(object, "bytes"));
    snapshot.bytes = bytes < 0 ? 0 : (uint64_t)bytes;
    snapshot.proven = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, "proven"));
    *out = snapshot;
    return true;
}

bool sbx_record_read_snapshots(struct sbx_record *record)
{
    const cJSON *json = record->json;
    record->precious = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "precious"));
    record->next_key_id = take_number(json, "next_key_id");
    record->generation = take_number(json, "generation");
    record->retain = take_number(json, "retain");
    if (record->retain == 0 || record->retain > SBX_RETAIN_MAX)
        record->retain = SBX_RETAIN_DEFAULT;
    if (!take(json, "snapshot", record->snapshot, sizeof record->snapshot) ||
        !take(json, "next_run", record->next_run, sizeof record->next_run))
        return false;
    const cJSON *making = cJSON_GetObjectItemCaseSensitive(json, "making");
    if (making != NULL && !read_snapshot(making, &record->making))
        return false;
    const cJSON *item, *array = cJSON_GetObjectItemCaseSensitive(json, "snapshots");
    if (cJSON_GetArraySize(array) > SBX_SNAPSHOTS_MAX)
        return false;
    cJSON_ArrayForEach(item, array)
    {
        struct sbx_snapshot snapshot;
        if (!read_snapshot(item, &snapshot) || sbx_record_snapshot(record, snapshot.id) != NULL ||
            sbx_record_add_snapshot(record, &snapshot, NULL) != SANDBOX_OK)
            return false;
    }
    return record->snapshot[0] == '\0' || sbx_record_snapshot(record, record->snapshot) != NULL;
}

static bool write_snapshot(cJSON *object, const struct sbx_snapshot *snapshot)
{
    bool memory = snapshot->kind == SANDBOX_KEEP_MEMORY;
    return sbx_json_set_text(object, "id", snapshot->id) &&
           sbx_json_set_text(object, "kind", memory ? "memory" : "files") &&
           sbx_json_set_text(object, "seal_hash", snapshot->seal_hash) &&
           sbx_json_set_text(object, "digest", snapshot->digest) &&
           sbx_json_set_text(object, "run", snapshot->run) &&
           sbx_json_set_integer(object, "key_id", snapshot->key_id) &&
           sbx_json_set_integer(object, "epoch", snapshot->epoch) &&
           sbx_json_set_text(object, "incarnation", snapshot->incarnation) &&
           sbx_json_set_integer(object, "created_ms", snapshot->created_ms) &&
           sbx_json_set_integer(object, "bytes", (int64_t)snapshot->bytes) &&
           sbx_json_set_flag(object, "proven", snapshot->proven);
}

/* The object that was read for it, with what we do not know in it, or a new one. */
static cJSON *object_of(cJSON *old, const char *id)
{
    cJSON *item;
    cJSON_ArrayForEach(item, old)
    {
        if (strcmp(sbx_json_text(item, "id"), id) == 0)
            return cJSON_DetachItemViaPointer(old, item);
    }
    return cJSON_CreateObject();
}

static bool write_list(struct sbx_record *record)
{
    cJSON *old = cJSON_DetachItemFromObjectCaseSensitive(record->json, "snapshots");
    sbx_json_remove(record->json, "snapshots");
    bool good = true;
    cJSON *array = NULL;
    if (record->snapshot_count > 0) {
        array = cJSON_AddArrayToObject(record->json, "snapshots");
        good = array != NULL;
    }
    for (size_t n = 0; n < record->snapshot_count && good; n++) {
        cJSON *object = object_of(old, record->snapshots[n].id);
        good = object != NULL && cJSON_AddItemToArray(array, object);
        if (!good)
            cJSON_Delete(object);
        else
            good = write_snapshot(object, &record->snapshots[n]);
    }
    cJSON_Delete(old);
    return good;
}

static bool write_making(struct sbx_record *record)
{
    sbx_json_remove(record->json, "making");
    if (record->making.id[0] == '\0')
        return true;
    cJSON *object = cJSON_AddObjectToObject(record->json, "making");
    return object != NULL && write_snapshot(object, &record->making);
}

bool sbx_record_write_snapshots(struct sbx_record *record)
{
    cJSON *json = record->json;
    return sbx_json_set_flag(json, "precious", record->precious) &&
           sbx_json_set_text(json, "snapshot", record->snapshot) && write_list(record) &&
           write_making(record) && sbx_json_set_text(json, "next_run", record->next_run) &&
           sbx_json_set_integer(json, "next_key_id", record->next_key_id) &&
           sbx_json_set_integer(json, "generation", record->generation) &&
           sbx_json_set_integer(json, "retain", record->retain);
}
