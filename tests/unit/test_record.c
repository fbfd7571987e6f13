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
    snprintf(text, sizeof text, "%.*s,\"unheard_of\":{\"deep\":[1,2]}}", (int)strlen(minimal) - 1,
             minimal);
    struct sbx_record record = {0};
    ck_assert_int_eq(decode(text, &record), SANDBOX_OK);
    record.epoch = 9;
    char *again = NULL;
    ck_assert_int_eq(sbx_record_encode(&record, &again, NULL), SANDBOX_OK);
    ck_assert(strstr(again, "\"unheard_of\":{\"deep\":[1,2]}") != NULL);
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

/* ---- snapshots ---- */

#define NEWER "fedcba9876543210fedcba9876543210"
#define HASH  "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

/* One of a list, as text. */
#define ENTRY(id, more) "{\"id\":\"" id "\",\"kind\":\"memory\"" more "}"

/* A record with these fields more; the text is the next call's too. */
static const char *with(const char *fields)
{
    static char text[8192];
    int length = snprintf(text, sizeof text, "%.*s,%s}", (int)strlen(minimal) - 1, minimal, fields);
    ck_assert_int_lt(length, (int)sizeof text);
    return text;
}

static struct sbx_snapshot snapshot_of(const char *id, sandbox_keep kind)
{
    struct sbx_snapshot snapshot = {.kind = kind, .seal_hash = HASH, .digest = HASH, .run = ID,
                                    .key_id = 7, .epoch = 4000000000u, .incarnation = "boot:1:2",
                                    .created_ms = 1796000000123, .bytes = 1ull << 50,
                                    .proven = true};
    snprintf(snapshot.id, sizeof snapshot.id, "%s", id);
    return snapshot;
}

static void must_be_same(const struct sbx_snapshot *is, const struct sbx_snapshot *was)
{
    ck_assert_str_eq(is->id, was->id);
    ck_assert_int_eq(is->kind, was->kind);
    ck_assert_str_eq(is->seal_hash, was->seal_hash);
    ck_assert_str_eq(is->digest, was->digest);
    ck_assert_str_eq(is->run, was->run);
    ck_assert_uint_eq(is->key_id, was->key_id);
    ck_assert_uint_eq(is->epoch, was->epoch);
    ck_assert_str_eq(is->incarnation, was->incarnation);
    ck_assert_int_eq(is->created_ms, was->created_ms);
    ck_assert_uint_eq(is->bytes, was->bytes);
    ck_assert(is->proven == was->proven);
}

START_TEST(snapshots_survive_writing_and_reading)
{
    bool failed = false;
    const char *checks[] = {"opencode:4096", NULL};
    struct sbx_snapshot older = snapshot_of(ID, SANDBOX_KEEP_FILES);
    struct sbx_snapshot newer = snapshot_of(NEWER, SANDBOX_KEEP_MEMORY);
    older.seal_hash[0] = '\0';
    older.proven = false;
    struct sbx_record record = {.id = ID, .name = "w", .state = SANDBOX_STATE_SUSPENDING,
                                .precious = true, .snapshot = ID, .next_run = NEWER,
                                .next_key_id = 8, .generation = 9, .retain = 5,
                                .suspend_after_idle_ms = 900000, .making = newer,
                                .operation = {.kind = "suspend", .wanted = true}};
    record.checks = sbx_copy_strings(checks, &failed);
    ck_assert_int_eq(sbx_record_add_snapshot(&record, &older, NULL), SANDBOX_OK);
    ck_assert_int_eq(sbx_record_add_snapshot(&record, &newer, NULL), SANDBOX_OK);
    char *text = NULL;
    ck_assert_int_eq(sbx_record_encode(&record, &text, NULL), SANDBOX_OK);
    struct sbx_record back = {0};
    ck_assert_int_eq(decode(text, &back), SANDBOX_OK);
    ck_assert_uint_eq(back.snapshot_count, 2);
    must_be_same(&back.snapshots[0], &older);
    must_be_same(&back.snapshots[1], &newer);
    must_be_same(&back.making, &newer);
    ck_assert_str_eq(back.snapshot, ID);
    ck_assert_str_eq(back.next_run, NEWER);
    ck_assert_uint_eq(back.next_key_id, 8);
    ck_assert_uint_eq(back.generation, 9);
    ck_assert_uint_eq(back.retain, 5);
    ck_assert_uint_eq(back.suspend_after_idle_ms, 900000);
    ck_assert(back.precious && back.operation.wanted);
    ck_assert_str_eq(back.checks[0], "opencode:4096");
    free(text);
    sbx_record_clear(&record);
    sbx_record_clear(&back);
}
END_TEST

START_TEST(a_record_of_before_there_were_snapshots_has_none)
{
    struct sbx_record record = {0};
    ck_assert_int_eq(decode(minimal, &record), SANDBOX_OK);
    ck_assert_uint_eq(record.snapshot_count, 0);
    ck_assert_str_eq(record.snapshot, "");
    ck_assert_str_eq(record.making.id, "");
    ck_assert(!record.precious);
    ck_assert_uint_eq(record.retain, SBX_RETAIN_DEFAULT);
    sbx_record_clear(&record);
}
END_TEST

START_TEST(fields_of_a_newer_version_survive_inside_a_snapshot)
{
    struct sbx_record record = {0};
    struct sbx_snapshot another = snapshot_of("11111111111111111111111111111111",
                                              SANDBOX_KEEP_MEMORY);
    ck_assert_int_eq(decode(with("\"snapshots\":[" ENTRY(ID, ",\"shape\":[1]") ","
                                 ENTRY(NEWER, ",\"shape\":{\"deep\":2}") "]"),
                            &record),
                     SANDBOX_OK);
    /* Whichever place it has afterwards. */
    sbx_record_drop_snapshot(&record, ID);
    record.snapshots[0].proven = true;
    ck_assert_int_eq(sbx_record_add_snapshot(&record, &another, NULL), SANDBOX_OK);
    char *text = NULL;
    ck_assert_int_eq(sbx_record_encode(&record, &text, NULL), SANDBOX_OK);
    ck_assert_ptr_nonnull(strstr(text, "\"shape\":{\"deep\":2}"));
    ck_assert_ptr_null(strstr(text, "\"shape\":[1]"));
    ck_assert_ptr_nonnull(strstr(text, "\"proven\":true"));
    free(text);
    sbx_record_clear(&record);
}
END_TEST

START_TEST(what_is_removed_does_not_come_back)
{
    /* Twice the same field: only one that writes all of it anew takes away the other as well. */
    struct sbx_record record = {0}, back = {0};
    ck_assert_int_eq(decode(with("\"making\":" ENTRY(ID, "") ",\"making\":" ENTRY(NEWER, "")
                                 ",\"precious\":true,\"precious\":true,\"snapshots\":["
                                 ENTRY(ID, "") "],\"snapshots\":[" ENTRY(NEWER, "") "]"),
                            &record),
                     SANDBOX_OK);
    record.making = (struct sbx_snapshot){.id = ""};
    record.precious = false;
    sbx_record_drop_snapshot(&record, ID);
    sbx_record_drop_snapshot(&record, "");
    char *text = NULL;
    ck_assert_int_eq(sbx_record_encode(&record, &text, NULL), SANDBOX_OK);
    ck_assert_int_eq(decode(text, &back), SANDBOX_OK);
    ck_assert_uint_eq(back.snapshot_count, 0);
    ck_assert_str_eq(back.making.id, "");
    ck_assert(!back.precious);
    free(text);
    sbx_record_clear(&record);
    sbx_record_clear(&back);
}
END_TEST

START_TEST(a_snapshot_that_cannot_be_trusted_damages_the_record)
{
    static const char *const bad[] = {
        /* The recovery point is not in the list. */
        "\"snapshot\":\"" ID "\"",
        "\"snapshot\":\"" NEWER "\",\"snapshots\":[" ENTRY(ID, "") "]",
        "\"snapshot\":\"" ID ID "\",\"snapshots\":[" ENTRY(ID, "") "]",
        /* One id twice. */
        "\"snapshots\":[" ENTRY(ID, "") "," ENTRY(ID, "") "]",
        "\"snapshots\":[" ENTRY("../../../etc", "") "]",
        "\"snapshots\":[" ENTRY("", "") "]",
        "\"snapshots\":[{\"id\":\"" ID "\",\"kind\":\"best\"}]",
        "\"snapshots\":[{\"id\":\"" ID "\"}]",
        "\"snapshots\":[" ENTRY(ID, ",\"seal_hash\":\"" HASH "0\"") "]",
        "\"snapshots\":[" ENTRY(ID, ",\"digest\":\"" HASH "0\"") "]",
        "\"snapshots\":[1]", "\"snapshots\":[null]",
        "\"making\":1", "\"making\":{\"id\":\"short\",\"kind\":\"memory\"}",
        "\"next_run\":\"" ID ID "\"",
    };
    for (size_t n = 0; n < sizeof bad / sizeof bad[0]; n++) {
        struct sbx_record record = {0};
        ck_assert_msg(decode(with(bad[n]), &record) == SANDBOX_FAILED, "accepted: %s", bad[n]);
    }
}
END_TEST

START_TEST(there_are_only_so_many_snapshots)
{
    char text[8192] = "\"snapshots\":[";
    struct sbx_record record = {.name = "w"};
    struct sbx_snapshot snapshot = snapshot_of(ID, SANDBOX_KEEP_FILES);
    for (unsigned n = 0; n <= SBX_SNAPSHOTS_MAX; n++) {
        sandbox_error error = {0};
        snprintf(snapshot.id, sizeof snapshot.id, "%032x", n);
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "%s{\"id\":\"%032x\",\"kind\":\"files\"}", n == 0 ? "" : ",", n);
        sandbox_status status = sbx_record_add_snapshot(&record, &snapshot, &error);
        ck_assert_int_eq(status, n < SBX_SNAPSHOTS_MAX ? SANDBOX_OK : SANDBOX_LIMIT);
        ck_assert_str_eq(error.reason, n < SBX_SNAPSHOTS_MAX ? "" : "too-many-snapshots");
    }
    ck_assert_uint_eq(record.snapshot_count, SBX_SNAPSHOTS_MAX);
    sbx_record_clear(&record);
    strcat(text, "]");
    ck_assert_int_eq(decode(with(text), &record), SANDBOX_FAILED);
}
END_TEST

START_TEST(numbers_out_of_reach_are_brought_back)
{
    struct sbx_record record = {0};
    ck_assert_int_eq(decode(with("\"retain\":1000,\"generation\":-1,\"snapshots\":["
                                 ENTRY(ID, ",\"epoch\":1e99,\"bytes\":-5") "]"),
                            &record),
                     SANDBOX_OK);
    ck_assert_uint_eq(record.retain, SBX_RETAIN_DEFAULT);
    ck_assert_uint_eq(record.generation, 0);
    ck_assert_uint_eq(record.snapshots[0].epoch, UINT32_MAX);
    ck_assert_uint_eq(record.snapshots[0].bytes, 0);
    sbx_record_clear(&record);
}
END_TEST

START_TEST(a_snapshot_is_found_by_its_id_alone)
{
    struct sbx_record record = {.name = "w"};
    struct sbx_snapshot one = snapshot_of(ID, SANDBOX_KEEP_FILES);
    struct sbx_snapshot two = snapshot_of(NEWER, SANDBOX_KEEP_FILES);
    ck_assert_ptr_null(sbx_record_snapshot(&record, ID));
    ck_assert_int_eq(sbx_record_add_snapshot(&record, &one, NULL), SANDBOX_OK);
    ck_assert_int_eq(sbx_record_add_snapshot(&record, &two, NULL), SANDBOX_OK);
    ck_assert_ptr_null(sbx_record_snapshot(&record, ""));
    ck_assert_str_eq(sbx_record_snapshot(&record, NEWER)->id, NEWER);
    sbx_record_drop_snapshot(&record, ID);
    ck_assert_ptr_null(sbx_record_snapshot(&record, ID));
    ck_assert_str_eq(sbx_record_snapshot(&record, NEWER)->id, NEWER);
    sbx_record_drop_snapshot(&record, ID); /* what is not there is no failure */
    ck_assert_uint_eq(record.snapshot_count, 1);
    sbx_record_clear(&record);
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
    tcase_add_test(all, snapshots_survive_writing_and_reading);
    tcase_add_test(all, a_record_of_before_there_were_snapshots_has_none);
    tcase_add_test(all, fields_of_a_newer_version_survive_inside_a_snapshot);
    tcase_add_test(all, what_is_removed_does_not_come_back);
    tcase_add_test(all, a_snapshot_that_cannot_be_trusted_damages_the_record);
    tcase_add_test(all, there_are_only_so_many_snapshots);
    tcase_add_test(all, numbers_out_of_reach_are_brought_back);
    tcase_add_test(all, a_snapshot_is_found_by_its_id_alone);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
