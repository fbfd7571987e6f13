/*
 * Removing a large tree. Some file systems wait for the disk at each file that goes, so several
 * threads remove files at a time, more than there are processors; then the directories go, the
 * deepest first, and at last what was missed.
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
#include <stdatomic.h>
#include <unistd.h>

#define HANDS     8
#define NOTED_MAX 200000 /* directories; what is below others goes at last */

struct removal {
    int tree;
    pthread_mutex_t mutex; /* guards what follows */
    char **paths;          /* of its directories */
    atomic_size_t count;
    size_t room;
};

static sandbox_status remove_files(void *data, const char *path, struct sbx_walk_list *below,
                                   sandbox_error *error);
static sandbox_status note_directory(struct removal *removal, const char *path,
                                     sandbox_error *error);
static void end_removal(struct removal *removal);

sandbox_status sbx_gvisor_remove(int folder, const char *name, const struct sbx_wait *wait,
                                 sandbox_error *error)
{
    static const char *const first[] = {".", NULL};
    SBX_ON_EXIT(end_removal) struct removal removal = {.tree = -1};
    pthread_mutex_init(&removal.mutex, NULL);
    removal.tree = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (removal.tree < 0 && errno == ENOENT)
        return SANDBOX_OK; /* somebody else was faster */
    if (removal.tree < 0)
        return sbx_fail_errno(error, errno, "cannot remove '%s'", name);
    sandbox_status status = sbx_walk_by(HANDS, first, remove_files, &removal, wait, error);
    for (size_t n = removal.count; n > 0 && status == SANDBOX_OK; n--) {
        (void)unlinkat(removal.tree, removal.paths[n - 1], AT_REMOVEDIR);
        status = sbx_wait_check(wait, error);
    }
    return status != SANDBOX_OK ? status : sbx_tree_remove(folder, name, error);
}

/* A walk goes down level by level, so that the paths stand in the order of their depth. */
static sandbox_status remove_files(void *data, const char *path, struct sbx_walk_list *below,
                                   sandbox_error *error)
{
    struct removal *removal = data;
    int fd = sbx_beneath_open(removal->tree, path, O_RDONLY | O_DIRECTORY, 0); /* into no mount */
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (directory == NULL) {
        sbx_close_fd(&fd);
        return SANDBOX_OK; /* the last call says what cannot be removed */
    }
    sandbox_status status = SANDBOX_OK;
    for (struct dirent *entry; status == SANDBOX_OK && (entry = readdir(directory)) != NULL;) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
            unlinkat(dirfd(directory), name, 0) < 0 && errno == EISDIR &&
            removal->count < NOTED_MAX)
            status = sbx_walk_add(below, path, name, error);
    }
    closedir(directory);
    if (status != SANDBOX_OK)
        return status;
    pthread_mutex_lock(&removal->mutex);
    status = note_directory(removal, path, error);
    pthread_mutex_unlock(&removal->mutex);
    return status;
}

static sandbox_status note_directory(struct removal *removal, const char *path,
                                     sandbox_error *error)
{
    if (removal->count == removal->room) {
        size_t room = removal->room == 0 ? 1024 : removal->room * 2;
        char **larger = realloc(removal->paths, room * sizeof *larger);
        if (larger == NULL)
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to remove a tree");
        removal->paths = larger;
        removal->room = room;
    }
    removal->paths[removal->count] = sbx_copy(path);
    if (removal->paths[removal->count] == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to remove a tree");
    removal->count++;
    return SANDBOX_OK;
}

static void end_removal(struct removal *removal)
{
    for (size_t n = 0; n < removal->count; n++)
        free(removal->paths[n]);
    free(removal->paths);
    sbx_close_fd(&removal->tree);
    pthread_mutex_destroy(&removal->mutex);
}
