/* Expressions of rules: POSIX extended ones that can take neither long nor much memory. */
#ifndef SBX_EGRESS_RULES_REGEX_H
#define SBX_EGRESS_RULES_REGEX_H

#include <regex.h>
#include <sandbox/error.h>
#include <stdbool.h>

/*
 * Compiles one. It is measured first as it would be written out, repetitions unrolled: the C
 * library unrolls them, and takes gigabytes for some that are short.
 *
 * @param what  the member that it stands in, for the message
 * @param out   free it with sbx_egress_regex_free()
 */
sandbox_status sbx_egress_regex_new(const char *pattern, const char *what, regex_t **out,
                                    sandbox_error *error);
void sbx_egress_regex_free(regex_t *regex); /* NULL allowed */
/* Whether the whole text fits; the text ends with NUL. */
bool sbx_egress_regex_fits(const regex_t *regex, const char *text);

#endif
