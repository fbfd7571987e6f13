/* What the torture's jobs share: what a run has made, and the steps it is made of. */
#ifndef TORTURE_H
#define TORTURE_H

#include <sandbox/sandbox.h>

#define STEP_MS 20000 /* a step that takes longer hangs */
#define NAME "torture"

/* What one run of a job has made. */
struct world {
    sandbox_client *client;
    sandbox_workspace *workspace;
    sandbox_process *process;
    sandbox_forward *forward;
    sandbox_watch *watch;
};

struct step {
    const char *name;
    sandbox_status (*take)(struct world *world, sandbox_error *error);
};

extern const sandbox_call in_time;

/* ---- torture.c: steps of every job ---- */

sandbox_status take_client(struct world *world, sandbox_error *error);
sandbox_status take_workspace(struct world *world, sandbox_error *error);
sandbox_status take_write(struct world *world, sandbox_error *error);

/* ---- suspend.c ---- */

extern const struct step suspend_steps[];
extern const size_t suspend_step_count;

#endif
