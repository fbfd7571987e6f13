/*
 * The record of a workspace: one JSON object, kept by the driver, changed by compare-and-swap.
 *
 * Fields that this version does not know survive a rewrite. No credential is ever in it.
 */
#ifndef SBX_CORE_RECORD_H
#define SBX_CORE_RECORD_H

#include "util/json.h"
#include "util/random.h"
#include <sandbox/workspace.h>

#define SBX_RECORD_MAX (256u << 10) /* bytes of JSON */
#define SBX_NAME_MAX 63
#define SBX_VERSION_TEXT 64
#define SBX_INCARNATION_TEXT 160
#define SBX_LABELS_MAX 64

/* What is under way. An empty kind: nothing. */
struct sbx_operation {
    char kind[16];    /* "create", "delete" */
    char id[SBX_ID_TEXT];
    char step[24];    /* the last step whose intent was written */
    char owner[128];  /* who does it; the driver may know how to find out whether it lives */
    uint32_t lease_ms; /* judged on the taker's monotonic clock */
    uint32_t renewals;
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
    uint32_t memory_mib, cpu_millis, process_limit, disk_mib;
    int64_t created_ms, expires_ms;
    cJSON *json;            /* as it was read, for the fields we do not know */
    char version[SBX_VERSION_TEXT]; /* of the stored one; "" for one that is not stored yet */
};

void sbx_record_clear(struct sbx_record *record); /* frees what it holds, zeroes it */

sandbox_status sbx_record_decode(const char *text, size_t size, struct sbx_record *out,
                                 sandbox_error *error);
/* @param text  free() */
sandbox_status sbx_record_encode(struct sbx_record *record, char **text, sandbox_error *error);

/* Whether the table in transitions.def allows it. */
bool sbx_transition_allowed(sandbox_state from, sandbox_state to, const char *operation);

/* 1 to 63 of a-z, 0-9, '-'; begins and ends with a letter or digit. */
bool sbx_name_is_valid(const char *name);

#endif
