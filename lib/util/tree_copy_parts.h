/* What the parts of tree_copy.h share: the walk, batches of entries, and contents. */
#ifndef SBX_UTIL_TREE_COPY_PARTS_H
#define SBX_UTIL_TREE_COPY_PARTS_H

#include "util/bytes.h"
#include "util/tree_copy.h"
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>

#define SBX_TREE_PIECE      (8u << 20)   /* what one hand reads at a time of a large file */
#define SBX_TREE_BATCH      256          /* entries that are worked on at the same time */
#define SBX_TREE_FOLDERS    24           /* directories that they may lie in */
#define SBX_TREE_XATTRS     (256u << 10) /* of one entry, names and values */
#define SBX_TREE_WINDOW     256          /* pieces of one file that are worked on at a time */

/* An entry as it was met. */
struct sbx_tree_entry {
    char kind;          /* d directory, u up again, f file, h hard link, l link, p FIFO */
    mode_t mode;
    uid_t uid;
    gid_t gid;
    ino_t inode;
    uint64_t size, stored;
    struct timespec modified;
    bool has_twins;     /* the first of several names of one file */
    bool has_xattrs, cloned;
    unsigned folder;    /* which of the batch's */
    size_t name, target, path; /* where the texts are in the batch's */
    uint64_t number;    /* of a file with twins: which line of the list it is */
    uint8_t content[SBX_DIGEST_BYTES], xattrs[SBX_DIGEST_BYTES];
};

/* A directory whose entries are in the batch, here and in the copy. */
struct sbx_tree_folder {
    int source, target;
};

/* A directory of the copy that is complete, once the batch is: its times would change before. */
struct sbx_tree_closing {
    int target;
    mode_t mode;
    uid_t uid;
    gid_t gid;
    struct timespec modified;
    struct sbx_bytes xattrs;
};

struct sbx_tree_batch {
    struct sbx_tree_entry entries[SBX_TREE_BATCH];
    struct sbx_tree_folder folders[SBX_TREE_FOLDERS];
    struct sbx_tree_closing closings[SBX_TREE_BATCH];
    unsigned entry_count, folder_count, closing_count;
    struct sbx_bytes texts;
    uint64_t number; /* of this batch */
};

/* What each hand works with. */
struct sbx_tree_hand {
    struct sbx_hash *hash, *whole;
    uint8_t *block;
    struct sbx_bytes xattrs;
};

/* A piece of a large file. */
struct sbx_tree_piece {
    uint64_t index;
    bool filled;
    uint8_t digest[SBX_DIGEST_BYTES];
};

struct sbx_tree_work {
    const struct sbx_tree_job *job;
    struct sbx_crew *crew, *own_crew;
    bool copying, measuring;
    atomic_bool cannot_clone;
    int links;        /* a directory beside the copy with one name of each file with twins; -1 */
    struct sbx_hash *list;
    struct sbx_bytes line;
    struct sbx_tree_facts facts;
    struct sbx_tree_hand hands[SBX_CREW_MAX];
    struct sbx_tree_batch batch;
    /* Of the large file being worked on. */
    struct sbx_tree_piece pieces[SBX_TREE_WINDOW];
    int large_source, large_target;
    uint64_t large_size;
};

/* ---- tree_batch.c ---- */

sandbox_status sbx_tree_work_begin(struct sbx_tree_work *work, const struct sbx_tree_job *job,
                                   sandbox_error *error);
void sbx_tree_work_end(struct sbx_tree_work *work);
/* Adds an entry of the last added folder; what it points to is copied. */
sandbox_status sbx_tree_batch_add(struct sbx_tree_work *work, const struct sbx_tree_entry *entry,
                                  const char *name, const char *target, const char *path,
                                  sandbox_error *error);
/* Makes the directory the one that entries are added to. Takes copies of the descriptors. */
sandbox_status sbx_tree_batch_folder(struct sbx_tree_work *work, int source, int target,
                                     sandbox_error *error);
/* Takes over the descriptor and the attributes. */
sandbox_status sbx_tree_batch_close(struct sbx_tree_work *work, struct sbx_tree_closing *closing,
                                    sandbox_error *error);
/* Works on all that was added, and lists it. */
sandbox_status sbx_tree_batch_flush(struct sbx_tree_work *work, sandbox_error *error);
static inline const char *sbx_tree_text(const struct sbx_tree_work *work, size_t at)
{
    return (const char *)sbx_bytes_data(&work->batch.texts) + at;
}

/* ---- tree_content.c ---- */

/* Whether its content is worked on by all hands, piece by piece. */
static inline bool sbx_tree_is_large(const struct sbx_tree_entry *entry)
{
    return entry->kind == 'f' && entry->size > SBX_TREE_PIECE;
}
/* Reads, copies and digests a file, by one hand, or by all. */
sandbox_status sbx_tree_take_file(struct sbx_tree_work *work, struct sbx_tree_hand *hand,
                                  struct sbx_tree_entry *entry, sandbox_error *error);
sandbox_status sbx_tree_take_large(struct sbx_tree_work *work, struct sbx_tree_entry *entry,
                                   sandbox_error *error);

/* ---- tree_attributes.c ---- */

/* Those that are kept: name, size and value of each, in the order of names. 0 or an errno value. */
int sbx_tree_xattrs_read(int fd, struct sbx_bytes *out);
int sbx_tree_xattrs_write(int fd, const struct sbx_bytes *xattrs);
/* Owner, mode, attributes (NULL: none) and time of an open file or directory. 0 or errno. */
int sbx_tree_dress(int fd, uid_t uid, gid_t gid, mode_t mode, const struct timespec *modified,
                   const struct sbx_bytes *xattrs);

#endif
