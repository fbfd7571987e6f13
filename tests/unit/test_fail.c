/* Errors: one line, the right status, no surprises. */

#include "util/fail.h"
#include <check.h>
#include <errno.h>
#include <string.h>

START_TEST(a_failure_fills_status_reason_and_message)
{
    sandbox_error error;
    memset(&error, 0xaa, sizeof error);
    ck_assert_int_eq(sbx_fail_for(&error, SANDBOX_NOT_FOUND, "no-such-file", "no file '%s'", "x"),
                     SANDBOX_NOT_FOUND);
    ck_assert_int_eq(error.status, SANDBOX_NOT_FOUND);
    ck_assert_str_eq(error.reason, "no-such-file");
    ck_assert_str_eq(error.message, "no file 'x'");
    ck_assert_str_eq(error.driver, "");
    ck_assert_int_eq(error.system_error, 0);
}
END_TEST

START_TEST(nobody_has_to_take_the_error)
{
    ck_assert_int_eq(sbx_fail(NULL, SANDBOX_INVALID, "%s", "text"), SANDBOX_INVALID);
    ck_assert_int_eq(sbx_fail_errno(NULL, ENOENT, "text"), SANDBOX_NOT_FOUND);
}
END_TEST

START_TEST(a_message_is_one_line_of_valid_utf8)
{
    sandbox_error error;
    sbx_fail(&error, SANDBOX_FAILED, "a\nb\tc\x1b[31m\xff\xc3(\xc3\xa9");
    ck_assert_str_eq(error.message, "a?b?c?[31m?" "?(\xc3\xa9");
}
END_TEST

START_TEST(a_long_message_is_cut_without_half_a_character)
{
    sandbox_error error;
    char name[2000];
    for (size_t n = 0; n + 2 < sizeof name; n += 2)
        memcpy(name + n, "\xc3\xa9", 3);
    sbx_fail(&error, SANDBOX_FAILED, "x%s", name);
    size_t length = strlen(error.message);
    ck_assert_uint_lt(length, sizeof error.message);
    ck_assert((unsigned char)error.message[length - 1] != 0xc3);
}
END_TEST

START_TEST(system_errors_become_what_the_caller_would_do)
{
    static const struct {
        int number;
        sandbox_status status;
    } expected[] = {
        {ENOENT, SANDBOX_NOT_FOUND}, {EACCES, SANDBOX_DENIED},   {EEXIST, SANDBOX_EXISTS},
        {ENOSPC, SANDBOX_LIMIT},     {ENOMEM, SANDBOX_NO_MEMORY}, {EINVAL, SANDBOX_INVALID},
        {ENOSYS, SANDBOX_UNSUPPORTED}, {ECONNREFUSED, SANDBOX_UNAVAILABLE}, {EIO, SANDBOX_FAILED},
    };
    for (size_t n = 0; n < sizeof expected / sizeof expected[0]; n++) {
        sandbox_error error;
        ck_assert_int_eq(sbx_fail_errno(&error, expected[n].number, "it"), expected[n].status);
        ck_assert_int_eq(error.system_error, expected[n].number);
        ck_assert(strncmp(error.message, "it: ", 4) == 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fail");
    TCase *all = tcase_create("all");
    tcase_add_test(all, a_failure_fills_status_reason_and_message);
    tcase_add_test(all, nobody_has_to_take_the_error);
    tcase_add_test(all, a_message_is_one_line_of_valid_utf8);
    tcase_add_test(all, a_long_message_is_cut_without_half_a_character);
    tcase_add_test(all, system_errors_become_what_the_caller_would_do);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
