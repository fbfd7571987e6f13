/* Starting the sandbox: from a bundle on disk to runsc in the mount namespace that it needs. */

#include "drivers/gvisor/gvisor.h"
#include "util/child.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define START_MS 60000
#define LOG_MAX  (1u << 20)

/*
 * Runs in a mount namespace of its own, so that no mount is ever seen outside or left behind:
 * joins the control groups, puts the root file system together, and becomes runsc. Everything
 * that varies is an argument.
 */
static const char launch_script[] =
    "set -e\n"
    "rootfs=$1 layers=$2 memory=$3 cpu=$4 userland=$5 programs=$6\n"
    "shift 6\n"
    "for group in \"$memory\" \"$cpu\"; do\n"
    "    [ -z \"$group\" ] || echo $$ >\"$group/cgroup.procs\"\n"
    "done\n"
    "mount -t overlay -o \"ro,lowerdir=$layers\" overlay \"$rootfs\"\n"
    "for name in $programs; do\n"
    "    mount --rbind \"$userland/$name\" \"$rootfs/$name\"\n"
    "    mount -o remount,bind,ro \"$rootfs/$name\"\n"
    "done\n"
    "exec \"$@\" 2>/dev/null\n";

/* What varies in the command line, and has to be freed. */
struct words {
    char *place, *rootfs, *layers, *root, *log, *platform, *bundle, *pid_file, *messages, *image;
};

#define ARGUMENTS_MAX 32

static bool find_words(const struct sbx_gvisor *driver, const struct sbx_gvisor_start *start,
                       const char *id, struct words *words);
static void free_words(struct words *words);
static void list_programs(const struct sbx_gvisor_bundle *bundle, char programs[64]);
static void say(const struct sbx_gvisor_start *start, const struct words *words,
                const char *programs, const char *id, const char *argv[ARGUMENTS_MAX]);
static sandbox_status run(const char *const *argv, int errors, const struct sbx_wait *wait,
                          int *code, sandbox_error *error);
static void last_words(char *text, size_t size, char words[200]);

sandbox_status sbx_gvisor_launch(struct sbx_gvisor *driver, const struct sbx_record *record,
                                 const struct sbx_gvisor_start *start, const struct sbx_wait *wait,
                                 sandbox_error *error)
{
    SBX_ON_EXIT(free_words) struct words words = {0};
    if (!find_words(driver, start, record->id, &words))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a command line");
    char programs[64];
    const char *argv[ARGUMENTS_MAX];
    list_programs(&start->bundle, programs);
    say(start, &words, programs, record->id, argv);

    SBX_ON_EXIT(sbx_close_fd)
    int errors = open(words.messages, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (errors < 0)
        return sbx_fail_errno(error, errno, "cannot write '%s'", words.messages);
    int code = 0;
    sandbox_status status = run(argv, errors, wait, &code, error);
    if (status == SANDBOX_OK && code != 0)
        status = sbx_gvisor_explain(driver, record->id, code, error);
    return status;
}

/* Why there is no sandbox, in the words of whoever gave up. */
sandbox_status sbx_gvisor_explain(struct sbx_gvisor *driver, const char *id, int code,
                                  sandbox_error *error)
{
    static const char *const logs[] = {"start.log", "runsc.log", NULL};
    char words[200];
    sbx_gvisor_last_words(driver, id, logs, words);
    return sbx_fail_for(error, SANDBOX_FAILED, "no-start", "runsc did not start (code %d): %s",
                        code, words[0] == '\0' ? "it left no message" : words);
}

const char *sbx_gvisor_platform(const struct sbx_gvisor *driver,
                                const struct sbx_gvisor_runsc *runsc)
{
    return driver->settings.platform != NULL ? driver->settings.platform : runsc->platform;
}

void sbx_gvisor_last_words(struct sbx_gvisor *driver, const char *id, const char *const *logs,
                           char words[200])
{
    words[0] = '\0';
    for (size_t n = 0; logs[n] != NULL && words[0] == '\0'; n++) {
        char path[80];
        snprintf(path, sizeof path, "workspaces/%s/%s", id, logs[n]);
        uint8_t *text = NULL;
        size_t size = 0;
        if (sbx_file_read(driver->directory, path, LOG_MAX, &text, &size, NULL) == SANDBOX_OK)
            last_words((char *)text, size, words);
        free(text);
    }
}

static void say(const struct sbx_gvisor_start *start, const struct words *words,
                const char *programs, const char *id, const char *argv[ARGUMENTS_MAX])
{
    const char *const front[] = {"unshare",
                                 "--mount",
                                 "--propagation",
                                 "slave",
                                 "/bin/sh",
                                 "-c",
                                 launch_script,
                                 "launch",
                                 words->rootfs,
                                 words->layers,
                                 start->memory_group,
                                 start->cpu_group,
                                 start->bundle.userland == NULL ? "" : start->bundle.userland,
                                 programs,
                                 start->bundle.runtime.path,
                                 words->root,
                                 words->log,
                                 "--log-format=json",
                                 words->platform,
                                 "--network=none",
                                 "--ignore-cgroups",
                                 "--overlay2=root:memory"};
    const char *const run[] = {"run", "--detach", words->bundle, words->pid_file, id, NULL};
    const char *const restore[] = {"restore",       "--detach", words->image, words->bundle,
                                   words->pid_file, id,         NULL};
    _Static_assert(sizeof front + sizeof restore <= ARGUMENTS_MAX * sizeof argv[0], "too many");
    memcpy(argv, front, sizeof front);
    if (start->image == NULL)
        memcpy(argv + sizeof front / sizeof front[0], run, sizeof run);
    else
        memcpy(argv + sizeof front / sizeof front[0], restore, sizeof restore);
}

static bool find_words(const struct sbx_gvisor *driver, const struct sbx_gvisor_start *start,
                       const char *id, struct words *words)
{
    const char *platform = sbx_gvisor_platform(driver, &start->bundle.runtime.runsc);
    words->place = sbx_gvisor_path(driver, "workspaces/%s", id);
    if (words->place == NULL)
        return false;
    words->rootfs = sbx_format("%s/bundle/rootfs", words->place);
    words->layers = sbx_format("%s/layer:%s", words->place, start->bundle.lower);
    words->root = sbx_format("--root=%s", driver->runsc_root);
    words->log = sbx_format("--log=%s/runsc.log", words->place);
    words->platform = sbx_format("--platform=%s", platform);
    words->bundle = sbx_format("--bundle=%s/bundle", words->place);
    words->pid_file = sbx_format("--pid-file=%s/sandbox.pid", words->place);
    words->messages = sbx_format("%s/start.log", words->place);
    words->image = sbx_format("--image-path=%s", start->image == NULL ? "" : start->image);
    return words->rootfs != NULL && words->layers != NULL && words->root != NULL &&
           words->log != NULL && words->platform != NULL && words->bundle != NULL &&
           words->pid_file != NULL && words->messages != NULL && words->image != NULL;
}

static void free_words(struct words *words)
{
    free(words->place);
    free(words->rootfs);
    free(words->layers);
    free(words->root);
    free(words->log);
    free(words->platform);
    free(words->bundle);
    free(words->pid_file);
    free(words->messages);
    free(words->image);
}

/* What is bound into the base: /usr, and what older systems have beside. */
static void list_programs(const struct sbx_gvisor_bundle *bundle, char programs[64])
{
    programs[0] = '\0';
    for (size_t n = 0; bundle->userland != NULL && sbx_gvisor_base_programs[n] != NULL; n++) {
        char path[SBX_GVISOR_PATH];
        struct stat facts;
        snprintf(path, sizeof path, "%s/%s", bundle->lower, sbx_gvisor_base_programs[n]);
        if (lstat(path, &facts) < 0 || !S_ISDIR(facts.st_mode))
            continue;
        size_t used = strlen(programs);
        snprintf(programs + used, 64 - used, "%s ", sbx_gvisor_base_programs[n]);
    }
}

/* The sandbox outlives its starter, so it is given no pipe and no lock of ours. */
static sandbox_status run(const char *const *argv, int errors, const struct sbx_wait *wait,
                          int *code, sandbox_error *error)
{
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv, .own_session = true,
                                        .die_with_parent = true};
    options.errors = errors;
    SBX_ON_EXIT(sbx_child_end) struct sbx_child child = SBX_CHILD;
    struct sbx_wait bounded = sbx_wait_within(wait, START_MS);
    sandbox_status status = sbx_child_start(&child, &options, error);
    return status != SANDBOX_OK ? status : sbx_child_wait(&child, &bounded, code, error);
}

/* The last line of a text that says something; runsc writes JSON, the shell does not. */
static void last_words(char *text, size_t size, char words[200])
{
    while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == '\r'))
        text[--size] = '\0';
    char *line = strrchr(text, '\n');
    line = line == NULL ? text : line + 1;
    if (*line == '\t') { /* the end of a trace: what it is of was said first */
        text[strcspn(text, "\n")] = '\0';
        line = text;
    }
    SBX_ON_EXIT(sbx_json_free) cJSON *json = NULL;
    if (sbx_json_parse(line, strlen(line), LOG_MAX, &json, NULL) == SANDBOX_OK)
        snprintf(words, 200, "%s", sbx_json_text(json, "msg"));
    else
        snprintf(words, 200, "%s", line);
}
