/*
 * Trees of files that snapshots are made of: copied there, put back, listed with a digest of each
 * file, compared. Blocking calls, for a thread of the pool. No link is followed.
 *
 * Kept of an entry: its kind, mode, owner, a file's content and time of change, where a link
 * leads. Not kept: extended attributes, and which names of a file are links to the same one.
 */
#ifndef MEMORY_PLATFORM_TREES_H
#define MEMORY_PLATFORM_TREES_H

#include "util/bytes.h"
#include <sandbox/snapshot.h>
#include <sys/stat.h>

#define TREE_BYTES_MAX   (UINT64_C(1) << 30) /* of files, holes counted */
#define TREE_ENTRIES_MAX 50000u
#define TREE_DEPTH_MAX   64u
#define LISTING_MAX      (32u << 20) /* bytes of a listing */
#define TREE_PATH_MAX    4096u

struct tree_count {
    uint64_t bytes;
    uint32_t entries;
};

/* Names of a directory, in the order of their bytes. */
struct tree_names {
    char **names;
    size_t count, room;
};

/* Where a walk is, for its limits and for messages: relative to where it began. */
struct tree_walk {
    char path[TREE_PATH_MAX];
    size_t length;
    unsigned depth;
    struct tree_count count;
    sandbox_error *error;
};

/* ---- trees.c ---- */

/*
 * Makes `to` what `from` is, file or directory, and touches only what differs: a file that a
 * process holds open stays the same file. Where `from` is not there, `to` is removed.
 */
sandbox_status tree_put(const char *from, const char *to, struct tree_count *count,
                        sandbox_error *error);
/* What a copy would come to; nothing if it is not there. */
sandbox_status tree_measure(const char *path, struct tree_count *count, sandbox_error *error);

/* SANDBOX_LIMIT as soon as the walk has seen more than may be. */
sandbox_status tree_names_read(struct tree_walk *walk, int directory, struct tree_names *out);
void tree_names_clear(struct tree_names *names); /* for SBX_ON_EXIT */
/* Enters an entry of the directory it is in: counts it, and leaves `before` to go back to. */
sandbox_status tree_walk_enter(struct tree_walk *walk, const char *name, const struct stat *facts,
                               size_t *before);
void tree_walk_leave(struct tree_walk *walk, size_t before);

/* ---- listing.c ---- */

/*
 * One line for each entry of the directory, except for the one of that name: path, kind, mode,
 * owner, size, time, digest of the content.
 */
sandbox_status tree_list(const char *directory, const char *except, struct sbx_bytes *out,
                         struct tree_count *count, sandbox_error *error);
/* Says the first thing in which `now` is not what `recorded` says. */
sandbox_verdict tree_compare(const struct sbx_bytes *recorded, const struct sbx_bytes *now,
                             char *evidence, size_t evidence_size);

#endif
