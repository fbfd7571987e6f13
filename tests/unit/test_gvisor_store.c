/* Records and secrets as files: compare-and-swap, listing, and what killed or careless actors
 * leave. */

#include "drivers/gvisor/gvisor.h"
#include "util/file.h"
#include "util/memory.h"
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];
static struct sbx_gvisor *driver;
static struct sbx_wait wait_long;

static struct sbx_gvisor *open_store(void)
{
    struct sbx_gvisor *made = calloc(1, sizeof *made);
    ck_assert_ptr_nonnull(made);
    made->settings.state = sbx_copy(folder);
    made->directory = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    made->cache = sbx_gvisor_cache_new();
    pthread_mutex_init(&made->mutex, NULL);
    ck_assert_int_ge(made->directory, 0);
    return made;
}

static void close_store(struct sbx_gvisor *made)
{
    sbx_gvisor_cache_free(made->cache);
    sbx_gvisor_settings_clear(&made->settings);
    close(made->directory);
    pthread_mutex_destroy(&made->mutex);
    free(made);
}

static void set_up(void)
{
    static const char *const folders[] = {"records", "locks", "secrets"};
    strcpy(folder, "/tmp/sandbox-store-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    wait_long = sbx_wait_alone(60000);
    driver = open_store();
    for (size_t n = 0; n < 3; n++)
        ck_assert_int_eq(mkdirat(driver->directory, folders[n], 0700), 0);
}

static void tear_down(void)
{
    close_store(driver);
    ck_assert_int_eq(sbx_tree_remove(AT_FDCWD, folder, NULL), SANDBOX_OK);
}

static sandbox_status store(const char *name, const char *text, const char *expected,
                            char version[SBX_VERSION_TEXT])
{
    return sbx_gvisor_record_store(driver, name, text, strlen(text), expected, version, &wait_long,
                                   NULL);
}

static int count_files(const char *place)
{
    int fd = openat(driver->directory, place, O_RDONLY | O_DIRECTORY | O_CLOEXEC), count = 0;
    DIR *directory = fdopendir(fd);
    ck_assert_ptr_nonnull(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(directory);
    return count;
}

START_TEST(a_record_is_stored_loaded_changed_and_removed)
{
    char version[SBX_VERSION_TEXT] = "", loaded[SBX_VERSION_TEXT];
    char *text = NULL;
    size_t size = 0;
    ck_assert_int_eq(store("one", "{\"a\":1}", "", version), SANDBOX_OK);
    ck_assert_int_eq(sbx_gvisor_record_load(driver, "one", &wait_long, &text, &size, loaded, NULL),
                     SANDBOX_OK);
    ck_assert_str_eq(text, "{\"a\":1}");
    ck_assert_uint_eq(size, 7);
    ck_assert_str_eq(loaded, version);
    free(text);
    ck_assert_int_eq(store("one", "{\"a\":2}", version, version), SANDBOX_OK);
    ck_assert_str_ne(loaded, version);
    ck_assert_int_eq(sbx_gvisor_record_remove(driver, "one", version, &wait_long, NULL),
                     SANDBOX_OK);
    ck_assert_int_eq(count_files("records"), 0);
    ck_assert_int_eq(count_files("locks"), 0);
}
END_TEST

START_TEST(a_missing_record_is_not_found_and_says_what)
{
    char version[SBX_VERSION_TEXT];
    char *text = NULL;
    size_t size = 0;
    sandbox_error error = {0};
    ck_assert_int_eq(
        sbx_gvisor_record_load(driver, "none", &wait_long, &text, &size, version, &error),
        SANDBOX_NOT_FOUND);
    ck_assert_str_eq(error.reason, "no-such-workspace");
    ck_assert_int_eq(sbx_gvisor_record_remove(driver, "none", "x", &wait_long, NULL), SANDBOX_OK);
    ck_assert_int_eq(count_files("locks"), 0);
}
END_TEST

/* P169 */
START_TEST(a_stale_version_changes_nothing)
{
    char first[SBX_VERSION_TEXT], second[SBX_VERSION_TEXT], third[SBX_VERSION_TEXT];
    ck_assert_int_eq(store("one", "{}", "", first), SANDBOX_OK);
    ck_assert_int_eq(store("one", "{\"b\":1}", first, second), SANDBOX_OK);
    ck_assert_int_eq(store("one", "{\"c\":1}", first, third), SANDBOX_CONFLICT);
    ck_assert_int_eq(store("one", "{\"c\":1}", "", third), SANDBOX_EXISTS);
    ck_assert_int_eq(sbx_gvisor_record_remove(driver, "one", first, &wait_long, NULL),
                     SANDBOX_CONFLICT);
    ck_assert_int_eq(sbx_gvisor_record_remove(driver, "one", second, &wait_long, NULL), SANDBOX_OK);
    ck_assert_int_eq(store("one", "{\"c\":1}", second, third), SANDBOX_CONFLICT);
    ck_assert_int_eq(count_files("locks"), 0);
}
END_TEST

START_TEST(a_new_record_of_an_old_name_is_never_taken_for_the_old_one)
{
    char old[SBX_VERSION_TEXT], fresh[SBX_VERSION_TEXT], none[SBX_VERSION_TEXT];
    ck_assert_int_eq(store("one", "{}", "", old), SANDBOX_OK);
    ck_assert_int_eq(sbx_gvisor_record_remove(driver, "one", old, &wait_long, NULL), SANDBOX_OK);
    ck_assert_int_eq(store("one", "{}", "", fresh), SANDBOX_OK);
    ck_assert_str_ne(old, fresh);
    ck_assert_int_eq(store("one", "{\"x\":1}", old, none), SANDBOX_CONFLICT);
}
END_TEST

static void *count_up(void *unused)
{
    for (int n = 0; n < 50;) {
        char version[SBX_VERSION_TEXT], next[32];
        char *text = NULL;
        size_t size = 0;
        ck_assert_int_eq(
            sbx_gvisor_record_load(driver, "one", &wait_long, &text, &size, version, NULL),
            SANDBOX_OK);
        snprintf(next, sizeof next, "%ld", strtol(text, NULL, 10) + 1);
        free(text);
        n += store("one", next, version, version) == SANDBOX_OK;
    }
    return NULL;
}

START_TEST(no_change_is_lost_among_threads_and_processes)
{
    char version[SBX_VERSION_TEXT];
    ck_assert_int_eq(store("one", "0", "", version), SANDBOX_OK);
    pid_t child = fork();
    if (child == 0) {
        count_up(NULL);
        _exit(0);
    }
    pthread_t threads[2];
    for (int n = 0; n < 2; n++)
        ck_assert_int_eq(pthread_create(&threads[n], NULL, count_up, NULL), 0);
    for (int n = 0; n < 2; n++)
        pthread_join(threads[n], NULL);
    int how = 1;
    ck_assert_int_eq(waitpid(child, &how, 0), child);
    ck_assert_int_eq(how, 0);
    char *text = NULL;
    size_t size = 0;
    ck_assert_int_eq(sbx_gvisor_record_load(driver, "one", &wait_long, &text, &size, version, NULL),
                     SANDBOX_OK);
    ck_assert_str_eq(text, "150");
    free(text);
}
END_TEST

static void *make_and_remove(void *data)
{
    int *made = data;
    for (int n = 0; n < 60; n++) {
        char version[SBX_VERSION_TEXT];
        if (store("one", "{}", "", version) != SANDBOX_OK)
            continue;
        ++*made;
        /* Only its maker knows the version: nobody else can have removed or changed it. */
        ck_assert_int_eq(sbx_gvisor_record_remove(driver, "one", version, &wait_long, NULL),
                         SANDBOX_OK);
    }
    return NULL;
}

START_TEST(removing_never_lets_two_actors_hold_the_lock)
{
    pthread_t threads[4];
    int made[4] = {0};
    for (int n = 0; n < 4; n++)
        ck_assert_int_eq(pthread_create(&threads[n], NULL, make_and_remove, &made[n]), 0);
    for (int n = 0; n < 4; n++)
        pthread_join(threads[n], NULL);
    ck_assert_int_gt(made[0] + made[1] + made[2] + made[3], 0);
    ck_assert_int_eq(count_files("records"), 0);
}
END_TEST

START_TEST(a_lock_that_another_holds_is_waited_for_no_longer_than_allowed)
{
    int lock = -1;
    char version[SBX_VERSION_TEXT];
    struct sbx_wait soon = sbx_wait_alone(60);
    ck_assert_int_eq(
        sbx_file_lock(driver->directory, "locks/one.lock", true, &wait_long, &lock, NULL),
        SANDBOX_OK);
    ck_assert_int_eq(sbx_gvisor_record_store(driver, "one", "{}", 2, "", version, &soon, NULL),
                     SANDBOX_TIMED_OUT);
    close(lock);
}
END_TEST

START_TEST(a_record_over_the_limit_is_refused)
{
    char version[SBX_VERSION_TEXT];
    SBX_ON_EXIT(sbx_free_text) char *text = calloc(1, SBX_RECORD_MAX + 2);
    memset(text, ' ', SBX_RECORD_MAX + 1);
    ck_assert_int_eq(store("one", text, "", version), SANDBOX_LIMIT);
    ck_assert_int_eq(count_files("records"), 0);
}
END_TEST

struct seen {
    unsigned count;
    unsigned stop_after;
    char last[200];
};

static bool note(void *user_data, const char *name, const char *text, size_t size,
                 const char *version)
{
    struct seen *seen = user_data;
    ck_assert_uint_eq(strlen(text), size);
    ck_assert_int_gt((int)strlen(version), 2);
    snprintf(seen->last, sizeof seen->last, "%s=%s", name, text);
    return ++seen->count != seen->stop_after;
}

START_TEST(listing_shows_every_change_whether_it_was_read_before_or_not)
{
    char version[SBX_VERSION_TEXT];
    ck_assert_int_eq(store("one", "{\"n\":0}", "", version), SANDBOX_OK);
    for (int n = 1; n < 30; n++) {
        char text[32], wanted[64];
        snprintf(text, sizeof text, "{\"n\":%d}", n % 10);
        snprintf(wanted, sizeof wanted, "one=%s", text);
        ck_assert_int_eq(store("one", text, version, version), SANDBOX_OK);
        struct seen seen = {0};
        ck_assert_int_eq(sbx_gvisor_record_list(driver, &wait_long, note, &seen, NULL), SANDBOX_OK);
        ck_assert_uint_eq(seen.count, 1);
        ck_assert_str_eq(seen.last, wanted);
    }
}
END_TEST

START_TEST(listing_passes_over_what_is_no_record)
{
    char version[SBX_VERSION_TEXT];
    ck_assert_int_eq(store("one", "{}", "", version), SANDBOX_OK);
    static const char *const strange[] = {"records/one.json.0123.new", "records/.json",
                                          "records/UPPER.json", "records/plain"};
    for (size_t n = 0; n < 4; n++)
        ck_assert_int_eq(sbx_file_replace(driver->directory, strange[n], "x\n{}", 4, 0600, NULL),
                         SANDBOX_OK);
    ck_assert_int_eq(symlinkat("/etc/passwd", driver->directory, "records/link.json"), 0);
    ck_assert_int_eq(mkdirat(driver->directory, "records/folder.json", 0700), 0);
    struct seen seen = {0};
    ck_assert_int_eq(sbx_gvisor_record_list(driver, &wait_long, note, &seen, NULL), SANDBOX_OK);
    ck_assert_uint_eq(seen.count, 1);
}
END_TEST

START_TEST(a_damaged_record_is_an_error_and_no_workspace)
{
    ck_assert_int_eq(
        sbx_file_replace(driver->directory, "records/bad.json", "no version", 10, 0600, NULL),
        SANDBOX_OK);
    struct seen seen = {0};
    sandbox_error error = {0};
    ck_assert_int_eq(sbx_gvisor_record_list(driver, &wait_long, note, &seen, &error),
                     SANDBOX_FAILED);
    ck_assert_ptr_nonnull(strstr(error.message, "'bad'"));
}
END_TEST

static bool change_it(void *user_data, const char *name, const char *text, size_t size,
                      const char *version)
{
    char next[SBX_VERSION_TEXT];
    ck_assert_int_eq(store(name, "{\"x\":1}", version, next), SANDBOX_OK);
    ck_assert_str_eq(text, "{}"); /* what was given stays what it was */
    return true;
}

START_TEST(a_visitor_may_change_what_it_visits)
{
    char version[SBX_VERSION_TEXT];
    ck_assert_int_eq(store("one", "{}", "", version), SANDBOX_OK);
    ck_assert_int_eq(sbx_gvisor_record_list(driver, &wait_long, change_it, NULL, NULL), SANDBOX_OK);
}
END_TEST

START_TEST(ten_thousand_records_are_listed_and_a_visitor_can_stop)
{
    /* Written as they lie on disk: storing each durably would only test the disk. */
    for (int n = 0; n < 10000; n++) {
        char path[64], text[64];
        snprintf(path, sizeof path, "records/w-%d.json", n);
        int size = snprintf(text, sizeof text, "tag.1\n{\"n\":%d}", n);
        int fd = openat(driver->directory, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        ck_assert_int_eq(write(fd, text, (size_t)size), size);
        close(fd);
    }
    for (int round = 0; round < 3; round++) {
        struct seen seen = {0};
        ck_assert_int_eq(sbx_gvisor_record_list(driver, &wait_long, note, &seen, NULL), SANDBOX_OK);
        ck_assert_uint_eq(seen.count, 10000);
    }
    struct seen seen = {.stop_after = 7};
    ck_assert_int_eq(sbx_gvisor_record_list(driver, &wait_long, note, &seen, NULL), SANDBOX_OK);
    ck_assert_uint_eq(seen.count, 7);
}
END_TEST

START_TEST(the_first_secret_is_made_once_and_old_ones_stay_readable)
{
    uint32_t first = 0, again = 0, old = 1, missing = 77;
    uint8_t key[32], same[32], newer[32];
    ck_assert_int_eq(sbx_gvisor_secret(driver, &first, key, &wait_long, NULL), SANDBOX_OK);
    ck_assert_uint_eq(first, 1);
    struct stat facts;
    ck_assert_int_eq(fstatat(driver->directory, "secrets/1", &facts, 0), 0);
    ck_assert_uint_eq(facts.st_mode & 0777, 0600);
    ck_assert_int_eq(sbx_gvisor_secret(driver, &again, same, &wait_long, NULL), SANDBOX_OK);
    ck_assert_mem_eq(key, same, 32);
    /* An operator rotates by adding a file. */
    memset(newer, 7, sizeof newer);
    ck_assert_int_eq(sbx_file_create(driver->directory, "secrets/2", newer, 32, 0600, NULL),
                     SANDBOX_OK);
    again = 0;
    ck_assert_int_eq(sbx_gvisor_secret(driver, &again, same, &wait_long, NULL), SANDBOX_OK);
    ck_assert_uint_eq(again, 2);
    ck_assert_mem_eq(newer, same, 32);
    ck_assert_int_eq(sbx_gvisor_secret(driver, &old, same, &wait_long, NULL), SANDBOX_OK);
    ck_assert_mem_eq(key, same, 32);
    ck_assert_int_eq(sbx_gvisor_secret(driver, &missing, same, &wait_long, NULL),
                     SANDBOX_NOT_FOUND);
}
END_TEST

START_TEST(a_damaged_secret_is_never_used)
{
    uint32_t key_id = 1;
    uint8_t key[32];
    ck_assert_int_eq(sbx_file_create(driver->directory, "secrets/1", "short", 5, 0600, NULL),
                     SANDBOX_OK);
    ck_assert_int_eq(sbx_gvisor_secret(driver, &key_id, key, &wait_long, NULL), SANDBOX_FAILED);
}
END_TEST

/* The fence: an actor whose operation was taken over changes nothing. */
START_TEST(a_stale_epoch_or_operation_is_fenced_off)
{
    struct sbx_record record = {.name = "one",
                                .driver = "gvisor",
                                .epoch = 4,
                                .user = "root",
                                .state = SANDBOX_STATE_CREATING,
                                .operation.kind = "create"};
    ck_assert(sbx_id_fresh(record.id) && sbx_id_fresh(record.run) &&
              sbx_id_fresh(record.operation.id));
    SBX_ON_EXIT(sbx_free_text) char *text = NULL;
    ck_assert_int_eq(sbx_record_encode(&record, &text, NULL), SANDBOX_OK);
    int lock = -1;
    sandbox_error error = {0};
    ck_assert_int_eq(sbx_gvisor_fence(driver, &record, &wait_long, &lock, &error),
                     SANDBOX_CONFLICT);
    ck_assert_str_eq(error.reason, "stale-epoch");
    ck_assert_int_eq(count_files("locks"), 0);

    char version[SBX_VERSION_TEXT];
    ck_assert_int_eq(store("one", text, "", version), SANDBOX_OK);
    ck_assert_int_eq(sbx_gvisor_fence(driver, &record, &wait_long, &lock, NULL), SANDBOX_OK);
    struct sbx_wait soon = sbx_wait_alone(60);
    int second = -1;
    ck_assert_int_eq(sbx_gvisor_fence(driver, &record, &soon, &second, NULL), SANDBOX_TIMED_OUT);
    close(lock);
    record.epoch = 3;
    ck_assert_int_eq(sbx_gvisor_fence(driver, &record, &wait_long, &lock, &error),
                     SANDBOX_CONFLICT);
    record.epoch = 4;
    ck_assert(sbx_id_fresh(record.operation.id));
    ck_assert_int_eq(sbx_gvisor_fence(driver, &record, &wait_long, &lock, &error),
                     SANDBOX_CONFLICT);
    sbx_record_clear(&record);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gvisor store");
    TCase *tests = tcase_create("store");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, a_record_is_stored_loaded_changed_and_removed);
    tcase_add_test(tests, a_missing_record_is_not_found_and_says_what);
    tcase_add_test(tests, a_stale_version_changes_nothing);
    tcase_add_test(tests, a_new_record_of_an_old_name_is_never_taken_for_the_old_one);
    tcase_add_test(tests, no_change_is_lost_among_threads_and_processes);
    tcase_add_test(tests, removing_never_lets_two_actors_hold_the_lock);
    tcase_add_test(tests, a_lock_that_another_holds_is_waited_for_no_longer_than_allowed);
    tcase_add_test(tests, a_record_over_the_limit_is_refused);
    tcase_add_test(tests, listing_shows_every_change_whether_it_was_read_before_or_not);
    tcase_add_test(tests, listing_passes_over_what_is_no_record);
    tcase_add_test(tests, a_damaged_record_is_an_error_and_no_workspace);
    tcase_add_test(tests, a_visitor_may_change_what_it_visits);
    tcase_add_test(tests, ten_thousand_records_are_listed_and_a_visitor_can_stop);
    tcase_add_test(tests, the_first_secret_is_made_once_and_old_ones_stay_readable);
    tcase_add_test(tests, a_damaged_secret_is_never_used);
    tcase_add_test(tests, a_stale_epoch_or_operation_is_fenced_off);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
