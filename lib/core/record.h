/*
 * The record of a workspace: one JSON object, kept by the driver, changed by compare-and-swap.
 *
 * Fields that this version does not know survive a rewrite. No credential is ever in it.
 */
#ifndef SBX_CORE_RECORD_H
#define SBX_CORE_RECORD_H

#include "util/json.h"
#include "util/random.h"
#include <sandbox/snapshot.h>

#define SBX_RECORD_MAX (256u << 10) /* bytes of JSON */
#define SBX_NAME_MAX 63
#define SBX_VERSION_TEXT 64
#define SBX_INCARNATION_TEXT 160
#define SBX_LABELS_MAX 64
#define SBX_CHECKS_MAX 8
#define SBX_RETAIN_MAX 16
#define SBX_RETAIN_DEFAULT 3
#define SBX_SNAPSHOTS_MAX (SBX_RETAIN_MAX + 4) /* while old ones are still to be removed */
#define SBX_HASH_TEXT 65 /* SHA-256 in hexadecimal digits */

/* What is under way. An empty kind: nothing. */
struct sbx_operation {
    char kind[16];    /* "create", "delete", "suspend", … */
    char id[SBX_ID_TEXT];
    char step[24];    /* the last step whose intent was written */
    char owner[128];  /* who does it; the driver may know how to find out whether it lives */
    uint32_t lease_ms; /* judged on the taker's monotonic clock */
    uint32_t renewals;
    char spare[SBX_ID_TEXT]; /* of a suspend: a snapshot that the retention leaves alone; "" */
    bool wanted;      /* somebody waits to work: an interruptible suspend lets go */
};

struct sbx_snapshot {
    char id[SBX_ID_TEXT];          /* "": none */
    sandbox_keep kind;             /* MEMORY or FILES */
    char seal_hash[SBX_HASH_TEXT]; /* SHA-256 of the nonce; "": of files without an agent */
    char digest[SBX_HASH_TEXT];    /* what the driver verifies it by; "": not complete yet */
    char run[SBX_ID_TEXT];         /* of the agent in it: its token is made from it */
    uint32_t key_id, epoch;
    char incarnation[SBX_INCARNATION_TEXT]; /* that it was taken of */
    int64_t created_ms;
    uint64_t bytes;
    bool proven;                   /* a resume from it was proven once */
};

struct sbx_record {
    char id[SBX_ID_TEXT];
    char name[SBX_NAME_MAX + 1];
    char driver[16];
    sandbox_state state;
    uint32_t epoch;
    struct sbx_operation operation;
    char incarnation[SBX_INCARNATION_TEXT]; /* "": none */
    char run[SBX_ID_TEXT];  /* drawn anew for every instance; the agent's token is made from it */
    uint32_t key_id;        /* which secret */
    char user[64];
    char *image;            /* NULL: the driver's base */
    char **labels;          /* "key=value", NULL-terminated, or NULL */
    /*
     * The instance may hold work that no snapshot has: it is never thrown away unasked. Written
     * before a restored agent is opened, cleared when the workspace is suspended.
     */
    bool precious;
    char snapshot[SBX_ID_TEXT]; /* the recovery point, one of `snapshots`; "": none */
    struct sbx_snapshot *snapshots; /* oldest first */
    size_t snapshot_count;
    struct sbx_snapshot making; /* by the operation under way */
    char next_run[SBX_ID_TEXT]; /* of a resume under way: what Open makes the run */
    uint32_t next_key_id;
    uint32_t generation;        /* how often it was restored */
    uint32_t retain;
    uint64_t suspend_after_idle_ms;
    char **checks;              /* "opencode:PORT", NULL-terminated, or NULL */
    cJSON *egress;              /* {"mode", "allow", "http", "ech"}; NULL: no way out */
    uint32_t memory_mib, cpu_millis, process_limit, disk_mib;
    int64_t created_ms, expires_ms;
    cJSON *json;            /* as it was read, for the fields we do not know */
    char version[SBX_VERSION_TEXT]; /* of the stored one; "" for one that is not stored yet */
    char *stored;           /* its text, as it was loaded or stored under that version, or NULL */
};

void sbx_record_clear(struct sbx_record *record); /* frees what it holds, zeroes it */

sandbox_status sbx_record_decode(const char *text, size_t size, struct sbx_record *out,
                                 sandbox_error *error);
/* @param text  free() */
sandbox_status sbx_record_encode(struct sbx_record *record, char **text, sandbox_error *error);

/* Whether the stored record is still the one that this actor claimed: for a driver's fence. */
bool sbx_record_is_claimed_by(const struct sbx_record *stored, const struct sbx_record *actor);

/* By id; NULL if there is none. Borrowed until the list changes. */
struct sbx_snapshot *sbx_record_snapshot(const struct sbx_record *record, const char *id);
/* Appends a copy. */
sandbox_status sbx_record_add_snapshot(struct sbx_record *record,
                                       const struct sbx_snapshot *snapshot, sandbox_error *error);
void sbx_record_drop_snapshot(struct sbx_record *record, const char *id);

/* Of record_snapshots.c, for record.c: the fields about snapshots, from and to `json`. */
bool sbx_record_read_snapshots(struct sbx_record *record);
bool sbx_record_write_snapshots(struct sbx_record *record);

/* Whether the table in transitions.def allows it. */
bool sbx_transition_allowed(sandbox_state from, sandbox_state to, const char *operation);

/* 1 to 63 of a-z, 0-9, '-'; begins and ends with a letter or digit. */
bool sbx_name_is_valid(const char *name);

#endif
