/*
 * Suspending the workspaces where nobody works: each by the same way as one that is suspended by
 * hand. The caller's thread and a few more take one workspace after another.
 */

#include "core/client.h"
#include "util/fail.h"
#include "util/log.h"
#include "util/memory.h"
#include "util/options.h"
#include "util/wait.h"
#include <signal.h>
#include <stdatomic.h>

#define IDLE_CALL_MS     600000u
#define IDLE_DEFAULT_MS  900000u /* 15 minutes */
#define PARALLEL_DEFAULT 4u
#define PARALLEL_MAX     64u

struct round {
    sandbox_client *client;
    const sandbox_idle_options *options;
    const struct sbx_wait *wait; /* of the calling thread */
    const sandbox_workspace_list *list;
    atomic_bool interrupted; /* the calling thread was told so: the others end too */
    pthread_mutex_t lock;    /* of what follows */
    pthread_cond_t changed;
    uint32_t beside; /* threads that still work beside the calling one */
    size_t next;
    sandbox_idle_result result;
};

static sandbox_status go_round(struct round *round, uint32_t parallel, sandbox_error *error);
static uint32_t begin_beside(struct round *round, uint32_t parallel, pthread_t *threads);
static int ask_caller(void *user_data);
static int was_interrupted(void *user_data);
static void *work_beside(void *user_data);
static void work(struct round *round, const struct sbx_wait *wait);
static void look_at(struct round *round, const struct sbx_wait *wait,
                    const sandbox_workspace_info *info);

static sandbox_call call_within(const struct sbx_wait *wait)
{
    return (sandbox_call){SANDBOX_CALL, .timeout_ms = sbx_wait_left_ms(wait),
                          .cancel = wait->cancel, .interrupted = wait->interrupted,
                          .user_data = wait->user_data};
}

sandbox_status sandbox_client_suspend_idle(sandbox_client *client,
                                           const sandbox_idle_options *given,
                                           const sandbox_call *call, sandbox_idle_result *result,
                                           sandbox_error *error)
{
    struct sbx_wait wait;
    sandbox_idle_options options;
    sandbox_workspace_list *list = NULL;
    sandbox_status status = sbx_client_check(client, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(&wait, call, IDLE_CALL_MS, error);
    if (status == SANDBOX_OK)
        status = sbx_options_adopt(&options, sizeof options, given, error);
    if (status == SANDBOX_OK && options.parallel > PARALLEL_MAX)
        status = sbx_fail(error, SANDBOX_INVALID, "'parallel' must be at most %u", PARALLEL_MAX);
    if (status != SANDBOX_OK)
        return status;
    sandbox_list_options which = {SANDBOX_LIST_OPTIONS, .labels = options.labels};
    sandbox_call listing = call_within(&wait);
    status = sandbox_workspace_list_all(client, &which, &listing, &list, error);
    if (status != SANDBOX_OK)
        return status;

    struct round round = {.client = client,
                          .options = &options,
                          .wait = &wait,
                          .list = list,
                          .result = {SANDBOX_IDLE_RESULT}};
    status = go_round(&round, options.parallel == 0 ? PARALLEL_DEFAULT : options.parallel, error);
    sandbox_workspace_list_free(list);
    if (status == SANDBOX_OK && result != NULL)
        status = sbx_options_fill(result, &round.result, sizeof round.result, error);
    return status;
}

static sandbox_status go_round(struct round *round, uint32_t parallel, sandbox_error *error)
{
    if (sbx_condition_init(&round->changed) != 0)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to suspend what is idle");
    pthread_mutex_init(&round->lock, NULL);
    pthread_t threads[PARALLEL_MAX];
    uint32_t begun = begin_beside(round, parallel, threads);
    struct sbx_wait own = *round->wait;
    if (own.interrupted != NULL) {
        own.interrupted = ask_caller;
        own.user_data = round;
    }
    work(round, &own);
    /* The caller is asked to the end; what it says ends the others within the next moment. */
    pthread_mutex_lock(&round->lock);
    while (round->beside > 0 &&
           sbx_wait_condition(&own, &round->changed, &round->lock, NULL) == SANDBOX_OK)
        continue;
    pthread_mutex_unlock(&round->lock);
    for (uint32_t n = 0; n < begun; n++)
        pthread_join(threads[n], NULL);
    pthread_cond_destroy(&round->changed);
    pthread_mutex_destroy(&round->lock);
    return sbx_wait_check(&own, error);
}

/* Fewer threads only take longer. */
static uint32_t begin_beside(struct round *round, uint32_t parallel, pthread_t *threads)
{
    size_t count = sandbox_workspace_list_count(round->list);
    uint32_t begun = 0;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&round->lock);
    while (begun + 1 < parallel && begun + 1 < count &&
           pthread_create(&threads[begun], NULL, work_beside, round) == 0)
        begun++;
    round->beside = begun;
    pthread_mutex_unlock(&round->lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return begun;
}

/* On the calling thread alone; what it says once holds for the whole round. */
static int ask_caller(void *user_data)
{
    struct round *round = user_data;
    if (!atomic_load(&round->interrupted) && round->wait->interrupted(round->wait->user_data) != 0)
        atomic_store(&round->interrupted, true);
    return atomic_load(&round->interrupted);
}

static int was_interrupted(void *user_data)
{
    const struct round *round = user_data;
    return atomic_load(&round->interrupted);
}

static void *work_beside(void *user_data)
{
    struct round *round = user_data;
    struct sbx_wait wait = *round->wait;
    wait.interrupted = was_interrupted;
    wait.user_data = round;
    work(round, &wait);
    pthread_mutex_lock(&round->lock);
    if (--round->beside == 0)
        pthread_cond_signal(&round->changed);
    pthread_mutex_unlock(&round->lock);
    return NULL;
}

static void work(struct round *round, const struct sbx_wait *wait)
{
    while (sbx_wait_check(wait, NULL) == SANDBOX_OK) {
        pthread_mutex_lock(&round->lock);
        const sandbox_workspace_info *info = sandbox_workspace_list_at(round->list, round->next++);
        pthread_mutex_unlock(&round->lock);
        if (info == NULL)
            break;
        if (info->state == SANDBOX_STATE_RUNNING && *info->operation == '\0')
            look_at(round, wait, info);
    }
}

static void count(struct round *round, uint32_t *number)
{
    pthread_mutex_lock(&round->lock);
    (*number)++;
    pthread_mutex_unlock(&round->lock);
}

static uint64_t patience(const sandbox_idle_options *options, const sandbox_workspace_info *info)
{
    if (options->idle_ms != 0)
        return options->idle_ms;
    return info->suspend_after_idle_ms != 0 ? info->suspend_after_idle_ms : IDLE_DEFAULT_MS;
}

/* The agent counts since when nothing was active; a busy one that says so for too long lies. */
static sandbox_status suspend_one(struct round *round, const struct sbx_wait *wait,
                                  const sandbox_workspace_info *info, bool *active,
                                  sandbox_error *error)
{
    const sandbox_idle_options *options = round->options;
    uint64_t idle_ms = patience(options, info);
    sandbox_workspace *workspace = NULL;
    sandbox_activity activity = {SANDBOX_ACTIVITY};
    sandbox_workspace_stats stats = {SANDBOX_WORKSPACE_STATS};
    sandbox_call call = call_within(wait);
    sandbox_status status =
        sbx_workspace_new(round->client, info->name, info->id, &workspace, error);
    if (status == SANDBOX_OK)
        status = sandbox_workspace_activity(workspace, &call, &activity, error);
    bool busy = activity.tasks > 0 || activity.terminals > 0;
    bool overdue = false;
    if (status == SANDBOX_OK && busy && options->max_busy_ms != 0) {
        status = sandbox_workspace_measure(workspace, &call, &stats, error);
        overdue = stats.uptime_ms > options->max_busy_ms && activity.idle_ms >= idle_ms;
    }
    *active = (busy && !overdue) || activity.idle_ms < idle_ms;
    sandbox_suspend_options how = {SANDBOX_SUSPEND_OPTIONS,   .keep = options->keep,
                                   .force = overdue,          .interruptible = true,
                                   .checks = options->checks, .check_count = options->check_count};
    sandbox_suspend_result done = {SANDBOX_SUSPEND_RESULT};
    how.quiet_ms = idle_ms < SANDBOX_FOREVER - 1 ? (uint32_t)idle_ms : SANDBOX_FOREVER - 1;
    if (status == SANDBOX_OK && !*active)
        status = sandbox_workspace_suspend(workspace, &how, &call, &done, error);
    /* Nobody else is told that its processes have ended. */
    if (status == SANDBOX_OK && done.why_files[0] != '\0')
        sbx_log(SANDBOX_LOG_WARNING, "of '%s' only the files were kept: %s", info->name,
                done.why_files);
    sandbox_workspace_free(workspace);
    return status;
}

static void look_at(struct round *round, const struct sbx_wait *wait,
                    const sandbox_workspace_info *info)
{
    sandbox_error error = {0};
    bool active = false;
    sandbox_status status = suspend_one(round, wait, info, &active, &error);
    if (status == SANDBOX_OK && !active) {
        count(round, &round->result.suspended);
    } else if (active || status == SANDBOX_BUSY) {
        count(round, &round->result.active);
    } else if (status != SANDBOX_CLOSED && status != SANDBOX_SUSPENDED) {
        count(round, &round->result.failed);
        sbx_log(SANDBOX_LOG_WARNING, "'%s' was not suspended: %s", info->name, error.message);
    }
}
