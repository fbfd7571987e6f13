/*
 * The digest of a large piece of data as a tree of one level: SHA-256 over the SHA-256 of each of
 * its leaves. Leaves do not depend on each other, so that one processor works at many of them at a
 * time: Intel's IPSec_MB, where it is, is more than twice as fast so as one stream is with the
 * processor's own SHA instructions. Elsewhere, and on a processor that it does not know, libcrypto
 * takes one leaf after the other; the digest is the same.
 */
#ifndef SBX_UTIL_DIGEST_LEAVES_H
#define SBX_UTIL_DIGEST_LEAVES_H

#include "util/digest.h"

#define SBX_LEAF_BYTES (32u << 10) /* IPSec_MB takes no message of 64 KiB and more */

/* One thread at a time. */
struct sbx_leaves;

struct sbx_leaves *sbx_leaves_new(void); /* NULL: no memory */
/* Whole leaves; only the last one of a piece may be shorter. */
void sbx_leaves_add(struct sbx_leaves *leaves, const void *data, size_t size);
/* Of all that was added. False if any of it failed. Begins anew. */
bool sbx_leaves_end(struct sbx_leaves *leaves, uint8_t digest[SBX_DIGEST_BYTES]);
void sbx_leaves_free(struct sbx_leaves *leaves); /* NULL allowed */

#endif
