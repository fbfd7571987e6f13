/* Which snapshots are kept, and away with the others. */

#include "core/retention.h"
#include "util/log.h"
#include "util/memory.h"

/* Never the recovery point, never the newest, never the last one that was proven. */
static size_t pick(const struct sbx_record *record, char ids[][SBX_ID_TEXT], size_t max)
{
    size_t count = 0, proven = SIZE_MAX, total = record->snapshot_count;
    for (size_t n = 0; n < total; n++) {
        if (record->snapshots[n].proven)
            proven = n;
    }
    for (size_t n = 0; n + 1 < total && total - count > record->retain && count < max; n++) {
        const char *id = record->snapshots[n].id;
        bool spared = strcmp(id, record->operation.spare) == 0;
        if (n != proven && !spared && strcmp(id, record->snapshot) != 0)
            memcpy(ids[count++], id, SBX_ID_TEXT);
    }
    return count;
}

void sbx_prune(sandbox_client *client, const struct sbx_record *record,
               const struct sbx_wait *wait, struct sbx_pruned *out)
{
    out->count = pick(record, out->ids, SBX_SNAPSHOTS_MAX);
    for (size_t n = 0; n < out->count; n++) {
        sandbox_error left = {0};
        if (client->driver->snapshot_remove(client->state, record, out->ids[n], wait, &left) ==
            SANDBOX_OK)
            continue;
        /* It costs room, not safety: the next suspend tries again. */
        sbx_log(SANDBOX_LOG_WARNING, "an old snapshot of '%s' could not be removed: %s",
                record->name, left.message);
        out->count = n;
    }
}

sandbox_status sbx_record_drop_pruned(struct sbx_record *record, void *pruned,
                                      sandbox_error *error)
{
    const struct sbx_pruned *gone = pruned;
    for (size_t n = 0; n < gone->count; n++)
        sbx_record_drop_snapshot(record, gone->ids[n]);
    return SANDBOX_OK;
}
