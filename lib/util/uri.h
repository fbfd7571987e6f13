/* URIs of workspaces: "DRIVER:PLACE?NAME=VALUE&…", percent-encoded. */
#ifndef SBX_UTIL_URI_H
#define SBX_UTIL_URI_H

#include <sandbox/error.h>

/*
 * Part of a URI, percent-decoded. A zero byte in it would cut the text short behind the caller's
 * back, and is refused.
 *
 * @param out  free()
 */
sandbox_status sbx_uri_decode(const char *text, size_t size, char **out, sandbox_error *error);

#endif
