/*
 * A workspace's way out: its policy in the record, its registration with the egress proxy, and what
 * its agent is told. The proxy is the driver's matter (core/driver.h).
 */
#ifndef SBX_CORE_EGRESS_H
#define SBX_CORE_EGRESS_H

#include "core/client.h"
#include <sandbox/egress.h>

/* What a caller's options mean for a workspace. All zero: nothing is asked for. */
struct sbx_egress_plan {
    cJSON *policy;          /* as settled, for the record and the proxy; NULL: as it is */
    cJSON *transformations; /* in place of those that are there, or NULL. Secret. */
    cJSON *added;           /* beside them, or NULL. Secret. */
    bool close_denied;
};

void sbx_egress_plan_clear(struct sbx_egress_plan *plan); /* wipes; for SBX_ON_EXIT */

/*
 * Checks options against the policy that there is.
 *
 * @param old      a record's, or NULL
 * @param options  a caller's, of any size; NULL gives an empty plan
 */
sandbox_status sbx_egress_plan_make(const cJSON *old, const sandbox_egress_options *options,
                                    struct sbx_egress_plan *out, sandbox_error *error);

/*
 * Whether an environment holds one of the credentials that come with it: SANDBOX_DENIED,
 * "credential". It would be every command's.
 *
 * @param environment  NULL-terminated, or NULL
 */
sandbox_status sbx_egress_plan_screen(const struct sbx_egress_plan *plan,
                                      const char *const *environment, sandbox_error *error);

/* The sandbox_egress_mode and _ech of a policy's words. */
sandbox_egress_mode sbx_egress_mode_of(const cJSON *policy);
sandbox_egress_ech sbx_egress_ech_of(const cJSON *policy);

/*
 * Registers a workspace that has a policy, and tells its agent. The record says `running`, and
 * `session` is open and nobody else's wait. Where there is no policy it is no work.
 *
 * @param plan  credentials to begin with; NULL for none
 * @param keep  the credentials of a registration that is there stay
 */
sandbox_status sbx_egress_establish(sandbox_client *client, struct sbx_record *record,
                                    struct sbx_session *session, const struct sbx_egress_plan *plan,
                                    bool keep, const struct sbx_wait *wait, sandbox_error *error);
/*
 * The same after a resume: the workspace runs, whatever becomes of its way out. Logs a failure.
 * `options`: a change of the policy, and credentials, that come with it; or NULL.
 */
void sbx_egress_come_back(sandbox_client *client, struct sbx_record *record,
                          struct sbx_session *session, const sandbox_egress_options *options,
                          bool keep, const struct sbx_wait *wait);
/* Only if the proxy does not know it, since it was started anew for example. Logs a failure. */
void sbx_egress_look_after(sandbox_client *client, struct sbx_record *record,
                           struct sbx_session *session, const struct sbx_wait *wait);

/* sandbox_egress_set(). */
sandbox_status sbx_egress_change(sandbox_workspace *workspace,
                                 const sandbox_egress_options *options, const struct sbx_wait *wait,
                                 sandbox_error *error);

/* There is no instance any more, or soon not: credentials and connections go. Logs a failure. */
void sbx_egress_forget(sandbox_client *client, const struct sbx_record *record);

/*
 * Whether what a command brings holds a credential that is put in outside: then it is refused
 * (SANDBOX_DENIED, "credential"), since it would be inside otherwise. NULL entries are passed over.
 */
struct sbx_egress_texts {
    const char *const *arguments, *const *environment; /* NULL-terminated, or NULL */
    const char *command;
};
sandbox_status sbx_egress_screen(sandbox_workspace *workspace, const struct sbx_egress_texts *texts,
                                 const struct sbx_wait *wait, sandbox_error *error);

#endif
