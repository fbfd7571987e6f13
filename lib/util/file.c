/* Files of our own on this machine: whole reads, replacement in one step, locks, removal. */

#include "util/file.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/random.h"
#include "util/wait.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_RETRY_MS 10
/* Deeper trees are removed all the same: what is deep is first moved up. */
#define REMOVE_DEPTH 200

static sandbox_status write_temporary(int at, const char *path, const void *data, size_t size,
                                      mode_t mode, char **temporary, sandbox_error *error);
static sandbox_status sync_parent(int at, const char *path, sandbox_error *error);
static int remove_entry(int at, const char *name, dev_t device, int root, unsigned depth);

sandbox_status sbx_file_read(int at, const char *path, size_t limit, uint8_t **data,
                             size_t *data_size, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_close_fd) int fd = openat(at, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    struct stat facts;
    if (fd < 0 || fstat(fd, &facts) < 0)
        return sbx_fail_errno(error, errno, "cannot read '%s'", path);
    if (facts.st_size > 0 && (uintmax_t)facts.st_size > limit)
        return sbx_fail(error, SANDBOX_LIMIT, "'%s' is larger than %zu bytes", path, limit);

    /* Files of /proc tell no size: read until the end, whatever fstat said. */
    size_t capacity = facts.st_size > 0 ? (size_t)facts.st_size + 2 : 4096, used = 0;
    SBX_ON_EXIT(sbx_free_text) char *content = malloc(capacity);
    for (;;) {
        if (content == NULL)
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for '%s'", path);
        ssize_t got = read(fd, content + used, capacity - used - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return sbx_fail_errno(error, errno, "cannot read '%s'", path);
        used += (size_t)got;
        if (used > limit)
            return sbx_fail(error, SANDBOX_LIMIT, "'%s' is larger than %zu bytes", path, limit);
        if (got == 0)
            break;
        if (used + 1 == capacity) {
            char *larger = realloc(content, capacity * 2);
            if (larger == NULL)
                return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for '%s'", path);
            content = larger;
            capacity *= 2;
        }
    }
    content[used] = '\0';
    *data = (uint8_t *)sbx_take(content);
    *data_size = used;
    return SANDBOX_OK;
}

sandbox_status sbx_file_replace(int at, const char *path, const void *data, size_t size,
                                mode_t mode, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *temporary = NULL;
    sandbox_status status = write_temporary(at, path, data, size, mode, &temporary, error);
    if (status != SANDBOX_OK)
        return status;
    if (renameat(at, temporary, at, path) < 0) {
        int number = errno;
        unlinkat(at, temporary, 0);
        return sbx_fail_errno(error, number, "cannot replace '%s'", path);
    }
    return sync_parent(at, path, error);
}

sandbox_status sbx_file_create(int at, const char *path, const void *data, size_t size,
                               mode_t mode, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *temporary = NULL;
    sandbox_status status = write_temporary(at, path, data, size, mode, &temporary, error);
    if (status != SANDBOX_OK)
        return status;
    /* A link fails where a rename would replace: nobody ever sees half of it, and no two win. */
    int failed = linkat(at, temporary, at, path, 0) < 0 ? errno : 0;
    unlinkat(at, temporary, 0);
    if (failed != 0)
        return sbx_fail_errno(error, failed, "cannot create '%s'", path);
    return sync_parent(at, path, error);
}

sandbox_status sbx_directory_make(int at, const char *path, mode_t mode, sandbox_error *error)
{
    if (mkdirat(at, path, mode) == 0)
        return SANDBOX_OK;
    if (errno == EEXIST) {
        struct stat facts;
        if (fstatat(at, path, &facts, 0) == 0 && S_ISDIR(facts.st_mode))
            return SANDBOX_OK;
        return sbx_fail(error, SANDBOX_EXISTS, "'%s' is there and is not a directory", path);
    }
    if (errno != ENOENT)
        return sbx_fail_errno(error, errno, "cannot make the directory '%s'", path);

    SBX_ON_EXIT(sbx_free_text) char *parent = sbx_copy(path);
    if (parent == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    char *slash = strrchr(parent, '/');
    if (slash == NULL || slash == parent)
        return sbx_fail_errno(error, ENOENT, "cannot make the directory '%s'", path);
    *slash = '\0';
    sandbox_status status = sbx_directory_make(at, parent, mode, error);
    if (status != SANDBOX_OK)
        return status;
    if (mkdirat(at, path, mode) == 0 || errno == EEXIST)
        return SANDBOX_OK;
    return sbx_fail_errno(error, errno, "cannot make the directory '%s'", path);
}

sandbox_status sbx_tree_remove(int at, const char *path, sandbox_error *error)
{
    struct stat facts;
    if (fstatat(at, path, &facts, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? SANDBOX_OK
                               : sbx_fail_errno(error, errno, "cannot remove '%s'", path);
    if (!S_ISDIR(facts.st_mode)) {
        if (unlinkat(at, path, 0) == 0 || errno == ENOENT)
            return SANDBOX_OK;
        return sbx_fail_errno(error, errno, "cannot remove '%s'", path);
    }
    SBX_ON_EXIT(sbx_close_fd)
    int root = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int failed = root < 0 ? errno : remove_entry(at, path, facts.st_dev, root, 0);
    if (failed != 0 && failed != ENOENT)
        return sbx_fail_errno(error, failed, "cannot remove all of '%s'", path);
    return SANDBOX_OK;
}

sandbox_status sbx_directory_sync(int at, const char *path, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_close_fd) int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return sbx_fail_errno(error, errno, "cannot make the directory '%s' durable", path);
    return SANDBOX_OK;
}

sandbox_status sbx_file_lock(int at, const char *path, bool exclusive,
                             const struct sbx_wait *wait, int *fd, sandbox_error *error)
{
    for (;;) {
        SBX_ON_EXIT(sbx_close_fd)
        int lock = openat(at, path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (lock < 0)
            return sbx_fail_errno(error, errno, "cannot open the lock '%s'", path);
        while (flock(lock, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) < 0) {
            if (errno != EWOULDBLOCK && errno != EINTR)
                return sbx_fail_errno(error, errno, "cannot lock '%s'", path);
            sandbox_status status = sbx_wait_pause(wait, LOCK_RETRY_MS, error);
            if (status != SANDBOX_OK)
                return status;
        }
        /* Whoever removed the file while we waited left us a lock that nobody else will meet. */
        struct stat held, named;
        if (fstat(lock, &held) == 0 && fstatat(at, path, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
            held.st_ino == named.st_ino && held.st_dev == named.st_dev) {
            *fd = sbx_take_fd(&lock);
            return SANDBOX_OK;
        }
    }
}

int sbx_write_all(int fd, const void *data, size_t size)
{
    const char *at = data;
    while (size > 0) {
        ssize_t written = write(fd, at, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return errno;
        at += written;
        size -= (size_t)written;
    }
    return 0;
}

static sandbox_status write_temporary(int at, const char *path, const void *data, size_t size,
                                      mode_t mode, char **temporary, sandbox_error *error)
{
    char unique[SBX_ID_TEXT];
    if (!sbx_id_fresh(unique))
        return sbx_fail(error, SANDBOX_FAILED, "the kernel gives no random bytes");
    SBX_ON_EXIT(sbx_free_text) char *name = sbx_format("%s.%s.new", path, unique);
    if (name == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");

    int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    SBX_ON_EXIT(sbx_close_fd) int fd = openat(at, name, flags, mode);
    if (fd < 0)
        return sbx_fail_errno(error, errno, "cannot write beside '%s'", path);
    int failed = sbx_write_all(fd, data, size);
    if (failed == 0 && fsync(fd) < 0)
        failed = errno;
    if (failed != 0) {
        unlinkat(at, name, 0);
        return sbx_fail_errno(error, failed, "cannot write '%s'", path);
    }
    *temporary = sbx_take(name);
    return SANDBOX_OK;
}

static sandbox_status sync_parent(int at, const char *path, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *parent = sbx_copy(path);
    if (parent == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    char *slash = strrchr(parent, '/');
    if (slash == NULL)
        return sbx_directory_sync(at, ".", error);
    slash[slash == parent ? 1 : 0] = '\0';
    return sbx_directory_sync(at, parent, error);
}

/* Removes what is in an open directory. Returns 0 or an errno value; goes on past failures. */
static int empty_directory(int fd, dev_t device, int root, unsigned depth)
{
    DIR *directory = fdopendir(fd);
    if (directory == NULL) {
        close(fd);
        return errno;
    }
    int failed = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        int result = remove_entry(dirfd(directory), entry->d_name, device, root, depth + 1);
        if (result != 0 && result != ENOENT)
            failed = result;
    }
    closedir(directory);
    return failed;
}

/*
 * A guest may have made a tree deeper than there are descriptors: past REMOVE_DEPTH a directory
 * is moved up beside the root's own entries and removed from there.
 */
static int remove_entry(int at, const char *name, dev_t device, int root, unsigned depth)
{
    if (unlinkat(at, name, 0) == 0)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return errno;

    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == EACCES && fchmodat(at, name, 0700, 0) == 0)
        fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat facts;
    if (fd < 0 || fstat(fd, &facts) < 0) {
        int number = errno;
        sbx_close_fd(&fd);
        return number;
    }
    if (facts.st_dev != device) {
        close(fd);
        return EXDEV;
    }
    if (depth >= REMOVE_DEPTH) {
        char unique[SBX_ID_TEXT];
        close(fd);
        if (!sbx_id_fresh(unique) || renameat(at, name, root, unique) < 0)
            return errno;
        return remove_entry(root, unique, device, root, 1);
    }
    (void)fchmod(fd, 0700);
    int failed = empty_directory(fd, device, root, depth);
    if (unlinkat(at, name, AT_REMOVEDIR) == 0)
        return 0;
    return failed != 0 ? failed : errno;
}
