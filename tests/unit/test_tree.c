/* Trees as tar streams: there and back, limits, and archives that a stranger made up. */

#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include "util/tree.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];
static sandbox_error error;

static void set_up(void)
{
    umask(022);
    snprintf(folder, sizeof folder, "/tmp/sandbox-test-tree-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
}

static void tear_down(void)
{
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(sbx_tree_erase(AT_FDCWD, folder, NULL), 0);
}

static void put(const char *path, const char *content, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
    ck_assert_int_eq(write(fd, content, strlen(content)), (ssize_t)strlen(content));
    ck_assert_int_eq(fchmod(fd, mode), 0);
    close(fd);
}

static void holds(const char *path, const char *content)
{
    uint8_t *data;
    size_t size;
    ck_assert_msg(sbx_file_read(AT_FDCWD, path, 1 << 20, &data, &size, &error) == SANDBOX_OK,
                  "%s", error.message);
    ck_assert_str_eq((char *)data, content);
    free(data);
}

static struct stat look(const char *path)
{
    struct stat about;
    ck_assert_msg(lstat(path, &about) == 0, "%s: %s", path, strerror(errno));
    return about;
}

static bool is_there(const char *path)
{
    struct stat about;
    return lstat(path, &about) == 0;
}

/* Names in a directory, hidden ones too: what is left over shows. */
static unsigned count_names(const char *path)
{
    DIR *directory = opendir(path);
    unsigned count = 0;
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count - 2;
}

static sandbox_status pack(const char *name, struct sbx_tree_limits limits, struct sbx_bytes *out,
                           struct sbx_tree_count *count)
{
    struct sbx_packer *packer;
    bool done = false;
    sandbox_status status = sbx_packer_new(AT_FDCWD, name, &limits, &packer, &error);
    if (status != SANDBOX_OK)
        return status;
    while (status == SANDBOX_OK && !done)
        status = sbx_packer_next(packer, out, sbx_bytes_size(out) + 1000, &done, &error);
    if (count != NULL)
        *count = *sbx_packer_count(packer);
    sbx_packer_free(packer);
    return status;
}

static sandbox_status unpack(const char *name, struct sbx_tree_limits limits,
                             const struct sbx_bytes *archive, struct sbx_tree_count *count)
{
    struct sbx_unpacker *unpacker;
    sandbox_status status = sbx_unpacker_new(AT_FDCWD, name, &limits, &unpacker, &error);
    for (size_t at = 0; status == SANDBOX_OK && at < sbx_bytes_size(archive); at += 999) {
        size_t left = sbx_bytes_size(archive) - at;
        status = sbx_unpacker_feed(unpacker, sbx_bytes_data(archive) + at, left < 999 ? left : 999,
                                   &error);
    }
    if (status == SANDBOX_OK)
        status = sbx_unpacker_commit(unpacker, &error);
    if (count != NULL && unpacker != NULL)
        *count = *sbx_unpacker_count(unpacker);
    sbx_unpacker_free(unpacker);
    return status;
}

static void copy(const char *from, const char *to)
{
    struct sbx_bytes archive = SBX_BYTES(64 << 20);
    struct sbx_tree_limits limits = {.links = SBX_TREE_LINKS_KEEP};
    ck_assert_msg(pack(from, limits, &archive, NULL) == SANDBOX_OK, "%s", error.message);
    ck_assert_msg(unpack(to, limits, &archive, NULL) == SANDBOX_OK, "%s", error.message);
    sbx_bytes_free(&archive);
}

static void add(struct sbx_bytes *archive, enum sbx_tar_kind kind, const char *path,
                const char *target, const char *content)
{
    struct sbx_tar_entry entry = {.kind = kind, .mode = 07755, .modified_s = 1700000000};
    snprintf(entry.path, sizeof entry.path, "%s", path);
    snprintf(entry.target, sizeof entry.target, "%s", target);
    entry.size = strlen(content);
    ck_assert(sbx_tar_write_entry(archive, &entry, NULL, 0));
    ck_assert(sbx_bytes_append(archive, content, entry.size));
    ck_assert(sbx_tar_write_padding(archive, entry.size));
}

START_TEST(a_tree_comes_back_as_it_was)
{
    static const char *const names[] = {"from/.env", "from/..hidden", "from/a b", "from/%41",
                                        "from/\xc3\xa9", "from/\xff\xfe", "from/new\nline"};
    ck_assert_int_eq(mkdir("from", 0755), 0);
    ck_assert_int_eq(mkdir("from/sub", 0755), 0);
    ck_assert_int_eq(mkdir("from/empty", 0711), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        put(names[i], names[i], 0644);
    put("from/sub/run", "#!", 0750);
    put("from/setuid", "x", 06755);
    ck_assert_int_eq(link("from/sub/run", "from/second"), 0);
    ck_assert_int_eq(symlink("sub/run", "from/link"), 0);
    ck_assert_int_eq(mkfifo("from/fifo", 0644), 0);
    const struct timespec times[2] = {{.tv_sec = 1600000000}, {.tv_sec = 1600000000}};
    ck_assert_int_eq(chmod("from/sub", 0500), 0);
    ck_assert_int_eq(utimensat(AT_FDCWD, "from/sub", times, 0), 0);
    ck_assert_int_eq(utimensat(AT_FDCWD, "from/a b", times, 0), 0);
    copy("from", "to");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *name = sbx_format("to/%s", names[i] + 5);
        holds(name, names[i]);
        free(name);
    }
    ck_assert_uint_eq(look("to/sub/run").st_mode, S_IFREG | 0750);
    ck_assert_uint_eq(look("to/setuid").st_mode, S_IFREG | 0755);
    ck_assert_uint_eq(look("to/empty").st_mode, S_IFDIR | 0711);
    ck_assert_uint_eq(look("to/sub").st_mode, S_IFDIR | 0500);
    ck_assert_int_eq(look("to/sub").st_mtime, 1600000000);
    ck_assert_int_eq(look("to/a b").st_mtime, 1600000000);
    ck_assert_uint_eq(look("to/second").st_ino, look("to/sub/run").st_ino);
    ck_assert(S_ISLNK(look("to/link").st_mode));
    ck_assert(!is_there("to/fifo"));
    ck_assert_uint_eq(count_names("."), 2);
    ck_assert_int_eq(chmod("from/sub", 0700), 0);
    ck_assert_int_eq(chmod("to/sub", 0700), 0);
}
END_TEST

START_TEST(a_single_file_comes_back_and_replaces_one)
{
    put("from", "new", 0640);
    put("to", "old", 0600);
    copy("from", "to");
    holds("to", "new");
    ck_assert_uint_eq(look("to").st_mode, S_IFREG | 0640);
    copy("from", "fresh");
    holds("fresh", "new");
    ck_assert_uint_eq(count_names("."), 3);
}
END_TEST

START_TEST(holes_stay_holes)
{
    const off_t size = (off_t)4 << 40;
    int fd = open("from", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (ftruncate(fd, size) != 0)
        return; /* the file system here holds no such file */
    ck_assert_int_eq(pwrite(fd, "first", 5, 0), 5);
    ck_assert_int_eq(pwrite(fd, "middle", 6, ((off_t)1 << 40) + 123), 6);
    close(fd);
    copy("from", "to");
    ck_assert_int_eq(look("to").st_size, size);
    ck_assert_int_lt(look("to").st_blocks, 4096);
    char text[7] = "";
    fd = open("to", O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(pread(fd, text, 6, ((off_t)1 << 40) + 123), 6);
    ck_assert_str_eq(text, "middle");
    close(fd);
}
END_TEST

START_TEST(a_tree_goes_into_one_that_is_there)
{
    ck_assert_int_eq(mkdir("from", 0755), 0);
    ck_assert_int_eq(mkdir("from/both", 0755), 0);
    ck_assert_int_eq(mkdir("from/fresh", 0755), 0);
    put("from/both/a", "new a", 0644);
    put("from/fresh/b", "new b", 0644);
    ck_assert_int_eq(mkdir("to", 0750), 0);
    ck_assert_int_eq(mkdir("to/both", 0700), 0);
    put("to/both/a", "old a", 0644);
    put("to/both/kept", "kept", 0644);
    put("outside", "safe", 0644);
    ck_assert_int_eq(symlink("../outside", "to/link"), 0);
    put("from/link", "no link", 0644);
    copy("from", "to");
    holds("to/both/a", "new a");
    holds("to/both/kept", "kept");
    holds("to/fresh/b", "new b");
    holds("to/link", "no link");
    holds("outside", "safe");
    ck_assert_uint_eq(look("to").st_mode, S_IFDIR | 0750);
    ck_assert_uint_eq(look("to/both").st_mode, S_IFDIR | 0700);
    ck_assert_uint_eq(count_names("to"), 3);
}
END_TEST

START_TEST(files_and_directories_never_replace_each_other)
{
    struct sbx_bytes archive = SBX_BYTES(1 << 20);
    ck_assert_int_eq(mkdir("to", 0755), 0);
    ck_assert_int_eq(mkdir("elsewhere", 0755), 0);
    ck_assert_int_eq(symlink("../elsewhere", "to/sub"), 0);
    put("to/a", "old", 0644);
    add(&archive, SBX_TAR_REGULAR, "a", "", "new");
    add(&archive, SBX_TAR_REGULAR, "sub/file", "", "x");
    ck_assert(sbx_tar_write_end(&archive));
    ck_assert_int_eq(unpack("to", (struct sbx_tree_limits){0}, &archive, NULL), SANDBOX_EXISTS);
    ck_assert_str_eq(error.reason, "other-kind");
    ck_assert_ptr_nonnull(strstr(error.message, "to/sub"));
    holds("to/a", "old");
    ck_assert_uint_eq(count_names("elsewhere"), 0);
    ck_assert_uint_eq(count_names("to"), 2);
    put("file", "old", 0644);
    ck_assert_int_eq(unpack("file", (struct sbx_tree_limits){0}, &archive, NULL), SANDBOX_EXISTS);
    holds("file", "old");
    sbx_bytes_free(&archive);
}
END_TEST

static void refuses_archive(struct sbx_bytes *archive)
{
    ck_assert(sbx_tar_write_end(archive));
    put("outside", "safe", 0644);
    sandbox_status status =
        unpack("to", (struct sbx_tree_limits){.links = SBX_TREE_LINKS_KEEP}, archive, NULL);
    ck_assert_int_eq(status, SANDBOX_FAILED);
    ck_assert_str_eq(error.reason, "bad-archive");
    ck_assert_uint_eq(count_names("."), 1);
    holds("outside", "safe");
    sbx_bytes_free(archive);
    *archive = (struct sbx_bytes)SBX_BYTES(1 << 20);
}

/* P092: whatever an archive says, nothing outside the target is written, and no link followed. */
START_TEST(hostile_archives_write_nothing_outside)
{
    struct sbx_bytes archive = SBX_BYTES(1 << 20);
    char *absolute = sbx_format("%s/outside", folder);
    add(&archive, SBX_TAR_REGULAR, "../outside", "", "evil");
    refuses_archive(&archive);
    add(&archive, SBX_TAR_REGULAR, absolute, "", "evil");
    refuses_archive(&archive);
    add(&archive, SBX_TAR_REGULAR, "a/../../outside", "", "evil");
    refuses_archive(&archive);
    add(&archive, SBX_TAR_LINK, "up", "..", "");
    add(&archive, SBX_TAR_REGULAR, "up/outside", "", "evil");
    refuses_archive(&archive);
    add(&archive, SBX_TAR_LINK, "up", absolute, "");
    add(&archive, SBX_TAR_HARD_LINK, "again", "up", "");
    refuses_archive(&archive);
    add(&archive, SBX_TAR_HARD_LINK, "again", "../outside", "");
    refuses_archive(&archive);
    add(&archive, SBX_TAR_HARD_LINK, "again", absolute, "");
    refuses_archive(&archive);
    add(&archive, SBX_TAR_LINK, ".", absolute, "");
    refuses_archive(&archive);
    add(&archive, SBX_TAR_DIRECTORY, "a", "", "");
    add(&archive, SBX_TAR_REGULAR, ".", "", "evil");
    refuses_archive(&archive);
    add(&archive, SBX_TAR_REGULAR, ".", "", "x");
    add(&archive, SBX_TAR_REGULAR, "a", "", "x");
    refuses_archive(&archive);
    refuses_archive(&archive); /* an empty one */
    sbx_bytes_free(&archive);
    free(absolute);
}
END_TEST

START_TEST(later_entries_replace_earlier_ones_but_never_through_a_link)
{
    struct sbx_bytes archive = SBX_BYTES(1 << 20);
    put("outside", "safe", 0644);
    add(&archive, SBX_TAR_REGULAR, "twice", "", "first");
    add(&archive, SBX_TAR_REGULAR, "twice", "", "second");
    add(&archive, SBX_TAR_LINK, "link", "../outside", "");
    add(&archive, SBX_TAR_REGULAR, "link", "", "evil");
    add(&archive, SBX_TAR_DIRECTORY, "kind", "", "");
    add(&archive, SBX_TAR_REGULAR, "kind", "", "file");
    ck_assert(sbx_tar_write_end(&archive));
    ck_assert_int_eq(
        unpack("to", (struct sbx_tree_limits){.links = SBX_TREE_LINKS_KEEP}, &archive, NULL),
        SANDBOX_OK);
    holds("to/twice", "second");
    holds("to/link", "evil");
    holds("to/kind", "file");
    holds("outside", "safe");
    ck_assert_uint_eq(look("to/twice").st_mode, S_IFREG | 0755);
    sbx_bytes_free(&archive);
}
END_TEST

START_TEST(links_are_kept_by_policy)
{
    ck_assert(sbx_tree_link_is_inside("a/b/link", "../c"));
    ck_assert(sbx_tree_link_is_inside("a/b/link", "../../c/d"));
    ck_assert(sbx_tree_link_is_inside("link", "x"));
    ck_assert(sbx_tree_link_is_inside("link", "./x/./y"));
    ck_assert(!sbx_tree_link_is_inside("a/b/link", "../../../c"));
    ck_assert(!sbx_tree_link_is_inside("link", ".."));
    ck_assert(!sbx_tree_link_is_inside("link", "/etc"));
    /* With "loop -> ." this would lead out, though its names say otherwise. */
    ck_assert(!sbx_tree_link_is_inside("link", "loop/loop/../../.."));
    ck_assert(!sbx_tree_link_is_inside("link", "loop/.."));

    struct sbx_tree_count count;
    struct sbx_bytes archive = SBX_BYTES(1 << 20);
    ck_assert_int_eq(mkdir("from", 0755), 0);
    ck_assert_int_eq(symlink("/root/.ssh", "from/evil"), 0);
    ck_assert_int_eq(symlink("../../..", "from/up"), 0);
    ck_assert_int_eq(symlink("file", "from/good"), 0);
    ck_assert_int_eq(pack("from", (struct sbx_tree_limits){.links = SBX_TREE_LINKS_KEEP},
                          &archive, &count), SANDBOX_OK);
    ck_assert_uint_eq(count.skipped, 0);
    ck_assert_int_eq(unpack("to", (struct sbx_tree_limits){0}, &archive, &count), SANDBOX_OK);
    ck_assert_uint_eq(count.skipped, 2);
    ck_assert(is_there("to/good") && !is_there("to/evil") && !is_there("to/up"));
    ck_assert_int_eq(unpack("none", (struct sbx_tree_limits){.links = SBX_TREE_LINKS_SKIP},
                            &archive, &count), SANDBOX_OK);
    ck_assert_uint_eq(count_names("none"), 0);
    sbx_bytes_free(&archive);
    archive = (struct sbx_bytes)SBX_BYTES(1 << 20);
    ck_assert_int_eq(pack("from", (struct sbx_tree_limits){0}, &archive, &count), SANDBOX_OK);
    ck_assert_uint_eq(count.skipped, 2);
    sbx_bytes_free(&archive);
    ck_assert_int_eq(symlink("from", "linked"), 0);
    ck_assert_int_eq(pack("linked", (struct sbx_tree_limits){0}, &archive, NULL),
                     SANDBOX_INVALID);
}
END_TEST

static void limited(struct sbx_tree_limits limits, const struct sbx_bytes *archive,
                    const char *reason)
{
    struct sbx_bytes out = SBX_BYTES(64 << 20);
    ck_assert_int_eq(unpack("to", limits, archive, NULL), SANDBOX_LIMIT);
    ck_assert_str_eq(error.reason, reason);
    ck_assert_uint_eq(count_names("."), 1);
    ck_assert_int_eq(pack("from", limits, &out, NULL), SANDBOX_LIMIT);
    ck_assert_str_eq(error.reason, reason);
    sbx_bytes_free(&out);
}

/* P094 */
START_TEST(limits_end_a_copy_and_leave_nothing)
{
    struct sbx_bytes archive = SBX_BYTES(64 << 20);
    char path[256] = "from";
    for (int depth = 0; depth < 10; depth++) {
        ck_assert_int_eq(mkdir(path, 0755), 0);
        for (int i = 0; i < 5; i++) {
            char name[300];
            snprintf(name, sizeof name, "%s/file-%d", path, i);
            put(name, "0123456789", 0644);
        }
        strcat(path, "/d");
    }
    int fd = open("from/sparse", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    ck_assert_int_eq(ftruncate(fd, 10 << 20), 0);
    close(fd);
    ck_assert_int_eq(pack("from", (struct sbx_tree_limits){0}, &archive, NULL), SANDBOX_OK);
    limited((struct sbx_tree_limits){.max_entries = 30}, &archive, "max-entries");
    limited((struct sbx_tree_limits){.max_bytes = 499}, &archive, "max-bytes");
    limited((struct sbx_tree_limits){.max_bytes = 600}, &archive, "max-bytes"); /* the hole */
    limited((struct sbx_tree_limits){.max_depth = 8}, &archive, "max-depth");
    struct sbx_tree_limits enough = {.max_entries = 61, .max_bytes = 20000, .max_depth = 9};
    ck_assert_msg(unpack("to", enough, &archive, NULL) == SANDBOX_OK, "%s", error.message);
    sbx_bytes_free(&archive);
    ck_assert_int_eq(pack("from", (struct sbx_tree_limits){.max_depth = 300}, &archive, NULL),
                     SANDBOX_INVALID);
}
END_TEST

START_TEST(an_archive_without_its_end_leaves_nothing)
{
    struct sbx_bytes archive = SBX_BYTES(1 << 20);
    add(&archive, SBX_TAR_REGULAR, "a", "", "content");
    ck_assert_int_eq(unpack("to", (struct sbx_tree_limits){0}, &archive, NULL), SANDBOX_FAILED);
    ck_assert_uint_eq(count_names("."), 0);
    sbx_bytes_free(&archive);
}
END_TEST

START_TEST(a_file_that_shrinks_fails_the_copy)
{
    struct sbx_tree_limits limits = {0};
    struct sbx_packer *packer;
    struct sbx_bytes out = SBX_BYTES(4 << 20);
    bool done;
    int fd = open("from", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    for (int i = 0; i < 256; i++)
        ck_assert_int_eq(write(fd, folder, 64), 64);
    ck_assert_int_eq(sbx_packer_new(AT_FDCWD, "from", &limits, &packer, &error), SANDBOX_OK);
    ck_assert_int_eq(sbx_packer_next(packer, &out, 512, &done, &error), SANDBOX_OK);
    ck_assert_int_eq(ftruncate(fd, 100), 0);
    sandbox_status status = SANDBOX_OK;
    done = false;
    while (status == SANDBOX_OK && !done)
        status = sbx_packer_next(packer, &out, 1 << 20, &done, &error);
    ck_assert_int_eq(status, SANDBOX_FAILED);
    ck_assert_str_eq(error.reason, "file-changed");
    sbx_packer_free(packer);
    sbx_bytes_free(&out);
    close(fd);
}
END_TEST

START_TEST(deep_trees_are_erased_and_links_are_not_followed)
{
    ck_assert_int_eq(mkdir("outside", 0755), 0);
    put("outside/kept", "kept", 0644);
    ck_assert_int_eq(mkdir("deep", 0755), 0);
    ck_assert_int_eq(chdir("deep"), 0);
    for (int i = 0; i < 3000; i++) {
        ck_assert_int_eq(mkdir("directory", 0755), 0);
        if (i % 100 == 0) {
            put("file", "x", 0644);
            char *target = sbx_format("%s/outside", folder);
            ck_assert_int_eq(symlink(target, "link"), 0);
            free(target);
        }
        ck_assert_int_eq(chdir("directory"), 0);
    }
    ck_assert_int_eq(chdir(folder), 0);
    ck_assert_int_eq(sbx_tree_erase(AT_FDCWD, "deep", NULL), 0);
    ck_assert(!is_there("deep"));
    holds("outside/kept", "kept");
    ck_assert_int_eq(sbx_tree_erase(AT_FDCWD, "deep", NULL), ENOENT);
    ck_assert_int_eq(symlink("outside", "link"), 0);
    ck_assert_int_eq(sbx_tree_erase(AT_FDCWD, "link", NULL), 0);
    holds("outside/kept", "kept");
    atomic_bool stop = true;
    ck_assert_int_eq(sbx_tree_erase(AT_FDCWD, "outside", &stop), ECANCELED);
    holds("outside/kept", "kept");
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("tree");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, a_tree_comes_back_as_it_was);
    tcase_add_test(cases, a_single_file_comes_back_and_replaces_one);
    tcase_add_test(cases, holes_stay_holes);
    tcase_add_test(cases, a_tree_goes_into_one_that_is_there);
    tcase_add_test(cases, files_and_directories_never_replace_each_other);
    tcase_add_test(cases, hostile_archives_write_nothing_outside);
    tcase_add_test(cases, later_entries_replace_earlier_ones_but_never_through_a_link);
    tcase_add_test(cases, links_are_kept_by_policy);
    tcase_add_test(cases, limits_end_a_copy_and_leave_nothing);
    tcase_add_test(cases, an_archive_without_its_end_leaves_nothing);
    tcase_add_test(cases, a_file_that_shrinks_fails_the_copy);
    tcase_add_test(cases, deep_trees_are_erased_and_links_are_not_followed);
    Suite *suite = suite_create("tree");
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
