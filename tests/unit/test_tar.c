/* The tar codec: what it writes, what others wrote, and what nobody should have written. */

#include "util/child.h"
#include "util/memory.h"
#include "util/tar.h"
#include "util/wait.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRIES_MAX 64
#define CONTENT_MAX 4096

struct seen {
    struct sbx_tar_entry entry;
    uint8_t content[CONTENT_MAX]; /* the first bytes, holes as zeroes */
    uint64_t carried;
};

struct archive {
    struct seen seen[ENTRIES_MAX];
    size_t count;
    bool ended;
    char problem[128];
};

static char folder[] = "/tmp/sandbox-test-tar-XXXXXX";
static char start[] = "/tmp/sandbox-test-tar-XXXXXX";

static void set_up(void)
{
    memcpy(folder, start, sizeof folder);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
}

/* A shell line in the test's own directory; its output, or a failed case. */
static char *run(const char *line)
{
    const char *argv[] = {"/bin/sh", "-ec", line, NULL};
    const char *env[] = {"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv, .env = env,
                                        .directory = folder};
    struct sbx_wait wait = sbx_wait_alone(60000);
    sandbox_error error;
    char *text = NULL;
    int code = -1;
    sandbox_status status = sbx_child_run(&options, &wait, &code, &text, &error);
    ck_assert_msg(status == SANDBOX_OK, "%s", error.message);
    ck_assert_msg(code == 0, "'%s' ended with %d: %s", line, code, text);
    return text;
}

static void tear_down(void)
{
    const char *argv[] = {"/bin/rm", "-rf", folder, NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv};
    struct sbx_wait wait = sbx_wait_alone(60000);
    int code;
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(sbx_child_run(&options, &wait, &code, NULL, NULL), SANDBOX_OK);
}

static void take(struct archive *archive, const struct sbx_tar_reader *reader)
{
    uint64_t offset;
    size_t size;
    const uint8_t *data = sbx_tar_reader_data(reader, &size, &offset);
    struct seen *seen = &archive->seen[archive->count - 1];
    seen->carried += size;
    for (size_t i = 0; i < size && offset + i < CONTENT_MAX; i++)
        seen->content[offset + i] = data[i];
}

/* Feeds the archive in steps of that size, each from memory of its own. */
static struct archive *read_archive(const uint8_t *data, size_t size, size_t step)
{
    struct archive *archive = calloc(1, sizeof *archive);
    struct sbx_tar_reader *reader = sbx_tar_reader_new();
    for (size_t at = 0; at < size && archive->problem[0] == 0;) {
        size_t piece = size - at < step ? size - at : step;
        uint8_t *copy = malloc(piece);
        memcpy(copy, data + at, piece);
        at += piece;
        sbx_tar_reader_feed(reader, copy, piece);
        for (bool more = true; more;) {
            switch (sbx_tar_reader_next(reader)) {
            case SBX_TAR_ENTRY:
                ck_assert_uint_lt(archive->count, ENTRIES_MAX);
                archive->seen[archive->count++].entry = *sbx_tar_reader_entry(reader);
                break;
            case SBX_TAR_DATA:
                take(archive, reader);
                break;
            case SBX_TAR_DONE:
                break;
            case SBX_TAR_BAD:
                snprintf(archive->problem, sizeof archive->problem, "%s",
                         sbx_tar_reader_problem(reader));
                more = false;
                break;
            case SBX_TAR_END:
                archive->ended = true;
                more = false;
                break;
            case SBX_TAR_MORE:
                more = false;
                break;
            }
        }
        free(copy);
    }
    sbx_tar_reader_free(reader);
    return archive;
}

static struct archive *read_file(const char *name, size_t step)
{
    struct stat about;
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(fstat(fd, &about), 0);
    uint8_t *data = malloc((size_t)about.st_size);
    ck_assert_int_eq(read(fd, data, (size_t)about.st_size), about.st_size);
    close(fd);
    struct archive *archive = read_archive(data, (size_t)about.st_size, step);
    free(data);
    return archive;
}

static const struct seen *find(const struct archive *archive, const char *path)
{
    for (size_t i = 0; i < archive->count; i++)
        if (strcmp(archive->seen[i].entry.path, path) == 0)
            return &archive->seen[i];
    ck_abort_msg("no entry '%s' (%zu entries, %s)", path, archive->count, archive->problem);
    return NULL;
}

static void add(struct sbx_bytes *out, struct sbx_tar_entry entry, const char *path,
                const char *target, const void *content)
{
    snprintf(entry.path, sizeof entry.path, "%s", path);
    snprintf(entry.target, sizeof entry.target, "%s", target);
    ck_assert(sbx_tar_write_entry(out, &entry, NULL, 0));
    if (entry.kind == SBX_TAR_REGULAR) {
        ck_assert(sbx_bytes_append(out, content, entry.size));
        ck_assert(sbx_tar_write_padding(out, entry.size));
    }
}

static char *repeated(char byte, size_t size, const char *end)
{
    char *text = malloc(size + strlen(end) + 1);
    memset(text, byte, size);
    memcpy(text + size, end, strlen(end) + 1);
    return text;
}

static void save(struct sbx_bytes *out, const char *name)
{
    ck_assert(sbx_tar_write_end(out));
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    ck_assert_int_eq(write(fd, sbx_bytes_data(out), sbx_bytes_size(out)),
                     (ssize_t)sbx_bytes_size(out));
    close(fd);
    sbx_bytes_free(out);
}

static void write_sample(const char *name)
{
    struct sbx_bytes out = SBX_BYTES(16 << 20);
    char *name_200 = repeated('n', 200, "");
    char *deep = repeated('d', 150, "/file");
    add(&out, (struct sbx_tar_entry){.kind = SBX_TAR_DIRECTORY, .mode = 0755}, ".", "", "");
    add(&out, (struct sbx_tar_entry){.kind = SBX_TAR_REGULAR, .mode = 0640, .size = 5,
                                     .modified_s = 1700000000}, "hello", "", "hello");
    add(&out, (struct sbx_tar_entry){.kind = SBX_TAR_REGULAR, .mode = 0644, .size = 1},
        name_200, "", "x");
    add(&out, (struct sbx_tar_entry){.kind = SBX_TAR_REGULAR, .mode = 0644, .size = 1}, deep, "",
        "y");
    add(&out, (struct sbx_tar_entry){.kind = SBX_TAR_LINK, .mode = 0777}, "link", name_200, "");
    add(&out, (struct sbx_tar_entry){.kind = SBX_TAR_HARD_LINK, .mode = 0640,
                                     .modified_s = 1700000000}, "second", "hello", "");
    add(&out, (struct sbx_tar_entry){.kind = SBX_TAR_REGULAR, .mode = 0644, .modified_s = -5},
        "before-1970", "", "");
    add(&out, (struct sbx_tar_entry){.kind = SBX_TAR_REGULAR, .mode = 0644, .size = 3},
        "bad-\xff\xfe", "", "abc");
    struct sbx_tar_entry sparse = {.kind = SBX_TAR_REGULAR, .mode = 0600, .size = 1 << 20,
                                   .sparse = true, .path = "sparse"};
    const struct sbx_tar_piece pieces[] = {{4096, 512}, {65536, 4}};
    ck_assert(sbx_tar_write_entry(&out, &sparse, pieces, 2));
    const char content[516] = "one";
    ck_assert(sbx_bytes_append(&out, content, 512));
    ck_assert(sbx_bytes_append(&out, "FOUR", 4));
    ck_assert(sbx_tar_write_padding(&out, 516));
    save(&out, name);
    free(name_200);
    free(deep);
}

static void check_sample(void)
{
    char *text = run("cd out; cat hello bad-*; stat -c %a,%Y hello; readlink link | wc -c;"
                     "test second -ef hello; stat -c %Y before-1970; cat $(readlink link);"
                     "cat ddd*/file; stat -c %s sparse; tail -c +4097 sparse | head -c 3;"
                     "tail -c +65537 sparse | head -c 4");
    ck_assert_str_eq(text, "helloabc640,1700000000\n201\n-5\nxy1048576\noneFOUR");
    free(text);
}

START_TEST(what_is_written_is_read_again_in_steps_of_any_size)
{
    write_sample("a.tar");
    const size_t steps[] = {1, 7, 512, 513, 1 << 20};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct archive *archive = read_file("a.tar", steps[i]);
        ck_assert_str_eq(archive->problem, "");
        ck_assert(archive->ended);
        ck_assert_uint_eq(archive->count, 9);
        ck_assert_int_eq(archive->seen[0].entry.kind, SBX_TAR_DIRECTORY);
        ck_assert_mem_eq(find(archive, "hello")->content, "hello", 5);
        ck_assert_uint_eq(find(archive, "hello")->entry.mode, 0640);
        ck_assert_int_eq(find(archive, "before-1970")->entry.modified_s, -5);
        ck_assert_uint_eq(strlen(find(archive, "link")->entry.target), 200);
        ck_assert_str_eq(find(archive, "second")->entry.target, "hello");
        ck_assert_mem_eq(find(archive, "bad-\xff\xfe")->content, "abc", 3);
        const struct seen *sparse = find(archive, "sparse");
        ck_assert_uint_eq(sparse->entry.size, 1 << 20);
        ck_assert_uint_eq(sparse->carried, 516);
        free(archive);
    }
}
END_TEST

START_TEST(gnu_tar_unpacks_what_is_written)
{
    write_sample("a.tar");
    free(run("mkdir out; tar -xf a.tar -C out"));
    check_sample();
}
END_TEST

START_TEST(python_unpacks_what_is_written)
{
    write_sample("a.tar");
    free(run("python3 -c 'import tarfile; tarfile.open(\"a.tar\").extractall(\"out\")'"));
    check_sample();
}
END_TEST

START_TEST(bsdtar_unpacks_what_is_written_where_it_is_installed)
{
    write_sample("a.tar");
    free(run("mkdir out; if command -v bsdtar >/dev/null; then bsdtar -xf a.tar -C out;"
             "else tar -xf a.tar -C out; fi"));
    check_sample();
}
END_TEST

static const char make_tree[] =
    "deep=$(printf 'd%.0s' $(seq 120))/$(printf 'e%.0s' $(seq 120));"
    "mkdir -p in/$deep; cd in;"
    "printf hello >hello; chmod 640 hello; touch -d @1700000000 hello; ln hello second;"
    "printf y >$deep/file; ln -s $(printf 't%.0s' $(seq 180)) link;"
    "printf old >old; touch -d @-5 old;"
    "truncate -s 3M sparse; printf one | dd of=sparse bs=1 seek=65536 conv=notrunc 2>/dev/null;"
    "i=0; while [ $i -lt 40 ]; do printf X | dd of=sparse bs=1 seek=$((i * 65536))"
    " conv=notrunc 2>/dev/null; i=$((i + 1)); done;"
    "printf abc >\"$(printf 'bad-\\377')\"; mkfifo fifo;";

static void check_tree(const char *name)
{
    struct archive *archive = read_file(name, 1000);
    ck_assert_str_eq(archive->problem, "");
    ck_assert(archive->ended);
    ck_assert_mem_eq(find(archive, "in/sparse")->content, "X", 2);
    ck_assert_uint_eq(find(archive, "in/sparse")->entry.size, 3 << 20);
    ck_assert_uint_eq(find(archive, "in/hello")->entry.mode, 0640);
    ck_assert_int_eq(find(archive, "in/hello")->entry.modified_s, 1700000000);
    ck_assert_int_eq(find(archive, "in/old")->entry.modified_s, -5);
    ck_assert_uint_eq(strlen(find(archive, "in/link")->entry.target), 180);
    ck_assert_mem_eq(find(archive, "in/bad-\377")->content, "abc", 3);
    ck_assert_int_eq(find(archive, "in/fifo")->entry.kind, SBX_TAR_OTHER);
    char *deep = repeated('d', 120, "/");
    char *deeper = repeated('e', 120, "/file");
    char *path = sbx_format("in/%s%s", deep, deeper);
    ck_assert_mem_eq(find(archive, path)->content, "y", 1);
    unsigned hard = 0;
    for (size_t i = 0; i < archive->count; i++)
        hard += archive->seen[i].entry.kind == SBX_TAR_HARD_LINK;
    ck_assert_uint_eq(hard, 1);
    free(path);
    free(deeper);
    free(deep);
    free(archive);
}

START_TEST(what_gnu_tar_writes_is_read)
{
    static const char *const ways[] = {"--format=gnu", "--format=gnu --sparse", "--format=pax",
                                       "--format=posix --sparse"};
    free(run(make_tree));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char *line = sbx_format("tar %s -cf a.tar in", ways[i]);
        free(run(line));
        free(line);
        check_tree("a.tar");
        struct archive *archive = read_file("a.tar", 1 << 20);
        ck_assert_int_eq(find(archive, "in/sparse")->entry.sparse, i % 2 == 1);
        free(archive);
    }
}
END_TEST

START_TEST(what_python_writes_is_read)
{
    free(run(make_tree));
    free(run("python3 -c 'import tarfile as t\n"
             "for name, way in ((\"p.tar\", t.PAX_FORMAT), (\"g.tar\", t.GNU_FORMAT)):\n"
             "    with t.open(name, \"w\", format=way) as archive:\n"
             "        archive.add(\"in\")'"));
    check_tree("p.tar");
    check_tree("g.tar");
}
END_TEST

START_TEST(plain_ustar_and_v7_are_read)
{
    free(run("deep=$(printf 'd%.0s' $(seq 90)); mkdir -p in/$deep; cd in; printf x >$deep/file;"
             "printf y >hello; cd ..; tar --format=ustar -cf u.tar in; "
             "tar --format=v7 -cf 7.tar in"));
    char *deep = repeated('d', 90, "/file");
    char *path = sbx_format("in/%s", deep);
    struct archive *archive = read_file("u.tar", 512);
    ck_assert_mem_eq(find(archive, path)->content, "x", 1);
    free(archive);
    archive = read_file("7.tar", 512);
    ck_assert_mem_eq(find(archive, "in/hello")->content, "y", 1);
    ck_assert_int_eq(find(archive, "in/")->entry.kind, SBX_TAR_DIRECTORY);
    free(archive);
    free(path);
    free(deep);
}
END_TEST

START_TEST(sizes_beyond_eight_gib_are_written_and_read)
{
    struct sbx_bytes out = SBX_BYTES(1 << 20);
    struct sbx_tar_entry entry = {.kind = SBX_TAR_REGULAR, .path = "large",
                                  .size = (UINT64_C(4) << 40) + 1};
    ck_assert(sbx_tar_write_entry(&out, &entry, NULL, 0));
    struct archive *archive = read_archive(sbx_bytes_data(&out), sbx_bytes_size(&out), 512);
    ck_assert_str_eq(archive->problem, "");
    ck_assert_uint_eq(find(archive, "large")->entry.size, entry.size);
    free(archive);
    /* The field alone, in base 256, as GNU tar without pax has it. */
    archive = read_archive(sbx_bytes_data(&out) + 1024, 512, 512);
    ck_assert_uint_eq(find(archive, "large")->entry.size, entry.size);
    free(archive);
    sbx_bytes_free(&out);
}
END_TEST

static void repair(uint8_t *block)
{
    unsigned sum = 0;
    memset(block + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += block[i];
    snprintf((char *)block + 148, 8, "%06o", sum);
}

static struct archive *read_broken(void (*change)(uint8_t *header), const char *content)
{
    struct sbx_bytes out = SBX_BYTES(4 << 20);
    add(&out, (struct sbx_tar_entry){.kind = SBX_TAR_REGULAR, .size = strlen(content)}, "f", "",
        content);
    ck_assert(sbx_tar_write_end(&out));
    uint8_t *copy = sbx_copy_bytes(sbx_bytes_data(&out), sbx_bytes_size(&out));
    change(copy);
    struct archive *archive = read_archive(copy, sbx_bytes_size(&out), 512);
    free(copy);
    sbx_bytes_free(&out);
    ck_assert_str_ne(archive->problem, "");
    return archive;
}

static void flip_checksum(uint8_t *header)
{
    header[3] ^= 1;
}

static void make_size_negative(uint8_t *header)
{
    memset(header + 124, 0xff, 12);
    repair(header);
}

static void make_size_text(uint8_t *header)
{
    memcpy(header + 124, "12345x78901", 11);
    repair(header);
}

static void make_pax(uint8_t *header)
{
    header[156] = 'x';
    repair(header);
}

static void make_pax_huge(uint8_t *header)
{
    header[156] = 'x';
    memcpy(header + 124, "00040000000", 11);
    repair(header);
}

START_TEST(what_cannot_be_right_is_refused_with_a_reason)
{
    static const char *const records[] = {
        "no record at all\n", "9999 path=x\n", "6 a=\n", "12 size=-12\n", "11 mtime=x\n",
        "30 GNU.sparse.numblocks=1\n\n\n\n", "5 abc", "0 a=b\n", "3 =\n", "12 path=a\0b\n",
    };
    free(read_broken(flip_checksum, "x"));
    free(read_broken(make_size_negative, "x"));
    free(read_broken(make_size_text, "x"));
    free(read_broken(make_pax_huge, "x"));
    for (size_t i = 0; i < sizeof records / sizeof *records; i++)
        free(read_broken(make_pax, records[i]));
}
END_TEST

static const char *sparse_problem(const char *map, size_t content, const char *real_size)
{
    static char problem[128];
    struct sbx_bytes out = SBX_BYTES(1 << 20);
    char records[256];
    char line[64];
    int size = snprintf(line, sizeof line, "xx GNU.sparse.realsize=%s\n", real_size);
    snprintf(line, sizeof line, "%02d GNU.sparse.realsize=%s\n", size, real_size);
    snprintf(records, sizeof records,
             "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n%s", line);
    struct sbx_tar_entry pax = {.kind = SBX_TAR_REGULAR, .path = "pax", .size = strlen(records)};
    ck_assert(sbx_tar_write_entry(&out, &pax, NULL, 0));
    uint8_t header[512];
    memcpy(header, sbx_bytes_data(&out), 512);
    header[156] = 'x';
    repair(header);
    sbx_bytes_free(&out);
    out = (struct sbx_bytes)SBX_BYTES(1 << 20);
    ck_assert(sbx_bytes_append(&out, header, 512));
    ck_assert(sbx_bytes_append(&out, records, strlen(records)));
    ck_assert(sbx_tar_write_padding(&out, strlen(records)));
    uint8_t body[2048] = {0};
    memcpy(body, map, strlen(map));
    add(&out, (struct sbx_tar_entry){.kind = SBX_TAR_REGULAR, .size = content}, "f", "", body);
    ck_assert(sbx_tar_write_end(&out));
    struct archive *archive = read_archive(sbx_bytes_data(&out), sbx_bytes_size(&out), 512);
    snprintf(problem, sizeof problem, "%s", archive->problem);
    free(archive);
    sbx_bytes_free(&out);
    return problem;
}

START_TEST(sparse_maps_that_lie_are_refused)
{
    ck_assert_str_eq(sparse_problem("1\n0\n5\n", 517, "5"), "");
    ck_assert_str_eq(sparse_problem("0\n", 512, "500"), "");
    ck_assert_str_ne(sparse_problem("2\n10\n5\n0\n5\n", 522, "100"), "");
    ck_assert_str_ne(sparse_problem("1\n0\n6\n", 518, "5"), "");
    ck_assert_str_ne(sparse_problem("1\n0\n5\n", 600, "100"), "");
    ck_assert_str_ne(sparse_problem("1\n0\n5\n", 3, "100"), "");
    ck_assert_str_ne(sparse_problem("99999999\n", 512, "100"), "");
    ck_assert_str_ne(sparse_problem("1\n0\n999999999999999999\n", 1024, "5"), "");
    ck_assert_str_ne(sparse_problem("1\n\n", 1024, "5"), "");
    ck_assert_str_ne(sparse_problem("x", 1024, "5"), "");
}
END_TEST

START_TEST(names_too_long_are_neither_written_nor_read)
{
    struct sbx_bytes out = SBX_BYTES(1 << 20);
    struct sbx_tar_entry entry = {.kind = SBX_TAR_DIRECTORY};
    memset(entry.path, 'a', sizeof entry.path - 1);
    ck_assert(!sbx_tar_write_entry(&out, &entry, NULL, 0));
    entry.path[SBX_TAR_PATH_MAX - 2] = 0;
    ck_assert(sbx_tar_write_entry(&out, &entry, NULL, 0));
    sbx_bytes_free(&out);

    char *name = repeated('n', 5000, "");
    char *line = sbx_format("python3 -c 'import tarfile as t; a = t.open(\"a.tar\", \"w\");"
                            "a.addfile(t.TarInfo(\"%s\")); a.close()'", name);
    free(run(line));
    struct archive *archive = read_file("a.tar", 512);
    ck_assert_str_ne(archive->problem, "");
    free(archive);
    free(line);
    free(name);
}
END_TEST

START_TEST(an_archive_that_is_cut_off_never_ends)
{
    write_sample("a.tar");
    free(run("head -c 3000 a.tar >b.tar"));
    struct archive *archive = read_file("b.tar", 100);
    ck_assert_str_eq(archive->problem, "");
    ck_assert(!archive->ended);
    free(archive);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("tar");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, what_is_written_is_read_again_in_steps_of_any_size);
    tcase_add_test(cases, gnu_tar_unpacks_what_is_written);
    tcase_add_test(cases, python_unpacks_what_is_written);
    tcase_add_test(cases, bsdtar_unpacks_what_is_written_where_it_is_installed);
    tcase_add_test(cases, what_gnu_tar_writes_is_read);
    tcase_add_test(cases, what_python_writes_is_read);
    tcase_add_test(cases, plain_ustar_and_v7_are_read);
    tcase_add_test(cases, sizes_beyond_eight_gib_are_written_and_read);
    tcase_add_test(cases, what_cannot_be_right_is_refused_with_a_reason);
    tcase_add_test(cases, sparse_maps_that_lie_are_refused);
    tcase_add_test(cases, names_too_long_are_neither_written_nor_read);
    tcase_add_test(cases, an_archive_that_is_cut_off_never_ends);
    Suite *suite = suite_create("tar");
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
