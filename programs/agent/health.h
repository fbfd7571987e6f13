/* Whether an agent answers, for platforms that ask by running a program. */
#ifndef AGENT_HEALTH_H
#define AGENT_HEALTH_H

/* Returns the exit code: 0 if it does, sealed or not. */
int agent_health(const char *address);

#endif
