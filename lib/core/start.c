/* Starting an instance: provision, connect, open the agent, say so in the record. */

#include "core/start.h"
#include "core/janitor.h"
#include "core/lifecycle.h"
#include "core/operation.h"
#include "core/session.h"
#include "core/store.h"
#include "guard.pb-c.h"
#include "util/digest.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"
#include <stdio.h>

#define CLEAN_UP_MS 60000u
#define MIB ((uint64_t)1 << 20)

static sandbox_status open_agent(sandbox_client *client, const struct sbx_record *record,
                                 struct sbx_session *session, const uint8_t *token,
                                 const char *const *environment, bool keep_environment,
                                 const struct sbx_wait *wait, sandbox_error *error);
static void give_up(sandbox_client *client, const struct sbx_record *record);

sandbox_status sbx_life_token(sandbox_client *client, struct sbx_record *record,
                              const struct sbx_wait *wait, uint8_t token[SBX_TOKEN_BYTES],
                              sandbox_error *error)
{
    uint8_t key[32], meant[2 * SBX_ID_BYTES];
    if (!sbx_id_parse(record->id, meant) || !sbx_id_parse(record->run, meant + SBX_ID_BYTES))
        return sbx_fail(error, SANDBOX_FAILED, "a damaged workspace record");
    sandbox_status status =
        client->driver->secret(client->state, &record->key_id, key, wait, error);
    if (status != SANDBOX_OK)
        return status;
    bool made = sbx_hmac_sha256(key, sizeof key, meant, sizeof meant, token);
    sbx_wipe(key, sizeof key);
    return made ? SANDBOX_OK : sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a token");
}

/* Our operation's next step, written before it is taken. */
static sandbox_status write_step(sandbox_client *client, struct sbx_record *record,
                                 struct sbx_step step, const struct sbx_wait *wait,
                                 sandbox_error *error)
{
    char operation_id[SBX_ID_TEXT];
    memcpy(operation_id, record->operation.id, sizeof operation_id);
    step.operation_id = operation_id;
    return sbx_store_change(client, record->name, wait, sbx_change_step, &step, record, error);
}

sandbox_status sbx_start_instance(sandbox_client *client, struct sbx_record *record,
                                  const char *const *environment, const struct sbx_wait *wait,
                                  struct sbx_session **out, sandbox_error *error)
{
    const struct sbx_driver *driver = client->driver;
    uint8_t token[SBX_TOKEN_BYTES];
    char incarnation[SBX_INCARNATION_TEXT] = "";
    struct sbx_channel channel = SBX_CHANNEL;
    struct sbx_session *session = NULL;
    record->key_id = 0; /* the newest */
    sandbox_status status = sbx_life_token(client, record, wait, token, error);
    if (status == SANDBOX_OK)
        status = driver->provision(client->state, record, wait, incarnation, error);
    if (status == SANDBOX_OK)
        status = write_step(client, record,
                            (struct sbx_step){.step = "open",
                                              .incarnation = incarnation,
                                              .key_id = record->key_id},
                            wait, error);
    if (status == SANDBOX_OK)
        status = driver->connect(client->state, record, wait, &channel, error);
    if (status == SANDBOX_OK)
        status = sbx_session_start(client->loop, &channel, &session, error);
    if (status == SANDBOX_OK)
        status = open_agent(client, record, session, token, environment, false, wait, error);
    if (status == SANDBOX_OK)
        status = write_step(client, record, (struct sbx_step){.state = SANDBOX_STATE_RUNNING},
                            wait, error);
    if (status == SANDBOX_OK)
        sbx_session_identify(session, token, record->epoch);
    sbx_wipe(token, sizeof token);
    if (status != SANDBOX_OK) {
        sbx_session_drop(session);
        return status;
    }
    sbx_janitor_notice(client);
    *out = session;
    return SANDBOX_OK;
}

sandbox_status sbx_start_again(sandbox_client *client, struct sbx_record *record,
                               const char *const *environment, const struct sbx_wait *wait,
                               sandbox_workspace **out, sandbox_error *error)
{
    sandbox_workspace *workspace = NULL;
    sandbox_status status =
        sbx_workspace_new(client, record->name, record->id, &workspace, error);
    char id[SBX_ID_TEXT];
    memcpy(id, record->id, sizeof id);
    struct sbx_claim claim = {client, id, "restart", SANDBOX_STATE_CREATING, "", NULL};
    if (status == SANDBOX_OK)
        status = sbx_store_change(client, workspace->name, wait, sbx_change_claim, &claim,
                                  record, error);
    if (status == SANDBOX_NOT_FOUND)
        status = sbx_fail(error, SANDBOX_CONFLICT, "'%s' was deleted meanwhile", workspace->name);
    if (status != SANDBOX_OK) {
        sbx_workspace_drop(workspace);
        return status;
    }

    struct sbx_lease lease;
    sbx_lease_begin(client, &lease, record->name, record->operation.id);
    /* The old instance's remains must go first: the new one needs its name. */
    status = client->driver->discard(client->state, record, wait, error);
    if (status == SANDBOX_OK)
        status = sbx_start_instance(client, record, environment, wait, &workspace->session,
                                    error);
    if (status != SANDBOX_OK)
        give_up(client, record);
    sbx_lease_end(client, &lease);
    if (status == SANDBOX_OK)
        *out = workspace;
    else
        sbx_workspace_drop(workspace);
    return status;
}

sandbox_status sbx_start_renew(sandbox_client *client, struct sbx_record *record,
                               struct sbx_session *session, const struct sbx_wait *wait,
                               sandbox_error *error)
{
    uint8_t token[SBX_TOKEN_BYTES];
    sandbox_status status = sbx_life_token(client, record, wait, token, error);
    if (status == SANDBOX_OK)
        status = open_agent(client, record, session, token, NULL, true, wait, error);
    sbx_wipe(token, sizeof token);
    return status;
}

/* Back to `interrupted`: no instance, the files as they were. */
static void give_up(sandbox_client *client, const struct sbx_record *record)
{
    struct sbx_wait wait = sbx_wait_alone(CLEAN_UP_MS);
    sandbox_error error = {0};
    struct sbx_step step = {.operation_id = record->operation.id,
                            .state = SANDBOX_STATE_INTERRUPTED,
                            .incarnation = ""};
    sandbox_status status = client->driver->discard(client->state, record, &wait, &error);
    if (status == SANDBOX_OK)
        status = sbx_store_change(client, record->name, &wait, sbx_change_step, &step, NULL,
                                  &error);
    if (status != SANDBOX_OK)
        sbx_log(SANDBOX_LOG_ERROR, "'%s' could not be started again and may be half made: %s",
                record->name, error.message);
}

static sandbox_status open_agent(sandbox_client *client, const struct sbx_record *record,
                                 struct sbx_session *session, const uint8_t *token,
                                 const char *const *environment, bool keep_environment,
                                 const struct sbx_wait *wait, sandbox_error *error)
{
    uint8_t id[SBX_ID_BYTES] = {0};
    (void)sbx_id_parse(record->id, id);
    size_t count = sbx_count_strings(environment);
    ProtobufCBinaryData *pairs = calloc(count + 1, sizeof *pairs);
    if (pairs == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for the environment");
    for (size_t n = 0; n < count; n++)
        pairs[n] = (ProtobufCBinaryData){strlen(environment[n]),
                                         (uint8_t *)(uintptr_t)environment[n]};

    Sandbox__V1__OpenRequest request = SANDBOX__V1__OPEN_REQUEST__INIT;
    request.epoch = record->epoch;
    request.workspace_id = (ProtobufCBinaryData){sizeof id, id};
    request.token = (ProtobufCBinaryData){SBX_TOKEN_BYTES, (uint8_t *)(uintptr_t)token};
    request.n_environment = count;
    request.environment = pairs;
    request.keep_environment = keep_environment;
    request.user = (char *)(uintptr_t)record->user;
    request.wall_time_ms = sbx_clock_wall(client->clock);
    request.process_limit = record->process_limit;
    request.disk_limit_bytes = record->disk_mib * MIB;
    if (record->expires_ms != 0) {
        int64_t left = record->expires_ms - request.wall_time_ms;
        request.expires_in_ms = left > 0 ? (uint64_t)left : 1;
    }
    ProtobufCMessage *reply = NULL;
    sandbox_status status =
        sbx_session_call(session, "/sandbox.v1.Guard/Open", &request.base, true,
                         &sandbox__v1__open_reply__descriptor, wait, &reply, error);
    free(pairs);
    if (status != SANDBOX_OK)
        return status;
    const Sandbox__V1__OpenReply *opened = (const Sandbox__V1__OpenReply *)reply;
    if (opened->clock_failed)
        sbx_log(SANDBOX_LOG_WARNING, "the clock inside '%s' is wrong and cannot be set",
                record->name);
    protobuf_c_message_free_unpacked(reply, NULL);
    return SANDBOX_OK;
}
