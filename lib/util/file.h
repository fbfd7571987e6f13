/* Files of our own on this machine. Everything is O_CLOEXEC. */
#ifndef SBX_UTIL_FILE_H
#define SBX_UTIL_FILE_H

#include <sandbox/error.h>
#include <sys/types.h>

/* `at` is a directory's descriptor or AT_FDCWD. All return errors with the path named. */

/* Reads a whole file; more than `limit` bytes is SANDBOX_LIMIT. A zero byte follows. */
sandbox_status sbx_file_read(int at, const char *path, size_t limit, uint8_t **data,
                             size_t *data_size, sandbox_error *error);
/* New content in one step: temporary file, fsync, rename, fsync of the directory. */
sandbox_status sbx_file_replace(int at, const char *path, const void *data, size_t size,
                                mode_t mode, sandbox_error *error);
/* The same, but SANDBOX_EXISTS if there is one (link, not rename). */
sandbox_status sbx_file_create(int at, const char *path, const void *data, size_t size,
                               mode_t mode, sandbox_error *error);
/* Makes missing parents too; an existing directory is fine. */
sandbox_status sbx_directory_make(int at, const char *path, mode_t mode, sandbox_error *error);
/*
 * Removes a tree without following any link or crossing into another file system's mount. What is
 * not there is fine.
 */
sandbox_status sbx_tree_remove(int at, const char *path, sandbox_error *error);
/* fsync a directory. */
sandbox_status sbx_directory_sync(int at, const char *path, sandbox_error *error);

/*
 * An exclusive or shared flock on a file that is made if missing. Held until the descriptor is
 * closed; inherited by children that are given it.
 */
struct sbx_wait;
sandbox_status sbx_file_lock(int at, const char *path, bool exclusive,
                             const struct sbx_wait *wait, int *fd, sandbox_error *error);

/* Writes all of it, through EINTR and short writes. 0 or an errno value. */
int sbx_write_all(int fd, const void *data, size_t size);

#endif
