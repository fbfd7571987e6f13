/*
 * sandbox-memory-platform: a platform for tests and examples, in a process of its own that
 * outlives its callers. It isolates nothing. Its records live as long as it does; workspaces'
 * directories and agents end with it.
 */

#include "platform.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LINGER_MS        (10 * 60 * 1000)
#define AGENT_PATH_SPARE 24 /* what an agent's socket adds to the state directory */
#define MARKER           ".sandbox-memory-platform"

struct platform platform;

static struct {
    const char *socket, *agent, *state;
    uint64_t linger_ms;
    bool detach;
} settings = {.linger_ms = LINGER_MS};

static uv_signal_t child_signal, end_signals[2];
static uv_timer_t linger;

static void hold_signals(int how);
static int read_settings(int argc, char **argv);
static int claim_socket(int *lock, int *listener);
static int claim_state(void);
static void detach(void);
static int serve(int listener);

int main(int argc, char **argv)
{
    /* One that comes before the loop can take it waits until it can. */
    hold_signals(SIG_BLOCK);
    int code = read_settings(argc, argv);
    int lock = -1, listener = -1;
    if (code == 0)
        code = claim_socket(&lock, &listener);
    if (code == 0)
        code = claim_state();
    if (code != 0)
        return code;
    if (settings.detach)
        detach();
    return serve(listener);
}

static void hold_signals(int how)
{
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGTERM);
    sigaddset(&ours, SIGINT);
    sigaddset(&ours, SIGCHLD);
    sigprocmask(how, &ours, NULL);
}

static int usage(void)
{
    fputs("usage: sandbox-memory-platform --socket PATH --agent PATH --state DIRECTORY\n"
          "                               [--linger-ms NUMBER] [--detach]\n"
          "A platform without isolation, for tests and examples. Ends by itself once it has held\n"
          "no workspace and no connection for --linger-ms (default: ten minutes).\n",
          stderr);
    return 2;
}

static int complain(const char *what, const char *path)
{
    fprintf(stderr, "sandbox-memory-platform: %s '%s': %s\n", what, path, strerror(errno));
    return 1;
}

static int read_settings(int argc, char **argv)
{
    static const struct option known[] = {
        {"socket", required_argument, NULL, 's'}, {"agent", required_argument, NULL, 'a'},
        {"state", required_argument, NULL, 'd'},  {"linger-ms", required_argument, NULL, 'l'},
        {"detach", no_argument, NULL, 'D'},       {NULL, 0, NULL, 0},
    };
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        char *end = NULL;
        if (option == 's')
            settings.socket = optarg;
        else if (option == 'a')
            settings.agent = optarg;
        else if (option == 'd')
            settings.state = optarg;
        else if (option == 'D')
            settings.detach = true;
        else if (option == 'l')
            settings.linger_ms = strtoull(optarg, &end, 10);
        if (option == '?' || (end != NULL && (*end != '\0' || optarg[0] == '-')))
            return usage();
    }
    if (settings.socket == NULL || settings.agent == NULL || settings.state == NULL ||
        optind != argc)
        return usage();
    const char *longer = strlen(settings.socket) > strlen(settings.state) + AGENT_PATH_SPARE
                             ? settings.socket
                             : settings.state;
    struct sockaddr_un address;
    if (settings.socket[0] != '/' || settings.agent[0] != '/' || settings.state[0] != '/' ||
        strlen(settings.socket) >= sizeof address.sun_path ||
        strlen(settings.state) + AGENT_PATH_SPARE >= sizeof address.sun_path) {
        fprintf(stderr,
                "sandbox-memory-platform: '%s': paths must be absolute and the socket's "
                "at most 107 bytes, the state directory's at most %zu\n",
                longer, sizeof address.sun_path - AGENT_PATH_SPARE - 1);
        return 2;
    }
    return 0;
}

/* One platform a socket: whoever holds the lock may remove what a dead one left there. */
static int claim_socket(int *lock, int *listener)
{
    SBX_ON_EXIT(sbx_free_text) char *path = sbx_format("%s.lock", settings.socket);
    if (path == NULL)
        return 1;
    *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*lock < 0)
        return complain("cannot open the lock", path);
    if (flock(*lock, LOCK_EX | LOCK_NB) < 0)
        return complain("another platform serves the socket", settings.socket);

    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", settings.socket);
    unlink(settings.socket);
    *listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t before = umask(077);
    int failed = *listener < 0 ? -1 : bind(*listener, (struct sockaddr *)&address, sizeof address);
    umask(before);
    if (failed < 0 || listen(*listener, 256) < 0)
        return complain("cannot listen on", settings.socket);
    return 0;
}

/* A directory of ours in the state directory, empty. */
static sandbox_status claim_directory(const char *name, mode_t mode, char **path,
                                      sandbox_error *error)
{
    *path = sbx_format("%s/%s", settings.state, name);
    if (*path == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory");
    sandbox_status status = sbx_tree_remove(AT_FDCWD, *path, error);
    return status == SANDBOX_OK ? sbx_directory_make(AT_FDCWD, *path, mode, error) : status;
}

static bool holds_others_files(const char *marker)
{
    static const char *const names[] = {"workspaces", "agents", "seals", "snapshots"};
    if (access(marker, F_OK) == 0)
        return false;
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        SBX_ON_EXIT(sbx_free_text) char *path = sbx_format("%s/%s", settings.state, names[n]);
        if (path == NULL || access(path, F_OK) == 0)
            return true;
    }
    return false;
}

/* What is found in there belonged to a platform that is gone, but only if the marker says so. */
static int claim_state(void)
{
    sandbox_error error = {0};
    SBX_ON_EXIT(sbx_free_text) char *marker = sbx_format("%s/%s", settings.state, MARKER);
    if (marker == NULL)
        return 1;
    umask(022);
    sandbox_status status = sbx_directory_make(AT_FDCWD, settings.state, 0711, &error);
    if (status == SANDBOX_OK && holds_others_files(marker)) {
        fprintf(stderr,
                "sandbox-memory-platform: '%s' holds somebody else's files; name an empty "
                "directory\n",
                settings.state);
        return 1;
    }
    if (status == SANDBOX_OK)
        status = sbx_file_replace(AT_FDCWD, marker, "", 0, 0600, &error);
    if (status == SANDBOX_OK)
        status = claim_directory("workspaces", 0711, &platform.workspaces, &error);
    if (status == SANDBOX_OK)
        status = claim_directory("agents", 0700, &platform.agents, &error);
    if (status == SANDBOX_OK)
        status = claim_directory("seals", 0700, &platform.seals, &error);
    if (status == SANDBOX_OK)
        status = claim_directory("snapshots", 0700, &platform.snapshots, &error);
    if (status == SANDBOX_OK)
        return 0;
    fprintf(stderr, "sandbox-memory-platform: %s\n", error.message);
    return 1;
}

/* The socket listens already, so the caller may connect as soon as the parent has ended. */
static void detach(void)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        _exit(pid < 0 ? 1 : 0);
    setsid();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; null >= 0 && fd < 3; fd++)
        dup2(null, fd);
    if (null > 2)
        close(null);
    if (chdir("/") < 0)
        _exit(1);
}

static void linger_over(uv_timer_t *timer)
{
    platform_stop();
}

void platform_look_idle(void)
{
    bool busy = platform_instance_count() > 0 || platform_record_count() > 0 ||
                platform_connection_count() > 0 || platform_frozen_count() > 0;
    if (platform.stopping && platform_instances_ended() && platform_connection_count() == 0)
        uv_stop(&platform.loop);
    else if (!platform.stopping && busy)
        uv_timer_stop(&linger);
    else if (!platform.stopping && !uv_is_active((uv_handle_t *)&linger))
        uv_timer_start(&linger, linger_over, settings.linger_ms, 0);
}

void platform_stop(void)
{
    platform.stopping = true;
    platform_instances_end();
    platform_connections_close();
    platform_look_idle();
}

static void on_end(uv_signal_t *handle, int number)
{
    platform_stop();
}

static void on_child(uv_signal_t *handle, int number)
{
    platform_orphans_ended();
    platform_look_idle();
}

static void watch_signals(void)
{
    static const int ends[2] = {SIGTERM, SIGINT};
    uv_signal_init(&platform.loop, &child_signal);
    uv_signal_start(&child_signal, on_child, SIGCHLD);
    for (int n = 0; n < 2; n++) {
        uv_signal_init(&platform.loop, &end_signals[n]);
        uv_signal_start(&end_signals[n], on_end, ends[n]);
    }
    signal(SIGPIPE, SIG_IGN);
    hold_signals(SIG_UNBLOCK);
}

static int serve(int listener)
{
    platform.agent = settings.agent;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (uv_loop_init(&platform.loop) != 0 || !platform_listen(listener))
        return complain("cannot serve", settings.socket);
    watch_signals();
    uv_timer_init(&platform.loop, &linger);
    platform_look_idle();
    uv_run(&platform.loop, UV_RUN_DEFAULT);

    unlink(settings.socket);
    platform_faults_free();
    platform_instances_free();
    platform_records_free();
    (void)sbx_tree_remove(AT_FDCWD, settings.state, NULL);
    free(platform.workspaces);
    free(platform.agents);
    free(platform.seals);
    free(platform.snapshots);
    return 0;
}
