/*
 * The agent's TCP address, where it was given one. It is listened on only while the agent is open:
 * before the first Open there is no token to prove, and a sealed agent must hold no socket that
 * its runtime would have to save. Every connection begins with the proof of util/proof.h.
 */
#ifndef AGENT_TCP_H
#define AGENT_TCP_H

#include "util/digest.h"
#include <netinet/in.h>

union agent_tcp_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* "ADDRESS:PORT" in numbers, "[ADDRESS]:PORT" of IPv6. False: it is none; `out` is as it was. */
bool agent_tcp_address_read(const char *text, union agent_tcp_address *out);

/* Such an address. False: it is none. */
bool agent_tcp_configure(const char *text);
/*
 * After an Open: `key` is of the token that holds now. Whoever has proven another one is cut.
 * Where the address cannot be had it says so on stderr, and the agent does without.
 */
void agent_tcp_open(const uint8_t key[SBX_DIGEST_BYTES]);
/* Listens no more, and cuts all that came this way. */
void agent_tcp_close(void);
/* After a close that is undone: the key is the same. */
void agent_tcp_open_again(void);
/* After a close that is final. */
void agent_tcp_forget_key(void);
/* 0: it does not listen. */
unsigned agent_tcp_port(void);

#endif
