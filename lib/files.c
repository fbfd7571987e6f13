/* Files of a workspace: the changes that are one question and one answer, and what all share. */

#include "files_parts.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/options.h"

#define PATH_MAX_BYTES 4095u
#define REMOVE_MS 600000u /* a large tree takes its time */

static sandbox_status begin(sandbox_workspace *workspace, const char *path,
                            ProtobufCBinaryData *binary, const sandbox_change_options *given,
                            sandbox_change_options *options, sandbox_error *error);
static sandbox_status change(sandbox_workspace *workspace, const char *method,
                             const ProtobufCMessage *request, bool repeatable,
                             uint32_t default_ms, const sandbox_call *call,
                             sandbox_error *error);

sandbox_status sandbox_file_remove(sandbox_workspace *workspace, const char *path,
                                   const sandbox_change_options *given, const sandbox_call *call,
                                   sandbox_error *error)
{
    sandbox_change_options options;
    Sandbox__V1__RemoveRequest request = SANDBOX__V1__REMOVE_REQUEST__INIT;
    sandbox_status status = begin(workspace, path, &request.path, given, &options, error);
    if (status != SANDBOX_OK)
        return status;
    request.recursive = options.recursive;
    return change(workspace, "/sandbox.v1.Files/Remove", &request.base, false,
                  options.recursive ? REMOVE_MS : SBX_FILE_CALL_MS, call, error);
}

sandbox_status sandbox_file_rename(sandbox_workspace *workspace, const char *from, const char *to,
                                   const sandbox_change_options *given, const sandbox_call *call,
                                   sandbox_error *error)
{
    sandbox_change_options options;
    Sandbox__V1__RenameRequest request = SANDBOX__V1__RENAME_REQUEST__INIT;
    sandbox_status status = begin(workspace, from, &request.from, given, &options, error);
    if (status == SANDBOX_OK)
        status = sbx_file_path(to, &request.to, error);
    if (status != SANDBOX_OK)
        return status;
    request.replace = options.replace;
    return change(workspace, "/sandbox.v1.Files/Rename", &request.base, false, SBX_FILE_CALL_MS,
                  call, error);
}

sandbox_status sandbox_file_make_directory(sandbox_workspace *workspace, const char *path,
                                           const sandbox_change_options *given,
                                           const sandbox_call *call, sandbox_error *error)
{
    sandbox_change_options options;
    Sandbox__V1__MakeDirectoryRequest request = SANDBOX__V1__MAKE_DIRECTORY_REQUEST__INIT;
    sandbox_status status = begin(workspace, path, &request.path, given, &options, error);
    if (status != SANDBOX_OK)
        return status;
    request.mode = options.mode;
    request.parents = options.recursive;
    /* With parents an existing directory is as good, so asking twice changes nothing. */
    return change(workspace, "/sandbox.v1.Files/MakeDirectory", &request.base, options.recursive,
                  SBX_FILE_CALL_MS, call, error);
}

sandbox_status sandbox_file_set_mode(sandbox_workspace *workspace, const char *path,
                                     uint32_t mode, const sandbox_call *call,
                                     sandbox_error *error)
{
    sandbox_change_options options;
    Sandbox__V1__SetModeRequest request = SANDBOX__V1__SET_MODE_REQUEST__INIT;
    sandbox_status status = begin(workspace, path, &request.path, NULL, &options, error);
    if (status == SANDBOX_OK && mode > 07777)
        status = sbx_fail(error, SANDBOX_INVALID, "a mode has 12 bits at most");
    if (status != SANDBOX_OK)
        return status;
    request.mode = mode;
    return change(workspace, "/sandbox.v1.Files/SetMode", &request.base, true, SBX_FILE_CALL_MS,
                  call, error);
}

sandbox_status sandbox_file_link(sandbox_workspace *workspace, const char *target,
                                 const char *path, const sandbox_change_options *given,
                                 const sandbox_call *call, sandbox_error *error)
{
    sandbox_change_options options;
    Sandbox__V1__LinkRequest request = SANDBOX__V1__LINK_REQUEST__INIT;
    sandbox_status status = begin(workspace, path, &request.path, given, &options, error);
    if (status == SANDBOX_OK)
        status = sbx_file_path(target, &request.target, error);
    if (status != SANDBOX_OK)
        return status;
    request.hard = options.hard_link;
    request.replace = options.replace;
    return change(workspace, "/sandbox.v1.Files/Link", &request.base, options.replace,
                  SBX_FILE_CALL_MS, call, error);
}

void sandbox_bytes_free(uint8_t *data)
{
    free(data);
}

static sandbox_status begin(sandbox_workspace *workspace, const char *path,
                            ProtobufCBinaryData *binary, const sandbox_change_options *given,
                            sandbox_change_options *options, sandbox_error *error)
{
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK)
        status = sbx_options_adopt(options, sizeof *options, given, error);
    if (status == SANDBOX_OK && options->mode > 07777)
        status = sbx_fail(error, SANDBOX_INVALID, "a mode has 12 bits at most");
    if (status == SANDBOX_OK)
        status = sbx_file_path(path, binary, error);
    return status;
}

static sandbox_status change(sandbox_workspace *workspace, const char *method,
                             const ProtobufCMessage *request, bool repeatable,
                             uint32_t default_ms, const sandbox_call *call, sandbox_error *error)
{
    struct sbx_wait wait;
    SBX_ON_EXIT(sbx_file_free_message) ProtobufCMessage *reply = NULL;
    sandbox_status status = sbx_wait_begin(&wait, call, default_ms, error);
    if (status == SANDBOX_OK)
        status = sbx_workspace_call(workspace, method, request, repeatable,
                                    &sandbox__v1__files_reply__descriptor, &wait, &reply, error);
    return status;
}

sandbox_status sbx_file_path(const char *path, ProtobufCBinaryData *binary, sandbox_error *error)
{
    if (path == NULL || *path == 0)
        return sbx_fail(error, SANDBOX_INVALID, "no path is given");
    size_t size = strlen(path);
    if (size > PATH_MAX_BYTES)
        return sbx_fail_for(error, SANDBOX_INVALID, "name-too-long",
                            "a path is longer than %u bytes", PATH_MAX_BYTES);
    *binary = sbx_file_binary(path, size);
    return SANDBOX_OK;
}

void sbx_file_free_message(ProtobufCMessage **message)
{
    if (*message != NULL)
        protobuf_c_message_free_unpacked(*message, NULL);
}

sandbox_status sbx_file_text(const ProtobufCBinaryData *given, char **text, sandbox_error *error)
{
    if (given->len > 2 * PATH_MAX_BYTES ||
        (given->len > 0 && memchr(given->data, 0, given->len) != NULL))
        return sbx_fail_for(error, SANDBOX_FAILED, "malformed-answer",
                            "the agent told a file name that cannot be one");
    *text = given->len == 0 ? sbx_copy("") : sbx_copy_bytes(given->data, given->len);
    return *text == NULL ? sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a file name")
                         : SANDBOX_OK;
}

static void free_stream(struct sbx_stream **stream)
{
    sbx_stream_free(*stream);
}

static sandbox_status ask_once(sandbox_workspace *workspace, const char *method,
                               const ProtobufCMessage *request,
                               const ProtobufCMessageDescriptor *descriptor,
                               const struct sbx_wait *wait, struct sbx_stream **out,
                               ProtobufCMessage **first, sandbox_error *error)
{
    SBX_ON_EXIT(free_stream) struct sbx_stream *stream = NULL;
    *first = NULL;
    sandbox_status status = sbx_workspace_stream(workspace, method, wait, &stream, error);
    if (status == SANDBOX_OK)
        status = sbx_stream_send(stream, request, wait, error);
    if (status != SANDBOX_OK)
        return status;
    sbx_stream_end(stream);
    status = sbx_stream_next(stream, descriptor, wait, first, error);
    if (status != SANDBOX_OK && status != SANDBOX_CLOSED)
        return status;
    *out = sbx_take(stream);
    return SANDBOX_OK;
}

sandbox_status sbx_file_ask(sandbox_workspace *workspace, const char *method,
                            const ProtobufCMessage *request,
                            const ProtobufCMessageDescriptor *descriptor,
                            const struct sbx_wait *wait, struct sbx_stream **stream,
                            ProtobufCMessage **first, sandbox_error *error)
{
    sandbox_error own = {0};
    error = error == NULL ? &own : error;
    for (bool again = true;;) {
        sandbox_status status =
            ask_once(workspace, method, request, descriptor, wait, stream, first, error);
        if (status == SANDBOX_OK || status == SANDBOX_CLOSED)
            return status;
        bool refused = sbx_workspace_is_refused(status, error);
        if (refused)
            status = sbx_workspace_begin_again(workspace, status, wait, error);
        bool broken = !refused && again && status == SANDBOX_UNAVAILABLE &&
                      sbx_wait_check(wait, NULL) == SANDBOX_OK;
        if (status != SANDBOX_OK && !broken)
            return status;
        again = again && !broken;
    }
}

bool sbx_turn_init(struct sbx_turn *turn)
{
    if (pthread_mutex_init(&turn->mutex, NULL) != 0)
        return false;
    if (sbx_condition_init(&turn->changed) == 0)
        return true;
    pthread_mutex_destroy(&turn->mutex);
    return false;
}

void sbx_turn_destroy(struct sbx_turn *turn)
{
    pthread_cond_destroy(&turn->changed);
    pthread_mutex_destroy(&turn->mutex);
}

sandbox_status sbx_turn_take(struct sbx_turn *turn, const struct sbx_wait *wait,
                             sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    pthread_mutex_lock(&turn->mutex);
    while (turn->taken && status == SANDBOX_OK)
        status = sbx_wait_condition(wait, &turn->changed, &turn->mutex, error);
    if (status == SANDBOX_OK)
        turn->taken = true;
    pthread_mutex_unlock(&turn->mutex);
    return status;
}

void sbx_turn_leave(struct sbx_turn *turn)
{
    pthread_mutex_lock(&turn->mutex);
    turn->taken = false;
    pthread_cond_signal(&turn->changed);
    pthread_mutex_unlock(&turn->mutex);
}

sandbox_status sbx_file_answer_lost(sandbox_status status, sandbox_error *error)
{
    if (status == SANDBOX_UNAVAILABLE && !sbx_workspace_is_refused(status, error))
        return sbx_fail_for(error, SANDBOX_UNKNOWN, "answer-lost",
                            "the connection broke before the agent's answer came; look before "
                            "repeating it");
    if (status == SANDBOX_TIMED_OUT || status == SANDBOX_CANCELLED)
        return sbx_fail_for(error, status, "answer-lost",
                            "the wait ended before the agent's answer came; it may still happen");
    return status;
}
