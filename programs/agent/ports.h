/* The two halves of the service: what listens, and connections to it. */
#ifndef AGENT_PORTS_H
#define AGENT_PORTS_H

#include "server.h"

/* The method Ports/List. */
void agent_ports_list(struct agent_call *call, const ProtobufCMessage *message);

#endif
