/* Many leaves at a time: see digest_leaves.h. */

#include "util/digest_leaves.h"
#include <stdlib.h>

#define AT_ONCE 32u

struct sbx_leaves {
    struct sbx_hash *root, *leaf;
    void *manager; /* IPSec_MB's; NULL: one leaf after the other */
    bool failed;
};

static void *open_manager(void);
static void close_manager(void *manager);
static bool digest_together(void *manager, const uint8_t *data, size_t size,
                            uint8_t digests[AT_ONCE][SBX_DIGEST_BYTES]);
static bool digest_each(struct sbx_hash *hash, const uint8_t *data, size_t size,
                        uint8_t digests[AT_ONCE][SBX_DIGEST_BYTES]);

struct sbx_leaves *sbx_leaves_new(void)
{
    struct sbx_leaves *leaves = calloc(1, sizeof *leaves);
    if (leaves == NULL)
        return NULL;
    leaves->root = sbx_hash_new();
    leaves->leaf = sbx_hash_new();
    leaves->manager = open_manager();
    if (leaves->root == NULL || leaves->leaf == NULL) {
        sbx_leaves_free(leaves);
        return NULL;
    }
    return leaves;
}

void sbx_leaves_add(struct sbx_leaves *leaves, const void *data, size_t size)
{
    const uint8_t *at = data;
    while (size > 0 && !leaves->failed) {
        uint8_t digests[AT_ONCE][SBX_DIGEST_BYTES];
        size_t part = size < AT_ONCE * SBX_LEAF_BYTES ? size : AT_ONCE * SBX_LEAF_BYTES;
        size_t count = (part + SBX_LEAF_BYTES - 1) / SBX_LEAF_BYTES;
        bool good = leaves->manager != NULL ? digest_together(leaves->manager, at, part, digests)
                                            : digest_each(leaves->leaf, at, part, digests);
        leaves->failed = !good;
        sbx_hash_add(leaves->root, digests, count * SBX_DIGEST_BYTES);
        at += part;
        size -= part;
    }
}

bool sbx_leaves_end(struct sbx_leaves *leaves, uint8_t digest[SBX_DIGEST_BYTES])
{
    bool good = sbx_hash_end(leaves->root, digest) && !leaves->failed;
    leaves->failed = false;
    return good;
}

void sbx_leaves_free(struct sbx_leaves *leaves)
{
    if (leaves == NULL)
        return;
    close_manager(leaves->manager);
    sbx_hash_free(leaves->root);
    sbx_hash_free(leaves->leaf);
    free(leaves);
}

static bool digest_each(struct sbx_hash *hash, const uint8_t *data, size_t size,
                        uint8_t digests[AT_ONCE][SBX_DIGEST_BYTES])
{
    bool good = true;
    for (size_t at = 0; at < size; at += SBX_LEAF_BYTES) {
        size_t left = size - at;
        sbx_hash_add(hash, data + at, left < SBX_LEAF_BYTES ? left : SBX_LEAF_BYTES);
        good = sbx_hash_end(hash, digests[at / SBX_LEAF_BYTES]) && good;
    }
    return good;
}

#ifdef SBX_HAVE_IPSEC_MB

#include <intel-ipsec-mb.h>

/* NULL too where the processor has not what it takes: its functions would be none. */
static void *open_manager(void)
{
    IMB_MGR *manager = alloc_mb_mgr(0);
    if (manager == NULL)
        return NULL;
    init_mb_mgr_auto(manager, NULL);
    if (imb_get_errno(manager) == 0)
        return manager;
    free_mb_mgr(manager);
    return NULL;
}

static void close_manager(void *manager)
{
    if (manager != NULL)
        free_mb_mgr(manager);
}

/* How many are done, from this one on. */
static size_t collect(IMB_JOB *job, IMB_JOB *(*next)(IMB_MGR *manager), IMB_MGR *manager)
{
    size_t done = 0;
    for (; job != NULL; job = next(manager))
        done += job->status == IMB_STATUS_COMPLETED;
    return done;
}

/* Returns how many are done, which may be others than this one. */
static size_t submit(IMB_MGR *manager, const uint8_t *data, size_t size,
                     uint8_t (*digest)[SBX_DIGEST_BYTES])
{
    IMB_JOB *job = IMB_GET_NEXT_JOB(manager);
    *job = (IMB_JOB){.cipher_mode = IMB_CIPHER_NULL,
                     .cipher_direction = IMB_DIR_ENCRYPT,
                     .chain_order = IMB_ORDER_HASH_CIPHER,
                     .hash_alg = IMB_AUTH_SHA_256,
                     .src = data,
                     .msg_len_to_hash_in_bytes = size,
                     .auth_tag_output = *digest,
                     .auth_tag_output_len_in_bytes = SBX_DIGEST_BYTES};
    return collect(IMB_SUBMIT_JOB(manager), manager->get_completed_job, manager);
}

static bool digest_together(void *manager, const uint8_t *data, size_t size,
                            uint8_t digests[AT_ONCE][SBX_DIGEST_BYTES])
{
    IMB_MGR *many = manager;
    size_t count = 0, done = 0;
    for (size_t at = 0; at < size; at += SBX_LEAF_BYTES) {
        size_t left = size - at;
        done += submit(many, data + at, left < SBX_LEAF_BYTES ? left : SBX_LEAF_BYTES,
                       &digests[count++]);
    }
    return done + collect(IMB_FLUSH_JOB(many), many->flush_job, many) == count;
}

#else

static void *open_manager(void)
{
    return NULL;
}

static void close_manager(void *manager)
{
}

static bool digest_together(void *manager, const uint8_t *data, size_t size,
                            uint8_t digests[AT_ONCE][SBX_DIGEST_BYTES])
{
    return false;
}

#endif
