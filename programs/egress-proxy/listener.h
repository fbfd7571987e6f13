/* Where workspaces connect to: the proxy's addresses, and Unix sockets of one workspace each. */
#ifndef EGRESS_LISTENER_H
#define EGRESS_LISTENER_H

#include "registry.h"
#include <sandbox/error.h>

struct listener;

/* Those of the settings. False: said why on standard error. */
bool listeners_open(void);
void listeners_close(void);

/*
 * The Unix socket of a workspace that is being registered. `former` is the listener that had the
 * path until now, or NULL; on SANDBOX_OK it is gone.
 */
sandbox_status listener_replace(struct workspace *workspace, struct listener *former,
                                sandbox_error *error);
void listener_free(struct listener *listener); /* NULL allowed; removes its socket's name */

/* A listening socket, or -1 with errno; EADDRINUSE where a path is somebody else's. */
int listen_on(const union address *address);

#endif
