/* The digest of leaves is the one that its definition says, however many leaves there are. */

#include "util/digest_leaves.h"
#include "util/random.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define LEAVES 40

static uint8_t *data;
static struct sbx_leaves *leaves;

static void set_up(void)
{
    data = malloc((size_t)LEAVES * SBX_LEAF_BYTES);
    leaves = sbx_leaves_new();
    ck_assert(data != NULL && leaves != NULL);
    ck_assert(sbx_random(data, (size_t)LEAVES * SBX_LEAF_BYTES));
}

static void tear_down(void)
{
    free(data);
    sbx_leaves_free(leaves);
}

/* One leaf after the other, by another library's SHA-256. */
static void compare(size_t size)
{
    uint8_t parts[LEAVES][SBX_DIGEST_BYTES], wanted[SBX_DIGEST_BYTES], got[SBX_DIGEST_BYTES];
    size_t count = 0;
    for (size_t at = 0; at < size; at += SBX_LEAF_BYTES)
        sbx_sha256(data + at, size - at < SBX_LEAF_BYTES ? size - at : SBX_LEAF_BYTES,
                   parts[count++]);
    sbx_sha256(parts, count * SBX_DIGEST_BYTES, wanted);
    ck_assert(sbx_leaves_end(leaves, got));
    ck_assert_msg(memcmp(got, wanted, sizeof got) == 0, "%zu bytes", size);
}

START_TEST(any_number_of_leaves_has_the_digest_of_its_definition)
{
    static const size_t ends[] = {0, 1, 55, 56, 63, 64, 65, 1000, SBX_LEAF_BYTES - 1};
    static const size_t counts[] = {0, 1, 2, 15, 16, 17, 31, 32, 33, LEAVES - 1};
    for (size_t each = 0; each < sizeof counts / sizeof counts[0]; each++) {
        for (size_t n = 0; n < sizeof ends / sizeof ends[0]; n++) {
            size_t size = counts[each] * SBX_LEAF_BYTES + ends[n];
            sbx_leaves_add(leaves, data, size);
            compare(size);
        }
    }
}
END_TEST

START_TEST(pieces_of_whole_leaves_make_no_difference)
{
    size_t size = LEAVES * SBX_LEAF_BYTES - 100;
    for (size_t piece = 1; piece <= LEAVES; piece += 7) {
        for (size_t at = 0; at < size; at += piece * SBX_LEAF_BYTES)
            sbx_leaves_add(leaves, data + at,
                           size - at < piece * SBX_LEAF_BYTES ? size - at : piece * SBX_LEAF_BYTES);
        compare(size);
    }
}
END_TEST

START_TEST(a_changed_bit_is_seen_wherever_it_is)
{
    uint8_t before[SBX_DIGEST_BYTES], after[SBX_DIGEST_BYTES];
    size_t size = LEAVES * SBX_LEAF_BYTES;
    sbx_leaves_add(leaves, data, size);
    ck_assert(sbx_leaves_end(leaves, before));
    for (size_t at = 0; at < size; at += size / 23) {
        data[at] ^= 1;
        sbx_leaves_add(leaves, data, size);
        ck_assert(sbx_leaves_end(leaves, after));
        ck_assert(memcmp(before, after, sizeof after) != 0);
        data[at] ^= 1;
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("digest_leaves");
    TCase *tests = tcase_create("digest_leaves");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, any_number_of_leaves_has_the_digest_of_its_definition);
    tcase_add_test(tests, pieces_of_whole_leaves_make_no_difference);
    tcase_add_test(tests, a_changed_bit_is_seen_wherever_it_is);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
