/* All processes that the agent knows. */

#include "agent/text.h"
#include "process_parts.h"
#include "util/fail.h"
#include "util/memory.h"

#define CALL_MS 30000u
#define COMMAND_MAX 4096
#define USER_MAX 64

struct entry {
    sandbox_process_info info;
    char id[SBX_ID_TEXT];
    char user[USER_MAX];
    char *command;
};

struct sandbox_process_list {
    size_t count;
    struct entry entries[];
};

static sandbox_status make_list(const Sandbox__V1__ProcessListReply *reply,
                                sandbox_process_list **out, sandbox_error *error);
static bool fill_entry(struct entry *entry, const Sandbox__V1__ProcessInfo *process);

static void free_message(ProtobufCMessage **message)
{
    if (*message != NULL)
        protobuf_c_message_free_unpacked(*message, NULL);
}

static void free_list(sandbox_process_list **list)
{
    sandbox_process_list_free(*list);
}

sandbox_status sandbox_process_list_all(sandbox_workspace *workspace, const sandbox_call *call,
                                        sandbox_process_list **out, sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK && out == NULL)
        status = sbx_fail(error, SANDBOX_INVALID, "no place to put the list");
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, CALL_MS, error);
    if (status != SANDBOX_OK)
        return status;
    Sandbox__V1__ProcessListRequest request = SANDBOX__V1__PROCESS_LIST_REQUEST__INIT;
    SBX_ON_EXIT(free_message) ProtobufCMessage *reply = NULL;
    status = sbx_workspace_call(workspace, "/sandbox.v1.Processes/List", &request.base, true,
                                &sandbox__v1__process_list_reply__descriptor, &wait, &reply,
                                error);
    if (status != SANDBOX_OK)
        return status;
    return make_list((const Sandbox__V1__ProcessListReply *)(void *)reply, out, error);
}

size_t sandbox_process_list_count(const sandbox_process_list *list)
{
    return list == NULL ? 0 : list->count;
}

const sandbox_process_info *sandbox_process_list_at(const sandbox_process_list *list, size_t index)
{
    return list == NULL || index >= list->count ? NULL : &list->entries[index].info;
}

void sandbox_process_list_free(sandbox_process_list *list)
{
    for (size_t index = 0; list != NULL && index < list->count; index++)
        free(list->entries[index].command);
    free(list);
}

static sandbox_status make_list(const Sandbox__V1__ProcessListReply *reply,
                                sandbox_process_list **out, sandbox_error *error)
{
    SBX_ON_EXIT(free_list) sandbox_process_list *list =
        calloc(1, sizeof *list + reply->n_processes * sizeof list->entries[0]);
    if (list == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a list of processes");
    list->count = reply->n_processes;
    for (size_t index = 0; index < list->count; index++) {
        if (reply->processes[index]->id.len != SBX_ID_BYTES)
            return sbx_fail_for(error, SANDBOX_FAILED, "malformed-answer",
                                "the agent listed a process whose id is none");
        if (!fill_entry(&list->entries[index], reply->processes[index]))
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a list of processes");
    }
    *out = sbx_take(list);
    return SANDBOX_OK;
}

static bool fill_entry(struct entry *entry, const Sandbox__V1__ProcessInfo *process)
{
    size_t size = process->command.len < COMMAND_MAX ? process->command.len : COMMAND_MAX;
    entry->command = malloc(size + 1);
    if (entry->command == NULL)
        return false;
    sbx_text_clean(process->command.data, size, entry->command, size + 1);
    sbx_text_clean((const uint8_t *)process->user, strlen(process->user), entry->user, USER_MAX);
    sbx_id_print(process->id.data, entry->id);
    entry->info = (sandbox_process_info){
        .size = sizeof entry->info,
        .id = entry->id,
        .pid = process->pid,
        .running = process->running != 0,
        .role = process->role == SANDBOX__V1__ROLE__ROLE_SERVICE ? SANDBOX_ROLE_SERVICE
                                                                 : SANDBOX_ROLE_TASK,
        .terminal = process->terminal != 0,
        .command = entry->command,
        .user = entry->user,
        .started_ms = process->started_ms,
        .descendants = process->descendants,
        .output_bytes = process->output_bytes,
        .error_bytes = process->error_bytes,
    };
    if (!entry->info.running && process->exit != NULL)
        entry->info.exit = sbx_process_exit_of(process->exit);
    return true;
}
