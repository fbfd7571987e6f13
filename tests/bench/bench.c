/*
 * Measures the library over gVisor against the same work without it. tools/bench prepares the
 * place, runs this, and makes a table of the lines.
 *
 *     bench STATE RUNSC ECHO AGENT [ROUNDS [PART]]
 *
 * PART is "work" or "sleep" (suspend and resume); without it, both.
 * STATE is an empty directory that whoever calls removes again.
 */

#include "bench.h"
#include "core/driver.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HANDLES 10000
#define RECORDS 10000
#define NAME    "bench"

static char uri[4400], root[4200];

static void measure_work(sandbox_client *client, char **arguments, int rounds);
static sandbox_workspace *make_workspace(sandbox_client *client, const char *echo);
static void measure_agent(const char *agent, const char *state);
static void serve_peer(sandbox_workspace *workspace);
static void measure_handles(sandbox_client *client);
static void measure_list(const char *state);
static void make_records(const char *rest);
static double private_bytes(const char *maps);

int main(int argument_count, char **arguments)
{
    if (argument_count < 5 || argument_count > 7)
        bench_fail("usage", "bench STATE RUNSC ECHO AGENT [ROUNDS [PART]]");
    const char *state = arguments[1], *runsc = arguments[2];
    int rounds = argument_count >= 6 ? (int)strtol(arguments[5], NULL, 10) : 5;
    const char *part = argument_count == 7 ? arguments[6] : "";
    if (rounds < 1 || rounds > 50)
        bench_fail("usage", "ROUNDS is 1 to 50");
    snprintf(uri, sizeof uri, "gvisor:%s?runsc=%s", state, runsc);
    snprintf(root, sizeof root, "%s/runsc", state);
    setvbuf(stdout, NULL, _IOLBF, 0);

    sandbox_client *client = NULL;
    sandbox_error error;
    const sandbox_client_options options = {SANDBOX_CLIENT_OPTIONS, .uri = uri};
    bench_check(sandbox_client_open(&options, NULL, &client, &error), &error, "open");
    if (strcmp(part, "sleep") != 0)
        measure_work(client, arguments, rounds);
    for (size_t each = 0; strcmp(part, "work") != 0 && each < 3; each++) {
        static const unsigned sizes[] = {16, 256, 1024};
        bench_sleep(client, runsc, arguments[3], state, sizes[each], rounds);
    }
    sandbox_client_free(client);
    if (strcmp(part, "sleep") != 0)
        measure_list(state);
    return 0;
}

static void measure_work(sandbox_client *client, char **arguments, int rounds)
{
    sandbox_error error;
    sandbox_workspace *workspace = make_workspace(client, arguments[3]);
    struct bench_peer peer = {arguments[2], root, sandbox_workspace_id(workspace)};
    measure_agent(arguments[4], arguments[1]);
    serve_peer(workspace);
    bench_commands(workspace, &peer, rounds * 4);
    bench_trips(workspace, &peer, rounds * 4);
    bench_output(workspace, &peer, rounds);
    bench_input(workspace, &peer, rounds);
    bench_upload(workspace, &peer, rounds);
    bench_download(workspace, &peer, rounds);
    measure_handles(client);
    bench_check(sandbox_workspace_delete(workspace, NULL, &error), &error, "delete");
    sandbox_workspace_free(workspace);
}

double bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void bench_fail(const char *what, const char *why)
{
    fprintf(stderr, "bench: %s: %s\n", what, why);
    exit(1);
}

void bench_check(sandbox_status status, const sandbox_error *error, const char *what)
{
    if (status != SANDBOX_OK)
        bench_fail(what, error->message);
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return count % 2 == 1 ? values[count / 2]
                          : (values[count / 2 - 1] + values[count / 2]) / 2;
}

void bench_print_three(const char *name, double *ours, double *peers, double *floors, int count)
{
    printf("%s %.9f %.9f %.9f\n", name, median(ours, count), median(peers, count),
           median(floors, count));
}

void bench_print(const char *name, double value)
{
    printf("%s %.9f\n", name, value);
}

static sandbox_workspace *make_workspace(sandbox_client *client, const char *echo)
{
    sandbox_workspace *workspace = NULL;
    sandbox_error error;
    const sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = NAME};
    double began = bench_now();
    bench_check(sandbox_workspace_create(client, &options, NULL, &workspace, &error), &error,
                "create");
    bench_print("create-first", bench_now() - began);
    bench_check(sandbox_file_upload(workspace, echo, BENCH_ECHO, NULL, NULL, NULL, &error),
                &error, "upload the echo program");
    return workspace;
}

/* On this machine, where the kernel tells what is private: started, listening, nobody there yet. */
static void measure_agent(const char *agent, const char *state)
{
    struct stat facts;
    char place[4300], maps[64];
    snprintf(place, sizeof place, "%s/agent.socket", state);
    if (stat(agent, &facts) != 0)
        bench_fail("agent", "there is no such program");
    pid_t pid = fork();
    if (pid == 0) {
        execl(agent, agent, "serve", "--socket", place, "--workspace", state, (char *)NULL);
        _exit(127);
    }
    for (int tries = 0; tries < 2000 && access(place, F_OK) != 0; tries++)
        poll(NULL, 0, 5);
    snprintf(maps, sizeof maps, "/proc/%d/smaps_rollup", (int)pid);
    bench_print("agent-size", (double)facts.st_size);
    bench_print("agent-memory", private_bytes(maps));
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
}

/* The peer's other end: see echo.c. */
static void serve_peer(sandbox_workspace *workspace)
{
    const char *const argv[] = {BENCH_ECHO, "serve", BENCH_SOCKET, NULL};
    const sandbox_process_options options = {
        SANDBOX_PROCESS_OPTIONS, .argv = argv, .role = SANDBOX_ROLE_SERVICE};
    sandbox_process *process = NULL;
    sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
    sandbox_error error;
    bench_check(sandbox_process_start(workspace, &options, NULL, &process, &error), &error,
                "start the peer");
    bench_check(sandbox_process_next(process, NULL, &event, &error), &error, "the peer");
    if (event.kind != SANDBOX_PROCESS_STDOUT)
        bench_fail("the peer", "it does not listen");
    sandbox_process_free(process);
}

static void measure_handles(sandbox_client *client)
{
    sandbox_workspace **handles = calloc(HANDLES, sizeof *handles);
    sandbox_error error;
    if (handles == NULL)
        bench_fail("handles", "no memory");
    bench_check(sandbox_workspace_find(client, NAME, NULL, &handles[0], &error), &error, "find");
    double before = private_bytes("/proc/self/smaps_rollup");
    for (int each = 1; each < HANDLES; each++)
        bench_check(sandbox_workspace_find(client, NAME, NULL, &handles[each], &error), &error,
                    "find");
    bench_print("handles", private_bytes("/proc/self/smaps_rollup") - before);
    for (int each = 0; each < HANDLES; each++)
        sandbox_workspace_free(handles[each]);
    free(handles);
}

static double private_bytes(const char *maps)
{
    FILE *file = fopen(maps, "re");
    char line[256];
    double kilobytes = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "Private_Dirty:", 14) == 0)
            kilobytes += strtod(line + 14, NULL);
    }
    if (file != NULL)
        fclose(file);
    return kilobytes * 1024;
}

static void measure_list(const char *state)
{
    char rest[4300];
    snprintf(rest, sizeof rest, "%s/many", state);
    snprintf(uri, sizeof uri, "gvisor:%s", rest);
    make_records(rest);

    sandbox_client *client = NULL;
    sandbox_error error;
    const sandbox_client_options options = {SANDBOX_CLIENT_OPTIONS, .uri = uri};
    bench_check(sandbox_client_open(&options, NULL, &client, &error), &error, "open");
    const char *const names[] = {"list-cold", "list-warm"};
    for (int each = 0; each < 2; each++) {
        sandbox_workspace_list *list = NULL;
        double began = bench_now();
        bench_check(sandbox_workspace_list_all(client, NULL, NULL, &list, &error), &error,
                    "list");
        bench_print(names[each], bench_now() - began);
        if (sandbox_workspace_list_count(list) != RECORDS)
            bench_fail("list", "records are missing");
        sandbox_workspace_list_free(list);
    }
    sandbox_client_free(client);
}

/* As the core writes them, through the driver, without an instance behind each. */
static void make_records(const char *rest)
{
    const struct sbx_driver *driver = &sbx_driver_gvisor;
    struct sbx_wait wait = sbx_wait_alone(600000);
    sandbox_error error;
    void *state = NULL;
    bench_check(driver->open(rest, &wait, &state, &error), &error, "open the driver");
    for (int each = 0; each < RECORDS; each++) {
        struct sbx_record record = {.state = SANDBOX_STATE_RUNNING, .epoch = 1};
        char *text = NULL, version[SBX_VERSION_TEXT] = "";
        snprintf(record.name, sizeof record.name, "many-%05d", each);
        snprintf(record.driver, sizeof record.driver, "gvisor");
        snprintf(record.user, sizeof record.user, "sandbox");
        snprintf(record.incarnation, sizeof record.incarnation, "%s", "none");
        if (!sbx_id_fresh(record.id) || !sbx_id_fresh(record.run))
            bench_fail("records", "no random bytes");
        bench_check(sbx_record_encode(&record, &text, &error), &error, "encode");
        bench_check(driver->record_store(state, record.name, text, strlen(text), "", version,
                                         &wait, &error),
                    &error, "store");
        free(text);
        sbx_record_clear(&record);
    }
    driver->close(state);
}
