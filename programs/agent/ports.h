/* The two halves of the service: what listens, and connections to it. */
#ifndef AGENT_PORTS_H
#define AGENT_PORTS_H

#include "server.h"

/* The method Ports/List. */
void agent_ports_list(struct agent_call *call, const ProtobufCMessage *message);

/* Resets what Dial has connected, once its calls are over: no TCP socket is left in the loop. */
void agent_ports_reset(void);

#endif
