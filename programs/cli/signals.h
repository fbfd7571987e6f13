/*
 * Signals of the command line itself. A first SIGINT, SIGTERM or SIGHUP ends the call that is
 * under way, or goes to the process that is followed; a second one ends the command; a third one
 * ends it at once. A terminal in raw mode tells its size on, and is put back before a stop.
 */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

#include <sandbox/sandbox.h>

/* Before the library is used. False: no descriptors or threads left, and told. */
bool cli_signals_start(void);
/* Ends waits of this command; never NULL after the start. */
sandbox_cancel *cli_signals_cancel(void);
/* Readable once a signal asked the command to end. */
int cli_signals_descriptor(void);
/* The signal that asked the command to end, or 0. One that went to a process does not count. */
int cli_signals_received(void);

/* Where a first signal goes: to `process`, or NULL: it ends the command. */
void cli_signals_follow(sandbox_process *process);
/*
 * For work that must be done although a signal came: deleting what was made. Signals count anew,
 * and the next one ends the command at once.
 */
void cli_signals_forgive(void);

#endif
