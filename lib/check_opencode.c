/*
 * The check for opencode. It runs two engines in one server that do not see each other, and a
 * turn shows some time after it was asked for: both are asked, and idle is what is idle twice.
 */

#include "check_opencode_parts.h"
#include "core/session.h"
#include "util/options.h"
#include <stdio.h>

#define CHECK_MS 60000u
#define AT_MOST_MS 120000u /* work in the workspace is shut out meanwhile */
#define PAUSE_MS 500u      /* between the two looks */
#define PORT 4096

static sandbox_status settle(const sandbox_opencode *given, sandbox_opencode *options,
                             sandbox_error *error);
static sandbox_status look_twice(struct sbx_opencode *opencode, sandbox_error *error);
static void clear(struct sbx_opencode *opencode);

sandbox_status sandbox_check_opencode(sandbox_workspace *workspace, const sandbox_call *call,
                                      void *user_data, bool *active, char who[200],
                                      sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_opencode options;
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK && (active == NULL || who == NULL))
        status = sbx_fail(error, SANDBOX_INVALID, "no place to put the answer");
    if (status == SANDBOX_OK)
        status = settle(user_data, &options, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, CHECK_MS, error);
    if (status != SANDBOX_OK)
        return status;

    wait = sbx_wait_within(&wait, AT_MOST_MS);
    SBX_ON_EXIT(clear) struct sbx_opencode opencode = {.workspace = workspace, .wait = &wait,
                                                       .port = options.port};
    sandbox_error own = {0};
    status = sbx_guest_http_open(workspace, options.port, options.user, options.password,
                                 &opencode.http, &own);
    if (status == SANDBOX_OK)
        status = look_twice(&opencode, &own);
    /* Where nothing listens nobody works, be it from the start or from now on. */
    if (status == SANDBOX_NOT_FOUND && strcmp(own.reason, "connection-refused") == 0)
        status = SANDBOX_OK;
    else if (status == SANDBOX_TIMED_OUT)
        status = sbx_fail_for(&own, SANDBOX_UNAVAILABLE, "check-failed",
                              "the server on port %u did not say in time whether anybody works",
                              options.port);
    if (status != SANDBOX_OK) {
        if (error != NULL)
            *error = own;
        return status;
    }
    *active = opencode.active;
    snprintf(who, SBX_OPENCODE_WHO, "%s", opencode.who);
    return SANDBOX_OK;
}

static sandbox_status settle(const sandbox_opencode *given, sandbox_opencode *options,
                             sandbox_error *error)
{
    sandbox_status status = sbx_options_adopt(options, sizeof *options, given, error);
    if (status != SANDBOX_OK)
        return status;
    if (options->port == 0)
        options->port = PORT;
    if (options->user == NULL || *options->user == '\0')
        options->user = "opencode";
    if (strchr(options->user, ':') != NULL)
        return sbx_fail(error, SANDBOX_INVALID, "'user' of a server cannot hold a ':'");
    return SANDBOX_OK;
}

static sandbox_status look_twice(struct sbx_opencode *opencode, sandbox_error *error)
{
    sandbox_status status = sbx_opencode_find_directories(opencode, error);
    if (status == SANDBOX_OK)
        status = sbx_opencode_look(opencode, error);
    if (status == SANDBOX_OK && !opencode->active)
        status = sbx_wait_pause(opencode->wait, PAUSE_MS, error);
    if (status == SANDBOX_OK && !opencode->active)
        status = sbx_opencode_look(opencode, error);
    return status;
}

static void clear(struct sbx_opencode *opencode)
{
    for (size_t n = 0; n < opencode->directory_count; n++)
        free(opencode->directories[n]);
    free(opencode->directories);
    sbx_opencode_forget_processes(opencode);
    sbx_guest_http_free(opencode->http);
}
