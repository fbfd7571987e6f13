/*
 * One connection of a forward: a socket of this machine, joined with a Dial stream that the
 * forward's dialer brings.
 */

#include "forward_parts.h"
#include "util/memory.h"
#include <stdio.h>
#include <unistd.h>

static void on_dialed(struct sbx_loop_task *task);
static bool on_failed(struct sbx_joint *joint, sandbox_status status, const char *reason);
static void close_link(struct sbx_link *link, bool abruptly);
static void on_joint_closed(struct sbx_joint *joint);
static void forget(struct sbx_link *link);

static struct sbx_link *link_of(struct sbx_joint *joint)
{
    return (struct sbx_link *)(void *)((char *)joint - offsetof(struct sbx_link, joint));
}

void sbx_forward_own(struct sandbox_forward *forward)
{
    forward->owner = (struct sbx_joint_owner){
        .failed = on_failed, .closed = on_joint_closed, .inbox = forward->inbox};
}

void sbx_link_begin(struct sandbox_forward *forward, int fd)
{
    struct sbx_link *link = NULL;
    if (!forward->closing && forward->link_count < forward->max_connections)
        link = calloc(1, sizeof *link);
    if (link == NULL) {
        close(fd);
        return;
    }
    link->forward = forward;
    link->dialed_task.run = on_dialed;
    link->joint = (struct sbx_joint){.owner = &forward->owner, .is_tcp = true, .connected = true};
    uv_tcp_init(sbx_loop_uv(forward->loop), &link->joint.host.tcp);
    link->joint.host.handle.data = &link->joint;
    link->next = forward->links;
    if (link->next != NULL)
        link->next->previous = link;
    forward->links = link;
    forward->link_count++;
    if (uv_tcp_open(&link->joint.host.tcp, fd) != 0) {
        close(fd);
        close_link(link, false);
        return;
    }
    (void)uv_tcp_nodelay(&link->joint.host.tcp, 1);
    sbx_forward_dial(link);
}

void sbx_link_cut(struct sbx_link *link)
{
    close_link(link, true);
}

static void on_dialed(struct sbx_loop_task *task)
{
    struct sbx_link *link =
        (struct sbx_link *)(void *)((char *)task - offsetof(struct sbx_link, dialed_task));
    link->dialing = false;
    struct sbx_stream *stream = sbx_take(link->dialed);
    if (!link->joint.closing && stream != NULL) {
        sbx_joint_begin(&link->joint, stream);
        return;
    }
    sbx_stream_free(stream);
    if (link->closed)
        forget(link);
    else
        close_link(link, true);
}

/* Nothing of the host's has been read before the connection stood, so it may be tried again. */
static bool on_failed(struct sbx_joint *joint, sandbox_status status, const char *reason)
{
    struct sbx_link *link = link_of(joint);
    sandbox_error refusal = {0};
    snprintf(refusal.reason, sizeof refusal.reason, "%s", reason);
    link->stale = sbx_workspace_is_refused(status, &refusal);
    if (link->dialed_again || (status != SANDBOX_UNAVAILABLE && !link->stale))
        return false;
    link->dialed_again = true;
    sbx_forward_dial(link);
    return true;
}

/* Abruptly: the host's program shall not take it for a proper end. */
static void close_link(struct sbx_link *link, bool abruptly)
{
    sbx_joint_close(&link->joint, abruptly);
}

static void on_joint_closed(struct sbx_joint *joint)
{
    struct sbx_link *link = link_of(joint);
    link->closed = true;
    if (!link->dialing)
        forget(link);
}

static void forget(struct sbx_link *link)
{
    struct sandbox_forward *forward = link->forward;
    if (link->previous != NULL)
        link->previous->next = link->next;
    else
        forward->links = link->next;
    if (link->next != NULL)
        link->next->previous = link->previous;
    forward->link_count--;
    free(link);
    sbx_forward_look(forward);
}
