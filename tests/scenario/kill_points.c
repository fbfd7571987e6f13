/*
 * Crash safety: a process is killed before and after every driver call of create, open, renew and
 * delete; then a fresh one goes on. Nothing may be orphaned, stuck or lost. P035, P109.
 *
 * Also: a process killed while a command of its runs. The command goes on and is found by its id
 * (P007), and its deadline holds without anybody outside (P079).
 */

#include "scenario.h"
#include <stdio.h>
#include <string.h>

#define CALLS_MAX 200 /* an operation that makes more has gone astray */

static unsigned points, recovered, all_points;

/* How a fresh process goes on. */
enum way { BY_FIND, BY_OPEN, BY_CREATE, BY_SWEEP, BY_RECOVER, BY_DELETE, WAYS };
static const char *const way_names[] = {"find", "open", "create", "sweep", "recover", "delete"};

static void go_on(enum way way, sandbox_client *client, const char *name, bool must_keep,
                  const char *what)
{
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = name,
                                         .user = harness_user()};
    sandbox_workspace *workspace = NULL;
    sandbox_error error = {0};
    sandbox_status status = SANDBOX_OK;
    if (way == BY_OPEN)
        options.from = SANDBOX_FROM_LIVE_FILES;
    if (way == BY_FIND)
        status = sandbox_workspace_find(client, name, NULL, &workspace, &error);
    else if (way == BY_OPEN)
        status = sandbox_workspace_open(client, &options, NULL, &workspace, &error);
    else if (way == BY_CREATE)
        status = sandbox_workspace_create(client, &options, NULL, &workspace, &error);
    else if (way == BY_SWEEP)
        status = sandbox_client_sweep(client, NULL, NULL, &error);
    else if (way == BY_RECOVER)
        status = sandbox_client_recover(client, NULL, NULL, &error);
    bool used_up = way == BY_OPEN && status == SANDBOX_NOT_RESTORED &&
                   strcmp(error.reason, "memory-gone") == 0;
    /* Where files end with their instance there is nothing to open it from. */
    bool files_gone = way == BY_OPEN && !must_keep && status == SANDBOX_UNSUPPORTED &&
                      strcmp(error.reason, "no-live-files") == 0;
    bool fine = status == SANDBOX_OK || used_up || files_gone ||
                (way == BY_FIND && status == SANDBOX_NOT_FOUND) ||
                (way == BY_CREATE && status == SANDBOX_EXISTS);
    require(fine, "%s, then %s: %s", what, way_names[way], error.message);
    require(!must_keep || way != BY_CREATE || status == SANDBOX_EXISTS,
            "%s, then create: a workspace with files was replaced", what);
    sandbox_workspace_free(workspace);
}

/* What must hold once somebody has gone on: it opens and works, or is gone and can be made. */
static void check_whole(sandbox_client *client, const char *name, bool must_keep, bool must_not,
                        const char *what)
{
    sandbox_workspace *workspace = NULL;
    sandbox_error error = {0};
    sandbox_status status = scenario_open_whole(client, name, &workspace, &error);
    require(status == SANDBOX_OK, "%s, then open: %s", what, error.message);
    require(scenario_count_instances() == 1, "%s: %u instances", what, scenario_count_instances());
    scenario_require_works(workspace);
    bool kept = scenario_has_kept(workspace);
    require(!must_keep || kept, "%s: a file was lost", what);
    require(!must_not || !kept, "%s: a deleted file came back", what);
    sandbox_workspace_free(workspace);
}

struct subject {
    const char *operation;
    void (*prepare)(const char *name);
    bool must_keep; /* the file of before must be there afterwards */
    bool ends;      /* the operation deletes: once begun, the file must not come back */
    bool of_files;  /* it needs files that are kept without their instance */
};

static void nothing(const char *name)
{
}

static const struct subject subjects[] = {
    {"create", nothing, false, false},
    {"open", nothing, false, false},
    {"open", scenario_make, true, false},
    {"open", scenario_make_interrupted, true, false, true},
    {"renew", scenario_make, true, false},
    {"renew", scenario_make_interrupted, true, false, true},
    {"delete", scenario_make, false, true},
    {"delete", scenario_make_interrupted, false, true},
    {"suspend", scenario_make, true, false},
    {"suspend-files", scenario_make, true, false, true},
    {"checkpoint", scenario_make, true, false},
    {"resume", scenario_make_suspended, true, false},
    {"open", scenario_make_suspended, true, false},
    {"resume-snapshot", scenario_make_fallen, true, false, true},
    {"delete", scenario_make_suspended, false, true},
};

/* False: the operation ended before it came to that call. */
static bool strike(const struct subject *subject, enum strike how, unsigned at, enum way way)
{
    static unsigned number;
    char name[32], what[128];
    snprintf(name, sizeof name, "k-%u", number++);
    subject->prepare(name);
    int code = scenario_run(subject->operation, name, how, at, "");
    snprintf(what, sizeof what, "%s (%s) killed %s driver call %u", subject->operation,
             subject->prepare == nothing                     ? "nothing there"
             : subject->prepare == scenario_make             ? "running"
             : subject->prepare == scenario_make_interrupted ? "interrupted"
             : subject->prepare == scenario_make_suspended   ? "suspended"
                                                             : "fallen",
             how == STRIKE_KILL_BEFORE ? "before" : "after", at);
    bool killed = code == CHILD_KILLED;
    require(killed || code == CHILD_OK, "%s: it ended with code %d", what, code);
    points += killed;

    sandbox_client *client = scenario_client();
    go_on(way, client, name, subject->must_keep, what);
    if (way == BY_DELETE)
        scenario_delete(client, name);
    else if (!subject->ends)
        check_whole(client, name, subject->must_keep, false, what);
    scenario_delete(client, name);
    sandbox_client_free(client);
    scenario_require_nothing_left(what);
    recovered += killed;
    return killed;
}

/* A deletion that a crash broke off and somebody opened over: new and empty, or whole. */
static void open_after_broken_delete(void)
{
    for (unsigned at = scenario_first(); at < CALLS_MAX; at += scenario_stride()) {
        char what[64];
        snprintf(what, sizeof what, "delete killed after driver call %u", at);
        scenario_make("reborn");
        int code = scenario_run("delete", "reborn", STRIKE_KILL_AFTER, at, "");
        sandbox_client *client = scenario_client();
        check_whole(client, "reborn", false, code == CHILD_OK, what);
        scenario_delete(client, "reborn");
        sandbox_client_free(client);
        scenario_require_nothing_left(what);
        if (code == CHILD_OK)
            return;
        points++;
        recovered++;
        all_points += scenario_stride();
    }
}

static void kill_everywhere(void)
{
    for (size_t n = 0; n < sizeof subjects / sizeof subjects[0]; n++) {
        bool killed = !subjects[n].of_files || !harness_is_cluster();
        for (unsigned at = scenario_first(); killed; at += scenario_stride()) {
            require(at < CALLS_MAX, "%s makes too many calls", subjects[n].operation);
            /* Every point both ways, each time gone on with in another manner. */
            unsigned turn = at / scenario_stride();
            killed = strike(&subjects[n], STRIKE_KILL_BEFORE, at, (enum way)(turn % WAYS));
            if (killed)
                strike(&subjects[n], STRIKE_KILL_AFTER, at, (enum way)((turn + 2) % WAYS));
            all_points += killed ? 2 * scenario_stride() : 0;
        }
    }
    open_after_broken_delete();
}

static sandbox_process *find_process(sandbox_workspace *workspace, const char *id)
{
    sandbox_process *process = NULL;
    sandbox_error error = {0};
    require(sandbox_process_find(workspace, id, NULL, &process, &error) == SANDBOX_OK, "%s",
            error.message);
    return process;
}

/* P007, P079 */
static void kill_in_mid_command(void)
{
    static const char running[] = "0123456789abcdef0123456789abcdef";
    static const char limited[] = "dddddddddddddddddddddddddddddddd";
    scenario_make("busy");
    require(scenario_run("exec", "busy", STRIKE_NEVER, 0, running) == CHILD_KILLED, "not killed");
    require(scenario_run("exec", "busy", STRIKE_NEVER, 0, limited) == CHILD_KILLED, "not killed");

    sandbox_client *client = scenario_client();
    sandbox_workspace *workspace = NULL;
    sandbox_error error = {0};
    require(sandbox_workspace_find(client, "busy", NULL, &workspace, &error) == SANDBOX_OK, "%s",
            error.message);
    sandbox_process *process = find_process(workspace, running);
    sandbox_process_exit end = {0};
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = 60000};
    require(sandbox_file_write(workspace, "go", "", 0, NULL, NULL, &error) == SANDBOX_OK, "%s",
            error.message);
    require(sandbox_process_wait(process, &call, &end, &error) == SANDBOX_OK, "%s", error.message);
    require(end.code == 7, "code %d, signal %d", end.code, end.signal);
    sandbox_process_free(process);

    process = find_process(workspace, limited);
    require(sandbox_process_wait(process, &call, &end, &error) == SANDBOX_OK, "%s", error.message);
    require(end.timed_out, "code %d, signal %d, but not timed out", end.code, end.signal);
    sandbox_process_free(process);
    sandbox_workspace_free(workspace);
    scenario_delete(client, "busy");
    sandbox_client_free(client);
    scenario_require_nothing_left("a command whose caller was killed");
    puts("2 commands outlived their caller");
}

int main(int argc, char **argv)
{
    scenario_begin_anywhere(argc, argv);
    if (!harness_is_memory() && !harness_is_cluster()) {
        fputs("not run: this looks into the memory platform or the cluster double\n", stderr);
        harness_end();
        return HARNESS_SKIP;
    }
    kill_everywhere();
    printf("%u kill points of some %u, %u recovered\n", points, all_points, recovered);
    kill_in_mid_command();
    return scenario_end();
}
