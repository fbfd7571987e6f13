/*
 * A stream of PortData joined with a socket of this machine, on the I/O thread: bytes go both ways,
 * each direction with its own end, and neither faster than the other side takes them.
 */
#ifndef SBX_AGENT_JOINT_H
#define SBX_AGENT_JOINT_H

#include "agent/session.h"
#include "ports.pb-c.h"

#define SBX_JOINT_PIECE       (256u << 10) /* of data in one message */
#define SBX_JOINT_QUEUE_BYTES (1u << 20)   /* towards the host; then the guest has to wait */

struct sbx_joint;

/* What its owner does. All on the I/O thread. */
struct sbx_joint_owner {
    /* The guest's side stands: its first message came. NULL: nothing to do. */
    void (*stands)(struct sbx_joint *joint);
    /*
     * The call failed before it stood. True: the owner sees to it, with another stream perhaps.
     * NULL or false: the joint is cut.
     */
    bool (*failed)(struct sbx_joint *joint, sandbox_status status, const char *reason);
    /* The socket is closed, the stream freed: the owner's memory may go. */
    void (*closed)(struct sbx_joint *joint);
    uint8_t *inbox; /* SBX_JOINT_PIECE, for whoever reads now */
};

/* Embedded in its owner's memory. Zero at first; the fields above the line are the owner's. */
struct sbx_joint {
    const struct sbx_joint_owner *owner;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } host; /* initialized; its `data` is the joint */
    bool is_tcp;
    bool connected; /* the host's side; else sbx_joint_connected() comes later */
    /* ---- */
    uv_shutdown_t shutdown;
    struct sbx_stream *stream;
    bool standing; /* the guest's side said that it stands */
    bool reading;
    bool host_ended; /* the end was told to the guest, or waits in `pending` */
    bool guest_ended, guest_over;
    bool shutting, shut; /* the end is on its way to the host, has left */
    bool closing;
    uint8_t *pending; /* what the guest's side had no room for */
    size_t pending_size;
    bool pending_end;
};

/* Takes the stream over, whose first message is awaited. */
void sbx_joint_begin(struct sbx_joint *joint, struct sbx_stream *stream);
/* The host's side has come to be, later than the joint. */
void sbx_joint_connected(struct sbx_joint *joint);
/* Bytes of our own towards the host, before the guest's. Copied. */
bool sbx_joint_say(struct sbx_joint *joint, const void *data, size_t size);
/*
 * Closes it; owner->closed() comes later. Abruptly: the host's program shall not take it for a
 * proper end. A second time is no harm.
 */
void sbx_joint_close(struct sbx_joint *joint, bool abruptly);
/*
 * The host's side cannot be had: the guest is given these last words, and then the end. What it
 * says itself is thrown away. Where `host` is no open handle any more, only its memory is used.
 */
void sbx_joint_excuse(struct sbx_joint *joint, const char *words);

#endif
