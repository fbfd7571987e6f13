/* The fields of a tar header and the records of a pax header; between tar.c and tar_write.c. */
#ifndef SBX_UTIL_TAR_FIELDS_H
#define SBX_UTIL_TAR_FIELDS_H

#include "util/tar.h"

/* The header block, by POSIX's offsets. */
enum sbx_tar_field {
    TAR_NAME = 0, TAR_NAME_SIZE = 100,
    TAR_MODE = 100, TAR_MODE_SIZE = 8,
    TAR_OWNER = 108, TAR_OWNER_SIZE = 8,
    TAR_GROUP = 116, TAR_GROUP_SIZE = 8,
    TAR_SIZE = 124, TAR_SIZE_SIZE = 12,
    TAR_MODIFIED = 136, TAR_MODIFIED_SIZE = 12,
    TAR_CHECKSUM = 148, TAR_CHECKSUM_SIZE = 8,
    TAR_TYPE = 156,
    TAR_TARGET = 157, TAR_TARGET_SIZE = 100,
    TAR_MAGIC = 257,
    TAR_PREFIX = 345, TAR_PREFIX_SIZE = 155,
    TAR_OLD_MAP = 386, TAR_OLD_MAP_NUMBER = 12,
    TAR_OLD_MAP_MORE = 482,
    TAR_OLD_REAL_SIZE = 483,
    TAR_OLD_BLOCK_MORE = 504,
};

/* What pax and GNU headers say about the entry that follows them. */
struct sbx_tar_extras {
    bool has_path, has_target, has_size, has_modified, has_sparse_name;
    bool has_sparse_major, has_sparse_minor, has_real_size;
    unsigned count;
    uint64_t size, real_size, sparse_major, sparse_minor;
    int64_t modified_s;
    char path[SBX_TAR_PATH_MAX];
    char target[SBX_TAR_PATH_MAX];
    char sparse_name[SBX_TAR_PATH_MAX];
};

/* Octal digits between blanks, or base 256 with the top bit set. An empty field is 0. */
bool sbx_tar_number(const uint8_t *field, size_t size, int64_t *number);
bool sbx_tar_checksum_is_right(const uint8_t *block);
/* Copies a name that need not end in a NUL. False: too long, or it holds one. */
bool sbx_tar_name(char *name, const void *data, size_t size);
/* Takes a whole pax header. False: `problem` says what is wrong with it. */
bool sbx_tar_records(struct sbx_tar_extras *extras, const char *data, size_t size, char *problem,
                     size_t problem_size);

#endif
