/* Requests that take steps, one at a time for each place. */

#include "places.h"
#include "util/memory.h"
#include <stdarg.h>
#include <stdio.h>

static void worked(uv_work_t *work, int status);

static bool settle(struct platform_job *job)
{
    const struct platform_request *request = job->request;
    const char *id = job->place->id;
    snprintf(job->snapshot, sizeof job->snapshot, "%s", platform_request_text(request, "snapshot"));
    snprintf(job->expected, sizeof job->expected, "%s", platform_request_text(request, "digest"));
    job->fault = request->strike.fault;
    job->directory = sbx_format("%s/%s/%s", platform.snapshots, id, job->snapshot);
    job->part = sbx_format("%s/%s/%s.part", platform.snapshots, id, job->snapshot);
    job->seal = sbx_format("%s/%s/seal", platform.seals, id);
    return job->directory != NULL && job->part != NULL && job->seal != NULL;
}

struct platform_job *platform_job_begin(struct platform_place *place,
                                        struct platform_request *request)
{
    if (place->job != NULL || place->waiting != NULL || place->removers != NULL) {
        platform_list_add(&place->queue, request);
        return NULL;
    }
    uint8_t id[SBX_ID_BYTES];
    if (!sbx_id_parse(platform_request_text(request, "snapshot"), id)) {
        platform_request_fail(request, SANDBOX_INVALID, "", "not a snapshot's id: '%.40s'",
                              platform_request_text(request, "snapshot"));
        return NULL;
    }
    struct platform_job *job = calloc(1, sizeof *job);
    if (job != NULL) {
        job->place = place;
        job->request = request;
        place->job = job;
    }
    if (job != NULL && settle(job))
        return job;
    platform_request_fail(request, SANDBOX_UNAVAILABLE, "", "the platform has no memory");
    platform_job_free(job);
    return NULL;
}

static void act(uv_work_t *work)
{
    struct platform_job *job = work->data;
    job->act(job);
}

void platform_job_work(struct platform_job *job, void (*what)(struct platform_job *job),
                       void (*next)(struct platform_job *job))
{
    job->act = what;
    job->next = next;
    job->work.data = job;
    job->working = true;
    if (uv_queue_work(&platform.loop, &job->work, act, worked) != 0)
        worked(&job->work, UV_ENOMEM);
}

static void worked(uv_work_t *work, int status)
{
    struct platform_job *job = work->data;
    job->working = false;
    if (status != 0 && job->error.status == SANDBOX_OK) {
        job->error.status = SANDBOX_UNAVAILABLE;
        snprintf(job->error.message, sizeof job->error.message, "the platform has no thread");
    }
    job->next(job);
    platform_look_idle();
}

void platform_job_await(struct platform_job *job, bool (*is_ready)(struct platform_job *job),
                        void (*next)(struct platform_job *job))
{
    job->is_ready = is_ready;
    job->next = next;
    platform_job_look(job);
}

void platform_job_look(struct platform_job *job)
{
    if (job->is_ready == NULL || !job->is_ready(job))
        return;
    job->is_ready = NULL;
    job->next(job);
}

void platform_job_end(struct platform_job *job, cJSON *answer)
{
    struct platform_place *place = job->place;
    struct platform_request *request = sbx_take(job->request);
    sandbox_error error = job->error;
    platform_job_free(job);
    if (request == NULL || error.status != SANDBOX_OK)
        cJSON_Delete(answer);
    if (request != NULL && error.status != SANDBOX_OK)
        platform_request_fail(request, error.status, error.reason, "%s", error.message);
    else if (request != NULL)
        platform_request_answer(request, answer);
    platform_place_proceed(place);
}

void platform_job_refuse(struct platform_job *job, sandbox_status status, const char *reason,
                         const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(job->error.message, sizeof job->error.message, format, arguments);
    va_end(arguments);
    job->error.status = status;
    snprintf(job->error.reason, sizeof job->error.reason, "%s", reason);
    platform_job_end(job, NULL);
}

void platform_job_free(struct platform_job *job)
{
    if (job == NULL)
        return;
    job->place->job = NULL;
    free(job->directory);
    free(job->part);
    free(job->seal);
    free(job->source);
    free(job);
}
