/* What a long operation is at, on standard error, as the library's events tell it. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include "cli.h"

#include <pthread.h>

struct cli_progress {
    bool started, lines;
    sandbox_watch *watch;
    sandbox_cancel *stop;
    pthread_t thread;
};

/*
 * On a terminal one line that changes, with -v a line for each step, else nothing. The client must
 * be open; what cannot be watched is not shown.
 */
void cli_progress_begin(const struct cli *cli, struct cli_progress *progress);
/* Before how it went is told. */
void cli_progress_end(struct cli_progress *progress);

#define CLI_CLEAR_BYTES 8
/* What clears the line that is shown, or "". A line of another thread begins with it. */
const char *cli_progress_clear(void);

#endif
