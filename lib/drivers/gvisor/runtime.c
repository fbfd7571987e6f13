/*
 * runsc as sandboxes run it: copies named by their content, so that a newer package changes
 * neither what runs nor what a snapshot is restored with. Beside each copy lies what it was copied
 * from and what it said of itself, so that neither has to be found out twice.
 */

#include "drivers/gvisor/gvisor.h"
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
#include <sys/statvfs.h>
#include <unistd.h>

#define RUNSC_MAX (512u << 20)
#define FACTS_MAX (512u << 10)

static sandbox_status find_origin(struct sbx_gvisor *driver, char origin[SBX_GVISOR_ORIGIN],
                                  sandbox_error *error);
static bool recall(struct sbx_gvisor *driver, const char *origin, struct sbx_gvisor_runtime *out);
static void remember(struct sbx_gvisor *driver, const char *origin,
                     const struct sbx_gvisor_runtime *runtime);
static bool find_copy(struct sbx_gvisor *driver, const char *origin,
                      char digest[SBX_GVISOR_DIGEST_TEXT]);
static sandbox_status make_copy(struct sbx_gvisor *driver, const char *origin,
                                const struct sbx_wait *wait, char digest[SBX_GVISOR_DIGEST_TEXT],
                                sandbox_error *error);
static sandbox_status fill(struct sbx_gvisor *driver, const char *fresh, const char *origin,
                           const uint8_t *data, size_t size, const struct sbx_wait *wait,
                           sandbox_error *error);
static sandbox_status put_in_place(struct sbx_gvisor *driver, const char *fresh, const char *path,
                                   sandbox_error *error);
static sandbox_status read_facts(struct sbx_gvisor *driver, const char *digest, cJSON **out,
                                 sandbox_error *error);
static sandbox_status open_copy(struct sbx_gvisor *driver, const char *digest,
                                struct sbx_gvisor_runtime *out, sandbox_error *error);

sandbox_status sbx_gvisor_runtime(struct sbx_gvisor *driver, const struct sbx_wait *wait,
                                  struct sbx_gvisor_runtime *out, sandbox_error *error)
{
    char origin[SBX_GVISOR_ORIGIN], digest[SBX_GVISOR_DIGEST_TEXT];
    sandbox_status status = find_origin(driver, origin, error);
    if (status != SANDBOX_OK || recall(driver, origin, out))
        return status;
    if (!find_copy(driver, origin, digest))
        status = make_copy(driver, origin, wait, digest, error);
    if (status == SANDBOX_OK)
        status = open_copy(driver, digest, out, error);
    if (status == SANDBOX_OK)
        remember(driver, origin, out);
    return status;
}

sandbox_status sbx_gvisor_runtime_pinned(struct sbx_gvisor *driver, const char *digest,
                                         struct sbx_gvisor_runtime *out, sandbox_error *error)
{
    return open_copy(driver, digest, out, error);
}

sandbox_status sbx_gvisor_runtime_of(struct sbx_gvisor *driver, const char *id, char **path,
                                     sandbox_error *error)
{
    struct sbx_gvisor_pins pins = {0};
    sandbox_status status = sbx_gvisor_pins_of(driver, id, &pins, error);
    if (status != SANDBOX_OK && status != SANDBOX_NOT_FOUND)
        return status;
    SBX_ON_EXIT(sbx_free_text)
    char *copy = pins.runtime[0] == '\0'
                     ? sbx_copy(driver->settings.runsc)
                     : sbx_gvisor_path(driver, "runtimes/%s/runsc", pins.runtime);
    if (copy == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    *path = sbx_take(copy);
    return SANDBOX_OK;
}

void sbx_gvisor_runtime_clear(struct sbx_gvisor_runtime *runtime)
{
    free(runtime->path);
    *runtime = (struct sbx_gvisor_runtime){0};
}

/* Which file it is, and that it was not written since: without reading it. */
static sandbox_status find_origin(struct sbx_gvisor *driver, char origin[SBX_GVISOR_ORIGIN],
                                  sandbox_error *error)
{
    struct stat facts;
    if (stat(driver->settings.runsc, &facts) < 0)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "no-runsc",
                            "'%s' is not there any more; install gVisor (apt-get install runsc) or "
                            "give runsc=PATH in the URI",
                            driver->settings.runsc);
    snprintf(origin, SBX_GVISOR_ORIGIN, "%" PRIu64 ":%" PRIu64 ":%" PRId64 ":%" PRId64 ".%09ld",
             (uint64_t)facts.st_dev, (uint64_t)facts.st_ino, (int64_t)facts.st_size,
             (int64_t)facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec);
    return SANDBOX_OK;
}

/* What this client knows already. The copy may have been collected since. */
static bool recall(struct sbx_gvisor *driver, const char *origin, struct sbx_gvisor_runtime *out)
{
    struct sbx_gvisor_runtime known = {0};
    pthread_mutex_lock(&driver->mutex);
    if (strcmp(driver->runtime_origin, origin) == 0) {
        known = driver->runtime;
        known.path = sbx_copy(driver->runtime.path);
    }
    pthread_mutex_unlock(&driver->mutex);
    if (known.path != NULL && access(known.path, X_OK) == 0) {
        *out = known;
        return true;
    }
    sbx_gvisor_runtime_clear(&known);
    return false;
}

static void remember(struct sbx_gvisor *driver, const char *origin,
                     const struct sbx_gvisor_runtime *runtime)
{
    char *path = sbx_copy(runtime->path);
    if (path == NULL)
        return; /* found out anew the next time */
    pthread_mutex_lock(&driver->mutex);
    sbx_gvisor_runtime_clear(&driver->runtime);
    driver->runtime = *runtime;
    driver->runtime.path = path;
    snprintf(driver->runtime_origin, sizeof driver->runtime_origin, "%s", origin);
    pthread_mutex_unlock(&driver->mutex);
}

/* A copy that says that it was made of this very file. */
static bool find_copy(struct sbx_gvisor *driver, const char *origin,
                      char digest[SBX_GVISOR_DIGEST_TEXT])
{
    int fd = openat(driver->directory, "runtimes", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *copies = fd < 0 ? NULL : fdopendir(fd);
    if (copies == NULL) {
        sbx_close_fd(&fd);
        return false;
    }
    bool found = false;
    for (struct dirent *entry; !found && (entry = readdir(copies)) != NULL;) {
        if (strlen(entry->d_name) != SBX_GVISOR_DIGEST_TEXT - 1)
            continue;
        SBX_ON_EXIT(sbx_json_free) cJSON *facts = NULL;
        if (read_facts(driver, entry->d_name, &facts, NULL) != SANDBOX_OK)
            continue;
        found = strcmp(sbx_json_text(facts, "origin"), origin) == 0;
        memcpy(digest, entry->d_name, SBX_GVISOR_DIGEST_TEXT);
    }
    closedir(copies);
    return found;
}

static sandbox_status make_copy(struct sbx_gvisor *driver, const char *origin,
                                const struct sbx_wait *wait, char digest[SBX_GVISOR_DIGEST_TEXT],
                                sandbox_error *error)
{
    SBX_ON_EXIT(sbx_close_fd) int pins = -1;
    SBX_ON_EXIT(sbx_free_text) char *data = NULL;
    uint8_t bytes[SBX_DIGEST_BYTES];
    size_t size = 0;
    char unique[SBX_ID_TEXT], fresh[64], path[SBX_GVISOR_DIGEST_TEXT + 16];
    sandbox_status status = sbx_gvisor_pins_hold(driver, wait, &pins, error);
    if (status == SANDBOX_OK)
        status = sbx_file_read(AT_FDCWD, driver->settings.runsc, RUNSC_MAX, (uint8_t **)&data,
                               &size, error);
    if (status != SANDBOX_OK)
        return status;
    sbx_sha256(data, size, bytes);
    sbx_hex_print(bytes, sizeof bytes, digest);
    if (!sbx_id_fresh(unique))
        return sbx_fail(error, SANDBOX_FAILED, "the kernel gives no random bytes");
    snprintf(fresh, sizeof fresh, "runtimes/new.%s", unique);
    snprintf(path, sizeof path, "runtimes/%s", digest);
    status = fill(driver, fresh, origin, (const uint8_t *)data, size, wait, error);
    if (status == SANDBOX_OK)
        status = put_in_place(driver, fresh, path, error);
    (void)sbx_tree_remove(driver->directory, fresh, NULL);
    return status;
}

static sandbox_status put_in_place(struct sbx_gvisor *driver, const char *fresh, const char *path,
                                   sandbox_error *error)
{
    if (renameat(driver->directory, fresh, driver->directory, path) == 0)
        return sbx_directory_sync(driver->directory, "runtimes", error);
    if (errno != EEXIST && errno != ENOTEMPTY)
        return sbx_fail_errno(error, errno, "cannot keep a copy of runsc");
    /* The same bytes came from another file before: what is known of them is renewed. */
    char from[96], to[SBX_GVISOR_DIGEST_TEXT + 32];
    snprintf(from, sizeof from, "%s/facts.json", fresh);
    snprintf(to, sizeof to, "%s/facts.json", path);
    if (renameat(driver->directory, from, driver->directory, to) < 0)
        return sbx_fail_errno(error, errno, "cannot keep a copy of runsc");
    return sbx_directory_sync(driver->directory, path, error);
}

static sandbox_status fill(struct sbx_gvisor *driver, const char *fresh, const char *origin,
                           const uint8_t *data, size_t size, const struct sbx_wait *wait,
                           sandbox_error *error)
{
    struct statvfs system;
    if (fstatvfs(driver->directory, &system) == 0 && (system.f_flag & ST_NOEXEC) != 0)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "state-noexec",
                            "'%s' is on a file system that is mounted noexec, and programs of the "
                            "driver lie there; remount it exec or choose another directory in the "
                            "URI",
                            driver->settings.state);
    char program[96], facts_path[96];
    snprintf(program, sizeof program, "%s/runsc", fresh);
    snprintf(facts_path, sizeof facts_path, "%s/facts.json", fresh);
    SBX_ON_EXIT(sbx_free_text) char *path = sbx_gvisor_path(driver, "%s", program);
    SBX_ON_EXIT(sbx_free_text) char *version = NULL;
    SBX_ON_EXIT(sbx_free_text) char *flags = NULL;
    if (path == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    sandbox_status status = sbx_gvisor_directory(driver->directory, fresh, 0755, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_file(driver->directory, program, data, size, 0755, error);
    if (status == SANDBOX_OK)
        status = sbx_gvisor_runsc_ask(path, driver->settings.runsc, wait, &version, &flags, error);
    struct sbx_gvisor_runsc runsc = {0};
    if (status == SANDBOX_OK)
        sbx_gvisor_runsc_judge(version, flags, &runsc);
    if (status == SANDBOX_OK && !runsc.has_overlay2)
        status = sbx_gvisor_runsc_too_old(driver->settings.runsc, error);
    if (status != SANDBOX_OK)
        return status;

    SBX_ON_EXIT(sbx_json_free) cJSON *facts = cJSON_CreateObject();
    SBX_ON_EXIT(sbx_free_text) char *text = NULL;
    if (facts != NULL && sbx_json_set_text(facts, "origin", origin) &&
        sbx_json_set_text(facts, "version", version) && sbx_json_set_text(facts, "flags", flags))
        text = cJSON_PrintUnformatted(facts);
    if (text == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a copy of runsc");
    status = sbx_gvisor_file(driver->directory, facts_path, text, strlen(text), 0600, error);
    /* Its name will promise that all of it is there, after a power cut too. */
    if (status == SANDBOX_OK && syncfs(driver->directory) < 0)
        status = sbx_fail_errno(error, errno, "cannot keep a copy of runsc");
    return status;
}

static sandbox_status read_facts(struct sbx_gvisor *driver, const char *digest, cJSON **out,
                                 sandbox_error *error)
{
    char path[SBX_GVISOR_DIGEST_TEXT + 32];
    snprintf(path, sizeof path, "runtimes/%s/facts.json", digest);
    uint8_t *text = NULL;
    size_t size = 0;
    sandbox_status status = sbx_file_read(driver->directory, path, FACTS_MAX, &text, &size, error);
    SBX_ON_EXIT(sbx_free_text) char *held = (char *)text;
    return status != SANDBOX_OK ? status : sbx_json_parse(held, size, FACTS_MAX, out, error);
}

static sandbox_status open_copy(struct sbx_gvisor *driver, const char *digest,
                                struct sbx_gvisor_runtime *out, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *facts = NULL;
    sandbox_status status = read_facts(driver, digest, &facts, error);
    if (status != SANDBOX_OK && status != SANDBOX_NOT_FOUND)
        return status;
    SBX_ON_EXIT(sbx_free_text) char *path = sbx_gvisor_path(driver, "runtimes/%s/runsc", digest);
    if (path == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
    if (status == SANDBOX_NOT_FOUND || access(path, X_OK) < 0)
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "pin-missing",
                            "the runsc that the workspace was started with is not there any more: "
                            "'%s'",
                            path);
    *out = (struct sbx_gvisor_runtime){.path = sbx_take(path)};
    sbx_gvisor_runsc_judge(sbx_json_text(facts, "version"), sbx_json_text(facts, "flags"),
                           &out->runsc);
    snprintf(out->digest, sizeof out->digest, "%s", digest);
    return SANDBOX_OK;
}
