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

/*
 * server_cut.c: what ends because the gate is moved. Guard's own methods that move it are spared.
 */
struct agent_call;
/* Ends with ABORTED "stale-epoch" every call that was made for an epoch of that range. */
void agent_server_cut(uint32_t from, uint32_t before);
/* Ends with UNAVAILABLE "suspending" what lasts and was made for a lower epoch. */
void agent_server_suspend(uint32_t operation);
/* Ends all in the same way, whatever it is. */
void agent_server_end_work(void);
/* How many calls of lower epochs are not over, but for those that were cut. */
uint32_t agent_server_in_progress(uint32_t operation);
/* The call's connection ends after its last answer; the others; the others now. */
void agent_server_goodbye(const struct agent_call *call);
void agent_server_goodbye_others(const struct agent_call *call);
void agent_server_close_others(const struct agent_call *call);

#endif
