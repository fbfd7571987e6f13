/*
 * The life of a workspace, in strict order. Every step writes its intent into the record before
 * it acts, so that whoever comes after a dead owner knows what to undo.
 */

#include "core/lifecycle.h"
#include "core/delete.h"
#include "core/egress.h"
#include "core/janitor.h"
#include "core/operation.h"
#include "core/resume.h"
#include "core/session.h"
#include "core/start.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"
#include <stdio.h>

#define CLEAN_UP_MS 60000u

static sandbox_status attempt_create(sandbox_client *client,
                                     const sandbox_workspace_options *options,
                                     const struct sbx_wait *wait, sandbox_workspace **out,
                                     sandbox_error *error);
static void roll_back(sandbox_client *client, const struct sbx_record *record);
static sandbox_status clear_the_name(sandbox_client *client, const char *name,
                                     const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status open_existing(sandbox_client *client, struct sbx_record *record,
                                    const sandbox_workspace_options *options,
                                    const struct sbx_wait *wait, sandbox_workspace **out,
                                    sandbox_error *error);
static sandbox_status check_alive(sandbox_client *client, struct sbx_record *record,
                                  const struct sbx_wait *wait, sandbox_workspace **out,
                                  sandbox_error *error);
static sandbox_status open_resumed(sandbox_client *client, const struct sbx_record *record,
                                   const sandbox_workspace_options *options,
                                   const struct sbx_wait *wait, sandbox_workspace **out,
                                   sandbox_error *error);

bool sbx_life_is_expired(const sandbox_client *client, const struct sbx_record *record)
{
    return record->expires_ms != 0 && record->expires_ms <= sbx_clock_wall(client->clock);
}

sandbox_status sbx_life_create(sandbox_client *client, const sandbox_workspace_options *options,
                               const struct sbx_wait *wait, sandbox_workspace **out,
                               sandbox_error *error)
{
    sandbox_status status = attempt_create(client, options, wait, out, error);
    if (status != SANDBOX_EXISTS)
        return status;
    /* What holds the name may be a leftover: expired, or of a creator that died. */
    sandbox_status cleared = clear_the_name(client, options->name, wait, NULL);
    return cleared == SANDBOX_OK ? attempt_create(client, options, wait, out, error) : status;
}

sandbox_status sbx_life_open(sandbox_client *client, const sandbox_workspace_options *options,
                             const struct sbx_wait *wait, sandbox_workspace **out,
                             sandbox_error *error)
{
    for (;;) {
        SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
        sandbox_status status = sbx_store_load(client, options->name, wait, &record, error);
        if (status == SANDBOX_NOT_FOUND) {
            status = attempt_create(client, options, wait, out, error);
            if (status != SANDBOX_EXISTS)
                return status;
        } else if (status == SANDBOX_OK) {
            status = open_existing(client, &record, options, wait, out, error);
            if (status != SANDBOX_BUSY)
                return status;
        } else {
            return status;
        }
        status = sbx_wait_check(wait, error);
        if (status != SANDBOX_OK)
            return status;
    }
}

sandbox_status sbx_life_renew(sandbox_workspace *workspace, uint64_t expires_after_ms,
                              const struct sbx_wait *wait, sandbox_error *error)
{
    sandbox_client *client = workspace->client;
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
    struct sbx_renewal renewal = {.id = workspace->id, .client = client};
    if (expires_after_ms != 0)
        renewal.expires_ms = sbx_expiry_after(client, expires_after_ms);
    sandbox_status status = sbx_store_change(client, workspace->name, wait, sbx_change_renew,
                                             &renewal, &record, error);
    if (status == SANDBOX_NOT_FOUND) {
        atomic_store(&workspace->gone, true);
        return sbx_workspace_check(workspace, error);
    }
    if (status == SANDBOX_OK && client->driver->renewed != NULL)
        status = client->driver->renewed(client->state, &record, wait, error);
    if (status != SANDBOX_OK || record.state != SANDBOX_STATE_RUNNING)
        return status;
    /* The agent ends itself at the time it knows: it must learn the new one. */
    struct sbx_session *session = NULL;
    status = sbx_workspace_session(workspace, wait, &session, error);
    if (status == SANDBOX_OK)
        status = sbx_start_renew(client, &record, session, wait, error);
    sbx_session_drop(session);
    /* An interrupted workspace has no agent to tell, and lives longer all the same. */
    return status == SANDBOX_INTERRUPTED ? SANDBOX_OK : status;
}

sandbox_status sbx_life_interrupt(sandbox_client *client, const struct sbx_record *seen,
                                  const struct sbx_wait *wait, sandbox_error *error)
{
    sandbox_status status = sbx_store_change(client, seen->name, wait, sbx_change_interrupt,
                                             (void *)(uintptr_t)seen, NULL, error);
    if (status == SANDBOX_OK)
        sbx_egress_forget(client, seen);
    return status;
}

/* A record made of settled options, with a fresh identity. */
static sandbox_status fill_record(sandbox_client *client,
                                  const sandbox_workspace_options *options,
                                  struct sbx_record *record, sandbox_error *error)
{
    bool failed = false;
    snprintf(record->name, sizeof record->name, "%s", options->name);
    snprintf(record->driver, sizeof record->driver, "%s", client->driver->name);
    snprintf(record->user, sizeof record->user, "%s", options->user);
    record->image = sbx_copy(options->image);
    record->labels = sbx_copy_strings(options->labels, &failed);
    if (!failed)
        record->checks = sbx_copy_strings(options->checks, &failed);
    record->retain = options->retain == 0 ? SBX_RETAIN_DEFAULT : options->retain;
    record->suspend_after_idle_ms = options->suspend_after_idle_ms;
    if (failed || (options->image != NULL && record->image == NULL))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a workspace's record");
    record->memory_mib = options->memory_mib;
    record->cpu_millis = options->cpu_millis;
    record->process_limit = options->process_limit;
    record->disk_mib = options->disk_mib;
    record->created_ms = sbx_clock_wall(client->clock);
    if (options->expires_after_ms != 0)
        record->expires_ms = sbx_expiry_after(client, options->expires_after_ms);
    record->state = SANDBOX_STATE_CREATING;
    record->epoch = 1;
    if (!sbx_id_fresh(record->id) || !sbx_id_fresh(record->run))
        return sbx_fail(error, SANDBOX_FAILED, "the kernel gives no random bytes");
    return sbx_operation_begin(client, record, "create", error);
}

/* What is wrong with it is known before anything is made. */
static sandbox_status plan_egress(const sandbox_client *client,
                                  const sandbox_workspace_options *options,
                                  struct sbx_record *record, struct sbx_egress_plan *plan,
                                  sandbox_error *error)
{
    if (options->egress == NULL)
        return SANDBOX_OK;
    if (!client->driver->can(client->state, SANDBOX_CAN_REACH_OUT)) {
        /* The driver may know what it lacks. */
        if (client->driver->egress_ask != NULL &&
            client->driver->egress_ask(client->state, record->id, SBX_EGRESS_KNOWN, NULL, NULL,
                                       NULL, error) == SANDBOX_UNSUPPORTED)
            return SANDBOX_UNSUPPORTED;
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "no-egress",
                            "this platform gives workspaces no way out: nothing can be allowed");
    }
    sandbox_status status = sbx_egress_plan_make(NULL, options->egress, plan, error);
    if (status == SANDBOX_OK)
        status = sbx_egress_plan_screen(plan, options->env, error);
    if (status != SANDBOX_OK)
        return status;
    record->egress = cJSON_Duplicate(plan->policy, true);
    return record->egress == NULL
               ? sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a workspace's record")
               : SANDBOX_OK;
}

static sandbox_status attempt_create(sandbox_client *client,
                                     const sandbox_workspace_options *options,
                                     const struct sbx_wait *wait, sandbox_workspace **out,
                                     sandbox_error *error)
{
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
    SBX_ON_EXIT(sbx_egress_plan_clear) struct sbx_egress_plan egress = {0};
    sandbox_workspace *workspace = NULL;
    sandbox_status status = fill_record(client, options, &record, error);
    if (status == SANDBOX_OK)
        status = plan_egress(client, options, &record, &egress, error);
    if (status == SANDBOX_OK)
        status = sbx_workspace_new(client, record.name, record.id, &workspace, error);
    if (status == SANDBOX_OK)
        status = sbx_store_add(client, &record, wait, error);
    if (status == SANDBOX_EXISTS)
        status = sbx_fail_for(error, SANDBOX_EXISTS, "name-taken",
                              "there is a workspace '%s' already; open it, or take another name",
                              record.name);
    if (status != SANDBOX_OK) {
        sbx_workspace_drop(workspace);
        return status;
    }

    struct sbx_lease lease;
    sbx_lease_begin(client, &lease, record.name, record.operation.id);
    status = sbx_start_instance(client, &record, options->env, wait, &workspace->session, error);
    sbx_lease_end(client, &lease);
    if (status == SANDBOX_OK)
        status = sbx_egress_establish(client, &record, workspace->session, &egress, false, wait,
                                      error);
    if (status == SANDBOX_OK) {
        *out = workspace;
        return SANDBOX_OK;
    }
    sbx_workspace_drop(workspace);
    roll_back(client, &record);
    return status;
}

/* The caller's wait may be used up or cancelled: cleaning up has its own time. */
static void roll_back(sandbox_client *client, const struct sbx_record *record)
{
    struct sbx_wait wait = sbx_wait_alone(CLEAN_UP_MS);
    sandbox_error error = {0};
    sandbox_status status = sbx_delete_over(client, record->name, record->id,
                                            record->operation.id, &wait, &error);
    /* A taker has made it its own and will see to it. */
    if (status == SANDBOX_OK || status == SANDBOX_CONFLICT)
        return;
    sbx_log(SANDBOX_LOG_ERROR, "the workspace '%s' could not be made and may be left behind: %s",
            record->name, error.message);
}

/* Makes the name free where its holder is a leftover; SANDBOX_EXISTS where it is not. */
static sandbox_status clear_the_name(sandbox_client *client, const char *name,
                                     const struct sbx_wait *wait, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
    sandbox_status status = sbx_store_load(client, name, wait, &record, error);
    if (status != SANDBOX_OK)
        return status == SANDBOX_NOT_FOUND ? SANDBOX_OK : status;
    bool under_way = record.operation.kind[0] != '\0';
    bool abandoned = under_way && sbx_operation_is_abandoned(client, &record);
    bool creating = strcmp(record.operation.kind, "create") == 0;
    if (record.state == SANDBOX_STATE_DELETING)
        return sbx_life_delete(client, name, record.id, wait, error);
    if ((abandoned && creating) || (!under_way && sbx_life_is_expired(client, &record)))
        return sbx_delete_leftover(client, &record, wait, error);
    return sbx_fail(error, SANDBOX_EXISTS, "the name '%s' is taken", name);
}

/* A deletion never turns back, an expiry may be put off until the last moment: then look again. */
static sandbox_status remove_dead(sandbox_client *client, const struct sbx_record *record,
                                  const struct sbx_wait *wait, sandbox_error *error)
{
    if (record->state == SANDBOX_STATE_DELETING)
        return sbx_life_delete(client, record->name, record->id, wait, error);
    sandbox_status status = sbx_delete_leftover(client, record, wait, error);
    return status == SANDBOX_CONFLICT ? SANDBOX_OK : status;
}

static sandbox_status open_running(sandbox_client *client, struct sbx_record *record,
                                   const sandbox_workspace_options *options,
                                   const struct sbx_wait *wait, sandbox_workspace **out,
                                   sandbox_error *error)
{
    sandbox_error own = {0};
    error = error == NULL ? &own : error;
    sandbox_status status = check_alive(client, record, wait, out, error);
    if (status == SANDBOX_OK && options->egress != NULL) {
        status = sbx_egress_change(*out, options->egress, wait, error);
        if (status == SANDBOX_OK)
            return status;
        sbx_workspace_drop(sbx_take(*out));
        return status == SANDBOX_CLOSED ? SANDBOX_BUSY : status;
    }
    /* A suspend or resume came in between. */
    bool moved = sbx_workspace_is_refused(status, error);
    bool lost = status == SANDBOX_INTERRUPTED && options->from != SANDBOX_FROM_NOTHING;
    /* Deleted since we looked: whoever asks to open means the next one of that name. */
    return moved || lost || status == SANDBOX_CLOSED ? SANDBOX_BUSY : status;
}

/*
 * SANDBOX_BUSY: something has changed, or was waited for; look again from the start.
 */
static sandbox_status open_existing(sandbox_client *client, struct sbx_record *record,
                                    const sandbox_workspace_options *options,
                                    const struct sbx_wait *wait, sandbox_workspace **out,
                                    sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    if (record->operation.kind[0] != '\0' && record->state != SANDBOX_STATE_DELETING) {
        status = sbx_operation_settle(client, record, wait, error);
        return status == SANDBOX_OK ? SANDBOX_BUSY : status;
    }
    if (record->state == SANDBOX_STATE_DELETING || sbx_life_is_expired(client, record)) {
        status = remove_dead(client, record, wait, error);
        return status == SANDBOX_OK ? SANDBOX_BUSY : status;
    }
    if (record->state == SANDBOX_STATE_RUNNING)
        return open_running(client, record, options, wait, out, error);
    if (record->state == SANDBOX_STATE_INTERRUPTED && options->from == SANDBOX_FROM_LIVE_FILES) {
        status = sbx_start_again(client, record, options->env, options->egress, wait, out, error);
        return status == SANDBOX_CONFLICT ? SANDBOX_BUSY : status;
    }
    if (record->state == SANDBOX_STATE_INTERRUPTED && options->from == SANDBOX_FROM_NOTHING)
        return sbx_start_lost(client, record->name, "", error);
    if (record->state == SANDBOX_STATE_INTERRUPTED || record->state == SANDBOX_STATE_SUSPENDED ||
        record->state == SANDBOX_STATE_BLOCKED) {
        status = open_resumed(client, record, options, wait, out, error);
        return status == SANDBOX_CLOSED ? SANDBOX_BUSY : status;
    }
    return sbx_fail(error, SANDBOX_FAILED, "'%s' is %s and nobody is at it; delete it",
                    record->name, sandbox_state_name(record->state));
}

/* Nothing but what was proven; whoever accepts less resumes by themselves. */
static sandbox_status open_resumed(sandbox_client *client, const struct sbx_record *record,
                                   const sandbox_workspace_options *options,
                                   const struct sbx_wait *wait, sandbox_workspace **out,
                                   sandbox_error *error)
{
    struct sbx_resume_request request = {.from = options->from, .environment = options->env,
                                         .keep_environment = options->env == NULL,
                                         .egress = options->egress};
    sandbox_resume_result result = {SANDBOX_RESUME_RESULT};
    sandbox_workspace *workspace = NULL;
    sandbox_status status =
        sbx_workspace_new(client, record->name, record->id, &workspace, error);
    if (status == SANDBOX_OK)
        status = sbx_life_resume(client, record->name, record->id, &request, wait, &result,
                                 &workspace->session, error);
    if (status == SANDBOX_OK)
        *out = workspace;
    else
        sbx_workspace_drop(workspace);
    return status;
}

/* A handle whose agent has just answered. */
static sandbox_status check_alive(sandbox_client *client, struct sbx_record *record,
                                  const struct sbx_wait *wait, sandbox_workspace **out,
                                  sandbox_error *error)
{
    sandbox_workspace *workspace = NULL;
    sandbox_status status =
        sbx_workspace_new(client, record->name, record->id, &workspace, error);
    struct sbx_session *session = NULL;
    if (status == SANDBOX_OK)
        status = sbx_workspace_session(workspace, wait, &session, error);
    /* Somebody has come to work: that is activity, for whoever suspends what is idle. */
    if (status == SANDBOX_OK)
        status = sbx_start_renew(client, record, session, wait, error);
    if (status == SANDBOX_OK)
        sbx_egress_look_after(client, record, session, wait);
    sbx_session_drop(session);
    if (status == SANDBOX_OK)
        *out = workspace;
    else
        sbx_workspace_drop(workspace);
    return status;
}

/* What `find` looks for when it was given an id. */
struct search {
    const char *id;
    char name[SBX_NAME_MAX + 1];
};

static bool match_id(void *user_data, const char *name, const char *text, size_t size,
                     const char *version)
{
    struct search *search = user_data;
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
    if (sbx_record_decode(text, size, &record, NULL) != SANDBOX_OK ||
        strcmp(record.id, search->id) != 0)
        return true;
    memcpy(search->name, record.name, sizeof search->name);
    return false;
}

/* By name, or else by id. */
static sandbox_status load_either(sandbox_client *client, const char *name,
                                  const struct sbx_wait *wait, struct sbx_record *record,
                                  sandbox_error *error)
{
    uint8_t id[SBX_ID_BYTES];
    sandbox_status status = sbx_store_load(client, name, wait, record, error);
    if (status != SANDBOX_NOT_FOUND)
        return status;
    struct search search = {.id = name};
    if (sbx_id_parse(name, id))
        status = client->driver->record_list(client->state, wait, match_id, &search, error);
    if (search.name[0] != '\0')
        return sbx_store_load(client, search.name, wait, record, error);
    if (status != SANDBOX_OK && status != SANDBOX_NOT_FOUND)
        return status;
    return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-such-workspace",
                        "there is no workspace '%s'", name);
}

sandbox_status sbx_life_find(sandbox_client *client, const char *name,
                             const struct sbx_wait *wait, sandbox_workspace **out,
                             sandbox_error *error)
{
    for (;;) {
        SBX_ON_EXIT(sbx_record_clear) struct sbx_record record = {0};
        sandbox_status status = load_either(client, name, wait, &record, error);
        if (status != SANDBOX_OK)
            return status;
        bool under_way = record.operation.kind[0] != '\0';
        bool abandoned = under_way && sbx_operation_is_abandoned(client, &record);
        bool leftover = !under_way && (record.state == SANDBOX_STATE_DELETING ||
                                       sbx_life_is_expired(client, &record));
        if (!abandoned && !leftover)
            return sbx_workspace_new(client, record.name, record.id, out, error);
        status = abandoned ? sbx_operation_settle(client, &record, wait, error)
                           : remove_dead(client, &record, wait, error);
        if (status != SANDBOX_OK)
            return status;
    }
}
