/*
 * Suspend, resume, checkpoint, and what is left of a workspace in between, over every driver. The
 * ids are those of the project's list of cases.
 */

#include "checks.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sandbox_client *client;
static sandbox_workspace *workspace;

static void set_up(void)
{
    const char *const env[] = {"FROM_WORKSPACE=yes", NULL};
    contract_open("sleeper", env, &client, &workspace);
    if (!sandbox_client_can(client, SANDBOX_CAN_KEEP_MEMORY))
        ck_abort_msg("this driver keeps no memory");
}

static void tear_down(void)
{
    contract_close(client, workspace);
}

/* ---- a process that counts, and says so line by line ---- */

struct counter {
    sandbox_process *process;
    unsigned long next, partial;
};

static void counter_start(struct counter *counter)
{
    sandbox_process_options options = {
        SANDBOX_PROCESS_OPTIONS, .role = SANDBOX_ROLE_SERVICE,
        .command = "n=0; while :; do echo $n; n=$((n+1)); sleep 0.02; done"};
    *counter = (struct counter){0};
    good(sandbox_process_start(workspace, &options, NULL, &counter->process, &error));
}

/* Reads until `lines` more have come; each must be the last one's successor. */
static void counter_read(struct counter *counter, unsigned long lines)
{
    unsigned long until = counter->next + lines;
    while (counter->next < until) {
        sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
        good(sandbox_process_next(counter->process, NULL, &event, &error));
        ck_assert_int_eq(event.kind, SANDBOX_PROCESS_STDOUT);
        ck_assert_uint_eq(event.dropped, 0);
        for (size_t at = 0; at < event.data_size; at++) {
            if (event.data[at] != '\n') {
                counter->partial = counter->partial * 10 + (unsigned long)(event.data[at] - '0');
                continue;
            }
            ck_assert_uint_eq(counter->partial, counter->next);
            counter->next++;
            counter->partial = 0;
        }
    }
}

static void counter_end(struct counter *counter)
{
    sandbox_process_free(counter->process);
}

static sandbox_state state_of(void)
{
    sandbox_workspace_list *list = NULL;
    good(sandbox_workspace_inspect(workspace, NULL, &list, &error));
    sandbox_state state = sandbox_workspace_list_at(list, 0)->state;
    sandbox_workspace_list_free(list);
    return state;
}

static void put(const char *path, const char *text)
{
    good(sandbox_file_write(workspace, path, text, strlen(text), NULL, NULL, &error));
}

static bool has(const char *path, const char *text)
{
    uint8_t *data = NULL;
    size_t size = 0;
    sandbox_status status = sandbox_file_read(workspace, path, NULL, NULL, &data, &size, &error);
    bool same = status == SANDBOX_OK && size == strlen(text) && memcmp(data, text, size) == 0;
    ck_assert_msg(status == SANDBOX_OK || status == SANDBOX_NOT_FOUND, "%s", error.message);
    sandbox_bytes_free(data);
    return same;
}

static void run_prints(const char *command, const char *expected)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = command};
    sandbox_process_result *result = NULL;
    good(sandbox_process_run(workspace, &options, NULL, NULL, &result, &error));
    ck_assert_str_eq((const char *)result->output, expected);
    sandbox_process_result_free(result);
}

static sandbox_suspend_result suspend_keeping(sandbox_keep keep)
{
    sandbox_suspend_options options = {SANDBOX_SUSPEND_OPTIONS, .keep = keep};
    sandbox_suspend_result result = {SANDBOX_SUSPEND_RESULT};
    good(sandbox_workspace_suspend(workspace, &options, NULL, &result, &error));
    ck_assert_int_eq(state_of(), SANDBOX_STATE_SUSPENDED);
    return result;
}

static sandbox_resume_result resume_from(const char *snapshot)
{
    sandbox_resume_options options = {SANDBOX_RESUME_OPTIONS, .snapshot = snapshot};
    sandbox_resume_result result = {SANDBOX_RESUME_RESULT};
    good(sandbox_workspace_resume(workspace, &options, NULL, &result, &error));
    ck_assert_int_eq(state_of(), SANDBOX_STATE_RUNNING);
    return result;
}

/* P004 of a suspend: same handle, same numbers, nothing lost and nothing twice. */
START_TEST(a_process_goes_on_where_it_was)
{
    struct counter counter;
    counter_start(&counter);
    counter_read(&counter, 5);
    put("kept", "before");
    sandbox_suspend_result slept = suspend_keeping(SANDBOX_KEEP_MEMORY);
    ck_assert_int_eq(slept.kept, SANDBOX_KEEP_MEMORY);
    ck_assert_uint_ge(slept.stopped, 1);
    ck_assert(slept.bytes > 0 || harness_is_cluster()); /* GKE does not tell */
    if (harness_is_memory())
        ck_assert_int_eq(harness_count("instances"), 0);

    sandbox_resume_result woke = resume_from(NULL);
    ck_assert(woke.restored);
    ck_assert_int_eq(woke.proof, SANDBOX_PROOF_MEMORY);
    ck_assert_int_eq(woke.kept, SANDBOX_KEEP_MEMORY);
    ck_assert_uint_eq(woke.attempts, 1);
    ck_assert_uint_ge(woke.continued, 1);
    ck_assert_str_eq(woke.snapshot, slept.snapshot);
    counter_read(&counter, 20);
    ck_assert(has("kept", "before"));
    run_prints("echo $FROM_WORKSPACE", "yes\n");
    counter_end(&counter);
}
END_TEST

/* Work on a suspended workspace says so, and works again afterwards. P022, P057. */
START_TEST(work_on_a_suspended_workspace_is_refused_by_name)
{
    struct counter counter;
    counter_start(&counter);
    counter_read(&counter, 1);
    suspend_keeping(SANDBOX_KEEP_MEMORY);
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "true"};
    sandbox_process *process = NULL;
    sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
    bad(SANDBOX_SUSPENDED, sandbox_process_start(workspace, &options, NULL, &process, &error));
    ck_assert_str_eq(error.reason, "suspended");
    sandbox_status status = SANDBOX_OK;
    while (status == SANDBOX_OK) /* what had come before is still to be had */
        status = sandbox_process_next(counter.process, NULL, &event, &error);
    ck_assert_int_eq(status, SANDBOX_SUSPENDED);
    resume_from(NULL);
    run_prints("echo again", "again\n");
    counter_end(&counter);
}
END_TEST

START_TEST(a_running_task_is_active_and_is_named)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "sleep 1000"};
    sandbox_process *process = NULL;
    good(sandbox_process_start(workspace, &options, NULL, &process, &error));
    bad(SANDBOX_BUSY, sandbox_workspace_suspend(workspace, NULL, NULL, NULL, &error));
    ck_assert_str_eq(error.reason, "active");
    ck_assert_ptr_nonnull(strstr(error.message, "sleep 1000"));
    ck_assert_int_eq(state_of(), SANDBOX_STATE_RUNNING);
    run_prints("echo still here", "still here\n");

    sandbox_suspend_options force = {SANDBOX_SUSPEND_OPTIONS, .force = true};
    good(sandbox_workspace_suspend(workspace, &force, NULL, NULL, &error));
    resume_from(NULL);
    good(sandbox_process_signal(process, 9, NULL, &error));
    sandbox_process_exit end;
    good(sandbox_process_wait(process, NULL, &end, &error));
    ck_assert_int_eq(end.signal, 9);
    sandbox_process_free(process);
}
END_TEST

static bool keeps_files(void)
{
    return sandbox_client_can(client, SANDBOX_CAN_KEEP_FILES);
}

/* Never a silent downgrade, and never less than was asked for. */
START_TEST(files_alone_are_refused_where_they_cannot_be_kept)
{
    sandbox_suspend_options options = {SANDBOX_SUSPEND_OPTIONS, .keep = SANDBOX_KEEP_FILES};
    if (keeps_files())
        return;
    bad(SANDBOX_UNSUPPORTED, sandbox_workspace_suspend(workspace, &options, NULL, NULL, &error));
    ck_assert_str_eq(error.reason, "keep-files");
    ck_assert_int_eq(state_of(), SANDBOX_STATE_RUNNING);
    run_prints("echo still here", "still here\n");
    ck_assert_int_eq(suspend_keeping(SANDBOX_KEEP_BEST).kept, SANDBOX_KEEP_MEMORY);
}
END_TEST

START_TEST(keeping_files_ends_processes_and_proves_the_files)
{
    if (!keeps_files())
        return;
    struct counter counter;
    counter_start(&counter);
    counter_read(&counter, 1);
    put("a/kept", "by files");
    sandbox_suspend_result slept = suspend_keeping(SANDBOX_KEEP_FILES);
    ck_assert_int_eq(slept.kept, SANDBOX_KEEP_FILES);
    sandbox_resume_result woke = resume_from(NULL);
    ck_assert(woke.restored);
    ck_assert_int_eq(woke.proof, SANDBOX_PROOF_FILES);
    ck_assert_int_eq(woke.kept, SANDBOX_KEEP_FILES);
    ck_assert(has("a/kept", "by files"));
    sandbox_process_exit end;
    bad(SANDBOX_NOT_FOUND, sandbox_process_wait(counter.process, NULL, &end, &error));
    counter_end(&counter);
}
END_TEST

START_TEST(both_are_idempotent)
{
    sandbox_suspend_result first = suspend_keeping(SANDBOX_KEEP_MEMORY);
    sandbox_suspend_result second = suspend_keeping(SANDBOX_KEEP_MEMORY);
    ck_assert_str_eq(first.snapshot, second.snapshot);
    resume_from(NULL);
    sandbox_resume_result again = resume_from(NULL);
    ck_assert(again.restored);
    ck_assert_uint_eq(again.attempts, 0);
}
END_TEST

/* Retention, and one further back chosen. P072: all without an instance. */
START_TEST(old_snapshots_go_and_an_older_one_can_be_chosen)
{
    char ids[6][40];
    for (unsigned n = 0; n < 6; n++) {
        char text[16];
        snprintf(text, sizeof text, "%u", n);
        put("number", text);
        sandbox_suspend_result slept =
            suspend_keeping(keeps_files() ? SANDBOX_KEEP_FILES : SANDBOX_KEEP_MEMORY);
        memcpy(ids[n], slept.snapshot, sizeof ids[n]);
        if (n < 5)
            resume_from(NULL);
    }
    sandbox_snapshot_list *list = NULL;
    good(sandbox_snapshot_list_all(workspace, NULL, &list, &error));
    ck_assert_uint_eq(sandbox_snapshot_list_count(list), 3);
    const sandbox_snapshot_info *newest = sandbox_snapshot_list_at(list, 0);
    ck_assert_str_eq(newest->id, ids[5]);
    ck_assert(newest->is_recovery_point && newest->has_seal);
    ck_assert(sandbox_snapshot_list_at(list, 1)->was_proven);
    sandbox_snapshot_list_free(list);

    sandbox_resume_options options = {SANDBOX_RESUME_OPTIONS, .snapshot = ids[0]};
    bad(SANDBOX_NOT_FOUND, sandbox_workspace_resume(workspace, &options, NULL, NULL, &error));
    ck_assert_str_eq(error.reason, "no-such-snapshot");
    if (!harness_restores_again())
        return;
    sandbox_resume_result woke = resume_from(ids[3]);
    ck_assert_str_eq(woke.snapshot, ids[3]);
    ck_assert(has("number", "3"));
    bad(SANDBOX_INVALID, sandbox_snapshot_delete(workspace, ids[3], NULL, &error));
    good(sandbox_snapshot_delete(workspace, ids[4], NULL, &error));
    good(sandbox_snapshot_delete(workspace, ids[4], NULL, &error));
    sandbox_verification seen = {SANDBOX_VERIFICATION};
    bad(SANDBOX_NOT_FOUND, sandbox_snapshot_verify(workspace, ids[4], NULL, &seen, &error));
    good(sandbox_snapshot_verify(workspace, ids[5], NULL, &seen, &error));
    ck_assert_int_eq(seen.verdict, SANDBOX_VERDICT_INTACT);
}
END_TEST

/* What came after the snapshot was kept beside it, and can be had. */
static void check_live_files_are_kept(void)
{
    sandbox_snapshot_list *snapshots = NULL;
    good(sandbox_snapshot_list_all(workspace, NULL, &snapshots, &error));
    ck_assert_uint_eq(sandbox_snapshot_list_count(snapshots), 2);
    const sandbox_snapshot_info *live = sandbox_snapshot_list_at(snapshots, 0);
    ck_assert(!live->has_seal && !live->is_recovery_point);
    char id[40];
    snprintf(id, sizeof id, "%s", live->id);
    sandbox_snapshot_list_free(snapshots);
    suspend_keeping(SANDBOX_KEEP_FILES);
    sandbox_resume_result woke = resume_from(id);
    ck_assert_int_eq(woke.proof, SANDBOX_PROOF_FILES);
    ck_assert(has("text", "after it"));
}

/* A checkpoint runs on; a lost instance falls back to it, and loses nothing unasked. */
START_TEST(a_checkpoint_is_what_a_loss_falls_back_to)
{
    if (!harness_restores_again())
        return;
    struct counter counter;
    counter_start(&counter);
    counter_read(&counter, 3);
    put("text", "at the checkpoint");
    sandbox_suspend_result made = {SANDBOX_SUSPEND_RESULT};
    good(sandbox_workspace_checkpoint(workspace, NULL, NULL, &made, &error));
    ck_assert_int_eq(state_of(), SANDBOX_STATE_RUNNING);
    counter_read(&counter, 10);
    put("text", "after it");

    sandbox_workspace_list *list = NULL;
    good(sandbox_workspace_inspect(workspace, NULL, &list, &error));
    const sandbox_workspace_info *info = sandbox_workspace_list_at(list, 0);
    ck_assert_str_eq(info->snapshot, made.snapshot);
    ck_assert_int_gt(info->snapshot_ms, 0);
    harness_kill_instance(info->id, info->incarnation);
    sandbox_workspace_list_free(list);

    bad(SANDBOX_INTERRUPTED, sandbox_workspace_resume(workspace, NULL, NULL, NULL, &error));
    sandbox_resume_options from = {SANDBOX_RESUME_OPTIONS, .from = SANDBOX_FROM_SNAPSHOT,
                                   .accept = keeps_files() ? SANDBOX_ACCEPT_FILES
                                                           : SANDBOX_ACCEPT_PROVEN};
    sandbox_resume_result woke = {SANDBOX_RESUME_RESULT};
    good(sandbox_workspace_resume(workspace, &from, NULL, &woke, &error));
    ck_assert(woke.restored);
    ck_assert(has("text", "at the checkpoint"));
    if (keeps_files())
        check_live_files_are_kept();
    counter_end(&counter);
}
END_TEST

/* P050: what is given replaces, what is not stays. */
START_TEST(the_environment_is_replaced_or_kept)
{
    suspend_keeping(SANDBOX_KEEP_MEMORY);
    resume_from(NULL);
    run_prints("echo ${FROM_WORKSPACE-none}", "yes\n");
    const char *const env[] = {"OTHER=1", NULL};
    suspend_keeping(SANDBOX_KEEP_MEMORY);
    sandbox_resume_options options = {SANDBOX_RESUME_OPTIONS, .env = env};
    good(sandbox_workspace_resume(workspace, &options, NULL, NULL, &error));
    run_prints("echo ${FROM_WORKSPACE-none} $OTHER", "none 1\n");
}
END_TEST

struct opener {
    pthread_t thread;
    sandbox_status status;
    sandbox_error error;
};

static void *open_it(void *user_data)
{
    struct opener *opener = user_data;
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = "sleeper"};
    sandbox_workspace *handle = NULL;
    opener->status = sandbox_workspace_open(client, &options, NULL, &handle, &opener->error);
    sandbox_workspace_free(handle);
    return NULL;
}

/* P169: whoever comes second waits for the first. */
START_TEST(many_open_a_suspended_workspace_at_once)
{
    enum { OPENERS = 8 };
    struct opener openers[OPENERS] = {0};
    suspend_keeping(SANDBOX_KEEP_MEMORY);
    for (size_t n = 0; n < OPENERS; n++)
        ck_assert_int_eq(pthread_create(&openers[n].thread, NULL, open_it, &openers[n]), 0);
    for (size_t n = 0; n < OPENERS; n++) {
        pthread_join(openers[n].thread, NULL);
        ck_assert_msg(openers[n].status == SANDBOX_OK, "%s", openers[n].error.message);
    }
    ck_assert_int_eq(state_of(), SANDBOX_STATE_RUNNING);
    run_prints("echo here", "here\n");
}
END_TEST

static sandbox_status ask(sandbox_workspace *asked, const sandbox_call *call, void *user_data,
                          bool *active, char who[200], sandbox_error *problem)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "cat mood"};
    sandbox_process_result *result = NULL;
    sandbox_status status = sandbox_process_run(asked, &options, NULL, call, &result, problem);
    if (status != SANDBOX_OK)
        return status;
    *active = strcmp((const char *)result->output, "busy\n") == 0;
    snprintf(who, 200, "somebody in a %s mood", *active ? "busy" : "lazy");
    sandbox_process_result_free(result);
    ++*(unsigned *)user_data;
    return SANDBOX_OK;
}

/* A check works inside while others are shut out, and what it says counts. */
START_TEST(a_check_is_asked_through_the_closed_gate)
{
    unsigned asked = 0;
    sandbox_check check = {ask, &asked};
    sandbox_suspend_options options = {SANDBOX_SUSPEND_OPTIONS, .checks = &check, .check_count = 1};
    put("mood", "busy\n");
    bad(SANDBOX_BUSY, sandbox_workspace_suspend(workspace, &options, NULL, NULL, &error));
    ck_assert_ptr_nonnull(strstr(error.message, "somebody in a busy mood"));
    put("mood", "lazy\n");
    good(sandbox_workspace_suspend(workspace, &options, NULL, NULL, &error));
    ck_assert_uint_eq(asked, 2);
    resume_from(NULL);
}
END_TEST

START_TEST(idle_workspaces_are_suspended_and_active_ones_are_not)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "sleep 1000"};
    sandbox_process *process = NULL;
    sandbox_idle_options idle = {SANDBOX_IDLE_OPTIONS, .idle_ms = 1};
    sandbox_idle_result done = {SANDBOX_IDLE_RESULT};
    good(sandbox_process_start(workspace, &options, NULL, &process, &error));
    good(sandbox_client_suspend_idle(client, &idle, NULL, &done, &error));
    ck_assert_uint_eq(done.suspended, 0);
    ck_assert_uint_eq(done.active, 1);
    good(sandbox_process_signal(process, 9, NULL, &error));
    sandbox_process_exit end;
    good(sandbox_process_wait(process, NULL, &end, &error));
    sandbox_process_free(process);
    while (done.suspended == 0) { /* until a millisecond has gone by */
        good(sandbox_client_suspend_idle(client, &idle, NULL, &done, &error));
        ck_assert_uint_eq(done.failed, 0);
    }
    ck_assert_int_eq(state_of(), SANDBOX_STATE_SUSPENDED);
    idle.idle_ms = 0; /* the default: 15 minutes */
    resume_from(NULL);
    good(sandbox_client_suspend_idle(client, &idle, NULL, &done, &error));
    ck_assert_uint_eq(done.suspended, 0);
}
END_TEST

static atomic_uint asking;

/* Asks for as long as it may. */
static sandbox_status ask_for_ever(sandbox_workspace *lent, const sandbox_call *call,
                                   void *user_data, bool *active, char who[200],
                                   sandbox_error *problem)
{
    (void)user_data;
    (void)active;
    (void)who;
    const sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "exec sleep 1000",
                                             .role = SANDBOX_ROLE_SERVICE};
    sandbox_process_result *result = NULL;
    atomic_fetch_add(&asking, 1);
    sandbox_status status = sandbox_process_run(lent, &options, NULL, call, &result, problem);
    sandbox_process_result_free(result);
    return status;
}

static int when_both_are_asked(void *user_data)
{
    (void)user_data;
    return atomic_load(&asking) == 2;
}

START_TEST(a_round_over_idle_workspaces_ends_when_its_caller_is_interrupted)
{
    const sandbox_workspace_options second = {SANDBOX_WORKSPACE_OPTIONS, .name = "second"};
    sandbox_workspace *other = NULL;
    sandbox_check check = {ask_for_ever, NULL};
    sandbox_idle_options idle = {SANDBOX_IDLE_OPTIONS, .idle_ms = 1, .checks = &check,
                                 .check_count = 1, .parallel = 2};
    const sandbox_call call = {SANDBOX_CALL, .interrupted = when_both_are_asked};
    good(sandbox_workspace_create(client, &second, NULL, &other, &error));
    atomic_store(&asking, 0);
    for (sandbox_activity seen = {SANDBOX_ACTIVITY}; seen.idle_ms < 1;)
        good(sandbox_workspace_activity(other, NULL, &seen, &error));
    bad(SANDBOX_CANCELLED, sandbox_client_suspend_idle(client, &idle, &call, NULL, &error));
    ck_assert_int_eq(state_of(), SANDBOX_STATE_RUNNING);
    good(sandbox_workspace_delete(other, NULL, &error));
    sandbox_workspace_free(other);
}
END_TEST

/* The steps of a suspend and a resume, as somebody sees them who shows progress. */
START_TEST(a_watch_sees_states_and_steps_in_order)
{
    sandbox_watch *watch = NULL;
    sandbox_call look = {SANDBOX_CALL, .timeout_ms = 1};
    sandbox_event event = {SANDBOX_EVENT};
    char seen[512] = "";
    good(sandbox_client_watch(client, &watch, &error));
    suspend_keeping(SANDBOX_KEEP_MEMORY);
    resume_from(NULL);
    while (sandbox_watch_next(watch, &look, &event, &error) == SANDBOX_OK) {
        ck_assert_str_eq(event.workspace, "sleeper");
        size_t used = strlen(seen);
        if (event.kind == SANDBOX_EVENT_STATE)
            snprintf(seen + used, sizeof seen - used, "[%s]", sandbox_state_name(event.state));
        else if (event.kind == SANDBOX_EVENT_STEP)
            snprintf(seen + used, sizeof seen - used, "%s ", event.text);
    }
    ck_assert_str_eq(seen, "[suspending]quiesce activity seal snapshot verify release "
                           "[suspended][resuming]verify restore prove open [running]");
    sandbox_watch_free(watch);
}
END_TEST

struct worker {
    pthread_t thread;
    unsigned answered;
    unsigned long count;
};

/* Requests that do not care whether the workspace sleeps: resumed, then asked again. */
static void *request_all_the_time(void *user_data)
{
    struct worker *worker = user_data;
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = "sleeper"};
    for (unsigned long n = 0; n < worker->count; n++) {
        sandbox_error own = {0};
        sandbox_workspace *handle = NULL;
        sandbox_file_list *list = NULL;
        sandbox_status status = sandbox_file_stat(workspace, ".", NULL, &list, &own);
        sandbox_file_list_free(list);
        if (status == SANDBOX_SUSPENDED)
            status = sandbox_workspace_open(client, &options, NULL, &handle, &own);
        sandbox_workspace_free(handle);
        ck_assert_msg(status == SANDBOX_OK, "request %lu: %s", n, own.message);
        worker->answered++;
    }
    return NULL;
}

/* P186: aborted before the point of no return, finished after it, and every request is answered. */
START_TEST(requests_at_any_moment_of_a_suspend_are_answered)
{
    struct worker worker = {.count = contract_count(harness_is_memory() ? 100 : 10)};
    sandbox_suspend_options options = {SANDBOX_SUSPEND_OPTIONS, .interruptible = true};
    ck_assert_int_eq(pthread_create(&worker.thread, NULL, request_all_the_time, &worker), 0);
    unsigned suspended = 0, let_go = 0;
    for (unsigned n = 0; n < 10; n++) {
        sandbox_status status = sandbox_workspace_suspend(workspace, &options, NULL, NULL, &error);
        ck_assert_msg(status == SANDBOX_OK || status == SANDBOX_BUSY, "%s", error.message);
        suspended += status == SANDBOX_OK;
        let_go += status == SANDBOX_BUSY;
        if (status == SANDBOX_OK)
            good(sandbox_workspace_resume(workspace, NULL, NULL, NULL, &error));
    }
    pthread_join(worker.thread, NULL);
    ck_assert_uint_eq(worker.answered, worker.count);
    ck_assert_uint_eq(suspended + let_go, 10);
    run_prints("echo whole", "whole\n");
}
END_TEST

/* Deleting needs no instance. */
START_TEST(a_suspended_workspace_is_deleted_whole)
{
    suspend_keeping(SANDBOX_KEEP_MEMORY);
    good(sandbox_workspace_delete(workspace, NULL, &error));
    if (harness_is_memory()) {
        ck_assert_int_eq(harness_count("instances"), 0);
        ck_assert_int_eq(harness_count("directories"), 0);
        ck_assert_int_eq(harness_count("records"), 0);
    }
    bad(SANDBOX_CLOSED, sandbox_workspace_resume(workspace, NULL, NULL, NULL, &error));
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("suspend and resume");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 300);
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, a_process_goes_on_where_it_was);
    tcase_add_test(all, work_on_a_suspended_workspace_is_refused_by_name);
    tcase_add_test(all, a_running_task_is_active_and_is_named);
    tcase_add_test(all, files_alone_are_refused_where_they_cannot_be_kept);
    tcase_add_test(all, keeping_files_ends_processes_and_proves_the_files);
    tcase_add_test(all, both_are_idempotent);
    tcase_add_test(all, old_snapshots_go_and_an_older_one_can_be_chosen);
    tcase_add_test(all, a_checkpoint_is_what_a_loss_falls_back_to);
    tcase_add_test(all, the_environment_is_replaced_or_kept);
    tcase_add_test(all, many_open_a_suspended_workspace_at_once);
    tcase_add_test(all, a_check_is_asked_through_the_closed_gate);
    tcase_add_test(all, idle_workspaces_are_suspended_and_active_ones_are_not);
    tcase_add_test(all, a_round_over_idle_workspaces_ends_when_its_caller_is_interrupted);
    tcase_add_test(all, a_watch_sees_states_and_steps_in_order);
    tcase_add_test(all, requests_at_any_moment_of_a_suspend_are_answered);
    tcase_add_test(all, a_suspended_workspace_is_deleted_whole);
    suite_add_tcase(suite, all);
    return suite;
}

int main(void)
{
    return contract_main(make_suite);
}
