/**
 * What went wrong: a status to branch on, a sentence to show.
 *
 * Every function that can fail returns a sandbox_status and takes, last, a sandbox_error that
 * the caller owns, or NULL. The error is written only on failure and holds no memory to free.
 * Its text is one line and never holds a token, a key or file content.
 */
#ifndef SANDBOX_ERROR_H
#define SANDBOX_ERROR_H

#include <sandbox/export.h>

SANDBOX_BEGIN_DECLARATIONS

/** Failures, kept apart by what a caller would do about them. The numbers never change. */
typedef enum sandbox_status {
    SANDBOX_OK = 0,
    SANDBOX_INVALID = -1,      /**< The caller's mistake; the same call will fail again. */
    SANDBOX_NOT_FOUND = -2,    /**< No such workspace, process, file or port: see `reason`. */
    SANDBOX_EXISTS = -3,       /**< The name is taken. */
    SANDBOX_DENIED = -4,       /**< Not allowed: credentials, ownership or file permissions. */
    SANDBOX_UNSUPPORTED = -5,  /**< This driver, platform or agent cannot do that. */
    SANDBOX_NO_MEMORY = -6,    /**< The calling process has no memory left. */
    SANDBOX_UNAVAILABLE = -7,  /**< The platform or the agent did not answer; try again. */
    SANDBOX_TIMED_OUT = -8,    /**< The call's deadline passed. */
    SANDBOX_CANCELLED = -9,    /**< The caller asked to stop. */
    SANDBOX_BUSY = -10,        /**< Another operation holds the workspace; try again later. */
    SANDBOX_INTERRUPTED = -11, /**< The instance is gone (killed, reboot); `reason` "files-lost":
                                      and its files with it, else they are kept. */
    SANDBOX_LIMIT = -12,       /**< A limit was reached: size, count, disk or quota. */
    SANDBOX_UNKNOWN = -13,     /**< It may or may not have happened; look before repeating it. */
    SANDBOX_CLOSED = -14,      /**< The thing is gone: workspace deleted, stream at its end. */
    SANDBOX_CONFLICT = -15,    /**< Somebody else changed it, or it is not ours. */
    SANDBOX_FAILED = -16,      /**< It was tried and did not work; the message says why. */
    SANDBOX_SUSPENDED = -17,   /**< The workspace is suspended; resume or open it, then repeat. */
    SANDBOX_NOT_RESTORED = -18, /**< Not proven to be the same: blocked, the snapshot is kept. */
} sandbox_status;

/** Detail of a failure. 512 bytes, part of the ABI. */
typedef struct sandbox_error {
    sandbox_status status;
    int http_status;      /**< What the platform answered, or 0. */
    int system_error;     /**< An errno value where one is the cause, or 0. */
    int32_t reserved0;
    char reason[48];      /**< A stable word to branch on, like "no-such-file", or "". */
    char driver[16];      /**< Which driver reported it, or "". */
    char process_id[40];  /**< The process it is about (see process.h), or "". */
    char reserved[64];    /**< Zero. */
    char message[328];    /**< One line, UTF-8, no secrets. */
} sandbox_error;

/** The status's name in lower case, as the command line prints it: "not found". Static. */
SANDBOX_API const char *sandbox_status_name(sandbox_status status);

SANDBOX_END_DECLARATIONS

#endif
