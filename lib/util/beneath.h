/*
 * Paths beneath a directory, for trees that a stranger filled: no component may be a link, "..",
 * absolute, or lead over a mount (openat2 with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS).
 */
#ifndef SBX_UTIL_BENEATH_H
#define SBX_UTIL_BENEATH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A descriptor, or -1 with errno. `flags` as for openat(); O_CLOEXEC and O_NOFOLLOW are added. */
int sbx_beneath_open(int root, const char *path, int flags, mode_t mode);
/*
 * The directory that holds `path`, making missing ones with `mode` where `make`; `name` is the last
 * part, inside `path`.
 */
int sbx_beneath_parent(int root, const char *path, bool make, mode_t mode, const char **name);

#endif
