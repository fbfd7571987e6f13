/* The agent as a process: hardened, reaping everybody, ending cleanly. */

#include "init.h"
#include "listener.h"
#include "processes.h"
#include "repair.h"
#include "server.h"
#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define END_ROUNDS   50
#define END_PAUSE_US 20000

static bool is_first;
static struct rlimit file_limit;
static uv_signal_t child_ended;
static uv_async_t asked_to_end;

static void default_signals(void);
static void close_inherited(void);
static bool null_stdio(void);
static void on_child(uv_signal_t *handle, int number);
static void on_nothing(int number);
static void on_signal(int number, siginfo_t *facts, void *context);
static void on_end(uv_async_t *handle);

bool agent_init_harden(bool first)
{
    is_first = first;
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    /* Each command holds three descriptors; the commands themselves get what we were given. */
    getrlimit(RLIMIT_NOFILE, &file_limit);
    struct rlimit more = {file_limit.rlim_max, file_limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &more);
    umask(022);
    /*
     * Buffers come and go with every piece that is moved. Mapped and unmapped each time they cost
     * a page fault per 4 KiB, which inside gVisor is most of the work; so they are kept, up to a
     * bound. Worker threads share the first arena.
     */
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 6 << 20);
    mallopt(M_ARENA_MAX, 1);
    default_signals();
    close_inherited();
    return null_stdio();
}

/*
 * Whoever started the agent may have ignored or blocked signals; commands must not inherit that.
 * Linux keeps signals from a first process that does not ask for them. gVisor does not, and
 * whoever runs as our own user could end us with the like of SIGHUP. They are caught rather than
 * ignored, since a command's signals are default ones again without our doing.
 */
static void default_signals(void)
{
    static const int defaults[] = {SIGABRT, SIGBUS,  SIGCHLD, SIGFPE,
                                   SIGILL,  SIGSEGV, SIGSYS,  SIGTRAP};
    struct sigaction action = {.sa_handler = SIG_DFL, .sa_flags = SA_RESTART};
    if (is_first)
        action.sa_handler = on_nothing;
    for (int number = 1; number < NSIG; number++)
        sigaction(number, &action, NULL);
    action.sa_handler = SIG_DFL;
    for (size_t at = 0; at < sizeof defaults / sizeof *defaults; at++)
        sigaction(defaults[at], &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void close_inherited(void)
{
    DIR *descriptors = opendir("/proc/self/fd");
    if (descriptors == NULL)
        return;
    int own = dirfd(descriptors), found[256];
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(descriptors)) != NULL && count < 256;) {
        int fd = (int)strtol(entry->d_name, NULL, 10);
        if (fd > 2 && fd != own)
            found[count++] = fd;
    }
    closedir(descriptors);
    while (count > 0)
        close(found[--count]);
}

/* Commands without input inherit our 0. Nothing is ever printed but fatal errors, on 2. */
static bool null_stdio(void)
{
    int fd = open("/dev/null", O_RDWR);
    if (fd < 0) {
        fputs("sandbox-agent: cannot open /dev/null\n", stderr);
        return false;
    }
    dup2(fd, 0);
    dup2(fd, 1);
    if (fcntl(2, F_GETFD) < 0)
        dup2(fd, 2);
    if (fd > 2)
        close(fd);
    return true;
}

bool agent_init_watch(void)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigfillset(&action.sa_mask);
    uv_signal_init(agent_loop(), &child_ended);
    return uv_async_init(agent_loop(), &asked_to_end, on_end) == 0 &&
           uv_signal_start(&child_ended, on_child, SIGCHLD) == 0 &&
           sigaction(SIGTERM, &action, NULL) == 0 && sigaction(SIGINT, &action, NULL) == 0;
}

bool agent_init_is_first(void)
{
    return is_first;
}

const struct rlimit *agent_init_file_limit(void)
{
    return &file_limit;
}

void agent_init_reap(void)
{
    for (;;) {
        int status = 0;
        pid_t pid = waitpid(-1, &status, WNOHANG | __WALL);
        if (pid <= 0)
            return;
        if (!agent_repair_reaped(pid, status))
            agent_process_reaped(pid, status);
    }
}

static void on_child(uv_signal_t *handle, int number)
{
    agent_init_reap();
}

static void on_nothing(int number)
{
}

/* A container is ended from outside, whose processes have no number in here. */
static void on_signal(int number, siginfo_t *facts, void *context)
{
    if (!is_first || getpid() != 1 || facts->si_pid == 0)
        uv_async_send(&asked_to_end);
}

static void on_end(uv_async_t *handle)
{
    agent_init_end();
}

void agent_init_end(void)
{
    agent_server_unlink();
    if (is_first && getpid() == 1) {
        kill(-1, SIGKILL);
        exit(0);
    }
    /* The last bounded wait of a process that serves nobody any more. */
    for (int round = 0; round < END_ROUNDS && agent_process_kill_all(); round++) {
        usleep(END_PAUSE_US);
        while (waitpid(-1, NULL, WNOHANG | __WALL) > 0)
            ;
    }
    exit(0);
}
