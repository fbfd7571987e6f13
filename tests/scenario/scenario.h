/*
 * What the crash and race scenarios share: a process of its own for every operation, so that it
 * can be killed, and the look at what is left afterwards.
 */
#ifndef TESTS_SCENARIO_H
#define TESTS_SCENARIO_H

#include "counting.h"
#include "harness.h"

#define KEPT      "kept/by the workspace"
#define KEPT_TEXT "not to be lost"

/* Fails the whole program, with what happened. */
#define require(condition, ...)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            scenario_fail(__FILE__, __LINE__, #condition, __VA_ARGS__);                            \
    } while (0)
void scenario_fail(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((format(printf, 4, 5), noreturn));

/*
 * main() calls it first: in a child it does the operation and ends the process; in the parent it
 * begins the harness, and ends the process if the platform cannot be used.
 */
void scenario_begin(int argc, char **argv);
/* The same on any platform; nothing may then look into the memory platform. */
void scenario_begin_anywhere(int argc, char **argv);
int scenario_end(void);

/*
 * Which points are struck: every scenario_stride()-th, in each place from one on that is drawn,
 * scenario_first(), 1 to the stride. With SANDBOX_TEST_COUNT set, all of them. How it is drawn is
 * printed, and repeated with SANDBOX_TEST_SEED.
 */
unsigned scenario_stride(void);
unsigned scenario_first(void);

/* Exit codes of a child: */
#define CHILD_OK             0
#define CHILD_KILLED         (128 + 9)
#define CHILD_STATUS(status) (32 - (int)(status)) /* it ended with that status */

/*
 * Does `operation` on `name` in a process of its own. "create", "open" (from live files), "renew",
 * "delete", "suspend", "suspend-files", "checkpoint", "resume", "resume-snapshot"; "exec" starts a
 * process with id `extra` and is killed while it runs.
 */
int scenario_run(const char *operation, const char *name, enum strike strike, unsigned at,
                 const char *extra);

/* The same, but it only begins once `go` is called; several run at the same time. */
struct scenario_child;
struct scenario_child *scenario_start(const char *operation, const char *name);
void scenario_go(struct scenario_child *children[], size_t count);
void scenario_kill(const struct scenario_child *child);
/* Waits for it; the exit code. */
int scenario_wait(struct scenario_child *child);

sandbox_client *scenario_client(void);
/*
 * Opens it from wherever it stands, from its live files if it is interrupted. This platform
 * restores a memory once; where that was used up, the files are what is proven.
 */
sandbox_status scenario_open_whole(sandbox_client *client, const char *name,
                                   sandbox_workspace **workspace, sandbox_error *error);
/* A running workspace with a file, made by this process. */
void scenario_make(const char *name);
/* The same, then its instance is killed. */
void scenario_make_interrupted(const char *name);
/* One of "suspend", "suspend-files", "checkpoint", "resume", "resume-snapshot". */
sandbox_status scenario_change(sandbox_workspace *workspace, const char *operation,
                               const sandbox_call *call, sandbox_error *error);
/* The same, then it is suspended, with its processes. */
void scenario_make_suspended(const char *name);
/* The same, resumed, and then its instance is killed. */
void scenario_make_fallen(const char *name);
bool scenario_has_kept(sandbox_workspace *workspace);
/* It runs a command. */
void scenario_require_works(sandbox_workspace *workspace);
sandbox_workspace *scenario_find(sandbox_client *client, const char *name);
sandbox_state scenario_state(sandbox_workspace *workspace);
/* Both must succeed; a resume is restored, proven by memory and whole. */
void scenario_suspend(sandbox_workspace *workspace);
void scenario_resume(sandbox_workspace *workspace, const char *after);
/* Deletes what has the name, whatever state it is in, and looks that the platform holds nothing. */
void scenario_delete(sandbox_client *client, const char *name);
/* Of workspaces, on the platform that is looked into. */
unsigned scenario_count_instances(void);
/* No instance, no record, no directory, no process is left; of a cluster: no object of ours. */
void scenario_require_nothing_left(const char *after);

#endif
