/* The counting layer over the driver table: see counting.h. */

#include "counting.h"
#include "core/driver.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

const struct sbx_driver *__real_sbx_driver_of(const char *uri, const char **rest);
const struct sbx_driver *__wrap_sbx_driver_of(const char *uri, const char **rest);

static const struct sbx_driver *real;
static struct sbx_driver counted;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static enum strike strike;
static unsigned strike_at;
static sandbox_cancel *strike_cancel;
static atomic_uint calls;

void counting_begin(enum strike how, unsigned at, sandbox_cancel *cancel)
{
    strike = how;
    strike_at = at;
    strike_cancel = cancel;
    atomic_store(&calls, 0);
}

unsigned counting_calls(void)
{
    return atomic_load(&calls);
}

static void hit(enum strike kill, enum strike cancel)
{
    if (strike == kill)
        raise(SIGKILL);
    else if (strike == cancel)
        sandbox_cancel_trigger(strike_cancel);
}

static unsigned enter(void)
{
    unsigned number = atomic_fetch_add(&calls, 1) + 1;
    if (number == strike_at)
        hit(STRIKE_KILL_BEFORE, STRIKE_CANCEL_BEFORE);
    return number;
}

static sandbox_status leave(unsigned number, sandbox_status status)
{
    if (number == strike_at)
        hit(STRIKE_KILL_AFTER, STRIKE_CANCEL_AFTER);
    return status;
}

#define COUNTED(entry, parameters, arguments)                                                      \
    static sandbox_status entry parameters                                                         \
    {                                                                                              \
        unsigned number = enter();                                                                 \
        return leave(number, real->entry arguments);                                               \
    }

COUNTED(record_load,
        (void *state, const char *name, const struct sbx_wait *wait, char **text, size_t *size,
         char version[SBX_VERSION_TEXT], sandbox_error *error),
        (state, name, wait, text, size, version, error))
COUNTED(record_store,
        (void *state, const char *name, const char *text, size_t size, const char *expected,
         char version[SBX_VERSION_TEXT], const struct sbx_wait *wait, sandbox_error *error),
        (state, name, text, size, expected, version, wait, error))
COUNTED(record_remove,
        (void *state, const char *name, const char *expected, const struct sbx_wait *wait,
         sandbox_error *error),
        (state, name, expected, wait, error))
COUNTED(record_list,
        (void *state, const struct sbx_wait *wait,
         bool (*visit)(void *user_data, const char *name, const char *text, size_t size,
                       const char *version),
         void *user_data, sandbox_error *error),
        (state, wait, visit, user_data, error))
COUNTED(secret,
        (void *state, uint32_t *key_id, uint8_t key[32], const struct sbx_wait *wait,
         sandbox_error *error),
        (state, key_id, key, wait, error))
COUNTED(provision,
        (void *state, const struct sbx_record *record, const struct sbx_wait *wait,
         char incarnation[SBX_INCARNATION_TEXT], sandbox_error *error),
        (state, record, wait, incarnation, error))
COUNTED(inspect,
        (void *state, const struct sbx_record *record, const struct sbx_wait *wait,
         struct sbx_instance *out, sandbox_error *error),
        (state, record, wait, out, error))
COUNTED(discard,
        (void *state, const struct sbx_record *record, const struct sbx_wait *wait,
         sandbox_error *error),
        (state, record, wait, error))
COUNTED(destroy,
        (void *state, const struct sbx_record *record, const struct sbx_wait *wait,
         sandbox_error *error),
        (state, record, wait, error))
COUNTED(connect,
        (void *state, const struct sbx_record *record, const struct sbx_wait *wait,
         struct sbx_channel *channel, sandbox_error *error),
        (state, record, wait, channel, error))

COUNTED(snapshot_prepare,
        (void *state, const struct sbx_record *record, const struct sbx_snapshot *snapshot,
         const struct sbx_wait *wait, sandbox_error *error),
        (state, record, snapshot, wait, error))
COUNTED(snapshot_take,
        (void *state, const struct sbx_record *record, struct sbx_snapshot *snapshot,
         struct sbx_progress *progress, const struct sbx_wait *wait, sandbox_error *error),
        (state, record, snapshot, progress, wait, error))
COUNTED(snapshot_adopt,
        (void *state, const struct sbx_record *record, struct sbx_snapshot *snapshot,
         const struct sbx_wait *wait, sandbox_error *error),
        (state, record, snapshot, wait, error))
COUNTED(snapshot_verify,
        (void *state, const struct sbx_record *record, const struct sbx_snapshot *snapshot,
         struct sbx_progress *progress, const struct sbx_wait *wait, struct sbx_verdict *out,
         sandbox_error *error),
        (state, record, snapshot, progress, wait, out, error))
COUNTED(snapshot_remove,
        (void *state, const struct sbx_record *record, const char *snapshot_id,
         const struct sbx_wait *wait, sandbox_error *error),
        (state, record, snapshot_id, wait, error))
COUNTED(restore,
        (void *state, const struct sbx_record *record, const struct sbx_snapshot *snapshot,
         sandbox_keep keep, struct sbx_progress *progress, const struct sbx_wait *wait,
         struct sbx_restored *out, sandbox_error *error),
        (state, record, snapshot, keep, progress, wait, out, error))
COUNTED(release,
        (void *state, const struct sbx_record *record, const struct sbx_wait *wait,
         sandbox_error *error),
        (state, record, wait, error))

COUNTED(settled,
        (void *state, const struct sbx_record *record, const struct sbx_wait *wait,
         sandbox_error *error),
        (state, record, wait, error))

static void (*judging_hook)(void);

void counting_before_judging(void (*hook)(void))
{
    judging_hook = hook;
}

static bool owner_is_gone(void *state, const char *owner)
{
    void (*hook)(void) = judging_hook;
    judging_hook = NULL;
    if (hook != NULL)
        hook();
    return real->owner_is_gone(state, owner);
}

static void make_table(void)
{
    counted = *real;
    counted.owner_is_gone = owner_is_gone;
    counted.record_load = record_load;
    counted.record_store = record_store;
    counted.record_remove = record_remove;
    counted.record_list = record_list;
    counted.secret = secret;
    counted.provision = provision;
    counted.inspect = inspect;
    counted.discard = discard;
    counted.destroy = destroy;
    counted.connect = connect;
    counted.snapshot_prepare = snapshot_prepare;
    counted.snapshot_take = snapshot_take;
    counted.snapshot_adopt = snapshot_adopt;
    counted.snapshot_verify = snapshot_verify;
    counted.snapshot_remove = snapshot_remove;
    counted.restore = restore;
    counted.release = release;
    counted.settled = real->settled == NULL ? NULL : settled;
}

const struct sbx_driver *__wrap_sbx_driver_of(const char *uri, const char **rest)
{
    real = __real_sbx_driver_of(uri, rest);
    if (real == NULL)
        return NULL;
    pthread_once(&once, make_table);
    return &counted;
}
