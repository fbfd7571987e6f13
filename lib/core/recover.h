/*
 * Finishing or rolling back what a dead owner left of a suspend, a checkpoint or a resume, from
 * the record and the platform alone. The owner itself uses the same when a step fails.
 */
#ifndef SBX_CORE_RECOVER_H
#define SBX_CORE_RECOVER_H

#include "core/client.h"

/* Steps that whoever takes over goes by; each is written before what it names is done. */
#define SBX_STEP_KEEP "keep"           /* resume: the interrupted files are kept first */
#define SBX_STEP_OPEN "open"           /* resume: the proven agent is opened */
#define SBX_STEP_OPEN_COLD "open-cold" /* the same for a fresh one that the caller accepted */
#define SBX_STEP_RELEASE "release"     /* suspend: the snapshot is verified and in the list */
#define SBX_STEP_GO_ON "go-on"         /* checkpoint: likewise */
#define SBX_STEP_REOPEN "reopen"       /* either: the instance that was there is opened again */

/* Whether the record's operation is one of these. */
bool sbx_recover_is_for(const struct sbx_record *record);

/*
 * Takes the operation over and ends it. SANDBOX_OK also where somebody else was faster: look
 * again.
 */
sandbox_status sbx_recover(sandbox_client *client, const struct sbx_record *record,
                           const struct sbx_wait *wait, sandbox_error *error);

/*
 * The record's operation is the caller's own, its state `suspending`. Ends it: `suspended` if
 * the snapshot is complete and the instance gone or to be released, `running` if the instance is
 * there, else `interrupted`. `record` is renewed.
 */
sandbox_status sbx_settle_suspend(sandbox_client *client, struct sbx_record *record,
                                  const struct sbx_wait *wait, sandbox_error *error);
/*
 * The same for state `resuming`: `running` if the agent was opened by this very operation,
 * `blocked` if an instance that may hold work does not answer, `interrupted` if it is gone, else
 * `suspended`.
 */
sandbox_status sbx_settle_resume(sandbox_client *client, struct sbx_record *record,
                                 const struct sbx_wait *wait, sandbox_error *error);

/* ---- changes that go with a step (struct sbx_step.also) ---- */

/* A struct sbx_snapshot that is complete and intact: into the list, as the recovery point. */
sandbox_status sbx_record_keep_made(struct sbx_record *record, void *made, sandbox_error *error);
/* The agent was opened: its run is the record's, its snapshot was proven. */
sandbox_status sbx_record_adopt_run(struct sbx_record *record, void *unused,
                                    sandbox_error *error);

/* The instance is known to hold nothing that counts: it may go like any other. */
sandbox_status sbx_record_forget_precious(struct sbx_record *record, void *unused,
                                          sandbox_error *error);
/* Nothing is being made any more; a struct sbx_snapshot that is complete is kept, NULL for none. */
sandbox_status sbx_record_clear_making(struct sbx_record *record, void *made,
                                       sandbox_error *error);

/* No instance that counts: what is left of it goes, the files stay; that state, no operation. */
sandbox_status sbx_give_up_instance(sandbox_client *client, struct sbx_record *record,
                                    sandbox_state state, const struct sbx_wait *wait,
                                    sandbox_error *error);

/*
 * The end of a suspend whose snapshot is in the list: release, prune, `suspended`. Our own
 * operation.
 */
sandbox_status sbx_finish_suspend(sandbox_client *client, struct sbx_record *record,
                                  const struct sbx_wait *wait, sandbox_error *error);

/* The record says `running` after a resume: tells the driver, whose failure is only logged. */
void sbx_resume_settled(sandbox_client *client, const struct sbx_record *record,
                        const struct sbx_wait *wait);

/* Opens the agent of the recorded incarnation again, whether it is sealed, quiesced or open. */
sandbox_status sbx_reopen(sandbox_client *client, struct sbx_record *record,
                          const struct sbx_wait *wait, struct sbx_session **session,
                          sandbox_error *error);

#endif
