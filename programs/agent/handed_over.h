/*
 * Connections whose bytes pass through nobody: a relay hands its own standard streams over, and
 * from then on tells when they are ready. That saves each byte that leaves two copies and each
 * answer a wake-up, which are dear under gVisor.
 *
 * The relay connects to the address beside the agent's and sends HELLO with its stdin and stdout
 * (SCM_RIGHTS). The agent answers with HELLO once it has taken them. Then the agent says INPUT or
 * OUTPUT, and the relay says the same back once stdin can be read or stdout written, each once for
 * each time it was asked. The connection ends when that socket does.
 *
 * The agent never waits for the streams itself, since what an epoll instance of a sentry knew of
 * them may get into its checkpoint, which then cannot be restored. For the same reason it closes
 * them before it closes that socket, and the relay stays until then: a relay that is gone means
 * that the streams are closed.
 */
#ifndef AGENT_HANDED_OVER_H
#define AGENT_HANDED_OVER_H

#include <stdbool.h>
#include <uv.h>

#define AGENT_STREAMS_HELLO  's'
#define AGENT_STREAMS_INPUT  'r'
#define AGENT_STREAMS_OUTPUT 'w'

struct agent_handed_over;

/* Where that cannot be, relays carry the bytes themselves. */
void agent_handed_over_listen(const char *address);
void agent_handed_over_unlink(void);

/* As uv_try_write(). */
int agent_handed_over_write(struct agent_handed_over *streams, const uv_buf_t *pieces,
                            unsigned count);
/* Writes the connection's `unsent` as soon as there is room. False: the relay is gone. */
bool agent_handed_over_await_room(struct agent_handed_over *streams);
/* What was answered has been written: asks for more. False: the relay is gone. */
bool agent_handed_over_settle(struct agent_handed_over *streams);
/* free() it after this. */
void agent_handed_over_close(struct agent_handed_over *streams);

#endif
