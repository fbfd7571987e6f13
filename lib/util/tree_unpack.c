/* Unpacking: a tar stream from a stranger becomes a tree, first aside, at last in place. */

#include "util/beneath.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/random.h"
#include "util/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOT "tree"        /* within the temporary directory */
#define NAME_SHOWN 200     /* bytes of the target's name in the temporary one's */
#define HIDDEN_MODE 0700   /* while it is filled: nobody else looks or meddles */

/* A directory whose mode and time are set once its content is complete. */
struct directory {
    char *path;
    mode_t mode;
    int64_t modified_s;
    ino_t inode;
};

struct sbx_unpacker {
    struct sbx_tree_limits limits;
    struct sbx_tree_count count;
    struct sbx_tree_claimed claimed;
    struct sbx_tar_reader *reader;
    bool complete;

    int parent;
    char *name;
    bool into;               /* the target is a directory that is there already */
    int base;                /* where the temporary directory is */
    char temporary[NAME_MAX + 1];
    int hold, root;          /* the temporary directory, and the tree's root in it; -1 */
    bool is_file;            /* the root is a single file */

    char path[SBX_TAR_PATH_MAX]; /* of the entry, in its shortest form; "" for the root */
    int fd;                      /* the file being written, or -1 */
    int folder;                  /* the directory of the last entry, or -1 */
    char folder_path[SBX_TAR_PATH_MAX];

    struct directory *directories;
    size_t directory_count, directory_capacity;
};

static sandbox_status open_places(struct sbx_unpacker *unpacker, int parent, sandbox_error *error);
static sandbox_status make_hold(struct sbx_unpacker *unpacker, sandbox_error *error);
static sandbox_status take_entry(struct sbx_unpacker *unpacker, sandbox_error *error);
static sandbox_status shorten(const char *given, char path[SBX_TAR_PATH_MAX], unsigned *depth,
                              sandbox_error *error);
static sandbox_status take_root(struct sbx_unpacker *unpacker, sandbox_error *error);
static sandbox_status make_root(struct sbx_unpacker *unpacker, sandbox_error *error);
static sandbox_status open_folder(struct sbx_unpacker *unpacker, unsigned depth,
                                  const char **name, sandbox_error *error);
static sandbox_status make_directory(struct sbx_unpacker *unpacker, const char *name,
                                     sandbox_error *error);
static sandbox_status remember(struct sbx_unpacker *unpacker, sandbox_error *error);
static sandbox_status make_file(struct sbx_unpacker *unpacker, int at, const char *name,
                                sandbox_error *error);
static sandbox_status make_link(struct sbx_unpacker *unpacker, const char *name,
                                sandbox_error *error);
static sandbox_status make_hard_link(struct sbx_unpacker *unpacker, const char *name,
                                     sandbox_error *error);
static bool clear_way(int at, const char *name);
static sandbox_status take_data(struct sbx_unpacker *unpacker, sandbox_error *error);
static sandbox_status end_file(struct sbx_unpacker *unpacker, sandbox_error *error);
static sandbox_status settle_directories(struct sbx_unpacker *unpacker, sandbox_error *error);
static sandbox_status put_in_place(struct sbx_unpacker *unpacker, sandbox_error *error);
static void restrict_directories(const struct sbx_unpacker *unpacker);

sandbox_status sbx_unpacker_new(int parent, const char *name,
                                const struct sbx_tree_limits *limits, struct sbx_unpacker **out,
                                sandbox_error *error)
{
    struct sbx_tree_limits settled = *limits;
    sandbox_status status = sbx_tree_limits_settle(&settled, error);
    if (status != SANDBOX_OK)
        return status;
    struct sbx_unpacker *unpacker = calloc(1, sizeof *unpacker);
    if (unpacker == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to unpack a tree");
    unpacker->limits = settled;
    unpacker->parent = unpacker->base = unpacker->hold = unpacker->root = -1;
    unpacker->fd = unpacker->folder = -1;
    unpacker->name = sbx_copy(name);
    unpacker->reader = sbx_tar_reader_new();
    if (unpacker->name == NULL || unpacker->reader == NULL)
        status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to unpack a tree");
    else
        status = open_places(unpacker, parent, error);
    if (status == SANDBOX_OK)
        status = make_hold(unpacker, error);
    if (status != SANDBOX_OK)
        sbx_unpacker_free(sbx_take(unpacker));
    *out = unpacker;
    return status;
}

sandbox_status sbx_unpacker_feed(struct sbx_unpacker *unpacker, const void *data, size_t size,
                                 sandbox_error *error)
{
    sandbox_status status = SANDBOX_OK;
    sbx_tar_reader_feed(unpacker->reader, data, size);
    while (status == SANDBOX_OK) {
        switch (sbx_tar_reader_next(unpacker->reader)) {
        case SBX_TAR_MORE:
            return SANDBOX_OK;
        case SBX_TAR_END:
            unpacker->complete = true;
            return SANDBOX_OK;
        case SBX_TAR_ENTRY:
            status = take_entry(unpacker, error);
            break;
        case SBX_TAR_DATA:
            status = take_data(unpacker, error);
            break;
        case SBX_TAR_DONE:
            status = end_file(unpacker, error);
            break;
        case SBX_TAR_BAD:
            status = sbx_fail_for(error, SANDBOX_FAILED, "bad-archive",
                                  "the archive cannot be read: %s",
                                  sbx_tar_reader_problem(unpacker->reader));
            break;
        }
    }
    return status;
}

sandbox_status sbx_unpacker_commit(struct sbx_unpacker *unpacker, sandbox_error *error)
{
    if (!unpacker->complete)
        return sbx_fail_for(error, SANDBOX_FAILED, "bad-archive", "the archive is cut off");
    if (unpacker->root < 0 && !unpacker->is_file)
        return sbx_fail_for(error, SANDBOX_FAILED, "bad-archive", "the archive is empty");
    sandbox_status status = settle_directories(unpacker, error);
    if (status == SANDBOX_OK)
        status = put_in_place(unpacker, error);
    if (status == SANDBOX_OK)
        restrict_directories(unpacker);
    return status;
}

const struct sbx_tree_count *sbx_unpacker_count(const struct sbx_unpacker *unpacker)
{
    return &unpacker->count;
}

const char *sbx_unpacker_path(const struct sbx_unpacker *unpacker)
{
    return unpacker->path[0] == 0 ? "." : unpacker->path;
}

void sbx_unpacker_free(struct sbx_unpacker *unpacker)
{
    if (unpacker == NULL)
        return;
    sbx_close_fd(&unpacker->fd);
    sbx_close_fd(&unpacker->folder);
    sbx_close_fd(&unpacker->root);
    if (unpacker->hold >= 0)
        sbx_tree_erase(unpacker->base, unpacker->temporary, NULL);
    sbx_close_fd(&unpacker->hold);
    sbx_close_fd(&unpacker->base);
    sbx_close_fd(&unpacker->parent);
    for (size_t i = 0; i < unpacker->directory_count; i++)
        free(unpacker->directories[i].path);
    free(unpacker->directories);
    sbx_tar_reader_free(unpacker->reader);
    free(unpacker->name);
    free(unpacker);
}

static sandbox_status open_places(struct sbx_unpacker *unpacker, int parent, sandbox_error *error)
{
    unpacker->parent = openat(parent, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (unpacker->parent < 0)
        return sbx_fail_errno(error, errno, "cannot open the directory of '%s'", unpacker->name);
    unpacker->base = openat(parent, unpacker->name,
                            O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    unpacker->into = unpacker->base >= 0;
    if (!unpacker->into)
        unpacker->base = openat(parent, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (unpacker->base < 0)
        return sbx_fail_errno(error, errno, "cannot open the directory of '%s'", unpacker->name);
    return SANDBOX_OK;
}

static sandbox_status make_hold(struct sbx_unpacker *unpacker, sandbox_error *error)
{
    uint8_t random[8];
    char digits[2 * sizeof random + 1];
    if (!sbx_random(random, sizeof random))
        return sbx_fail(error, SANDBOX_FAILED, "the system gives no random bytes");
    sbx_hex_print(random, sizeof random, digits);
    if (unpacker->into)
        snprintf(unpacker->temporary, sizeof unpacker->temporary, ".sandbox-%s", digits);
    else
        snprintf(unpacker->temporary, sizeof unpacker->temporary, ".%.*s.sandbox-%s", NAME_SHOWN,
                 unpacker->name, digits);
    if (mkdirat(unpacker->base, unpacker->temporary, HIDDEN_MODE) != 0)
        return sbx_fail_errno(error, errno, "cannot make a temporary directory for '%s'",
                              unpacker->name);
    unpacker->hold = openat(unpacker->base, unpacker->temporary,
                            O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (unpacker->hold >= 0)
        return SANDBOX_OK;
    int number = errno;
    unlinkat(unpacker->base, unpacker->temporary, AT_REMOVEDIR);
    return sbx_fail_errno(error, number, "cannot open a temporary directory for '%s'",
                          unpacker->name);
}

static sandbox_status count_entries(struct sbx_unpacker *unpacker, unsigned more,
                                    sandbox_error *error)
{
    unpacker->count.entries += more;
    if (unpacker->count.entries <= unpacker->limits.max_entries)
        return SANDBOX_OK;
    return sbx_fail_for(error, SANDBOX_LIMIT, "max-entries",
                        "the tree has more than %llu entries; raise max_entries",
                        (unsigned long long)unpacker->limits.max_entries);
}

static sandbox_status take_entry(struct sbx_unpacker *unpacker, sandbox_error *error)
{
    const struct sbx_tar_entry *entry = sbx_tar_reader_entry(unpacker->reader);
    unsigned depth = 0;
    const char *name;
    sandbox_status status = count_entries(unpacker, 1, error);
    if (status == SANDBOX_OK)
        status = shorten(entry->path, unpacker->path, &depth, error);
    if (status != SANDBOX_OK)
        return status;
    if (depth - (entry->kind != SBX_TAR_DIRECTORY && depth > 0) > unpacker->limits.max_depth)
        return sbx_fail_for(error, SANDBOX_LIMIT, "max-depth",
                            "the tree is deeper than %u directories; raise max_depth (at most %u)",
                            unpacker->limits.max_depth, SBX_TREE_DEPTH_MAX);
    if (unpacker->path[0] == 0)
        return take_root(unpacker, error);
    if (entry->kind == SBX_TAR_OTHER) {
        unpacker->count.skipped++;
        return SANDBOX_OK;
    }
    status = open_folder(unpacker, depth, &name, error);
    if (status != SANDBOX_OK)
        return status;
    switch (entry->kind) {
    case SBX_TAR_DIRECTORY:
        return make_directory(unpacker, name, error);
    case SBX_TAR_LINK:
        return make_link(unpacker, name, error);
    case SBX_TAR_HARD_LINK:
        return make_hard_link(unpacker, name, error);
    default:
        return make_file(unpacker, unpacker->folder, name, error);
    }
}

/* Without ".", doubled and final slashes; "" for the root. What leads out is refused. */
static sandbox_status shorten(const char *given, char path[SBX_TAR_PATH_MAX], unsigned *depth,
                              sandbox_error *error)
{
    size_t used = 0;
    bool out = given[0] == '/';
    *depth = 0;
    for (const char *at = given; *at != 0 && !out;) {
        at += strspn(at, "/");
        size_t size = strcspn(at, "/");
        if (size == 2 && memcmp(at, "..", 2) == 0)
            out = true;
        if (size > 0 && !(size == 1 && *at == '.')) {
            if (used > 0)
                path[used++] = '/';
            memcpy(path + used, at, size);
            used += size;
            ++*depth;
        }
        at += size;
    }
    path[used] = 0;
    if (!out)
        return SANDBOX_OK;
    return sbx_fail_for(error, SANDBOX_FAILED, "bad-archive",
                        "the archive holds a path that leads out of it");
}

static sandbox_status take_root(struct sbx_unpacker *unpacker, sandbox_error *error)
{
    const struct sbx_tar_entry *entry = sbx_tar_reader_entry(unpacker->reader);
    if (entry->kind == SBX_TAR_DIRECTORY) {
        sandbox_status status = make_root(unpacker, error);
        return status == SANDBOX_OK ? remember(unpacker, error) : status;
    }
    if (entry->kind != SBX_TAR_REGULAR || unpacker->root >= 0 || unpacker->is_file)
        return sbx_fail_for(error, SANDBOX_FAILED, "bad-archive",
                            "the archive's root is neither one file nor one directory");
    unpacker->is_file = true;
    return make_file(unpacker, unpacker->hold, ROOT, error);
}

static sandbox_status make_root(struct sbx_unpacker *unpacker, sandbox_error *error)
{
    if (unpacker->root >= 0)
        return SANDBOX_OK;
    if (unpacker->is_file)
        return sbx_fail_for(error, SANDBOX_FAILED, "bad-archive",
                            "the archive holds more beside its single file");
    if (mkdirat(unpacker->hold, ROOT, 0755) == 0)
        unpacker->root =
            openat(unpacker->hold, ROOT, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (unpacker->root < 0)
        return sbx_fail_errno(error, errno, "cannot make a temporary directory for '%s'",
                              unpacker->name);
    return SANDBOX_OK;
}

/* Archives go directory by directory, so the last one is kept open. */
static sandbox_status open_folder(struct sbx_unpacker *unpacker, unsigned depth,
                                  const char **name, sandbox_error *error)
{
    sandbox_status status = make_root(unpacker, error);
    if (status != SANDBOX_OK)
        return status;
    const char *slash = strrchr(unpacker->path, '/');
    size_t size = slash == NULL ? 0 : (size_t)(slash - unpacker->path);
    *name = slash == NULL ? unpacker->path : slash + 1;
    if (unpacker->folder >= 0 && strlen(unpacker->folder_path) == size &&
        memcmp(unpacker->folder_path, unpacker->path, size) == 0)
        return SANDBOX_OK;
    sbx_close_fd(&unpacker->folder);
    int folder = sbx_beneath_parent(unpacker->root, unpacker->path, false, 0, name);
    if (folder < 0 && errno == ENOENT) {
        /* Parents that the archive does not mention count as well: each may be many. */
        status = count_entries(unpacker, depth - 1, error);
        if (status != SANDBOX_OK)
            return status;
        folder = sbx_beneath_parent(unpacker->root, unpacker->path, true, 0755, name);
    }
    if (folder < 0 && (errno == ELOOP || errno == EXDEV || errno == ENOTDIR))
        return sbx_fail_for(error, SANDBOX_FAILED, "bad-archive",
                            "the archive's path '%s' leads through something that is no directory",
                            unpacker->path);
    if (folder < 0)
        return sbx_fail_errno(error, errno, "cannot open the directory of '%s'", unpacker->path);
    unpacker->folder = folder;
    memcpy(unpacker->folder_path, unpacker->path, size);
    unpacker->folder_path[size] = 0;
    return SANDBOX_OK;
}

static sandbox_status make_directory(struct sbx_unpacker *unpacker, const char *name,
                                     sandbox_error *error)
{
    struct stat about;
    if (mkdirat(unpacker->folder, name, HIDDEN_MODE) == 0)
        return remember(unpacker, error);
    if (errno == EEXIST &&
        fstatat(unpacker->folder, name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISDIR(about.st_mode))
        return remember(unpacker, error);
    if (errno == EEXIST && clear_way(unpacker->folder, name) &&
        mkdirat(unpacker->folder, name, HIDDEN_MODE) == 0)
        return remember(unpacker, error);
    return sbx_fail_errno(error, errno, "cannot make the directory '%s'", unpacker->path);
}

static sandbox_status remember(struct sbx_unpacker *unpacker, sandbox_error *error)
{
    const struct sbx_tar_entry *entry = sbx_tar_reader_entry(unpacker->reader);
    if (unpacker->directory_count == unpacker->directory_capacity) {
        size_t capacity = unpacker->directory_capacity == 0 ? 64 : 2 * unpacker->directory_capacity;
        struct directory *larger = realloc(unpacker->directories, capacity * sizeof *larger);
        if (larger == NULL)
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for so many directories");
        unpacker->directories = larger;
        unpacker->directory_capacity = capacity;
    }
    char *path = sbx_copy(unpacker->path);
    if (path == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for so many directories");
    unpacker->directories[unpacker->directory_count++] =
        (struct directory){path, entry->mode & 0777, entry->modified_s, 0};
    return SANDBOX_OK;
}

static sandbox_status make_file(struct sbx_unpacker *unpacker, int at, const char *name,
                                sandbox_error *error)
{
    const struct sbx_tar_entry *entry = sbx_tar_reader_entry(unpacker->reader);
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    /* The content of a sparse file is counted as it comes. */
    sandbox_status status =
        sbx_tree_add_content(&unpacker->limits, &unpacker->claimed,
                             entry->sparse ? 0 : entry->size, entry->size, error);
    if (status != SANDBOX_OK)
        return status;
    unpacker->fd = openat(at, name, flags, 0600);
    if (unpacker->fd < 0 && errno == EEXIST && clear_way(at, name))
        unpacker->fd = openat(at, name, flags, 0600);
    if (unpacker->fd < 0)
        return sbx_fail_errno(error, errno, "cannot make the file '%s'",
                              sbx_unpacker_path(unpacker));
    return SANDBOX_OK;
}

static sandbox_status make_link(struct sbx_unpacker *unpacker, const char *name,
                                sandbox_error *error)
{
    const struct sbx_tar_entry *entry = sbx_tar_reader_entry(unpacker->reader);
    enum sbx_tree_links links = unpacker->limits.links;
    if (links == SBX_TREE_LINKS_SKIP ||
        (links == SBX_TREE_LINKS_INSIDE &&
         !sbx_tree_link_is_inside(unpacker->path, entry->target))) {
        unpacker->count.skipped++;
        return SANDBOX_OK;
    }
    int made = symlinkat(entry->target, unpacker->folder, name);
    if (made != 0 && errno == EEXIST && clear_way(unpacker->folder, name))
        made = symlinkat(entry->target, unpacker->folder, name);
    if (made != 0)
        return sbx_fail_errno(error, errno, "cannot make the link '%s'", unpacker->path);
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = entry->modified_s}};
    (void)utimensat(unpacker->folder, name, times, AT_SYMLINK_NOFOLLOW);
    return SANDBOX_OK;
}

/* Only to a regular file of this archive: a second name of a link would lead elsewhere. */
static sandbox_status make_hard_link(struct sbx_unpacker *unpacker, const char *name,
                                     sandbox_error *error)
{
    const struct sbx_tar_entry *entry = sbx_tar_reader_entry(unpacker->reader);
    char target[SBX_TAR_PATH_MAX];
    const char *target_name = NULL;
    unsigned depth;
    struct stat about;
    sandbox_status status = shorten(entry->target, target, &depth, error);
    if (status != SANDBOX_OK)
        return status;
    SBX_ON_EXIT(sbx_close_fd)
    int at = depth == 0 ? -1 : sbx_beneath_parent(unpacker->root, target, false, 0, &target_name);
    if (at < 0 || fstatat(at, target_name, &about, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(about.st_mode))
        return sbx_fail_for(error, SANDBOX_FAILED, "bad-archive",
                            "the hard link '%s' leads to no file of the archive", unpacker->path);
    if (strcmp(target, unpacker->path) == 0)
        return SANDBOX_OK;
    int made = linkat(at, target_name, unpacker->folder, name, 0);
    if (made != 0 && errno == EEXIST && clear_way(unpacker->folder, name))
        made = linkat(at, target_name, unpacker->folder, name, 0);
    if (made != 0)
        return sbx_fail_errno(error, errno, "cannot make the hard link '%s'", unpacker->path);
    return SANDBOX_OK;
}

/* A later entry takes an earlier one's place. Keeps errno where it cannot. */
static bool clear_way(int at, const char *name)
{
    if (unlinkat(at, name, 0) == 0)
        return true;
    return (errno == EISDIR || errno == EPERM) && unlinkat(at, name, AT_REMOVEDIR) == 0;
}

static sandbox_status take_data(struct sbx_unpacker *unpacker, sandbox_error *error)
{
    uint64_t offset;
    size_t size;
    const uint8_t *data = sbx_tar_reader_data(unpacker->reader, &size, &offset);
    if (sbx_tar_reader_entry(unpacker->reader)->sparse) {
        sandbox_status status =
            sbx_tree_add_content(&unpacker->limits, &unpacker->claimed, size, 0, error);
        if (status != SANDBOX_OK)
            return status;
    }
    unpacker->count.bytes += size;
    while (size > 0) {
        ssize_t written = pwrite(unpacker->fd, data, size, (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return sbx_fail_errno(error, errno, "cannot write '%s'", sbx_unpacker_path(unpacker));
        data += written;
        size -= (size_t)written;
        offset += (uint64_t)written;
    }
    return SANDBOX_OK;
}

static sandbox_status end_file(struct sbx_unpacker *unpacker, sandbox_error *error)
{
    const struct sbx_tar_entry *entry = sbx_tar_reader_entry(unpacker->reader);
    if (unpacker->fd < 0)
        return SANDBOX_OK;
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = entry->modified_s}};
    int number = 0;
    if ((entry->sparse && ftruncate(unpacker->fd, (off_t)entry->size) != 0) ||
        fchmod(unpacker->fd, entry->mode & 0777) != 0)
        number = errno;
    /* A time that the file system cannot hold is not worth a failure. */
    (void)futimens(unpacker->fd, times);
    if (close(unpacker->fd) != 0 && number == 0 && errno != EINTR)
        number = errno;
    unpacker->fd = -1;
    if (number != 0)
        return sbx_fail_errno(error, number, "cannot write '%s'", sbx_unpacker_path(unpacker));
    return SANDBOX_OK;
}

/* From the last to the first, so that no directory changes after its time was set. */
static sandbox_status settle_directories(struct sbx_unpacker *unpacker, sandbox_error *error)
{
    for (size_t i = unpacker->directory_count; i-- > 0;) {
        struct directory *directory = &unpacker->directories[i];
        struct stat about;
        SBX_ON_EXIT(sbx_close_fd)
        int fd = sbx_beneath_open(unpacker->root, directory->path[0] == 0 ? "." : directory->path,
                                  O_RDONLY | O_DIRECTORY, 0);
        if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
            continue; /* a later entry took its place */
        const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                          {.tv_sec = directory->modified_s}};
        /* It stays open to us until everything is in place. */
        if (fd < 0 || fstat(fd, &about) != 0 || fchmod(fd, directory->mode | HIDDEN_MODE) != 0)
            return sbx_fail_errno(error, errno, "cannot set the mode of '%s'", directory->path);
        directory->inode = about.st_ino;
        (void)futimens(fd, times);
    }
    return SANDBOX_OK;
}

static sandbox_status put_in_place(struct sbx_unpacker *unpacker, sandbox_error *error)
{
    char place[SBX_TAR_PATH_MAX];
    int number =
        sbx_tree_place(unpacker->hold, ROOT, unpacker->parent, unpacker->name, place);
    if (number == EISDIR || number == ENOTDIR)
        return sbx_fail_for(error, SANDBOX_EXISTS, "other-kind",
                            "'%s' is there and is %s directory, unlike what is to be put there",
                            place, number == EISDIR ? "a" : "no");
    if (number == EXDEV)
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "other-mount",
                            "'%s' is on another mount; copy into it separately", place);
    if (number != 0)
        return sbx_fail_errno(error, number, "cannot put '%s' in place", place);
    return SANDBOX_OK;
}

/* Modes that would have kept us out. Directories that were there before keep their own. */
static void restrict_directories(const struct sbx_unpacker *unpacker)
{
    SBX_ON_EXIT(sbx_close_fd) int root = -1;
    for (size_t i = unpacker->directory_count; i-- > 0;) {
        const struct directory *directory = &unpacker->directories[i];
        struct stat about;
        if ((directory->mode & HIDDEN_MODE) == HIDDEN_MODE)
            continue;
        if (root < 0)
            root = openat(unpacker->parent, unpacker->name,
                          O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        SBX_ON_EXIT(sbx_close_fd)
        int fd = root < 0 ? -1
                          : sbx_beneath_open(root,
                                             directory->path[0] == 0 ? "." : directory->path,
                                             O_RDONLY | O_DIRECTORY, 0);
        if (fd >= 0 && fstat(fd, &about) == 0 && about.st_ino == directory->inode)
            (void)fchmod(fd, directory->mode);
    }
}
