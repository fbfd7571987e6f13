/*
 * Everything the agent started stands still, and goes on. Stopping goes from parents to children
 * and continuing the other way, so that no shell ever sees a job of its own stopped. What somebody
 * else had stopped before stays stopped. Loop thread only.
 */
#ifndef AGENT_FREEZE_H
#define AGENT_FREEZE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct agent_freeze_result {
    bool complete;    /* /proc has shown all of them stopped */
    uint32_t stopped; /* by us */
    pid_t running;    /* one that would not stop; 0: /proc could not be read */
};

/* Calls back once. A failure leaves stopped what was; agent_freeze_end() undoes it. */
void agent_freeze_begin(void (*done)(const struct agent_freeze_result *result));
/* Those that agent_freeze_begin() has stopped go on; how many. */
uint32_t agent_freeze_end(void);

#endif
