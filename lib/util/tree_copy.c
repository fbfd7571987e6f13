/*
 * The walk through a tree for tree_copy.h: each directory's files in the order of their names,
 * then its directories. Down by name, up by "..", which is checked, so that any depth will do.
 */

#include "util/tree_copy.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/tree.h"
#include "util/tree_copy_parts.h"
#include "util/wait.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define DEPTH_MAX  1000000u
#define NAMES_MAX  (256u << 20) /* of names that are remembered at the same time */
#define TARGET_MAX 4096
#define PATH_KEPT  512
#define LOOK_EVERY 1024u

/* A directory on the way down. */
struct level {
    dev_t device, target_device;
    ino_t inode, target_inode;
    struct sbx_tree_entry entry;
    struct sbx_bytes xattrs;
    char *names; /* of its directories that are still to be entered, one behind the other */
    size_t names_size, names_at, path_size;
    bool is_read;
};

/* A file with several names that was met. `number`: which line of the list has its content. */
struct twin {
    dev_t device;
    ino_t inode;
    uint64_t number, batch;
};

struct twins {
    struct twin *all; /* a table by hash; number 0: free */
    size_t count, room;
};

struct walk {
    struct sbx_tree_work work;
    struct level *levels;
    size_t depth, room;
    int at, target; /* the directory that the last level is about, and its copy */
    struct twins twins;
    size_t held; /* bytes of names */
    dev_t device;
    char path[PATH_KEPT];
    int parent; /* where the copy is made */
    const char *name;
};

/* A directory's names while they are sorted. */
struct names {
    struct sbx_bytes text;
    struct name {
        size_t at;
        bool is_directory;
    } * all;
    size_t count, room;
};

static sandbox_status run(struct walk *walk, int root, const struct sbx_tree_job *job,
                          struct sbx_tree_facts *out, sandbox_error *error);
static sandbox_status walk_tree(struct walk *walk, int root, sandbox_error *error);
static sandbox_status enter(struct walk *walk, const char *name, int fd, sandbox_error *error);
static sandbox_status open_copy(struct walk *walk, const char *name, struct level *level,
                                sandbox_error *error);
static sandbox_status leave(struct walk *walk, sandbox_error *error);
static int go_up(int *at, dev_t device, ino_t inode);
static sandbox_status take_entries(struct walk *walk, sandbox_error *error);
static sandbox_status read_names(struct walk *walk, struct names *names, sandbox_error *error);
static int compare_names(const void *left, const void *right, void *names);
static void free_names(struct names *names);
static sandbox_status keep_directories(struct walk *walk, const struct names *names,
                                       sandbox_error *error);
static sandbox_status take_entry(struct walk *walk, const char *name, sandbox_error *error);
static sandbox_status take_twin(struct walk *walk, const struct stat *facts,
                                struct sbx_tree_entry *entry, sandbox_error *error);
static struct twin *find_twin(struct twins *twins, dev_t device, ino_t inode);
static sandbox_status open_links(struct walk *walk, sandbox_error *error);
static void end_walk(struct walk **walk);

sandbox_status sbx_tree_digest(int root, const struct sbx_tree_job *job, struct sbx_tree_facts *out,
                               sandbox_error *error)
{
    SBX_ON_EXIT(end_walk) struct walk *walk = calloc(1, sizeof *walk);
    if (walk == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to read a tree");
    return run(walk, root, job, out, error);
}

sandbox_status sbx_tree_measure(int root, const struct sbx_tree_job *job,
                                struct sbx_tree_facts *out, sandbox_error *error)
{
    SBX_ON_EXIT(end_walk) struct walk *walk = calloc(1, sizeof *walk);
    if (walk == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to read a tree");
    walk->work.measuring = true;
    return run(walk, root, job, out, error);
}

sandbox_status sbx_tree_copy(int root, int parent, const char *name, const struct sbx_tree_job *job,
                             struct sbx_tree_facts *out, sandbox_error *error)
{
    SBX_ON_EXIT(end_walk) struct walk *walk = calloc(1, sizeof *walk);
    if (walk == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to copy a tree");
    walk->work.copying = true;
    walk->parent = parent;
    walk->name = name;
    return run(walk, root, job, out, error);
}

static sandbox_status run(struct walk *walk, int root, const struct sbx_tree_job *job,
                          struct sbx_tree_facts *out, sandbox_error *error)
{
    walk->at = walk->target = -1;
    sandbox_status status = sbx_tree_work_begin(&walk->work, job, error);
    if (status == SANDBOX_OK)
        status = walk_tree(walk, root, error);
    if (status == SANDBOX_OK)
        status = sbx_tree_batch_flush(&walk->work, error);
    if (status == SANDBOX_OK && !sbx_hash_end(walk->work.list, walk->work.facts.digest))
        status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to read a tree");
    if (status == SANDBOX_OK)
        *out = walk->work.facts;
    return status;
}

static sandbox_status walk_tree(struct walk *walk, int root, sandbox_error *error)
{
    int fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat facts;
    if (fd < 0 || fstat(fd, &facts) < 0) {
        int number = errno;
        sbx_close_fd(&fd);
        return sbx_fail_errno(error, number, "cannot read a tree");
    }
    walk->device = facts.st_dev;
    sandbox_status status = enter(walk, ".", fd, error);
    while (status == SANDBOX_OK && walk->depth > 0) {
        struct level *level = &walk->levels[walk->depth - 1];
        if (!level->is_read) {
            level->is_read = true;
            status = take_entries(walk, error);
        } else if (level->names_at == level->names_size) {
            status = leave(walk, error);
        } else {
            const char *name = level->names + level->names_at;
            level->names_at += strlen(name) + 1;
            int below = openat(walk->at, name,
                               O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
            status = below >= 0
                         ? enter(walk, name, below, error)
                         : sbx_fail_errno(error, errno, "cannot read '%s/%s'", walk->path, name);
        }
    }
    return status;
}

static void describe(const struct stat *facts, char kind, struct sbx_tree_entry *entry)
{
    *entry = (struct sbx_tree_entry){.kind = kind,
                                     .mode = facts->st_mode,
                                     .uid = facts->st_uid,
                                     .gid = facts->st_gid,
                                     .inode = facts->st_ino,
                                     .modified = facts->st_mtim};
    entry->size = kind == 'f' || kind == 'l' ? (uint64_t)facts->st_size : 0;
    entry->stored = (uint64_t)facts->st_blocks * 512;
}

static sandbox_status count_entry(struct walk *walk, const struct sbx_tree_entry *entry,
                                  sandbox_error *error)
{
    walk->work.facts.bytes += entry->stored;
    if (walk->work.facts.entries++ < SBX_TREE_COPY_ENTRIES)
        return SANDBOX_OK;
    return sbx_fail_for(error, SANDBOX_LIMIT, "max-entries", "the tree has more than %llu entries",
                        (unsigned long long)SBX_TREE_COPY_ENTRIES);
}

/* Adds its name to the path that messages show; what does not fit is left out. */
static void extend_path(struct walk *walk, const char *name)
{
    size_t used = strlen(walk->path);
    if (strcmp(name, ".") != 0 && used + strlen(name) + 2 <= sizeof walk->path)
        snprintf(walk->path + used, sizeof walk->path - used, "%s%s", used == 0 ? "" : "/", name);
}

/* Takes over `fd`. */
static sandbox_status enter(struct walk *walk, const char *name, int fd, sandbox_error *error)
{
    struct stat facts;
    if (walk->depth == walk->room) {
        size_t room = walk->room == 0 ? 32 : 2 * walk->room;
        struct level *larger =
            room > DEPTH_MAX * 2 ? NULL : realloc(walk->levels, room * sizeof *larger);
        if (larger == NULL) {
            close(fd);
            return sbx_fail_for(error, SANDBOX_LIMIT, "max-depth", "the tree is too deep");
        }
        walk->levels = larger;
        walk->room = room;
    }
    struct level *level = &walk->levels[walk->depth];
    *level = (struct level){.path_size = strlen(walk->path), .xattrs.limit = SBX_TREE_XATTRS};
    walk->depth++;
    extend_path(walk, name);
    int parent = walk->at;
    walk->at = fd;
    int number = fstat(fd, &facts) < 0 ? errno : 0;
    if (number == 0 && facts.st_dev != walk->device) {
        sbx_close_fd(&parent);
        return sbx_fail_for(error, SANDBOX_UNSUPPORTED, "other-mount",
                            "something is mounted at '%s'; unmount it", walk->path);
    }
    sbx_close_fd(&parent);
    if (number == 0 && !walk->work.measuring)
        number = sbx_tree_xattrs_read(fd, &level->xattrs);
    if (number != 0)
        return sbx_fail_errno(error, number, "cannot read '%s'", walk->path);
    level->device = facts.st_dev;
    level->inode = facts.st_ino;
    describe(&facts, 'd', &level->entry);
    level->entry.has_xattrs = sbx_bytes_size(&level->xattrs) > 0;
    struct sbx_hash *hash = walk->work.hands[0].hash;
    if (level->entry.has_xattrs)
        sbx_hash_add(hash, sbx_bytes_data(&level->xattrs), sbx_bytes_size(&level->xattrs));
    if (level->entry.has_xattrs && !sbx_hash_end(hash, level->entry.xattrs))
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to read a tree");
    sandbox_status status = count_entry(walk, &level->entry, error);
    if (status == SANDBOX_OK && walk->work.copying)
        status = open_copy(walk, name, level, error);
    if (status == SANDBOX_OK && !walk->work.measuring)
        status = sbx_tree_batch_add(&walk->work, &level->entry, name, "", walk->path, error);
    return status;
}

/* For root alone until it is complete. */
static sandbox_status open_copy(struct walk *walk, const char *name, struct level *level,
                                sandbox_error *error)
{
    int parent = walk->depth == 1 ? walk->parent : walk->target;
    const char *made = walk->depth == 1 ? walk->name : name;
    struct stat facts;
    SBX_ON_EXIT(sbx_close_fd) int target = -1;
    if (mkdirat(parent, made, 0700) == 0)
        target = openat(parent, made, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (target < 0 || fstat(target, &facts) < 0)
        return sbx_fail_errno(error, errno, "cannot copy the directory '%s'", walk->path);
    level->target_device = facts.st_dev;
    level->target_inode = facts.st_ino;
    sbx_close_fd(&walk->target);
    walk->target = sbx_take_fd(&target);
    return SANDBOX_OK;
}

static sandbox_status leave(struct walk *walk, sandbox_error *error)
{
    struct level *level = &walk->levels[walk->depth - 1];
    sandbox_status status = SANDBOX_OK;
    if (walk->work.copying) {
        struct sbx_tree_closing closing = {.target = fcntl(walk->target, F_DUPFD_CLOEXEC, 0),
                                           .mode = level->entry.mode,
                                           .uid = level->entry.uid,
                                           .gid = level->entry.gid,
                                           .modified = level->entry.modified,
                                           .xattrs = level->xattrs};
        if (closing.target < 0)
            return sbx_fail_errno(error, errno, "cannot copy '%s'", walk->path);
        level->xattrs = (struct sbx_bytes){0};
        status = sbx_tree_batch_close(&walk->work, &closing, error);
    }
    struct sbx_tree_entry up = {.kind = 'u'};
    if (status == SANDBOX_OK && !walk->work.measuring)
        status = sbx_tree_batch_add(&walk->work, &up, "", "", "", error);
    walk->held -= level->names_size;
    free(level->names);
    sbx_bytes_free(&level->xattrs);
    walk->path[level->path_size] = '\0';
    if (--walk->depth == 0 || status != SANDBOX_OK)
        return status;
    const struct level *above = &walk->levels[walk->depth - 1];
    int number = go_up(&walk->at, above->device, above->inode);
    if (number == 0 && walk->work.copying)
        number = go_up(&walk->target, above->target_device, above->target_inode);
    return number == 0 ? SANDBOX_OK
                       : sbx_fail_for(error, SANDBOX_CONFLICT, "tree-changed",
                                      "'%s' was moved while it was read", walk->path);
}

static int go_up(int *at, dev_t device, ino_t inode)
{
    struct stat facts;
    SBX_ON_EXIT(sbx_close_fd) int up = openat(*at, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (up < 0 || fstat(up, &facts) < 0)
        return errno;
    if (facts.st_dev != device || facts.st_ino != inode)
        return ESTALE;
    close(*at);
    *at = sbx_take_fd(&up);
    return 0;
}

/* All of the open directory but its directories, whose names are kept for later. */
static sandbox_status take_entries(struct walk *walk, sandbox_error *error)
{
    SBX_ON_EXIT(free_names) struct names names = {.text.limit = NAMES_MAX};
    sandbox_status status = read_names(walk, &names, error);
    if (status == SANDBOX_OK && names.count > 1)
        qsort_r(names.all, names.count, sizeof names.all[0], compare_names, &names);
    if (status == SANDBOX_OK)
        status = keep_directories(walk, &names, error);
    bool is_folder = false;
    for (size_t n = 0; status == SANDBOX_OK && n < names.count; n++) {
        if (names.all[n].is_directory)
            continue;
        if (!is_folder && !walk->work.measuring)
            status = sbx_tree_batch_folder(&walk->work, walk->at, walk->target, error);
        is_folder = true;
        if (status == SANDBOX_OK && n % LOOK_EVERY == 0)
            status = sbx_wait_check(walk->work.job->wait, error);
        if (status == SANDBOX_OK)
            status = take_entry(walk, (const char *)sbx_bytes_data(&names.text) + names.all[n].at,
                                error);
    }
    return status;
}

static sandbox_status read_names(struct walk *walk, struct names *names, sandbox_error *error)
{
    int fd = openat(walk->at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (directory == NULL) {
        int number = errno;
        sbx_close_fd(&fd);
        return sbx_fail_errno(error, number, "cannot read '%s'", walk->path);
    }
    sandbox_status status = SANDBOX_OK;
    struct dirent *entry;
    while (status == SANDBOX_OK && (errno = 0, entry = readdir(directory)) != NULL) {
        const char *name = entry->d_name;
        struct stat facts;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        bool is_directory = entry->d_type == DT_DIR;
        if (entry->d_type == DT_UNKNOWN &&
            fstatat(walk->at, name, &facts, AT_SYMLINK_NOFOLLOW) == 0)
            is_directory = S_ISDIR(facts.st_mode);
        if (names->count == names->room) {
            names->room = names->room == 0 ? 64 : 2 * names->room;
            struct name *larger = realloc(names->all, names->room * sizeof *larger);
            if (larger == NULL)
                status = sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to read a tree");
            else
                names->all = larger;
        }
        if (status == SANDBOX_OK) {
            names->all[names->count++] = (struct name){sbx_bytes_size(&names->text), is_directory};
            if (!sbx_bytes_append(&names->text, name, strlen(name) + 1))
                status = sbx_fail_for(error, SANDBOX_LIMIT, "max-entries",
                                      "there are too many files in '%s'", walk->path);
        }
    }
    if (status == SANDBOX_OK && errno != 0)
        status = sbx_fail_errno(error, errno, "cannot read '%s'", walk->path);
    closedir(directory);
    return status;
}

static int compare_names(const void *left, const void *right, void *names)
{
    const char *text = (const char *)sbx_bytes_data(&((struct names *)names)->text);
    return strcmp(text + ((const struct name *)left)->at, text + ((const struct name *)right)->at);
}

static void free_names(struct names *names)
{
    sbx_bytes_free(&names->text);
    free(names->all);
}

static sandbox_status keep_directories(struct walk *walk, const struct names *names,
                                       sandbox_error *error)
{
    struct level *level = &walk->levels[walk->depth - 1];
    size_t size = 0;
    for (size_t n = 0; n < names->count; n++) {
        if (names->all[n].is_directory)
            size += strlen((const char *)sbx_bytes_data(&names->text) + names->all[n].at) + 1;
    }
    if (size == 0)
        return SANDBOX_OK;
    if (size > NAMES_MAX - walk->held || (level->names = malloc(size)) == NULL)
        return sbx_fail_for(error, SANDBOX_LIMIT, "max-entries",
                            "the tree has too many directories");
    walk->held += size;
    for (size_t n = 0; n < names->count; n++) {
        const char *name = (const char *)sbx_bytes_data(&names->text) + names->all[n].at;
        if (!names->all[n].is_directory)
            continue;
        memcpy(level->names + level->names_size, name, strlen(name) + 1);
        level->names_size += strlen(name) + 1;
    }
    return SANDBOX_OK;
}

static char kind_of(mode_t mode)
{
    return S_ISREG(mode) ? 'f' : S_ISLNK(mode) ? 'l' : S_ISFIFO(mode) ? 'p' : '\0';
}

static sandbox_status take_entry(struct walk *walk, const char *name, sandbox_error *error)
{
    struct stat facts;
    char target[TARGET_MAX + 1] = "";
    size_t path_size = strlen(walk->path);
    if (fstatat(walk->at, name, &facts, AT_SYMLINK_NOFOLLOW) < 0)
        return sbx_fail_errno(error, errno, "cannot read '%s/%s'", walk->path, name);
    if (S_ISDIR(facts.st_mode))
        return sbx_fail_for(error, SANDBOX_CONFLICT, "tree-changed",
                            "'%s/%s' changed while it was read", walk->path, name);
    struct sbx_tree_entry entry;
    describe(&facts, kind_of(facts.st_mode), &entry);
    if (entry.kind == '\0') {
        walk->work.facts.skipped++;
        return SANDBOX_OK;
    }
    ssize_t size = entry.kind == 'l' ? readlinkat(walk->at, name, target, TARGET_MAX) : 0;
    if (size < 0 || size == TARGET_MAX)
        return sbx_fail_errno(error, size < 0 ? errno : ENAMETOOLONG, "cannot read '%s/%s'",
                              walk->path, name);
    sandbox_status status = entry.kind == 'f' && facts.st_nlink > 1
                                ? take_twin(walk, &facts, &entry, error)
                                : SANDBOX_OK;
    if (status == SANDBOX_OK)
        status = count_entry(walk, &entry, error);
    if (status != SANDBOX_OK || walk->work.measuring)
        return status;
    extend_path(walk, name);
    status = sbx_tree_batch_add(&walk->work, &entry, name, target, walk->path, error);
    walk->path[path_size] = '\0';
    return status;
}

/* A file with several names: the first that is met has the content, the others point to it. */
static sandbox_status take_twin(struct walk *walk, const struct stat *facts,
                                struct sbx_tree_entry *entry, sandbox_error *error)
{
    struct twin *twin = find_twin(&walk->twins, facts->st_dev, facts->st_ino);
    if (twin == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory to read a tree");
    if (twin->number != 0) {
        entry->kind = 'h';
        entry->number = twin->number;
        entry->size = entry->stored = 0;
        bool is_pending = walk->work.copying && twin->batch == walk->work.batch.number;
        return is_pending ? sbx_tree_batch_flush(&walk->work, error) : SANDBOX_OK;
    }
    *twin = (struct twin){facts->st_dev, facts->st_ino, walk->work.facts.entries + 1,
                          walk->work.batch.number};
    walk->twins.count++;
    entry->has_twins = true;
    entry->number = twin->number;
    return walk->work.copying && walk->work.links < 0 ? open_links(walk, error) : SANDBOX_OK;
}

static struct twin *probe(const struct twins *twins, dev_t device, ino_t inode)
{
    uint64_t hash = ((uint64_t)inode + (uint64_t)device * 31) * UINT64_C(0x9e3779b97f4a7c15);
    size_t slot = (size_t)(hash >> 20) & (twins->room - 1);
    while (twins->all[slot].number != 0 &&
           (twins->all[slot].inode != inode || twins->all[slot].device != device))
        slot = (slot + 1) & (twins->room - 1);
    return &twins->all[slot];
}

/* Its place in the table, `number` 0 where it is not known yet; NULL: no memory. */
static struct twin *find_twin(struct twins *twins, dev_t device, ino_t inode)
{
    if (twins->count * 2 >= twins->room) {
        struct twins larger = {NULL, twins->count, twins->room == 0 ? 256 : 2 * twins->room};
        larger.all = calloc(larger.room, sizeof *larger.all);
        if (larger.all == NULL)
            return NULL;
        for (size_t n = 0; n < twins->room; n++) {
            if (twins->all[n].number != 0)
                *probe(&larger, twins->all[n].device, twins->all[n].inode) = twins->all[n];
        }
        free(twins->all);
        *twins = larger;
    }
    return probe(twins, device, inode);
}

static void name_links(const struct walk *walk, char name[300])
{
    snprintf(name, 300, "%s.links", walk->name);
}

static sandbox_status open_links(struct walk *walk, sandbox_error *error)
{
    char name[300];
    name_links(walk, name);
    if (mkdirat(walk->parent, name, 0700) == 0)
        walk->work.links =
            openat(walk->parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return walk->work.links >= 0
               ? SANDBOX_OK
               : sbx_fail_errno(error, errno, "cannot make '%s' beside a copy", name);
}

static void end_walk(struct walk **walk)
{
    struct walk *ended = *walk;
    if (ended == NULL)
        return;
    if (ended->work.links >= 0 && ended->work.copying) {
        char name[300];
        name_links(ended, name);
        (void)sbx_tree_erase(ended->parent, name, NULL);
    }
    sbx_tree_work_end(&ended->work);
    for (size_t n = 0; n < ended->depth; n++) {
        free(ended->levels[n].names);
        sbx_bytes_free(&ended->levels[n].xattrs);
    }
    free(ended->levels);
    free(ended->twins.all);
    sbx_close_fd(&ended->at);
    sbx_close_fd(&ended->target);
    free(ended);
}
