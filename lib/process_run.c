/*
 * Run a command to its end: one thread feeds it and reads both streams, so that neither side can
 * wait for the other.
 */

#include "process_parts.h"
#include "util/bytes.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"
#include "util/options.h"
#include <poll.h>
#include <signal.h>

#define OUTPUT_LIMIT (16u << 20)
#define KILL_MS 5000u
#define CHECK_ROUNDS 16 /* events between two looks at the clock */

struct result {
    sandbox_process_result shown; /* first: it is what the caller holds */
    uint8_t *output, *errors;
};

struct run {
    sandbox_process *process;
    const struct sbx_wait *wait;
    struct sbx_bytes output, errors;
    uint64_t output_total, errors_total;
    const uint8_t *input;
    size_t input_left;
    bool input_open;
    struct sbx_stream *writing; /* a Write that is under way */
    size_t writing_size;
    bool writing_end;
    unsigned write_failures;
    sandbox_process_exit exit;
    bool ended;
};

static sandbox_status settle(const sandbox_process_options *given,
                             const sandbox_run_options *run_given,
                             sandbox_process_options *options, sandbox_run_options *run_options,
                             sandbox_error *error);
static sandbox_status run_settled(sandbox_workspace *workspace,
                                  const sandbox_process_options *options,
                                  const sandbox_run_options *run_options,
                                  const struct sbx_wait *wait, sandbox_process_result **out,
                                  sandbox_error *error);
static bool should_kill(sandbox_status status, const sandbox_run_options *run_options);
static sandbox_status carry(struct run *run, sandbox_error *error);
static sandbox_status feed(struct run *run, sandbox_error *error);
static sandbox_status begin_write(struct run *run, sandbox_error *error);
static sandbox_status end_write(struct run *run, sandbox_error *error);
static sandbox_status note_write_failure(struct run *run, sandbox_status status,
                                         sandbox_error *error);
static void stop_writing(struct run *run);
static sandbox_status absorb(struct run *run, bool *nothing, sandbox_error *error);
static sandbox_status keep_bytes(struct sbx_bytes *kept, uint64_t *total,
                                 const sandbox_process_event *event, sandbox_error *error);
static void kill_it(sandbox_process *process);
static sandbox_status make_result(struct run *run, sandbox_process_result **out,
                                  sandbox_error *error);

static void free_process(sandbox_process **process)
{
    sandbox_process_free(*process);
}

static void clear_run(struct run *run)
{
    stop_writing(run);
    sbx_bytes_free(&run->output);
    sbx_bytes_free(&run->errors);
}

sandbox_status sandbox_process_run(sandbox_workspace *workspace,
                                   const sandbox_process_options *options,
                                   const sandbox_run_options *run_options,
                                   const sandbox_call *call, sandbox_process_result **out,
                                   sandbox_error *error)
{
    sandbox_process_options what;
    sandbox_run_options how;
    struct sbx_wait wait;
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK && (options == NULL || out == NULL))
        status = sbx_fail(error, SANDBOX_INVALID,
                          options == NULL ? "nothing to run: options must be given"
                                          : "no place to put the result");
    if (status == SANDBOX_OK)
        status = settle(options, run_options, &what, &how, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, SANDBOX_FOREVER, error);
    char fresh[SBX_ID_TEXT] = "";
    if (status == SANDBOX_OK && what.id == NULL && !sbx_id_fresh(fresh))
        status = sbx_fail(error, SANDBOX_FAILED, "the kernel gives no random bytes");
    if (status != SANDBOX_OK)
        return status;
    what.id = what.id == NULL ? fresh : what.id;
    return run_settled(workspace, &what, &how, &wait, out, error);
}

void sandbox_process_result_free(sandbox_process_result *result)
{
    if (result == NULL)
        return;
    struct result *whole = (struct result *)(void *)result;
    free(whole->output);
    free(whole->errors);
    free(whole);
}

static sandbox_status settle(const sandbox_process_options *given,
                             const sandbox_run_options *run_given,
                             sandbox_process_options *options, sandbox_run_options *run_options,
                             sandbox_error *error)
{
    sandbox_status status = sbx_options_adopt(options, sizeof *options, given, error);
    if (status == SANDBOX_OK)
        status = sbx_options_adopt(run_options, sizeof *run_options, run_given, error);
    if (status == SANDBOX_OK)
        status = sbx_process_options_check(options, error);
    if (status == SANDBOX_OK && run_options->input == NULL && run_options->input_size > 0)
        status = sbx_fail(error, SANDBOX_INVALID, "input_size is given, and no input");
    if (status != SANDBOX_OK)
        return status;
    /* Nobody could write to it while this function has it. */
    options->input = run_options->input == NULL ? SANDBOX_INPUT_NONE : SANDBOX_INPUT_PIPE;
    if (run_options->output_limit == 0)
        run_options->output_limit = OUTPUT_LIMIT;
    if (run_options->output_limit > SIZE_MAX / 4)
        run_options->output_limit = SIZE_MAX / 4;
    return SANDBOX_OK;
}

static sandbox_status run_settled(sandbox_workspace *workspace,
                                  const sandbox_process_options *options,
                                  const sandbox_run_options *run_options,
                                  const struct sbx_wait *wait, sandbox_process_result **out,
                                  sandbox_error *error)
{
    SBX_ON_EXIT(free_process) sandbox_process *process = NULL;
    sandbox_status status = sbx_process_new(workspace, options->id, &process, error);
    if (status != SANDBOX_OK)
        return status;
    SBX_ON_EXIT(clear_run) struct run run = {
        .process = process,
        .wait = wait,
        .output = SBX_BYTES(run_options->output_limit + 1),
        .errors = SBX_BYTES(run_options->output_limit + 1),
        .input = run_options->input,
        .input_left = run_options->input_size,
        .input_open = run_options->input != NULL,
    };
    status = sbx_process_ask_start(process, options, wait, error);
    if (status == SANDBOX_OK)
        status = carry(&run, error);
    if (status == SANDBOX_OK)
        return sbx_process_about(process, make_result(&run, out, error), error);
    if (should_kill(status, run_options))
        kill_it(process);
    return sbx_process_about(process, status, error);
}

/* Not where the connection is in doubt: the caller is told the id and may look. */
static bool should_kill(sandbox_status status, const sandbox_run_options *run_options)
{
    return !run_options->leave_running &&
           (status == SANDBOX_TIMED_OUT || status == SANDBOX_CANCELLED ||
            status == SANDBOX_NO_MEMORY || status == SANDBOX_FAILED);
}

static sandbox_status carry(struct run *run, sandbox_error *error)
{
    int descriptor = sandbox_process_descriptor(run->process);
    if (descriptor < 0)
        return sbx_fail(error, SANDBOX_LIMIT, "this program has no descriptors left");
    for (unsigned round = 1; !run->ended; round++) {
        sandbox_status status = SANDBOX_OK;
        bool nothing = false;
        /* Output that never pauses must not hide a deadline or a cancel. */
        if (round % CHECK_ROUNDS == 0)
            status = sbx_wait_check(run->wait, error);
        if (status == SANDBOX_OK)
            status = feed(run, error);
        if (status == SANDBOX_OK)
            status = absorb(run, &nothing, error);
        if (status == SANDBOX_OK && nothing)
            status = sbx_wait_descriptor(run->wait, descriptor, POLLIN, error);
        if (status != SANDBOX_OK)
            return status;
    }
    return SANDBOX_OK;
}

static sandbox_status feed(struct run *run, sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    if (run->writing != NULL && sbx_stream_is_ready(run->writing))
        status = end_write(run, error);
    if (status == SANDBOX_OK && run->writing == NULL && run->input_open)
        status = begin_write(run, error);
    return status;
}

/* Not sandbox_process_write(), which waits for the process to read. */
static sandbox_status begin_write(struct run *run, sandbox_error *error)
{
    sandbox_process *process = run->process;
    sandbox_status status = sbx_workspace_stream(
        process->workspace, "/sandbox.v1.Processes/Write", run->wait, &run->writing, error);
    if (status != SANDBOX_OK)
        return note_write_failure(run, status, error);
    run->writing_size = run->input_left < SBX_INPUT_PIECE ? run->input_left : SBX_INPUT_PIECE;
    run->writing_end = run->writing_size == run->input_left;
    Sandbox__V1__WriteRequest request;
    sbx_write_request(process, run->input, run->writing_size, run->writing_end, &request);
    status = sbx_stream_send(run->writing, &request.base, run->wait, error);
    if (status != SANDBOX_OK)
        return note_write_failure(run, status, error);
    sbx_stream_end(run->writing);
    int descriptor = sbx_stream_descriptor(run->writing);
    if (descriptor < 0)
        return sbx_fail(error, SANDBOX_LIMIT, "this program has no descriptors left");
    sbx_process_watch(process, descriptor, true);
    return SANDBOX_OK;
}

static sandbox_status end_write(struct run *run, sandbox_error *error)
{
    sandbox_error own = {0};
    ProtobufCMessage *reply = NULL;
    sandbox_status status = sbx_stream_next(
        run->writing, &sandbox__v1__write_reply__descriptor, run->wait, &reply, &own);
    if (status != SANDBOX_OK) {
        status = note_write_failure(run, status, &own);
        if (status != SANDBOX_OK && error != NULL)
            *error = own;
        return status;
    }
    uint64_t written = ((const Sandbox__V1__WriteReply *)(void *)reply)->written;
    protobuf_c_message_free_unpacked(reply, NULL);
    stop_writing(run);
    run->write_failures = 0;
    if (written != run->process->input_offset + run->writing_size)
        return sbx_fail_for(error, SANDBOX_FAILED, "malformed-answer",
                            "the agent did not take all of the input, and did not say why");
    run->process->input_offset = written;
    run->input += run->writing_size;
    run->input_left -= run->writing_size;
    run->input_open = !run->writing_end;
    return SANDBOX_OK;
}

/*
 * A process that reads no more is no failure of the run. A piece whose answer was lost is sent
 * again: the agent knows by its offset what it has.
 */
static sandbox_status note_write_failure(struct run *run, sandbox_status status,
                                         sandbox_error *error)
{
    stop_writing(run);
    if (error != NULL && sbx_workspace_is_refused(status, error))
        return sbx_workspace_begin_again(run->process->workspace, status, run->wait, error);
    if (status == SANDBOX_UNAVAILABLE && ++run->write_failures < SBX_TRIES)
        return sbx_wait_pause(run->wait, 10u << run->write_failures, error);
    bool unwanted = status == SANDBOX_CLOSED || status == SANDBOX_FAILED;
    run->input_open = !unwanted;
    return unwanted ? SANDBOX_OK : status;
}

static void stop_writing(struct run *run)
{
    if (run->writing == NULL)
        return;
    sbx_process_watch(run->process, sbx_stream_descriptor(run->writing), false);
    sbx_stream_free(sbx_take(run->writing));
}

static sandbox_status absorb(struct run *run, bool *nothing, sandbox_error *error)
{
    static const struct sbx_wait look = {.deadline_ms = 0};
    sandbox_error own = {0};
    sandbox_process_event event;
    sandbox_status status = sbx_process_take(run->process, &look, run->wait, &event, &own);
    *nothing = status == SANDBOX_TIMED_OUT && run->process->stream != NULL;
    if (*nothing)
        return SANDBOX_OK;
    if (status != SANDBOX_OK) {
        if (error != NULL)
            *error = own;
        return status;
    }
    if (event.kind == SANDBOX_PROCESS_STDOUT)
        return keep_bytes(&run->output, &run->output_total, &event, error);
    if (event.kind == SANDBOX_PROCESS_STDERR)
        return keep_bytes(&run->errors, &run->errors_total, &event, error);
    run->exit = event.exit;
    run->ended = true;
    return SANDBOX_OK;
}

/* The first bytes of each stream are kept, the rest is read and counted. */
static sandbox_status keep_bytes(struct sbx_bytes *kept, uint64_t *total,
                                 const sandbox_process_event *event, sandbox_error *error)
{
    bool whole = sbx_bytes_size(kept) == *total && event->dropped == 0;
    *total += event->dropped + event->data_size;
    size_t room = kept->limit - 1 - sbx_bytes_size(kept);
    size_t size = event->data_size < room ? event->data_size : room;
    if (whole && !sbx_bytes_append(kept, event->data, size))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for %zu more bytes of output", size);
    return SANDBOX_OK;
}

static void kill_it(sandbox_process *process)
{
    struct sbx_wait wait = sbx_wait_alone(KILL_MS);
    sandbox_error error;
    sandbox_status status = sbx_process_kill(process, SIGKILL, true, &wait, &error);
    if (status != SANDBOX_OK && status != SANDBOX_NOT_FOUND && status != SANDBOX_CLOSED)
        sbx_log(SANDBOX_LOG_WARNING, "process '%s' may still run: it could not be killed: %s",
                process->id, error.message);
}

static sandbox_status make_result(struct run *run, sandbox_process_result **out,
                                  sandbox_error *error)
{
    struct result *result = calloc(1, sizeof *result);
    uint8_t *output_end = sbx_bytes_room(&run->output, 1);
    uint8_t *errors_end = sbx_bytes_room(&run->errors, 1);
    if (result == NULL || output_end == NULL || errors_end == NULL) {
        free(result);
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a result");
    }
    *output_end = *errors_end = 0;
    result->shown = (sandbox_process_result){
        .size = sizeof result->shown,
        .exit = run->exit,
        .output_size = sbx_bytes_size(&run->output),
        .errors_size = sbx_bytes_size(&run->errors),
        .output_total = run->output_total,
        .errors_total = run->errors_total,
    };
    result->shown.output_truncated = result->shown.output_size < run->output_total;
    result->shown.errors_truncated = result->shown.errors_size < run->errors_total;
    result->shown.output = result->output = sbx_take(run->output.memory);
    result->shown.errors = result->errors = sbx_take(run->errors.memory);
    *out = &result->shown;
    return SANDBOX_OK;
}
