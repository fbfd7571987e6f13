/* What snapshots a workspace has, whether they are intact, and away with one. */

#include "core/session.h"
#include "core/client.h"
#include "core/resume.h"
#include "core/store.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/options.h"
#include <stdio.h>

#define LIST_MS 30000u
#define VERIFY_MS 600000u

struct sandbox_snapshot_list {
    struct sbx_record record;
    size_t count;
    sandbox_snapshot_info infos[SBX_SNAPSHOTS_MAX];
};

static sandbox_status begin(sandbox_workspace *workspace, const sandbox_call *call,
                            uint32_t default_ms, struct sbx_wait *wait, struct sbx_record *record,
                            sandbox_error *error);

const char *sandbox_verdict_name(sandbox_verdict verdict)
{
    switch (verdict) {
    case SANDBOX_VERDICT_INTACT:
        return "intact";
    case SANDBOX_VERDICT_DAMAGED:
        return "damaged";
    case SANDBOX_VERDICT_MISSING:
        return "missing";
    case SANDBOX_VERDICT_CANNOT_TELL:
        return "cannot tell";
    }
    return "unknown";
}

sandbox_status sandbox_snapshot_list_all(sandbox_workspace *workspace, const sandbox_call *call,
                                         sandbox_snapshot_list **out, sandbox_error *error)
{
    struct sbx_wait wait;
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
    if (out == NULL)
        return sbx_fail(error, SANDBOX_INVALID, "no place to put the answer");
    sandbox_status status = begin(workspace, call, LIST_MS, &wait, &record, error);
    if (status != SANDBOX_OK)
        return status;
    sandbox_snapshot_list *list = calloc(1, sizeof *list);
    if (list == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a list");
    list->record = record;
    record = (struct sbx_record){0};
    for (size_t n = list->record.snapshot_count; n > 0; n--) {
        const struct sbx_snapshot *snapshot = &list->record.snapshots[n - 1];
        list->infos[list->count++] = (sandbox_snapshot_info){
            .size = sizeof list->infos[0],
            .id = snapshot->id,
            .kept = snapshot->kind,
            .is_recovery_point = strcmp(snapshot->id, list->record.snapshot) == 0,
            .was_proven = snapshot->proven,
            .has_seal = snapshot->seal_hash[0] != '\0',
            .created_ms = snapshot->created_ms,
            .bytes = snapshot->bytes,
        };
    }
    *out = list;
    return SANDBOX_OK;
}

size_t sandbox_snapshot_list_count(const sandbox_snapshot_list *list)
{
    return list == NULL ? 0 : list->count;
}

const sandbox_snapshot_info *sandbox_snapshot_list_at(const sandbox_snapshot_list *list,
                                                      size_t index)
{
    return index < sandbox_snapshot_list_count(list) ? &list->infos[index] : NULL;
}

void sandbox_snapshot_list_free(sandbox_snapshot_list *list)
{
    if (list != NULL)
        sbx_record_clear(&list->record);
    free(list);
}

sandbox_status sandbox_snapshot_verify(sandbox_workspace *workspace, const char *snapshot,
                                       const sandbox_call *call, sandbox_verification *out,
                                       sandbox_error *error)
{
    struct sbx_wait wait;
    struct sbx_reporter reporter;
    struct sbx_verdict verdict = {0};
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
    sandbox_status status = begin(workspace, call, VERIFY_MS, &wait, &record, error);
    if (status != SANDBOX_OK)
        return status;
    sandbox_client *client = workspace->client;
    const struct sbx_snapshot *found =
        sbx_record_snapshot(&record, snapshot == NULL ? record.snapshot : snapshot);
    if (found == NULL)
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-such-snapshot",
                            snapshot == NULL ? "'%s' has no snapshot yet"
                                             : "'%s' has no snapshot of that id",
                            record.name);
    if (client->driver->snapshot_verify == NULL)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "no-snapshots",
                            "the %s driver keeps no snapshots", client->driver->name);
    sbx_reporter_begin(&reporter, client, &record);
    snprintf(reporter.operation, sizeof reporter.operation, "verify");
    status = client->driver->snapshot_verify(client->state, &record, found, &reporter.progress,
                                             &wait, &verdict, error);
    if (status != SANDBOX_OK)
        return status;
    sandbox_verification done = {.size = sizeof done, .verdict = verdict.verdict,
                                 .files = verdict.files, .bytes = verdict.bytes};
    snprintf(done.snapshot, sizeof done.snapshot, "%s", found->id);
    snprintf(done.evidence, sizeof done.evidence, "%s", verdict.evidence);
    return sbx_options_fill(out, &done, sizeof done, error);
}

static sandbox_status forget(struct sbx_record *record, void *user_data, sandbox_error *error)
{
    const char *id = user_data;
    if (strcmp(record->snapshot, id) == 0)
        return sbx_fail_for(error, SANDBOX_CONFLICT, "recovery-point",
                            "the snapshot has become the recovery point of '%s'", record->name);
    sbx_record_drop_snapshot(record, id);
    return SANDBOX_OK;
}

/* First it goes, then its entry: whoever dies in between leaves something that can be repeated. */
sandbox_status sandbox_snapshot_delete(sandbox_workspace *workspace, const char *snapshot,
                                       const sandbox_call *call, sandbox_error *error)
{
    struct sbx_wait wait;
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
    if (snapshot == NULL)
        return sbx_fail(error, SANDBOX_INVALID, "no snapshot given");
    sandbox_status status = begin(workspace, call, LIST_MS, &wait, &record, error);
    if (status != SANDBOX_OK)
        return status;
    if (sbx_record_snapshot(&record, snapshot) == NULL)
        return SANDBOX_OK;
    if (strcmp(record.snapshot, snapshot) == 0)
        return sbx_fail_for(error, SANDBOX_INVALID, "recovery-point",
                            "the snapshot is the recovery point of '%s': a resume needs it",
                            record.name);
    if (record.operation.kind[0] != '\0')
        return sbx_fail_for(error, SANDBOX_BUSY, "operation-under-way",
                            "a %s of '%s' is under way", record.operation.kind, record.name);
    sandbox_client *client = workspace->client;
    status = client->driver->snapshot_remove(client->state, &record, snapshot, &wait, error);
    if (status != SANDBOX_OK)
        return status;
    status = sbx_store_change(client, record.name, &wait, forget, (void *)(uintptr_t)snapshot,
                              NULL, error);
    return status == SANDBOX_NOT_FOUND ? SANDBOX_OK : status;
}

/* The workspace's record as it stands. */
static sandbox_status begin(sandbox_workspace *workspace, const sandbox_call *call,
                            uint32_t default_ms, struct sbx_wait *wait, struct sbx_record *record,
                            sandbox_error *error)
{
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(wait, call, default_ms, error);
    if (status == SANDBOX_OK)
        status = sbx_store_load(workspace->client, workspace->name, wait, record, error);
    if (status == SANDBOX_NOT_FOUND ||
        (status == SANDBOX_OK && strcmp(record->id, workspace->id) != 0)) {
        atomic_store(&workspace->gone, true);
        return sbx_workspace_check(workspace, error);
    }
    return status;
}
