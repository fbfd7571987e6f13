/* A place: one workspace's directory, and the instance over it if there is one. */
#ifndef MEMORY_PLATFORM_PLACES_H
#define MEMORY_PLATFORM_PLACES_H

#include "platform.h"
#include "util/child.h"
#include "util/random.h"

enum instance_state {
    INSTANCE_NONE = 0,
    INSTANCE_STARTING, /* the agent runs, its socket is not there yet */
    INSTANCE_RUNNING,
    INSTANCE_ENDING,  /* killed, not reaped yet */
    INSTANCE_STOPPED, /* the agent is gone, socket and log are left */
};

/* The loop's handles of one instance; they outlive it until libuv has closed them. */
struct instance_watch {
    uv_poll_t death;
    uv_timer_t attempt;
    unsigned open; /* handles not closed yet */
    struct platform_place *place;
};

struct platform_place {
    char id[SBX_ID_TEXT];
    char *directory;
    enum instance_state state;
    char incarnation[96]; /* of the present instance, or the stopped one */
    char detail[160];     /* why it stopped */
    char *socket, *log;
    struct sbx_child agent;
    struct instance_watch *watch;
    uint64_t give_up_ms;                /* on the loop's clock */
    struct platform_request *provision; /* waits until the agent can be reached */
    struct platform_request *waiting;   /* discard, destroy, kill: wait until it has ended */
    struct platform_request *removers;  /* destroy: wait until the directory is gone */
    uv_work_t removal;
    sandbox_error removal_error;
    struct platform_place *next;
};

/* NULL: there is none. */
struct platform_place *platform_place_find(const char *id);
/* Makes one if there is none; NULL: the request has been refused. */
struct platform_place *platform_place_take(struct platform_request *request);
/* Goes on with what waits, as far as it can. */
void platform_place_proceed(struct platform_place *place);
/* The first place; follow `next`. */
struct platform_place *platform_places(void);

bool platform_instance_has_agent(const struct platform_place *place);
void platform_instance_kill(struct platform_place *place);
/* Removes what a stopped instance left. */
void platform_instance_clear(struct platform_place *place);

#endif
