/* Memory for secrets: locked while it is held, and nothing of it stays. */

#include "util/locked.h"

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* What the kernel says is locked of this process, in bytes. */
static long locked_bytes(void)
{
    char line[256];
    long kilobytes = -1;
    FILE *file = fopen("/proc/self/status", "re");
    ck_assert_ptr_nonnull(file);
    while (kilobytes < 0 && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "VmLck: %ld", &kilobytes) != 1)
            kilobytes = -1;
    fclose(file);
    return kilobytes * 1024;
}

START_TEST(it_is_locked_while_it_is_held)
{
    long before = locked_bytes();
    char *memory = sbx_locked_new(10000);
    ck_assert_ptr_nonnull(memory);
    ck_assert_uint_eq((uintptr_t)memory % _Alignof(max_align_t), 0);
    for (size_t i = 0; i < 10000; i++)
        ck_assert_int_eq(memory[i], 0);
    memset(memory, 'x', 10000);
    ck_assert_int_ge(locked_bytes() - before, 10000);
    sbx_locked_free(memory);
    ck_assert_int_eq(locked_bytes(), before);
    sbx_locked_free(NULL);
}
END_TEST

START_TEST(it_is_gone_when_it_is_given_back)
{
    char *memory = sbx_locked_new(100);
    uintptr_t page = (uintptr_t)memory & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    sbx_locked_free(memory);
    unsigned char resident = 0;
    ck_assert_int_eq(mincore((void *)page, 1, &resident), -1);
}
END_TEST

START_TEST(no_more_than_the_limit_is_locked_and_never_less)
{
    /* Root locks what it likes. */
    struct rlimit limit = {4096, 4096};
    ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    if (geteuid() == 0)
        ck_assert_int_eq(setresuid(65534, 65534, 65534), 0);
    ck_assert_ptr_null(sbx_locked_new(1 << 20));
    ck_assert_ptr_null(sbx_locked_new(SIZE_MAX));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("locked");
    TCase *all = tcase_create("all");
    tcase_add_test(all, it_is_locked_while_it_is_held);
    tcase_add_test(all, it_is_gone_when_it_is_given_back);
    tcase_add_test(all, no_more_than_the_limit_is_locked_and_never_less);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
