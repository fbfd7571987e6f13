/* Where life cycle and work meet: the session of a workspace handle, made late and made again. */

#include "core/session.h"
#include "core/client.h"
#include "core/gate.h"
#include "core/janitor.h"
#include "core/lifecycle.h"
#include "core/operation.h"
#include "core/recover.h"
#include "core/start.h"
#include "core/store.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"

/* A relay that has not answered Health in this time is not going to. */
#define HELLO_MS 10000u
#define REFUSED_MS 10u

static sandbox_status connect_anew(sandbox_workspace *workspace, const struct sbx_wait *wait,
                                   struct sbx_session **out, sandbox_error *error);
static sandbox_status connect_workspace(sandbox_workspace *workspace,
                                        const struct sbx_wait *wait, struct sbx_session **out,
                                        bool *changed, sandbox_error *error);
static sandbox_status look_again(sandbox_workspace *workspace, const struct sbx_record *record,
                                 sandbox_status status, bool *changed,
                                 sandbox_error *error);
static sandbox_status check_hello(struct sbx_session *session, const struct sbx_record *record,
                                  const struct sbx_wait *wait, sandbox_error *error);

static bool wants_direct(const sandbox_client *client)
{
    return client->driver->is_direct != NULL && client->driver->is_direct(client->state);
}

sandbox_status sbx_workspace_check(sandbox_workspace *workspace, sandbox_error *error)
{
    if (workspace == NULL)
        return sbx_fail(error, SANDBOX_INVALID, "no workspace given");
    sandbox_status status = sbx_client_check(workspace->client, error);
    if (status == SANDBOX_OK && atomic_load(&workspace->gone))
        return sbx_fail_for(error, SANDBOX_CLOSED, "workspace-deleted",
                            "the workspace '%s' was deleted", workspace->name);
    return status;
}

/* What brought the agent up may be another channel than the one that is meant for work. */
static bool is_fit(const sandbox_workspace *workspace)
{
    return sbx_session_is_alive(workspace->session) &&
           (workspace->borrowed || wants_direct(workspace->client) ==
                                       sbx_session_is_direct(workspace->session));
}

struct sbx_loop *sbx_workspace_loop(sandbox_workspace *workspace)
{
    return workspace->client->loop;
}

sandbox_status sbx_workspace_session(sandbox_workspace *workspace, const struct sbx_wait *wait,
                                     struct sbx_session **out, sandbox_error *error)
{
    struct sbx_session *broken = NULL;
    sandbox_status status = SANDBOX_OK;
    pthread_mutex_lock(&workspace->lock);
    while (workspace->connecting && status == SANDBOX_OK)
        status = sbx_wait_condition(wait, &workspace->changed, &workspace->lock, error);
    if (status == SANDBOX_OK && workspace->session != NULL) {
        if (is_fit(workspace)) {
            *out = sbx_session_keep(workspace->session);
            pthread_mutex_unlock(&workspace->lock);
            return SANDBOX_OK;
        }
        broken = sbx_take(workspace->session);
    }
    if (status == SANDBOX_OK && workspace->borrowed)
        status = sbx_fail_for(error, SANDBOX_UNAVAILABLE, "broken-channel",
                              "the channel to '%s' broke", workspace->name);
    workspace->connecting = workspace->connecting || status == SANDBOX_OK;
    pthread_mutex_unlock(&workspace->lock);
    sbx_session_drop(broken);
    if (status != SANDBOX_OK)
        return status;

    struct sbx_session *session = NULL;
    status = connect_anew(workspace, wait, &session, error);
    pthread_mutex_lock(&workspace->lock);
    workspace->connecting = false;
    /* A resume on another thread may have put one there meanwhile. */
    struct sbx_session *former = status == SANDBOX_OK ? sbx_take(workspace->session) : NULL;
    if (status == SANDBOX_OK)
        workspace->session = sbx_session_keep(session);
    pthread_cond_broadcast(&workspace->changed);
    pthread_mutex_unlock(&workspace->lock);
    sbx_session_drop(former);
    if (status != SANDBOX_OK)
        return status;
    sbx_janitor_notice(workspace->client);
    *out = session;
    return SANDBOX_OK;
}

struct sbx_session *sbx_workspace_take_session(sandbox_workspace *workspace)
{
    struct sbx_session *taken = NULL;
    pthread_mutex_lock(&workspace->lock);
    if (workspace->session != NULL && !workspace->borrowed &&
        !sbx_session_is_direct(workspace->session) &&
        sbx_session_is_alone(workspace->session) && sbx_session_is_alive(workspace->session))
        taken = sbx_take(workspace->session);
    pthread_mutex_unlock(&workspace->lock);
    return taken;
}

sandbox_status sbx_workspace_call(sandbox_workspace *workspace, const char *method,
                                  const ProtobufCMessage *request, bool repeatable,
                                  const ProtobufCMessageDescriptor *descriptor,
                                  const struct sbx_wait *wait, ProtobufCMessage **reply,
                                  sandbox_error *error)
{
    sandbox_error own;
    if (error == NULL)
        error = &own; /* the reason decides whether a second try is right */
    for (bool again = true;;) {
        struct sbx_session *session = NULL;
        sandbox_status status = sbx_workspace_session(workspace, wait, &session, error);
        if (status != SANDBOX_OK)
            return status;
        status = sbx_session_call(session, method, request, repeatable, descriptor, wait, reply,
                                  error);
        /* An agent refuses before it looks at the request: nothing has happened. */
        bool refused = sbx_workspace_is_refused(status, error);
        /* A channel that broke before a byte was sent has not reached the agent either. */
        bool broken = status == SANDBOX_UNAVAILABLE && !sbx_session_is_alive(session);
        sbx_session_drop(session);
        if (!refused && !(again && broken))
            return status;
        again = again && !broken;
        if (refused)
            status = sbx_workspace_begin_again(workspace, status, wait, error);
        if (refused && status != SANDBOX_OK)
            return status;
    }
}

/* The next session waits for the operation's end. */
bool sbx_workspace_is_refused(sandbox_status status, const sandbox_error *error)
{
    return sbx_status_is_refusal(status, error->reason);
}

sandbox_status sbx_workspace_begin_again(sandbox_workspace *workspace, sandbox_status status,
                                         const struct sbx_wait *wait, sandbox_error *error)
{
    if (!sbx_workspace_is_refused(status, error))
        return status;
    struct sbx_session *refused = NULL;
    pthread_mutex_lock(&workspace->lock);
    /* Others may have a fresh one since, with calls under way. */
    if (workspace->session != NULL && sbx_session_is_refused(workspace->session))
        refused = sbx_take(workspace->session);
    pthread_mutex_unlock(&workspace->lock);
    if (refused != NULL)
        sbx_session_cut(refused);
    sbx_session_drop(refused);
    /* Only an agent that goes on refusing, against what the record says, makes this a loop. */
    return sbx_wait_pause(wait, REFUSED_MS, error);
}

sandbox_status sbx_workspace_stream(sandbox_workspace *workspace, const char *method,
                                    const struct sbx_wait *wait, struct sbx_stream **out,
                                    sandbox_error *error)
{
    for (bool again = true;; again = false) {
        struct sbx_session *session = NULL;
        sandbox_status status = sbx_workspace_session(workspace, wait, &session, error);
        if (status != SANDBOX_OK)
            return status;
        status = sbx_stream_open(session, method, out, error);
        sbx_session_drop(session);
        if (status != SANDBOX_UNAVAILABLE || !again)
            return status;
    }
}

/* What the record says of work in this state. */
static sandbox_status check_workable(const sandbox_client *client,
                                     const struct sbx_record *record, sandbox_error *error)
{
    switch (record->state) {
    case SANDBOX_STATE_RUNNING:
        return SANDBOX_OK;
    case SANDBOX_STATE_INTERRUPTED:
        return sbx_start_lost(client, record->name, "", error);
    case SANDBOX_STATE_DELETING:
        return sbx_fail_for(error, SANDBOX_CLOSED, "workspace-deleted",
                            "the workspace '%s' is being deleted", record->name);
    case SANDBOX_STATE_SUSPENDED:
        return sbx_fail_for(error, SANDBOX_SUSPENDED, "suspended",
                            "the workspace '%s' is suspended; resume or open it", record->name);
    case SANDBOX_STATE_BLOCKED:
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "blocked",
                            "the last resume of '%s' was not proven; resume it again, its "
                            "snapshot is kept",
                            record->name);
    default:
        return sbx_fail_for(error, SANDBOX_BUSY, "being-created",
                            "the workspace '%s' is not ready yet", record->name);
    }
}

/* Somebody else may see the lost instance first, or have gone on already: the record tells. */
static sandbox_status connect_anew(sandbox_workspace *workspace, const struct sbx_wait *wait,
                                   struct sbx_session **out, sandbox_error *error)
{
    for (;;) {
        bool changed = false;
        sandbox_status status = connect_workspace(workspace, wait, out, &changed, error);
        if (!changed)
            return status;
        sandbox_status over = sbx_wait_check(wait, status == SANDBOX_OK ? error : NULL);
        if (over != SANDBOX_OK)
            return status == SANDBOX_OK ? over : status;
    }
}

static sandbox_status start(sandbox_client *client, const struct sbx_record *record,
                            const uint8_t token[SBX_TOKEN_BYTES], const struct sbx_wait *wait,
                            struct sbx_session **out, sandbox_error *error)
{
    struct sbx_channel channel = SBX_CHANNEL;
    sandbox_status status =
        client->driver->connect(client->state, record, wait, &channel, error);
    if (status == SANDBOX_OK)
        status = sbx_session_start(client->loop, &channel, out, error);
    if (status == SANDBOX_OK)
        sbx_session_identify(*out, token, record->epoch);
    return status;
}

/* An address comes to somebody else: nothing is said there before both sides are proven. */
static sandbox_status start_direct(sandbox_client *client, const struct sbx_record *record,
                                   const uint8_t token[SBX_TOKEN_BYTES],
                                   const struct sbx_wait *wait, struct sbx_session **out,
                                   sandbox_error *error)
{
    SBX_ON_EXIT(sbx_channel_end) struct sbx_channel channel = SBX_CHANNEL;
    uint8_t id[SBX_ID_BYTES] = {0}, pass[SBX_PROOF_PASS];
    struct sbx_wait soon = sbx_wait_within(wait, HELLO_MS);
    (void)sbx_id_parse(record->id, id);
    sandbox_status status =
        client->driver->connect_direct(client->state, record, wait, &channel, error);
    if (status != SANDBOX_OK)
        return status;
    status = sbx_channel_prove(&channel, token, id, &soon, pass, error);
    if (status == SANDBOX_TIMED_OUT && sbx_wait_check(wait, NULL) == SANDBOX_OK)
        status = sbx_fail_for(error, SANDBOX_UNAVAILABLE, "agent-not-proven",
                              "whoever answers at the address of '%s' does not say who he is",
                              record->name);
    if (status == SANDBOX_OK)
        status = sbx_session_start(client->loop, &channel, out, error);
    if (status == SANDBOX_OK) {
        sbx_session_set_direct(*out);
        sbx_session_identify(*out, pass, record->epoch);
    }
    sbx_wipe(pass, sizeof pass);
    return status;
}

static sandbox_status connect_workspace(sandbox_workspace *workspace,
                                        const struct sbx_wait *wait, struct sbx_session **out,
                                        bool *changed, sandbox_error *error)
{
    sandbox_client *client = workspace->client;
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
    sandbox_status status = sbx_store_load(client, workspace->name, wait, &record, error);
    if (status == SANDBOX_NOT_FOUND ||
        (status == SANDBOX_OK && strcmp(record.id, workspace->id) != 0)) {
        atomic_store(&workspace->gone, true);
        return sbx_workspace_check(workspace, error);
    }
    if (status == SANDBOX_OK && sbx_recover_is_for(&record)) {
        /* It is being suspended or brought back: what comes of that decides. */
        sbx_operation_want(client, &record, wait);
        status = sbx_operation_settle(client, &record, wait, error);
        *changed = status == SANDBOX_OK;
        return status;
    }
    if (status == SANDBOX_OK)
        status = check_workable(client, &record, error);
    uint8_t token[SBX_TOKEN_BYTES];
    if (status == SANDBOX_OK)
        status = sbx_life_token(client, &record, wait, token, error);
    if (status != SANDBOX_OK)
        return status;

    struct sbx_session *session = NULL;
    status = wants_direct(client) ? start_direct(client, &record, token, wait, &session, error)
                                  : start(client, &record, token, wait, &session, error);
    if (status == SANDBOX_OK)
        status = check_hello(session, &record, wait, error);
    sbx_wipe(token, sizeof token);
    if (status == SANDBOX_OK) {
        *out = session;
        return SANDBOX_OK;
    }
    sbx_session_drop(session);
    return look_again(workspace, &record, status, changed, error);
}

static sandbox_status check_hello(struct sbx_session *session, const struct sbx_record *record,
                                  const struct sbx_wait *wait, sandbox_error *error)
{
    struct sbx_health health;
    sandbox_status status = sbx_gate_health(session, wait, &health, error);
    if (status != SANDBOX_OK)
        return status;
    uint8_t id[SBX_ID_BYTES] = {0};
    (void)sbx_id_parse(record->id, id);
    if (health.gate != SANDBOX__V1__GATE__GATE_OPEN)
        status = sbx_fail_for(error, SANDBOX_UNAVAILABLE, "not-opened",
                              "the agent of '%s' has not been opened", record->name);
    else if (!health.has_workspace_id ||
             memcmp(health.workspace_id, id, sizeof id) != 0)
        status = sbx_fail_for(error, SANDBOX_CONFLICT, "other-workspace",
                              "the agent that answered is not that of '%s'", record->name);
    return status;
}

/* A suspend or resume that began meanwhile is why the agent did not answer. */
static bool has_changed(sandbox_client *client, const struct sbx_record *record,
                        const struct sbx_wait *wait)
{
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record now = {0};
    return sbx_store_load(client, record->name, wait, &now, NULL) == SANDBOX_OK &&
           now.epoch != record->epoch;
}

/*
 * Connecting failed. Either the instance is gone, and then the record must say so, or it is there
 * and did not answer, which is not for us to judge.
 */
static sandbox_status look_again(sandbox_workspace *workspace, const struct sbx_record *record,
                                 sandbox_status status, bool *changed,
                                 sandbox_error *error)
{
    sandbox_client *client = workspace->client;
    if (status == SANDBOX_CANCELLED || status == SANDBOX_NO_MEMORY)
        return status;
    struct sbx_instance instance = {0};
    struct sbx_wait soon = sbx_wait_alone(HELLO_MS);
    if (client->driver->inspect(client->state, record, &soon, &instance, NULL) != SANDBOX_OK)
        return status;
    if (instance.presence == SBX_PRESENCE_RUNNING) {
        *changed = has_changed(client, record, &soon);
        return status;
    }
    sandbox_error unwritten = {0};
    sandbox_status marked = sbx_life_interrupt(client, record, &soon, &unwritten);
    *changed = marked == SANDBOX_CONFLICT || marked == SANDBOX_NOT_FOUND;
    if (*changed)
        return status;
    if (marked != SANDBOX_OK) {
        sbx_log(SANDBOX_LOG_WARNING, "'%s' has lost its instance and could not be marked so: %s",
                record->name, unwritten.message);
        return status;
    }
    return sbx_start_lost(client, record->name, instance.detail, error);
}
