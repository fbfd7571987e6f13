/* Processes: the handle, and the calls that are one request. */

#include "process_parts.h"
#include "core/egress.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/options.h"
#include <signal.h>

#define START_MS 30000u
#define CALL_MS 30000u
#define TERMINAL_SIDE_MAX 4096
#define SIGNAL_MAX 64
/* A Wait that stood this long before its connection broke was worth asking. */
#define GOOD_WAIT_MS 1000u

static sandbox_status ask_exit(sandbox_process *process, const struct sbx_wait *wait,
                               sandbox_process_exit *exit, sandbox_error *error);
static sandbox_status read_exit(const Sandbox__V1__WaitReply *reply, sandbox_process_exit *exit,
                                sandbox_error *error);
static bool known_exit(sandbox_process *process, sandbox_process_exit *exit);

static void free_process(sandbox_process **process)
{
    sandbox_process_free(*process);
}

static void free_message(ProtobufCMessage **message)
{
    if (*message != NULL)
        protobuf_c_message_free_unpacked(*message, NULL);
}

static void free_parts(struct sbx_start_parts *parts)
{
    free(parts->argv);
    free(parts->env);
}

sandbox_status sandbox_process_start(sandbox_workspace *workspace,
                                     const sandbox_process_options *options,
                                     const sandbox_call *call, sandbox_process **out,
                                     sandbox_error *error)
{
    sandbox_process_options settled;
    struct sbx_wait wait;
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK && (options == NULL || out == NULL))
        status = sbx_fail(error, SANDBOX_INVALID,
                          options == NULL ? "nothing to run: options must be given"
                                          : "no place to put the process");
    if (status == SANDBOX_OK)
        status = sbx_options_adopt(&settled, sizeof settled, options, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, START_MS, error);
    if (status == SANDBOX_OK)
        status = sbx_process_options_check(&settled, error);
    if (status != SANDBOX_OK)
        return status;
    return sbx_process_begin(workspace, &settled, &wait, out, error);
}

sandbox_status sandbox_process_find(sandbox_workspace *workspace, const char *id,
                                    const sandbox_call *call, sandbox_process **out,
                                    sandbox_error *error)
{
    struct sbx_wait wait;
    uint8_t bytes[SBX_ID_BYTES];
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK && (id == NULL || !sbx_id_parse(id, bytes)))
        status = sbx_fail(error, SANDBOX_INVALID, "the process id must be 32 hexadecimal digits");
    if (status == SANDBOX_OK && out == NULL)
        status = sbx_fail(error, SANDBOX_INVALID, "no place to put the process");
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, CALL_MS, error);
    if (status != SANDBOX_OK)
        return status;

    SBX_ON_EXIT(free_process) sandbox_process *process = NULL;
    status = sbx_process_new(workspace, id, &process, error);
    if (status != SANDBOX_OK)
        return status;
    status = sbx_process_about(process, sbx_process_meet(process, &wait, error), error);
    if (status == SANDBOX_OK)
        *out = sbx_take(process);
    return status;
}

sandbox_status sandbox_process_wait(sandbox_process *process, const sandbox_call *call,
                                    sandbox_process_exit *exit, sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_process_exit found = {0};
    sandbox_status status = sbx_process_check(process, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, SANDBOX_FOREVER, error);
    if (status != SANDBOX_OK)
        return status;
    if (!known_exit(process, &found))
        status = ask_exit(process, &wait, &found, error);
    if (status == SANDBOX_OK) {
        sbx_process_note_exit(process, &found);
        if (exit != NULL)
            *exit = found;
    }
    return sbx_process_about(process, status, error);
}

sandbox_status sandbox_process_signal(sandbox_process *process, int signal_number,
                                      const sandbox_call *call, sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_status status = sbx_process_check(process, error);
    if (status == SANDBOX_OK && (signal_number < 1 || signal_number > SIGNAL_MAX))
        status = sbx_fail(error, SANDBOX_INVALID, "there is no signal %d", signal_number);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, CALL_MS, error);
    if (status != SANDBOX_OK)
        return status;
    /* Most signals count, or their handlers do; killing twice is killing. */
    status = sbx_process_kill(process, signal_number, signal_number == SIGKILL, &wait, error);
    return sbx_process_about(process, status, error);
}

sandbox_status sandbox_process_resize(sandbox_process *process, uint16_t columns, uint16_t rows,
                                      const sandbox_call *call, sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_status status = sbx_process_check(process, error);
    bool fits = columns >= 1 && columns <= TERMINAL_SIDE_MAX && rows >= 1 &&
                rows <= TERMINAL_SIDE_MAX;
    if (status == SANDBOX_OK && !fits)
        status = sbx_fail(error, SANDBOX_INVALID,
                          "a terminal has 1 to %d columns and rows, not %u by %u",
                          TERMINAL_SIDE_MAX, columns, rows);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, CALL_MS, error);
    if (status != SANDBOX_OK)
        return status;

    Sandbox__V1__ResizeRequest request = SANDBOX__V1__RESIZE_REQUEST__INIT;
    request.id = sbx_binary(process->id_bytes, SBX_ID_BYTES);
    request.rows = rows;
    request.columns = columns;
    SBX_ON_EXIT(free_message) ProtobufCMessage *reply = NULL;
    status = sbx_workspace_call(process->workspace, "/sandbox.v1.Processes/Resize", &request.base,
                                true, &sandbox__v1__resize_reply__descriptor, &wait, &reply,
                                error);
    return sbx_process_about(process, status, error);
}

void sandbox_process_free(sandbox_process *process)
{
    if (process == NULL)
        return;
    if (process->current != NULL)
        protobuf_c_message_free_unpacked(&process->current->base, NULL);
    sbx_lent_free(NULL, &process->lent);
    sbx_stream_free(process->stream);
    sbx_readiness_free(&process->readiness);
    pthread_cond_destroy(&process->turns_changed);
    pthread_mutex_destroy(&process->mutex);
    sbx_workspace_drop(process->workspace);
    free(process);
}

const char *sandbox_process_id(const sandbox_process *process)
{
    return process == NULL ? "" : process->id;
}

int64_t sandbox_process_pid(const sandbox_process *process)
{
    return process == NULL ? 0 : process->pid;
}

sandbox_status sbx_process_check(sandbox_process *process, sandbox_error *error)
{
    if (process == NULL)
        return sbx_fail(error, SANDBOX_INVALID, "no process given");
    return sbx_process_about(process, sbx_workspace_check(process->workspace, error), error);
}

sandbox_status sbx_process_about(const sandbox_process *process, sandbox_status status,
                                 sandbox_error *error)
{
    if (status != SANDBOX_OK && error != NULL)
        memcpy(error->process_id, process->id, sizeof process->id);
    return status;
}

sandbox_status sbx_process_take_turn(sandbox_process *process, bool *turn,
                                     const struct sbx_wait *wait, sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    pthread_mutex_lock(&process->mutex);
    while (*turn && status == SANDBOX_OK)
        status = sbx_wait_condition(wait, &process->turns_changed, &process->mutex, error);
    if (status == SANDBOX_OK)
        *turn = true;
    pthread_mutex_unlock(&process->mutex);
    return status;
}

void sbx_process_leave_turn(sandbox_process *process, bool *turn)
{
    pthread_mutex_lock(&process->mutex);
    *turn = false;
    pthread_cond_broadcast(&process->turns_changed);
    pthread_mutex_unlock(&process->mutex);
}

sandbox_status sbx_process_begin(sandbox_workspace *workspace,
                                 const sandbox_process_options *options,
                                 const struct sbx_wait *wait, sandbox_process **out,
                                 sandbox_error *error)
{
    char fresh[SBX_ID_TEXT];
    if (options->id == NULL && !sbx_id_fresh(fresh))
        return sbx_fail(error, SANDBOX_FAILED, "the kernel gives no random bytes");
    SBX_ON_EXIT(free_process) sandbox_process *process = NULL;
    const char *id = options->id == NULL ? fresh : options->id;
    sandbox_status status = sbx_process_new(workspace, id, &process, error);
    if (status != SANDBOX_OK)
        return status;
    status = sbx_process_about(process, sbx_process_ask_start(process, options, wait, error),
                               error);
    if (status == SANDBOX_OK)
        *out = sbx_take(process);
    return status;
}

sandbox_status sbx_process_kill(sandbox_process *process, int signal_number, bool repeatable,
                                const struct sbx_wait *wait, sandbox_error *error)
{
    Sandbox__V1__SignalRequest request = SANDBOX__V1__SIGNAL_REQUEST__INIT;
    request.id = sbx_binary(process->id_bytes, SBX_ID_BYTES);
    request.signal = (uint32_t)signal_number;
    SBX_ON_EXIT(free_message) ProtobufCMessage *reply = NULL;
    return sbx_workspace_call(process->workspace, "/sandbox.v1.Processes/Signal", &request.base,
                              repeatable, &sandbox__v1__signal_reply__descriptor, wait, &reply,
                              error);
}

sandbox_process_exit sbx_process_exit_of(const Sandbox__V1__Exit *exit)
{
    bool signalled = exit->signal > 0 && exit->signal <= INT32_MAX;
    return (sandbox_process_exit){
        .code = signalled ? -1 : exit->code & 0xff,
        .signal = signalled ? (int)exit->signal : 0,
        .timed_out = exit->timed_out != 0,
    };
}

void sbx_process_note_exit(sandbox_process *process, const sandbox_process_exit *exit)
{
    pthread_mutex_lock(&process->mutex);
    process->ended = true;
    process->exit = *exit;
    pthread_mutex_unlock(&process->mutex);
}

sandbox_status sbx_process_new(sandbox_workspace *workspace, const char *id,
                               sandbox_process **out, sandbox_error *error)
{
    sandbox_process *process = calloc(1, sizeof *process);
    if (process == NULL || pthread_mutex_init(&process->mutex, NULL) != 0) {
        free(process);
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a process");
    }
    if (sbx_condition_init(&process->turns_changed) != 0) {
        pthread_mutex_destroy(&process->mutex);
        free(process);
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a process");
    }
    (void)sbx_id_parse(id, process->id_bytes);
    sbx_id_print(process->id_bytes, process->id);
    process->readiness = (struct sbx_readiness)SBX_READINESS;
    process->readiness.fact = true; /* nothing is attached yet: look, and it will be */
    process->workspace = sbx_workspace_keep(workspace);
    *out = process;
    return SANDBOX_OK;
}

sandbox_status sbx_process_ask_start(sandbox_process *process,
                                     const sandbox_process_options *options,
                                     const struct sbx_wait *wait, sandbox_error *error)
{
    SBX_ON_EXIT(free_parts) struct sbx_start_parts parts = {.argv = NULL, .env = NULL};
    Sandbox__V1__StartRequest request;
    const struct sbx_egress_texts texts = {
        .arguments = options->argv, .environment = options->env, .command = options->command};
    sandbox_status status = sbx_egress_screen(process->workspace, &texts, wait, error);
    if (status == SANDBOX_OK)
        status = sbx_process_request(options, process, &parts, &request, error);
    if (status != SANDBOX_OK)
        return status;
    SBX_ON_EXIT(free_message) ProtobufCMessage *reply = NULL;
    status = sbx_workspace_call(process->workspace, "/sandbox.v1.Processes/Start", &request.base,
                                false, &sandbox__v1__start_reply__descriptor, wait, &reply, error);
    if (status != SANDBOX_OK)
        return status;
    const Sandbox__V1__StartReply *started = (const Sandbox__V1__StartReply *)(void *)reply;
    process->pid = started->pid;
    process->piped = !options->terminal;
    process->input_known = !started->existed; /* else somebody may have written before */
    return SANDBOX_OK;
}

/* Asks as long as the caller waits; only an agent that never answers ends it early. */
static sandbox_status ask_exit(sandbox_process *process, const struct sbx_wait *wait,
                               sandbox_process_exit *exit, sandbox_error *error)
{
    Sandbox__V1__WaitRequest request = SANDBOX__V1__WAIT_REQUEST__INIT;
    request.id = sbx_binary(process->id_bytes, SBX_ID_BYTES);
    for (unsigned failures = 0;;) {
        SBX_ON_EXIT(free_message) ProtobufCMessage *reply = NULL;
        struct sbx_wait good = sbx_wait_alone(GOOD_WAIT_MS);
        sandbox_status status = sbx_workspace_call(
            process->workspace, "/sandbox.v1.Processes/Wait", &request.base, true,
            &sandbox__v1__wait_reply__descriptor, wait, &reply, error);
        if (status == SANDBOX_OK)
            return read_exit((const Sandbox__V1__WaitReply *)(void *)reply, exit, error);
        failures = sbx_wait_left_ms(&good) == 0 ? 1 : failures + 1;
        if (status != SANDBOX_UNAVAILABLE || failures >= SBX_TRIES)
            return status;
        status = sbx_wait_pause(wait, 25u << failures, error);
        if (status != SANDBOX_OK)
            return status;
    }
}

static sandbox_status read_exit(const Sandbox__V1__WaitReply *reply, sandbox_process_exit *exit,
                                sandbox_error *error)
{
    if (reply->exit == NULL)
        return sbx_fail_for(error, SANDBOX_FAILED, "malformed-answer",
                            "the agent said that the process ended, and not how");
    *exit = sbx_process_exit_of(reply->exit);
    return SANDBOX_OK;
}

static bool known_exit(sandbox_process *process, sandbox_process_exit *exit)
{
    pthread_mutex_lock(&process->mutex);
    bool ended = process->ended;
    *exit = process->exit;
    pthread_mutex_unlock(&process->mutex);
    return ended;
}
