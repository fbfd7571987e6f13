/* Unpredictable bytes and the ids made of them. */
#ifndef SBX_UTIL_RANDOM_H
#define SBX_UTIL_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool sbx_random(void *data, size_t size); /* from the kernel; false only if it has none */

#define SBX_ID_BYTES 16
#define SBX_ID_TEXT 33 /* 32 hexadecimal digits and the end */

bool sbx_id_fresh(char text[SBX_ID_TEXT]);
bool sbx_id_parse(const char *text, uint8_t bytes[SBX_ID_BYTES]); /* lower or upper case */
void sbx_id_print(const uint8_t bytes[SBX_ID_BYTES], char text[SBX_ID_TEXT]);

void sbx_hex_print(const uint8_t *bytes, size_t size, char *text); /* writes 2 * size + 1 */
bool sbx_hex_parse(const char *text, uint8_t *bytes, size_t size); /* exactly 2 * size digits */

#endif
