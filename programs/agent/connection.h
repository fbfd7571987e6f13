/*
 * What server.c (connections, bytes) and call.c (gRPC calls) share. nghttp2 takes bytes and gives
 * bytes; no function of it may be re-entered, so what its callbacks cause is done once a loop
 * turn, before the loop sleeps.
 */
#ifndef AGENT_CONNECTION_H
#define AGENT_CONNECTION_H

#include "server.h"
#include "util/bytes.h"
#include <nghttp2/nghttp2.h>

#define AGENT_TOKEN_BYTES 32

struct agent_connection {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_pipe_t pipe;
        uv_tcp_t tcp;
    } peer;
    struct agent_handed_over *handed_over; /* its streams are a relay's; NULL: they are `peer` */
    bool over_tcp;
    uint8_t pass[AGENT_TOKEN_BYTES]; /* over TCP: stands for the token on this connection alone */
    struct agent_greeting *greeting; /* over TCP: until both sides have proven themselves */
    bool listed;                     /* and counted */
    nghttp2_session *session;
    struct agent_call *calls;
    unsigned call_count;
    uint64_t last_used_ms;
    uv_write_t write;
    struct sbx_bytes unsent; /* under way in `write` */
    size_t held;             /* bytes of callers that no service took yet */
    size_t owed;             /* of these, not yet given back to the connection's window */
    bool writing, closing, due;
    struct agent_connection *next, *next_due;
};

struct agent_call {
    struct agent_connection *connection; /* NULL once it is over */
    int32_t stream;
    const struct agent_method *method; /* NULL: no such method */
    void *data;
    struct sbx_bytes input, output;
    size_t header_bytes, unconsumed;
    const uint8_t *lent; /* what follows the output, in a service's memory, until the loop turns */
    size_t lent_size;
    bool pulling;    /* inside ready(), for a frame that is being made */
    size_t promised; /* of the output, to the frame that is being sent */
    uint64_t deadline_ms; /* on the loop's clock; 0: none */
    unsigned references;
    unsigned status;
    char reason[48];
    char message[256];
    uint8_t token[AGENT_TOKEN_BYTES];
    uint64_t epoch;
    bool has_token, has_epoch, is_post, is_grpc;
    bool begun; /* a service knows it */
    bool cut;   /* ended by us, since the gate was moved */
    bool ended; /* finished, failed or refused */
    bool remote_ended, end_told, got_message;
    bool headers_sent, deferred, ready_owed;
    bool paused, dispatching;
    struct agent_call *next, *previous;
};

/* Of call.c, for server.c. */
struct agent_call *agent_call_open(struct agent_connection *connection, int32_t stream);
bool agent_call_header(struct agent_call *call, const uint8_t *name, size_t name_size,
                       const uint8_t *value, size_t value_size);
/*
 * NULL: the bytes are no such message. Where `lends` names a large last field its bytes are not
 * copied: `*lent` is that field, to be emptied before the message is freed.
 */
ProtobufCMessage *agent_call_unpack(const struct agent_method *method, unsigned lends,
                                    const uint8_t *data, size_t size, ProtobufCBinaryData **lent);
void agent_call_begin(struct agent_call *call);
void agent_call_input(struct agent_call *call, const uint8_t *data, size_t size);
void agent_call_input_ended(struct agent_call *call);
void agent_call_dispatch(struct agent_call *call);
void agent_call_close(struct agent_call *call);
/*
 * The next bytes of its output, which nghttp2 has made a frame for: those that are queued go to
 * `room`, their number comes back; those that are lent follow, at `lent`.
 */
size_t agent_call_copy(struct agent_call *call, uint8_t *room, size_t size, const uint8_t **lent);
/* The loop turns: what is lent still is copied. */
void agent_call_keep_lent(struct agent_call *call);
/* All of its output but what is promised already. */
void agent_call_drop_output(struct agent_call *call);

/*
 * Of server.c, for tcp.c: a connection that is to be accepted; agent_connection_close() whatever
 * becomes of it. NULL: no memory.
 */
struct agent_connection *agent_connection_new(bool over_tcp);
/* From here on it speaks HTTP/2. */
void agent_connection_begin(struct agent_connection *connection);

/* Of server.c, for server_cut.c: the newest first, by `next`. */
struct agent_connection *agent_connections(void);
/* Its calls end in the loop's own time. Closing one twice does no harm. */
void agent_connection_close(struct agent_connection *connection);
/* For streams that are not `peer`: where bytes are read to; what came, or not above 0: the end. */
char *agent_connection_room(size_t *size);
void agent_connection_take(struct agent_connection *connection, const char *data, ssize_t size);
/* All of `unsent` has left, or below 0: it cannot. */
void agent_connection_written(struct agent_connection *connection, int status);
/* The same at once for the peer too; what was not sent yet is lost. */
void agent_connection_reset(struct agent_connection *connection);

/* Of server.c, for call.c. */
void agent_connection_due(struct agent_connection *connection);
/* Bytes of a caller are in our memory (positive), or left it. */
void agent_connection_hold(struct agent_connection *connection, size_t size);
void agent_connection_release(struct agent_connection *connection, size_t size);
/* Some call of it must end at that time. */
void agent_server_deadline(uint64_t deadline_ms);

#endif
