/* One workspace on a real runsc over the public API: see scene.h. */

#include "scene.h"
#include "drivers/gvisor/gvisor.h"
#include "util/child.h"
#include "util/memory.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HOST_MS 60000

sandbox_client *client;
sandbox_workspace *workspace;

static char folder[256];
static char printed[65536];

int scene_main(Suite *(*make)(void))
{
    setenv("SANDBOX_TEST_URI", "gvisor:", 1);
    setvbuf(stdout, NULL, _IOLBF, 0); /* what a test says must not be said again by its children */
    return contract_main(make);
}

bool scene_runsc_is_old(void)
{
    const char *given = getenv("SANDBOX_RUNSC");
    struct sbx_wait wait = sbx_wait_alone(HOST_MS);
    struct sbx_gvisor_runsc runsc;
    SBX_ON_EXIT(sbx_free_text) char *path = NULL;
    good(sbx_gvisor_runsc_find(given == NULL || *given == '\0' ? "runsc" : given, &path, &error));
    good(sbx_gvisor_runsc_learn(path, &wait, &runsc, &error));
    return runsc.needs_shim;
}

bool scene_has_program(const char *path)
{
    if (access(path, X_OK) == 0)
        return true;
    printf("not run: there is no %s on this host\n", path);
    return false;
}

void scene_open(const char *name)
{
    contract_open(name, NULL, &client, &workspace);
    const char *path = strchr(harness_uri(), ':') + 1;
    snprintf(folder, sizeof folder, "%.*s", (int)strcspn(path, "?"), path);
}

void scene_close(void)
{
    char id[64];
    snprintf(id, sizeof id, "%s", sandbox_workspace_id(workspace));
    contract_close(client, workspace);
    ck_assert_int_eq(scene_number("find . -name '*%s*' | wc -l", id), 0);
    ck_assert_int_eq(scene_number("grep -c %s /proc/self/mountinfo", id), 0);
    ck_assert_int_eq(scene_number("grep -l '[%c]%s' /proc/[0-9]*/cmdline | wc -l", id[0], id + 1),
                     0);
    ck_assert_int_eq(scene_number("find /sys/fs/cgroup -name '*%s*' | wc -l", id), 0);
}

sandbox_state scene_state(void)
{
    sandbox_workspace_list *list = NULL;
    good(sandbox_workspace_inspect(workspace, NULL, &list, &error));
    sandbox_state state = sandbox_workspace_list_at(list, 0)->state;
    sandbox_workspace_list_free(list);
    return state;
}

void scene_put(const char *path, const char *text)
{
    good(sandbox_file_write(workspace, path, text, strlen(text), NULL, NULL, &error));
}

void scene_require_file(const char *path, const char *text)
{
    uint8_t *data = NULL;
    size_t size = 0;
    good(sandbox_file_read(workspace, path, NULL, NULL, &data, &size, &error));
    ck_assert_str_eq((const char *)data, text);
    sandbox_bytes_free(data);
}

const char *scene_run(const char *command)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = command};
    sandbox_process_result *result = NULL;
    good(sandbox_process_run(workspace, &options, NULL, NULL, &result, &error));
    ck_assert_msg(result->exit.code == 0, "%s: code %d, signal %d: %s", command, result->exit.code,
                  result->exit.signal, (const char *)result->errors);
    snprintf(printed, sizeof printed, "%s", (const char *)result->output);
    sandbox_process_result_free(result);
    return printed;
}

void scene_require_prints(const char *command, const char *expected)
{
    ck_assert_str_eq(scene_run(command), expected);
}

sandbox_process *scene_start(const char *command)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = command,
                                       .role = SANDBOX_ROLE_SERVICE,
                                       .input = SANDBOX_INPUT_PIPE};
    sandbox_process *process = NULL;
    good(sandbox_process_start(workspace, &options, NULL, &process, &error));
    return process;
}

/* Of a process whose lines are read one by one, as those of these tests are. */
const char *scene_read_line(sandbox_process *process)
{
    static char kept[65536], line[65536];
    static sandbox_process *of;
    static size_t used;
    char *end;
    if (of != process)
        used = 0; /* nobody stops reading in the middle of a line */
    of = process;
    while ((end = memchr(kept, '\n', used)) == NULL) {
        sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
        good(sandbox_process_next(process, NULL, &event, &error));
        if (event.kind == SANDBOX_PROCESS_STDERR)
            fprintf(stderr, "%.*s", (int)event.data_size, (const char *)event.data);
        ck_assert_msg(event.kind != SANDBOX_PROCESS_EXIT, "it ended: code %d, signal %d",
                      event.exit.code, event.exit.signal);
        ck_assert_uint_eq(event.dropped, 0);
        if (event.kind != SANDBOX_PROCESS_STDOUT)
            continue;
        ck_assert_uint_le(used + event.data_size, sizeof kept);
        memcpy(kept + used, event.data, event.data_size);
        used += event.data_size;
    }
    size_t size = (size_t)(end - kept);
    memcpy(line, kept, size);
    line[size] = '\0';
    used -= size + 1;
    memmove(kept, end + 1, used);
    return line;
}

void scene_require_line(sandbox_process *process, const char *expected)
{
    ck_assert_str_eq(scene_read_line(process), expected);
}

void scene_end(sandbox_process *process)
{
    good(sandbox_process_signal(process, 9, NULL, &error));
    sandbox_process_free(process);
}

sandbox_suspend_result scene_suspend(sandbox_keep keep)
{
    sandbox_suspend_options options = {SANDBOX_SUSPEND_OPTIONS, .keep = keep,
                                       .quiet_ms = SANDBOX_FOREVER};
    sandbox_suspend_result result = {SANDBOX_SUSPEND_RESULT};
    good(sandbox_workspace_suspend(workspace, &options, NULL, &result, &error));
    ck_assert_int_eq(scene_state(), SANDBOX_STATE_SUSPENDED);
    ck_assert_int_eq(scene_processes(), 0);
    return result;
}

sandbox_resume_result scene_resume(const char *snapshot)
{
    sandbox_resume_options options = {SANDBOX_RESUME_OPTIONS, .snapshot = snapshot};
    sandbox_resume_result result = {SANDBOX_RESUME_RESULT};
    good(sandbox_workspace_resume(workspace, &options, NULL, &result, &error));
    ck_assert_int_eq(scene_state(), SANDBOX_STATE_RUNNING);
    ck_assert(result.restored);
    ck_assert_int_eq(result.proof, result.kept == SANDBOX_KEEP_MEMORY ? SANDBOX_PROOF_MEMORY
                                                                      : SANDBOX_PROOF_FILES);
    return result;
}

sandbox_process *scene_count(void)
{
    return scene_start("n=0; while :; do n=$((n+1)); echo $n; sleep 0.02; done");
}

unsigned long scene_read_count(sandbox_process *counter, unsigned long last, unsigned lines)
{
    for (unsigned n = 0; n < lines; n++) {
        unsigned long next = strtoul(scene_read_line(counter), NULL, 10);
        ck_assert_uint_eq(next, last + 1);
        last = next;
    }
    return last;
}

const char *scene_folder(void)
{
    return folder;
}

const char *scene_host(const char *below)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/workspaces/%s/%s", folder, sandbox_workspace_id(workspace),
             below);
    return path;
}

static char *run_on_host(const char *command, int *code)
{
    const char *argv[] = {"/bin/sh", "-c", command, NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv};
    struct sbx_wait wait = sbx_wait_alone(HOST_MS);
    char *said = NULL;
    good(sbx_child_run(&options, &wait, code, &said, &error));
    return said;
}

void scene_shell(const char *format, ...)
{
    char command[2048];
    int code = -1;
    size_t used = (size_t)snprintf(command, sizeof command, "cd %s && ", scene_host(""));
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command + used, sizeof command - used, format, arguments);
    va_end(arguments);
    SBX_ON_EXIT(sbx_free_text) char *said = run_on_host(command, &code);
    ck_assert_msg(code == 0, "%s: %s", command, said);
}

long scene_number(const char *format, ...)
{
    /* What vanishes while it is looked at is no news. */
    char command[2048];
    int code = -1;
    size_t used = (size_t)snprintf(command, sizeof command, "exec 2>/dev/null; cd %s && ", folder);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command + used, sizeof command - used, format, arguments);
    va_end(arguments);
    SBX_ON_EXIT(sbx_free_text) char *said = run_on_host(command, &code);
    return strtol(said, NULL, 10);
}

long scene_processes(void)
{
    /* The pattern is none that finds itself. */
    return scene_number("grep -l -- '[-]-root=%s/runsc' /proc/[0-9]*/cmdline | wc -l", folder);
}
