/* Files of our own: replaced in one step, locked, removed without following anything. */

#include "util/file.h"
#include "util/wait.h"
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];
static int at = -1;

static void make_folder(void)
{
    strcpy(folder, "/tmp/sandbox-file-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(at, 0);
}

static void remove_folder(void)
{
    close(at);
    ck_assert_int_eq(sbx_tree_remove(AT_FDCWD, folder, NULL), SANDBOX_OK);
    ck_assert_int_lt(access(folder, F_OK), 0);
}

static unsigned entries(void)
{
    DIR *directory = opendir(folder);
    unsigned count = 0;
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count - 2;
}

START_TEST(replacing_leaves_the_new_content_and_nothing_else)
{
    ck_assert_int_eq(sbx_file_replace(at, "f", "old", 3, 0600, NULL), SANDBOX_OK);
    ck_assert_int_eq(sbx_file_replace(at, "f", "newer", 5, 0600, NULL), SANDBOX_OK);
    uint8_t *data = NULL;
    size_t size = 0;
    ck_assert_int_eq(sbx_file_read(at, "f", 100, &data, &size, NULL), SANDBOX_OK);
    ck_assert_uint_eq(size, 5);
    ck_assert_str_eq((char *)data, "newer");
    ck_assert_uint_eq(entries(), 1);
    free(data);
}
END_TEST

START_TEST(creating_never_replaces)
{
    sandbox_error error;
    ck_assert_int_eq(sbx_file_create(at, "f", "a", 1, 0600, NULL), SANDBOX_OK);
    ck_assert_int_eq(sbx_file_create(at, "f", "b", 1, 0600, &error), SANDBOX_EXISTS);
    uint8_t *data = NULL;
    size_t size = 0;
    ck_assert_int_eq(sbx_file_read(at, "f", 100, &data, &size, NULL), SANDBOX_OK);
    ck_assert_str_eq((char *)data, "a");
    ck_assert_uint_eq(entries(), 1);
    free(data);
}
END_TEST

START_TEST(a_file_over_the_limit_is_not_read)
{
    uint8_t *data = NULL;
    size_t size = 0;
    sandbox_error error;
    ck_assert_int_eq(sbx_file_replace(at, "f", "12345", 5, 0600, NULL), SANDBOX_OK);
    ck_assert_int_eq(sbx_file_read(at, "f", 4, &data, &size, &error), SANDBOX_LIMIT);
    ck_assert_ptr_null(data);
    ck_assert_int_eq(sbx_file_read(at, "none", 4, &data, &size, &error), SANDBOX_NOT_FOUND);
    ck_assert_int_eq(sbx_file_read(AT_FDCWD, "/proc/self/status", 1 << 20, &data, &size, NULL),
                     SANDBOX_OK);
    ck_assert_uint_gt(size, 100);
    free(data);
}
END_TEST

START_TEST(directories_are_made_with_their_parents)
{
    char path[128];
    snprintf(path, sizeof path, "%s/a/b/c", folder);
    ck_assert_int_eq(sbx_directory_make(AT_FDCWD, path, 0700, NULL), SANDBOX_OK);
    ck_assert_int_eq(sbx_directory_make(AT_FDCWD, path, 0700, NULL), SANDBOX_OK);
    ck_assert_int_eq(sbx_file_replace(at, "file", "", 0, 0600, NULL), SANDBOX_OK);
    ck_assert_int_eq(sbx_directory_make(at, "file", 0700, NULL), SANDBOX_EXISTS);
}
END_TEST

START_TEST(removing_follows_no_link)
{
    char outside[] = "/tmp/sandbox-outside-XXXXXX", link_path[128], kept[128];
    ck_assert_ptr_nonnull(mkdtemp(outside));
    snprintf(kept, sizeof kept, "%s/kept", outside);
    ck_assert_int_eq(sbx_file_replace(AT_FDCWD, kept, "x", 1, 0600, NULL), SANDBOX_OK);
    ck_assert_int_eq(mkdirat(at, "tree", 0700), 0);
    snprintf(link_path, sizeof link_path, "%s/tree/link", folder);
    ck_assert_int_eq(symlink(outside, link_path), 0);
    ck_assert_int_eq(mkdirat(at, "tree/locked", 0000), 0);
    ck_assert_int_eq(sbx_tree_remove(at, "tree", NULL), SANDBOX_OK);
    ck_assert_int_eq(access(kept, F_OK), 0);
    ck_assert_int_eq(sbx_tree_remove(at, "tree", NULL), SANDBOX_OK); /* what is gone is fine */
    ck_assert_int_eq(sbx_tree_remove(AT_FDCWD, outside, NULL), SANDBOX_OK);
}
END_TEST

START_TEST(a_tree_deeper_than_there_are_descriptors_goes_too)
{
    int fd = dup(at);
    for (int depth = 0; depth < 3000; depth++) {
        ck_assert_int_eq(mkdirat(fd, "d", 0700), 0);
        int next = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ck_assert_int_ge(next, 0);
        close(fd);
        fd = next;
    }
    close(fd);
    ck_assert_int_eq(sbx_tree_remove(at, "d", NULL), SANDBOX_OK);
    ck_assert_uint_eq(entries(), 0);
}
END_TEST

START_TEST(a_lock_keeps_others_out_until_it_is_closed)
{
    struct sbx_wait wait = sbx_wait_alone(10000), none = sbx_wait_alone(0);
    int first = -1, second = -1;
    ck_assert_int_eq(sbx_file_lock(at, "lock", true, &wait, &first, NULL), SANDBOX_OK);
    ck_assert_int_eq(sbx_file_lock(at, "lock", false, &none, &second, NULL), SANDBOX_TIMED_OUT);
    close(first);
    ck_assert_int_eq(sbx_file_lock(at, "lock", false, &wait, &first, NULL), SANDBOX_OK);
    ck_assert_int_eq(sbx_file_lock(at, "lock", false, &wait, &second, NULL), SANDBOX_OK);
    close(first);
    close(second);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("file");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_checked_fixture(all, make_folder, remove_folder);
    tcase_add_test(all, replacing_leaves_the_new_content_and_nothing_else);
    tcase_add_test(all, creating_never_replaces);
    tcase_add_test(all, a_file_over_the_limit_is_not_read);
    tcase_add_test(all, directories_are_made_with_their_parents);
    tcase_add_test(all, removing_follows_no_link);
    tcase_add_test(all, a_tree_deeper_than_there_are_descriptors_goes_too);
    tcase_add_test(all, a_lock_keeps_others_out_until_it_is_closed);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
