/*
 * One request and its answer: a plain one of an allowed host, or one on a credential route. The
 * body goes up and the answer comes down as they arrive, each no faster than the other side takes
 * it. libcurl speaks with the server; a route's answer is looked through for credentials.
 */
#ifndef EGRESS_EXCHANGE_H
#define EGRESS_EXCHANGE_H

#include "connection.h"

/* The request was allowed. Its head is at the front of the connection's input. */
void exchange_start(struct connection *connection, const struct sbx_egress_head *head,
                    size_t head_size, const struct sbx_egress_request *request);
void exchange_end(struct exchange *exchange);

/* The workspace has another policy: what was made from the old one is wiped. Accepts NULL. */
void exchanges_policy_changed(struct exchanges *exchanges);
/* What a workspace keeps open to servers. Accepts NULL. */
void exchanges_free(struct exchanges *exchanges);
void exchanges_close(void);

#endif
