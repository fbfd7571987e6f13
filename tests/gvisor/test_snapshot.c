/* The gvisor driver's snapshots on a real runsc: there and back. */

#include "snapshot_rig.h"
#include "util/child.h"
#include "util/memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

START_TEST(memory_and_files_come_back_in_another_instance)
{
    shot_begin_workspace("round-trip");
    shot_begin_counter();
    long before = 0;
    ck_assert(rig_await(shot_counts_on, &before));
    before = shot_count();
    shot_take(SANDBOX_KEEP_MEMORY);
    shot_expect_intact();
    shot_release();
    shot_expect_intact();
    /* Whoever wrote to the live files meanwhile does not meet what was suspended. */
    shot_shell("echo changed >files/workspace/a/one && touch files/home/new");
    for (int n = 0; n < 2; n++) {
        shot_bring_back(SANDBOX_KEEP_MEMORY);
        shot_expect_memory(before);
        ck_assert_int_eq(rig_inside(&shot.record,
                                    "cat /tmp/secret /workspace/a/one /workspace/a/b/two "
                                    "/home/sandbox/mine && ls -A /home/sandbox && "
                                    "stat -c %h /workspace/a/one && echo later >/workspace/later",
                                    &shot.text),
                         0);
        ck_assert_str_eq(shot.text, "in-memory\none\none\nmine\nmine\n2\n");
        shot_expect_intact();
        shot_release();
    }
    ck_assert_int_eq(rig_number("find %s -name '*.new*' -o -name '*.links' -o -name finished "
                                "-o -name begun.json | wc -l",
                                shot_host("")),
                     0);
    rig_destroy(&shot.record);
}
END_TEST

START_TEST(each_snapshot_stands_alone)
{
    shot_begin_workspace("alone");
    shot_begin_counter();
    struct sbx_snapshot first;
    shot_take(SANDBOX_KEEP_MEMORY);
    first = shot.snapshot;
    shot_release();
    shot_bring_back(SANDBOX_KEEP_MEMORY);
    ck_assert_int_eq(
        rig_inside(&shot.record, "echo second >/tmp/secret; echo 2 >/workspace/a/one", &shot.text),
        0);
    shot.record.epoch++;
    rig_store(&shot.record);
    shot_take(SANDBOX_KEEP_MEMORY);
    shot_release();
    shot_expect_intact();
    struct sbx_snapshot second = shot.snapshot;
    shot.snapshot = first;
    shot_expect_intact();
    shot_bring_back(SANDBOX_KEEP_MEMORY);
    ck_assert_int_eq(rig_inside(&shot.record, "cat /tmp/secret /workspace/a/one", &shot.text), 0);
    ck_assert_str_eq(shot.text, "in-memory\none\n");
    good(rig->snapshot_remove(rig_state, &shot.record, second.id, &rig_wait, &shot.error));
    good(rig->snapshot_remove(rig_state, &shot.record, second.id, &rig_wait, &shot.error));
    shot_release();
    shot_expect_intact();
    shot.snapshot = second;
    ck_assert_int_eq(shot_look(), SANDBOX_VERDICT_MISSING);
    bad(SANDBOX_NOT_RESTORED, "snapshot-missing",
        rig->restore(rig_state, &shot.record, &shot.snapshot, SANDBOX_KEEP_MEMORY, NULL, &rig_wait,
                     &shot.restored, &shot.error));
    ck_assert_int_eq(rig_number("ls %s | wc -l", shot_host("snapshots")), 1);
    rig_destroy(&shot.record);
    ck_assert_int_eq(rig_number("ls %s/workspaces | wc -l", rig_folder), 0);
}
END_TEST

START_TEST(files_come_back_without_memory)
{
    shot_begin_workspace("files-only");
    shot_begin_counter();
    shot_shell("echo sealed >files/seal/kept && chmod 600 files/seal/kept");
    shot_take(SANDBOX_KEEP_FILES);
    ck_assert_int_eq(rig_presence(&shot.record, NULL),
                     SBX_PRESENCE_RUNNING); /* until its release */
    shot_expect_intact();
    shot_release();
    shot_shell("rm -rf files");
    bad(SANDBOX_NOT_RESTORED, "only-files",
        rig->restore(rig_state, &shot.record, &shot.snapshot, SANDBOX_KEEP_MEMORY, NULL, &rig_wait,
                     &shot.restored, &shot.error));
    shot_bring_back(SANDBOX_KEEP_FILES);
    ck_assert_int_eq(rig_inside(&shot.record,
                                "cat /workspace/a/b/two /home/sandbox/mine /run/sandbox/seal/kept; "
                                "stat -c '%a %u' /run/sandbox/seal /run/sandbox/seal/kept "
                                "/workspace/a; ls /tmp",
                                &shot.text),
                     0);
    ck_assert_str_eq(shot.text, "one\nmine\nsealed\n700 0\n600 0\n755 0\n");
    shot_release();
    /* Of a workspace that has no instance. */
    shot_shell("echo lone >files/workspace/lone");
    shot_draw(&shot.snapshot, SANDBOX_KEEP_FILES);
    shot.snapshot.seal_hash[0] = '\0';
    good(rig->snapshot_prepare(rig_state, &shot.record, &shot.snapshot, &rig_wait, &shot.error));
    good(rig->snapshot_take(rig_state, &shot.record, &shot.snapshot, NULL, &rig_wait, &shot.error));
    shot_expect_intact();
    shot_shell("rm files/workspace/lone");
    shot_bring_back(SANDBOX_KEEP_FILES);
    ck_assert_int_eq(rig_inside(&shot.record, "cat /workspace/lone", &shot.text), 0);
    rig_destroy(&shot.record);
}
END_TEST

START_TEST(the_files_of_a_memory_snapshot_can_be_had_alone)
{
    shot_begin_workspace("files-of-memory");
    shot_begin_counter();
    shot_take(SANDBOX_KEEP_MEMORY);
    shot_release();
    shot_bring_back(SANDBOX_KEEP_FILES);
    ck_assert_int_eq(rig_inside(&shot.record, "cat /workspace/a/one; ls /tmp", &shot.text), 0);
    ck_assert_str_eq(shot.text, "one\n");
    rig_destroy(&shot.record);
}
END_TEST

START_TEST(an_open_channel_holds_a_checkpoint_off)
{
    shot_begin_workspace("channel");
    shot_draw(&shot.snapshot, SANDBOX_KEEP_MEMORY);
    struct sbx_channel channel = SBX_CHANNEL;
    good(rig->connect(rig_state, &shot.record, &rig_wait, &channel, &shot.error));
    bad(SANDBOX_BUSY, "channel-open",
        rig->snapshot_take(rig_state, &shot.record, &shot.snapshot, NULL, &rig_wait, &shot.error));
    sbx_channel_end(&channel);
    ck_assert_int_eq(rig_presence(&shot.record, NULL), SBX_PRESENCE_RUNNING);
    ck_assert_int_eq(rig_number("ls %s | wc -l", shot_host("snapshots")), 0);

    /* And so does an exec that is none of ours, which knows no lock. */
    SBX_ON_EXIT(sbx_free_text) char *root = sbx_format("--root=%s/runsc", rig_folder);
    const struct sbx_gvisor *driver = rig_state;
    const char *argv[] = {
        driver->settings.runsc, root, "exec", shot.record.id, "sleep", "1000", NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv};
    SBX_ON_EXIT(sbx_child_end) struct sbx_child child = SBX_CHILD;
    good(sbx_child_start(&child, &options, &shot.error));
    bad(SANDBOX_BUSY, "channel-open",
        rig->snapshot_take(rig_state, &shot.record, &shot.snapshot, NULL, &rig_wait, &shot.error));
    sbx_child_end(&child);
    ck_assert_int_eq(rig_presence(&shot.record, NULL), SBX_PRESENCE_RUNNING);
    ck_assert_int_eq(rig_inside(&shot.record, "pkill sleep; true", &shot.text), 0);
    shot_take(SANDBOX_KEEP_MEMORY);
    shot_release();
    shot_bring_back(SANDBOX_KEEP_MEMORY);
    rig_destroy(&shot.record);
}
END_TEST

START_TEST(an_actor_whose_epoch_is_stale_changes_nothing)
{
    shot_begin_workspace("stale");
    shot_take(SANDBOX_KEEP_FILES);
    struct sbx_record stale = shot.record;
    struct sbx_snapshot fresh;
    shot.record.epoch++;
    rig_store(&shot.record);
    shot_draw(&fresh, SANDBOX_KEEP_MEMORY);
    bad(SANDBOX_CONFLICT, "stale-epoch",
        rig->snapshot_take(rig_state, &stale, &fresh, NULL, &rig_wait, &shot.error));
    bad(SANDBOX_CONFLICT, "stale-epoch",
        rig->snapshot_adopt(rig_state, &stale, &fresh, &rig_wait, &shot.error));
    bad(SANDBOX_CONFLICT, "stale-epoch", rig->release(rig_state, &stale, &rig_wait, &shot.error));
    bad(SANDBOX_CONFLICT, "stale-epoch",
        rig->snapshot_remove(rig_state, &stale, shot.snapshot.id, &rig_wait, &shot.error));
    bad(SANDBOX_CONFLICT, "stale-epoch",
        rig->restore(rig_state, &stale, &shot.snapshot, SANDBOX_KEEP_FILES, NULL, &rig_wait,
                     &shot.restored, &shot.error));
    bad(SANDBOX_CONFLICT, "instance-exists",
        rig->restore(rig_state, &shot.record, &shot.snapshot, SANDBOX_KEEP_FILES, NULL, &rig_wait,
                     &shot.restored, &shot.error));
    ck_assert_int_eq(rig_presence(&shot.record, NULL), SBX_PRESENCE_RUNNING);
    shot_expect_intact();
    rig_destroy(&shot.record);
}
END_TEST

START_TEST(another_runtime_is_refused)
{
    shot_begin_workspace("runtime");
    shot_take(SANDBOX_KEEP_MEMORY);
    shot_release();
    int directory = -1;
    struct sbx_gvisor_manifest manifest = {0};
    good(sbx_gvisor_snapshot_open(rig_state, &shot.record, &shot.snapshot, &directory, &manifest,
                                  &shot.error));
    char *kept = manifest.features;
    manifest.features = sbx_format("%s no_such_feature", kept);
    good(sbx_gvisor_manifest_write(directory, "manifest.json", &manifest, shot.snapshot.digest,
                                   &shot.error));
    bad(SANDBOX_NOT_RESTORED, "runtime-differs",
        rig->restore(rig_state, &shot.record, &shot.snapshot, SANDBOX_KEEP_MEMORY, NULL, &rig_wait,
                     &shot.restored, &shot.error));
    ck_assert_ptr_nonnull(strstr(shot.error.message, "no_such_feature"));
    free(manifest.features);
    manifest.features = kept;
    char platform[16];
    memcpy(platform, manifest.platform, sizeof platform);
    snprintf(manifest.platform, sizeof manifest.platform, "abacus");
    good(sbx_gvisor_manifest_write(directory, "manifest.json", &manifest, shot.snapshot.digest,
                                   &shot.error));
    bad(SANDBOX_NOT_RESTORED, "runtime-differs",
        rig->restore(rig_state, &shot.record, &shot.snapshot, SANDBOX_KEEP_MEMORY, NULL, &rig_wait,
                     &shot.restored, &shot.error));
    memcpy(manifest.platform, platform, sizeof platform);
    good(sbx_gvisor_manifest_write(directory, "manifest.json", &manifest, shot.snapshot.digest,
                                   &shot.error));
    shot_bring_back(SANDBOX_KEEP_MEMORY);
    sbx_gvisor_manifest_clear(&manifest);
    close(directory);
    rig_destroy(&shot.record);
}
END_TEST

int main(void)
{
    if (!rig_begin())
        return 77;
    Suite *suite = suite_create("gvisor snapshots");
    TCase *tests = tcase_create("snapshots");
    tcase_set_timeout(tests, 240);
    tcase_add_test(tests, memory_and_files_come_back_in_another_instance);
    tcase_add_test(tests, each_snapshot_stands_alone);
    tcase_add_test(tests, files_come_back_without_memory);
    tcase_add_test(tests, the_files_of_a_memory_snapshot_can_be_had_alone);
    tcase_add_test(tests, an_open_channel_holds_a_checkpoint_off);
    tcase_add_test(tests, an_actor_whose_epoch_is_stale_changes_nothing);
    tcase_add_test(tests, another_runtime_is_refused);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    rig_end();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
