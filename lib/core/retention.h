/*
 * Retention: a workspace keeps so many snapshots. Never the recovery point goes, never the newest,
 * never the last one that was proven.
 */
#ifndef SBX_CORE_RETENTION_H
#define SBX_CORE_RETENTION_H

#include "core/client.h"

struct sbx_pruned {
    char ids[SBX_SNAPSHOTS_MAX][SBX_ID_TEXT];
    size_t count;
};

/*
 * Removes what is over the retention, but not what the operation spares. It is the caller's own,
 * and writes afterwards what has gone: whoever dies in between leaves entries that the next one
 * removes again.
 */
void sbx_prune(sandbox_client *client, const struct sbx_record *record,
               const struct sbx_wait *wait, struct sbx_pruned *out);

/* For struct sbx_step.also: the entries of a struct sbx_pruned go. */
sandbox_status sbx_record_drop_pruned(struct sbx_record *record, void *pruned,
                                      sandbox_error *error);

#endif
