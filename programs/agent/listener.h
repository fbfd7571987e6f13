/* The agent's socket and the connections on it. */
#ifndef AGENT_LISTENER_H
#define AGENT_LISTENER_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Makes the socket's directory if it is missing, removes a socket that nobody listens on, and
 * listens with mode 0600. False: says why on stderr.
 */
bool agent_server_listen(const char *path);
/* Removes the socket. */
void agent_server_unlink(void);
unsigned agent_server_connection_count(void);
/* Ends with ABORTED "stale-epoch" every call that was made for a lower epoch. */
void agent_server_cut_before(uint32_t epoch);

#endif
