/*
 * What the check for opencode consists of. For its own files only:
 *
 *   check_opencode.c       the public function: options, two looks
 *   check_opencode_look.c  what the server says: project directories, turns, terminals
 *   check_opencode_jobs.c  what /proc says of a terminal's process
 */
#ifndef SBX_CHECK_OPENCODE_PARTS_H
#define SBX_CHECK_OPENCODE_PARTS_H

#include "guest_http.h"
#include "util/fail.h"
#include "util/memory.h"
#include <sandbox/activity.h>

#define SBX_OPENCODE_WHO 200

struct sbx_opencode_process {
    int64_t pid, parent, session;
    char state;
    bool has_terminal; /* or may have: gVisor does not tell */
};

/* One question, from its first look to its last. */
struct sbx_opencode {
    sandbox_workspace *workspace;
    struct sbx_guest_http *http;
    const struct sbx_wait *wait;
    uint16_t port;
    char **directories;
    size_t directory_count;
    struct sbx_opencode_process *processes; /* as of one look; NULL: not read yet */
    size_t process_count;
    bool active;
    char who[SBX_OPENCODE_WHO];
};

/* ---- check_opencode_look.c ---- */

/* All project directories that the server knows. */
sandbox_status sbx_opencode_find_directories(struct sbx_opencode *opencode, sandbox_error *error);
/* Sets `active` and `who` if somebody works. */
sandbox_status sbx_opencode_look(struct sbx_opencode *opencode, sandbox_error *error);

/* ---- check_opencode_jobs.c ---- */

/* Whether a terminal with this process does something else than to wait for its user. */
sandbox_status sbx_opencode_has_job(struct sbx_opencode *opencode, int64_t pid, bool *has_job,
                                    sandbox_error *error);
/*
 * A child of the server with a terminal and a job in it, or 0: terminals in a directory without
 * project or session are in no answer of the server's.
 */
sandbox_status sbx_opencode_find_job(struct sbx_opencode *opencode, int64_t *pid,
                                     sandbox_error *error);
/* The next question about a job looks at the processes anew. */
void sbx_opencode_forget_processes(struct sbx_opencode *opencode);

#endif
