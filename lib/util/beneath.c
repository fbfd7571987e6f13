/* Opening paths beneath a directory: by openat2, or step by step where the kernel has none. */

#include "util/beneath.h"

#include "util/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATH_BYTES 4096
#define NAME_BYTES 256
#define RACES_MAX 16 /* EAGAIN: something moved while the kernel looked */

/* gVisor has no openat2, and older seccomp profiles refuse it with EPERM. */
static atomic_bool no_openat2;

static int open_at_once(int root, const char *path, int flags, mode_t mode);
static int open_by_steps(int root, const char *path, int flags, mode_t mode);
static int open_last(int at, const char *name, int flags, mode_t mode, dev_t device);
static int make_steps(int root, const char *path, mode_t mode);

int sbx_beneath_open(int root, const char *path, int flags, mode_t mode)
{
    flags |= O_CLOEXEC | O_NOFOLLOW;
    if (path[0] == 0) {
        errno = ENOENT;
        return -1;
    }
    if (!atomic_load_explicit(&no_openat2, memory_order_relaxed)) {
        int fd = open_at_once(root, path, flags, mode);
        if (fd >= 0 || (errno != ENOSYS && errno != EPERM))
            return fd;
        if (errno == ENOSYS)
            atomic_store_explicit(&no_openat2, true, memory_order_relaxed);
    }
    return open_by_steps(root, path, flags, mode);
}

int sbx_beneath_parent(int root, const char *path, bool make, mode_t mode, const char **name)
{
    const char *slash = strrchr(path, '/');
    *name = slash == NULL ? path : slash + 1;
    if (**name == 0 || strcmp(*name, ".") == 0 || strcmp(*name, "..") == 0) {
        errno = EINVAL;
        return -1;
    }
    if (slash == NULL)
        return fcntl(root, F_DUPFD_CLOEXEC, 0);
    size_t size = (size_t)(slash - path);
    char parent[PATH_BYTES];
    if (size == 0 || size >= sizeof parent) {
        errno = size == 0 ? EXDEV : ENAMETOOLONG;
        return -1;
    }
    memcpy(parent, path, size);
    parent[size] = 0;
    int fd = sbx_beneath_open(root, parent, O_PATH | O_DIRECTORY, 0);
    if (fd >= 0 || errno != ENOENT || !make)
        return fd;
    return make_steps(root, parent, mode);
}

static int open_at_once(int root, const char *path, int flags, mode_t mode)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)flags,
        .mode = (flags & O_CREAT) != 0 ? mode : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
    };
    /* ".." is no business of these paths, even where it stays inside. */
    for (const char *at = path; (at = strstr(at, "..")) != NULL; at += 2) {
        if ((at == path || at[-1] == '/') && (at[2] == 0 || at[2] == '/')) {
            errno = EXDEV;
            return -1;
        }
    }
    long fd = -1;
    for (int i = 0; i < RACES_MAX; i++) {
        fd = syscall(SYS_openat2, root, path, &how, sizeof how);
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
            break;
    }
    struct stat about;
    if (fd < 0 || (flags & O_PATH) == 0 || fstat((int)fd, &about) != 0 || !S_ISLNK(about.st_mode))
        return (int)fd;
    close((int)fd); /* O_PATH with O_NOFOLLOW opens a link itself */
    errno = ELOOP;
    return -1;
}

/* The next component, its length in `size`; skips slashes before it. */
static const char *next_part(const char *at, size_t *size)
{
    while (*at == '/')
        at++;
    *size = strcspn(at, "/");
    return at;
}

/* One step down from `at`, which is closed unless it is the root. */
static int step(int root, int at, const char *name, dev_t device)
{
    int next = open_last(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0, device);
    int number = errno;
    if (at != root)
        close(at);
    errno = number;
    return next;
}

/* Copies one component. False with errno: too long, or "..". */
static bool copy_part(char name[NAME_BYTES], const char *part, size_t size)
{
    if (size >= NAME_BYTES || (size == 2 && memcmp(part, "..", 2) == 0)) {
        errno = size >= NAME_BYTES ? ENAMETOOLONG : EXDEV;
        return false;
    }
    memcpy(name, size == 0 ? "." : part, size == 0 ? 1 : size);
    name[size == 0 ? 1 : size] = 0;
    return true;
}

static int open_by_steps(int root, const char *path, int flags, mode_t mode)
{
    struct stat about;
    if (path[0] == '/')
        errno = EXDEV;
    if (path[0] == '/' || fstat(root, &about) != 0)
        return -1;
    int at = root, fd = -1;
    size_t size, next_size;
    const char *part = next_part(path, &size);
    for (;; part = next_part(part + size, &size)) {
        char name[NAME_BYTES];
        bool fine = copy_part(name, part, size);
        next_part(part + size, &next_size);
        if (fine && next_size == 0)
            fd = open_last(at, name, part[size] == '/' ? flags | O_DIRECTORY : flags, mode,
                           about.st_dev);
        if (!fine || next_size == 0)
            break;
        if (strcmp(name, ".") != 0)
            at = step(root, at, name, about.st_dev);
        if (at < 0)
            return -1;
    }
    int number = errno;
    if (at != root)
        close(at);
    errno = number;
    return fd;
}

static int open_last(int at, const char *name, int flags, mode_t mode, dev_t device)
{
    struct stat about;
    int fd = openat(at, name, flags, mode);
    if (fd < 0 && errno == ENOTDIR && fstatat(at, name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISLNK(about.st_mode))
        errno = ELOOP; /* as openat2 says */
    if (fd < 0)
        return -1;
    bool known = fstat(fd, &about) == 0;
    if (known && !S_ISLNK(about.st_mode) && (!S_ISDIR(about.st_mode) || about.st_dev == device))
        return fd;
    close(fd);
    errno = known && S_ISLNK(about.st_mode) ? ELOOP : EXDEV;
    return -1;
}

static int make_steps(int root, const char *path, mode_t mode)
{
    struct stat about;
    if (fstat(root, &about) != 0)
        return -1;
    int at = fcntl(root, F_DUPFD_CLOEXEC, 0);
    size_t size;
    for (const char *part = next_part(path, &size); at >= 0 && size > 0;
         part = next_part(part + size, &size)) {
        char name[NAME_BYTES];
        if (!copy_part(name, part, size)) {
            close(at);
            return -1;
        }
        if (strcmp(name, ".") == 0)
            continue;
        /* Somebody else may make it at the same time; that is as good. */
        if (mkdirat(at, name, mode) != 0 && errno != EEXIST) {
            int number = errno;
            close(at);
            errno = number;
            return -1;
        }
        at = step(-1, at, name, about.st_dev);
    }
    return at;
}
