/* The only way to make an error. */
#ifndef SBX_UTIL_FAIL_H
#define SBX_UTIL_FAIL_H

#include <sandbox/error.h>

/* Writes `error` (NULL allowed) and returns `status`. One line, no secrets. */
sandbox_status sbx_fail(sandbox_error *error, sandbox_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same with the stable word that callers branch on. */
sandbox_status sbx_fail_for(sandbox_error *error, sandbox_status status, const char *reason,
                            const char *format, ...) __attribute__((format(printf, 4, 5)));

/* From an errno value: picks the status, and ends the line with the system's own words. */
sandbox_status sbx_fail_errno(sandbox_error *error, int number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

sandbox_status sbx_status_of_errno(int number);

#endif
