/*
 * What the parts of the Files service share: jobs that do the blocking work of a call on another
 * thread as the workspace's user, and places that paths stand for.
 */
#ifndef AGENT_FILES_H
#define AGENT_FILES_H

#include "call.h"
#include "server.h"
#include "util/tree.h"
#include <sandbox/error.h>
#include <stdatomic.h>
#include <sys/types.h>

#define AGENT_PATH_MAX 4096
#define AGENT_NAME_MAX 255

/* ---- jobs: files_job.c ---- */

/* Whom the work is done as. `change` is false where the agent cannot be anybody else. */
struct agent_user {
    bool change;
    uint32_t uid, gid;
    uint32_t groups[64];
    unsigned group_count;
};

struct agent_job;

struct agent_job_kind {
    void (*work)(struct agent_job *job);    /* worker thread, as the user */
    void (*done)(struct agent_job *job);    /* loop thread, after work() where that did not fail */
    /* worker thread, as the user, after the call; or NULL */
    void (*abandon)(struct agent_job *job);
    void (*free)(struct agent_job *job);    /* loop thread, last: what hangs on it; or NULL */
};

/* A call's work. One piece of it is under way at any time. First in its owner's struct. */
struct agent_job {
    uv_work_t work;
    struct agent_call *call;
    const struct agent_job_kind *kind;
    struct agent_user user;
    char directory[AGENT_PATH_MAX]; /* the workspace's, as it was when the call began */
    bool working, over, leaving;
    atomic_bool stop; /* the call is over: work that takes long looks at it */
    sandbox_status status; /* of the work; what it failed with is told to the caller */
    sandbox_error error;
};

/* A job of `size` bytes for the call. NULL: no memory, and the call has failed. */
void *agent_job_new(struct agent_call *call, const struct agent_job_kind *kind, size_t size);
void agent_job_start(struct agent_job *job);
/* Ends the call with job->error. Loop thread. */
void agent_job_tell_failure(struct agent_job *job);
/* The `gone` of all methods. */
void agent_job_gone(struct agent_call *call);
/* How many there are; of these, how many still work though their calls are over. */
unsigned agent_jobs_count(void);
unsigned agent_jobs_left(void);

/* For work(): both return the job's new status. */
sandbox_status agent_job_fail(struct agent_job *job, sandbox_status status, const char *reason,
                              const char *format, ...) __attribute__((format(printf, 4, 5)));
sandbox_status agent_job_fail_errno(struct agent_job *job, int number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- places: files_place.c ---- */

/* A directory, and a name in it: "." for the directory itself. */
struct agent_place {
    int parent; /* -1: none */
    char name[AGENT_NAME_MAX + 1];
};

#define AGENT_PLACE {-1, ""}

enum agent_place_way {
    AGENT_PLACE_FOLLOW = 1, /* a link at the end too */
    AGENT_PLACE_MAKE = 2,   /* directories that are missing on the way */
    AGENT_PLACE_OUT = 4,    /* a relative path may lead out of the workspace's directory */
};

/* As the job's user. 0 or an errno value: EXDEV where a link leads out. */
int agent_place_find(const struct agent_job *job, const char *path, unsigned way,
                     struct agent_place *place);
void agent_place_close(struct agent_place *place);

/* Copies a request's path; false: the call has failed, since it is too long or no path. */
bool agent_path_take(struct agent_call *call, const ProtobufCBinaryData *given,
                     char path[AGENT_PATH_MAX]);

/* A name for a temporary in the same directory. */
#define AGENT_TEMPORARY_TEXT 28
bool agent_temporary_name(char name[AGENT_TEMPORARY_TEXT]);
/* renameat2(RENAME_NOREPLACE), or as near as the file system comes. 0 or an errno value. */
int agent_rename_new(int from, const char *from_name, int to, const char *to_name);

/* ---- methods ---- */

void agent_read_message(struct agent_call *call, const ProtobufCMessage *message);
void agent_read_ready(struct agent_call *call);
void agent_list_message(struct agent_call *call, const ProtobufCMessage *message);
void agent_list_ready(struct agent_call *call);
void agent_write_message(struct agent_call *call, const ProtobufCMessage *message);
void agent_write_end(struct agent_call *call);
void agent_upload_message(struct agent_call *call, const ProtobufCMessage *message);
void agent_upload_end(struct agent_call *call);
void agent_download_message(struct agent_call *call, const ProtobufCMessage *message);
void agent_download_ready(struct agent_call *call);
void agent_watch_message(struct agent_call *call, const ProtobufCMessage *message);
void agent_watch_ready(struct agent_call *call);

#endif
