/* Watches: changes of files as they happen. */

#include "files_parts.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/options.h"

struct sandbox_file_watch {
    sandbox_workspace *workspace;
    struct sbx_stream *stream;
    struct sbx_turn turn;
    char *path, *new_path; /* of the last event */
};

static sandbox_status next(sandbox_file_watch *watch, const struct sbx_wait *wait,
                           sandbox_file_event *event, sandbox_error *error);
static bool is_change(Sandbox__V1__FileChange__Kind kind);

sandbox_status sandbox_file_watch_open(sandbox_workspace *workspace, const char *path,
                                       const sandbox_watch_options *given,
                                       const sandbox_call *call, sandbox_file_watch **out,
                                       sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_watch_options options;
    Sandbox__V1__WatchRequest request = SANDBOX__V1__WATCH_REQUEST__INIT;
    SBX_ON_EXIT(sbx_file_free_message) ProtobufCMessage *first = NULL;
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK && out == NULL)
        status = sbx_fail(error, SANDBOX_INVALID, "no place to put the watch");
    if (status == SANDBOX_OK)
        status = sbx_options_adopt(&options, sizeof options, given, error);
    if (status == SANDBOX_OK)
        status = sbx_file_path(path, &request.path, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, SBX_FILE_CALL_MS, error);
    if (status != SANDBOX_OK)
        return status;
    request.recursive = options.recursive;
    sandbox_file_watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL || !sbx_turn_init(&watch->turn)) {
        free(watch);
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a watch");
    }
    watch->workspace = sbx_workspace_keep(workspace);
    /* The first message, without a change, says that from now on nothing is missed. */
    status = sbx_file_ask(workspace, "/sandbox.v1.Files/Watch", &request.base,
                          &sandbox__v1__file_change__descriptor, &wait, &watch->stream, &first,
                          error);
    if (status == SANDBOX_OK && first == NULL)
        status = sbx_fail_for(error, SANDBOX_FAILED, "malformed-answer",
                              "the agent ended the watch before it began");
    if (status == SANDBOX_OK)
        *out = sbx_take(watch);
    sandbox_file_watch_free(watch);
    return status;
}

sandbox_status sandbox_file_watch_next(sandbox_file_watch *watch, const sandbox_call *call,
                                       sandbox_file_event *event, sandbox_error *error)
{
    struct sbx_wait wait;
    if (watch == NULL || event == NULL)
        return sbx_fail(error, SANDBOX_INVALID, "no watch, or no place to put the event");
    sandbox_status status = sbx_workspace_check(watch->workspace, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, SANDBOX_FOREVER, error);
    if (status == SANDBOX_OK)
        status = sbx_turn_take(&watch->turn, &wait, error);
    if (status != SANDBOX_OK)
        return status;
    status = next(watch, &wait, event, error);
    sbx_turn_leave(&watch->turn);
    return status;
}

void sandbox_file_watch_free(sandbox_file_watch *watch)
{
    if (watch == NULL)
        return;
    sbx_stream_free(watch->stream);
    sbx_turn_destroy(&watch->turn);
    sbx_workspace_drop(watch->workspace);
    free(watch->path);
    free(watch->new_path);
    free(watch);
}

static sandbox_status next(sandbox_file_watch *watch, const struct sbx_wait *wait,
                           sandbox_file_event *event, sandbox_error *error)
{
    for (;;) {
        SBX_ON_EXIT(sbx_file_free_message) ProtobufCMessage *message = NULL;
        SBX_ON_EXIT(sbx_free_text) char *path = NULL;
        SBX_ON_EXIT(sbx_free_text) char *new_path = NULL;
        sandbox_status status = sbx_stream_next(
            watch->stream, &sandbox__v1__file_change__descriptor, wait, &message, error);
        if (status != SANDBOX_OK)
            return status;
        const Sandbox__V1__FileChange *change = (const Sandbox__V1__FileChange *)(void *)message;
        if (!is_change(change->kind))
            continue; /* of a newer agent */
        status = sbx_file_text(&change->path, &path, error);
        if (status == SANDBOX_OK)
            status = sbx_file_text(&change->new_path, &new_path, error);
        if (status != SANDBOX_OK)
            return status;
        const sandbox_file_event told = {.change = (sandbox_file_change)change->kind,
                                         .path = path, .new_path = new_path};
        status = sbx_options_fill(event, &told, sizeof told, error);
        if (status != SANDBOX_OK)
            return status;
        free(watch->path);
        free(watch->new_path);
        watch->path = sbx_take(path);
        watch->new_path = sbx_take(new_path);
        return SANDBOX_OK;
    }
}

static bool is_change(Sandbox__V1__FileChange__Kind kind)
{
    return kind >= SANDBOX__V1__FILE_CHANGE__KIND__KIND_CREATED &&
           kind <= SANDBOX__V1__FILE_CHANGE__KIND__KIND_OVERFLOW;
}
