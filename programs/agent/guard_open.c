/*
 * Open: whom the agent works for from now on. Of a sealed agent it also is what a restore needs:
 * all that can be refused is refused first, then what a restore breaks is mended while everybody
 * still stands still, then the gate opens and all go on.
 */

#include "egress.h"
#include "freeze.h"
#include "guard.h"
#include "guard_state.h"
#include "init.h"
#include "listener.h"
#include "park.h"
#include "processes.h"
#include "repair.h"
#include "tcp.h"
#include "util/memory.h"
#include "util/proof.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define CLOCK_TOLERANCE_MS    1000
#define ENVIRONMENT_BYTES_MAX (1u << 20)
#define ENTROPY_BYTES_MAX     512u
#define UNPARK_MS_MAX         2000u

/* An Open that was found good. */
struct opening {
    struct agent_identity identity;
    bool keep_environment;
    char **environment;
    size_t environment_count;
    uint32_t epoch, process_limit;
    uint64_t disk_limit, expires_in_ms;
    uint8_t workspace_id[AGENT_WORKSPACE_ID_SIZE];
    uint8_t token_hash[SBX_DIGEST_BYTES], tcp_key[SBX_DIGEST_BYTES];
    bool restored;
    Sandbox__V1__OpenReply reply;
    /* Of a sealed agent, which takes more than a turn of the loop: */
    struct agent_call *call; /* kept; the latest that asks for it */
    uv_work_t work;
};

static struct opening *under_way; /* of a sealed agent; one at a time */

static bool may_open(struct agent_call *call, const Sandbox__V1__OpenRequest *request);
static bool has_right_seal(struct agent_call *call, const Sandbox__V1__OpenRequest *request);
static bool is_right_seal(const Sandbox__V1__OpenRequest *request);
static void join(struct agent_call *call, const Sandbox__V1__OpenRequest *request);
static bool settle(struct agent_call *call, const Sandbox__V1__OpenRequest *request,
                   struct opening *out);
static bool settle_identity(struct agent_call *call, const Sandbox__V1__OpenRequest *request,
                            struct agent_identity *out);
static bool copy_environment(struct agent_call *call, const Sandbox__V1__OpenRequest *request,
                             char ***out);
static void free_environment(char **environment, size_t count);
static void set_clock(const Sandbox__V1__OpenRequest *request, Sandbox__V1__OpenReply *reply);
static void apply(struct opening *opening);
static void make_directories(const struct agent_identity *identity);
static void answer(struct agent_call *call, const Sandbox__V1__OpenReply *opened);
static void open_sealed(struct agent_call *call, const Sandbox__V1__OpenRequest *request,
                        struct opening *settled);
static void on_hook_end(int32_t code);
static void spend_seal(uv_work_t *work);
static void go_on(uv_work_t *work, int status);
static void see_unparked(uv_work_t *work);
static void on_unparked(uv_work_t *work, int status);

void agent_guard_open(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__OpenRequest *request = (const Sandbox__V1__OpenRequest *)message;
    struct opening opening = {0};
    if (!may_open(call, request))
        return;
    if (under_way != NULL) {
        join(call, request);
        return;
    }
    if (!settle(call, request, &opening))
        return;
    if (agent_guard.gate == SANDBOX__V1__GATE__GATE_SEALED) {
        open_sealed(call, request, &opening);
        return;
    }
    /* An answer that was lost is given again, with what was mended then. */
    if (request->seal_hash.len > 0)
        opening.reply = agent_guard.opened;
    set_clock(request, &opening.reply);
    apply(&opening);
    answer(call, &opening.reply);
}

static bool may_open(struct agent_call *call, const Sandbox__V1__OpenRequest *request)
{
    bool bound = agent_guard.gate != SANDBOX__V1__GATE__GATE_NOT_OPENED;
    if (bound && !agent_guard_has_token(call))
        agent_call_fail(call, AGENT_UNAUTHENTICATED, "wrong-token",
                        "the call carries no valid token");
    else if (request->workspace_id.len != AGENT_WORKSPACE_ID_SIZE)
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid", "workspace_id must have %d bytes",
                        AGENT_WORKSPACE_ID_SIZE);
    else if (request->token.len != AGENT_TOKEN_SIZE)
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid", "token must have %d bytes",
                        AGENT_TOKEN_SIZE);
    else if (request->epoch == 0 || request->entropy.len > ENTROPY_BYTES_MAX)
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid",
                        "epoch must be 1 or more, entropy at most %u bytes", ENTROPY_BYTES_MAX);
    else if (bound && memcmp(request->workspace_id.data, agent_guard.workspace_id,
                             AGENT_WORKSPACE_ID_SIZE) != 0)
        agent_call_fail(call, AGENT_FAILED_PRECONDITION, "other-workspace",
                        "this agent works for another workspace");
    else if (request->epoch < agent_guard.fence)
        agent_call_fail(call, AGENT_ABORTED, "stale-epoch",
                        "the operation of epoch %u has taken the workspace over",
                        agent_guard.fence);
    else
        return has_right_seal(call, request);
    return false;
}

static bool has_right_seal(struct agent_call *call, const Sandbox__V1__OpenRequest *request)
{
    bool sealed = agent_guard.gate == SANDBOX__V1__GATE__GATE_SEALED;
    bool given = request->seal_hash.len > 0;
    if (agent_guard.gate != SANDBOX__V1__GATE__GATE_NOT_OPENED)
        agent_guard.fence = request->epoch;
    if (agent_guard.sealing)
        agent_call_fail(call, AGENT_UNAVAILABLE, "suspending",
                        "the agent is about to be sealed; ask again");
    else if (sealed && !given)
        agent_call_fail(call, AGENT_FAILED_PRECONDITION, "sealed",
                        "the agent is sealed, and opens only to the hash of its seal");
    else if (sealed && !is_right_seal(request))
        agent_call_fail(call, AGENT_FAILED_PRECONDITION, "other-seal",
                        "the agent was sealed with another seal");
    else if (!sealed && given && !(agent_guard.spent && is_right_seal(request)))
        agent_call_fail(call, AGENT_FAILED_PRECONDITION, "not-sealed",
                        "the agent is not sealed, so it is not what the seal belongs to");
    else
        return true;
    return false;
}

static bool is_right_seal(const Sandbox__V1__OpenRequest *request)
{
    return request->seal_hash.len == sizeof agent_guard.seal_hash &&
           sbx_equal_secret(request->seal_hash.data, agent_guard.seal_hash,
                            sizeof agent_guard.seal_hash);
}

/* The same once more, perhaps over another channel since the first one broke; or somebody else. */
static void join(struct agent_call *call, const Sandbox__V1__OpenRequest *request)
{
    uint8_t hash[SBX_DIGEST_BYTES];
    sbx_sha256(request->token.data, request->token.len, hash);
    if (request->epoch != under_way->epoch ||
        !sbx_equal_secret(hash, under_way->token_hash, sizeof hash)) {
        agent_call_fail(call, AGENT_UNAVAILABLE, "opening", "the agent is being opened; ask again");
        return;
    }
    agent_call_fail(under_way->call, AGENT_ABORTED, "asked-again",
                    "the same operation has asked for it once more");
    agent_call_drop(under_way->call);
    agent_call_keep(call);
    under_way->call = call;
}

/* All that can be refused. */
static bool settle(struct agent_call *call, const Sandbox__V1__OpenRequest *request,
                   struct opening *out)
{
    out->keep_environment = request->keep_environment;
    out->epoch = request->epoch;
    out->process_limit = request->process_limit;
    out->disk_limit = request->disk_limit_bytes;
    out->expires_in_ms = request->expires_in_ms;
    out->restored = request->restored;
    memcpy(out->workspace_id, request->workspace_id.data, sizeof out->workspace_id);
    sbx_sha256(request->token.data, request->token.len, out->token_hash);
    bool made = sbx_proof_key(request->token.data, out->tcp_key);
    sbx_wipe(request->token.data, request->token.len);
    if (!made) {
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "no-memory", "the agent has no memory");
        return false;
    }
    out->reply = (Sandbox__V1__OpenReply)SANDBOX__V1__OPEN_REPLY__INIT;
    out->reply.hook_code = AGENT_HOOK_NONE;
    if (!settle_identity(call, request, &out->identity))
        return false;
    if (request->keep_environment)
        return true;
    out->environment_count = request->n_environment;
    return copy_environment(call, request, &out->environment);
}

/* What a repeated Open leaves empty stays as it was. */
static bool settle_identity(struct agent_call *call, const Sandbox__V1__OpenRequest *request,
                            struct agent_identity *out)
{
    bool bound = agent_guard.gate != SANDBOX__V1__GATE__GATE_NOT_OPENED;
    const char *user = *request->user == '\0' && bound ? agent_guard.identity.user : request->user;
    if (!agent_identity_find(user, out)) {
        agent_call_fail(call, AGENT_NOT_FOUND, "no-such-user",
                        "there is no user '%.64s', or the agent may not become it", user);
        return false;
    }
    const ProtobufCBinaryData *directory = &request->directory;
    if (directory->len == 0) {
        memcpy(out->directory, agent_guard.identity.directory, sizeof out->directory);
        return true;
    }
    if (directory->data[0] != '/' || directory->len >= sizeof out->directory ||
        memchr(directory->data, '\0', directory->len) != NULL) {
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid",
                        "directory must be an absolute path of less than %zu bytes",
                        sizeof out->directory);
        return false;
    }
    memcpy(out->directory, directory->data, directory->len);
    out->directory[directory->len] = '\0';
    return true;
}

bool agent_environment_is_valid(const uint8_t *entry, size_t size)
{
    const uint8_t *equals = memchr(entry, '=', size);
    return equals != NULL && equals != entry && memchr(entry, '\0', size) == NULL;
}

static bool copy_environment(struct agent_call *call, const Sandbox__V1__OpenRequest *request,
                             char ***out)
{
    size_t count = request->n_environment, total = 0;
    bool fits = count <= AGENT_ENVIRONMENT_MAX;
    for (size_t at = 0; at < count && fits; at++) {
        const ProtobufCBinaryData *entry = &request->environment[at];
        total += entry->len + 1;
        fits = total <= ENVIRONMENT_BYTES_MAX;
        if (entry->len == 0 || !agent_environment_is_valid(entry->data, entry->len)) {
            agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid-environment",
                            "environment entry %zu is not NAME=value without zero bytes", at);
            return false;
        }
    }
    if (!fits) {
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "environment-too-large",
                        "the environment is over the limit of %d entries or 1 MiB",
                        AGENT_ENVIRONMENT_MAX);
        return false;
    }
    char **copies = calloc(count + 1, sizeof *copies);
    bool failed = copies == NULL;
    for (size_t at = 0; at < count && !failed; at++) {
        copies[at] = sbx_copy_bytes(request->environment[at].data, request->environment[at].len);
        failed = copies[at] == NULL;
    }
    if (failed) {
        free_environment(copies, count);
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "no-memory",
                        "the agent has no memory for the environment");
        return false;
    }
    *out = copies;
    return true;
}

/* Values may be secrets. */
static void free_environment(char **environment, size_t count)
{
    for (size_t at = 0; environment != NULL && at < count && environment[at] != NULL; at++) {
        sbx_wipe(environment[at], strlen(environment[at]));
        free(environment[at]);
    }
    free(environment);
}

/* A host's clock is never ours to set. What an earlier Open had to do stays told. */
static void set_clock(const Sandbox__V1__OpenRequest *request, Sandbox__V1__OpenReply *reply)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t here = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    int64_t step = 0;
    if (request->wall_time_ms <= 0 || __builtin_sub_overflow(request->wall_time_ms, here, &step) ||
        (step >= -CLOCK_TOLERANCE_MS && step <= CLOCK_TOLERANCE_MS))
        return;
    struct timeval wanted = {request->wall_time_ms / 1000, (request->wall_time_ms % 1000) * 1000};
    reply->clock_failed = !agent_init_is_first() || settimeofday(&wanted, NULL) != 0;
    if (!reply->clock_failed)
        reply->clock_stepped_ms = step;
}

/* The gate is open, to the callers of this Open alone. */
static void apply(struct opening *opening)
{
    struct agent_guard *guard = &agent_guard;
    /* Work that a suspend has waited for, and not stopped, may still finish. */
    bool quiesced = guard->gate == SANDBOX__V1__GATE__GATE_QUIESCED;
    if (opening->epoch > guard->epoch)
        agent_server_cut(quiesced ? guard->epoch + 1 : 0, opening->epoch);
    if (!opening->keep_environment) {
        free_environment(guard->environment, guard->environment_count);
        guard->environment = opening->environment;
        guard->environment_count = opening->environment_count;
    }
    agent_guard_lease_stop();
    guard->gate = SANDBOX__V1__GATE__GATE_OPEN;
    guard->operation = 0;
    guard->epoch = opening->epoch;
    /* A newer operation may have spoken while a hook ran; it stays the one that counts. */
    if (guard->fence < opening->epoch)
        guard->fence = opening->epoch;
    memcpy(guard->workspace_id, opening->workspace_id, sizeof guard->workspace_id);
    memcpy(guard->token_hash, opening->token_hash, sizeof guard->token_hash);
    agent_tcp_open(opening->tcp_key);
    sbx_wipe(opening->tcp_key, sizeof opening->tcp_key);
    agent_egress_open_again();
    guard->identity = opening->identity;
    guard->process_limit = opening->process_limit;
    guard->disk_limit = opening->disk_limit;
    make_directories(&guard->identity);
    agent_guard_expire_in(opening->expires_in_ms);
    agent_guard_quiesce_over();
    agent_activity_touch();
}

static void make_owned(const char *path, const struct agent_identity *identity)
{
    if (mkdir(path, 0755) == 0 && geteuid() == 0 && lchown(path, identity->uid, identity->gid) != 0)
        rmdir(path);
}

/* An image may lack both; a host's own /home is not ours to fill. */
static void make_directories(const struct agent_identity *identity)
{
    make_owned(identity->directory, identity);
    if (!agent_init_is_first())
        return;
    char parent[sizeof identity->home];
    memcpy(parent, identity->home, sizeof parent);
    char *slash = strrchr(parent, '/');
    if (slash != NULL && slash != parent) {
        *slash = '\0';
        mkdir(parent, 0755);
    }
    make_owned(identity->home, identity);
}

static void answer(struct agent_call *call, const Sandbox__V1__OpenReply *opened)
{
    Sandbox__V1__OpenReply reply = *opened;
    reply.epoch = agent_guard.epoch;
    reply.home.data = (uint8_t *)agent_guard.identity.home;
    reply.home.len = strlen(agent_guard.identity.home);
    reply.uid = agent_guard.identity.uid;
    reply.gid = agent_guard.identity.gid;
    reply.generation = agent_guard.generation;
    agent_call_answer(call, &reply.base);
}

/* Whoever asked may be gone before it is done: it is done all the same, and can be asked again. */
static void open_sealed(struct agent_call *call, const Sandbox__V1__OpenRequest *request,
                        struct opening *settled)
{
    struct opening *opening = sbx_copy_bytes(settled, sizeof *settled);
    if (opening == NULL) {
        free_environment(settled->environment, settled->environment_count);
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "no-memory", "the agent has no memory");
        return;
    }
    under_way = opening;
    agent_guard.opening = true;
    agent_call_keep(call);
    opening->call = call;
    /* Ended while nobody looked. */
    agent_init_reap();
    if (request->entropy.len > 0) {
        opening->reply.entropy_errno =
            agent_repair_entropy(request->entropy.data, request->entropy.len);
        opening->reply.entropy_added = opening->reply.entropy_errno == 0;
        sbx_wipe(request->entropy.data, request->entropy.len);
    }
    set_clock(request, &opening->reply);
    if (!opening->restored) {
        on_hook_end(AGENT_HOOK_NONE);
        return;
    }
    agent_guard.generation = agent_guard.seal.generation + 1;
    int number = agent_repair_generation(agent_guard.seal_path, agent_guard.generation);
    if (number != 0)
        fprintf(stderr, "sandbox-agent: cannot write the generation file: %s\n", strerror(number));
    bool keeps = opening->keep_environment;
    agent_repair_hook(&opening->identity, keeps ? agent_guard.environment : opening->environment,
                      keeps ? agent_guard.environment_count : opening->environment_count,
                      agent_guard.generation, on_hook_end);
}

static void on_hook_end(int32_t code)
{
    under_way->reply.hook_code = code;
    if (uv_queue_work(agent_loop(), &under_way->work, spend_seal, go_on) == 0)
        return;
    spend_seal(&under_way->work);
    go_on(&under_way->work, 0);
}

static void spend_seal(uv_work_t *work)
{
    int number = agent_seal_remove(agent_guard.seal_path);
    if (number != 0)
        fprintf(stderr, "sandbox-agent: cannot remove the seal file: %s\n", strerror(number));
}

/* From here everything inside runs. */
static void go_on(uv_work_t *work, int status)
{
    struct agent_guard *guard = &agent_guard;
    Sandbox__V1__OpenReply *reply = &under_way->reply;
    guard->opening = false;
    guard->spent = true;
    guard->in_memory = false;
    sbx_wipe(&guard->seal, sizeof guard->seal);
    apply(under_way);
    reply->connections_reset = guard->sealed.connections_reset;
    reply->deadlines_kept = agent_process_resume_deadlines();
    bool parked = agent_seal_unpark();
    reply->continued = agent_freeze_end();
    guard->opened = *reply;
    if (!parked || uv_queue_work(agent_loop(), &under_way->work, see_unparked, on_unparked) != 0)
        on_unparked(NULL, 0);
}

static void see_unparked(uv_work_t *work)
{
    agent_park_settle(UNPARK_MS_MAX);
}

static void on_unparked(uv_work_t *work, int status)
{
    struct opening *opening = sbx_take(under_way);
    answer(opening->call, &opening->reply);
    agent_call_drop(opening->call);
    free(opening);
}
