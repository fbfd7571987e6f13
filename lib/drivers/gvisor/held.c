/*
 * The files of its root file system that a sandbox holds: what its programs have open or mapped.
 * They are what a memory image stands on; everything else is looked up by name again, as it is in
 * a workspace that runs. There are some dozens of them in a base of a hundred thousand files.
 *
 * runsc keeps a descriptor, in the sandbox or in its gofer, for each file that is in use, so the
 * lists of descriptors tell. Where something in them is not understood nothing is listed, and the
 * print of the whole file system (print.c) is taken instead.
 */

#include "drivers/gvisor/snapshot.h"
#include "util/bytes.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include "util/random.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIST_NAME     "base.list"
#define LIST_MAX      (16u << 20)
#define LINE_MAX      (SBX_GVISOR_PATH + 128)
#define PROCESSES_MAX 64

/* The looks at the descriptors of one sandbox. */
struct look {
    int root, layer; /* the base, and what of the root file system is the workspace's own */
    char *base, *state;   /* paths: of the base, and of the state directory, each with a slash */
    const cJSON *mounts;  /* of config.json: what lies over the root */
    struct sbx_bytes lines;
};

static bool open_root(struct sbx_gvisor *driver, const struct sbx_gvisor_pins *pins,
                      const char *image, char **base, int *root, sandbox_status *status,
                      sandbox_error *error);
static bool begin_look(struct sbx_gvisor *driver, const char *id, const char *base,
                       struct look *look);
static void end_look(struct look *look);
static bool look_at_process(struct look *look, pid_t pid);
static bool take_file(struct look *look, int files, const char *name, const char *target);
static bool is_same(int directory, const char *path, const struct stat *held, struct stat *named);
static bool is_mounted_over(const struct look *look, const char *path);
static bool is_of_runsc(const struct look *look, const char *target, const struct stat *held);
static bool write_line(char line[LINE_MAX], const struct stat *facts, const char *path);
static bool sort_lines(struct sbx_bytes *lines);
static sandbox_status check_lines(int root, char *text, sandbox_error *error);

sandbox_status sbx_gvisor_held_list(struct sbx_gvisor *driver, const struct sbx_record *record,
                                    const struct sbx_gvisor_pins *pins, const char *config,
                                    int directory, char contents[SBX_GVISOR_DIGEST_TEXT],
                                    sandbox_error *error)
{
    SBX_ON_EXIT(end_look)
    struct look look = {.root = -1, .layer = -1, .lines = SBX_BYTES(LIST_MAX)};
    SBX_ON_EXIT(sbx_free_text) char *base = NULL;
    SBX_ON_EXIT(sbx_json_free) cJSON *json = NULL;
    sandbox_status status = SANDBOX_OK;
    contents[0] = '\0';
    if (!open_root(driver, pins, record->image, &base, &look.root, &status, error))
        return status;
    status = sbx_json_parse(config, strlen(config), LIST_MAX, &json, error);
    if (status != SANDBOX_OK)
        return status;
    look.mounts = cJSON_GetObjectItemCaseSensitive(json, "mounts");
    pid_t pids[PROCESSES_MAX];
    size_t count = sbx_gvisor_started_for(driver, record->id, pids, PROCESSES_MAX);
    bool clear = count > 0 && count < PROCESSES_MAX && begin_look(driver, record->id, base, &look);
    for (size_t n = 0; n < count && clear; n++)
        clear = look_at_process(&look, pids[n]);
    if (!clear || !sort_lines(&look.lines))
        return SANDBOX_OK;
    uint8_t hash[SBX_DIGEST_BYTES];
    const char *text = (const char *)sbx_bytes_data(&look.lines);
    size_t size = sbx_bytes_size(&look.lines);
    status = sbx_gvisor_file(directory, LIST_NAME, size == 0 ? "" : text, size, 0600, error);
    sbx_sha256(text, size, hash);
    if (status == SANDBOX_OK)
        sbx_hex_print(hash, sizeof hash, contents);
    return status;
}

bool sbx_gvisor_held_has_list(const struct sbx_gvisor_manifest *manifest)
{
    for (size_t n = 0; n < manifest->part_count; n++) {
        if (strcmp(manifest->parts[n].path, LIST_NAME) == 0)
            return true;
    }
    return false;
}

sandbox_status sbx_gvisor_held_check(struct sbx_gvisor *driver,
                                     const struct sbx_gvisor_manifest *manifest, const char *image,
                                     int directory, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_close_fd) int root = -1;
    sandbox_status status = SANDBOX_OK;
    SBX_ON_EXIT(sbx_free_text) char *base = NULL;
    if (!open_root(driver, &manifest->pins, image, &base, &root, &status, error))
        return status != SANDBOX_OK
                   ? status
                   : sbx_fail_for(error, SANDBOX_NOT_RESTORED, "base-changed",
                                  "the base of the snapshot is not what it was taken over");
    uint8_t *data = NULL, hash[SBX_DIGEST_BYTES];
    size_t size = 0;
    char digest[SBX_GVISOR_DIGEST_TEXT];
    status = sbx_file_read(directory, LIST_NAME, LIST_MAX, &data, &size, error);
    if (status != SANDBOX_OK)
        return status;
    SBX_ON_EXIT(sbx_free_text) char *text = (char *)data;
    sbx_sha256(text, size, hash);
    sbx_hex_print(hash, sizeof hash, digest);
    if (strcmp(digest, manifest->contents) != 0)
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "snapshot-damaged",
                            "'" LIST_NAME "' of the snapshot is not what was recorded");
    return check_lines(root, text, error);
}

/* False with SANDBOX_OK: there is no one file system that all programs are from. */
static bool open_root(struct sbx_gvisor *driver, const struct sbx_gvisor_pins *pins,
                      const char *image, char **base, int *root, sandbox_status *status,
                      sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *userland = NULL;
    if (pins->base[0] != '\0') {
        *status = sbx_gvisor_base_find(driver, pins->base, base, &userland, error);
        if (*status != SANDBOX_OK || strcmp(*base, userland) != 0)
            return false;
    } else {
        *base = sbx_copy(image == NULL ? "" : image);
        if (*base == NULL) {
            *status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
            return false;
        }
    }
    *root = open(*base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*root < 0)
        *status = sbx_fail_for(error, SANDBOX_NOT_RESTORED, "pin-missing",
                               "the root file system '%s' is not there any more", *base);
    return *root >= 0;
}

static bool begin_look(struct sbx_gvisor *driver, const char *id, const char *base,
                       struct look *look)
{
    char path[64];
    snprintf(path, sizeof path, "workspaces/%s/layer", id);
    look->layer = openat(driver->directory, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    look->base = sbx_format("%s/", base);
    look->state = sbx_format("%s/", driver->settings.state);
    return look->layer >= 0 && look->base != NULL && look->state != NULL;
}

static void end_look(struct look *look)
{
    sbx_close_fd(&look->root);
    sbx_close_fd(&look->layer);
    free(look->base);
    free(look->state);
    sbx_bytes_free(&look->lines);
}

/* False: it cannot be told. */
static bool look_at_process(struct look *look, pid_t pid)
{
    char path[48], target[SBX_GVISOR_PATH];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *files = opendir(path);
    bool clear = files != NULL;
    struct dirent *entry;
    while (clear && (errno = 0, entry = readdir(files)) != NULL) {
        ssize_t size = readlinkat(dirfd(files), entry->d_name, target, sizeof target - 1);
        if (size < 0 && (errno == EINVAL || errno == ENOENT))
            continue; /* "." and "..", and what was closed by now */
        clear = size > 0 && (size_t)size < sizeof target - 1;
        target[size > 0 ? size : 0] = '\0';
        clear = clear && (target[0] != '/' || take_file(look, dirfd(files), entry->d_name, target));
    }
    clear = clear && errno == 0;
    if (files != NULL)
        closedir(files);
    return clear;
}

/*
 * Its processes see the root file system as "/root" or as "/", or by its path on this host. An
 * overlay lies over it, which tells the numbers of the files below, and has a device of its own.
 */
static bool take_file(struct look *look, int files, const char *name, const char *target)
{
    struct stat held, named;
    char line[LINE_MAX];
    const char *path = strncmp(target, "/root/", 6) == 0 ? target + 5 : target;
    size_t base = strlen(look->base);
    bool is_below = strncmp(target, look->base, base) == 0;
    if (!is_below && (is_mounted_over(look, path) || is_mounted_over(look, target) ||
                      strncmp(target, "/memfd:", 7) == 0 || strncmp(target, "/proc/", 6) == 0))
        return true;
    if (fstatat(files, name, &held, 0) < 0)
        return errno == ENOENT;
    if (!S_ISREG(held.st_mode) || is_of_runsc(look, target, &held))
        return true;
    const char *const names[] = {is_below ? target + base : NULL, path + 1, target + 1};
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        if (names[n] != NULL && is_same(look->root, names[n], &held, &named))
            return write_line(line, &named, names[n]) &&
                   sbx_bytes_append(&look->lines, line, strlen(line));
        if (names[n] != NULL && is_same(look->layer, names[n], &held, &named))
            return true;
    }
    return false;
}

static bool is_same(int directory, const char *path, const struct stat *held, struct stat *named)
{
    return fstatat(directory, path, named, AT_SYMLINK_NOFOLLOW) == 0 &&
           named->st_ino == held->st_ino && named->st_size == held->st_size &&
           named->st_mtim.tv_sec == held->st_mtim.tv_sec &&
           named->st_mtim.tv_nsec == held->st_mtim.tv_nsec;
}

static bool is_mounted_over(const struct look *look, const char *path)
{
    const cJSON *mount;
    cJSON_ArrayForEach(mount, look->mounts)
    {
        const char *point = sbx_json_text(mount, "destination");
        size_t size = strlen(point);
        if (size > 1 && strncmp(path, point, size) == 0 && (path[size] == '/' || !path[size]))
            return true;
    }
    return false;
}

/* Its own program, configuration and logs. */
static bool is_of_runsc(const struct look *look, const char *target, const struct stat *held)
{
    struct stat named;
    return strncmp(target, look->state, strlen(look->state)) == 0 &&
           strncmp(target, look->base, strlen(look->base)) != 0 &&
           is_same(AT_FDCWD, target, held, &named) && named.st_dev == held->st_dev;
}

/* INODE SIZE TIME PATH. False for a name that would not fit in a line. */
static bool write_line(char line[LINE_MAX], const struct stat *facts, const char *path)
{
    int size = snprintf(line, LINE_MAX, "%" PRIu64 " %" PRId64 " %" PRId64 ".%09ld %s\n",
                        (uint64_t)facts->st_ino, (int64_t)facts->st_size,
                        (int64_t)facts->st_mtim.tv_sec, facts->st_mtim.tv_nsec, path);
    return size > 0 && size < LINE_MAX && strchr(path, '\n') == NULL;
}

static int compare_lines(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Each once: a file is held by several descriptors. */
static bool sort_lines(struct sbx_bytes *lines)
{
    size_t size = sbx_bytes_size(lines), count = 0;
    const char *text = size == 0 ? "" : (const char *)sbx_bytes_data(lines);
    SBX_ON_EXIT(sbx_free_text) char *copy = sbx_format("%.*s", (int)size, text);
    for (size_t n = 0; n < size; n++)
        count += text[n] == '\n';
    char **all = calloc(count + 1, sizeof *all);
    bool good = copy != NULL && all != NULL;
    char *at = copy;
    for (size_t n = 0; good && n < count; n++) {
        all[n] = at;
        at = strchr(at, '\n');
        *at++ = '\0';
    }
    if (good)
        qsort(all, count, sizeof *all, compare_lines);
    sbx_bytes_skip(lines, size);
    for (size_t n = 0; good && n < count; n++)
        good = (n > 0 && strcmp(all[n - 1], all[n]) == 0) ||
               sbx_bytes_format(lines, "%s\n", all[n]);
    free(all);
    return good;
}

static sandbox_status check_lines(int root, char *text, sandbox_error *error)
{
    for (char *at = text, *end; *at != '\0'; at = end + 1) {
        struct stat facts;
        char line[LINE_MAX], *path = at;
        end = strchr(at, '\n');
        for (int spaces = 0; path != NULL && spaces < 3; spaces++)
            path = strchr(path, ' ') == NULL ? NULL : strchr(path, ' ') + 1;
        if (end == NULL || path == NULL || path > end)
            return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "snapshot-damaged",
                                "'" LIST_NAME "' of the snapshot is damaged");
        *end = '\0';
        if (fstatat(root, path, &facts, AT_SYMLINK_NOFOLLOW) < 0 ||
            !write_line(line, &facts, path) || strncmp(line, at, strlen(at)) != 0)
            return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "base-changed",
                                "'/%s', which programs in the snapshot use, was changed in place "
                                "after it was taken, so that they would meet another file; its "
                                "files can be restored without its processes",
                                path);
    }
    return SANDBOX_OK;
}
