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

#define IDLE_CALL_MS 600000u
#define IDLE_DEFAULT_MS 900000u /* 15 minutes */
#define PARALLEL_DEFAULT 4u
#define PARALLEL_MAX 64u

struct round {
    sandbox_client *client;
    const sandbox_idle_options *options;
    const struct sbx_wait *wait;
    const sandbox_workspace_list *list;
    pthread_mutex_t lock; /* of what follows */
    size_t next;
    sandbox_idle_result result;
};

static void *work(void *user_data);
static void look_at(struct round *round, const sandbox_workspace_info *info);

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
    sandbox_call listing = {SANDBOX_CALL, .timeout_ms = sbx_wait_left_ms(&wait),
                            .cancel = wait.cancel};
    status = sandbox_workspace_list_all(client, &which, &listing, &list, error);
    if (status != SANDBOX_OK)
        return status;

    struct round round = {.client = client, .options = &options, .wait = &wait, .list = list,
                          .result = {SANDBOX_IDLE_RESULT}};
    pthread_mutex_init(&round.lock, NULL);
    uint32_t parallel = options.parallel == 0 ? PARALLEL_DEFAULT : options.parallel;
    pthread_t threads[PARALLEL_MAX];
    uint32_t begun = 0;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    /* Fewer threads only take longer. */
    while (begun + 1 < parallel && begun + 1 < sandbox_workspace_list_count(list) &&
           pthread_create(&threads[begun], NULL, work, &round) == 0)
        begun++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    work(&round);
    for (uint32_t n = 0; n < begun; n++)
        pthread_join(threads[n], NULL);
    pthread_mutex_destroy(&round.lock);
    sandbox_workspace_list_free(list);
    status = sbx_wait_check(&wait, error);
    if (status == SANDBOX_OK && result != NULL)
        status = sbx_options_fill(result, &round.result, sizeof round.result, error);
    return status;
}

static void *work(void *user_data)
{
    struct round *round = user_data;
    while (sbx_wait_left_ms(round->wait) > 0 &&
           !(round->wait->cancel != NULL && sbx_cancel_triggered(round->wait->cancel))) {
        pthread_mutex_lock(&round->lock);
        const sandbox_workspace_info *info = sandbox_workspace_list_at(round->list, round->next++);
        pthread_mutex_unlock(&round->lock);
        if (info == NULL)
            break;
        if (info->state == SANDBOX_STATE_RUNNING && *info->operation == '\0')
            look_at(round, info);
    }
    return NULL;
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
static sandbox_status suspend_one(struct round *round, const sandbox_workspace_info *info,
                                  bool *active, sandbox_error *error)
{
    const sandbox_idle_options *options = round->options;
    uint64_t idle_ms = patience(options, info);
    sandbox_workspace *workspace = NULL;
    sandbox_activity activity = {SANDBOX_ACTIVITY};
    sandbox_workspace_stats stats = {SANDBOX_WORKSPACE_STATS};
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = sbx_wait_left_ms(round->wait),
                         .cancel = round->wait->cancel};
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
    sandbox_suspend_options how = {SANDBOX_SUSPEND_OPTIONS, .keep = options->keep,
                                   .force = overdue, .interruptible = true,
                                   .checks = options->checks,
                                   .check_count = options->check_count};
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

static void look_at(struct round *round, const sandbox_workspace_info *info)
{
    sandbox_error error = {0};
    bool active = false;
    sandbox_status status = suspend_one(round, info, &active, &error);
    if (status == SANDBOX_OK && !active) {
        count(round, &round->result.suspended);
    } else if (active || status == SANDBOX_BUSY) {
        count(round, &round->result.active);
    } else if (status != SANDBOX_CLOSED && status != SANDBOX_SUSPENDED) {
        count(round, &round->result.failed);
        sbx_log(SANDBOX_LOG_WARNING, "'%s' was not suspended: %s", info->name, error.message);
    }
}
