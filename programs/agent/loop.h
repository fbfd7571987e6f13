/*
 * The agent's one loop thread: timers, and descriptors that are watched. Both are pointers that
 * are NULL while nothing runs, so that whoever owns them needs no closing callbacks.
 */
#ifndef AGENT_LOOP_H
#define AGENT_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

bool agent_loop_open(void);

struct agent_timer;

/* Runs once after `delay_ms`; a running one is set anew. False: no memory. */
bool agent_timer_start(struct agent_timer **timer, uint64_t delay_ms,
                       void (*function)(void *user_data), void *user_data);
void agent_timer_stop(struct agent_timer **timer);
/* Until it runs; 0: at once, or never, where there is none. */
uint64_t agent_timer_left_ms(const struct agent_timer *timer);

struct agent_watch;

/* Takes the descriptor over, also on failure (NULL). Watches nothing yet. */
struct agent_watch *agent_watch_open(int fd, void (*function)(void *user_data), void *user_data);
/* Calls the function while one of UV_READABLE, UV_WRITABLE holds; 0 stops. */
void agent_watch_for(struct agent_watch *watch, int events);
int agent_watch_fd(const struct agent_watch *watch);
/* Closes the descriptor too. */
void agent_watch_close(struct agent_watch **watch);

#endif
