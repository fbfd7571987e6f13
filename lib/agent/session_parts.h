/*
 * What a session and its streams consist of. For the session's own files only:
 *
 *   session.c         beginning, end, who holds it
 *   session_io.c      the descriptors, the keep-alive, what callers left to be done
 *   session_http2.c   frames in and out, over nghttp2
 *   session_stream.c  streams and calls as their callers see them
 *   session_message.c messages: their memory and their queues
 *
 * "I/O" fields are guarded by the I/O mutex, which the I/O thread holds while it works on the
 * session and a caller only if nobody does; what concerns the loop's handles is the I/O thread's
 * alone. All others are guarded by the session's mutex, which may be taken with the other held.
 */
#ifndef SBX_AGENT_SESSION_PARTS_H
#define SBX_AGENT_SESSION_PARTS_H

#include "agent/session.h"
#include <nghttp2/nghttp2.h>
#include <pthread.h>
#include <stdatomic.h>

#define SBX_STREAMS_MAX 1000             /* open at once in one session */
#define SBX_SEND_QUEUE_BYTES (1u << 20)  /* a sender waits while more is queued */
#define SBX_PREFIX_BYTES 5               /* before every gRPC message: flag and size */
#define SBX_READ_BYTES (256u << 10)
#define SBX_WRITE_BYTES ((1u << 20) + 4096) /* gathered for one write */
#define SBX_FRAME_OUT_MAX (513u << 10)   /* of data in one frame that we send: a full message */
#define SBX_PING_MS 20000
#define SBX_PING_IDLE_MS 60000           /* idle for longer: no more pings */
#define SBX_NEVER UINT64_MAX
#define SBX_GAVE_UP "agent-gave-up" /* the reason where it was the agent that did not wait longer */

/* One message on its way, either way. */
struct sbx_message {
    struct sbx_message *next;
    uint32_t size;
    bool spare; /* of the size that is used again: see sbx_message_new() */
    uint8_t bytes[];
};

struct sbx_queue {
    struct sbx_message *first, **last;
};

/* How a call ended. */
struct sbx_outcome {
    sandbox_status status; /* SANDBOX_OK: the agent said so */
    bool lost;             /* the agent may have got the request, and its answer did not come */
    char reason[48];
    char message[328];
};

/* What the headers of one HEADERS frame said. */
struct sbx_answer {
    int http_status;  /* 0: none */
    int grpc_status;  /* -1: none, or not a number */
    size_t bytes;     /* of all headers of the call, for the limit */
    char reason[48];
    char message[328];
};

struct sbx_stream {
    struct sbx_session *session;
    atomic_uint references; /* the caller's, the I/O thread's while nghttp2 knows it, queues' */
    char *method;
    uint32_t timeout_ms; /* told to the agent; SANDBOX_FOREVER: none */
    bool unary;          /* one answer, no more */

    pthread_cond_t changed;
    struct sbx_queue inbound, outbound;
    size_t outbound_bytes;
    bool outbound_ended;
    bool submitted; /* from here on it may reach the agent */
    bool abandoned; /* the caller is gone */
    bool over;
    struct sbx_outcome outcome;
    uint64_t received, taken, consumed; /* bytes of the answer, for the window */
    int event_fd;   /* -1: nobody asked */
    void (*ready)(void *user_data);
    void *ready_data;
    bool ready_due;
    bool dirty;
    struct sbx_stream *next_dirty;
    struct sbx_stream *previous, *next; /* all that the session knows */

    bool known;                   /* I/O from here on: nghttp2 has it */
    int32_t id;
    size_t outbound_at;           /* how much of the first outbound message is sent */
    bool all_sent;
    uint64_t first_byte;          /* where its request begins in what is written; or SBX_NEVER */
    uint8_t prefix[SBX_PREFIX_BYTES];
    unsigned prefix_size;
    struct sbx_message *incoming; /* being put together */
    uint32_t incoming_size;
    uint32_t messages;            /* complete ones so far */
    struct sbx_answer answer;
    bool ready_listed;
    struct sbx_stream *next_ready;
};

struct sbx_session {
    struct sbx_loop *loop;
    atomic_uint references;
    bool direct; /* see sbx_session_set_direct() */

    pthread_mutex_t mutex;
    bool alive;
    bool cut;
    bool refused;            /* see sbx_session_is_refused() */
    unsigned calls;          /* streams that are not over */
    int64_t last_call_ms;    /* when the last one ended */
    struct sbx_stream *streams;
    struct sbx_stream *dirty, **dirty_last; /* in the order in which they were marked */
    bool identified;
    char token[48];          /* base64 */
    char epoch[12];
    uint32_t ping_ms;

    struct sbx_loop_task start_task, pump_task, end_task;

    pthread_mutex_t io_mutex;
    struct sbx_channel channel; /* I/O from here on */
    nghttp2_session *http2;
    uv_poll_t read_poll, write_poll;
    uv_timer_t timer;
    unsigned handles;        /* that are not closed yet */
    bool broken;             /* the channel is gone, every call has ended */
    bool ending;             /* nobody holds it any more */
    bool wants_to_write;
    bool failed;             /* break it at the next occasion */
    bool awaits_ping;
    uint64_t produced;       /* bytes that nghttp2 gave */
    uint64_t written;        /* of those, what went into the channel */
    struct sbx_message *spares; /* under the mutex */
    unsigned spare_count;
    uint8_t *inbox;          /* SBX_READ_BYTES */
    uint8_t *outbox;         /* SBX_WRITE_BYTES */
    size_t outbox_start, outbox_end;
    struct sbx_stream *ready_first;
};

/* ---- session.c ---- */

/* I/O. The channel is of no use any more: ends every call and closes the channel. */
void sbx_session_break(struct sbx_session *session);

/* ---- session_io.c ---- */

void sbx_session_begin_task(struct sbx_loop_task *task);
void sbx_session_pump_task(struct sbx_loop_task *task);
void sbx_session_end_task(struct sbx_loop_task *task);
/* With the mutex held: the stream has something for the I/O thread. */
void sbx_stream_mark(struct sbx_stream *stream);
/* The same, followed by sbx_session_pump_here() with the mutex free: saves a wake-up, mostly. */
void sbx_stream_mark_only(struct sbx_stream *stream);
void sbx_session_pump_here(struct sbx_session *session);
/* For tests of the keep-alive. */
void sbx_session_set_ping(struct sbx_session *session, uint32_t ping_ms);

/* ---- session_http2.c: I/O ---- */

bool sbx_http2_begin(struct sbx_session *session);
void sbx_http2_submit(struct sbx_stream *stream);
/* Ends it on the wire, if it is not ended yet. */
void sbx_http2_reset(struct sbx_stream *stream);
/* There is more to send. */
void sbx_http2_resume(struct sbx_stream *stream);
/* Opens the window as far as messages were taken. */
void sbx_http2_consume(struct sbx_stream *stream);

/* ---- session_stream.c ---- */

void sbx_stream_keep(struct sbx_stream *stream);
void sbx_stream_drop(struct sbx_stream *stream);
/* I/O. The first outcome counts. */
void sbx_stream_conclude(struct sbx_stream *stream, const struct sbx_outcome *outcome);
/* I/O. nghttp2 is done with it. */
void sbx_stream_detach(struct sbx_stream *stream);
/* I/O. A complete message has come. */
void sbx_stream_deliver(struct sbx_stream *stream, struct sbx_message *message);
/* I/O. Its carrier is to be called. */
void sbx_stream_list_ready(struct sbx_stream *stream);

/*
 * Room for a message that comes in. Large ones use a few blocks again and again: given back to the
 * system and fetched anew, each would cost more in page faults than its bytes in copying.
 */
struct sbx_message *sbx_message_new(struct sbx_session *session, uint32_t size);
void sbx_message_free(struct sbx_session *session, struct sbx_message *message);
/* The same with the session's mutex held. */
void sbx_message_free_held(struct sbx_session *session, struct sbx_message *message);

/*
 * Where that field begins, and its bytes, if it is the last one and large: the message is all
 * before it. Else the message's size and nothing lent; anything that is not understood is left to
 * protobuf-c.
 */
size_t sbx_message_last_field(const struct sbx_message *packed, unsigned field,
                              struct sbx_lent *lent);

void sbx_queue_init(struct sbx_queue *queue);
void sbx_queue_add(struct sbx_queue *queue, struct sbx_message *message);
struct sbx_message *sbx_queue_take(struct sbx_queue *queue); /* NULL: empty */
void sbx_queue_clear(struct sbx_queue *queue);

#endif
