/* What the agent sees of work in a workspace. */

#include "checks.h"
#include <stddef.h>
#include <string.h>

static sandbox_client *client;
static sandbox_workspace *workspace;
static sandbox_activity activity;

static void set_up(void)
{
    contract_open("activity", NULL, &client, &workspace);
}

static void tear_down(void)
{
    contract_close(client, workspace);
}

static void look(void)
{
    activity = (sandbox_activity){SANDBOX_ACTIVITY};
    good(sandbox_workspace_activity(workspace, NULL, &activity, &error));
}

static bool has_terminal_job(void *unused)
{
    look();
    return activity.terminals == 1;
}

static bool has_tasks(void *count)
{
    look();
    return activity.tasks == *(uint32_t *)count;
}

static sandbox_process *start(const sandbox_process_options *options)
{
    sandbox_process *process = NULL;
    good(sandbox_process_start(workspace, options, NULL, &process, &error));
    return process;
}

START_TEST(a_fresh_workspace_is_idle_and_looking_does_not_change_that)
{
    look();
    uint64_t before_ms = activity.idle_ms;
    look();
    ck_assert_uint_eq(activity.tasks, 0);
    ck_assert_uint_eq(activity.terminals, 0);
    ck_assert(!activity.had_traffic);
    ck_assert_uint_eq(activity.traffic_idle_ms, 0);
    ck_assert_str_eq(activity.who, "");
    ck_assert_uint_ge(activity.idle_ms, before_ms);
}
END_TEST

START_TEST(a_task_is_active_and_named_and_a_service_is_not)
{
    uint32_t one = 1, none = 0;
    sandbox_process_options task = {SANDBOX_PROCESS_OPTIONS, .command = "read never # a\ttask",
                                    .input = SANDBOX_INPUT_PIPE};
    sandbox_process_options service = {SANDBOX_PROCESS_OPTIONS, .command = "read never",
                                       .input = SANDBOX_INPUT_PIPE, .role = SANDBOX_ROLE_SERVICE};
    sandbox_process *running = start(&task), *serving = start(&service);
    ck_assert(harness_await(has_tasks, &one));
    ck_assert_msg(strstr(activity.who, "read never # a task") != NULL, "%s", activity.who);
    good(sandbox_process_signal(running, 9, NULL, &error));
    ck_assert(harness_await(has_tasks, &none));
    ck_assert_str_eq(activity.who, "");
    sandbox_process_free(running);
    sandbox_process_free(serving);
}
END_TEST

START_TEST(a_terminal_is_active_while_a_job_is_in_front_and_typing_is_traffic)
{
    static const char *const argv[] = {"bash", "--norc", "--noprofile", NULL};
    static const char line[] = "cat\n";
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .argv = argv, .terminal = true};
    sandbox_process *shell = start(&options);
    good(sandbox_process_write(shell, line, sizeof line - 1, NULL, &error));
    ck_assert(harness_await(has_terminal_job, NULL));
    ck_assert_ptr_nonnull(strstr(activity.who, "terminal"));
    ck_assert(activity.had_traffic);
    good(sandbox_process_signal(shell, 9, NULL, &error));
    sandbox_process_free(shell);
}
END_TEST

START_TEST(an_older_callers_struct_is_filled_as_far_as_it_reaches)
{
    activity = (sandbox_activity){.size = offsetof(sandbox_activity, who), .who = "untouched"};
    good(sandbox_workspace_activity(workspace, NULL, &activity, &error));
    ck_assert_str_eq(activity.who, "untouched");
    bad(SANDBOX_INVALID, sandbox_workspace_activity(NULL, NULL, &activity, &error));
    bad(SANDBOX_INVALID, sandbox_workspace_activity(workspace, NULL, NULL, &error));
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("activity");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 300);
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, a_fresh_workspace_is_idle_and_looking_does_not_change_that);
    tcase_add_test(all, a_task_is_active_and_named_and_a_service_is_not);
    tcase_add_test(all, a_terminal_is_active_while_a_job_is_in_front_and_typing_is_traffic);
    tcase_add_test(all, an_older_callers_struct_is_filled_as_far_as_it_reaches);
    suite_add_tcase(suite, all);
    return suite;
}

int main(void)
{
    return contract_main(make_suite);
}
