/**
 * Workspaces: isolated places where untrusted code runs and keeps its files.
 *
 * A workspace lives on its platform until it is deleted or its time runs out; a handle on it
 * is only a handle. Freeing handles, ending the program or losing a connection deletes
 * nothing. Several handles, in one process or many, may stand for one workspace.
 *
 * A workspace keeps its client alive, so the two may be freed in any order. Any thread may use
 * it at any time; only freeing it must come after the last use.
 */
#ifndef SANDBOX_WORKSPACE_H
#define SANDBOX_WORKSPACE_H

#include <sandbox/client.h>

SANDBOX_BEGIN_DECLARATIONS

/** Where a workspace stands. The numbers never change; later versions may add some. */
typedef enum sandbox_state {
    SANDBOX_STATE_CREATING = 1,
    SANDBOX_STATE_RUNNING = 2,
    SANDBOX_STATE_INTERRUPTED = 3, /**< Its instance is gone; its files are kept. */
    SANDBOX_STATE_DELETING = 4,
    SANDBOX_STATE_GONE = 5, /**< Deleted. */
    SANDBOX_STATE_SUSPENDING = 6,
    SANDBOX_STATE_SUSPENDED = 7, /**< No instance; all it is lies in a verified snapshot. */
    SANDBOX_STATE_RESUMING = 8,
    SANDBOX_STATE_BLOCKED = 9, /**< A resume was not proven; the snapshot is kept. Resume again. */
} sandbox_state;

/** From what an interrupted workspace goes on. */
typedef enum sandbox_from {
    SANDBOX_FROM_NOTHING = 0,    /**< Do not go on: answer SANDBOX_INTERRUPTED. */
    SANDBOX_FROM_LIVE_FILES = 1, /**< A fresh instance over the files as they were left. */
    SANDBOX_FROM_SNAPSHOT = 2,   /**< The recovery point; the files as they were left are kept as a
                                      snapshot first. */
} sandbox_from;

/** How to make a workspace. A field left zero asks for the default. */
typedef struct sandbox_workspace_options {
    size_t size;      /**< Set by the initializer. */
    /**
     * 1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit. It is the
     * idempotency key: a taken name is SANDBOX_EXISTS. Default: a fresh name.
     */
    const char *name;
    const char *image; /**< Driver's term; gvisor: a root directory. Default: the driver's base. */
    const char *user;  /**< Who runs commands: "sandbox" or "root". Default: "sandbox". */
    const char *const *env;    /**< "NAME=value", NULL-terminated; for every command. */
    const char *const *labels; /**< "key=value", NULL-terminated, at most 64. Not secret. */
    uint32_t memory_mib;    /**< Default: 2,048. */
    uint32_t cpu_millis;    /**< Thousandths of a processor. Default: no limit. */
    uint32_t process_limit; /**< Default: 4,096. */
    uint32_t disk_mib;      /**< For the workspace's own files. Default: no limit. */
    /**
     * Delete it this long from now, unless renewed. Default: never. The instance ends itself at
     * that time; its files and record go when any client next looks (sandbox_client_sweep()).
     */
    uint64_t expires_after_ms;
    sandbox_from from; /**< sandbox_workspace_open() only. */
    /** How many snapshots to keep, 1 to 16. Default: 3. */
    uint32_t retain;
    /** What sandbox_client_suspend_idle() goes by where it is not told. Default: 15 minutes. */
    uint64_t suspend_after_idle_ms;
    /** What to ask before a suspend, NULL-terminated, at most 8: "opencode:PORT". */
    const char *const *checks;
    /**
     * What it may reach, transformations included: see <sandbox/egress.h>. Default: nothing. When
     * a workspace that exists is opened, policy and transformations are set if they are given.
     */
    const struct sandbox_egress_options *egress;
} sandbox_workspace_options;

#define SANDBOX_WORKSPACE_OPTIONS .size = sizeof(sandbox_workspace_options)

/** What is known of a workspace. Strings are borrowed from whatever gave the struct. */
typedef struct sandbox_workspace_info {
    size_t size;
    const char *id;     /**< 32 hexadecimal digits, never used again. */
    const char *name;
    const char *driver;
    sandbox_state state;
    uint32_t epoch;     /**< Grows with every operation on the workspace. */
    const char *user;
    const char *image;       /**< "" for the driver's base. */
    const char *incarnation; /**< The platform's name of this very instance, or "". */
    const char *operation;   /**< What is under way: "create", "suspend", …, or "". */
    const char *const *labels; /**< NULL-terminated. */
    uint32_t memory_mib, cpu_millis, process_limit, disk_mib; /**< 0: no limit. */
    int64_t created_ms; /**< Unix time. */
    int64_t expires_ms; /**< Unix time, or 0 for never. */
    const char *step;     /**< Of what is under way, or "". */
    const char *snapshot; /**< The recovery point's id, or "" while there is none. */
    int64_t snapshot_ms;  /**< When it was made, Unix time: what came later could be lost. */
    uint32_t snapshot_count, retain;
    uint64_t suspend_after_idle_ms; /**< 0: the default. */
    const char *const *checks;      /**< NULL-terminated. */
} sandbox_workspace_info;

/**
 * Make a workspace and wait until it can run commands. If it fails, whatever this call made
 * is deleted again.
 *
 * @param options  NULL for all defaults
 * @param call     default deadline 120 s (the first use may have to build the base)
 * @param out      written on success only; free it with sandbox_workspace_free()
 * @return SANDBOX_OK, SANDBOX_INVALID, SANDBOX_EXISTS, SANDBOX_UNSUPPORTED, SANDBOX_LIMIT,
 *         SANDBOX_TIMED_OUT, SANDBOX_CANCELLED, SANDBOX_UNAVAILABLE, SANDBOX_FAILED
 */
SANDBOX_CHECKED sandbox_status sandbox_workspace_create(
    sandbox_client *client, const sandbox_workspace_options *options, const sandbox_call *call,
    sandbox_workspace **out, sandbox_error *error);

/**
 * A handle on a workspace that exists, whatever its state.
 *
 * @param name  its name or its id
 */
SANDBOX_CHECKED sandbox_status sandbox_workspace_find(sandbox_client *client, const char *name,
                                                      const sandbox_call *call,
                                                      sandbox_workspace **out,
                                                      sandbox_error *error);

/**
 * A handle on a running workspace of that name: finds it, waits for or takes over another's
 * operation, resumes a suspended one, goes on with an interrupted one where `from` says so, and
 * makes one if there is none (then the other options count).
 *
 * @param options  must hold a name
 * @return as sandbox_workspace_create(), but never SANDBOX_EXISTS; SANDBOX_INTERRUPTED;
 *         SANDBOX_NOT_RESTORED as sandbox_workspace_resume()
 */
SANDBOX_CHECKED sandbox_status sandbox_workspace_open(sandbox_client *client,
                                                      const sandbox_workspace_options *options,
                                                      const sandbox_call *call,
                                                      sandbox_workspace **out,
                                                      sandbox_error *error);

/**
 * Delete it from the platform and wait until nothing of it is left. Idempotent: what is
 * already gone is success. The handle stays valid and answers SANDBOX_CLOSED from now on.
 *
 * @param call  default deadline 60 s; past it the deletion goes on with the next caller
 */
SANDBOX_CHECKED sandbox_status sandbox_workspace_delete(sandbox_workspace *workspace,
                                                        const sandbox_call *call,
                                                        sandbox_error *error);

/** Let it live that much longer from now; 0: for ever. */
SANDBOX_CHECKED sandbox_status sandbox_workspace_renew(sandbox_workspace *workspace,
                                                       uint64_t expires_after_ms,
                                                       const sandbox_call *call,
                                                       sandbox_error *error);

/** Forget the handle: never blocks, never fails, accepts NULL, deletes nothing. */
SANDBOX_API void sandbox_workspace_free(sandbox_workspace *workspace);

/** Borrowed until the workspace is freed. */
SANDBOX_API const char *sandbox_workspace_name(const sandbox_workspace *workspace);
SANDBOX_API const char *sandbox_workspace_id(const sandbox_workspace *workspace);

/** Many workspaces' facts, as of one moment. */
typedef struct sandbox_workspace_list sandbox_workspace_list;

/**
 * Ask the platform how this workspace stands now.
 *
 * @param out  a list of one; written on success only
 */
SANDBOX_CHECKED sandbox_status sandbox_workspace_inspect(sandbox_workspace *workspace,
                                                         const sandbox_call *call,
                                                         sandbox_workspace_list **out,
                                                         sandbox_error *error);

/** Which workspaces to list. */
typedef struct sandbox_list_options {
    size_t size;
    const char *const *labels; /**< Only those that carry all of these "key=value". */
} sandbox_list_options;

#define SANDBOX_LIST_OPTIONS .size = sizeof(sandbox_list_options)

/**
 * All workspaces of the client's platform, by name. States are as recorded: whether a running
 * one is still alive is asked by sandbox_workspace_inspect().
 */
SANDBOX_CHECKED sandbox_status sandbox_workspace_list_all(sandbox_client *client,
                                                          const sandbox_list_options *options,
                                                          const sandbox_call *call,
                                                          sandbox_workspace_list **out,
                                                          sandbox_error *error);
SANDBOX_API size_t sandbox_workspace_list_count(const sandbox_workspace_list *list);
/** Borrowed until the list is freed; NULL past the end. */
SANDBOX_API const sandbox_workspace_info *sandbox_workspace_list_at(
    const sandbox_workspace_list *list, size_t index);
SANDBOX_API void sandbox_workspace_list_free(sandbox_workspace_list *list);

/** The state's name in lower case: "running". Static. */
SANDBOX_API const char *sandbox_state_name(sandbox_state state);

/** What a workspace's agent measures. */
typedef struct sandbox_workspace_stats {
    size_t size;                 /**< Set by the initializer; the call fills what fits. */
    uint64_t uptime_ms;          /**< Of this instance. */
    uint64_t memory_bytes;       /**< Used inside, as the guest kernel tells; 0: not known. */
    uint64_t agent_memory_bytes; /**< The agent's own private memory. */
    uint64_t cpu_ms;             /**< Processor time of all processes; 0: not known. */
    uint64_t disk_used_bytes;    /**< On the workspace's file system. */
    uint64_t disk_free_bytes;
    uint32_t processes;          /**< All that run inside, the agent's own not counted. */
    uint32_t connections;        /**< Open channels to the agent. */
    uint64_t idle_ms;            /**< Since a command, a terminal or a request was last active. */
    uint32_t active_tasks;       /**< Processes of role TASK that run. */
} sandbox_workspace_stats;

#define SANDBOX_WORKSPACE_STATS .size = sizeof(sandbox_workspace_stats)

/** Ask the agent. @param out  the caller's, with `size` set */
SANDBOX_CHECKED sandbox_status sandbox_workspace_measure(sandbox_workspace *workspace,
                                                         const sandbox_call *call,
                                                         sandbox_workspace_stats *out,
                                                         sandbox_error *error);

SANDBOX_END_DECLARATIONS

#endif
