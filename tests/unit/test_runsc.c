/* Which runsc this is, from what it prints. */

#include "drivers/gvisor/gvisor.h"
#include <check.h>
#include <stdlib.h>

static const char old_flags[] =
    "  -overlay2 value\n  -platform string\n    \tptrace (default), kvm.";
static const char new_flags[] = "  -overlay2 value\n  -platform string\n    \tsystrap (default)";

START_TEST(debians_release_of_2022_needs_ptrace_and_the_shim)
{
    struct sbx_gvisor_runsc runsc;
    sbx_gvisor_runsc_judge("runsc version 0.0~20221219.0\nspec: 1.0.2-dev\n", old_flags, &runsc);
    ck_assert_str_eq(runsc.version, "0.0~20221219.0");
    ck_assert_uint_eq(runsc.date, 20221219);
    ck_assert_str_eq(runsc.platform, "ptrace");
    ck_assert(runsc.needs_shim);
    ck_assert(runsc.has_overlay2);
}
END_TEST

START_TEST(a_release_of_2026_uses_systrap_without_the_shim)
{
    struct sbx_gvisor_runsc runsc;
    sbx_gvisor_runsc_judge("runsc version release-20260224.0\nspec: 1.1.0-rc.1\n", new_flags,
                           &runsc);
    ck_assert_uint_eq(runsc.date, 20260224);
    ck_assert_str_eq(runsc.platform, "systrap");
    ck_assert(!runsc.needs_shim);
}
END_TEST

START_TEST(a_build_without_a_version_is_judged_by_its_flags)
{
    struct sbx_gvisor_runsc runsc;
    sbx_gvisor_runsc_judge("runsc version VERSION_MISSING\n", new_flags, &runsc);
    ck_assert_str_eq(runsc.version, "VERSION_MISSING");
    ck_assert_uint_eq(runsc.date, 0);
    ck_assert_str_eq(runsc.platform, "systrap");
    ck_assert(runsc.needs_shim);
}
END_TEST

START_TEST(an_early_systrap_is_not_trusted)
{
    struct sbx_gvisor_runsc runsc;
    sbx_gvisor_runsc_judge("runsc version release-20230320.0\n", new_flags, &runsc);
    ck_assert_str_eq(runsc.platform, "ptrace");
}
END_TEST

START_TEST(a_runsc_that_is_not_there_is_unsupported_with_a_remedy)
{
    char *path = NULL;
    sandbox_error error = {0};
    ck_assert_int_eq(sbx_gvisor_runsc_find("/nowhere/runsc", &path, &error), SANDBOX_UNSUPPORTED);
    ck_assert_str_eq(error.reason, "no-runsc");
    ck_assert_ptr_nonnull(strstr(error.message, "apt-get install runsc"));
    ck_assert_ptr_null(path);
}
END_TEST

START_TEST(another_program_is_not_taken_for_runsc)
{
    struct sbx_gvisor_runsc runsc;
    sandbox_error error = {0};
    struct sbx_wait wait = sbx_wait_alone(20000);
    ck_assert_int_eq(sbx_gvisor_runsc_learn("/bin/true", &wait, &runsc, &error),
                     SANDBOX_UNSUPPORTED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("runsc");
    TCase *tests = tcase_create("runsc");
    tcase_add_test(tests, debians_release_of_2022_needs_ptrace_and_the_shim);
    tcase_add_test(tests, a_release_of_2026_uses_systrap_without_the_shim);
    tcase_add_test(tests, a_build_without_a_version_is_judged_by_its_flags);
    tcase_add_test(tests, an_early_systrap_is_not_trusted);
    tcase_add_test(tests, a_runsc_that_is_not_there_is_unsupported_with_a_remedy);
    tcase_add_test(tests, another_program_is_not_taken_for_runsc);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
