/* Bytes as text and back, and what is no base64. */

#include "util/base64.h"
#include "util/memory.h"
#include <check.h>

static const struct {
    const char *bytes, *text;
} pairs[] = {
    {"", ""},
    {"f", "Zg=="},
    {"fo", "Zm8="},
    {"foo", "Zm9v"},
    {"foob", "Zm9vYg=="},
    {"fooba", "Zm9vYmE="},
    {"foobar", "Zm9vYmFy"},
    {"\xff\xfe\xfd", "//79"},
};

START_TEST(bytes_become_text_and_come_back)
{
    for (size_t n = 0; n < sizeof pairs / sizeof pairs[0]; n++) {
        SBX_ON_EXIT(sbx_free_text)
        char *text = sbx_base64_text(pairs[n].bytes, strlen(pairs[n].bytes));
        ck_assert_str_eq(text, pairs[n].text);
        uint8_t *data = NULL;
        size_t size = 0;
        ck_assert_int_eq(sbx_base64_parse(text, &data, &size, NULL), SANDBOX_OK);
        ck_assert_uint_eq(size, strlen(pairs[n].bytes));
        ck_assert_str_eq((const char *)data, pairs[n].bytes);
        free(data);
    }
}
END_TEST

START_TEST(zero_bytes_and_line_ends_are_fine)
{
    uint8_t *data = NULL;
    size_t size = 0;
    ck_assert_int_eq(sbx_base64_parse(" AAEC\r\n AwQ=\n", &data, &size, NULL), SANDBOX_OK);
    ck_assert_uint_eq(size, 5);
    ck_assert_mem_eq(data, "\0\1\2\3\4", 5);
    free(data);
}
END_TEST

START_TEST(what_is_none_is_refused)
{
    static const char *const bad[] = {"Z",    "Zg",   "Zg=",  "Zm9v=", "Zg==Zg==", "Zg===",
                                      "Zm9-", "Zm9_", "Z=g=", "====",  "Zm9v!",    NULL};
    for (size_t n = 0; bad[n] != NULL; n++) {
        uint8_t *data = NULL;
        size_t size = 0;
        sandbox_error error;
        ck_assert_msg(sbx_base64_parse(bad[n], &data, &size, &error) == SANDBOX_INVALID, "%s",
                      bad[n]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base64");
    TCase *all = tcase_create("all");
    tcase_add_test(all, bytes_become_text_and_come_back);
    tcase_add_test(all, zero_bytes_and_line_ends_are_fine);
    tcase_add_test(all, what_is_none_is_refused);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
