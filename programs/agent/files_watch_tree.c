/* The directories a watch knows, and the changes it has to tell. */

#include "files_watch.h"

#include "util/beneath.h"
#include "util/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHANGES_MAX 16384u
#define CHANGE_BYTES_MAX (4u << 20)
#define EVENTS (IN_CREATE | IN_DELETE | IN_MODIFY | IN_ATTRIB | IN_MOVED_FROM | IN_MOVED_TO | \
                IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)

/* Directories still to be entered. */
struct waiting {
    char **paths;
    size_t count, capacity;
};

static int add_one(struct agent_sight *sight, const char *path, bool tells,
                   struct waiting *waiting);
static int list_one(struct agent_sight *sight, const char *path, int fd, bool tells,
                    struct waiting *waiting);
static int remember(struct agent_sight *sight, int descriptor, const char *path);
static bool wait_for(struct waiting *waiting, char *path);

int agent_sight_open(struct agent_sight *sight, int parent, const char *name, bool recursive)
{
    struct stat about;
    sight->recursive = recursive;
    if (fstatat(parent, name, &about, AT_SYMLINK_NOFOLLOW) != 0)
        return errno;
    /* A file is watched through its directory: most programs replace files, not change them. */
    bool directory = S_ISDIR(about.st_mode);
    if (!directory)
        snprintf(sight->only, sizeof sight->only, "%s", name);
    sight->recursive = recursive && directory;
    sight->root = openat(parent, directory ? name : ".",
                         O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    sight->inotify = sight->root < 0 ? -1 : inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (sight->inotify < 0)
        return errno;
    int number = agent_sight_add(sight, "", false);
    if (number == 0 && sight->seen_count == 0)
        number = EACCES;
    return number;
}

void agent_sight_close(struct agent_sight *sight)
{
    agent_sight_forget_changes(sight);
    free(sight->changes);
    for (size_t i = 0; i < sight->seen_count; i++)
        free(sight->seen[i].path);
    free(sight->seen);
    free(sight->left);
    sbx_close_fd(&sight->root);
}

void agent_sight_forget_changes(struct agent_sight *sight)
{
    for (size_t i = 0; i < sight->change_count; i++) {
        free(sight->changes[i].path);
        free(sight->changes[i].new_path);
    }
    sight->change_count = 0;
    sight->change_bytes = 0;
}

bool agent_sight_tell(struct agent_sight *sight, enum agent_change_kind kind, const char *path,
                      const char *new_path)
{
    size_t size = strlen(path) + (new_path == NULL ? 0 : strlen(new_path));
    struct agent_change *last =
        sight->change_count == 0 ? NULL : &sight->changes[sight->change_count - 1];
    /* Many writes in a row are one change, and after an overflow details mean little. */
    if (last != NULL && last->kind == kind &&
        (kind == AGENT_OVERFLOW || (kind == AGENT_MODIFIED && strcmp(last->path, path) == 0)))
        return true;
    if (sight->change_count >= CHANGES_MAX || sight->change_bytes + size > CHANGE_BYTES_MAX) {
        if (last != NULL && last->kind == AGENT_OVERFLOW)
            return true;
        kind = AGENT_OVERFLOW;
        path = "";
        new_path = NULL;
    }
    if (sight->change_count == sight->change_capacity) {
        size_t capacity = sight->change_capacity == 0 ? 64 : 2 * sight->change_capacity;
        struct agent_change *larger = realloc(sight->changes, capacity * sizeof *larger);
        if (larger == NULL)
            return false;
        sight->changes = larger;
        sight->change_capacity = capacity;
    }
    struct agent_change change = {kind, sbx_copy(path), sbx_copy(new_path)};
    if (change.path == NULL || (new_path != NULL && change.new_path == NULL)) {
        free(change.path);
        free(change.new_path);
        return false;
    }
    sight->changes[sight->change_count++] = change;
    sight->change_bytes += size;
    return true;
}

int agent_sight_add(struct agent_sight *sight, const char *path, bool tells)
{
    struct waiting waiting = {NULL, 0, 0};
    int number = wait_for(&waiting, sbx_copy(path)) ? 0 : ENOMEM;
    while (waiting.count > 0) {
        char *next = waiting.paths[--waiting.count];
        if (number == 0)
            number = add_one(sight, next, tells, &waiting);
        free(next);
    }
    free(waiting.paths);
    return number;
}

static int add_one(struct agent_sight *sight, const char *path, bool tells,
                   struct waiting *waiting)
{
    char link[40];
    SBX_ON_EXIT(sbx_close_fd)
    int fd = sbx_beneath_open(sight->root, *path == 0 ? "." : path,
                              O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0);
    /* Gone again, not ours to read, or another mount: nothing to watch. */
    if (fd < 0)
        return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? errno : 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int descriptor = inotify_add_watch(sight->inotify, link, EVENTS);
    if (descriptor < 0)
        return errno == ENOENT || errno == EACCES ? 0 : errno == ENOSPC ? E2BIG : errno;
    int number = remember(sight, descriptor, path);
    if (number != 0 || (!sight->recursive && !tells))
        return number;
    /* Listed after it is watched: what is made in between is told twice rather than never. */
    return list_one(sight, path, sbx_take_fd(&fd), tells, waiting);
}

static int list_one(struct agent_sight *sight, const char *path, int fd, bool tells,
                    struct waiting *waiting)
{
    int number = 0;
    DIR *directory = fdopendir(fd);
    if (directory == NULL) {
        number = errno;
        close(fd);
        return number;
    }
    for (struct dirent *entry; number == 0 && (entry = readdir(directory)) != NULL;) {
        struct stat about;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        bool is_directory = entry->d_type == DT_DIR;
        if (entry->d_type == DT_UNKNOWN &&
            fstatat(fd, entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0)
            is_directory = S_ISDIR(about.st_mode);
        if (!tells && !is_directory)
            continue;
        char *child = *path == 0 ? sbx_copy(entry->d_name) : sbx_format("%s/%s", path,
                                                                         entry->d_name);
        if (child == NULL || (tells && !agent_sight_tell(sight, AGENT_CREATED, child, NULL)))
            number = ENOMEM;
        if (number == 0 && is_directory && strlen(child) < AGENT_PATH_MAX)
            number = wait_for(waiting, sbx_take(child)) ? 0 : ENOMEM;
        free(child);
    }
    closedir(directory);
    return number;
}

/* Takes the path over, also on failure. */
static bool wait_for(struct waiting *waiting, char *path)
{
    if (path != NULL && waiting->count == waiting->capacity) {
        size_t capacity = waiting->capacity == 0 ? 64 : 2 * waiting->capacity;
        /* Far more than can be watched; the tree then fails by that limit. */
        char **larger = capacity > 64 * AGENT_WATCH_DIRECTORIES
                            ? NULL
                            : realloc(waiting->paths, capacity * sizeof *larger);
        if (larger == NULL) {
            free(path);
            return false;
        }
        waiting->paths = larger;
        waiting->capacity = capacity;
    }
    if (path == NULL)
        return false;
    waiting->paths[waiting->count++] = path;
    return true;
}

static int remember(struct agent_sight *sight, int descriptor, const char *path)
{
    char *copy = sbx_copy(path);
    if (copy == NULL)
        return ENOMEM;
    struct agent_seen *known = agent_sight_find(sight, descriptor);
    if (known != NULL) {
        free(known->path);
        known->path = copy;
        return 0;
    }
    if (sight->seen_count == AGENT_WATCH_DIRECTORIES) {
        inotify_rm_watch(sight->inotify, descriptor);
        free(copy);
        return E2BIG;
    }
    if (sight->seen_count == sight->seen_capacity) {
        size_t capacity = sight->seen_capacity == 0 ? 64 : 2 * sight->seen_capacity;
        struct agent_seen *larger = realloc(sight->seen, capacity * sizeof *larger);
        if (larger == NULL) {
            free(copy);
            return ENOMEM;
        }
        sight->seen = larger;
        sight->seen_capacity = capacity;
    }
    size_t at = sight->seen_count++;
    for (; at > 0 && sight->seen[at - 1].descriptor > descriptor; at--)
        sight->seen[at] = sight->seen[at - 1];
    sight->seen[at] = (struct agent_seen){descriptor, copy};
    return 0;
}

struct agent_seen *agent_sight_find(struct agent_sight *sight, int descriptor)
{
    size_t low = 0, high = sight->seen_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sight->seen[middle].descriptor == descriptor)
            return &sight->seen[middle];
        if (sight->seen[middle].descriptor < descriptor)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

void agent_sight_drop(struct agent_sight *sight, struct agent_seen *seen)
{
    size_t at = (size_t)(seen - sight->seen);
    free(seen->path);
    memmove(seen, seen + 1, (--sight->seen_count - at) * sizeof *seen);
}

void agent_sight_move(struct agent_sight *sight, const char *from, const char *to)
{
    size_t size = strlen(from);
    for (size_t i = sight->seen_count; i-- > 0;) {
        struct agent_seen *seen = &sight->seen[i];
        if (strncmp(seen->path, from, size) != 0 ||
            (seen->path[size] != 0 && seen->path[size] != '/'))
            continue;
        char *path = to == NULL ? NULL : sbx_format("%s%s", to, seen->path + size);
        if (path == NULL) {
            inotify_rm_watch(sight->inotify, seen->descriptor);
            agent_sight_drop(sight, seen);
            continue;
        }
        free(seen->path);
        seen->path = path;
    }
}
