/*
 * What a restore breaks and an Open mends before any process goes on: the kernel's entropy, the
 * number that tells programs that they live again, and the workspace's own hook. Loop thread.
 */
#ifndef AGENT_REPAIR_H
#define AGENT_REPAIR_H

#include "server.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define AGENT_HOOK_NONE   (-1)
#define AGENT_HOOK_KILLED (-2)

/* Into the kernel's pool. 0 or why it did not take it as entropy. */
int agent_repair_entropy(const uint8_t *data, size_t size);

/*
 * Where every program finds the number: in /run of a container whose root we are, else beside the
 * seal file, whose path is absolute. Replaced in one step. 0 or an errno value.
 */
int agent_repair_generation(const char *seal_path, uint32_t generation);

/*
 * Runs DIRECTORY/.sandbox/on-resume as that user, where there is one, for 10 seconds at most, and
 * calls back with its exit code, 128 and the signal it died of, or one of the two numbers above.
 * One at a time.
 */
void agent_repair_hook(const struct agent_identity *identity, char *const *environment,
                       size_t environment_count, uint32_t generation, void (*done)(int32_t code));
/* From init.c: a child has ended. True: it was the hook. */
bool agent_repair_reaped(pid_t pid, int status);

#endif
