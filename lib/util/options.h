/* Options structs that grow: see doc/decisions on `size`. */
#ifndef SBX_UTIL_OPTIONS_H
#define SBX_UTIL_OPTIONS_H

#include <sandbox/error.h>

/*
 * Copies a caller's options over `known` (zeroed first). NULL `given` leaves zeroes. A smaller
 * struct is an older caller's; a larger one must be zero past what we know.
 */
sandbox_status sbx_options_adopt(void *known, size_t known_size, const void *given,
                                 sandbox_error *error);

/* Copies a filled struct out to a caller's, as far as the caller's `size` reaches; keeps `size`. */
sandbox_status sbx_options_fill(void *given, const void *known, size_t known_size,
                                sandbox_error *error);

#endif
