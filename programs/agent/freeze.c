/* Stopping and continuing all processes below the agent, with /proc as the witness. */

#include "freeze.h"
#include "loop.h"
#include "processes.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STOP_MS_MAX  10000u
#define ORDERLY_MS   3000u /* then in any order: what forks all the time has none */
#define AGAIN_MS     200u
#define PAUSE_MS_MAX 16u
#define CLEAN_LOOKS  2u /* one alone may miss what was born behind its back */

static struct {
    void (*done)(const struct agent_freeze_result *result);
    struct agent_timer *timer;
    uint64_t begun_ns;
    uint64_t pause_ms;
    unsigned clean;
    pid_t *pids; /* that we have stopped, ascending */
    size_t count, room;
} freeze;

static void look(void *user_data);
static bool stop_some(struct agent_seen *seen, size_t count, uint64_t passed_ms, pid_t *running);
static bool may_stop(const struct agent_seen *seen, size_t count, const struct agent_seen *one);
static void stop(pid_t pid, bool again);
static bool is_remembered(pid_t pid);
static bool remember(pid_t pid);
static void finish(bool complete, pid_t running);
static unsigned depth_of(const struct agent_seen *seen, size_t count, const struct agent_seen *one);

static const struct agent_seen *find(const struct agent_seen *seen, size_t count, pid_t pid)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (seen[middle].pid < pid)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && seen[low].pid == pid ? &seen[low] : NULL;
}

void agent_freeze_begin(void (*done)(const struct agent_freeze_result *result))
{
    freeze.done = done;
    freeze.begun_ns = uv_hrtime();
    freeze.pause_ms = 1;
    freeze.clean = 0;
    look(NULL);
}

static void look(void *user_data)
{
    uint64_t passed_ms = (uv_hrtime() - freeze.begun_ns) / 1000000;
    struct agent_seen *seen;
    size_t count;
    pid_t running = 0;
    if (!agent_tree_look(&seen, &count)) {
        finish(false, 0);
        return;
    }
    bool remembered = stop_some(seen, count, passed_ms, &running);
    free(seen);
    freeze.clean = running == 0 ? freeze.clean + 1 : 0;
    if (freeze.clean == CLEAN_LOOKS) {
        finish(true, 0);
        return;
    }
    uint64_t pause_ms = running == 0 ? 0 : freeze.pause_ms;
    if (running != 0 && freeze.pause_ms < PAUSE_MS_MAX)
        freeze.pause_ms *= 2;
    if (!remembered || passed_ms > STOP_MS_MAX ||
        !agent_timer_start(&freeze.timer, pause_ms, look, NULL))
        finish(false, running);
}

/* One round. False: no memory. `running`: one of those that do not stand still yet. */
static bool stop_some(struct agent_seen *seen, size_t count, uint64_t passed_ms, pid_t *running)
{
    bool orderly = passed_ms<ORDERLY_MS, again = passed_ms> AGAIN_MS;
    for (size_t at = 0; at < count; at++) {
        if (!seen[at].ours || agent_seen_stands_still(&seen[at]))
            continue;
        *running = seen[at].pid;
        if (orderly && !may_stop(seen, count, &seen[at]))
            continue;
        bool told = is_remembered(seen[at].pid);
        if (!remember(seen[at].pid))
            return false;
        stop(seen[at].pid, told && again);
    }
    return true;
}

/*
 * The sentry of 2022 may forget to wake a process that had lent its memory to a child when the
 * signal came. A second one of the kind is nothing new to it, one for a thread is.
 */
static void stop(pid_t pid, bool again)
{
    kill(pid, SIGSTOP);
    if (again)
        syscall(SYS_tgkill, pid, pid, SIGSTOP);
}

/*
 * Its parent is seen to stand still, and will not notice. Who sleeps without hearing signals has
 * most likely lent its memory to a child, and stops when it has it back.
 */
static bool may_stop(const struct agent_seen *seen, size_t count, const struct agent_seen *one)
{
    if (one->state == 'D')
        return false;
    if (one->parent == getpid())
        return true;
    const struct agent_seen *parent = find(seen, count, one->parent);
    return parent == NULL || agent_seen_stands_still(parent);
}

static size_t place_of(pid_t pid)
{
    size_t at = freeze.count;
    while (at > 0 && freeze.pids[at - 1] >= pid)
        at--;
    return at;
}

static bool is_remembered(pid_t pid)
{
    size_t at = place_of(pid);
    return at < freeze.count && freeze.pids[at] == pid;
}

/* Before it is stopped: nobody may be forgotten. */
static bool remember(pid_t pid)
{
    size_t at = place_of(pid);
    if (is_remembered(pid))
        return true;
    if (freeze.count == freeze.room) {
        size_t room = freeze.room == 0 ? 64 : freeze.room * 2;
        pid_t *more = realloc(freeze.pids, room * sizeof *more);
        if (more == NULL)
            return false;
        freeze.pids = more;
        freeze.room = room;
    }
    for (size_t moved = freeze.count; moved > at; moved--)
        freeze.pids[moved] = freeze.pids[moved - 1];
    freeze.pids[at] = pid;
    freeze.count++;
    return true;
}

static void finish(bool complete, pid_t running)
{
    agent_timer_stop(&freeze.timer);
    struct agent_freeze_result result = {complete, (uint32_t)freeze.count, running};
    freeze.done(&result);
}

struct frozen {
    pid_t pid;
    unsigned depth;
};

static int compare_depth(const void *left, const void *right)
{
    unsigned first = ((const struct frozen *)left)->depth;
    unsigned second = ((const struct frozen *)right)->depth;
    return first > second ? -1 : first < second;
}

/*
 * A number that meanwhile is another's belongs to nobody that was stopped by us: whoever is not
 * stopped does not notice.
 */
uint32_t agent_freeze_end(void)
{
    struct agent_seen *seen = NULL;
    size_t count = 0;
    struct frozen *frozen = calloc(freeze.count + 1, sizeof *frozen);
    if (!agent_tree_look(&seen, &count))
        count = 0;
    for (size_t at = 0; frozen != NULL && at < freeze.count; at++) {
        const struct agent_seen *one = find(seen, count, freeze.pids[at]);
        frozen[at].pid = freeze.pids[at];
        frozen[at].depth = one == NULL ? 0 : depth_of(seen, count, one);
    }
    if (frozen != NULL)
        qsort(frozen, freeze.count, sizeof *frozen, compare_depth);
    uint32_t continued = 0;
    for (size_t at = 0; at < freeze.count; at++)
        continued += kill(frozen == NULL ? freeze.pids[at] : frozen[at].pid, SIGCONT) == 0;
    free(frozen);
    free(seen);
    free(freeze.pids);
    freeze.pids = NULL;
    freeze.count = freeze.room = 0;
    return continued;
}

static unsigned depth_of(const struct agent_seen *seen, size_t count, const struct agent_seen *one)
{
    unsigned depth = 0;
    /* What changes while we look may make a circle. */
    while (depth < count && one != NULL && one->parent != getpid()) {
        one = find(seen, count, one->parent);
        depth++;
    }
    return depth;
}
