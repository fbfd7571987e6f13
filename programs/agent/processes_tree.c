/*
 * Whose descendant is which process, and how all of a command's are ended.
 *
 * As first process or subreaper the agent is an ancestor of everything it started, always. A
 * process whose chain of parents leads to a command's own process is that command's. One whose
 * chain was cut (double fork) is a direct child of the agent, and is known by its session, or by
 * the variable that every command's environment carries.
 */

#include "processes.h"
#include "util/memory.h"
#include "util/random.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEEN_MAX        65536u
#define ENVIRON_MAX     (2u << 20)
#define STOP_ROUNDS_MIN 3u
#define STOP_MS_MAX     100u /* the loop stands still meanwhile */
#define KILL_ROUNDS_MAX 300u
#define KILL_AGAIN_MS   1u
#define KILL_LATER_MS   20u
#define KILL_SLOWLY_MS  500u /* for what the kernel does not let die */

/* Of the process, or of one of its threads. */
static bool read_stat(pid_t pid, pid_t thread, struct agent_seen *out);
static int compare_seen(const void *left, const void *right);
static struct agent_seen *find_seen(struct agent_seen *seen, size_t count, pid_t pid);
static const struct agent_seen *find_root(struct agent_seen *seen, size_t count,
                                          const struct agent_seen *from);
static struct agent_process *owner_of_root(const struct agent_seen *root);
static struct agent_process *owner_by_environment(pid_t pid);
static void kill_tree(struct agent_process *process);
static size_t stop_tree(struct agent_process *process, struct agent_seen **out, size_t *count);
static void kill_again(void *user_data);

bool agent_tree_look(struct agent_seen **out, size_t *count)
{
    DIR *directory = opendir("/proc");
    struct agent_seen *seen = NULL;
    size_t used = 0, room = 0;
    bool failed = directory == NULL;
    for (struct dirent *entry; !failed && (entry = readdir(directory)) != NULL;) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);
        if (pid <= 0 || *end != '\0' || used == SEEN_MAX)
            continue;
        if (used == room) {
            room = room == 0 ? 64 : room * 2;
            struct agent_seen *more = realloc(seen, room * sizeof *seen);
            failed = more == NULL;
            if (failed)
                break;
            seen = more;
        }
        used += read_stat((pid_t)pid, 0, &seen[used]);
    }
    if (directory != NULL)
        closedir(directory);
    if (failed || used == 0) {
        free(seen);
        return false;
    }
    qsort(seen, used, sizeof *seen, compare_seen);
    for (size_t at = 0; at < used; at++) {
        const struct agent_seen *root = find_root(seen, used, &seen[at]);
        seen[at].ours = root != NULL;
        /* The root's own answer was asked for already, unless it comes later in the list. */
        seen[at].owner = root == NULL ? NULL : root < &seen[at] ? root->owner : owner_of_root(root);
    }
    *out = seen;
    *count = used;
    return true;
}

static bool read_stat(pid_t pid, pid_t thread, struct agent_seen *out)
{
    char path[64], text[1024];
    if (thread == 0)
        snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    else
        snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)pid, (int)thread);
    SBX_ON_EXIT(sbx_close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (size <= 0)
        return false;
    text[size] = '\0';
    /* The name may hold anything, a closing bracket too: the last one ends it. */
    const char *after = strrchr(text, ')');
    long parent = 0, group = 0, session = 0;
    unsigned long long user = 0, system = 0, threads = 0, pages = 0;
    char state = 0;
    if (after == NULL || sscanf(after + 1,
                                " %c %ld %ld %ld %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d "
                                "%*d %llu %*d %*u %*u %llu",
                                &state, &parent, &group, &session, &user, &system, &threads,
                                &pages) < 4)
        return false;
    *out = (struct agent_seen){.pid = pid,
                               .parent = (pid_t)parent,
                               .group = (pid_t)group,
                               .session = (pid_t)session,
                               .state = state,
                               .cpu_ticks = user + system,
                               .threads = threads,
                               .resident_pages = pages};
    return true;
}

bool agent_seen_lives(const struct agent_seen *seen)
{
    return seen->state != 'Z' && seen->state != 'X' && seen->state != 'x';
}

static bool is_stopped(const struct agent_seen *seen)
{
    return seen->state == 'T' || seen->state == 't' || !agent_seen_lives(seen);
}

/* The first thread's letter stands for all, but one that waits for a disk may not be there yet. */
bool agent_seen_stands_still(const struct agent_seen *seen)
{
    bool still = is_stopped(seen);
    if (!still || seen->threads <= 1)
        return still;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)seen->pid);
    DIR *directory = opendir(path);
    for (struct dirent *entry;
         still && directory != NULL && (entry = readdir(directory)) != NULL;) {
        struct agent_seen thread;
        long number = strtol(entry->d_name, NULL, 10);
        still = number <= 0 || !read_stat(seen->pid, (pid_t)number, &thread) ||
                is_stopped(&thread);
    }
    if (directory != NULL)
        closedir(directory);
    return still;
}

static int compare_seen(const void *left, const void *right)
{
    pid_t first = ((const struct agent_seen *)left)->pid;
    pid_t second = ((const struct agent_seen *)right)->pid;
    return first < second ? -1 : first > second;
}

static struct agent_seen *find_seen(struct agent_seen *seen, size_t count, pid_t pid)
{
    struct agent_seen wanted = {.pid = pid};
    return bsearch(&wanted, seen, count, sizeof *seen, compare_seen);
}

/* The ancestor (or itself) that is the agent's own child. NULL: not below the agent. */
static const struct agent_seen *find_root(struct agent_seen *seen, size_t count,
                                          const struct agent_seen *from)
{
    pid_t agent = getpid();
    const struct agent_seen *at = from;
    /* What changes while we look may make a circle. */
    for (size_t steps = 0; at != NULL && steps < count; steps++) {
        if (at->parent == agent)
            return at->pid == agent ? NULL : at;
        at = find_seen(seen, count, at->parent);
    }
    return NULL;
}

static struct agent_process *owner_of_root(const struct agent_seen *root)
{
    struct agent_process *by_session = NULL;
    for (struct agent_process *at = agent_processes; at != NULL; at = at->next) {
        if (!at->exited && at->pid == root->pid)
            return at;
        /* The leader's number cannot be used again while its session has members. */
        if (at->pid == root->session && root->session != root->pid && by_session == NULL)
            by_session = at;
    }
    return by_session != NULL ? by_session : owner_by_environment(root->pid);
}

static struct agent_process *owner_by_environment(pid_t pid)
{
    static const char variable[] = AGENT_PROCESS_VARIABLE "=";
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    SBX_ON_EXIT(sbx_close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    /* begins with the end of an entry, as the first has none before it */
    char text[4096 + 1] = {0};
    size_t used = 1, seen = 0;
    for (;;) {
        ssize_t size = fd < 0 ? -1 : read(fd, text + used, sizeof text - 1 - used);
        if (size <= 0 || seen > ENVIRON_MAX)
            return NULL;
        seen += (size_t)size;
        used += (size_t)size;
        size_t whole = sizeof variable + 2 * AGENT_PROCESS_ID_BYTES;
        for (size_t at = 0; at + whole <= used; at++) {
            uint8_t id[AGENT_PROCESS_ID_BYTES];
            char digits[SBX_ID_TEXT] = {0};
            if (text[at] != '\0' || memcmp(text + at + 1, variable, sizeof variable - 1) != 0)
                continue;
            memcpy(digits, text + at + sizeof variable, SBX_ID_TEXT - 1);
            if (sbx_id_parse(digits, id))
                return agent_process_find((ProtobufCBinaryData){sizeof id, id});
        }
        size_t rest = used < whole ? used : whole - 1;
        memmove(text, text + used - rest, rest);
        used = rest;
    }
}

void agent_tree_kill(struct agent_process *process)
{
    process->kill_rounds = 0;
    kill_tree(process);
}

static void kill_tree(struct agent_process *process)
{
    struct agent_seen *seen = NULL;
    size_t count = 0;
    size_t alive = stop_tree(process, &seen, &count);
    for (size_t at = 0; at < count; at++) {
        if (seen[at].owner == process && agent_seen_lives(&seen[at]))
            kill(seen[at].pid, SIGKILL);
    }
    free(seen);
    /* Also where /proc tells nothing. */
    if (!process->exited) {
        kill(process->pid, SIGKILL);
        kill(-process->pid, SIGKILL);
    }
    if (alive == 0 && process->exited)
        return;
    unsigned round = ++process->kill_rounds;
    uint64_t delay_ms = round < 20 ? KILL_AGAIN_MS : round < 100 ? KILL_LATER_MS : KILL_SLOWLY_MS;
    if (round < KILL_ROUNDS_MAX)
        agent_timer_start(&process->kill_again, delay_ms, kill_again, process);
}

static void kill_again(void *user_data)
{
    kill_tree(user_data);
}

/*
 * Stops all of them, until a look finds nobody new: what is stopped forks no more. Returns how
 * many live; the last look is the caller's.
 */
static size_t stop_tree(struct agent_process *process, struct agent_seen **out, size_t *count)
{
    size_t alive = 0;
    uint64_t end = uv_hrtime() + UINT64_C(1000000) * STOP_MS_MAX;
    for (unsigned round = 0; round < STOP_ROUNDS_MIN || uv_hrtime() < end; round++) {
        struct agent_seen *seen;
        size_t number, fresh = 0;
        if (!agent_tree_look(&seen, &number))
            break;
        alive = 0;
        for (size_t at = 0; at < number; at++) {
            if (seen[at].owner != process || !agent_seen_lives(&seen[at]))
                continue;
            alive++;
            struct agent_seen *before = *out == NULL ? NULL : find_seen(*out, *count, seen[at].pid);
            if (before != NULL && before->owner == process)
                continue;
            kill(seen[at].pid, SIGSTOP);
            fresh++;
        }
        free(*out);
        *out = seen;
        *count = number;
        if (fresh == 0)
            break;
    }
    return alive;
}

bool agent_process_kill_all(void)
{
    struct agent_seen *seen;
    size_t count, alive = 0;
    if (!agent_tree_look(&seen, &count))
        return false;
    for (size_t at = 0; at < count; at++) {
        if (!seen[at].ours || !agent_seen_lives(&seen[at]))
            continue;
        kill(seen[at].pid, SIGKILL);
        alive++;
    }
    free(seen);
    return alive > 0;
}
