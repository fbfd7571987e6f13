/* Text that a stranger wrote, made fit to be shown: valid UTF-8, one line, of bounded size. */
#ifndef SBX_AGENT_TEXT_H
#define SBX_AGENT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Copies as much as fits with the end mark, whole characters only. Control characters become
 * spaces, bytes that are not UTF-8 become '?'.
 */
void sbx_text_clean(const uint8_t *bytes, size_t size, char *text, size_t text_size);

/* Undoes the percent-encoding of grpc-message, in place; returns the new size. */
size_t sbx_text_decode_percent(uint8_t *bytes, size_t size);

/* A stable word: lower case letters, digits and '-'. Anything else leaves `word` empty. */
bool sbx_text_word(const uint8_t *bytes, size_t size, char *word, size_t word_size);

#endif
