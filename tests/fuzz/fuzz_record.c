/*
 * A record as the platform's store gives it: whoever can write there may hand us anything. What
 * is taken must come back the same from its own encoding.
 */

#include "core/record.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_same(const struct sbx_record *first, const struct sbx_record *second);
static void check_snapshots(const struct sbx_record *first, const struct sbx_record *second);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sbx_record record = {0};
    sandbox_error error;
    if (sbx_record_decode((const char *)data, size, &record, &error) != SANDBOX_OK)
        return 0;

    char *text = NULL;
    if (sbx_record_encode(&record, &text, &error) == SANDBOX_OK) {
        struct sbx_record again = {0};
        if (sbx_record_decode(text, strlen(text), &again, &error) != SANDBOX_OK)
            abort();
        check_same(&record, &again);
        sbx_record_clear(&again);
        free(text);
    }
    sbx_record_clear(&record);
    return 0;
}

/* JSON is printed with 15 digits: enough for thirty thousand years. */
static bool is_same_time(int64_t first, int64_t second)
{
    const int64_t exact = 999999999999999;
    return first == second || first > exact || first < -exact;
}

static void check_same(const struct sbx_record *first, const struct sbx_record *second)
{
    if (strcmp(first->id, second->id) != 0 || strcmp(first->name, second->name) != 0 ||
        strcmp(first->driver, second->driver) != 0 || first->state != second->state ||
        first->epoch != second->epoch || strcmp(first->run, second->run) != 0 ||
        strcmp(first->incarnation, second->incarnation) != 0 ||
        strcmp(first->user, second->user) != 0 || first->key_id != second->key_id ||
        !is_same_time(first->created_ms, second->created_ms) ||
        !is_same_time(first->expires_ms, second->expires_ms))
        abort();
    /* Without a kind there is no operation, whatever else stands there. */
    const struct sbx_operation *was = &first->operation, *is = &second->operation;
    if (strcmp(was->kind, is->kind) != 0)
        abort();
    if (was->kind[0] != '\0' &&
        (strcmp(was->id, is->id) != 0 || strcmp(was->owner, is->owner) != 0 ||
         strcmp(was->step, is->step) != 0 || was->lease_ms != is->lease_ms ||
         was->wanted != is->wanted))
        abort();
    check_snapshots(first, second);
}

static void check_snapshot(const struct sbx_snapshot *first, const struct sbx_snapshot *second)
{
    if (strcmp(first->id, second->id) != 0 || first->kind != second->kind ||
        strcmp(first->seal_hash, second->seal_hash) != 0 ||
        strcmp(first->digest, second->digest) != 0 || strcmp(first->run, second->run) != 0 ||
        first->key_id != second->key_id || first->epoch != second->epoch ||
        strcmp(first->incarnation, second->incarnation) != 0 || first->proven != second->proven ||
        !is_same_time(first->created_ms, second->created_ms) ||
        !is_same_time((int64_t)first->bytes, (int64_t)second->bytes))
        abort();
}

/* A snapshot that came out as another one would be restored in its place. */
static void check_snapshots(const struct sbx_record *first, const struct sbx_record *second)
{
    if (first->precious != second->precious || strcmp(first->snapshot, second->snapshot) != 0 ||
        strcmp(first->next_run, second->next_run) != 0 ||
        first->next_key_id != second->next_key_id || first->generation != second->generation ||
        first->retain != second->retain || first->snapshot_count != second->snapshot_count ||
        first->snapshot_count > SBX_SNAPSHOTS_MAX)
        abort();
    if (first->snapshot[0] != '\0' && sbx_record_snapshot(first, first->snapshot) == NULL)
        abort();
    check_snapshot(&first->making, &second->making);
    for (size_t n = 0; n < first->snapshot_count; n++)
        check_snapshot(&first->snapshots[n], &second->snapshots[n]);
}
