/*
 * Pipes for splice(): taken while bytes flow and given back empty, so that a tunnel that is idle
 * has none.
 */
#ifndef EGRESS_PIPES_H
#define EGRESS_PIPES_H

#include <stdbool.h>
#include <stddef.h>

struct pipe_pair {
    int in, out; /* where bytes go in, and come out */
    struct pipe_pair *next;
};

struct pipe_pair *pipe_take(void); /* NULL: no descriptors or no memory */
/* One that is not empty is closed, since its bytes are somebody's. Accepts NULL. */
void pipe_give(struct pipe_pair *pair, bool is_empty);
void pipes_close(void);

#endif
