/*
 * Ends relays off the I/O thread: each is given a moment to end by itself, all of them at the
 * same time, and is killed after it.
 */
#ifndef SBX_TRANSPORT_UNDERTAKER_H
#define SBX_TRANSPORT_UNDERTAKER_H

#include "transport/channel.h"
#include <pthread.h>

/* How long a relay may take to end by itself once its descriptors are closed. */
#define SBX_RELAY_PATIENCE_MS 1000

struct sbx_undertaker {
    pthread_mutex_t mutex;
    pthread_t thread; /* started with the first relay */
    bool started, stopping;
    int wake_fd;
    struct sbx_burial *arrived;
};

/* Closes the two descriptors; the relay and the lock stay. */
void sbx_channel_close(struct sbx_channel *channel);

sandbox_status sbx_undertaker_init(struct sbx_undertaker *undertaker, sandbox_error *error);
/* Takes the channel over. Never waits longer than a kill takes. */
void sbx_undertaker_take(struct sbx_undertaker *undertaker, struct sbx_channel *channel);
/* Waits until every relay has ended, and ends the thread. */
void sbx_undertaker_stop(struct sbx_undertaker *undertaker);

#endif
