/*
 * Faults that users of such systems have met in public, as tests over the public API. The ids are
 * those of the project's list of cases. SANDBOX_TEST_COUNT says how large the counts are.
 */

#include "checks.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static sandbox_client *client;
static sandbox_workspace *workspace;

static void set_up(void)
{
    const char *const env[] = {"FROM_WORKSPACE=yes", "SECRET=s3cr3t-value-of-the-test", NULL};
    contract_open("cases", env, &client, &workspace);
}

static void tear_down(void)
{
    contract_close(client, workspace);
}

static sandbox_process_result *run_limited(const char *command, size_t limit)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = command};
    sandbox_run_options how = {SANDBOX_RUN_OPTIONS, .output_limit = limit};
    sandbox_process_result *result = NULL;
    good(sandbox_process_run(workspace, &options, &how, NULL, &result, &error));
    return result;
}

static sandbox_process_result *run(const char *command)
{
    return run_limited(command, 0);
}

static sandbox_process *start(const sandbox_process_options *options)
{
    sandbox_process *process = NULL;
    good(sandbox_process_start(workspace, options, NULL, &process, &error));
    return process;
}

/* Nobody of that command line is left inside. */
static bool is_gone(void *command)
{
    char line[200];
    snprintf(line, sizeof line,
             "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c '[%c]%s'",
             ((char *)command)[0], (char *)command + 1);
    sandbox_process_result *result = run(line);
    bool gone = atoi((const char *)result->output) == 0;
    sandbox_process_result_free(result);
    return gone;
}

/* P002: each stream has a budget of its own. */
START_TEST(a_flood_of_output_does_not_push_the_diagnostic_out)
{
    sandbox_process_result *result =
        run_limited("head -c 100001 /dev/zero; echo why it failed >&2; exit 1", 100000);
    ck_assert_uint_eq(result->output_size, 100000);
    ck_assert_uint_eq(result->output_total, 100001);
    ck_assert(result->output_truncated && !result->errors_truncated);
    ck_assert_str_eq((const char *)result->errors, "why it failed\n");
    ck_assert_int_eq(result->exit.code, 1);
    sandbox_process_result_free(result);
}
END_TEST

/* P004: nothing of what a command printed is lost when it ends at once and the reader is slow. */
START_TEST(a_print_and_exit_is_complete_with_a_slow_reader)
{
    for (unsigned long count = contract_count(20); count > 0; count--) {
        sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "seq 1 100000"};
        sandbox_process *process = start(&options);
        sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
        uint64_t total = 0;
        unsigned long number = 0, expected = 1;
        while (event.kind != SANDBOX_PROCESS_EXIT) {
            good(sandbox_process_next(process, NULL, &event, &error));
            ck_assert_uint_eq(event.dropped, 0);
            for (size_t at = 0; at < event.data_size; at++) {
                if (event.data[at] != '\n') {
                    number = number * 10 + (unsigned long)(event.data[at] - '0');
                    continue;
                }
                ck_assert_uint_eq(number, expected);
                expected++;
                number = 0;
            }
            total += event.data_size;
            sched_yield();
        }
        ck_assert_uint_eq(total, 588895);
        ck_assert_int_eq(event.exit.code, 0);
        sandbox_process_free(process);
    }
}
END_TEST

/* What a sanitizer keeps of freed memory, and its shadow, is not the library's. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLACK_KIB (320ul * 1024)
#else
#define SLACK_KIB (24ul * 1024)
#endif

static unsigned long resident_kib(void)
{
    char line[256];
    unsigned long kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        (void)sscanf(line, "VmRSS: %lu kB", &kib);
    if (file != NULL)
        fclose(file);
    return kib;
}

/* P006, P034: whatever is printed, memory stays flat in the library and in the agent. */
START_TEST(much_output_leaves_memory_flat)
{
    unsigned long mib = contract_count(20) >= 200 ? 1024 : 64;
    char command[100];
    snprintf(command, sizeof command, "head -c %luM /dev/zero", mib);
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = command};
    sandbox_workspace_stats before = {SANDBOX_WORKSPACE_STATS}, after = {SANDBOX_WORKSPACE_STATS};
    good(sandbox_workspace_measure(workspace, NULL, &before, &error));
    sandbox_process *process = start(&options);
    sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
    uint64_t total = 0;
    unsigned long resident = resident_kib();
    while (event.kind != SANDBOX_PROCESS_EXIT) {
        good(sandbox_process_next(process, NULL, &event, &error));
        total += event.data_size;
    }
    ck_assert_uint_eq(total, (uint64_t)mib << 20);
    good(sandbox_workspace_measure(workspace, NULL, &after, &error));
    ck_assert_uint_lt(resident_kib(), resident + SLACK_KIB);
    ck_assert_uint_lt(after.agent_memory_bytes, before.agent_memory_bytes + (24u << 20));
    sandbox_process_free(process);
}
END_TEST

/* P016: both streams are read at once. */
START_TEST(a_megabyte_of_errors_before_any_output_does_not_block)
{
    sandbox_process_result *result = run("head -c 1048576 /dev/zero >&2; echo out");
    ck_assert_uint_eq(result->errors_size, 1048576);
    ck_assert_str_eq((const char *)result->output, "out\n");
    sandbox_process_result_free(result);
}
END_TEST

/* P024: no shell session stands between the commands. */
START_TEST(a_heredoc_is_just_a_command)
{
    sandbox_process_result *result = run("cat << 'EOF'\n$HOME `id`\nEOF\n");
    ck_assert_str_eq((const char *)result->output, "$HOME `id`\n");
    sandbox_process_result_free(result);
    result = run("cat << 'EOF'\nnever ended");
    sandbox_process_result_free(result);
    result = run("echo next");
    ck_assert_str_eq((const char *)result->output, "next\n");
    sandbox_process_result_free(result);
}
END_TEST

/* P033: a terminal and a background command have the workspace's environment too. */
START_TEST(the_workspaces_environment_is_in_terminals_too)
{
    sandbox_process_options options = {
        SANDBOX_PROCESS_OPTIONS, .command = "echo $FROM_WORKSPACE; (echo $FROM_WORKSPACE) & wait",
        .terminal = true, .rows = 43, .columns = 132};
    sandbox_process_result *result = NULL;
    good(sandbox_process_run(workspace, &options, NULL, NULL, &result, &error));
    ck_assert_str_eq((const char *)result->output, "yes\r\nyes\r\n");
    sandbox_process_result_free(result);
    options.command = "stty size"; /* P083 */
    good(sandbox_process_run(workspace, &options, NULL, NULL, &result, &error));
    ck_assert_str_eq((const char *)result->output, "43 132\r\n");
    sandbox_process_result_free(result);
    options.command = "exit 7"; /* P152 */
    good(sandbox_process_run(workspace, &options, NULL, NULL, &result, &error));
    ck_assert_int_eq(result->exit.code, 7);
    sandbox_process_result_free(result);
}
END_TEST

/* Something runs that has three descendants. */
static bool is_under_way(void *unused)
{
    sandbox_process_list *list = NULL;
    bool found = false;
    if (sandbox_process_list_all(workspace, NULL, &list, NULL) != SANDBOX_OK)
        return false;
    for (size_t n = 0; n < sandbox_process_list_count(list); n++)
        found = found || sandbox_process_list_at(list, n)->descendants >= 3;
    sandbox_process_list_free(list);
    return found;
}

static void *cancel_once_it_runs(void *cancel)
{
    (void)harness_await(is_under_way, NULL);
    sandbox_cancel_trigger(cancel);
    return NULL;
}

/* P054, P155: a cancelled run says so, and everything it started is gone. */
START_TEST(cancelling_a_run_ends_all_of_it)
{
    sandbox_cancel *cancel = NULL;
    pthread_t helper;
    good(sandbox_cancel_create(&cancel, &error));
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = SANDBOX_FOREVER, .cancel = cancel};
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS,
                                       .command = "setsid sleep 98701 & sleep 98701 | cat"};
    sandbox_process_result *result = NULL;
    ck_assert_int_eq(pthread_create(&helper, NULL, cancel_once_it_runs, cancel), 0);
    bad(SANDBOX_CANCELLED, sandbox_process_run(workspace, &options, NULL, &call, &result, &error));
    pthread_join(helper, NULL);
    ck_assert_uint_eq(strlen(error.process_id), 32);
    ck_assert(harness_await(is_gone, (void *)(uintptr_t) "sleep 98701"));
    sandbox_cancel_free(cancel);
}
END_TEST

/* P054: deleting a workspace under a running command ends its stream with a plain word. */
START_TEST(deleting_under_a_stream_ends_it_with_a_status)
{
    sandbox_workspace *other = NULL;
    sandbox_workspace_options how = {SANDBOX_WORKSPACE_OPTIONS, .name = "cases-other"};
    good(sandbox_workspace_open(client, &how, NULL, &other, &error));
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "exec sleep 98702"};
    sandbox_process *process = NULL;
    good(sandbox_process_start(other, &options, NULL, &process, &error));
    good(sandbox_workspace_delete(other, NULL, &error));
    sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
    bad(SANDBOX_CLOSED, sandbox_process_next(process, NULL, &event, &error));
    sandbox_process_free(process);
    sandbox_workspace_free(other);
}
END_TEST

/* P074: bytes come as they were written, wherever the pieces are cut. */
START_TEST(a_character_in_three_writes_comes_as_its_bytes)
{
    sandbox_process_result *result =
        run("printf '\\342'; sleep 0.1; printf '\\211'; sleep 0.1; printf '\\244'");
    ck_assert_uint_eq(result->output_size, 3);
    ck_assert(memcmp(result->output, "\xe2\x89\xa4", 3) == 0);
    sandbox_process_result_free(result);
}
END_TEST

/* P075, P191: no limit on a line. */
START_TEST(a_line_of_ten_megabytes_is_one_line)
{
    sandbox_process_result *result =
        run("head -c 10485758 /dev/zero | tr '\\0' x; printf '\\327\\251'; echo");
    ck_assert_uint_eq(result->output_size, 10485761);
    ck_assert_ptr_eq(memchr(result->output, '\n', result->output_size), result->output + 10485760);
    sandbox_process_result_free(result);
}
END_TEST

/* P080: a background server has no deadline; its whole tree is seen and goes with one signal. */
START_TEST(a_background_tree_is_listed_and_ended_as_one)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS,
                                       .command = "sleep 98703 & setsid sleep 98703 & wait",
                                       .role = SANDBOX_ROLE_SERVICE};
    sandbox_process *process = start(&options);
    bool listed = false;
    for (unsigned tries = 0; tries < 200 && !listed; tries++) {
        sandbox_process_list *list = NULL;
        good(sandbox_process_list_all(workspace, NULL, &list, &error));
        for (size_t n = 0; n < sandbox_process_list_count(list); n++) {
            const sandbox_process_info *info = sandbox_process_list_at(list, n);
            listed = listed || (strcmp(info->id, sandbox_process_id(process)) == 0 &&
                                info->running && info->descendants == 2);
        }
        sandbox_process_list_free(list);
    }
    ck_assert(listed);
    good(sandbox_process_signal(process, SIGKILL, NULL, &error));
    ck_assert(harness_await(is_gone, (void *)(uintptr_t) "sleep 98703"));
    sandbox_process_free(process);
}
END_TEST

/* P032, P077, P078: a deadline ends those too that left the session. */
START_TEST(a_deadline_ends_every_descendant)
{
    sandbox_process_options options = {
        SANDBOX_PROCESS_OPTIONS,
        .command = "setsid sh -c 'sleep 98704; touch after' & (sleep 98704; touch after) & wait",
        .deadline_ms = 200};
    sandbox_process_result *result = NULL;
    good(sandbox_process_run(workspace, &options, NULL, NULL, &result, &error));
    ck_assert(result->exit.timed_out);
    ck_assert_int_eq(result->exit.signal, SIGKILL);
    sandbox_process_result_free(result);
    ck_assert(harness_await(is_gone, (void *)(uintptr_t) "sleep 98704"));
    result = run("ls");
    ck_assert_str_eq((const char *)result->output, "");
    sandbox_process_result_free(result);
}
END_TEST

/* P157: a start is told at once, not with the first output. */
START_TEST(a_silent_command_is_started_all_the_same)
{
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = 15000};
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "exec sleep 98705"};
    sandbox_process *process = NULL;
    good(sandbox_process_start(workspace, &options, &call, &process, &error));
    ck_assert_int_gt(sandbox_process_pid(process), 1);
    good(sandbox_process_signal(process, SIGKILL, NULL, &error));
    sandbox_process_free(process);
}
END_TEST

/* P087, P088: orphans are reaped. */
START_TEST(no_orphan_stays_a_zombie)
{
    char command[200];
    snprintf(command, sizeof command,
             "i=0; while [ $i -lt %lu ]; do (true & true & true &) ; i=$((i+1)); done",
             contract_count(20) * 5);
    sandbox_process_result_free(run(command));
    sandbox_process_result *result =
        run("sleep 0.2; cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '");
    if (!harness_is_memory())
        ck_assert_str_eq((const char *)result->output, "0\n");
    sandbox_process_result_free(result);
}
END_TEST

/* P126: what commands have in their environment is never written down on this machine. */
START_TEST(the_environment_is_in_no_file_of_the_driver)
{
    sandbox_process_result *result = run("echo $SECRET");
    ck_assert_str_eq((const char *)result->output, "s3cr3t-value-of-the-test\n");
    sandbox_process_result_free(result);
    if (harness_is_cluster()) {
        static const char *const kept[] = {"configmaps", "secrets", "sandboxclaims",
                                           "sandboxes",  "pods",    "events"};
        for (size_t n = 0; n < sizeof kept / sizeof kept[0]; n++) {
            cJSON *answer = harness_ask("{\"do\":\"objects\",\"resource\":\"%s\"}", kept[n]);
            char *text = cJSON_PrintUnformatted(answer);
            ck_assert(text != NULL && strstr(text, "s3cr3t-value") == NULL);
            cJSON_free(text);
            cJSON_Delete(answer);
        }
        return;
    }
    char place[600], command[800];
    snprintf(place, sizeof place, "%s", strchr(harness_uri(), ':') + 1);
    place[strcspn(place, "?")] = '\0';
    *strrchr(place, '/') = '\0';
    snprintf(command, sizeof command, "grep -rqs --exclude-dir=base s3cr3t-value '%s'", place);
    FILE *search = popen(command, "re");
    ck_assert_ptr_nonnull(search);
    ck_assert_int_eq(WEXITSTATUS(pclose(search)), 1); /* nothing found */
}
END_TEST

/* P175: the user's further groups count. */
START_TEST(the_user_is_who_it_should_be)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "id -u; id -g",
                                       .user = harness_user()};
    sandbox_process_result *result = NULL;
    good(sandbox_process_run(workspace, &options, NULL, NULL, &result, &error));
    ck_assert_str_eq((const char *)result->output,
                     harness_is_cluster() ? "1000\n1000\n" : "0\n0\n");
    sandbox_process_result_free(result);
    if (harness_is_cluster())
        return; /* a Pod's programs cannot become anybody else */
    options.user = "1234:5678";
    good(sandbox_process_run(workspace, &options, NULL, NULL, &result, &error));
    ck_assert_str_eq((const char *)result->output, "1234\n5678\n");
    sandbox_process_result_free(result);
    options.user = "nobody-of-this-name";
    bad(SANDBOX_NOT_FOUND, sandbox_process_run(workspace, &options, NULL, NULL, &result, &error));
}
END_TEST

/* P188, P189: the directory is a path, not a piece of shell. */
START_TEST(a_missing_directory_runs_nothing)
{
    static const char *const missing[] = {"/missing", "$(touch pwn)", "a'b\nc", "-x"};
    for (size_t n = 0; n < sizeof missing / sizeof missing[0]; n++) {
        sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "touch marker",
                                           .directory = missing[n]};
        sandbox_process *process = NULL;
        bad(SANDBOX_NOT_FOUND, sandbox_process_start(workspace, &options, NULL, &process, &error));
        ck_assert_str_eq(error.reason, "no-such-directory");
    }
    sandbox_process_result *result = run("ls");
    ck_assert_str_eq((const char *)result->output, "");
    sandbox_process_result_free(result);
}
END_TEST

struct many {
    pthread_t thread;
    int number;
    sandbox_status status;
    bool right;
};

static void *run_one(void *user_data)
{
    struct many *one = user_data;
    char command[64], expected[32];
    snprintf(command, sizeof command, "echo %d; exit %d", one->number, one->number);
    snprintf(expected, sizeof expected, "%d\n", one->number);
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = command};
    sandbox_process_result *result = NULL;
    one->status = sandbox_process_run(workspace, &options, NULL, NULL, &result, NULL);
    one->right = one->status == SANDBOX_OK && result->exit.code == one->number &&
                 strcmp((const char *)result->output, expected) == 0;
    sandbox_process_result_free(result);
    return NULL;
}

/* P010, P177: sixty-four commands at once, each with its own output and code. */
START_TEST(sixty_four_commands_run_side_by_side)
{
    struct many many[64];
    for (int n = 0; n < 64; n++) {
        many[n] = (struct many){.number = n};
        ck_assert_int_eq(pthread_create(&many[n].thread, NULL, run_one, &many[n]), 0);
    }
    for (int n = 0; n < 64; n++) {
        pthread_join(many[n].thread, NULL);
        ck_assert_msg(many[n].right, "%d: %s", n, sandbox_status_name(many[n].status));
    }
}
END_TEST

static Suite *make(void)
{
    Suite *suite = suite_create("cases");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 900);
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, a_flood_of_output_does_not_push_the_diagnostic_out);
    tcase_add_test(all, a_print_and_exit_is_complete_with_a_slow_reader);
    tcase_add_test(all, much_output_leaves_memory_flat);
    tcase_add_test(all, a_megabyte_of_errors_before_any_output_does_not_block);
    tcase_add_test(all, a_heredoc_is_just_a_command);
    tcase_add_test(all, the_workspaces_environment_is_in_terminals_too);
    tcase_add_test(all, cancelling_a_run_ends_all_of_it);
    tcase_add_test(all, deleting_under_a_stream_ends_it_with_a_status);
    tcase_add_test(all, a_character_in_three_writes_comes_as_its_bytes);
    tcase_add_test(all, a_line_of_ten_megabytes_is_one_line);
    tcase_add_test(all, a_background_tree_is_listed_and_ended_as_one);
    tcase_add_test(all, a_deadline_ends_every_descendant);
    tcase_add_test(all, a_silent_command_is_started_all_the_same);
    tcase_add_test(all, no_orphan_stays_a_zombie);
    tcase_add_test(all, the_environment_is_in_no_file_of_the_driver);
    tcase_add_test(all, the_user_is_who_it_should_be);
    tcase_add_test(all, a_missing_directory_runs_nothing);
    tcase_add_test(all, sixty_four_commands_run_side_by_side);
    suite_add_tcase(suite, all);
    return suite;
}

int main(void)
{
    return contract_main(make);
}
