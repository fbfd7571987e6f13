/* SHA-256 of large amounts by libcrypto, which uses the processor's own instructions. */

#include "util/digest.h"
#include <openssl/evp.h>
#include <stdlib.h>

struct sbx_hash {
    EVP_MD_CTX *context;
    EVP_MD *kind; /* fetched once: looking it up costs more than a small file */
    bool failed;
};

static void begin(struct sbx_hash *hash);

struct sbx_hash *sbx_hash_new(void)
{
    struct sbx_hash *hash = calloc(1, sizeof *hash);
    if (hash == NULL)
        return NULL;
    hash->context = EVP_MD_CTX_new();
    hash->kind = EVP_MD_fetch(NULL, "SHA256", NULL);
    if (hash->context == NULL || hash->kind == NULL) {
        sbx_hash_free(hash);
        return NULL;
    }
    begin(hash);
    return hash;
}

void sbx_hash_add(struct sbx_hash *hash, const void *data, size_t size)
{
    if (EVP_DigestUpdate(hash->context, data, size) != 1)
        hash->failed = true;
}

bool sbx_hash_end(struct sbx_hash *hash, uint8_t digest[SBX_DIGEST_BYTES])
{
    unsigned size = 0;
    bool good = EVP_DigestFinal_ex(hash->context, digest, &size) == 1 && size == SBX_DIGEST_BYTES &&
                !hash->failed;
    begin(hash);
    return good;
}

void sbx_hash_free(struct sbx_hash *hash)
{
    if (hash == NULL)
        return;
    EVP_MD_CTX_free(hash->context);
    EVP_MD_free(hash->kind);
    free(hash);
}

static void begin(struct sbx_hash *hash)
{
    hash->failed = EVP_DigestInit_ex2(hash->context, hash->kind, NULL) != 1;
}
