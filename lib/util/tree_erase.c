/* Removing trees of any depth with two descriptors: down by name, up by "..", which is checked. */

#include "util/memory.h"
#include "util/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 1000000u
#define LOOKS_MAX 8

/* The directories on the way down, to know them again on the way up. */
struct trail {
    struct place {
        dev_t device;
        ino_t inode;
    } *places;
    size_t count, capacity;
};

static int erase_below(int *at, struct trail *trail, const atomic_bool *stop);
static int erase_entries(int at, int *below, const atomic_bool *stop);
static int enter(int at, const char *name, struct trail *trail);
static int go_up(int *at, struct trail *trail);
static bool push(struct trail *trail, const struct stat *about);

int sbx_tree_erase(int parent, const char *name, const atomic_bool *stop)
{
    if (unlinkat(parent, name, 0) == 0)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return errno;
    if (unlinkat(parent, name, AT_REMOVEDIR) == 0)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return errno == ENOTDIR ? EPERM : errno;

    struct trail trail = {NULL, 0, 0};
    SBX_ON_EXIT(sbx_close_fd) int at = enter(parent, name, &trail);
    int number = at < 0 ? errno : 0;
    /* Some file systems pass entries over while others are removed: then look again. */
    for (int i = 0; number == 0 && i < LOOKS_MAX; i++) {
        number = erase_below(&at, &trail, stop);
        if (number == 0 && unlinkat(parent, name, AT_REMOVEDIR) == 0)
            break;
        if (number == 0 && (errno != ENOTEMPTY || i + 1 == LOOKS_MAX))
            number = errno;
    }
    free(trail.places);
    return number;
}

/*
 * A directory is removed when it is met empty. One that is not is entered, emptied, and met
 * again from above, so no names need to be remembered.
 */
static int erase_below(int *at, struct trail *trail, const atomic_bool *stop)
{
    for (;;) {
        SBX_ON_EXIT(sbx_close_fd) int below = -1;
        int number = erase_entries(*at, &below, stop);
        if (number != 0)
            return number;
        if (below < 0 && trail->count == 1)
            return 0;
        if (below < 0) {
            number = go_up(at, trail);
            if (number != 0)
                return number;
            continue;
        }
        struct stat about;
        if (fstat(below, &about) != 0)
            return errno;
        if (about.st_dev != trail->places[0].device)
            return EBUSY;
        if (!push(trail, &about))
            return trail->count >= DEPTH_MAX ? ELOOP : ENOMEM;
        close(*at);
        *at = sbx_take_fd(&below);
    }
}

/* Removes what it can; the first directory with content is opened as `below`. */
static int erase_entries(int at, int *below, const atomic_bool *stop)
{
    int fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (directory == NULL) {
        int number = errno;
        if (fd >= 0)
            close(fd);
        return number;
    }
    int number = 0;
    while (number == 0 && *below < 0) {
        errno = 0;
        struct dirent *entry = readdir(directory);
        if (entry == NULL) {
            number = errno;
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (stop != NULL && atomic_load_explicit(stop, memory_order_relaxed)) {
            number = ECANCELED;
            break;
        }
        if (entry->d_type != DT_DIR && unlinkat(at, entry->d_name, 0) == 0)
            continue;
        if (entry->d_type != DT_DIR && errno != EISDIR && errno != EPERM) {
            number = errno == ENOENT ? 0 : errno;
            continue;
        }
        if (unlinkat(at, entry->d_name, AT_REMOVEDIR) == 0 || errno == ENOENT)
            continue;
        if (errno != ENOTEMPTY && errno != EEXIST) {
            number = errno == ENOTDIR ? EPERM : errno;
            continue;
        }
        *below = openat(at, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (*below < 0)
            number = errno;
    }
    closedir(directory);
    return number;
}

static int enter(int at, const char *name, struct trail *trail)
{
    struct stat about;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fstat(fd, &about) != 0 || !push(trail, &about)) {
        int number = errno;
        close(fd);
        errno = number;
        return -1;
    }
    return fd;
}

static int go_up(int *at, struct trail *trail)
{
    const struct place *expected = &trail->places[--trail->count - 1];
    struct stat about;
    SBX_ON_EXIT(sbx_close_fd)
    int up = openat(*at, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (up < 0 || fstat(up, &about) != 0)
        return errno;
    /* Somebody moved the directory away while it was emptied: what is above it is not ours. */
    if (about.st_dev != expected->device || about.st_ino != expected->inode)
        return EBUSY;
    close(*at);
    *at = sbx_take_fd(&up);
    return 0;
}

static bool push(struct trail *trail, const struct stat *about)
{
    if (trail->count == trail->capacity) {
        size_t capacity = trail->capacity == 0 ? 64 : 2 * trail->capacity;
        if (capacity > DEPTH_MAX * 2u)
            return false;
        struct place *larger = realloc(trail->places, capacity * sizeof *larger);
        if (larger == NULL)
            return false;
        trail->places = larger;
        trail->capacity = capacity;
    }
    trail->places[trail->count++] = (struct place){about->st_dev, about->st_ino};
    return true;
}
