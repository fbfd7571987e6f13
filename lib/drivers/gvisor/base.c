/*
 * Bases: root file systems made from the host's userland, one for each state of its packages.
 * What is made surrounds the programs; the programs themselves are hard links (farm.c), so that
 * an upgrade of the host leaves them as they are. Where none can be made, on another file system,
 * the host's own are bound in when a workspace starts, and an upgrade shows through.
 */

#include "drivers/gvisor/gvisor.h"
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

/* Raise it when what is made here changes. */
#define BASE_LAYOUT   2
#define FACTS_MAX     4096
#define WATCHED_BYTES (4u << 20)
#define LOCAL_MAX     4096
#define LOCAL_DEPTH   16

/* The state of the host's packages shows in these, and what has no package in /usr/local. */
static const char *const watched[] = {
    "var/lib/dpkg/status", "var/lib/rpm", "usr", "usr/bin", "usr/sbin", "usr/lib",
    "usr/lib64",           NULL};

static sandbox_status look_at_host(struct sbx_gvisor *driver, int root, int etc, bool *farm,
                                   char digest[SBX_GVISOR_DIGEST_TEXT], sandbox_error *error);
static void add_facts(struct sbx_bytes *text, int at, const char *path);
static void add_local(struct sbx_bytes *text, int at, const char *name, unsigned depth,
                      unsigned *left);
static sandbox_status install(struct sbx_gvisor *driver, int root, int etc, bool farm,
                              const char *digest, const struct sbx_wait *wait,
                              sandbox_error *error);
static sandbox_status fill(struct sbx_gvisor *driver, int root, int etc, bool farm,
                           const struct sbx_wait *wait, sandbox_error *error);
static sandbox_status read_facts(struct sbx_gvisor *driver, const char *digest, bool *farm,
                                 sandbox_error *error);
static sandbox_status open_host(struct sbx_gvisor *driver, int *root, int *etc,
                                sandbox_error *error);

sandbox_status sbx_gvisor_base(struct sbx_gvisor *driver, const struct sbx_wait *wait,
                               char digest[SBX_GVISOR_DIGEST_TEXT], sandbox_error *error)
{
    SBX_ON_EXIT(sbx_close_fd) int root = -1;
    SBX_ON_EXIT(sbx_close_fd) int etc = -1;
    bool farm = false;
    sandbox_status status = open_host(driver, &root, &etc, error);
    if (status == SANDBOX_OK)
        status = look_at_host(driver, root, etc, &farm, digest, error);
    if (status != SANDBOX_OK)
        return status;
    char path[SBX_GVISOR_DIGEST_TEXT + 8];
    snprintf(path, sizeof path, "base/%s", digest);
    if (faccessat(driver->directory, path, F_OK, 0) == 0)
        return SANDBOX_OK;

    SBX_ON_EXIT(sbx_close_fd) int lock = -1;
    status = sbx_file_lock(driver->directory, "locks/base.build", true, wait, &lock, error);
    if (status != SANDBOX_OK)
        return status;
    if (faccessat(driver->directory, path, F_OK, 0) == 0)
        return SANDBOX_OK;
    return install(driver, root, etc, farm, digest, wait, error);
}

sandbox_status sbx_gvisor_base_find(struct sbx_gvisor *driver, const char *digest, char **lower,
                                    char **userland, sandbox_error *error)
{
    bool farm = false;
    sandbox_status status = read_facts(driver, digest, &farm, error);
    if (status != SANDBOX_OK)
        return status;
    SBX_ON_EXIT(sbx_free_text) char *root = sbx_gvisor_path(driver, "base/%s/root", digest);
    *userland = sbx_copy(farm ? root : driver->host);
    if (root == NULL || *userland == NULL) {
        free(sbx_take(*userland));
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    }
    *lower = sbx_take(root);
    return SANDBOX_OK;
}

/* Where the host's own programs are bound in, what they are is what was watched. */
sandbox_status sbx_gvisor_base_print(struct sbx_gvisor *driver, const char *digest,
                                     const struct sbx_wait *wait,
                                     char contents[SBX_GVISOR_DIGEST_TEXT], sandbox_error *error)
{
    bool farm = false;
    sandbox_status status = read_facts(driver, digest, &farm, error);
    if (status != SANDBOX_OK)
        return status;
    if (!farm) {
        SBX_ON_EXIT(sbx_close_fd) int root = -1;
        SBX_ON_EXIT(sbx_close_fd) int etc = -1;
        status = open_host(driver, &root, &etc, error);
        return status != SANDBOX_OK ? status
                                    : look_at_host(driver, root, etc, NULL, contents, error);
    }
    char path[SBX_GVISOR_DIGEST_TEXT + 16];
    snprintf(path, sizeof path, "base/%s/root", digest);
    SBX_ON_EXIT(sbx_close_fd)
    int base = openat(driver->directory, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (base < 0)
        return sbx_fail_errno(error, errno, "cannot look at '%s'", path);
    return sbx_gvisor_print(base, wait, contents, error);
}

static sandbox_status open_host(struct sbx_gvisor *driver, int *root, int *etc,
                                sandbox_error *error)
{
    *root = open(driver->host, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *etc = *root < 0 ? -1 : openat(*root, "etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*etc < 0)
        return sbx_fail_errno(error, errno, "cannot read the host's userland");
    return SANDBOX_OK;
}

/* @param farm  NULL: it is known to be none */
static sandbox_status look_at_host(struct sbx_gvisor *driver, int root, int etc, bool *farm,
                                   char digest[SBX_GVISOR_DIGEST_TEXT], sandbox_error *error)
{
    SBX_ON_EXIT(sbx_bytes_free) struct sbx_bytes text = SBX_BYTES(WATCHED_BYTES);
    if (farm != NULL)
        *farm = sbx_gvisor_farm_is_possible(driver->directory, root, driver->host);
    if (!sbx_bytes_format(&text, "layout %d %s\n", BASE_LAYOUT,
                          farm != NULL && *farm ? "links" : "bound"))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for the base's digest");
    for (size_t n = 0; watched[n] != NULL; n++)
        add_facts(&text, root, watched[n]);
    for (size_t n = 0; sbx_gvisor_base_copied[n] != NULL; n++)
        add_facts(&text, etc, sbx_gvisor_base_copied[n]);
    unsigned left = LOCAL_MAX;
    add_local(&text, root, "usr/local", 0, &left);
    uint8_t bytes[SBX_DIGEST_BYTES];
    sbx_sha256(sbx_bytes_data(&text), sbx_bytes_size(&text), bytes);
    sbx_hex_print(bytes, sizeof bytes, digest);
    return SANDBOX_OK;
}

static void add_facts(struct sbx_bytes *text, int at, const char *path)
{
    struct stat facts;
    if (fstatat(at, path, &facts, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    (void)sbx_bytes_format(text, "%s %u %" PRIu64 " %" PRId64 " %" PRId64 ".%09ld\n", path,
                           facts.st_mode, (uint64_t)facts.st_ino, (int64_t)facts.st_size,
                           (int64_t)facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec);
}

/* Every directory: its time tells of new, removed and renamed files. Past a number, no more. */
static void add_local(struct sbx_bytes *text, int at, const char *name, unsigned depth,
                      unsigned *left)
{
    int fd = *left == 0 || depth > LOCAL_DEPTH
                 ? -1
                 : openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (directory == NULL) {
        sbx_close_fd(&fd);
        return;
    }
    (*left)--;
    add_facts(text, at, name);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN))
            add_local(text, dirfd(directory), entry->d_name, depth + 1, left);
    }
    closedir(directory);
}

/* With the build lock held, so that what lies about is nobody's. */
static sandbox_status install(struct sbx_gvisor *driver, int root, int etc, bool farm,
                              const char *digest, const struct sbx_wait *wait, sandbox_error *error)
{
    /* Removing it would take as long again: pins.c does, when there is time. */
    char unique[SBX_ID_TEXT], gone[48];
    if (!sbx_id_fresh(unique))
        return sbx_fail(error, SANDBOX_FAILED, "the kernel gives no random bytes");
    snprintf(gone, sizeof gone, "base/gone.%s", unique);
    if (renameat(driver->directory, "base/new", driver->directory, gone) < 0 && errno != ENOENT)
        return sbx_fail_errno(error, errno, "cannot put half a base aside");
    sandbox_status status = sbx_gvisor_directory(driver->directory, "base/new", 0755, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_directory(driver->directory, "base/new/root", 0755, error);
    if (status == SANDBOX_OK)
        status = fill(driver, root, etc, farm, wait, error);
    char facts[64], path[SBX_GVISOR_DIGEST_TEXT + 8];
    snprintf(facts, sizeof facts, "{\"userland\":\"%s\"}\n", farm ? "links" : "bound");
    if (status == SANDBOX_OK)
        status = sbx_gvisor_file(driver->directory, "base/new/facts.json", facts, strlen(facts),
                                 0600, error);
    if (status != SANDBOX_OK)
        return status;
    snprintf(path, sizeof path, "base/%s", digest);
    /* Its name promises that all of it is there, after a power cut too. */
    if (syncfs(driver->directory) < 0 ||
        renameat(driver->directory, "base/new", driver->directory, path) < 0)
        return sbx_fail_errno(error, errno, "cannot finish the base");
    return sbx_directory_sync(driver->directory, "base", error);
}

static sandbox_status fill(struct sbx_gvisor *driver, int root, int etc, bool farm,
                           const struct sbx_wait *wait, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_close_fd)
    int target = openat(driver->directory, "base/new/root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (target < 0)
        return sbx_fail_errno(error, errno, "cannot open the new base");
    sandbox_status status = sbx_gvisor_base_build(target, etc, root, error);
    if (status != SANDBOX_OK || !farm)
        return status;
    /* Those that are directories on the host are so in the base by now. */
    const char *names[16] = {NULL};
    size_t count = 0;
    for (size_t n = 0; sbx_gvisor_base_programs[n] != NULL; n++) {
        struct stat facts;
        if (fstatat(root, sbx_gvisor_base_programs[n], &facts, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISDIR(facts.st_mode))
            names[count++] = sbx_gvisor_base_programs[n];
    }
    return sbx_gvisor_farm_make(root, target, names, driver->directory, wait, error);
}

static sandbox_status read_facts(struct sbx_gvisor *driver, const char *digest, bool *farm,
                                 sandbox_error *error)
{
    char path[SBX_GVISOR_DIGEST_TEXT + 32];
    snprintf(path, sizeof path, "base/%s/facts.json", digest);
    uint8_t *text = NULL;
    size_t size = 0;
    sandbox_status status = sbx_file_read(driver->directory, path, FACTS_MAX, &text, &size, error);
    SBX_ON_EXIT(sbx_free_text) char *held = (char *)text;
    if (status == SANDBOX_NOT_FOUND)
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "pin-missing",
                            "the base that the workspace was started on is not there any more: "
                            "'%s/%s'",
                            driver->settings.state, path);
    SBX_ON_EXIT(sbx_json_free) cJSON *facts = NULL;
    if (status == SANDBOX_OK)
        status = sbx_json_parse(held, size, FACTS_MAX, &facts, error);
    if (status == SANDBOX_OK)
        *farm = strcmp(sbx_json_text(facts, "userland"), "links") == 0;
    return status;
}
