/*
 * What carries a workspace's connections out: a session with its agent, on which some calls wait
 * for the guest's connections, and a joint of each of them with the egress proxy.
 *
 * It is a client of the workspace like any other, and never the reason for anything that happens to
 * it: it waits while somebody suspends or resumes it, asks for nothing meanwhile, and ends when
 * the workspace has no instance any more. "I/O" fields belong to the I/O thread.
 */
#ifndef CARRIER_H
#define CARRIER_H

#include "agent/joint.h"
#include "core/client.h"
#include <pthread.h>

#define CARRIER_KEY_DIGITS 64

struct errand;

struct carrier {
    const char *name, *id; /* of the workspace */
    const char *proxy;     /* the Unix socket that is its own */
    char greeting[CARRIER_KEY_DIGITS + 32];
    sandbox_client *client;
    struct sbx_joint_owner owner;

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    bool troubled; /* a waiting call failed: the session is to be looked at */
    bool sealed;   /* … because of a seal: it is to end at once */
    bool idle;     /* no errand is left */

    struct sbx_session *session; /* set while nothing runs on the I/O thread */
    struct sbx_loop_task refill, end;
    bool ending; /* I/O from here on */
    struct errand *errands;
    unsigned waiting, count;
};

/* Until there is nothing to carry for any more. An exit code. */
int carrier_run(struct carrier *carrier);

/* ---- errand.c ---- */

/* What the owner of all joints does. */
void errands_own(struct carrier *carrier);
/* I/O: as many calls wait as there are to be. */
void errands_refill(struct carrier *carrier);
/* I/O: all of them end. */
void errands_end(struct carrier *carrier);

#endif
