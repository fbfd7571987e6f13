/* What a terminal's process is doing, from /proc of the workspace. */

#include "check_opencode_parts.h"
#include <inttypes.h>
#include <sandbox/files.h>
#include <sandbox/ports.h>
#include <stdio.h>

#define STAT_MAX 4096u
#define PROCESSES_MAX 8192u

/* Of /proc/PID/stat. */
struct stat_fields {
    char state;
    int64_t parent, group, session, terminal, foreground;
};

static sandbox_status read_stat(struct sbx_opencode *opencode, int64_t pid, bool *gone,
                                struct stat_fields *out, sandbox_error *error);
static bool parse_stat(const char *text, struct stat_fields *out);
static sandbox_status read_processes(struct sbx_opencode *opencode, sandbox_error *error);
static sandbox_status find_server(struct sbx_opencode *opencode, int64_t *pid,
                                  sandbox_error *error);

static void free_bytes(uint8_t **data)
{
    sandbox_bytes_free(*data);
}

static void free_list(sandbox_file_list **list)
{
    sandbox_file_list_free(*list);
}

static void free_ports(sandbox_port_list **list)
{
    sandbox_port_list_free(*list);
}

sandbox_status sbx_opencode_has_job(struct sbx_opencode *opencode, int64_t pid, bool *has_job,
                                    sandbox_error *error)
{
    struct stat_fields shell = {0};
    bool gone = false;
    *has_job = false;
    sandbox_status status = read_stat(opencode, pid, &gone, &shell, error);
    if (status != SANDBOX_OK || gone)
        return status;
    /* -1: it has no terminal any more. */
    if (shell.foreground != 0) {
        *has_job = shell.foreground > 0 && shell.foreground != shell.group;
        return SANDBOX_OK;
    }
    /* gVisor never tells the foreground group: a child that is not stopped counts as a job. */
    status = read_processes(opencode, error);
    for (size_t n = 0; n < opencode->process_count; n++) {
        const struct sbx_opencode_process *process = &opencode->processes[n];
        if (process->parent == pid && strchr("TtZX", process->state) == NULL)
            *has_job = true;
    }
    return status;
}

sandbox_status sbx_opencode_find_job(struct sbx_opencode *opencode, int64_t *pid,
                                     sandbox_error *error)
{
    int64_t server = 0;
    *pid = 0;
    sandbox_status status = find_server(opencode, &server, error);
    if (status == SANDBOX_OK && server != 0)
        status = read_processes(opencode, error);
    for (size_t n = 0; n < opencode->process_count && server != 0; n++) {
        const struct sbx_opencode_process *process = &opencode->processes[n];
        bool has_job = false;
        if (status != SANDBOX_OK || *pid != 0)
            break;
        if (process->parent == server && process->session == process->pid && process->has_terminal)
            status = sbx_opencode_has_job(opencode, process->pid, &has_job, error);
        if (has_job)
            *pid = process->pid;
    }
    return status;
}

void sbx_opencode_forget_processes(struct sbx_opencode *opencode)
{
    free(sbx_take(opencode->processes));
    opencode->process_count = 0;
}

static sandbox_status read_stat(struct sbx_opencode *opencode, int64_t pid, bool *gone,
                                struct stat_fields *out, sandbox_error *error)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    SBX_ON_EXIT(free_bytes) uint8_t *text = NULL;
    size_t size = 0;
    sandbox_error own = {0};
    sandbox_read_options options = {SANDBOX_READ_OPTIONS, .limit = STAT_MAX};
    sandbox_call call = sbx_guest_call(opencode->wait, SANDBOX_FOREVER);
    sandbox_status status = sandbox_file_read(opencode->workspace, path, &options, &call, &text,
                                              &size, &own);
    /* If it ended between the opening and the reading, it is not there any more now. */
    if (status == SANDBOX_FAILED)
        status = sandbox_file_read(opencode->workspace, path, &options, &call, &text, &size, &own);
    *gone = status == SANDBOX_NOT_FOUND;
    if (*gone)
        return SANDBOX_OK;
    if (status != SANDBOX_OK) {
        if (error != NULL)
            *error = own;
        return status;
    }
    if (!parse_stat((const char *)text, out))
        return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "check-failed",
                            "'%s' inside is not what a kernel says of a process", path);
    return SANDBOX_OK;
}

/* "PID (NAME) STATE PARENT GROUP SESSION TERMINAL FOREGROUND …", the name a stranger's. */
static bool parse_stat(const char *text, struct stat_fields *out)
{
    const char *after = strrchr(text, ')');
    if (after == NULL || after[1] != ' ' || after[2] == '\0' || after[3] != ' ')
        return false;
    int64_t numbers[5];
    char *end = NULL;
    after += 4;
    for (size_t n = 0; n < 5; n++) {
        numbers[n] = strtoll(after, &end, 10);
        if (end == after || (*end != ' ' && *end != '\n' && *end != '\0'))
            return false;
        after = end;
    }
    const char *state = strrchr(text, ')') + 2;
    *out = (struct stat_fields){*state, numbers[0], numbers[1],
                                numbers[2], numbers[3], numbers[4]};
    return true;
}

static sandbox_status read_processes(struct sbx_opencode *opencode, sandbox_error *error)
{
    if (opencode->processes != NULL)
        return SANDBOX_OK;
    SBX_ON_EXIT(free_list) sandbox_file_list *entries = NULL;
    sandbox_call call = sbx_guest_call(opencode->wait, SANDBOX_FOREVER);
    sandbox_status status = sandbox_file_list_directory(opencode->workspace, "/proc", &call,
                                                        &entries, error);
    if (status != SANDBOX_OK)
        return status;
    size_t count = sandbox_file_list_count(entries);
    if (count > PROCESSES_MAX)
        return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "check-failed",
                            "more than %u processes run inside, too many to look at",
                            PROCESSES_MAX);
    opencode->processes = calloc(count + 1, sizeof *opencode->processes);
    if (opencode->processes == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a list of processes");
    for (size_t n = 0; n < count && status == SANDBOX_OK; n++) {
        const char *name = sandbox_file_list_at(entries, n)->name;
        char *end = NULL;
        int64_t pid = strtoll(name, &end, 10);
        if (pid <= 0 || *end != '\0')
            continue;
        struct stat_fields fields = {0};
        bool gone = false;
        status = read_stat(opencode, pid, &gone, &fields, error);
        if (status == SANDBOX_OK && !gone)
            opencode->processes[opencode->process_count++] =
                (struct sbx_opencode_process){pid, fields.parent, fields.session, fields.state,
                                              fields.terminal != 0 || fields.foreground == 0};
    }
    return status;
}

/* Who listens on the port; 0: not known. */
static sandbox_status find_server(struct sbx_opencode *opencode, int64_t *pid,
                                  sandbox_error *error)
{
    SBX_ON_EXIT(free_ports) sandbox_port_list *ports = NULL;
    sandbox_call call = sbx_guest_call(opencode->wait, SANDBOX_FOREVER);
    sandbox_status status =
        sandbox_port_list_all(opencode->workspace, &call, &ports, error);
    for (size_t n = 0; n < sandbox_port_list_count(ports); n++) {
        const sandbox_port_info *port = sandbox_port_list_at(ports, n);
        if (port->port == opencode->port)
            *pid = port->pid;
    }
    return status;
}
