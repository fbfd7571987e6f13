/*
 * The I/O thread of a client: one libuv loop. Only the library's own code runs on it, and that
 * code never waits.
 */
#ifndef SBX_TRANSPORT_LOOP_H
#define SBX_TRANSPORT_LOOP_H

#include "transport/channel.h"
#include <sandbox/error.h>
#include <uv.h>

struct sbx_loop;

/* Starts the thread (all signals blocked in it). */
sandbox_status sbx_loop_start(struct sbx_loop **out, sandbox_error *error);
/*
 * Ends the thread once every handle is closed; whoever made handles closes them first. Accepts
 * NULL.
 */
void sbx_loop_stop(struct sbx_loop *loop);

uv_loop_t *sbx_loop_uv(struct sbx_loop *loop); /* I/O thread only */
bool sbx_loop_is_current(const struct sbx_loop *loop);

/* Something to do on the I/O thread. Embedded in its owner; may be posted again once it runs. */
struct sbx_loop_task {
    void (*run)(struct sbx_loop_task *task);
    struct sbx_loop_task *next;
    bool posted;
};

/*
 * Any thread. Tasks run in the order they were posted; one that is already posted is not posted
 * twice.
 */
void sbx_loop_post(struct sbx_loop *loop, struct sbx_loop_task *task);

/*
 * What sbx_channel_end() does, from the I/O thread: the descriptors are closed at once, the relay
 * is waited for on a thread of its own, which sbx_loop_stop() joins.
 */
void sbx_loop_end_channel(struct sbx_loop *loop, struct sbx_channel *channel);

#endif
