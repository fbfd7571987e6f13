/* The table of processes, and the service's methods that are not long enough for a file. */

#include "processes.h"
#include "guard.h"
#include "init.h"
#include "util/memory.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#define SIGNAL_MAX         64u
#define TERMINAL_SIDE_MAX  4096u
#define FINISHED_BYTES_MAX (64u << 20) /* of output that ended commands keep */

struct agent_process *agent_processes;

static uint64_t finished_count; /* ever */

static void on_deadline(void *user_data);
static void answer_waiters(struct agent_process *process);
static void forget_oldest(void);
static void forget(struct agent_process *process);

struct agent_process *agent_process_find(ProtobufCBinaryData id)
{
    if (id.len != AGENT_PROCESS_ID_BYTES)
        return NULL;
    for (struct agent_process *at = agent_processes; at != NULL; at = at->next) {
        if (memcmp(at->id, id.data, AGENT_PROCESS_ID_BYTES) == 0)
            return at;
    }
    return NULL;
}

struct agent_process *agent_process_of(struct agent_call *call, ProtobufCBinaryData id)
{
    struct agent_process *process = agent_process_find(id);
    if (process == NULL)
        agent_call_fail(call, AGENT_NOT_FOUND, "no-such-process", "no process of that id is known");
    return process;
}

unsigned agent_process_running_count(void)
{
    unsigned count = 0;
    for (const struct agent_process *at = agent_processes; at != NULL; at = at->next)
        count += !at->exited;
    return count;
}

void agent_process_add(struct agent_process *process, uint32_t deadline_ms)
{
    process->next = agent_processes;
    agent_processes = process;
    if (deadline_ms > 0 &&
        !agent_timer_start(&process->deadline, deadline_ms, on_deadline, process))
        on_deadline(process);
}

static void on_deadline(void *user_data)
{
    struct agent_process *process = user_data;
    /* It may have ended in this very turn of the loop. */
    agent_init_reap();
    if (process->exited)
        return;
    process->timed_out = true;
    agent_tree_kill(process);
}

void agent_process_reaped(pid_t pid, int status)
{
    struct agent_process *process = agent_processes;
    while (process != NULL && (process->exited || process->pid != pid))
        process = process->next;
    if (process == NULL)
        return;
    process->exited = true;
    process->status = status;
    agent_timer_stop(&process->deadline);
    agent_input_exited(process);
    if (process->role == SANDBOX__V1__ROLE__ROLE_TASK)
        agent_activity_touch();
    agent_output_exited(process);
}

void agent_process_settled(struct agent_process *process)
{
    process->finished = ++finished_count;
    answer_waiters(process);
    forget_oldest();
}

void agent_process_exit(const struct agent_process *process, Sandbox__V1__Exit *out)
{
    *out = (Sandbox__V1__Exit)SANDBOX__V1__EXIT__INIT;
    bool signalled = WIFSIGNALED(process->status);
    out->code = signalled ? -1 : WEXITSTATUS(process->status);
    out->signal = signalled ? (uint32_t)WTERMSIG(process->status) : 0;
    out->timed_out = process->timed_out;
}

static void answer_wait(struct agent_call *call, const struct agent_process *process)
{
    Sandbox__V1__WaitReply reply = SANDBOX__V1__WAIT_REPLY__INIT;
    Sandbox__V1__Exit exit;
    agent_process_exit(process, &exit);
    reply.exit = &exit;
    agent_call_answer(call, &reply.base);
}

static void answer_waiters(struct agent_process *process)
{
    while (process->waiters != NULL) {
        struct agent_waiter *waiter = process->waiters;
        process->waiters = waiter->next;
        agent_call_set_data(waiter->call, NULL);
        answer_wait(waiter->call, process);
        free(waiter);
    }
}

static size_t held_bytes(const struct agent_process *process)
{
    return process->outputs[0].ring.capacity + process->outputs[1].ring.capacity;
}

/* The one that ended first, of those nobody reads. Never the newest. */
static struct agent_process *oldest_finished(bool with_output)
{
    struct agent_process *oldest = NULL;
    for (struct agent_process *at = agent_processes; at != NULL; at = at->next) {
        if (at->settled && at->readers == NULL && at->finished < finished_count &&
            (!with_output || held_bytes(at) > 0) &&
            (oldest == NULL || at->finished < oldest->finished))
            oldest = at;
    }
    return oldest;
}

/* Too many have ended, or what they keep is too much: the oldest go, their output first. */
static void forget_oldest(void)
{
    unsigned count = 0;
    size_t bytes = 0;
    for (const struct agent_process *at = agent_processes; at != NULL; at = at->next) {
        count += at->settled;
        bytes += at->settled ? held_bytes(at) : 0;
    }
    for (struct agent_process *oldest;
         bytes > FINISHED_BYTES_MAX && (oldest = oldest_finished(true)) != NULL;) {
        bytes -= held_bytes(oldest);
        agent_ring_clear(&oldest->outputs[0].ring);
        agent_ring_clear(&oldest->outputs[1].ring);
    }
    for (struct agent_process *oldest;
         count > AGENT_FINISHED_MAX && (oldest = oldest_finished(false)) != NULL; count--)
        forget(oldest);
}

static void forget(struct agent_process *process)
{
    struct agent_process **link = &agent_processes;
    while (*link != process)
        link = &(*link)->next;
    *link = process->next;
    process->forgotten = true;
    agent_timer_stop(&process->kill_again);
    /* What a descendant still writes to must not break: the last pipe to close frees it. */
    if (process->outputs[0].watch == NULL && process->outputs[1].watch == NULL)
        agent_process_free(process);
    else {
        agent_ring_clear(&process->outputs[0].ring);
        agent_ring_clear(&process->outputs[1].ring);
    }
}

void agent_process_free(struct agent_process *process)
{
    if (process == NULL)
        return;
    agent_timer_stop(&process->deadline);
    agent_timer_stop(&process->kill_again);
    agent_watch_close(&process->input);
    agent_output_release(process);
    free(process->command);
    free(process);
}

static void send_signal(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__SignalRequest *request = (const Sandbox__V1__SignalRequest *)message;
    struct agent_process *process = agent_process_of(call, request->id);
    if (process == NULL)
        return;
    if (request->signal > SIGNAL_MAX) {
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid", "there is no signal %u",
                        request->signal);
        return;
    }
    agent_init_reap();
    Sandbox__V1__SignalReply reply = SANDBOX__V1__SIGNAL_REPLY__INIT;
    reply.running = !process->exited;
    if (request->signal == SIGKILL)
        agent_tree_kill(process);
    else if (!process->exited && kill(-process->pid, (int)request->signal) != 0 && errno == ESRCH)
        kill(process->pid, (int)request->signal);
    agent_call_answer(call, &reply.base);
}

static void resize(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__ResizeRequest *request = (const Sandbox__V1__ResizeRequest *)message;
    struct agent_process *process = agent_process_of(call, request->id);
    if (process == NULL)
        return;
    if (request->rows < 1 || request->rows > TERMINAL_SIDE_MAX || request->columns < 1 ||
        request->columns > TERMINAL_SIDE_MAX) {
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid",
                        "a terminal has 1 to %u rows and columns", TERMINAL_SIDE_MAX);
        return;
    }
    if (!process->terminal) {
        agent_call_fail(call, AGENT_FAILED_PRECONDITION, "no-terminal",
                        "the process has no terminal");
        return;
    }
    if (process->exited) {
        agent_call_fail(call, AGENT_FAILED_PRECONDITION, "ended", "the process has ended");
        return;
    }
    struct winsize size = {.ws_row = (unsigned short)request->rows,
                           .ws_col = (unsigned short)request->columns};
    if (ioctl(agent_watch_fd(process->input), TIOCSWINSZ, &size) != 0) {
        agent_call_fail_errno(call, errno, "cannot resize the terminal");
        return;
    }
    agent_terminal_resized(process);
    Sandbox__V1__ResizeReply reply = SANDBOX__V1__RESIZE_REPLY__INIT;
    agent_call_answer(call, &reply.base);
}

static void wait_for(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__WaitRequest *request = (const Sandbox__V1__WaitRequest *)message;
    struct agent_process *process = agent_process_of(call, request->id);
    if (process == NULL)
        return;
    if (process->settled) {
        answer_wait(call, process);
        return;
    }
    struct agent_waiter *waiter = calloc(1, sizeof *waiter);
    if (waiter == NULL) {
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "no-memory",
                        "the agent has no memory for a waiter");
        return;
    }
    *waiter = (struct agent_waiter){call, process, process->waiters};
    process->waiters = waiter;
    agent_call_set_data(call, waiter);
}

static void wait_gone(struct agent_call *call)
{
    struct agent_waiter *waiter = agent_call_data(call);
    if (waiter == NULL)
        return;
    struct agent_waiter **link = &waiter->process->waiters;
    while (*link != waiter)
        link = &(*link)->next;
    *link = waiter->next;
    free(waiter);
}

static uint32_t count_descendants(const struct agent_process *process,
                                  const struct agent_seen *seen, size_t seen_count)
{
    uint32_t count = 0;
    for (size_t at = 0; at < seen_count; at++) {
        bool self = !process->exited && seen[at].pid == process->pid;
        count += seen[at].owner == process && !self && agent_seen_lives(&seen[at]);
    }
    return count;
}

static void describe(const struct agent_process *process, Sandbox__V1__ProcessInfo *info,
                     Sandbox__V1__Exit *exit)
{
    *info = (Sandbox__V1__ProcessInfo)SANDBOX__V1__PROCESS_INFO__INIT;
    info->id = (ProtobufCBinaryData){sizeof process->id, (uint8_t *)(uintptr_t)process->id};
    info->pid = process->pid;
    info->running = !process->exited;
    if (process->exited) {
        agent_process_exit(process, exit);
        info->exit = exit;
    }
    info->role = process->role;
    info->terminal = process->terminal;
    info->command = (ProtobufCBinaryData){process->command_size, (uint8_t *)process->command};
    info->user = (char *)(uintptr_t)process->user;
    info->started_ms = process->started_ms;
    info->output_bytes = process->outputs[0].ring.total;
    info->error_bytes = process->outputs[1].ring.total;
}

/* The newest first, as many as fit one message. */
static void list(struct agent_call *call, const ProtobufCMessage *message)
{
    agent_init_reap();
    size_t count = 0, used = 0, seen_count = 0, size = 0;
    for (const struct agent_process *at = agent_processes; at != NULL; at = at->next)
        count++;
    struct agent_seen *seen = NULL;
    if (!agent_tree_look(&seen, &seen_count))
        seen_count = 0;
    struct entry {
        Sandbox__V1__ProcessInfo info;
        Sandbox__V1__Exit exit;
    } *entries = calloc(count + 1, sizeof *entries);
    Sandbox__V1__ProcessInfo **infos = calloc(count + 1, sizeof *infos);
    for (const struct agent_process *at = agent_processes;
         entries != NULL && infos != NULL && at != NULL; at = at->next) {
        struct entry *entry = &entries[used];
        describe(at, &entry->info, &entry->exit);
        entry->info.descendants = count_descendants(at, seen, seen_count);
        size += protobuf_c_message_get_packed_size(&entry->info.base) + 8;
        if (size > AGENT_MESSAGE_MAX)
            break;
        infos[used++] = &entry->info;
    }
    Sandbox__V1__ProcessListReply reply = SANDBOX__V1__PROCESS_LIST_REPLY__INIT;
    reply.n_processes = used;
    reply.processes = infos;
    if (entries == NULL || infos == NULL)
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "no-memory",
                        "the agent has no memory for the list");
    else
        agent_call_answer(call, &reply.base);
    free(entries);
    free(infos);
    free(seen);
}

void agent_process_activity(struct agent_process_activity *out)
{
    *out = (struct agent_process_activity){0};
    agent_init_reap();
    for (const struct agent_process *at = agent_processes; at != NULL; at = at->next) {
        if (at->exited)
            continue;
        bool is_task = at->role == SANDBOX__V1__ROLE__ROLE_TASK;
        bool has_job = at->terminal && agent_terminal_has_job(at);
        out->tasks += is_task;
        out->terminals += has_job;
        if ((is_task || has_job) && out->count < AGENT_ACTIVE_MAX)
            out->processes[out->count++] = at;
    }
}

void agent_process_hold_deadlines(void)
{
    for (struct agent_process *at = agent_processes; at != NULL; at = at->next) {
        if (at->deadline == NULL)
            continue;
        uint64_t left = agent_timer_left_ms(at->deadline);
        agent_timer_stop(&at->deadline);
        at->deadline_left_ms = left > 0 ? left : 1;
    }
}

uint32_t agent_process_resume_deadlines(void)
{
    uint32_t count = 0;
    for (struct agent_process *at = agent_processes; at != NULL; at = at->next) {
        if (at->deadline_left_ms == 0 || at->exited)
            continue;
        if (!agent_timer_start(&at->deadline, at->deadline_left_ms, on_deadline, at))
            on_deadline(at);
        at->deadline_left_ms = 0;
        count++;
    }
    return count;
}

const struct agent_method agent_process_methods[] = {
    {.path = "/sandbox.v1.Processes/Start",
     .request = &sandbox__v1__start_request__descriptor,
     .message = agent_process_start},
    {.path = "/sandbox.v1.Processes/Attach",
     .request = &sandbox__v1__attach_request__descriptor,
     .message = agent_process_attach,
     .ready = agent_process_attach_ready,
     .gone = agent_process_attach_gone,
     .passive = true,
     .lasts = true},
    {.path = "/sandbox.v1.Processes/Write",
     .request = &sandbox__v1__write_request__descriptor,
     .message = agent_process_write,
     .gone = agent_process_write_gone},
    {.path = "/sandbox.v1.Processes/Signal",
     .request = &sandbox__v1__signal_request__descriptor,
     .message = send_signal},
    {.path = "/sandbox.v1.Processes/Resize",
     .request = &sandbox__v1__resize_request__descriptor,
     .message = resize},
    {.path = "/sandbox.v1.Processes/Wait",
     .request = &sandbox__v1__wait_request__descriptor,
     .message = wait_for,
     .gone = wait_gone,
     .passive = true,
     .lasts = true},
    {.path = "/sandbox.v1.Processes/List",
     .request = &sandbox__v1__process_list_request__descriptor,
     .message = list,
     .passive = true},
    {.path = NULL},
};
