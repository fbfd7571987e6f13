/* The one loop everything runs on, and whether it still takes connections. */
#ifndef EGRESS_PROXY_H
#define EGRESS_PROXY_H

#include <stdbool.h>
#include <uv.h>

struct proxy {
    uv_loop_t loop;
    bool ending;
};

extern struct proxy proxy;

/* A workspace or a connection came or went: whether to end by itself is thought over anew. */
void proxy_idle_changed(void);
/* Stops listening, gives what is open a moment, and ends with that code. */
void proxy_end(int code);

#endif
