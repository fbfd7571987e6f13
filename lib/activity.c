/* Activity: what the agent sees of work in a workspace. */

#include "agent/text.h"
#include "core/session.h"
#include "guard.pb-c.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/options.h"
#include <sandbox/activity.h>
#include <stdio.h>

#define CALL_MS 30000u
#define COMMAND_SHOWN 60 /* bytes with the end mark: several shall fit */

static void name_active(const Sandbox__V1__ActivityReply *reply, char *who, size_t size);

sandbox_status sandbox_workspace_activity(sandbox_workspace *workspace, const sandbox_call *call,
                                          sandbox_activity *out, sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, CALL_MS, error);
    if (status != SANDBOX_OK)
        return status;
    Sandbox__V1__ActivityRequest request = SANDBOX__V1__ACTIVITY_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    status = sbx_workspace_call(workspace, "/sandbox.v1.Guard/Activity", &request.base, true,
                                &sandbox__v1__activity_reply__descriptor, &wait, &reply, error);
    if (status != SANDBOX_OK)
        return status;
    const Sandbox__V1__ActivityReply *seen = (const Sandbox__V1__ActivityReply *)(void *)reply;
    sandbox_activity activity = {
        .size = sizeof activity,
        .tasks = seen->active_tasks,
        .terminals = seen->active_terminals,
        .idle_ms = seen->idle_ms,
        .had_traffic = seen->had_traffic,
        .traffic_idle_ms = seen->traffic_idle_ms,
    };
    name_active(seen, activity.who, sizeof activity.who);
    protobuf_c_message_free_unpacked(reply, NULL);
    return sbx_options_fill(out, &activity, sizeof activity, error);
}

/* "'npm test' (pid 12), a terminal with 'vim' (pid 30)", as many as fit. */
static void name_active(const Sandbox__V1__ActivityReply *reply, char *who, size_t size)
{
    size_t used = 0;
    who[0] = '\0';
    for (size_t index = 0; index < reply->n_active; index++) {
        const Sandbox__V1__ActiveProcess *process = reply->active[index];
        char command[COMMAND_SHOWN];
        sbx_text_clean(process->command.data, process->command.len, command, sizeof command);
        int needed = snprintf(who + used, size - used, "%s%s'%s' (pid %d)", used == 0 ? "" : ", ",
                              process->terminal ? "a terminal with " : "", command, process->pid);
        if (needed < 0 || (size_t)needed >= size - used) {
            who[used] = '\0';
            return;
        }
        used += (size_t)needed;
    }
}
