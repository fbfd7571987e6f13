/* Digests and copies of trees: what counts, what does not, and what cannot be. */

#include "util/child.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include "util/tree.h"
#include "util/tree_copy.h"
#include "util/wait.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

static char folder[64];
static sandbox_error error;
static struct sbx_wait forever;

static void set_up(void)
{
    umask(022);
    forever = sbx_wait_alone(SANDBOX_FOREVER);
    snprintf(folder, sizeof folder, "/tmp/sandbox-test-copy-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
    ck_assert_int_eq(mkdir("tree", 0755), 0);
}

static void tear_down(void)
{
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(sbx_tree_erase(AT_FDCWD, folder, NULL), 0);
}

static int run_shell(const char *command)
{
    const char *argv[] = {"/bin/sh", "-ec", command, NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv, .directory = folder};
    int code = -1;
    ck_assert_int_eq(sbx_child_run(&options, &forever, &code, NULL, &error), SANDBOX_OK);
    return code;
}

static void shell(const char *command)
{
    ck_assert_msg(run_shell(command) == 0, "failed: %s", command);
}

static void put_at(const char *path, off_t offset, const void *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
    ck_assert_int_eq(pwrite(fd, data, size, offset), (ssize_t)size);
    close(fd);
}

static void put(const char *path, const char *content)
{
    put_at(path, 0, content, strlen(content));
}

static struct stat look(const char *path)
{
    struct stat about;
    ck_assert_msg(lstat(path, &about) == 0, "%s: %s", path, strerror(errno));
    return about;
}

static sandbox_status digest_with(const char *path, const struct sbx_tree_job *job,
                                  struct sbx_tree_facts *facts)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    sandbox_status status = sbx_tree_digest(fd, job, facts, &error);
    close(fd);
    return status;
}

static struct sbx_tree_facts digest(const char *path)
{
    struct sbx_tree_job job = {.wait = &forever};
    struct sbx_tree_facts facts;
    ck_assert_msg(digest_with(path, &job, &facts) == SANDBOX_OK, "%s", error.message);
    return facts;
}

static struct sbx_tree_facts copy(const char *from, const char *to)
{
    struct sbx_tree_job job = {.wait = &forever};
    struct sbx_tree_facts facts;
    int fd = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_msg(sbx_tree_copy(fd, AT_FDCWD, to, &job, &facts, &error) == SANDBOX_OK, "%s",
                  error.message);
    close(fd);
    return facts;
}

static bool same(const struct sbx_tree_facts *a, const struct sbx_tree_facts *b)
{
    return memcmp(a->digest, b->digest, sizeof a->digest) == 0;
}

/* The copy's digest is that of the source, whether told by the copying or read again. */
static void expect_exact_copy(void)
{
    struct sbx_tree_facts source = digest("tree"), told = copy("tree", "copy"),
                          again = digest("copy");
    ck_assert(same(&source, &told));
    ck_assert(same(&source, &again));
    ck_assert_uint_eq(source.entries, again.entries);
    ck_assert_int_eq(access("copy.links", F_OK), -1);
}

static void fill(void)
{
    ck_assert_int_eq(mkdir("tree/a", 0700), 0);
    ck_assert_int_eq(mkdir("tree/a/b", 0700), 0);
    ck_assert_int_eq(chmod("tree/a/b", 01777), 0);
    put("tree/a/one", "one\n");
    put("tree/a/empty", "");
    put("tree/strange \n\\\x01\xff name", "strange");
    ck_assert_int_eq(symlink("/etc/passwd", "tree/a/link"), 0);
    ck_assert_int_eq(symlink("nowhere at all", "tree/dangling"), 0);
    ck_assert_int_eq(link("tree/a/one", "tree/a/b/also-one"), 0);
    ck_assert_int_eq(link("tree/a/one", "tree/zz"), 0);
    ck_assert_int_eq(mkfifo("tree/fifo", 0640), 0);
    ck_assert_int_eq(chmod("tree/a/empty", 0400), 0);
    const struct timespec times[2] = {{1, 2}, {1234567890, 123456789}};
    ck_assert_int_eq(utimensat(AT_FDCWD, "tree/a/link", times, AT_SYMLINK_NOFOLLOW), 0);
    ck_assert_int_eq(utimensat(AT_FDCWD, "tree/a/one", times, 0), 0);
    ck_assert_int_eq(utimensat(AT_FDCWD, "tree/a/b", times, 0), 0);
}

START_TEST(a_copy_is_exact)
{
    fill();
    expect_exact_copy();
    struct stat one = look("copy/a/one"), also = look("copy/a/b/also-one"), third = look("copy/zz");
    ck_assert_uint_eq(one.st_ino, also.st_ino);
    ck_assert_uint_eq(one.st_ino, third.st_ino);
    ck_assert_uint_eq(one.st_nlink, 3);
    ck_assert_int_eq(one.st_mtim.tv_sec, 1234567890);
    ck_assert_int_eq(one.st_mtim.tv_nsec, 123456789);
    ck_assert_int_eq(look("copy/a/b").st_mtim.tv_nsec, 123456789);
    ck_assert_uint_eq(look("copy/a/b").st_mode, S_IFDIR | 01777);
    ck_assert_uint_eq(look("copy/a/empty").st_mode, S_IFREG | 0400);
    ck_assert_uint_eq(look("copy/fifo").st_mode, S_IFIFO | 0640);
    char target[64] = "";
    ck_assert_int_gt(readlink("copy/a/link", target, sizeof target - 1), 0);
    ck_assert_str_eq(target, "/etc/passwd");
}
END_TEST

START_TEST(every_change_shows)
{
    fill();
    struct sbx_tree_facts before = digest("tree");
    static const struct {
        const char *command;
        bool is_about_time;
    } changes[] = {
        {"printf x | dd of=tree/a/one bs=1 conv=notrunc 2>/dev/null", false},
        {"printf x >>tree/a/one", false},
        {"truncate -s 0 tree/a/one", false},
        {"mv tree/a/one tree/a/two", false},
        {"rm tree/zz", false},
        /* The same content, but no hard link any more. */
        {"cp -p tree/zz z && mv z tree/zz", false},
        {"chmod 600 tree/a/one", false},
        {"chmod g-x tree/a/b", false},
        {"chmod u+s tree/a/one", false},
        {"touch -d @99 tree/a/one", true},
        {"touch -d @99 tree/a/b", true},
        {"touch -h -d @99 tree/dangling", true},
        {"ln -sfn elsewhere tree/dangling", false},
        {"rm tree/fifo", false},
        {"mkdir tree/new", false},
        {"touch tree/new", false},
        {"mkdir tree/b && mv tree/a/b/also-one tree/b/", false},
    };
    for (size_t n = 0; n < sizeof changes / sizeof changes[0]; n++) {
        shell("rm -rf kept && cp -a tree kept");
        shell(changes[n].command);
        if (!changes[n].is_about_time) /* so that it is the change that shows, not its time */
            shell("cd kept && find . -depth -exec sh -c 'for p; do [ ! -e \"../tree/$p\" ] || "
                  "touch -h -r \"$p\" \"../tree/$p\"; done' touch {} +");
        struct sbx_tree_facts after = digest("tree");
        ck_assert_msg(!same(&before, &after), "not seen: %s", changes[n].command);
        shell("rm -rf tree && mv kept tree");
        after = digest("tree");
        ck_assert_msg(same(&before, &after), "not as before: %s", changes[n].command);
    }
}
END_TEST

static uint8_t *noise(size_t size)
{
    uint8_t *data = malloc(size);
    ck_assert_ptr_nonnull(data);
    for (size_t n = 0; n < size; n++)
        data[n] = (uint8_t)((n * 2654435761u) >> 13 | 1);
    return data;
}

START_TEST(large_files_and_holes_are_kept_and_cost_what_is_stored)
{
    size_t size = (20u << 20) + 77;
    uint8_t *data = noise(size);
    put_at("tree/large", 0, data, size);
    put_at("tree/spread", 4096, data, 100);
    put_at("tree/spread", (off_t)9 << 30, data, 5000);
    put_at("tree/spread", ((off_t)9 << 30) + (3 << 20), data, 1);
    ck_assert_int_eq(truncate("tree/spread", ((off_t)1 << 40) + 5), 0);
    put_at("tree/all-hole", 0, data, 0);
    ck_assert_int_eq(truncate("tree/all-hole", 3 << 20), 0);
    expect_exact_copy();
    ck_assert_int_eq(look("copy/spread").st_size, ((off_t)1 << 40) + 5);
    ck_assert_int_le(look("copy/spread").st_blocks, 1024);
    ck_assert_int_eq(look("copy/all-hole").st_blocks, 0);
    shell("cmp tree/large copy/large");

    struct sbx_tree_facts before = digest("copy");
    uint8_t flipped = (uint8_t)(data[13u << 20] ^ 4);
    struct stat about = look("copy/large");
    put_at("copy/large", 13 << 20, &flipped, 1);
    const struct timespec times[2] = {about.st_atim, about.st_mtim};
    ck_assert_int_eq(utimensat(AT_FDCWD, "copy/large", times, 0), 0);
    struct sbx_tree_facts after = digest("copy");
    ck_assert(!same(&before, &after));
    free(data);
}
END_TEST

/* A file system may keep the same zeros as a hole or not. */
START_TEST(written_zeros_and_holes_are_the_same)
{
    size_t size = 9u << 20;
    uint8_t *data = calloc(1, size);
    memcpy(data + 70000, "in the midst", 12);
    data[size - 1] = 7;
    put_at("tree/file", 0, data, size);
    shell("mkdir other && cp -a --sparse=always tree/file other/file && "
          "touch -r tree/file tree other");
    ck_assert_int_lt(look("other/file").st_blocks, look("tree/file").st_blocks);
    struct sbx_tree_facts dense = digest("tree"), sparse = digest("other");
    ck_assert(same(&dense, &sparse));
    free(data);
}
END_TEST

START_TEST(attributes_of_users_are_kept)
{
    put("tree/file", "content");
    if (setxattr("tree/file", "user.b", "two", 3, 0) != 0) {
        printf("not run: no extended attributes in /tmp: %s\n", strerror(errno));
        return;
    }
    struct sbx_tree_facts before = digest("tree");
    ck_assert_int_eq(setxattr("tree/file", "user.a", "", 0, 0), 0);
    ck_assert_int_eq(setxattr("tree", "user.of-the-root", "x\0y", 3, 0), 0);
    struct sbx_tree_facts after = digest("tree");
    ck_assert(!same(&before, &after));
    expect_exact_copy();
    char value[8] = "";
    ck_assert_int_eq(getxattr("copy", "user.of-the-root", value, sizeof value), 3);
    ck_assert_int_eq(getxattr("copy/file", "user.b", value, sizeof value), 3);
    ck_assert_int_eq(memcmp(value, "two", 3), 0);
}
END_TEST

START_TEST(sockets_are_passed_over)
{
    put("tree/file", "content");
    struct stat about = look("tree");
    struct sbx_tree_facts before = digest("tree");
    struct sockaddr_un address = {AF_UNIX, "tree/socket"};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    close(fd);
    const struct timespec times[2] = {about.st_atim, about.st_mtim};
    ck_assert_int_eq(utimensat(AT_FDCWD, "tree", times, 0), 0);
    struct sbx_tree_facts after = digest("tree");
    ck_assert(same(&before, &after));
    ck_assert_uint_eq(after.skipped, 1);
    expect_exact_copy();
    ck_assert_int_eq(access("copy/socket", F_OK), -1);
}
END_TEST

/* Deeper than a path can name and than there are descriptors; wider than one batch. */
START_TEST(any_depth_and_width_will_do)
{
    ck_assert_int_eq(chdir("tree"), 0);
    for (int n = 0; n < 3000; n++) {
        ck_assert_int_eq(mkdir("a-directory", 0755), 0);
        ck_assert_int_eq(chdir("a-directory"), 0);
        if (n % 100 == 0)
            put("file", "x");
    }
    ck_assert_int_eq(chdir(folder), 0);
    char path[64];
    for (int n = 0; n < 1500; n++) {
        snprintf(path, sizeof path, "tree/%d-file", n * 7919 % 1500);
        put(path, path);
    }
    for (int n = 0; n < 60; n++) {
        snprintf(path, sizeof path, "tree/%d", n);
        ck_assert_int_eq(mkdir(path, 0755), 0);
        snprintf(path, sizeof path, "tree/%d/twin", n);
        ck_assert_int_eq(link("tree/1-file", path), 0);
    }
    expect_exact_copy();
    struct sbx_tree_facts facts = digest("copy");
    ck_assert_uint_eq(facts.entries, 1 + 3000 + 30 + 1500 + 60 + 60);
    ck_assert_uint_eq(look("copy/1-file").st_nlink, 61);
}
END_TEST

static sandbox_status remember(void *user_data, const char *line, size_t size, const char *path,
                               sandbox_error *told)
{
    char *all = user_data;
    size_t used = strlen(all);
    ck_assert_ptr_nonnull(path);
    ck_assert_uint_lt(used + size + strlen(path) + 4, 4096);
    all[used++] = '[';
    memcpy(all + used, path, strlen(path));
    used += strlen(path);
    memcpy(all + used, "] ", 2);
    memcpy(all + used + 2, line, size);
    all[used + 2 + size] = '\0';
    return strstr(path, "stop-here") == NULL
               ? SANDBOX_OK
               : sbx_fail_for(told, SANDBOX_FAILED, "stopped", "told to stop");
}

START_TEST(the_list_names_each_entry_and_can_end_the_job)
{
    put("tree/b c", "x");
    ck_assert_int_eq(symlink("to where", "tree/a"), 0);
    ck_assert_int_eq(mkdir("tree/sub", 0750), 0);
    ck_assert_int_eq(link("tree/b c", "tree/sub/d"), 0);
    char all[4096] = "";
    struct sbx_tree_job job = {.wait = &forever, .line = remember, .user_data = all};
    struct sbx_tree_facts facts;
    ck_assert_int_eq(digest_with("tree", &job, &facts), SANDBOX_OK);
    const char *at = all;
    static const char *const expected[] = {
        "[] d 0755 ", " .\n[a] l 0777 ", " to\\040where a\n[b c] f 0644 ",
        " b\\040c\n[sub] d 0750 ", " sub\n[sub/d] h 3 d\n[] u\n[] u\n"};
    for (size_t n = 0; n < sizeof expected / sizeof expected[0]; n++) {
        at = strstr(at, expected[n]);
        ck_assert_msg(at != NULL, "no '%s' in its place in: %s", expected[n], all);
    }
    put("tree/stop-here", "");
    all[0] = '\0';
    ck_assert_int_eq(digest_with("tree", &job, &facts), SANDBOX_FAILED);
    ck_assert_str_eq(error.reason, "stopped");
}
END_TEST

START_TEST(a_wait_that_is_over_ends_it)
{
    put("tree/file", "x");
    struct sbx_wait over = sbx_wait_alone(0);
    struct sbx_tree_job job = {.wait = &over};
    struct sbx_tree_facts facts;
    ck_assert_int_eq(digest_with("tree", &job, &facts), SANDBOX_TIMED_OUT);
}
END_TEST

START_TEST(what_is_there_already_is_not_copied_over)
{
    put("tree/file", "x");
    ck_assert_int_eq(mkdir("copy", 0755), 0);
    struct sbx_tree_job job = {.wait = &forever};
    struct sbx_tree_facts facts;
    int fd = open("tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(sbx_tree_copy(fd, AT_FDCWD, "copy", &job, &facts, &error), SANDBOX_EXISTS);
    close(fd);
    ck_assert_int_eq(access("copy/file", F_OK), -1);
}
END_TEST

START_TEST(measuring_reads_no_file)
{
    fill();
    put_at("tree/large", 0, folder, sizeof folder);
    struct sbx_tree_job job = {.wait = &forever};
    struct sbx_tree_facts facts, digested = digest("tree");
    int fd = open("tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(sbx_tree_measure(fd, &job, &facts, &error), SANDBOX_OK);
    close(fd);
    ck_assert_uint_eq(facts.entries, digested.entries);
    ck_assert_uint_eq(facts.bytes, digested.bytes);
    ck_assert_uint_gt(facts.bytes, 4096);
}
END_TEST

/* A disk that is full is told as such. */
START_TEST(no_room_is_a_limit)
{
    if (geteuid() != 0 || run_shell("mkdir small && mount -t tmpfs -o size=1m tmpfs small") != 0) {
        printf("not run: it needs a mount\n");
        return;
    }
    uint8_t *data = noise(2u << 20);
    put_at("tree/file", 0, data, 2u << 20);
    free(data);
    struct sbx_tree_job job = {.wait = &forever};
    struct sbx_tree_facts facts;
    int fd = open("tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int small = open("small", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    sandbox_status status = sbx_tree_copy(fd, small, "copy", &job, &facts, &error);
    close(fd);
    close(small);
    shell("umount small");
    ck_assert_int_eq(status, SANDBOX_LIMIT);
    ck_assert_ptr_nonnull(strstr(error.message, "file"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tree copy");
    TCase *cases = tcase_create("tree copy");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, a_copy_is_exact);
    tcase_add_test(cases, every_change_shows);
    tcase_add_test(cases, large_files_and_holes_are_kept_and_cost_what_is_stored);
    tcase_add_test(cases, written_zeros_and_holes_are_the_same);
    tcase_add_test(cases, attributes_of_users_are_kept);
    tcase_add_test(cases, sockets_are_passed_over);
    tcase_add_test(cases, any_depth_and_width_will_do);
    tcase_add_test(cases, the_list_names_each_entry_and_can_end_the_job);
    tcase_add_test(cases, a_wait_that_is_over_ends_it);
    tcase_add_test(cases, what_is_there_already_is_not_copied_over);
    tcase_add_test(cases, measuring_reads_no_file);
    tcase_add_test(cases, no_room_is_a_limit);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failures = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failures == 0 ? 0 : 1;
}
