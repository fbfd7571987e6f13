/*
 * Files through the public API, the same on every platform: reading, writing, changing, watching,
 * and copying trees both ways, with guests that mean no good.
 */

#include "checks.h"
#include "util/memory.h"
#include "util/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1u << 20)

static sandbox_client *client;
static sandbox_workspace *workspace;
static char host[64]; /* a folder of the test's own on this machine */

static void set_up(void)
{
    umask(022);
    snprintf(host, sizeof host, "/tmp/sandbox-test-files-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(host));
    ck_assert_int_eq(chdir(host), 0);
    contract_open("files", NULL, &client, &workspace);
}

static void tear_down(void)
{
    contract_close(client, workspace);
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(sbx_tree_erase(AT_FDCWD, host, NULL), 0);
}

/* A command inside that must succeed; what it printed is the caller's. */
static char *run(const char *command)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = command};
    sandbox_process_result *result = NULL;
    good(sandbox_process_run(workspace, &options, NULL, NULL, &result, &error));
    ck_assert_msg(result->exit.code == 0, "%s: %s", command, (const char *)result->errors);
    char *text = sbx_copy((const char *)result->output);
    sandbox_process_result_free(result);
    return text;
}

static void inside(const char *command)
{
    free(run(command));
}

static void put(const char *path, const void *content, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
    ck_assert_int_eq(write(fd, content, size), (ssize_t)size);
    close(fd);
}

static void put_text(const char *path, const char *text)
{
    put(path, text, strlen(text));
}

static void holds(const char *path, const char *content)
{
    char text[256] = "";
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
    ck_assert_int_ge(read(fd, text, sizeof text - 1), 0);
    close(fd);
    ck_assert_str_eq(text, content);
}

static void guest_holds(const char *path, const char *content)
{
    uint8_t *data = NULL;
    size_t size;
    good(sandbox_file_read(workspace, path, NULL, NULL, &data, &size, &error));
    ck_assert_uint_eq(size, strlen(content));
    ck_assert_mem_eq(data, content, size);
    sandbox_bytes_free(data);
}

static bool is_there(const char *path)
{
    struct stat about;
    return lstat(path, &about) == 0;
}

/* Hidden names too, so that what is left over shows. */
static unsigned count_names(const char *path)
{
    DIR *directory = opendir(path);
    unsigned count = 0;
    ck_assert_ptr_nonnull(directory);
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count - 2;
}

/* Nothing but a pattern that differs everywhere. */
static uint8_t *make_content(size_t size)
{
    uint8_t *content = malloc(size);
    uint64_t seed = 88172645463325252u;
    for (size_t i = 0; i < size; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        content[i] = (uint8_t)seed;
    }
    return content;
}

/* P043, P053: no size is too large, no byte is changed. */
START_TEST(content_of_any_size_comes_back)
{
    const size_t sizes[] = {0, 1, 5 * MIB + 3, 32 * MIB + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t *content = make_content(sizes[i] + 1), *data = NULL;
        size_t size;
        good(sandbox_file_write(workspace, "a/b/file", content, sizes[i], NULL, NULL, &error));
        good(sandbox_file_read(workspace, "a/b/file", NULL, NULL, &data, &size, &error));
        ck_assert_uint_eq(size, sizes[i]);
        ck_assert_int_eq(memcmp(data, content, size), 0);
        ck_assert_uint_eq(data[size], 0);
        sandbox_bytes_free(data);
        free(content);
    }
}
END_TEST

START_TEST(parts_are_read_and_limits_hold)
{
    sandbox_read_options part = {SANDBOX_READ_OPTIONS, .offset = 3, .length = 4};
    sandbox_read_options little = {SANDBOX_READ_OPTIONS, .limit = 5};
    uint8_t *data = NULL;
    size_t size;
    good(sandbox_file_write(workspace, "file", "0123456789", 10, NULL, NULL, &error));
    good(sandbox_file_read(workspace, "file", &part, NULL, &data, &size, &error));
    ck_assert_str_eq((char *)data, "3456");
    sandbox_bytes_free(data);
    bad(SANDBOX_LIMIT, sandbox_file_read(workspace, "file", &little, NULL, &data, &size, &error));
    bad(SANDBOX_INVALID, sandbox_file_read(workspace, "", NULL, NULL, &data, &size, &error));
    bad(SANDBOX_INVALID, sandbox_file_read(workspace, NULL, NULL, NULL, &data, &size, &error));
    bad(SANDBOX_INVALID, sandbox_file_read(NULL, "file", NULL, NULL, &data, &size, &error));
}
END_TEST

START_TEST(a_reader_gives_pieces_and_then_the_end)
{
    sandbox_file_reader *reader = NULL;
    uint8_t *content = make_content(3 * MIB);
    const uint8_t *data;
    size_t size, total = 0;
    good(sandbox_file_write(workspace, "file", content, 3 * MIB, NULL, NULL, &error));
    good(sandbox_file_reader_open(workspace, "file", NULL, NULL, &reader, &error));
    do {
        good(sandbox_file_reader_next(reader, NULL, &data, &size, &error));
        ck_assert_int_eq(memcmp(data, content + total, size), 0);
        total += size;
    } while (size > 0);
    ck_assert_uint_eq(total, 3 * MIB);
    good(sandbox_file_reader_next(reader, NULL, &data, &size, &error));
    ck_assert_uint_eq(size, 0);
    sandbox_file_reader_free(reader);
    bad(SANDBOX_NOT_FOUND,
        sandbox_file_reader_open(workspace, "missing", NULL, NULL, &reader, &error));
    ck_assert_str_eq(error.reason, "no-such-file");
    free(content);
}
END_TEST

START_TEST(nobody_sees_content_before_the_commit)
{
    sandbox_file_writer *writer = NULL;
    good(sandbox_file_write(workspace, "file", "old", 3, NULL, NULL, &error));
    good(sandbox_file_writer_open(workspace, "file", NULL, NULL, &writer, &error));
    good(sandbox_file_writer_write(writer, "ne", 2, NULL, &error));
    guest_holds("file", "old");
    good(sandbox_file_writer_write(writer, "w", 1, NULL, &error));
    good(sandbox_file_writer_commit(writer, NULL, &error));
    guest_holds("file", "new");
    bad(SANDBOX_CLOSED, sandbox_file_writer_write(writer, "x", 1, NULL, &error));
    bad(SANDBOX_CLOSED, sandbox_file_writer_commit(writer, NULL, &error));
    sandbox_file_writer_free(writer);

    good(sandbox_file_writer_open(workspace, "file", NULL, NULL, &writer, &error));
    good(sandbox_file_writer_write(writer, "lost", 4, NULL, &error));
    sandbox_file_writer_free(writer);
    inside("while ls -A | grep -q sandbox-; do sleep 0.05; done");
    guest_holds("file", "new");
}
END_TEST

START_TEST(write_options_do_what_they_say)
{
    sandbox_write_options append = {SANDBOX_WRITE_OPTIONS, .append = true};
    sandbox_write_options exclusive = {SANDBOX_WRITE_OPTIONS, .exclusive = true, .mode = 0600};
    sandbox_write_options no_parents = {SANDBOX_WRITE_OPTIONS, .no_parents = true};
    sandbox_write_options wrong = {SANDBOX_WRITE_OPTIONS, .mode = 010000};
    sandbox_file_list *list = NULL;
    good(sandbox_file_write(workspace, "log", "one\n", 4, &append, NULL, &error));
    good(sandbox_file_write(workspace, "log", "two\n", 4, &append, NULL, &error));
    guest_holds("log", "one\ntwo\n");
    good(sandbox_file_write(workspace, "new", "x", 1, &exclusive, NULL, &error));
    bad(SANDBOX_EXISTS, sandbox_file_write(workspace, "new", "y", 1, &exclusive, NULL, &error));
    bad(SANDBOX_NOT_FOUND,
        sandbox_file_write(workspace, "no/such", "y", 1, &no_parents, NULL, &error));
    bad(SANDBOX_INVALID, sandbox_file_write(workspace, "new", "y", 1, &wrong, NULL, &error));
    good(sandbox_file_stat(workspace, "new", NULL, &list, &error));
    ck_assert_uint_eq(sandbox_file_list_at(list, 0)->mode, 0600);
    ck_assert_ptr_null(sandbox_file_list_at(list, 1));
    sandbox_file_list_free(list);
}
END_TEST

/* P159, P161 */
START_TEST(links_that_lead_out_are_reported_and_not_followed)
{
    sandbox_read_options out = {SANDBOX_READ_OPTIONS, .follow_out = true};
    sandbox_file_list *list = NULL;
    uint8_t *data = NULL;
    size_t size;
    inside("ln -s /etc out; ln -s /etc/passwd one; echo in >file; ln -s file good");
    bad(SANDBOX_DENIED, sandbox_file_list_directory(workspace, "out", NULL, &list, &error));
    ck_assert_str_eq(error.reason, "leads-out");
    bad(SANDBOX_DENIED, sandbox_file_read(workspace, "one", NULL, NULL, &data, &size, &error));
    good(sandbox_file_read(workspace, "one", &out, NULL, &data, &size, &error));
    sandbox_bytes_free(data);
    guest_holds("good", "in\n");
    good(sandbox_file_stat(workspace, "out", NULL, &list, &error));
    ck_assert_int_eq(sandbox_file_list_at(list, 0)->kind, SANDBOX_FILE_LINK);
    ck_assert_str_eq(sandbox_file_list_at(list, 0)->target, "/etc");
    sandbox_file_list_free(list);
    bad(SANDBOX_NOT_FOUND, sandbox_file_stat(workspace, "none", NULL, &list, &error));
    ck_assert_str_eq(error.reason, "no-such-file");
}
END_TEST

START_TEST(a_directory_is_listed_by_name)
{
    sandbox_file_list *list = NULL;
    inside("mkdir d; cd d; touch b a .hidden; mkdir c; ln -s a z; printf '\\377' | xargs -0 touch;"
           "chmod 640 a");
    good(sandbox_file_list_directory(workspace, "d", NULL, &list, &error));
    const char *const names[] = {".hidden", "a", "b", "c", "z", "\377"};
    ck_assert_uint_eq(sandbox_file_list_count(list), 6);
    for (size_t i = 0; i < 6; i++)
        ck_assert_str_eq(sandbox_file_list_at(list, i)->name, names[i]);
    ck_assert_uint_eq(sandbox_file_list_at(list, 1)->mode, 0640);
    ck_assert_int_eq(sandbox_file_list_at(list, 3)->kind, SANDBOX_FILE_DIRECTORY);
    ck_assert_int_gt(sandbox_file_list_at(list, 1)->modified_ms, 1500000000000);
    sandbox_file_list_free(list);
    inside("mkdir many; cd many; seq 3000 | xargs touch");
    good(sandbox_file_list_directory(workspace, "many", NULL, &list, &error));
    ck_assert_uint_eq(sandbox_file_list_count(list), 3000);
    sandbox_file_list_free(list);
}
END_TEST

START_TEST(files_are_moved_linked_and_removed)
{
    sandbox_change_options recursive = {SANDBOX_CHANGE_OPTIONS, .recursive = true};
    sandbox_change_options replace = {SANDBOX_CHANGE_OPTIONS, .replace = true};
    sandbox_change_options hard = {SANDBOX_CHANGE_OPTIONS, .hard_link = true};
    good(sandbox_file_make_directory(workspace, "a/b/c", &recursive, NULL, &error));
    bad(SANDBOX_EXISTS, sandbox_file_make_directory(workspace, "a", NULL, NULL, &error));
    good(sandbox_file_write(workspace, "a/x", "x", 1, NULL, NULL, &error));
    good(sandbox_file_write(workspace, "a/y", "y", 1, NULL, NULL, &error));
    bad(SANDBOX_EXISTS, sandbox_file_rename(workspace, "a/x", "a/y", NULL, NULL, &error));
    good(sandbox_file_rename(workspace, "a/x", "a/y", &replace, NULL, &error));
    guest_holds("a/y", "x");
    good(sandbox_file_link(workspace, "a/y", "hard", &hard, NULL, &error));
    good(sandbox_file_link(workspace, "a/y", "soft", NULL, NULL, &error));
    good(sandbox_file_set_mode(workspace, "soft", 0700, NULL, &error));
    char *text = run("stat -c %a,%h a/y; readlink soft; cat hard");
    ck_assert_str_eq(text, "700,2\na/y\nx");
    free(text);
    ck_assert_int_ne(sandbox_file_remove(workspace, "a", NULL, NULL, &error), SANDBOX_OK);
    good(sandbox_file_remove(workspace, "a", &recursive, NULL, &error));
    bad(SANDBOX_NOT_FOUND, sandbox_file_remove(workspace, "a", NULL, NULL, &error));
}
END_TEST

static void *write_many(void *data)
{
    for (int i = 0; i < 8; i++) {
        char path[64];
        snprintf(path, sizeof path, "a/b/c/%d-%d", *(int *)data, i);
        if (sandbox_file_write(workspace, path, "x", 1, NULL, NULL, NULL) != SANDBOX_OK)
            return data;
    }
    return NULL;
}

/* P176 */
START_TEST(many_threads_write_into_new_directories)
{
    pthread_t threads[8];
    int numbers[8];
    sandbox_file_list *list = NULL;
    for (int i = 0; i < 8; i++) {
        numbers[i] = i;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, write_many, &numbers[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        void *failed;
        ck_assert_int_eq(pthread_join(threads[i], &failed), 0);
        ck_assert_ptr_null(failed);
    }
    good(sandbox_file_list_directory(workspace, "a/b/c", NULL, &list, &error));
    ck_assert_uint_eq(sandbox_file_list_count(list), 64);
    sandbox_file_list_free(list);
}
END_TEST

START_TEST(changes_are_told_as_they_happen)
{
    sandbox_watch_options recursive = {SANDBOX_WATCH_OPTIONS, .recursive = true};
    sandbox_call soon = {SANDBOX_CALL, .timeout_ms = 20000};
    sandbox_call now = {SANDBOX_CALL, .timeout_ms = 1};
    sandbox_file_event event = {SANDBOX_FILE_EVENT};
    sandbox_file_watch *watch = NULL;
    good(sandbox_file_watch_open(workspace, ".", &recursive, NULL, &watch, &error));
    bad(SANDBOX_TIMED_OUT, sandbox_file_watch_next(watch, &now, &event, &error));
    inside("mkdir -p sub/deep; echo x >sub/deep/file");
    do
        good(sandbox_file_watch_next(watch, &soon, &event, &error));
    while (event.change != SANDBOX_FILE_CREATED || strcmp(event.path, "sub/deep/file") != 0);
    inside("mv sub/deep/file moved");
    do
        good(sandbox_file_watch_next(watch, &soon, &event, &error));
    while (event.change != SANDBOX_FILE_MOVED);
    ck_assert_str_eq(event.path, "sub/deep/file");
    ck_assert_str_eq(event.new_path, "moved");
    sandbox_file_watch_free(watch);
    bad(SANDBOX_NOT_FOUND,
        sandbox_file_watch_open(workspace, "none", NULL, NULL, &watch, &error));
}
END_TEST

static void note_progress(const sandbox_copy_progress *progress, void *user_data)
{
    *(sandbox_copy_progress *)user_data = *progress;
    ck_assert_ptr_nonnull(progress->path);
}

START_TEST(a_tree_goes_in_and_comes_back)
{
    sandbox_copy_progress last = {0};
    sandbox_copy_options options = {SANDBOX_COPY_OPTIONS, .progress = note_progress,
                                    .user_data = &last};
    sandbox_copy_result result = {SANDBOX_COPY_RESULT};
    struct stat about;
    uint8_t *content = make_content(3 * MIB);
    ck_assert_int_eq(mkdir("from", 0755), 0);
    ck_assert_int_eq(mkdir("from/sub", 0750), 0);
    put("from/sub/large", content, 3 * MIB);
    put_text("from/\377 name", "bytes");
    put_text("from/run", "#!/bin/sh\n");
    ck_assert_int_eq(chmod("from/run", 04755), 0);
    ck_assert_int_eq(link("from/run", "from/second"), 0);
    ck_assert_int_eq(symlink("sub/large", "from/link"), 0);
    ck_assert_int_eq(symlink("/etc/passwd", "from/out"), 0);
    ck_assert_int_eq(mkfifo("from/fifo", 0644), 0);
    good(sandbox_file_upload(workspace, "from", "deep/tree", &options, NULL, &result, &error));
    ck_assert_uint_eq(result.bytes, 3 * MIB + 5 + 10);
    ck_assert_uint_eq(result.entries, 9);
    ck_assert_uint_eq(result.skipped, 2);
    ck_assert_uint_eq(last.bytes, result.bytes);
    ck_assert_uint_eq(last.bytes_total, result.bytes);
    char *text = run("cd deep/tree; stat -c %a run sub; readlink link; test run -ef second; ls");
    ck_assert_str_eq(text, "755\n750\nsub/large\nlink\nrun\nsecond\nsub\n\377 name\n");
    free(text);
    good(sandbox_file_download(workspace, "deep/tree", "back/", &options, NULL, &result, &error));
    ck_assert_uint_eq(result.entries, 7);
    ck_assert_uint_eq(result.skipped, 0);
    ck_assert_uint_eq(count_names("back"), 5);
    ck_assert_int_eq(stat("back/sub/large", &about), 0);
    ck_assert_int_eq(about.st_size, 3 * MIB);
    uint8_t *again = malloc(3 * MIB);
    int fd = open("back/sub/large", O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(read(fd, again, 3 * MIB), 3 * MIB);
    ck_assert_int_eq(memcmp(again, content, 3 * MIB), 0);
    close(fd);
    free(again);
    free(content);
}
END_TEST

START_TEST(single_files_are_copied_and_wrong_places_refused)
{
    put_text("file", "content");
    ck_assert_int_eq(symlink("file", "link"), 0);
    good(sandbox_file_upload(workspace, "file", "copy", NULL, NULL, NULL, &error));
    guest_holds("copy", "content");
    good(sandbox_file_download(workspace, "copy", "back", NULL, NULL, NULL, &error));
    holds("back", "content");
    bad(SANDBOX_INVALID, sandbox_file_upload(workspace, "link", "x", NULL, NULL, NULL, &error));
    bad(SANDBOX_NOT_FOUND, sandbox_file_upload(workspace, "none", "x", NULL, NULL, NULL, &error));
    bad(SANDBOX_NOT_FOUND,
        sandbox_file_download(workspace, "copy", "none/x", NULL, NULL, NULL, &error));
    bad(SANDBOX_EXISTS, sandbox_file_download(workspace, ".", "file", NULL, NULL, NULL, &error));
    holds("file", "content");
    /* A link on this machine is replaced, not written through. */
    good(sandbox_file_download(workspace, "copy", "link", NULL, NULL, NULL, &error));
    struct stat about;
    ck_assert_int_eq(lstat("link", &about), 0);
    ck_assert(S_ISREG(about.st_mode));
    ck_assert_uint_eq(count_names("."), 3);
}
END_TEST

/* P052 */
START_TEST(a_download_that_fails_makes_no_file)
{
    bad(SANDBOX_NOT_FOUND,
        sandbox_file_download(workspace, "missing", "target", NULL, NULL, NULL, &error));
    ck_assert_str_eq(error.reason, "no-such-file");
    ck_assert_uint_eq(count_names("."), 0);
}
END_TEST

START_TEST(a_tree_is_merged_into_one_that_is_there)
{
    ck_assert_int_eq(mkdir("to", 0700), 0);
    ck_assert_int_eq(mkdir("to/sub", 0700), 0);
    put_text("to/sub/kept", "kept");
    put_text("to/sub/both", "old");
    put_text("outside", "safe");
    ck_assert_int_eq(symlink("../outside", "to/link"), 0);
    inside("mkdir -p t/sub t/fresh; echo new >t/sub/both; echo f >t/fresh/f; echo l >t/link");
    good(sandbox_file_download(workspace, "t", "to", NULL, NULL, NULL, &error));
    holds("to/sub/kept", "kept");
    holds("to/sub/both", "new\n");
    holds("to/fresh/f", "f\n");
    holds("to/link", "l\n");
    holds("outside", "safe");
    ck_assert_uint_eq(count_names("to"), 3);
    good(sandbox_file_download(workspace, "t/fresh", ".", NULL, NULL, NULL, &error));
    holds("f", "f\n");
    inside("mkdir -p c/link; echo evil >c/link/x");
    ck_assert_int_eq(unlink("to/link"), 0);
    ck_assert_int_eq(symlink("..", "to/link"), 0);
    bad(SANDBOX_EXISTS, sandbox_file_download(workspace, "c", "to", NULL, NULL, NULL, &error));
    ck_assert(!is_there("x"));
}
END_TEST

/* P092 */
START_TEST(a_guests_links_and_devices_do_no_harm)
{
    sandbox_copy_options keep = {SANDBOX_COPY_OPTIONS, .links = SANDBOX_COPY_LINKS_KEEP};
    sandbox_copy_options skip = {SANDBOX_COPY_OPTIONS, .links = SANDBOX_COPY_LINKS_SKIP};
    sandbox_copy_result result = {SANDBOX_COPY_RESULT};
    struct stat about;
    inside("mkdir evil; cd evil; ln -s /root/.ssh key; ln -s ../../.. up; echo x >f; ln -s f in;"
           "mkfifo pipe; chmod 6777 f");
    good(sandbox_file_download(workspace, "evil", "inside", NULL, NULL, &result, &error));
    ck_assert_uint_eq(result.skipped, 3);
    ck_assert(is_there("inside/in") && !is_there("inside/key") && !is_there("inside/up"));
    ck_assert_int_eq(lstat("inside/f", &about), 0);
    ck_assert_uint_eq(about.st_mode, S_IFREG | 0777);
    good(sandbox_file_download(workspace, "evil", "all", &keep, NULL, &result, &error));
    ck_assert_uint_eq(result.skipped, 1);
    ck_assert_int_eq(lstat("all/key", &about), 0);
    ck_assert(S_ISLNK(about.st_mode));
    good(sandbox_file_download(workspace, "evil", "none", &skip, NULL, &result, &error));
    ck_assert_uint_eq(result.skipped, 4);
    ck_assert_uint_eq(count_names("none"), 1);
}
END_TEST

static void reaches(const char *guest, sandbox_copy_options options, const char *reason)
{
    options.size = sizeof options;
    bad(SANDBOX_LIMIT,
        sandbox_file_download(workspace, guest, "target", &options, NULL, NULL, &error));
    ck_assert_str_eq(error.reason, reason);
    ck_assert_uint_eq(count_names("."), 0);
}

/* P094 */
START_TEST(limits_end_a_copy_and_leave_nothing)
{
    inside("mkdir many; cd many; seq 2000 | xargs touch; cd ..;"
           "mkdir big; head -c 3000000 /dev/urandom >big/f; truncate -s 10G sparse;"
           "p=deep; for i in $(seq 100); do p=$p/d; done; mkdir -p $p");
    reaches("many", (sandbox_copy_options){.max_entries = 1000}, "max-entries");
    reaches("big", (sandbox_copy_options){.max_bytes = 1000000}, "max-bytes");
    reaches("sparse", (sandbox_copy_options){.max_bytes = 1000000}, "max-bytes");
    reaches("deep", (sandbox_copy_options){0}, "max-depth");
    sandbox_copy_options wrong = {SANDBOX_COPY_OPTIONS, .max_depth = 100000};
    bad(SANDBOX_INVALID,
        sandbox_file_download(workspace, "deep", "target", &wrong, NULL, NULL, &error));
    sandbox_copy_options enough = {SANDBOX_COPY_OPTIONS, .max_depth = 100};
    good(sandbox_file_download(workspace, "deep", "target", &enough, NULL, NULL, &error));
}
END_TEST

START_TEST(uploads_have_the_same_limits)
{
    sandbox_copy_options few = {SANDBOX_COPY_OPTIONS, .max_entries = 2};
    ck_assert_int_eq(mkdir("from", 0755), 0);
    put_text("from/a", "a");
    put_text("from/b", "b");
    bad(SANDBOX_LIMIT, sandbox_file_upload(workspace, "from", "tree", &few, NULL, NULL, &error));
    sandbox_file_list *list = NULL;
    bad(SANDBOX_NOT_FOUND, sandbox_file_stat(workspace, "tree", NULL, &list, &error));
    inside("while ls -A | grep -q sandbox-; do sleep 0.05; done");
}
END_TEST

START_TEST(holes_stay_holes_on_the_way_in)
{
    int fd = open("sparse", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    ck_assert_int_eq(ftruncate(fd, (off_t)4 << 30), 0);
    ck_assert_int_eq(pwrite(fd, "end", 3, ((off_t)4 << 30) - 3), 3);
    close(fd);
    sandbox_copy_result result = {SANDBOX_COPY_RESULT};
    good(sandbox_file_upload(workspace, "sparse", "copy", NULL, NULL, &result, &error));
    ck_assert_uint_lt(result.bytes, MIB);
    char *text = run("stat -c %s copy; tail -c 3 copy");
    ck_assert_str_eq(text, "4294967296\nend");
    free(text);
}
END_TEST

/* P097: a full disk is told, and nothing is left on it. */
START_TEST(a_full_disk_ends_a_download)
{
    ck_assert_int_eq(mkdir("small", 0755), 0);
    if (mount("sandbox-test", "small", "tmpfs", MS_NOSUID | MS_NODEV, "size=10m") != 0)
        return; /* only root can make a small disk */
    inside("head -c 30000000 /dev/urandom >big");
    sandbox_status status =
        sandbox_file_download(workspace, "big", "small/big", NULL, NULL, NULL, &error);
    unsigned left = count_names("small");
    ck_assert_int_eq(umount("small"), 0);
    ck_assert_int_eq(status, SANDBOX_LIMIT);
    ck_assert_int_eq(error.system_error, ENOSPC);
    ck_assert_uint_eq(left, 0);
    /* The guest's side ended with it. */
    inside("true");
}
END_TEST

static int interrupt(void *user_data)
{
    return ++*(int *)user_data > 2;
}

START_TEST(a_copy_can_be_cancelled)
{
    int asked = 0;
    sandbox_call call = {SANDBOX_CALL, .interrupted = interrupt, .user_data = &asked};
    inside("head -c 200000000 /dev/zero >big");
    sandbox_cancel *cancel = NULL;
    good(sandbox_cancel_create(&cancel, &error));
    sandbox_cancel_trigger(cancel);
    sandbox_call cancelled = {SANDBOX_CALL, .cancel = cancel};
    bad(SANDBOX_CANCELLED,
        sandbox_file_download(workspace, "big", "target", NULL, &cancelled, NULL, &error));
    bad(SANDBOX_CANCELLED,
        sandbox_file_upload(workspace, ".", "x", NULL, &cancelled, NULL, &error));
    ck_assert_uint_eq(count_names("."), 0);
    sandbox_cancel_free(cancel);
    sandbox_status status =
        sandbox_file_download(workspace, "big", "target", NULL, &call, NULL, &error);
    ck_assert(status == SANDBOX_CANCELLED || status == SANDBOX_OK);
    ck_assert_uint_eq(count_names("."), status == SANDBOX_OK ? 1 : 0);
}
END_TEST

START_TEST(a_deleted_workspaces_handles_say_that_it_is_gone)
{
    sandbox_file_reader *reader = NULL;
    const uint8_t *data;
    size_t size;
    inside("head -c 50000000 /dev/zero >big");
    good(sandbox_file_reader_open(workspace, "big", NULL, NULL, &reader, &error));
    good(sandbox_workspace_delete(workspace, NULL, &error));
    sandbox_status status = sandbox_file_reader_next(reader, NULL, &data, &size, &error);
    ck_assert_int_eq(status, SANDBOX_CLOSED);
    sandbox_file_reader_free(reader);
}
END_TEST

static Suite *files_suite(void)
{
    Suite *suite = suite_create("files of workspaces");
    TCase *files = tcase_create("files");
    tcase_add_checked_fixture(files, set_up, tear_down);
    tcase_set_timeout(files, 240);
    tcase_add_test(files, content_of_any_size_comes_back);
    tcase_add_test(files, parts_are_read_and_limits_hold);
    tcase_add_test(files, a_reader_gives_pieces_and_then_the_end);
    tcase_add_test(files, nobody_sees_content_before_the_commit);
    tcase_add_test(files, write_options_do_what_they_say);
    tcase_add_test(files, links_that_lead_out_are_reported_and_not_followed);
    tcase_add_test(files, a_directory_is_listed_by_name);
    tcase_add_test(files, files_are_moved_linked_and_removed);
    tcase_add_test(files, many_threads_write_into_new_directories);
    tcase_add_test(files, changes_are_told_as_they_happen);
    tcase_add_test(files, a_tree_goes_in_and_comes_back);
    tcase_add_test(files, single_files_are_copied_and_wrong_places_refused);
    tcase_add_test(files, a_download_that_fails_makes_no_file);
    tcase_add_test(files, a_tree_is_merged_into_one_that_is_there);
    tcase_add_test(files, a_guests_links_and_devices_do_no_harm);
    tcase_add_test(files, limits_end_a_copy_and_leave_nothing);
    tcase_add_test(files, uploads_have_the_same_limits);
    tcase_add_test(files, holes_stay_holes_on_the_way_in);
    tcase_add_test(files, a_full_disk_ends_a_download);
    tcase_add_test(files, a_copy_can_be_cancelled);
    tcase_add_test(files, a_deleted_workspaces_handles_say_that_it_is_gone);
    suite_add_tcase(suite, files);
    return suite;
}

int main(void)
{
    return contract_main(files_suite);
}
