/*
 * Processes through the public API, with the real agent. The numbers like P016 are those of the
 * list of real-world faults.
 */

#include "work_place.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

static sandbox_process *start(const char *command, sandbox_input input)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = command,
                                       .input = input};
    sandbox_process *process = NULL;
    good(sandbox_process_start(workspace, &options, &soon, &process, &error));
    return process;
}

static sandbox_process_event next(sandbox_process *process)
{
    sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
    good(sandbox_process_next(process, &soon, &event, &error));
    return event;
}

static sandbox_process_result *run_with(const char *command, const sandbox_run_options *how)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = command};
    sandbox_process_result *result = NULL;
    good(sandbox_process_run(workspace, &options, how, &soon, &result, &error));
    return result;
}

/* How many bytes come until the end; each must come once. */
static uint64_t count_output(sandbox_process *process, uint64_t expected_offset)
{
    uint64_t total = 0;
    for (;;) {
        sandbox_process_event event = next(process);
        if (event.kind == SANDBOX_PROCESS_EXIT)
            return total;
        ck_assert_uint_eq(event.offset, expected_offset + total);
        ck_assert_uint_eq(event.dropped, 0);
        total += event.data_size;
    }
}

/* ---- run ---- */

START_TEST(each_stream_has_its_own_budget_P002_P003)
{
    sandbox_run_options how = {SANDBOX_RUN_OPTIONS, .output_limit = 100000};
    sandbox_process_result *result =
        run_with("head -c 100001 /dev/zero; echo line >&2; exit 1", &how);
    ck_assert_int_eq(result->exit.code, 1);
    ck_assert_uint_eq(result->output_size, 100000);
    ck_assert_uint_eq(result->output_total, 100001);
    ck_assert(result->output_truncated && !result->errors_truncated);
    ck_assert_str_eq((const char *)result->errors, "line\n");
    sandbox_process_result_free(result);
}
END_TEST

START_TEST(a_run_feeds_and_reads_at_the_same_time_P016)
{
    size_t size = 8 * MIB + 5;
    uint8_t *input = malloc(size);
    for (size_t at = 0; at < size; at++)
        input[at] = (uint8_t)(at * 7 + at / 253);
    sandbox_run_options how = {SANDBOX_RUN_OPTIONS, .input = input, .input_size = size};
    sandbox_process_result *result = run_with("head -c 1000000 /dev/zero >&2; cat", &how);
    ck_assert_uint_eq(result->errors_size, 1000000);
    ck_assert_uint_eq(result->output_size, size);
    ck_assert(memcmp(result->output, input, size) == 0);
    sandbox_process_result_free(result);
    free(input);
}
END_TEST

START_TEST(a_command_that_does_not_read_its_input_is_no_failure)
{
    size_t size = 4 * MIB;
    char *input = calloc(1, size);
    sandbox_run_options how = {SANDBOX_RUN_OPTIONS, .input = input, .input_size = size};
    sandbox_process_result *result = run_with("exit 3", &how);
    ck_assert_int_eq(result->exit.code, 3);
    sandbox_process_result_free(result);
    result = run_with("exec <&-; echo still here", &how);
    ck_assert_str_eq((const char *)result->output, "still here\n");
    sandbox_process_result_free(result);
    free(input);
}
END_TEST

START_TEST(without_input_a_command_reads_its_end_P014_P025)
{
    sandbox_process_result *result = run_with("cat; echo done", NULL);
    ck_assert_str_eq((const char *)result->output, "done\n");
    sandbox_process_result_free(result);
    sandbox_run_options empty = {SANDBOX_RUN_OPTIONS, .input = "", .input_size = 0};
    result = run_with("cat; echo done", &empty);
    ck_assert_str_eq((const char *)result->output, "done\n");
    sandbox_process_result_free(result);
}
END_TEST

START_TEST(bytes_are_bytes_P156_P191)
{
    sandbox_process_result *result = run_with("printf 'a\\n\\n\\nb\\r\\n\\n\\000\\377'", NULL);
    ck_assert_uint_eq(result->output_size, 10);
    ck_assert_mem_eq(result->output, "a\n\n\nb\r\n\n\0\xff", 10);
    sandbox_process_result_free(result);
    result = run_with("head -c 10000000 /dev/zero | tr '\\0' x", NULL);
    ck_assert_uint_eq(result->output_size, 10000000);
    sandbox_process_result_free(result);
}
END_TEST

START_TEST(a_run_that_takes_too_long_is_killed_and_named_P032_P077)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "sleep 60 & wait"};
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = 200};
    sandbox_process_result *result = NULL;
    bad(SANDBOX_TIMED_OUT, sandbox_process_run(workspace, &options, NULL, &call, &result, &error));
    ck_assert_ptr_null(result);
    ck_assert_uint_eq(strlen(error.process_id), 32);
    sandbox_process *process = NULL;
    sandbox_process_exit how_it_ended;
    good(sandbox_process_find(workspace, error.process_id, &soon, &process, &error));
    good(sandbox_process_wait(process, &soon, &how_it_ended, &error));
    ck_assert_int_eq(how_it_ended.signal, SIGKILL);
    sandbox_process_free(process);
}
END_TEST

START_TEST(a_run_may_leave_the_process_running)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "sleep 60"};
    sandbox_run_options how = {SANDBOX_RUN_OPTIONS, .leave_running = true};
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = 200};
    sandbox_process_result *result = NULL;
    bad(SANDBOX_TIMED_OUT, sandbox_process_run(workspace, &options, &how, &call, &result, &error));
    sandbox_process_list *list = NULL;
    good(sandbox_process_list_all(workspace, &soon, &list, &error));
    ck_assert_uint_eq(sandbox_process_list_count(list), 1);
    ck_assert(sandbox_process_list_at(list, 0)->running);
    ck_assert_str_eq(sandbox_process_list_at(list, 0)->command, "sleep 60");
    ck_assert_ptr_null(sandbox_process_list_at(list, 1));
    sandbox_process_list_free(list);
}
END_TEST

/* Not more often than the library tries again, however slow this machine is. */
static void *cut_often(void *stop)
{
    for (unsigned each = 0; each < 4 && !atomic_load((atomic_bool *)stop); each++) {
        poll(NULL, 0, 15);
        cut_connection();
    }
    return NULL;
}

START_TEST(a_run_goes_on_over_lost_connections)
{
    size_t size = 6 * MIB;
    uint8_t *input = malloc(size);
    for (size_t at = 0; at < size; at++)
        input[at] = (uint8_t)(at * 31 + at / 65537);
    atomic_bool stop = false;
    pthread_t thread;
    sandbox_run_options how = {SANDBOX_RUN_OPTIONS, .input = input, .input_size = size};
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS,
                                       .command = "sleep 0.1; cat; sleep 0.1"};
    sandbox_process_result *result = NULL;
    ck_assert_int_eq(pthread_create(&thread, NULL, cut_often, &stop), 0);
    sandbox_status status = SANDBOX_UNKNOWN;
    while (status == SANDBOX_UNKNOWN) /* only the start itself may be in doubt */
        status = sandbox_process_run(workspace, &options, &how, &soon, &result, &error);
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    good(status);
    ck_assert_uint_eq(result->output_size, size);
    ck_assert(memcmp(result->output, input, size) == 0);
    sandbox_process_result_free(result);
    free(input);
}
END_TEST

/* ---- start ---- */

START_TEST(options_that_make_no_sense_are_named_P085_P190)
{
    const char *const argv[] = {"true", NULL}, *const empty[] = {NULL};
    const char *const bad_env[] = {"GOOD=1", "=x", NULL}, *const no_sign[] = {"NAME", NULL};
    const sandbox_process_options wrong[] = {
        {SANDBOX_PROCESS_OPTIONS},
        {SANDBOX_PROCESS_OPTIONS, .command = "true", .argv = argv},
        {SANDBOX_PROCESS_OPTIONS, .command = ""},
        {SANDBOX_PROCESS_OPTIONS, .argv = empty},
        {SANDBOX_PROCESS_OPTIONS, .argv = argv, .login_shell = true},
        {SANDBOX_PROCESS_OPTIONS, .command = "true", .id = "12"},
        {SANDBOX_PROCESS_OPTIONS, .command = "true", .env = bad_env},
        {SANDBOX_PROCESS_OPTIONS, .command = "true", .env = no_sign},
        {SANDBOX_PROCESS_OPTIONS, .command = "true", .directory = ""},
        {SANDBOX_PROCESS_OPTIONS, .command = "true", .user = "a b"},
        {SANDBOX_PROCESS_OPTIONS, .command = "true", .rows = 5},
        {SANDBOX_PROCESS_OPTIONS, .command = "true", .terminal = true, .rows = 65535},
        {SANDBOX_PROCESS_OPTIONS, .command = "true", .terminal = true,
         .terminal_type = "../../x"},
        {SANDBOX_PROCESS_OPTIONS, .command = "true", .role = (sandbox_role)7},
        {SANDBOX_PROCESS_OPTIONS, .command = "true", .buffer_bytes = 65 * MIB},
    };
    for (size_t index = 0; index < sizeof wrong / sizeof wrong[0]; index++) {
        sandbox_process *process = NULL;
        memset(&error, 0, sizeof error);
        bad(SANDBOX_INVALID,
            sandbox_process_start(workspace, &wrong[index], &soon, &process, &error));
        ck_assert_str_ne(error.message, "");
        ck_assert_ptr_null(process);
    }
}
END_TEST

START_TEST(a_start_that_fails_names_the_process_P027)
{
    const char *const argv[] = {"/no/such/program", NULL};
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .argv = argv};
    sandbox_process *process = NULL;
    bad(SANDBOX_NOT_FOUND, sandbox_process_start(workspace, &options, &soon, &process, &error));
    ck_assert_str_eq(error.reason, "no-such-program");
    ck_assert_uint_eq(strlen(error.process_id), 32);
}
END_TEST

START_TEST(starting_a_known_id_attaches)
{
    sandbox_process *first = start("echo once; cat", SANDBOX_INPUT_PIPE);
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "echo twice",
                                       .id = sandbox_process_id(first)};
    sandbox_process *second = NULL;
    good(sandbox_process_start(workspace, &options, &soon, &second, &error));
    ck_assert_int_eq(sandbox_process_pid(first), sandbox_process_pid(second));
    good(sandbox_process_write(first, "a", 1, &soon, &error));
    good(sandbox_process_write(second, "b", 1, &soon, &error)); /* asks where it stands */
    good(sandbox_process_end_input(second, &soon, &error));
    ck_assert_uint_eq(count_output(second, 0), 7);
    sandbox_process_free(first);
    sandbox_process_free(second);
}
END_TEST

START_TEST(what_nobody_knows_is_not_found)
{
    static const char id[] = "00112233445566778899aabbccddeeff";
    sandbox_process *process = NULL;
    bad(SANDBOX_NOT_FOUND, sandbox_process_find(workspace, id, &soon, &process, &error));
    ck_assert_str_eq(error.reason, "no-such-process");
    ck_assert_str_eq(error.process_id, id);
    bad(SANDBOX_INVALID, sandbox_process_find(workspace, "xyz", &soon, &process, &error));
    bad(SANDBOX_INVALID, sandbox_process_next(NULL, &soon, NULL, &error));
    sandbox_process_free(NULL);
}
END_TEST

/* ---- events ---- */

START_TEST(after_the_end_there_is_nothing_more)
{
    sandbox_process *process = start("echo x; exit 5", SANDBOX_INPUT_NONE);
    sandbox_process_event event = next(process);
    ck_assert_int_eq(event.kind, SANDBOX_PROCESS_STDOUT);
    event = next(process);
    ck_assert_int_eq(event.kind, SANDBOX_PROCESS_EXIT);
    ck_assert_int_eq(event.exit.code, 5);
    bad(SANDBOX_CLOSED, sandbox_process_next(process, &soon, &event, &error));
    sandbox_process_exit how_it_ended;
    good(sandbox_process_wait(process, &soon, &how_it_ended, &error));
    ck_assert_int_eq(how_it_ended.code, 5);
    good(sandbox_process_signal(process, SIGTERM, &soon, &error));
    sandbox_process_free(process);
}
END_TEST

START_TEST(reading_goes_on_where_a_connection_was_lost_P005_P153)
{
    sandbox_process *process =
        start("i=0; while [ $i -lt 60 ]; do head -c 100000 /dev/zero; i=$((i+1)); done; sleep 0.2",
              SANDBOX_INPUT_NONE);
    uint64_t total = 0;
    for (unsigned each = 0; each < 5; each++) {
        sandbox_process_event event = next(process);
        ck_assert_uint_eq(event.offset, total);
        total += event.data_size;
        cut_connection();
    }
    total += count_output(process, total);
    ck_assert_uint_eq(total, 6000000);
    sandbox_process_free(process);
}
END_TEST

START_TEST(lost_output_is_counted)
{
    sandbox_process_options options = {
        SANDBOX_PROCESS_OPTIONS, .command = "head -c 3000000 /dev/zero; echo end >&2",
        .when_full = SANDBOX_WHEN_FULL_DROP_OLDEST, .buffer_bytes = 65536};
    sandbox_process *process = NULL;
    good(sandbox_process_start(workspace, &options, &soon, &process, &error));
    good(sandbox_process_wait(process, &soon, NULL, &error));
    uint64_t kept = 0, dropped = 0;
    for (;;) {
        sandbox_process_event event = next(process);
        if (event.kind == SANDBOX_PROCESS_EXIT)
            break;
        if (event.kind == SANDBOX_PROCESS_STDERR)
            continue;
        kept += event.data_size;
        dropped += event.dropped;
    }
    ck_assert_uint_eq(kept + dropped, 3000000);
    ck_assert_uint_gt(dropped, 0);
    sandbox_process_free(process);
}
END_TEST

static void *wait_for_seven(void *data)
{
    sandbox_process_exit how_it_ended = {0};
    sandbox_status status = sandbox_process_wait(data, &soon, &how_it_ended, NULL);
    return status == SANDBOX_OK && how_it_ended.code == 7 ? data : NULL;
}

START_TEST(a_wait_outlives_its_connection_P007)
{
    sandbox_process *process = start("read line; exit 7", SANDBOX_INPUT_PIPE);
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, wait_for_seven, process), 0);
    for (unsigned each = 0; each < 3; each++) {
        poll(NULL, 0, 20);
        cut_connection();
    }
    good(sandbox_process_write(process, "go\n", 3, &soon, &error));
    void *result = NULL;
    pthread_join(thread, &result);
    ck_assert_ptr_nonnull(result);
    sandbox_process_free(process);
}
END_TEST

START_TEST(what_is_written_over_lost_connections_arrives_once)
{
    sandbox_process *process = start("wc -c", SANDBOX_INPUT_PIPE);
    char *data = calloc(1, 3 * MIB);
    atomic_bool stop = false;
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, cut_often, &stop), 0);
    for (unsigned each = 0; each < 200; each++)
        good(sandbox_process_write(process, data, 1000, &soon, &error));
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    good(sandbox_process_write(process, data, 3 * MIB, &soon, &error));
    good(sandbox_process_end_input(process, &soon, &error));
    sandbox_process_event event = next(process);
    ck_assert_int_eq(strtol((const char *)event.data, NULL, 10), 200000 + 3 * (long)MIB);
    bad(SANDBOX_CLOSED, sandbox_process_write(process, data, 1, &soon, &error));
    sandbox_process_free(process);
    free(data);
}
END_TEST

struct reader {
    sandbox_process *process;
    atomic_uint_fast64_t *total;
    atomic_uint *ends;
};

static void *read_some(void *data)
{
    struct reader *reader = data;
    for (;;) {
        sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
        if (sandbox_process_next(reader->process, &soon, &event, NULL) != SANDBOX_OK)
            return NULL;
        if (event.kind == SANDBOX_PROCESS_EXIT)
            atomic_fetch_add(reader->ends, 1);
        else
            atomic_fetch_add(reader->total, event.data_size);
    }
}

START_TEST(threads_share_the_events_P177)
{
    atomic_uint_fast64_t total = 0;
    atomic_uint ends = 0;
    struct reader reader = {start("head -c 5000000 /dev/zero", SANDBOX_INPUT_NONE), &total, &ends};
    pthread_t threads[4];
    for (unsigned each = 0; each < 4; each++)
        ck_assert_int_eq(pthread_create(&threads[each], NULL, read_some, &reader), 0);
    for (unsigned each = 0; each < 4; each++)
        pthread_join(threads[each], NULL);
    ck_assert_uint_eq(atomic_load(&total), 5000000);
    ck_assert_uint_eq(atomic_load(&ends), 1);
    sandbox_process_free(reader.process);
}
END_TEST

START_TEST(the_descriptor_stays_the_same_and_tells_the_truth)
{
    sandbox_process *process = start("read line; echo got; read line", SANDBOX_INPUT_PIPE);
    int fd = sandbox_process_descriptor(process);
    ck_assert_int_ge(fd, 0);
    sandbox_call look = {SANDBOX_CALL, .timeout_ms = 1};
    sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
    while (is_readable(fd, 100)) /* the agent's first word is no event */
        bad(SANDBOX_TIMED_OUT, sandbox_process_next(process, &look, &event, &error));
    good(sandbox_process_write(process, "x\n", 2, &soon, &error));
    ck_assert(is_readable(fd, WAIT_MS));
    ck_assert_uint_eq(next(process).data_size, 4);
    ck_assert(!is_readable(fd, 0));
    cut_connection();
    ck_assert(is_readable(fd, WAIT_MS)); /* to be attached again */
    good(sandbox_process_write(process, "y\n", 2, &soon, &error));
    ck_assert_int_eq(next(process).kind, SANDBOX_PROCESS_EXIT);
    ck_assert_int_eq(sandbox_process_descriptor(process), fd);
    ck_assert(is_readable(fd, 0)); /* the answer is that it is over */
    sandbox_process_free(process);
}
END_TEST

START_TEST(a_terminal_is_one_P083_P152)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS,
                                       .command = "stty size; read x; stty size; exit 7",
                                       .terminal = true, .rows = 43, .columns = 132};
    sandbox_process *process = NULL;
    good(sandbox_process_start(workspace, &options, &soon, &process, &error));
    char text[256] = "";
    bool resized = false;
    for (;;) {
        sandbox_process_event event = next(process);
        if (event.kind == SANDBOX_PROCESS_EXIT) {
            ck_assert_int_eq(event.exit.code, 7);
            break;
        }
        ck_assert_uint_lt(strlen(text) + event.data_size, sizeof text);
        strncat(text, (const char *)event.data, event.data_size);
        if (!resized && strstr(text, "43 132") != NULL) {
            good(sandbox_process_resize(process, 80, 24, &soon, &error));
            good(sandbox_process_write(process, "\n", 1, &soon, &error));
            resized = true;
        }
    }
    ck_assert_ptr_nonnull(strstr(text, "24 80"));
    bad(SANDBOX_INVALID, sandbox_process_resize(process, 0, 24, &soon, &error));
    sandbox_process_free(process);
}
END_TEST

START_TEST(deleting_the_workspace_ends_every_stream_P030_P081)
{
    sandbox_process *processes[20];
    for (unsigned each = 0; each < 20; each++) {
        processes[each] = start("yes", SANDBOX_INPUT_NONE);
        ck_assert_int_eq(next(processes[each]).kind, SANDBOX_PROCESS_STDOUT);
    }
    good(sandbox_workspace_delete(workspace, &soon, &error));
    for (unsigned each = 0; each < 20; each++) {
        sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
        bad(SANDBOX_CLOSED, sandbox_process_next(processes[each], &soon, &event, &error));
        sandbox_process_free(processes[each]);
    }
}
END_TEST

START_TEST(many_short_commands_all_end_P010)
{
    for (unsigned each = 0; each < 150; each++) {
        sandbox_process *process = start("exit 9", SANDBOX_INPUT_NONE);
        sandbox_process_exit how_it_ended;
        good(sandbox_process_wait(process, &soon, &how_it_ended, &error));
        ck_assert_int_eq(how_it_ended.code, 9);
        sandbox_process_free(process);
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        each_stream_has_its_own_budget_P002_P003,
        a_run_feeds_and_reads_at_the_same_time_P016,
        a_command_that_does_not_read_its_input_is_no_failure,
        without_input_a_command_reads_its_end_P014_P025,
        bytes_are_bytes_P156_P191,
        a_run_that_takes_too_long_is_killed_and_named_P032_P077,
        a_run_may_leave_the_process_running,
        a_run_goes_on_over_lost_connections,
        options_that_make_no_sense_are_named_P085_P190,
        a_start_that_fails_names_the_process_P027,
        starting_a_known_id_attaches,
        what_nobody_knows_is_not_found,
        after_the_end_there_is_nothing_more,
        reading_goes_on_where_a_connection_was_lost_P005_P153,
        lost_output_is_counted,
        a_wait_outlives_its_connection_P007,
        what_is_written_over_lost_connections_arrives_once,
        threads_share_the_events_P177,
        the_descriptor_stays_the_same_and_tells_the_truth,
        a_terminal_is_one_P083_P152,
        deleting_the_workspace_ends_every_stream_P030_P081,
        many_short_commands_all_end_P010,
    };
    return run_at_work("process", tests, sizeof tests / sizeof tests[0]);
}
