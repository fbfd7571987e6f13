/**
 * Clients: a connection to one platform where workspaces live.
 *
 * A client owns one I/O thread. Any thread may use it at any time; only freeing it must come
 * after the last use. Workspaces keep their client alive, so the handles may be freed in any
 * order. A client does not survive fork(): in the child every call on it answers
 * SANDBOX_INVALID, and only freeing it is allowed.
 */
#ifndef SANDBOX_CLIENT_H
#define SANDBOX_CLIENT_H

#include <sandbox/call.h>

SANDBOX_BEGIN_DECLARATIONS

/** Where workspaces live. A field left zero asks for the default. */
typedef struct sandbox_client_options {
    size_t size;     /**< Set by the initializer. */
    /**
     * Borrowed for the call. Default: "gvisor:".
     *   gvisor:[/STATE/DIRECTORY][?runsc=PATH&platform=NAME&agent=PATH]
     *   gke://CONTEXT/NAMESPACE?pool=NAME
     *   memory:[/SOCKET/PATH]
     */
    const char *uri;
} sandbox_client_options;

#define SANDBOX_CLIENT_OPTIONS .size = sizeof(sandbox_client_options)

/** What a driver may or may not be able to do. */
typedef enum sandbox_ability {
    SANDBOX_CAN_LIMIT_MEMORY = 1,    /**< memory_mib is enforced. */
    SANDBOX_CAN_LIMIT_CPU = 2,       /**< cpu_millis is enforced. */
    SANDBOX_CAN_LIMIT_PROCESSES = 3, /**< process_limit is enforced. */
    SANDBOX_CAN_LIMIT_DISK = 4,      /**< disk_mib is enforced. */
    SANDBOX_CAN_USE_IMAGES = 5,      /**< image may be given. */
    SANDBOX_CAN_KEEP_FILES = 6,      /**< Files are kept alone too, and when an instance is lost. */
    SANDBOX_CAN_KEEP_MEMORY = 7,     /**< A suspended workspace keeps files and processes. */
    SANDBOX_CAN_REACH_OUT = 8,       /**< egress may be given. */
} sandbox_ability;

/**
 * Connect to a platform.
 *
 * @param options  NULL for all defaults
 * @param call     default deadline 30 s
 * @param out      written on success only; free it with sandbox_client_free()
 * @return SANDBOX_OK, SANDBOX_INVALID, SANDBOX_UNSUPPORTED, SANDBOX_DENIED, SANDBOX_UNAVAILABLE
 */
SANDBOX_CHECKED sandbox_status sandbox_client_open(const sandbox_client_options *options,
                                                   const sandbox_call *call,
                                                   sandbox_client **out, sandbox_error *error);

/** Forget the handle: never fails, accepts NULL, deletes nothing on the platform. */
SANDBOX_API void sandbox_client_free(sandbox_client *client);

/** Borrowed until the client is freed. */
SANDBOX_API const char *sandbox_client_uri(const sandbox_client *client);

/** The driver's name: "gvisor", "memory". Borrowed until the client is freed. */
SANDBOX_API const char *sandbox_client_driver(const sandbox_client *client);

/** Whether this client's driver enforces or offers something, on this machine. */
SANDBOX_API bool sandbox_client_can(const sandbox_client *client, sandbox_ability ability);

/**
 * Delete the workspaces whose time has run out. Every create and open does this too, for what
 * it comes across; a caller that only waits may do it now and then.
 *
 * @param count  how many were deleted; NULL allowed
 */
SANDBOX_CHECKED sandbox_status sandbox_client_sweep(sandbox_client *client,
                                                    const sandbox_call *call, size_t *count,
                                                    sandbox_error *error);

/** How much a finding matters. */
typedef enum sandbox_severity {
    SANDBOX_SEVERITY_GOOD = 0,    /**< As it should be. */
    SANDBOX_SEVERITY_NOTE = 1,    /**< Works, with a limit worth knowing. */
    SANDBOX_SEVERITY_PROBLEM = 2, /**< Workspaces cannot be made until this is mended. */
} sandbox_severity;

/** One thing that was looked at on this machine or platform. */
typedef struct sandbox_finding {
    size_t size;
    sandbox_severity severity;
    const char *subject; /**< A short word: "runsc", "root", "disk". */
    const char *text;    /**< What was found, one line. */
    const char *remedy;  /**< What to do about it, one line, or "". */
} sandbox_finding;

/** What sandbox_doctor() found. */
typedef struct sandbox_findings sandbox_findings;

/**
 * Look at a platform without opening it: what is missing, what is limited, and the remedy.
 *
 * @param uri  as in sandbox_client_options; NULL for the default
 * @param out  written on success only; free it with sandbox_findings_free()
 */
SANDBOX_CHECKED sandbox_status sandbox_doctor(const char *uri, const sandbox_call *call,
                                              sandbox_findings **out, sandbox_error *error);

/** What sandbox_doctor_with() looks at. A field left zero asks for the default. */
typedef struct sandbox_doctor_options {
    size_t size; /**< Set by the initializer. */
    /** As in sandbox_client_options. With `from` the default is where the description was made. */
    const char *uri;
    /**
     * Write what was read of the platform to this file (mode 0600, JSON), so that others can look
     * at it. It holds no secrets and no values of environment variables. Only `gke:` has it.
     */
    const char *save;
    /**
     * Look at a description that `save` wrote, and ask no platform; or at what
     * `kubectl get … -o json` or `-o yaml` printed. At most 16 MiB, YAML 4 MiB.
     */
    const char *from;
} sandbox_doctor_options;

#define SANDBOX_DOCTOR_OPTIONS .size = sizeof(sandbox_doctor_options)

/**
 * As sandbox_doctor(), and the platform's state can be saved, or one that was saved be looked at.
 *
 * @param options  NULL for all defaults
 * @return also SANDBOX_UNSUPPORTED ("no-description"): the platform is not described;
 *         SANDBOX_INVALID ("bad-description"): the file is none
 */
SANDBOX_CHECKED sandbox_status sandbox_doctor_with(const sandbox_doctor_options *options,
                                                   const sandbox_call *call,
                                                   sandbox_findings **out, sandbox_error *error);
SANDBOX_API size_t sandbox_findings_count(const sandbox_findings *findings);
/** Borrowed until the findings are freed; NULL past the end. */
SANDBOX_API const sandbox_finding *sandbox_findings_at(const sandbox_findings *findings,
                                                       size_t index);
SANDBOX_API void sandbox_findings_free(sandbox_findings *findings);

SANDBOX_END_DECLARATIONS

#endif
