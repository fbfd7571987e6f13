/*
 * The gate of an agent, seen from the life cycle: a session for one operation, and the calls of
 * Guard that close the gate, ask for the proof, and open it.
 */
#ifndef SBX_CORE_GATE_H
#define SBX_CORE_GATE_H

#include "core/client.h"
#include "guard.pb-c.h"

#define SBX_NONCE_BYTES 32

/* The token of one run of a workspace; `key_id` 0 asks for the newest key and becomes it. */
sandbox_status sbx_gate_token(sandbox_client *client, const char *id, const char *run,
                              uint32_t *key_id, const struct sbx_wait *wait,
                              uint8_t token[SBX_TOKEN_BYTES], sandbox_error *error);

struct sbx_health {
    Sandbox__V1__Gate gate;
    uint32_t protocol, epoch;
    uint64_t refused_calls;
    bool has_workspace_id;
    uint8_t workspace_id[SBX_ID_BYTES];
};

/*
 * A session with the recorded incarnation's agent that carries this token (NULL: none) and the
 * record's epoch. Freshly started agents may refuse at first: tried a few times. `health` (NULL
 * allowed) is what it answered.
 */
sandbox_status sbx_gate_connect(sandbox_client *client, const struct sbx_record *record,
                                const uint8_t *token, const struct sbx_wait *wait,
                                struct sbx_session **out, struct sbx_health *health,
                                sandbox_error *error);

sandbox_status sbx_gate_health(struct sbx_session *session, const struct sbx_wait *wait,
                               struct sbx_health *out, sandbox_error *error);

/* Closes the gate to everybody else; waits for calls in progress. */
sandbox_status sbx_gate_quiesce(struct sbx_session *session, uint32_t epoch, uint32_t finish_ms,
                                const struct sbx_wait *wait, sandbox_error *error);

struct sbx_seal {
    char hash[SBX_HASH_TEXT]; /* "": not sealed, `obstacles` says who is in the way */
    uint32_t stopped, parked;
    char obstacles[200];
};
sandbox_status sbx_gate_seal(struct sbx_session *session, uint32_t epoch, bool park_sockets,
                             const struct sbx_wait *wait, struct sbx_seal *out,
                             sandbox_error *error);

struct sbx_proven {
    char hash[SBX_HASH_TEXT]; /* of the nonce that was revealed */
    bool in_memory, in_file;
    uint8_t workspace_id[SBX_ID_BYTES];
    bool has_workspace_id;
};
/* SANDBOX_FAILED with reason "not-sealed": there is an agent, and it holds no seal. */
sandbox_status sbx_gate_prove(struct sbx_session *session, uint32_t epoch,
                              const struct sbx_wait *wait, struct sbx_proven *out,
                              sandbox_error *error);

/* What an Open says beside what stands in the record. */
struct sbx_opening {
    const uint8_t *token;     /* from now on */
    const char *const *environment;
    bool keep_environment;
    const char *seal_hash;    /* of a sealed agent; NULL or "": it is not sealed */
    bool restored;            /* repair what a restore breaks */
};
/* What the agent answered. */
struct sbx_opened {
    int64_t clock_stepped_ms;
    bool clock_failed, entropy_added;
    uint32_t continued, deadlines_kept, connections_reset, generation;
    int32_t hook_code;
};
/* @param out  NULL allowed */
sandbox_status sbx_gate_open(sandbox_client *client, const struct sbx_record *record,
                             struct sbx_session *session, const struct sbx_opening *opening,
                             const struct sbx_wait *wait, struct sbx_opened *out,
                             sandbox_error *error);

/* Whether the agent says that it is just being sealed or opened: ask again in a moment. */
bool sbx_gate_is_moving(sandbox_status status, const sandbox_error *error);

struct sbx_gate_activity {
    uint32_t tasks, terminals;
    uint64_t idle_ms, traffic_idle_ms;
    bool had_traffic;
    char who[200]; /* the active ones, for people; "" */
};
sandbox_status sbx_gate_activity(struct sbx_session *session, const struct sbx_wait *wait,
                                 struct sbx_gate_activity *out, sandbox_error *error);

#endif
