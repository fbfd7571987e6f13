/*
 * What workspaces run on and snapshots need again, and when it may go.
 *
 * The rule: what a file of a workspace names is kept. A bundle's config.json names what its
 * instance runs on; it is written before the sandbox starts, and is there until the sandbox has
 * ended. A snapshot's manifest.json (and config.json beside it) names what its restore needs; it
 * is written while the bundle is still there. Whoever takes a digest into use that no such file of
 * the workspace names yet, be it the newest for a fresh start or a snapshot's for a restore, holds
 * the lock shared from before he looks whether it is there until config.json is written.
 *
 * So collecting, which holds the lock alone and reads each bundle before the snapshots beside it,
 * sees every name. A file that is there and cannot be read could name anything: then nothing is
 * removed. Nor is the newest of each kind, which the next start will want. What goes is renamed
 * under the lock, which takes no time, and removed after it, a while at each call: a base is a
 * hundred thousand links, and somebody waits for his workspace to be deleted.
 */

#include "drivers/gvisor/gvisor.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/log.h"
#include "util/memory.h"
#include "util/random.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* For bases, agents and runtimes. The first word keeps it beside the lock of who builds a base. */
#define PINS_LOCK  "locks/base.pins"
#define CONFIG_MAX (1u << 20)
#define NAMED_MAX  100000
#define REMOVE_MS  1000

static const char *const kinds[] = {"agents", "runtimes", "base", NULL};

/* The digests that something names, of whatever kind. */
struct named {
    char (*digests)[SBX_GVISOR_DIGEST_TEXT];
    size_t count, room;
};

static sandbox_status find(struct sbx_gvisor *driver, const char *kind, const char *digest,
                           sandbox_error *error);
static void read_pins(const cJSON *object, const char *prefix, struct sbx_gvisor_pins *out);
static bool has_spare(struct sbx_gvisor *driver);
static sandbox_status find_named(struct sbx_gvisor *driver, struct named *named,
                                 sandbox_error *error);
static void free_named(struct named *named);
static void condemn(struct sbx_gvisor *driver, const char *kind, const struct named *named);
static void remove_condemned(struct sbx_gvisor *driver, const char *kind,
                             const struct sbx_wait *wait);

sandbox_status sbx_gvisor_pins_of(struct sbx_gvisor *driver, const char *id,
                                  struct sbx_gvisor_pins *out, sandbox_error *error)
{
    char path[80];
    snprintf(path, sizeof path, "workspaces/%s/bundle/config.json", id);
    uint8_t *text = NULL;
    size_t size = 0;
    sandbox_status status = sbx_file_read(driver->directory, path, CONFIG_MAX, &text, &size, error);
    SBX_ON_EXIT(sbx_free_text) char *held = (char *)text;
    SBX_ON_EXIT(sbx_json_free) cJSON *config = NULL;
    if (status == SANDBOX_OK)
        status = sbx_json_parse(held, size, CONFIG_MAX, &config, error);
    if (status == SANDBOX_OK)
        read_pins(cJSON_GetObjectItemCaseSensitive(config, "annotations"), "org.libsandbox.", out);
    return status;
}

sandbox_status sbx_gvisor_pins_find(struct sbx_gvisor *driver, const struct sbx_gvisor_pins *pins,
                                    sandbox_error *error)
{
    sandbox_status status = find(driver, "base", pins->base, error);
    if (status == SANDBOX_OK)
        status = find(driver, "agents", pins->tools, error);
    return status != SANDBOX_OK ? status : find(driver, "runtimes", pins->runtime, error);
}

sandbox_status sbx_gvisor_pins_print(struct sbx_gvisor *driver, const struct sbx_gvisor_pins *pins,
                                     const char *image, const struct sbx_wait *wait,
                                     char contents[SBX_GVISOR_DIGEST_TEXT], sandbox_error *error)
{
    if (pins->base[0] != '\0')
        return sbx_gvisor_base_print(driver, pins->base, wait, contents, error);
    SBX_ON_EXIT(sbx_close_fd)
    int root = open(image == NULL ? "" : image, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "pin-missing",
                            "the image '%s' is not there any more", image == NULL ? "" : image);
    return sbx_gvisor_print(root, wait, contents, error);
}

sandbox_status sbx_gvisor_pins_check(struct sbx_gvisor *driver, const struct sbx_gvisor_pins *pins,
                                     const char *image, const char *contents,
                                     const struct sbx_wait *wait, sandbox_error *error)
{
    char now[SBX_GVISOR_DIGEST_TEXT] = "";
    sandbox_status status = sbx_gvisor_pins_find(driver, pins, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_pins_print(driver, pins, image, wait, now, error);
    if (status != SANDBOX_OK || strcmp(now, contents) == 0)
        return status;
    if (pins->base[0] == '\0')
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "base-changed",
                            "the image '%s' was changed after the snapshot was taken", image);
    return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "base-changed",
                        "programs of this host were changed in place after the snapshot was taken, "
                        "so that what was suspended would meet others; its files can be restored "
                        "without its processes");
}

sandbox_status sbx_gvisor_pins_hold(struct sbx_gvisor *driver, const struct sbx_wait *wait,
                                    int *lock, sandbox_error *error)
{
    return sbx_file_lock(driver->directory, PINS_LOCK, false, wait, lock, error);
}

void sbx_gvisor_pins_collect(struct sbx_gvisor *driver)
{
    if (!has_spare(driver))
        return;
    SBX_ON_EXIT(sbx_close_fd) int lock = -1;
    SBX_ON_EXIT(free_named) struct named named = {0};
    struct sbx_wait at_once = sbx_wait_alone(0);
    sandbox_error error = {0};
    sandbox_status status =
        sbx_file_lock(driver->directory, PINS_LOCK, true, &at_once, &lock, &error);
    if (status == SANDBOX_TIMED_OUT)
        return; /* somebody starts something; the next removal will do */
    if (status == SANDBOX_OK)
        status = find_named(driver, &named, &error);
    if (status != SANDBOX_OK) {
        sbx_log(SANDBOX_LOG_WARNING, "what no workspace needs any more is kept: %s", error.message);
        return;
    }
    for (size_t n = 0; kinds[n] != NULL; n++)
        condemn(driver, kinds[n], &named);
    sbx_close_fd(&lock);
    struct sbx_wait a_while = sbx_wait_alone(REMOVE_MS);
    for (size_t n = 0; kinds[n] != NULL; n++)
        remove_condemned(driver, kinds[n], &a_while);
}

/* "" is nothing to be found. */
static sandbox_status find(struct sbx_gvisor *driver, const char *kind, const char *digest,
                           sandbox_error *error)
{
    char path[SBX_GVISOR_DIGEST_TEXT + 16];
    snprintf(path, sizeof path, "%s/%s", kind, digest);
    if (digest[0] == '\0' || faccessat(driver->directory, path, F_OK, 0) == 0)
        return SANDBOX_OK;
    return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "pin-missing",
                        "'%s/%s', which the snapshot needs, is not there any more",
                        driver->settings.state, path);
}

static void read_pins(const cJSON *object, const char *prefix, struct sbx_gvisor_pins *out)
{
    struct {
        const char *name;
        char *digest;
    } const fields[] = {{"base", out->base}, {"tools", out->tools}, {"runtime", out->runtime}};
    for (size_t n = 0; n < sizeof fields / sizeof fields[0]; n++) {
        char name[48];
        snprintf(name, sizeof name, "%s%s", prefix, fields[n].name);
        snprintf(fields[n].digest, SBX_GVISOR_DIGEST_TEXT, "%s", sbx_json_text(object, name));
    }
}

static DIR *open_folder(int at, const char *path)
{
    int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (directory == NULL)
        sbx_close_fd(&fd);
    return directory;
}

/* The next entry that is not "." or ".."; NULL at the end. */
static const char *next_name(DIR *directory)
{
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            return entry->d_name;
    }
    return NULL;
}

/* Whether there is more of a kind than the newest. Mostly there is not, and that is soon seen. */
static bool has_spare(struct sbx_gvisor *driver)
{
    bool spare = false;
    for (size_t n = 0; kinds[n] != NULL && !spare; n++) {
        DIR *folder = open_folder(driver->directory, kinds[n]);
        if (folder == NULL)
            continue;
        unsigned count = 0;
        while (count < 2 && next_name(folder) != NULL)
            count++;
        spare = count == 2;
        closedir(folder);
    }
    return spare;
}

static bool is_named(const struct named *named, const char *digest)
{
    for (size_t n = 0; n < named->count; n++) {
        if (strcmp(named->digests[n], digest) == 0)
            return true;
    }
    return false;
}

static sandbox_status add_named(struct named *named, const char *digest, sandbox_error *error)
{
    if (digest[0] == '\0' || is_named(named, digest))
        return SANDBOX_OK;
    if (named->count == named->room) {
        size_t room = named->room == 0 ? 16 : named->room * 2;
        void *larger =
            room > NAMED_MAX ? NULL : realloc(named->digests, room * sizeof named->digests[0]);
        if (larger == NULL)
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for digests");
        named->digests = larger;
        named->room = room;
    }
    snprintf(named->digests[named->count++], SBX_GVISOR_DIGEST_TEXT, "%s", digest);
    return SANDBOX_OK;
}

/* What one file names: `object` of it, or all of it. What is not there names nothing. */
static sandbox_status add_file(int at, const char *path, const char *object, const char *prefix,
                               struct named *named, sandbox_error *error)
{
    uint8_t *text = NULL;
    size_t size = 0;
    sandbox_status status = sbx_file_read(at, path, CONFIG_MAX, &text, &size, error);
    SBX_ON_EXIT(sbx_free_text) char *held = (char *)text;
    SBX_ON_EXIT(sbx_json_free) cJSON *json = NULL;
    if (status == SANDBOX_NOT_FOUND)
        return SANDBOX_OK;
    if (status == SANDBOX_OK)
        status = sbx_json_parse(held, size, CONFIG_MAX, &json, error);
    if (status != SANDBOX_OK)
        return status;
    struct sbx_gvisor_pins pins = {0};
    read_pins(object == NULL ? json : cJSON_GetObjectItemCaseSensitive(json, object), prefix,
              &pins);
    status = add_named(named, pins.base, error);
    if (status == SANDBOX_OK)
        status = add_named(named, pins.tools, error);
    return status != SANDBOX_OK ? status : add_named(named, pins.runtime, error);
}

static sandbox_status add_snapshots(int workspace, struct named *named, sandbox_error *error)
{
    DIR *snapshots = open_folder(workspace, "snapshots");
    if (snapshots == NULL)
        return errno == ENOENT
                   ? SANDBOX_OK
                   : sbx_fail_errno(error, errno, "cannot list a workspace's snapshots");
    sandbox_status status = SANDBOX_OK;
    for (const char *name; status == SANDBOX_OK && (name = next_name(snapshots)) != NULL;) {
        char manifest[320], config[320];
        snprintf(manifest, sizeof manifest, "%s/manifest.json", name);
        snprintf(config, sizeof config, "%s/config.json", name);
        status = add_file(dirfd(snapshots), config, "annotations", "org.libsandbox.", named, error);
        if (status == SANDBOX_OK)
            status = add_file(dirfd(snapshots), manifest, NULL, "", named, error);
    }
    closedir(snapshots);
    return status;
}

static sandbox_status find_named(struct sbx_gvisor *driver, struct named *named,
                                 sandbox_error *error)
{
    DIR *workspaces = open_folder(driver->directory, "workspaces");
    if (workspaces == NULL)
        return sbx_fail_errno(error, errno, "cannot list the workspaces");
    sandbox_status status = SANDBOX_OK;
    for (const char *name; status == SANDBOX_OK && (name = next_name(workspaces)) != NULL;) {
        SBX_ON_EXIT(sbx_close_fd)
        int workspace =
            openat(dirfd(workspaces), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (workspace < 0 && (errno == ENOENT || errno == ENOTDIR))
            continue;
        if (workspace < 0)
            status = sbx_fail_errno(error, errno, "cannot look at the workspace %s", name);
        else
            status = add_file(workspace, "bundle/config.json", "annotations", "org.libsandbox.",
                              named, error);
        if (status == SANDBOX_OK)
            status = add_snapshots(workspace, named, error);
    }
    closedir(workspaces);
    return status;
}

static void free_named(struct named *named)
{
    free(named->digests);
}

static bool is_newer(const struct stat *facts, const struct stat *than)
{
    return facts->st_ctim.tv_sec != than->st_ctim.tv_sec
               ? facts->st_ctim.tv_sec > than->st_ctim.tv_sec
               : facts->st_ctim.tv_nsec > than->st_ctim.tv_nsec;
}

/* All of one kind but what is named, and the newest that is whole. */
static void condemn(struct sbx_gvisor *driver, const char *kind, const struct named *named)
{
    DIR *folder = open_folder(driver->directory, kind);
    if (folder == NULL)
        return;
    struct stat facts, newest_facts = {0};
    char newest[SBX_GVISOR_DIGEST_TEXT] = "";
    for (const char *name; (name = next_name(folder)) != NULL;) {
        if (strlen(name) == sizeof newest - 1 && fstatat(dirfd(folder), name, &facts, 0) == 0 &&
            (newest[0] == '\0' || is_newer(&facts, &newest_facts))) {
            snprintf(newest, sizeof newest, "%s", name);
            newest_facts = facts;
        }
    }
    rewinddir(folder);
    for (const char *name; (name = next_name(folder)) != NULL;) {
        char unique[SBX_ID_TEXT], gone[48];
        if (strcmp(name, newest) == 0 || strncmp(name, "gone.", 5) == 0 || is_named(named, name) ||
            !sbx_id_fresh(unique))
            continue;
        snprintf(gone, sizeof gone, "gone.%s", unique);
        if (renameat(dirfd(folder), name, dirfd(folder), gone) < 0)
            sbx_log(SANDBOX_LOG_WARNING, "cannot remove '%s/%s'", kind, name);
    }
    closedir(folder);
}

static void remove_condemned(struct sbx_gvisor *driver, const char *kind,
                             const struct sbx_wait *wait)
{
    DIR *folder = open_folder(driver->directory, kind);
    if (folder == NULL)
        return;
    sandbox_status status = SANDBOX_OK;
    for (const char *name; status == SANDBOX_OK && (name = next_name(folder)) != NULL;) {
        if (strncmp(name, "gone.", 5) != 0)
            continue;
        sandbox_error error = {0};
        status = sbx_gvisor_remove(dirfd(folder), name, wait, &error);
        if (status != SANDBOX_OK && status != SANDBOX_TIMED_OUT)
            sbx_log(SANDBOX_LOG_WARNING, "%s", error.message);
    }
    closedir(folder);
}
