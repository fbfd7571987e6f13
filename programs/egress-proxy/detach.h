/* Leaving whoever has started the proxy, once it can be used. */
#ifndef EGRESS_DETACH_H
#define EGRESS_DETACH_H

#include <stdbool.h>

/*
 * With --detach: goes on in a child, in a session of its own. The process that was started waits,
 * and ends with 0 as soon as the child serves, or else with the child's own code. Before anything
 * is opened or locked: neither is handed on. False: it cannot be done, and stderr says why.
 */
bool detach_begin(void);
/* It serves: nothing of the caller's is held any more. */
void detach_done(void);

#endif
