/**
 * Whether anybody works in a workspace: what the agent sees, and what a check of the caller's or
 * a built-in one knows better.
 */
#ifndef SANDBOX_ACTIVITY_H
#define SANDBOX_ACTIVITY_H

#include <sandbox/workspace.h>

SANDBOX_BEGIN_DECLARATIONS

/** What the agent sees. */
typedef struct sandbox_activity {
    size_t size;           /**< Set by the initializer; the call fills what fits. */
    uint32_t tasks;        /**< Processes of role TASK that run. */
    uint32_t terminals;    /**< Terminals with a job in the foreground. */
    uint64_t idle_ms;      /**< Since a command, a terminal or a request was last active. */
    bool had_traffic;      /**< Bytes ever went through a port or were typed into a terminal. */
    bool reserved[7];
    uint64_t traffic_idle_ms; /**< Since the last of them. */
    char who[200];         /**< The active ones, for people; "" if there is none. */
} sandbox_activity;

#define SANDBOX_ACTIVITY .size = sizeof(sandbox_activity)

/** Ask the agent. Does not count as activity. @param out  the caller's, with `size` set */
SANDBOX_CHECKED sandbox_status sandbox_workspace_activity(sandbox_workspace *workspace,
                                                          const sandbox_call *call,
                                                          sandbox_activity *out,
                                                          sandbox_error *error);

/**
 * A question that a suspend asks on the calling thread, after new requests were shut out and
 * before anything is stopped. `workspace` is a handle for this question alone: work calls on it
 * go through, those on other handles wait. A check that does not answer SANDBOX_OK ends the
 * suspend with its error.
 */
typedef struct sandbox_check {
    /**
     * @param active  set to true if somebody works
     * @param who     one line for people, at most 200 bytes with its zero; "" at the call
     */
    sandbox_status (*ask)(sandbox_workspace *workspace, const sandbox_call *call, void *user_data,
                          bool *active, char who[200], sandbox_error *error);
    void *user_data;
} sandbox_check;

/**
 * The built-in check for opencode: whether in any of its project directories an agent's turn, of
 * either of its engines, is under way or a terminal runs a job. A server that does not listen is
 * not active. Workspaces whose options say "opencode:PORT" in `checks` are asked without this.
 */
typedef struct sandbox_opencode {
    size_t size;          /**< Set by the initializer. */
    uint16_t port;        /**< Default 4096. */
    const char *user;     /**< Default "opencode". */
    const char *password; /**< Of OPENCODE_SERVER_PASSWORD; NULL: none is asked for. */
} sandbox_opencode;

#define SANDBOX_OPENCODE .size = sizeof(sandbox_opencode)

/** For sandbox_check.ask. @param user_data  a sandbox_opencode, or NULL for all defaults */
SANDBOX_CHECKED sandbox_status sandbox_check_opencode(sandbox_workspace *workspace,
                                                      const sandbox_call *call, void *user_data,
                                                      bool *active, char who[200],
                                                      sandbox_error *error);

SANDBOX_END_DECLARATIONS

#endif
