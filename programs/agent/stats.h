/* Figures about the workspace, from /proc. */
#ifndef AGENT_STATS_H
#define AGENT_STATS_H

#include "server.h"

/* The method Guard/Stats. */
void agent_stats(struct agent_call *call, const ProtobufCMessage *message);

#endif
