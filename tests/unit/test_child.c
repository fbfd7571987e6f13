/* Programs of our own: their words, their codes, their descriptors, and how they end. */

#include "util/bytes.h"
#include "util/child.h"
#include "util/wait.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static sandbox_status run(const char *script, uint32_t timeout_ms, int *code, char **text,
                          sandbox_error *error)
{
    const char *argv[] = {"/bin/sh", "-c", script, NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv};
    struct sbx_wait wait = sbx_wait_alone(timeout_ms);
    return sbx_child_run(&options, &wait, code, text, error);
}

START_TEST(text_and_code_come_back)
{
    int code = 0;
    char *text = NULL;
    ck_assert_int_eq(run("echo out; echo err >&2; exit 7", 10000, &code, &text, NULL), SANDBOX_OK);
    ck_assert_int_eq(code, 7);
    ck_assert_str_eq(text, "out\nerr\n");
    free(text);
}
END_TEST

START_TEST(a_signal_is_told_as_128_and_its_number)
{
    int code = 0;
    ck_assert_int_eq(run("kill -9 $$", 10000, &code, NULL, NULL), SANDBOX_OK);
    ck_assert_int_eq(code, 137);
}
END_TEST

START_TEST(a_missing_program_is_named)
{
    const char *argv[] = {"no-such-program-anywhere", NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv};
    struct sbx_child child = SBX_CHILD;
    sandbox_error error;
    ck_assert_int_eq(sbx_child_start(&child, &options, &error), SANDBOX_NOT_FOUND);
    ck_assert_str_eq(error.reason, "no-such-program");
    ck_assert(strstr(error.message, "no-such-program-anywhere") != NULL);
    ck_assert_int_eq(child.pid, 0);
    sbx_child_end(&child);
}
END_TEST

START_TEST(a_file_that_is_no_program_fails_at_the_start)
{
    const char *argv[] = {"/etc/passwd", NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv};
    struct sbx_child child = SBX_CHILD;
    ck_assert_int_eq(sbx_child_start(&child, &options, NULL), SANDBOX_DENIED);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1); /* no zombie of ours either */
}
END_TEST

START_TEST(much_text_is_read_to_the_end_and_cut)
{
    int code = 1;
    char *text = NULL;
    ck_assert_int_eq(run("head -c 1000000 /dev/zero | tr '\\0' x", 20000, &code, &text, NULL),
                     SANDBOX_OK);
    ck_assert_int_eq(code, 0);
    ck_assert_uint_eq(strlen(text), 64 << 10);
    free(text);
}
END_TEST

START_TEST(a_grandchild_that_keeps_the_pipe_holds_nobody_up)
{
    int code = 1;
    char *text = NULL;
    ck_assert_int_eq(run("sleep 20 & echo $!; exit 3", 10000, &code, &text, NULL), SANDBOX_OK);
    ck_assert_int_eq(code, 3);
    kill(atoi(text), SIGKILL);
    free(text);
}
END_TEST

START_TEST(a_grandchild_that_never_stops_writing_holds_nobody_up)
{
    const char *argv[] = {"/bin/sh", "-c", "yes & echo $! >&2; exit 4", NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv};
    struct sbx_wait wait = sbx_wait_alone(SANDBOX_FOREVER);
    struct sbx_bytes output = SBX_BYTES(100), errors = SBX_BYTES(100);
    int code = 0;
    ck_assert_int_eq(sbx_child_run_apart(&options, &wait, &code, &output, &errors, NULL),
                     SANDBOX_OK);
    ck_assert_int_eq(code, 4);
    ck_assert_uint_gt(sbx_bytes_size(&errors), 0);
    sbx_bytes_free(&output);
    sbx_bytes_free(&errors);
}
END_TEST

static int set_mask(void *data)
{
    umask(077);
    return 0;
}

static int go_elsewhere(void *data)
{
    return chdir(data) == 0 ? 0 : errno;
}

START_TEST(what_the_child_prepares_is_its_own)
{
    const char *argv[] = {"/bin/sh", "-c", "umask", NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv};
    struct sbx_wait wait = sbx_wait_alone(10000);
    int code = 0;
    char *text = NULL;
    mode_t ours = umask(022);
    options.prepare = set_mask;
    ck_assert_int_eq(sbx_child_run(&options, &wait, &code, &text, NULL), SANDBOX_OK);
    ck_assert_str_eq(text, "0077\n");
    ck_assert_int_eq(umask(ours), 022);
    free(text);
}
END_TEST

START_TEST(a_child_that_cannot_prepare_is_not_started)
{
    const char *argv[] = {"/bin/true", NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv};
    struct sbx_child child = SBX_CHILD;
    sandbox_error error;
    char nowhere[] = "/no/such/directory";
    options.prepare = go_elsewhere;
    options.data = nowhere;
    ck_assert_int_eq(sbx_child_start(&child, &options, &error), SANDBOX_NOT_FOUND);
    ck_assert_int_eq(error.system_error, ENOENT);
    ck_assert_int_eq(child.pid, 0);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
    sbx_child_end(&child);
}
END_TEST

START_TEST(the_deadline_kills_and_reaps)
{
    int code = 0;
    sandbox_error error;
    ck_assert_int_eq(run("exec sleep 60", 50, &code, NULL, &error), SANDBOX_TIMED_OUT);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
}
END_TEST

START_TEST(only_named_descriptors_are_inherited)
{
    int open_one = open("/dev/null", O_RDONLY), named = open("/dev/null", O_RDONLY);
    ck_assert_int_ge(open_one, 0);
    ck_assert_int_ge(named, 0);
    char script[200];
    snprintf(script, sizeof script, "[ ! -e /proc/self/fd/%d ] && [ -e /proc/self/fd/%d ]",
             open_one, named);
    const char *argv[] = {"/bin/sh", "-c", script, NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv, .inherit = &named,
                                        .inherit_count = 1};
    struct sbx_wait wait = sbx_wait_alone(10000);
    int code = 9;
    ck_assert_int_eq(sbx_child_run(&options, &wait, &code, NULL, NULL), SANDBOX_OK);
    ck_assert_int_eq(code, 0);
    close(open_one);
    close(named);
}
END_TEST

START_TEST(the_environment_of_the_host_stays_here)
{
    setenv("SECRET_OF_THE_HOST", "value", 1);
    int code = 0;
    char *text = NULL;
    ck_assert_int_eq(run("env", 10000, &code, &text, NULL), SANDBOX_OK);
    ck_assert(strstr(text, "SECRET") == NULL);
    ck_assert(strstr(text, "PATH=") != NULL);
    free(text);
}
END_TEST

START_TEST(other_children_of_the_host_are_not_reaped)
{
    pid_t other = fork();
    if (other == 0)
        _exit(42);
    int code = 0, how = 0;
    ck_assert_int_eq(run("true", 10000, &code, NULL, NULL), SANDBOX_OK);
    ck_assert_int_eq(waitpid(other, &how, 0), other);
    ck_assert_int_eq(WEXITSTATUS(how), 42);
}
END_TEST

START_TEST(words_apart_are_kept_to_their_limits)
{
    const char *argv[] = {"/bin/sh", "-c", "echo out; head -c 100000 /dev/zero >&2; exit 3", NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv};
    struct sbx_wait wait = sbx_wait_alone(10000);
    struct sbx_bytes output = SBX_BYTES(2), errors = SBX_BYTES(5000);
    int code = 0;
    ck_assert_int_eq(sbx_child_run_apart(&options, &wait, &code, &output, &errors, NULL),
                     SANDBOX_OK);
    ck_assert_int_eq(code, 3);
    ck_assert_uint_eq(sbx_bytes_size(&output), 2);
    ck_assert_mem_eq(sbx_bytes_data(&output), "ou", 2);
    ck_assert_uint_eq(sbx_bytes_size(&errors), 5000);
    sbx_bytes_free(&output);
    sbx_bytes_free(&errors);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("child");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_test(all, text_and_code_come_back);
    tcase_add_test(all, a_signal_is_told_as_128_and_its_number);
    tcase_add_test(all, a_missing_program_is_named);
    tcase_add_test(all, a_file_that_is_no_program_fails_at_the_start);
    tcase_add_test(all, much_text_is_read_to_the_end_and_cut);
    tcase_add_test(all, words_apart_are_kept_to_their_limits);
    tcase_add_test(all, a_grandchild_that_keeps_the_pipe_holds_nobody_up);
    tcase_add_test(all, a_grandchild_that_never_stops_writing_holds_nobody_up);
    tcase_add_test(all, what_the_child_prepares_is_its_own);
    tcase_add_test(all, a_child_that_cannot_prepare_is_not_started);
    tcase_add_test(all, the_deadline_kills_and_reaps);
    tcase_add_test(all, only_named_descriptors_are_inherited);
    tcase_add_test(all, the_environment_of_the_host_stays_here);
    tcase_add_test(all, other_children_of_the_host_are_not_reaped);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
