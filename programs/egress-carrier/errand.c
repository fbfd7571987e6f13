/* One connection of the guest: a call that waits for it, then its joint with the proxy. */

#include "carrier.h"
#include "util/memory.h"
#include <stdio.h>

#define WAITING 8 /* so many connections can come at once without a round trip between */

static const char excuse[] = "HTTP/1.1 502 Bad Gateway\r\n"
                             "X-Proxy-Error: no-proxy; the egress proxy does not run\r\n"
                             "Content-Type: text/plain\r\n"
                             "Content-Length: 58\r\n"
                             "Connection: close\r\n"
                             "\r\n"
                             "The egress proxy does not run. Nothing can be reached now.";

struct errand {
    struct carrier *carrier;
    struct sbx_joint joint;
    uv_connect_t connecting;
    bool waits;
    struct errand *previous, *next;
};

static bool begin(struct carrier *carrier);
static void on_stands(struct sbx_joint *joint);
static void on_connected(uv_connect_t *connecting, int status);
static bool on_failed(struct sbx_joint *joint, sandbox_status status, const char *reason);
static void on_closed(struct sbx_joint *joint);

static struct errand *errand_of(struct sbx_joint *joint)
{
    return (struct errand *)(void *)((char *)joint - offsetof(struct errand, joint));
}

void errands_own(struct carrier *carrier)
{
    uint8_t *inbox = carrier->owner.inbox;
    carrier->owner = (struct sbx_joint_owner){
        .stands = on_stands, .failed = on_failed, .closed = on_closed, .inbox = inbox};
}

static void tell_trouble(struct carrier *carrier, bool sealed)
{
    pthread_mutex_lock(&carrier->mutex);
    carrier->troubled = true;
    carrier->sealed = carrier->sealed || sealed;
    pthread_cond_broadcast(&carrier->changed);
    pthread_mutex_unlock(&carrier->mutex);
}

void errands_refill(struct carrier *carrier)
{
    if (carrier->count == 0)
        carrier->ending = false; /* another session */
    while (!carrier->ending && carrier->waiting < WAITING) {
        if (!begin(carrier)) {
            tell_trouble(carrier, false);
            return;
        }
    }
}

static bool begin(struct carrier *carrier)
{
    static const struct sbx_wait now = {.deadline_ms = 0};
    const Sandbox__V1__PortData first = SANDBOX__V1__PORT_DATA__INIT;
    struct sbx_stream *stream = NULL;
    struct errand *errand = calloc(1, sizeof *errand);
    if (errand == NULL || sbx_stream_open(carrier->session, "/sandbox.v1.Egress/Accept", &stream,
                                          NULL) != SANDBOX_OK) {
        free(errand);
        return false;
    }
    if (sbx_stream_send(stream, &first.base, &now, NULL) != SANDBOX_OK ||
        uv_pipe_init(sbx_loop_uv(carrier->client->loop), &errand->joint.host.pipe, 0) != 0) {
        sbx_stream_free(stream);
        free(errand);
        return false;
    }
    errand->carrier = carrier;
    errand->joint.owner = &carrier->owner;
    errand->joint.host.handle.data = &errand->joint;
    errand->waits = true;
    errand->next = carrier->errands;
    if (errand->next != NULL)
        errand->next->previous = errand;
    carrier->errands = errand;
    carrier->waiting++;
    carrier->count++;
    sbx_joint_begin(&errand->joint, stream);
    return true;
}

/* The guest has connected. The next one finds another call waiting. */
static void on_stands(struct sbx_joint *joint)
{
    struct errand *errand = errand_of(joint);
    struct carrier *carrier = errand->carrier;
    errand->waits = false;
    carrier->waiting--;
    sbx_loop_post(carrier->client->loop, &carrier->refill);
    errand->connecting.data = joint;
    uv_pipe_connect(&errand->connecting, &joint->host.pipe, carrier->proxy, on_connected);
}

static void on_connected(uv_connect_t *connecting, int status)
{
    struct sbx_joint *joint = connecting->data;
    struct carrier *carrier = errand_of(joint)->carrier;
    if (joint->closing)
        return;
    if (status != 0)
        sbx_joint_excuse(joint, excuse);
    else if (sbx_joint_say(joint, carrier->greeting, strlen(carrier->greeting)))
        sbx_joint_connected(joint);
}

/* A call that waited came to nothing: perhaps the session has. While quiesced none is refused. */
static bool on_failed(struct sbx_joint *joint, sandbox_status status, const char *reason)
{
    tell_trouble(errand_of(joint)->carrier, strcmp(reason, "suspending") == 0);
    return false;
}

static void on_closed(struct sbx_joint *joint)
{
    struct errand *errand = errand_of(joint);
    struct carrier *carrier = errand->carrier;
    if (errand->previous != NULL)
        errand->previous->next = errand->next;
    else
        carrier->errands = errand->next;
    if (errand->next != NULL)
        errand->next->previous = errand->previous;
    carrier->waiting -= errand->waits;
    carrier->count--;
    free(errand);
    if (!carrier->ending || carrier->count > 0)
        return;
    pthread_mutex_lock(&carrier->mutex);
    carrier->idle = true;
    pthread_cond_broadcast(&carrier->changed);
    pthread_mutex_unlock(&carrier->mutex);
}

void errands_end(struct carrier *carrier)
{
    struct errand *next;
    carrier->ending = true;
    for (struct errand *errand = carrier->errands; errand != NULL; errand = next) {
        next = errand->next;
        sbx_joint_close(&errand->joint, true);
    }
    if (carrier->count > 0)
        return;
    pthread_mutex_lock(&carrier->mutex);
    carrier->idle = true;
    pthread_cond_broadcast(&carrier->changed);
    pthread_mutex_unlock(&carrier->mutex);
}
