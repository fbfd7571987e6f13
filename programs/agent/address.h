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

#endif
