/* Reading files: piece by piece, or whole. */

#include "files_parts.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/options.h"

#define WHOLE_MS 600000u
#define LIMIT_DEFAULT ((size_t)256 << 20)

#define DATA_FIELD 2u /* of FileChunk */

struct sandbox_file_reader {
    sandbox_workspace *workspace;
    struct sbx_stream *stream;
    struct sbx_turn turn;
    ProtobufCMessage *message; /* what was given out last, or the first one before that */
    struct sbx_lent lent;      /* the bytes of `message`, where they are many */
    bool waiting;              /* `message` was not given out yet */
    bool ended;
    uint64_t offset; /* of the next piece */
    uint64_t file_size;
};

static sandbox_status open_reader(sandbox_workspace *workspace, const char *path,
                                  const sandbox_read_options *options,
                                  const struct sbx_wait *wait, sandbox_file_reader **out,
                                  sandbox_error *error);
static sandbox_status next(sandbox_file_reader *reader, const struct sbx_wait *wait,
                           const uint8_t **data, size_t *data_size, sandbox_error *error);
static sandbox_status read_all(sandbox_file_reader *reader, size_t limit,
                               const struct sbx_wait *wait, uint8_t **data, size_t *data_size,
                               sandbox_error *error);

static void free_reader(sandbox_file_reader **reader)
{
    sandbox_file_reader_free(*reader);
}

static void free_bytes(uint8_t **data)
{
    free(*data);
}

sandbox_status sandbox_file_reader_open(sandbox_workspace *workspace, const char *path,
                                        const sandbox_read_options *given,
                                        const sandbox_call *call, sandbox_file_reader **out,
                                        sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_read_options options;
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK && out == NULL)
        status = sbx_fail(error, SANDBOX_INVALID, "no place to put the reader");
    if (status == SANDBOX_OK)
        status = sbx_options_adopt(&options, sizeof options, given, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, SBX_FILE_CALL_MS, error);
    if (status == SANDBOX_OK)
        status = open_reader(workspace, path, &options, &wait, out, error);
    return status;
}

sandbox_status sandbox_file_reader_next(sandbox_file_reader *reader, const sandbox_call *call,
                                        const uint8_t **data, size_t *data_size,
                                        sandbox_error *error)
{
    struct sbx_wait wait;
    if (reader == NULL || data == NULL || data_size == NULL)
        return sbx_fail(error, SANDBOX_INVALID, "no reader, or no place to put the piece");
    sandbox_status status = sbx_workspace_check(reader->workspace, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, SBX_FILE_CALL_MS, error);
    if (status == SANDBOX_OK)
        status = sbx_turn_take(&reader->turn, &wait, error);
    if (status != SANDBOX_OK)
        return status;
    status = next(reader, &wait, data, data_size, error);
    sbx_turn_leave(&reader->turn);
    return status;
}

void sandbox_file_reader_free(sandbox_file_reader *reader)
{
    if (reader == NULL)
        return;
    sbx_lent_free(reader->stream, &reader->lent);
    sbx_stream_free(reader->stream);
    sbx_file_free_message(&reader->message);
    sbx_turn_destroy(&reader->turn);
    sbx_workspace_drop(reader->workspace);
    free(reader);
}

sandbox_status sandbox_file_read(sandbox_workspace *workspace, const char *path,
                                 const sandbox_read_options *given, const sandbox_call *call,
                                 uint8_t **data, size_t *data_size, sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_read_options options;
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK && (data == NULL || data_size == NULL))
        status = sbx_fail(error, SANDBOX_INVALID, "no place to put the content");
    if (status == SANDBOX_OK)
        status = sbx_options_adopt(&options, sizeof options, given, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, WHOLE_MS, error);
    SBX_ON_EXIT(free_reader) sandbox_file_reader *reader = NULL;
    if (status == SANDBOX_OK)
        status = open_reader(workspace, path, &options, &wait, &reader, error);
    if (status == SANDBOX_OK)
        status = read_all(reader, options.limit == 0 ? LIMIT_DEFAULT : options.limit, &wait, data,
                          data_size, error);
    return status;
}

static sandbox_status open_reader(sandbox_workspace *workspace, const char *path,
                                  const sandbox_read_options *options,
                                  const struct sbx_wait *wait, sandbox_file_reader **out,
                                  sandbox_error *error)
{
    Sandbox__V1__ReadRequest request = SANDBOX__V1__READ_REQUEST__INIT;
    sandbox_status status = sbx_file_path(path, &request.path, error);
    if (status != SANDBOX_OK)
        return status;
    request.offset = options->offset;
    request.length = options->length;
    request.follow_out = options->follow_out;
    sandbox_file_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL || !sbx_turn_init(&reader->turn)) {
        free(reader);
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a reader");
    }
    reader->workspace = sbx_workspace_keep(workspace);
    reader->offset = options->offset;
    /* The first message tells whether there is such a file. */
    status = sbx_file_ask(workspace, "/sandbox.v1.Files/Read", &request.base,
                          &sandbox__v1__file_chunk__descriptor, wait, &reader->stream,
                          &reader->message, error);
    if (status != SANDBOX_OK) {
        sandbox_file_reader_free(reader);
        return status;
    }
    reader->waiting = reader->message != NULL;
    reader->ended = !reader->waiting;
    if (reader->waiting)
        reader->file_size = ((const Sandbox__V1__FileChunk *)(void *)reader->message)->file_size;
    *out = reader;
    return SANDBOX_OK;
}

static sandbox_status next(sandbox_file_reader *reader, const struct sbx_wait *wait,
                           const uint8_t **data, size_t *data_size, sandbox_error *error)
{
    for (;;) {
        if (!reader->waiting) {
            sbx_file_free_message(&reader->message);
            reader->message = NULL;
            sbx_lent_free(reader->stream, &reader->lent);
        }
        sandbox_status status = SANDBOX_OK;
        if (!reader->waiting && !reader->ended)
            status = sbx_stream_next_lent(reader->stream, &sandbox__v1__file_chunk__descriptor,
                                          DATA_FIELD, wait, &reader->message, &reader->lent,
                                          error);
        if (status != SANDBOX_OK && status != SANDBOX_CLOSED)
            return status;
        reader->ended = reader->ended || status == SANDBOX_CLOSED;
        reader->waiting = false;
        if (reader->ended) {
            *data = (const uint8_t *)"";
            *data_size = 0;
            return SANDBOX_OK;
        }
        const Sandbox__V1__FileChunk *chunk =
            (const Sandbox__V1__FileChunk *)(void *)reader->message;
        const uint8_t *bytes = chunk->data.len > 0 ? chunk->data.data : reader->lent.data;
        size_t size = chunk->data.len > 0 ? chunk->data.len : reader->lent.size;
        if (size > 0 && chunk->offset != reader->offset)
            return sbx_fail_for(error, SANDBOX_FAILED, "malformed-answer",
                                "the agent sent another piece of the file than comes next");
        if (size == 0)
            continue; /* an empty file's first message */
        reader->offset += size;
        *data = bytes;
        *data_size = size;
        return SANDBOX_OK;
    }
}

static sandbox_status grow(uint8_t **content, size_t *capacity, size_t wanted)
{
    if (wanted <= *capacity)
        return SANDBOX_OK;
    size_t larger = *capacity > SIZE_MAX / 2 ? wanted : *capacity * 2;
    if (larger < wanted)
        larger = wanted;
    uint8_t *moved = realloc(*content, larger);
    if (moved == NULL)
        return SANDBOX_NO_MEMORY;
    *content = moved;
    *capacity = larger;
    return SANDBOX_OK;
}

static sandbox_status read_all(sandbox_file_reader *reader, size_t limit,
                               const struct sbx_wait *wait, uint8_t **data, size_t *data_size,
                               sandbox_error *error)
{
    SBX_ON_EXIT(free_bytes) uint8_t *content = NULL;
    size_t size = 0, capacity = 0;
    /* The agent's word on the size saves moving, but is not believed beyond a few MiB. */
    size_t hint = reader->file_size < (4u << 20) ? (size_t)reader->file_size : 4u << 20;
    sandbox_status status = grow(&content, &capacity, hint + 1);
    while (status == SANDBOX_OK) {
        const uint8_t *piece;
        size_t piece_size;
        status = sbx_wait_check(wait, error);
        if (status == SANDBOX_OK)
            status = next(reader, wait, &piece, &piece_size, error);
        if (status != SANDBOX_OK)
            return status;
        if (piece_size == 0) {
            content[size] = 0;
            *data_size = size;
            *data = sbx_take(content);
            return SANDBOX_OK;
        }
        if (piece_size > limit - size)
            return sbx_fail_for(error, SANDBOX_LIMIT, "limit",
                                "the file holds more than the %zu bytes that are allowed; raise "
                                "`limit` or read it piece by piece",
                                limit);
        status = grow(&content, &capacity, size + piece_size + 1);
        if (status == SANDBOX_OK)
            memcpy(content + size, piece, piece_size);
        size += piece_size;
    }
    return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for the file's content");
}
