/* Bytes between our stdio and the agent's socket, for platforms that reach it by their own exec. */
#ifndef AGENT_RELAY_H
#define AGENT_RELAY_H

/* Returns the exit code: 0 once the agent has closed its side. */
int agent_relay(const char *address);

#endif
