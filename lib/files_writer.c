/* Writing files: nobody sees the content before the commit. */

#include "files_parts.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/options.h"

#define COMMIT_MS 120000u /* the content goes to the disk */
#define WHOLE_MS  600000u

struct sandbox_file_writer {
    sandbox_workspace *workspace;
    struct sbx_stream *stream;
    struct sbx_turn turn;
    bool committed;
    bool broken; /* a call failed: how much of its data went out is not known */
    uint64_t sent;
};

static sandbox_status open_writer(sandbox_workspace *workspace, const char *path,
                                  const sandbox_write_options *options,
                                  const struct sbx_wait *wait, sandbox_file_writer **out,
                                  sandbox_error *error);
static sandbox_status begin(sandbox_file_writer *writer, const struct sbx_wait *wait,
                            sandbox_error *error);
static sandbox_status send_data(sandbox_file_writer *writer, const uint8_t *data, size_t size,
                                const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status commit(sandbox_file_writer *writer, const struct sbx_wait *wait,
                             sandbox_error *error);

static void free_writer(sandbox_file_writer **writer)
{
    sandbox_file_writer_free(*writer);
}

sandbox_status sandbox_file_writer_open(sandbox_workspace *workspace, const char *path,
                                        const sandbox_write_options *given,
                                        const sandbox_call *call, sandbox_file_writer **out,
                                        sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_write_options options;
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK && out == NULL)
        status = sbx_fail(error, SANDBOX_INVALID, "no place to put the writer");
    if (status == SANDBOX_OK)
        status = sbx_options_adopt(&options, sizeof options, given, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, SBX_FILE_CALL_MS, error);
    if (status == SANDBOX_OK)
        status = open_writer(workspace, path, &options, &wait, out, error);
    return status;
}

sandbox_status sandbox_file_writer_write(sandbox_file_writer *writer, const void *data,
                                         size_t data_size, const sandbox_call *call,
                                         sandbox_error *error)
{
    struct sbx_wait wait;
    if (writer == NULL || (data == NULL && data_size > 0))
        return sbx_fail(error, SANDBOX_INVALID, "no writer, or no bytes to write are given");
    sandbox_status status = sbx_wait_begin(&wait, call, SBX_FILE_CALL_MS, error);
    if (status == SANDBOX_OK)
        status = begin(writer, &wait, error);
    if (status != SANDBOX_OK)
        return status;
    status = send_data(writer, data, data_size, &wait, error);
    sbx_turn_leave(&writer->turn);
    return status;
}

sandbox_status sandbox_file_writer_commit(sandbox_file_writer *writer, const sandbox_call *call,
                                          sandbox_error *error)
{
    struct sbx_wait wait;
    if (writer == NULL)
        return sbx_fail(error, SANDBOX_INVALID, "no writer is given");
    sandbox_status status = sbx_wait_begin(&wait, call, COMMIT_MS, error);
    if (status == SANDBOX_OK)
        status = begin(writer, &wait, error);
    if (status != SANDBOX_OK)
        return status;
    status = commit(writer, &wait, error);
    sbx_turn_leave(&writer->turn);
    return status;
}

void sandbox_file_writer_free(sandbox_file_writer *writer)
{
    if (writer == NULL)
        return;
    /* A stream that is reset before its commit leaves nothing. */
    sbx_stream_free(writer->stream);
    sbx_turn_destroy(&writer->turn);
    sbx_workspace_drop(writer->workspace);
    free(writer);
}

static sandbox_status write_whole(sandbox_workspace *workspace, const char *path,
                                  const sandbox_write_options *options, const void *data,
                                  size_t data_size, const struct sbx_wait *wait,
                                  sandbox_error *error)
{
    SBX_ON_EXIT(free_writer) sandbox_file_writer *writer = NULL;
    sandbox_status status = open_writer(workspace, path, options, wait, &writer, error);
    if (status == SANDBOX_OK)
        status = send_data(writer, data, data_size, wait, error);
    return status == SANDBOX_OK ? commit(writer, wait, error) : status;
}

sandbox_status sandbox_file_write(sandbox_workspace *workspace, const char *path,
                                  const void *data, size_t data_size,
                                  const sandbox_write_options *given, const sandbox_call *call,
                                  sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_write_options options;
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK && data == NULL && data_size > 0)
        status = sbx_fail(error, SANDBOX_INVALID, "no bytes to write are given");
    if (status == SANDBOX_OK)
        status = sbx_options_adopt(&options, sizeof options, given, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, WHOLE_MS, error);
    sandbox_error own = {0};
    error = error == NULL ? &own : error;
    while (status == SANDBOX_OK) {
        status = write_whole(workspace, path, &options, data, data_size, &wait, error);
        if (status == SANDBOX_OK)
            return SANDBOX_OK;
        status = sbx_workspace_begin_again(workspace, status, &wait, error);
    }
    return status;
}

static sandbox_status open_writer(sandbox_workspace *workspace, const char *path,
                                  const sandbox_write_options *options,
                                  const struct sbx_wait *wait, sandbox_file_writer **out,
                                  sandbox_error *error)
{
    Sandbox__V1__FileWriteOpen opening = SANDBOX__V1__FILE_WRITE_OPEN__INIT;
    Sandbox__V1__FileWrite message = SANDBOX__V1__FILE_WRITE__INIT;
    sandbox_status status = sbx_file_path(path, &opening.path, error);
    if (status == SANDBOX_OK && options->mode > 07777)
        status = sbx_fail(error, SANDBOX_INVALID, "a mode has 12 bits at most");
    if (status != SANDBOX_OK)
        return status;
    opening.mode = options->mode;
    opening.append = options->append;
    opening.exclusive = options->exclusive;
    opening.no_parents = options->no_parents;
    opening.follow_out = options->follow_out;
    message.open = &opening;
    sandbox_file_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL || !sbx_turn_init(&writer->turn)) {
        free(writer);
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a writer");
    }
    writer->workspace = sbx_workspace_keep(workspace);
    status = sbx_workspace_stream(workspace, "/sandbox.v1.Files/Write", wait, &writer->stream,
                                  error);
    if (status == SANDBOX_OK)
        status = sbx_stream_send(writer->stream, &message.base, wait, error);
    if (status == SANDBOX_OK)
        *out = sbx_take(writer);
    sandbox_file_writer_free(writer);
    return status;
}

static sandbox_status begin(sandbox_file_writer *writer, const struct sbx_wait *wait,
                            sandbox_error *error)
{
    sandbox_status status = sbx_workspace_check(writer->workspace, error);
    if (status == SANDBOX_OK)
        status = sbx_turn_take(&writer->turn, wait, error);
    if (status != SANDBOX_OK || (!writer->committed && !writer->broken))
        return status;
    bool committed = writer->committed;
    sbx_turn_leave(&writer->turn);
    return committed ? sbx_fail_for(error, SANDBOX_CLOSED, "committed",
                                    "the file was committed before")
                     : sbx_fail_for(error, SANDBOX_CLOSED, "broken",
                                    "an earlier call on this writer failed; begin again");
}

/* The agent ended the call before us: that is never well. */
static sandbox_status never_well(sandbox_status status, sandbox_error *error)
{
    if (status != SANDBOX_CLOSED)
        return status;
    return sbx_fail_for(error, SANDBOX_FAILED, "malformed-answer",
                        "the agent ended the call before the commit");
}

static sandbox_status send_data(sandbox_file_writer *writer, const uint8_t *data, size_t size,
                                const struct sbx_wait *wait, sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    while (size > 0 && status == SANDBOX_OK) {
        Sandbox__V1__FileWrite message = SANDBOX__V1__FILE_WRITE__INIT;
        size_t piece = size < SBX_FILE_PIECE ? size : SBX_FILE_PIECE;
        message.data = sbx_file_binary(data, piece);
        status = sbx_wait_check(wait, error);
        if (status == SANDBOX_OK)
            status = never_well(sbx_stream_send(writer->stream, &message.base, wait, error),
                                error);
        data += piece;
        size -= piece;
        writer->sent += piece;
    }
    writer->broken = status != SANDBOX_OK;
    return status;
}

static sandbox_status commit(sandbox_file_writer *writer, const struct sbx_wait *wait,
                             sandbox_error *error)
{
    Sandbox__V1__FileWrite message = SANDBOX__V1__FILE_WRITE__INIT;
    SBX_ON_EXIT(sbx_file_free_message) ProtobufCMessage *reply = NULL;
    message.commit = true;
    writer->broken = true;
    sandbox_status status =
        never_well(sbx_stream_send(writer->stream, &message.base, wait, error), error);
    if (status != SANDBOX_OK)
        return status;
    sbx_stream_end(writer->stream);
    status = sbx_stream_next(writer->stream, &sandbox__v1__file_write_reply__descriptor, wait,
                             &reply, error);
    if (status != SANDBOX_OK)
        return sbx_file_answer_lost(never_well(status, error), error);
    if (((const Sandbox__V1__FileWriteReply *)(void *)reply)->written != writer->sent)
        return sbx_fail_for(error, SANDBOX_FAILED, "malformed-answer",
                            "the agent wrote another number of bytes than was sent");
    writer->committed = true;
    writer->broken = false;
    return SANDBOX_OK;
}
