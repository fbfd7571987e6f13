/*
 * What a forward consists of. For the forward's own files only:
 *
 *   forward.c       the handle, the listener, and the thread that connects
 *   forward_link.c  one connection, carried on the I/O thread
 *
 * "I/O" fields belong to the I/O thread. The others are guarded by the mutex, or never change.
 */
#ifndef SBX_FORWARD_PARTS_H
#define SBX_FORWARD_PARTS_H

#include "agent/joint.h"
#include "core/session.h"
#include <pthread.h>
#include <sandbox/ports.h>
#include <sys/types.h>

struct sbx_link {
    struct sandbox_forward *forward;
    struct sbx_loop_task dialed_task;
    struct sbx_stream *dialed;     /* what the dialer brings; NULL: it could not */
    struct sbx_link *next_to_dial; /* the mutex's */

    struct sbx_joint joint;    /* I/O from here on */
    bool dialing;              /* the dialer has it */
    bool dialed_again;
    bool stale;                /* the session was opened with an epoch the agent has left behind */
    bool closed;
    struct sbx_link *previous, *next;
};

struct sandbox_forward {
    sandbox_workspace *workspace;
    struct sbx_loop *loop;
    pid_t process;
    uint16_t port, host_port;
    uint32_t max_connections;
    sandbox_cancel *cancel;
    pthread_t dialer;
    bool dialer_started;
    struct sbx_loop_task open_task, close_task;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct sbx_link *to_dial, **to_dial_last;
    bool stopping;
    bool gone; /* nothing of it is left on the I/O thread */

    int listener_fd;   /* I/O from here on */
    uv_poll_t listener;
    uv_timer_t pause;
    unsigned handles;  /* of listener and pause, that are not closed yet */
    bool closing;
    struct sbx_link *links;
    uint32_t link_count;
    uint8_t *inbox;    /* for whoever reads now */
    struct sbx_joint_owner owner;
};

/* ---- forward.c ---- */

/* I/O. The link comes back by its dialed_task. */
void sbx_forward_dial(struct sbx_link *link);
/* I/O. A handle or link less: perhaps it was the last one. */
void sbx_forward_look(struct sandbox_forward *forward);

/* ---- forward_link.c: I/O, but for the first ---- */

/* What its joints go by, before there are any. */
void sbx_forward_own(struct sandbox_forward *forward);
/* Takes the descriptor over. */
void sbx_link_begin(struct sandbox_forward *forward, int fd);
void sbx_link_cut(struct sbx_link *link);

#endif
