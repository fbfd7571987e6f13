/* Bytes between a call and a socket inside: see carry.h. */

#include "carry.h"
#include "call.h"
#include "guard.h"
#include "util/memory.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static uint32_t resets;

static void take(struct agent_carry *carry);
static void put(struct agent_carry *carry);
static void go_on(struct agent_carry *carry);

static void touch(const struct agent_carry *carry)
{
    if (carry->is_traffic)
        agent_traffic_touch(carry->call);
}

bool agent_carry_begin(struct agent_carry *carry, int fd, void (*on_event)(void *user_data),
                       void *user_data)
{
    carry->watch = agent_watch_open(fd, on_event, user_data);
    if (carry->watch == NULL)
        return false;
    agent_carry_connected(carry);
    return true;
}

void agent_carry_connected(struct agent_carry *carry)
{
    carry->connected = true;
    Sandbox__V1__PortData stands = SANDBOX__V1__PORT_DATA__INIT;
    agent_call_send(carry->call, &stands.base);
    put(carry);
    go_on(carry);
}

void agent_carry_event(struct agent_carry *carry)
{
    /* Reading comes first: what a server said before it went away is still to be had. */
    if (!carry->full && !carry->guest_ended)
        take(carry);
    put(carry);
    go_on(carry);
}

bool agent_carry_message(struct agent_carry *carry, const Sandbox__V1__PortData *message)
{
    touch(carry);
    if (carry->caller_ended && message->data.len > 0) {
        agent_call_fail(carry->call, AGENT_INVALID_ARGUMENT, "invalid", "bytes after the end");
        return false;
    }
    carry->caller_ended = carry->caller_ended || message->end;
    if (message->data.len > 0 && !carry->output_closed) {
        carry->sending = sbx_copy_bytes(message->data.data, message->data.len);
        if (carry->sending == NULL) {
            agent_call_fail(carry->call, AGENT_RESOURCE_EXHAUSTED, "no-memory",
                            "the agent has no memory for the bytes");
            return false;
        }
        carry->sending_end = message->data.len;
        /* Until it is known that there is a socket, and that it takes them. */
        if (!carry->connected)
            agent_call_pause(carry->call);
    }
    put(carry);
    go_on(carry);
    return true;
}

/* From the socket to the caller. */
static void take(struct agent_carry *carry)
{
    if (carry->watch == NULL || agent_call_is_over(carry->call))
        return;
    static uint8_t memory[AGENT_CHUNK];
    ssize_t size = read(agent_watch_fd(carry->watch), memory, sizeof memory);
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (size < 0 && !carry->output_closed) {
        agent_call_fail(carry->call, AGENT_UNAVAILABLE, "connection-reset",
                        "the server reset the connection");
        return;
    }
    touch(carry);
    Sandbox__V1__PortData data = SANDBOX__V1__PORT_DATA__INIT;
    data.data = (ProtobufCBinaryData){size > 0 ? (size_t)size : 0, memory};
    data.end = carry->guest_ended = size <= 0;
    carry->full = !agent_call_send(carry->call, &data.base);
}

/* What the caller sent, and then its end. */
static void put(struct agent_carry *carry)
{
    if (!carry->connected || carry->watch == NULL || agent_call_is_over(carry->call))
        return;
    int fd = agent_watch_fd(carry->watch);
    while (carry->sending_start < carry->sending_end) {
        ssize_t size = send(fd, carry->sending + carry->sending_start,
                            carry->sending_end - carry->sending_start, MSG_NOSIGNAL);
        if (size < 0 && errno == EAGAIN) {
            agent_call_pause(carry->call);
            return;
        }
        if (size < 0 && errno == EINTR)
            continue;
        if (size < 0) {
            carry->output_closed = true;
            break;
        }
        carry->sending_start += (size_t)size;
    }
    free(carry->sending);
    carry->sending = NULL;
    carry->sending_start = carry->sending_end = 0;
    if (carry->caller_ended && !carry->output_closed) {
        shutdown(fd, SHUT_WR);
        carry->output_closed = true;
    }
    agent_call_resume(carry->call);
}

static void go_on(struct agent_carry *carry)
{
    if (carry->watch == NULL || agent_call_is_over(carry->call))
        return;
    if (carry->guest_ended && carry->output_closed) {
        agent_call_finish(carry->call);
        return;
    }
    bool reads = carry->connected && !carry->guest_ended && !carry->full;
    bool writes = !carry->connected || carry->sending_start < carry->sending_end;
    agent_watch_for(carry->watch, (reads ? UV_READABLE : 0) | (writes ? UV_WRITABLE : 0));
}

/* The caller ended its half of the call. */
void agent_carry_end(struct agent_carry *carry)
{
    carry->caller_ended = true;
    put(carry);
    go_on(carry);
}

void agent_carry_ready(struct agent_carry *carry)
{
    carry->full = false;
    go_on(carry);
}

void agent_carry_close(struct agent_carry *carry)
{
    if (carry->guest_ended && carry->output_closed)
        agent_watch_close(&carry->watch);
    else
        agent_carry_reset(&carry->watch);
}

void agent_carry_clear(struct agent_carry *carry)
{
    agent_carry_close(carry);
    free(carry->sending);
    carry->sending = NULL;
}

void agent_carry_reset(struct agent_watch **watch)
{
    if (*watch == NULL)
        return;
    struct linger reset = {1, 0};
    setsockopt(agent_watch_fd(*watch), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    resets++;
    agent_watch_close(watch);
}

uint32_t agent_carry_resets(void)
{
    return resets;
}
