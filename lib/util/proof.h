/*
 * How two sides prove to each other over TCP that both know a workspace's token, before anything
 * else is said: three messages of fixed size, without a secret in them.
 *
 *   hello   "sandbox", version, workspace id, the client's random bytes
 *   answer  "sandbox", version, the agent's random bytes, the agent's proof
 *   finish  the client's proof
 *
 * A proof is an HMAC over all that was said so far and over the address that was reached, as each
 * side sees it, so it is good for one connection to one instance. Who passes then names himself by
 * a pass that only this connection has; the token itself is never sent. doc/protocol.md says more.
 */
#ifndef SBX_UTIL_PROOF_H
#define SBX_UTIL_PROOF_H

#include "util/digest.h"

struct sockaddr;

#define SBX_PROOF_VERSION 1
#define SBX_PROOF_RANDOM  32
#define SBX_PROOF_ID      16
#define SBX_PROOF_TOKEN   32
#define SBX_PROOF_HEAD    8 /* "sandbox" and the version */
#define SBX_PROOF_HELLO   (SBX_PROOF_HEAD + SBX_PROOF_ID + SBX_PROOF_RANDOM)
#define SBX_PROOF_ANSWER  (SBX_PROOF_HEAD + SBX_PROOF_RANDOM + SBX_DIGEST_BYTES)
#define SBX_PROOF_FINISH  SBX_DIGEST_BYTES
#define SBX_PROOF_PASS    SBX_DIGEST_BYTES
#define SBX_PROOF_ADDRESS 18 /* IPv6, or IPv4 as IPv6; and the port */

/* One exchange, of either side. */
struct sbx_proof {
    uint8_t key[SBX_DIGEST_BYTES];
    uint8_t said[1 + /* what the MAC is for */
                 SBX_PROOF_ADDRESS + SBX_PROOF_HELLO + SBX_PROOF_HEAD + SBX_PROOF_RANDOM];
};

/* What both sides keep of a token for this. The token's hash does not lead to it. */
bool sbx_proof_key(const uint8_t token[SBX_PROOF_TOKEN], uint8_t key[SBX_DIGEST_BYTES]);
/* False: not an address of the internet. */
bool sbx_proof_address(const struct sockaddr *address, uint8_t out[SBX_PROOF_ADDRESS]);

/* ---- the client ---- */

/* `address`: whom it has connected to. False: no random bytes. */
bool sbx_proof_hello(struct sbx_proof *proof, const uint8_t key[SBX_DIGEST_BYTES],
                     const uint8_t id[SBX_PROOF_ID], const uint8_t address[SBX_PROOF_ADDRESS],
                     uint8_t hello[SBX_PROOF_HELLO]);
/* False: whoever answered is not that agent, and is told nothing more. */
bool sbx_proof_finish(struct sbx_proof *proof, const uint8_t answer[SBX_PROOF_ANSWER],
                      uint8_t finish[SBX_PROOF_FINISH]);

/* ---- the agent ---- */

/* `address`: its own end of the connection. False: it is no hello, or not for this workspace. */
bool sbx_proof_answer(struct sbx_proof *proof, const uint8_t key[SBX_DIGEST_BYTES],
                      const uint8_t id[SBX_PROOF_ID], const uint8_t address[SBX_PROOF_ADDRESS],
                      const uint8_t hello[SBX_PROOF_HELLO], uint8_t answer[SBX_PROOF_ANSWER]);
bool sbx_proof_check(const struct sbx_proof *proof, const uint8_t finish[SBX_PROOF_FINISH]);

/* ---- both, once it has succeeded ---- */

bool sbx_proof_pass(const struct sbx_proof *proof, uint8_t pass[SBX_PROOF_PASS]);

#endif
