/* Memory for secrets: locked while it is held, and nothing of it stays. */

#include "util/locked.h"

#include <check.h>
#include <stdbool.h>
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

/* Under a sanitizer mlock() does nothing and says that it has. */
static bool locks_at_all(void)
{
    long before = locked_bytes();
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *memory = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert(memory != MAP_FAILED && mlock(memory, page) == 0);
    bool locks = locked_bytes() > before;
    munmap(memory, page);
    return locks;
}

START_TEST(it_is_locked_while_it_is_held)
{
    bool locks = locks_at_all();
    long before = locked_bytes();
    char *memory = sbx_locked_new(10000);
    ck_assert_ptr_nonnull(memory);
    ck_assert_uint_eq((uintptr_t)memory % _Alignof(max_align_t), 0);
    for (size_t i = 0; i < 10000; i++)
        ck_assert_int_eq(memory[i], 0);
    memset(memory, 'x', 10000);
    ck_assert_int_ge(locked_bytes() - before, locks ? 10000 : 0);
    sbx_locked_free(memory);
    ck_assert_int_eq(locked_bytes(), before);
    sbx_locked_free(NULL);
}
END_TEST

START_TEST(it_is_gone_when_it_is_given_back)
{
    char *memory = sbx_locked_new(100000);
    uintptr_t page = (uintptr_t)memory & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    sbx_locked_free(memory);
    unsigned char resident = 0;
    ck_assert_int_eq(mincore((void *)page, 1, &resident), -1);
}
END_TEST

START_TEST(a_page_that_is_used_again_says_nothing_of_before)
{
    static const char secret[] = "a secret that is nobody's business";
    char *pages[20];
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < 20; i++) {
            pages[i] = sbx_locked_new(2000);
            ck_assert_ptr_nonnull(pages[i]);
            for (size_t k = 0; k < 2000; k++)
                ck_assert_int_eq(pages[i][k], 0);
            memcpy(pages[i] + i * 50, secret, sizeof secret);
        }
        for (size_t i = 0; i < 20; i++)
            sbx_locked_free(pages[i]);
    }
}
END_TEST

START_TEST(no_more_than_the_limit_is_locked_and_never_less)
{
    bool locks = locks_at_all();
    /* Root locks what it likes. */
    struct rlimit limit = {4096, 4096};
    ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    if (geteuid() == 0)
        ck_assert_int_eq(setresuid(65534, 65534, 65534), 0);
    ck_assert(!locks || sbx_locked_new(1 << 20) == NULL);
    ck_assert_ptr_null(sbx_locked_new(SIZE_MAX));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("locked");
    TCase *all = tcase_create("all");
    tcase_add_test(all, it_is_locked_while_it_is_held);
    tcase_add_test(all, it_is_gone_when_it_is_given_back);
    tcase_add_test(all, a_page_that_is_used_again_says_nothing_of_before);
    tcase_add_test(all, no_more_than_the_limit_is_locked_and_never_less);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
