/*
 * Work inside a workspace through the public API, the same on every platform: processes, files
 * and ports as their headers say, in short. The agent's own tests go deeper.
 */

#include "checks.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sandbox_client *client;
static sandbox_workspace *workspace;

static void set_up(void)
{
    const char *const env[] = {"FROM_WORKSPACE=yes", NULL};
    contract_open("work", env, &client, &workspace);
}

static void tear_down(void)
{
    contract_close(client, workspace);
}

static sandbox_process_result *run(const char *command, const char *input)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = command};
    sandbox_run_options how = {SANDBOX_RUN_OPTIONS, .input = input,
                               .input_size = input == NULL ? 0 : strlen(input)};
    sandbox_process_result *result = NULL;
    good(sandbox_process_run(workspace, &options, &how, NULL, &result, &error));
    return result;
}

static sandbox_process *start(const char *command)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = command};
    sandbox_process *process = NULL;
    good(sandbox_process_start(workspace, &options, NULL, &process, &error));
    return process;
}

START_TEST(a_command_gives_both_streams_and_its_code)
{
    sandbox_process_result *result = run("echo out; echo err >&2; cat; exit 7", "fed");
    ck_assert_str_eq((const char *)result->output, "out\nfed");
    ck_assert_str_eq((const char *)result->errors, "err\n");
    ck_assert_int_eq(result->exit.code, 7);
    ck_assert_int_eq(result->exit.signal, 0);
    ck_assert(!result->output_truncated && !result->errors_truncated);
    sandbox_process_result_free(result);
}
END_TEST

/* P014, P025 */
START_TEST(a_command_without_input_reads_its_end_at_once)
{
    sandbox_process_result *result = run("cat; echo done", NULL);
    ck_assert_str_eq((const char *)result->output, "done\n");
    sandbox_process_result_free(result);
}
END_TEST

START_TEST(the_workspaces_environment_and_directory_are_every_commands)
{
    sandbox_process_result *result = run("echo $FROM_WORKSPACE; touch here; ls", NULL);
    ck_assert_str_eq((const char *)result->output, "yes\nhere\n");
    sandbox_process_result_free(result);
}
END_TEST

/* P027 */
START_TEST(a_program_that_is_not_there_is_not_found)
{
    const char *const argv[] = {"/no/such/program", NULL};
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .argv = argv};
    sandbox_process *process = NULL;
    bad(SANDBOX_NOT_FOUND, sandbox_process_start(workspace, &options, NULL, &process, &error));
    ck_assert_str_eq(error.reason, "no-such-program");
    ck_assert_ptr_null(process);
}
END_TEST

START_TEST(a_signal_ends_a_process_and_is_told)
{
    sandbox_process *process = start("exec sleep 1000");
    sandbox_process_exit end = {0};
    good(sandbox_process_signal(process, SIGTERM, NULL, &error));
    good(sandbox_process_wait(process, NULL, &end, &error));
    ck_assert_int_eq(end.code, -1);
    ck_assert_int_eq(end.signal, SIGTERM);
    good(sandbox_process_signal(process, SIGTERM, NULL, &error));
    sandbox_process_free(process);
}
END_TEST

START_TEST(a_process_is_found_by_its_id_and_read_from_its_first_byte)
{
    sandbox_process *process = start("echo early; read line; echo never"), *again = NULL;
    char id[40];
    snprintf(id, sizeof id, "%s", sandbox_process_id(process));
    sandbox_process_exit end = {0};
    good(sandbox_process_wait(process, NULL, &end, &error));
    sandbox_process_free(process);
    good(sandbox_process_find(workspace, id, NULL, &again, &error));
    sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
    good(sandbox_process_next(again, NULL, &event, &error));
    ck_assert_int_eq(event.kind, SANDBOX_PROCESS_STDOUT);
    ck_assert(event.data_size >= 6 && memcmp(event.data, "early\n", 6) == 0);
    sandbox_process_free(again);
    bad(SANDBOX_NOT_FOUND,
        sandbox_process_find(workspace, "00000000000000000000000000000000", NULL, &again, &error));
}
END_TEST

/* P030: deleting ends what others are reading, with a status and in time. */
START_TEST(deleting_the_workspace_ends_running_commands)
{
    sandbox_process *process = start("echo ready; exec sleep 1000");
    sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
    good(sandbox_process_next(process, NULL, &event, &error));
    good(sandbox_workspace_delete(workspace, NULL, &error));
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = 60000};
    sandbox_status status = SANDBOX_OK;
    while (status == SANDBOX_OK)
        status = sandbox_process_next(process, &call, &event, &error);
    ck_assert_msg(status == SANDBOX_CLOSED, "%s", error.message);
    sandbox_process_free(process);
}
END_TEST

/* P042, P053, P135 */
START_TEST(files_come_back_byte_for_byte_under_any_name)
{
    static const char *const names[] = {"plain",
                                        ".env",
                                        "a b",
                                        "%41",
                                        "quote'\"$(x)",
                                        "new\nline",
                                        "\xe6\x97\xa5\xe6\x9c\xac",
                                        "\xff\xfe",
                                        "deep/er/still"};
    uint8_t content[512];
    for (size_t n = 0; n < sizeof content; n++)
        content[n] = (uint8_t)n;
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        uint8_t *data = NULL;
        size_t size = 0;
        good(sandbox_file_write(workspace, names[n], content, sizeof content, NULL, NULL, &error));
        good(sandbox_file_read(workspace, names[n], NULL, NULL, &data, &size, &error));
        ck_assert_uint_eq(size, sizeof content);
        ck_assert_mem_eq(data, content, sizeof content);
        sandbox_bytes_free(data);
    }
}
END_TEST

/* P161 */
START_TEST(a_file_that_is_not_there_is_told_apart_from_a_workspace)
{
    uint8_t *data = NULL;
    size_t size = 0;
    bad(SANDBOX_NOT_FOUND,
        sandbox_file_read(workspace, "missing", NULL, NULL, &data, &size, &error));
    ck_assert_str_eq(error.reason, "no-such-file");
}
END_TEST

START_TEST(a_file_of_some_mebibytes_comes_back_whole)
{
    size_t size = (5u << 20) + 3, got = 0;
    uint8_t *content = malloc(size), *data = NULL;
    for (size_t n = 0; n < size; n++)
        content[n] = (uint8_t)(n * 2654435761u >> 13);
    good(sandbox_file_write(workspace, "large", content, size, NULL, NULL, &error));
    good(sandbox_file_read(workspace, "large", NULL, NULL, &data, &got, &error));
    ck_assert_uint_eq(got, size);
    ck_assert(memcmp(content, data, size) == 0);
    free(content);
    sandbox_bytes_free(data);
}
END_TEST

/* A server in the workspace's own Python that sends back what it is given, once. */
static const char echo_server[] = "python3 -c '\n"
                                  "import socket\n"
                                  "s = socket.socket(); s.bind((\"127.0.0.1\", 0)); s.listen()\n"
                                  "print(s.getsockname()[1], flush=True)\n"
                                  "c = s.accept()[0]\n"
                                  "while True:\n"
                                  "    d = c.recv(65536)\n"
                                  "    if not d: break\n"
                                  "    c.sendall(d)\n"
                                  "c.close()'";

static uint16_t start_server(sandbox_process **process)
{
    sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
    *process = start(echo_server);
    good(sandbox_process_next(*process, NULL, &event, &error));
    ck_assert_int_eq(event.kind, SANDBOX_PROCESS_STDOUT);
    return (uint16_t)strtoul((const char *)event.data, NULL, 10);
}

START_TEST(a_port_inside_can_be_dialled_both_ways)
{
    sandbox_process *server = NULL;
    sandbox_connection *connection = NULL;
    uint16_t port = start_server(&server);
    good(sandbox_port_dial(workspace, port, NULL, &connection, &error));
    good(sandbox_connection_write(connection, "there and back", 14, NULL, &error));
    char got[32] = "";
    const uint8_t *data = NULL;
    size_t size = 0, total = 0;
    while (total < 14) {
        good(sandbox_connection_read(connection, NULL, &data, &size, &error));
        ck_assert(size > 0 && total + size < sizeof got);
        memcpy(got + total, data, size);
        total += size;
    }
    ck_assert_str_eq(got, "there and back");
    good(sandbox_connection_end_output(connection, NULL, &error));
    good(sandbox_connection_read(connection, NULL, &data, &size, &error));
    ck_assert_uint_eq(size, 0);
    sandbox_connection_free(connection);
    sandbox_process_exit end = {0};
    good(sandbox_process_wait(server, NULL, &end, &error));
    ck_assert_int_eq(end.code, 0);
    sandbox_process_free(server);
}
END_TEST

START_TEST(a_port_that_nobody_listens_on_refuses)
{
    sandbox_connection *connection = NULL;
    bad(SANDBOX_NOT_FOUND, sandbox_port_dial(workspace, 1, NULL, &connection, &error));
    ck_assert_str_eq(error.reason, "connection-refused");
}
END_TEST

START_TEST(the_agent_measures)
{
    sandbox_process *process = start("exec sleep 1000");
    sandbox_workspace_stats stats = {SANDBOX_WORKSPACE_STATS};
    good(sandbox_workspace_measure(workspace, NULL, &stats, &error));
    ck_assert_uint_ge(stats.active_tasks, 1);
    ck_assert_uint_ge(stats.connections, 1);
    ck_assert_uint_gt(stats.agent_memory_bytes, 0);
    good(sandbox_process_signal(process, SIGKILL, NULL, &error));
    sandbox_process_free(process);
}
END_TEST

static Suite *work_suite(void)
{
    Suite *suite = suite_create("work in workspaces");
    TCase *work = tcase_create("work");
    tcase_add_checked_fixture(work, set_up, tear_down);
    tcase_set_timeout(work, 180);
    tcase_add_test(work, a_command_gives_both_streams_and_its_code);
    tcase_add_test(work, a_command_without_input_reads_its_end_at_once);
    tcase_add_test(work, the_workspaces_environment_and_directory_are_every_commands);
    tcase_add_test(work, a_program_that_is_not_there_is_not_found);
    tcase_add_test(work, a_signal_ends_a_process_and_is_told);
    tcase_add_test(work, a_process_is_found_by_its_id_and_read_from_its_first_byte);
    tcase_add_test(work, deleting_the_workspace_ends_running_commands);
    tcase_add_test(work, files_come_back_byte_for_byte_under_any_name);
    tcase_add_test(work, a_file_that_is_not_there_is_told_apart_from_a_workspace);
    tcase_add_test(work, a_file_of_some_mebibytes_comes_back_whole);
    tcase_add_test(work, a_port_inside_can_be_dialled_both_ways);
    tcase_add_test(work, a_port_that_nobody_listens_on_refuses);
    tcase_add_test(work, the_agent_measures);
    suite_add_tcase(suite, work);
    return suite;
}

int main(void)
{
    return contract_main(work_suite);
}
