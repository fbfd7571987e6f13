/*
 * The print of a root file system: a digest over what the file system knows of every file, none
 * of which is read. It tells whether anything was changed, in place too, between two looks.
 *
 * The parts are put together by exclusive or, so that no order matters and all cores can work on
 * it. Nobody who could choose names and times to make two prints equal is kept out by it: that is
 * the host's root, who can do anything.
 */

#include "drivers/gvisor/gvisor.h"
#include "drivers/gvisor/walk.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/random.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct print {
    int root;
    pthread_mutex_t mutex; /* guards the sum */
    uint8_t sum[SBX_DIGEST_BYTES];
};

static sandbox_status print_directory(void *data, const char *path, struct sbx_walk_list *below,
                                      sandbox_error *error);
static sandbox_status print_entries(DIR *directory, const char *path, uint8_t sum[SBX_DIGEST_BYTES],
                                    struct sbx_walk_list *below, sandbox_error *error);
static void print_entry(const char *name, const struct stat *facts, uint8_t sum[SBX_DIGEST_BYTES]);
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
    struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
    };
    int fd = (int)syscall(SYS_openat2, print->root, path, &how, sizeof how);
    if (fd < 0 && (errno == ENOENT || errno == EXDEV))
        return SANDBOX_OK; /* it vanished; or a mount, which a workspace does not see */
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (directory == NULL) {
        int number = errno;
        sbx_close_fd(&fd);
        return sbx_fail_errno(error, number, "cannot look at '%s' of a root file system", path);
    }
    /* The directory's own name keeps equal ones in different places apart. */
    uint8_t parts[2][SBX_DIGEST_BYTES] = {{0}}, whole[SBX_DIGEST_BYTES];
    sbx_sha256(path, strlen(path), parts[0]);
    sandbox_status status = print_entries(directory, path, parts[1], below, error);
    closedir(directory);
    if (status != SANDBOX_OK)
        return status;
    sbx_sha256(parts, sizeof parts, whole);
    pthread_mutex_lock(&print->mutex);
    add(print->sum, whole);
    pthread_mutex_unlock(&print->mutex);
    return SANDBOX_OK;
}

static sandbox_status print_entries(DIR *directory, const char *path, uint8_t sum[SBX_DIGEST_BYTES],
                                    struct sbx_walk_list *below, sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    for (struct dirent *entry; status == SANDBOX_OK && (entry = readdir(directory)) != NULL;) {
        struct stat facts;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fstatat(dirfd(directory), entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        print_entry(entry->d_name, &facts, sum);
        if (S_ISDIR(facts.st_mode))
            status = sbx_walk_add(below, path, entry->d_name, error);
    }
    return status;
}

/*
 * Not the rights: a host may well take some away from a program, and what runs goes on. Of a
 * directory only that it is there, since what is in it tells the rest.
 */
static void print_entry(const char *name, const struct stat *facts, uint8_t sum[SBX_DIGEST_BYTES])
{
    struct {
        uint64_t kind, inode, size, seconds, nanoseconds;
        char name[256];
    } line = {.kind = facts->st_mode & S_IFMT};
    if (!S_ISDIR(facts->st_mode)) {
        line.inode = facts->st_ino;
        line.size = (uint64_t)facts->st_size;
        line.seconds = (uint64_t)facts->st_mtim.tv_sec;
        line.nanoseconds = (uint64_t)facts->st_mtim.tv_nsec;
    }
    size_t size = strnlen(name, sizeof line.name);
    memcpy(line.name, name, size);
    uint8_t digest[SBX_DIGEST_BYTES];
    sbx_sha256(&line, offsetof(__typeof__(line), name) + size, digest);
    add(sum, digest);
}

static void add(uint8_t sum[SBX_DIGEST_BYTES], const uint8_t part[SBX_DIGEST_BYTES])
{
    for (size_t n = 0; n < SBX_DIGEST_BYTES; n++)
        sum[n] = (uint8_t)(sum[n] ^ part[n]);
}
