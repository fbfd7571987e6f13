/* Snapshots and restores, as the platform makes them. */

#include "drivers/memory/memory.h"
#include "util/fail.h"
#include "util/memory.h"
#include <stdio.h>

static sandbox_status settle_take(void *state, const struct sbx_record *record,
                                  struct sbx_snapshot *snapshot, sandbox_status status,
                                  sandbox_error *error);
static enum sbx_evidence evidence_of(const char *word);

static const char *word_of(sandbox_keep keep)
{
    return keep == SANDBOX_KEEP_MEMORY ? "memory" : "files";
}

/* A fenced request about a snapshot. */
static cJSON *about(const char *what, const struct sbx_record *record, const char *id)
{
    cJSON *request = sbx_memory_fenced(what, record);
    if (request != NULL && sbx_json_set_text(request, "snapshot", id))
        return request;
    cJSON_Delete(request);
    return NULL;
}

/* The same of one that is to be made. */
static cJSON *making(const char *what, const struct sbx_record *record,
                     const struct sbx_snapshot *snapshot)
{
    cJSON *request = about(what, record, snapshot->id);
    if (request != NULL && sbx_json_set_text(request, "kind", word_of(snapshot->kind)) &&
        cJSON_AddBoolToObject(request, "sealed", snapshot->seal_hash[0] != '\0') != NULL)
        return request;
    cJSON_Delete(request);
    return NULL;
}

static void report(struct sbx_progress *progress, const char *step, uint64_t bytes)
{
    if (progress != NULL && progress->moved != NULL)
        progress->moved(progress, step, bytes, bytes);
}

static void fill(struct sbx_snapshot *snapshot, const cJSON *answer)
{
    snprintf(snapshot->digest, sizeof snapshot->digest, "%s", sbx_json_text(answer, "digest"));
    snapshot->bytes = (uint64_t)sbx_json_integer(answer, "bytes");
}

sandbox_status sbx_memory_snapshot_prepare(void *state, const struct sbx_record *record,
                                           const struct sbx_snapshot *snapshot,
                                           const struct sbx_wait *wait, sandbox_error *error)
{
    return sbx_memory_ask(state, making("snapshot.prepare", record, snapshot), false, wait, NULL,
                          error);
}

sandbox_status sbx_memory_snapshot_take(void *state, const struct sbx_record *record,
                                        struct sbx_snapshot *snapshot,
                                        struct sbx_progress *progress, const struct sbx_wait *wait,
                                        sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *answer = NULL;
    sandbox_status status = sbx_memory_ask(state, making("snapshot.take", record, snapshot), true,
                                           wait, &answer, error);
    if (status == SANDBOX_OK)
        fill(snapshot, answer);
    else
        status = settle_take(state, record, snapshot, status, error);
    if (status == SANDBOX_OK)
        report(progress, "snapshot", snapshot->bytes);
    return status;
}

/*
 * Refused: it was not begun. Otherwise the platform may still be at it, and may complete it: what
 * is complete is never thrown away, for the instance may be gone.
 */
static sandbox_status settle_take(void *state, const struct sbx_record *record,
                                  struct sbx_snapshot *snapshot, sandbox_status status,
                                  sandbox_error *error)
{
    if (status == SANDBOX_CONFLICT || status == SANDBOX_INVALID || status == SANDBOX_NO_MEMORY)
        return status;
    struct sbx_wait alone = sbx_wait_alone(SBX_MEMORY_ROLL_BACK_MS);
    sandbox_status found = sbx_memory_snapshot_adopt(state, record, snapshot, &alone, NULL);
    if (found == SANDBOX_OK)
        return SANDBOX_OK;
    if (found == SANDBOX_NOT_FOUND && status == SANDBOX_UNKNOWN)
        return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "answer-lost",
                            "the memory platform broke the connection and made no snapshot");
    return status;
}

sandbox_status sbx_memory_snapshot_adopt(void *state, const struct sbx_record *record,
                                         struct sbx_snapshot *snapshot, const struct sbx_wait *wait,
                                         sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *answer = NULL;
    sandbox_status status = sbx_memory_ask(state, about("snapshot.adopt", record, snapshot->id),
                                           false, wait, &answer, error);
    if (status == SANDBOX_OK)
        fill(snapshot, answer);
    return status;
}

static sandbox_verdict verdict_of(const char *word)
{
    static const sandbox_verdict known[] = {SANDBOX_VERDICT_INTACT, SANDBOX_VERDICT_DAMAGED,
                                            SANDBOX_VERDICT_MISSING};
    static const char *const words[] = {"intact", "damaged", "missing"};
    for (size_t n = 0; n < sizeof known / sizeof known[0]; n++) {
        if (strcmp(word, words[n]) == 0)
            return known[n];
    }
    return SANDBOX_VERDICT_CANNOT_TELL;
}

sandbox_status sbx_memory_snapshot_verify(void *state, const struct sbx_record *record,
                                          const struct sbx_snapshot *snapshot,
                                          struct sbx_progress *progress,
                                          const struct sbx_wait *wait, struct sbx_verdict *out,
                                          sandbox_error *error)
{
    cJSON *request = about("snapshot.verify", record, snapshot->id);
    if (request != NULL && !sbx_json_set_text(request, "digest", snapshot->digest))
        sbx_json_free(&request);
    SBX_ON_EXIT(sbx_json_free) cJSON *answer = NULL;
    sandbox_status status = sbx_memory_ask(state, request, false, wait, &answer, error);
    if (status != SANDBOX_OK)
        return status;
    *out = (struct sbx_verdict){.verdict = verdict_of(sbx_json_text(answer, "verdict")),
                                .files = (uint32_t)sbx_json_integer(answer, "files"),
                                .bytes = (uint64_t)sbx_json_integer(answer, "bytes")};
    snprintf(out->evidence, sizeof out->evidence, "%s", sbx_json_text(answer, "evidence"));
    report(progress, "verify", out->bytes);
    return SANDBOX_OK;
}

sandbox_status sbx_memory_snapshot_remove(void *state, const struct sbx_record *record,
                                          const char *snapshot_id, const struct sbx_wait *wait,
                                          sandbox_error *error)
{
    return sbx_memory_ask(state, about("snapshot.remove", record, snapshot_id), false, wait, NULL,
                          error);
}

static void fill_restored(struct sbx_restored *out, const cJSON *answer)
{
    out->evidence = evidence_of(sbx_json_text(answer, "evidence"));
    snprintf(out->detail, sizeof out->detail, "%s", sbx_json_text(answer, "detail"));
}

static enum sbx_evidence evidence_of(const char *word)
{
    return strcmp(word, "confirmed") == 0  ? SBX_EVIDENCE_CONFIRMED
           : strcmp(word, "missing") == 0  ? SBX_EVIDENCE_MISSING
           : strcmp(word, "contrary") == 0 ? SBX_EVIDENCE_CONTRARY
                                           : SBX_EVIDENCE_NONE;
}

static cJSON *restoring(const struct sbx_memory *driver, const struct sbx_record *record,
                        const struct sbx_snapshot *snapshot, sandbox_keep keep)
{
    cJSON *request = about("restore", record, snapshot->id);
    if (request != NULL && sbx_json_set_text(request, "digest", snapshot->digest) &&
        sbx_json_set_text(request, "keep", word_of(keep)) &&
        (driver->agent == NULL || sbx_json_set_text(request, "agent", driver->agent)))
        return request;
    cJSON_Delete(request);
    return NULL;
}

sandbox_status sbx_memory_restore(void *state, const struct sbx_record *record,
                                  const struct sbx_snapshot *snapshot, sandbox_keep keep,
                                  struct sbx_progress *progress, const struct sbx_wait *wait,
                                  struct sbx_restored *out, sandbox_error *error)
{
    *out = (struct sbx_restored){.evidence = SBX_EVIDENCE_NONE};
    SBX_ON_EXIT(sbx_json_free) cJSON *answer = NULL;
    sandbox_status status =
        sbx_memory_ask(state, restoring(state, record, snapshot, keep), true, wait, &answer, error);
    if (status == SANDBOX_OK) {
        snprintf(out->incarnation, sizeof out->incarnation, "%s",
                 sbx_json_text(answer, "incarnation"));
        fill_restored(out, answer);
        report(progress, "restore", snapshot->bytes);
        return SANDBOX_OK;
    }
    /* Refused: it was not begun. Otherwise its processes go back to the snapshot. */
    if (status == SANDBOX_CONFLICT || status == SANDBOX_INVALID || status == SANDBOX_NOT_RESTORED)
        return status;
    struct sbx_wait alone = sbx_wait_alone(SBX_MEMORY_ROLL_BACK_MS);
    if (sbx_memory_ask(state, sbx_memory_fenced("discard", record), false, &alone, NULL, NULL) ==
            SANDBOX_OK &&
        status == SANDBOX_UNKNOWN)
        status = sbx_fail_for(error, SANDBOX_UNAVAILABLE, "answer-lost",
                              "the memory platform broke the connection while it restored; what "
                              "it had begun was undone");
    return status;
}

sandbox_status sbx_memory_evidence(void *state, const struct sbx_record *record,
                                   const struct sbx_snapshot *snapshot, const struct sbx_wait *wait,
                                   struct sbx_restored *out, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *answer = NULL;
    sandbox_status status = sbx_memory_ask(state, about("evidence.look", record, snapshot->id),
                                           false, wait, &answer, error);
    if (status != SANDBOX_OK)
        return status;
    *out = (struct sbx_restored){.evidence = SBX_EVIDENCE_NONE};
    snprintf(out->incarnation, sizeof out->incarnation, "%s", record->incarnation);
    fill_restored(out, answer);
    return SANDBOX_OK;
}

sandbox_status sbx_memory_release(void *state, const struct sbx_record *record,
                                  const struct sbx_wait *wait, sandbox_error *error)
{
    return sbx_memory_ask(state, sbx_memory_fenced("release", record), false, wait, NULL, error);
}
