/*
 * The host's programs as a tree of hard links. A package upgrade replaces files by rename, so a
 * link goes on showing what the workspace was started with, and takes no room of its own.
 *
 * A program that writes into a file in place writes into all of its links: print.c is there to
 * notice. And what an upgrade does change through a link, the rights of programs that are setuid,
 * is copied instead.
 */

#include "drivers/gvisor/gvisor.h"
#include "drivers/gvisor/walk.h"
#include "util/beneath.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Of files that cannot be linked: more than a few are a sign that links are not for this host. */
#define COPIED_MAX (UINT64_C(512) << 20)

struct farm {
    int from, to;
    struct stat avoided; /* the state directory: it may be anywhere */
    atomic_uint_fast64_t copied;
};

static bool is_plain(int root, const char *name, const struct statx *state);
static bool has_mounts(const char *host);
static sandbox_status link_directory(void *data, const char *path, struct sbx_walk_list *below,
                                     sandbox_error *error);
static sandbox_status link_entries(struct farm *farm, DIR *directory, int to, const char *path,
                                   struct sbx_walk_list *below, sandbox_error *error);
static sandbox_status link_entry(struct farm *farm, int from, int to, const char *name,
                                 const struct stat *facts, sandbox_error *error);
static sandbox_status link_symbolic(int from, int to, const char *name, sandbox_error *error);
static sandbox_status copy_file(struct farm *farm, int from, int to, const char *name,
                                sandbox_error *error);
static int copy_content(int source, int copy, const struct stat *facts);
static int give_facts(int fd, const struct stat *facts);

bool sbx_gvisor_farm_is_possible(int state, int root, const char *host)
{
    struct statx facts;
    struct statfs system;
    if (statx(state, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &facts) < 0 ||
        fstatfs(state, &system) < 0 || system.f_type == OVERLAYFS_SUPER_MAGIC)
        return false;
    for (size_t n = 0; sbx_gvisor_base_programs[n] != NULL; n++) {
        if (!is_plain(root, sbx_gvisor_base_programs[n], &facts))
            return false;
    }
    return !has_mounts(host);
}

sandbox_status sbx_gvisor_farm_make(int from, int to, const char *const *names, int avoid,
                                    const struct sbx_wait *wait, sandbox_error *error)
{
    struct farm farm = {.from = from, .to = to};
    if (fstat(avoid, &farm.avoided) < 0)
        return sbx_fail_errno(error, errno, "cannot look at the state directory");
    return sbx_walk(names, link_directory, &farm, wait, error);
}

/* Not a directory, or one on the state's own mount. */
static bool is_plain(int root, const char *name, const struct statx *state)
{
    struct statx facts;
    if (statx(root, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_MNT_ID, &facts) < 0)
        return errno == ENOENT;
    return !S_ISDIR(facts.stx_mode) ||
           (facts.stx_dev_major == state->stx_dev_major &&
            facts.stx_dev_minor == state->stx_dev_minor && facts.stx_mnt_id == state->stx_mnt_id);
}

/* Whether something is mounted below one of the program directories. */
static bool has_mounts(const char *host)
{
    uint8_t *read = NULL;
    size_t size = 0;
    if (sbx_file_read(AT_FDCWD, "/proc/self/mountinfo", 64u << 20, &read, &size, NULL) !=
        SANDBOX_OK)
        return true;
    SBX_ON_EXIT(sbx_free_text) char *text = (char *)read;
    size_t prefix = strcmp(host, "/") == 0 ? 0 : strlen(host);
    for (const char *line = text, *end; *line != '\0'; line = end + (*end == '\n')) {
        end = line + strcspn(line, "\n");
        char point[SBX_GVISOR_PATH];
        if (sscanf(line, "%*s %*s %*s %*s %4095s", point) != 1 ||
            strncmp(point, host, prefix) != 0 || point[prefix] != '/')
            continue;
        for (size_t n = 0; sbx_gvisor_base_programs[n] != NULL; n++) {
            const char *name = sbx_gvisor_base_programs[n];
            if (strncmp(point + prefix + 1, name, strlen(name)) == 0 &&
                point[prefix + 1 + strlen(name)] == '/')
                return true;
        }
    }
    return false;
}

static sandbox_status link_directory(void *data, const char *path, struct sbx_walk_list *below,
                                     sandbox_error *error)
{
    struct farm *farm = data;
    int from = sbx_beneath_open(farm->from, path, O_RDONLY | O_DIRECTORY, 0);
    if (from < 0 && errno == ENOENT)
        return SANDBOX_OK; /* it vanished */
    DIR *directory = from < 0 ? NULL : fdopendir(from);
    if (directory == NULL) {
        int number = errno;
        sbx_close_fd(&from);
        return sbx_fail_errno(error, number, "cannot look at the host's '/%s'", path);
    }
    SBX_ON_EXIT(sbx_close_fd)
    int to = openat(farm->to, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat facts;
    int failed = to < 0 || fstat(from, &facts) < 0 ? errno : 0;
    sandbox_status status = SANDBOX_OK;
    if (failed == 0 &&
        (facts.st_dev != farm->avoided.st_dev || facts.st_ino != farm->avoided.st_ino))
        status = link_entries(farm, directory, to, path, below, error);
    if (failed == 0 && status == SANDBOX_OK)
        failed = give_facts(to, &facts);
    closedir(directory);
    return failed == 0 ? status
                       : sbx_fail_errno(error, failed, "cannot link what is in '/%s'", path);
}

static sandbox_status link_entries(struct farm *farm, DIR *directory, int to, const char *path,
                                   struct sbx_walk_list *below, sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    for (struct dirent *entry; status == SANDBOX_OK && (entry = readdir(directory)) != NULL;) {
        const char *name = entry->d_name;
        struct stat facts;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
            fstatat(dirfd(directory), name, &facts, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        status = link_entry(farm, dirfd(directory), to, name, &facts, error);
        if (status == SANDBOX_OK && S_ISDIR(facts.st_mode) && (facts.st_mode & 01) != 0)
            status = sbx_walk_add(below, path, name, error);
    }
    return status;
}

/*
 * What not everybody may read or run on the host is not for strangers, and pipes, sockets and
 * devices are no programs: they are left out.
 */
static sandbox_status link_entry(struct farm *farm, int from, int to, const char *name,
                                 const struct stat *facts, sandbox_error *error)
{
    if (S_ISDIR(facts->st_mode)) {
        if ((facts->st_mode & 01) != 0 && mkdirat(to, name, 0700) < 0)
            return sbx_fail_errno(error, errno, "cannot make the directory '%s' in the base", name);
        return SANDBOX_OK;
    }
    if (S_ISLNK(facts->st_mode))
        return link_symbolic(from, to, name, error);
    if (!S_ISREG(facts->st_mode) || (facts->st_mode & 05) == 0)
        return SANDBOX_OK;
    if ((facts->st_mode & (S_ISUID | S_ISGID)) != 0)
        return copy_file(farm, from, to, name, error);
    if (linkat(from, name, to, name, 0) == 0 || errno == ENOENT)
        return SANDBOX_OK;
    /* It has as many links as it can, it is immutable, or in a volume of its own. */
    if (errno == EMLINK || errno == EPERM || errno == EXDEV)
        return copy_file(farm, from, to, name, error);
    return sbx_fail_errno(error, errno, "cannot link the host's '%s' into the base", name);
}

static sandbox_status link_symbolic(int from, int to, const char *name, sandbox_error *error)
{
    char target[SBX_GVISOR_PATH];
    ssize_t size = readlinkat(from, name, target, sizeof target - 1);
    if (size < 0)
        return SANDBOX_OK; /* it vanished */
    target[size] = '\0';
    if (symlinkat(target, to, name) < 0)
        return sbx_fail_errno(error, errno, "cannot make the link '%s' in the base", name);
    return SANDBOX_OK;
}

static sandbox_status copy_file(struct farm *farm, int from, int to, const char *name,
                                sandbox_error *error)
{
    SBX_ON_EXIT(sbx_close_fd)
    int source = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat facts;
    if (source < 0 || fstat(source, &facts) < 0 || !S_ISREG(facts.st_mode))
        return SANDBOX_OK; /* it vanished, or became something else */
    uint64_t size = (uint64_t)facts.st_size;
    if (atomic_fetch_add(&farm->copied, size) + size > COPIED_MAX)
        return sbx_fail(error, SANDBOX_LIMIT,
                        "more than %llu MiB of the host's programs cannot be linked, '%s' for one; "
                        "put the state directory on a file system of its own",
                        (unsigned long long)(COPIED_MAX >> 20), name);
    SBX_ON_EXIT(sbx_close_fd)
    int copy = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int failed = copy < 0 ? errno : copy_content(source, copy, &facts);
    if (failed == 0)
        failed = give_facts(copy, &facts);
    if (failed != 0)
        return sbx_fail_errno(error, failed, "cannot copy the host's '%s' into the base", name);
    return SANDBOX_OK;
}

/* 0 or an errno value. One that becomes shorter meanwhile is copied as far as it goes. */
static int copy_content(int source, int copy, const struct stat *facts)
{
    if (ioctl(copy, FICLONE, source) == 0)
        return 0;
    for (off_t left = facts->st_size; left > 0;) {
        ssize_t sent = sendfile(copy, source, NULL, (size_t)left);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return sent < 0 ? errno : 0;
        left -= sent;
    }
    return 0;
}

/* Owner, rights and time; 0 or an errno value. The owner first: changing it takes rights away. */
static int give_facts(int fd, const struct stat *facts)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, facts->st_mtim};
    if (fchown(fd, facts->st_uid, facts->st_gid) < 0 || fchmod(fd, facts->st_mode & 07777) < 0 ||
        futimens(fd, times) < 0)
        return errno;
    return 0;
}
