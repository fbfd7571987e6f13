/**
 * Processes: commands that run inside a workspace.
 *
 * A process belongs to the workspace, not to the handle: freeing the handle, losing the
 * connection or ending the program leaves it running, and sandbox_process_find() gets a new
 * handle by its id. Its output is kept in the workspace in a bounded buffer with byte offsets,
 * so that a handle that comes back goes on where it left off.
 *
 * A start is never repeated behind the caller's back. If a request may have reached the agent
 * and no answer came, the answer is SANDBOX_UNKNOWN with the process id in the error; starting
 * again with that id attaches to the first one or starts it, never both.
 *
 * A process keeps its workspace's handle alive. Any thread may use it at any time; only freeing
 * it must come after the last use. Two threads in sandbox_process_next() share the events.
 */
#ifndef SANDBOX_PROCESS_H
#define SANDBOX_PROCESS_H

#include <sandbox/workspace.h>

SANDBOX_BEGIN_DECLARATIONS

/** What a running process means for the workspace's idleness. */
typedef enum sandbox_role {
    SANDBOX_ROLE_TASK = 0,    /**< Work: the workspace is active while it runs. */
    SANDBOX_ROLE_SERVICE = 1, /**< A server or bridge: may run for ever and does not count. */
} sandbox_role;

/** What becomes of output that nobody reads once the buffer is full. */
typedef enum sandbox_when_full {
    SANDBOX_WHEN_FULL_BLOCK = 0,       /**< The process waits, as on any full pipe. */
    SANDBOX_WHEN_FULL_DROP_OLDEST = 1, /**< The oldest bytes go, and are counted. */
} sandbox_when_full;

/** What the process reads. */
typedef enum sandbox_input {
    SANDBOX_INPUT_NONE = 0, /**< End of file at once. */
    SANDBOX_INPUT_PIPE = 1, /**< What sandbox_process_write() sends. */
} sandbox_input;

/**
 * What to run. Strings are bytes: no encoding is assumed, and they are only read during the
 * call. Exactly one of `command` and `argv` must be given.
 */
typedef struct sandbox_process_options {
    size_t size;               /**< Set by the initializer. */
    const char *command;       /**< A line for /bin/sh -c, or bash where there is one. */
    const char *const *argv;   /**< Run directly, no shell; NULL-terminated. */
    const char *const *env;    /**< "NAME=value" over the workspace's; NULL-terminated. */
    const char *directory;     /**< Default: /workspace. Relative ones count from there. */
    const char *user;          /**< "sandbox", "root" or "UID:GID". Default: the workspace's. */
    const char *id;            /**< 32 hexadecimal digits: the idempotency key. Default: fresh. */
    const char *terminal_type; /**< TERM of a terminal. Default: xterm-256color. */
    bool login_shell;          /**< `command` only: read the profile files first. */
    bool terminal;             /**< Give it a terminal; stderr then comes with stdout. */
    uint16_t rows, columns;    /**< Of the terminal, 1 to 4,096. Default: 24 by 80. */
    sandbox_role role;
    sandbox_when_full when_full;
    sandbox_input input;       /**< A terminal always reads. */
    uint32_t deadline_ms;      /**< Kill it and all its descendants after this. 0: never. */
    uint32_t buffer_bytes;     /**< Kept output per stream, at most 64 MiB. Default: 1 MiB. */
} sandbox_process_options;

#define SANDBOX_PROCESS_OPTIONS .size = sizeof(sandbox_process_options)

/** How a process ended. */
typedef struct sandbox_process_exit {
    int code;       /**< Exit code, or -1 if a signal ended it. */
    int signal;     /**< The signal that ended it, or 0. */
    bool timed_out; /**< Its deadline_ms passed and it was killed. */
} sandbox_process_exit;

typedef enum sandbox_process_event_kind {
    SANDBOX_PROCESS_STDOUT = 1, /**< Also what a terminal shows. */
    SANDBOX_PROCESS_STDERR = 2,
    SANDBOX_PROCESS_EXIT = 3,   /**< The last event. All output came before it. */
} sandbox_process_event_kind;

/** Something that happened to a process. */
typedef struct sandbox_process_event {
    size_t size;                     /**< Set by the initializer; the call fills what fits. */
    sandbox_process_event_kind kind;
    const uint8_t *data;             /**< Borrowed until the next call on this process. */
    size_t data_size;
    uint64_t offset;                 /**< Of `data` in its stream. */
    uint64_t dropped;                /**< Bytes of the stream lost just before `data`. */
    sandbox_process_exit exit;       /**< EXIT only. */
} sandbox_process_event;

#define SANDBOX_PROCESS_EVENT .size = sizeof(sandbox_process_event)

/**
 * Start a command. Returns once it runs or is known not to.
 *
 * @param call  default deadline 30 s
 * @param out   written on success only; free it with sandbox_process_free()
 * @return SANDBOX_OK; SANDBOX_NOT_FOUND with reason "no-such-program" or "no-such-directory";
 *         SANDBOX_DENIED; SANDBOX_INVALID; SANDBOX_LIMIT; SANDBOX_UNKNOWN; or as any call
 */
SANDBOX_CHECKED sandbox_status sandbox_process_start(sandbox_workspace *workspace,
                                                     const sandbox_process_options *options,
                                                     const sandbox_call *call,
                                                     sandbox_process **out,
                                                     sandbox_error *error);

/** A handle on a process that was started before, by anybody. Reads from its first kept byte. */
SANDBOX_CHECKED sandbox_status sandbox_process_find(sandbox_workspace *workspace, const char *id,
                                                    const sandbox_call *call,
                                                    sandbox_process **out, sandbox_error *error);

/**
 * Take the next event: waits for one. After EXIT the answer is SANDBOX_CLOSED.
 *
 * Reattaches by itself after a lost connection, at the byte where it left off.
 *
 * @param call   default: no deadline; a timeout of 1 ms or so looks without waiting
 * @param event  the caller's, with `size` set
 */
SANDBOX_CHECKED sandbox_status sandbox_process_next(sandbox_process *process,
                                                    const sandbox_call *call,
                                                    sandbox_process_event *event,
                                                    sandbox_error *error);

/**
 * A descriptor that poll() finds readable while sandbox_process_next() would not wait. Borrowed
 * until the process is freed; never read from it. -1 where descriptors have run out.
 */
SANDBOX_API int sandbox_process_descriptor(sandbox_process *process);

/**
 * Wait for the end, whoever takes the output. Output that is not taken stays in the buffer and
 * may block the process (when_full).
 *
 * @param call  default: no deadline
 */
SANDBOX_CHECKED sandbox_status sandbox_process_wait(sandbox_process *process,
                                                    const sandbox_call *call,
                                                    sandbox_process_exit *exit,
                                                    sandbox_error *error);

/** Send bytes to its standard input or terminal; returns once the agent has them all. */
SANDBOX_CHECKED sandbox_status sandbox_process_write(sandbox_process *process, const void *data,
                                                     size_t data_size, const sandbox_call *call,
                                                     sandbox_error *error);

/** End its standard input. On a terminal: types the end-of-file character. */
SANDBOX_CHECKED sandbox_status sandbox_process_end_input(sandbox_process *process,
                                                         const sandbox_call *call,
                                                         sandbox_error *error);

/**
 * Send a signal to the process and its group; SIGKILL also to every descendant that left it.
 * A process that has ended: SANDBOX_OK, nothing happens.
 */
SANDBOX_CHECKED sandbox_status sandbox_process_signal(sandbox_process *process,
                                                      int signal_number,
                                                      const sandbox_call *call,
                                                      sandbox_error *error);

/** Tell a terminal its new size; the program inside gets SIGWINCH. Each 1 to 4,096. */
SANDBOX_CHECKED sandbox_status sandbox_process_resize(sandbox_process *process, uint16_t columns,
                                                      uint16_t rows, const sandbox_call *call,
                                                      sandbox_error *error);

/** Forget the handle: the process goes on. Accepts NULL. */
SANDBOX_API void sandbox_process_free(sandbox_process *process);

/** 32 hexadecimal digits. Borrowed until the process is freed. */
SANDBOX_API const char *sandbox_process_id(const sandbox_process *process);
/** Its number inside the workspace. */
SANDBOX_API int64_t sandbox_process_pid(const sandbox_process *process);

/** What a finished command gave. */
typedef struct sandbox_process_result {
    size_t size;
    sandbox_process_exit exit;
    const uint8_t *output; /**< Followed by a zero byte that does not count. */
    size_t output_size;
    const uint8_t *errors; /**< Likewise. */
    size_t errors_size;
    uint64_t output_total; /**< How much there was, also what was cut off. */
    uint64_t errors_total;
    bool output_truncated;
    bool errors_truncated;
} sandbox_process_result;

/** How to run a command to its end. */
typedef struct sandbox_run_options {
    size_t size;
    const void *input;      /**< What it reads; NULL for nothing. Borrowed for the call. */
    size_t input_size;
    /** Kept bytes per stream; the rest is read and counted. Default: 16 MiB. */
    size_t output_limit;
    bool leave_running;     /**< On timeout or cancel: do not kill it. */
} sandbox_run_options;

#define SANDBOX_RUN_OPTIONS .size = sizeof(sandbox_run_options)

/**
 * Start a command, feed it, read both streams, wait for its end. On timeout and cancel the
 * command is killed, unless `leave_running`.
 *
 * @param run_options  NULL for defaults
 * @param call         default: no deadline
 * @param out          written on success only; free it with sandbox_process_result_free()
 */
SANDBOX_CHECKED sandbox_status sandbox_process_run(sandbox_workspace *workspace,
                                                   const sandbox_process_options *options,
                                                   const sandbox_run_options *run_options,
                                                   const sandbox_call *call,
                                                   sandbox_process_result **out,
                                                   sandbox_error *error);
SANDBOX_API void sandbox_process_result_free(sandbox_process_result *result);

/** What is known of a process. Borrowed from the list. */
typedef struct sandbox_process_info {
    size_t size;
    const char *id;
    int64_t pid;
    bool running;
    sandbox_process_exit exit; /**< Where it does not run. */
    sandbox_role role;
    bool terminal;
    const char *command;       /**< As given, shortened; bytes that are not UTF-8 are replaced. */
    const char *user;
    int64_t started_ms;        /**< Unix time, by the workspace's clock. */
    uint32_t descendants;      /**< Processes it started that still run. */
    uint64_t output_bytes, error_bytes; /**< Written so far. */
} sandbox_process_info;

typedef struct sandbox_process_list sandbox_process_list;

/** All processes that were started through the library and are still known to the agent. */
SANDBOX_CHECKED sandbox_status sandbox_process_list_all(sandbox_workspace *workspace,
                                                        const sandbox_call *call,
                                                        sandbox_process_list **out,
                                                        sandbox_error *error);
SANDBOX_API size_t sandbox_process_list_count(const sandbox_process_list *list);
SANDBOX_API const sandbox_process_info *sandbox_process_list_at(const sandbox_process_list *list,
                                                                size_t index);
SANDBOX_API void sandbox_process_list_free(sandbox_process_list *list);

SANDBOX_END_DECLARATIONS

#endif
