/* The carrier's main thread: from the workspace's record to a session, and again. */

#include "carrier.h"
#include "core/gate.h"
#include "core/lifecycle.h"
#include "util/memory.h"
#include <stdio.h>

#define LOOK_MS      50u  /* while somebody suspends or resumes the workspace */
#define RETRY_MS     100u /* after a session that broke at once, doubled up to */
#define RETRY_MS_MAX 2000u
#define GOOD_MS      1000 /* a session that stood this long was none that broke at once */

enum outlook {
    OUTLOOK_CARRY,
    OUTLOOK_WAIT, /* an operation is under way, or nothing can be learnt */
    OUTLOOK_OVER,
};

static enum outlook look(const struct carrier *carrier, struct sbx_record *record);
static bool connect_agent(struct carrier *carrier, struct sbx_record *record);
static void carry(struct carrier *carrier, const struct sbx_record *record);
static void await_trouble(struct carrier *carrier);
static bool is_good_still(struct carrier *carrier, const struct sbx_record *record);
static void on_refill(struct sbx_loop_task *task);
static void on_end(struct sbx_loop_task *task);

int carrier_run(struct carrier *carrier)
{
    struct sbx_wait alone = sbx_wait_alone(SANDBOX_FOREVER);
    uint32_t pause_ms = RETRY_MS;
    carrier->refill.run = on_refill;
    carrier->end.run = on_end;
    errands_own(carrier);
    for (;;) {
        struct sbx_record record = {0};
        enum outlook outlook = look(carrier, &record);
        int64_t begun = sbx_clock_monotonic(carrier->client->clock);
        if (outlook == OUTLOOK_CARRY && connect_agent(carrier, &record))
            carry(carrier, &record);
        sbx_record_clear(&record);
        if (outlook == OUTLOOK_OVER)
            return 0;
        bool good = sbx_clock_monotonic(carrier->client->clock) - begun >= GOOD_MS;
        pause_ms = outlook == OUTLOOK_WAIT   ? LOOK_MS
                   : good                    ? RETRY_MS
                   : pause_ms < RETRY_MS     ? RETRY_MS
                   : pause_ms < RETRY_MS_MAX ? 2 * pause_ms
                                             : pause_ms;
        (void)sbx_wait_pause(&alone, pause_ms, NULL);
    }
}

/* Nothing is asked for here, so that nobody takes it for work. */
static enum outlook look(const struct carrier *carrier, struct sbx_record *record)
{
    struct sbx_wait soon = sbx_wait_alone(5000);
    sandbox_status status = sbx_store_load(carrier->client, carrier->name, &soon, record, NULL);
    if (status == SANDBOX_NOT_FOUND ||
        (status == SANDBOX_OK && strcmp(record->id, carrier->id) != 0))
        return OUTLOOK_OVER;
    if (status != SANDBOX_OK || record->operation.kind[0] != '\0')
        return OUTLOOK_WAIT;
    return record->state == SANDBOX_STATE_RUNNING ? OUTLOOK_CARRY : OUTLOOK_OVER;
}

static bool connect_agent(struct carrier *carrier, struct sbx_record *record)
{
    uint8_t token[SBX_TOKEN_BYTES];
    struct sbx_health health;
    struct sbx_wait soon = sbx_wait_alone(30000);
    sandbox_error error = {0};
    sandbox_status status = sbx_life_token(carrier->client, record, &soon, token, &error);
    if (status == SANDBOX_OK)
        status = sbx_gate_connect(carrier->client, record, token, &soon, &carrier->session, &health,
                                  &error);
    sbx_wipe(token, sizeof token);
    if (status != SANDBOX_OK)
        fprintf(stderr, "sandbox-egress-carrier: %s\n", error.message);
    /* A channel to a sealed agent would keep its memory from being saved. */
    bool open = status == SANDBOX_OK && (health.gate == SANDBOX__V1__GATE__GATE_OPEN ||
                                         health.gate == SANDBOX__V1__GATE__GATE_QUIESCED);
    if (status == SANDBOX_OK && !open) {
        sbx_session_cut(carrier->session);
        sbx_session_drop(sbx_take(carrier->session));
    }
    return open;
}

/* As long as it is the run that the session was made for. */
static void carry(struct carrier *carrier, const struct sbx_record *record)
{
    do
        await_trouble(carrier);
    while (is_good_still(carrier, record));
    sbx_loop_post(carrier->client->loop, &carrier->end);
    pthread_mutex_lock(&carrier->mutex);
    while (!carrier->idle)
        pthread_cond_wait(&carrier->changed, &carrier->mutex);
    pthread_mutex_unlock(&carrier->mutex);
    sbx_session_cut(carrier->session);
    sbx_session_drop(sbx_take(carrier->session));
}

static void await_trouble(struct carrier *carrier)
{
    pthread_mutex_lock(&carrier->mutex);
    carrier->troubled = carrier->sealed = carrier->idle = false;
    pthread_mutex_unlock(&carrier->mutex);
    sbx_loop_post(carrier->client->loop, &carrier->refill);
    pthread_mutex_lock(&carrier->mutex);
    while (!carrier->troubled)
        pthread_cond_wait(&carrier->changed, &carrier->mutex);
    pthread_mutex_unlock(&carrier->mutex);
}

/*
 * A suspend that was given up has raised the epoch, and nothing else: what is carried goes on, and
 * calls that wait are made for the new one.
 */
static bool is_good_still(struct carrier *carrier, const struct sbx_record *record)
{
    struct sbx_wait alone = sbx_wait_alone(SANDBOX_FOREVER);
    SBX_ON_EXIT(sbx_record_clear) struct sbx_record now = {0};
    uint8_t token[SBX_TOKEN_BYTES];
    enum outlook outlook;
    if (carrier->sealed)
        return false;
    do {
        sbx_record_clear(&now);
        (void)sbx_wait_pause(&alone, LOOK_MS, NULL);
        outlook = look(carrier, &now);
    } while (outlook == OUTLOOK_WAIT && sbx_session_is_alive(carrier->session));
    if (outlook != OUTLOOK_CARRY || strcmp(now.run, record->run) != 0 ||
        !sbx_session_is_alive(carrier->session) ||
        sbx_life_token(carrier->client, &now, &alone, token, NULL) != SANDBOX_OK)
        return false;
    sbx_session_identify(carrier->session, token, now.epoch);
    sbx_wipe(token, sizeof token);
    return true;
}

/* Of a former session nothing is left when this runs. */
static void on_refill(struct sbx_loop_task *task)
{
    errands_refill((struct carrier *)(void *)((char *)task - offsetof(struct carrier, refill)));
}

static void on_end(struct sbx_loop_task *task)
{
    errands_end((struct carrier *)(void *)((char *)task - offsetof(struct carrier, end)));
}
