/* The gate of an agent, seen from the life cycle. */

#include "core/gate.h"
#include "util/digest.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"
#include <stdio.h>

/* A quiesce whose owner dies opens again by itself after this. */
#define QUIESCE_LEASE_MS 120000u
#define CONNECT_TRIES 5u
#define ANSWER_MS 10000u
#define ENTROPY_BYTES 64
#define MIB ((uint64_t)1 << 20)

static ProtobufCBinaryData binary(const void *data, size_t size);
static void add_name(char *names, size_t size, ProtobufCBinaryData command, int32_t pid);
static void add_obstacle(char *names, size_t size, const Sandbox__V1__SealObstacle *obstacle);

sandbox_status sbx_gate_token(sandbox_client *client, const char *id, const char *run,
                              uint32_t *key_id, const struct sbx_wait *wait,
                              uint8_t token[SBX_TOKEN_BYTES], sandbox_error *error)
{
    uint8_t key[32], meant[2 * SBX_ID_BYTES];
    if (!sbx_id_parse(id, meant) || !sbx_id_parse(run, meant + SBX_ID_BYTES))
        return sbx_fail(error, SANDBOX_FAILED, "a damaged workspace record");
    sandbox_status status = client->driver->secret(client->state, key_id, key, wait, error);
    if (status != SANDBOX_OK)
        return status;
    bool made = sbx_hmac_sha256(key, sizeof key, meant, sizeof meant, token);
    sbx_wipe(key, sizeof key);
    return made ? SANDBOX_OK : sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a token");
}

sandbox_status sbx_gate_connect(sandbox_client *client, const struct sbx_record *record,
                                const uint8_t *token, const struct sbx_wait *wait,
                                struct sbx_session **out, struct sbx_health *health,
                                sandbox_error *error)
{
    for (unsigned tries = 0;; tries++) {
        struct sbx_channel channel = SBX_CHANNEL;
        struct sbx_session *session = NULL;
        struct sbx_health seen;
        struct sbx_wait soon = sbx_wait_within(wait, ANSWER_MS);
        sandbox_status status =
            client->driver->connect(client->state, record, &soon, &channel, error);
        if (status == SANDBOX_OK)
            status = sbx_session_start(client->loop, &channel, &session, error);
        if (status == SANDBOX_OK && token != NULL)
            sbx_session_identify(session, token, record->epoch);
        if (status == SANDBOX_OK)
            status = sbx_gate_health(session, &soon, &seen, error);
        if (status == SANDBOX_OK) {
            if (health != NULL)
                *health = seen;
            *out = session;
            return SANDBOX_OK;
        }
        sbx_session_drop(session);
        if (status != SANDBOX_UNAVAILABLE || tries + 1 == CONNECT_TRIES)
            return status;
        status = sbx_wait_pause(wait, 20u << tries, error);
        if (status != SANDBOX_OK)
            return status;
    }
}

sandbox_status sbx_gate_health(struct sbx_session *session, const struct sbx_wait *wait,
                               struct sbx_health *out, sandbox_error *error)
{
    Sandbox__V1__HealthRequest request = SANDBOX__V1__HEALTH_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    struct sbx_wait soon = sbx_wait_within(wait, ANSWER_MS);
    sandbox_status status =
        sbx_session_call(session, "/sandbox.v1.Guard/Health", &request.base, true,
                         &sandbox__v1__health_reply__descriptor, &soon, &reply, error);
    if (status != SANDBOX_OK)
        return status;
    const Sandbox__V1__HealthReply *health = (const Sandbox__V1__HealthReply *)reply;
    *out = (struct sbx_health){.gate = health->gate,
                               .protocol = health->protocol,
                               .epoch = health->epoch,
                               .refused_calls = health->refused_calls,
                               .has_workspace_id = health->workspace_id.len == SBX_ID_BYTES};
    if (out->has_workspace_id)
        memcpy(out->workspace_id, health->workspace_id.data, SBX_ID_BYTES);
    protobuf_c_message_free_unpacked(reply, NULL);
    return SANDBOX_OK;
}

sandbox_status sbx_gate_quiesce(struct sbx_session *session, uint32_t epoch, uint32_t finish_ms,
                                const struct sbx_wait *wait, sandbox_error *error)
{
    Sandbox__V1__QuiesceRequest request = SANDBOX__V1__QUIESCE_REQUEST__INIT;
    uint32_t left = sbx_wait_left_ms(wait);
    request.epoch = epoch;
    request.lease_ms = QUIESCE_LEASE_MS;
    request.deadline_ms = finish_ms < left ? finish_ms : left;
    ProtobufCMessage *reply = NULL;
    sandbox_status status =
        sbx_session_call(session, "/sandbox.v1.Guard/Quiesce", &request.base, true,
                         &sandbox__v1__quiesce_reply__descriptor, wait, &reply, error);
    if (status != SANDBOX_OK)
        return status;
    uint32_t unfinished = ((const Sandbox__V1__QuiesceReply *)reply)->unfinished;
    protobuf_c_message_free_unpacked(reply, NULL);
    if (unfinished == 0)
        return SANDBOX_OK;
    return sbx_fail_for(error, SANDBOX_BUSY, "calls-in-progress",
                        "%u requests were still in progress after %u ms; try again, or allow "
                        "them more time (finish_ms)",
                        unfinished, request.deadline_ms);
}

sandbox_status sbx_gate_seal(struct sbx_session *session, uint32_t epoch, bool park_sockets,
                             const struct sbx_wait *wait, struct sbx_seal *out,
                             sandbox_error *error)
{
    Sandbox__V1__SealRequest request = SANDBOX__V1__SEAL_REQUEST__INIT;
    request.epoch = epoch;
    request.park_sockets = park_sockets;
    ProtobufCMessage *reply = NULL;
    sandbox_status status =
        sbx_session_call(session, "/sandbox.v1.Guard/Seal", &request.base, true,
                         &sandbox__v1__seal_reply__descriptor, wait, &reply, error);
    if (status != SANDBOX_OK)
        return status;
    const Sandbox__V1__SealReply *sealed = (const Sandbox__V1__SealReply *)reply;
    *out = (struct sbx_seal){.stopped = sealed->stopped, .parked = sealed->parked};
    if (sealed->seal_hash.len == SBX_DIGEST_BYTES)
        sbx_hex_print(sealed->seal_hash.data, SBX_DIGEST_BYTES, out->hash);
    else if (sealed->n_obstacles == 0)
        status = sbx_fail_for(error, SANDBOX_FAILED, "malformed-answer",
                              "the agent neither sealed itself nor said why not");
    for (size_t n = 0; n < sealed->n_obstacles && n < 16; n++)
        add_obstacle(out->obstacles, sizeof out->obstacles, sealed->obstacles[n]);
    protobuf_c_message_free_unpacked(reply, NULL);
    return status;
}

sandbox_status sbx_gate_prove(struct sbx_session *session, uint32_t epoch,
                              const struct sbx_wait *wait, struct sbx_proven *out,
                              sandbox_error *error)
{
    Sandbox__V1__ProveRequest request = SANDBOX__V1__PROVE_REQUEST__INIT;
    request.epoch = epoch;
    ProtobufCMessage *reply = NULL;
    struct sbx_wait soon = sbx_wait_within(wait, ANSWER_MS);
    sandbox_status status =
        sbx_session_call(session, "/sandbox.v1.Guard/Prove", &request.base, true,
                         &sandbox__v1__prove_reply__descriptor, &soon, &reply, error);
    if (status != SANDBOX_OK)
        return status;
    Sandbox__V1__ProveReply *proof = (Sandbox__V1__ProveReply *)reply;
    *out = (struct sbx_proven){.in_memory = proof->in_memory,
                               .in_file = proof->in_file,
                               .has_workspace_id = proof->workspace_id.len == SBX_ID_BYTES};
    if (out->has_workspace_id)
        memcpy(out->workspace_id, proof->workspace_id.data, SBX_ID_BYTES);
    if (proof->nonce.len == SBX_NONCE_BYTES) {
        uint8_t digest[SBX_DIGEST_BYTES];
        sbx_sha256(proof->nonce.data, SBX_NONCE_BYTES, digest);
        sbx_hex_print(digest, sizeof digest, out->hash);
    }
    sbx_wipe(proof->nonce.data, proof->nonce.len);
    protobuf_c_message_free_unpacked(reply, NULL);
    return SANDBOX_OK;
}

/* The request's fixed part; strings and bytes are borrowed. */
static void fill_request(sandbox_client *client, const struct sbx_record *record,
                         const struct sbx_opening *opening, Sandbox__V1__OpenRequest *request)
{
    request->epoch = record->epoch;
    request->token = binary(opening->token, SBX_TOKEN_BYTES);
    request->keep_environment = opening->keep_environment;
    request->user = (char *)(uintptr_t)record->user;
    request->wall_time_ms = sbx_clock_wall(client->clock);
    request->process_limit = record->process_limit;
    request->disk_limit_bytes = record->disk_mib * MIB;
    request->restored = opening->restored;
    if (record->expires_ms != 0) {
        int64_t left = record->expires_ms - request->wall_time_ms;
        request->expires_in_ms = left > 0 ? (uint64_t)left : 1;
    }
}

static void read_opened(const Sandbox__V1__OpenReply *reply, struct sbx_opened *out)
{
    *out = (struct sbx_opened){.clock_stepped_ms = reply->clock_stepped_ms,
                               .clock_failed = reply->clock_failed,
                               .entropy_added = reply->entropy_added,
                               .continued = reply->continued,
                               .deadlines_kept = reply->deadlines_kept,
                               .connections_reset = reply->connections_reset,
                               .generation = reply->generation,
                               .hook_code = reply->hook_code};
}

sandbox_status sbx_gate_open(sandbox_client *client, const struct sbx_record *record,
                             struct sbx_session *session, const struct sbx_opening *opening,
                             const struct sbx_wait *wait, struct sbx_opened *out,
                             sandbox_error *error)
{
    uint8_t id[SBX_ID_BYTES] = {0}, hash[SBX_DIGEST_BYTES], entropy[ENTROPY_BYTES];
    (void)sbx_id_parse(record->id, id);
    size_t count = sbx_count_strings(opening->environment);
    ProtobufCBinaryData *pairs = calloc(count + 1, sizeof *pairs);
    if (pairs == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for the environment");
    for (size_t n = 0; n < count; n++)
        pairs[n] = binary(opening->environment[n], strlen(opening->environment[n]));

    Sandbox__V1__OpenRequest request = SANDBOX__V1__OPEN_REQUEST__INIT;
    fill_request(client, record, opening, &request);
    request.workspace_id = binary(id, sizeof id);
    request.n_environment = count;
    request.environment = pairs;
    if (opening->seal_hash != NULL && sbx_hex_parse(opening->seal_hash, hash, sizeof hash))
        request.seal_hash = binary(hash, sizeof hash);
    if (opening->restored && sbx_random(entropy, sizeof entropy))
        request.entropy = binary(entropy, sizeof entropy);
    ProtobufCMessage *reply = NULL;
    sandbox_status status =
        sbx_session_call(session, "/sandbox.v1.Guard/Open", &request.base, true,
                         &sandbox__v1__open_reply__descriptor, wait, &reply, error);
    free(pairs);
    sbx_wipe(entropy, sizeof entropy);
    if (status != SANDBOX_OK)
        return status;
    struct sbx_opened opened;
    read_opened((const Sandbox__V1__OpenReply *)reply, &opened);
    protobuf_c_message_free_unpacked(reply, NULL);
    if (opened.clock_failed)
        sbx_log(SANDBOX_LOG_WARNING, "the clock inside '%s' is wrong and cannot be set",
                record->name);
    if (out != NULL)
        *out = opened;
    return SANDBOX_OK;
}

bool sbx_gate_is_moving(sandbox_status status, const sandbox_error *error)
{
    return status == SANDBOX_UNAVAILABLE && (strcmp(error->reason, "opening") == 0 ||
                                             strcmp(error->reason, "suspending") == 0);
}

sandbox_status sbx_gate_activity(struct sbx_session *session, const struct sbx_wait *wait,
                                 struct sbx_gate_activity *out, sandbox_error *error)
{
    Sandbox__V1__ActivityRequest request = SANDBOX__V1__ACTIVITY_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    sandbox_status status =
        sbx_session_call(session, "/sandbox.v1.Guard/Activity", &request.base, true,
                         &sandbox__v1__activity_reply__descriptor, wait, &reply, error);
    if (status != SANDBOX_OK)
        return status;
    const Sandbox__V1__ActivityReply *seen = (const Sandbox__V1__ActivityReply *)reply;
    *out = (struct sbx_gate_activity){.tasks = seen->active_tasks,
                                      .terminals = seen->active_terminals,
                                      .idle_ms = seen->idle_ms,
                                      .traffic_idle_ms = seen->traffic_idle_ms,
                                      .had_traffic = seen->had_traffic};
    for (size_t n = 0; n < seen->n_active && n < 16; n++)
        add_name(out->who, sizeof out->who, seen->active[n]->command, seen->active[n]->pid);
    protobuf_c_message_free_unpacked(reply, NULL);
    return SANDBOX_OK;
}

static ProtobufCBinaryData binary(const void *data, size_t size)
{
    return (ProtobufCBinaryData){size, (uint8_t *)(uintptr_t)data};
}

/* "sleep 100 (12), …" as far as it fits; what a guest calls itself is shown without control. */
/* Whatever the guest says, one line of plain characters. */
static void make_plain(ProtobufCBinaryData bytes, char *plain, size_t size)
{
    size_t length = bytes.len < size - 1 ? bytes.len : size - 1;
    for (size_t n = 0; n < length; n++)
        plain[n] = (char)(bytes.data[n] >= ' ' && bytes.data[n] < 127 ? bytes.data[n] : '?');
    plain[length] = '\0';
}

static void add_name(char *names, size_t size, ProtobufCBinaryData command, int32_t pid)
{
    char shown[41];
    make_plain(command, shown, sizeof shown);
    size_t used = strlen(names);
    if (used + strlen(shown) + 16 < size)
        snprintf(names + used, size - used, "%s%s (%d)", used > 0 ? ", " : "", shown, (int)pid);
}

static void add_obstacle(char *names, size_t size, const Sandbox__V1__SealObstacle *obstacle)
{
    char what[65];
    size_t before = strlen(names);
    add_name(names, size, obstacle->command, obstacle->pid);
    make_plain(obstacle->what, what, sizeof what);
    size_t used = strlen(names);
    if (used > before && used + strlen(what) + 16 < size)
        snprintf(names + used, size - used, ": %s", what[0] == '\0' ? "TCP sockets" : what);
}
