/*
 * The child between clone and exec. It borrows the agent's memory while the agent stands still,
 * as vfork and posix_spawn do: copying page tables is what makes fork slow in gVisor. So it
 * makes plain system calls only, and leaves the reason of a failure where the agent looks for it.
 */

#include "init.h"
#include "processes.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK_BYTES (64u << 10)
#define PATH_BYTES  4096

static int in_child(void *argument);
static void become_default(void);
static bool settle_stdio(struct agent_spawn *spawn);
static void settle_limits(const struct agent_spawn *spawn);
static bool become_user(const struct agent_identity *identity);
static void run_program(struct agent_spawn *spawn);

pid_t agent_spawn(struct agent_spawn *spawn)
{
    /* One at a time: the agent has one thread that starts commands. */
    static _Alignas(64) uint8_t stack[STACK_BYTES];
    sigset_t all, old;
    sigfillset(&all);
    spawn->step = AGENT_SPAWN_CLONE;
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pid_t pid = clone(in_child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, spawn);
    int number = errno;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (pid < 0) {
        spawn->number = number;
        return 0;
    }
    if (spawn->step == AGENT_SPAWN_DONE)
        return pid;
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return 0;
}

static void fail(struct agent_spawn *spawn, enum agent_spawn_step step)
{
    spawn->number = errno;
    spawn->step = step;
}

static int in_child(void *argument)
{
    struct agent_spawn *spawn = argument;
    setsid();
    become_default();
    if (!settle_stdio(spawn)) {
        fail(spawn, AGENT_SPAWN_TERMINAL);
        _exit(127);
    }
    settle_limits(spawn);
    if (geteuid() == 0 && !become_user(spawn->identity)) {
        fail(spawn, AGENT_SPAWN_USER);
        _exit(127);
    }
    /*
     * As an ordinary process the agent may be killed without warning; a container's end is total.
     */
    if (!agent_init_is_first())
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (chdir(spawn->directory) != 0) {
        fail(spawn, AGENT_SPAWN_DIRECTORY);
        _exit(127);
    }
    run_program(spawn);
    fail(spawn, AGENT_SPAWN_PROGRAM);
    _exit(127);
}

/* The agent's handlers must not run in here: they would speak for the agent. */
static void become_default(void)
{
    static const int handled[] = {SIGCHLD, SIGTERM, SIGINT, SIGPIPE};
    struct sigaction action = {.sa_handler = SIG_DFL};
    for (size_t at = 0; at < sizeof handled / sizeof *handled; at++)
        sigaction(handled[at], &action, NULL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static bool settle_stdio(struct agent_spawn *spawn)
{
    if (spawn->terminal && ioctl(spawn->input, TIOCSCTTY, 0) != 0)
        return false;
    return (spawn->input < 0 || dup2(spawn->input, 0) == 0) && dup2(spawn->output, 1) == 1 &&
           dup2(spawn->errors, 2) == 2;
}

static void settle_limits(const struct agent_spawn *spawn)
{
    setrlimit(RLIMIT_NOFILE, agent_init_file_limit());
    if (spawn->file_limit > 0) {
        struct rlimit limit = {spawn->file_limit, spawn->file_limit};
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    /* On a host the user may well have processes of other places. */
    if (spawn->process_limit > 0 && agent_init_is_first()) {
        struct rlimit limit = {spawn->process_limit, spawn->process_limit};
        setrlimit(RLIMIT_NPROC, &limit);
    }
}

/* The C library's own would change all threads of the agent, whose memory this is. */
static bool become_user(const struct agent_identity *identity)
{
    return syscall(SYS_setgroups, identity->group_count, identity->groups) == 0 &&
           syscall(SYS_setresgid, identity->gid, identity->gid, identity->gid) == 0 &&
           syscall(SYS_setresuid, identity->uid, identity->uid, identity->uid) == 0;
}

/* A file without "#!" is the shell's, as execvp() has it. */
static void run_file(struct agent_spawn *spawn, char *file)
{
    spawn->step = AGENT_SPAWN_DONE;
    execve(file, spawn->argv, spawn->environment);
    if (errno == ENOEXEC) {
        static char shell[] = "/bin/sh";
        char *name = spawn->argv[0];
        spawn->argv[-1] = shell;
        spawn->argv[0] = file;
        execve(shell, spawn->argv - 1, spawn->environment);
        spawn->argv[0] = name;
    }
}

/* Looks on after a file that may not be run, but tells of it rather than of a missing one. */
static void run_program(struct agent_spawn *spawn)
{
    char *name = spawn->argv[0];
    if (strchr(name, '/') != NULL) {
        run_file(spawn, name);
        return;
    }
    char file[PATH_BYTES];
    bool denied = false;
    size_t name_size = strlen(name);
    for (const char *at = spawn->path; at != NULL && *name != '\0';) {
        size_t size = strcspn(at, ":");
        if (size + name_size + 2 <= sizeof file) {
            memcpy(file, at, size);
            if (size > 0)
                file[size++] = '/';
            memcpy(file + size, name, name_size + 1);
            run_file(spawn, file);
            denied = denied || errno == EACCES;
            if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
                return;
        }
        at = strchr(at, ':');
        at = at == NULL ? NULL : at + 1;
    }
    errno = denied ? EACCES : ENOENT;
}
