/* The rig of the gvisor driver's tests: see rig.h. */

#include "rig.h"
#include "util/child.h"
#include "util/file.h"
#include "util/memory.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void *rig_state;
const struct sbx_driver *rig = &sbx_driver_gvisor;
char rig_folder[64];
struct sbx_wait rig_wait;

static pid_t owner;
static char output[65537];

static const char *setting(const char *name)
{
    const char *value = getenv(name);
    return value == NULL ? "" : value;
}

static sandbox_status open_driver(const char *more, void **state, sandbox_error *error)
{
    char rest[2048];
    snprintf(rest, sizeof rest, "%s?%s%s", rig_folder, more, *more == '\0' ? "" : "&");
    const char *const names[][2] = {{"SANDBOX_RUNSC", "runsc"},
                                    {"SANDBOX_AGENT", "agent"},
                                    {"SANDBOX_SHIM", "shim"},
                                    {"SANDBOX_PLATFORM", "platform"}};
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        size_t used = strlen(rest);
        char given[32];
        snprintf(given, sizeof given, "%s=", names[n][1]);
        if (*setting(names[n][0]) != '\0' && strstr(more, given) == NULL)
            snprintf(rest + used, sizeof rest - used, "%s%s&", given, setting(names[n][0]));
    }
    return rig->open(rest, &rig_wait, state, error);
}

bool rig_begin(void)
{
    owner = getpid();
    rig_wait = sbx_wait_alone(SANDBOX_FOREVER);
    strcpy(rig_folder, "/tmp/sandbox-gvisor-XXXXXX");
    if (mkdtemp(rig_folder) == NULL)
        return false;
    sandbox_error error = {0};
    if (open_driver("", &rig_state, &error) == SANDBOX_OK)
        return true;
    printf("not run: %s\n", error.message);
    rmdir(rig_folder);
    return false;
}

void *rig_open(const char *more)
{
    void *state = NULL;
    sandbox_error error = {0};
    ck_assert_msg(open_driver(more, &state, &error) == SANDBOX_OK, "%s", error.message);
    return state;
}

static bool end_one(void *unused, const char *name, const char *text, size_t size,
                    const char *version)
{
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
    if (sbx_record_decode(text, size, &record, NULL) == SANDBOX_OK)
        (void)rig->destroy(rig_state, &record, &rig_wait, NULL);
    return true;
}

void rig_end(void)
{
    if (getpid() != owner)
        return;
    (void)rig->record_list(rig_state, &rig_wait, end_one, NULL, NULL);
    rig->close(rig_state);
    (void)sbx_tree_remove(AT_FDCWD, rig_folder, NULL);
}

void rig_record(struct sbx_record *record, const char *name)
{
    *record = (struct sbx_record){.driver = "gvisor",
                                  .state = SANDBOX_STATE_CREATING,
                                  .epoch = 1,
                                  .user = "sandbox",
                                  .memory_mib = 512,
                                  .operation.kind = "create"};
    snprintf(record->name, sizeof record->name, "%s", name);
    ck_assert(sbx_id_fresh(record->id) && sbx_id_fresh(record->run) &&
              sbx_id_fresh(record->operation.id));
    rig_store(record);
}

void rig_store(struct sbx_record *record)
{
    SBX_ON_EXIT(sbx_free_text) char *text = NULL;
    sandbox_error error = {0};
    ck_assert_int_eq(sbx_record_encode(record, &text, &error), SANDBOX_OK);
    sandbox_status status = rig->record_store(rig_state, record->name, text, strlen(text),
                                              record->version, record->version, &rig_wait, &error);
    ck_assert_msg(status == SANDBOX_OK, "%s", error.message);
}

void rig_provision(struct sbx_record *record)
{
    sandbox_error error = {0};
    sandbox_status status =
        rig->provision(rig_state, record, &rig_wait, record->incarnation, &error);
    ck_assert_msg(status == SANDBOX_OK, "%s", error.message);
    rig_store(record);
}

void rig_destroy(struct sbx_record *record)
{
    sandbox_error error = {0};
    sandbox_status status = rig->destroy(rig_state, record, &rig_wait, &error);
    ck_assert_msg(status == SANDBOX_OK, "%s", error.message);
    ck_assert_int_eq(rig->record_remove(rig_state, record->name, record->version, &rig_wait, NULL),
                     SANDBOX_OK);
    sbx_record_clear(record);
}

enum sbx_presence rig_presence(const struct sbx_record *record, char detail[160])
{
    struct sbx_instance instance = {0};
    ck_assert_int_eq(rig->inspect(rig_state, record, &rig_wait, &instance, NULL), SANDBOX_OK);
    if (detail != NULL)
        memcpy(detail, instance.detail, sizeof instance.detail);
    if (instance.presence == SBX_PRESENCE_RUNNING)
        ck_assert_str_eq(instance.incarnation, record->incarnation);
    return instance.presence;
}

int rig_inside(const struct sbx_record *record, const char *command, const char **text)
{
    const struct sbx_gvisor *driver = rig_state;
    SBX_ON_EXIT(sbx_free_text) char *root = sbx_format("--root=%s/runsc", rig_folder);
    const char *argv[] = {driver->settings.runsc,
                          root,
                          "--log=/dev/null",
                          "exec",
                          record->id,
                          "/bin/sh",
                          "-c",
                          command,
                          NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv};
    SBX_ON_EXIT(sbx_free_text) char *said = NULL;
    struct sbx_wait bounded = sbx_wait_within(&rig_wait, 60000);
    int code = -1;
    sandbox_error error = {0};
    sandbox_status status = sbx_child_run(&options, &bounded, &code, &said, &error);
    ck_assert_msg(status == SANDBOX_OK, "%s", error.message);
    snprintf(output, sizeof output, "%s", said);
    if (text != NULL)
        *text = output;
    return code;
}

long rig_number(const char *format, ...)
{
    /* What vanishes while it is looked at is no news, and no part of the number. */
    char command[1024] = "exec 2>/dev/null; ";
    size_t used = strlen(command);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command + used, sizeof command - used, format, arguments);
    va_end(arguments);
    const char *argv[] = {"/bin/sh", "-c", command, NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv};
    SBX_ON_EXIT(sbx_free_text) char *said = NULL;
    int code = -1;
    ck_assert_int_eq(sbx_child_run(&options, &rig_wait, &code, &said, NULL), SANDBOX_OK);
    return strtol(said, NULL, 10);
}

long rig_processes(const char *id)
{
    /* By the kernel's own lists: command lines that name it, and members of its groups. The
     * shell that counts must not count itself. */
    return rig_number(
        "id=%s; n=0; for p in /proc/[0-9]*; do [ $p = /proc/$$ ] && continue; "
        "tr '\\0' ' ' <$p/cmdline 2>/dev/null | grep -q -- \"boot.*$id\\|gofer.*$id\\|"
        "exec.*$id\\|run.*$id\" && n=$((n+1)); done; "
        "for g in /sys/fs/cgroup/*/libsandbox/$id /sys/fs/cgroup/libsandbox/$id; do "
        "[ -e $g/cgroup.procs ] && n=$((n+$(wc -l <$g/cgroup.procs))); done; echo $n",
        id);
}

bool rig_await(bool (*is_true)(void *data), void *data)
{
    struct sbx_wait bounded = sbx_wait_within(&rig_wait, 20000);
    while (!is_true(data)) {
        if (sbx_wait_pause(&bounded, 2, NULL) != SANDBOX_OK)
            return false;
    }
    return true;
}
