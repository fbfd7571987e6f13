/* Checks: what a record may name, and what becomes of it. */

#include "checks.h"
#include <check.h>
#include <string.h>

static sandbox_error error;
static struct sbx_checks checks;

static sandbox_status ask(sandbox_workspace *workspace, const sandbox_call *call, void *user_data,
                          bool *active, char who[200], sandbox_error *problem)
{
    return SANDBOX_OK;
}

START_TEST(recorded_checks_come_first_and_then_the_callers)
{
    const char *const recorded[] = {"opencode:4096", "opencode:65535", NULL};
    sandbox_check given = {ask, &checks};
    ck_assert_int_eq(sbx_checks_settle(recorded, &given, 1, &checks, &error), SANDBOX_OK);
    ck_assert_uint_eq(checks.count, 3);
    ck_assert(checks.all[0].ask == sandbox_check_opencode);
    ck_assert_uint_eq(((sandbox_opencode *)checks.all[0].user_data)->port, 4096);
    ck_assert_uint_eq(((sandbox_opencode *)checks.all[1].user_data)->port, 65535);
    ck_assert(checks.all[2].ask == ask);
    ck_assert_ptr_eq(checks.all[2].user_data, &checks);
}
END_TEST

START_TEST(no_checks_are_none)
{
    ck_assert_int_eq(sbx_checks_settle(NULL, NULL, 0, &checks, &error), SANDBOX_OK);
    ck_assert_uint_eq(checks.count, 0);
    ck_assert_int_eq(sbx_checks_validate(NULL, &error), SANDBOX_OK);
}
END_TEST

START_TEST(what_is_no_check_is_refused)
{
    static const char *const wrong[] = {
        "", "opencode", "opencode:", "opencode:0", "opencode:65536", "opencode:4096x",
        "opencode: 4096", "opencode:-1", "opencode:+1", "opencode:01", "opencode:999999",
        "Opencode:4096", "claude:1"};
    for (size_t n = 0; n < sizeof wrong / sizeof wrong[0]; n++) {
        const char *const one[] = {"opencode:1", wrong[n], NULL};
        ck_assert_msg(sbx_checks_validate(one, &error) == SANDBOX_INVALID, "'%s'", wrong[n]);
        ck_assert_msg(strstr(error.message, "check 2") != NULL, "%s", error.message);
    }
}
END_TEST

START_TEST(there_are_limits_and_a_check_needs_a_function)
{
    const char *const nine[] = {"opencode:1", "opencode:2", "opencode:3", "opencode:4",
                                "opencode:5", "opencode:6", "opencode:7", "opencode:8",
                                "opencode:9", NULL};
    sandbox_check given = {NULL, NULL};
    ck_assert_int_eq(sbx_checks_validate(nine, &error), SANDBOX_LIMIT);
    ck_assert_int_eq(sbx_checks_settle(NULL, &given, 1, &checks, &error), SANDBOX_INVALID);
    ck_assert_int_eq(sbx_checks_settle(NULL, NULL, 1, &checks, &error), SANDBOX_INVALID);
    ck_assert_int_eq(sbx_checks_settle(NULL, &given, SBX_CHECKS_GIVEN_MAX + 1, &checks, &error),
                     SANDBOX_LIMIT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("checks");
    TCase *all = tcase_create("all");
    tcase_add_test(all, recorded_checks_come_first_and_then_the_callers);
    tcase_add_test(all, no_checks_are_none);
    tcase_add_test(all, what_is_no_check_is_refused);
    tcase_add_test(all, there_are_limits_and_a_check_needs_a_function);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
