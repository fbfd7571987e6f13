/*
 * A byte channel to an agent: two descriptors, and whoever has to be ended with them.
 *
 * Drivers make channels; the session takes them over. Both descriptors are non-blocking pipes or
 * stream sockets and may be the same.
 */
#ifndef SBX_TRANSPORT_CHANNEL_H
#define SBX_TRANSPORT_CHANNEL_H

#include "util/child.h"

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

/* A connected Unix stream socket. */
struct sbx_wait;
sandbox_status sbx_channel_connect_unix(struct sbx_channel *channel, const char *path,
                                        const struct sbx_wait *wait, sandbox_error *error);

#endif
