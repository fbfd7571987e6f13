/*
 * Programs of our own on this machine: started without a shell, watched by pidfd, reaped by us
 * alone. No SIGCHLD handler, no SIGPIPE; no descriptor is inherited but those that are named.
 */
#ifndef SBX_UTIL_CHILD_H
#define SBX_UTIL_CHILD_H

#include <sandbox/error.h>
#include <sys/types.h>

struct sbx_bytes;
struct sbx_wait;

struct sbx_child {
    pid_t pid;  /* 0: none */
    int pidfd;  /* -1: none */
};

#define SBX_CHILD {0, -1}

struct sbx_child_options {
    const char *const *argv;  /* argv[0] is looked up in PATH unless it has a slash */
    const char *const *env;   /* NULL: a minimal PATH and nothing else */
    const char *directory;    /* NULL: "/" */
    int input, output, errors; /* become 0, 1, 2; -1: /dev/null */
    const int *inherit;       /* further descriptors that stay open under their numbers */
    size_t inherit_count;
    bool own_session;         /* setsid, so that a terminal's signals do not reach it */
    bool die_with_parent;     /* PR_SET_PDEATHSIG SIGKILL; only for short-lived helpers */
    /*
     * Called in the child before anything of it is changed but its session. It runs in our memory
     * while we stand still: system calls only, and nothing that can wait for long. 0, or an errno
     * value with which the start fails.
     */
    int (*prepare)(void *data);
    void *data;
};

#define SBX_CHILD_OPTIONS .input = -1, .output = -1, .errors = -1

sandbox_status sbx_child_start(struct sbx_child *child, const struct sbx_child_options *options,
                               sandbox_error *error);
/*
 * Waits for the end and reaps. `code` is the exit code, or 128 + the signal.
 * On timeout or cancel the child still runs.
 */
sandbox_status sbx_child_wait(struct sbx_child *child, const struct sbx_wait *wait, int *code,
                              sandbox_error *error);
void sbx_child_signal(const struct sbx_child *child, int signal_number);
/*
 * Kills it if it runs, reaps, closes. Accepts an empty one. Does not wait longer than a kill takes.
 */
void sbx_child_end(struct sbx_child *child);

/*
 * Runs to the end with stdout and stderr taken into one bounded text (at most 64 KiB kept). A
 * child of the child that keeps the pipes open does not hold it up. Kills it on timeout.
 *
 * @param text  NULL, or the caller's: free()
 */
sandbox_status sbx_child_run(const struct sbx_child_options *options, const struct sbx_wait *wait,
                             int *code, char **text, sandbox_error *error);
/*
 * The same with stdout and stderr apart, in buffers that the caller gives with their limits, frees
 * and, where they may hold secrets, wipes. What does not fit is read and dropped.
 */
sandbox_status sbx_child_run_apart(const struct sbx_child_options *options,
                                   const struct sbx_wait *wait, int *code,
                                   struct sbx_bytes *output, struct sbx_bytes *errors,
                                   sandbox_error *error);

#endif
