/*
 * A session with an agent: gRPC calls over one channel, many at a time.
 *
 * The session lives on the client's I/O thread; calls are made from any thread and block only
 * their caller. The I/O thread moves bytes and nothing else: messages are packed and unpacked on
 * the calling threads, and a stream's window opens only as its messages are taken, so a caller
 * that stands still stops its own stream alone.
 */
#ifndef SBX_AGENT_SESSION_H
#define SBX_AGENT_SESSION_H

#include "transport/channel.h"
#include "transport/loop.h"
#include "util/wait.h"
#include <protobuf-c/protobuf-c.h>

#define SBX_TOKEN_BYTES 32
#define SBX_MESSAGE_MAX (4u << 20)
#define SBX_STREAM_WINDOW (8 << 20)

struct sbx_session;

/* Takes the channel over (also on failure). The HTTP/2 preface is exchanged in the background. */
sandbox_status sbx_session_start(struct sbx_loop *loop, struct sbx_channel *channel,
                                 struct sbx_session **out, sandbox_error *error);
struct sbx_session *sbx_session_keep(struct sbx_session *session);
/* The last drop ends it: GOAWAY, then the channel. Accepts NULL. Never waits. */
void sbx_session_drop(struct sbx_session *session);
/* Cuts the channel now; every call ends with SANDBOX_UNAVAILABLE (or UNKNOWN, see below). */
void sbx_session_cut(struct sbx_session *session);
bool sbx_session_is_alive(struct sbx_session *session);
/* Whether the agent refused a call of it unlooked at, for its epoch: it will refuse every other. */
bool sbx_session_is_refused(struct sbx_session *session);
bool sbx_status_is_refusal(sandbox_status status, const char *reason);
/* Since the last call ended, on the monotonic clock; 0 while calls are under way. */
int64_t sbx_session_idle_ms(struct sbx_session *session);
/* Whether nobody but the caller holds it, no call and no stream either. */
bool sbx_session_is_alone(struct sbx_session *session);
/* What every following call carries. Copied. */
void sbx_session_identify(struct sbx_session *session, const uint8_t token[SBX_TOKEN_BYTES],
                          uint32_t epoch);
/*
 * The channel leads to the agent's own address, where a pass stands for the token and the life
 * cycle is not served. Told once, before anybody else has the session.
 */
void sbx_session_set_direct(struct sbx_session *session);
bool sbx_session_is_direct(const struct sbx_session *session);

/*
 * One request, one answer. `method` is "/sandbox.v1.Guard/Open". `reply` is unpacked with
 * `descriptor`; free it with protobuf_c_message_free_unpacked().
 *
 * A failure's error holds the agent's message and reason. If the channel broke or the deadline
 * passed after bytes of the request were sent, and `repeatable` is false, the status is
 * SANDBOX_UNKNOWN (deadline, cancel: TIMED_OUT, CANCELLED) with reason "answer-lost".
 */
sandbox_status sbx_session_call(struct sbx_session *session, const char *method,
                                const ProtobufCMessage *request, bool repeatable,
                                const ProtobufCMessageDescriptor *descriptor,
                                const struct sbx_wait *wait, ProtobufCMessage **reply,
                                sandbox_error *error);

/* A call whose request, answer or both are streams. */
struct sbx_stream;

sandbox_status sbx_stream_open(struct sbx_session *session, const char *method,
                               struct sbx_stream **out, sandbox_error *error);
/* Waits while more than 1 MiB is queued. After the peer ended the call: its status. */
sandbox_status sbx_stream_send(struct sbx_stream *stream, const ProtobufCMessage *message,
                               const struct sbx_wait *wait, sandbox_error *error);
/*
 * Waits until all that was sent is on its way: what is sent on another stream then comes after
 * it.
 */
sandbox_status sbx_stream_flush(struct sbx_stream *stream, const struct sbx_wait *wait,
                                sandbox_error *error);
/* No more messages from this side. */
void sbx_stream_end(struct sbx_stream *stream);
/*
 * The next message. SANDBOX_CLOSED: the call ended well and there are no more. Any other status:
 * the agent's, or the channel broke (SANDBOX_UNAVAILABLE). TIMED_OUT and CANCELLED have no reason
 * where it is the caller's own wait that ended; the agent's have one.
 */
sandbox_status sbx_stream_next(struct sbx_stream *stream,
                               const ProtobufCMessageDescriptor *descriptor,
                               const struct sbx_wait *wait, ProtobufCMessage **message,
                               sandbox_error *error);
/* Whether sbx_stream_next() would not wait. */
bool sbx_stream_is_ready(struct sbx_stream *stream);
/* Bytes of a message that were not copied out of it. */
struct sbx_lent {
    const uint8_t *data; /* NULL: none */
    size_t size;
    struct sbx_message *block;
};
/*
 * The same for messages that end in a field of many bytes: that field is lent, and empty in the
 * message. What is small is copied as usual.
 */
sandbox_status sbx_stream_next_lent(struct sbx_stream *stream,
                                    const ProtobufCMessageDescriptor *descriptor, unsigned field,
                                    const struct sbx_wait *wait, ProtobufCMessage **message,
                                    struct sbx_lent *lent, sandbox_error *error);
/* `stream`: any of the kind, or NULL. */
void sbx_lent_free(struct sbx_stream *stream, struct sbx_lent *lent);
/*
 * A descriptor that is readable while sbx_stream_next() would not wait; made at the first call, -1
 * if that failed.
 */
int sbx_stream_descriptor(struct sbx_stream *stream);
/* Resets the call if it is not over. Never waits. Accepts NULL. */
void sbx_stream_free(struct sbx_stream *stream);

/*
 * For carriers on the I/O thread (port forwards): `ready` runs there whenever there is something
 * to take or room to send again. Then sbx_stream_next() and sbx_stream_send() are called there
 * with a wait of 0 ms: they never block, and answer SANDBOX_TIMED_OUT where they would have to.
 */
void sbx_stream_on_ready(struct sbx_stream *stream, void (*ready)(void *user_data),
                         void *user_data);

/* gRPC status number to ours, and back. Shared with the agent. */
sandbox_status sbx_status_of_grpc(unsigned grpc_status, const char *reason);
unsigned sbx_grpc_of_status(sandbox_status status);

#endif
