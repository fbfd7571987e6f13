/* Whom the agent works for: gate, epoch, token, and what Open said. Loop thread only. */
#ifndef AGENT_GUARD_H
#define AGENT_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct agent_call;

/*
 * At the start. `directory` is the workspace directory until an Open names another. `seal` is
 * the path of the seal file, NULL for none: what was sealed by it comes up sealed. False: says
 * why on stderr.
 */
bool agent_guard_begin(const char *directory, const char *seal);

/* The workspace's environment, "NAME=value". Borrowed. */
char *const *agent_guard_environment(size_t *count);
/* Of all processes inside; 0: none. */
uint32_t agent_guard_process_limit(void);
/*
 * What one file may hold, as the nearest thing to a disk limit that a process can be given; 0:
 * none.
 */
uint64_t agent_guard_file_limit(void);

/* Something happened for the workspace's sake: a call, a byte, the end of a task. */
void agent_activity_touch(void);
uint64_t agent_activity_idle_ms(void);
/* Bytes of somebody who uses a server or a terminal inside. Counts as activity too. */
void agent_traffic_touch(const struct agent_call *call);
uint64_t agent_uptime_ms(void);

/* A call, or work that outlived its call, is over: a suspend may wait for it. */
void agent_guard_call_over(void);

/* "NAME=value": a name, no zero byte. */
bool agent_environment_is_valid(const uint8_t *entry, size_t size);
#define AGENT_ENVIRONMENT_MAX 4096

#endif
