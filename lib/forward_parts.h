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

#include "core/session.h"
#include "ports.pb-c.h"
#include <pthread.h>
#include <sandbox/ports.h>
#include <sys/types.h>

#define SBX_FORWARD_PIECE (256u << 10)       /* of data in one message */
#define SBX_FORWARD_QUEUE_BYTES (1u << 20)   /* towards the host; then the guest has to wait */

struct sbx_link {
    struct sandbox_forward *forward;
    struct sbx_loop_task dialed_task;
    struct sbx_stream *dialed;     /* what the dialer brings; NULL: it could not */
    struct sbx_link *next_to_dial; /* the mutex's */

    uv_tcp_t tcp;              /* I/O from here on */
    uv_shutdown_t shutdown;
    struct sbx_stream *stream;
    bool dialing;              /* the dialer has it */
    bool dialed_again;
    bool stale;                /* the session was opened with an epoch the agent has left behind */
    bool standing;             /* the guest's side said that it stands */
    bool reading;
    bool host_ended;           /* the end was told to the guest, or waits in `pending` */
    bool guest_ended, guest_over;
    bool shutting, shut;       /* the end is on its way to the host, has left */
    bool closing, closed;
    uint8_t *pending;          /* what the guest's side had no room for */
    size_t pending_size;
    bool pending_end;
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
    uint8_t *inbox;    /* SBX_FORWARD_PIECE, for whoever reads now */
};

/* ---- forward.c ---- */

/* I/O. The link comes back by its dialed_task. */
void sbx_forward_dial(struct sbx_link *link);
/* I/O. A handle or link less: perhaps it was the last one. */
void sbx_forward_look(struct sandbox_forward *forward);

/* ---- forward_link.c: I/O ---- */

/* Takes the descriptor over. */
void sbx_link_begin(struct sandbox_forward *forward, int fd);
void sbx_link_cut(struct sbx_link *link);

#endif
