/* Copies of runsc, made of programs that answer as it does and note that they were asked. */

#include "drivers/gvisor/gvisor.h"
#include "util/file.h"
#include "util/memory.h"
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define OLD "0.0~20221219.0"
#define NEW "release-20260224.0"

static char folder[64];
static struct sbx_gvisor driver;
static struct sbx_wait wait_long;
static sandbox_error error;

static void install(const char *version, const char *flags)
{
    SBX_ON_EXIT(sbx_free_text)
    char *script = sbx_format("#!/bin/sh\necho x >>%s/asked\necho 'runsc version %s'\necho '%s'\n",
                              folder, version, flags);
    ck_assert_int_eq(
        sbx_file_replace(AT_FDCWD, driver.settings.runsc, script, strlen(script), 0755, NULL),
        SANDBOX_OK);
}

static void set_up(void)
{
    static const char *const folders[] = {"state/locks", "state/runtimes", "state/workspaces"};
    strcpy(folder, "/tmp/sandbox-runtime-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t n = 0; n < sizeof folders / sizeof folders[0]; n++)
        ck_assert_int_eq(sbx_directory_make(at, folders[n], 0755, NULL), SANDBOX_OK);
    driver = (struct sbx_gvisor){.directory = openat(at, "state", O_RDONLY | O_DIRECTORY)};
    close(at);
    driver.settings.state = sbx_format("%s/state", folder);
    driver.settings.runsc = sbx_format("%s/runsc", folder);
    install(OLD, "  -overlay2 value");
    wait_long = sbx_wait_alone(60000);
    error = (sandbox_error){0};
}

/* As another client finds it. */
static void forget(void)
{
    sbx_gvisor_runtime_clear(&driver.runtime);
    driver.runtime_origin[0] = '\0';
}

static void tear_down(void)
{
    close(driver.directory);
    forget();
    sbx_gvisor_settings_clear(&driver.settings);
    ck_assert_int_eq(sbx_tree_remove(AT_FDCWD, folder, NULL), SANDBOX_OK);
}

static struct sbx_gvisor_runtime get(void)
{
    struct sbx_gvisor_runtime runtime = {0};
    ck_assert_msg(sbx_gvisor_runtime(&driver, &wait_long, &runtime, &error) == SANDBOX_OK, "%s",
                  error.message);
    return runtime;
}

static size_t times_asked(void)
{
    char path[96];
    struct stat facts;
    snprintf(path, sizeof path, "%s/asked", folder);
    return stat(path, &facts) < 0 ? 0 : (size_t)facts.st_size / 2;
}

static size_t copies(void)
{
    SBX_ON_EXIT(sbx_free_text) char *path = sbx_format("%s/runtimes", driver.settings.state);
    DIR *directory = opendir(path);
    ck_assert_ptr_nonnull(directory);
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(directory);
    return count;
}

START_TEST(a_copy_is_made_once_and_asked_once_by_all_clients)
{
    struct sbx_gvisor_runtime first = get(), second = get();
    ck_assert_str_eq(first.path, second.path);
    ck_assert_str_ne(first.path, driver.settings.runsc);
    ck_assert_str_eq(first.runsc.version, OLD);
    forget();
    struct sbx_gvisor_runtime third = get();
    ck_assert_str_eq(third.digest, first.digest);
    ck_assert_str_eq(third.runsc.version, OLD);
    ck_assert(third.runsc.needs_shim);
    ck_assert_uint_eq(times_asked(), 2); /* its version, and its flags */
    ck_assert_uint_eq(copies(), 1);
    sbx_gvisor_runtime_clear(&first);
    sbx_gvisor_runtime_clear(&second);
    sbx_gvisor_runtime_clear(&third);
}
END_TEST

START_TEST(an_upgrade_makes_another_copy_and_leaves_the_first)
{
    struct sbx_gvisor_runtime before = get();
    install(NEW, "  -overlay2 value systrap");
    struct sbx_gvisor_runtime after = get(), pinned = {0};
    ck_assert_str_ne(after.digest, before.digest);
    ck_assert_str_eq(after.runsc.platform, "systrap");
    ck_assert_int_eq(sbx_gvisor_runtime_pinned(&driver, before.digest, &pinned, &error),
                     SANDBOX_OK);
    ck_assert_str_eq(pinned.runsc.version, OLD);
    ck_assert_str_eq(pinned.path, before.path);
    ck_assert_int_eq(access(pinned.path, X_OK), 0);
    sbx_gvisor_runtime_clear(&before);
    sbx_gvisor_runtime_clear(&after);
    sbx_gvisor_runtime_clear(&pinned);
}
END_TEST

START_TEST(the_same_program_installed_again_is_the_same_copy)
{
    struct sbx_gvisor_runtime before = get();
    install(OLD, "  -overlay2 value");
    struct sbx_gvisor_runtime after = get();
    ck_assert_str_eq(after.digest, before.digest);
    ck_assert_uint_eq(copies(), 1);
    size_t asked = times_asked();
    forget();
    struct sbx_gvisor_runtime again = get();
    ck_assert_uint_eq(times_asked(), asked);
    sbx_gvisor_runtime_clear(&before);
    sbx_gvisor_runtime_clear(&after);
    sbx_gvisor_runtime_clear(&again);
}
END_TEST

START_TEST(a_copy_that_was_removed_is_made_again_or_named_as_missing)
{
    struct sbx_gvisor_runtime before = get(), pinned = {0};
    char path[128];
    snprintf(path, sizeof path, "runtimes/%s", before.digest);
    ck_assert_int_eq(sbx_tree_remove(driver.directory, path, NULL), SANDBOX_OK);
    ck_assert_int_eq(sbx_gvisor_runtime_pinned(&driver, before.digest, &pinned, &error),
                     SANDBOX_NOT_RESTORED);
    ck_assert_str_eq(error.reason, "pin-missing");
    struct sbx_gvisor_runtime after = get();
    ck_assert_str_eq(after.digest, before.digest);
    ck_assert_int_eq(access(after.path, X_OK), 0);
    sbx_gvisor_runtime_clear(&before);
    sbx_gvisor_runtime_clear(&after);
}
END_TEST

START_TEST(what_is_no_runsc_leaves_no_copy)
{
    struct sbx_gvisor_runtime runtime = {0};
    install(OLD, "no such flag");
    ck_assert_int_eq(sbx_gvisor_runtime(&driver, &wait_long, &runtime, &error),
                     SANDBOX_UNSUPPORTED);
    ck_assert_str_eq(error.reason, "runsc-too-old");
    ck_assert_ptr_nonnull(strstr(error.message, driver.settings.runsc));
    ck_assert_int_eq(unlink(driver.settings.runsc), 0);
    ck_assert_int_eq(sbx_gvisor_runtime(&driver, &wait_long, &runtime, &error),
                     SANDBOX_UNSUPPORTED);
    ck_assert_str_eq(error.reason, "no-runsc");
    ck_assert_uint_eq(copies(), 0);
}
END_TEST

START_TEST(a_state_directory_where_nothing_may_run_is_refused)
{
    struct sbx_gvisor_runtime runtime = {0};
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        printf("not run: no mounts can be made here\n");
        return;
    }
    const char *state = driver.settings.state;
    ck_assert_int_eq(mount("tmpfs", state, "tmpfs", MS_NOEXEC, NULL), 0);
    int at = open(state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(mkdirat(at, "runtimes", 0700), 0);
    ck_assert_int_eq(mkdirat(at, "locks", 0700), 0);
    close(driver.directory);
    driver.directory = at;
    ck_assert_int_eq(sbx_gvisor_runtime(&driver, &wait_long, &runtime, &error),
                     SANDBOX_UNSUPPORTED);
    ck_assert_str_eq(error.reason, "state-noexec");
    ck_assert_int_eq(umount2(state, MNT_DETACH), 0);
}
END_TEST

START_TEST(who_talks_to_a_sandbox_uses_what_it_was_started_with)
{
    static const char config[] = "{\"annotations\":{\"org.libsandbox.runtime\":\"abc\"}}";
    char *path = NULL;
    /* The bundle of an older libsandbox, and no bundle at all. */
    ck_assert_int_eq(sbx_gvisor_runtime_of(&driver, "w", &path, &error), SANDBOX_OK);
    ck_assert_str_eq(path, driver.settings.runsc);
    free(path);
    ck_assert_int_eq(sbx_directory_make(driver.directory, "workspaces/w/bundle", 0700, NULL),
                     SANDBOX_OK);
    ck_assert_int_eq(
        sbx_file_replace(driver.directory, "workspaces/w/bundle/config.json", "{}", 2, 0600, NULL),
        SANDBOX_OK);
    ck_assert_int_eq(sbx_gvisor_runtime_of(&driver, "w", &path, &error), SANDBOX_OK);
    ck_assert_str_eq(path, driver.settings.runsc);
    free(path);
    ck_assert_int_eq(sbx_file_replace(driver.directory, "workspaces/w/bundle/config.json", config,
                                      strlen(config), 0600, NULL),
                     SANDBOX_OK);
    ck_assert_int_eq(sbx_gvisor_runtime_of(&driver, "w", &path, &error), SANDBOX_OK);
    ck_assert_ptr_nonnull(strstr(path, "/state/runtimes/abc/runsc"));
    free(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("runtime");
    TCase *tests = tcase_create("runtime");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, a_copy_is_made_once_and_asked_once_by_all_clients);
    tcase_add_test(tests, an_upgrade_makes_another_copy_and_leaves_the_first);
    tcase_add_test(tests, the_same_program_installed_again_is_the_same_copy);
    tcase_add_test(tests, a_copy_that_was_removed_is_made_again_or_named_as_missing);
    tcase_add_test(tests, what_is_no_runsc_leaves_no_copy);
    tcase_add_test(tests, a_state_directory_where_nothing_may_run_is_refused);
    tcase_add_test(tests, who_talks_to_a_sandbox_uses_what_it_was_started_with);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
