/* What the agent's own services need of a call beyond server.h. */
#ifndef AGENT_CALL_H
#define AGENT_CALL_H

#include "server.h"

/* Status numbers of gRPC that the agent uses. */
enum agent_grpc_status {
    AGENT_OK = 0,
    AGENT_INVALID_ARGUMENT = 3,
    AGENT_DEADLINE_EXCEEDED = 4,
    AGENT_NOT_FOUND = 5,
    AGENT_ALREADY_EXISTS = 6,
    AGENT_PERMISSION_DENIED = 7,
    AGENT_RESOURCE_EXHAUSTED = 8,
    AGENT_FAILED_PRECONDITION = 9,
    AGENT_ABORTED = 10,
    AGENT_OUT_OF_RANGE = 11,
    AGENT_UNIMPLEMENTED = 12,
    AGENT_INTERNAL = 13,
    AGENT_UNAVAILABLE = 14,
    AGENT_UNAUTHENTICATED = 16,
};

/* The token the caller sent, 32 bytes, or NULL. Borrowed. */
const uint8_t *agent_call_token(const struct agent_call *call);
/* Where the caller came over TCP: what he must send as a token, 32 bytes. NULL: he did not. */
const uint8_t *agent_call_pass(const struct agent_call *call);
/* False: the caller named no epoch. */
bool agent_call_epoch(const struct agent_call *call, uint64_t *epoch);
/* Sends a reply and finishes. */
void agent_call_answer(struct agent_call *call, const ProtobufCMessage *message);

/* Whether a call of that method may go on to its service; fails it otherwise. Of guard.c. */
bool agent_guard_admit(struct agent_call *call, const struct agent_method *method);

#endif
