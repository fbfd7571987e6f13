/*
 * Where life cycle and work meet: a workspace handle's session with its agent, made late and
 * made again. Public work functions use only this.
 */
#ifndef SBX_CORE_SESSION_H
#define SBX_CORE_SESSION_H

#include "agent/session.h"
#include <sandbox/workspace.h>

sandbox_workspace *sbx_workspace_keep(sandbox_workspace *workspace);
void sbx_workspace_drop(sandbox_workspace *workspace); /* what sandbox_workspace_free() does */

/*
 * The first thing of every public work function: NULL handles and a forked child are
 * SANDBOX_INVALID, a deleted workspace is SANDBOX_CLOSED.
 */
sandbox_status sbx_workspace_check(sandbox_workspace *workspace, sandbox_error *error);

/*
 * A live session, connecting if there is none; drop it after use. If the instance turns out to
 * be gone, the record says so afterwards and the answer is SANDBOX_INTERRUPTED.
 */
sandbox_status sbx_workspace_session(sandbox_workspace *workspace, const struct sbx_wait *wait,
                                     struct sbx_session **out, sandbox_error *error);

/*
 * The handle's live session, taken away from it, where nobody else holds it: its taker may change
 * whom it speaks for, since nobody can make a call on it any more. NULL: there is none such.
 */
struct sbx_session *sbx_workspace_take_session(sandbox_workspace *workspace);

/*
 * sbx_session_call() on the workspace's session. A `repeatable` call whose channel broke is made
 * once more on a fresh session.
 */
sandbox_status sbx_workspace_call(sandbox_workspace *workspace, const char *method,
                                  const ProtobufCMessage *request, bool repeatable,
                                  const ProtobufCMessageDescriptor *descriptor,
                                  const struct sbx_wait *wait, ProtobufCMessage **reply,
                                  sandbox_error *error);

/* Whether an answer says that the agent refused the call unlooked at. */
bool sbx_workspace_is_refused(sandbox_status status, const sandbox_error *error);
/*
 * After a failure: SANDBOX_OK if the call was refused unlooked at, to be begun again on a fresh
 * session, which waits for the suspend or resume that is under way. Else `status`, or what ended
 * the wait. `error` is that of the failure, not NULL.
 */
sandbox_status sbx_workspace_begin_again(sandbox_workspace *workspace, sandbox_status status,
                                         const struct sbx_wait *wait, sandbox_error *error);

/* sbx_stream_open() on the workspace's session; the stream keeps the session. */
sandbox_status sbx_workspace_stream(sandbox_workspace *workspace, const char *method,
                                    const struct sbx_wait *wait, struct sbx_stream **out,
                                    sandbox_error *error);

/* The client's I/O thread. */
struct sbx_loop *sbx_workspace_loop(sandbox_workspace *workspace);

#endif
