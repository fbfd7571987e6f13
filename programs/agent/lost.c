/* Who holds on to removed files of the host: see lost.h. */

#include "lost.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOUNTS_MAX     16
#define MOUNT_BYTES    256
#define TARGET_BYTES   (4096 + 16)
#define MAP_LINES_MAX  (1u << 17)
#define MAP_LINE_BYTES (4096 + 128)

/* Where the host's files are: the directories of the workspace that are kept. */
struct mounts {
    char points[MOUNTS_MAX][MOUNT_BYTES];
    size_t count;
};

static bool read_mounts(struct mounts *out);
static bool find_lost(pid_t pid, const struct mounts *mounts, char target[TARGET_BYTES]);
static bool is_lost(const struct mounts *mounts, char *target);
static bool find_in_directory(pid_t pid, const struct mounts *mounts, char target[TARGET_BYTES]);
static bool find_in_maps(pid_t pid, const struct mounts *mounts, char target[TARGET_BYTES]);

static const char mark[] = " (deleted)";

bool agent_lost_look(struct agent_park_report *report)
{
    struct mounts mounts = {.count = 0};
    if (!read_mounts(&mounts))
        return false;
    DIR *directory = mounts.count == 0 ? NULL : opendir("/proc");
    if (directory == NULL)
        return mounts.count == 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char *end, target[TARGET_BYTES];
        pid_t pid = (pid_t)strtol(entry->d_name, &end, 10);
        if (pid <= 0 || *end != '\0' || !find_lost(pid, &mounts, target))
            continue;
        struct agent_park_obstacle *obstacle = agent_park_add_obstacle(report, pid);
        if (obstacle == NULL)
            break;
        obstacle->file_size = strnlen(target, sizeof obstacle->file);
        memcpy(obstacle->file, target, obstacle->file_size);
    }
    closedir(directory);
    return true;
}

/* A sentry calls its way to the host's files by an old name. */
static bool read_mounts(struct mounts *out)
{
    FILE *file = fopen("/proc/self/mounts", "re");
    char line[1024], point[MOUNT_BYTES], type[32];
    if (file == NULL)
        return false;
    while (out->count < MOUNTS_MAX && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%*s %255s %31s", point, type) == 2 && strcmp(type, "9p") == 0)
            memcpy(out->points[out->count++], point, sizeof point);
    }
    fclose(file);
    return true;
}

/* What vanishes meanwhile holds on to nothing. */
static bool find_lost(pid_t pid, const struct mounts *mounts, char target[TARGET_BYTES])
{
    static const char *const links[] = {"cwd", "exe", "root"};
    char path[64];
    for (size_t at = 0; at < sizeof links / sizeof *links; at++) {
        snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, links[at]);
        ssize_t size = readlink(path, target, TARGET_BYTES - 1);
        target[size > 0 ? size : 0] = '\0';
        if (is_lost(mounts, target))
            return true;
    }
    return find_in_directory(pid, mounts, target) || find_in_maps(pid, mounts, target);
}

/* Cuts the mark off then. A file may really be called so. */
static bool is_lost(const struct mounts *mounts, char *target)
{
    size_t size = strlen(target), ending = sizeof mark - 1;
    bool inside = false;
    struct stat facts;
    if (size <= ending || strcmp(target + size - ending, mark) != 0)
        return false;
    for (size_t at = 0; at < mounts->count && !inside; at++) {
        size_t prefix = strlen(mounts->points[at]);
        inside = strncmp(target, mounts->points[at], prefix) == 0 && target[prefix] == '/';
    }
    if (!inside || lstat(target, &facts) == 0)
        return false;
    target[size - ending] = '\0';
    return true;
}

static bool find_in_directory(pid_t pid, const struct mounts *mounts, char target[TARGET_BYTES])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *directory = opendir(path);
    bool found = false;
    for (struct dirent *entry;
         directory != NULL && !found && (entry = readdir(directory)) != NULL;) {
        ssize_t size = readlinkat(dirfd(directory), entry->d_name, target, TARGET_BYTES - 1);
        target[size > 0 ? size : 0] = '\0';
        found = is_lost(mounts, target);
    }
    if (directory != NULL)
        closedir(directory);
    return found;
}

static bool find_in_maps(pid_t pid, const struct mounts *mounts, char target[TARGET_BYTES])
{
    char path[64], line[MAP_LINE_BYTES];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *file = fopen(path, "re");
    bool found = false;
    for (unsigned count = 0; file != NULL && !found && count < MAP_LINES_MAX &&
                             fgets(line, sizeof line, file) != NULL;
         count++) {
        const char *name = strchr(line, '/');
        line[strcspn(line, "\n")] = '\0';
        if (name == NULL)
            continue;
        snprintf(target, TARGET_BYTES, "%s", name);
        found = is_lost(mounts, target);
    }
    if (file != NULL)
        fclose(file);
    return found;
}
