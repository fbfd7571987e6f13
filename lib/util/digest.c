/* HMAC and SHA-256 by mbedTLS. */

#include "util/digest.h"
#include <mbedtls/md.h>

void sbx_sha1(const void *data, size_t size, uint8_t digest[SBX_SHA1_BYTES])
{
    (void)mbedtls_md(mbedtls_md_info_from_type(MBEDTLS_MD_SHA1), data, size, digest);
}

void sbx_sha256(const void *data, size_t size, uint8_t digest[SBX_DIGEST_BYTES])
{
    const mbedtls_md_info_t *kind = mbedtls_md_info_from_type(MBEDTLS_MD_SHA256);
    /* Fails only for a missing algorithm or NULL, and neither can be. */
    (void)mbedtls_md(kind, data, size, digest);
}

bool sbx_hmac_sha256(const void *key, size_t key_size, const void *data, size_t size,
                     uint8_t digest[SBX_DIGEST_BYTES])
{
    const mbedtls_md_info_t *kind = mbedtls_md_info_from_type(MBEDTLS_MD_SHA256);
    return mbedtls_md_hmac(kind, key, key_size, data, size, digest) == 0;
}

bool sbx_equal_secret(const void *a, const void *b, size_t size)
{
    const volatile uint8_t *left = a, *right = b;
    uint8_t difference = 0;
    for (size_t n = 0; n < size; n++)
        difference = (uint8_t)(difference | (left[n] ^ right[n]));
    return difference == 0;
}
