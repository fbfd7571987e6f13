/* What an entry of a tree has beside its content: owner, mode, time, extended attributes. */

#include "util/memory.h"
#include "util/tree_copy_parts.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NAMES_MAX 65536 /* the kernel gives no more, of names and of one value */
#define COUNT_MAX 4096

static bool is_kept(const char *name);
static int compare_names(const void *left, const void *right);
static int append_value(int fd, const char *name, struct sbx_bytes *out);

int sbx_tree_xattrs_read(int fd, struct sbx_bytes *out)
{
    ssize_t size = flistxattr(fd, NULL, 0);
    if (size == 0 || (size < 0 && (errno == ENOTSUP || errno == ENOSYS)))
        return 0;
    if (size < 0)
        return errno;
    SBX_ON_EXIT(sbx_free_text) char *names = malloc(NAMES_MAX);
    const char *kept[COUNT_MAX];
    size_t count = 0;
    size = names == NULL ? -1 : flistxattr(fd, names, NAMES_MAX);
    if (size < 0)
        return names == NULL ? ENOMEM : errno;
    for (const char *at = names; at < names + size; at += strlen(at) + 1) {
        if (!is_kept(at))
            continue;
        if (count == COUNT_MAX)
            return E2BIG;
        kept[count++] = at;
    }
    qsort(kept, count, sizeof kept[0], compare_names);
    int number = 0;
    for (size_t n = 0; n < count && number == 0; n++)
        number = append_value(fd, kept[n], out);
    return number;
}

int sbx_tree_xattrs_write(int fd, const struct sbx_bytes *xattrs)
{
    if (sbx_bytes_size(xattrs) == 0)
        return 0;
    const uint8_t *at = sbx_bytes_data(xattrs), *end = at + sbx_bytes_size(xattrs);
    while (at < end) {
        const char *name = (const char *)at;
        uint32_t size;
        at += strlen(name) + 1;
        memcpy(&size, at, sizeof size);
        at += sizeof size;
        if (fsetxattr(fd, name, at, size, 0) < 0)
            return errno;
        at += size;
    }
    return 0;
}

/* An access list belongs to the mode, and a change of owner takes bits of the mode away. */
int sbx_tree_dress(int fd, uid_t uid, gid_t gid, mode_t mode, const struct timespec *modified,
                   const struct sbx_bytes *xattrs)
{
    const struct timespec times[2] = {{0, UTIME_OMIT}, *modified};
    if (fchown(fd, uid, gid) < 0 || fchmod(fd, mode & 07777) < 0)
        return errno;
    int number = xattrs == NULL ? 0 : sbx_tree_xattrs_write(fd, xattrs);
    return number != 0 ? number : futimens(fd, times) < 0 ? errno : 0;
}

/* What the guest or its programs can set; labels of the host are the host's. */
static bool is_kept(const char *name)
{
    return strncmp(name, "user.", 5) == 0 || strcmp(name, "system.posix_acl_access") == 0 ||
           strcmp(name, "system.posix_acl_default") == 0;
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static int append_value(int fd, const char *name, struct sbx_bytes *out)
{
    ssize_t size = fgetxattr(fd, name, NULL, 0);
    if (size < 0 || size > NAMES_MAX)
        return size < 0 ? errno : E2BIG;
    uint32_t told = (uint32_t)size;
    if (!sbx_bytes_append(out, name, strlen(name) + 1) ||
        !sbx_bytes_append(out, &told, sizeof told))
        return E2BIG;
    uint8_t *room = sbx_bytes_room(out, (size_t)size + 1);
    if (room == NULL)
        return E2BIG;
    ssize_t got = fgetxattr(fd, name, room, (size_t)size);
    if (got != size)
        return got < 0 ? errno : EAGAIN;
    sbx_bytes_grow(out, (size_t)size);
    return 0;
}
