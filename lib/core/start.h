/* Starting an instance: provision, connect, open the agent, say so in the record. */
#ifndef SBX_CORE_START_H
#define SBX_CORE_START_H

#include "core/client.h"
#include <sandbox/egress.h>

/*
 * The record's operation is ours ("create" or "restart"). On success the record says `running`
 * and `session` is open. On failure the instance may be there still: the caller rolls back.
 */
sandbox_status sbx_start_instance(sandbox_client *client, struct sbx_record *record,
                                  const char *const *environment, const struct sbx_wait *wait,
                                  struct sbx_session **session, sandbox_error *error);

/*
 * An interrupted workspace goes on over its live files. SANDBOX_CONFLICT: look again. `egress`: set
 * with it, or NULL.
 */
sandbox_status sbx_start_again(sandbox_client *client, struct sbx_record *record,
                               const char *const *environment,
                               const sandbox_egress_options *egress, const struct sbx_wait *wait,
                               sandbox_workspace **out, sandbox_error *error);

/*
 * The instance is gone: SANDBOX_INTERRUPTED, saying what is left ("interrupted", or "files-lost"
 * where a platform keeps files in the instance alone). `detail`: why, or "".
 */
sandbox_status sbx_start_lost(const sandbox_client *client, const char *name, const char *detail,
                              sandbox_error *error);

/* Tells the agent the record's expiry. */
sandbox_status sbx_start_renew(sandbox_client *client, struct sbx_record *record,
                               struct sbx_session *session, const struct sbx_wait *wait,
                               sandbox_error *error);

#endif
