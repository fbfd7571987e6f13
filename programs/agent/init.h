/* What the agent owes its container or host: it is hardened, reaps everybody, ends cleanly. */
#ifndef AGENT_INIT_H
#define AGENT_INIT_H

#include <stdbool.h>
#include <sys/resource.h>

/*
 * Before anything else: not dumpable, no core files, no inherited descriptors or signal settings,
 * 0 and 1 are /dev/null. `first` says that this is the first process of a container.
 */
bool agent_init_harden(bool first);
/*
 * In the loop: reap on SIGCHLD, end on SIGTERM and SIGINT. The first process of a container only
 * minds those that come from outside.
 */
bool agent_init_watch(void);
bool agent_init_is_first(void);
/* Reaps what has ended by now; tells processes.c about each. */
void agent_init_reap(void);
/* Kills all that the agent started, removes the socket, exits 0. */
_Noreturn void agent_init_end(void);
/* The limit of open files that commands get: what the agent was given. */
const struct rlimit *agent_init_file_limit(void);

#endif
