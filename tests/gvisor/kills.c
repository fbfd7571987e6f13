/*
 * SIGKILL at random moments of suspend, resume and checkpoint on a real runsc: of the owner, of
 * the runsc commands that work for it, of both, and of the sandbox too. Whoever comes next gets a
 * proven state, with the same process counting on, or is told that the instance was lost and goes
 * back to the last snapshot. And races of two owners. P196.
 *
 * SANDBOX_TEST_COUNT says how often is killed (default 3), SANDBOX_TEST_SEED repeats a run.
 */

#include "scenario.h"
#include "util/clock.h"
#include "util/wait.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LATER      "later"
#define COUNTER_ID "00112233445566778899aabbccddeeff"

enum victim { OWNER, OWNER_AND_COMMANDS, COMMANDS, SANDBOX, VICTIMS };
static const char *const victims[] = {"the owner", "the owner and its runsc", "its runsc",
                                      "the sandbox"};
static const char *const operations[] = {"suspend", "resume", "checkpoint"};
#define OPERATIONS (sizeof operations / sizeof *operations)

static char folder[256];
static uint32_t usual_ms[OPERATIONS]; /* what one takes that nobody disturbs */
static unsigned struck, too_late, went_on, lost;

/* A number that a shell command prints in the state directory, where $id is the workspace's. */
static long number(const char *look, const char *id)
{
    char command[1024];
    snprintf(command, sizeof command, "exec 2>/dev/null; id=%s; cd %s && %s", id, folder, look);
    FILE *output = popen(command, "re");
    long value = -1;
    require(output != NULL && fscanf(output, "%ld", &value) == 1, "%s", command);
    pclose(output);
    return value;
}

static void require_nothing_left(const char *id, const char *after)
{
    static const char *const looks[] = {
        "grep -l -- '[-]-root='$PWD/runsc /proc/[0-9]*/cmdline | wc -l",
        "find . -name \"*$id*\" | wc -l",
        "grep -c $id /proc/self/mountinfo",
        "find /sys/fs/cgroup -name \"*$id*\" | wc -l",
    };
    for (size_t n = 0; n < sizeof looks / sizeof *looks; n++)
        require(number(looks[n], id) == 0, "%s, after it was deleted: %s", after, looks[n]);
}

static sandbox_workspace *find(sandbox_client *client, const char *name)
{
    sandbox_workspace *workspace = NULL;
    sandbox_error error = {0};
    require(sandbox_workspace_find(client, name, NULL, &workspace, &error) == SANDBOX_OK, "%s",
            error.message);
    return workspace;
}

static void write_later(sandbox_workspace *workspace)
{
    sandbox_error error = {0};
    require(sandbox_file_write(workspace, LATER, "x", 1, NULL, NULL, &error) == SANDBOX_OK, "%s",
            error.message);
}

static bool has_later(sandbox_workspace *workspace)
{
    sandbox_file_list *list = NULL;
    sandbox_error error = {0};
    sandbox_status status = sandbox_file_stat(workspace, LATER, NULL, &list, &error);
    require(status == SANDBOX_OK || status == SANDBOX_NOT_FOUND, "%s", error.message);
    sandbox_file_list_free(list);
    return status == SANDBOX_OK;
}

/* All that the counter ever wrote, from its first line on, and some more. */
static unsigned long require_counts(sandbox_workspace *workspace, unsigned long beyond,
                                    const char *what)
{
    sandbox_process *counter = NULL;
    sandbox_error error = {0};
    unsigned long line = 0, partial = 0;
    require(sandbox_process_find(workspace, COUNTER_ID, NULL, &counter, &error) == SANDBOX_OK,
            "%s: %s", what, error.message);
    while (line < beyond + 5) {
        sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
        require(sandbox_process_next(counter, NULL, &event, &error) == SANDBOX_OK, "%s: %s", what,
                error.message);
        require(event.kind == SANDBOX_PROCESS_STDOUT && event.dropped == 0,
                "%s: event %d, %llu bytes lost", what, (int)event.kind,
                (unsigned long long)event.dropped);
        for (size_t at = 0; at < event.data_size; at++) {
            if (event.data[at] != '\n') {
                partial = partial * 10 + (unsigned long)(event.data[at] - '0');
                continue;
            }
            require(partial == line + 1, "%s: %lu came after %lu", what, partial, line);
            line = partial;
            partial = 0;
        }
    }
    sandbox_process_free(counter);
    return line;
}

static void change(sandbox_client *client, const char *name, const char *operation)
{
    sandbox_workspace *workspace = find(client, name);
    sandbox_error error = {0};
    require(scenario_change(workspace, operation, NULL, &error) == SANDBOX_OK, "%s: %s", operation,
            error.message);
    sandbox_workspace_free(workspace);
}

/* It counts, has a snapshot, and a file that is newer. Returns how far it had counted. */
static unsigned long make(sandbox_client *client, const char *name, char id[64])
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .id = COUNTER_ID,
                                       .role = SANDBOX_ROLE_SERVICE,
                                       .command = "n=0; while :; do n=$((n+1)); echo $n; "
                                                  "sleep 0.02; done"};
    sandbox_process *counter = NULL;
    sandbox_error error = {0};
    scenario_make(name);
    sandbox_workspace *workspace = find(client, name);
    snprintf(id, 64, "%s", sandbox_workspace_id(workspace));
    require(sandbox_process_start(workspace, &options, NULL, &counter, &error) == SANDBOX_OK, "%s",
            error.message);
    sandbox_process_free(counter);
    require_counts(workspace, 0, name);
    change(client, name, "checkpoint");
    write_later(workspace);
    unsigned long counted = require_counts(workspace, 0, name);
    sandbox_workspace_free(workspace);
    return counted;
}

/* What works for the state directory: commands of runsc, or sandboxes too. */
static void kill_runsc(bool sandboxes)
{
    char root[300], path[64], command[16384];
    int root_size = snprintf(root, sizeof root, "--root=%s/runsc", folder);
    DIR *proc = opendir("/proc");
    require(proc != NULL, "there is no /proc");
    for (struct dirent *entry; (entry = readdir(proc)) != NULL;) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
        int file = pid <= 1 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
        ssize_t size = file < 0 ? 0 : read(file, command, sizeof command - 1);
        if (file >= 0)
            close(file);
        bool ours = false, is_sandbox = false;
        for (char *at = command; size > 0 && at < command + size; at += strlen(at) + 1) {
            command[size] = '\0';
            ours = ours || (strncmp(at, root, (size_t)root_size) == 0 && at[root_size] == '\0');
            is_sandbox = is_sandbox || strcmp(at, "boot") == 0 || strcmp(at, "gofer") == 0;
        }
        if (ours && (sandboxes || !is_sandbox))
            kill(pid, SIGKILL);
    }
    closedir(proc);
}

/* The owner's answer where only others were killed: done, or said what was wrong. */
static bool is_an_answer(int code)
{
    static const sandbox_status answers[] = {SANDBOX_OK, SANDBOX_INTERRUPTED, SANDBOX_FAILED,
                                             SANDBOX_UNAVAILABLE, SANDBOX_NOT_RESTORED,
                                             SANDBOX_UNKNOWN, SANDBOX_BUSY};
    for (size_t n = 0; n < sizeof answers / sizeof *answers; n++) {
        if (code == (answers[n] == SANDBOX_OK ? CHILD_OK : CHILD_STATUS(answers[n])))
            return true;
    }
    return false;
}

/* Lost: back to the snapshot, which must hold; what was done since is kept beside it. */
static void go_back(sandbox_client *client, const char *name, const char *what)
{
    sandbox_workspace *workspace = find(client, name);
    sandbox_resume_options from = {SANDBOX_RESUME_OPTIONS, .from = SANDBOX_FROM_SNAPSHOT};
    sandbox_resume_result woke = {SANDBOX_RESUME_RESULT};
    sandbox_snapshot_list *list = NULL;
    sandbox_error error = {0};
    require(sandbox_workspace_resume(workspace, &from, NULL, &woke, &error) == SANDBOX_OK,
            "%s, then back: %s", what, error.message);
    require(woke.restored && woke.proof == SANDBOX_PROOF_MEMORY, "%s, then back: proof %d", what,
            (int)woke.proof);
    require(scenario_has_kept(workspace), "%s, then back: the file was lost", what);
    require_counts(workspace, 0, what);
    require(sandbox_snapshot_list_all(workspace, NULL, &list, &error) == SANDBOX_OK, "%s",
            error.message);
    const sandbox_snapshot_info *live = sandbox_snapshot_list_at(list, 0);
    require(live != NULL && !live->has_seal, "%s: the files as they were are not kept", what);
    sandbox_resume_options files = {SANDBOX_RESUME_OPTIONS, .snapshot = live->id};
    change(client, name, "suspend-files");
    require(sandbox_workspace_resume(workspace, &files, NULL, &woke, &error) == SANDBOX_OK,
            "%s, then the live files: %s", what, error.message);
    require(has_later(workspace), "%s: what was written last was lost", what);
    sandbox_snapshot_list_free(list);
    sandbox_workspace_free(workspace);
}

/* As a fresh process finds it. */
static void check_whole(const char *name, unsigned long counted, bool may_be_lost,
                        const char *what)
{
    sandbox_client *client = scenario_client();
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = name, .user = "root"};
    sandbox_workspace *workspace = NULL;
    sandbox_error error = {0};
    sandbox_status status = sandbox_workspace_open(client, &options, NULL, &workspace, &error);
    if (status == SANDBOX_INTERRUPTED && may_be_lost) {
        lost++;
        go_back(client, name, what);
    } else {
        require(status == SANDBOX_OK, "%s, then open: %s (%s)", what, error.message,
                sandbox_status_name(status));
        went_on++;
        require_counts(workspace, counted, what);
        require(scenario_has_kept(workspace) && has_later(workspace), "%s: a file was lost", what);
        scenario_require_works(workspace);
    }
    sandbox_workspace_free(workspace);
    sandbox_client_free(client);
}

static void strike_once(unsigned round)
{
    size_t operation = round % OPERATIONS;
    enum victim victim = (enum victim)((round / OPERATIONS) % VICTIMS);
    uint32_t after_ms = (uint32_t)random() % usual_ms[operation];
    char name[32], id[64], what[160];
    snprintf(name, sizeof name, "k-%u", round);
    snprintf(what, sizeof what, "%s of '%s', %s killed after %u ms", operations[operation], name,
             victims[victim], after_ms);
    sandbox_client *client = scenario_client();
    unsigned long counted = make(client, name, id);
    if (strcmp(operations[operation], "resume") == 0)
        change(client, name, "suspend");
    sandbox_client_free(client);

    struct scenario_child *owner = scenario_start(operations[operation], name);
    scenario_go(&owner, 1);
    struct sbx_wait wait = sbx_wait_alone(SANDBOX_FOREVER);
    (void)sbx_wait_pause(&wait, after_ms, NULL); /* the moment is what varies */
    if (victim == OWNER || victim == OWNER_AND_COMMANDS)
        scenario_kill(owner);
    if (victim != OWNER)
        kill_runsc(victim == SANDBOX);
    int code = scenario_wait(owner);
    struck++;
    too_late += code == CHILD_OK;
    require(code == CHILD_KILLED ? victim <= OWNER_AND_COMMANDS : is_an_answer(code),
            "%s: it ended with code %d", what, code);
    check_whole(name, counted, victim != OWNER, what);
    client = scenario_client();
    scenario_delete(client, name);
    sandbox_client_free(client);
    require_nothing_left(id, what);
}

static void measure(void)
{
    char id[64];
    sandbox_client *client = scenario_client();
    make(client, "usual", id);
    for (size_t n = 0; n < OPERATIONS; n++) {
        int64_t begun = sbx_clock_monotonic(&sbx_system_clock);
        int code = scenario_run(operations[n], "usual", STRIKE_NEVER, 0, "");
        require(code == CHILD_OK, "%s: %d", operations[n], code);
        usual_ms[n] = (uint32_t)(sbx_clock_monotonic(&sbx_system_clock) - begun);
    }
    scenario_delete(client, "usual");
    sandbox_client_free(client);
    require_nothing_left(id, "a usual run");
}

/* ---- two owners ---- */

struct pair {
    const char *first, *second;
    bool suspended; /* before */
    sandbox_status also[2]; /* what each may answer beside SANDBOX_OK */
};
static const struct pair pairs[] = {
    {"suspend", "suspend", false, {SANDBOX_OK, SANDBOX_OK}},
    {"suspend", "resume", false, {SANDBOX_OK, SANDBOX_OK}},
    {"resume", "delete", true, {SANDBOX_CLOSED, SANDBOX_OK}},
    {"checkpoint", "suspend", false, {SANDBOX_SUSPENDED, SANDBOX_OK}},
    {"resume", "resume", true, {SANDBOX_OK, SANDBOX_OK}},
};
#define PAIRS (sizeof pairs / sizeof *pairs)

static void race(const struct pair *pair, unsigned round)
{
    char name[32], id[64], what[96];
    snprintf(name, sizeof name, "r-%u", round);
    snprintf(what, sizeof what, "%s and %s of '%s'", pair->first, pair->second, name);
    sandbox_client *client = scenario_client();
    unsigned long counted = make(client, name, id);
    if (pair->suspended)
        change(client, name, "suspend");
    struct scenario_child *owners[2] = {scenario_start(pair->first, name),
                                        scenario_start(pair->second, name)};
    scenario_go(owners, 2);
    for (size_t n = 0; n < 2; n++) {
        int code = scenario_wait(owners[n]);
        bool is_gone = strcmp(pair->second, "delete") == 0 && n == 0 &&
                       code == CHILD_STATUS(SANDBOX_NOT_FOUND);
        require(code == CHILD_OK || code == CHILD_STATUS(pair->also[n]) || is_gone,
                "%s: number %zu ended with code %d", what, n + 1, code);
    }
    if (strcmp(pair->second, "delete") != 0)
        check_whole(name, counted, false, what);
    scenario_delete(client, name);
    sandbox_client_free(client);
    require_nothing_left(id, what);
}

static unsigned long setting(const char *name, unsigned long usual)
{
    const char *given = getenv(name);
    unsigned long value = given == NULL ? 0 : strtoul(given, NULL, 10);
    return value == 0 ? usual : value;
}

int main(int argc, char **argv)
{
    setenv("SANDBOX_TEST_URI", "gvisor:", 1);
    scenario_begin_anywhere(argc, argv);
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *path = strchr(harness_uri(), ':') + 1;
    snprintf(folder, sizeof folder, "%.*s", (int)strcspn(path, "?"), path);
    unsigned long count = setting("SANDBOX_TEST_COUNT", 3);
    unsigned seed = (unsigned)setting("SANDBOX_TEST_SEED", (unsigned long)getpid());
    printf("seed %u\n", seed);
    srandom(seed);
    measure();
    for (unsigned n = 0; n < count; n++)
        strike_once(n);
    printf("%u kills, %u of them when it was done already: %u went on proven, %u were lost and "
           "went back\n",
           struck, too_late, went_on, lost);
    unsigned races = count < 20 ? PAIRS : 20;
    for (unsigned n = 0; n < races; n++)
        race(&pairs[n % PAIRS], n);
    printf("%u races\n", races);
    return scenario_end();
}
