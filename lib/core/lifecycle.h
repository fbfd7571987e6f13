/* The life of a workspace: create, open, delete, renew, expire; see doc/architecture.md. */
#ifndef SBX_CORE_LIFECYCLE_H
#define SBX_CORE_LIFECYCLE_H

#include "core/client.h"
#include "core/store.h"

/* Options that were checked and filled up; strings borrowed from the caller. */
sandbox_status sbx_workspace_options_settle(sandbox_workspace_options *settled,
                                            const sandbox_workspace_options *given,
                                            sandbox_error *error);

/* `options->name` is set. */
sandbox_status sbx_life_create(sandbox_client *client, const sandbox_workspace_options *options,
                               const struct sbx_wait *wait, sandbox_workspace **out,
                               sandbox_error *error);
sandbox_status sbx_life_find(sandbox_client *client, const char *name_or_id,
                             const struct sbx_wait *wait, sandbox_workspace **out,
                             sandbox_error *error);
sandbox_status sbx_life_open(sandbox_client *client, const sandbox_workspace_options *options,
                             const struct sbx_wait *wait, sandbox_workspace **out,
                             sandbox_error *error);
/* By name and id, so that a namesake made later is never meant. */
sandbox_status sbx_life_delete(sandbox_client *client, const char *name, const char *id,
                               const struct sbx_wait *wait, sandbox_error *error);
sandbox_status sbx_life_renew(sandbox_workspace *workspace, uint64_t expires_after_ms,
                              const struct sbx_wait *wait, sandbox_error *error);
sandbox_status sbx_life_sweep(sandbox_client *client, const struct sbx_wait *wait, size_t *count,
                              sandbox_error *error);

/* Every operation whose owner has died. Goes on past one that fails, and answers with that. */
sandbox_status sbx_life_recover(sandbox_client *client, const struct sbx_wait *wait,
                                size_t *count, sandbox_error *error);
/* "NAME=value" each, bounded. Of workspace.c, for whatever takes an environment. */
sandbox_status sbx_workspace_environment_check(const char *const *env, sandbox_error *error);

bool sbx_life_is_expired(const sandbox_client *client, const struct sbx_record *record);

/* What has been seen: the recorded incarnation is gone. Writes `interrupted` if it still is so. */
sandbox_status sbx_life_interrupt(sandbox_client *client, const struct sbx_record *seen,
                                  const struct sbx_wait *wait, sandbox_error *error);

/* The token of one run of a workspace. */
sandbox_status sbx_life_token(sandbox_client *client, struct sbx_record *record,
                              const struct sbx_wait *wait, uint8_t token[SBX_TOKEN_BYTES],
                              sandbox_error *error);

#endif
