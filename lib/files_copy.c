/* Copying trees in and out of a workspace. The agent is not trusted: see util/tree.h. */

#include "files_parts.h"
#include "util/clock.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/options.h"
#include "util/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define BATCH (1u << 20)
#define ARCHIVE_MAX (64u << 20)        /* a sparse file's map comes beside the batch */
#define PROGRESS_MS 100
#define HEADERS_OF_ENTRY (32u << 10)   /* what an archive may spend on each entry */
#define HEADERS_SPARE (2u << 20)

/* A file on this machine: its directory, and its name in it. */
struct host_place {
    int parent;
    char *name;
};

struct copy {
    sandbox_copy_options options;
    struct sbx_tree_limits limits;
    struct sbx_wait wait;
    struct host_place host;
    Sandbox__V1__TreeOpen opening;
    struct sbx_stream *stream;
    int64_t told_ms; /* when progress was last told */
};

static sandbox_status begin(struct copy *copy, sandbox_workspace *workspace,
                            const char *host_path, const char *guest_path,
                            const sandbox_copy_options *given, const sandbox_call *call,
                            const sandbox_copy_result *result, sandbox_error *error);
static sandbox_status find_host(const char *path, struct host_place *place,
                                sandbox_error *error);
static void end(struct copy *copy);
static sandbox_status send_tree(struct copy *copy, struct sbx_packer *packer,
                                sandbox_error *error);
static sandbox_status send_archive(struct copy *copy, struct sbx_bytes *archive,
                                   sandbox_error *error);
static sandbox_status end_upload(struct copy *copy, const struct sbx_tree_count *count,
                                 sandbox_copy_result *result, sandbox_error *error);
static sandbox_status take_tree(struct copy *copy, struct sbx_unpacker *unpacker,
                                ProtobufCMessage **message, uint64_t *skipped,
                                sandbox_error *error);
static void tell_progress(struct copy *copy, const struct sbx_tree_count *count,
                          const char *path, bool last);

static void free_packer(struct sbx_packer **packer)
{
    sbx_packer_free(*packer);
}

static void free_unpacker(struct sbx_unpacker **unpacker)
{
    sbx_unpacker_free(*unpacker);
}

static sandbox_status upload(struct copy *copy, sandbox_workspace *workspace,
                             sandbox_copy_result *result, sandbox_error *error)
{
    SBX_ON_EXIT(free_packer) struct sbx_packer *packer = NULL;
    Sandbox__V1__TreeChunk message = SANDBOX__V1__TREE_CHUNK__INIT;
    sbx_stream_free(sbx_take(copy->stream));
    sandbox_status status =
        sbx_packer_new(copy->host.parent, copy->host.name, &copy->limits, &packer, error);
    if (status == SANDBOX_OK)
        status = sbx_workspace_stream(workspace, "/sandbox.v1.Files/Upload", &copy->wait,
                                      &copy->stream, error);
    message.open = &copy->opening;
    if (status == SANDBOX_OK)
        status = sbx_stream_send(copy->stream, &message.base, &copy->wait, error);
    if (status == SANDBOX_OK)
        status = send_tree(copy, packer, error);
    if (status == SANDBOX_OK)
        status = end_upload(copy, sbx_packer_count(packer), result, error);
    if (status == SANDBOX_OK)
        tell_progress(copy, sbx_packer_count(packer), sbx_packer_path(packer), true);
    return status;
}

sandbox_status sandbox_file_upload(sandbox_workspace *workspace, const char *host_path,
                                   const char *guest_path, const sandbox_copy_options *given,
                                   const sandbox_call *call, sandbox_copy_result *result,
                                   sandbox_error *error)
{
    SBX_ON_EXIT(end) struct copy copy = {.host = {.parent = -1}};
    sandbox_error own = {0};
    error = error == NULL ? &own : error;
    sandbox_status status =
        begin(&copy, workspace, host_path, guest_path, given, call, result, error);
    while (status == SANDBOX_OK) {
        status = upload(&copy, workspace, result, error);
        if (status == SANDBOX_OK)
            return SANDBOX_OK;
        status = sbx_workspace_begin_again(workspace, status, &copy.wait, error);
    }
    return status;
}

sandbox_status sandbox_file_download(sandbox_workspace *workspace, const char *guest_path,
                                     const char *host_path, const sandbox_copy_options *given,
                                     const sandbox_call *call, sandbox_copy_result *result,
                                     sandbox_error *error)
{
    SBX_ON_EXIT(end) struct copy copy = {.host = {.parent = -1}};
    SBX_ON_EXIT(free_unpacker) struct sbx_unpacker *unpacker = NULL;
    SBX_ON_EXIT(sbx_file_free_message) ProtobufCMessage *message = NULL;
    Sandbox__V1__TreeRequest request = SANDBOX__V1__TREE_REQUEST__INIT;
    uint64_t skipped = 0;
    sandbox_status status =
        begin(&copy, workspace, host_path, guest_path, given, call, result, error);
    request.open = &copy.opening;
    /* Nothing is made here before the agent has something to give. */
    if (status == SANDBOX_OK)
        status = sbx_file_ask(workspace, "/sandbox.v1.Files/Download", &request.base,
                              &sandbox__v1__tree_chunk__descriptor, &copy.wait, &copy.stream,
                              &message, error);
    if (status == SANDBOX_OK)
        status = sbx_unpacker_new(copy.host.parent, copy.host.name, &copy.limits, &unpacker,
                                  error);
    if (status == SANDBOX_OK)
        status = take_tree(&copy, unpacker, &message, &skipped, error);
    if (status == SANDBOX_OK)
        status = sbx_unpacker_commit(unpacker, error);
    if (status != SANDBOX_OK)
        return status;
    const struct sbx_tree_count *count = sbx_unpacker_count(unpacker);
    const sandbox_copy_result told = {.bytes = count->bytes, .entries = count->entries,
                                      .skipped = count->skipped + skipped};
    tell_progress(&copy, count, sbx_unpacker_path(unpacker), true);
    return result == NULL ? SANDBOX_OK : sbx_options_fill(result, &told, sizeof told, error);
}

static sandbox_status begin(struct copy *copy, sandbox_workspace *workspace,
                            const char *host_path, const char *guest_path,
                            const sandbox_copy_options *given, const sandbox_call *call,
                            const sandbox_copy_result *result, sandbox_error *error)
{
    sandbox__v1__tree_open__init(&copy->opening);
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK)
        status = sbx_options_adopt(&copy->options, sizeof copy->options, given, error);
    if (status == SANDBOX_OK && result != NULL && result->size < sizeof result->size)
        status = sbx_fail(error, SANDBOX_INVALID,
                          "a result without a size; begin it with its initializer macro");
    if (status == SANDBOX_OK)
        status = sbx_file_path(guest_path, &copy->opening.path, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&copy->wait, call, SANDBOX_FOREVER, error);
    if (status != SANDBOX_OK)
        return status;
    copy->limits = (struct sbx_tree_limits){.max_bytes = copy->options.max_bytes,
                                            .max_entries = copy->options.max_entries,
                                            .max_depth = copy->options.max_depth,
                                            .links = (enum sbx_tree_links)copy->options.links};
    status = sbx_tree_limits_settle(&copy->limits, error);
    if (status != SANDBOX_OK)
        return status;
    copy->opening.max_bytes = copy->limits.max_bytes;
    copy->opening.max_entries = copy->limits.max_entries;
    copy->opening.max_depth = copy->limits.max_depth;
    copy->opening.links = (Sandbox__V1__TreeOpen__Links)copy->limits.links;
    return find_host(host_path, &copy->host, error);
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Links on the way to a place are the caller's own; one at its end is not followed. */
static sandbox_status find_host(const char *path, struct host_place *place, sandbox_error *error)
{
    if (path == NULL || *path == 0)
        return sbx_fail(error, SANDBOX_INVALID, "no path on this machine is given");
    SBX_ON_EXIT(sbx_free_text) char *parent = sbx_copy(path);
    if (parent == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    size_t size = strlen(parent);
    while (size > 1 && parent[size - 1] == '/')
        parent[--size] = 0;
    char *slash = strrchr(parent, '/');
    const char *name = slash == NULL ? parent : slash + 1;
    if (*name == 0 || is_dots(name)) {
        place->name = sbx_copy("."); /* the directory itself */
    } else {
        place->name = sbx_copy(name);
        if (slash == NULL)
            memcpy(parent, ".", 2);
        else
            slash[slash == parent ? 1 : 0] = 0;
    }
    if (place->name == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    place->parent = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (place->parent < 0)
        return sbx_fail_errno(error, errno, "cannot open the directory '%s'", parent);
    return SANDBOX_OK;
}

static void end(struct copy *copy)
{
    sbx_stream_free(copy->stream);
    sbx_close_fd(&copy->host.parent);
    free(copy->host.name);
}

static sandbox_status never_well(sandbox_status status, sandbox_error *error)
{
    if (status != SANDBOX_CLOSED)
        return status;
    return sbx_fail_for(error, SANDBOX_FAILED, "malformed-answer",
                        "the agent ended the copy before its end");
}

static sandbox_status send_tree(struct copy *copy, struct sbx_packer *packer,
                                sandbox_error *error)
{
    struct sbx_bytes archive = SBX_BYTES(ARCHIVE_MAX);
    sandbox_status status = SANDBOX_OK;
    bool done = false;
    while (status == SANDBOX_OK && !done) {
        status = sbx_wait_check(&copy->wait, error);
        if (status == SANDBOX_OK)
            status = sbx_packer_next(packer, &archive, BATCH, &done, error);
        if (status == SANDBOX_OK)
            status = never_well(send_archive(copy, &archive, error), error);
        if (status == SANDBOX_OK)
            tell_progress(copy, sbx_packer_count(packer), sbx_packer_path(packer), false);
    }
    sbx_bytes_free(&archive);
    return status;
}

static sandbox_status send_archive(struct copy *copy, struct sbx_bytes *archive,
                                   sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    while (status == SANDBOX_OK && sbx_bytes_size(archive) > 0) {
        Sandbox__V1__TreeChunk message = SANDBOX__V1__TREE_CHUNK__INIT;
        size_t size = sbx_bytes_size(archive);
        if (size > SBX_FILE_PIECE)
            size = SBX_FILE_PIECE;
        message.data = sbx_file_binary(sbx_bytes_data(archive), size);
        status = sbx_stream_send(copy->stream, &message.base, &copy->wait, error);
        sbx_bytes_skip(archive, size);
    }
    return status;
}

static sandbox_status end_upload(struct copy *copy, const struct sbx_tree_count *count,
                                 sandbox_copy_result *result, sandbox_error *error)
{
    Sandbox__V1__TreeChunk message = SANDBOX__V1__TREE_CHUNK__INIT;
    SBX_ON_EXIT(sbx_file_free_message) ProtobufCMessage *answer = NULL;
    message.end = true;
    sandbox_status status =
        never_well(sbx_stream_send(copy->stream, &message.base, &copy->wait, error), error);
    if (status != SANDBOX_OK)
        return status;
    sbx_stream_end(copy->stream);
    status = sbx_stream_next(copy->stream, &sandbox__v1__tree_reply__descriptor, &copy->wait,
                             &answer, error);
    if (status != SANDBOX_OK)
        return sbx_file_answer_lost(never_well(status, error), error);
    const Sandbox__V1__TreeReply *reply = (const Sandbox__V1__TreeReply *)(void *)answer;
    if (reply->bytes != count->bytes)
        return sbx_fail_for(error, SANDBOX_FAILED, "malformed-answer",
                            "the agent took another number of bytes than was sent");
    const sandbox_copy_result told = {.bytes = count->bytes, .entries = count->entries,
                                      .skipped = count->skipped + reply->skipped};
    return result == NULL ? SANDBOX_OK : sbx_options_fill(result, &told, sizeof told, error);
}

/* All that an honest archive within the limits can come to. */
static uint64_t most_bytes(const struct sbx_tree_limits *limits)
{
    uint64_t headers = limits->max_entries > UINT64_MAX / 2 / HEADERS_OF_ENTRY
                           ? UINT64_MAX / 2
                           : limits->max_entries * HEADERS_OF_ENTRY;
    uint64_t content = limits->max_bytes > UINT64_MAX / 4 ? UINT64_MAX / 4 : limits->max_bytes;
    return headers + content + HEADERS_SPARE;
}

static sandbox_status take_tree(struct copy *copy, struct sbx_unpacker *unpacker,
                                ProtobufCMessage **message, uint64_t *skipped,
                                sandbox_error *error)
{
    uint64_t left = most_bytes(&copy->limits);
    sandbox_status status = SANDBOX_OK;
    while (*message != NULL) {
        /* With a fast agent there is always something to take, and no wait to be ended. */
        status = sbx_wait_check(&copy->wait, error);
        if (status != SANDBOX_OK)
            return status;
        const Sandbox__V1__TreeChunk *chunk = (const Sandbox__V1__TreeChunk *)(void *)*message;
        /* An empty message costs as well, or they could come without end. */
        uint64_t cost = chunk->data.len + 64;
        if (cost > left)
            return sbx_fail_for(error, SANDBOX_LIMIT, "archive-too-long",
                                "the agent sends more than the limits allow");
        left -= cost;
        if (chunk->totals != NULL)
            *skipped = chunk->totals->skipped;
        status = sbx_unpacker_feed(unpacker, chunk->data.data, chunk->data.len, error);
        if (status != SANDBOX_OK)
            return status;
        tell_progress(copy, sbx_unpacker_count(unpacker), sbx_unpacker_path(unpacker), false);
        sbx_file_free_message(message);
        *message = NULL;
        status = sbx_stream_next(copy->stream, &sandbox__v1__tree_chunk__descriptor, &copy->wait,
                                 message, error);
        if (status != SANDBOX_OK && status != SANDBOX_CLOSED)
            return status;
    }
    return SANDBOX_OK;
}

static void tell_progress(struct copy *copy, const struct sbx_tree_count *count,
                          const char *path, bool last)
{
    if (copy->options.progress == NULL)
        return;
    int64_t now = sbx_clock_monotonic(&sbx_system_clock);
    if (!last && now - copy->told_ms < PROGRESS_MS)
        return;
    copy->told_ms = now;
    const sandbox_copy_progress progress = {.size = sizeof progress,
                                            .bytes = count->bytes,
                                            .bytes_total = last ? count->bytes : 0,
                                            .entries = count->entries,
                                            .path = path};
    copy->options.progress(&progress, copy->options.user_data);
}
