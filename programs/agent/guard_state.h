/*
 * The agent's gate, as the files that move it share it. Loop thread only.
 *
 * guard.c          what is known, who is let in, and the methods that only tell
 * guard_quiesce.c  Quiesce: open -> quiesced, and back when its lease runs out
 * seal.c           Seal, Prove, PowerOff: quiesced -> sealed
 * guard_open.c     Open: any gate -> open
 */
#ifndef AGENT_GUARD_STATE_H
#define AGENT_GUARD_STATE_H

#include "call.h"
#include "guard.pb-c.h"
#include "loop.h"
#include "seal_file.h"
#include "server.h"
#include "util/digest.h"

#define AGENT_TOKEN_SIZE        32
#define AGENT_WORKSPACE_ID_SIZE 16

struct agent_guard {
    Sandbox__V1__Gate gate;
    bool sealing;       /* a Seal is under way: the gate is neither quiesced any more nor sealed */
    bool opening;       /* an Open of the sealed agent is: what it mends it cannot take back */
    uint32_t epoch;     /* of the last Open; of the seal, where that is all we know */
    uint32_t operation; /* the epoch that has quiesced or sealed the gate; 0: none */
    uint32_t fence;     /* the highest epoch that came with a valid token */
    uint8_t workspace_id[AGENT_WORKSPACE_ID_SIZE];
    uint8_t token_hash[SBX_DIGEST_BYTES]; /* the token itself is never kept */
    uint64_t refused_calls;
    uint32_t resets; /* of the agent's own TCP connections, ever, when the quiesce began */

    struct agent_identity identity;
    char **environment;
    size_t environment_count;
    uint32_t process_limit;
    uint64_t disk_limit;
    struct agent_timer *expiry;
    uint64_t expiry_left_ms; /* while it is held; 0: there is none */

    uint64_t begun_ms, active_ms, traffic_ms; /* 0: there was none */

    char *seal_path; /* NULL: none was given */
    struct agent_seal seal;
    uint8_t seal_hash[SBX_DIGEST_BYTES]; /* of its nonce; of the last one, once it was spent */
    bool in_memory;                      /* this very process drew the nonce */
    bool spent;                          /* an Open has used that seal */
    Sandbox__V1__SealReply sealed;       /* the numbers of the answer, for its repetition */
    Sandbox__V1__OpenReply opened;       /* likewise of the Open that spent it */
    uint32_t generation;
};

extern struct agent_guard agent_guard;

/*
 * Judges the caller of a method of Guard that an operation of `epoch` calls; fails the call.
 * `closed` is the reason where the agent was never opened. A valid token raises the fence.
 */
bool agent_guard_judge(struct agent_call *call, uint32_t epoch, const char *closed);
/*
 * By the hash, or over TCP by the connection's pass; takes the same time however much is right.
 */
bool agent_guard_has_token(const struct agent_call *call);
/* From now on, or never. Keeps what is held back while the agent is sealed. */
void agent_guard_expire_in(uint64_t expires_in_ms);
void agent_guard_hold_expiry(void);
void agent_guard_resume_expiry(void);

/* guard_quiesce.c */
void agent_guard_quiesce(struct agent_call *call, const ProtobufCMessage *message);
void agent_guard_quiesce_gone(struct agent_call *call);
/* The lease is over, since a Seal or an Open takes its place. */
void agent_guard_lease_stop(void);
/* The same lease once more, after a Seal that failed. */
void agent_guard_lease_again(void);
/* Those who wait for calls in progress are told that the gate is open. */
void agent_guard_quiesce_over(void);

/* seal.c */
void agent_guard_seal(struct agent_call *call, const ProtobufCMessage *message);
void agent_guard_prove(struct agent_call *call, const ProtobufCMessage *message);
void agent_guard_power_off(struct agent_call *call, const ProtobufCMessage *message);
void agent_guard_power_off_gone(struct agent_call *call);
/* Before those that were stopped go on. False: nothing was parked. */
bool agent_seal_unpark(void);

/* guard_open.c */
void agent_guard_open(struct agent_call *call, const ProtobufCMessage *message);

#endif
