/*
 * This side's terminal: its size, and the raw mode in which every key goes to the process. It is
 * put back at exit, whatever ends the program short of SIGKILL.
 */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <stdbool.h>

/* False where no standard stream is a terminal that knows its size. */
bool cli_terminal_size(unsigned *rows, unsigned *columns);
/* Standard input becomes raw. False, with errno: it stays as it was. */
bool cli_terminal_raw(void);
/* As it was before. Safe in signal handlers, from any thread, and any number of times. */
void cli_terminal_restore(void);
bool cli_terminal_is_raw(void);

#endif
