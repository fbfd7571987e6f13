/*
 * The seam between the life cycle and a platform.
 *
 * A driver knows how to keep records, and how to make, look at, reach and destroy an instance
 * with our agent in it. It knows nothing of commands or files. It never sleeps and never retries
 * on its own account; it obeys the wait it is given. Every entry may be called from any thread.
 *
 * A NULL entry is a missing capability. All drivers pass tests/contract.
 *
 * Fencing: an entry that changes the platform is given the record as the caller wrote it last.
 * Before it acts the driver makes sure that this epoch is still the stored one, and holds off
 * every other actor while it acts; an older epoch fails with SANDBOX_CONFLICT, reason
 * "stale-epoch", and changes nothing.
 */
#ifndef SBX_CORE_DRIVER_H
#define SBX_CORE_DRIVER_H

#include "core/record.h"
#include "egress/question.h"
#include "transport/channel.h"
#include "util/json.h"
#include "util/wait.h"
#include <sandbox/manifests.h>
#include <sandbox/snapshot.h>

/* How an instance stands. */
enum sbx_presence {
    SBX_PRESENCE_ABSENT = 0, /* nothing is left of it but files */
    SBX_PRESENCE_RUNNING,    /* this very incarnation runs */
    SBX_PRESENCE_STOPPED,    /* its remains are there; it will not run again by itself */
    SBX_PRESENCE_OTHER,      /* something runs, but not the recorded incarnation */
};

struct sbx_instance {
    enum sbx_presence presence;
    char incarnation[SBX_INCARNATION_TEXT]; /* of what runs */
    char detail[160];                       /* why it stopped, where the platform knows; or "" */
};

/* Bytes of a long step as they are moved. Any thread; NULL entries are not called. */
struct sbx_progress {
    void (*moved)(struct sbx_progress *progress, const char *step, uint64_t done, uint64_t total);
};

/* What a look at every byte of a snapshot found. */
struct sbx_verdict {
    sandbox_verdict verdict;
    uint32_t files;
    uint64_t bytes;
    char evidence[240]; /* which file, which piece; no content */
};

/* What the platform itself says of a restore, beside what the agent proves. */
enum sbx_evidence {
    SBX_EVIDENCE_NONE = 0,  /* it says nothing, and never does */
    SBX_EVIDENCE_CONFIRMED, /* it names this snapshot as restored */
    SBX_EVIDENCE_MISSING,   /* it should say so, and does not yet */
    SBX_EVIDENCE_CONTRARY,  /* it started cold, or restored another one */
};

struct sbx_restored {
    char incarnation[SBX_INCARNATION_TEXT];
    enum sbx_evidence evidence;
    char detail[160]; /* the platform's words, or "" */
};

struct sbx_findings_sink {
    /* Copies the strings. */
    void (*add)(struct sbx_findings_sink *sink, sandbox_severity severity, const char *subject,
                const char *text, const char *remedy);
};

/* findings.c: a finding whose text is put together. */
void sbx_found(struct sbx_findings_sink *sink, sandbox_severity severity, const char *subject,
               const char *remedy, const char *format, ...) __attribute__((format(printf, 5, 6)));

struct sbx_manifests_sink {
    /* Copies the strings. */
    void (*add)(struct sbx_manifests_sink *sink, const char *kind, const char *space,
                const char *name, const char *text);
};

/* How a workspace's connections come to the egress proxy. */
struct sbx_egress_way {
    /* "ADDRESS:PORT" that the agent connects to; "": a carrier accepts them from outside. */
    char address[80];
    char key[65]; /* what the agent says there first, where there is an address. Wipe it. */
};

struct sbx_driver {
    const char *name; /* the URI's scheme */

    /* `rest`: the URI after "name:". Makes no workspace, may make the driver's own folders. */
    sandbox_status (*open)(const char *rest, const struct sbx_wait *wait, void **state,
                           sandbox_error *error);
    void (*close)(void *state);
    bool (*can)(void *state, sandbox_ability ability);
    /* What sandbox_doctor() shows. Works where open() fails. */
    sandbox_status (*examine)(const char *rest, const struct sbx_wait *wait,
                              struct sbx_findings_sink *sink, sandbox_error *error);
    /*
     * The same, and `text` is all that was read for it, without secrets; free it with free(). And
     * the findings of such a text, asking nobody: what `rest` leaves open is what the text says,
     * `title` is the file's name for messages. NULL: this platform is not described.
     */
    sandbox_status (*describe)(const char *rest, const struct sbx_wait *wait,
                               struct sbx_findings_sink *sink, char **text, sandbox_error *error);
    sandbox_status (*judge_description)(const char *rest, const char *title, const void *text,
                                        size_t size, struct sbx_findings_sink *sink,
                                        sandbox_error *error);
    /* What sets the platform up, as text, asking nobody; and applied. NULL: it needs nothing. */
    sandbox_status (*manifests)(const char *rest, const sandbox_manifests_options *options,
                                struct sbx_manifests_sink *sink, sandbox_error *error);
    sandbox_status (*manifests_apply)(const char *rest, const sandbox_manifests_options *options,
                                      const struct sbx_wait *wait, struct sbx_manifests_sink *sink,
                                      sandbox_error *error);

    /* ---- records: `name` is a valid workspace name ---- */

    /* SANDBOX_NOT_FOUND with reason "no-such-workspace". `text` is free()d by the caller. */
    sandbox_status (*record_load)(void *state, const char *name, const struct sbx_wait *wait,
                                  char **text, size_t *size, char version[SBX_VERSION_TEXT],
                                  sandbox_error *error);
    /*
     * Durable when it returns. `expected` "": there must be none yet (SANDBOX_EXISTS), else the
     * stored version must be that one (SANDBOX_CONFLICT). On success `version` is the new one,
     * which no record of that name, not one made after a removal either, ever had before.
     */
    sandbox_status (*record_store)(void *state, const char *name, const char *text, size_t size,
                                   const char *expected, char version[SBX_VERSION_TEXT],
                                   const struct sbx_wait *wait, sandbox_error *error);
    /* What is not there is success. */
    sandbox_status (*record_remove)(void *state, const char *name, const char *expected,
                                    const struct sbx_wait *wait, sandbox_error *error);
    /*
     * Calls `visit` for each record, in no order; text is borrowed for the call. `visit` returns
     * false to stop. Records that vanish meanwhile are passed over.
     */
    sandbox_status (*record_list)(void *state, const struct sbx_wait *wait,
                                  bool (*visit)(void *user_data, const char *name,
                                                const char *text, size_t size,
                                                const char *version),
                                  void *user_data, sandbox_error *error);

    /*
     * The secret that tokens are made from: key 0 asks for the newest, making one if there is
     * none, and says its number.
     */
    sandbox_status (*secret)(void *state, uint32_t *key_id, uint8_t key[32],
                             const struct sbx_wait *wait, sandbox_error *error);

    /* Text for operation.owner, and whether such an owner has surely ended. NULL: leases only. */
    sandbox_status (*owner_name)(void *state, char owner[128], sandbox_error *error);
    bool (*owner_is_gone)(void *state, const char *owner);

    /* ---- instances ---- */

    /*
     * Start an instance of the workspace, over its files if there are some, else making them, and
     * return once its agent can be connected to. There must be no instance. On failure nothing
     * of this instance is left, the files are.
     */
    sandbox_status (*provision)(void *state, const struct sbx_record *record,
                                const struct sbx_wait *wait,
                                char incarnation[SBX_INCARNATION_TEXT], sandbox_error *error);
    /* Look, change nothing. */
    sandbox_status (*inspect)(void *state, const struct sbx_record *record,
                              const struct sbx_wait *wait, struct sbx_instance *out,
                              sandbox_error *error);
    /*
     * End and remove the instance, keep the files. What is not there is success. Waits until gone.
     */
    sandbox_status (*discard)(void *state, const struct sbx_record *record,
                              const struct sbx_wait *wait, sandbox_error *error);
    /* The same, and the files and snapshots. Waits until nothing is left but the record. */
    sandbox_status (*destroy)(void *state, const struct sbx_record *record,
                              const struct sbx_wait *wait, sandbox_error *error);
    /* A fresh byte channel to the agent of the recorded incarnation. */
    sandbox_status (*connect)(void *state, const struct sbx_record *record,
                              const struct sbx_wait *wait, struct sbx_channel *channel,
                              sandbox_error *error);
    /*
     * Whether work is to go to the address that the instance itself has. NULL: never. Everything
     * else goes over connect() all the same: there the agent's gate is moved, and secrets pass.
     */
    bool (*is_direct)(void *state);
    /*
     * A TCP connection to that address, on which nothing was said: whoever has it now need not be
     * the agent. SANDBOX_UNAVAILABLE says what to do where nobody answers.
     */
    sandbox_status (*connect_direct)(void *state, const struct sbx_record *record,
                                     const struct sbx_wait *wait, struct sbx_channel *channel,
                                     sandbox_error *error);
    /*
     * The expiry in the stored record is another one now. NULL: the platform itself ends nothing.
     * Not fenced: whoever may work in a workspace may prolong it.
     */
    sandbox_status (*renewed)(void *state, const struct sbx_record *record,
                              const struct sbx_wait *wait, sandbox_error *error);

    /*
     * ---- snapshots; all NULL where there are none ----
     *
     * A snapshot is known by its id, which core draws and writes into the record before it calls
     * snapshot_take(). Once taken it never changes, and needs nothing that is not in it or pinned
     * by it.
     */

    /* Whether the agent must park TCP sockets before memory can be kept on this machine. */
    bool (*needs_parking)(void *state, const struct sbx_record *record);
    /*
     * Whether a snapshot of this kind can be taken now: room, runtime, limits. Stops nothing and
     * leaves nothing. SANDBOX_UNSUPPORTED: never of this kind; SANDBOX_LIMIT: no room.
     */
    sandbox_status (*snapshot_prepare)(void *state, const struct sbx_record *record,
                                       const struct sbx_snapshot *snapshot,
                                       const struct sbx_wait *wait, sandbox_error *error);
    /*
     * Takes it: of the sealed instance, or (FILES, no seal hash) of the files of a workspace that
     * has no instance. When it returns the snapshot is complete and durable, and `snapshot` holds
     * its digest and size; the instance may be gone (gvisor) or still sealed. On failure
     * inspect() tells whether the instance is there; what was begun is removed.
     */
    sandbox_status (*snapshot_take)(void *state, const struct sbx_record *record,
                                    struct sbx_snapshot *snapshot, struct sbx_progress *progress,
                                    const struct sbx_wait *wait, sandbox_error *error);
    /*
     * What became of a snapshot whose taker has died: waits until whatever still works on it has
     * ended, then completes it and fills in digest and size, or removes what there is of it
     * (SANDBOX_NOT_FOUND).
     */
    sandbox_status (*snapshot_adopt)(void *state, const struct sbx_record *record,
                                     struct sbx_snapshot *snapshot, const struct sbx_wait *wait,
                                     sandbox_error *error);
    /* Reads all of it and compares with its digest. Not fenced; SANDBOX_OK whatever the verdict. */
    sandbox_status (*snapshot_verify)(void *state, const struct sbx_record *record,
                                      const struct sbx_snapshot *snapshot,
                                      struct sbx_progress *progress, const struct sbx_wait *wait,
                                      struct sbx_verdict *out, sandbox_error *error);
    /* What is not there is success. */
    sandbox_status (*snapshot_remove)(void *state, const struct sbx_record *record,
                                      const char *snapshot_id, const struct sbx_wait *wait,
                                      sandbox_error *error);
    /*
     * Starts an instance that holds that snapshot, and returns once its agent, sealed, can be
     * connected to. `keep` FILES: only its files, with a fresh agent that finds the seal file
     * among them. There must be no instance. The caller has verified it; what changed since is
     * refused (SANDBOX_NOT_RESTORED, "snapshot-damaged"). On failure nothing of the instance is
     * left; the snapshot is as it was.
     */
    sandbox_status (*restore)(void *state, const struct sbx_record *record,
                              const struct sbx_snapshot *snapshot, sandbox_keep keep,
                              struct sbx_progress *progress, const struct sbx_wait *wait,
                              struct sbx_restored *out, sandbox_error *error);
    /*
     * The platform's evidence for the recorded instance, once more. It may wait for it; MISSING
     * when the wait has ended. NULL: it never gives any.
     */
    sandbox_status (*evidence)(void *state, const struct sbx_record *record,
                               const struct sbx_snapshot *snapshot, const struct sbx_wait *wait,
                               struct sbx_restored *out, sandbox_error *error);
    /*
     * Ends the sealed instance, whose snapshot is verified and in the record. Waits until gone;
     * what is gone is success.
     */
    sandbox_status (*release)(void *state, const struct sbx_record *record,
                              const struct sbx_wait *wait, sandbox_error *error);
    /*
     * A resume is over, and the record says `running`: what was set up for that one restore goes.
     * Not fenced; a failure is no harm, since the next snapshot_prepare() does the same. NULL:
     * there is nothing of the kind.
     */
    sandbox_status (*settled)(void *state, const struct sbx_record *record,
                              const struct sbx_wait *wait, sandbox_error *error);

    /*
     * ---- the way out; all NULL where workspaces never have one ----
     *
     * Not fenced: what the proxy holds can be made anew at any time, and a registration whose
     * instance has ended leads nowhere, since nobody knows its key.
     */

    /*
     * Registers the recorded instance, which is proven and runs, with the proxy under a fresh key,
     * and arranges how it gets there. Where the proxy is the driver's to start, it is started.
     *
     * @param registration  "policy" and, if given, "transformations", as the proxy takes them
     * @param keep          a registration that is there keeps its policy and credentials, and only
     *                      gets the new key; if there is none, as without
     */
    sandbox_status (*egress_open)(void *state, const struct sbx_record *record,
                                  const cJSON *registration, bool keep,
                                  const struct sbx_wait *wait, struct sbx_egress_way *way,
                                  sandbox_error *error);
    /*
     * SANDBOX_NOT_FOUND, "not-registered": the proxy does not know the workspace, or there is no
     * proxy. What the proxy refuses comes back with its words.
     *
     * @param body    NULL for none; may hold secrets
     * @param answer  sbx_secret_free_json(); NULL allowed
     */
    sandbox_status (*egress_ask)(void *state, const char *workspace_id,
                                 enum sbx_egress_question question, const cJSON *body,
                                 const struct sbx_wait *wait, cJSON **answer,
                                 sandbox_error *error);
    /* The proxy forgets it, credentials and connections too. What is not there is success. */
    sandbox_status (*egress_forget)(void *state, const char *workspace_id,
                                    const struct sbx_wait *wait, sandbox_error *error);
};

extern const struct sbx_driver sbx_driver_gvisor;
extern const struct sbx_driver sbx_driver_memory;
extern const struct sbx_driver sbx_driver_gke;

/* By URI ("gvisor:…"); NULL if there is none. `rest` points into `uri`. */
const struct sbx_driver *sbx_driver_of(const char *uri, const char **rest);

#endif
