/* What was removed goes from the disk in the background; nobody meets it, and nothing stays. */

#include "drivers/gvisor/gvisor.h"
#include "util/file.h"
#include "util/memory.h"
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MINE   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define OTHERS "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define FILES  300

static char folder[64];
static struct sbx_gvisor *driver;
static struct sbx_wait patient;
static sandbox_error error;

static struct sbx_gvisor *open_driver(void)
{
    struct sbx_gvisor *made = calloc(1, sizeof *made);
    ck_assert_ptr_nonnull(made);
    made->settings.state = sbx_copy(folder);
    made->directory = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(made->directory, 0);
    pthread_mutex_init(&made->mutex, NULL);
    ck_assert_int_eq(sbx_condition_init(&made->sweeper.idle), 0);
    sbx_gvisor_sweep_begin(made);
    return made;
}

static void close_driver(struct sbx_gvisor *made)
{
    sbx_gvisor_sweep_end(made);
    sbx_gvisor_settings_clear(&made->settings);
    close(made->directory);
    pthread_cond_destroy(&made->sweeper.idle);
    pthread_mutex_destroy(&made->mutex);
    free(made);
}

static void set_up(void)
{
    char path[160];
    strcpy(folder, "/tmp/sandbox-sweep-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    patient = sbx_wait_alone(60000);
    static const char *const places[] = {"removed", "workspaces/" MINE "/snapshots"};
    for (size_t n = 0; n < 2; n++) {
        snprintf(path, sizeof path, "%s/%s", folder, places[n]);
        ck_assert_int_eq(sbx_directory_make(AT_FDCWD, path, 0700, NULL), SANDBOX_OK);
    }
    driver = open_driver();
}

static void tear_down(void)
{
    close_driver(driver);
    ck_assert_int_eq(sbx_tree_remove(AT_FDCWD, folder, NULL), SANDBOX_OK);
}

static void make_tree(const char *place)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s/files/a", folder, place);
    ck_assert_int_eq(sbx_directory_make(AT_FDCWD, path, 0700, NULL), SANDBOX_OK);
    for (int n = 0; n < FILES; n++) {
        snprintf(path, sizeof path, "%s/%s/files/a/%d", folder, place, n);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        ck_assert_int_ge(fd, 0);
        close(fd);
    }
}

static bool is_there(const char *place)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, place);
    return access(path, F_OK) == 0;
}

static sandbox_status sweep(const char *snapshot)
{
    return sbx_gvisor_sweep(driver, MINE, snapshot, &patient, &error);
}

static sandbox_status sweep_now(const char *id, const struct sbx_wait *wait)
{
    return sbx_gvisor_sweep_now(driver, id, wait, &error);
}

static int hold(const char *place)
{
    int fd = openat(driver->directory, place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
    return fd;
}

START_TEST(a_removed_snapshot_has_no_name_at_once_and_goes)
{
    for (int n = 0; n < 20; n++) {
        make_tree("workspaces/" MINE "/snapshots/one");
        ck_assert_int_eq(sweep("one"), SANDBOX_OK);
        ck_assert(!is_there("workspaces/" MINE "/snapshots/one"));
    }
    ck_assert_int_eq(sweep("one"), SANDBOX_OK); /* what is not there is success */
    ck_assert_int_eq(sweep_now(MINE, &patient), SANDBOX_OK);
    ck_assert(!is_there("removed/" MINE ".one"));
}
END_TEST

START_TEST(what_a_killed_process_left_goes_when_the_next_one_has_opened)
{
    make_tree("removed/" MINE ".one");
    make_tree("removed/" OTHERS ".two");
    struct sbx_gvisor *next = open_driver();
    close_driver(next);
    ck_assert(!is_there("removed/" MINE ".one"));
    ck_assert(!is_there("removed/" OTHERS ".two"));
}
END_TEST

/* Another process is at it: whoever must know waits for it, the others leave it alone. */
START_TEST(two_do_not_work_at_the_same)
{
    struct sbx_wait soon = sbx_wait_alone(0);
    make_tree("removed/" MINE ".one");
    int lock = hold("removed/" MINE ".one");
    struct sbx_gvisor *next = open_driver();
    close_driver(next);
    ck_assert(is_there("removed/" MINE ".one/files/a/0"));
    ck_assert_int_eq(sweep_now(MINE, &soon), SANDBOX_TIMED_OUT);
    ck_assert(is_there("removed/" MINE ".one/files/a/0"));
    ck_assert_int_eq(sweep_now(OTHERS, &soon), SANDBOX_OK);
    close(lock);
    ck_assert_int_eq(sweep_now(NULL, &patient), SANDBOX_OK);
    ck_assert(!is_there("removed/" MINE ".one"));
}
END_TEST

/* As somebody does who repairs a snapshot by copying it back while the first is still going. */
START_TEST(what_was_put_back_can_be_removed_again)
{
    make_tree("removed/" MINE ".one");
    make_tree("workspaces/" MINE "/snapshots/one");
    ck_assert_int_eq(sweep("one"), SANDBOX_OK);
    ck_assert(!is_there("workspaces/" MINE "/snapshots/one"));
    ck_assert_int_eq(sweep_now(NULL, &patient), SANDBOX_OK);
    ck_assert(!is_there("removed/" MINE ".one"));
}
END_TEST

START_TEST(an_end_does_not_wait_for_others)
{
    make_tree("removed/" OTHERS ".two");
    int lock = hold("removed/" OTHERS ".two");
    make_tree("workspaces/" MINE "/snapshots/one");
    ck_assert_int_eq(sweep("one"), SANDBOX_OK);
    close_driver(driver);
    driver = open_driver();
    ck_assert(is_there("removed/" OTHERS ".two"));
    ck_assert(!is_there("removed/" MINE ".one"));
    close(lock);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sweep");
    TCase *cases = tcase_create("sweep");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, a_removed_snapshot_has_no_name_at_once_and_goes);
    tcase_add_test(cases, what_a_killed_process_left_goes_when_the_next_one_has_opened);
    tcase_add_test(cases, two_do_not_work_at_the_same);
    tcase_add_test(cases, what_was_put_back_can_be_removed_again);
    tcase_add_test(cases, an_end_does_not_wait_for_others);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failures = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failures == 0 ? 0 : 1;
}
