/*
 * Putting an unpacked tree in place: one rename, or entry by entry into a directory that is there.
 */

#include "util/memory.h"
#include "util/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOKS_MAX 8

/* Two directories that become one, and where they are below the root, for the message. */
struct pair {
    int from, to;
    char *place;
    size_t place_size;
};

typedef int visit(const struct pair *pair, const char *name);

static int for_each(const struct pair *pair, visit *visitor);
static int check(const struct pair *pair, const char *name);
static int move(const struct pair *pair, const char *name);
static int merge(const struct pair *pair, const char *from_name, const char *to_name,
                 visit *visitor);
static bool says_directory(int at, const char *name, bool *is_directory, int *number);

int sbx_tree_place(int from, const char *from_name, int to, const char *to_name,
                   char place[SBX_TAR_PATH_MAX])
{
    const struct pair pair = {from, to, place, 0};
    bool from_directory, to_directory;
    int number = 0;
    snprintf(place, SBX_TAR_PATH_MAX, "%s", to_name);
    if (!says_directory(from, from_name, &from_directory, &number))
        return number;
    if (!says_directory(to, to_name, &to_directory, &number))
        return number != ENOENT                             ? number
               : renameat(from, from_name, to, to_name) == 0 ? 0
                                                             : errno;
    if (from_directory != to_directory)
        return to_directory ? EISDIR : ENOTDIR;
    if (!from_directory)
        return renameat(from, from_name, to, to_name) == 0 ? 0 : errno;
    number = merge(&pair, from_name, to_name, check);
    if (number == 0)
        number = merge(&pair, from_name, to_name, move);
    return number;
}

static bool says_directory(int at, const char *name, bool *is_directory, int *number)
{
    struct stat about;
    if (fstatat(at, name, &about, AT_SYMLINK_NOFOLLOW) != 0) {
        *number = errno;
        return false;
    }
    *is_directory = S_ISDIR(about.st_mode);
    return true;
}

static int merge(const struct pair *pair, const char *from_name, const char *to_name,
                 visit *visitor)
{
    SBX_ON_EXIT(sbx_close_fd)
    int from = openat(pair->from, from_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (from < 0)
        return errno;
    SBX_ON_EXIT(sbx_close_fd)
    int to = openat(pair->to, to_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat from_about, to_about;
    if (to < 0 || fstat(from, &from_about) != 0 || fstat(to, &to_about) != 0)
        return errno;
    if (from_about.st_dev != to_about.st_dev)
        return EXDEV;
    const struct pair inner = {from, to, pair->place, strlen(pair->place)};
    int number = 0;
    /* Some file systems pass entries over while others are moved away: then look again. */
    for (int i = 0; i < LOOKS_MAX && number == 0; i++) {
        number = for_each(&inner, visitor);
        if (number != 0 || visitor == check)
            return number;
        if (unlinkat(pair->from, from_name, AT_REMOVEDIR) == 0)
            return 0;
        number = errno == ENOTEMPTY && i + 1 < LOOKS_MAX ? 0 : errno;
    }
    return number;
}

static int for_each(const struct pair *pair, visit *visitor)
{
    int fd = openat(pair->from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (directory == NULL) {
        int number = errno;
        if (fd >= 0)
            close(fd);
        return number;
    }
    int number = 0;
    while (number == 0) {
        errno = 0;
        struct dirent *entry = readdir(directory);
        if (entry == NULL) {
            number = errno;
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(pair->place + pair->place_size, SBX_TAR_PATH_MAX - pair->place_size, "/%s",
                 entry->d_name);
        number = visitor(pair, entry->d_name);
        if (number == 0) /* after a failure it says where */
            pair->place[pair->place_size] = 0;
    }
    closedir(directory);
    return number;
}

static int check(const struct pair *pair, const char *name)
{
    bool from_directory, to_directory;
    int number = 0;
    if (!says_directory(pair->from, name, &from_directory, &number))
        return number;
    if (!says_directory(pair->to, name, &to_directory, &number))
        return number == ENOENT ? 0 : number;
    if (from_directory != to_directory)
        return to_directory ? EISDIR : ENOTDIR;
    return from_directory ? merge(pair, name, name, check) : 0;
}

static int move(const struct pair *pair, const char *name)
{
    bool from_directory, to_directory = false;
    int number = 0;
    if (!says_directory(pair->from, name, &from_directory, &number))
        return number;
    if (from_directory && says_directory(pair->to, name, &to_directory, &number) && to_directory)
        return merge(pair, name, name, move);
    return renameat(pair->from, name, pair->to, name) == 0 ? 0 : errno;
}
