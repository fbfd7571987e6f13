/*
 * Whom the agent works for: what is known of it, who is let in, and the methods that only tell.
 * Every call passes agent_guard_admit(); the methods that move the gate judge their callers
 * themselves, since they work while it is closed.
 */

#include "guard.h"
#include "guard_state.h"
#include "init.h"
#include "listener.h"
#include "ports.h"
#include "processes.h"
#include "stats.h"
#include "util/memory.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PROTOCOL    2
#define ACTIVE_MAX  16
#define COMMAND_MAX 256

struct agent_guard agent_guard = {.gate = SANDBOX__V1__GATE__GATE_NOT_OPENED};

static bool come_up_sealed(const char *path);
static bool counts(const struct agent_call *call);
static bool judge_epoch(struct agent_call *call, const struct agent_method *method);
static void on_expiry(void *user_data);

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Where the clock of another machine is behind ours, it was just now. */
static uint64_t since_ms(uint64_t then_ms)
{
    uint64_t now = now_ms();
    return now > then_ms ? now - then_ms : 0;
}

bool agent_guard_begin(const char *directory, const char *seal)
{
    agent_guard.begun_ms = agent_guard.active_ms = now_ms();
    if (!agent_identity_find("", &agent_guard.identity))
        agent_guard.identity = (struct agent_identity){.user = "root"};
    if (strlen(directory) < sizeof agent_guard.identity.directory)
        memcpy(agent_guard.identity.directory, directory, strlen(directory) + 1);
    return seal == NULL || come_up_sealed(seal);
}

/* A seal file that cannot be taken for one proves nothing: the agent starts as any other then. */
static bool come_up_sealed(const char *path)
{
    struct agent_guard *guard = &agent_guard;
    guard->seal_path = sbx_copy(path);
    if (guard->seal_path == NULL) {
        fputs("sandbox-agent: no memory\n", stderr);
        return false;
    }
    int number = agent_seal_read(path, &guard->seal);
    if (number != 0) {
        if (number != ENOENT)
            fprintf(stderr, "sandbox-agent: the seal file '%s' is none: %s\n", path,
                    strerror(number));
        return true;
    }
    guard->gate = SANDBOX__V1__GATE__GATE_SEALED;
    guard->epoch = guard->operation = guard->fence = guard->seal.epoch;
    guard->generation = guard->seal.generation;
    memcpy(guard->workspace_id, guard->seal.workspace_id, sizeof guard->workspace_id);
    memcpy(guard->token_hash, guard->seal.token_hash, sizeof guard->token_hash);
    sbx_sha256(guard->seal.nonce, sizeof guard->seal.nonce, guard->seal_hash);
    guard->sealed = (Sandbox__V1__SealReply)SANDBOX__V1__SEAL_REPLY__INIT;
    guard->sealed.seal_hash = (ProtobufCBinaryData){sizeof guard->seal_hash, guard->seal_hash};
    return true;
}

const struct agent_identity *agent_identity(void)
{
    return &agent_guard.identity;
}

char *const *agent_guard_environment(size_t *count)
{
    *count = agent_guard.environment_count;
    return agent_guard.environment;
}

uint32_t agent_guard_process_limit(void)
{
    return agent_guard.process_limit;
}

uint64_t agent_guard_file_limit(void)
{
    return agent_guard.disk_limit;
}

void agent_activity_touch(void)
{
    agent_guard.active_ms = now_ms();
}

uint64_t agent_activity_idle_ms(void)
{
    return since_ms(agent_guard.active_ms);
}

void agent_traffic_touch(const struct agent_call *call)
{
    if (counts(call))
        agent_guard.active_ms = agent_guard.traffic_ms = now_ms();
}

uint64_t agent_uptime_ms(void)
{
    return since_ms(agent_guard.begun_ms);
}

bool agent_guard_admit(struct agent_call *call, const struct agent_method *method)
{
    if (method->not_over_tcp && agent_call_pass(call) != NULL) {
        agent_call_fail(call, AGENT_PERMISSION_DENIED, "not-over-tcp",
                        "the life cycle is not served over TCP, where others could listen");
        return false;
    }
    if (method->always_allowed) {
        /* It judges its caller itself. */
    } else if (agent_guard.gate == SANDBOX__V1__GATE__GATE_NOT_OPENED) {
        agent_call_fail(call, AGENT_FAILED_PRECONDITION, "not-opened",
                        "the agent was not opened yet");
        return false;
    } else if (!agent_guard_has_token(call)) {
        agent_call_fail(call, AGENT_UNAUTHENTICATED, "wrong-token",
                        "the call carries no valid token");
        return false;
    } else if (!judge_epoch(call, method)) {
        return false;
    }
    if (!method->passive && counts(call))
        agent_activity_touch();
    return true;
}

/* What a suspend itself asks, before it goes on or gives up, is nobody's activity. */
static bool counts(const struct agent_call *call)
{
    uint64_t epoch = 0;
    return agent_guard.gate != SANDBOX__V1__GATE__GATE_QUIESCED ||
           !agent_call_epoch(call, &epoch) || epoch != agent_guard.operation;
}

/*
 * Open: that of the Open. Quiesced: that of the operation; the callers of the Open wait. Sealed,
 * or about to be: nobody's.
 */
static bool judge_epoch(struct agent_call *call, const struct agent_method *method)
{
    const struct agent_guard *guard = &agent_guard;
    uint64_t epoch = 0;
    bool given = agent_call_epoch(call, &epoch);
    bool open = guard->gate == SANDBOX__V1__GATE__GATE_OPEN;
    bool quiesced = guard->gate == SANDBOX__V1__GATE__GATE_QUIESCED && !guard->sealing;
    uint32_t newest = open ? guard->epoch : guard->operation;
    if (given && epoch == newest && (open || quiesced))
        return true;
    if (given && method->background && epoch == guard->epoch && quiesced)
        return true;
    if (given && epoch > newest) {
        agent_call_fail(call, AGENT_FAILED_PRECONDITION, "not-opened",
                        "the agent was not opened for epoch %llu yet", (unsigned long long)epoch);
    } else if (given && !open && (epoch == guard->epoch || epoch == newest)) {
        agent_guard.refused_calls += !method->background;
        agent_call_fail(call, AGENT_UNAVAILABLE, "suspending",
                        "the workspace is being suspended; nothing was done");
    } else {
        agent_call_fail(call, AGENT_ABORTED, "stale-epoch",
                        "the call is of epoch %llu, epoch %u is open now",
                        (unsigned long long)epoch, newest);
    }
    return false;
}

bool agent_guard_has_token(const struct agent_call *call)
{
    const uint8_t *given = agent_call_token(call);
    const uint8_t *pass = agent_call_pass(call);
    uint8_t hash[SBX_DIGEST_BYTES];
    if (given == NULL)
        return false;
    if (pass != NULL)
        return sbx_equal_secret(given, pass, AGENT_TOKEN_SIZE);
    sbx_sha256(given, AGENT_TOKEN_SIZE, hash);
    return sbx_equal_secret(hash, agent_guard.token_hash, sizeof hash);
}

bool agent_guard_judge(struct agent_call *call, uint32_t epoch, const char *closed)
{
    if (agent_guard.gate == SANDBOX__V1__GATE__GATE_NOT_OPENED)
        agent_call_fail(call, AGENT_FAILED_PRECONDITION, closed, "the agent was not opened yet");
    else if (!agent_guard_has_token(call))
        agent_call_fail(call, AGENT_UNAUTHENTICATED, "wrong-token",
                        "the call carries no valid token");
    else if (epoch < agent_guard.fence)
        agent_call_fail(call, AGENT_ABORTED, "stale-epoch",
                        "the operation of epoch %u has taken the workspace over",
                        agent_guard.fence);
    else {
        agent_guard.fence = epoch;
        return true;
    }
    return false;
}

void agent_guard_expire_in(uint64_t expires_in_ms)
{
    agent_timer_stop(&agent_guard.expiry);
    agent_guard.expiry_left_ms = 0;
    if (expires_in_ms == 0)
        return;
    /* libuv adds this to its clock; a larger number would wrap. */
    uint64_t longest = INT64_MAX / 2;
    agent_timer_start(&agent_guard.expiry, expires_in_ms < longest ? expires_in_ms : longest,
                      on_expiry, NULL);
}

void agent_guard_hold_expiry(void)
{
    if (agent_guard.expiry == NULL)
        return;
    uint64_t left = agent_timer_left_ms(agent_guard.expiry);
    agent_timer_stop(&agent_guard.expiry);
    agent_guard.expiry_left_ms = left > 0 ? left : 1;
}

void agent_guard_resume_expiry(void)
{
    if (agent_guard.expiry_left_ms > 0)
        agent_guard_expire_in(agent_guard.expiry_left_ms);
}

static void on_expiry(void *user_data)
{
    agent_init_end();
}

static void health(struct agent_call *call, const ProtobufCMessage *message)
{
    Sandbox__V1__HealthReply reply = SANDBOX__V1__HEALTH_REPLY__INIT;
    static char version[] = AGENT_VERSION;
    reply.protocol = PROTOCOL;
    reply.version = version;
    reply.gate = agent_guard.gate;
    reply.epoch = agent_guard.gate == SANDBOX__V1__GATE__GATE_SEALED ? agent_guard.operation
                                                                     : agent_guard.epoch;
    if (agent_guard.gate != SANDBOX__V1__GATE__GATE_NOT_OPENED) {
        reply.workspace_id.data = agent_guard.workspace_id;
        reply.workspace_id.len = sizeof agent_guard.workspace_id;
    }
    reply.uptime_ms = agent_uptime_ms();
    reply.refused_calls = agent_guard.refused_calls;
    agent_call_answer(call, &reply.base);
}

static void activity(struct agent_call *call, const ProtobufCMessage *message)
{
    struct agent_process_activity active;
    agent_process_activity(&active);
    ProtobufCBinaryData ids[AGENT_ACTIVE_MAX];
    Sandbox__V1__ActiveProcess told[ACTIVE_MAX], *pointers[ACTIVE_MAX];
    Sandbox__V1__ActivityReply reply = SANDBOX__V1__ACTIVITY_REPLY__INIT;
    for (size_t at = 0; at < active.count; at++) {
        const struct agent_process *process = active.processes[at];
        ids[at] = (ProtobufCBinaryData){sizeof process->id, (uint8_t *)(uintptr_t)process->id};
        if (at >= ACTIVE_MAX)
            continue;
        size_t size = process->command_size < COMMAND_MAX ? process->command_size : COMMAND_MAX;
        told[at] = (Sandbox__V1__ActiveProcess)SANDBOX__V1__ACTIVE_PROCESS__INIT;
        told[at].id = ids[at];
        told[at].pid = process->pid;
        told[at].command = (ProtobufCBinaryData){size, (uint8_t *)process->command};
        told[at].terminal = process->terminal;
        pointers[at] = &told[at];
    }
    reply.active_tasks = active.tasks;
    reply.active_terminals = active.terminals;
    reply.idle_ms = agent_activity_idle_ms();
    reply.active_process_ids = ids;
    reply.n_active_process_ids = active.count;
    reply.active = pointers;
    reply.n_active = active.count < ACTIVE_MAX ? active.count : ACTIVE_MAX;
    reply.had_traffic = agent_guard.traffic_ms != 0;
    if (reply.had_traffic)
        reply.traffic_idle_ms = since_ms(agent_guard.traffic_ms);
    agent_call_answer(call, &reply.base);
}

const struct agent_method agent_guard_methods[] = {
    {.path = "/sandbox.v1.Guard/Health",
     .request = &sandbox__v1__health_request__descriptor,
     .message = health,
     .always_allowed = true,
     .passive = true},
    {.path = "/sandbox.v1.Guard/Open",
     .request = &sandbox__v1__open_request__descriptor,
     .message = agent_guard_open,
     .not_over_tcp = true,
     .always_allowed = true,
     .passive = true},
    {.path = "/sandbox.v1.Guard/Quiesce",
     .request = &sandbox__v1__quiesce_request__descriptor,
     .message = agent_guard_quiesce,
     .gone = agent_guard_quiesce_gone,
     .not_over_tcp = true,
     .always_allowed = true,
     .passive = true},
    {.path = "/sandbox.v1.Guard/Seal",
     .request = &sandbox__v1__seal_request__descriptor,
     .message = agent_guard_seal,
     .not_over_tcp = true,
     .always_allowed = true,
     .passive = true},
    {.path = "/sandbox.v1.Guard/Prove",
     .request = &sandbox__v1__prove_request__descriptor,
     .message = agent_guard_prove,
     .not_over_tcp = true,
     .always_allowed = true,
     .passive = true},
    {.path = "/sandbox.v1.Guard/PowerOff",
     .request = &sandbox__v1__power_off_request__descriptor,
     .message = agent_guard_power_off,
     .gone = agent_guard_power_off_gone,
     .not_over_tcp = true,
     .always_allowed = true,
     .passive = true},
    {.path = "/sandbox.v1.Guard/Activity",
     .request = &sandbox__v1__activity_request__descriptor,
     .message = activity,
     .passive = true},
    {.path = "/sandbox.v1.Guard/Stats",
     .request = &sandbox__v1__stats_request__descriptor,
     .message = agent_stats,
     .passive = true},
    {.path = NULL},
};
