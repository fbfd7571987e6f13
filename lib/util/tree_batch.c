/* Entries of a tree, worked on many at a time and listed in their order. */

#include "util/fail.h"
#include "util/memory.h"
#include "util/random.h"
#include "util/tree_copy_parts.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define BLOCK      (256u << 10)
#define TEXTS_MAX  (16u << 20)
#define LINE_BYTES (64u << 10)

static sandbox_status do_entry(void *data, unsigned hand, uint64_t index, sandbox_error *error);
static int make_link(const struct sbx_tree_work *work, const struct sbx_tree_entry *entry);
static int make_fifo(const struct sbx_tree_work *work, const struct sbx_tree_entry *entry);
static int make_twin(const struct sbx_tree_work *work, const struct sbx_tree_entry *entry);
static sandbox_status list_entry(struct sbx_tree_work *work, const struct sbx_tree_entry *entry,
                                 sandbox_error *error);
static bool write_line(struct sbx_tree_work *work, const struct sbx_tree_entry *entry);
static bool add_escaped(struct sbx_bytes *line, const char *text);
static void empty_batch(struct sbx_tree_batch *batch);

sandbox_status sbx_tree_work_begin(struct sbx_tree_work *work, const struct sbx_tree_job *job,
                                   sandbox_error *error)
{
    work->job = job;
    work->links = -1;
    work->line.limit = LINE_BYTES;
    work->batch.texts.limit = TEXTS_MAX;
    work->batch.number = 1;
    work->list = sbx_hash_new();
    work->crew = job->crew;
    if (work->crew == NULL)
        work->crew = work->own_crew = sbx_crew_new();
    bool good = work->list != NULL && work->crew != NULL;
    for (unsigned n = 0; good && n < sbx_crew_size(work->crew); n++) {
        struct sbx_tree_hand *hand = &work->hands[n];
        hand->hash = sbx_hash_new();
        hand->whole = sbx_hash_new();
        hand->block = malloc(BLOCK);
        hand->xattrs.limit = SBX_TREE_XATTRS;
        good = hand->hash != NULL && hand->whole != NULL && hand->block != NULL;
    }
    return good ? SANDBOX_OK : sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to read a tree");
}

void sbx_tree_work_end(struct sbx_tree_work *work)
{
    empty_batch(&work->batch);
    sbx_bytes_free(&work->batch.texts);
    sbx_bytes_free(&work->line);
    sbx_close_fd(&work->links);
    for (unsigned n = 0; n < SBX_CREW_MAX; n++) {
        struct sbx_tree_hand *hand = &work->hands[n];
        sbx_hash_free(hand->hash);
        sbx_hash_free(hand->whole);
        free(hand->block);
        sbx_bytes_free(&hand->xattrs);
    }
    sbx_hash_free(work->list);
    sbx_crew_free(work->own_crew);
}

static bool add_text(struct sbx_bytes *texts, const char *text, size_t *at)
{
    *at = sbx_bytes_size(texts);
    return sbx_bytes_append(texts, text, strlen(text) + 1);
}

sandbox_status sbx_tree_batch_add(struct sbx_tree_work *work, const struct sbx_tree_entry *entry,
                                  const char *name, const char *target, const char *path,
                                  sandbox_error *error)
{
    struct sbx_tree_batch *batch = &work->batch;
    struct sbx_tree_entry *added = &batch->entries[batch->entry_count];
    *added = *entry;
    added->folder = batch->folder_count - 1;
    if (!add_text(&batch->texts, name, &added->name) ||
        !add_text(&batch->texts, target, &added->target) ||
        !add_text(&batch->texts, path, &added->path))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to read a tree");
    batch->entry_count++;
    if (batch->entry_count == SBX_TREE_BATCH || sbx_tree_is_large(added))
        return sbx_tree_batch_flush(work, error);
    return SANDBOX_OK;
}

sandbox_status sbx_tree_batch_folder(struct sbx_tree_work *work, int source, int target,
                                     sandbox_error *error)
{
    struct sbx_tree_batch *batch = &work->batch;
    if (batch->folder_count == SBX_TREE_FOLDERS) {
        sandbox_status status = sbx_tree_batch_flush(work, error);
        if (status != SANDBOX_OK)
            return status;
        empty_batch(batch); /* the folder that it kept, too */
    }
    struct sbx_tree_folder *folder = &batch->folders[batch->folder_count++];
    folder->source = fcntl(source, F_DUPFD_CLOEXEC, 0);
    folder->target = target < 0 ? -1 : fcntl(target, F_DUPFD_CLOEXEC, 0);
    if (folder->source < 0 || (target >= 0 && folder->target < 0))
        return sbx_fail_errno(error, errno, "cannot read a tree");
    return SANDBOX_OK;
}

sandbox_status sbx_tree_batch_close(struct sbx_tree_work *work, struct sbx_tree_closing *closing,
                                    sandbox_error *error)
{
    struct sbx_tree_batch *batch = &work->batch;
    batch->closings[batch->closing_count++] = *closing;
    return batch->closing_count == SBX_TREE_BATCH ? sbx_tree_batch_flush(work, error) : SANDBOX_OK;
}

/* The last folder stays the one that entries are added to. */
sandbox_status sbx_tree_batch_flush(struct sbx_tree_work *work, sandbox_error *error)
{
    struct sbx_tree_batch *batch = &work->batch;
    struct sbx_tree_entry *last =
        batch->entry_count > 0 ? &batch->entries[batch->entry_count - 1] : NULL;
    sandbox_status status =
        sbx_crew_run(work->crew, batch->entry_count, do_entry, work, work->job->wait, error);
    if (status == SANDBOX_OK && last != NULL && sbx_tree_is_large(last))
        status = sbx_tree_take_large(work, last, error);
    uint64_t moved = 0;
    for (unsigned n = 0; status == SANDBOX_OK && n < batch->entry_count; n++) {
        struct sbx_tree_entry *entry = &batch->entries[n];
        status = list_entry(work, entry, error);
        moved += entry->kind == 'f' && !sbx_tree_is_large(entry) ? entry->size : 0;
    }
    for (unsigned n = 0; status == SANDBOX_OK && n < batch->closing_count; n++) {
        const struct sbx_tree_closing *closing = &batch->closings[n];
        int number = sbx_tree_dress(closing->target, closing->uid, closing->gid, closing->mode,
                                    &closing->modified, &closing->xattrs);
        if (number != 0)
            status = sbx_fail_errno(error, number, "cannot complete a directory of a copy");
    }
    if (moved > 0 && status == SANDBOX_OK && work->job->moved != NULL)
        work->job->moved(work->job->user_data, moved);
    struct sbx_tree_folder kept = {-1, -1};
    if (batch->folder_count > 0)
        kept = batch->folders[--batch->folder_count];
    empty_batch(batch);
    if (kept.source >= 0)
        batch->folders[batch->folder_count++] = kept;
    return status;
}

static sandbox_status do_entry(void *data, unsigned hand, uint64_t index, sandbox_error *error)
{
    struct sbx_tree_work *work = data;
    struct sbx_tree_entry *entry = &work->batch.entries[index];
    int number = 0;
    if (entry->kind == 'f' && !sbx_tree_is_large(entry))
        return sbx_tree_take_file(work, &work->hands[hand], entry, error);
    if (!work->copying)
        return SANDBOX_OK;
    if (entry->kind == 'l')
        number = make_link(work, entry);
    else if (entry->kind == 'p')
        number = make_fifo(work, entry);
    else if (entry->kind == 'h')
        number = make_twin(work, entry);
    return number == 0 ? SANDBOX_OK
                       : sbx_fail_errno(error, number, "cannot copy '%s'",
                                        sbx_tree_text(work, entry->path));
}

static int make_link(const struct sbx_tree_work *work, const struct sbx_tree_entry *entry)
{
    const struct timespec times[2] = {{0, UTIME_OMIT}, entry->modified};
    int folder = work->batch.folders[entry->folder].target;
    const char *name = sbx_tree_text(work, entry->name);
    if (symlinkat(sbx_tree_text(work, entry->target), folder, name) < 0 ||
        fchownat(folder, name, entry->uid, entry->gid, AT_SYMLINK_NOFOLLOW) < 0 ||
        utimensat(folder, name, times, AT_SYMLINK_NOFOLLOW) < 0)
        return errno;
    return 0;
}

static int make_fifo(const struct sbx_tree_work *work, const struct sbx_tree_entry *entry)
{
    const struct timespec times[2] = {{0, UTIME_OMIT}, entry->modified};
    int folder = work->batch.folders[entry->folder].target;
    const char *name = sbx_tree_text(work, entry->name);
    if (mkfifoat(folder, name, 0600) < 0 ||
        fchownat(folder, name, entry->uid, entry->gid, AT_SYMLINK_NOFOLLOW) < 0 ||
        fchmodat(folder, name, entry->mode & 07777, 0) < 0 ||
        utimensat(folder, name, times, AT_SYMLINK_NOFOLLOW) < 0)
        return errno;
    return 0;
}

/* One more name of a file that was copied in an earlier batch. */
static int make_twin(const struct sbx_tree_work *work, const struct sbx_tree_entry *entry)
{
    char first[24];
    snprintf(first, sizeof first, "%" PRIu64, entry->number);
    return linkat(work->links, first, work->batch.folders[entry->folder].target,
                  sbx_tree_text(work, entry->name), 0) < 0
               ? errno
               : 0;
}

static sandbox_status list_entry(struct sbx_tree_work *work, const struct sbx_tree_entry *entry,
                                 sandbox_error *error)
{
    sbx_bytes_skip(&work->line, sbx_bytes_size(&work->line));
    if (!write_line(work, entry))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to list a tree");
    sbx_hash_add(work->list, sbx_bytes_data(&work->line), sbx_bytes_size(&work->line));
    if (work->job->line == NULL)
        return SANDBOX_OK;
    return work->job->line(work->job->user_data, (const char *)sbx_bytes_data(&work->line),
                           sbx_bytes_size(&work->line), sbx_tree_text(work, entry->path), error);
}

/*
 * KIND MODE OWNER GROUP SIZE TIME ATTRIBUTES CONTENT NAME; "h LINE NAME" for one more name of the
 * file in that line; "u" for the way up.
 */
static bool write_line(struct sbx_tree_work *work, const struct sbx_tree_entry *entry)
{
    struct sbx_bytes *line = &work->line;
    char xattrs[2 * SBX_DIGEST_BYTES + 1] = "-", content[2 * SBX_DIGEST_BYTES + 1] = "-";
    if (entry->kind == 'u')
        return sbx_bytes_append(line, "u\n", 2);
    if (entry->has_xattrs)
        sbx_hex_print(entry->xattrs, sizeof entry->xattrs, xattrs);
    if (entry->kind == 'f')
        sbx_hex_print(entry->content, sizeof entry->content, content);
    bool good =
        entry->kind == 'h'
            ? sbx_bytes_format(line, "h %" PRIu64 " ", entry->number)
            : sbx_bytes_format(line, "%c %04o %u %u %" PRIu64 " %lld.%09ld %s ", entry->kind,
                               (unsigned)entry->mode & 07777, (unsigned)entry->uid,
                               (unsigned)entry->gid, entry->size, (long long)entry->modified.tv_sec,
                               entry->modified.tv_nsec, xattrs);
    if (good && entry->kind == 'l')
        good =
            add_escaped(line, sbx_tree_text(work, entry->target)) && sbx_bytes_append(line, " ", 1);
    else if (good && entry->kind != 'h')
        good = sbx_bytes_format(line, "%s ", content);
    return good && add_escaped(line, sbx_tree_text(work, entry->name)) &&
           sbx_bytes_append(line, "\n", 1);
}

/* Names hold any byte but zero and the slash: what could be taken for a mark is written \ooo. */
static bool add_escaped(struct sbx_bytes *line, const char *text)
{
    for (const uint8_t *at = (const uint8_t *)text; *at != 0;) {
        size_t plain = 0;
        while (at[plain] > ' ' && at[plain] != '\\' && at[plain] != 0x7f)
            plain++;
        if (!sbx_bytes_append(line, at, plain))
            return false;
        at += plain;
        if (*at != 0 && !sbx_bytes_format(line, "\\%03o", *at))
            return false;
        at += *at != 0;
    }
    return true;
}

static void empty_batch(struct sbx_tree_batch *batch)
{
    for (unsigned n = 0; n < batch->folder_count; n++) {
        sbx_close_fd(&batch->folders[n].source);
        sbx_close_fd(&batch->folders[n].target);
    }
    for (unsigned n = 0; n < batch->closing_count; n++) {
        sbx_close_fd(&batch->closings[n].target);
        sbx_bytes_free(&batch->closings[n].xattrs);
    }
    batch->entry_count = batch->folder_count = batch->closing_count = 0;
    sbx_bytes_skip(&batch->texts, sbx_bytes_size(&batch->texts));
    batch->number++;
}
