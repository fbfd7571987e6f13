/*
 * Quiesce: from here on only the operation's own calls are let in. Whoever streams without an end
 * is cut, all others may finish, and the answer waits for them.
 */

#include "guard.h"
#include "carry.h"
#include "files.h"
#include "guard_state.h"
#include "listener.h"
#include <stdlib.h>

#define LEASE_MS_MAX    3600000u
#define DEADLINE_MS_MAX 3600000u

/* A Quiesce that waits for calls in progress. */
struct waiter {
    struct agent_call *call;
    struct agent_timer *deadline;
    struct waiter *next;
};

static struct waiter *waiters;
static struct agent_timer *lease;
static uint32_t lease_ms;

static bool may_quiesce(struct agent_call *call, const Sandbox__V1__QuiesceRequest *request);
static void close_gate(uint32_t epoch);
static void on_lease_end(void *user_data);
static uint32_t in_progress(void);
static void answer(struct waiter *waiter);
static void on_deadline(void *user_data);
static void remove_waiter(struct waiter *waiter);

void agent_guard_quiesce(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__QuiesceRequest *request = (const Sandbox__V1__QuiesceRequest *)message;
    if (!may_quiesce(call, request))
        return;
    struct waiter *waiter = calloc(1, sizeof *waiter);
    if (waiter == NULL) {
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "no-memory",
                        "the agent has no memory for a waiter");
        return;
    }
    lease_ms = request->lease_ms;
    close_gate(request->epoch);
    *waiter = (struct waiter){call, NULL, waiters};
    waiters = waiter;
    agent_call_set_data(call, waiter);
    if (in_progress() == 0 || request->deadline_ms == 0 ||
        !agent_timer_start(&waiter->deadline, request->deadline_ms, on_deadline, waiter))
        answer(waiter);
}

static bool may_quiesce(struct agent_call *call, const Sandbox__V1__QuiesceRequest *request)
{
    if (!agent_guard_judge(call, request->epoch, "not-opened"))
        return false;
    if (request->lease_ms == 0 || request->lease_ms > LEASE_MS_MAX ||
        request->deadline_ms > DEADLINE_MS_MAX)
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid",
                        "a lease is 1 to %u ms, a deadline at most %u ms", LEASE_MS_MAX,
                        DEADLINE_MS_MAX);
    else if (agent_guard.gate == SANDBOX__V1__GATE__GATE_SEALED || agent_guard.sealing)
        agent_call_fail(call, AGENT_FAILED_PRECONDITION, "sealed",
                        "the agent is sealed already, by the operation of epoch %u",
                        agent_guard.operation);
    else if (request->epoch <= agent_guard.epoch)
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid",
                        "an operation's epoch is higher than the open one, %u", agent_guard.epoch);
    else
        return true;
    return false;
}

/* By a new operation, by one that takes its place, or once more by the same. */
static void close_gate(uint32_t epoch)
{
    bool quiesced = agent_guard.gate == SANDBOX__V1__GATE__GATE_QUIESCED;
    if (quiesced && agent_guard.operation != epoch) {
        agent_guard_quiesce_over();
        agent_server_cut(agent_guard.operation, epoch);
    }
    if (!quiesced || agent_guard.operation != epoch) {
        agent_guard.refused_calls = 0;
        agent_guard.resets = agent_carry_resets();
    }
    agent_guard.gate = SANDBOX__V1__GATE__GATE_QUIESCED;
    agent_guard.operation = epoch;
    agent_server_suspend(epoch);
    agent_guard_lease_again();
}

void agent_guard_lease_again(void)
{
    /* Without a lease nobody would open the gate of an owner that has died. */
    if (!agent_timer_start(&lease, lease_ms, on_lease_end, NULL))
        on_lease_end(NULL);
}

void agent_guard_lease_stop(void)
{
    agent_timer_stop(&lease);
}

static void on_lease_end(void *user_data)
{
    agent_guard.gate = SANDBOX__V1__GATE__GATE_OPEN;
    agent_guard.operation = 0;
    agent_guard_quiesce_over();
}

void agent_guard_quiesce_over(void)
{
    while (waiters != NULL) {
        struct agent_call *call = waiters->call;
        remove_waiter(waiters);
        agent_call_fail(call, AGENT_ABORTED, "reopened",
                        "the gate was opened, or closed by another operation, meanwhile");
    }
}

/* What finishes now was the last, perhaps. */
void agent_guard_call_over(void)
{
    while (waiters != NULL && in_progress() == 0)
        answer(waiters);
}

static uint32_t in_progress(void)
{
    return agent_server_in_progress(agent_guard.operation) + agent_jobs_left();
}

static void answer(struct waiter *waiter)
{
    struct agent_call *call = waiter->call;
    Sandbox__V1__QuiesceReply reply = SANDBOX__V1__QUIESCE_REPLY__INIT;
    reply.unfinished = in_progress();
    remove_waiter(waiter);
    agent_call_answer(call, &reply.base);
}

static void on_deadline(void *user_data)
{
    answer(user_data);
}

static void remove_waiter(struct waiter *waiter)
{
    struct waiter **link = &waiters;
    while (*link != waiter)
        link = &(*link)->next;
    *link = waiter->next;
    agent_timer_stop(&waiter->deadline);
    agent_call_set_data(waiter->call, NULL);
    free(waiter);
}

void agent_guard_quiesce_gone(struct agent_call *call)
{
    struct waiter *waiter = agent_call_data(call);
    if (waiter != NULL)
        remove_waiter(waiter);
}
