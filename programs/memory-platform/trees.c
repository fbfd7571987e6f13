/* Copying a tree, and putting a copy back. */

#include "trees.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include "util/tree.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#define PIECE_BYTES (64u << 10)

static sandbox_status put_entry(struct tree_walk *walk, int from, int to, const char *name,
                                const char *to_name);
static sandbox_status put_directory(struct tree_walk *walk, int from, int to, const char *name,
                                    const char *to_name);
static sandbox_status put_file(struct tree_walk *walk, int from, int to, const char *name,
                               const char *to_name);
static sandbox_status put_link(struct tree_walk *walk, int from, int to, const char *name,
                               const char *to_name);
static sandbox_status put_node(struct tree_walk *walk, int to, const char *name,
                               const struct stat *facts);
static sandbox_status put_attributes(struct tree_walk *walk, int to, const char *name,
                                     const struct stat *wanted);
static sandbox_status measure_directory(struct tree_walk *walk, int parent, const char *name);

static sandbox_status fail_at(struct tree_walk *walk, int number, const char *what)
{
    return sbx_fail_errno(walk->error, number, "cannot %s '%s'", what,
                          walk->length == 0 ? "." : walk->path);
}

void tree_names_clear(struct tree_names *names)
{
    for (size_t n = 0; n < names->count; n++)
        free(names->names[n]);
    free(names->names);
    *names = (struct tree_names){0};
}

static bool add_name(struct tree_names *names, const char *name)
{
    if (names->count == names->room) {
        size_t room = names->room == 0 ? 32 : 2 * names->room;
        char **larger = realloc(names->names, room * sizeof *larger);
        if (larger == NULL)
            return false;
        names->names = larger;
        names->room = room;
    }
    names->names[names->count] = sbx_copy(name);
    return names->names[names->count] != NULL && ++names->count > 0;
}

static int by_bytes(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

sandbox_status tree_names_read(struct tree_walk *walk, int directory, struct tree_names *out)
{
    int again = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = again < 0 ? NULL : fdopendir(again);
    if (list == NULL) {
        int number = errno;
        sbx_close_fd(&again);
        return fail_at(walk, number, "list");
    }
    sandbox_status status = SANDBOX_OK;
    for (struct dirent *entry; status == SANDBOX_OK && (entry = readdir(list)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (out->count + walk->count.entries >= TREE_ENTRIES_MAX)
            status = sbx_fail(walk->error, SANDBOX_LIMIT,
                              "the workspace has over %u files; this platform keeps no more",
                              TREE_ENTRIES_MAX);
        else if (!add_name(out, entry->d_name))
            status = sbx_fail(walk->error, SANDBOX_UNAVAILABLE, "the platform has no memory");
    }
    closedir(list);
    if (out->count > 0)
        qsort(out->names, out->count, sizeof *out->names, by_bytes);
    return status;
}

sandbox_status tree_walk_enter(struct tree_walk *walk, const char *name, const struct stat *facts,
                               size_t *before)
{
    *before = walk->length;
    size_t length = strlen(name), slash = walk->length > 0;
    if (walk->length + slash + length >= sizeof walk->path || walk->depth >= TREE_DEPTH_MAX)
        return sbx_fail(walk->error, SANDBOX_LIMIT,
                        "a directory of the workspace is deeper than this platform keeps");
    if (slash)
        walk->path[walk->length] = '/';
    memcpy(walk->path + walk->length + slash, name, length + 1);
    walk->length += slash + length;
    walk->depth++;
    walk->count.entries++;
    walk->count.bytes += S_ISREG(facts->st_mode) ? (uint64_t)facts->st_size : 0;
    if (walk->count.entries > TREE_ENTRIES_MAX || walk->count.bytes > TREE_BYTES_MAX)
        return sbx_fail(walk->error, SANDBOX_LIMIT,
                        "the workspace's files are over %u, or over %u MiB; this platform keeps "
                        "no more",
                        TREE_ENTRIES_MAX, (unsigned)(TREE_BYTES_MAX >> 20));
    return SANDBOX_OK;
}

void tree_walk_leave(struct tree_walk *walk, size_t before)
{
    walk->length = before;
    walk->path[before] = '\0';
    walk->depth--;
}

sandbox_status tree_put(const char *from, const char *to, struct tree_count *count,
                        sandbox_error *error)
{
    struct tree_walk *walk = calloc(1, sizeof *walk);
    if (walk == NULL)
        return sbx_fail(error, SANDBOX_UNAVAILABLE, "the platform has no memory");
    walk->error = error;
    sandbox_status status = SANDBOX_OK;
    if (access(from, F_OK) < 0 && errno == ENOENT)
        status = sbx_tree_remove(AT_FDCWD, to, error);
    else
        status = put_entry(walk, AT_FDCWD, AT_FDCWD, from, to);
    count->bytes += walk->count.bytes;
    count->entries += walk->count.entries;
    free(walk);
    return status;
}

static sandbox_status put_entry(struct tree_walk *walk, int from, int to, const char *name,
                                const char *to_name)
{
    struct stat facts, there;
    if (fstatat(from, name, &facts, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_at(walk, errno, "look at");
    mode_t kind = facts.st_mode & S_IFMT;
    if (fstatat(to, to_name, &there, AT_SYMLINK_NOFOLLOW) == 0 && (there.st_mode & S_IFMT) != kind)
        (void)sbx_tree_erase(to, to_name, NULL); /* if it stays, what follows fails */
    sandbox_status status;
    if (kind == S_IFDIR)
        status = put_directory(walk, from, to, name, to_name);
    else if (kind == S_IFREG)
        status = put_file(walk, from, to, name, to_name);
    else if (kind == S_IFLNK)
        status = put_link(walk, from, to, name, to_name);
    else
        status = put_node(walk, to, to_name, &facts);
    return status == SANDBOX_OK ? put_attributes(walk, to, to_name, &facts) : status;
}

static bool has_name(const struct tree_names *names, const char *name)
{
    return names->count > 0 &&
           bsearch(&name, names->names, names->count, sizeof *names->names, by_bytes) != NULL;
}

/* How many were removed, by another look at the directory. */
static sandbox_status remove_some(struct tree_walk *walk, int directory,
                                  const struct tree_names *wanted, unsigned *removed)
{
    int again = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = again < 0 ? NULL : fdopendir(again);
    if (list == NULL) {
        int number = errno;
        sbx_close_fd(&again);
        return fail_at(walk, number, "list");
    }
    int number = 0;
    for (struct dirent *entry; number == 0 && (entry = readdir(list)) != NULL;) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || has_name(wanted, name))
            continue;
        number = sbx_tree_erase(directory, name, NULL);
        ++*removed;
    }
    closedir(list);
    return number == 0 ? SANDBOX_OK : fail_at(walk, number, "clear");
}

/* A directory that is changed while it is read may hide names: until a look finds none. */
static sandbox_status remove_others(struct tree_walk *walk, int directory,
                                    const struct tree_names *wanted)
{
    sandbox_status status = SANDBOX_OK;
    for (unsigned removed = 1; status == SANDBOX_OK && removed > 0;) {
        removed = 0;
        status = remove_some(walk, directory, wanted, &removed);
    }
    return status;
}

static sandbox_status put_directory(struct tree_walk *walk, int from, int to, const char *name,
                                    const char *to_name)
{
    if (mkdirat(to, to_name, 0700) < 0 && errno != EEXIST)
        return fail_at(walk, errno, "make");
    const int how = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    struct stat facts;
    /* Its own mode, which may forbid to write, comes once it is filled. */
    if (fstatat(to, to_name, &facts, AT_SYMLINK_NOFOLLOW) == 0 && (facts.st_mode & 0700) != 0700)
        (void)fchmodat(to, to_name, facts.st_mode | 0700, 0);
    SBX_ON_EXIT(sbx_close_fd) int source = openat(from, name, how);
    SBX_ON_EXIT(sbx_close_fd) int target = openat(to, to_name, how);
    if (source < 0 || target < 0)
        return fail_at(walk, errno, "open");
    SBX_ON_EXIT(tree_names_clear) struct tree_names names = {0};
    sandbox_status status = tree_names_read(walk, source, &names);
    if (status == SANDBOX_OK)
        status = remove_others(walk, target, &names);
    for (size_t n = 0; status == SANDBOX_OK && n < names.count; n++) {
        size_t before;
        if (fstatat(source, names.names[n], &facts, AT_SYMLINK_NOFOLLOW) < 0)
            return fail_at(walk, errno, "look into");
        status = tree_walk_enter(walk, names.names[n], &facts, &before);
        if (status != SANDBOX_OK)
            return status;
        status = put_entry(walk, source, target, names.names[n], names.names[n]);
        tree_walk_leave(walk, before);
    }
    return status;
}

/* A failed read counts as a difference: writing will tell. */
static bool is_same(int left, int right)
{
    struct stat one, other;
    if (fstat(left, &one) < 0 || fstat(right, &other) < 0 || one.st_size != other.st_size)
        return false;
    static _Thread_local uint8_t pieces[2][PIECE_BYTES];
    for (off_t at = 0; at < one.st_size;) {
        ssize_t size = pread(left, pieces[0], PIECE_BYTES, at);
        if (size <= 0 || pread(right, pieces[1], (size_t)size, at) != size ||
            memcmp(pieces[0], pieces[1], (size_t)size) != 0)
            return false;
        at += size;
    }
    return true;
}

static sandbox_status copy_content(struct tree_walk *walk, int source, int target)
{
    static _Thread_local uint8_t piece[PIECE_BYTES];
    uint64_t left = TREE_BYTES_MAX; /* it was counted, unless it has grown since */
    for (;;) {
        ssize_t size = read(source, piece, sizeof piece);
        if (size == 0)
            return SANDBOX_OK;
        if (size < 0 || (uint64_t)size > left)
            return fail_at(walk, size < 0 ? errno : EFBIG, "read");
        left -= (uint64_t)size;
        int number = sbx_write_all(target, piece, (size_t)size);
        if (number != 0)
            return fail_at(walk, number, "write");
    }
}

static sandbox_status put_file(struct tree_walk *walk, int from, int to, const char *name,
                               const char *to_name)
{
    const int how = O_NOFOLLOW | O_NONBLOCK;
    SBX_ON_EXIT(sbx_close_fd) int source = openat(from, name, O_RDONLY | O_CLOEXEC | how);
    if (source < 0)
        return fail_at(walk, errno, "open");
    SBX_ON_EXIT(sbx_close_fd) int target = openat(to, to_name, O_RDONLY | O_CLOEXEC | how);
    struct stat facts;
    if (target >= 0 && is_same(source, target))
        return SANDBOX_OK;
    /* Another name of it may be a file of its own in what is put back. */
    bool shared = target >= 0 && fstat(target, &facts) == 0 && facts.st_nlink > 1;
    sbx_close_fd(&target);
    if (shared && unlinkat(to, to_name, 0) < 0)
        return fail_at(walk, errno, "replace");
    target = openat(to, to_name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | how, 0600);
    if (target < 0 && errno == EACCES && unlinkat(to, to_name, 0) == 0)
        target = openat(to, to_name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | how, 0600);
    if (target < 0)
        return fail_at(walk, errno, "write");
    return copy_content(walk, source, target);
}

static sandbox_status put_link(struct tree_walk *walk, int from, int to, const char *name,
                               const char *to_name)
{
    char wanted[PATH_MAX], there[PATH_MAX];
    ssize_t size = readlinkat(from, name, wanted, sizeof wanted - 1);
    if (size < 0)
        return fail_at(walk, errno, "read");
    wanted[size] = '\0';
    ssize_t have = readlinkat(to, to_name, there, sizeof there);
    if (have == size && memcmp(wanted, there, (size_t)size) == 0)
        return SANDBOX_OK;
    if ((have >= 0 && unlinkat(to, to_name, 0) < 0) || symlinkat(wanted, to, to_name) < 0)
        return fail_at(walk, errno, "make");
    return SANDBOX_OK;
}

/* A pipe or socket with a name. One that is there is left: a process may serve it. */
static sandbox_status put_node(struct tree_walk *walk, int to, const char *name,
                               const struct stat *facts)
{
    if (mknodat(to, name, (facts->st_mode & S_IFMT) | 0600, facts->st_rdev) < 0 && errno != EEXIST)
        return fail_at(walk, errno, "make");
    return SANDBOX_OK;
}

static sandbox_status put_attributes(struct tree_walk *walk, int to, const char *name,
                                     const struct stat *wanted)
{
    struct stat facts;
    if (fstatat(to, name, &facts, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_at(walk, errno, "look at");
    bool other_owner = facts.st_uid != wanted->st_uid || facts.st_gid != wanted->st_gid;
    if (other_owner && geteuid() == 0 &&
        fchownat(to, name, wanted->st_uid, wanted->st_gid, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_at(walk, errno, "give away");
    /* A change of owner takes away what a mode may have beyond permissions. */
    if (!S_ISLNK(wanted->st_mode) && (other_owner || facts.st_mode != wanted->st_mode) &&
        fchmodat(to, name, wanted->st_mode & 07777, 0) < 0)
        return fail_at(walk, errno, "set the mode of");
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, wanted->st_mtim};
    bool other_time = facts.st_mtim.tv_sec != wanted->st_mtim.tv_sec ||
                      facts.st_mtim.tv_nsec != wanted->st_mtim.tv_nsec;
    if (S_ISREG(wanted->st_mode) && other_time &&
        utimensat(to, name, times, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_at(walk, errno, "set the time of");
    return SANDBOX_OK;
}

sandbox_status tree_measure(const char *path, struct tree_count *count, sandbox_error *error)
{
    struct tree_walk *walk = calloc(1, sizeof *walk);
    if (walk == NULL)
        return sbx_fail(error, SANDBOX_UNAVAILABLE, "the platform has no memory");
    walk->error = error;
    sandbox_status status = SANDBOX_OK;
    if (access(path, F_OK) == 0 || errno != ENOENT)
        status = measure_directory(walk, AT_FDCWD, path);
    *count = walk->count;
    free(walk);
    return status;
}

static sandbox_status measure_directory(struct tree_walk *walk, int parent, const char *name)
{
    SBX_ON_EXIT(sbx_close_fd)
    int directory = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (directory < 0)
        return fail_at(walk, errno, "open");
    SBX_ON_EXIT(tree_names_clear) struct tree_names names = {0};
    sandbox_status status = tree_names_read(walk, directory, &names);
    for (size_t n = 0; status == SANDBOX_OK && n < names.count; n++) {
        struct stat facts;
        size_t before;
        if (fstatat(directory, names.names[n], &facts, AT_SYMLINK_NOFOLLOW) < 0) {
            if (errno == ENOENT)
                continue; /* the workspace still works */
            return fail_at(walk, errno, "look into");
        }
        status = tree_walk_enter(walk, names.names[n], &facts, &before);
        if (status != SANDBOX_OK)
            return status;
        if (S_ISDIR(facts.st_mode))
            status = measure_directory(walk, directory, names.names[n]);
        if (status == SANDBOX_NOT_FOUND) {
            *walk->error = (sandbox_error){0};
            status = SANDBOX_OK;
        }
        tree_walk_leave(walk, before);
    }
    return status;
}
