/**
 * Suspending a workspace and proving that what comes back is the same.
 *
 * A suspended workspace costs no processor and no memory: all it is lies in a snapshot. Nothing
 * is called suspended before its snapshot is complete and verified, nothing is called resumed
 * before another instance has proven that it holds what was sealed. In doubt the workspace is
 * `blocked`: its snapshot is kept, and the caller is told.
 *
 * The calls here block the calling thread. One workspace has one operation at a time; whoever
 * comes second waits, or takes over what a dead caller left.
 */
#ifndef SANDBOX_SNAPSHOT_H
#define SANDBOX_SNAPSHOT_H

#include <sandbox/activity.h>

SANDBOX_BEGIN_DECLARATIONS

/** What a snapshot keeps. */
typedef enum sandbox_keep {
    SANDBOX_KEEP_BEST = 0,   /**< MEMORY where that can be, else FILES; the result says which. */
    SANDBOX_KEEP_MEMORY = 1, /**< Files and running processes. */
    /**
     * The workspace's directory and its home. Processes end, and so does what they wrote
     * elsewhere. Files are as they were at one moment, as after a loss of power.
     */
    SANDBOX_KEEP_FILES = 2,
} sandbox_keep;

/** What a resume may hand out. */
typedef enum sandbox_accept {
    SANDBOX_ACCEPT_PROVEN = 0, /**< Only what the snapshot holds, proven. */
    /** Where memory cannot be restored: a fresh instance over the snapshot's proven files. */
    SANDBOX_ACCEPT_FILES = 1,
    /** Where that cannot be either: a fresh instance over the files that are there. */
    SANDBOX_ACCEPT_COLD = 2,
} sandbox_accept;

/** What proved it. */
typedef enum sandbox_proof {
    SANDBOX_PROOF_NONE = 0,   /**< Nothing: a cold start that the caller accepted. */
    SANDBOX_PROOF_MEMORY = 1, /**< The secret that the agent drew at the seal, from its memory. */
    SANDBOX_PROOF_FILES = 2,  /**< The same secret from the sealed files; or, of a snapshot without
                                   a seal, the digest over all files, taken before the start. */
} sandbox_proof;

typedef struct sandbox_suspend_options {
    size_t size;
    sandbox_keep keep;
    bool force;         /**< Suspend even if something is active. */
    /** A request that comes before the point of no return ends the suspend with SANDBOX_BUSY. */
    bool interruptible;
    bool reserved[2];
    uint32_t quiet_ms;  /**< Bytes through a port or a terminal so recently are activity. Default
                             30,000; SANDBOX_FOREVER: never look. */
    uint32_t finish_ms; /**< How long calls in progress may take to finish. Default 10,000. */
    const sandbox_check *checks; /**< To ask whether something is active, beside the agent. */
    size_t check_count;
    const char *spare; /**< A snapshot's id that the retention leaves alone: to resume from next. */
} sandbox_suspend_options;

#define SANDBOX_SUSPEND_OPTIONS .size = sizeof(sandbox_suspend_options)

/** How it went. Text is inside the struct. */
typedef struct sandbox_suspend_result {
    size_t size;         /**< Set by the initializer; the call fills what fits. */
    char snapshot[40];   /**< Its id. */
    sandbox_keep kept;   /**< MEMORY or FILES. */
    uint32_t stopped;    /**< Processes that were stopped by the seal. */
    uint32_t parked;     /**< Of these, processes whose sockets were parked for the snapshot. */
    uint32_t took_ms;
    uint64_t bytes;      /**< That the snapshot takes. */
    char why_files[200]; /**< BEST became FILES: what stood in the way. */
} sandbox_suspend_result;

#define SANDBOX_SUSPEND_RESULT .size = sizeof(sandbox_suspend_result)

typedef struct sandbox_resume_options {
    size_t size;
    sandbox_accept accept;
    sandbox_from from;     /**< For an interrupted workspace; else left zero. */
    const char *snapshot;  /**< Which one. Default: the recovery point. */
    const char *const *env; /**< As in sandbox_workspace_options; replaces what was there. */
    /**
     * Credentials again, and a change of the policy if there is one: see <sandbox/egress.h>. In
     * force before anything inside can reach out; a failure of it is logged, and leaves the
     * workspace without a way out.
     */
    const struct sandbox_egress_options *egress;
} sandbox_resume_options;

#define SANDBOX_RESUME_OPTIONS .size = sizeof(sandbox_resume_options)

typedef struct sandbox_resume_result {
    size_t size;          /**< Set by the initializer; the call fills what fits. */
    bool restored;        /**< It holds the recorded state, and that was proven. */
    bool clock_failed;    /**< The clock inside is wrong and could not be set. */
    bool entropy_failed;  /**< The kernel inside did not take fresh entropy. */
    bool reserved;
    /**
     * MEMORY: processes went on. FILES: they did not. BEST: nothing is left; it is a cold start on
     * a platform that keeps no files beside the instance.
     */
    sandbox_keep kept;
    sandbox_proof proof;
    uint32_t attempts;    /**< Instances that were started; 0: it ran already. */
    char snapshot[40];    /**< Which one; "" for a cold start. */
    uint32_t took_ms, continued; /**< `continued`: processes that go on. */
    uint32_t deadlines_kept;     /**< Of processes: they go on with the time that was left. */
    uint32_t connections_reset;  /**< Into the workspace, when it was sealed. */
    uint32_t generation;         /**< How often this workspace was restored. */
    int32_t hook_code;           /**< Exit code of the resume hook; -1: none; -2: killed. */
    int64_t skew_ms;             /**< By how much the clock inside had to be set. */
    uint64_t asleep_ms;          /**< Since the snapshot was made. */
} sandbox_resume_result;

#define SANDBOX_RESUME_RESULT .size = sizeof(sandbox_resume_result)

/**
 * Suspend a running workspace. When it returns SANDBOX_OK the snapshot is complete and verified,
 * and the instance is gone. A workspace that is suspended already is SANDBOX_OK too, with its
 * recovery point as the result.
 *
 * Processes do not notice, but that time has passed. A failure before the point of no return
 * leaves the workspace running as it was; after it the suspend is finished by whoever comes next.
 *
 * @param options  NULL for all defaults
 * @param call     default deadline 300 s
 * @param result   NULL allowed
 * @return SANDBOX_OK; SANDBOX_BUSY with reason "active" and a message that says who;
 *         SANDBOX_UNSUPPORTED: MEMORY cannot be kept, with the processes in the way;
 *         SANDBOX_INTERRUPTED; SANDBOX_LIMIT: no room on the disk; SANDBOX_FAILED
 */
SANDBOX_CHECKED sandbox_status sandbox_workspace_suspend(sandbox_workspace *workspace,
                                                         const sandbox_suspend_options *options,
                                                         const sandbox_call *call,
                                                         sandbox_suspend_result *result,
                                                         sandbox_error *error);

/**
 * Bring a suspended or blocked workspace back, or an interrupted one from where `from` says. A
 * running one is SANDBOX_OK. The same process handles go on where they were.
 *
 * The interrupted files are not lost by SANDBOX_FROM_SNAPSHOT: they are kept as a snapshot first.
 *
 * @param options  NULL for all defaults
 * @param call     default deadline 300 s
 * @param result   NULL allowed
 * @return SANDBOX_OK; SANDBOX_NOT_RESTORED: it could not be proven, the workspace is blocked, the
 *         snapshot is kept, `reason` says more ("snapshot-damaged", "snapshot-missing",
 *         "not-proven", "no-answer"); SANDBOX_INTERRUPTED
 */
SANDBOX_CHECKED sandbox_status sandbox_workspace_resume(sandbox_workspace *workspace,
                                                        const sandbox_resume_options *options,
                                                        const sandbox_call *call,
                                                        sandbox_resume_result *result,
                                                        sandbox_error *error);

/**
 * Make a snapshot of a running workspace that goes on running: a tighter recovery point. Where
 * the platform cannot copy a live instance, the workspace is frozen, restored and proven.
 *
 * @param options  as for a suspend; nothing is asked about activity
 */
SANDBOX_CHECKED sandbox_status sandbox_workspace_checkpoint(
    sandbox_workspace *workspace, const sandbox_suspend_options *options,
    const sandbox_call *call, sandbox_suspend_result *result, sandbox_error *error);

/** One snapshot. Strings are borrowed from the list. */
typedef struct sandbox_snapshot_info {
    size_t size;
    const char *id;
    sandbox_keep kept;  /**< MEMORY or FILES. */
    bool is_recovery_point; /**< What a resume or the loss of the instance falls back to. */
    bool was_proven;    /**< A resume from it was proven once. */
    bool has_seal;      /**< False for files that were kept of a lost instance. */
    bool reserved;
    int64_t created_ms; /**< Unix time. */
    uint64_t bytes;
} sandbox_snapshot_info;

typedef struct sandbox_snapshot_list sandbox_snapshot_list;

/** A workspace's snapshots, newest first, in whatever state it is. @param out free it */
SANDBOX_CHECKED sandbox_status sandbox_snapshot_list_all(sandbox_workspace *workspace,
                                                         const sandbox_call *call,
                                                         sandbox_snapshot_list **out,
                                                         sandbox_error *error);
SANDBOX_API size_t sandbox_snapshot_list_count(const sandbox_snapshot_list *list);
/** Borrowed until the list is freed; NULL past the end. */
SANDBOX_API const sandbox_snapshot_info *sandbox_snapshot_list_at(
    const sandbox_snapshot_list *list, size_t index);
SANDBOX_API void sandbox_snapshot_list_free(sandbox_snapshot_list *list);

/** How a snapshot stands. */
typedef enum sandbox_verdict {
    SANDBOX_VERDICT_INTACT = 1,      /**< Every byte is what was recorded. */
    SANDBOX_VERDICT_DAMAGED = 2,     /**< Something is not; it will not be restored. */
    SANDBOX_VERDICT_MISSING = 3,     /**< It, or a part of it, is not there. */
    SANDBOX_VERDICT_CANNOT_TELL = 4, /**< It could not be looked at; nothing is said. */
} sandbox_verdict;

typedef struct sandbox_verification {
    size_t size;        /**< Set by the initializer; the call fills what fits. */
    sandbox_verdict verdict;
    uint32_t files;     /**< That were read. */
    char snapshot[40];
    uint64_t bytes;     /**< That were read. */
    char evidence[240]; /**< What was found: which file, which piece. */
} sandbox_verification;

#define SANDBOX_VERIFICATION .size = sizeof(sandbox_verification)

/** The verdict in lower case: "intact", "cannot tell". Static. */
SANDBOX_API const char *sandbox_verdict_name(sandbox_verdict verdict);

/**
 * Look at every byte of a snapshot. Changes nothing; any state.
 *
 * @param snapshot  its id; NULL: the recovery point
 * @param call      default deadline 600 s
 * @return SANDBOX_OK whatever the verdict; SANDBOX_NOT_FOUND: no such snapshot in the record
 */
SANDBOX_CHECKED sandbox_status sandbox_snapshot_verify(sandbox_workspace *workspace,
                                                       const char *snapshot,
                                                       const sandbox_call *call,
                                                       sandbox_verification *out,
                                                       sandbox_error *error);

/**
 * Delete one that is not the recovery point (SANDBOX_INVALID). What is not there is SANDBOX_OK.
 */
SANDBOX_CHECKED sandbox_status sandbox_snapshot_delete(sandbox_workspace *workspace,
                                                       const char *snapshot,
                                                       const sandbox_call *call,
                                                       sandbox_error *error);

/** Which workspaces to suspend. */
typedef struct sandbox_idle_options {
    size_t size;
    uint64_t idle_ms;     /**< Default: what each workspace's record says; 0 there: 15 minutes. */
    uint64_t max_busy_ms; /**< Suspend by force what says for longer that it is busy. Default:
                               never. */
    const char *const *labels; /**< Only those that carry all of these. */
    uint32_t parallel;    /**< At once. Default 4, at most 64. */
    sandbox_keep keep;
    const sandbox_check *checks;
    size_t check_count;
} sandbox_idle_options;

#define SANDBOX_IDLE_OPTIONS .size = sizeof(sandbox_idle_options)

typedef struct sandbox_idle_result {
    size_t size;        /**< Set by the initializer; the call fills what fits. */
    uint32_t suspended; /**< By this call. */
    uint32_t active;    /**< Not idle for long enough, or busy. */
    uint32_t failed;    /**< Each of them is in the log. */
} sandbox_idle_result;

#define SANDBOX_IDLE_RESULT .size = sizeof(sandbox_idle_result)

/**
 * Suspend the running workspaces where nobody works. For a caller's own clock: call it every
 * minute or so.
 *
 * @param options  NULL for all defaults
 * @param call     default deadline 600 s
 * @param result   NULL allowed
 */
SANDBOX_CHECKED sandbox_status sandbox_client_suspend_idle(sandbox_client *client,
                                                           const sandbox_idle_options *options,
                                                           const sandbox_call *call,
                                                           sandbox_idle_result *result,
                                                           sandbox_error *error);

/**
 * Finish or roll back every operation whose owner has died. find, open, resume and delete do it
 * for their workspace; this does it for all.
 *
 * @param count  how many there were; NULL allowed
 * @param call   default deadline 600 s
 */
SANDBOX_CHECKED sandbox_status sandbox_client_recover(sandbox_client *client,
                                                      const sandbox_call *call, size_t *count,
                                                      sandbox_error *error);

SANDBOX_END_DECLARATIONS

#endif
