/* What drivers find of their platforms. */

#include "core/driver.h"
#include <stdarg.h>
#include <stdio.h>

#define TEXT_MAX 512

void sbx_found(struct sbx_findings_sink *sink, sandbox_severity severity, const char *subject,
               const char *remedy, const char *format, ...)
{
    char text[TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    sink->add(sink, severity, subject, text, remedy);
}
