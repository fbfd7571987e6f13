/* A descriptor that the loop watches, embedded in its owner, who is freed once it is closed. */
#ifndef EGRESS_WATCH_H
#define EGRESS_WATCH_H

#include <stdbool.h>
#include <uv.h>

struct watch {
    uv_poll_t poll;
    void (*ready)(struct watch *watch, int events, bool failed);
    void (*closed)(struct watch *watch);
    int fd;
    int wanted, asked; /* by the owner, and of the kernel: more than is wanted, until it comes */
    bool is_open, closing;
};

/* Takes the descriptor: it is closed with the watch, or at once if this fails. */
bool watch_open(struct watch *watch, int fd,
                void (*ready)(struct watch *watch, int events, bool failed));
/*
 * UV_READABLE, UV_WRITABLE or both; 0 for a while. That something is no longer wanted costs nothing
 * unless it happens: most of the time it is wanted again before.
 */
void watch_want(struct watch *watch, int events);
/* `closed` is called later, when the owner may be freed; NULL where nobody needs to know. */
void watch_close(struct watch *watch, void (*closed)(struct watch *watch));

#endif
