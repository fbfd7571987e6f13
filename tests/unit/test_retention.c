/* Retention: which snapshots go, and which never do. The platform behind it is one that notes. */

#include "core/retention.h"
#include "util/memory.h"
#include <check.h>
#include <stdio.h>

#define ID "0123456789abcdef0123456789abcdef"

static struct {
    unsigned removed;
    unsigned fails_from; /* the first removal that fails; 0: none does */
} platform;

static sandbox_status note_removal(void *state, const struct sbx_record *record,
                                   const char *snapshot_id, const struct sbx_wait *wait,
                                   sandbox_error *error)
{
    ck_assert_ptr_eq(state, &platform);
    ck_assert_ptr_nonnull(sbx_record_snapshot(record, snapshot_id));
    platform.removed++;
    bool fails = platform.fails_from != 0 && platform.removed >= platform.fails_from;
    return fails ? SANDBOX_FAILED : SANDBOX_OK;
}

static const struct sbx_driver driver = {.name = "noting", .snapshot_remove = note_removal};
static sandbox_client client = {.driver = &driver, .state = &platform};
static struct sbx_record record;

/* Snapshot number `n`, counted from the oldest. */
static const char *id_of(unsigned n)
{
    static char texts[SBX_SNAPSHOTS_MAX][SBX_ID_TEXT];
    snprintf(texts[n], sizeof texts[n], "%032x", n + 1);
    return texts[n];
}

static void set_up(void)
{
    record = (struct sbx_record){.id = ID, .name = "w", .retain = 3};
    memset(&platform, 0, sizeof platform);
}

static void tear_down(void)
{
    sbx_record_clear(&record);
}

static void add_snapshots(unsigned count)
{
    for (unsigned n = 0; n < count; n++) {
        struct sbx_snapshot snapshot = {.kind = SANDBOX_KEEP_FILES};
        memcpy(snapshot.id, id_of(n), SBX_ID_TEXT);
        ck_assert_int_eq(sbx_record_add_snapshot(&record, &snapshot, NULL), SANDBOX_OK);
    }
}

static void set_recovery_point(unsigned n)
{
    memcpy(record.snapshot, id_of(n), SBX_ID_TEXT);
}

/* Prunes, and looks that exactly those numbers are left: "0 4 5". */
static void prune_leaves(const char *spare, const char *expected)
{
    struct sbx_wait wait = sbx_wait_alone(1000);
    struct sbx_pruned pruned;
    char left[128] = "";
    snprintf(record.operation.spare, sizeof record.operation.spare, "%s",
             spare == NULL ? "" : spare);
    sbx_prune(&client, &record, &wait, &pruned);
    ck_assert_int_eq(sbx_record_drop_pruned(&record, &pruned, NULL), SANDBOX_OK);
    for (size_t n = 0; n < record.snapshot_count; n++)
        snprintf(left + strlen(left), sizeof left - strlen(left), "%s%lu", n == 0 ? "" : " ",
                 strtoul(record.snapshots[n].id, NULL, 16) - 1);
    ck_assert_str_eq(left, expected);
}

START_TEST(the_oldest_go)
{
    add_snapshots(6);
    set_recovery_point(5);
    prune_leaves(NULL, "3 4 5");
    ck_assert_uint_eq(platform.removed, 3);
}
END_TEST

START_TEST(as_many_as_are_kept_stay)
{
    add_snapshots(3);
    set_recovery_point(2);
    prune_leaves(NULL, "0 1 2");
    ck_assert_uint_eq(platform.removed, 0);
}
END_TEST

START_TEST(never_the_recovery_point)
{
    add_snapshots(6);
    set_recovery_point(0);
    prune_leaves(NULL, "0 4 5");
}
END_TEST

START_TEST(never_the_newest)
{
    record.retain = 1;
    add_snapshots(4);
    set_recovery_point(1);
    prune_leaves(NULL, "1 3");
}
END_TEST

START_TEST(never_the_last_that_was_proven)
{
    record.retain = 1;
    add_snapshots(6);
    record.snapshots[0].proven = record.snapshots[2].proven = true;
    set_recovery_point(5);
    prune_leaves(NULL, "2 5");
}
END_TEST

START_TEST(never_the_spared_one)
{
    record.retain = 1;
    add_snapshots(5);
    set_recovery_point(4);
    prune_leaves(id_of(1), "1 4");
    prune_leaves(NULL, "4");
}
END_TEST

START_TEST(more_stay_than_are_kept_if_each_has_its_reason)
{
    record.retain = 1;
    add_snapshots(6);
    record.snapshots[2].proven = true;
    set_recovery_point(1);
    prune_leaves(id_of(3), "1 2 3 5");
}
END_TEST

START_TEST(a_full_list_is_pruned_at_once)
{
    record.retain = 1;
    add_snapshots(SBX_SNAPSHOTS_MAX);
    set_recovery_point(SBX_SNAPSHOTS_MAX - 1);
    prune_leaves(NULL, "19");
    ck_assert_uint_eq(platform.removed, SBX_SNAPSHOTS_MAX - 1);
}
END_TEST

START_TEST(what_could_not_be_removed_stays_in_the_record)
{
    platform.fails_from = 2;
    add_snapshots(6);
    set_recovery_point(5);
    prune_leaves(NULL, "1 2 3 4 5");
    ck_assert_uint_eq(platform.removed, 2);
    platform.fails_from = 0;
    prune_leaves(NULL, "3 4 5");
}
END_TEST

START_TEST(without_snapshots_there_is_nothing_to_do)
{
    prune_leaves(NULL, "");
    ck_assert_uint_eq(platform.removed, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("retention");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, the_oldest_go);
    tcase_add_test(all, as_many_as_are_kept_stay);
    tcase_add_test(all, never_the_recovery_point);
    tcase_add_test(all, never_the_newest);
    tcase_add_test(all, never_the_last_that_was_proven);
    tcase_add_test(all, never_the_spared_one);
    tcase_add_test(all, more_stay_than_are_kept_if_each_has_its_reason);
    tcase_add_test(all, a_full_list_is_pruned_at_once);
    tcase_add_test(all, what_could_not_be_removed_stays_in_the_record);
    tcase_add_test(all, without_snapshots_there_is_nothing_to_do);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
