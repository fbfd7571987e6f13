/* Bringing a workspace back, and what proves that it is the same; see doc/lifecycle.md. */
#ifndef SBX_CORE_RESUME_H
#define SBX_CORE_RESUME_H

#include "core/client.h"
#include <sandbox/egress.h>

struct sbx_resume_request {
    sandbox_accept accept;
    sandbox_from from;
    const char *snapshot; /* NULL: the recovery point */
    const char *const *environment;
    bool keep_environment; /* none was given: what the memory holds stays */
    const sandbox_egress_options *egress; /* set with it, or NULL */
    bool keep_egress; /* the registration with the proxy stays: nobody was told that it went */
};

/*
 * By name and id, from whatever state. `result` is filled on success; `session` (NULL allowed) is
 * an open session then, or NULL where it ran already.
 */
sandbox_status sbx_life_resume(sandbox_client *client, const char *name, const char *id,
                               const struct sbx_resume_request *request,
                               const struct sbx_wait *wait, sandbox_resume_result *result,
                               struct sbx_session **session, sandbox_error *error);

/*
 * The record's operation is the caller's own, its state `resuming`, its recovery point chosen:
 * verify, restore, prove, open. On failure the record says `blocked`, or `suspended` where the
 * caller's own wait has ended.
 */
sandbox_status sbx_bring_back(sandbox_client *client, struct sbx_record *record,
                              const struct sbx_resume_request *request,
                              const struct sbx_wait *wait, sandbox_resume_result *result,
                              struct sbx_session **session, sandbox_error *error);

/* Bytes of a long step, as events of the record's operation. */
struct sbx_reporter {
    struct sbx_progress progress;
    sandbox_client *client;
    char name[SBX_NAME_MAX + 1], id[SBX_ID_TEXT], operation[16];
};
void sbx_reporter_begin(struct sbx_reporter *reporter, sandbox_client *client,
                        const struct sbx_record *record);

#endif
