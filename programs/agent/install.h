/* Puts the agent into a volume that a Pod's other containers see. */
#ifndef AGENT_INSTALL_H
#define AGENT_INSTALL_H

/* Returns the exit code. */
int agent_install(const char *directory);

#endif
