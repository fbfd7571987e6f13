/*
 * What runs on this host for a workspace. runsc's own list forgets processes that live on, so
 * the process table is asked: a process is ours if it was started with our --root and names the
 * workspace, or descends from such a one. A number alone is never trusted; the start time is
 * compared as well.
 */

#include "drivers/gvisor/gvisor.h"
#include "util/fail.h"
#include "util/memory.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COMMAND_MAX 16384

struct process {
    pid_t pid, parent;
    uint64_t started;
    bool ours;
    bool named; /* by its own command line, not by descent */
    bool sandbox;  /* the kernel of the instance itself, not a helper of it */
    bool attached; /* a command of runsc that is at work inside it */
    int pidfd;     /* while its end is waited for, else -1 */
};

struct process_table {
    struct process *all;
    size_t count;
};

static bool read_table(const struct sbx_gvisor *driver, const char *id,
                       struct process_table *table);
static bool read_process(pid_t pid, struct process *out);
static bool look_at_command(const struct sbx_gvisor *driver, pid_t pid, const char *id,
                            bool *sandbox, bool *attached);
static ssize_t read_small(const char *path, char *text, size_t size);
static bool mark_descendants(struct process_table *table);
static void free_table(struct process_table *table);
static sandbox_status end_all(struct process_table *table, const struct sbx_wait *wait,
                              size_t *found, sandbox_error *error);
static sandbox_status kill_process(struct process *process, sandbox_error *error);
static int open_process(const struct process *process);

bool sbx_gvisor_boot_id(char text[40])
{
    ssize_t size = read_small("/proc/sys/kernel/random/boot_id", text, 40);
    if (size < 36)
        return false;
    text[36] = '\0';
    return true;
}

uint64_t sbx_gvisor_started(pid_t pid)
{
    struct process process;
    errno = 0;
    if (pid <= 0)
        return 0;
    if (read_process(pid, &process))
        return process.started;
    return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? SBX_GVISOR_CANNOT_TELL : 0;
}

bool sbx_gvisor_is_sandbox(const struct sbx_gvisor *driver, pid_t pid, const char *id)
{
    bool sandbox = false, attached = false;
    return look_at_command(driver, pid, id, &sandbox, &attached) && sandbox;
}

size_t sbx_gvisor_attached(const struct sbx_gvisor *driver, const char *id, int *pidfd)
{
    SBX_ON_EXIT(free_table) struct process_table table = {0};
    size_t count = 0;
    *pidfd = -1;
    if (!read_table(driver, id, &table))
        return 1; /* it cannot be told */
    for (size_t n = 0; n < table.count; n++) {
        const struct process *process = &table.all[n];
        if (process->attached && count++ == 0)
            *pidfd = open_process(process);
    }
    return count;
}

size_t sbx_gvisor_processes(const struct sbx_gvisor *driver, const char *id)
{
    SBX_ON_EXIT(free_table) struct process_table table = {0};
    if (!read_table(driver, id, &table))
        return 0;
    size_t count = 0;
    for (size_t n = 0; n < table.count; n++)
        count += table.all[n].ours;
    return count;
}

size_t sbx_gvisor_started_for(const struct sbx_gvisor *driver, const char *id, pid_t *pids,
                              size_t room)
{
    SBX_ON_EXIT(free_table) struct process_table table = {0};
    size_t count = 0;
    bool sandbox = false;
    if (!read_table(driver, id, &table))
        return 0;
    for (size_t n = 0; n < table.count && count < room; n++) {
        if (!table.all[n].named)
            continue;
        pids[count++] = table.all[n].pid;
        sandbox = sandbox || table.all[n].sandbox;
    }
    return sandbox ? count : 0;
}

bool sbx_gvisor_has_sandbox(const struct sbx_gvisor *driver, const char *id)
{
    SBX_ON_EXIT(free_table) struct process_table table = {0};
    bool found = false;
    if (!read_table(driver, id, &table))
        return false;
    for (size_t n = 0; n < table.count && !found; n++)
        found = table.all[n].sandbox;
    return found;
}

/* Again and again until a whole look at the table finds none: one of them may just have forked. */
sandbox_status sbx_gvisor_processes_end(const struct sbx_gvisor *driver, const char *id,
                                        const struct sbx_wait *wait, sandbox_error *error)
{
    for (;;) {
        SBX_ON_EXIT(free_table) struct process_table table = {0};
        if (!read_table(driver, id, &table))
            return sbx_fail(error, SANDBOX_FAILED, "cannot read the host's process table");
        size_t found = 0;
        sandbox_status status = end_all(&table, wait, &found, error);
        if (status != SANDBOX_OK || found == 0)
            return status;
        status = sbx_wait_check(wait, error);
        if (status != SANDBOX_OK)
            return status;
    }
}

static bool read_table(const struct sbx_gvisor *driver, const char *id, struct process_table *table)
{
    DIR *proc = opendir("/proc");
    if (proc == NULL)
        return false;
    size_t room = 0;
    bool good = true;
    for (struct dirent *entry; good && (entry = readdir(proc)) != NULL;) {
        pid_t pid =
            isdigit((unsigned char)entry->d_name[0]) ? (pid_t)strtol(entry->d_name, NULL, 10) : 0;
        struct process process;
        if (pid <= 0 || pid == getpid() || !read_process(pid, &process))
            continue;
        process.named = process.ours =
            look_at_command(driver, pid, id, &process.sandbox, &process.attached);
        if (table->count == room) {
            room = room == 0 ? 256 : room * 2;
            struct process *larger = realloc(table->all, room * sizeof *larger);
            good = larger != NULL;
            if (!good)
                break;
            table->all = larger;
        }
        table->all[table->count++] = process;
    }
    closedir(proc);
    while (good && mark_descendants(table))
        continue;
    return good;
}

/* False for none, and for a zombie, which is only waiting to be reaped by its parent. */
static bool read_process(pid_t pid, struct process *out)
{
    char path[48], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    ssize_t size = read_small(path, text, sizeof text);
    /* The name may hold anything, brackets too; what follows the last one does not. */
    const char *at = size > 0 ? strrchr(text, ')') : NULL;
    char state = 0;
    int parent = 0;
    uint64_t started = 0;
    if (at == NULL ||
        sscanf(
            at + 1,
            " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %" SCNu64,
            &state, &parent, &started) != 3 ||
        state == 'Z' || state == 'X')
        return false;
    *out = (struct process){.pid = pid, .parent = parent, .started = started, .pidfd = -1};
    return true;
}

/* Whether it was started with our --root for this workspace; a sandbox is "runsc … boot … ID". */
static bool look_at_command(const struct sbx_gvisor *driver, pid_t pid, const char *id,
                            bool *sandbox, bool *attached)
{
    char path[48], command[COMMAND_MAX];
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    ssize_t size = read_small(path, command, sizeof command);
    bool root = false, named = false, boots = false, executes = false;
    for (const char *at = command; size > 0 && at < command + size; at += strlen(at) + 1) {
        if (strncmp(at, "--root=", 7) == 0 && strcmp(at + 7, driver->runsc_root) == 0)
            root = true;
        if (strcmp(at, "boot") == 0)
            boots = true;
        if (strcmp(at, "exec") == 0)
            executes = true;
        if (strstr(at, id) != NULL)
            named = true;
    }
    *sandbox = root && named && boots;
    *attached = root && named && executes;
    return root && named;
}

static ssize_t read_small(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    size_t used = 0;
    while (used + 1 < size) {
        ssize_t got = read(fd, text + used, size - 1 - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    close(fd);
    text[used] = '\0';
    return (ssize_t)used;
}

static bool is_ours(const struct process_table *table, pid_t pid)
{
    for (size_t n = 0; n < table->count; n++) {
        if (table->all[n].ours && table->all[n].pid == pid)
            return true;
    }
    return false;
}

/* True if there was one more: a stub of the sandbox has no command line of its own. */
static bool mark_descendants(struct process_table *table)
{
    bool more = false;
    for (size_t n = 0; n < table->count; n++) {
        struct process *process = &table->all[n];
        if (!process->ours && is_ours(table, process->parent)) {
            process->ours = true;
            more = true;
        }
    }
    return more;
}

static void free_table(struct process_table *table)
{
    free(table->all);
}

/*
 * All get the signal before the end of any is waited for, the sandbox first: the end of a process
 * that is traced is not told before its tracer has ended too.
 */
static sandbox_status end_all(struct process_table *table, const struct sbx_wait *wait,
                              size_t *found, sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    for (int sandbox = 1; sandbox >= 0; sandbox--) {
        for (size_t n = 0; n < table->count && status == SANDBOX_OK; n++) {
            struct process *process = &table->all[n];
            if (process->ours && process->sandbox == (sandbox == 1))
                status = kill_process(process, error);
        }
    }
    for (size_t n = 0; n < table->count; n++) {
        struct process *process = &table->all[n];
        *found += process->ours;
        if (status == SANDBOX_OK && process->pidfd >= 0)
            status = sbx_wait_descriptor(wait, process->pidfd, POLLIN, error);
        sbx_close_fd(&process->pidfd);
    }
    return status;
}

/* `pidfd` stays -1 where there is nobody any more to wait for. */
static sandbox_status kill_process(struct process *process, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_close_fd) int pidfd = open_process(process);
    if (pidfd < 0)
        return SANDBOX_OK;
    if (syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) < 0 && errno != ESRCH)
        return sbx_fail_errno(error, errno, "cannot end process %d", (int)process->pid);
    process->pidfd = sbx_take_fd(&pidfd);
    return SANDBOX_OK;
}

/* -1: there is nobody any more. */
static int open_process(const struct process *process)
{
    SBX_ON_EXIT(sbx_close_fd) int pidfd = (int)syscall(SYS_pidfd_open, process->pid, 0);
    /* The descriptor holds on to whoever has the number now: is it still the one we saw? */
    if (pidfd < 0 || sbx_gvisor_started(process->pid) != process->started)
        return -1;
    return sbx_take_fd(&pidfd);
}
