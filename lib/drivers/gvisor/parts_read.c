/*
 * The files of a snapshot outside its tree, read on all processors, in chunks that have a digest
 * each.
 */

#include "drivers/gvisor/snapshot.h"
#include "util/digest_leaves.h"
#include "util/fail.h"
#include "util/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

#define BLOCK      (512u << 10) /* read at a time: it stays in the processor's cache */
#define SHOW_EVERY (32u << 20)

_Static_assert(BLOCK % SBX_LEAF_BYTES == 0 && SBX_GVISOR_CHUNK % BLOCK == 0,
               "a chunk is made of whole leaves");

struct hand {
    struct sbx_leaves *leaves;
    uint8_t *block;
};

struct reading {
    struct sbx_gvisor_manifest *manifest;
    bool compare;
    int files[SBX_GVISOR_PARTS_MAX];
    uint64_t first[SBX_GVISOR_PARTS_MAX]; /* chunk of each part, of all in a row */
    struct hand hands[SBX_CREW_MAX];
    struct sbx_progress *progress;
    uint64_t total;
    atomic_uint_fast64_t done;
};

static sandbox_status open_parts(int directory, struct reading *reading, uint64_t *count,
                                 sandbox_error *error);
static sandbox_status equip(struct reading *reading, unsigned hands, sandbox_error *error);
static sandbox_status read_chunk(void *data, unsigned hand, uint64_t index, sandbox_error *error);
static int digest_range(int fd, uint64_t start, uint64_t end, const struct hand *hand);
static int read_fully(int fd, uint8_t *data, size_t size, uint64_t start);
static void show(struct reading *reading, uint64_t bytes);
static void end_reading(struct reading *reading);

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
    if (status == SANDBOX_OK)
        status = equip(&reading, sbx_crew_size(crew), error);
    if (status == SANDBOX_OK)
        status = sbx_crew_run(crew, count, read_chunk, &reading, wait, error);
    if (bytes != NULL)
        *bytes = atomic_load(&reading.done);
    return status;
}

static sandbox_status open_parts(int directory, struct reading *reading, uint64_t *count,
                                 sandbox_error *error)
{
    const struct sbx_gvisor_manifest *manifest = reading->manifest;
    sandbox_status status = SANDBOX_OK;
    for (size_t n = 0; n < manifest->part_count && status == SANDBOX_OK; n++) {
        status = sbx_gvisor_part_open(directory, &manifest->parts[n], &reading->files[n], error);
        reading->first[n] = *count;
        *count += manifest->parts[n].chunk_count;
        reading->total += manifest->parts[n].size;
    }
    return status;
}

static sandbox_status equip(struct reading *reading, unsigned hands, sandbox_error *error)
{
    for (unsigned n = 0; n < hands; n++) {
        reading->hands[n] = (struct hand){sbx_leaves_new(), malloc(BLOCK)};
        if (reading->hands[n].leaves == NULL || reading->hands[n].block == NULL)
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to read a snapshot");
    }
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
    int number = digest_range(reading->files[n], start, end, &reading->hands[hand]);
    if (!sbx_leaves_end(reading->hands[hand].leaves, digest) && number == 0)
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

static int digest_range(int fd, uint64_t start, uint64_t end, const struct hand *hand)
{
    while (start < end) {
        size_t size = end - start < BLOCK ? (size_t)(end - start) : BLOCK;
        int number = read_fully(fd, hand->block, size, start);
        if (number != 0)
            return number;
        sbx_leaves_add(hand->leaves, hand->block, size);
        start += size;
    }
    return 0;
}

/* All of it. 0 or an errno value. */
static int read_fully(int fd, uint8_t *data, size_t size, uint64_t start)
{
    while (size > 0) {
        ssize_t got = pread(fd, data, size, (off_t)start);
        if (got == 0)
            return EIO; /* it became shorter */
        if (got < 0 && errno != EINTR)
            return errno;
        if (got < 0)
            continue;
        data += got;
        size -= (size_t)got;
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
        sbx_leaves_free(reading->hands[n].leaves);
        free(reading->hands[n].block);
    }
}
