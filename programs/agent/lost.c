/* Who holds on to what the runtime cannot save: see lost.h. */

#include "lost.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOUNTS_MAX     16
#define MOUNT_BYTES    256
#define PATH_BYTES     (4096 + 16)
#define MAP_LINES_MAX  (1u << 17)
#define MAP_LINE_BYTES (4096 + 128)

struct search {
    char points[MOUNTS_MAX][MOUNT_BYTES]; /* where the host's files are */
    size_t count;
    char ourselves[PATH_BYTES]; /* the agent's program */
    char path[PATH_BYTES];      /* what is looked at, or was found */
    bool of_host;               /* a descriptor of the host was found, else a removed file */
};

static bool read_mounts(struct search *search);
static bool look_at(struct search *search, pid_t pid);
static bool look_at_link(struct search *search, int at, const char *name);
static bool look_at_descriptors(struct search *search, pid_t pid);
static bool look_at_maps(struct search *search, pid_t pid);
static bool is_removed(struct search *search);

bool agent_lost_look(struct agent_park_report *report)
{
    struct search search = {.count = 0};
    DIR *directory = opendir("/proc");
    bool good = directory != NULL && read_mounts(&search) &&
                readlink("/proc/self/exe", search.ourselves, PATH_BYTES - 1) > 0;
    for (struct dirent *entry; good && (entry = readdir(directory)) != NULL;) {
        char *end;
        pid_t pid = (pid_t)strtol(entry->d_name, &end, 10);
        if (pid <= 0 || *end != '\0' || pid == getpid() || !look_at(&search, pid))
            continue;
        struct agent_park_obstacle *obstacle = agent_park_add_obstacle(report, pid);
        if (obstacle == NULL)
            break;
        if (search.of_host)
            snprintf(obstacle->what, sizeof obstacle->what, "the host's %.32s", search.path);
        else
            snprintf(obstacle->what, sizeof obstacle->what, "removed '%.200s'", search.path);
    }
    if (directory != NULL)
        closedir(directory);
    return good;
}

/* A sentry calls its way to the host's files by an old name. */
static bool read_mounts(struct search *search)
{
    FILE *file = fopen("/proc/self/mounts", "re");
    char line[1024], point[MOUNT_BYTES], type[32];
    if (file == NULL)
        return false;
    while (search->count < MOUNTS_MAX && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%*s %255s %31s", point, type) == 2 && strcmp(type, "9p") == 0)
            memcpy(search->points[search->count++], point, sizeof point);
    }
    fclose(file);
    return true;
}

/* What vanishes meanwhile holds on to nothing. */
static bool look_at(struct search *search, pid_t pid)
{
    static const char *const links[] = {"exe", "cwd", "root"};
    char name[64];
    for (size_t at = 0; at < sizeof links / sizeof *links; at++) {
        snprintf(name, sizeof name, "/proc/%d/%s", (int)pid, links[at]);
        if (look_at_link(search, AT_FDCWD, name))
            return true;
        if (at == 0 && strcmp(search->path, search->ourselves) == 0)
            return false; /* a relay */
    }
    return look_at_descriptors(search, pid) || look_at_maps(search, pid);
}

static bool look_at_link(struct search *search, int at, const char *name)
{
    ssize_t size = readlinkat(at, name, search->path, PATH_BYTES - 1);
    search->path[size > 0 ? size : 0] = '\0';
    search->of_host = strncmp(search->path, "host:[", 6) == 0;
    return search->of_host || is_removed(search);
}

static bool look_at_descriptors(struct search *search, pid_t pid)
{
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/fd", (int)pid);
    DIR *directory = opendir(name);
    bool found = false;
    for (struct dirent *entry;
         directory != NULL && !found && (entry = readdir(directory)) != NULL;)
        found = look_at_link(search, dirfd(directory), entry->d_name);
    if (directory != NULL)
        closedir(directory);
    return found;
}

static bool look_at_maps(struct search *search, pid_t pid)
{
    char name[64], line[MAP_LINE_BYTES];
    snprintf(name, sizeof name, "/proc/%d/maps", (int)pid);
    FILE *file = fopen(name, "re");
    bool found = false;
    for (unsigned count = 0; file != NULL && !found && count < MAP_LINES_MAX &&
                             fgets(line, sizeof line, file) != NULL;
         count++) {
        const char *path = strchr(line, '/');
        line[strcspn(line, "\n")] = '\0';
        snprintf(search->path, PATH_BYTES, "%.*s", PATH_BYTES - 1, path == NULL ? "" : path);
        found = is_removed(search);
    }
    search->of_host = search->of_host && !found;
    if (file != NULL)
        fclose(file);
    return found;
}

/* And lies on the host. Takes the mark off its path. */
static bool is_removed(struct search *search)
{
    static const char mark[] = " (deleted)";
    size_t size = strlen(search->path), ending = sizeof mark - 1;
    bool inside = false;
    struct stat facts;
    if (size <= ending || strcmp(search->path + size - ending, mark) != 0)
        return false;
    for (size_t at = 0; at < search->count && !inside; at++) {
        size_t prefix = strlen(search->points[at]);
        inside = strncmp(search->path, search->points[at], prefix) == 0 &&
                 search->path[prefix] == '/';
    }
    if (!inside || lstat(search->path, &facts) == 0) /* a file may be called so */
        return false;
    search->path[size - ending] = '\0';
    return true;
}
