/*
 * A workspace on disk: its own files, a thin layer over the root file system that holds the
 * mount points and what names the workspace, and the bundle that tells runsc.
 *
 * Nothing is ever written into the base or an image: the kernel shows layer and root file system
 * together, read-only, and what the guest writes stays in gVisor's memory.
 */

#include "drivers/gvisor/gvisor.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PASSWD_MAX  (1u << 20)
#define PRELOAD_MAX (16u << 10)
#define SHIM        "/.sandbox/sandbox-shim.so"

static sandbox_status choose_pins(struct sbx_gvisor *driver, const struct sbx_record *record,
                                  const struct sbx_gvisor_pins *wanted, const struct sbx_wait *wait,
                                  struct sbx_gvisor_bundle *bundle, sandbox_error *error);
static sandbox_status choose_root(struct sbx_gvisor *driver, const struct sbx_record *record,
                                  struct sbx_gvisor_bundle *bundle, sandbox_error *error);
static sandbox_status check_image(struct sbx_gvisor *driver, const char *image, char **real,
                                  sandbox_error *error);
static sandbox_status choose_user(const struct sbx_record *record, struct sbx_gvisor_bundle *bundle,
                                  sandbox_error *error);
static bool home_is_usable(const char *home);
static sandbox_status make_files(int workspace, const struct sbx_gvisor_bundle *bundle,
                                 sandbox_error *error);
static sandbox_status make_layer(int workspace, const struct sbx_record *record,
                                 const struct sbx_gvisor_bundle *bundle, bool with_shim,
                                 sandbox_error *error);
static sandbox_status write_config(struct sbx_gvisor *driver, int workspace,
                                   const struct sbx_record *record,
                                   const struct sbx_gvisor_bundle *bundle, const char *given,
                                   sandbox_error *error);
static sandbox_status read_within(const char *root, const char *path, size_t limit, char **text,
                                  sandbox_error *error);

sandbox_status sbx_gvisor_bundle_make(struct sbx_gvisor *driver, const struct sbx_record *record,
                                      const struct sbx_gvisor_origin *origin,
                                      const struct sbx_wait *wait, struct sbx_gvisor_bundle *out,
                                      sandbox_error *error)
{
    SBX_ON_EXIT(sbx_gvisor_bundle_clear) struct sbx_gvisor_bundle bundle = {0};
    /* Until config.json names what is chosen here, nobody may take it for unused. */
    SBX_ON_EXIT(sbx_close_fd) int pins = -1;
    char path[64];
    snprintf(path, sizeof path, "workspaces/%s", record->id);
    sandbox_status status = sbx_gvisor_pins_hold(driver, wait, &pins, error);
    if (status == SANDBOX_OK)
        status = choose_pins(driver, record, origin->pins, wait, &bundle, error);
    if (status == SANDBOX_OK)
        status = choose_root(driver, record, &bundle, error);
    if (status == SANDBOX_OK)
        status = choose_user(record, &bundle, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_directory(driver->directory, path, 0700, error);
    if (status != SANDBOX_OK)
        return status;

    SBX_ON_EXIT(sbx_close_fd)
    int workspace =
        openat(driver->directory, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (workspace < 0)
        return sbx_fail_errno(error, errno, "cannot open the workspace's directory");
    status = make_files(workspace, &bundle, error);
    if (status == SANDBOX_OK)
        status = make_layer(workspace, record, &bundle, bundle.runtime.runsc.needs_shim, error);
    if (status == SANDBOX_OK)
        status = write_config(driver, workspace, record, &bundle, origin->config, error);
    if (status != SANDBOX_OK)
        return status;
    *out = bundle;
    bundle = (struct sbx_gvisor_bundle){0};
    return SANDBOX_OK;
}

void sbx_gvisor_bundle_clear(struct sbx_gvisor_bundle *bundle)
{
    free(bundle->lower);
    free(bundle->userland);
    sbx_gvisor_runtime_clear(&bundle->runtime);
    *bundle = (struct sbx_gvisor_bundle){0};
}

bool sbx_gvisor_user_find(const char *passwd, const char *name, struct sbx_gvisor_user *out)
{
    size_t name_size = strlen(name);
    if (name_size == 0 || strpbrk(name, ":\n") != NULL)
        return false;
    for (const char *line = passwd; *line != '\0';) {
        size_t size = strcspn(line, "\n");
        const char *end = line + size;
        if (size > name_size && memcmp(line, name, name_size) == 0 && line[name_size] == ':') {
            /* name:password:uid:gid:comment:home:shell */
            const char *field[7] = {line};
            size_t count = 1;
            for (const char *at = line; at < end && count < 7; at++) {
                if (*at == ':')
                    field[count++] = at + 1;
            }
            size_t home_size = count == 7 ? (size_t)(field[6] - field[5] - 1) : 0;
            if (count < 7 || home_size == 0 || home_size >= sizeof out->home)
                return false;
            out->uid = (uint32_t)strtoul(field[2], NULL, 10);
            out->gid = (uint32_t)strtoul(field[3], NULL, 10);
            memcpy(out->home, field[5], home_size);
            out->home[home_size] = '\0';
            return true;
        }
        line = end + (*end == '\n');
    }
    return false;
}

/* What a snapshot needs, or else what this host has now. */
static sandbox_status choose_pins(struct sbx_gvisor *driver, const struct sbx_record *record,
                                  const struct sbx_gvisor_pins *wanted, const struct sbx_wait *wait,
                                  struct sbx_gvisor_bundle *bundle, sandbox_error *error)
{
    bool has_image = record->image != NULL && record->image[0] != '\0';
    sandbox_status status = SANDBOX_OK;
    if (wanted != NULL) {
        bundle->pins = *wanted;
        status = sbx_gvisor_pins_find(driver, wanted, error);
    }
    if (status == SANDBOX_OK && bundle->pins.runtime[0] != '\0')
        status = sbx_gvisor_runtime_pinned(driver, bundle->pins.runtime, &bundle->runtime, error);
    else if (status == SANDBOX_OK)
        status = sbx_gvisor_runtime(driver, wait, &bundle->runtime, error);
    if (status != SANDBOX_OK)
        return status;
    memcpy(bundle->pins.runtime, bundle->runtime.digest, sizeof bundle->pins.runtime);
    if (bundle->pins.tools[0] == '\0')
        status =
            sbx_gvisor_tools(driver, bundle->runtime.runsc.needs_shim, bundle->pins.tools, error);
    if (status == SANDBOX_OK && bundle->pins.base[0] == '\0' && !has_image)
        status = sbx_gvisor_base(driver, wait, bundle->pins.base, error);
    return status;
}

static sandbox_status choose_root(struct sbx_gvisor *driver, const struct sbx_record *record,
                                  struct sbx_gvisor_bundle *bundle, sandbox_error *error)
{
    if (bundle->pins.base[0] == '\0')
        return check_image(driver, record->image, &bundle->lower, error);
    return sbx_gvisor_base_find(driver, bundle->pins.base, &bundle->lower, &bundle->userland,
                                error);
}

static sandbox_status check_image(struct sbx_gvisor *driver, const char *image, char **real,
                                  sandbox_error *error)
{
    if (image[0] != '/')
        return sbx_fail_for(error, SANDBOX_INVALID, "bad-image",
                            "an image of the gvisor driver is an absolute directory on this "
                            "host, not '%s'",
                            image);
    char *path = realpath(image, NULL);
    if (path == NULL)
        return sbx_fail_errno(error, errno, "cannot use the image '%s'", image);
    SBX_ON_EXIT(sbx_free_text) char *held = path;
    struct stat facts;
    if (stat(path, &facts) < 0 || !S_ISDIR(facts.st_mode))
        return sbx_fail_for(error, SANDBOX_INVALID, "bad-image",
                            "the image '%s' is not a directory", image);
    if (strpbrk(path, ":,\\\n") != NULL || strlen(path) > 1024)
        return sbx_fail_for(error, SANDBOX_INVALID, "bad-image",
                            "the image's path must have at most 1,024 bytes and no ':', ',', "
                            "'\\' or line end");
    size_t size = strlen(path);
    if (strcmp(path, "/") == 0 ||
        (strncmp(driver->settings.state, path, size) == 0 &&
         (driver->settings.state[size] == '/' || driver->settings.state[size] == '\0')))
        return sbx_fail_for(error, SANDBOX_INVALID, "bad-image",
                            "the image '%s' would show the state directory '%s' inside", image,
                            driver->settings.state);
    SBX_ON_EXIT(sbx_free_text) char *shell = NULL;
    sandbox_status status = read_within(path, "bin/sh", 0, &shell, error);
    if (status != SANDBOX_OK)
        return sbx_fail_for(error, SANDBOX_INVALID, "bad-image",
                            "the image '%s' is no root file system: it has no /bin/sh", image);
    *real = sbx_take(held);
    return SANDBOX_OK;
}

static sandbox_status choose_user(const struct sbx_record *record, struct sbx_gvisor_bundle *bundle,
                                  sandbox_error *error)
{
    const char *name = record->user[0] != '\0' ? record->user : "sandbox";
    const char *where = bundle->userland != NULL ? "the base" : "the image";
    SBX_ON_EXIT(sbx_free_text) char *passwd = NULL;
    sandbox_status status = read_within(bundle->lower, "etc/passwd", PASSWD_MAX, &passwd, error);
    if (status != SANDBOX_OK)
        return sbx_fail_for(error, SANDBOX_INVALID, "bad-image", "%s has no /etc/passwd", where);
    if (!sbx_gvisor_user_find(passwd, name, &bundle->user))
        return sbx_fail_for(error, SANDBOX_INVALID, "no-such-user",
                            "%s has no user '%s' in its /etc/passwd; add one, or choose another "
                            "user, such as root",
                            where, name);
    if (!home_is_usable(bundle->user.home))
        return sbx_fail_for(error, SANDBOX_INVALID, "no-such-user",
                            "the user '%s' of %s has the home directory '%s', where nothing can "
                            "be kept",
                            name, where, bundle->user.home);
    return SANDBOX_OK;
}

/* The home is a mount: it must not cover what a workspace runs on. */
static bool home_is_usable(const char *home)
{
    static const char *const taken[] = {"/proc", "/sys", "/dev",  "/run", "/tmp",     "/usr",
                                        "/etc",  "/bin", "/sbin", "/lib", "/.sandbox"};
    if (home[0] != '/' || home[1] == '\0' || strstr(home, "//") != NULL ||
        strstr(home, "/.") != NULL || home[strlen(home) - 1] == '/' || strchr(home, '\n') != NULL)
        return false;
    for (size_t n = 0; n < sizeof taken / sizeof taken[0]; n++) {
        size_t size = strlen(taken[n]);
        if (strncmp(home, taken[n], size) == 0 && (home[size] == '/' || home[size] == '\0'))
            return false;
    }
    return true;
}

/* The workspace's own files outlive every instance: what is there already is left as it is. */
static sandbox_status make_files(int workspace, const struct sbx_gvisor_bundle *bundle,
                                 sandbox_error *error)
{
    static const char *const places[] = {"files/workspace", "files/home"};
    sandbox_status status = sbx_gvisor_directory(workspace, "files", 0700, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_directory(workspace, "files/seal", 0700, error);
    for (size_t n = 0; n < 2 && status == SANDBOX_OK; n++) {
        struct stat facts;
        if (fstatat(workspace, places[n], &facts, AT_SYMLINK_NOFOLLOW) == 0)
            continue;
        status = sbx_gvisor_directory(workspace, places[n], 0755, error);
        if (status == SANDBOX_OK && fchownat(workspace, places[n], bundle->user.uid,
                                             bundle->user.gid, AT_SYMLINK_NOFOLLOW) < 0)
            status = sbx_fail_errno(error, errno, "cannot give '%s' to its user", places[n]);
    }
    return status;
}

/* Each part of a path, as directories everybody may pass. */
static sandbox_status make_point(int layer, const char *path, sandbox_error *error)
{
    char part[600];
    sandbox_status status = SANDBOX_OK;
    for (const char *at = path + 1; status == SANDBOX_OK;) {
        size_t size = (size_t)(at - path - 1) + strcspn(at, "/");
        snprintf(part, sizeof part, "%.*s", (int)size, path + 1);
        status = sbx_gvisor_directory(layer, part, 0755, error);
        at = path + 1 + size;
        if (*at++ == '\0')
            break;
    }
    return status;
}

static sandbox_status write_layer_files(int layer, const struct sbx_record *record,
                                        const struct sbx_gvisor_bundle *bundle, bool with_shim,
                                        sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text)
    char *hosts = sbx_format("127.0.0.1 localhost %s\n::1 localhost ip6-localhost\n", record->name);
    SBX_ON_EXIT(sbx_free_text) char *hostname = sbx_format("%s\n", record->name);
    if (hosts == NULL || hostname == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a workspace");
    sandbox_status status = sbx_gvisor_file(layer, "etc/hosts", hosts, strlen(hosts), 0644, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_file(layer, "etc/hostname", hostname, strlen(hostname), 0644, error);
    if (status != SANDBOX_OK || !with_shim)
        return status;

    /* What an image preloads of its own goes on being preloaded. */
    SBX_ON_EXIT(sbx_free_text) char *before = NULL;
    (void)read_within(bundle->lower, "etc/ld.so.preload", PRELOAD_MAX, &before, NULL);
    SBX_ON_EXIT(sbx_free_text)
    char *preload = sbx_format("%s\n%s", SHIM, before == NULL ? "" : before);
    if (preload == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a workspace");
    return sbx_gvisor_file(layer, "etc/ld.so.preload", preload, strlen(preload), 0644, error);
}

static sandbox_status make_layer(int workspace, const struct sbx_record *record,
                                 const struct sbx_gvisor_bundle *bundle, bool with_shim,
                                 sandbox_error *error)
{
    static const struct {
        const char *path;
        mode_t mode;
    } points[] = {{"workspace", 0755},   {".sandbox", 0755},
                  {"etc", 0755},         {"proc", 0555},
                  {"sys", 0555},         {"dev", 0755},
                  {"run", 0755},         {"tmp", 01777},
                  {"run/sandbox", 0700}, {"run/sandbox/seal", 0700}};
    sandbox_status status = sbx_tree_remove(workspace, "layer", error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_directory(workspace, "layer", 0755, error);
    if (status != SANDBOX_OK)
        return status;
    SBX_ON_EXIT(sbx_close_fd)
    int layer = openat(workspace, "layer", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (layer < 0)
        return sbx_fail_errno(error, errno, "cannot open the workspace's layer");
    for (size_t n = 0; n < sizeof points / sizeof points[0] && status == SANDBOX_OK; n++)
        status = sbx_gvisor_directory(layer, points[n].path, points[n].mode, error);
    if (status == SANDBOX_OK)
        status = make_point(layer, bundle->user.home, error);
    if (status == SANDBOX_OK)
        status = write_layer_files(layer, record, bundle, with_shim, error);
    return status;
}

static sandbox_status write_config(struct sbx_gvisor *driver, int workspace,
                                   const struct sbx_record *record,
                                   const struct sbx_gvisor_bundle *bundle, const char *given,
                                   sandbox_error *error)
{
    sandbox_status status = sbx_gvisor_directory(workspace, "bundle", 0700, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_directory(workspace, "bundle/rootfs", 0755, error);
    if (status != SANDBOX_OK)
        return status;
    SBX_ON_EXIT(sbx_json_free)
    cJSON *config = given != NULL ? NULL : sbx_gvisor_config(driver, record, bundle);
    SBX_ON_EXIT(sbx_free_text)
    char *text = given != NULL ? sbx_copy(given) : config == NULL ? NULL : cJSON_Print(config);
    if (text == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a bundle");
    return sbx_gvisor_file(workspace, "bundle/config.json", text, strlen(text), 0600, error);
}

/* A file of a foreign tree: its links, absolute ones too, are followed as from inside. A `limit`
 * of 0 only looks whether it is there. */
static sandbox_status read_within(const char *root, const char *path, size_t limit, char **text,
                                  sandbox_error *error)
{
    SBX_ON_EXIT(sbx_close_fd) int directory = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct open_how how = {
        .flags = (limit == 0 ? (uint64_t)O_PATH : (uint64_t)(O_RDONLY | O_NONBLOCK)) | O_CLOEXEC,
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
    };
    SBX_ON_EXIT(sbx_close_fd)
    int fd = directory < 0 ? -1 : (int)syscall(SYS_openat2, directory, path, &how, sizeof how);
    struct stat facts;
    if (fd < 0 || fstat(fd, &facts) < 0)
        return sbx_fail_errno(error, errno, "cannot read '%s' in '%s'", path, root);
    if (limit == 0)
        return SANDBOX_OK;
    if (!S_ISREG(facts.st_mode))
        return sbx_fail(error, SANDBOX_INVALID, "'%s' in '%s' is no file", path, root);
    char named[48];
    snprintf(named, sizeof named, "/proc/self/fd/%d", fd);
    size_t size = 0;
    return sbx_file_read(AT_FDCWD, named, limit, (uint8_t **)text, &size, error);
}
