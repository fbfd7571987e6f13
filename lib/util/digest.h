/* HMAC and SHA-256; the only file that includes mbedTLS outside the transport. */
#ifndef SBX_UTIL_DIGEST_H
#define SBX_UTIL_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SBX_DIGEST_BYTES 32

void sbx_sha256(const void *data, size_t size, uint8_t digest[SBX_DIGEST_BYTES]);
bool sbx_hmac_sha256(const void *key, size_t key_size, const void *data, size_t size,
                     uint8_t digest[SBX_DIGEST_BYTES]);
/* Takes the same time whatever differs. */
bool sbx_equal_secret(const void *a, const void *b, size_t size);

#endif
