/*
 * The content of files in a tree: read once, digested, and written to the copy in the same pass.
 *
 * A content's digest is over the digests of its pieces, each with its number, without those that
 * are all zeros; and a piece's is over its runs of blocks that are not, each followed by its place
 * and size. So it is the same however much of the zeros a file system keeps as holes, costs no
 * more than what is kept, and all hands can work on one file.
 */

#include "util/fail.h"
#include "util/memory.h"
#include "util/tree_copy_parts.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BLOCK (256u << 10) /* read at a time: it stays in the processor's cache */
#define GRAIN 4096u        /* of zeros that are left out */

/* What one hand is at in one file. */
struct reading {
    struct sbx_tree_hand *hand;
    int source, target; /* -1: nothing is to be written */
    uint64_t run_start, run_size;
    bool filled;
};

static int open_file(struct sbx_tree_work *work, struct sbx_tree_entry *entry, int *source,
                     int *target);
static int open_source(const struct sbx_tree_work *work, const struct sbx_tree_entry *entry);
static int make_target(struct sbx_tree_work *work, struct sbx_tree_entry *entry, int source,
                       int *target);
static int close_file(struct sbx_tree_work *work, struct sbx_tree_hand *hand,
                      struct sbx_tree_entry *entry, int source, int target);
static sandbox_status explain(const struct sbx_tree_work *work, const struct sbx_tree_entry *entry,
                              int number, sandbox_error *error);
static int take_piece(struct sbx_tree_hand *hand, int source, int target, uint64_t start,
                      uint64_t end, bool dense, struct sbx_tree_piece *out);
static int take_range(struct reading *reading, uint64_t start, uint64_t end);
static void add_block(struct reading *reading, const uint8_t *data, size_t size, uint64_t offset);
static void end_run(struct reading *reading);
static sandbox_status do_piece(void *data, unsigned hand, uint64_t index, sandbox_error *error);
static int next_pieces(struct sbx_tree_work *work, uint64_t *from, size_t *count);
static void fold(struct sbx_hash *whole, const struct sbx_tree_piece *piece);

sandbox_status sbx_tree_take_file(struct sbx_tree_work *work, struct sbx_tree_hand *hand,
                                  struct sbx_tree_entry *entry, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_close_fd) int source = -1;
    SBX_ON_EXIT(sbx_close_fd) int target = -1;
    struct sbx_tree_piece piece = {0};
    int number = open_file(work, entry, &source, &target);
    if (number == 0)
        number = take_piece(hand, source, entry->cloned ? -1 : target, 0, entry->size,
                            entry->stored >= entry->size, &piece);
    fold(hand->whole, &piece);
    if (!sbx_hash_end(hand->whole, entry->content) && number == 0)
        number = ENOMEM;
    if (number == 0)
        number = close_file(work, hand, entry, source, target);
    return number == 0 ? SANDBOX_OK : explain(work, entry, number, error);
}

sandbox_status sbx_tree_take_large(struct sbx_tree_work *work, struct sbx_tree_entry *entry,
                                   sandbox_error *error)
{
    SBX_ON_EXIT(sbx_close_fd) int source = -1;
    SBX_ON_EXIT(sbx_close_fd) int target = -1;
    struct sbx_hash *whole = work->hands[0].whole;
    int number = open_file(work, entry, &source, &target);
    work->large_source = source;
    work->large_target = entry->cloned ? -1 : target;
    work->large_size = entry->size;
    size_t count = 1;
    for (uint64_t from = 0; number == 0 && count > 0;) {
        number = next_pieces(work, &from, &count);
        sandbox_status status =
            number != 0 ? SANDBOX_OK
                        : sbx_crew_run(work->crew, count, do_piece, work, work->job->wait, error);
        if (status != SANDBOX_OK)
            return status;
        for (size_t n = 0; number == 0 && n < count; n++)
            fold(whole, &work->pieces[n]);
        if (number == 0 && work->job->moved != NULL)
            work->job->moved(work->job->user_data, count * SBX_TREE_PIECE);
    }
    if (!sbx_hash_end(whole, entry->content) && number == 0)
        number = ENOMEM;
    if (number == 0)
        number = close_file(work, &work->hands[0], entry, source, target);
    return number == 0 ? SANDBOX_OK : explain(work, entry, number, error);
}

/* As it was met, and not a device or a link that came in its place; made anew in the copy. */
static int open_file(struct sbx_tree_work *work, struct sbx_tree_entry *entry, int *source,
                     int *target)
{
    struct stat facts;
    *source = open_source(work, entry);
    if (*source < 0 || fstat(*source, &facts) < 0)
        return errno == ELOOP || errno == ENOENT ? ESTALE : errno;
    if (!S_ISREG(facts.st_mode) || facts.st_ino != entry->inode ||
        (uint64_t)facts.st_size != entry->size)
        return ESTALE;
    return work->copying ? make_target(work, entry, *source, target) : 0;
}

/* Reading must not change it: not even the time of the last reading. */
static int open_source(const struct sbx_tree_work *work, const struct sbx_tree_entry *entry)
{
    int folder = work->batch.folders[entry->folder].source;
    const char *name = sbx_tree_text(work, entry->name);
    int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    int fd = openat(folder, name, flags | O_NOATIME);
    return fd < 0 && errno == EPERM ? openat(folder, name, flags) : fd;
}

static int make_target(struct sbx_tree_work *work, struct sbx_tree_entry *entry, int source,
                       int *target)
{
    int folder = work->batch.folders[entry->folder].target;
    *target = openat(folder, sbx_tree_text(work, entry->name),
                     O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (*target < 0)
        return errno;
    if (entry->size == 0)
        return 0;
    if (!atomic_load_explicit(&work->cannot_clone, memory_order_relaxed)) {
        entry->cloned = ioctl(*target, FICLONE, source) == 0;
        if (entry->cloned)
            return 0;
        if (errno == EOPNOTSUPP || errno == ENOTTY || errno == EXDEV || errno == EINVAL)
            atomic_store_explicit(&work->cannot_clone, true, memory_order_relaxed);
    }
    bool has_holes = entry->stored < entry->size;
    return has_holes && ftruncate(*target, (off_t)entry->size) < 0 ? errno : 0;
}

/* Its attributes, and a further name beside the copy where others will be linked to it. */
static int close_file(struct sbx_tree_work *work, struct sbx_tree_hand *hand,
                      struct sbx_tree_entry *entry, int source, int target)
{
    sbx_bytes_skip(&hand->xattrs, sbx_bytes_size(&hand->xattrs));
    int number = sbx_tree_xattrs_read(source, &hand->xattrs);
    if (number != 0)
        return number;
    entry->has_xattrs = sbx_bytes_size(&hand->xattrs) > 0;
    if (entry->has_xattrs) {
        sbx_hash_add(hand->hash, sbx_bytes_data(&hand->xattrs), sbx_bytes_size(&hand->xattrs));
        if (!sbx_hash_end(hand->hash, entry->xattrs))
            return ENOMEM;
    }
    if (!work->copying)
        return 0;
    number = sbx_tree_dress(target, entry->uid, entry->gid, entry->mode, &entry->modified,
                            &hand->xattrs);
    if (number != 0 || !entry->has_twins)
        return number;
    char name[24];
    snprintf(name, sizeof name, "%llu", (unsigned long long)entry->number);
    return linkat(work->batch.folders[entry->folder].target, sbx_tree_text(work, entry->name),
                  work->links, name, 0) < 0
               ? errno
               : 0;
}

static sandbox_status explain(const struct sbx_tree_work *work, const struct sbx_tree_entry *entry,
                              int number, sandbox_error *error)
{
    const char *path = sbx_tree_text(work, entry->path);
    if (number == ESTALE)
        return sbx_fail_for(error, SANDBOX_CONFLICT, "tree-changed",
                            "'%s' changed while it was read", path);
    return sbx_fail_errno(error, number, work->copying ? "cannot copy '%s'" : "cannot read '%s'",
                          path);
}

static int take_piece(struct sbx_tree_hand *hand, int source, int target, uint64_t start,
                      uint64_t end, bool dense, struct sbx_tree_piece *out)
{
    struct reading reading = {.hand = hand, .source = source, .target = target};
    int number = 0;
    for (uint64_t at = start; number == 0 && at < end;) {
        uint64_t from = at, to = end;
        off_t data = dense ? (off_t)at : lseek(source, (off_t)at, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            break;
        if (data >= 0 && !dense) {
            off_t hole = lseek(source, data, SEEK_HOLE);
            from = (uint64_t)data - (uint64_t)data % GRAIN;
            from = from < at ? at : from;
            to = hole < 0 ? end : ((uint64_t)hole + GRAIN - 1) / GRAIN * GRAIN;
            to = to < end ? to : end;
        }
        if (from >= end)
            break;
        number = take_range(&reading, from, to);
        at = to;
    }
    end_run(&reading);
    out->filled = reading.filled;
    return sbx_hash_end(hand->hash, out->digest) || number != 0 ? number : ENOMEM;
}

static int take_range(struct reading *reading, uint64_t start, uint64_t end)
{
    uint8_t *block = reading->hand->block;
    for (uint64_t at = start; at < end;) {
        size_t wanted = end - at < BLOCK ? (size_t)(end - at) : BLOCK, got = 0;
        while (got < wanted) {
            ssize_t more = pread(reading->source, block + got, wanted - got, (off_t)(at + got));
            if (more == 0)
                return ESTALE; /* it became shorter */
            if (more < 0 && errno != EINTR)
                return errno;
            got += more > 0 ? (size_t)more : 0;
        }
        for (size_t put = 0; reading->target >= 0 && put < got;) {
            ssize_t more = pwrite(reading->target, block + put, got - put, (off_t)(at + put));
            if (more < 0 && errno != EINTR)
                return errno;
            put += more > 0 ? (size_t)more : 0;
        }
        add_block(reading, block, got, at);
        at += got;
    }
    return 0;
}

static bool is_zero(const uint8_t *data, size_t size)
{
    return data[0] == 0 && memcmp(data, data + 1, size - 1) == 0;
}

/* `offset` is a multiple of the grain. */
static void add_block(struct reading *reading, const uint8_t *data, size_t size, uint64_t offset)
{
    for (size_t at = 0; at < size;) {
        size_t kept = 0;
        while (at + kept < size) {
            size_t left = size - at - kept, grain = left < GRAIN ? left : GRAIN;
            if (is_zero(data + at + kept, grain))
                break;
            kept += grain;
        }
        if (kept > 0) {
            if (reading->run_size > 0 && reading->run_start + reading->run_size != offset + at)
                end_run(reading);
            if (reading->run_size == 0)
                reading->run_start = offset + at;
            sbx_hash_add(reading->hand->hash, data + at, kept);
            reading->run_size += kept;
        }
        at += kept;
        if (at < size) {
            end_run(reading);
            at += size - at < GRAIN ? size - at : GRAIN;
        }
    }
}

static void put_number(uint8_t bytes[8], uint64_t number)
{
    for (int n = 0; n < 8; n++)
        bytes[n] = (uint8_t)(number >> (8 * n));
}

static void end_run(struct reading *reading)
{
    if (reading->run_size == 0)
        return;
    uint8_t place[16];
    put_number(place, reading->run_start);
    put_number(place + 8, reading->run_size);
    sbx_hash_add(reading->hand->hash, place, sizeof place);
    reading->run_size = 0;
    reading->filled = true;
}

static sandbox_status do_piece(void *data, unsigned hand, uint64_t index, sandbox_error *error)
{
    struct sbx_tree_work *work = data;
    struct sbx_tree_piece *piece = &work->pieces[index];
    uint64_t start = piece->index * SBX_TREE_PIECE, end = start + SBX_TREE_PIECE;
    int number = take_piece(&work->hands[hand], work->large_source, work->large_target, start,
                            end < work->large_size ? end : work->large_size, false, piece);
    if (number == 0)
        return SANDBOX_OK;
    return explain(work, &work->batch.entries[work->batch.entry_count - 1], number, error);
}

/* The next pieces that hold data, from the piece `from` on; holes are stepped over in one go. */
static int next_pieces(struct sbx_tree_work *work, uint64_t *from, size_t *count)
{
    for (*count = 0; *count < SBX_TREE_WINDOW; ++*count) {
        uint64_t start = *from * SBX_TREE_PIECE;
        if (start >= work->large_size)
            return 0;
        off_t data = lseek(work->large_source, (off_t)start, SEEK_DATA);
        if (data < 0)
            return errno == ENXIO ? 0 : errno;
        *from = (uint64_t)data / SBX_TREE_PIECE;
        if (*from * SBX_TREE_PIECE >= work->large_size)
            return 0;
        work->pieces[*count] = (struct sbx_tree_piece){.index = (*from)++};
    }
    return 0;
}

static void fold(struct sbx_hash *whole, const struct sbx_tree_piece *piece)
{
    uint8_t number[8];
    if (!piece->filled)
        return;
    put_number(number, piece->index);
    sbx_hash_add(whole, number, sizeof number);
    sbx_hash_add(whole, piece->digest, sizeof piece->digest);
}
