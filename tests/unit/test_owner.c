/* Owners of operations: who is surely gone, and who is not. */

#include "util/owner.h"
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const enum sbx_owners both[] = {SBX_OWNER_HERE, SBX_OWNER_ANYWHERE};

static void name_self(char owner[128])
{
    sandbox_error error = {0};
    ck_assert_msg(sbx_owner_name(owner, &error) == SANDBOX_OK, "%s", error.message);
}

START_TEST(whoever_lives_is_not_gone)
{
    char owner[128];
    name_self(owner);
    ck_assert(!sbx_owner_is_gone(owner, both[_i]));
}
END_TEST

START_TEST(whoever_has_ended_is_gone_even_unreaped)
{
    int ends[2];
    char owner[128] = "";
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        bool told = sbx_owner_name(owner, NULL) == SANDBOX_OK &&
                    write(ends[1], owner, sizeof owner) == (ssize_t)sizeof owner;
        _exit(told ? 0 : 1);
    }
    close(ends[1]);
    ck_assert_int_eq(read(ends[0], owner, sizeof owner), sizeof owner);
    ck_assert_int_eq(read(ends[0], owner, 1), 0); /* it has ended, or is about to */
    siginfo_t ended;
    ck_assert_int_eq(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT), 0);
    ck_assert(sbx_owner_is_gone(owner, both[_i]));
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    ck_assert(sbx_owner_is_gone(owner, both[_i]));
    close(ends[0]);
}
END_TEST

/* Another boot is over on this machine; on another machine it says nothing. */
START_TEST(another_boot_counts_only_where_all_owners_are_here)
{
    char owner[128];
    name_self(owner);
    char *boot = strrchr(owner, ' ') + 1;
    boot[0] = boot[0] == 'f' ? '0' : 'f';
    ck_assert(sbx_owner_is_gone(owner, SBX_OWNER_HERE));
    ck_assert(!sbx_owner_is_gone(owner, SBX_OWNER_ANYWHERE));
}
END_TEST

START_TEST(another_pid_namespace_and_nonsense_tell_nothing)
{
    long pid;
    unsigned long long started, namespace;
    char owner[128], other[256], boot[40];
    name_self(owner);
    ck_assert_int_eq(sscanf(owner, "%ld %llu %llu %39s", &pid, &started, &namespace, boot), 4);
    snprintf(other, sizeof other, "%ld %llu %llu %s", 999999L, started, namespace + 1, boot);
    ck_assert(!sbx_owner_is_gone(other, both[_i]));
    static const char *const nonsense[] = {"", "x", "1", "0 1 1 b", "-5 1 1 b", "1 2 3"};
    for (size_t n = 0; n < sizeof nonsense / sizeof nonsense[0]; n++)
        ck_assert(!sbx_owner_is_gone(nonsense[n], both[_i]));
}
END_TEST

static Suite *owner_suite(void)
{
    Suite *suite = suite_create("owner");
    TCase *all = tcase_create("all");
    tcase_add_loop_test(all, whoever_lives_is_not_gone, 0, 2);
    tcase_add_loop_test(all, whoever_has_ended_is_gone_even_unreaped, 0, 2);
    tcase_add_test(all, another_boot_counts_only_where_all_owners_are_here);
    tcase_add_loop_test(all, another_pid_namespace_and_nonsense_tell_nothing, 0, 2);
    suite_add_tcase(suite, all);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(owner_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
