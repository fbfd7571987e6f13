/* Snapshots on a real runsc that are damaged, swapped or cannot be restored. */

#include "snapshot_rig.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void expect_refused(const char *what)
{
    sandbox_verdict found = shot_look();
    ck_assert_msg(found == SANDBOX_VERDICT_DAMAGED || found == SANDBOX_VERDICT_MISSING,
                  "%s: verdict %d, %s", what, found, shot.verdict.evidence);
    ck_assert_str_ne(shot.verdict.evidence, "");
}

static void flip(const char *path, off_t at)
{
    struct stat facts;
    uint8_t byte;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_msg(fd >= 0 && fstat(fd, &facts) == 0, "%s: %s", path, strerror(errno));
    ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
    const struct timespec times[2] = {facts.st_atim, facts.st_mtim};
    ck_assert_int_eq(futimens(fd, times), 0);
    close(fd);
}

/* P: issue "corruption": one bit anywhere, and every other harm. */
START_TEST(every_damage_is_seen_and_refused_before_runsc)
{
    shot_begin_workspace("damaged");
    shot_begin_counter();
    shot_take(SANDBOX_KEEP_MEMORY);
    shot_release();
    char folder[600], path[1200], list[700];
    snprintf(folder, sizeof folder, "%s/%s", shot_host("snapshots"), shot.snapshot.id);
    snprintf(list, sizeof list, "%s/../list", folder);
    shot_shell("find %s -type f -size +0 >%s", folder, list);
    FILE *paths = fopen(list, "re");
    ck_assert_ptr_nonnull(paths);
    unsigned seen = 0;
    while (fgets(path, sizeof path, paths) != NULL) {
        path[strcspn(path, "\n")] = '\0';
        struct stat facts;
        ck_assert_int_eq(stat(path, &facts), 0);
        const off_t places[] = {0, facts.st_size / 2, facts.st_size - 1};
        for (size_t n = 0; n < 3; n++) {
            flip(path, places[n]);
            expect_refused(path);
            flip(path, places[n]);
        }
        seen++;
    }
    fclose(paths);
    ck_assert_int_eq(unlink(list), 0);
    ck_assert_uint_ge(seen, 7);
    shot_expect_intact();

    static const char *const harms[] = {
        "truncate -s -1 image/checkpoint.img",
        "echo >>image/checkpoint.img",
        "rm image/checkpoint.img",
        "rm -r image",
        "rm manifest.json",
        "rm config.json",
        "rm files.list",
        "rm -r files",
        "rm files/workspace/a/one",
        "touch files/workspace/extra",
        "touch extra",
        "touch image/extra",
        "mkdir image/extra",
        "chmod 777 files/workspace/a/one",
        "touch files/home/mine",
        "truncate -s 0 manifest.json",
        "ln -sf /etc/passwd files/workspace/a/link",
        "rm files/workspace/a/one && ln -s large files/workspace/a/one",
        "mv image/checkpoint.img image/other.img",
        "sed -i 's/\"epoch\":1/\"epoch\":2/' manifest.json",
        "rm config.json && ln -s ../../bundle config.json",
        "truncate -s 9M files/workspace/a/one",
    };
    shot_shell("cp -a %s kept", folder);
    for (size_t n = 0; n < sizeof harms / sizeof harms[0]; n++) {
        shot_shell("cd %s && if [ -e image/checkpoint.img ]; then %s; fi", folder, harms[n]);
        expect_refused(harms[n]);
        shot_shell("rm -rf %s && cp -a kept %s", folder, folder);
        shot_expect_intact();
    }
    /* What restore itself looks at is refused there, whatever the caller did before. */
    flip(strcat(strcpy(path, folder), "/manifest.json"), 20);
    bad(SANDBOX_NOT_RESTORED, "snapshot-damaged",
        rig->restore(rig_state, &shot.record, &shot.snapshot, SANDBOX_KEEP_MEMORY, NULL, &rig_wait,
                     &shot.restored, &shot.error));
    flip(path, 20);
    ck_assert_int_eq(rig_processes(shot.record.id), 0);
    shot_bring_back(SANDBOX_KEEP_MEMORY);
    ck_assert_int_eq(rig_inside(&shot.record, "cat /tmp/secret", &shot.text), 0);
    rig_destroy(&shot.record);
}
END_TEST

START_TEST(swapped_snapshots_are_told_apart)
{
    shot_begin_workspace("swap-a");
    shot_take(SANDBOX_KEEP_MEMORY);
    shot_release();
    struct sbx_record other = shot.record;
    struct sbx_snapshot others = shot.snapshot;
    char place[600];
    snprintf(place, sizeof place, "%s/%s", shot_host("snapshots"), shot.snapshot.id);
    shot_begin_workspace("swap-b");
    shot_take(SANDBOX_KEEP_MEMORY);
    shot_release();
    shot_shell("mv snapshots/%s away && mv %s snapshots/%s && mv away %s", shot.snapshot.id, place,
               shot.snapshot.id, place);
    expect_refused("swapped");
    ck_assert_ptr_nonnull(strstr(shot.verdict.evidence, "manifest.json"));
    bad(SANDBOX_NOT_RESTORED, "snapshot-damaged",
        rig->restore(rig_state, &shot.record, &shot.snapshot, SANDBOX_KEEP_MEMORY, NULL, &rig_wait,
                     &shot.restored, &shot.error));
    shot_shell("mv snapshots/%s away && mv %s snapshots/%s && mv away %s", shot.snapshot.id, place,
               shot.snapshot.id, place);
    shot_expect_intact();
    shot_bring_back(SANDBOX_KEEP_MEMORY);
    rig_destroy(&shot.record);
    shot.record = other;
    shot.snapshot = others;
    shot_expect_intact();
    rig_destroy(&shot.record);
}
END_TEST

/* P196 */
START_TEST(failing_restores_leave_no_process)
{
    shot_begin_workspace("never-starts");
    shot_begin_counter();
    shot_take(SANDBOX_KEEP_MEMORY);
    shot_release();
    /* An image that runsc refuses, and that the manifest agrees with. */
    char path[600];
    snprintf(path, sizeof path, "%s/%s/image/checkpoint.img", shot_host("snapshots"),
             shot.snapshot.id);
    flip(path, 3);
    int directory = -1;
    struct sbx_gvisor_manifest manifest = {0};
    good(sbx_gvisor_snapshot_open(rig_state, &shot.record, &shot.snapshot, &directory, &manifest,
                                  &shot.error));
    struct sbx_crew *crew = sbx_crew_new();
    good(sbx_gvisor_parts_digest(directory, &manifest, false, crew, NULL, &rig_wait, NULL,
                                 &shot.error));
    good(sbx_gvisor_manifest_write(directory, "manifest.json", &manifest, shot.snapshot.digest,
                                   &shot.error));
    sbx_crew_free(crew);
    sbx_gvisor_manifest_clear(&manifest);
    close(directory);
    shot_expect_intact();
    for (int n = 0; n < 20; n++) {
        ck_assert_int_ne(rig->restore(rig_state, &shot.record, &shot.snapshot, SANDBOX_KEEP_MEMORY,
                                      NULL, &rig_wait, &shot.restored, &shot.error),
                         SANDBOX_OK);
        ck_assert_int_eq(rig_processes(shot.record.id), 0);
        ck_assert_int_eq(rig_presence(&shot.record, NULL), SBX_PRESENCE_ABSENT);
    }
    ck_assert_str_eq(shot.error.reason, "no-start");
    shot_expect_intact();
    ck_assert_int_eq(rig_number("ls %s | wc -l", shot_host("")), 2);
    shot_bring_back(SANDBOX_KEEP_FILES);
    rig_destroy(&shot.record);
}
END_TEST

int main(void)
{
    if (!rig_begin())
        return 77;
    Suite *suite = suite_create("gvisor damaged snapshots");
    TCase *tests = tcase_create("snapshots");
    tcase_set_timeout(tests, 240);
    tcase_add_test(tests, every_damage_is_seen_and_refused_before_runsc);
    tcase_add_test(tests, swapped_snapshots_are_told_apart);
    tcase_add_test(tests, failing_restores_leave_no_process);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    rig_end();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
