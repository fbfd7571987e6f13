/*
 * The way out where the agent itself reaches the egress proxy: each connection of the guest is
 * joined with one to the proxy, whose first line is the key. The guest never sees that line, and
 * the key is in no environment, argument or file.
 */
#ifndef AGENT_EGRESS_DIAL_H
#define AGENT_EGRESS_DIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AGENT_EGRESS_KEY_SIZE 64u

/* "ADDRESS:PORT" in numbers, and lower-case hexadecimal digits. False: they are not. */
bool agent_egress_dial_check(const char *address, const uint8_t *key, size_t key_size);
/* From now on, with what that has found good. */
void agent_egress_dial_to(const char *address, const uint8_t *key);
/* No more, and the key is wiped. What is joined stays so. */
void agent_egress_dial_forget(void);
bool agent_egress_dials(void);
/* Takes the guest's connection over, whatever comes of it. */
void agent_egress_dial(int guest);
/* Connections that it has now. */
unsigned agent_egress_dial_count(void);
/* Cuts all of them off. */
void agent_egress_dial_close(void);

#endif
