/*
 * What a snapshot holds, as text: a line for each entry, in the order of a walk through sorted
 * directories. Paths are written so that they hold neither spaces nor line ends.
 */

#include "trees.h"
#include "util/digest.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/random.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#define PIECE_BYTES (64u << 10)
#define SHOWN_BYTES 100 /* of a path, in evidence */

static sandbox_status list_directory(struct tree_walk *walk, int directory, const char *except,
                                     struct sbx_bytes *out);
static sandbox_status list_entry(struct tree_walk *walk, int directory, const char *name,
                                 const struct stat *facts, struct sbx_bytes *out);

static sandbox_status fail_at(struct tree_walk *walk, int number, const char *what)
{
    return sbx_fail_errno(walk->error, number, "cannot %s '%s'", what,
                          walk->length == 0 ? "." : walk->path);
}

sandbox_status tree_list(const char *directory, const char *except, struct sbx_bytes *out,
                         struct tree_count *count, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_close_fd)
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return sbx_fail_errno(error, errno, "cannot open a snapshot");
    struct tree_walk *walk = calloc(1, sizeof *walk);
    if (walk == NULL)
        return sbx_fail(error, SANDBOX_UNAVAILABLE, "the platform has no memory");
    walk->error = error;
    sandbox_status status = list_directory(walk, fd, except, out);
    *count = walk->count;
    free(walk);
    return status;
}

static sandbox_status list_directory(struct tree_walk *walk, int directory, const char *except,
                                     struct sbx_bytes *out)
{
    SBX_ON_EXIT(tree_names_clear) struct tree_names names = {0};
    sandbox_status status = tree_names_read(walk, directory, &names);
    for (size_t n = 0; status == SANDBOX_OK && n < names.count; n++) {
        struct stat facts;
        size_t before;
        if (except != NULL && strcmp(names.names[n], except) == 0)
            continue;
        if (fstatat(directory, names.names[n], &facts, AT_SYMLINK_NOFOLLOW) < 0)
            return fail_at(walk, errno, "look into");
        status = tree_walk_enter(walk, names.names[n], &facts, &before);
        if (status == SANDBOX_OK)
            status = list_entry(walk, directory, names.names[n], &facts, out);
        if (status == SANDBOX_OK)
            tree_walk_leave(walk, before);
    }
    return status;
}

static void free_hash(struct sbx_hash **hash)
{
    sbx_hash_free(*hash);
}

static sandbox_status digest_file(struct tree_walk *walk, int directory, const char *name,
                                  char text[2 * SBX_DIGEST_BYTES + 1])
{
    static _Thread_local uint8_t piece[PIECE_BYTES];
    SBX_ON_EXIT(sbx_close_fd)
    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return fail_at(walk, errno, "open");
    SBX_ON_EXIT(free_hash) struct sbx_hash *hash = sbx_hash_new();
    uint64_t left = TREE_BYTES_MAX; /* it was counted, unless it has grown since */
    for (ssize_t size = 1; hash != NULL && size > 0;) {
        size = read(fd, piece, sizeof piece);
        if (size < 0 || (uint64_t)size > left)
            return fail_at(walk, size < 0 ? errno : EFBIG, "read");
        left -= (uint64_t)size;
        sbx_hash_add(hash, piece, (size_t)size);
    }
    uint8_t digest[SBX_DIGEST_BYTES];
    if (hash == NULL || !sbx_hash_end(hash, digest))
        return sbx_fail(walk->error, SANDBOX_UNAVAILABLE, "the platform has no memory");
    sbx_hex_print(digest, sizeof digest, text);
    return SANDBOX_OK;
}

static sandbox_status digest_link(struct tree_walk *walk, int directory, const char *name,
                                  char text[2 * SBX_DIGEST_BYTES + 1])
{
    char target[PATH_MAX];
    ssize_t size = readlinkat(directory, name, target, sizeof target);
    if (size < 0)
        return fail_at(walk, errno, "read");
    uint8_t digest[SBX_DIGEST_BYTES];
    sbx_sha256(target, (size_t)size, digest);
    sbx_hex_print(digest, sizeof digest, text);
    return SANDBOX_OK;
}

static bool write_path(struct sbx_bytes *out, const char *path)
{
    for (; *path != '\0'; path++) {
        unsigned char byte = (unsigned char)*path;
        bool plain = byte > ' ' && byte < 0x7f && byte != '%';
        if (plain ? !sbx_bytes_append(out, path, 1) : !sbx_bytes_format(out, "%%%02x", byte))
            return false;
    }
    return true;
}

static sandbox_status list_entry(struct tree_walk *walk, int directory, const char *name,
                                 const struct stat *facts, struct sbx_bytes *out)
{
    char digest[2 * SBX_DIGEST_BYTES + 1] = "-";
    bool is_file = S_ISREG(facts->st_mode);
    sandbox_status status = is_file                   ? digest_file(walk, directory, name, digest)
                            : S_ISLNK(facts->st_mode) ? digest_link(walk, directory, name, digest)
                                                      : SANDBOX_OK;
    if (status != SANDBOX_OK)
        return status;
    if (!write_path(out, walk->path) ||
        !sbx_bytes_format(out, " %o %u %u %" PRIu64 " %" PRIi64 ".%09ld %s\n",
                          (unsigned)facts->st_mode, facts->st_uid, facts->st_gid,
                          is_file ? (uint64_t)facts->st_size : 0,
                          is_file ? (int64_t)facts->st_mtim.tv_sec : 0,
                          is_file ? facts->st_mtim.tv_nsec : 0, digest))
        return sbx_fail(walk->error, SANDBOX_LIMIT,
                        "the names of the workspace's files come to over %u MiB; this platform "
                        "keeps no more",
                        LISTING_MAX >> 20);
    if (!S_ISDIR(facts->st_mode))
        return SANDBOX_OK;
    SBX_ON_EXIT(sbx_close_fd)
    int inner = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return inner < 0 ? fail_at(walk, errno, "open") : list_directory(walk, inner, NULL, out);
}

/* The line at `at`, with its end; nothing at the end of the text. */
static size_t line_at(const struct sbx_bytes *text, size_t at, const char **line)
{
    size_t left = sbx_bytes_size(text) - at;
    *line = left == 0 ? "" : (const char *)sbx_bytes_data(text) + at;
    const char *end = left == 0 ? NULL : memchr(*line, '\n', left);
    return end == NULL ? left : (size_t)(end - *line) + 1;
}

/* Whether a line of the text begins so. */
static bool has_line(const struct sbx_bytes *text, const char *beginning, size_t size)
{
    const char *line;
    for (size_t at = 0, length; (length = line_at(text, at, &line)) > 0; at += length) {
        if (length >= size && memcmp(line, beginning, size) == 0)
            return true;
    }
    return false;
}

static void say(char *evidence, size_t size, const char *line, const char *what)
{
    size_t length = strcspn(line, " \n");
    snprintf(evidence, size, "'%.*s%s' %s", (int)(length < SHOWN_BYTES ? length : SHOWN_BYTES),
             line, length <= SHOWN_BYTES ? "" : "…", what);
}

sandbox_verdict tree_compare(const struct sbx_bytes *recorded, const struct sbx_bytes *now,
                             char *evidence, size_t evidence_size)
{
    size_t at = 0;
    const char *wanted, *found;
    for (;;) {
        size_t size = line_at(recorded, at, &wanted), other = line_at(now, at, &found);
        if (size == 0 && other == 0)
            return SANDBOX_VERDICT_INTACT;
        bool same = size == other && memcmp(wanted, found, size) == 0;
        if (!same && (size == 0 || has_line(now, wanted, size))) {
            say(evidence, evidence_size, found, "was added");
            return SANDBOX_VERDICT_DAMAGED;
        }
        if (!same && has_line(now, wanted, strcspn(wanted, " \n") + 1)) {
            say(evidence, evidence_size, wanted, "is not as it was recorded");
            return SANDBOX_VERDICT_DAMAGED;
        }
        if (!same) {
            say(evidence, evidence_size, wanted, "is not there");
            return SANDBOX_VERDICT_MISSING;
        }
        at += size;
    }
}
