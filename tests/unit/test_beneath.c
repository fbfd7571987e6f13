/* Opening beneath a directory, with openat2 and on kernels that have none. */

#include "util/beneath.h"
#include "util/file.h"
#include "util/memory.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];
static int root;

/* As gVisor: the kernel says that it knows no openat2. Each case runs in a process of its own. */
static void take_openat2_away(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
    ck_assert_int_eq(syscall(SYS_openat2, root, ".", NULL, 0), -1);
    ck_assert_int_eq(errno, ENOSYS);
}

static void set_up(void)
{
    snprintf(folder, sizeof folder, "/tmp/sandbox-test-beneath-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    root = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(root, 0);
    ck_assert_int_eq(mkdirat(root, "a", 0755), 0);
    ck_assert_int_eq(mkdirat(root, "a/b", 0755), 0);
    int fd = openat(root, "a/b/file", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    ck_assert_int_eq(write(fd, "x", 1), 1);
    close(fd);
    ck_assert_int_eq(symlinkat("a", root, "link"), 0);
    ck_assert_int_eq(symlinkat("file", root, "a/b/filelink"), 0);
    ck_assert_int_eq(symlinkat("/etc", root, "out"), 0);
}

static void set_up_without(void)
{
    set_up();
    take_openat2_away();
}

static void tear_down(void)
{
    close(root);
    ck_assert_int_eq(sbx_tree_remove(AT_FDCWD, folder, NULL), SANDBOX_OK);
}

static void refuses(const char *path, int flags, int number)
{
    int fd = sbx_beneath_open(root, path, flags, 0644);
    ck_assert_msg(fd == -1, "'%s' was opened", path);
    ck_assert_msg(errno == number, "'%s': %s", path, strerror(errno));
}

START_TEST(what_is_beneath_is_opened)
{
    static const char *const paths[] = {"a/b/file", "a/./b/file", "./a//b/file", "a/b", "a/b/",
                                        ".", "a/."};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        int fd = sbx_beneath_open(root, paths[i], O_RDONLY, 0);
        ck_assert_msg(fd >= 0, "'%s': %s", paths[i], strerror(errno));
        ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
        close(fd);
    }
}
END_TEST

START_TEST(what_leads_out_or_over_a_link_is_refused)
{
    refuses("link/b/file", O_RDONLY, ELOOP);
    refuses("link", O_RDONLY, ELOOP);
    refuses("link", O_PATH, ELOOP);
    refuses("link/", O_RDONLY | O_DIRECTORY, ELOOP);
    refuses("a/b/filelink", O_RDONLY, ELOOP);
    refuses("a/b/filelink", O_WRONLY | O_TRUNC, ELOOP);
    refuses("out/passwd", O_RDONLY, ELOOP);
    refuses("../etc/passwd", O_RDONLY, EXDEV);
    refuses("a/../../etc", O_RDONLY, EXDEV);
    refuses("a/..", O_RDONLY, EXDEV);
    refuses("..", O_RDONLY, EXDEV);
    refuses("/etc/passwd", O_RDONLY, EXDEV);
    refuses("", O_RDONLY, ENOENT);
    refuses("missing", O_RDONLY, ENOENT);
    refuses("a/b/file/x", O_RDONLY, ENOTDIR);
}
END_TEST

START_TEST(files_are_made_with_their_mode)
{
    umask(0);
    int fd = sbx_beneath_open(root, "a/new", O_WRONLY | O_CREAT | O_EXCL, 0640);
    struct stat about;
    ck_assert_int_eq(fstat(fd, &about), 0);
    ck_assert_uint_eq(about.st_mode & 07777, 0640);
    close(fd);
    refuses("a/new", O_WRONLY | O_CREAT | O_EXCL, EEXIST);
    refuses("a/b/filelink", O_WRONLY | O_CREAT | O_EXCL, EEXIST);
    refuses("link/new", O_WRONLY | O_CREAT | O_EXCL, ELOOP);
}
END_TEST

START_TEST(a_mount_is_not_crossed)
{
    int system_root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(sbx_beneath_open(system_root, "proc/self", O_RDONLY, 0), -1);
    ck_assert_msg(errno == EXDEV || errno == ELOOP, "%s", strerror(errno));
    ck_assert_int_eq(sbx_beneath_open(system_root, "proc/sys", O_RDONLY, 0), -1);
    ck_assert_int_eq(errno, EXDEV);
    ck_assert_int_eq(sbx_beneath_open(system_root, "proc", O_RDONLY, 0), -1);
    ck_assert_int_eq(errno, EXDEV);
    close(system_root);
}
END_TEST

START_TEST(parents_are_found_and_made)
{
    const char *name;
    struct stat about;
    int fd = sbx_beneath_parent(root, "a/b/file", false, 0, &name);
    ck_assert_str_eq(name, "file");
    ck_assert_int_eq(fstatat(fd, name, &about, 0), 0);
    close(fd);
    fd = sbx_beneath_parent(root, "top", false, 0, &name);
    ck_assert_str_eq(name, "top");
    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert_int_eq(sbx_beneath_parent(root, "new/deep/er/file", false, 0755, &name), -1);
    ck_assert_int_eq(errno, ENOENT);
    fd = sbx_beneath_parent(root, "new/deep/er/file", true, 0755, &name);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(mkdirat(fd, name, 0755), 0);
    close(fd);
    ck_assert_int_eq(fstatat(root, "new/deep/er/file", &about, 0), 0);
    ck_assert_int_eq(sbx_beneath_parent(root, "link/x/y", true, 0755, &name), -1);
    ck_assert_int_eq(errno, ELOOP);
    ck_assert_int_eq(sbx_beneath_parent(root, "new/../../x/y", true, 0755, &name), -1);
    ck_assert_int_eq(errno, EXDEV);
    ck_assert_int_eq(sbx_beneath_parent(root, "new/../x", true, 0755, &name), -1);
    ck_assert_int_eq(sbx_beneath_parent(root, "a/..", true, 0755, &name), -1);
    ck_assert_int_eq(errno, EINVAL);
}
END_TEST

/* P176: makers of one path in many processes all succeed. */
START_TEST(parents_are_made_by_many_at_once)
{
    pid_t makers[16];
    for (int i = 0; i < 16; i++) {
        makers[i] = fork();
        if (makers[i] == 0) {
            for (int turn = 0; turn < 50; turn++) {
                char path[64];
                const char *name;
                snprintf(path, sizeof path, "race-%d/b/c/d/%d", turn, i);
                int fd = sbx_beneath_parent(root, path, true, 0755, &name);
                if (fd < 0 || mkdirat(fd, name, 0755) != 0)
                    _exit(1);
                close(fd);
            }
            _exit(0);
        }
    }
    for (int i = 0; i < 16; i++) {
        int status;
        ck_assert_int_eq(waitpid(makers[i], &status, 0), makers[i]);
        ck_assert_int_eq(status, 0);
    }
}
END_TEST

static TCase *cases(const char *name, void (*before)(void))
{
    TCase *all = tcase_create(name);
    tcase_add_checked_fixture(all, before, tear_down);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, what_is_beneath_is_opened);
    tcase_add_test(all, what_leads_out_or_over_a_link_is_refused);
    tcase_add_test(all, files_are_made_with_their_mode);
    tcase_add_test(all, a_mount_is_not_crossed);
    tcase_add_test(all, parents_are_found_and_made);
    tcase_add_test(all, parents_are_made_by_many_at_once);
    return all;
}

int main(void)
{
    Suite *suite = suite_create("beneath");
    suite_add_tcase(suite, cases("openat2", set_up));
    suite_add_tcase(suite, cases("steps", set_up_without));
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
