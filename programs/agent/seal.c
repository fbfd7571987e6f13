/*
 * Seal: everything inside stands still, all channels end, and a nonce is drawn that only this
 * memory and these files hold. Prove tells it to whoever has the token; PowerOff ends what is
 * sealed. A Seal that fails, or whose caller is gone, is undone: the gate is quiesced as before.
 */

#include "carry.h"
#include "egress.h"
#include "files.h"
#include "freeze.h"
#include "guard_state.h"
#include "init.h"
#include "listener.h"
#include "lost.h"
#include "park.h"
#include "ports.h"
#include "processes.h"
#include "tcp.h"
#include "util/memory.h"
#include "util/random.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define JOBS_MS_MAX  10000u
#define JOBS_LOOK_MS 5u

/* A Seal that is under way; one at a time. */
static struct {
    struct agent_call *call; /* kept; the latest that asks for it */
    uv_work_t work;
    bool park, held; /* held: nobody is in the way */
    bool written;    /* there is a seal file of this attempt */
    struct agent_park_report report;
    struct agent_seal fresh;
    char directories[2][sizeof((struct agent_identity *)0)->directory];
    int number;
    uint32_t stopped;
    uint64_t jobs_begun_ms;
    struct agent_timer *jobs_timer;
} sealing;

/* Of the last seal; plain memory, until an Open tells them to go on. */
static struct agent_park *parked;

static bool may_seal(struct agent_call *call, const Sandbox__V1__SealRequest *request);
static void join(struct agent_call *call);
static void queue(void (*work)(uv_work_t *work), void (*done)(uv_work_t *work, int status));
static void park(uv_work_t *work);
static void on_parked(uv_work_t *work, int status);
static void stop_all(void);
static void on_frozen(const struct agent_freeze_result *result);
static void wait_for_jobs(void *user_data);
static void draw(void);
static void keep(uv_work_t *work);
static void on_kept(uv_work_t *work, int status);
static void undo(void);
static void tell_obstacles(struct agent_call *call);
static void end_sealing(void);

void agent_guard_seal(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__SealRequest *request = (const Sandbox__V1__SealRequest *)message;
    if (!may_seal(call, request))
        return;
    if (agent_guard.gate == SANDBOX__V1__GATE__GATE_SEALED) {
        agent_call_answer(call, &agent_guard.sealed.base);
        agent_server_goodbye(call);
        return;
    }
    agent_call_keep(call);
    if (agent_guard.sealing) {
        join(call);
        return;
    }
    agent_guard.sealing = true;
    agent_guard_lease_stop();
    agent_guard_quiesce_over();
    agent_guard_hold_expiry();
    agent_process_hold_deadlines();
    sealing.call = call;
    sealing.park = request->park_sockets;
    sealing.report = (struct agent_park_report){0};
    sealing.held = true;
    sealing.written = false;
    sealing.stopped = 0;
    if (sealing.park)
        queue(park, on_parked);
    else
        stop_all();
}

static bool may_seal(struct agent_call *call, const Sandbox__V1__SealRequest *request)
{
    const struct agent_guard *guard = &agent_guard;
    if (!agent_guard_judge(call, request->epoch, "not-quiesced"))
        return false;
    bool open = guard->gate == SANDBOX__V1__GATE__GATE_OPEN;
    if (open || guard->operation != request->epoch)
        agent_call_fail(call, AGENT_FAILED_PRECONDITION, "not-quiesced",
                        "the agent was not quiesced by the operation of epoch %u", request->epoch);
    else if (guard->seal_path == NULL)
        agent_call_fail(call, AGENT_FAILED_PRECONDITION, "no-seal-file",
                        "the agent was started without a seal file, so it cannot be sealed");
    else
        return true;
    return false;
}

/* Asked again, perhaps over another channel since the first one broke: the later one is told. */
static void join(struct agent_call *call)
{
    agent_call_fail(sealing.call, AGENT_ABORTED, "asked-again",
                    "the same operation has asked for the seal once more");
    agent_call_drop(sealing.call);
    sealing.call = call;
}

/* Without a thread the loop itself waits: there is nobody else it could serve. */
static void queue(void (*work)(uv_work_t *work), void (*done)(uv_work_t *work, int status))
{
    if (uv_queue_work(agent_loop(), &sealing.work, work, done) == 0)
        return;
    work(&sealing.work);
    done(&sealing.work, 0);
}

static void park(uv_work_t *work)
{
    sealing.held = agent_park_begin(&parked, &sealing.report);
}

static void on_parked(uv_work_t *work, int status)
{
    if (sealing.held)
        stop_all();
    else
        undo();
}

static void stop_all(void)
{
    agent_server_end_work();
    agent_ports_reset();
    agent_egress_close();
    agent_tcp_close();
    agent_server_goodbye_others(sealing.call);
    agent_freeze_begin(on_frozen);
}

static void on_frozen(const struct agent_freeze_result *result)
{
    sealing.stopped = result->stopped;
    agent_server_close_others(sealing.call);
    if (result->complete) {
        sealing.jobs_begun_ms = uv_now(agent_loop());
        wait_for_jobs(NULL);
        return;
    }
    if (result->running == 0)
        agent_call_fail(sealing.call, AGENT_INTERNAL, "system-error",
                        "the agent cannot look at /proc to stop all processes");
    else
        agent_call_fail(sealing.call, AGENT_FAILED_PRECONDITION, "not-stopped",
                        "process %d did not stop", (int)result->running);
    undo();
}

/* What the calls of closed channels leave behind touches files for a moment yet. */
static void wait_for_jobs(void *user_data)
{
    bool late = uv_now(agent_loop()) - sealing.jobs_begun_ms > JOBS_MS_MAX;
    if (agent_jobs_count() == 0) {
        draw();
    } else if (late || !agent_timer_start(&sealing.jobs_timer, JOBS_LOOK_MS, wait_for_jobs, NULL)) {
        agent_call_fail(sealing.call, AGENT_FAILED_PRECONDITION, "not-stopped",
                        "%u requests still work on files", agent_jobs_count());
        undo();
    }
}

static void draw(void)
{
    struct agent_seal *fresh = &sealing.fresh;
    *fresh =
        (struct agent_seal){.epoch = agent_guard.operation, .generation = agent_guard.generation};
    memcpy(fresh->workspace_id, agent_guard.workspace_id, sizeof fresh->workspace_id);
    memcpy(fresh->token_hash, agent_guard.token_hash, sizeof fresh->token_hash);
    snprintf(sealing.directories[0], sizeof sealing.directories[0], "%s",
             agent_guard.identity.directory);
    snprintf(sealing.directories[1], sizeof sealing.directories[1], "%s",
             agent_guard.identity.home);
    queue(keep, on_kept);
}

/* A container's files are all of the workspace; on a host only some are. */
static int sync_files(void)
{
    if (agent_init_is_first()) {
        sync();
        return 0;
    }
    for (size_t at = 0; at < 2; at++) {
        SBX_ON_EXIT(sbx_close_fd)
        int fd = open(sealing.directories[at], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0 && syncfs(fd) != 0)
            return errno;
    }
    return 0;
}

static void keep(uv_work_t *work)
{
    sealing.number = 0;
    /* One may have been started between the first look and its stop. */
    sealing.held =
        !sealing.park || (agent_park_holds(&sealing.report) && agent_lost_look(&sealing.report) &&
                          sealing.report.obstacles_count == 0);
    if (!sealing.held)
        return;
    sealing.number = sync_files();
    if (sealing.number == 0 && !sbx_random(sealing.fresh.nonce, sizeof sealing.fresh.nonce))
        sealing.number = EIO;
    if (sealing.number == 0)
        sealing.number = agent_seal_write(agent_guard.seal_path, &sealing.fresh);
    sealing.written = sealing.number == 0;
}

static void on_kept(uv_work_t *work, int status)
{
    if (sealing.number != 0)
        agent_call_fail_errno(sealing.call, sealing.number, "cannot keep the seal");
    if (!sealing.held || agent_call_is_over(sealing.call)) {
        undo();
        return;
    }
    struct agent_guard *guard = &agent_guard;
    guard->seal = sealing.fresh;
    sbx_sha256(guard->seal.nonce, sizeof guard->seal.nonce, guard->seal_hash);
    guard->in_memory = true;
    guard->spent = false;
    guard->gate = SANDBOX__V1__GATE__GATE_SEALED;
    guard->sealing = false;
    guard->sealed = (Sandbox__V1__SealReply)SANDBOX__V1__SEAL_REPLY__INIT;
    guard->sealed.seal_hash = (ProtobufCBinaryData){sizeof guard->seal_hash, guard->seal_hash};
    guard->sealed.stopped = sealing.stopped;
    guard->sealed.parked = sealing.report.parked;
    guard->sealed.connections_reset = agent_carry_resets() - guard->resets;
    agent_tcp_forget_key();
    agent_egress_forget_key();
    agent_server_close_others(sealing.call);
    agent_call_answer(sealing.call, &guard->sealed.base);
    agent_server_goodbye(sealing.call);
    end_sealing();
}

/* In the order of an Open. The channels that ended stay ended; their callers make new ones. */
static void undo(void)
{
    if (sealing.written)
        (void)agent_seal_remove(agent_guard.seal_path);
    agent_process_resume_deadlines();
    agent_tcp_open_again();
    agent_egress_open_again();
    (void)agent_seal_unpark();
    agent_freeze_end();
    agent_guard_resume_expiry();
    agent_guard.sealing = false;
    agent_guard_lease_again();
    if (!sealing.held)
        tell_obstacles(sealing.call);
    end_sealing();
}

static void tell_obstacles(struct agent_call *call)
{
    Sandbox__V1__SealReply reply = SANDBOX__V1__SEAL_REPLY__INIT;
    Sandbox__V1__SealObstacle obstacles[AGENT_PARK_OBSTACLES_MAX];
    Sandbox__V1__SealObstacle *pointers[AGENT_PARK_OBSTACLES_MAX];
    struct agent_park_report *report = &sealing.report;
    for (size_t at = 0; at < report->obstacles_count; at++) {
        struct agent_park_obstacle *one = &report->obstacles[at];
        obstacles[at] = (Sandbox__V1__SealObstacle)SANDBOX__V1__SEAL_OBSTACLE__INIT;
        obstacles[at].pid = one->pid;
        obstacles[at].command = (ProtobufCBinaryData){one->command_size, one->command};
        obstacles[at].what = (ProtobufCBinaryData){strlen(one->what), (uint8_t *)one->what};
        pointers[at] = &obstacles[at];
    }
    reply.obstacles = pointers;
    reply.n_obstacles = report->obstacles_count;
    if (reply.n_obstacles > 0)
        agent_call_answer(call, &reply.base);
    else
        agent_call_fail(call, AGENT_INTERNAL, "system-error",
                        "the agent cannot look for what the runtime does not save");
}

static void end_sealing(void)
{
    sbx_wipe(&sealing.fresh, sizeof sealing.fresh);
    agent_call_drop(sealing.call);
    sealing.call = NULL;
}

bool agent_seal_unpark(void)
{
    if (parked == NULL)
        return false;
    agent_park_undo(parked);
    agent_park_free(parked);
    parked = NULL;
    return true;
}

void agent_guard_prove(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__ProveRequest *request = (const Sandbox__V1__ProveRequest *)message;
    struct agent_guard *guard = &agent_guard;
    if (!agent_guard_judge(call, request->epoch, "not-sealed"))
        return;
    if (guard->gate != SANDBOX__V1__GATE__GATE_SEALED) {
        agent_call_fail(call, AGENT_FAILED_PRECONDITION, "not-sealed", "the agent is not sealed");
        return;
    }
    /* A proof says that nobody works here; in a moment somebody will. */
    if (guard->opening) {
        agent_call_fail(call, AGENT_UNAVAILABLE, "opening", "the agent is being opened; ask again");
        return;
    }
    struct agent_seal kept = {0};
    Sandbox__V1__ProveReply reply = SANDBOX__V1__PROVE_REPLY__INIT;
    reply.nonce = (ProtobufCBinaryData){sizeof guard->seal.nonce, guard->seal.nonce};
    reply.epoch = guard->seal.epoch;
    reply.workspace_id =
        (ProtobufCBinaryData){sizeof guard->seal.workspace_id, guard->seal.workspace_id};
    reply.in_memory = guard->in_memory;
    reply.in_file =
        agent_seal_read(guard->seal_path, &kept) == 0 && kept.epoch == guard->seal.epoch &&
        memcmp(kept.workspace_id, guard->seal.workspace_id, sizeof kept.workspace_id) == 0 &&
        sbx_equal_secret(kept.nonce, guard->seal.nonce, sizeof kept.nonce);
    sbx_wipe(&kept, sizeof kept);
    agent_call_answer(call, &reply.base);
}

void agent_guard_power_off(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__PowerOffRequest *request = (const Sandbox__V1__PowerOffRequest *)message;
    Sandbox__V1__PowerOffReply reply = SANDBOX__V1__POWER_OFF_REPLY__INIT;
    if (!agent_guard_judge(call, request->epoch, "not-sealed"))
        return;
    if (agent_guard.gate != SANDBOX__V1__GATE__GATE_SEALED || agent_guard.opening ||
        agent_guard.seal.epoch != request->epoch) {
        agent_call_fail(call, AGENT_FAILED_PRECONDITION, "not-sealed",
                        "the agent is not sealed by the operation of epoch %u", request->epoch);
        return;
    }
    agent_call_set_data(call, &agent_guard);
    agent_call_answer(call, &reply.base);
}

static void end_all(void *user_data)
{
    agent_init_end();
}

/* The answer was handed over, and is written before the loop turns; or there is nobody left. */
void agent_guard_power_off_gone(struct agent_call *call)
{
    static struct agent_timer *end;
    if (agent_call_data(call) != NULL && !agent_timer_start(&end, 0, end_all, NULL))
        end_all(NULL);
}
