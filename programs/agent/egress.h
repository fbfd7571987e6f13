/*
 * The way out: commands connect to a port of 127.0.0.1, and whoever has called Accept outside takes
 * their connections, or the agent takes them to the proxy itself (egress_dial.h). It is listened on
 * from Egress.Open until a Seal, and again after the Open that ends the seal: a sealed agent must
 * hold no socket that its runtime would have to save.
 */
#ifndef AGENT_EGRESS_H
#define AGENT_EGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "127.0.0.1:PORT". False: it is none. */
bool agent_egress_configure(const char *text);
/* Listens no more, and cuts off all connections, whose calls are over or about to be. */
void agent_egress_close(void);
/* After a close that is final: the proxy's address and the key are this run's. */
void agent_egress_forget_key(void);
/* After a close: if there was a way out, it is listened on again. */
void agent_egress_open_again(void);

/*
 * What commands are told of it: "NAME=value" for each variable that is to be set beside, or in the
 * place of, those of `environment`. Both are NULL-terminated.
 *
 * @param out  sbx_free_strings(); NULL: nothing is to be set
 * @return false: no memory
 */
bool agent_egress_environment(char *const *environment, char ***out);

/* egress.c, for egress_environment.c: 0 while there is no way out. */
unsigned agent_egress_port(void);
/* "NAME=https://…" of the Open, NULL-terminated. */
char *const *agent_egress_base_urls(void);

#endif
