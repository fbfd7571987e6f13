/*
 * Memory for secrets: never swapped out, in no core dump, wiped when it is given back. It comes in
 * whole pages, so many small secrets belong into one piece.
 */
#ifndef SBX_UTIL_LOCKED_H
#define SBX_UTIL_LOCKED_H

#include <stddef.h>

/* Zeroes. NULL: no memory, or no more may be locked (`ulimit -l`). */
void *sbx_locked_new(size_t size);
void sbx_locked_free(void *memory); /* NULL allowed */

#endif
