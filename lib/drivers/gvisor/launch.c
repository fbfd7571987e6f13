/* Starting the sandbox: from a bundle on disk to runsc in the mount namespace that it needs. */

#include "drivers/gvisor/gvisor.h"
#include "drivers/gvisor/root.h"
#include "util/child.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <unistd.h>

#define START_MS 60000
#define LOG_MAX  (1u << 20)

/* What varies in the command line, and has to be freed. */
struct words {
    char *place, *root, *log, *platform, *bundle, *pid_file, *image;
};

#define ARGUMENTS_MAX 32

/*
 * Half of the time that a relay takes is spent before runsc looks for the sandbox, and while runsc
 * restores it holds a lock on its notes of it. A relay that is started once these notes are there
 * waits for that lock, and is inside as soon as the restore is done.
 */
struct herald {
    struct sbx_gvisor *driver;
    const char *id;
    int notes; /* an inotify descriptor on runsc's directory; -1: nothing is awaited */
    struct sbx_channel *early;
};

static bool find_words(const struct sbx_gvisor *driver, const struct sbx_gvisor_start *start,
                       const char *id, struct words *words);
static void free_words(struct words *words);
static void say(const struct sbx_gvisor_start *start, const struct words *words, const char *id,
                const char *argv[ARGUMENTS_MAX]);
static sandbox_status run(const char *const *argv, struct sbx_gvisor_root *root,
                          struct herald *herald, const struct sbx_wait *wait, int *code,
                          sandbox_error *error);
static int watch_notes(const struct sbx_gvisor *driver);
static sandbox_status hurry(struct herald *herald, const struct sbx_child *runsc,
                            const struct sbx_wait *wait, sandbox_error *error);
static bool is_noted(const struct herald *herald);
static void last_words(char *text, size_t size, char words[200]);

sandbox_status sbx_gvisor_launch(struct sbx_gvisor *driver, const struct sbx_record *record,
                                 const struct sbx_gvisor_start *start, const struct sbx_wait *wait,
                                 struct sbx_channel *early, sandbox_error *error)
{
    SBX_ON_EXIT(free_words) struct words words = {0};
    if (!find_words(driver, start, record->id, &words))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a command line");
    SBX_ON_EXIT(sbx_gvisor_root_clear) struct sbx_gvisor_root root = SBX_GVISOR_ROOT;
    sandbox_status status = sbx_gvisor_root_plan(driver, record->id, start, &root, error);
    if (status != SANDBOX_OK)
        return status;
    const char *argv[ARGUMENTS_MAX];
    int code = 0;
    say(start, &words, record->id, argv);
    struct herald herald = {driver, record->id, start->image == NULL ? -1 : watch_notes(driver),
                            early};
    status = run(argv, &root, &herald, wait, &code, error);
    sbx_close_fd(&herald.notes);
    if (status == SANDBOX_OK && code != 0)
        status = sbx_gvisor_explain(driver, record->id, code, error);
    return status;
}

/* Why there is no sandbox, in the words of whoever gave up. */
sandbox_status sbx_gvisor_explain(struct sbx_gvisor *driver, const char *id, int code,
                                  sandbox_error *error)
{
    static const char *const logs[] = {"runsc.log", NULL};
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

static void say(const struct sbx_gvisor_start *start, const struct words *words, const char *id,
                const char *argv[ARGUMENTS_MAX])
{
    const char *const front[] = {start->bundle.runtime.path,
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
    words->root = sbx_format("--root=%s", driver->runsc_root);
    words->log = sbx_format("--log=%s/runsc.log", words->place);
    words->platform = sbx_format("--platform=%s", platform);
    words->bundle = sbx_format("--bundle=%s/bundle", words->place);
    words->pid_file = sbx_format("--pid-file=%s/sandbox.pid", words->place);
    words->image = sbx_format("--image-path=%s", start->image == NULL ? "" : start->image);
    return words->root != NULL && words->log != NULL && words->platform != NULL &&
           words->bundle != NULL && words->pid_file != NULL && words->image != NULL;
}

static void free_words(struct words *words)
{
    free(words->place);
    free(words->root);
    free(words->log);
    free(words->platform);
    free(words->bundle);
    free(words->pid_file);
    free(words->image);
}

/* The sandbox outlives its starter, so it is given no pipe and no lock of ours. */
static sandbox_status run(const char *const *argv, struct sbx_gvisor_root *root,
                          struct herald *herald, const struct sbx_wait *wait, int *code,
                          sandbox_error *error)
{
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv, .own_session = true,
                                        .die_with_parent = true};
    options.prepare = sbx_gvisor_root_enter;
    options.data = root;
    SBX_ON_EXIT(sbx_child_end) struct sbx_child child = SBX_CHILD;
    struct sbx_wait bounded = sbx_wait_within(wait, START_MS);
    sandbox_status status = sbx_child_start(&child, &options, error);
    if (status != SANDBOX_OK && root->failed != NULL)
        return sbx_gvisor_root_explain(root, error);
    if (status == SANDBOX_OK)
        status = hurry(herald, &child, &bounded, error);
    return status != SANDBOX_OK ? status : sbx_child_wait(&child, &bounded, code, error);
}

static int watch_notes(const struct sbx_gvisor *driver)
{
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (fd >= 0 && inotify_add_watch(fd, driver->runsc_root, IN_CLOSE_WRITE | IN_MOVED_TO) < 0)
        sbx_close_fd(&fd);
    return fd;
}

/* Until runsc has ended or a relay is on its way. Without one all goes on as well, only later. */
static sandbox_status hurry(struct herald *herald, const struct sbx_child *runsc,
                            const struct sbx_wait *wait, sandbox_error *error)
{
    while (herald->notes >= 0) {
        struct pollfd watched[2] = {{runsc->pidfd, POLLIN, 0}, {herald->notes, POLLIN, 0}};
        int ready = poll(watched, 2, sbx_wait_slice_ms(wait));
        if (ready < 0 && errno != EINTR)
            return sbx_fail_errno(error, errno, "cannot wait for runsc");
        if (ready > 0 && watched[0].revents != 0)
            return SANDBOX_OK;
        if (ready > 0 && is_noted(herald)) {
            (void)sbx_gvisor_relay(herald->driver, herald->id, wait, herald->early, NULL);
            return SANDBOX_OK;
        }
        sandbox_status status = sbx_wait_check(wait, error);
        if (status != SANDBOX_OK)
            return status;
    }
    return SANDBOX_OK;
}

/* By any version's naming the id is in the name. */
static bool is_noted(const struct herald *herald)
{
    _Alignas(struct inotify_event) char events[4096];
    ssize_t size = read(herald->notes, events, sizeof events);
    for (ssize_t at = 0; at < size;) {
        const struct inotify_event *event = (const void *)(events + at);
        const char *end = event->len == 0 ? NULL : strrchr(event->name, '.');
        if (end != NULL && strcmp(end, ".state") == 0 && strstr(event->name, herald->id) != NULL)
            return true;
        at += (ssize_t)(sizeof *event + event->len);
    }
    return false;
}

/* The last line of a text that says something: JSON, or a trace of runsc as it is. */
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
