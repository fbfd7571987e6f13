/*
 * A byte channel to an agent: two descriptors, and whoever has to be ended with them.
 *
 * Drivers make channels; the session takes them over. Both descriptors are non-blocking pipes or
 * stream sockets and may be the same.
 */
#ifndef SBX_TRANSPORT_CHANNEL_H
#define SBX_TRANSPORT_CHANNEL_H

#include "util/child.h"
#include "util/proof.h"

struct sbx_channel {
    int read_fd, write_fd; /* -1: none */
    struct sbx_child relay; /* the program that carries the bytes, if there is one */
    int lock_fd;           /* kept open as long as the channel lives, or -1 */
};

#define SBX_CHANNEL {-1, -1, SBX_CHILD, -1}

/*
 * Closes both descriptors and ends the relay: it is given a moment to end by itself, since a
 * killed `runsc exec` client leaves its process inside. May take up to a second: never on the I/O
 * thread.
 */
void sbx_channel_end(struct sbx_channel *channel);

struct sbx_wait;
struct sockaddr;

/*
 * A connected TCP socket; SANDBOX_UNAVAILABLE where nobody answers, with the system's word for it.
 */
sandbox_status sbx_channel_connect_tcp(struct sbx_channel *channel, const struct sockaddr *address,
                                       const struct sbx_wait *wait, sandbox_error *error);
/*
 * Over a TCP channel that nothing was said on: the agent at the other end proves that it knows the
 * token of that workspace, and we do (util/proof.h). `pass` stands for the token from then on, on
 * this channel alone. SANDBOX_UNAVAILABLE ("agent-not-proven"): it is another agent, or none, and
 * has learnt nothing.
 */
sandbox_status sbx_channel_prove(const struct sbx_channel *channel,
                                 const uint8_t token[SBX_PROOF_TOKEN],
                                 const uint8_t workspace_id[SBX_PROOF_ID],
                                 const struct sbx_wait *wait, uint8_t pass[SBX_PROOF_PASS],
                                 sandbox_error *error);

/* A connected Unix stream socket. */
sandbox_status sbx_channel_connect_unix(struct sbx_channel *channel, const char *path,
                                        const struct sbx_wait *wait, sandbox_error *error);

#endif
