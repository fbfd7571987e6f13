/*
 * The same jobs over and over, each time with another allocation of the library failing. Each
 * failure must come back as a status with a sentence, within the deadline; nothing may crash,
 * leak (AddressSanitizer's build sees to memory, this program to descriptors and threads), be
 * left on the platform or be lost: afterwards the workspace opens and has its file.
 *
 *     torture PLATFORM AGENT work|suspend [ALLOCATION]
 *
 * With an allocation only that one fails, and every step says how it went.
 *
 * SANDBOX_TEST_COUNT: how many of the allocations are tried, spread evenly (default 150, of the
 * longer suspend 90).
 */

#include "torture.h"
#include "allocations.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TRIES_DEFAULT 150
#define SUSPEND_TRIES_DEFAULT 90
static char folder[] = "/tmp/sandbox-torture.XXXXXX";
static char socket_path[64], uri[80], host_file[64], host_copy[64];
static pid_t platform;
static const struct step *steps;
static bool file_was_written;
static unsigned long only; /* the one allocation that fails; 0: each of them */
static size_t step_count;

const sandbox_call in_time = {SANDBOX_CALL, .timeout_ms = STEP_MS};

static sandbox_status take_run(struct world *world, sandbox_error *error);
static sandbox_status take_process(struct world *world, sandbox_error *error);
static sandbox_status take_output(struct world *world, sandbox_error *error);
static sandbox_status take_read(struct world *world, sandbox_error *error);
static sandbox_status take_directory(struct world *world, sandbox_error *error);
static sandbox_status take_upload(struct world *world, sandbox_error *error);
static sandbox_status take_download(struct world *world, sandbox_error *error);
static sandbox_status take_watch(struct world *world, sandbox_error *error);
static sandbox_status take_processes(struct world *world, sandbox_error *error);
static sandbox_status take_ports(struct world *world, sandbox_error *error);
static sandbox_status take_forward(struct world *world, sandbox_error *error);
static sandbox_status take_measure(struct world *world, sandbox_error *error);
static sandbox_status take_renewal(struct world *world, sandbox_error *error);
static sandbox_status take_list(struct world *world, sandbox_error *error);
static sandbox_status take_sweep(struct world *world, sandbox_error *error);
static sandbox_status take_deletion(struct world *world, sandbox_error *error);

static const struct step work_steps[] = {
    {"open a client", take_client},
    {"create a workspace", take_workspace},
    {"run a command", take_run},
    {"start a process", take_process},
    {"take its output", take_output},
    {"write a file", take_write},
    {"read a file", take_read},
    {"list a directory", take_directory},
    {"upload", take_upload},
    {"download", take_download},
    {"watch", take_watch},
    {"list processes", take_processes},
    {"list ports", take_ports},
    {"forward a port", take_forward},
    {"measure", take_measure},
    {"renew", take_renewal},
    {"list workspaces", take_list},
    {"sweep", take_sweep},
    {"delete", take_deletion},
};

static int prepare(char **arguments);
static int torture(void);
static int run_with_failing(unsigned long failing, unsigned long *total);
static int judge(const struct step *step, sandbox_status status, const sandbox_error *error,
                 int64_t took_ms, unsigned long failing);
static void end_world(struct world *world);
static int tidy_platform(unsigned long failing);
static sandbox_status look_for_file(struct world *world, sandbox_error *error);
static int settle_counts(int descriptors, int threads, unsigned long failing);
static int count_entries(const char *path);
static int64_t now_ms(void);
static unsigned long wanted_tries(void);
static void end_platform(void);

int main(int argument_count, char **arguments)
{
    if (argument_count != 4 && argument_count != 5) {
        fprintf(stderr, "usage: torture PLATFORM AGENT work|suspend [ALLOCATION]\n");
        return 2;
    }
    only = argument_count == 5 ? strtoul(arguments[4], NULL, 10) : 0;
    bool suspends = strcmp(arguments[3], "suspend") == 0;
    steps = suspends ? suspend_steps : work_steps;
    step_count = suspends ? suspend_step_count : sizeof work_steps / sizeof work_steps[0];
    setvbuf(stdout, NULL, _IOLBF, 0);
    /* The platform takes absolute paths only. */
    for (int each = 1; each < 3; each++) {
        arguments[each] = realpath(arguments[each], NULL);
        if (arguments[each] == NULL) {
            perror("torture");
            return 2;
        }
    }
    int failures = prepare(arguments);
    if (failures == 0)
        failures = torture();
    end_platform();
    return failures == 0 ? 0 : 1;
}

static int start_platform(char **arguments, const char *state)
{
    platform = fork();
    if (platform == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(arguments[1], arguments[1], "--socket", socket_path, "--agent", arguments[2],
              "--state", state, (char *)NULL);
        _exit(127);
    }
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path);
    for (int64_t until = now_ms() + STEP_MS; platform > 0 && now_ms() < until; poll(NULL, 0, 10)) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool answers = connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
        close(fd);
        if (answers)
            return 0;
    }
    printf("the platform did not start\n");
    return 1;
}

static int prepare(char **arguments)
{
    char state[64];
    if (mkdtemp(folder) == NULL || chmod(folder, 0711) != 0)
        return 1;
    snprintf(socket_path, sizeof socket_path, "%s/socket", folder);
    snprintf(uri, sizeof uri, "memory:%s", socket_path);
    snprintf(host_file, sizeof host_file, "%s/file", folder);
    snprintf(host_copy, sizeof host_copy, "%s/copy", folder);
    snprintf(state, sizeof state, "%s/state", folder);
    int fd = open(host_file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, "content\n", 8) != 8 || close(fd) != 0)
        return 1;
    return start_platform(arguments, state);
}

static int torture(void)
{
    unsigned long total = 0;
    /* Twice: the first run also fills what is made once in a process. */
    if (run_with_failing(0, &total) + tidy_platform(0) != 0 ||
        run_with_failing(0, &total) + tidy_platform(0) != 0) {
        printf("the scenario fails without any failing allocation\n");
        return 1;
    }
    int descriptors = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
    unsigned long tries = wanted_tries(), reached = 0;
    unsigned long stride = only != 0 ? total : total > tries ? total / tries : 1;
    unsigned long first = only != 0 ? only : 1;
    int failures = 0;
    for (unsigned long failing = first; failing <= total && failures < 10; failing += stride) {
        failures += run_with_failing(failing, NULL);
        reached += allocations_failed();
        failures += tidy_platform(failing);
        failures += settle_counts(descriptors, threads, failing);
    }
    printf("%lu allocations in the scenario, %lu made to fail, %d failures\n", total, reached,
           failures);
    return failures + (reached == 0);
}

/* How many things were wrong. `total`: how many allocations there were. */
static int run_with_failing(unsigned long failing, unsigned long *total)
{
    struct world world = {0};
    int failures = 0;
    file_was_written = false;
    remove(host_copy);
    allocations_arm(failing);
    for (size_t each = 0; each < step_count; each++) {
        sandbox_error error;
        memset(&error, 0x55, sizeof error);
        int64_t began = now_ms();
        sandbox_status status = steps[each].take(&world, &error);
        if (only != 0)
            printf("%s: %s%s%s\n", steps[each].name, sandbox_status_name(status),
                   status == SANDBOX_OK ? "" : ": ", status == SANDBOX_OK ? "" : error.message);
        if (status == SANDBOX_OK)
            continue;
        failures += judge(&steps[each], status, &error, now_ms() - began, failing);
        if (world.client == NULL || world.workspace == NULL)
            break;
    }
    unsigned long reached = allocations_disarm();
    if (total != NULL)
        *total = reached;
    end_world(&world);
    return failures;
}

static int judge(const struct step *step, sandbox_status status, const sandbox_error *error,
                 int64_t took_ms, unsigned long failing)
{
    const char *wrong = NULL;
    if (!allocations_failed())
        wrong = "it fails though no allocation has";
    else if (status != error->status)
        wrong = "the error says another status";
    else if (memchr(error->message, '\0', sizeof error->message) == NULL ||
             error->message[0] == '\0')
        wrong = "there is no sentence";
    else if (took_ms >= STEP_MS)
        wrong = "it hung";
    else if (status == SANDBOX_INVALID || status == SANDBOX_NOT_FOUND ||
             status == SANDBOX_UNSUPPORTED || status == SANDBOX_DENIED)
        wrong = "the status is not what happened";
    if (wrong == NULL)
        return 0;
    printf("allocation %lu: '%s' answers %s (%.300s): %s\n", failing, step->name,
           sandbox_status_name(status), status == error->status ? error->message : "?", wrong);
    return 1;
}

static void end_world(struct world *world)
{
    sandbox_watch_free(world->watch);
    sandbox_forward_free(world->forward);
    sandbox_process_free(world->process);
    sandbox_workspace_free(world->workspace);
    sandbox_client_free(world->client);
}

/*
 * Whatever a run left is opened and deleted with allocations that work: that must succeed, and
 * what was written must be there.
 */
static int tidy_platform(unsigned long failing)
{
    struct world world = {0};
    sandbox_error error = {0};
    const char *what = "deleted";
    sandbox_status status = take_client(&world, &error);
    if (status == SANDBOX_OK)
        status = sandbox_workspace_find(world.client, NAME, &in_time, &world.workspace, &error);
    if (status == SANDBOX_OK && file_was_written) {
        what = "opened with its file";
        status = look_for_file(&world, &error);
    }
    if (status == SANDBOX_OK)
        status = sandbox_workspace_delete(world.workspace, &in_time, &error);
    if (status == SANDBOX_NOT_FOUND && !file_was_written)
        status = SANDBOX_OK;
    if (status != SANDBOX_OK)
        printf("allocation %lu: what was left cannot be %s: %s\n", failing, what, error.message);
    end_world(&world);
    return status != SANDBOX_OK;
}

/*
 * This platform restores a memory once; where that was used up, the files are what is proven. And
 * whoever does not know whether the record said "opening" already has to be asked.
 */
static sandbox_status look_for_file(struct world *world, sandbox_error *error)
{
    uint8_t *data = NULL;
    size_t size = 0;
    sandbox_resume_options files = {SANDBOX_RESUME_OPTIONS, .accept = SANDBOX_ACCEPT_FILES};
    sandbox_resume_options live = {SANDBOX_RESUME_OPTIONS, .from = SANDBOX_FROM_LIVE_FILES};
    sandbox_status status =
        sandbox_workspace_resume(world->workspace, NULL, &in_time, NULL, error);
    if (status == SANDBOX_NOT_RESTORED && strcmp(error->reason, "memory-gone") == 0)
        status = sandbox_workspace_resume(world->workspace, &files, &in_time, NULL, error);
    else if (status == SANDBOX_INTERRUPTED)
        status = sandbox_workspace_resume(world->workspace, &live, &in_time, NULL, error);
    if (status == SANDBOX_OK)
        status = sandbox_file_read(world->workspace, "file", NULL, &in_time, &data, &size, error);
    if (status == SANDBOX_OK && (size != 8 || memcmp(data, "content\n", 8) != 0)) {
        snprintf(error->message, sizeof error->message, "the file holds something else");
        status = SANDBOX_FAILED;
    }
    sandbox_bytes_free(data);
    return status;
}

/* Freeing never blocks, so threads and descriptors may go a moment later; but go they must. */
static int settle_counts(int descriptors, int threads, unsigned long failing)
{
    int open_now = 0, running_now = 0;
    for (int64_t until = now_ms() + STEP_MS; now_ms() < until; poll(NULL, 0, 5)) {
        open_now = count_entries("/proc/self/fd");
        running_now = count_entries("/proc/self/task");
        if (open_now <= descriptors && running_now <= threads)
            return 0;
    }
    printf("allocation %lu: %d descriptors and %d threads, before it %d and %d\n", failing,
           open_now, running_now, descriptors, threads);
    return 1;
}

sandbox_status take_client(struct world *world, sandbox_error *error)
{
    const sandbox_client_options options = {SANDBOX_CLIENT_OPTIONS, .uri = uri};
    return sandbox_client_open(&options, &in_time, &world->client, error);
}

sandbox_status take_workspace(struct world *world, sandbox_error *error)
{
    const char *env[] = {"COLOUR=blue", NULL}, *labels[] = {"made=here", NULL};
    const sandbox_workspace_options options = {
        SANDBOX_WORKSPACE_OPTIONS, .name = NAME, .env = env, .labels = labels};
    return sandbox_workspace_create(world->client, &options, &in_time, &world->workspace, error);
}

static sandbox_status take_run(struct world *world, sandbox_error *error)
{
    const sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS,
                                             .command = "cat; echo $COLOUR >&2",
                                             .input = SANDBOX_INPUT_PIPE};
    const sandbox_run_options run = {SANDBOX_RUN_OPTIONS, .input = "some\n", .input_size = 5};
    sandbox_process_result *result = NULL;
    sandbox_status status =
        sandbox_process_run(world->workspace, &options, &run, &in_time, &result, error);
    sandbox_process_result_free(result);
    return status;
}

static sandbox_status take_process(struct world *world, sandbox_error *error)
{
    const char *argv[] = {"/bin/cat", NULL};
    const sandbox_process_options options = {
        SANDBOX_PROCESS_OPTIONS, .argv = argv, .input = SANDBOX_INPUT_PIPE};
    return sandbox_process_start(world->workspace, &options, &in_time, &world->process, error);
}

static sandbox_status take_output(struct world *world, sandbox_error *error)
{
    if (world->process == NULL)
        return SANDBOX_OK;
    sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
    sandbox_status status = sandbox_process_write(world->process, "line\n", 5, &in_time, error);
    if (status == SANDBOX_OK)
        status = sandbox_process_end_input(world->process, &in_time, error);
    while (status == SANDBOX_OK && event.kind != SANDBOX_PROCESS_EXIT)
        status = sandbox_process_next(world->process, &in_time, &event, error);
    sandbox_process_free(world->process);
    world->process = NULL;
    return status;
}

sandbox_status take_write(struct world *world, sandbox_error *error)
{
    sandbox_status status =
        sandbox_file_write(world->workspace, "file", "content\n", 8, NULL, &in_time, error);
    file_was_written = status == SANDBOX_OK;
    return status;
}

static sandbox_status take_read(struct world *world, sandbox_error *error)
{
    uint8_t *data = NULL;
    size_t size = 0;
    /* Not the file just written: that may be missing, because its writing failed. */
    sandbox_status status =
        sandbox_file_read(world->workspace, "/etc/passwd", NULL, &in_time, &data, &size, error);
    sandbox_bytes_free(data);
    return status;
}

static sandbox_status take_directory(struct world *world, sandbox_error *error)
{
    sandbox_file_list *list = NULL;
    sandbox_status status =
        sandbox_file_list_directory(world->workspace, "/etc", &in_time, &list, error);
    sandbox_file_list_free(list);
    return status;
}

static sandbox_status take_upload(struct world *world, sandbox_error *error)
{
    return sandbox_file_upload(world->workspace, host_file, "sent", NULL, &in_time, NULL, error);
}

static sandbox_status take_download(struct world *world, sandbox_error *error)
{
    return sandbox_file_download(world->workspace, "/etc/passwd", host_copy, NULL, &in_time, NULL,
                                 error);
}

static sandbox_status take_watch(struct world *world, sandbox_error *error)
{
    sandbox_file_watch *watch = NULL;
    sandbox_status status =
        sandbox_file_watch_open(world->workspace, ".", NULL, &in_time, &watch, error);
    sandbox_file_watch_free(watch);
    return status;
}

static sandbox_status take_processes(struct world *world, sandbox_error *error)
{
    sandbox_process_list *list = NULL;
    sandbox_status status = sandbox_process_list_all(world->workspace, &in_time, &list, error);
    sandbox_process_list_free(list);
    return status;
}

static sandbox_status take_ports(struct world *world, sandbox_error *error)
{
    sandbox_port_list *list = NULL;
    sandbox_status status = sandbox_port_list_all(world->workspace, &in_time, &list, error);
    sandbox_port_list_free(list);
    return status;
}

static sandbox_status take_forward(struct world *world, sandbox_error *error)
{
    const sandbox_forward_options options = {SANDBOX_FORWARD_OPTIONS, .port = 1};
    return sandbox_port_forward(world->workspace, &options, &in_time, &world->forward, error);
}

static sandbox_status take_measure(struct world *world, sandbox_error *error)
{
    sandbox_workspace_stats stats = {SANDBOX_WORKSPACE_STATS};
    return sandbox_workspace_measure(world->workspace, &in_time, &stats, error);
}

static sandbox_status take_renewal(struct world *world, sandbox_error *error)
{
    return sandbox_workspace_renew(world->workspace, 600000, &in_time, error);
}

static sandbox_status take_list(struct world *world, sandbox_error *error)
{
    sandbox_workspace_list *list = NULL;
    sandbox_status status =
        sandbox_workspace_list_all(world->client, NULL, &in_time, &list, error);
    sandbox_workspace_list_free(list);
    if (status != SANDBOX_OK)
        return status;
    status = sandbox_workspace_inspect(world->workspace, &in_time, &list, error);
    if (status == SANDBOX_OK)
        sandbox_workspace_list_free(list);
    return status;
}

static sandbox_status take_sweep(struct world *world, sandbox_error *error)
{
    size_t count = 0;
    return sandbox_client_sweep(world->client, &in_time, &count, error);
}

static sandbox_status take_deletion(struct world *world, sandbox_error *error)
{
    file_was_written = false; /* and need not be there any more */
    return sandbox_workspace_delete(world->workspace, &in_time, error);
}

static int count_entries(const char *path)
{
    DIR *directory = opendir(path);
    if (directory == NULL)
        return -1;
    int count = 0;
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static unsigned long wanted_tries(void)
{
    const char *text = getenv("SANDBOX_TEST_COUNT");
    unsigned long usual = steps == suspend_steps ? SUSPEND_TRIES_DEFAULT : TRIES_DEFAULT;
    unsigned long count = text == NULL ? usual : strtoul(text, NULL, 10);
    return count == 0 ? usual : count;
}

/* SIGTERM makes it end its agents and remove its state. */
static void end_platform(void)
{
    if (platform > 0) {
        kill(platform, SIGTERM);
        waitpid(platform, NULL, 0);
    }
    remove(host_copy);
    remove(host_file);
    char lock[80];
    snprintf(lock, sizeof lock, "%s.lock", socket_path);
    remove(lock);
    rmdir(folder);
}
