/*
 * The print of a root file system: a digest over what the file system knows of every file, none
 * of which is read. It tells whether anything was changed, in place too, between two looks.
 *
 * The directories are put together by exclusive or, so that their order does not matter and all
 * cores can work on it. Nobody who could choose names and times to make two prints equal is kept
 * out by it: that is the host's root, who can do anything.
 */

#include "drivers/gvisor/gvisor.h"
#include "drivers/gvisor/walk.h"
#include "util/beneath.h"
#include "util/bytes.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/random.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINES_MAX (256u << 20) /* of one directory; some million entries */

/* What is looked at of an entry. */
struct line {
    uint64_t kind, inode, size, seconds, nanoseconds;
    char name[256];
};

/* Those of one directory, each as long as its name. */
struct lines {
    struct sbx_bytes text;
    size_t *starts;
    size_t count, room;
};

struct print {
    int root;
    pthread_mutex_t mutex; /* guards the sum */
    uint8_t sum[SBX_DIGEST_BYTES];
};

static sandbox_status print_directory(void *data, const char *path, struct sbx_walk_list *below,
                                      sandbox_error *error);
static void free_lines(struct lines *lines);
static sandbox_status read_entries(DIR *directory, const char *path, struct lines *lines,
                                   struct sbx_walk_list *below, sandbox_error *error);
static bool add_line(struct lines *lines, const char *name, const struct stat *facts);
static sandbox_status digest_lines(struct lines *lines, const char *path,
                                   uint8_t digest[SBX_DIGEST_BYTES], sandbox_error *error);
static void add(uint8_t sum[SBX_DIGEST_BYTES], const uint8_t part[SBX_DIGEST_BYTES]);

sandbox_status sbx_gvisor_print(int root, const struct sbx_wait *wait,
                                char contents[SBX_GVISOR_DIGEST_TEXT], sandbox_error *error)
{
    static const char *const first[] = {".", NULL};
    struct print print = {.root = root};
    pthread_mutex_init(&print.mutex, NULL);
    sandbox_status status = sbx_walk(first, print_directory, &print, wait, error);
    pthread_mutex_destroy(&print.mutex);
    if (status == SANDBOX_OK)
        sbx_hex_print(print.sum, sizeof print.sum, contents);
    return status;
}

static sandbox_status print_directory(void *data, const char *path, struct sbx_walk_list *below,
                                      sandbox_error *error)
{
    struct print *print = data;
    int fd = sbx_beneath_open(print->root, path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0 && (errno == ENOENT || errno == EXDEV))
        return SANDBOX_OK; /* it vanished; or a mount, which a workspace does not see */
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (directory == NULL) {
        int number = errno;
        sbx_close_fd(&fd);
        return sbx_fail_errno(error, number, "cannot look at '%s' of a root file system", path);
    }
    uint8_t digest[SBX_DIGEST_BYTES];
    SBX_ON_EXIT(free_lines) struct lines lines = {.text = SBX_BYTES(LINES_MAX)};
    sandbox_status status = read_entries(directory, path, &lines, below, error);
    closedir(directory);
    if (status == SANDBOX_OK)
        status = digest_lines(&lines, path, digest, error);
    if (status != SANDBOX_OK)
        return status;
    pthread_mutex_lock(&print->mutex);
    add(print->sum, digest);
    pthread_mutex_unlock(&print->mutex);
    return SANDBOX_OK;
}

static void free_lines(struct lines *lines)
{
    sbx_bytes_free(&lines->text);
    free(lines->starts);
}

static sandbox_status read_entries(DIR *directory, const char *path, struct lines *lines,
                                   struct sbx_walk_list *below, sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    for (struct dirent *entry; status == SANDBOX_OK && (entry = readdir(directory)) != NULL;) {
        struct stat facts;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fstatat(dirfd(directory), entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (!add_line(lines, entry->d_name, &facts))
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for the directory '%s'", path);
        if (S_ISDIR(facts.st_mode))
            status = sbx_walk_add(below, path, entry->d_name, error);
    }
    return status;
}

/*
 * Not the rights: a host may well take some away from a program, and what runs goes on. Of a
 * directory only that it is there, since what is in it tells the rest.
 */
static bool add_line(struct lines *lines, const char *name, const struct stat *facts)
{
    struct line line = {.kind = facts->st_mode & S_IFMT};
    size_t size = strnlen(name, sizeof line.name - 1);
    if (!S_ISDIR(facts->st_mode)) {
        line.inode = facts->st_ino;
        line.size = (uint64_t)facts->st_size;
        line.seconds = (uint64_t)facts->st_mtim.tv_sec;
        line.nanoseconds = (uint64_t)facts->st_mtim.tv_nsec;
    }
    memcpy(line.name, name, size);
    size_t whole = offsetof(struct line, name) + size + 1;
    if (lines->count == lines->room) {
        size_t room = lines->room == 0 ? 64 : 2 * lines->room;
        size_t *more = realloc(lines->starts, room * sizeof *more);
        if (more == NULL)
            return false;
        lines->starts = more;
        lines->room = room;
    }
    lines->starts[lines->count++] = sbx_bytes_size(&lines->text);
    return sbx_bytes_append(&lines->text, &line, whole);
}

static int compare_names(const void *left, const void *right, void *text)
{
    const char *at = text;
    return strcmp(at + *(const size_t *)left + offsetof(struct line, name),
                  at + *(const size_t *)right + offsetof(struct line, name));
}

/* By name, since nobody promises that a directory is read in the same order twice. */
static sandbox_status digest_lines(struct lines *lines, const char *path,
                                   uint8_t digest[SBX_DIGEST_BYTES], sandbox_error *error)
{
    struct sbx_hash *hash = sbx_hash_new();
    if (hash == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a digest");
    /* The directory's own name keeps equal ones in different places apart. */
    sbx_hash_add(hash, path, strlen(path) + 1);
    char *text = (char *)(uintptr_t)sbx_bytes_data(&lines->text);
    if (lines->count > 0)
        qsort_r(lines->starts, lines->count, sizeof *lines->starts, compare_names, text);
    for (size_t n = 0; n < lines->count; n++) {
        const char *line = text + lines->starts[n];
        const char *name = line + offsetof(struct line, name);
        sbx_hash_add(hash, line, (size_t)(name - line) + strlen(name) + 1);
    }
    bool good = sbx_hash_end(hash, digest);
    sbx_hash_free(hash);
    return good ? SANDBOX_OK : sbx_fail(error, SANDBOX_FAILED, "a digest failed");
}

static void add(uint8_t sum[SBX_DIGEST_BYTES], const uint8_t part[SBX_DIGEST_BYTES])
{
    for (size_t n = 0; n < SBX_DIGEST_BYTES; n++)
        sum[n] = (uint8_t)(sum[n] ^ part[n]);
}
