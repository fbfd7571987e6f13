/*
 * Whom the agent works for. The gate has two states today, not opened and open; every call
 * passes agent_guard_admit(), which is where further states will stop it.
 */

#include "guard.h"
#include "call.h"
#include "guard.pb-c.h"
#include "init.h"
#include "listener.h"
#include "loop.h"
#include "processes.h"
#include "stats.h"
#include "util/memory.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define PROTOCOL              1
#define TOKEN_BYTES           32
#define WORKSPACE_ID_BYTES    16
#define CLOCK_TOLERANCE_MS    1000
#define ENVIRONMENT_BYTES_MAX (1u << 20)
#define IDS_MAX               64

struct guard {
    Sandbox__V1__Gate gate;
    uint32_t epoch;
    uint8_t workspace_id[WORKSPACE_ID_BYTES];
    uint8_t token[TOKEN_BYTES];
    struct agent_identity identity;
    char **environment;
    size_t environment_count;
    uint32_t process_limit;
    uint64_t disk_limit;
    struct agent_timer *expiry;
    uint64_t begun_ms, active_ms;
};

static struct guard guard = {.gate = SANDBOX__V1__GATE__GATE_NOT_OPENED};

static bool has_token(const struct agent_call *call);
static bool may_open(struct agent_call *call, const Sandbox__V1__OpenRequest *request);
static bool settle_identity(struct agent_call *call, const Sandbox__V1__OpenRequest *request,
                            struct agent_identity *out);
static void make_directories(const struct agent_identity *identity);
static bool copy_environment(struct agent_call *call, const Sandbox__V1__OpenRequest *request,
                             char ***out);
static void free_environment(char **environment, size_t count);
static void set_clock(const Sandbox__V1__OpenRequest *request, Sandbox__V1__OpenReply *reply);
static void set_expiry(uint64_t expires_in_ms);
static void on_expiry(void *user_data);

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void agent_guard_begin(const char *directory)
{
    guard.begun_ms = guard.active_ms = now_ms();
    if (!agent_identity_find("", &guard.identity))
        guard.identity = (struct agent_identity){.user = "root"};
    if (strlen(directory) < sizeof guard.identity.directory)
        memcpy(guard.identity.directory, directory, strlen(directory) + 1);
}

const struct agent_identity *agent_identity(void)
{
    return &guard.identity;
}

char *const *agent_guard_environment(size_t *count)
{
    *count = guard.environment_count;
    return guard.environment;
}

uint32_t agent_guard_process_limit(void)
{
    return guard.process_limit;
}

uint64_t agent_guard_file_limit(void)
{
    return guard.disk_limit;
}

void agent_activity_touch(void)
{
    guard.active_ms = now_ms();
}

uint64_t agent_activity_idle_ms(void)
{
    return now_ms() - guard.active_ms;
}

uint64_t agent_uptime_ms(void)
{
    return now_ms() - guard.begun_ms;
}

bool agent_guard_admit(struct agent_call *call, const struct agent_method *method)
{
    uint64_t epoch = 0;
    if (method->always_allowed) {
        /* Open judges its caller itself. */
    } else if (guard.gate != SANDBOX__V1__GATE__GATE_OPEN) {
        agent_call_fail(call, AGENT_FAILED_PRECONDITION, "not-opened",
                        "the agent was not opened yet");
        return false;
    } else if (!has_token(call)) {
        agent_call_fail(call, AGENT_UNAUTHENTICATED, "wrong-token",
                        "the call carries no valid token");
        return false;
    } else if (!agent_call_epoch(call, &epoch) || epoch < guard.epoch) {
        agent_call_fail(call, AGENT_ABORTED, "stale-epoch",
                        "the call is of epoch %llu, epoch %u is open now",
                        (unsigned long long)epoch, guard.epoch);
        return false;
    } else if (epoch > guard.epoch) {
        agent_call_fail(call, AGENT_FAILED_PRECONDITION, "not-opened",
                        "the agent was not opened for epoch %llu yet", (unsigned long long)epoch);
        return false;
    }
    if (!method->passive)
        agent_activity_touch();
    return true;
}

/* Takes the same time however much of it is right. */
static bool has_token(const struct agent_call *call)
{
    static const uint8_t nothing[TOKEN_BYTES];
    const uint8_t *given = agent_call_token(call);
    const volatile uint8_t *left = given == NULL ? nothing : given, *right = guard.token;
    unsigned difference = given == NULL;
    for (size_t at = 0; at < TOKEN_BYTES; at++)
        difference |= (unsigned)(left[at] ^ right[at]);
    return difference == 0;
}

static void health(struct agent_call *call, const ProtobufCMessage *message)
{
    Sandbox__V1__HealthReply reply = SANDBOX__V1__HEALTH_REPLY__INIT;
    static char version[] = AGENT_VERSION;
    reply.protocol = PROTOCOL;
    reply.version = version;
    reply.gate = guard.gate;
    reply.epoch = guard.epoch;
    if (guard.gate != SANDBOX__V1__GATE__GATE_NOT_OPENED) {
        reply.workspace_id.data = guard.workspace_id;
        reply.workspace_id.len = sizeof guard.workspace_id;
    }
    reply.uptime_ms = agent_uptime_ms();
    agent_call_answer(call, &reply.base);
}

static void open_gate(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__OpenRequest *request = (const Sandbox__V1__OpenRequest *)message;
    struct agent_identity identity;
    char **environment = NULL;
    if (!may_open(call, request) || !settle_identity(call, request, &identity))
        return;
    if (!request->keep_environment) {
        if (!copy_environment(call, request, &environment))
            return;
        free_environment(guard.environment, guard.environment_count);
        guard.environment = environment;
        guard.environment_count = request->n_environment;
    }
    if (request->epoch > guard.epoch)
        agent_server_cut_before(request->epoch);
    guard.identity = identity;
    guard.process_limit = request->process_limit;
    guard.disk_limit = request->disk_limit_bytes;
    guard.epoch = request->epoch;
    memcpy(guard.workspace_id, request->workspace_id.data, sizeof guard.workspace_id);
    memcpy(guard.token, request->token.data, sizeof guard.token);
    sbx_wipe(request->token.data, request->token.len);
    guard.gate = SANDBOX__V1__GATE__GATE_OPEN;
    make_directories(&guard.identity);
    set_expiry(request->expires_in_ms);

    Sandbox__V1__OpenReply reply = SANDBOX__V1__OPEN_REPLY__INIT;
    set_clock(request, &reply);
    reply.epoch = guard.epoch;
    reply.home.data = (uint8_t *)guard.identity.home;
    reply.home.len = strlen(guard.identity.home);
    reply.uid = guard.identity.uid;
    reply.gid = guard.identity.gid;
    agent_activity_touch();
    agent_call_answer(call, &reply.base);
}

static bool may_open(struct agent_call *call, const Sandbox__V1__OpenRequest *request)
{
    bool bound = guard.gate != SANDBOX__V1__GATE__GATE_NOT_OPENED;
    if (bound && !has_token(call))
        agent_call_fail(call, AGENT_UNAUTHENTICATED, "wrong-token",
                        "the call carries no valid token");
    else if (request->workspace_id.len != WORKSPACE_ID_BYTES)
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid", "workspace_id must have %d bytes",
                        WORKSPACE_ID_BYTES);
    else if (request->token.len != TOKEN_BYTES)
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid", "token must have %d bytes",
                        TOKEN_BYTES);
    else if (request->epoch == 0)
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid", "epoch must be 1 or more");
    else if (bound &&
             memcmp(request->workspace_id.data, guard.workspace_id, WORKSPACE_ID_BYTES) != 0)
        agent_call_fail(call, AGENT_FAILED_PRECONDITION, "other-workspace",
                        "this agent works for another workspace");
    else if (request->epoch < guard.epoch)
        agent_call_fail(call, AGENT_ABORTED, "stale-epoch", "epoch %u is open now", guard.epoch);
    else
        return true;
    return false;
}

/* What a repeated Open leaves empty stays as it was. */
static bool settle_identity(struct agent_call *call, const Sandbox__V1__OpenRequest *request,
                            struct agent_identity *out)
{
    bool bound = guard.gate != SANDBOX__V1__GATE__GATE_NOT_OPENED;
    const char *user = *request->user == '\0' && bound ? guard.identity.user : request->user;
    if (!agent_identity_find(user, out)) {
        agent_call_fail(call, AGENT_NOT_FOUND, "no-such-user", "there is no user '%.64s'", user);
        return false;
    }
    const ProtobufCBinaryData *directory = &request->directory;
    if (directory->len == 0) {
        memcpy(out->directory, guard.identity.directory, sizeof out->directory);
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

/* A host's clock is never ours to set. */
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
    if (agent_init_is_first() && settimeofday(&wanted, NULL) == 0)
        reply->clock_stepped_ms = step;
    else
        reply->clock_failed = true;
}

static void set_expiry(uint64_t expires_in_ms)
{
    agent_timer_stop(&guard.expiry);
    if (expires_in_ms == 0)
        return;
    /* libuv adds this to its clock; a larger number would wrap. */
    uint64_t longest = INT64_MAX / 2;
    agent_timer_start(&guard.expiry, expires_in_ms < longest ? expires_in_ms : longest, on_expiry,
                      NULL);
}

static void on_expiry(void *user_data)
{
    agent_init_end();
}

static void activity(struct agent_call *call, const ProtobufCMessage *message)
{
    struct agent_process_activity active;
    agent_process_activity(&active);
    ProtobufCBinaryData ids[IDS_MAX];
    for (size_t at = 0; at < active.id_count; at++)
        ids[at] =
            (ProtobufCBinaryData){AGENT_PROCESS_ID_BYTES, (uint8_t *)(uintptr_t)active.ids[at]};
    Sandbox__V1__ActivityReply reply = SANDBOX__V1__ACTIVITY_REPLY__INIT;
    reply.active_tasks = active.tasks;
    reply.active_terminals = active.terminals;
    reply.idle_ms = agent_activity_idle_ms();
    reply.active_process_ids = ids;
    reply.n_active_process_ids = active.id_count;
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
     .message = open_gate,
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
