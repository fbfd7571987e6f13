/* Trees as tar streams: Upload unpacks one, Download packs one. The rules are util/tree.h's. */

#include "files.h"

#include "files_change.h"
#include "util/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define BATCH      (1u << 20)
#define QUEUE_HIGH (1u << 20)
#define QUEUE_MAX  (8u << 20)
#define OUTPUT_MAX (64u << 20) /* a sparse file's map comes beside the batch */

struct upload {
    struct agent_job job;
    bool opened, ended; /* `open` came, `end` came */
    bool paused;
    struct sbx_bytes queue;

    /* The work's own. */
    char path[AGENT_PATH_MAX];
    struct sbx_tree_limits limits;
    struct sbx_bytes batch;
    bool ends, complete;
    struct sbx_unpacker *unpacker;
    struct sbx_tree_count count;
};

struct download {
    struct agent_job job;
    char path[AGENT_PATH_MAX];
    struct sbx_tree_limits limits;
    struct sbx_packer *packer;
    struct sbx_bytes output;
    bool ended;
    bool blocked; /* the call's queue is full */
    bool holding; /* a batch was packed and not sent yet: it is packed while the queue drains */
};

static void upload_work(struct agent_job *job);
static void upload_done(struct agent_job *job);
static void upload_abandon(struct agent_job *job);
static void upload_free(struct agent_job *job);
static void download_work(struct agent_job *job);
static void download_done(struct agent_job *job);
static void send_batch(struct download *download);
static void download_abandon(struct agent_job *job);
static void download_free(struct agent_job *job);

static const struct agent_job_kind upload_kind = {.work = upload_work, .done = upload_done,
                                                  .abandon = upload_abandon,
                                                  .free = upload_free};
static const struct agent_job_kind download_kind = {.work = download_work,
                                                    .done = download_done,
                                                    .abandon = download_abandon,
                                                    .free = download_free};

static bool take_open(struct agent_call *call, const Sandbox__V1__TreeOpen *open,
                      char path[AGENT_PATH_MAX], struct sbx_tree_limits *limits)
{
    limits->max_bytes = open->max_bytes;
    limits->max_entries = open->max_entries;
    limits->max_depth = open->max_depth;
    limits->links = open->links == SANDBOX__V1__TREE_OPEN__LINKS__LINKS_KEEP
                        ? SBX_TREE_LINKS_KEEP
                    : open->links == SANDBOX__V1__TREE_OPEN__LINKS__LINKS_SKIP
                        ? SBX_TREE_LINKS_SKIP
                        : SBX_TREE_LINKS_INSIDE;
    return agent_path_take(call, &open->path, path);
}

static void start_upload(struct upload *upload)
{
    struct sbx_bytes empty = upload->batch;
    upload->batch = upload->queue;
    upload->queue = empty;
    upload->ends = upload->ended;
    agent_job_start(&upload->job);
}

void agent_upload_message(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__TreeChunk *request = (const Sandbox__V1__TreeChunk *)message;
    struct upload *upload = agent_call_data(call);
    if (upload == NULL) {
        upload = agent_job_new(call, &upload_kind, sizeof *upload);
        if (upload == NULL)
            return;
        upload->queue.limit = upload->batch.limit = QUEUE_MAX;
    }
    if (upload->opened == (request->open != NULL) || upload->ended) {
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "malformed",
                        "the first message holds `open`, no other does, and none follows `end`");
        return;
    }
    if (request->open != NULL &&
        !take_open(call, request->open, upload->path, &upload->limits))
        return;
    upload->opened = true;
    if (request->data.len > AGENT_CHUNK) {
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "message-too-large",
                        "a piece of data is larger than 256 KiB");
        return;
    }
    if (!sbx_bytes_append(&upload->queue, request->data.data, request->data.len)) {
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "no-memory", "the agent has no memory");
        return;
    }
    upload->ended = request->end;
    if (!upload->job.working)
        start_upload(upload);
    if (sbx_bytes_size(&upload->queue) > QUEUE_HIGH) {
        upload->paused = true;
        agent_call_pause(call);
    }
}

void agent_upload_end(struct agent_call *call)
{
    const struct upload *upload = agent_call_data(call);
    if (upload == NULL || !upload->ended)
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "no-end",
                        "the call ended without `end`; nothing was kept");
}

static void fail_tree(struct agent_job *job, sandbox_status status, const sandbox_error *error)
{
    job->status = status;
    job->error = *error;
}

static bool open_unpacker(struct upload *upload)
{
    struct agent_job *job = &upload->job;
    struct agent_place place = AGENT_PLACE;
    sandbox_error error;
    int number = agent_place_find(job, upload->path, AGENT_PLACE_FOLLOW | AGENT_PLACE_MAKE,
                                  &place);
    if (number != 0) {
        agent_job_fail_errno(job, number, "cannot copy to '%s'", upload->path);
        return false;
    }
    sandbox_status status =
        sbx_unpacker_new(place.parent, place.name, &upload->limits, &upload->unpacker, &error);
    if (status != SANDBOX_OK)
        fail_tree(job, status, &error);
    agent_place_close(&place);
    return status == SANDBOX_OK;
}

static void upload_work(struct agent_job *job)
{
    struct upload *upload = (struct upload *)job;
    sandbox_error error;
    if (upload->unpacker == NULL && !open_unpacker(upload))
        return;
    size_t size = sbx_bytes_size(&upload->batch);
    sandbox_status status =
        sbx_unpacker_feed(upload->unpacker, sbx_bytes_data(&upload->batch), size, &error);
    sbx_bytes_skip(&upload->batch, size);
    if (status == SANDBOX_OK && upload->ends)
        status = sbx_unpacker_commit(upload->unpacker, &error);
    if (status != SANDBOX_OK) {
        fail_tree(job, status, &error);
        return;
    }
    upload->complete = upload->ends;
    upload->count = *sbx_unpacker_count(upload->unpacker);
    if (upload->complete) {
        sbx_unpacker_free(upload->unpacker);
        upload->unpacker = NULL;
    }
}

static void tell_count(const struct sbx_tree_count *count, Sandbox__V1__TreeReply *reply)
{
    reply->bytes = count->bytes;
    reply->entries = count->entries;
    reply->skipped = count->skipped;
}

static void upload_done(struct agent_job *job)
{
    struct upload *upload = (struct upload *)job;
    if (upload->complete) {
        Sandbox__V1__TreeReply reply = SANDBOX__V1__TREE_REPLY__INIT;
        tell_count(&upload->count, &reply);
        agent_call_answer(job->call, &reply.base);
        return;
    }
    if (sbx_bytes_size(&upload->queue) > 0 || upload->ended)
        start_upload(upload);
    if (upload->paused) {
        upload->paused = false;
        agent_call_resume(job->call);
    }
}

static void upload_abandon(struct agent_job *job)
{
    struct upload *upload = (struct upload *)job;
    sbx_unpacker_free(upload->unpacker);
    upload->unpacker = NULL;
}

static void upload_free(struct agent_job *job)
{
    struct upload *upload = (struct upload *)job;
    sbx_unpacker_free(upload->unpacker);
    sbx_bytes_free(&upload->queue);
    sbx_bytes_free(&upload->batch);
}

void agent_download_message(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__TreeRequest *request = (const Sandbox__V1__TreeRequest *)message;
    struct download *download = agent_job_new(call, &download_kind, sizeof *download);
    if (download == NULL)
        return;
    download->output.limit = OUTPUT_MAX;
    if (request->open == NULL)
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "malformed", "the request holds no `open`");
    else if (take_open(call, request->open, download->path, &download->limits))
        agent_job_start(&download->job);
}

void agent_download_ready(struct agent_call *call)
{
    struct download *download = agent_call_data(call);
    if (download == NULL)
        return;
    download->blocked = false;
    if (download->holding)
        send_batch(download);
}

static bool open_packer(struct download *download)
{
    struct agent_job *job = &download->job;
    struct agent_place place = AGENT_PLACE;
    sandbox_error error;
    int number = agent_place_find(job, download->path, AGENT_PLACE_FOLLOW, &place);
    struct stat about;
    if (number == 0 && fstatat(place.parent, place.name, &about, AT_SYMLINK_NOFOLLOW) != 0)
        number = errno;
    if (number != 0) {
        agent_job_fail_errno(job, number, "cannot copy '%s'", download->path);
        agent_place_close(&place);
        return false;
    }
    sandbox_status status =
        sbx_packer_new(place.parent, place.name, &download->limits, &download->packer, &error);
    if (status != SANDBOX_OK)
        fail_tree(job, status, &error);
    agent_place_close(&place);
    return status == SANDBOX_OK;
}

static void download_work(struct agent_job *job)
{
    struct download *download = (struct download *)job;
    sandbox_error error;
    if (download->packer == NULL && !open_packer(download))
        return;
    sandbox_status status =
        sbx_packer_next(download->packer, &download->output, BATCH, &download->ended, &error);
    if (status != SANDBOX_OK)
        fail_tree(job, status, &error);
}

static void download_done(struct agent_job *job)
{
    struct download *download = (struct download *)job;
    download->holding = true;
    if (!download->blocked)
        send_batch(download);
}

static void send_batch(struct download *download)
{
    struct agent_job *job = &download->job;
    bool room = true;
    download->holding = false;
    while (sbx_bytes_size(&download->output) > 0) {
        Sandbox__V1__TreeChunk chunk = SANDBOX__V1__TREE_CHUNK__INIT;
        size_t size = sbx_bytes_size(&download->output);
        chunk.data.len = size > AGENT_CHUNK ? AGENT_CHUNK : size;
        chunk.data.data = download->output.memory + download->output.start;
        room = agent_call_send(job->call, &chunk.base);
        sbx_bytes_skip(&download->output, chunk.data.len);
    }
    if (download->ended) {
        Sandbox__V1__TreeReply totals = SANDBOX__V1__TREE_REPLY__INIT;
        Sandbox__V1__TreeChunk chunk = SANDBOX__V1__TREE_CHUNK__INIT;
        tell_count(sbx_packer_count(download->packer), &totals);
        chunk.totals = &totals;
        agent_call_answer(job->call, &chunk.base);
    } else if (!agent_call_is_over(job->call)) {
        download->blocked = !room;
        agent_job_start(job);
    }
}

/* Closing many directories is work too. */
static void download_abandon(struct agent_job *job)
{
    struct download *download = (struct download *)job;
    sbx_packer_free(download->packer);
    download->packer = NULL;
}

static void download_free(struct agent_job *job)
{
    struct download *download = (struct download *)job;
    sbx_packer_free(download->packer);
    sbx_bytes_free(&download->output);
}
