/* What a process reads: written once, in order, whatever happens to the connection. */

#include "process_parts.h"
#include "util/fail.h"
#include "util/memory.h"

#define CALL_MS 30000u
#define AHEAD_MAX 4 /* requests under way */

static sandbox_status write_all(sandbox_process *process, const uint8_t *data, size_t size,
                                bool end, const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status write_in_turn(sandbox_process *process, const uint8_t *data, size_t size,
                                    bool end, const struct sbx_wait *wait, sandbox_error *error);
static size_t write_ahead(sandbox_process *process, const uint8_t *data, size_t size,
                          uint64_t *sent_until, const struct sbx_wait *wait);
static sandbox_status learn_offset(sandbox_process *process, const struct sbx_wait *wait,
                                   sandbox_error *error);
static sandbox_status write_piece(sandbox_process *process, const uint8_t *data, size_t size,
                                  bool end, const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status note_written(sandbox_process *process, size_t size, uint64_t written,
                                   sandbox_error *error);

static void free_message(ProtobufCMessage **message)
{
    if (*message != NULL)
        protobuf_c_message_free_unpacked(*message, NULL);
}

sandbox_status sandbox_process_write(sandbox_process *process, const void *data, size_t data_size,
                                     const sandbox_call *call, sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_status status = sbx_process_check(process, error);
    if (status == SANDBOX_OK && data == NULL && data_size > 0)
        status = sbx_fail(error, SANDBOX_INVALID, "no bytes to write are given");
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, SANDBOX_FOREVER, error);
    if (status == SANDBOX_OK && data_size > 0)
        status = write_all(process, data, data_size, false, &wait, error);
    return process == NULL ? status : sbx_process_about(process, status, error);
}

sandbox_status sandbox_process_end_input(sandbox_process *process, const sandbox_call *call,
                                         sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_status status = sbx_process_check(process, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, CALL_MS, error);
    if (status == SANDBOX_OK)
        status = write_all(process, NULL, 0, true, &wait, error);
    return process == NULL ? status : sbx_process_about(process, status, error);
}

void sbx_write_request(const sandbox_process *process, const void *data, size_t size, bool end,
                       Sandbox__V1__WriteRequest *request)
{
    sandbox__v1__write_request__init(request);
    request->id = sbx_binary(process->id_bytes, SBX_ID_BYTES);
    request->offset = process->input_offset;
    request->data = sbx_binary(data, size);
    request->end = end;
}

static sandbox_status write_all(sandbox_process *process, const uint8_t *data, size_t size,
                                bool end, const struct sbx_wait *wait, sandbox_error *error)
{
    sandbox_status status = sbx_process_take_turn(process, &process->writing, wait, error);
    if (status != SANDBOX_OK)
        return status;
    if (process->input_ended && !end)
        status = sbx_fail_for(error, SANDBOX_CLOSED, "input-ended",
                              "the process's input was ended before");
    else if (!process->input_ended)
        status = write_in_turn(process, data, size, end, wait, error);
    sbx_process_leave_turn(process, &process->writing);
    return status;
}

static sandbox_status write_in_turn(sandbox_process *process, const uint8_t *data, size_t size,
                                    bool end, const struct sbx_wait *wait, sandbox_error *error)
{
    sandbox_status status = learn_offset(process, wait, error);
    uint64_t sent_until = 0;
    while (status == SANDBOX_OK && size > 0) {
        size_t piece = size < SBX_INPUT_PIECE ? size : SBX_INPUT_PIECE;
        size_t written = size > piece ? write_ahead(process, data, size, &sent_until, wait) : 0;
        if (written == 0) {
            uint64_t expected = process->input_offset + piece;
            status = write_piece(process, data, piece, false, wait, error);
            /* More is written: by what was under way when the connection broke, or by others. */
            if (status == SANDBOX_OK && expected < sent_until)
                process->input_offset = expected;
            written = piece;
        }
        data += written;
        size -= written;
    }
    if (status == SANDBOX_OK && end) {
        status = write_piece(process, NULL, 0, true, wait, error);
        process->input_ended = status == SANDBOX_OK && process->piped;
    }
    return status;
}

/* A request whose answer has not come. */
struct ahead {
    struct sbx_stream *stream;
    size_t size;
};

static sandbox_status send_ahead(sandbox_process *process, const uint8_t *data, size_t size,
                                 const struct sbx_wait *wait, struct ahead *ahead)
{
    Sandbox__V1__WriteRequest request;
    sbx_write_request(process, data, size, false, &request);
    sandbox_status status = sbx_workspace_stream(
        process->workspace, "/sandbox.v1.Processes/Write", wait, &ahead->stream, NULL);
    if (status != SANDBOX_OK)
        return status;
    ahead->size = size;
    status = sbx_stream_send(ahead->stream, &request.base, wait, NULL);
    sbx_stream_end(ahead->stream);
    /* The next one must not overtake it. */
    return status == SANDBOX_OK ? sbx_stream_flush(ahead->stream, wait, NULL) : status;
}

static sandbox_status meet_answer(struct ahead *ahead, const struct sbx_wait *wait)
{
    SBX_ON_EXIT(free_message) ProtobufCMessage *reply = NULL;
    sandbox_status status = sbx_stream_next(
        ahead->stream, &sandbox__v1__write_reply__descriptor, wait, &reply, NULL);
    if (status == SANDBOX_OK) {
        ProtobufCMessage *more = NULL;
        status = sbx_stream_next(ahead->stream, &sandbox__v1__write_reply__descriptor, wait,
                                 &more, NULL);
        free_message(&more);
    }
    return status == SANDBOX_CLOSED && reply != NULL ? SANDBOX_OK : SANDBOX_UNAVAILABLE;
}

/*
 * Much input: a few requests are under way at a time, so that the connection is not idle while an
 * answer comes. Returns how many bytes are surely written. After the first failure of any kind the
 * rest is left to write_piece(), which sends it again by its offset and knows what to say.
 */
static size_t write_ahead(sandbox_process *process, const uint8_t *data, size_t size,
                          uint64_t *sent_until, const struct sbx_wait *wait)
{
    struct ahead under_way[AHEAD_MAX] = {{NULL, 0}};
    uint64_t begin = process->input_offset;
    size_t sent = 0, written = 0;
    unsigned first = 0, count = 0;
    bool good = true;
    while (good && written < size) {
        if (count < AHEAD_MAX && sent < size) {
            size_t piece = size - sent < SBX_INPUT_PIECE ? size - sent : SBX_INPUT_PIECE;
            process->input_offset = begin + sent;
            good = send_ahead(process, data + sent, piece, wait,
                              &under_way[(first + count) % AHEAD_MAX]) == SANDBOX_OK;
            sent += piece;
            count++;
            continue;
        }
        struct ahead *oldest = &under_way[first];
        good = meet_answer(oldest, wait) == SANDBOX_OK;
        written += good ? oldest->size : 0;
        sbx_stream_free(oldest->stream);
        *oldest = (struct ahead){NULL, 0};
        first = (first + 1) % AHEAD_MAX;
        count--;
    }
    for (unsigned at = 0; at < AHEAD_MAX; at++)
        sbx_stream_free(under_way[at].stream);
    process->input_offset = begin + written;
    *sent_until = begin + sent;
    return written;
}

/* Somebody else may have written before, or a write of ours broke off: the agent knows. */
static sandbox_status learn_offset(sandbox_process *process, const struct sbx_wait *wait,
                                   sandbox_error *error)
{
    if (process->input_known)
        return SANDBOX_OK;
    process->input_offset = 0;
    return write_piece(process, NULL, 0, false, wait, error);
}

/* Sent again after a lost connection: the agent knows by its offset what it has. */
static sandbox_status write_piece(sandbox_process *process, const uint8_t *data, size_t size,
                                  bool end, const struct sbx_wait *wait, sandbox_error *error)
{
    Sandbox__V1__WriteRequest request;
    sbx_write_request(process, data, size, end, &request);
    process->input_known = false;
    for (unsigned failures = 1;; failures++) {
        SBX_ON_EXIT(free_message) ProtobufCMessage *reply = NULL;
        sandbox_status status = sbx_workspace_call(
            process->workspace, "/sandbox.v1.Processes/Write", &request.base, true,
            &sandbox__v1__write_reply__descriptor, wait, &reply, error);
        if (status == SANDBOX_OK)
            return note_written(process, size,
                                ((const Sandbox__V1__WriteReply *)(void *)reply)->written, error);
        if (status == SANDBOX_UNAVAILABLE && failures < SBX_TRIES)
            status = sbx_wait_pause(wait, 10u << failures, error);
        if (status != SANDBOX_OK)
            return status;
    }
}

static sandbox_status note_written(sandbox_process *process, size_t size, uint64_t written,
                                   sandbox_error *error)
{
    if (written < process->input_offset + size)
        return sbx_fail_for(error, SANDBOX_FAILED, "malformed-answer",
                            "the agent did not take all of the input, and did not say why");
    process->input_offset = written;
    process->input_known = true;
    return SANDBOX_OK;
}
