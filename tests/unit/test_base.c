/* The base root file system: programs, and nothing else of the host. */

#include "drivers/gvisor/gvisor.h"
#include "util/file.h"
#include "util/memory.h"
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* A host of our own: `host` is its root, `made` the base. */
static char folder[64];
static int host = -1, etc = -1, made = -1;

static void put_file(const char *path, const char *text, mode_t mode)
{
    ck_assert_int_eq(sbx_file_replace(host, path, text, strlen(text), 0600, NULL), SANDBOX_OK);
    ck_assert_int_eq(fchmodat(host, path, mode, 0), 0);
}

static void set_up(void)
{
    static const char *const directories[] = {"usr/bin",
                                              "etc/ssl/certs",
                                              "etc/ssl/private",
                                              "etc/alternatives",
                                              "etc/ssh",
                                              "etc/python3.11",
                                              "opt",
                                              "lib64"};
    strcpy(folder, "/tmp/sandbox-base-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(mkdirat(at, "host", 0755), 0);
    ck_assert_int_eq(mkdirat(at, "made", 0755), 0);
    host = openat(at, "host", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    made = openat(at, "made", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(at);
    for (size_t n = 0; n < sizeof directories / sizeof directories[0]; n++)
        ck_assert_int_eq(sbx_directory_make(host, directories[n], 0755, NULL), SANDBOX_OK);
    etc = openat(host, "etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(symlinkat("usr/bin", host, "bin"), 0);
    put_file("etc/shadow", "root:secret", 0640);
    put_file("etc/ssh/key", "secret", 0600);
    put_file("etc/ssl/private/key.pem", "secret", 0600);
    put_file("etc/ssl/certs/public.pem", "public", 0644);
    put_file("etc/ssl/certs/hidden.pem", "secret", 0600);
    put_file("etc/passwd", "admin:x:0:0::/root:/bin/sh\n", 0644);
    put_file("etc/python3.11/sitecustomize.py", "pass", 0644);
    put_file("etc/gitconfig", "[http] extraHeader = secret", 0644);
    put_file("etc/ld.so.cache", "cache", 0644);
    ck_assert_int_eq(sbx_gvisor_base_build(made, etc, host, NULL), SANDBOX_OK);
}

static void tear_down(void)
{
    close(host);
    close(etc);
    close(made);
    ck_assert_int_eq(sbx_tree_remove(AT_FDCWD, folder, NULL), SANDBOX_OK);
}

static bool has(const char *path)
{
    struct stat facts;
    return fstatat(made, path, &facts, AT_SYMLINK_NOFOLLOW) == 0;
}

START_TEST(only_what_programs_need_is_copied)
{
    ck_assert(has("etc/ssl/certs/public.pem"));
    ck_assert(has("etc/python3.11/sitecustomize.py"));
    ck_assert(has("etc/ld.so.cache"));
    ck_assert(!has("etc/shadow"));
    ck_assert(!has("etc/ssh"));
    ck_assert(!has("etc/gitconfig"));
    ck_assert(!has("etc/ssl/private"));
    ck_assert(!has("etc/ssl/certs/hidden.pem"));
}
END_TEST

START_TEST(users_are_our_own)
{
    uint8_t *text = NULL;
    size_t size = 0;
    struct sbx_gvisor_user user;
    ck_assert_int_eq(sbx_file_read(made, "etc/passwd", 4096, &text, &size, NULL), SANDBOX_OK);
    ck_assert(!sbx_gvisor_user_find((char *)text, "admin", &user));
    ck_assert(sbx_gvisor_user_find((char *)text, "sandbox", &user));
    ck_assert_uint_eq(user.uid, 1000);
    ck_assert_uint_eq(user.gid, 1000);
    ck_assert_str_eq(user.home, "/home/sandbox");
    free(text);
}
END_TEST

START_TEST(directories_have_their_modes_whatever_the_umask)
{
    struct stat facts;
    ck_assert_int_eq(fstatat(made, "tmp", &facts, 0), 0);
    ck_assert_uint_eq(facts.st_mode & 07777, 01777);
    ck_assert_int_eq(fstatat(made, "root", &facts, 0), 0);
    ck_assert_uint_eq(facts.st_mode & 07777, 0700);
    ck_assert_int_eq(fstatat(made, "etc/ssl", &facts, 0), 0);
    ck_assert_uint_eq(facts.st_mode & 07777, 0755);
    ck_assert_int_eq(fstatat(made, "etc/passwd", &facts, 0), 0);
    ck_assert_uint_eq(facts.st_mode & 07777, 0644);
}
END_TEST

START_TEST(program_links_stay_links_and_real_directories_become_mount_points)
{
    char target[64] = "";
    ck_assert_int_eq(readlinkat(made, "bin", target, sizeof target - 1), 7);
    ck_assert_str_eq(target, "usr/bin");
    struct stat facts;
    ck_assert_int_eq(fstatat(made, "lib64", &facts, AT_SYMLINK_NOFOLLOW), 0);
    ck_assert(S_ISDIR(facts.st_mode));
    ck_assert(!has("sbin"));
}
END_TEST

static void set_up_strictly(void)
{
    mode_t before = umask(077);
    set_up();
    umask(before);
}

static const struct {
    const char *target;
    bool kept;
} links[] = {
    {"/usr/bin/vim", true},
    {"../../usr/share/x", true},
    {"/etc/ssl/certs/public.pem", true},
    {"/bin/sh", true},
    {"/etc/shadow", false},
    {"../ssl/private/key.pem", false},
    {"../../root/.ssh/id", false},
    {"/usr/../root/x", false},
    {"/opt/program", false},
    {"/etc/ssl/certs/../private/key.pem", false},
};

START_TEST(a_link_is_kept_only_where_it_leads_to_programs_or_to_what_is_copied)
{
    ck_assert_int_eq(symlinkat(links[_i].target, etc, "alternatives/thing"), 0);
    int again = openat(host, "opt", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(sbx_gvisor_base_build(again, etc, host, NULL), SANDBOX_OK);
    struct stat facts;
    bool kept = fstatat(again, "etc/alternatives/thing", &facts, AT_SYMLINK_NOFOLLOW) == 0;
    ck_assert_int_eq(kept, links[_i].kept);
    close(again);
}
END_TEST

START_TEST(a_copied_directory_that_is_a_link_is_not_followed)
{
    ck_assert_int_eq(sbx_tree_remove(etc, "ssl", NULL), SANDBOX_OK);
    ck_assert_int_eq(symlinkat("/root", etc, "ssl"), 0);
    int again = openat(host, "opt", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(sbx_gvisor_base_build(again, etc, host, NULL), SANDBOX_OK);
    ck_assert_int_lt(faccessat(again, "etc/ssl", F_OK, AT_SYMLINK_NOFOLLOW), 0);
    close(again);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base");
    TCase *tests = tcase_create("base");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, only_what_programs_need_is_copied);
    tcase_add_test(tests, users_are_our_own);
    tcase_add_test(tests, program_links_stay_links_and_real_directories_become_mount_points);
    tcase_add_loop_test(tests, a_link_is_kept_only_where_it_leads_to_programs_or_to_what_is_copied,
                        0, sizeof links / sizeof links[0]);
    tcase_add_test(tests, a_copied_directory_that_is_a_link_is_not_followed);
    suite_add_tcase(suite, tests);
    TCase *strict = tcase_create("strict umask");
    tcase_add_checked_fixture(strict, set_up_strictly, tear_down);
    tcase_add_test(strict, directories_have_their_modes_whatever_the_umask);
    suite_add_tcase(suite, strict);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
