/* The operator's own proxy between this one and the servers. */
#ifndef EGRESS_DIAL_PROXY_H
#define EGRESS_DIAL_PROXY_H

#include "dial.h"

/* Connected to it: asks for the judged address, and ends in dial_finish(). */
void dial_proxy_ask(struct dial *dial);
void dial_finish(struct dial *dial, bool worked);

#endif
