/* Records: what is kept, what is refused, and the table of states. */

#include "core/record.h"
#include "util/memory.h"
#include <check.h>
#include <stdio.h>

#define ID "0123456789abcdef0123456789abcdef"

static const char minimal[] =
    "{\"format\":1,\"id\":\"" ID "\",\"name\":\"w\",\"state\":\"running\"}";

static sandbox_status decode(const char *text, struct sbx_record *record)
{
    return sbx_record_decode(text, strlen(text), record, NULL);
}

START_TEST(everything_survives_writing_and_reading)
{
    const char *labels[] = {"team=a", "empty=", NULL};
    bool failed = false;
    struct sbx_record record = {.id = ID, .name = "a-1", .driver = "gvisor",
                                .state = SANDBOX_STATE_CREATING, .epoch = 4000000000u,
                                .incarnation = "boot:1:2", .run = ID, .key_id = 3,
                                .user = "root", .memory_mib = 1, .cpu_millis = 2,
                                .process_limit = 3, .disk_mib = 4, .created_ms = 1796000000123,
                                .expires_ms = 1796000000999,
                                .operation = {.kind = "create", .id = ID, .step = "open",
                                              .owner = "host:1", .lease_ms = 5, .renewals = 6}};
    record.image = sbx_copy("/images/one");
    record.labels = sbx_copy_strings(labels, &failed);
    char *text = NULL;
    ck_assert_int_eq(sbx_record_encode(&record, &text, NULL), SANDBOX_OK);
    struct sbx_record back = {0};
    ck_assert_int_eq(decode(text, &back), SANDBOX_OK);
    ck_assert_str_eq(back.name, "a-1");
    ck_assert_uint_eq(back.epoch, 4000000000u);
    ck_assert_str_eq(back.operation.step, "open");
    ck_assert_uint_eq(back.operation.renewals, 6);
    ck_assert_str_eq(back.image, "/images/one");
    ck_assert_str_eq(back.labels[1], "empty=");
    ck_assert_ptr_null(back.labels[2]);
    ck_assert_int_eq(back.expires_ms, 1796000000999);
    free(text);
    sbx_record_clear(&record);
    sbx_record_clear(&back);
}
END_TEST

START_TEST(fields_of_a_newer_version_survive_a_rewrite)
{
    char text[400];
    snprintf(text, sizeof text, "%.*s,\"precious\":{\"deep\":[1,2]}}", (int)strlen(minimal) - 1,
             minimal);
    struct sbx_record record = {0};
    ck_assert_int_eq(decode(text, &record), SANDBOX_OK);
    record.epoch = 9;
    char *again = NULL;
    ck_assert_int_eq(sbx_record_encode(&record, &again, NULL), SANDBOX_OK);
    ck_assert(strstr(again, "\"precious\":{\"deep\":[1,2]}") != NULL);
    ck_assert(strstr(again, "\"epoch\":9") != NULL);
    free(again);
    sbx_record_clear(&record);
}
END_TEST

START_TEST(what_is_not_a_record_is_refused)
{
    static const char *const bad[] = {
        "", "{", "[]", "null", "{}", "{\"format\":1}",
        "{\"format\":1,\"id\":\"short\",\"name\":\"w\",\"state\":\"running\"}",
        "{\"format\":1,\"id\":\"" ID "\",\"name\":\"../w\",\"state\":\"running\"}",
        "{\"format\":1,\"id\":\"" ID "\",\"name\":\"w\",\"state\":\"dancing\"}",
        "{\"format\":1,\"id\":\"" ID "\",\"name\":\"w\",\"state\":\"running\"} x",
        "{\"format\":1,\"id\":\"" ID "\",\"name\":\"w\",\"state\":\"running\",\"labels\":[1]}",
    };
    for (size_t n = 0; n < sizeof bad / sizeof bad[0]; n++) {
        struct sbx_record record = {0};
        ck_assert_msg(decode(bad[n], &record) == SANDBOX_FAILED, "accepted: %s", bad[n]);
    }
    struct sbx_record record = {0};
    ck_assert_int_eq(decode("{\"format\":2}", &record), SANDBOX_UNSUPPORTED);
}
END_TEST

START_TEST(names_are_what_every_platform_allows)
{
    ck_assert(sbx_name_is_valid("a"));
    ck_assert(sbx_name_is_valid("0-9"));
    ck_assert(sbx_name_is_valid("a23456789012345678901234567890123456789012345678901234567890123"));
    static const char *const bad[] = {"", "-a", "a-", "A", "a.b", "a/b", "..", "a b", "\xc3\xa9",
        "a234567890123456789012345678901234567890123456789012345678901234"};
    for (size_t n = 0; n < sizeof bad / sizeof bad[0]; n++)
        ck_assert_msg(!sbx_name_is_valid(bad[n]), "accepted: '%s'", bad[n]);
    ck_assert(!sbx_name_is_valid(NULL));
}
END_TEST

START_TEST(only_the_tables_steps_are_allowed)
{
    ck_assert(sbx_transition_allowed(SANDBOX_STATE_CREATING, SANDBOX_STATE_RUNNING, "create"));
    ck_assert(sbx_transition_allowed(SANDBOX_STATE_RUNNING, SANDBOX_STATE_INTERRUPTED, "-"));
    ck_assert(sbx_transition_allowed(SANDBOX_STATE_INTERRUPTED, SANDBOX_STATE_CREATING, "restart"));
    ck_assert(!sbx_transition_allowed(SANDBOX_STATE_RUNNING, SANDBOX_STATE_CREATING, "create"));
    ck_assert(!sbx_transition_allowed(SANDBOX_STATE_DELETING, SANDBOX_STATE_RUNNING, "create"));
    ck_assert(!sbx_transition_allowed(SANDBOX_STATE_CREATING, SANDBOX_STATE_INTERRUPTED, "create"));
    ck_assert_str_eq(sandbox_state_name(SANDBOX_STATE_INTERRUPTED), "interrupted");
    ck_assert_str_eq(sandbox_state_name((sandbox_state)99), "unknown");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("record");
    TCase *all = tcase_create("all");
    tcase_add_test(all, everything_survives_writing_and_reading);
    tcase_add_test(all, fields_of_a_newer_version_survive_a_rewrite);
    tcase_add_test(all, what_is_not_a_record_is_refused);
    tcase_add_test(all, names_are_what_every_platform_allows);
    tcase_add_test(all, only_the_tables_steps_are_allowed);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
