/* The files of a snapshot outside its tree. */

#include "drivers/gvisor/snapshot.h"
#include "util/fail.h"
#include "util/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

sandbox_status sbx_gvisor_part_add(int directory, struct sbx_gvisor_manifest *manifest,
                                   const char *path, sandbox_error *error)
{
    struct stat facts;
    if (manifest->part_count == SBX_GVISOR_PARTS_MAX || strlen(path) >= SBX_GVISOR_PART_PATH)
        return sbx_fail(error, SANDBOX_FAILED, "runsc wrote more files than are known of");
    if (fstatat(directory, path, &facts, AT_SYMLINK_NOFOLLOW) < 0)
        return sbx_fail_errno(error, errno, "cannot look at '%s' of the snapshot", path);
    if (!S_ISREG(facts.st_mode))
        return sbx_fail(error, SANDBOX_FAILED, "'%s' of the snapshot is no file", path);
    struct sbx_gvisor_part *part = &manifest->parts[manifest->part_count];
    *part = (struct sbx_gvisor_part){.size = (uint64_t)facts.st_size};
    memcpy(part->path, path, strlen(path) + 1);
    part->chunk_count = (size_t)((part->size + SBX_GVISOR_CHUNK - 1) / SBX_GVISOR_CHUNK);
    part->chunks = calloc(part->chunk_count == 0 ? 1 : part->chunk_count, sizeof *part->chunks);
    if (part->chunks == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a manifest");
    manifest->part_count++;
    return SANDBOX_OK;
}

sandbox_status sbx_gvisor_parts_look(int directory, const struct sbx_gvisor_manifest *manifest,
                                     sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    for (size_t n = 0; n < manifest->part_count && status == SANDBOX_OK; n++) {
        SBX_ON_EXIT(sbx_close_fd) int fd = -1;
        status = sbx_gvisor_part_open(directory, &manifest->parts[n], &fd, error);
    }
    return status;
}

sandbox_status sbx_gvisor_part_open(int directory, const struct sbx_gvisor_part *part, int *fd,
                                    sandbox_error *error)
{
    struct stat facts;
    *fd = openat(directory, part->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (*fd < 0 && errno == ENOENT)
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "snapshot-missing",
                            "'%s' of the snapshot is missing", part->path);
    if (*fd < 0 && errno != ELOOP)
        return sbx_fail_errno(error, errno, "cannot read '%s' of the snapshot", part->path);
    if (*fd < 0 || fstat(*fd, &facts) < 0 || !S_ISREG(facts.st_mode))
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "snapshot-damaged",
                            "'%s' of the snapshot is no file", part->path);
    if ((uint64_t)facts.st_size != part->size)
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "snapshot-damaged",
                            "'%s' of the snapshot has %llu bytes instead of %llu", part->path,
                            (unsigned long long)facts.st_size, (unsigned long long)part->size);
    return SANDBOX_OK;
}
