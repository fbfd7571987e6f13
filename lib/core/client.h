/*
 * What a client and a workspace handle are inside. Only core and the public functions of client
 * and workspace look in here.
 */
#ifndef SBX_CORE_CLIENT_H
#define SBX_CORE_CLIENT_H

#include "agent/session.h"
#include "core/driver.h"
#include "core/events.h"
#include "core/listing.h"
#include "transport/loop.h"
#include "util/clock.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

struct sbx_janitor;

struct sandbox_client {
    const struct sbx_driver *driver;
    void *state; /* the driver's */
    char *uri;
    struct sbx_loop *loop;
    struct sbx_janitor *janitor;
    const struct sbx_clock *clock;
    pid_t pid; /* a forked child has no I/O thread: it may only free */
    atomic_uint references;
    pthread_mutex_t lock; /* of the list of workspaces */
    sandbox_workspace *first;
    struct sbx_list_cache listed;
    struct sbx_events events;
};

struct sandbox_workspace {
    sandbox_client *client;
    char name[SBX_NAME_MAX + 1];
    char id[SBX_ID_TEXT];
    atomic_uint references;
    atomic_bool gone;
    pthread_mutex_t lock; /* of what follows; never held while waiting for the platform */
    pthread_cond_t changed;
    struct sbx_session *session;
    bool connecting;
    bool borrowed; /* a handle for one question: it has this session and gets no other */
    sandbox_workspace *previous, *next; /* in the client's list, under its lock */
};

sandbox_client *sbx_client_keep(sandbox_client *client);
void sbx_client_drop(sandbox_client *client);
/* NULL handles and forked children are SANDBOX_INVALID. */
sandbox_status sbx_client_check(const sandbox_client *client, sandbox_error *error);

/* A handle with one reference. */
sandbox_status sbx_workspace_new(sandbox_client *client, const char *name, const char *id,
                                 sandbox_workspace **out, sandbox_error *error);

#endif
