/*
 * What proves that a snapshot's files are what they were: a listing of all of them beside them,
 * whose SHA-256 is the snapshot's digest and stands in the record.
 */

#include "places.h"
#include "trees.h"
#include "util/digest.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define LISTING "listing"

static void answer_verdict(struct platform_job *job);

static void digest_listing(const struct sbx_bytes *listing, char text[PLATFORM_DIGEST_TEXT])
{
    uint8_t digest[SBX_DIGEST_BYTES];
    size_t size = sbx_bytes_size(listing);
    sbx_sha256(size == 0 ? (const uint8_t *)"" : sbx_bytes_data(listing), size, digest);
    sbx_hex_print(digest, sizeof digest, text);
}

sandbox_status platform_job_list(struct platform_job *job, const char *directory)
{
    SBX_ON_EXIT(sbx_bytes_free) struct sbx_bytes listing = SBX_BYTES(LISTING_MAX);
    struct tree_count count = {0};
    SBX_ON_EXIT(sbx_free_text) char *path = sbx_format("%s/%s", directory, LISTING);
    if (path == NULL)
        return sbx_fail(&job->error, SANDBOX_UNAVAILABLE, "the platform has no memory");
    sandbox_status status = tree_list(directory, LISTING, &listing, &count, &job->error);
    if (status != SANDBOX_OK)
        return status;
    digest_listing(&listing, job->digest);
    size_t size = sbx_bytes_size(&listing);
    return sbx_file_replace(AT_FDCWD, path,
                            size == 0 ? (const uint8_t *)"" : sbx_bytes_data(&listing), size, 0600,
                            &job->error);
}

static void conclude(struct platform_job *job, sandbox_verdict verdict, const char *evidence)
{
    job->verdict = verdict;
    snprintf(job->evidence, sizeof job->evidence, "%.200s", evidence);
}

static void compare(struct platform_job *job, const struct sbx_bytes *recorded)
{
    SBX_ON_EXIT(sbx_bytes_free) struct sbx_bytes now = SBX_BYTES(LISTING_MAX);
    struct tree_count count = {0};
    sandbox_error error = {0};
    sandbox_status status = tree_list(job->directory, LISTING, &now, &count, &error);
    job->files = count.entries;
    job->bytes = count.bytes;
    if (status == SANDBOX_LIMIT)
        conclude(job, SANDBOX_VERDICT_DAMAGED, "it holds more than was ever kept in it");
    else if (status != SANDBOX_OK)
        conclude(job, SANDBOX_VERDICT_CANNOT_TELL, error.message);
    else
        job->verdict = tree_compare(recorded, &now, job->evidence, sizeof job->evidence);
}

void platform_job_check(struct platform_job *job)
{
    SBX_ON_EXIT(sbx_free_text) char *path = sbx_format("%s/%s", job->directory, LISTING);
    SBX_ON_EXIT(sbx_bytes_free) struct sbx_bytes listing = SBX_BYTES(LISTING_MAX);
    sandbox_error error = {0};
    if (path == NULL || access(job->directory, F_OK) < 0) {
        conclude(job, SANDBOX_VERDICT_MISSING, "its directory is not there");
        return;
    }
    size_t size = 0;
    sandbox_status status =
        sbx_file_read(AT_FDCWD, path, LISTING_MAX, &listing.memory, &size, &error);
    listing.end = listing.capacity = size;
    if (status == SANDBOX_NOT_FOUND) {
        conclude(job, SANDBOX_VERDICT_MISSING, "its listing is not there");
    } else if (status != SANDBOX_OK && status != SANDBOX_LIMIT) {
        conclude(job, SANDBOX_VERDICT_CANNOT_TELL, error.message);
    } else {
        digest_listing(&listing, job->digest);
        if (status == SANDBOX_LIMIT || strcmp(job->digest, job->expected) != 0)
            conclude(job, SANDBOX_VERDICT_DAMAGED, "its listing is not the recorded one");
        else
            compare(job, &listing);
    }
}

void platform_snapshot_verify(struct platform_request *request)
{
    struct platform_place *place = platform_place_find(platform_request_text(request, "id"));
    if (place == NULL) {
        cJSON *answer = cJSON_CreateObject();
        cJSON_AddStringToObject(answer, "verdict", "missing");
        cJSON_AddStringToObject(answer, "evidence", "the platform holds no such workspace");
        platform_request_answer(request, answer);
        return;
    }
    struct platform_job *job = platform_job_begin(place, request);
    if (job == NULL)
        return;
    if (platform_snapshot_find(place, job->snapshot) != NULL) {
        platform_job_work(job, platform_job_check, answer_verdict);
        return;
    }
    conclude(job, SANDBOX_VERDICT_MISSING, "the platform holds no such snapshot");
    answer_verdict(job);
}

static const char *verdict_word(sandbox_verdict verdict)
{
    return verdict == SANDBOX_VERDICT_INTACT    ? "intact"
           : verdict == SANDBOX_VERDICT_DAMAGED ? "damaged"
           : verdict == SANDBOX_VERDICT_MISSING ? "missing"
                                                : "cannot tell";
}

static void answer_verdict(struct platform_job *job)
{
    cJSON *answer = cJSON_CreateObject();
    cJSON_AddStringToObject(answer, "verdict", verdict_word(job->verdict));
    cJSON_AddNumberToObject(answer, "files", job->files);
    cJSON_AddNumberToObject(answer, "bytes", (double)job->bytes);
    cJSON_AddStringToObject(answer, "evidence", job->evidence);
    platform_job_end(job, answer);
}
