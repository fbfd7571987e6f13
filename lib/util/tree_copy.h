/*
 * Trees of files as they stand on this machine: their digest, and exact copies of them.
 *
 * A tree's digest is one over a list of lines, one for each entry in the order of names, with all
 * that a copy keeps: names, modes, owners, times of change, contents, links, hard links, extended
 * attributes of users and access lists. Holes count as the zeros that they read as, and stay holes
 * in a copy. Sockets and devices are passed over; a FIFO is kept. No link is followed, no mount
 * entered, and trees of any depth need few descriptors. The tree must not change meanwhile.
 */
#ifndef SBX_UTIL_TREE_COPY_H
#define SBX_UTIL_TREE_COPY_H

#include "util/crew.h"
#include "util/digest.h"

#define SBX_TREE_COPY_ENTRIES UINT64_C(20000000) /* at most in one tree */

struct sbx_tree_facts {
    uint8_t digest[SBX_DIGEST_BYTES];
    uint64_t entries; /* the root counts */
    uint64_t bytes;   /* that the entries take on the disk */
    uint64_t skipped; /* sockets and devices */
};

struct sbx_tree_job {
    const struct sbx_wait *wait;
    struct sbx_crew *crew; /* NULL: one of its own */
    /*
     * Given each line of the list, with its end; `path` is the entry it is about. Both borrowed.
     * A failure ends the job. NULL: nobody needs it.
     */
    sandbox_status (*line)(void *user_data, const char *line, size_t size, const char *path,
                           sandbox_error *error);
    void (*moved)(void *user_data, uint64_t bytes); /* so many bytes more; NULL allowed */
    void *user_data;
};

/*
 * Of the open directory `root`. SANDBOX_CONFLICT, "tree-changed": somebody is at work in it;
 * SANDBOX_UNSUPPORTED, "other-mount"; SANDBOX_LIMIT: it is too large, or there is no room.
 */
sandbox_status sbx_tree_digest(int root, const struct sbx_tree_job *job, struct sbx_tree_facts *out,
                               sandbox_error *error);
/* Its entries and bytes alone, without reading a file. */
sandbox_status sbx_tree_measure(int root, const struct sbx_tree_job *job,
                                struct sbx_tree_facts *out, sandbox_error *error);
/*
 * Copies the open directory `root` to a new one, `name` in the directory `parent`, sharing the
 * disk's blocks where the file system can, and digests what it reads. Nothing is made durable. On
 * failure what was copied stays for the caller to remove.
 */
sandbox_status sbx_tree_copy(int root, int parent, const char *name,
                             const struct sbx_tree_job *job, struct sbx_tree_facts *out,
                             sandbox_error *error);

#endif
