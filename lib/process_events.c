/* Output of a process and its end, read on over lost connections without a gap or a repetition. */

#include "process_parts.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/options.h"

/* What sandbox_process_descriptor() gives a connection, since it has no deadline of its own. */
#define DESCRIPTOR_MS 5000u
#define DATA_FIELD 3u /* of ProcessEvent */

static sandbox_status pull(sandbox_process *process, const struct sbx_wait *patience,
                           const struct sbx_wait *whole, sandbox_process_event *event,
                           sandbox_error *error);
static sandbox_status next_message(sandbox_process *process, const struct sbx_wait *patience,
                                   const struct sbx_wait *whole, sandbox_error *error);
static sandbox_status attach(sandbox_process *process, const struct sbx_wait *wait,
                             sandbox_error *error);
static sandbox_status recover(sandbox_process *process, sandbox_status status,
                              const struct sbx_wait *whole, sandbox_error *error);
static void set_stream(sandbox_process *process, struct sbx_stream *stream);
static sandbox_status read_event(sandbox_process *process, sandbox_process_event *event,
                                 bool *given, sandbox_error *error);
static sandbox_status read_output(uint64_t offset, ProtobufCBinaryData data, uint64_t *expected,
                                  sandbox_process_event *event, bool *given,
                                  sandbox_error *error);
static void drop_current(sandbox_process *process);

static void free_stream(struct sbx_stream **stream)
{
    sbx_stream_free(*stream);
}

sandbox_status sandbox_process_next(sandbox_process *process, const sandbox_call *call,
                                    sandbox_process_event *event, sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_process_event found = {.size = sizeof found};
    sandbox_status status = sbx_process_check(process, error);
    if (status == SANDBOX_OK && event == NULL)
        status = sbx_fail(error, SANDBOX_INVALID, "no place to put the event");
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, SANDBOX_FOREVER, error);
    if (status != SANDBOX_OK)
        return status;
    status = sbx_process_take(process, &wait, &wait, &found, error);
    if (status == SANDBOX_OK)
        status = sbx_options_fill(event, &found, sizeof found, error);
    return sbx_process_about(process, status, error);
}

int sandbox_process_descriptor(sandbox_process *process)
{
    if (sbx_process_check(process, NULL) != SANDBOX_OK)
        return -1;
    pthread_mutex_lock(&process->mutex);
    bool fresh = process->readiness.descriptor < 0;
    if (sbx_readiness_make(&process->readiness) && fresh && process->stream != NULL)
        sbx_readiness_add(&process->readiness, sbx_stream_descriptor(process->stream));
    int fd = process->readiness.descriptor;
    bool mine = fd >= 0 && process->stream == NULL && !process->reading && !process->end_told;
    process->reading = process->reading || mine;
    pthread_mutex_unlock(&process->mutex);
    if (mine) {
        /* Where this fails the descriptor stays readable, and sandbox_process_next() tells why. */
        struct sbx_wait wait = sbx_wait_alone(DESCRIPTOR_MS);
        (void)attach(process, &wait, NULL);
        sbx_process_leave_turn(process, &process->reading);
    }
    return fd;
}

sandbox_status sbx_process_take(sandbox_process *process, const struct sbx_wait *patience,
                                const struct sbx_wait *whole, sandbox_process_event *event,
                                sandbox_error *error)
{
    sandbox_status status = sbx_process_take_turn(process, &process->reading, patience, error);
    if (status != SANDBOX_OK)
        return status;
    status = pull(process, patience, whole, event, error);
    sbx_process_leave_turn(process, &process->reading);
    return status;
}

sandbox_status sbx_process_meet(sandbox_process *process, const struct sbx_wait *wait,
                                sandbox_error *error)
{
    sandbox_status status = sbx_process_take_turn(process, &process->reading, wait, error);
    if (status != SANDBOX_OK)
        return status;
    status = next_message(process, wait, wait, error);
    if (status == SANDBOX_OK) {
        if (process->current->kind != SANDBOX__V1__PROCESS_EVENT__KIND__KIND_ATTACHED)
            status = sbx_fail_for(error, SANDBOX_FAILED, "malformed-answer",
                                  "the agent did not say that it knows the process");
        process->pid = process->current->pid;
    }
    drop_current(process);
    sbx_process_leave_turn(process, &process->reading);
    return status;
}

void sbx_process_watch(sandbox_process *process, int descriptor, bool wanted)
{
    pthread_mutex_lock(&process->mutex);
    if (wanted)
        sbx_readiness_add(&process->readiness, descriptor);
    else
        sbx_readiness_remove(&process->readiness, descriptor);
    pthread_mutex_unlock(&process->mutex);
}

static sandbox_status pull(sandbox_process *process, const struct sbx_wait *patience,
                           const struct sbx_wait *whole, sandbox_process_event *event,
                           sandbox_error *error)
{
    bool given = false;
    sandbox_status status = SANDBOX_OK;
    while (status == SANDBOX_OK && !given) {
        drop_current(process);
        if (process->end_told)
            return sbx_fail_for(error, SANDBOX_CLOSED, "ended", "the process has ended");
        status = next_message(process, patience, whole, error);
        if (status == SANDBOX_OK)
            status = read_event(process, event, &given, error);
    }
    return status;
}

/* Into process->current; connects again as often as it makes sense. */
static sandbox_status next_message(sandbox_process *process, const struct sbx_wait *patience,
                                   const struct sbx_wait *whole, sandbox_error *error)
{
    sandbox_error own = {0};
    error = error == NULL ? &own : error;
    for (;;) {
        sandbox_status status = SANDBOX_OK;
        if (process->stream == NULL) {
            status = attach(process, whole, error);
            if (status == SANDBOX_CLOSED)
                return status; /* of the workspace: it was deleted, so nothing is unknown */
        }
        ProtobufCMessage *message = NULL;
        if (status == SANDBOX_OK)
            status = sbx_stream_next_lent(process->stream,
                                          &sandbox__v1__process_event__descriptor, DATA_FIELD,
                                          patience, &message, &process->lent, error);
        if (status == SANDBOX_OK) {
            process->current = (Sandbox__V1__ProcessEvent *)(void *)message;
            return SANDBOX_OK;
        }
        status = recover(process, status, whole, error);
        if (status != SANDBOX_OK)
            return status;
    }
}

static sandbox_status attach(sandbox_process *process, const struct sbx_wait *wait,
                             sandbox_error *error)
{
    SBX_ON_EXIT(free_stream) struct sbx_stream *stream = NULL;
    sandbox_status status = sbx_workspace_stream(
        process->workspace, "/sandbox.v1.Processes/Attach", wait, &stream, error);
    if (status != SANDBOX_OK)
        return status;
    Sandbox__V1__AttachRequest request = SANDBOX__V1__ATTACH_REQUEST__INIT;
    request.id = sbx_binary(process->id_bytes, SBX_ID_BYTES);
    request.output_offset = process->output_offset;
    request.error_offset = process->error_offset;
    status = sbx_stream_send(stream, &request.base, wait, error);
    if (status != SANDBOX_OK)
        return status;
    sbx_stream_end(stream);
    set_stream(process, sbx_take(stream));
    return SANDBOX_OK;
}

/*
 * SANDBOX_OK: try again. A call that ends well without the event of the end has lost it as surely
 * as a broken one.
 */
static sandbox_status recover(sandbox_process *process, sandbox_status status,
                              const struct sbx_wait *whole, sandbox_error *error)
{
    bool waited = status == SANDBOX_TIMED_OUT || status == SANDBOX_CANCELLED;
    if (waited && (process->stream == NULL || error->reason[0] == '\0'))
        return status;
    set_stream(process, NULL);
    if (sbx_workspace_is_refused(status, error))
        return sbx_workspace_begin_again(process->workspace, status, whole, error);
    if (status == SANDBOX_CLOSED)
        status = sbx_fail_for(error, SANDBOX_UNAVAILABLE, "exit-unknown",
                              "the agent ended the output and did not say how the process ended");
    if (status != SANDBOX_UNAVAILABLE || process->failures >= SBX_TRIES)
        return status;
    unsigned failures = process->failures++;
    return failures == 0 ? SANDBOX_OK : sbx_wait_pause(whole, 25u << failures, error);
}

static void set_stream(sandbox_process *process, struct sbx_stream *stream)
{
    pthread_mutex_lock(&process->mutex);
    struct sbx_stream *former = process->stream;
    process->stream = stream;
    if (process->readiness.descriptor >= 0) {
        if (former != NULL)
            sbx_readiness_remove(&process->readiness, sbx_stream_descriptor(former));
        if (stream != NULL)
            sbx_readiness_add(&process->readiness, sbx_stream_descriptor(stream));
    }
    sbx_readiness_set(&process->readiness, stream == NULL || process->end_told);
    pthread_mutex_unlock(&process->mutex);
    sbx_stream_free(former);
}

static sandbox_status read_event(sandbox_process *process, sandbox_process_event *event,
                                 bool *given, sandbox_error *error)
{
    Sandbox__V1__ProcessEvent *message = process->current;
    ProtobufCBinaryData data = message->data;
    if (process->lent.data != NULL)
        data = sbx_binary(process->lent.data, process->lent.size);
    *event = (sandbox_process_event){.size = sizeof *event};
    switch (message->kind) {
    case SANDBOX__V1__PROCESS_EVENT__KIND__KIND_OUTPUT:
        event->kind = SANDBOX_PROCESS_STDOUT;
        process->failures = 0;
        return read_output(message->offset, data, &process->output_offset, event, given, error);
    case SANDBOX__V1__PROCESS_EVENT__KIND__KIND_ERROR:
        event->kind = SANDBOX_PROCESS_STDERR;
        process->failures = 0;
        return read_output(message->offset, data, &process->error_offset, event, given, error);
    case SANDBOX__V1__PROCESS_EVENT__KIND__KIND_EXIT:
        if (message->exit == NULL)
            return sbx_fail_for(error, SANDBOX_FAILED, "malformed-answer",
                                "the agent said that the process ended, and not how");
        event->kind = SANDBOX_PROCESS_EXIT;
        event->exit = sbx_process_exit_of(message->exit);
        sbx_process_note_exit(process, &event->exit);
        pthread_mutex_lock(&process->mutex);
        process->end_told = true;
        sbx_readiness_set(&process->readiness, true);
        pthread_mutex_unlock(&process->mutex);
        *given = true;
        return SANDBOX_OK;
    default:
        return SANDBOX_OK; /* attached, or something that a newer agent tells */
    }
}

/* Bytes that came before are cut off; bytes that are lost are counted. */
static sandbox_status read_output(uint64_t offset, ProtobufCBinaryData data, uint64_t *expected,
                                  sandbox_process_event *event, bool *given,
                                  sandbox_error *error)
{
    uint64_t size = data.len;
    if (offset > UINT64_MAX - size)
        return sbx_fail_for(error, SANDBOX_FAILED, "malformed-answer",
                            "the agent sent output at an offset that cannot be");
    if (offset + size <= *expected)
        return SANDBOX_OK;
    uint64_t old = offset < *expected ? *expected - offset : 0;
    event->data = data.data + old;
    event->data_size = (size_t)(size - old);
    event->offset = offset + old;
    event->dropped = event->offset - *expected;
    *expected = offset + size;
    *given = event->data_size > 0;
    if (!*given)
        *expected -= event->dropped; /* an empty piece ahead: its gap is told with the next bytes */
    return SANDBOX_OK;
}

static void drop_current(sandbox_process *process)
{
    if (process->current != NULL)
        protobuf_c_message_free_unpacked(&process->current->base, NULL);
    process->current = NULL;
    sbx_lent_free(process->stream, &process->lent);
}
