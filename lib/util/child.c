/* Programs of our own: started with vfork speed, watched by pidfd, reaped by us alone. */

#include "util/child.h"
#include "util/bytes.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/wait.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_MAX (64u << 10)
/* After the child's end its text is taken until the pipe has been quiet this long. */
#define QUIET_MS 20
/* Or until so much was read, which is more than a pipe holds: others may write for ever. */
#define READS_AFTER_END (2 * TEXT_MAX / 4096)

/* What the child needs, made before it exists: between vfork and exec nothing may be allocated. */
struct launch {
    char path[4096];
    const struct sbx_child_options *options;
    const char *const *env;
    int report; /* errno of a failed exec goes here */
    pid_t parent;
};

static const char *const minimal_env[] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", NULL};

static bool find_program(const char *name, char path[4096]);
static void run_child(const struct launch *launch) __attribute__((noreturn));
static int open_pidfd(pid_t pid);

sandbox_status sbx_child_start(struct sbx_child *child, const struct sbx_child_options *options,
                               sandbox_error *error)
{
    struct launch launch = {.options = options,
                            .env = options->env == NULL ? minimal_env : options->env,
                            .parent = getpid()};
    *child = (struct sbx_child)SBX_CHILD;
    if (!find_program(options->argv[0], launch.path))
        return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-such-program",
                            "the program '%s' is not installed", options->argv[0]);
    int report[2];
    if (pipe2(report, O_CLOEXEC) < 0)
        return sbx_fail_errno(error, errno, "cannot make a pipe");
    launch.report = report[1];

    /* No signal handler of the host may run in the child, whose memory is still the host's. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = vfork();
    if (pid == 0)
        run_child(&launch);
    int failed = pid < 0 ? errno : 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close(report[1]);

    if (failed == 0 && read(report[0], &failed, sizeof failed) != sizeof failed)
        failed = 0;
    close(report[0]);
    if (pid < 0)
        return sbx_fail_errno(error, failed, "cannot start '%s'", options->argv[0]);
    if (failed != 0) {
        waitpid(pid, NULL, 0);
        return sbx_fail_errno(error, failed, "cannot start '%s'", options->argv[0]);
    }
    child->pid = pid;
    child->pidfd = open_pidfd(pid);
    if (child->pidfd >= 0)
        return SANDBOX_OK;
    failed = errno;
    sbx_child_end(child);
    return sbx_fail_errno(error, failed, "cannot watch '%s'", options->argv[0]);
}

sandbox_status sbx_child_wait(struct sbx_child *child, const struct sbx_wait *wait, int *code,
                              sandbox_error *error)
{
    if (child->pid == 0)
        return sbx_fail(error, SANDBOX_CLOSED, "the program has ended before");
    sandbox_status status = sbx_wait_descriptor(wait, child->pidfd, POLLIN, error);
    if (status != SANDBOX_OK)
        return status;
    int how = 0;
    pid_t reaped;
    do {
        reaped = waitpid(child->pid, &how, 0);
    } while (reaped < 0 && errno == EINTR);
    /* A host that reaps everything (SIGCHLD ignored) leaves us no code: that is not success. */
    *code = reaped < 0 ? 255 : WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
    sbx_close_fd(&child->pidfd);
    child->pid = 0;
    return SANDBOX_OK;
}

void sbx_child_signal(const struct sbx_child *child, int signal_number)
{
    if (child->pid > 0 && child->pidfd >= 0)
        syscall(SYS_pidfd_send_signal, child->pidfd, signal_number, NULL, 0);
}

void sbx_child_end(struct sbx_child *child)
{
    if (child->pid > 0) {
        kill(child->pid, SIGKILL); /* ours and not reaped: the number cannot be anybody else's */
        while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    sbx_close_fd(&child->pidfd);
    child->pid = 0;
}

/* A pipe out of a child and where its bytes go. */
struct outlet {
    int ours, theirs; /* -1: closed */
    struct sbx_bytes *text;
};

static void close_outlets(struct outlet (*outlets)[2])
{
    for (int n = 0; n < 2; n++) {
        sbx_close_fd(&(*outlets)[n].ours);
        sbx_close_fd(&(*outlets)[n].theirs);
    }
}

/* Takes what the pipe holds now. False at its end. */
static bool take_text(int fd, struct sbx_bytes *text)
{
    char piece[4096];
    ssize_t got = read(fd, piece, sizeof piece);
    if (got > 0) {
        size_t room = text->limit - sbx_bytes_size(text);
        (void)sbx_bytes_append(text, piece, (size_t)got < room ? (size_t)got : room);
        sbx_wipe(piece, (size_t)got); /* what a credential plugin prints goes through here */
    }
    return got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN));
}

static sandbox_status watch_child(struct sbx_child *child, struct outlet outlets[2],
                                  const struct sbx_wait *wait, sandbox_error *error)
{
    bool ended = false;
    unsigned after = 0; /* reads since the end */
    while (!ended || outlets[0].ours >= 0 || outlets[1].ours >= 0) {
        struct pollfd watched[3] = {{outlets[0].ours, POLLIN, 0},
                                    {outlets[1].ours, POLLIN, 0},
                                    {ended ? -1 : child->pidfd, POLLIN, 0}};
        int slice = ended ? QUIET_MS : sbx_wait_slice_ms(wait);
        int ready = poll(watched, 3, slice);
        if (ready < 0 && errno != EINTR)
            return sbx_fail_errno(error, errno, "cannot wait for a program");
        for (int n = 0; ready > 0 && n < 2; n++) {
            if (watched[n].revents != 0 && !take_text(outlets[n].ours, outlets[n].text))
                sbx_close_fd(&outlets[n].ours);
        }
        if (ready > 0 && watched[2].revents != 0)
            ended = true;
        if (ended && (ready == 0 || after++ == READS_AFTER_END))
            break; /* somebody else holds the pipe; what the child wrote has been taken */
        sandbox_status status = ended ? SANDBOX_OK : sbx_wait_check(wait, error);
        if (status != SANDBOX_OK)
            return status;
    }
    return SANDBOX_OK;
}

static sandbox_status run_with(const struct sbx_child_options *options, const struct sbx_wait *wait,
                               int *code, struct outlet outlets[2], sandbox_error *error)
{
    SBX_ON_EXIT(sbx_child_end) struct sbx_child child = SBX_CHILD;
    sandbox_status status = sbx_child_start(&child, options, error);
    if (status != SANDBOX_OK)
        return status;
    sbx_close_fd(&outlets[0].theirs);
    sbx_close_fd(&outlets[1].theirs);
    status = watch_child(&child, outlets, wait, error);
    return status == SANDBOX_OK ? sbx_child_wait(&child, wait, code, error) : status;
}

static sandbox_status open_outlet(struct outlet *outlet, sandbox_error *error)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return sbx_fail_errno(error, errno, "cannot make a pipe");
    outlet->ours = ends[0];
    outlet->theirs = ends[1];
    return SANDBOX_OK;
}

sandbox_status sbx_child_run(const struct sbx_child_options *options, const struct sbx_wait *wait,
                             int *code, char **text, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_bytes_free) struct sbx_bytes words = SBX_BYTES(TEXT_MAX);
    SBX_ON_EXIT(close_outlets) struct outlet outlets[2] = {{-1, -1, &words}, {-1, -1, NULL}};
    struct sbx_child_options taken = *options;
    sandbox_status status = open_outlet(&outlets[0], error);
    taken.output = taken.errors = outlets[0].theirs;
    if (status == SANDBOX_OK)
        status = run_with(&taken, wait, code, outlets, error);
    if (status != SANDBOX_OK || text == NULL)
        return status;
    *text = sbx_copy_bytes(sbx_bytes_size(&words) > 0 ? (const void *)sbx_bytes_data(&words) : "",
                           sbx_bytes_size(&words));
    return *text == NULL ? sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a program's text")
                         : SANDBOX_OK;
}

sandbox_status sbx_child_run_apart(const struct sbx_child_options *options,
                                   const struct sbx_wait *wait, int *code, struct sbx_bytes *output,
                                   struct sbx_bytes *errors, sandbox_error *error)
{
    SBX_ON_EXIT(close_outlets) struct outlet outlets[2] = {{-1, -1, output}, {-1, -1, errors}};
    struct sbx_child_options taken = *options;
    sandbox_status status = open_outlet(&outlets[0], error);
    if (status == SANDBOX_OK)
        status = open_outlet(&outlets[1], error);
    taken.output = outlets[0].theirs;
    taken.errors = outlets[1].theirs;
    return status == SANDBOX_OK ? run_with(&taken, wait, code, outlets, error) : status;
}

static bool find_program(const char *name, char path[4096])
{
    if (strchr(name, '/') != NULL)
        return (size_t)snprintf(path, 4096, "%s", name) < 4096;
    const char *search = getenv("PATH");
    if (search == NULL || *search == '\0')
        search = minimal_env[0] + strlen("PATH=");
    for (const char *at = search; *at != '\0';) {
        size_t length = strcspn(at, ":");
        int size = snprintf(path, 4096, "%.*s/%s", (int)length, at, name);
        if (length > 0 && size > 0 && size < 4096 && access(path, X_OK) == 0)
            return true;
        at += length + (at[length] == ':');
    }
    return false;
}

/* Everything not named is closed, whatever flags the host gave its descriptors. */
static void close_others(const struct launch *launch)
{
    const struct sbx_child_options *options = launch->options;
    unsigned from = 3;
    for (;;) {
        unsigned next = ~0u;
        for (size_t n = 0; n < options->inherit_count; n++) {
            unsigned fd = (unsigned)options->inherit[n];
            if (fd >= from && fd < next)
                next = fd;
        }
        unsigned report = (unsigned)launch->report;
        if (report >= from && report < next)
            next = report;
        if (next > from)
            syscall(SYS_close_range, from, next == ~0u ? ~0u : next - 1, 0);
        if (next == ~0u)
            return;
        from = next + 1;
    }
}

/* First out of the way of 0 to 2, then into place: the sources may be among them. */
static int place_streams(const struct sbx_child_options *options)
{
    int wanted[3] = {options->input, options->output, options->errors}, held[3];
    for (int n = 0; n < 3; n++) {
        int source = wanted[n] >= 0 ? wanted[n] : open("/dev/null", O_RDWR | O_CLOEXEC);
        held[n] = source < 0 ? -1 : fcntl(source, F_DUPFD_CLOEXEC, 64);
        if (held[n] < 0)
            return errno;
    }
    for (int n = 0; n < 3; n++) {
        if (dup2(held[n], n) < 0)
            return errno;
    }
    return 0;
}

/* Runs on the parent's stack and memory: system calls only. */
static void run_child(const struct launch *launch)
{
    const struct sbx_child_options *options = launch->options;
    int number = 0;
    if (options->own_session)
        setsid();
    if (options->die_with_parent) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != launch->parent)
            _exit(127);
    }
    if (options->prepare != NULL)
        number = options->prepare(options->data);
    for (int n = 1; n < NSIG; n++) {
        struct sigaction usual = {.sa_handler = SIG_DFL};
        if (n != SIGKILL && n != SIGSTOP)
            sigaction(n, &usual, NULL);
    }
    if (number == 0)
        number = place_streams(options);
    for (size_t n = 0; n < options->inherit_count; n++)
        fcntl(options->inherit[n], F_SETFD, 0);
    close_others(launch);
    if (number == 0 && chdir(options->directory == NULL ? "/" : options->directory) < 0)
        number = errno;
    if (number == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        execve(launch->path, (char *const *)options->argv, (char *const *)launch->env);
        number = errno;
    }
    ssize_t told = write(launch->report, &number, sizeof number);
    _exit(told == sizeof number ? 127 : 126);
}

static int open_pidfd(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}
