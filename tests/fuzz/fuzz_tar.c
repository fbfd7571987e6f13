/*
 * Tar archives made up by a stranger: the codec alone, and unpacking with all its rules, which
 * must leave nothing outside its target. The first byte chooses the size of the steps.
 */

#include "util/memory.h"
#include "util/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARED_FOLDER "/dev/shm" /* no disk */

static void read_only(const uint8_t *data, size_t size, size_t step);
static void check_data(const struct sbx_tar_reader *reader, uint64_t *carried);
static void unpack(const uint8_t *data, size_t size, size_t step, enum sbx_tree_links links);
static void check_nothing_escaped(const char *folder);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t steps[] = {1, 13, 511, 512, 4096, SIZE_MAX};
    if (size < 2)
        return 0;
    size_t step = steps[data[0] % (sizeof steps / sizeof *steps)];
    read_only(data + 1, size - 1, step);
    unpack(data + 1, size - 1, step, (enum sbx_tree_links)(data[0] / 64 % 3));
    return 0;
}

static void read_only(const uint8_t *data, size_t size, size_t step)
{
    struct sbx_tar_reader *reader = sbx_tar_reader_new();
    uint64_t carried = 0;
    enum sbx_tar_event event = SBX_TAR_MORE;
    for (size_t at = 0; at < size && event != SBX_TAR_BAD;) {
        size_t piece = size - at < step ? size - at : step;
        /* Memory of exactly that size, so that reading past it shows. */
        uint8_t *copy = malloc(piece);
        memcpy(copy, data + at, piece);
        at += piece;
        sbx_tar_reader_feed(reader, copy, piece);
        do {
            event = sbx_tar_reader_next(reader);
            if (event == SBX_TAR_ENTRY)
                carried = 0;
            if (event == SBX_TAR_DATA)
                check_data(reader, &carried);
        } while (event != SBX_TAR_MORE && event != SBX_TAR_BAD && event != SBX_TAR_END);
        free(copy);
    }
    sbx_tar_reader_free(reader);
}

static void check_data(const struct sbx_tar_reader *reader, uint64_t *carried)
{
    uint64_t offset;
    size_t size;
    const uint8_t *data = sbx_tar_reader_data(reader, &size, &offset);
    const struct sbx_tar_entry *entry = sbx_tar_reader_entry(reader);
    *carried += size;
    if (size == 0 || offset + size > entry->size || *carried > entry->size)
        __builtin_trap();
    volatile uint8_t last = data[size - 1]; /* the sanitizer looks */
    (void)last;
}

static void unpack(const uint8_t *data, size_t size, size_t step, enum sbx_tree_links links)
{
    char folder[] = SHARED_FOLDER "/sandbox-fuzz-XXXXXX";
    struct sbx_tree_limits limits = {.max_bytes = 1 << 20, .max_entries = 64, .max_depth = 8,
                                     .links = links};
    struct sbx_unpacker *unpacker = NULL;
    if (mkdtemp(folder) == NULL)
        return;
    int parent = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int canary = openat(parent, "canary", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    close(canary);
    sandbox_status status = sbx_unpacker_new(parent, "target", &limits, &unpacker, NULL);
    for (size_t at = 0; at < size && status == SANDBOX_OK;) {
        size_t piece = size - at < step ? size - at : step;
        status = sbx_unpacker_feed(unpacker, data + at, piece, NULL);
        at += piece;
    }
    if (status == SANDBOX_OK)
        (void)sbx_unpacker_commit(unpacker, NULL);
    sbx_unpacker_free(unpacker);
    check_nothing_escaped(folder);
    close(parent);
    if (sbx_tree_erase(AT_FDCWD, folder, NULL) != 0)
        __builtin_trap();
}

static void check_nothing_escaped(const char *folder)
{
    DIR *directory = opendir(folder);
    if (directory == NULL)
        __builtin_trap();
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        struct stat about;
        const char *name = entry->d_name;
        if (strcmp(name, "canary") == 0) {
            if (fstatat(dirfd(directory), name, &about, AT_SYMLINK_NOFOLLOW) != 0 ||
                !S_ISREG(about.st_mode) || about.st_size != 0 || about.st_nlink != 1)
                __builtin_trap();
        } else if (strcmp(name, "target") != 0 && strcmp(name, ".") != 0 &&
                   strcmp(name, "..") != 0) {
            __builtin_trap();
        }
    }
    closedir(directory);
}
