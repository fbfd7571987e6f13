/* The client's housekeeper: leases and idle channels. */

#include "core/janitor.h"
#include "core/store.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"
#include <signal.h>

#define ROUND_MS 1000
#define CHANNEL_IDLE_MS 60000 /* a connected `runsc exec` client costs 5 MB */
#define STORE_MS 5000

struct sbx_janitor {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct sbx_lease *leases;
    bool channels; /* there may be some */
    bool ending;
};

static void *work(void *user_data);
static void renew_leases(sandbox_client *client);
static bool close_idle(sandbox_client *client);

sandbox_status sbx_janitor_start(sandbox_client *client, sandbox_error *error)
{
    struct sbx_janitor *janitor = calloc(1, sizeof *janitor);
    if (janitor == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a thread");
    pthread_mutex_init(&janitor->lock, NULL);
    int failed = sbx_condition_init(&janitor->changed);
    client->janitor = janitor;

    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (failed == 0)
        failed = pthread_create(&janitor->thread, NULL, work, client);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed == 0)
        return SANDBOX_OK;
    client->janitor = NULL;
    pthread_mutex_destroy(&janitor->lock);
    free(janitor);
    return sbx_fail_errno(error, failed, "cannot start a thread");
}

void sbx_janitor_stop(sandbox_client *client)
{
    /* The thread reads the client's pointer, perhaps for the first time: it stays until the end. */
    struct sbx_janitor *janitor = client->janitor;
    if (janitor == NULL)
        return;
    pthread_mutex_lock(&janitor->lock);
    janitor->ending = true;
    pthread_cond_broadcast(&janitor->changed);
    pthread_mutex_unlock(&janitor->lock);
    pthread_join(janitor->thread, NULL);
    client->janitor = NULL;
    pthread_cond_destroy(&janitor->changed);
    pthread_mutex_destroy(&janitor->lock);
    free(janitor);
}

void sbx_lease_begin(sandbox_client *client, struct sbx_lease *lease, const char *name,
                     const char *operation_id)
{
    struct sbx_janitor *janitor = client->janitor;
    *lease = (struct sbx_lease){.renewed_ms = sbx_clock_monotonic(client->clock)};
    memcpy(lease->name, name, strlen(name) + 1);
    memcpy(lease->operation_id, operation_id, SBX_ID_TEXT);
    pthread_mutex_lock(&janitor->lock);
    lease->next = janitor->leases;
    janitor->leases = lease;
    pthread_cond_broadcast(&janitor->changed);
    pthread_mutex_unlock(&janitor->lock);
}

void sbx_janitor_notice(sandbox_client *client)
{
    struct sbx_janitor *janitor = client->janitor;
    pthread_mutex_lock(&janitor->lock);
    janitor->channels = true;
    pthread_cond_broadcast(&janitor->changed);
    pthread_mutex_unlock(&janitor->lock);
}

void sbx_lease_end(sandbox_client *client, struct sbx_lease *lease)
{
    struct sbx_janitor *janitor = client->janitor;
    pthread_mutex_lock(&janitor->lock);
    while (lease->renewing)
        pthread_cond_wait(&janitor->changed, &janitor->lock);
    for (struct sbx_lease **at = &janitor->leases; *at != NULL; at = &(*at)->next) {
        if (*at == lease) {
            *at = lease->next;
            break;
        }
    }
    pthread_mutex_unlock(&janitor->lock);
}

/* One round's sleep. With nothing to look after it lasts until there is. False: the end. */
static bool sleep_a_round(struct sbx_janitor *janitor)
{
    pthread_mutex_lock(&janitor->lock);
    while (!janitor->ending && !janitor->channels && janitor->leases == NULL)
        pthread_cond_wait(&janitor->changed, &janitor->lock);
    struct sbx_wait round = sbx_wait_alone(ROUND_MS);
    while (!janitor->ending && sbx_wait_left_ms(&round) > 0)
        (void)sbx_wait_condition(&round, &janitor->changed, &janitor->lock, NULL);
    bool ending = janitor->ending;
    janitor->channels = false;
    pthread_mutex_unlock(&janitor->lock);
    return !ending;
}

static void *work(void *user_data)
{
    sandbox_client *client = user_data;
    while (sleep_a_round(client->janitor)) {
        renew_leases(client);
        if (close_idle(client))
            sbx_janitor_notice(client);
    }
    return NULL;
}

static sandbox_status count_renewal(struct sbx_record *record, void *user_data,
                                    sandbox_error *error)
{
    const struct sbx_lease *lease = user_data;
    if (strcmp(record->operation.id, lease->operation_id) != 0)
        return sbx_fail(error, SANDBOX_CONFLICT, "the operation is not ours any more");
    record->operation.renewals++;
    return SANDBOX_OK;
}

static void renew_leases(sandbox_client *client)
{
    struct sbx_janitor *janitor = client->janitor;
    for (;;) {
        int64_t now = sbx_clock_monotonic(client->clock);
        pthread_mutex_lock(&janitor->lock);
        struct sbx_lease *due = janitor->leases;
        while (due != NULL && now - due->renewed_ms < SBX_LEASE_MS / 3)
            due = due->next;
        if (due != NULL) {
            due->renewing = true;
            due->renewed_ms = now;
        }
        pthread_mutex_unlock(&janitor->lock);
        if (due == NULL)
            return;

        struct sbx_wait wait = sbx_wait_alone(STORE_MS);
        sandbox_error error = {0};
        if (sbx_store_change(client, due->name, &wait, count_renewal, due, NULL, &error) !=
            SANDBOX_OK)
            sbx_log(SANDBOX_LOG_WARNING, "the lease of '%s' was not renewed: %s", due->name,
                    error.message);
        pthread_mutex_lock(&janitor->lock);
        due->renewing = false;
        pthread_cond_broadcast(&janitor->changed);
        pthread_mutex_unlock(&janitor->lock);
    }
}

/* Whether there are channels left to look after. */
static bool close_idle(sandbox_client *client)
{
    bool left = false;
    pthread_mutex_lock(&client->lock);
    for (sandbox_workspace *workspace = client->first; workspace != NULL;
         workspace = workspace->next) {
        struct sbx_session *idle = NULL;
        pthread_mutex_lock(&workspace->lock);
        if (workspace->session != NULL &&
            sbx_session_idle_ms(workspace->session) > CHANNEL_IDLE_MS)
            idle = sbx_take(workspace->session);
        left = left || workspace->session != NULL;
        pthread_mutex_unlock(&workspace->lock);
        sbx_session_drop(idle);
    }
    pthread_mutex_unlock(&client->lock);
    return left;
}
