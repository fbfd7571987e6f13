/*
 * Where the agent listens: a path, or "@NAME", a name in the network namespace. The latter is for a
 * container in which everybody is the agent's user: a file could be removed or replaced by them.
 */
#ifndef AGENT_ADDRESS_H
#define AGENT_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>

/* False: it is too long. */
bool agent_address_read(const char *text, struct sockaddr_un *out, socklen_t *size);
bool agent_address_is_path(const char *text);
/* A connection, or -1 and errno. */
int agent_address_connect(const char *text);
/*
 * A socket of mode 0600 that is bound there and does not listen yet; the directory is made, and
 * what a killed agent has left removed. -1: says why on stderr.
 */
int agent_address_bind(const char *text);
/* Where relays hand over their streams, beside that address. False: it is too long. */
bool agent_address_beside(const char *text, char beside[sizeof((struct sockaddr_un *)0)->sun_path]);

#endif
