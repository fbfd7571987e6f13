/* Many leaves at a time: see digest_leaves.h. */

#include "util/digest_leaves.h"
#include <stdlib.h>

#ifdef SBX_HAVE_IPSEC_MB

#include <intel-ipsec-mb.h>

#define AT_ONCE 32u

struct sbx_leaves {
    struct sbx_hash *root;
    IMB_MGR *manager;
    bool failed;
    uint8_t digests[AT_ONCE][SBX_DIGEST_BYTES];
};

static unsigned submit(struct sbx_leaves *leaves, unsigned lane, const uint8_t *data, size_t size);
static unsigned collect(IMB_JOB *job, IMB_JOB *(*next)(IMB_MGR *manager), IMB_MGR *manager);

struct sbx_leaves *sbx_leaves_new(void)
{
    struct sbx_leaves *leaves = calloc(1, sizeof *leaves);
    if (leaves == NULL)
        return NULL;
    leaves->root = sbx_hash_new();
    leaves->manager = alloc_mb_mgr(0);
    if (leaves->root == NULL || leaves->manager == NULL) {
        sbx_leaves_free(leaves);
        return NULL;
    }
    init_mb_mgr_auto(leaves->manager, NULL);
    leaves->failed = imb_get_errno(leaves->manager) != 0;
    return leaves;
}

void sbx_leaves_add(struct sbx_leaves *leaves, const void *data, size_t size)
{
    IMB_MGR *manager = leaves->manager;
    const uint8_t *at = data;
    while (size > 0 && !leaves->failed) {
        unsigned count = 0, done = 0;
        for (; count < AT_ONCE && size > 0; count++) {
            size_t leaf = size < SBX_LEAF_BYTES ? size : SBX_LEAF_BYTES;
            done += submit(leaves, count, at, leaf);
            at += leaf;
            size -= leaf;
        }
        done += collect(IMB_FLUSH_JOB(manager), manager->flush_job, manager);
        leaves->failed = done != count;
        sbx_hash_add(leaves->root, leaves->digests, (size_t)count * SBX_DIGEST_BYTES);
    }
}

/* Returns how many are done, which may be others than this one. */
static unsigned submit(struct sbx_leaves *leaves, unsigned lane, const uint8_t *data, size_t size)
{
    IMB_MGR *manager = leaves->manager;
    IMB_JOB *job = IMB_GET_NEXT_JOB(manager);
    *job = (IMB_JOB){.cipher_mode = IMB_CIPHER_NULL,
                     .cipher_direction = IMB_DIR_ENCRYPT,
                     .chain_order = IMB_ORDER_HASH_CIPHER,
                     .hash_alg = IMB_AUTH_SHA_256,
                     .src = data,
                     .msg_len_to_hash_in_bytes = size,
                     .auth_tag_output = leaves->digests[lane],
                     .auth_tag_output_len_in_bytes = SBX_DIGEST_BYTES};
    return collect(IMB_SUBMIT_JOB(manager), manager->get_completed_job, manager);
}

static unsigned collect(IMB_JOB *job, IMB_JOB *(*next)(IMB_MGR *manager), IMB_MGR *manager)
{
    unsigned done = 0;
    for (; job != NULL; job = next(manager))
        done += job->status == IMB_STATUS_COMPLETED;
    return done;
}

void sbx_leaves_free(struct sbx_leaves *leaves)
{
    if (leaves == NULL)
        return;
    if (leaves->manager != NULL)
        free_mb_mgr(leaves->manager);
    sbx_hash_free(leaves->root);
    free(leaves);
}

#else

struct sbx_leaves {
    struct sbx_hash *root, *leaf;
    bool failed;
};

struct sbx_leaves *sbx_leaves_new(void)
{
    struct sbx_leaves *leaves = calloc(1, sizeof *leaves);
    if (leaves == NULL)
        return NULL;
    leaves->root = sbx_hash_new();
    leaves->leaf = sbx_hash_new();
    if (leaves->root == NULL || leaves->leaf == NULL) {
        sbx_leaves_free(leaves);
        return NULL;
    }
    return leaves;
}

void sbx_leaves_add(struct sbx_leaves *leaves, const void *data, size_t size)
{
    const uint8_t *at = data;
    while (size > 0) {
        size_t part = size < SBX_LEAF_BYTES ? size : SBX_LEAF_BYTES;
        uint8_t digest[SBX_DIGEST_BYTES];
        sbx_hash_add(leaves->leaf, at, part);
        if (!sbx_hash_end(leaves->leaf, digest))
            leaves->failed = true;
        sbx_hash_add(leaves->root, digest, sizeof digest);
        at += part;
        size -= part;
    }
}

void sbx_leaves_free(struct sbx_leaves *leaves)
{
    if (leaves == NULL)
        return;
    sbx_hash_free(leaves->root);
    sbx_hash_free(leaves->leaf);
    free(leaves);
}

#endif

bool sbx_leaves_end(struct sbx_leaves *leaves, uint8_t digest[SBX_DIGEST_BYTES])
{
    bool good = sbx_hash_end(leaves->root, digest) && !leaves->failed;
    leaves->failed = false;
    return good;
}
