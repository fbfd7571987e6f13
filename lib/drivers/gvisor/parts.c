/* The files of a snapshot outside its tree, read on all processors. */

#include "drivers/gvisor/snapshot.h"
#include "util/fail.h"
#include "util/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK      (256u << 10) /* read at a time: it stays in the processor's cache */
#define SHOW_EVERY (32u << 20)


struct reading {
    struct sbx_gvisor_manifest *manifest;
    bool compare;
    int files[SBX_GVISOR_PARTS_MAX];
    uint64_t first[SBX_GVISOR_PARTS_MAX]; /* chunk of each part, of all in a row */
    struct sbx_hash *hashes[SBX_CREW_MAX];
    uint8_t *blocks[SBX_CREW_MAX];
    struct sbx_progress *progress;
    uint64_t total;
    atomic_uint_fast64_t done;
};

static sandbox_status open_parts(int directory, struct reading *reading, uint64_t *count,
                                 sandbox_error *error);
static sandbox_status open_part(int directory, const struct sbx_gvisor_part *part, int *fd,
                                sandbox_error *error);
static sandbox_status read_chunk(void *data, unsigned hand, uint64_t index, sandbox_error *error);
static int digest_range(int fd, uint64_t start, uint64_t end, struct sbx_hash *hash,
                        uint8_t *block);
static void show(struct reading *reading, uint64_t bytes);
static void end_reading(struct reading *reading);

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

sandbox_status sbx_gvisor_parts_digest(int directory, struct sbx_gvisor_manifest *manifest,
                                       bool compare, struct sbx_crew *crew,
                                       struct sbx_progress *progress, const struct sbx_wait *wait,
                                       uint64_t *bytes, sandbox_error *error)
{
    SBX_ON_EXIT(end_reading)
    struct reading reading = {.manifest = manifest, .compare = compare, .progress = progress};
    for (size_t n = 0; n < SBX_GVISOR_PARTS_MAX; n++)
        reading.files[n] = -1;
    uint64_t count = 0;
    sandbox_status status = open_parts(directory, &reading, &count, error);
    for (unsigned n = 0; status == SANDBOX_OK && n < sbx_crew_size(crew); n++) {
        reading.hashes[n] = sbx_hash_new();
        reading.blocks[n] = malloc(BLOCK);
        if (reading.hashes[n] == NULL || reading.blocks[n] == NULL)
            status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to read a snapshot");
    }
    if (status == SANDBOX_OK)
        status = sbx_crew_run(crew, count, read_chunk, &reading, wait, error);
    if (bytes != NULL)
        *bytes = atomic_load(&reading.done);
    return status;
}

sandbox_status sbx_gvisor_parts_look(int directory, const struct sbx_gvisor_manifest *manifest,
                                     sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    for (size_t n = 0; n < manifest->part_count && status == SANDBOX_OK; n++) {
        SBX_ON_EXIT(sbx_close_fd) int fd = -1;
        status = open_part(directory, &manifest->parts[n], &fd, error);
    }
    return status;
}

static sandbox_status open_parts(int directory, struct reading *reading, uint64_t *count,
                                 sandbox_error *error)
{
    const struct sbx_gvisor_manifest *manifest = reading->manifest;
    sandbox_status status = SANDBOX_OK;
    for (size_t n = 0; n < manifest->part_count && status == SANDBOX_OK; n++) {
        status = open_part(directory, &manifest->parts[n], &reading->files[n], error);
        reading->first[n] = *count;
        *count += manifest->parts[n].chunk_count;
        reading->total += manifest->parts[n].size;
    }
    return status;
}

static sandbox_status open_part(int directory, const struct sbx_gvisor_part *part, int *fd,
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

static sandbox_status read_chunk(void *data, unsigned hand, uint64_t index, sandbox_error *error)
{
    struct reading *reading = data;
    size_t n = 0;
    while (n + 1 < reading->manifest->part_count && reading->first[n + 1] <= index)
        n++;
    struct sbx_gvisor_part *part = &reading->manifest->parts[n];
    uint64_t chunk = index - reading->first[n], start = chunk * SBX_GVISOR_CHUNK;
    uint64_t end = part->size - start < SBX_GVISOR_CHUNK ? part->size : start + SBX_GVISOR_CHUNK;
    uint8_t digest[SBX_DIGEST_BYTES];
    int number =
        digest_range(reading->files[n], start, end, reading->hashes[hand], reading->blocks[hand]);
    if (!sbx_hash_end(reading->hashes[hand], digest) && number == 0)
        number = ENOMEM;
    if (number != 0)
        return sbx_fail_errno(error, number, "cannot read '%s' of the snapshot", part->path);
    show(reading, end - start);
    if (!reading->compare)
        memcpy(part->chunks[chunk], digest, sizeof digest);
    else if (memcmp(part->chunks[chunk], digest, sizeof digest) != 0)
        return sbx_fail_for(error, SANDBOX_NOT_RESTORED, "snapshot-damaged",
                            "'%s' of the snapshot is not what was recorded: bytes %llu to %llu",
                            part->path, (unsigned long long)start, (unsigned long long)end - 1);
    return SANDBOX_OK;
}

static int digest_range(int fd, uint64_t start, uint64_t end, struct sbx_hash *hash, uint8_t *block)
{
    while (start < end) {
        size_t wanted = end - start < BLOCK ? (size_t)(end - start) : BLOCK;
        ssize_t got = pread(fd, block, wanted, (off_t)start);
        if (got == 0)
            return EIO; /* it became shorter */
        if (got < 0 && errno != EINTR)
            return errno;
        if (got < 0)
            continue;
        sbx_hash_add(hash, block, (size_t)got);
        start += (uint64_t)got;
    }
    return 0;
}

static void show(struct reading *reading, uint64_t bytes)
{
    uint64_t before = atomic_fetch_add(&reading->done, bytes), done = before + bytes;
    bool worth_it = before / SHOW_EVERY != done / SHOW_EVERY || done == reading->total;
    if (worth_it && reading->progress != NULL && reading->progress->moved != NULL)
        reading->progress->moved(reading->progress, reading->compare ? "verify" : "digest", done,
                                 reading->total);
}

static void end_reading(struct reading *reading)
{
    for (size_t n = 0; n < SBX_GVISOR_PARTS_MAX; n++)
        sbx_close_fd(&reading->files[n]);
    for (size_t n = 0; n < SBX_CREW_MAX; n++) {
        sbx_hash_free(reading->hashes[n]);
        free(reading->blocks[n]);
    }
}
