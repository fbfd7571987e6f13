/* Restores, what the platform says of them, and what it lies about on request. */

#include "places.h"
#include "trees.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include <fcntl.h>
#include <stdio.h>

static bool choose(struct platform_job *job);
static void put_back(struct platform_job *job);
static void start(struct platform_job *job);

void platform_restore(struct platform_request *request)
{
    if (!platform_record_fence(request))
        return;
    struct platform_place *place = platform_place_find(platform_request_text(request, "id"));
    if (place == NULL) {
        platform_request_fail(request, SANDBOX_NOT_RESTORED, "snapshot-missing",
                              "the platform holds no such workspace");
        return;
    }
    struct platform_job *job = platform_job_begin(place, request);
    if (job == NULL)
        return;
    const struct platform_snapshot *snapshot = platform_snapshot_find(place, job->snapshot);
    job->memory = strcmp(platform_request_text(request, "keep"), "memory") == 0;
    if (place->state != INSTANCE_NONE)
        platform_job_refuse(job, SANDBOX_CONFLICT, "instance-exists",
                            "the workspace has an instance already");
    else if (snapshot == NULL)
        platform_job_refuse(job, SANDBOX_NOT_RESTORED, "snapshot-missing",
                            "the platform holds no such snapshot");
    else if (job->memory && snapshot->frozen.child.pid == 0)
        platform_job_refuse(job, SANDBOX_NOT_RESTORED, "memory-gone",
                            "the snapshot's processes were restored before, or killed; its files "
                            "can be restored");
    else if (!choose(job))
        platform_job_refuse(job, SANDBOX_UNAVAILABLE, "", "the platform has no memory");
    else
        platform_job_work(job, put_back, start);
}

/* ---- which one ---- */

static bool use(struct platform_job *job, const struct platform_place *owner,
                const struct platform_snapshot *snapshot)
{
    bool memory = job->memory && snapshot->frozen.child.pid != 0;
    if (memory) {
        memcpy(job->source_place, owner->id, sizeof owner->id);
        memcpy(job->source_snapshot, snapshot->id, sizeof snapshot->id);
    }
    if (memory && owner != job->place)
        return true; /* it lives on in its own workspace's files */
    job->source = sbx_format("%s/%s/%s", platform.snapshots, owner->id, snapshot->id);
    return job->source != NULL;
}

/* The newest but that one; with frozen memory if any has. */
static const struct platform_snapshot *other_of(const struct platform_place *place, const char *but)
{
    const struct platform_snapshot *found = NULL;
    for (const struct platform_snapshot *at = place->snapshots; at != NULL; at = at->next) {
        bool poorer = found != NULL && found->frozen.child.pid != 0 && at->frozen.child.pid == 0;
        if (strcmp(at->id, but) != 0 && !poorer)
            found = at;
    }
    return found;
}

static const struct platform_snapshot *foreign_to(const struct platform_place *place,
                                                  const struct platform_place **owner)
{
    const struct platform_snapshot *found = NULL;
    for (*owner = platform_places(); *owner != NULL; *owner = (*owner)->next) {
        found = *owner == place ? NULL : other_of(*owner, "");
        if (found != NULL)
            break;
    }
    return found;
}

/* What is restored really: the right one unless a fault says otherwise. */
static bool choose(struct platform_job *job)
{
    const struct platform_place *owner = job->place;
    const struct platform_snapshot *chosen = NULL;
    if (job->fault == PLATFORM_FAULT_OLDER)
        chosen = other_of(job->place, job->snapshot);
    else if (job->fault == PLATFORM_FAULT_FOREIGN)
        chosen = foreign_to(job->place, &owner);
    else if (job->fault != PLATFORM_FAULT_COLD)
        chosen = platform_snapshot_find(job->place, job->snapshot);
    job->source_is_cold = chosen == NULL;
    return chosen == NULL || use(job, owner, chosen);
}

/* ---- putting it back ---- */

static sandbox_status refuse_damaged(struct platform_job *job)
{
    if (job->verdict == SANDBOX_VERDICT_CANNOT_TELL)
        return sbx_fail(&job->error, SANDBOX_UNAVAILABLE, "the snapshot cannot be looked at: %s",
                        job->evidence);
    bool missing = job->verdict == SANDBOX_VERDICT_MISSING;
    return sbx_fail_for(&job->error, SANDBOX_NOT_RESTORED,
                        missing ? "snapshot-missing" : "snapshot-damaged", "the snapshot is %s: %s",
                        missing ? "not whole" : "damaged", job->evidence);
}

/* On a thread. */
static void put_back(struct platform_job *job)
{
    platform_job_check(job);
    if (job->verdict != SANDBOX_VERDICT_INTACT) {
        (void)refuse_damaged(job);
        return;
    }
    struct tree_count count = {0};
    if (job->source == NULL) {
        if (job->source_is_cold)
            (void)sbx_tree_remove(AT_FDCWD, job->seal, &job->error);
        return;
    }
    SBX_ON_EXIT(sbx_free_text) char *files = sbx_format("%s/files", job->source);
    SBX_ON_EXIT(sbx_free_text) char *seal = sbx_format("%s/seal", job->source);
    if (files == NULL || seal == NULL)
        (void)sbx_fail(&job->error, SANDBOX_UNAVAILABLE, "the platform has no memory");
    else if (tree_put(files, job->place->directory, &count, &job->error) == SANDBOX_OK)
        (void)tree_put(seal, job->seal, &count, &job->error);
}

static void start(struct platform_job *job)
{
    struct platform_place *place = job->place, *owner = NULL;
    struct platform_snapshot *memory = NULL;
    if (job->error.status != SANDBOX_OK) {
        platform_job_end(job, NULL);
        return;
    }
    if (place->waiting != NULL || platform.stopping) {
        platform_job_refuse(job, SANDBOX_CONFLICT, "stale-epoch",
                            "the instance was discarded before it was there");
        return;
    }
    if (job->source_snapshot[0] != '\0') {
        owner = platform_place_find(job->source_place);
        memory = owner == NULL ? NULL : platform_snapshot_find(owner, job->source_snapshot);
        if (memory == NULL || memory->frozen.child.pid == 0) {
            platform_job_refuse(job, SANDBOX_NOT_RESTORED, "memory-gone",
                                "the snapshot's processes ended meanwhile");
            return;
        }
    }
    struct platform_request *request = sbx_take(job->request);
    if (platform_record_fence(request))
        platform_instance_start(place, request, memory);
    platform_job_end(job, NULL);
}

/* ---- evidence ---- */

void platform_evidence_begin(struct platform_place *place, const struct platform_strike *strike)
{
    place->evidence = (struct platform_evidence){.asks = strike->asks};
    if (strike->fault == PLATFORM_FAULT_EVIDENCE_CONFIRMED)
        place->evidence.word = "confirmed";
    else if (strike->fault == PLATFORM_FAULT_EVIDENCE_MISSING)
        place->evidence.word = "missing";
    else if (strike->fault == PLATFORM_FAULT_EVIDENCE_CONTRARY)
        place->evidence.word = "contrary";
}

void platform_evidence_tell(const struct platform_place *place, cJSON *answer)
{
    const char *word = place->evidence.word == NULL ? "" : place->evidence.word;
    char detail[160] = "";
    if (*word != '\0')
        snprintf(detail, sizeof detail, "the platform was told to say '%s'", word);
    cJSON_AddStringToObject(answer, "evidence", word);
    cJSON_AddStringToObject(answer, "detail", detail);
}

void platform_evidence_look(struct platform_request *request)
{
    struct platform_place *place = platform_place_find(platform_request_text(request, "id"));
    if (place == NULL || place->state != INSTANCE_RUNNING ||
        strcmp(place->incarnation, platform_request_text(request, "incarnation")) != 0) {
        platform_request_fail(request, SANDBOX_UNAVAILABLE, "instance-gone",
                              "the recorded instance does not run");
        return;
    }
    if (place->evidence.asks > 0 && --place->evidence.asks == 0)
        place->evidence.word = "confirmed";
    cJSON *answer = cJSON_CreateObject();
    platform_evidence_tell(place, answer);
    platform_request_answer(request, answer);
}

void platform_evidence(struct platform_request *request)
{
    static const char *const words[] = {"confirmed", "missing", "contrary"};
    const char *say = platform_request_text(request, "say");
    struct platform_place *place = platform_place_find(platform_request_text(request, "id"));
    for (size_t n = 0; place != NULL && n < sizeof words / sizeof words[0]; n++) {
        if (strcmp(words[n], *say == '\0' ? "confirmed" : say) == 0) {
            place->evidence = (struct platform_evidence){.word = words[n]};
            platform_request_answer(request, NULL);
            return;
        }
    }
    platform_request_fail(request, SANDBOX_INVALID, "",
                          "no such workspace, or nothing to say: '%.20s'", say);
}
