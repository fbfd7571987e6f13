/* Reading tar archives: a state machine over whatever bytes come, one block at a time. */

#include "util/tar.h"

#include "util/memory.h"
#include "util/tar_fields.h"

#include <stdarg.h>
#include <stdio.h>

#define META_MAX (1u << 20)  /* one pax header or long name */
#define PIECES_MAX 65536u    /* data pieces of one sparse file */
#define METAS_MAX 16u        /* headers about one entry: more is a game */
#define OLD_PIECES_HEAD 4    /* in an old GNU sparse header */
#define OLD_PIECES_BLOCK 21  /* in each block that continues it */

enum state {
    AT_HEADER,
    AT_META,      /* collecting a pax header or a GNU long name */
    AT_OLD_MAP,   /* continuation blocks of an old GNU sparse header */
    AT_MAP,       /* decimal sparse map before the data (GNU sparse 1.0) */
    AT_DATA,
    AT_PADDING,   /* up to the next block */
    AT_END,
    AT_BAD,
};

struct sbx_tar_reader {
    enum state state;
    const uint8_t *input;
    size_t input_size;
    uint8_t block[SBX_TAR_BLOCK];
    size_t block_used;
    unsigned zero_blocks;
    bool metas_pending; /* headers were read whose entry has not come */

    uint8_t *meta;
    size_t meta_size, meta_used;
    char meta_type;

    struct sbx_tar_extras extras;
    struct sbx_tar_entry entry;
    bool entry_told, deliver;
    uint64_t left;    /* stored content still to come */
    uint64_t padding; /* after it */

    struct sbx_tar_piece *pieces;
    size_t piece_count, piece_capacity, piece_index;
    uint64_t piece_used;
    /* the number being read, how many are, of how many */
    uint64_t map_number, map_numbers, map_wanted;
    unsigned map_digits;
    uint64_t map_bytes;

    const uint8_t *data;
    size_t data_size;
    uint64_t data_offset, dense_offset;
    char problem[128];
};

static void bad(struct sbx_tar_reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void take_block(struct sbx_tar_reader *reader);
static void read_header(struct sbx_tar_reader *reader);
static void begin_meta(struct sbx_tar_reader *reader, char type, uint64_t size);
static void take_meta(struct sbx_tar_reader *reader);
static void end_meta(struct sbx_tar_reader *reader);
static void begin_entry(struct sbx_tar_reader *reader, char type, uint64_t size);
static bool take_names(struct sbx_tar_reader *reader);
static void begin_content(struct sbx_tar_reader *reader, char type, uint64_t size);
static void begin_sparse(struct sbx_tar_reader *reader, uint64_t size);
static void begin_old_sparse(struct sbx_tar_reader *reader);
static bool take_old_pieces(struct sbx_tar_reader *reader, const uint8_t *at, size_t count);
static void take_old_block(struct sbx_tar_reader *reader);
static bool add_piece(struct sbx_tar_reader *reader, uint64_t offset, uint64_t size);
static void take_map(struct sbx_tar_reader *reader);
static void end_map_number(struct sbx_tar_reader *reader);
static void end_map(struct sbx_tar_reader *reader);
static enum sbx_tar_event take_data(struct sbx_tar_reader *reader);

struct sbx_tar_reader *sbx_tar_reader_new(void)
{
    return calloc(1, sizeof(struct sbx_tar_reader));
}

void sbx_tar_reader_free(struct sbx_tar_reader *reader)
{
    if (reader == NULL)
        return;
    free(reader->meta);
    free(reader->pieces);
    free(reader);
}

void sbx_tar_reader_feed(struct sbx_tar_reader *reader, const void *data, size_t size)
{
    reader->input = data;
    reader->input_size = size;
}

enum sbx_tar_event sbx_tar_reader_next(struct sbx_tar_reader *reader)
{
    for (;;) {
        if (reader->state == AT_BAD)
            return SBX_TAR_BAD;
        if (reader->state == AT_END) {
            reader->input_size = 0;
            return SBX_TAR_END;
        }
        if (reader->state == AT_DATA && !reader->entry_told) {
            reader->entry_told = true;
            return SBX_TAR_ENTRY;
        }
        if (reader->state == AT_DATA && reader->left == 0) {
            reader->state = AT_PADDING;
            return SBX_TAR_DONE;
        }
        if (reader->state == AT_PADDING && reader->padding == 0) {
            reader->state = AT_HEADER;
            continue;
        }
        if (reader->input_size == 0)
            return SBX_TAR_MORE;
        switch (reader->state) {
        case AT_META:
            take_meta(reader);
            break;
        case AT_MAP:
            take_map(reader);
            break;
        case AT_DATA:
            if (take_data(reader) == SBX_TAR_DATA)
                return SBX_TAR_DATA;
            break;
        case AT_PADDING: {
            size_t size = reader->input_size < reader->padding ? reader->input_size
                                                               : (size_t)reader->padding;
            reader->input += size;
            reader->input_size -= size;
            reader->padding -= size;
            break;
        }
        default:
            take_block(reader);
        }
    }
}

const struct sbx_tar_entry *sbx_tar_reader_entry(const struct sbx_tar_reader *reader)
{
    return &reader->entry;
}

const uint8_t *sbx_tar_reader_data(const struct sbx_tar_reader *reader, size_t *size,
                                   uint64_t *offset)
{
    *size = reader->data_size;
    *offset = reader->data_offset;
    return reader->data;
}

const char *sbx_tar_reader_problem(const struct sbx_tar_reader *reader)
{
    return reader->problem;
}

static void bad(struct sbx_tar_reader *reader, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reader->problem, sizeof reader->problem, format, arguments);
    va_end(arguments);
    reader->state = AT_BAD;
}

/* How much follows `size` bytes up to the next block. */
static uint64_t padding_of(uint64_t size)
{
    return (SBX_TAR_BLOCK - size % SBX_TAR_BLOCK) % SBX_TAR_BLOCK;
}

static void take_block(struct sbx_tar_reader *reader)
{
    size_t size = SBX_TAR_BLOCK - reader->block_used;
    if (size > reader->input_size)
        size = reader->input_size;
    memcpy(reader->block + reader->block_used, reader->input, size);
    reader->block_used += size;
    reader->input += size;
    reader->input_size -= size;
    if (reader->block_used < SBX_TAR_BLOCK)
        return;
    reader->block_used = 0;
    if (reader->state == AT_OLD_MAP)
        take_old_block(reader);
    else
        read_header(reader);
}

static bool is_zero(const uint8_t *block)
{
    for (size_t i = 0; i < SBX_TAR_BLOCK; i++)
        if (block[i] != 0)
            return false;
    return true;
}

static void read_header(struct sbx_tar_reader *reader)
{
    const uint8_t *block = reader->block;
    if (is_zero(block)) {
        if (reader->metas_pending)
            bad(reader, "the archive ends where an entry was announced");
        else if (++reader->zero_blocks == 2)
            reader->state = AT_END;
        return;
    }
    if (reader->zero_blocks != 0) {
        bad(reader, "a lone zero block stands inside the archive");
        return;
    }
    int64_t size = 0;
    if (!sbx_tar_checksum_is_right(block)) {
        bad(reader, "a header has a wrong checksum");
        return;
    }
    if (!sbx_tar_number(block + TAR_SIZE, TAR_SIZE_SIZE, &size) || size < 0) {
        bad(reader, "a header has a size that is no number");
        return;
    }
    char type = (char)block[TAR_TYPE];
    if (type == 'x' || type == 'g' || type == 'L' || type == 'K')
        begin_meta(reader, type, (uint64_t)size);
    else
        begin_entry(reader, type, (uint64_t)size);
}

static void begin_meta(struct sbx_tar_reader *reader, char type, uint64_t size)
{
    if (size > META_MAX) {
        bad(reader, "a pax header or long name is larger than 1 MiB");
        return;
    }
    if (++reader->extras.count > METAS_MAX) {
        bad(reader, "an entry has more than 16 headers");
        return;
    }
    free(reader->meta);
    reader->meta = malloc((size_t)size + 1);
    if (reader->meta == NULL) {
        bad(reader, "no memory for a pax header");
        return;
    }
    reader->meta_size = (size_t)size;
    reader->meta_used = 0;
    reader->meta_type = type;
    reader->padding = padding_of(size);
    if (type != 'g')
        reader->metas_pending = true;
    reader->state = AT_META;
    if (size == 0)
        end_meta(reader);
}

static void take_meta(struct sbx_tar_reader *reader)
{
    size_t size = reader->meta_size - reader->meta_used;
    if (size > reader->input_size)
        size = reader->input_size;
    memcpy(reader->meta + reader->meta_used, reader->input, size);
    reader->meta_used += size;
    reader->input += size;
    reader->input_size -= size;
    if (reader->meta_used == reader->meta_size)
        end_meta(reader);
}

static bool set_name(struct sbx_tar_reader *reader, char *name, const void *data, size_t size)
{
    if (sbx_tar_name(name, data, size))
        return true;
    bad(reader, "a name is longer than %d bytes or holds a zero byte", SBX_TAR_PATH_MAX - 1);
    return false;
}

static void end_meta(struct sbx_tar_reader *reader)
{
    struct sbx_tar_extras *extras = &reader->extras;
    size_t size = reader->meta_size;
    char problem[96];
    reader->meta[size] = 0;
    reader->state = AT_PADDING;
    if (reader->meta_type == 'x' &&
        !sbx_tar_records(extras, (const char *)reader->meta, size, problem, sizeof problem))
        bad(reader, "%s", problem);
    /* GNU long names end in a NUL that counts. Global headers say nothing that we use. */
    while (size > 0 && reader->meta[size - 1] == 0)
        size--;
    if (reader->meta_type == 'L')
        extras->has_path = set_name(reader, extras->path, reader->meta, size);
    else if (reader->meta_type == 'K')
        extras->has_target = set_name(reader, extras->target, reader->meta, size);
    free(sbx_take(reader->meta));
}

static void begin_entry(struct sbx_tar_reader *reader, char type, uint64_t size)
{
    struct sbx_tar_entry *entry = &reader->entry;
    const uint8_t *block = reader->block;
    *entry = (struct sbx_tar_entry){.kind = SBX_TAR_OTHER};
    int64_t mode = 0, modified = 0;
    if (!sbx_tar_number(block + TAR_MODE, TAR_MODE_SIZE, &mode) ||
        !sbx_tar_number(block + TAR_MODIFIED, TAR_MODIFIED_SIZE, &modified)) {
        bad(reader, "a header has a mode or time that is no number");
        return;
    }
    entry->mode = (uint32_t)mode & 07777;
    entry->modified_s = reader->extras.has_modified ? reader->extras.modified_s : modified;
    if (!take_names(reader))
        return;
    size_t path_size = strlen(entry->path);
    if (type == '0' || type == 0 || type == '7' || type == 'S')
        entry->kind = SBX_TAR_REGULAR;
    if ((type == 0 || type == '0') && path_size > 1 && entry->path[path_size - 1] == '/')
        entry->kind = SBX_TAR_DIRECTORY; /* as before POSIX */
    if (type == '5')
        entry->kind = SBX_TAR_DIRECTORY;
    if (type == '2')
        entry->kind = SBX_TAR_LINK;
    if (type == '1')
        entry->kind = SBX_TAR_HARD_LINK;
    if ((type == '1' || type == '2') && entry->target[0] == 0) {
        bad(reader, "a link has no target");
        return;
    }
    if (reader->extras.has_size)
        size = reader->extras.size;
    begin_content(reader, type, size);
    reader->extras = (struct sbx_tar_extras){0};
    reader->metas_pending = false;
}

static size_t field_size(const uint8_t *field, size_t size)
{
    const uint8_t *end = memchr(field, 0, size);
    return end == NULL ? size : (size_t)(end - field);
}

static bool take_names(struct sbx_tar_reader *reader)
{
    struct sbx_tar_entry *entry = &reader->entry;
    const struct sbx_tar_extras *extras = &reader->extras;
    const uint8_t *block = reader->block;
    /* GNU's own format has other things where POSIX has the prefix. */
    bool posix = memcmp(block + TAR_MAGIC, "ustar\0", 6) == 0;
    size_t prefix = posix ? field_size(block + TAR_PREFIX, TAR_PREFIX_SIZE) : 0;
    if (extras->has_sparse_name || extras->has_path) {
        memcpy(entry->path, extras->has_sparse_name ? extras->sparse_name : extras->path,
               sizeof entry->path);
    } else {
        size_t size = field_size(block + TAR_NAME, TAR_NAME_SIZE);
        memcpy(entry->path, block + TAR_PREFIX, prefix);
        if (prefix > 0)
            entry->path[prefix++] = '/';
        memcpy(entry->path + prefix, block + TAR_NAME, size);
        entry->path[prefix + size] = 0;
    }
    if (extras->has_target)
        memcpy(entry->target, extras->target, sizeof entry->target);
    else
        set_name(reader, entry->target, block + TAR_TARGET,
                 field_size(block + TAR_TARGET, TAR_TARGET_SIZE));
    if (entry->path[0] == 0) {
        bad(reader, "an entry has no name");
        return false;
    }
    return true;
}

static void begin_content(struct sbx_tar_reader *reader, char type, uint64_t size)
{
    struct sbx_tar_entry *entry = &reader->entry;
    const struct sbx_tar_extras *extras = &reader->extras;
    /* Links, directories, devices and fifos have no content, whatever their size field says. */
    if (entry->kind == SBX_TAR_DIRECTORY || (type >= '1' && type <= '6'))
        size = 0;
    entry->size = entry->kind == SBX_TAR_REGULAR ? size : 0;
    reader->entry_told = false;
    reader->deliver = entry->kind == SBX_TAR_REGULAR;
    reader->left = size;
    reader->padding = padding_of(size);
    reader->dense_offset = 0;
    reader->piece_count = 0;
    reader->piece_index = 0;
    reader->piece_used = 0;
    reader->state = AT_DATA;
    if (entry->kind != SBX_TAR_REGULAR)
        return;
    if (type == 'S')
        begin_old_sparse(reader);
    else if (extras->has_sparse_major || extras->has_sparse_minor || extras->has_sparse_name ||
             extras->has_real_size)
        begin_sparse(reader, size);
}

static void begin_sparse(struct sbx_tar_reader *reader, uint64_t size)
{
    const struct sbx_tar_extras *extras = &reader->extras;
    if (extras->sparse_major != 1 || extras->sparse_minor != 0 || !extras->has_real_size) {
        bad(reader, "a sparse file is not in the GNU 1.0 form");
        return;
    }
    reader->entry.sparse = true;
    reader->entry.size = extras->real_size;
    reader->map_number = 0;
    reader->map_digits = 0;
    reader->map_numbers = 0;
    reader->map_wanted = 0;
    reader->map_bytes = 0;
    reader->state = AT_MAP;
    if (size == 0)
        bad(reader, "a sparse file has no map");
}

static void begin_old_sparse(struct sbx_tar_reader *reader)
{
    int64_t real_size = 0;
    if (!sbx_tar_number(reader->block + TAR_OLD_REAL_SIZE, TAR_OLD_MAP_NUMBER, &real_size) ||
        real_size < 0) {
        bad(reader, "a sparse file has a size that is no number");
        return;
    }
    reader->entry.sparse = true;
    reader->entry.size = (uint64_t)real_size;
    if (!take_old_pieces(reader, reader->block + TAR_OLD_MAP, OLD_PIECES_HEAD))
        return;
    if (reader->block[TAR_OLD_MAP_MORE] != 0)
        reader->state = AT_OLD_MAP;
    else
        end_map(reader);
}

static bool take_old_pieces(struct sbx_tar_reader *reader, const uint8_t *at, size_t count)
{
    for (size_t i = 0; i < count; i++, at += 2 * TAR_OLD_MAP_NUMBER) {
        int64_t offset, size;
        if (at[0] == 0)
            return true;
        if (!sbx_tar_number(at, TAR_OLD_MAP_NUMBER, &offset) ||
            !sbx_tar_number(at + TAR_OLD_MAP_NUMBER, TAR_OLD_MAP_NUMBER, &size) || offset < 0 ||
            size < 0) {
            bad(reader, "a sparse map holds what is no number");
            return false;
        }
        if (!add_piece(reader, (uint64_t)offset, (uint64_t)size))
            return false;
    }
    return true;
}

static void take_old_block(struct sbx_tar_reader *reader)
{
    if (!take_old_pieces(reader, reader->block, OLD_PIECES_BLOCK))
        return;
    if (reader->block[TAR_OLD_BLOCK_MORE] == 0)
        end_map(reader);
    else if (reader->map_bytes++ > PIECES_MAX) /* blocks that say nothing, without end */
        bad(reader, "a sparse map has too many blocks");
}

static bool add_piece(struct sbx_tar_reader *reader, uint64_t offset, uint64_t size)
{
    if (reader->piece_count == PIECES_MAX) {
        bad(reader, "a sparse file has more than 65,536 pieces");
        return false;
    }
    uint64_t from = 0;
    if (reader->piece_count > 0) {
        const struct sbx_tar_piece *last = &reader->pieces[reader->piece_count - 1];
        from = last->offset + last->size;
    }
    if (offset < from || offset > reader->entry.size || size > reader->entry.size - offset) {
        bad(reader, "a sparse map is out of order or leads past the file's end");
        return false;
    }
    if (reader->piece_count == reader->piece_capacity) {
        size_t capacity = reader->piece_capacity == 0 ? 16 : 2 * reader->piece_capacity;
        struct sbx_tar_piece *larger = realloc(reader->pieces, capacity * sizeof *larger);
        if (larger == NULL) {
            bad(reader, "no memory for a sparse map");
            return false;
        }
        reader->pieces = larger;
        reader->piece_capacity = capacity;
    }
    reader->pieces[reader->piece_count++] = (struct sbx_tar_piece){offset, size};
    return true;
}

static void take_map(struct sbx_tar_reader *reader)
{
    while (reader->state == AT_MAP && reader->input_size > 0) {
        bool complete = reader->map_numbers > 0 && reader->map_numbers == reader->map_wanted;
        if (complete && reader->map_bytes % SBX_TAR_BLOCK == 0) {
            end_map(reader);
            return;
        }
        if (reader->left == 0) {
            bad(reader, "a sparse map is cut off");
            return;
        }
        uint8_t byte = *reader->input++;
        reader->input_size--;
        reader->left--;
        reader->map_bytes++;
        if (complete)
            continue; /* fill up to the block */
        if (byte == '\n' && reader->map_digits > 0) {
            end_map_number(reader);
        } else if (byte >= '0' && byte <= '9' && ++reader->map_digits <= 18) {
            reader->map_number = reader->map_number * 10 + (uint64_t)(byte - '0');
        } else {
            bad(reader, "a sparse map holds what is no number");
        }
    }
    if (reader->state == AT_MAP && reader->map_numbers > 0 &&
        reader->map_numbers == reader->map_wanted && reader->map_bytes % SBX_TAR_BLOCK == 0)
        end_map(reader);
}

/* The first number says how many pairs follow; of each pair the offset comes first. */
static void end_map_number(struct sbx_tar_reader *reader)
{
    uint64_t number = reader->map_number;
    reader->map_number = 0;
    reader->map_digits = 0;
    if (reader->map_numbers++ == 0) {
        if (number > PIECES_MAX)
            bad(reader, "a sparse file has more than 65,536 pieces");
        reader->map_wanted = 1 + 2 * number;
        return;
    }
    if (reader->map_numbers % 2 == 0) {
        reader->data_offset = number; /* kept until its size is read */
        return;
    }
    add_piece(reader, reader->data_offset, number);
}

static void end_map(struct sbx_tar_reader *reader)
{
    uint64_t total = 0;
    for (size_t i = 0; i < reader->piece_count; i++)
        total += reader->pieces[i].size;
    if (total != reader->left) {
        bad(reader, "a sparse map does not fit the file's content");
        return;
    }
    reader->map_bytes = 0;
    reader->state = AT_DATA;
}

static enum sbx_tar_event take_data(struct sbx_tar_reader *reader)
{
    size_t size = reader->input_size < reader->left ? reader->input_size : (size_t)reader->left;
    reader->data_offset = reader->dense_offset;
    if (reader->entry.sparse) {
        const struct sbx_tar_piece *piece = &reader->pieces[reader->piece_index];
        while (reader->piece_used == piece->size) {
            piece = &reader->pieces[++reader->piece_index];
            reader->piece_used = 0;
        }
        if (size > piece->size - reader->piece_used)
            size = (size_t)(piece->size - reader->piece_used);
        reader->data_offset = piece->offset + reader->piece_used;
        reader->piece_used += size;
    }
    reader->data = reader->input;
    reader->data_size = size;
    reader->dense_offset += size;
    reader->left -= size;
    reader->input += size;
    reader->input_size -= size;
    return reader->deliver ? SBX_TAR_DATA : SBX_TAR_MORE;
}
