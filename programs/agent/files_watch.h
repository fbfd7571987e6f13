/*
 * What a watch sees: directories under inotify, and the changes that their events mean. Used by
 * one thread at a time, the worker's or the loop's.
 */
#ifndef AGENT_FILES_WATCH_H
#define AGENT_FILES_WATCH_H

#include "files.h"

#define AGENT_WATCH_DIRECTORIES 8192u

enum agent_change_kind {
    AGENT_CREATED = 1, /* as in files.proto */
    AGENT_MODIFIED = 2,
    AGENT_REMOVED = 3,
    AGENT_MOVED = 4,
    AGENT_OVERFLOW = 5,
};

struct agent_change {
    enum agent_change_kind kind;
    char *path, *new_path; /* relative to what is watched; NULL for "" */
};

struct agent_sight {
    int inotify; /* -1: none */
    int root;    /* the directory that is watched, O_PATH; -1 */
    bool recursive;
    char only[AGENT_NAME_MAX + 1]; /* the one file in it that is meant; "": all */

    struct agent_seen { /* by descriptor, ascending */
        int descriptor;
        char *path; /* of the directory, "" for the root */
    } *seen;
    size_t seen_count, seen_capacity;

    struct agent_change *changes;
    size_t change_count, change_capacity;
    size_t change_bytes;

    char *left; /* moved away, where to is not known yet; NULL: nothing */
    uint32_t left_cookie;
    bool left_directory;
};

/*
 * 0 or an errno value; E2BIG: more than 8,192 directories. Keeps errors of single directories to
 * itself.
 */
int agent_sight_open(struct agent_sight *sight, int parent, const char *name, bool recursive);
/* Takes what happened, without waiting for more than half of a move. 0 or an errno value. */
int agent_sight_look(struct agent_sight *sight);
void agent_sight_forget_changes(struct agent_sight *sight);
/* All but the inotify descriptor. */
void agent_sight_close(struct agent_sight *sight);

/* Of files_watch_tree.c, for files_watch_events.c. */
bool agent_sight_tell(struct agent_sight *sight, enum agent_change_kind kind, const char *path,
                      const char *new_path);
/*
 * Watches the directory at `path` and, where recursive, all below; tells what is in them if
 * `tells`.
 */
int agent_sight_add(struct agent_sight *sight, const char *path, bool tells);
struct agent_seen *agent_sight_find(struct agent_sight *sight, int descriptor);
void agent_sight_drop(struct agent_sight *sight, struct agent_seen *seen);
/* Paths at and below `from` are now at `to`; NULL: they left, and are watched no more. */
void agent_sight_move(struct agent_sight *sight, const char *from, const char *to);

#endif
