/* Starting an instance: provision, connect, open the agent, say so in the record. */

#include "core/start.h"
#include "core/egress.h"
#include "core/gate.h"
#include "core/janitor.h"
#include "core/lifecycle.h"
#include "core/operation.h"
#include "core/session.h"
#include "core/store.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"

#define CLEAN_UP_MS 60000u

static void give_up(sandbox_client *client, const struct sbx_record *record);

sandbox_status sbx_life_token(sandbox_client *client, struct sbx_record *record,
                              const struct sbx_wait *wait, uint8_t token[SBX_TOKEN_BYTES],
                              sandbox_error *error)
{
    return sbx_gate_token(client, record->id, record->run, &record->key_id, wait, token, error);
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
    struct sbx_opening opening = {.token = token, .environment = environment};
    record->key_id = 0; /* the newest */
    sandbox_status status = sbx_life_token(client, record, wait, token, error);
    if (status == SANDBOX_OK)
        status = driver->provision(client->state, record, wait, incarnation, error);
    if (status == SANDBOX_OK)
        status = sbx_operation_step(client, record,
                                    (struct sbx_step){.step = "open",
                                                      .incarnation = incarnation,
                                                      .key_id = record->key_id},
                                    wait, error);
    if (status == SANDBOX_OK)
        status = driver->connect(client->state, record, wait, &channel, error);
    if (status == SANDBOX_OK)
        status = sbx_session_start(client->loop, &channel, &session, error);
    if (status == SANDBOX_OK)
        status = sbx_gate_open(client, record, session, &opening, wait, NULL, error);
    if (status == SANDBOX_OK)
        status = sbx_operation_step(client, record,
                                    (struct sbx_step){.state = SANDBOX_STATE_RUNNING,
                                                      .precious = true},
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
                               const char *const *environment,
                               const sandbox_egress_options *egress, const struct sbx_wait *wait,
                               sandbox_workspace **out, sandbox_error *error)
{
    sandbox_workspace *workspace = NULL;
    /* An empty workspace is never handed out for the one that was lost. */
    if (!client->driver->can(client->state, SANDBOX_CAN_KEEP_FILES))
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "no-live-files",
                            "the files of '%s' were in its instance and are gone with it; go on "
                            "from its snapshot, or delete it",
                            record->name);
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
        sbx_egress_come_back(client, record, workspace->session, egress, false, wait);
    if (status == SANDBOX_OK)
        *out = workspace;
    else
        sbx_workspace_drop(workspace);
    return status;
}

sandbox_status sbx_start_lost(const sandbox_client *client, const char *name, const char *detail,
                              sandbox_error *error)
{
    const char *because = *detail == '\0' ? "" : ": ";
    if (!client->driver->can(client->state, SANDBOX_CAN_KEEP_FILES))
        return sbx_fail_for(error, SANDBOX_INTERRUPTED, "files-lost",
                            "the instance of '%s' is gone, and its files with it%s%s; open it "
                            "from its snapshot, or delete it",
                            name, because, detail);
    return sbx_fail_for(error, SANDBOX_INTERRUPTED, "interrupted",
                        "the instance of '%s' is gone%s%s; its files are kept: open it from its "
                        "live files or its snapshot, or delete it",
                        name, because, detail);
}

sandbox_status sbx_start_renew(sandbox_client *client, struct sbx_record *record,
                               struct sbx_session *session, const struct sbx_wait *wait,
                               sandbox_error *error)
{
    uint8_t token[SBX_TOKEN_BYTES];
    struct sbx_opening opening = {.token = token, .keep_environment = true};
    struct sbx_session *own = NULL;
    sandbox_status status = sbx_life_token(client, record, wait, token, error);
    if (status == SANDBOX_OK && sbx_session_is_direct(session)) {
        status = sbx_gate_connect(client, record, token, wait, &own, NULL, error);
        session = own;
    }
    if (status == SANDBOX_OK)
        status = sbx_gate_open(client, record, session, &opening, wait, NULL, error);
    sbx_session_drop(own);
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
