/* From inotify's events to changes: moves are paired, new directories entered. */

#include "files_watch.h"

#include "util/memory.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define READ_SIZE (64u << 10)
/* both halves of a move are queued at once; the second is not awaited long */
#define OTHER_HALF_MS 10

static int take(struct agent_sight *sight, const struct inotify_event *event);
static int take_named(struct agent_sight *sight, const struct inotify_event *event,
                      const char *path);
static int take_arrival(struct agent_sight *sight, const struct inotify_event *event,
                        const char *path);
static int start_over(struct agent_sight *sight);
static bool settle_left(struct agent_sight *sight);

int agent_sight_look(struct agent_sight *sight)
{
    uint8_t *events = malloc(READ_SIZE);
    if (events == NULL)
        return ENOMEM;
    int number = 0;
    for (bool more = true; more && number == 0;) {
        ssize_t size = read(sight->inotify, events, READ_SIZE);
        if (size < 0 && errno == EINTR)
            continue;
        if (size < 0 && errno != EAGAIN)
            number = errno;
        for (ssize_t at = 0; at < size && number == 0;) {
            const struct inotify_event *event = (const void *)(events + at);
            number = take(sight, event);
            at += (ssize_t)(sizeof *event + event->len);
        }
        struct pollfd other_half = {sight->inotify, POLLIN, 0};
        more = sight->left != NULL && poll(&other_half, 1, OTHER_HALF_MS) > 0;
    }
    free(events);
    if (number == 0 && !settle_left(sight))
        number = ENOMEM;
    return number;
}

static int take(struct agent_sight *sight, const struct inotify_event *event)
{
    if ((event->mask & IN_Q_OVERFLOW) != 0)
        return start_over(sight);
    struct agent_seen *seen = agent_sight_find(sight, event->wd);
    if (seen == NULL)
        return 0;
    if ((event->mask & IN_IGNORED) != 0) {
        agent_sight_drop(sight, seen);
        return 0;
    }
    bool is_root = seen->path[0] == 0;
    if ((event->mask & (IN_DELETE_SELF | IN_MOVE_SELF)) != 0)
        return !is_root || agent_sight_tell(sight, AGENT_REMOVED, "", NULL) ? 0 : ENOMEM;
    if (event->len == 0) /* about the directory itself; its parent tells, but the root has none */
        return !is_root || sight->only[0] != 0 ||
                       agent_sight_tell(sight, AGENT_MODIFIED, "", NULL)
                   ? 0
                   : ENOMEM;
    if (sight->only[0] != 0)
        return strcmp(event->name, sight->only) == 0 ? take_named(sight, event, "") : 0;
    char *path = is_root ? sbx_copy(event->name) : sbx_format("%s/%s", seen->path, event->name);
    int number = path == NULL ? ENOMEM : take_named(sight, event, path);
    free(path);
    return number;
}

static int take_named(struct agent_sight *sight, const struct inotify_event *event,
                      const char *path)
{
    if ((event->mask & IN_MOVED_FROM) != 0 && sight->only[0] == 0) {
        if (!settle_left(sight))
            return ENOMEM;
        sight->left = sbx_copy(path);
        sight->left_cookie = event->cookie;
        sight->left_directory = (event->mask & IN_ISDIR) != 0;
        return sight->left == NULL ? ENOMEM : 0;
    }
    if ((event->mask & (IN_CREATE | IN_MOVED_TO)) != 0)
        return take_arrival(sight, event, path);
    if (!settle_left(sight))
        return ENOMEM;
    enum agent_change_kind kind =
        (event->mask & (IN_DELETE | IN_MOVED_FROM)) != 0 ? AGENT_REMOVED : AGENT_MODIFIED;
    return agent_sight_tell(sight, kind, path, NULL) ? 0 : ENOMEM;
}

static int take_arrival(struct agent_sight *sight, const struct inotify_event *event,
                        const char *path)
{
    bool directory = (event->mask & IN_ISDIR) != 0;
    if (sight->left != NULL && (event->mask & IN_MOVED_TO) != 0 &&
        event->cookie == sight->left_cookie) {
        char *left = sbx_take(sight->left);
        if (directory && sight->recursive)
            agent_sight_move(sight, left, path);
        bool told = agent_sight_tell(sight, AGENT_MOVED, left, path);
        free(left);
        return told ? 0 : ENOMEM;
    }
    if (!settle_left(sight) || !agent_sight_tell(sight, AGENT_CREATED, path, NULL))
        return ENOMEM;
    if (!directory || !sight->recursive)
        return 0;
    int number = agent_sight_add(sight, path, true);
    /* Too many directories: what happens there cannot be told, and this is how that is said. */
    if (number == E2BIG)
        number = agent_sight_tell(sight, AGENT_OVERFLOW, "", NULL) ? 0 : ENOMEM;
    return number;
}

/* Events were lost, perhaps those of new directories. */
static int start_over(struct agent_sight *sight)
{
    free(sbx_take(sight->left));
    if (!agent_sight_tell(sight, AGENT_OVERFLOW, "", NULL))
        return ENOMEM;
    int number = sight->recursive ? agent_sight_add(sight, "", false) : 0;
    return number == E2BIG ? 0 : number;
}

/* Moved away, and not to a place that is watched. */
static bool settle_left(struct agent_sight *sight)
{
    if (sight->left == NULL)
        return true;
    char *left = sbx_take(sight->left);
    if (sight->left_directory && sight->recursive)
        agent_sight_move(sight, left, NULL);
    bool told = agent_sight_tell(sight, AGENT_REMOVED, left, NULL);
    free(left);
    return told;
}
