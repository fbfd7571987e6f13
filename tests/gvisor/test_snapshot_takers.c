/* Takers of snapshots that die, and disks that are full, on a real runsc. */

#include "snapshot_rig.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(what_a_dead_taker_left_is_in_nobodys_way)
{
    shot_begin_workspace("leftovers");
    shot_draw(&shot.snapshot, SANDBOX_KEEP_MEMORY);
    shot_shell(
        "mkdir -p snapshots/%s.new/image && echo x >snapshots/%s.new/image/checkpoint.img && "
        "echo x >snapshots/%s.new/finished",
        shot.snapshot.id, shot.snapshot.id, shot.snapshot.id);
    bad(SANDBOX_NOT_FOUND, "no-such-snapshot",
        rig->snapshot_adopt(rig_state, &shot.record, &shot.snapshot, &rig_wait, &shot.error));
    ck_assert_int_eq(rig_number("ls %s | wc -l", shot_host("snapshots")), 0);
    shot_shell("mkdir -p snapshots/%s.new/image && echo x >snapshots/%s.new/image/checkpoint.img",
               shot.snapshot.id, shot.snapshot.id);
    good(rig->snapshot_take(rig_state, &shot.record, &shot.snapshot, NULL, &rig_wait, &shot.error));
    bad(SANDBOX_EXISTS, "snapshot-exists",
        rig->snapshot_take(rig_state, &shot.record, &shot.snapshot, NULL, &rig_wait, &shot.error));
    struct sbx_snapshot adopted = shot.snapshot;
    adopted.digest[0] = '\0';
    good(rig->snapshot_adopt(rig_state, &shot.record, &adopted, &rig_wait, &shot.error));
    ck_assert_str_eq(adopted.digest, shot.snapshot.digest);
    ck_assert_uint_eq(adopted.bytes, shot.snapshot.bytes);
    shot_release();
    shot_bring_back(SANDBOX_KEEP_MEMORY);
    rig_destroy(&shot.record);
}
END_TEST

static const int moments[] = {0, 1, 2, 4, 10, 30, 60, 100, 150, 220, 300, 500};

static bool has_ended(void *child)
{
    return waitpid(*(pid_t *)child, NULL, WNOHANG) > 0;
}

/* The taker is killed at some moment; what it began is finished, or as if it had not been. */
START_TEST(a_killed_takers_snapshot_is_finished_or_gone)
{
    char name[32];
    snprintf(name, sizeof name, "killed-%d", moments[_i]);
    shot_begin_workspace(name);
    shot_begin_counter();
    long before = shot_count();
    shot_draw(&shot.snapshot, SANDBOX_KEEP_MEMORY);
    sbx_gvisor_ready_forget(rig_state, shot.record.id); /* or the fork would keep it open */
    pid_t taker = fork();
    ck_assert_int_ge(taker, 0);
    if (taker == 0) {
        void *own = NULL;
        char rest[256];
        snprintf(rest, sizeof rest, "%s?runsc=%s", rig_folder,
                 ((struct sbx_gvisor *)rig_state)->settings.runsc);
        if (rig->open(rest, &rig_wait, &own, NULL) == SANDBOX_OK)
            (void)rig->snapshot_take(own, &shot.record, &shot.snapshot, NULL, &rig_wait, NULL);
        _exit(0);
    }
    (void)sbx_wait_pause(&rig_wait, (uint32_t)moments[_i], NULL); /* the moment is what varies */
    kill(taker, SIGKILL);
    ck_assert(rig_await(has_ended, &taker));
    sandbox_status status =
        rig->snapshot_adopt(rig_state, &shot.record, &shot.snapshot, &rig_wait, &shot.error);
    printf("killed after %d ms: %s\n", moments[_i], status == SANDBOX_OK ? "finished" : "undone");
    if (status == SANDBOX_OK) {
        shot_expect_intact();
        shot_release();
        shot_bring_back(SANDBOX_KEEP_MEMORY);
        shot_expect_memory(before);
    } else {
        ck_assert_msg(status == SANDBOX_NOT_FOUND, "%s", shot.error.message);
        ck_assert_int_eq(rig_presence(&shot.record, NULL), SBX_PRESENCE_RUNNING);
        ck_assert_int_le(rig_number("ls %s | wc -l", shot_host("snapshots")), 0);
        ck_assert(rig_await(shot_counts_on, &before));
    }
    rig_destroy(&shot.record);
}
END_TEST

/* runsc's own client is killed: what the sandbox writes is not known to be complete. */
START_TEST(a_killed_checkpoint_is_no_snapshot)
{
    shot_begin_workspace("client-killed");
    ck_assert_int_eq(rig_inside(&shot.record, "head -c 200M /dev/urandom >/tmp/much", &shot.text),
                     0);
    shot_draw(&shot.snapshot, SANDBOX_KEEP_MEMORY);
    sbx_gvisor_ready_forget(rig_state, shot.record.id);
    pid_t killer = fork();
    if (killer == 0) {
        while (rig_number("pid=$(pgrep -f '[r]unsc.* checkpoint .*%s' | tail -n 1); "
                          "[ -n \"$pid\" ] && grep -q '^.*runsc' /proc/$pid/comm && "
                          "kill -9 $pid && echo 1",
                          shot.record.id) != 1)
            continue;
        _exit(0);
    }
    sandbox_status status =
        rig->snapshot_take(rig_state, &shot.record, &shot.snapshot, NULL, &rig_wait, &shot.error);
    kill(killer, SIGKILL);
    ck_assert(rig_await(has_ended, &killer));
    if (status == SANDBOX_OK) {
        printf("runsc was faster than its killer\n");
        shot_expect_intact();
        rig_destroy(&shot.record);
        return;
    }
    ck_assert_str_eq(shot.error.reason, "checkpoint-failed");
    ck_assert_int_eq(rig_number("ls %s | wc -l", shot_host("snapshots")), 0);
    /* Whatever became of the sandbox, it is told now, and stays so. */
    enum sbx_presence presence = rig_presence(&shot.record, NULL);
    ck_assert(presence == SBX_PRESENCE_RUNNING || presence == SBX_PRESENCE_STOPPED);
    if (presence == SBX_PRESENCE_RUNNING)
        ck_assert_int_eq(rig_inside(&shot.record, "true", &shot.text), 0);
    rig_destroy(&shot.record);
}
END_TEST

START_TEST(a_full_disk_is_told_before_and_costs_no_file)
{
    char folder[64];
    snprintf(folder, sizeof folder, "%.50s-small", rig_folder);
    if (mkdir(folder, 0700) != 0 || mount("tmpfs", folder, "tmpfs", 0, "size=320m,mode=700") != 0) {
        printf("not run: it needs a mount: %s\n", strerror(errno));
        rmdir(folder);
        return;
    }
    memcpy(rig_folder, folder, sizeof folder);
    void *outer = rig_state;
    rig_state = rig_open("");
    shot_begin_workspace("small-disk");
    shot_begin_counter();
    ck_assert_int_eq(rig_inside(&shot.record, "head -c 60M /dev/urandom >/tmp/much", &shot.text),
                     0);
    shot_shell(
        "free=$(df --output=avail -B1M . | tail -1) && head -c $((free-40))M /dev/zero >fill");
    shot_draw(&shot.snapshot, SANDBOX_KEEP_MEMORY);
    bad(SANDBOX_LIMIT, "no-room",
        rig->snapshot_prepare(rig_state, &shot.record, &shot.snapshot, &rig_wait, &shot.error));
    ck_assert_int_eq(rig_presence(&shot.record, NULL), SBX_PRESENCE_RUNNING);
    /* Taken all the same: it fails, and the files are whole. */
    ck_assert_int_ne(
        rig->snapshot_take(rig_state, &shot.record, &shot.snapshot, NULL, &rig_wait, &shot.error),
        SANDBOX_OK);
    ck_assert_str_eq(shot.error.reason, "checkpoint-failed");
    ck_assert_int_eq(rig_number("ls %s | wc -l", shot_host("snapshots")), 0);
    shot_shell("rm fill && cmp files/workspace/a/one files/workspace/a/b/two");
    shot_release();
    /* No room for the tree alone, found out on the way. */
    shot_draw(&shot.snapshot, SANDBOX_KEEP_FILES);
    shot.snapshot.seal_hash[0] = '\0';
    shot_shell(
        "free=$(df --output=avail -B1M . | tail -1) && head -c $((free-4))M /dev/zero >fill");
    ck_assert_int_eq(
        rig->snapshot_take(rig_state, &shot.record, &shot.snapshot, NULL, &rig_wait, &shot.error),
        SANDBOX_LIMIT);
    shot_shell("rm fill && [ -z \"$(ls snapshots)\" ]");
    good(rig->snapshot_take(rig_state, &shot.record, &shot.snapshot, NULL, &rig_wait, &shot.error));
    shot_expect_intact();
    rig_destroy(&shot.record);
    rig->close(rig_state);
    rig_state = outer;
    ck_assert_int_eq(umount2(folder, MNT_DETACH), 0);
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

int main(void)
{
    if (!rig_begin())
        return 77;
    Suite *suite = suite_create("gvisor takers of snapshots");
    TCase *tests = tcase_create("snapshots");
    tcase_set_timeout(tests, 240);
    tcase_add_test(tests, what_a_dead_taker_left_is_in_nobodys_way);
    tcase_add_loop_test(tests, a_killed_takers_snapshot_is_finished_or_gone, 0,
                        sizeof moments / sizeof moments[0]);
    tcase_add_test(tests, a_killed_checkpoint_is_no_snapshot);
    tcase_add_test(tests, a_full_disk_is_told_before_and_costs_no_file);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    rig_end();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
