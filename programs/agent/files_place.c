/*
 * From paths to places. Each component is looked at by hand, since links may be followed only
 * where they stay inside, and gVisor has no openat2.
 */

#include "files.h"

#include "util/memory.h"
#include "util/random.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINKS_MAX 40
#define PENDING_MAX (2 * AGENT_PATH_MAX)
#define NO_REPLACE 1u /* RENAME_NOREPLACE */

struct walk {
    const char *directory; /* the workspace's */
    unsigned way;
    bool bounded;
    int at;
    unsigned depth; /* below the workspace's directory, where bounded */
    unsigned links;
    char pending[PENDING_MAX];
};

static int begin(struct walk *walk, const char *path);
static int go(struct walk *walk, const char *from);
static int step(struct walk *walk, const char *name, bool last, bool *arrived);
static int go_up(struct walk *walk);
static int go_down(struct walk *walk, const char *name);
static int expand(struct walk *walk, const char *name, bool *is_link);
static void cut(struct walk *walk, char name[AGENT_NAME_MAX + 1], bool *last, bool *too_long);

int agent_place_find(const struct agent_job *job, const char *path, unsigned way,
                     struct agent_place *place)
{
    struct walk walk = {.directory = job->directory, .way = way, .at = -1};
    int number = begin(&walk, path);
    snprintf(place->name, sizeof place->name, ".");
    while (number == 0) {
        char name[AGENT_NAME_MAX + 1];
        bool last, too_long, arrived = false;
        cut(&walk, name, &last, &too_long);
        if (name[0] == 0)
            break;
        number = too_long ? ENAMETOOLONG : step(&walk, name, last, &arrived);
        if (arrived) {
            memcpy(place->name, name, sizeof name);
            break;
        }
    }
    if (number == 0)
        place->parent = sbx_take_fd(&walk.at);
    sbx_close_fd(&walk.at);
    return number;
}

void agent_place_close(struct agent_place *place)
{
    sbx_close_fd(&place->parent);
}

static int begin(struct walk *walk, const char *path)
{
    bool absolute = path[0] == '/';
    walk->bounded = !absolute && (walk->way & AGENT_PLACE_OUT) == 0;
    snprintf(walk->pending, sizeof walk->pending, "%s", path);
    return go(walk, absolute ? "/" : walk->directory);
}

static int go(struct walk *walk, const char *from)
{
    sbx_close_fd(&walk->at);
    walk->depth = 0;
    walk->at = open(from, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return walk->at < 0 ? errno : 0;
}

/* Takes the next component off; "" at the end. */
static void cut(struct walk *walk, char name[AGENT_NAME_MAX + 1], bool *last, bool *too_long)
{
    char *at = walk->pending + strspn(walk->pending, "/");
    size_t size = strcspn(at, "/");
    *too_long = size > AGENT_NAME_MAX;
    size_t kept = *too_long ? AGENT_NAME_MAX : size;
    memcpy(name, at, kept);
    name[kept] = 0;
    char *rest = at + size + strspn(at + size, "/");
    *last = *rest == 0;
    memmove(walk->pending, rest, strlen(rest) + 1);
}

static int step(struct walk *walk, const char *name, bool last, bool *arrived)
{
    bool is_link = false;
    if (strcmp(name, ".") == 0)
        return 0;
    if (strcmp(name, "..") == 0)
        return go_up(walk);
    if (last && (walk->way & AGENT_PLACE_FOLLOW) == 0) {
        *arrived = true;
        return 0;
    }
    if (last) {
        int number = expand(walk, name, &is_link);
        *arrived = number == 0 && !is_link;
        return number;
    }
    int number = go_down(walk, name);
    if (number != ENOTDIR && number != ELOOP)
        return number;
    number = expand(walk, name, &is_link);
    return number == 0 && !is_link ? ENOTDIR : number;
}

static int go_up(struct walk *walk)
{
    if (walk->bounded && walk->depth == 0)
        return EXDEV;
    int up = openat(walk->at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (up < 0)
        return errno;
    close(walk->at);
    walk->at = up;
    if (walk->depth > 0)
        walk->depth--;
    return 0;
}

static int go_down(struct walk *walk, const char *name)
{
    const int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int down = openat(walk->at, name, flags);
    if (down < 0 && errno == ENOENT && (walk->way & AGENT_PLACE_MAKE) != 0) {
        /* Others may make it at the same time; that is as good. */
        if (mkdirat(walk->at, name, 0755) != 0 && errno != EEXIST)
            return errno;
        down = openat(walk->at, name, flags);
    }
    if (down < 0)
        return errno;
    close(walk->at);
    walk->at = down;
    walk->depth++;
    return 0;
}

/* Puts a link's target before what is left of the path. What is no link, or not there, is fine. */
static int expand(struct walk *walk, const char *name, bool *is_link)
{
    char target[PENDING_MAX];
    ssize_t size = readlinkat(walk->at, name, target, AGENT_PATH_MAX);
    if (size < 0)
        return errno == EINVAL || errno == ENOENT ? 0 : errno;
    *is_link = true;
    if (++walk->links > LINKS_MAX)
        return ELOOP;
    size_t rest = strlen(walk->pending);
    if (size == 0 || size >= AGENT_PATH_MAX || (size_t)size + rest + 2 > sizeof target)
        return size == 0 ? ENOENT : ENAMETOOLONG;
    target[size] = '/';
    memcpy(target + size + 1, walk->pending, rest + 1);
    const char *from = target;
    if (target[0] == '/' && walk->bounded) {
        /* An absolute target may still lead to a place inside. */
        size_t inside = strlen(walk->directory);
        if (strncmp(target, walk->directory, inside) != 0 || target[inside] != '/')
            return EXDEV;
        from = target + inside;
    }
    bool absolute = target[0] == '/';
    memmove(walk->pending, from, strlen(from) + 1);
    if (!absolute)
        return 0;
    return go(walk, walk->bounded ? walk->directory : "/");
}

bool agent_path_take(struct agent_call *call, const ProtobufCBinaryData *given,
                     char path[AGENT_PATH_MAX])
{
    if (given->len >= AGENT_PATH_MAX) {
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "name-too-long",
                        "a path is longer than %d bytes", AGENT_PATH_MAX - 1);
        return false;
    }
    if (given->len > 0 && memchr(given->data, 0, given->len) != NULL) {
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid", "a path holds a zero byte");
        return false;
    }
    if (given->len > 0)
        memcpy(path, given->data, given->len);
    path[given->len] = 0;
    return true;
}

bool agent_temporary_name(char name[AGENT_TEMPORARY_TEXT])
{
    uint8_t random[8];
    char digits[2 * sizeof random + 1];
    if (!sbx_random(random, sizeof random))
        return false;
    sbx_hex_print(random, sizeof random, digits);
    snprintf(name, AGENT_TEMPORARY_TEXT, ".sandbox-%s", digits);
    return true;
}

int agent_rename_new(int from, const char *from_name, int to, const char *to_name)
{
    struct stat about;
    if (syscall(SYS_renameat2, from, from_name, to, to_name, NO_REPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    /* This file system cannot promise it; look first. */
    if (fstatat(to, to_name, &about, AT_SYMLINK_NOFOLLOW) == 0)
        return EEXIST;
    return renameat(from, from_name, to, to_name) == 0 ? 0 : errno;
}
