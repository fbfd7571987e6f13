/*
 * Every failure of a driver says whose it is. Done here and once: a driver that named itself would
 * have to do so wherever something below it fails.
 */

#include "core/teller.h"
#include "util/fail.h"
#include <stdio.h>
#include <stdlib.h>

struct teller {
    struct sbx_driver named;
    const struct sbx_driver *driver;
    void *state;
};

static void give_entries(struct teller *teller);
static void give_snapshots(struct sbx_driver *named);
static void give_egress(struct sbx_driver *named);
static void close_teller(void *state);

sandbox_status sbx_teller_open(const struct sbx_driver *driver, const char *rest,
                               const struct sbx_wait *wait, const struct sbx_driver **named,
                               void **state, sandbox_error *error)
{
    struct teller *teller = calloc(1, sizeof *teller);
    if (teller == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a client");
    teller->driver = driver;
    sandbox_status status = driver->open(rest, wait, &teller->state, error);
    if (status != SANDBOX_OK) {
        free(teller);
        return sbx_teller_tell(driver, status, error);
    }
    give_entries(teller);
    *named = &teller->named;
    *state = teller;
    return SANDBOX_OK;
}

sandbox_status sbx_teller_tell(const struct sbx_driver *driver, sandbox_status status,
                               sandbox_error *error)
{
    if (status != SANDBOX_OK && error != NULL)
        snprintf(error->driver, sizeof error->driver, "%s", driver->name);
    return status;
}

static sandbox_status tell(const struct teller *teller, sandbox_status status, sandbox_error *error)
{
    return sbx_teller_tell(teller->driver, status, error);
}

static void close_teller(void *state)
{
    struct teller *teller = state;
    teller->driver->close(teller->state);
    free(teller);
}

static bool can(void *state, sandbox_ability ability)
{
    const struct teller *teller = state;
    return teller->driver->can(teller->state, ability);
}

static sandbox_status record_load(void *state, const char *name, const struct sbx_wait *wait,
                                  char **text, size_t *size, char version[SBX_VERSION_TEXT],
                                  sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(teller,
                teller->driver->record_load(teller->state, name, wait, text, size, version, error),
                error);
}

static sandbox_status record_store(void *state, const char *name, const char *text, size_t size,
                                   const char *expected, char version[SBX_VERSION_TEXT],
                                   const struct sbx_wait *wait, sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(teller,
                teller->driver->record_store(teller->state, name, text, size, expected, version,
                                             wait, error),
                error);
}

static sandbox_status record_remove(void *state, const char *name, const char *expected,
                                    const struct sbx_wait *wait, sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(teller, teller->driver->record_remove(teller->state, name, expected, wait, error),
                error);
}

static sandbox_status record_list(void *state, const struct sbx_wait *wait,
                                  bool (*visit)(void *user_data, const char *name, const char *text,
                                                size_t size, const char *version),
                                  void *user_data, sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(teller, teller->driver->record_list(teller->state, wait, visit, user_data, error),
                error);
}

static sandbox_status secret(void *state, uint32_t *key_id, uint8_t key[32],
                             const struct sbx_wait *wait, sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(teller, teller->driver->secret(teller->state, key_id, key, wait, error), error);
}

static sandbox_status owner_name(void *state, char owner[128], sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(teller, teller->driver->owner_name(teller->state, owner, error), error);
}

static bool owner_is_gone(void *state, const char *owner)
{
    const struct teller *teller = state;
    return teller->driver->owner_is_gone(teller->state, owner);
}

static sandbox_status provision(void *state, const struct sbx_record *record,
                                const struct sbx_wait *wait, char incarnation[SBX_INCARNATION_TEXT],
                                sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(teller, teller->driver->provision(teller->state, record, wait, incarnation, error),
                error);
}

static sandbox_status inspect(void *state, const struct sbx_record *record,
                              const struct sbx_wait *wait, struct sbx_instance *out,
                              sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(teller, teller->driver->inspect(teller->state, record, wait, out, error), error);
}

static sandbox_status discard(void *state, const struct sbx_record *record,
                              const struct sbx_wait *wait, sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(teller, teller->driver->discard(teller->state, record, wait, error), error);
}

static sandbox_status destroy(void *state, const struct sbx_record *record,
                              const struct sbx_wait *wait, sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(teller, teller->driver->destroy(teller->state, record, wait, error), error);
}

static sandbox_status connect(void *state, const struct sbx_record *record,
                              const struct sbx_wait *wait, struct sbx_channel *channel,
                              sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(teller, teller->driver->connect(teller->state, record, wait, channel, error),
                error);
}

static bool is_direct(void *state)
{
    const struct teller *teller = state;
    return teller->driver->is_direct(teller->state);
}

static sandbox_status connect_direct(void *state, const struct sbx_record *record,
                                     const struct sbx_wait *wait, struct sbx_channel *channel,
                                     sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(teller, teller->driver->connect_direct(teller->state, record, wait, channel, error),
                error);
}

static sandbox_status renewed(void *state, const struct sbx_record *record,
                              const struct sbx_wait *wait, sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(teller, teller->driver->renewed(teller->state, record, wait, error), error);
}

static bool needs_parking(void *state, const struct sbx_record *record)
{
    const struct teller *teller = state;
    return teller->driver->needs_parking(teller->state, record);
}

static sandbox_status snapshot_prepare(void *state, const struct sbx_record *record,
                                       const struct sbx_snapshot *snapshot,
                                       const struct sbx_wait *wait, sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(teller,
                teller->driver->snapshot_prepare(teller->state, record, snapshot, wait, error),
                error);
}

static sandbox_status snapshot_take(void *state, const struct sbx_record *record,
                                    struct sbx_snapshot *snapshot, struct sbx_progress *progress,
                                    const struct sbx_wait *wait, sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(
        teller,
        teller->driver->snapshot_take(teller->state, record, snapshot, progress, wait, error),
        error);
}

static sandbox_status snapshot_adopt(void *state, const struct sbx_record *record,
                                     struct sbx_snapshot *snapshot, const struct sbx_wait *wait,
                                     sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(teller,
                teller->driver->snapshot_adopt(teller->state, record, snapshot, wait, error),
                error);
}

static sandbox_status snapshot_verify(void *state, const struct sbx_record *record,
                                      const struct sbx_snapshot *snapshot,
                                      struct sbx_progress *progress, const struct sbx_wait *wait,
                                      struct sbx_verdict *out, sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(teller,
                teller->driver->snapshot_verify(teller->state, record, snapshot, progress, wait,
                                                out, error),
                error);
}

static sandbox_status snapshot_remove(void *state, const struct sbx_record *record,
                                      const char *snapshot_id, const struct sbx_wait *wait,
                                      sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(teller,
                teller->driver->snapshot_remove(teller->state, record, snapshot_id, wait, error),
                error);
}

static sandbox_status restore(void *state, const struct sbx_record *record,
                              const struct sbx_snapshot *snapshot, sandbox_keep keep,
                              struct sbx_progress *progress, const struct sbx_wait *wait,
                              struct sbx_restored *out, sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(
        teller,
        teller->driver->restore(teller->state, record, snapshot, keep, progress, wait, out, error),
        error);
}

static sandbox_status evidence(void *state, const struct sbx_record *record,
                               const struct sbx_snapshot *snapshot, const struct sbx_wait *wait,
                               struct sbx_restored *out, sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(teller, teller->driver->evidence(teller->state, record, snapshot, wait, out, error),
                error);
}

static sandbox_status release(void *state, const struct sbx_record *record,
                              const struct sbx_wait *wait, sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(teller, teller->driver->release(teller->state, record, wait, error), error);
}

static sandbox_status settled(void *state, const struct sbx_record *record,
                              const struct sbx_wait *wait, sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(teller, teller->driver->settled(teller->state, record, wait, error), error);
}

static sandbox_status egress_open(void *state, const struct sbx_record *record,
                                  const cJSON *registration, bool keep, const struct sbx_wait *wait,
                                  struct sbx_egress_way *way, sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(
        teller,
        teller->driver->egress_open(teller->state, record, registration, keep, wait, way, error),
        error);
}

static sandbox_status egress_ask(void *state, const char *workspace_id,
                                 enum sbx_egress_question question, const cJSON *body,
                                 const struct sbx_wait *wait, cJSON **answer, sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(teller,
                teller->driver->egress_ask(teller->state, workspace_id, question, body, wait,
                                           answer, error),
                error);
}

static sandbox_status egress_forget(void *state, const char *workspace_id,
                                    const struct sbx_wait *wait, sandbox_error *error)
{
    const struct teller *teller = state;
    return tell(teller, teller->driver->egress_forget(teller->state, workspace_id, wait, error),
                error);
}

/* What a driver cannot do stays NULL. What needs no state is asked of the driver itself. */
static void give_entries(struct teller *teller)
{
    const struct sbx_driver *driver = teller->driver;
    teller->named = (struct sbx_driver){
        .name = driver->name,
        .close = close_teller,
        .can = can,
        .record_load = record_load,
        .record_store = record_store,
        .record_remove = record_remove,
        .record_list = record_list,
        .secret = secret,
        .provision = provision,
        .inspect = inspect,
        .discard = discard,
        .destroy = destroy,
        .connect = connect,
        .owner_name = driver->owner_name == NULL ? NULL : owner_name,
        .owner_is_gone = driver->owner_is_gone == NULL ? NULL : owner_is_gone,
        .is_direct = driver->is_direct == NULL ? NULL : is_direct,
        .connect_direct = driver->connect_direct == NULL ? NULL : connect_direct,
        .renewed = driver->renewed == NULL ? NULL : renewed,
        .needs_parking = driver->needs_parking == NULL ? NULL : needs_parking,
        .evidence = driver->evidence == NULL ? NULL : evidence,
        .settled = driver->settled == NULL ? NULL : settled,
    };
    if (driver->snapshot_take != NULL)
        give_snapshots(&teller->named);
    if (driver->egress_open != NULL)
        give_egress(&teller->named);
}

/* All of them or none. */
static void give_snapshots(struct sbx_driver *named)
{
    named->snapshot_prepare = snapshot_prepare;
    named->snapshot_take = snapshot_take;
    named->snapshot_adopt = snapshot_adopt;
    named->snapshot_verify = snapshot_verify;
    named->snapshot_remove = snapshot_remove;
    named->restore = restore;
    named->release = release;
}

/* Likewise. */
static void give_egress(struct sbx_driver *named)
{
    named->egress_open = egress_open;
    named->egress_ask = egress_ask;
    named->egress_forget = egress_forget;
}
