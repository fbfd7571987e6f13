/**
 * Which version of the library this is.
 *
 * The macros say what the program was compiled against, the function what it runs with.
 */
#ifndef SANDBOX_VERSION_H
#define SANDBOX_VERSION_H

#include <sandbox/export.h>

SANDBOX_BEGIN_DECLARATIONS

#define SANDBOX_VERSION_MAJOR 0
#define SANDBOX_VERSION_MINOR 4
#define SANDBOX_VERSION_PATCH 0
#define SANDBOX_VERSION "0.4.0"

/** The running library's version, "MAJOR.MINOR.PATCH". Static; never fails; any thread. */
SANDBOX_API const char *sandbox_version(void);

SANDBOX_END_DECLARATIONS

#endif
