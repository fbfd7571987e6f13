/* Text for people: what a stranger wrote made harmless, sizes and ages made short. */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Copies with control characters and bytes that are not UTF-8 replaced by '?', so that nothing
 * from a workspace moves the cursor or breaks a line. Cuts at a whole character.
 */
void cli_text_clean(const char *text, char *out, size_t out_size);
/* The bytes of the UTF-8 character that begins here, 1 to 4; 0 if none does. */
size_t cli_text_character(const char *text);
/* How many columns a clean text takes; wide characters are counted as the terminal does. */
size_t cli_text_columns(const char *text);
/* Cuts a clean text to that many columns, with '…' in the last one where something went. */
void cli_text_cut(char *text, size_t columns);

#define CLI_SHORT_BYTES 32
/* "17s", "12m", "3h", "5d". */
const char *cli_text_age(int64_t ms, char out[CLI_SHORT_BYTES]);
/* "37 ms", "1.4 s": how long something took. */
const char *cli_text_took(uint32_t ms, char out[CLI_SHORT_BYTES]);
/* "512 B", "1.4 MiB". */
const char *cli_text_size(uint64_t bytes, char out[CLI_SHORT_BYTES]);
/* "2026-03-01 12:30:05Z". */
const char *cli_text_time(int64_t unix_ms, char out[CLI_SHORT_BYTES]);

#endif
