/* Lines for the log hook; see sandbox/log.h for what belongs there. */
#ifndef SBX_UTIL_LOG_H
#define SBX_UTIL_LOG_H

#include <sandbox/log.h>

void sbx_log(sandbox_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
