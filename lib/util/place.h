/* Where the programs that belong to the library are: beside it, wherever it was installed. */
#ifndef SBX_UTIL_PLACE_H
#define SBX_UTIL_PLACE_H

#include <sandbox/error.h>

/*
 * The absolute path of a helper ("sandbox-agent", "sandbox-memory-platform", "sandbox-shim.so",
 * "sandbox-egress-proxy", "sandbox-egress-carrier"): in the build tree beside the library, in
 * libexec/libsandbox of the library's prefix, or where it was configured to be.
 *
 * @param path  free()
 */
sandbox_status sbx_place_find(const char *name, char **path, sandbox_error *error);

#endif
