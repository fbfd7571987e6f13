/* The base root file system: programs as hard links, and nothing else of the host. */

#include "drivers/gvisor/gvisor.h"
#include "util/file.h"
#include "util/memory.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
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

/* ---- the programs ---- */

static void link_programs(void)
{
    static const char *const names[] = {"usr", "lib64", NULL};
    struct sbx_wait wait = sbx_wait_alone(60000);
    sandbox_error error = {0};
    ck_assert_msg(sbx_gvisor_farm_make(host, made, names, etc, &wait, &error) == SANDBOX_OK, "%s",
                  error.message);
}

static struct stat look(int at, const char *path)
{
    struct stat facts = {0};
    ck_assert_msg(fstatat(at, path, &facts, AT_SYMLINK_NOFOLLOW) == 0, "%s", path);
    return facts;
}

static void expect_text(const char *path, const char *expected)
{
    uint8_t *text = NULL;
    size_t size = 0;
    ck_assert_int_eq(sbx_file_read(made, path, 4096, &text, &size, NULL), SANDBOX_OK);
    ck_assert_str_eq((char *)text, expected);
    free(text);
}

START_TEST(what_an_upgrade_replaces_stays_as_it_was)
{
    put_file("usr/bin/tool", "old", 0755);
    ck_assert_int_eq(symlinkat("tool", host, "usr/bin/alias"), 0);
    link_programs();
    ck_assert_uint_eq(look(made, "usr/bin/tool").st_ino, look(host, "usr/bin/tool").st_ino);

    put_file("usr/bin/tool", "new", 0755); /* by rename, as packages do */
    expect_text("usr/bin/tool", "old");
    ck_assert_int_eq(unlinkat(host, "usr/bin/tool", 0), 0);
    expect_text("usr/bin/alias", "old");
}
END_TEST

/* dpkg takes the rights of the old file away, whatever links to it. */
START_TEST(a_setuid_program_is_a_copy_with_the_same_rights_and_time)
{
    put_file("usr/bin/su", "content", 04755);
    struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 2000, .tv_nsec = 5}};
    ck_assert_int_eq(utimensat(host, "usr/bin/su", times, 0), 0);
    link_programs();
    struct stat facts = look(made, "usr/bin/su");
    ck_assert_uint_ne(facts.st_ino, look(host, "usr/bin/su").st_ino);
    ck_assert_uint_eq(facts.st_mode & 07777, 04755);
    ck_assert_int_eq(facts.st_mtim.tv_sec, 2000);
    ck_assert_int_eq(facts.st_mtim.tv_nsec, 5);
    ck_assert_int_eq(fchmodat(host, "usr/bin/su", 0600, 0), 0);
    expect_text("usr/bin/su", "content");
}
END_TEST

START_TEST(what_is_no_program_or_not_for_everybody_is_left_out)
{
    put_file("usr/bin/secret", "secret", 0640);
    put_file("usr/bin/only-run", "binary", 0711);
    ck_assert_int_eq(mkfifoat(host, "usr/bin/pipe", 0666), 0);
    ck_assert_int_eq(sbx_directory_make(host, "usr/share/hidden/below", 0755, NULL), SANDBOX_OK);
    ck_assert_int_eq(fchmodat(host, "usr/share/hidden", 0700, 0), 0);
    ck_assert_int_eq(fchmodat(host, "usr/share", 02775, 0), 0);
    link_programs();
    ck_assert(!has("usr/bin/secret"));
    ck_assert(has("usr/bin/only-run"));
    ck_assert(!has("usr/bin/pipe"));
    ck_assert(!has("usr/share/hidden"));
    ck_assert_uint_eq(look(made, "usr/share").st_mode & 07777, 02775);
}
END_TEST

START_TEST(the_state_directory_is_never_inside)
{
    struct sbx_wait wait = sbx_wait_alone(60000);
    static const char *const names[] = {"usr", NULL};
    ck_assert_int_eq(sbx_directory_make(host, "usr/local/state/secrets", 0755, NULL), SANDBOX_OK);
    put_file("usr/local/state/secrets/1", "secret", 0644);
    int state = openat(host, "usr/local/state", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(sbx_gvisor_farm_make(host, made, names, state, &wait, NULL), SANDBOX_OK);
    close(state);
    ck_assert(has("usr/local"));
    ck_assert(!has("usr/local/state/secrets"));
}
END_TEST

START_TEST(a_file_with_as_many_links_as_can_be_is_copied)
{
    char name[32];
    put_file("usr/bin/popular", "content", 0755);
    ck_assert_int_eq(mkdirat(host, "links", 0755), 0);
    int failed = 0;
    for (int n = 0; n < 70000 && failed == 0; n++) {
        snprintf(name, sizeof name, "links/%d", n);
        failed = linkat(host, "usr/bin/popular", host, name, 0) < 0 ? errno : 0;
    }
    if (failed == 0) {
        printf("not run: this file system has no limit of links that can be reached\n");
        return;
    }
    ck_assert_int_eq(failed, EMLINK);
    link_programs();
    expect_text("usr/bin/popular", "content");
    ck_assert_uint_ne(look(made, "usr/bin/popular").st_ino, look(host, "usr/bin/popular").st_ino);
}
END_TEST

START_TEST(an_immutable_file_is_copied)
{
    put_file("usr/bin/fixed", "content", 0755);
    int fd = openat(host, "usr/bin/fixed", O_RDONLY | O_CLOEXEC), flags = 0;
    bool can = ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0;
    flags |= FS_IMMUTABLE_FL;
    if (!can || ioctl(fd, FS_IOC_SETFLAGS, &flags) < 0) {
        printf("not run: no file can be made immutable here\n");
        close(fd);
        return;
    }
    link_programs();
    flags &= ~FS_IMMUTABLE_FL;
    ck_assert_int_eq(ioctl(fd, FS_IOC_SETFLAGS, &flags), 0);
    close(fd);
    expect_text("usr/bin/fixed", "content");
}
END_TEST

START_TEST(links_are_not_for_other_mounts)
{
    char mounted[96];
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        printf("not run: no mounts can be made here\n");
        return;
    }
    char path[96];
    snprintf(path, sizeof path, "%s/host", folder);
    bool possible = sbx_gvisor_farm_is_possible(made, host, path);
    ck_assert_int_eq(sbx_directory_make(host, "usr/share", 0755, NULL), SANDBOX_OK);
    snprintf(mounted, sizeof mounted, "%s/host/usr/share", folder);
    ck_assert_int_eq(mount("tmpfs", mounted, "tmpfs", 0, NULL), 0);
    ck_assert(!sbx_gvisor_farm_is_possible(made, host, path));
    ck_assert_int_eq(umount(mounted), 0);
    ck_assert_int_eq(sbx_gvisor_farm_is_possible(made, host, path), possible);

    snprintf(mounted, sizeof mounted, "%s/made", folder);
    ck_assert_int_eq(mount(mounted, mounted, NULL, MS_BIND, NULL), 0);
    int other = open(mounted, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert(!sbx_gvisor_farm_is_possible(other, host, path));
    close(other);
    ck_assert_int_eq(umount2(mounted, MNT_DETACH), 0);
}
END_TEST

START_TEST(a_cancelled_call_ends_the_linking)
{
    static const char *const names[] = {"usr", NULL};
    struct sbx_wait wait = sbx_wait_alone(0);
    put_file("usr/bin/tool", "old", 0755);
    ck_assert_int_eq(sbx_gvisor_farm_make(host, made, names, etc, &wait, NULL), SANDBOX_TIMED_OUT);
}
END_TEST

/* ---- the print ---- */

static const char *print(void)
{
    static char contents[8][SBX_GVISOR_DIGEST_TEXT];
    static unsigned next;
    struct sbx_wait wait = sbx_wait_alone(60000);
    next = (next + 1) % 8;
    ck_assert_int_eq(sbx_gvisor_print(host, &wait, contents[next], NULL), SANDBOX_OK);
    return contents[next];
}

static void write_in_place(void)
{
    int fd = openat(host, "etc/passwd", O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(write(fd, "X", 1), 1);
    ck_assert_int_eq(futimens(fd, NULL), 0); /* the clock of files is coarse */
    close(fd);
}

static void replace(void)
{
    put_file("etc/passwd", "admin:x:0:0::/root:/bin/sh\n", 0644);
}

static void make(void)
{
    put_file("usr/bin/more", "", 0755);
}

static void take_away(void)
{
    ck_assert_int_eq(unlinkat(host, "etc/passwd", 0), 0);
}

static void move(void)
{
    ck_assert_int_eq(renameat(host, "etc/ld.so.cache", host, "usr/bin/ld.so.cache"), 0);
}

static void move_directory(void)
{
    ck_assert_int_eq(renameat(host, "etc/python3.11", host, "usr/python3.11"), 0);
}

static void make_directory(void)
{
    ck_assert_int_eq(mkdirat(host, "usr/new", 0755), 0);
}

static void (*const changes[])(void) = {write_in_place, replace,        make,          take_away,
                                        move,           move_directory, make_directory};

START_TEST(every_change_shows_in_the_print)
{
    ck_assert_int_eq(symlinkat("nowhere", host, "usr/bin/loose"), 0);
    const char *before = print();
    ck_assert_str_eq(print(), before);
    ck_assert_int_eq(fchmodat(host, "etc/passwd", 0600, 0), 0); /* what runs goes on */
    before = print();
    ck_assert_str_eq(print(), before);
    changes[_i]();
    ck_assert_str_ne(print(), before);
}
END_TEST

START_TEST(a_deep_tree_needs_few_descriptors)
{
    int at = openat(host, "usr", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct rlimit few;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &few), 0);
    for (int n = 0; n < 600; n++) {
        ck_assert_int_eq(mkdirat(at, "d", 0755), 0);
        int below = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(at);
        at = below;
    }
    few.rlim_cur = 64;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    const char *before = print();
    ck_assert_int_eq(mkdirat(at, "one more", 0755), 0);
    ck_assert_str_ne(print(), before);
    few.rlim_cur = few.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    link_programs();
    close(at);
}
END_TEST

static void add_programs(Suite *suite)
{
    TCase *programs = tcase_create("programs");
    tcase_set_timeout(programs, 120);
    tcase_add_checked_fixture(programs, set_up, tear_down);
    tcase_add_test(programs, what_an_upgrade_replaces_stays_as_it_was);
    tcase_add_test(programs, a_setuid_program_is_a_copy_with_the_same_rights_and_time);
    tcase_add_test(programs, what_is_no_program_or_not_for_everybody_is_left_out);
    tcase_add_test(programs, the_state_directory_is_never_inside);
    tcase_add_test(programs, a_file_with_as_many_links_as_can_be_is_copied);
    tcase_add_test(programs, an_immutable_file_is_copied);
    tcase_add_test(programs, links_are_not_for_other_mounts);
    tcase_add_test(programs, a_cancelled_call_ends_the_linking);
    tcase_add_loop_test(programs, every_change_shows_in_the_print, 0,
                        sizeof changes / sizeof changes[0]);
    tcase_add_test(programs, a_deep_tree_needs_few_descriptors);
    suite_add_tcase(suite, programs);
}

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
    add_programs(suite);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
