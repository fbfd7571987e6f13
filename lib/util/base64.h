/* Bytes as text in the standard alphabet of base64, with padding. */
#ifndef SBX_UTIL_BASE64_H
#define SBX_UTIL_BASE64_H

#include <sandbox/error.h>
#include <stddef.h>
#include <stdint.h>

/* free(); NULL: no memory. */
char *sbx_base64_text(const void *data, size_t size);
/*
 * Blanks and line ends are skipped; anything else that is no base64 is SANDBOX_INVALID.
 *
 * @param data  free(); a zero byte follows
 */
sandbox_status sbx_base64_parse(const char *text, uint8_t **data, size_t *size,
                                sandbox_error *error);

#endif
