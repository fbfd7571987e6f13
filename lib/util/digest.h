/*
 * HMAC and SHA-256. digest.c is the only file that includes mbedTLS outside the transport;
 * digest_bulk.c, for large amounts, the only one that includes libcrypto.
 */
#ifndef SBX_UTIL_DIGEST_H
#define SBX_UTIL_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SBX_DIGEST_BYTES 32

#define SBX_SHA1_BYTES 20

/* Only where a protocol asks for it (WebSocket): it protects nothing any more. */
void sbx_sha1(const void *data, size_t size, uint8_t digest[SBX_SHA1_BYTES]);
void sbx_sha256(const void *data, size_t size, uint8_t digest[SBX_DIGEST_BYTES]);
bool sbx_hmac_sha256(const void *key, size_t key_size, const void *data, size_t size,
                     uint8_t digest[SBX_DIGEST_BYTES]);
/* Takes the same time whatever differs. */
bool sbx_equal_secret(const void *a, const void *b, size_t size);

/*
 * SHA-256 of what comes in pieces, several times as fast where the processor has instructions
 * for it. One thread at a time. Not in the agent.
 */
struct sbx_hash;

struct sbx_hash *sbx_hash_new(void); /* NULL: no memory */
void sbx_hash_add(struct sbx_hash *hash, const void *data, size_t size);
/* False if any of it failed. Begins anew. */
bool sbx_hash_end(struct sbx_hash *hash, uint8_t digest[SBX_DIGEST_BYTES]);
void sbx_hash_free(struct sbx_hash *hash); /* NULL allowed */

#endif
