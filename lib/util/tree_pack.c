/* Packing: a walk over a directory tree that follows no link, told as a tar stream. */

#include "util/fail.h"
#include "util/memory.h"
#include "util/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_STEP (256u << 10)
#define PIECES_MAX 65536u
#define LINKED_MAX 65536u /* files with several names that are remembered; more become copies */
#define LINKED_SLOTS (2 * LINKED_MAX)

struct level {
    DIR *directory;
    size_t path_size; /* of the directory's own path */
};

/* A file with several names, and the first of them that was packed. */
struct linked {
    dev_t device;
    ino_t inode;
    char *path;
};

struct sbx_packer {
    struct sbx_tree_limits limits;
    struct sbx_tree_count count;
    struct sbx_tree_claimed claimed;
    int parent;
    char *name;
    bool begun, ended;
    struct level levels[SBX_TREE_DEPTH_MAX + 1];
    unsigned depth; /* open levels */
    struct sbx_tar_entry entry;

    int fd; /* the file whose content is being packed, or -1 */
    struct sbx_tar_piece *pieces;
    size_t piece_count, piece_capacity, piece_index;
    uint64_t piece_used, stored;

    struct linked *linked; /* open addressing */
    size_t linked_count;
};

static sandbox_status begin(struct sbx_packer *packer, struct sbx_bytes *out,
                            sandbox_error *error);
static sandbox_status next_entry(struct sbx_packer *packer, struct sbx_bytes *out,
                                 sandbox_error *error);
static sandbox_status pack(struct sbx_packer *packer, int at, const char *name,
                           struct sbx_bytes *out, sandbox_error *error);
static sandbox_status pack_link(struct sbx_packer *packer, int at, const char *name,
                                struct sbx_bytes *out, sandbox_error *error);
static sandbox_status pack_directory(struct sbx_packer *packer, int at, const char *name,
                                     struct sbx_bytes *out, sandbox_error *error);
static sandbox_status pack_regular(struct sbx_packer *packer, int at, const char *name,
                                   struct sbx_bytes *out, sandbox_error *error);
static bool seen_before(struct sbx_packer *packer, const struct stat *about);
static bool find_pieces(struct sbx_packer *packer, const struct stat *about);
static sandbox_status pack_content(struct sbx_packer *packer, struct sbx_bytes *out,
                                   size_t wanted, sandbox_error *error);
static sandbox_status write_headers(struct sbx_packer *packer, struct sbx_bytes *out,
                                    sandbox_error *error);

sandbox_status sbx_packer_new(int parent, const char *name, const struct sbx_tree_limits *limits,
                              struct sbx_packer **out, sandbox_error *error)
{
    struct sbx_tree_limits settled = *limits;
    sandbox_status status = sbx_tree_limits_settle(&settled, error);
    if (status != SANDBOX_OK)
        return status;
    struct sbx_packer *packer = calloc(1, sizeof *packer);
    if (packer == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to pack a tree");
    packer->fd = -1;
    packer->limits = settled;
    packer->name = sbx_copy(name);
    packer->parent = openat(parent, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int number = errno;
    if (packer->name == NULL || packer->parent < 0) {
        bool memory = packer->name == NULL;
        sbx_packer_free(packer);
        return memory ? sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to pack a tree")
                      : sbx_fail_errno(error, number, "cannot open the directory of '%s'", name);
    }
    *out = packer;
    return SANDBOX_OK;
}

sandbox_status sbx_packer_next(struct sbx_packer *packer, struct sbx_bytes *out, size_t wanted,
                               bool *done, sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    while (status == SANDBOX_OK && !packer->ended && sbx_bytes_size(out) < wanted) {
        if (!packer->begun)
            status = begin(packer, out, error);
        else if (packer->fd >= 0)
            status = pack_content(packer, out, wanted, error);
        else if (packer->depth > 0)
            status = next_entry(packer, out, error);
        else if (sbx_tar_write_end(out))
            packer->ended = true;
        else
            status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to pack a tree");
    }
    *done = packer->ended;
    return status;
}

const struct sbx_tree_count *sbx_packer_count(const struct sbx_packer *packer)
{
    return &packer->count;
}

const char *sbx_packer_path(const struct sbx_packer *packer)
{
    return packer->entry.path;
}

void sbx_packer_free(struct sbx_packer *packer)
{
    if (packer == NULL)
        return;
    while (packer->depth > 0)
        closedir(packer->levels[--packer->depth].directory);
    for (size_t i = 0; packer->linked != NULL && i < LINKED_SLOTS; i++)
        free(packer->linked[i].path);
    free(packer->linked);
    free(packer->pieces);
    free(packer->name);
    if (packer->fd >= 0)
        close(packer->fd);
    if (packer->parent >= 0)
        close(packer->parent);
    free(packer);
}

static sandbox_status begin(struct sbx_packer *packer, struct sbx_bytes *out,
                            sandbox_error *error)
{
    struct stat about;
    if (fstatat(packer->parent, packer->name, &about, AT_SYMLINK_NOFOLLOW) != 0)
        return sbx_fail_errno(error, errno, "cannot copy '%s'", packer->name);
    if (!S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode))
        return sbx_fail_for(error, SANDBOX_INVALID, "not-a-tree",
                            "'%s' is neither a file nor a directory; name what is to be copied "
                            "itself, not a link to it",
                            packer->name);
    packer->begun = true;
    memcpy(packer->entry.path, ".", 2);
    return pack(packer, packer->parent, packer->name, out, error);
}

static sandbox_status next_entry(struct sbx_packer *packer, struct sbx_bytes *out,
                                 sandbox_error *error)
{
    struct level *level = &packer->levels[packer->depth - 1];
    errno = 0;
    struct dirent *found = readdir(level->directory);
    if (found == NULL && errno != 0)
        return sbx_fail_errno(error, errno, "cannot list '%.*s'", (int)level->path_size,
                              packer->entry.path);
    if (found == NULL) {
        closedir(level->directory);
        packer->depth--;
        return SANDBOX_OK;
    }
    if (strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0)
        return SANDBOX_OK;
    char *path = packer->entry.path;
    size_t used = packer->depth == 1 ? 0 : level->path_size;
    size_t size = strlen(found->d_name);
    if (used + size + 3 > sizeof packer->entry.path)
        return sbx_fail_for(error, SANDBOX_LIMIT, "path-too-long",
                            "a path in the tree is longer than %d bytes", SBX_TAR_PATH_MAX - 3);
    if (used > 0)
        path[used++] = '/';
    memcpy(path + used, found->d_name, size + 1);
    return pack(packer, dirfd(level->directory), found->d_name, out, error);
}

static sandbox_status pack(struct sbx_packer *packer, int at, const char *name,
                           struct sbx_bytes *out, sandbox_error *error)
{
    struct sbx_tar_entry *entry = &packer->entry;
    struct stat about;
    if (fstatat(at, name, &about, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT && packer->depth > 0)
            return SANDBOX_OK; /* removed since it was listed */
        return sbx_fail_errno(error, errno, "cannot look at '%s'", entry->path);
    }
    if (++packer->count.entries > packer->limits.max_entries)
        return sbx_fail_for(error, SANDBOX_LIMIT, "max-entries",
                            "the tree has more than %llu entries; raise max_entries",
                            (unsigned long long)packer->limits.max_entries);
    entry->mode = about.st_mode & 0777;
    entry->modified_s = about.st_mtim.tv_sec;
    entry->size = 0;
    entry->sparse = false;
    entry->target[0] = 0;
    if (S_ISDIR(about.st_mode))
        return pack_directory(packer, at, name, out, error);
    if (S_ISREG(about.st_mode))
        return pack_regular(packer, at, name, out, error);
    if (S_ISLNK(about.st_mode))
        return pack_link(packer, at, name, out, error);
    packer->count.skipped++;
    return SANDBOX_OK;
}

static sandbox_status pack_link(struct sbx_packer *packer, int at, const char *name,
                                struct sbx_bytes *out, sandbox_error *error)
{
    struct sbx_tar_entry *entry = &packer->entry;
    ssize_t size = readlinkat(at, name, entry->target, sizeof entry->target);
    if (size < 0 && (errno == ENOENT || errno == EINVAL))
        return SANDBOX_OK; /* removed or replaced since it was listed */
    if (size < 0)
        return sbx_fail_errno(error, errno, "cannot read the link '%s'", entry->path);
    if ((size_t)size >= sizeof entry->target || size == 0)
        return sbx_fail_for(error, SANDBOX_LIMIT, "path-too-long",
                            "the target of the link '%s' is too long", entry->path);
    entry->target[size] = 0;
    enum sbx_tree_links links = packer->limits.links;
    if (links == SBX_TREE_LINKS_SKIP ||
        (links == SBX_TREE_LINKS_INSIDE && !sbx_tree_link_is_inside(entry->path, entry->target))) {
        packer->count.skipped++;
        return SANDBOX_OK;
    }
    entry->kind = SBX_TAR_LINK;
    return write_headers(packer, out, error);
}

static sandbox_status pack_directory(struct sbx_packer *packer, int at, const char *name,
                                     struct sbx_bytes *out, sandbox_error *error)
{
    struct sbx_tar_entry *entry = &packer->entry;
    if (packer->depth > packer->limits.max_depth)
        return sbx_fail_for(error, SANDBOX_LIMIT, "max-depth",
                            "the tree is deeper than %u directories; raise max_depth (at most %u)",
                            packer->limits.max_depth, SBX_TREE_DEPTH_MAX);
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (directory == NULL) {
        int number = errno;
        if (fd >= 0)
            close(fd);
        return sbx_fail_errno(error, number, "cannot open the directory '%s'", entry->path);
    }
    packer->levels[packer->depth++] = (struct level){directory, strlen(entry->path)};
    entry->kind = SBX_TAR_DIRECTORY;
    return write_headers(packer, out, error);
}

static sandbox_status pack_regular(struct sbx_packer *packer, int at, const char *name,
                                   struct sbx_bytes *out, sandbox_error *error)
{
    struct sbx_tar_entry *entry = &packer->entry;
    struct stat about;
    SBX_ON_EXIT(sbx_close_fd)
    int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && packer->depth > 0)
        return SANDBOX_OK;
    if (fd < 0 || fstat(fd, &about) != 0)
        return sbx_fail_errno(error, errno, "cannot open '%s'", entry->path);
    if (!S_ISREG(about.st_mode)) { /* replaced since we looked */
        packer->count.skipped++;
        return SANDBOX_OK;
    }
    if (about.st_nlink > 1 && seen_before(packer, &about)) {
        entry->kind = SBX_TAR_HARD_LINK;
        return write_headers(packer, out, error);
    }
    entry->kind = SBX_TAR_REGULAR;
    entry->size = (uint64_t)about.st_size;
    packer->fd = sbx_take_fd(&fd);
    if (!find_pieces(packer, &about))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for the holes of '%s'", entry->path);
    sandbox_status status = sbx_tree_add_content(&packer->limits, &packer->claimed,
                                                 packer->stored, entry->size, error);
    return status == SANDBOX_OK ? write_headers(packer, out, error) : status;
}

/* Remembers the file; where it was met before, its first name becomes the entry's target. */
static bool seen_before(struct sbx_packer *packer, const struct stat *about)
{
    if (packer->linked == NULL)
        packer->linked = calloc(LINKED_SLOTS, sizeof *packer->linked);
    if (packer->linked == NULL)
        return false; /* then it is copied like any other */
    size_t slot = (size_t)((uint64_t)about->st_ino * UINT64_C(0x9e3779b97f4a7c15) >> 40);
    for (slot %= LINKED_SLOTS; packer->linked[slot].path != NULL;
         slot = (slot + 1) % LINKED_SLOTS) {
        const struct linked *known = &packer->linked[slot];
        if (known->inode == about->st_ino && known->device == about->st_dev) {
            memcpy(packer->entry.target, known->path, strlen(known->path) + 1);
            return true;
        }
    }
    char *path = packer->linked_count < LINKED_MAX ? sbx_copy(packer->entry.path) : NULL;
    if (path != NULL) {
        packer->linked[slot] = (struct linked){about->st_dev, about->st_ino, path};
        packer->linked_count++;
    }
    return false;
}

static bool add_piece(struct sbx_packer *packer, uint64_t offset, uint64_t size)
{
    if (packer->piece_count == packer->piece_capacity) {
        size_t capacity = packer->piece_capacity == 0 ? 16 : 2 * packer->piece_capacity;
        struct sbx_tar_piece *larger = realloc(packer->pieces, capacity * sizeof *larger);
        if (larger == NULL)
            return false;
        packer->pieces = larger;
        packer->piece_capacity = capacity;
    }
    packer->pieces[packer->piece_count++] = (struct sbx_tar_piece){offset, size};
    packer->stored += size;
    return true;
}

/* Where the file has data. One that has fewer blocks than bytes may have holes. */
static bool find_pieces(struct sbx_packer *packer, const struct stat *about)
{
    uint64_t size = (uint64_t)about->st_size;
    off_t at = 0;
    packer->piece_count = 0;
    packer->piece_index = 0;
    packer->piece_used = 0;
    packer->stored = 0;
    if (size == 0 || (uint64_t)about->st_blocks * 512 >= size)
        return size == 0 || add_piece(packer, 0, size);
    for (;;) {
        off_t data = lseek(packer->fd, at, SEEK_DATA);
        if (data < 0 && errno == ENXIO) /* only a hole is left */
            break;
        off_t hole = data < 0 ? -1 : lseek(packer->fd, data, SEEK_HOLE);
        /* Where the file system does not tell, or tells too much, the rest is data. */
        if (data < 0 || hole <= data || packer->piece_count + 2 >= PIECES_MAX ||
            (uint64_t)hole > size)
            hole = about->st_size;
        /* Blocks of tar begin pieces: GNU tar expects it. */
        data = data < 0 ? at : data / SBX_TAR_BLOCK * SBX_TAR_BLOCK;
        if (data < at)
            data = at;
        hole = (hole + SBX_TAR_BLOCK - 1) / SBX_TAR_BLOCK * SBX_TAR_BLOCK;
        if ((uint64_t)hole > size)
            hole = about->st_size;
        if (!add_piece(packer, (uint64_t)data, (uint64_t)(hole - data)))
            return false;
        if ((uint64_t)hole >= size)
            break;
        at = hole;
    }
    packer->entry.sparse = packer->stored < size;
    return true;
}

static sandbox_status pack_content(struct sbx_packer *packer, struct sbx_bytes *out,
                                   size_t wanted, sandbox_error *error)
{
    struct sbx_tar_entry *entry = &packer->entry;
    while (packer->piece_index < packer->piece_count && sbx_bytes_size(out) < wanted) {
        const struct sbx_tar_piece *piece = &packer->pieces[packer->piece_index];
        uint64_t left = piece->size - packer->piece_used;
        size_t size = left < READ_STEP ? (size_t)left : READ_STEP;
        uint8_t *room = sbx_bytes_room(out, size);
        if (room == NULL)
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to read '%s'", entry->path);
        ssize_t got = pread(packer->fd, room, size, (off_t)(piece->offset + packer->piece_used));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return sbx_fail_errno(error, errno, "cannot read '%s'", entry->path);
        if (got == 0)
            return sbx_fail_for(error, SANDBOX_FAILED, "file-changed",
                                "'%s' became shorter while it was copied", entry->path);
        sbx_bytes_grow(out, (size_t)got);
        packer->count.bytes += (uint64_t)got;
        packer->piece_used += (uint64_t)got;
        if (packer->piece_used == piece->size) {
            packer->piece_index++;
            packer->piece_used = 0;
        }
    }
    if (packer->piece_index < packer->piece_count)
        return SANDBOX_OK;
    close(packer->fd);
    packer->fd = -1;
    if (!sbx_tar_write_padding(out, packer->stored))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to pack a tree");
    return SANDBOX_OK;
}

static sandbox_status write_headers(struct sbx_packer *packer, struct sbx_bytes *out,
                                    sandbox_error *error)
{
    if (sbx_tar_write_entry(out, &packer->entry, packer->pieces, packer->piece_count))
        return SANDBOX_OK;
    return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to pack '%s'", packer->entry.path);
}
