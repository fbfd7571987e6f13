/* What the crash and race scenarios share: see scenario.h. */

#include "scenario.h"
#include "util/child.h"
#include "util/memory.h"
#include "util/wait.h"
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHILD_MS 120000
#define STRIDE_DEFAULT 4
#define STRIDE_CLUSTER 24 /* whatever is done there takes ten times as long */

struct scenario_child {
    struct sbx_child process;
    int go; /* write end: closed to let it begin */
};

static uint64_t seed;
static const char *child_uri; /* in a child, which has no harness */

static int do_operation(char **words);

void scenario_fail(const char *file, int line, const char *condition, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s:%d: %s: ", file, line, condition);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    harness_end();
    exit(1);
}

void scenario_begin_anywhere(int argc, char **argv)
{
    if (argc == 8 && strcmp(argv[1], "child") == 0)
        exit(do_operation(argv + 2));
    if (!harness_begin())
        exit(HARNESS_SKIP);
}

void scenario_begin(int argc, char **argv)
{
    scenario_begin_anywhere(argc, argv);
    if (!harness_is_memory()) {
        fputs("not run: these scenarios look into the memory platform\n", stderr);
        harness_end();
        exit(HARNESS_SKIP);
    }
}

unsigned scenario_stride(void)
{
    const char *all = getenv("SANDBOX_TEST_COUNT");
    if (all != NULL && *all != '\0')
        return 1;
    return harness_is_cluster() ? STRIDE_CLUSTER : STRIDE_DEFAULT;
}

unsigned scenario_first(void)
{
    if (scenario_stride() == 1)
        return 1;
    if (seed == 0) {
        const char *given = getenv("SANDBOX_TEST_SEED");
        seed = (uint64_t)getpid();
        if (given != NULL)
            seed = (uint64_t)strtoull(given, NULL, 10);
        seed += seed == 0; /* it would stay zero */
        printf("SANDBOX_TEST_SEED=%llu\n", (unsigned long long)seed);
    }
    /* xorshift64*: the same on every machine */
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return 1 + (unsigned)((seed * 2685821657736338717u >> 32) % scenario_stride());
}

int scenario_end(void)
{
    harness_end();
    return 0;
}

/* Starts this program again. `input` becomes what the child waits for before it begins. */
static void start_child(struct sbx_child *child, const char *operation, const char *name,
                        enum strike strike, unsigned at, const char *extra, int input)
{
    char strike_text[16], at_text[16];
    snprintf(strike_text, sizeof strike_text, "%d", (int)strike);
    snprintf(at_text, sizeof at_text, "%u", at);
    const char *const argv[] = {"/proc/self/exe", "child", harness_uri(), operation, name,
                                strike_text,      at_text, extra,         NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv, .die_with_parent = true};
    options.env = (const char *const *)environ;
    options.input = input;
    options.errors = STDERR_FILENO;
    sandbox_error error = {0};
    require(sbx_child_start(child, &options, &error) == SANDBOX_OK, "%s", error.message);
}

static int wait_child(struct sbx_child *child)
{
    struct sbx_wait wait = sbx_wait_alone(CHILD_MS);
    sandbox_error error = {0};
    int code = 0;
    require(sbx_child_wait(child, &wait, &code, &error) == SANDBOX_OK, "%s", error.message);
    return code;
}

int scenario_run(const char *operation, const char *name, enum strike strike, unsigned at,
                 const char *extra)
{
    struct sbx_child child;
    start_child(&child, operation, name, strike, at, extra, -1);
    return wait_child(&child);
}

struct scenario_child *scenario_start(const char *operation, const char *name)
{
    struct scenario_child *child = calloc(1, sizeof *child);
    int ends[2];
    require(child != NULL && pipe2(ends, O_CLOEXEC) == 0, "no memory or no pipe");
    start_child(&child->process, operation, name, STRIKE_NEVER, 0, "", ends[0]);
    close(ends[0]);
    child->go = ends[1];
    return child;
}

void scenario_go(struct scenario_child *children[], size_t count)
{
    for (size_t n = 0; n < count; n++)
        close(children[n]->go);
}

void scenario_kill(const struct scenario_child *child)
{
    sbx_child_signal(&child->process, SIGKILL);
}

int scenario_wait(struct scenario_child *child)
{
    int code = wait_child(&child->process);
    free(child);
    return code;
}

/* ---- in the child ---- */

static const char *usual_user(void)
{
    if (child_uri == NULL)
        return harness_user();
    return strncmp(child_uri, "gke:", 4) == 0 ? "sandbox" : "root";
}

static sandbox_status open_live(sandbox_client *client, const char *name,
                                sandbox_workspace **workspace, sandbox_error *error)
{
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = name,
                                         .user = usual_user(), .from = SANDBOX_FROM_LIVE_FILES};
    return sandbox_workspace_open(client, &options, NULL, workspace, error);
}

static sandbox_status delete_by_name(sandbox_client *client, const char *name, sandbox_error *error)
{
    sandbox_workspace *workspace = NULL;
    sandbox_status status = sandbox_workspace_find(client, name, NULL, &workspace, error);
    if (status == SANDBOX_NOT_FOUND)
        return SANDBOX_OK;
    if (status == SANDBOX_OK)
        status = sandbox_workspace_delete(workspace, NULL, error);
    sandbox_workspace_free(workspace);
    return status;
}

/* Starts a command with a known id, and dies while it runs. */
static sandbox_status exec_and_die(sandbox_workspace *workspace, const char *id,
                                   sandbox_error *error)
{
    bool late = id[0] == 'd';
    sandbox_process_options options = {
        SANDBOX_PROCESS_OPTIONS,
        .command = late ? "exec sleep 1000" : "until test -e go; do sleep 0.02; done; exit 7",
        .id = id, .deadline_ms = late ? 1000 : 0};
    sandbox_process *process = NULL;
    sandbox_status status = sandbox_process_start(workspace, &options, NULL, &process, error);
    if (status == SANDBOX_OK)
        raise(SIGKILL);
    return status;
}

sandbox_status scenario_change(sandbox_workspace *workspace, const char *operation,
                               const sandbox_call *call, sandbox_error *error)
{
    sandbox_suspend_options how = {SANDBOX_SUSPEND_OPTIONS};
    sandbox_resume_options from = {SANDBOX_RESUME_OPTIONS};
    if (strcmp(operation, "suspend-files") == 0)
        how.keep = SANDBOX_KEEP_FILES;
    if (strcmp(operation, "resume-snapshot") == 0) {
        from.from = SANDBOX_FROM_SNAPSHOT;
        from.accept = SANDBOX_ACCEPT_FILES;
    }
    if (strcmp(operation, "checkpoint") == 0)
        return sandbox_workspace_checkpoint(workspace, &how, call, NULL, error);
    return strncmp(operation, "suspend", 7) == 0
               ? sandbox_workspace_suspend(workspace, &how, call, NULL, error)
               : sandbox_workspace_resume(workspace, &from, call, NULL, error);
}

static bool changes_state(const char *operation)
{
    return strncmp(operation, "suspend", 7) == 0 || strncmp(operation, "resume", 6) == 0 ||
           strcmp(operation, "checkpoint") == 0;
}

/* The words: URI, operation, name, strike, at, extra. */
static int do_operation(char **words)
{
    const char *operation = words[1], *name = words[2];
    char go;
    child_uri = words[0];
    while (read(STDIN_FILENO, &go, 1) > 0)
        continue;
    sandbox_client *client = NULL;
    sandbox_workspace *workspace = NULL;
    sandbox_error error = {0};
    sandbox_client_options where = {SANDBOX_CLIENT_OPTIONS, .uri = words[0]};
    sandbox_workspace_options how = {SANDBOX_WORKSPACE_OPTIONS, .name = name, .user = usual_user()};
    sandbox_status status = sandbox_client_open(&where, NULL, &client, &error);
    bool finds = strcmp(operation, "renew") == 0 || strcmp(operation, "exec") == 0 ||
                 changes_state(operation);
    if (status == SANDBOX_OK && finds)
        status = sandbox_workspace_find(client, name, NULL, &workspace, &error);
    counting_begin((enum strike)strtol(words[3], NULL, 10), (unsigned)strtoul(words[4], NULL, 10),
                   NULL);
    if (status == SANDBOX_OK && strcmp(operation, "create") == 0)
        status = sandbox_workspace_create(client, &how, NULL, &workspace, &error);
    else if (status == SANDBOX_OK && strcmp(operation, "open") == 0)
        status = open_live(client, name, &workspace, &error);
    else if (status == SANDBOX_OK && strcmp(operation, "renew") == 0)
        status = sandbox_workspace_renew(workspace, 3600000, NULL, &error);
    else if (status == SANDBOX_OK && strcmp(operation, "delete") == 0)
        status = delete_by_name(client, name, &error);
    else if (status == SANDBOX_OK && changes_state(operation))
        status = scenario_change(workspace, operation, NULL, &error);
    else if (status == SANDBOX_OK && strcmp(operation, "exec") == 0)
        status = exec_and_die(workspace, words[5], &error);
    if (status != SANDBOX_OK && getenv("SCENARIO_TALK") != NULL)
        fprintf(stderr, "%s '%s': %s (%s)\n", operation, name, error.message, error.reason);
    sandbox_workspace_free(workspace);
    sandbox_client_free(client);
    return status == SANDBOX_OK ? CHILD_OK : CHILD_STATUS(status);
}

/* ---- in the parent ---- */

sandbox_client *scenario_client(void)
{
    sandbox_client *client = NULL;
    sandbox_error error = {0};
    sandbox_client_options where = {SANDBOX_CLIENT_OPTIONS, .uri = harness_uri()};
    require(sandbox_client_open(&where, NULL, &client, &error) == SANDBOX_OK, "%s", error.message);
    return client;
}

sandbox_status scenario_open_whole(sandbox_client *client, const char *name,
                                   sandbox_workspace **workspace, sandbox_error *error)
{
    sandbox_status status = open_live(client, name, workspace, error);
    if (status != SANDBOX_NOT_RESTORED || strcmp(error->reason, "memory-gone") != 0)
        return status;
    sandbox_resume_options files = {SANDBOX_RESUME_OPTIONS, .accept = SANDBOX_ACCEPT_FILES};
    status = sandbox_workspace_find(client, name, NULL, workspace, error);
    return status == SANDBOX_OK
               ? sandbox_workspace_resume(*workspace, &files, NULL, NULL, error)
               : status;
}

void scenario_make(const char *name)
{
    sandbox_client *client = scenario_client();
    sandbox_workspace *workspace = NULL;
    sandbox_error error = {0};
    require(open_live(client, name, &workspace, &error) == SANDBOX_OK, "%s", error.message);
    require(sandbox_file_write(workspace, KEPT, KEPT_TEXT, strlen(KEPT_TEXT), NULL, NULL, &error) ==
                SANDBOX_OK,
            "%s", error.message);
    sandbox_workspace_free(workspace);
    sandbox_client_free(client);
}

void scenario_make_interrupted(const char *name)
{
    scenario_make(name);
    sandbox_client *client = scenario_client();
    sandbox_workspace *workspace = NULL;
    sandbox_error error = {0};
    require(sandbox_workspace_find(client, name, NULL, &workspace, &error) == SANDBOX_OK, "%s",
            error.message);
    harness_kill_instance(sandbox_workspace_id(workspace), "");
    sandbox_workspace_free(workspace);
    sandbox_client_free(client);
}

static void change(const char *name, const char *operation)
{
    sandbox_client *client = scenario_client();
    sandbox_workspace *workspace = NULL;
    sandbox_error error = {0};
    require(sandbox_workspace_find(client, name, NULL, &workspace, &error) == SANDBOX_OK &&
                scenario_change(workspace, operation, NULL, &error) == SANDBOX_OK,
            "%s of '%s': %s", operation, name, error.message);
    sandbox_workspace_free(workspace);
    sandbox_client_free(client);
}

void scenario_make_suspended(const char *name)
{
    scenario_make(name);
    change(name, "suspend");
}

void scenario_make_fallen(const char *name)
{
    scenario_make_suspended(name);
    change(name, "resume");
    sandbox_client *client = scenario_client();
    sandbox_workspace *workspace = NULL;
    sandbox_error error = {0};
    require(sandbox_workspace_find(client, name, NULL, &workspace, &error) == SANDBOX_OK, "%s",
            error.message);
    harness_kill_instance(sandbox_workspace_id(workspace), "");
    sandbox_workspace_free(workspace);
    sandbox_client_free(client);
}

bool scenario_has_kept(sandbox_workspace *workspace)
{
    uint8_t *data = NULL;
    size_t size = 0;
    sandbox_error error = {0};
    sandbox_status status = sandbox_file_read(workspace, KEPT, NULL, NULL, &data, &size, &error);
    require(status == SANDBOX_OK || status == SANDBOX_NOT_FOUND, "%s", error.message);
    bool same = status == SANDBOX_OK && strcmp((const char *)data, KEPT_TEXT) == 0;
    sandbox_bytes_free(data);
    return same;
}

void scenario_require_works(sandbox_workspace *workspace)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "echo it works"};
    sandbox_process_result *result = NULL;
    sandbox_error error = {0};
    require(sandbox_process_run(workspace, &options, NULL, NULL, &result, &error) == SANDBOX_OK,
            "%s", error.message);
    require(strcmp((const char *)result->output, "it works\n") == 0, "it printed '%s'",
            (const char *)result->output);
    sandbox_process_result_free(result);
}

void scenario_delete(sandbox_client *client, const char *name)
{
    sandbox_error error = {0};
    require(delete_by_name(client, name, &error) == SANDBOX_OK, "%s: %s", name, error.message);
}

/* Pods of Sandboxes that a claim has; those of the pool are nobody's. */
static unsigned count_claimed_pods(void)
{
    SBX_ON_EXIT(sbx_json_free)
    cJSON *claims = harness_ask("{\"do\":\"objects\",\"resource\":\"sandboxclaims\"}");
    unsigned count = 0;
    const cJSON *claim;
    cJSON_ArrayForEach(claim, cJSON_GetObjectItemCaseSensitive(claims, "objects"))
    {
        const cJSON *status = cJSON_GetObjectItemCaseSensitive(claim, "status");
        const char *name =
            sbx_json_text(cJSON_GetObjectItemCaseSensitive(status, "sandbox"), "name");
        SBX_ON_EXIT(sbx_json_free)
        cJSON *pods =
            harness_ask("{\"do\":\"objects\",\"resource\":\"pods\",\"name\":\"%s\"}", name);
        count += (unsigned)cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(pods, "objects"));
    }
    return count;
}

unsigned scenario_count_instances(void)
{
    return harness_is_cluster() ? count_claimed_pods() : (unsigned)harness_count("instances");
}

/* Of a cluster: what the library makes in it, and what GKE keeps of that in the bucket. */
static void require_clean_cluster(const char *after)
{
    static const char *const kinds[] = {"sandboxclaims", "podsnapshots",
                                        "podsnapshotmanualtriggers", "configmaps"};
    SBX_ON_EXIT(sbx_json_free) cJSON *state = harness_ask("{\"do\":\"state\"}");
    const cJSON *objects = cJSON_GetObjectItemCaseSensitive(state, "objects");
    for (size_t n = 0; n < sizeof kinds / sizeof kinds[0]; n++) {
        int count = (int)sbx_json_integer(objects, kinds[n]);
        require(count == 0, "after %s the cluster still holds %d %s", after, count, kinds[n]);
    }
    require(sbx_json_integer(state, "images") == 0, "after %s the bucket still holds %d images",
            after, (int)sbx_json_integer(state, "images"));
}

void scenario_require_nothing_left(const char *after)
{
    if (harness_is_cluster()) {
        require_clean_cluster(after);
        return;
    }
    static const char *const kinds[] = {"instances", "records",  "directories",
                                        "orphans",   "frozen", "snapshots"};
    for (size_t n = 0; n < sizeof kinds / sizeof kinds[0]; n++) {
        int count = harness_count(kinds[n]);
        require(count == 0, "after %s the platform still holds %d %s", after, count, kinds[n]);
    }
}

sandbox_workspace *scenario_find(sandbox_client *client, const char *name)
{
    sandbox_workspace *workspace = NULL;
    sandbox_error error = {0};
    require(sandbox_workspace_find(client, name, NULL, &workspace, &error) == SANDBOX_OK, "%s",
            error.message);
    return workspace;
}

sandbox_state scenario_state(sandbox_workspace *workspace)
{
    sandbox_workspace_list *list = NULL;
    sandbox_error error = {0};
    require(sandbox_workspace_inspect(workspace, NULL, &list, &error) == SANDBOX_OK, "%s",
            error.message);
    sandbox_state state = sandbox_workspace_list_at(list, 0)->state;
    sandbox_workspace_list_free(list);
    return state;
}

void scenario_suspend(sandbox_workspace *workspace)
{
    sandbox_error error = {0};
    require(sandbox_workspace_suspend(workspace, NULL, NULL, NULL, &error) == SANDBOX_OK, "%s",
            error.message);
}

void scenario_resume(sandbox_workspace *workspace, const char *after)
{
    sandbox_resume_result result = {SANDBOX_RESUME_RESULT};
    sandbox_error error = {0};
    require(sandbox_workspace_resume(workspace, NULL, NULL, &result, &error) == SANDBOX_OK,
            "%s, then an honest resume: %s", after, error.message);
    require(result.restored && result.proof == SANDBOX_PROOF_MEMORY, "%s: proof %d", after,
            (int)result.proof);
    require(scenario_has_kept(workspace), "%s: the file was lost", after);
    scenario_require_works(workspace);
}
