/* gRPC status numbers and ours, both ways, and the words of strangers. */

#include "agent/session.h"
#include "agent/text.h"
#include <check.h>

START_TEST(what_we_say_comes_back_as_it_was)
{
    static const sandbox_status exact[] = {
        SANDBOX_OK,        SANDBOX_INVALID,   SANDBOX_NOT_FOUND,   SANDBOX_EXISTS,
        SANDBOX_DENIED,    SANDBOX_LIMIT,     SANDBOX_UNSUPPORTED, SANDBOX_UNAVAILABLE,
        SANDBOX_TIMED_OUT, SANDBOX_CANCELLED, SANDBOX_CONFLICT,    SANDBOX_FAILED,
    };
    for (size_t index = 0; index < sizeof exact / sizeof exact[0]; index++)
        ck_assert_int_eq(sbx_status_of_grpc(sbx_grpc_of_status(exact[index]), ""), exact[index]);
    ck_assert_int_eq(sbx_status_of_grpc(sbx_grpc_of_status(SANDBOX_CLOSED), "ended"),
                     SANDBOX_CLOSED);
}
END_TEST

START_TEST(a_number_that_nobody_knows_is_a_failure)
{
    for (unsigned number = 17; number < 1000; number++)
        ck_assert_int_eq(sbx_status_of_grpc(number, "ended"), SANDBOX_FAILED);
}
END_TEST

static void check_clean(const char *bytes, size_t size, size_t room, const char *expected)
{
    char text[64];
    sbx_text_clean((const uint8_t *)bytes, size, text, room);
    ck_assert_str_eq(text, expected);
}

START_TEST(strangers_words_become_one_line_of_valid_utf8)
{
    check_clean("a\n\tb\x1b\x7f", 6, 64, "a  b  ");
    check_clean("\xff\xc3(\xc3\xa9", 5, 64, "?" "?(\xc3\xa9");
    check_clean("\xc0\x80\xed\xa0\x80\xf5\x80\x80\x80", 9, 64, "?????????");
    check_clean("\xf0\x9f\x98\x80\xc2\x85\xe2\x80\xa8", 9, 64, "\xf0\x9f\x98\x80  ");
    check_clean("\xe2\x82", 2, 64, "??");
    check_clean("ab\xc3\xa9", 4, 4, "ab"); /* no half character */
    check_clean("a\0b", 3, 64, "a b");
    check_clean("", 0, 1, "");
}
END_TEST

START_TEST(percent_signs_are_undone_where_they_mean_something)
{
    uint8_t bytes[] = "%41%zz%4%%20%";
    size_t size = sbx_text_decode_percent(bytes, sizeof bytes - 1);
    ck_assert_uint_eq(size, 9);
    ck_assert_mem_eq(bytes, "A%zz%4% %", 9);
}
END_TEST

START_TEST(a_reason_is_a_word_or_nothing)
{
    char word[8];
    ck_assert(sbx_text_word((const uint8_t *)"no-1", 4, word, sizeof word));
    ck_assert_str_eq(word, "no-1");
    ck_assert(!sbx_text_word((const uint8_t *)"No", 2, word, sizeof word));
    ck_assert_str_eq(word, "");
    ck_assert(!sbx_text_word((const uint8_t *)"a b", 3, word, sizeof word));
    ck_assert(!sbx_text_word((const uint8_t *)"eightlet", 8, word, sizeof word));
    ck_assert(!sbx_text_word((const uint8_t *)"", 0, word, sizeof word));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("status");
    TCase *cases = tcase_create("status");
    tcase_add_test(cases, what_we_say_comes_back_as_it_was);
    tcase_add_test(cases, a_number_that_nobody_knows_is_a_failure);
    tcase_add_test(cases, strangers_words_become_one_line_of_valid_utf8);
    tcase_add_test(cases, percent_signs_are_undone_where_they_mean_something);
    tcase_add_test(cases, a_reason_is_a_word_or_nothing);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failures = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failures == 0 ? 0 : 1;
}
