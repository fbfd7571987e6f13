/*
 * Operations: who is changing a workspace, whether they still live, and what their record changes
 * are.
 */
#ifndef SBX_CORE_OPERATION_H
#define SBX_CORE_OPERATION_H

#include "core/client.h"

/* Puts a fresh operation of ours into the record. The epoch is the caller's to raise. */
sandbox_status sbx_operation_begin(sandbox_client *client, struct sbx_record *record,
                                   const char *kind, sandbox_error *error);

/* Surely: its owner has ended. (A lease that ran out takes sbx_operation_settle() to see.) */
bool sbx_operation_is_abandoned(const sandbox_client *client, const struct sbx_record *record);

/*
 * Wait until the recorded operation is over. If its owner has ended or its lease runs out, take
 * it over: a creation is rolled back, a restart leaves `interrupted`, a deletion is finished, a
 * suspend or resume is finished or rolled back (see recover.h).
 */
sandbox_status sbx_operation_settle(sandbox_client *client, const struct sbx_record *record,
                                    const struct sbx_wait *wait, sandbox_error *error);

/* Asks the owner of an interruptible suspend to let go: somebody wants to work. */
void sbx_operation_want(sandbox_client *client, const struct sbx_record *record,
                        const struct sbx_wait *wait);

/*
 * Wait until the record has another operation, another state or none at all (SANDBOX_OK), or
 * until the operation is there to be taken over (SANDBOX_CONFLICT).
 */
sandbox_status sbx_operation_wait(sandbox_client *client, const struct sbx_record *record,
                                  const struct sbx_wait *wait, sandbox_error *error);

/* ---- changes for sbx_store_change() ---- */

/* A step of our own operation: SANDBOX_CONFLICT once somebody took it over. */
struct sbx_step {
    const char *operation_id;
    sandbox_state state;     /* 0: as it is */
    const char *step;        /* NULL: the operation is done */
    const char *incarnation; /* NULL: as it is */
    uint32_t key_id;         /* 0: as it is */
    bool precious;           /* false: as it is */
    /* What else changes with it, NULL for nothing. */
    sandbox_status (*also)(struct sbx_record *record, void *user_data, sandbox_error *error);
    void *user_data;
};
sandbox_status sbx_change_step(struct sbx_record *record, void *step, sandbox_error *error);
/* Writes the next step of the record's own operation, before it is taken; `record` is renewed. */
sandbox_status sbx_operation_step(sandbox_client *client, struct sbx_record *record,
                                  struct sbx_step step, const struct sbx_wait *wait,
                                  sandbox_error *error);

/* Claims the workspace for a new operation of ours, one epoch higher. */
struct sbx_claim {
    sandbox_client *client;
    const char *id;          /* the workspace meant */
    const char *kind;
    sandbox_state state;     /* the new one */
    const char *over;        /* the operation that may be taken over, or "" */
    /* Not NULL: why it is claimed was read from this; only if it still stands like that. */
    const struct sbx_record *seen;
    const char *step;  /* that it begins with; NULL: "begin" */
    const char *spare; /* a snapshot that the retention leaves alone, or NULL */
};
sandbox_status sbx_change_claim(struct sbx_record *record, void *claim, sandbox_error *error);

/* `seen` is a struct sbx_record. */
sandbox_status sbx_change_interrupt(struct sbx_record *record, void *seen, sandbox_error *error);

struct sbx_renewal {
    sandbox_client *client;
    const char *id;
    int64_t expires_ms;
};
sandbox_status sbx_change_renew(struct sbx_record *record, void *renewal, sandbox_error *error);

/* The wall clock's time that long from now, without overflow. */
int64_t sbx_expiry_after(const sandbox_client *client, uint64_t ms);

#endif
