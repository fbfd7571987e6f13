/*
 * Connections whose bytes pass through nobody: a relay hands its own standard streams over, and
 * then only waits for the end. That saves each byte two copies and each answer two wake-ups.
 *
 * The relay connects to the address beside the agent's and sends one byte with its stdin and stdout
 * (SCM_RIGHTS). The agent answers with one byte once it has taken them. From then on the connection
 * ends when that socket does, and that socket ends after the agent has closed the streams: a relay
 * that is gone means that they are closed. That matters for snapshots, which hold no host's
 * streams.
 */
#ifndef AGENT_HANDED_OVER_H
#define AGENT_HANDED_OVER_H

#include <uv.h>

#define AGENT_HANDED_OVER_BYTE 's' /* what is said with the streams, and to have them */

struct agent_handed_over;

/* Where that cannot be, relays carry the bytes themselves. */
void agent_handed_over_listen(const char *address);
void agent_handed_over_unlink(void);

uv_stream_t *agent_handed_over_output(struct agent_handed_over *streams);
/* Behind its connection's input. agent_connection_end() is called later; free() it then. */
void agent_handed_over_close(struct agent_handed_over *streams);

#endif
