/*
 * A call of PortData joined with a socket inside: bytes go both ways, each direction ends on its
 * own, and neither is faster than the other side takes it. The socket is in the loop only while
 * it is carried.
 */
#ifndef AGENT_CARRY_H
#define AGENT_CARRY_H

#include "loop.h"
#include "ports.pb-c.h"
#include "server.h"

struct agent_carry {
    struct agent_call *call;
    struct agent_watch *watch; /* the socket; NULL: there is none yet, or not any more */
    bool connected;            /* bytes may flow */
    bool is_traffic;           /* they are somebody's use of a server inside */
    uint8_t *sending;          /* to the socket; the call is paused meanwhile */
    size_t sending_start, sending_end;
    bool caller_ended;  /* nothing comes after `sending` */
    bool output_closed; /* the socket was told, or takes no more */
    bool guest_ended;
    bool full; /* the caller is behind */
};

/* Takes a connected socket over, and tells the caller that it stands. False: no memory. */
bool agent_carry_begin(struct agent_carry *carry, int fd, void (*on_event)(void *user_data),
                       void *user_data);
/* The socket that is watched has become connected. */
void agent_carry_connected(struct agent_carry *carry);
/* It can be read or written. */
void agent_carry_event(struct agent_carry *carry);
/* A message of the caller, after the first; or the first one's bytes. False: the call has failed.
 */
bool agent_carry_message(struct agent_carry *carry, const Sandbox__V1__PortData *message);
void agent_carry_end(struct agent_carry *carry);
void agent_carry_ready(struct agent_carry *carry);
/* Cut off in the middle: whoever is at the other end should not take it for an orderly end. */
void agent_carry_close(struct agent_carry *carry);
/* The same, and its memory. */
void agent_carry_clear(struct agent_carry *carry);
/* A socket that nothing was carried over is cut off. */
void agent_carry_reset(struct agent_watch **watch);
/* How many sockets were ever cut off. */
uint32_t agent_carry_resets(void);

#endif
