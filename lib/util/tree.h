/*
 * Trees of files as tar streams: packed from a directory, unpacked into one. The agent and the
 * library use the same code, each for the side that it must protect: packing follows no link,
 * unpacking never writes outside its target, whatever the archive says.
 *
 * Blocking calls, one thread at a time for each object.
 */
#ifndef SBX_UTIL_TREE_H
#define SBX_UTIL_TREE_H

#include "util/tar.h"
#include <sandbox/error.h>
#include <stdatomic.h>

#define SBX_TREE_BYTES_DEFAULT (UINT64_C(64) << 30)
#define SBX_TREE_ENTRIES_DEFAULT UINT64_C(500000)
#define SBX_TREE_DEPTH_DEFAULT 64u
#define SBX_TREE_DEPTH_MAX 256u /* a descriptor is open for each level */
/* Sizes of files, holes counted, may come to this many times max_bytes. */
#define SBX_TREE_HOLE_FACTOR 1024u

enum sbx_tree_links {
    SBX_TREE_LINKS_INSIDE = 0, /* as in files.h and files.proto */
    SBX_TREE_LINKS_KEEP = 1,
    SBX_TREE_LINKS_SKIP = 2,
};

/* Zeroes ask for the defaults. */
struct sbx_tree_limits {
    uint64_t max_bytes;   /* of content that is carried; holes are free up to the factor above */
    uint64_t max_entries;
    uint32_t max_depth;   /* of directories below the root */
    enum sbx_tree_links links;
};

struct sbx_tree_count {
    uint64_t bytes, entries, skipped;
};

/* What the files met so far come to, whether or not their content was moved already. */
struct sbx_tree_claimed {
    uint64_t stored, apparent;
};

/* Counts one more file; SANDBOX_LIMIT if that is too much. */
sandbox_status sbx_tree_add_content(const struct sbx_tree_limits *limits,
                                    struct sbx_tree_claimed *claimed, uint64_t stored,
                                    uint64_t apparent, sandbox_error *error);

/* Settles the defaults. SANDBOX_INVALID on what cannot be. */
sandbox_status sbx_tree_limits_settle(struct sbx_tree_limits *limits, sandbox_error *error);

/*
 * Whether a symbolic link at `path` (relative to the tree's root) stays inside the tree. ".."
 * counts only at the front of the target: behind a name it may lead through another link.
 */
bool sbx_tree_link_is_inside(const char *path, const char *target);

/* ---- packing ---- */

struct sbx_packer;

/* Packs `name` in the directory `parent` ("." for the directory itself). A link is refused. */
sandbox_status sbx_packer_new(int parent, const char *name, const struct sbx_tree_limits *limits,
                              struct sbx_packer **out, sandbox_error *error);
/*
 * Appends pieces of the archive until `out` holds `wanted` bytes (or somewhat more) or the
 * archive is complete, which `done` tells. A file that shrinks while it is read fails the call;
 * one that grows is cut at the size it had.
 */
sandbox_status sbx_packer_next(struct sbx_packer *packer, struct sbx_bytes *out, size_t wanted,
                               bool *done, sandbox_error *error);
const struct sbx_tree_count *sbx_packer_count(const struct sbx_packer *packer);
const char *sbx_packer_path(const struct sbx_packer *packer); /* the entry being packed */
void sbx_packer_free(struct sbx_packer *packer);

/* ---- unpacking ---- */

struct sbx_unpacker;

/*
 * Unpacks to `name` in the directory `parent` ("." for the directory itself). Everything goes
 * to a temporary directory of mode 0700 first: beside the target, or inside it where it is a
 * directory already.
 */
sandbox_status sbx_unpacker_new(int parent, const char *name,
                                const struct sbx_tree_limits *limits, struct sbx_unpacker **out,
                                sandbox_error *error);
sandbox_status sbx_unpacker_feed(struct sbx_unpacker *unpacker, const void *data, size_t size,
                                 sandbox_error *error);
/*
 * Once the archive is complete: puts it in place. Where a directory is there already, entry by
 * entry, after a look whether all of them can be: a directory and a file never replace each other.
 */
sandbox_status sbx_unpacker_commit(struct sbx_unpacker *unpacker, sandbox_error *error);
const struct sbx_tree_count *sbx_unpacker_count(const struct sbx_unpacker *unpacker);
const char *sbx_unpacker_path(const struct sbx_unpacker *unpacker);
/* Removes what was not put in place. */
void sbx_unpacker_free(struct sbx_unpacker *unpacker);

/* ---- and away ---- */

/*
 * Removes `name` in the directory `parent` and all that is in it; follows no link, enters no
 * mount, and needs two descriptors whatever the depth. Stops with ECANCELED once `stop` is set
 * (NULL allowed). 0 or an errno value; what is not there is ENOENT.
 */
int sbx_tree_erase(int parent, const char *name, const atomic_bool *stop);

/*
 * Puts the tree `from_name` of the directory `from` in place of, or into, `to_name` of `to`. Both
 * are on one file system.
 * For the unpacker. `place` names the entry that was in the way.
 */
int sbx_tree_place(int from, const char *from_name, int to, const char *to_name,
                   char place[SBX_TAR_PATH_MAX]);

#endif
