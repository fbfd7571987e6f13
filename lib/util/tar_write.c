/* Writing tar archives: ustar headers, and a pax header before those whose fields do not fit. */

#include "util/tar_fields.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define OCTAL_11_MAX 077777777777 /* what eleven octal digits hold */
#define RECORDS_MAX (16u << 10)   /* two long names and some numbers */

static bool append_records(struct sbx_bytes *records, const struct sbx_tar_entry *entry,
                           uint64_t stored, bool name_fits);
static bool append_record(struct sbx_bytes *records, const char *key, const char *value);
static bool append_number(struct sbx_bytes *records, const char *key, int64_t number);
static bool is_utf8(const char *text);
static bool append_header(struct sbx_bytes *out, const struct sbx_tar_entry *entry, char type,
                          const char *name, uint64_t size);
static bool split_name(uint8_t *block, const char *name);
static bool append_map(struct sbx_bytes *map, const struct sbx_tar_piece *pieces, size_t count,
                       uint64_t size);

bool sbx_tar_write_entry(struct sbx_bytes *out, const struct sbx_tar_entry *entry,
                         const struct sbx_tar_piece *pieces, size_t piece_count)
{
    static const char types[] = {[SBX_TAR_REGULAR] = '0', [SBX_TAR_DIRECTORY] = '5',
                                 [SBX_TAR_LINK] = '2', [SBX_TAR_HARD_LINK] = '1',
                                 [SBX_TAR_OTHER] = '6'};
    char name[SBX_TAR_PATH_MAX + 1];
    uint8_t block[SBX_TAR_BLOCK];
    bool regular = entry->kind == SBX_TAR_REGULAR;
    bool sparse = regular && entry->sparse;
    uint64_t stored = regular ? entry->size : 0;
    struct sbx_bytes records = SBX_BYTES(RECORDS_MAX);
    struct sbx_bytes map = SBX_BYTES(SIZE_MAX);

    size_t size = strnlen(entry->path, SBX_TAR_PATH_MAX);
    if (size == 0 || size + 1 >= SBX_TAR_PATH_MAX)
        return false;
    memcpy(name, entry->path, size + 1);
    if (entry->kind == SBX_TAR_DIRECTORY && name[size - 1] != '/')
        memcpy(name + size, "/", 2);
    bool fine = !sparse || append_map(&map, pieces, piece_count, entry->size);
    if (sparse) {
        stored = sbx_bytes_size(&map);
        for (size_t i = 0; i < piece_count; i++)
            stored += pieces[i].size;
    }
    struct sbx_tar_entry named = *entry;
    memcpy(named.path, name, sizeof named.path);
    fine = fine && append_records(&records, &named, stored, split_name(block, name));
    if (fine && sbx_bytes_size(&records) > 0) {
        const struct sbx_tar_entry header = {.kind = SBX_TAR_REGULAR, .mode = 0644};
        fine = append_header(out, &header, 'x', "pax", sbx_bytes_size(&records)) &&
               sbx_bytes_append(out, sbx_bytes_data(&records), sbx_bytes_size(&records)) &&
               sbx_tar_write_padding(out, sbx_bytes_size(&records));
    }
    fine = fine &&
           append_header(out, &named, types[entry->kind], sparse ? "GNUSparseFile.0" : name,
                         stored) &&
           (!sparse || sbx_bytes_append(out, sbx_bytes_data(&map), sbx_bytes_size(&map)));
    sbx_bytes_free(&records);
    sbx_bytes_free(&map);
    return fine;
}

bool sbx_tar_write_padding(struct sbx_bytes *out, uint64_t data_size)
{
    static const uint8_t zeroes[SBX_TAR_BLOCK];
    size_t size = (SBX_TAR_BLOCK - data_size % SBX_TAR_BLOCK) % SBX_TAR_BLOCK;
    return size == 0 || sbx_bytes_append(out, zeroes, size);
}

bool sbx_tar_write_end(struct sbx_bytes *out)
{
    static const uint8_t zeroes[2 * SBX_TAR_BLOCK];
    return sbx_bytes_append(out, zeroes, sizeof zeroes);
}

static bool append_records(struct sbx_bytes *records, const struct sbx_tar_entry *entry,
                           uint64_t stored, bool name_fits)
{
    bool sparse = entry->kind == SBX_TAR_REGULAR && entry->sparse;
    bool long_name = !name_fits && !sparse;
    bool link = entry->kind == SBX_TAR_LINK || entry->kind == SBX_TAR_HARD_LINK;
    bool long_target = link && strlen(entry->target) > TAR_TARGET_SIZE;
    bool raw = ((long_name || sparse) && !is_utf8(entry->path)) ||
               (long_target && !is_utf8(entry->target));
    bool fine = true;
    /* POSIX wants UTF-8 in records unless this comes first. */
    if (raw)
        fine = append_record(records, "hdrcharset", "BINARY");
    if (long_name)
        fine = fine && append_record(records, "path", entry->path);
    if (long_target)
        fine = fine && append_record(records, "linkpath", entry->target);
    if (stored > OCTAL_11_MAX)
        fine = fine && append_number(records, "size", (int64_t)stored);
    if (entry->modified_s < 0 || entry->modified_s > OCTAL_11_MAX)
        fine = fine && append_number(records, "mtime", entry->modified_s);
    if (sparse)
        fine = fine && append_number(records, "GNU.sparse.major", 1) &&
               append_number(records, "GNU.sparse.minor", 0) &&
               append_record(records, "GNU.sparse.name", entry->path) &&
               append_number(records, "GNU.sparse.realsize", (int64_t)entry->size);
    return fine;
}

/* The length at the front counts its own digits. */
static bool append_record(struct sbx_bytes *records, const char *key, const char *value)
{
    size_t rest = strlen(key) + strlen(value) + 3;
    size_t size = rest + 1;
    while (size != rest + (size_t)snprintf(NULL, 0, "%zu", size))
        size = rest + (size_t)snprintf(NULL, 0, "%zu", size);
    return sbx_bytes_format(records, "%zu %s=%s\n", size, key, value);
}

static bool append_number(struct sbx_bytes *records, const char *key, int64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, number);
    return append_record(records, key, text);
}

static bool is_utf8(const char *text)
{
    const uint8_t *at = (const uint8_t *)text;
    while (*at != 0) {
        unsigned more = *at < 0x80 ? 0 : *at >= 0xf0 && *at < 0xf5 ? 3 : *at >= 0xe0 ? 2 : 1;
        if ((*at >= 0x80 && *at < 0xc2) || *at >= 0xf5)
            return false;
        for (at++; more > 0; more--, at++)
            if ((*at & 0xc0) != 0x80)
                return false;
    }
    return true;
}

static void put_octal(uint8_t *field, size_t size, uint64_t number)
{
    field[size - 1] = 0;
    for (size_t i = size - 1; i > 0; i--, number >>= 3)
        field[i - 1] = (uint8_t)('0' + (number & 7));
}

static bool append_header(struct sbx_bytes *out, const struct sbx_tar_entry *entry, char type,
                          const char *name, uint64_t size)
{
    uint8_t block[SBX_TAR_BLOCK] = {0};
    split_name(block, name);
    put_octal(block + TAR_MODE, TAR_MODE_SIZE, entry->mode & 07777);
    put_octal(block + TAR_OWNER, TAR_OWNER_SIZE, 0);
    put_octal(block + TAR_GROUP, TAR_GROUP_SIZE, 0);
    put_octal(block + TAR_SIZE, TAR_SIZE_SIZE, size);
    if (size > OCTAL_11_MAX) { /* base 256 for readers that know no pax */
        block[TAR_SIZE] = 0x80;
        for (size_t i = TAR_SIZE_SIZE - 1; i > 0; i--, size >>= 8)
            block[TAR_SIZE + i] = (uint8_t)size;
    }
    bool time_fits = entry->modified_s >= 0 && entry->modified_s <= OCTAL_11_MAX;
    put_octal(block + TAR_MODIFIED, TAR_MODIFIED_SIZE,
              time_fits ? (uint64_t)entry->modified_s : 0);
    block[TAR_TYPE] = (uint8_t)type;
    size_t target = strnlen(entry->target, TAR_TARGET_SIZE);
    if (entry->kind == SBX_TAR_LINK || entry->kind == SBX_TAR_HARD_LINK)
        memcpy(block + TAR_TARGET, entry->target, target);
    memcpy(block + TAR_MAGIC, "ustar\0" "00", 8);
    memset(block + TAR_CHECKSUM, ' ', TAR_CHECKSUM_SIZE);
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof block; i++)
        sum += block[i];
    put_octal(block + TAR_CHECKSUM, TAR_CHECKSUM_SIZE - 1, sum);
    return sbx_bytes_append(out, block, sizeof block);
}

/* Puts the name into name and prefix, cut where it does not fit: then it is told by pax. */
static bool split_name(uint8_t *block, const char *name)
{
    size_t size = strlen(name);
    memset(block + TAR_NAME, 0, TAR_NAME_SIZE);
    memset(block + TAR_PREFIX, 0, TAR_PREFIX_SIZE);
    if (size <= TAR_NAME_SIZE) {
        memcpy(block + TAR_NAME, name, size);
        return true;
    }
    for (size_t i = size - 1 - TAR_NAME_SIZE; i <= TAR_PREFIX_SIZE && i + 1 < size; i++) {
        if (i > 0 && name[i] == '/') {
            memcpy(block + TAR_PREFIX, name, i);
            memcpy(block + TAR_NAME, name + i + 1, size - i - 1);
            return true;
        }
    }
    memcpy(block + TAR_NAME, name, TAR_NAME_SIZE);
    return false;
}

/* GNU sparse 1.0: a count, then offset and size of each piece, in decimal, one a line. */
static bool append_map(struct sbx_bytes *map, const struct sbx_tar_piece *pieces, size_t count,
                       uint64_t size)
{
    /* GNU tar gives the file the size that the last piece reaches, so a last hole needs one. */
    bool hole = count == 0 || pieces[count - 1].offset + pieces[count - 1].size < size;
    if (!sbx_bytes_format(map, "%zu\n", count + (hole ? 1 : 0)))
        return false;
    for (size_t i = 0; i < count; i++)
        if (!sbx_bytes_format(map, "%" PRIu64 "\n%" PRIu64 "\n", pieces[i].offset,
                              pieces[i].size))
            return false;
    if (hole && !sbx_bytes_format(map, "%" PRIu64 "\n0\n", size))
        return false;
    return sbx_tar_write_padding(map, sbx_bytes_size(map));
}
