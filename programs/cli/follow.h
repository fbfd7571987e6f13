/* Follows a process to its end: its output here, this side's input there, signals to it. */
#ifndef CLI_FOLLOW_H
#define CLI_FOLLOW_H

#include "cli.h"

struct cli_follow {
    bool input;                           /* forward standard input */
    bool raw;                             /* standard input is a terminal: make it raw meanwhile */
    bool signals;                         /* a first signal goes to the process */
    bool kill_on_timeout;                 /* --timeout ends it too */
    uint64_t output_offset, error_offset; /* skip what stands before */
};

/* The exit code for this command; failures are told. `name` is the workspace's. */
int cli_follow(struct cli *cli, sandbox_process *process, const struct cli_follow *how,
               const char *name);

#endif
