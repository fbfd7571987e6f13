/* What the child does before it becomes runsc: that it is seen by it alone, and told where it
 * fails. */

#include "drivers/gvisor/root.h"
#include "util/child.h"
#include "util/memory.h"
#include "util/wait.h"
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static void make(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    ck_assert_int_eq(mkdir(path, 0755), 0);
}

static void set_up(void)
{
    static const char *const names[] = {"lower", "lower/usr", "layer",    "root",
                                        "land",  "land/usr",  "layer/etc"};
    snprintf(folder, sizeof folder, "/tmp/gvisor-root.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++)
        make(names[n]);
}

static void tear_down(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static void plan(struct sbx_gvisor_root *root, const char *lower)
{
    root->place = sbx_format("%s/root", folder);
    root->layers = sbx_format("lowerdir=%s/layer:%s/%s", folder, folder, lower);
    root->binds[0].from = sbx_format("%s/land/usr", folder);
    root->binds[0].to = sbx_format("%s/root/usr", folder);
    root->bind_count = 1;
}

static sandbox_status look(struct sbx_gvisor_root *root, const char *script, int *code,
                           sandbox_error *error)
{
    const char *argv[] = {"/bin/sh", "-c", script, NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv};
    struct sbx_wait wait = sbx_wait_alone(10000);
    options.directory = folder;
    options.prepare = sbx_gvisor_root_enter;
    options.data = root;
    return sbx_child_run(&options, &wait, code, NULL, error);
}

/* ThreadSanitizer makes a fork of each vfork: the child's words do not come back. */
static bool hears_child(void)
{
#ifdef __SANITIZE_THREAD__
    puts("skipped: the child of a fork has memory of its own");
    return false;
#else
    return true;
#endif
}

static bool can_mount(void)
{
    if (geteuid() == 0)
        return true;
    puts("skipped: only root can mount");
    return false;
}

START_TEST(the_child_alone_sees_the_root_and_cannot_write_to_it)
{
    if (!can_mount())
        return;
    SBX_ON_EXIT(sbx_gvisor_root_clear) struct sbx_gvisor_root root = SBX_GVISOR_ROOT;
    char path[128];
    int code = 0;
    plan(&root, "lower");
    ck_assert_int_eq(look(&root,
                          "test -d root/etc && test -d root/usr || exit 3; "
                          "touch root/x && exit 4; touch root/usr/x && exit 5; "
                          "touch land/usr/y || exit 6; test -e root/usr/y",
                          &code, NULL),
                     SANDBOX_OK);
    ck_assert_int_eq(code, 0);
    snprintf(path, sizeof path, "%s/root/usr", folder);
    ck_assert_int_lt(access(path, F_OK), 0);
}
END_TEST

START_TEST(what_cannot_be_mounted_is_named)
{
    if (!hears_child() || !can_mount())
        return;
    SBX_ON_EXIT(sbx_gvisor_root_clear) struct sbx_gvisor_root root = SBX_GVISOR_ROOT;
    sandbox_error error = {0};
    int code = 0;
    plan(&root, "nowhere");
    ck_assert_int_ne(look(&root, "true", &code, &error), SANDBOX_OK);
    ck_assert_ptr_nonnull(root.failed);
    ck_assert_int_eq(sbx_gvisor_root_explain(&root, &error), SANDBOX_FAILED);
    ck_assert_str_eq(error.reason, "no-start");
    ck_assert(strstr(error.message, "mount its root file system") != NULL);
    ck_assert(strstr(error.message, strerror(ENOENT)) != NULL);
}
END_TEST

START_TEST(a_group_that_cannot_be_joined_is_told)
{
    if (!hears_child())
        return;
    SBX_ON_EXIT(sbx_gvisor_root_clear) struct sbx_gvisor_root root = SBX_GVISOR_ROOT;
    sandbox_error error = {0};
    int code = 0, ends[2];
    plan(&root, "lower");
    ck_assert_int_eq(pipe(ends), 0);
    root.groups[1] = ends[0]; /* nothing can be written there */
    ck_assert_int_ne(look(&root, "true", &code, &error), SANDBOX_OK);
    ck_assert_int_eq(sbx_gvisor_root_explain(&root, &error), SANDBOX_FAILED);
    ck_assert(strstr(error.message, "control group") != NULL);
    close(ends[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gvisor_root");
    TCase *test = tcase_create("root");
    tcase_add_checked_fixture(test, set_up, tear_down);
    tcase_add_test(test, the_child_alone_sees_the_root_and_cannot_write_to_it);
    tcase_add_test(test, what_cannot_be_mounted_is_named);
    tcase_add_test(test, a_group_that_cannot_be_joined_is_told);
    suite_add_tcase(suite, test);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
