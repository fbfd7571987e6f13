/*
 * The tar format, without I/O: bytes in, entries out, and back. Reads ustar, pax (path, linkpath,
 * size, mtime, GNU sparse 1.0) and GNU long names; writes ustar with pax where a field does not
 * fit. Names are bytes. Used by the agent and by the host side alike.
 */
#ifndef SBX_UTIL_TAR_H
#define SBX_UTIL_TAR_H

#include "util/bytes.h"

#define SBX_TAR_BLOCK 512
#define SBX_TAR_PATH_MAX 4096

enum sbx_tar_kind {
    SBX_TAR_REGULAR = 1,
    SBX_TAR_DIRECTORY,
    SBX_TAR_LINK,      /* symbolic; `target` */
    SBX_TAR_HARD_LINK, /* to an earlier entry; `target` */
    SBX_TAR_OTHER,     /* devices, fifos and types we do not know: to be skipped */
};

struct sbx_tar_entry {
    enum sbx_tar_kind kind;
    /* as written there: may be absolute, hold "..", anything but a NUL */
    char path[SBX_TAR_PATH_MAX];
    char target[SBX_TAR_PATH_MAX];
    uint32_t mode;                 /* 12 bits */
    uint64_t size;                 /* of the file as seen by its reader, holes counted */
    int64_t modified_s;
    bool sparse;
};

enum sbx_tar_event {
    SBX_TAR_MORE,  /* all input is used up: give more */
    SBX_TAR_ENTRY, /* reader->entry is new */
    SBX_TAR_DATA,  /* reader->data, data_size, data_offset: content of the entry at that offset */
    SBX_TAR_DONE,  /* the entry's content is complete */
    SBX_TAR_END,   /* two zero blocks: the archive is complete */
    SBX_TAR_BAD,   /* reader->problem says why; nothing more will come */
};

struct sbx_tar_reader;
struct sbx_tar_reader *sbx_tar_reader_new(void); /* NULL: no memory */
void sbx_tar_reader_free(struct sbx_tar_reader *reader);
/* Give input; it must stay valid until SBX_TAR_MORE was returned. */
void sbx_tar_reader_feed(struct sbx_tar_reader *reader, const void *data, size_t size);
enum sbx_tar_event sbx_tar_reader_next(struct sbx_tar_reader *reader);
const struct sbx_tar_entry *sbx_tar_reader_entry(const struct sbx_tar_reader *reader);
const uint8_t *sbx_tar_reader_data(const struct sbx_tar_reader *reader, size_t *size,
                                   uint64_t *offset);
const char *sbx_tar_reader_problem(const struct sbx_tar_reader *reader);

/* A piece of a sparse file that holds data. */
struct sbx_tar_piece {
    uint64_t offset, size;
};

/*
 * Append an entry's headers. For a sparse file the pieces are told in `pieces` and their data
 * follows one after the other; otherwise `entry->size` bytes follow. Every piece but the last is
 * a multiple of a block, since GNU tar reads each from a block's beginning. False: no memory, or
 * a name too long.
 */
bool sbx_tar_write_entry(struct sbx_bytes *out, const struct sbx_tar_entry *entry,
                         const struct sbx_tar_piece *pieces, size_t piece_count);
/* Zero bytes up to the next block after `data_size` bytes of content. */
bool sbx_tar_write_padding(struct sbx_bytes *out, uint64_t data_size);
bool sbx_tar_write_end(struct sbx_bytes *out);

#endif
