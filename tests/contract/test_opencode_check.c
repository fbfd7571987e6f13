/*
 * The check for opencode, against a double of its server that runs inside the workspace, as the
 * server would: turns of both engines, terminals, and every kind of answer that is none.
 */

#include "checks.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sandbox_client *client;
static sandbox_workspace *workspace;
static sandbox_process *server;
static sandbox_opencode opencode;
static bool active;
static char who[200];

static void set_up(void)
{
    char path[512];
    const char *folder = getenv("SANDBOX_TEST_DOUBLES");
    contract_open("opencode", NULL, &client, &workspace);
    snprintf(path, sizeof path, "%s/opencode_double.py", folder == NULL ? "tests/doubles" : folder);
    good(sandbox_file_upload(workspace, path, "double.py", NULL, NULL, NULL, &error));
    opencode = (sandbox_opencode){SANDBOX_OPENCODE};
}

static void end_server(void)
{
    sandbox_process_exit how;
    if (server != NULL) {
        good(sandbox_process_signal(server, SIGKILL, NULL, &error));
        good(sandbox_process_wait(server, NULL, &how, &error));
    }
    sandbox_process_free(server);
    server = NULL;
}

static void tear_down(void)
{
    end_server();
    contract_close(client, workspace);
}

static void serve(const char *scenario)
{
    char command[128], said[64] = "";
    snprintf(command, sizeof command, "exec python3 double.py %s", scenario);
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = command,
                                       .role = SANDBOX_ROLE_SERVICE};
    sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
    good(sandbox_process_start(workspace, &options, NULL, &server, &error));
    good(sandbox_process_next(server, NULL, &event, &error));
    snprintf(said, sizeof said, "%.*s", (int)event.data_size, (const char *)event.data);
    ck_assert_msg(sscanf(said, "ready %hu", &opencode.port) == 1, "%s: %s", scenario, said);
}

static sandbox_status ask(void)
{
    active = true;
    snprintf(who, sizeof who, "as it was");
    return sandbox_check_opencode(workspace, NULL, &opencode, &active, who, &error);
}

/* Says of a scenario that somebody works, and who: all of these words. */
static void works(const char *scenario, const char *first, const char *second)
{
    serve(scenario);
    good(ask());
    ck_assert_msg(active, "%s: seen as idle", scenario);
    ck_assert_msg(strstr(who, first) != NULL && strstr(who, second) != NULL, "%s: %s", scenario,
                  who);
    end_server();
}

static void idle(const char *scenario)
{
    serve(scenario);
    good(ask());
    ck_assert_msg(!active, "%s: %s", scenario, who);
    ck_assert_str_eq(who, "");
    end_server();
}

static void fails(const char *scenario)
{
    serve(scenario);
    sandbox_status status = ask();
    ck_assert_msg(status == SANDBOX_UNAVAILABLE && strcmp(error.reason, "check-failed") == 0,
                  "%s: %s: %s", scenario, sandbox_status_name(status), error.message);
    ck_assert_msg(active && strcmp(who, "as it was") == 0, "%s: an answer was given", scenario);
    end_server();
}

START_TEST(a_turn_of_either_engine_in_any_directory_is_work)
{
    works("busy", "ses_one is busy", "/srv/plain");
    works("busy-project", "ses_one is busy", "/srv/a project");
    works("busy-tree", "ses_one is busy", "/srv/tree");
    works("busy-own", "ses_one is busy", "/srv/own");
    works("second-page", "ses_one is busy", "/srv/late");
    works("retry", "ses_one is retry", "/srv/plain");
    works("busy-v2", "ses_two is running", "/srv/a project");
    works("busy-v2-nowhere", "ses_two is running", "opencode"); /* it does not say where */
}
END_TEST

START_TEST(what_shows_only_at_the_second_look_is_work)
{
    works("busy-later", "ses_one is busy", "/srv");
}
END_TEST

START_TEST(a_terminal_is_work_while_a_job_runs_in_front)
{
    works("job-v1", "terminal pty_one", "/srv/plain");
    works("job-v2", "terminal pty_one", "/srv/a project");
    works("job-nowhere", "terminal of process", "running a job"); /* in no list */
    idle("prompt-v1");
    idle("prompt-v2");
    idle("prompt-nowhere");
    idle("ended-v1"); /* listed, and its process is gone */
}
END_TEST

START_TEST(a_server_where_nobody_works_is_idle)
{
    idle("idle");
    idle("said-idle");
}
END_TEST

START_TEST(a_server_that_does_not_listen_is_idle)
{
    serve("idle");
    end_server();
    good(ask());
    ck_assert(!active);
    ck_assert_str_eq(who, "");
}
END_TEST

START_TEST(an_answer_that_is_none_is_never_taken_for_idle)
{
    static const char *const scenarios[] = {
        "html", "broken", "no-json", "empty", "many-items", "redirect", "short", "endless-body",
        "endless-headers", "endless-pages", "many-directories", "relative-directory",
        "list-for-object", "untyped", "no-pid-v1", "no-pid-v2"};
    for (size_t n = 0; n < sizeof scenarios / sizeof scenarios[0]; n++)
        fails(scenarios[n]);
}
END_TEST

START_TEST(a_silent_server_fails_the_check_at_the_callers_deadline)
{
    serve("silent");
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = 300};
    bad(SANDBOX_UNAVAILABLE,
        sandbox_check_opencode(workspace, &call, &opencode, &active, who, &error));
    ck_assert_str_eq(error.reason, "check-failed");
    sandbox_cancel *cancel = NULL;
    good(sandbox_cancel_create(&cancel, &error));
    sandbox_cancel_trigger(cancel);
    call = (sandbox_call){SANDBOX_CALL, .cancel = cancel};
    bad(SANDBOX_CANCELLED,
        sandbox_check_opencode(workspace, &call, &opencode, &active, who, &error));
    sandbox_cancel_free(cancel);
}
END_TEST

START_TEST(the_password_is_sent_and_never_shown)
{
    serve("password");
    bad(SANDBOX_DENIED, ask());
    ck_assert_str_eq(error.reason, "check-denied");
    opencode.password = "a wrong secret";
    bad(SANDBOX_DENIED, ask());
    ck_assert_ptr_null(strstr(error.message, "secret"));
    opencode.password = "correct horse";
    good(ask());
    ck_assert(!active);
    opencode.user = "somebody";
    bad(SANDBOX_DENIED, ask());
    opencode.user = "a:b";
    bad(SANDBOX_INVALID, ask());
}
END_TEST

START_TEST(who_is_one_line_without_control_characters)
{
    works("controls", "opencode session ses_", "bu sy");
    ck_assert_uint_lt(strlen(who), sizeof who);
    for (const char *at = who; *at != '\0'; at++)
        ck_assert_int_ge((unsigned char)*at, 0x20);
}
END_TEST

/* Asking for a directory that the server does not know would make a project of it. */
START_TEST(only_known_directories_are_asked_for_and_only_by_get)
{
    static const char *const known[] = {"%2Fsrv%2Fown", "%2Fsrv%2Fa%20project", "%2Fsrv%2Ftree",
                                        "%2Fsrv%2Fplain"};
    uint8_t *log = NULL;
    size_t size = 0;
    idle("idle");
    good(sandbox_file_read(workspace, "requests.log", NULL, NULL, &log, &size, &error));
    unsigned asked = 0;
    char *rest = NULL;
    for (char *line = (char *)log; *line != '\0'; line = rest) {
        rest = line + strcspn(line, "\n");
        if (*rest != '\0')
            *rest++ = '\0';
        ck_assert_msg(strncmp(line, "GET /", 5) == 0, "%s", line);
        const char *directory = strstr(line, "irectory");
        directory = directory == NULL ? NULL : strchr(directory, '=');
        bool is_known = directory == NULL;
        for (size_t n = 0; n < sizeof known / sizeof known[0] && directory != NULL; n++)
            is_known = is_known || strcmp(directory + 1, known[n]) == 0;
        ck_assert_msg(is_known, "%s", line);
        asked += directory != NULL;
    }
    ck_assert_uint_eq(asked, 2 * 3 * 4); /* looks, questions, directories */
    sandbox_bytes_free(log);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("opencode_check");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 300);
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, a_turn_of_either_engine_in_any_directory_is_work);
    tcase_add_test(all, what_shows_only_at_the_second_look_is_work);
    tcase_add_test(all, a_terminal_is_work_while_a_job_runs_in_front);
    tcase_add_test(all, a_server_where_nobody_works_is_idle);
    tcase_add_test(all, a_server_that_does_not_listen_is_idle);
    tcase_add_test(all, an_answer_that_is_none_is_never_taken_for_idle);
    tcase_add_test(all, a_silent_server_fails_the_check_at_the_callers_deadline);
    tcase_add_test(all, the_password_is_sent_and_never_shown);
    tcase_add_test(all, who_is_one_line_without_control_characters);
    tcase_add_test(all, only_known_directories_are_asked_for_and_only_by_get);
    suite_add_tcase(suite, all);
    return suite;
}

int main(void)
{
    return contract_main(make_suite);
}
