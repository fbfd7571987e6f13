/* Deleting, and looking for what should be deleted. */
#ifndef SBX_CORE_DELETE_H
#define SBX_CORE_DELETE_H

#include "core/client.h"

/*
 * Delete the workspace, taking over exactly that operation ("" for none). SANDBOX_CONFLICT if
 * another one is under way. What is gone already is success.
 */
sandbox_status sbx_delete_over(sandbox_client *client, const char *name, const char *id,
                               const char *operation_id, const struct sbx_wait *wait,
                               sandbox_error *error);

/*
 * Delete what `seen` was judged to be a leftover by: expired, or of a dead owner. Between the
 * look and now it may have been renewed, finished or taken over: then SANDBOX_CONFLICT, and
 * nothing has happened.
 */
sandbox_status sbx_delete_leftover(sandbox_client *client, const struct sbx_record *seen,
                                   const struct sbx_wait *wait, sandbox_error *error);

#endif
