/* What a gvisor: URI may say. */

#include "drivers/gvisor/gvisor.h"
#include <check.h>
#include <stdlib.h>

static struct sbx_gvisor_settings settings;
static sandbox_error error;

static sandbox_status read_uri(const char *rest)
{
    sbx_gvisor_settings_clear(&settings);
    error = (sandbox_error){0};
    return sbx_gvisor_settings_read(rest, &settings, &error);
}

static void forget(void)
{
    sbx_gvisor_settings_clear(&settings);
}

START_TEST(an_empty_rest_asks_for_all_defaults)
{
    ck_assert_int_eq(read_uri(""), SANDBOX_OK);
    ck_assert_str_eq(settings.state, "/var/lib/libsandbox");
    ck_assert_str_eq(settings.runsc, "runsc");
    ck_assert_ptr_null(settings.platform);
    ck_assert_ptr_null(settings.agent);
    ck_assert_ptr_null(settings.shim);
}
END_TEST

START_TEST(every_parameter_is_understood_and_decoded)
{
    ck_assert_int_eq(read_uri("/a%20b?runsc=/opt/r%26s&platform=ptrace&agent=/x&shim=/y%25"),
                     SANDBOX_OK);
    ck_assert_str_eq(settings.state, "/a b");
    ck_assert_str_eq(settings.runsc, "/opt/r&s");
    ck_assert_str_eq(settings.platform, "ptrace");
    ck_assert_str_eq(settings.agent, "/x");
    ck_assert_str_eq(settings.shim, "/y%");
}
END_TEST

static const struct {
    const char *rest, *says;
} wrong[] = {
    {"?plattform=ptrace", "plattform"},
    {"?platform=qemu", "qemu"},
    {"?platform=", "platform"},
    {"?platform", "platform"},
    {"?runsc=/a&runsc=/b", "twice"},
    {"relative/place", "relative/place"},
    {"/ok?agent=relative", "relative"},
    {"/ok?runsc=some/where", "some/where"},
    {"/broken%2", "%25"},
    {"/zero%00byte", "%25"},
    {"/with:colon", "':'"},
};

START_TEST(what_is_wrong_is_named)
{
    ck_assert_int_eq(read_uri(wrong[_i].rest), SANDBOX_INVALID);
    ck_assert_msg(strstr(error.message, wrong[_i].says) != NULL, "'%s' does not name '%s'",
                  error.message, wrong[_i].says);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gvisor settings");
    TCase *tests = tcase_create("settings");
    tcase_add_checked_fixture(tests, forget, forget);
    tcase_add_test(tests, an_empty_rest_asks_for_all_defaults);
    tcase_add_test(tests, every_parameter_is_understood_and_decoded);
    tcase_add_loop_test(tests, what_is_wrong_is_named, 0, sizeof wrong / sizeof wrong[0]);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
