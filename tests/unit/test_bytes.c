/* The growing queue: order, limit, and memory that is given back. */

#include "util/bytes.h"
#include <check.h>
#include <string.h>

START_TEST(what_goes_in_comes_out_in_order)
{
    struct sbx_bytes bytes = SBX_BYTES(1 << 20);
    uint8_t next_in = 0, next_out = 0;
    for (int round = 0; round < 3000; round++) {
        uint8_t piece[97];
        for (size_t n = 0; n < sizeof piece; n++)
            piece[n] = next_in++;
        ck_assert(sbx_bytes_append(&bytes, piece, sizeof piece));
        size_t taken =
            sbx_bytes_size(&bytes) < 61 ? sbx_bytes_size(&bytes) : 61 + (size_t)round % 60;
        if (taken > sbx_bytes_size(&bytes))
            taken = sbx_bytes_size(&bytes);
        for (size_t n = 0; n < taken; n++)
            ck_assert_uint_eq(sbx_bytes_data(&bytes)[n], next_out++);
        sbx_bytes_skip(&bytes, taken);
    }
    sbx_bytes_free(&bytes);
}
END_TEST

START_TEST(the_limit_counts_what_is_held_not_what_passed_through)
{
    struct sbx_bytes bytes = SBX_BYTES(10);
    for (int n = 0; n < 100; n++) {
        ck_assert(sbx_bytes_append(&bytes, "0123456789", 10));
        ck_assert(!sbx_bytes_append(&bytes, "x", 1));
        sbx_bytes_skip(&bytes, 10);
    }
    ck_assert(!sbx_bytes_append(&bytes, "0123456789x", 11));
    ck_assert_uint_eq(sbx_bytes_size(&bytes), 0);
    sbx_bytes_free(&bytes);
}
END_TEST

START_TEST(nothing_can_be_appended_to_nothing)
{
    struct sbx_bytes bytes = SBX_BYTES(4);
    ck_assert(sbx_bytes_append(&bytes, NULL, 0));
    ck_assert_uint_eq(sbx_bytes_size(&bytes), 0);
    sbx_bytes_free(&bytes);
    sbx_bytes_free(&bytes);
}
END_TEST

START_TEST(text_is_formatted_within_the_limit)
{
    struct sbx_bytes bytes = SBX_BYTES(8);
    ck_assert(sbx_bytes_format(&bytes, "%d-%s", 12, "ab"));
    ck_assert_uint_eq(sbx_bytes_size(&bytes), 5);
    ck_assert(memcmp(sbx_bytes_data(&bytes), "12-ab", 5) == 0);
    ck_assert(!sbx_bytes_format(&bytes, "%s", "too long"));
    ck_assert_uint_eq(sbx_bytes_size(&bytes), 5);
    sbx_bytes_free(&bytes);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bytes");
    TCase *all = tcase_create("all");
    tcase_add_test(all, what_goes_in_comes_out_in_order);
    tcase_add_test(all, the_limit_counts_what_is_held_not_what_passed_through);
    tcase_add_test(all, nothing_can_be_appended_to_nothing);
    tcase_add_test(all, text_is_formatted_within_the_limit);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
