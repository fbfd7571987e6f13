/*
 * Our own agent and shim as workspaces use them: copies named by their content, so that a newer
 * package does not change what runs.
 */

#include "drivers/gvisor/gvisor.h"
#include "util/bytes.h"
#include "util/fail.h"
#include "util/file.h"
#include "util/memory.h"
#include "util/place.h"
#include "util/random.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define PROGRAM_MAX (256u << 20)

struct program {
    const char *name;
    uint8_t *data;
    size_t size;
};

static sandbox_status read_program(const char *configured, const char *name,
                                   struct program *program, sandbox_error *error);
static sandbox_status install(struct sbx_gvisor *driver, const struct program programs[2],
                              const char *digest, sandbox_error *error);
static void free_programs(struct program (*programs)[2]);

sandbox_status sbx_gvisor_tools(struct sbx_gvisor *driver, bool with_shim,
                                char digest[SBX_GVISOR_DIGEST_TEXT], sandbox_error *error)
{
    SBX_ON_EXIT(free_programs) struct program programs[2] = {0};
    sandbox_status status =
        read_program(driver->settings.agent, "sandbox-agent", &programs[0], error);
    if (status == SANDBOX_OK && with_shim)
        status = read_program(driver->settings.shim, "sandbox-shim.so", &programs[1], error);
    if (status != SANDBOX_OK)
        return status;

    uint8_t parts[2][SBX_DIGEST_BYTES], whole[SBX_DIGEST_BYTES];
    for (size_t n = 0; n < 2; n++)
        sbx_sha256(programs[n].data == NULL ? (const uint8_t *)"" : programs[n].data,
                   programs[n].size, parts[n]);
    sbx_sha256(parts, sizeof parts, whole);
    sbx_hex_print(whole, sizeof whole, digest);

    char path[SBX_GVISOR_DIGEST_TEXT + 8];
    snprintf(path, sizeof path, "agents/%s", digest);
    if (faccessat(driver->directory, path, F_OK, 0) == 0)
        return SANDBOX_OK;
    return install(driver, programs, digest, error);
}

static sandbox_status read_program(const char *configured, const char *name,
                                   struct program *program, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *found = NULL;
    if (configured == NULL) {
        sandbox_status status = sbx_place_find(name, &found, error);
        if (status != SANDBOX_OK)
            return status;
    }
    program->name = name;
    return sbx_file_read(AT_FDCWD, configured == NULL ? found : configured, PROGRAM_MAX,
                         &program->data, &program->size, error);
}

static sandbox_status install(struct sbx_gvisor *driver, const struct program programs[2],
                              const char *digest, sandbox_error *error)
{
    char unique[SBX_ID_TEXT], fresh[64], path[SBX_GVISOR_DIGEST_TEXT + 8];
    if (!sbx_id_fresh(unique))
        return sbx_fail(error, SANDBOX_FAILED, "the kernel gives no random bytes");
    snprintf(fresh, sizeof fresh, "agents/new.%s", unique);
    snprintf(path, sizeof path, "agents/%s", digest);
    sandbox_status status = sbx_gvisor_directory(driver->directory, fresh, 0755, error);
    if (status != SANDBOX_OK)
        return status;
    SBX_ON_EXIT(sbx_close_fd)
    int target = openat(driver->directory, fresh, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (target < 0)
        return sbx_fail_errno(error, errno, "cannot open '%s'", fresh);
    for (size_t n = 0; n < 2 && status == SANDBOX_OK; n++) {
        if (programs[n].data != NULL)
            status = sbx_gvisor_file(target, programs[n].name, programs[n].data, programs[n].size,
                                     0755, error);
    }
    /* Another actor may have been faster: what it made is the same. */
    int failed = 0;
    if (status == SANDBOX_OK &&
        (syncfs(target) < 0 || renameat(driver->directory, fresh, driver->directory, path) < 0))
        failed = errno;
    if (status == SANDBOX_OK && failed == 0)
        return sbx_directory_sync(driver->directory, "agents", error);
    (void)sbx_tree_remove(driver->directory, fresh, NULL);
    if (status != SANDBOX_OK || failed == EEXIST || failed == ENOTEMPTY)
        return status;
    return sbx_fail_errno(error, failed, "cannot keep a copy of the agent");
}

static void free_programs(struct program (*programs)[2])
{
    for (size_t n = 0; n < 2; n++)
        free((*programs)[n].data);
}
