/*
 * A tunnel: the guest's first bytes up to its ClientHello, the verdict, and then bytes both ways
 * that the kernel moves. Half-closed ends stay half-closed; one idle clock serves both ways.
 */
#ifndef EGRESS_TUNNEL_H
#define EGRESS_TUNNEL_H

#include "connection.h"

/* The CONNECT was allowed: looks the host up, answers, and waits for the ClientHello. */
void tunnel_start(struct connection *connection, const struct sbx_egress_host *host,
                  enum sbx_egress_ech ech);
/* Closes the server's side. The guest's belongs to the connection. */
void tunnel_end(struct tunnel *tunnel);

#endif
