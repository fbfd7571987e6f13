/*
 * The memory driver: workspaces on a platform that is a process of this machine, with the real
 * agent in them and no isolation at all. For tests and examples.
 */

#include "drivers/memory/memory.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/owner.h"
#include <stdio.h>

static sandbox_status open_driver(const char *rest, const struct sbx_wait *wait, void **state,
                                  sandbox_error *error);
static void close_driver(void *state);
static bool can(void *state, sandbox_ability ability);
static sandbox_status provision(void *state, const struct sbx_record *record,
                                const struct sbx_wait *wait, char incarnation[SBX_INCARNATION_TEXT],
                                sandbox_error *error);
static sandbox_status inspect(void *state, const struct sbx_record *record,
                              const struct sbx_wait *wait, struct sbx_instance *out,
                              sandbox_error *error);
static sandbox_status discard(void *state, const struct sbx_record *record,
                              const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status destroy(void *state, const struct sbx_record *record,
                              const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status connect_agent(void *state, const struct sbx_record *record,
                                    const struct sbx_wait *wait, struct sbx_channel *channel,
                                    sandbox_error *error);
static bool needs_parking(void *state, const struct sbx_record *record);
static sandbox_status owner_name(void *state, char owner[128], sandbox_error *error);
static bool owner_is_gone(void *state, const char *owner);

const struct sbx_driver sbx_driver_memory = {
    .name = "memory",
    .open = open_driver,
    .close = close_driver,
    .can = can,
    .examine = sbx_memory_examine,
    .record_load = sbx_memory_record_load,
    .record_store = sbx_memory_record_store,
    .record_remove = sbx_memory_record_remove,
    .record_list = sbx_memory_record_list,
    .secret = sbx_memory_secret,
    .owner_name = owner_name,
    .owner_is_gone = owner_is_gone,
    .provision = provision,
    .inspect = inspect,
    .discard = discard,
    .destroy = destroy,
    .connect = connect_agent,
    .needs_parking = needs_parking,
    .snapshot_prepare = sbx_memory_snapshot_prepare,
    .snapshot_take = sbx_memory_snapshot_take,
    .snapshot_adopt = sbx_memory_snapshot_adopt,
    .snapshot_verify = sbx_memory_snapshot_verify,
    .snapshot_remove = sbx_memory_snapshot_remove,
    .restore = sbx_memory_restore,
    .evidence = sbx_memory_evidence,
    .release = sbx_memory_release,
};

static sandbox_status open_driver(const char *rest, const struct sbx_wait *wait, void **state,
                                  sandbox_error *error)
{
    struct sbx_memory *driver = calloc(1, sizeof *driver);
    if (driver == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a client");
    sandbox_status status = sbx_memory_settings_read(rest, driver, error);
    if (status == SANDBOX_OK)
        status = sbx_memory_ask(driver, sbx_memory_request("hello"), false, wait, NULL, error);
    if (status == SANDBOX_OK)
        *state = sbx_take(driver);
    close_driver(driver);
    return status;
}

static void close_driver(void *state)
{
    struct sbx_memory *driver = state;
    if (driver == NULL)
        return;
    sbx_memory_settings_clear(driver);
    free(driver);
}

static bool can(void *state, sandbox_ability ability)
{
    return ability == SANDBOX_CAN_LIMIT_PROCESSES || /* the agent does */
           ability == SANDBOX_CAN_KEEP_FILES || ability == SANDBOX_CAN_KEEP_MEMORY;
}

static sandbox_status provision(void *state, const struct sbx_record *record,
                                const struct sbx_wait *wait, char incarnation[SBX_INCARNATION_TEXT],
                                sandbox_error *error)
{
    const struct sbx_memory *driver = state;
    cJSON *request = sbx_memory_fenced("provision", record);
    if (request != NULL && driver->agent != NULL)
        (void)sbx_json_set_text(request, "agent", driver->agent);
    SBX_ON_EXIT(sbx_json_free) cJSON *answer = NULL;
    sandbox_status status = sbx_memory_ask(driver, request, true, wait, &answer, error);
    if (status == SANDBOX_OK) {
        snprintf(incarnation, SBX_INCARNATION_TEXT, "%s", sbx_json_text(answer, "incarnation"));
        return SANDBOX_OK;
    }
    /* Refused: it was not begun. Otherwise something may be there that nobody knows of. */
    if (status == SANDBOX_CONFLICT || status == SANDBOX_INVALID)
        return status;
    struct sbx_wait alone = sbx_wait_alone(SBX_MEMORY_ROLL_BACK_MS);
    if (discard(state, record, &alone, NULL) == SANDBOX_OK && status == SANDBOX_UNKNOWN)
        status = sbx_fail_for(error, SANDBOX_UNAVAILABLE, "answer-lost",
                              "the memory platform broke the connection while it made an "
                              "instance; the instance was removed");
    return status;
}

static enum sbx_presence presence_of(const char *word)
{
    if (strcmp(word, "running") == 0)
        return SBX_PRESENCE_RUNNING;
    if (strcmp(word, "stopped") == 0)
        return SBX_PRESENCE_STOPPED;
    return strcmp(word, "other") == 0 ? SBX_PRESENCE_OTHER : SBX_PRESENCE_ABSENT;
}

static sandbox_status inspect(void *state, const struct sbx_record *record,
                              const struct sbx_wait *wait, struct sbx_instance *out,
                              sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *answer = NULL;
    sandbox_status status =
        sbx_memory_ask(state, sbx_memory_fenced("inspect", record), false, wait, &answer, error);
    if (status != SANDBOX_OK)
        return status;
    *out = (struct sbx_instance){.presence = presence_of(sbx_json_text(answer, "presence"))};
    snprintf(out->incarnation, sizeof out->incarnation, "%s", sbx_json_text(answer, "incarnation"));
    snprintf(out->detail, sizeof out->detail, "%s", sbx_json_text(answer, "detail"));
    return SANDBOX_OK;
}

static sandbox_status discard(void *state, const struct sbx_record *record,
                              const struct sbx_wait *wait, sandbox_error *error)
{
    return sbx_memory_ask(state, sbx_memory_fenced("discard", record), false, wait, NULL, error);
}

static sandbox_status destroy(void *state, const struct sbx_record *record,
                              const struct sbx_wait *wait, sandbox_error *error)
{
    return sbx_memory_ask(state, sbx_memory_fenced("destroy", record), false, wait, NULL, error);
}

static sandbox_status connect_agent(void *state, const struct sbx_record *record,
                                    const struct sbx_wait *wait, struct sbx_channel *channel,
                                    sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *answer = NULL;
    sandbox_status status =
        sbx_memory_ask(state, sbx_memory_fenced("connect", record), false, wait, &answer, error);
    if (status != SANDBOX_OK)
        return status;
    status = sbx_channel_connect_unix(channel, sbx_json_text(answer, "socket"), wait, error);
    /* It ended between the two steps. */
    if (status == SANDBOX_NOT_FOUND)
        status = sbx_fail_for(error, SANDBOX_UNAVAILABLE, "instance-gone",
                              "the recorded instance does not run");
    return status;
}

/* What is frozen keeps its sockets. */
static bool needs_parking(void *state, const struct sbx_record *record)
{
    return false;
}

static sandbox_status owner_name(void *state, char owner[128], sandbox_error *error)
{
    return sbx_owner_name(owner, error);
}

/* The platform is a process of this machine: nobody of another boot can have seen it. */
static bool owner_is_gone(void *state, const char *owner)
{
    return sbx_owner_is_gone(owner, SBX_OWNER_HERE);
}

cJSON *sbx_memory_fenced(const char *what, const struct sbx_record *record)
{
    cJSON *request = sbx_memory_request(what);
    if (request != NULL && sbx_json_set_text(request, "name", record->name) &&
        sbx_json_set_text(request, "id", record->id) &&
        sbx_json_set_integer(request, "epoch", record->epoch) &&
        sbx_json_set_text(request, "operation", record->operation.id) &&
        sbx_json_set_text(request, "incarnation", record->incarnation))
        return request;
    cJSON_Delete(request);
    return NULL;
}
