/**
 * The library's log: silent until a hook is set.
 *
 * The library logs what it decided and cannot return: retries, things left behind, slow
 * answers. A failure that is returned is not logged. Lines hold no secrets and no output of
 * commands.
 */
#ifndef SANDBOX_LOG_H
#define SANDBOX_LOG_H

#include <sandbox/export.h>

SANDBOX_BEGIN_DECLARATIONS

typedef enum sandbox_log_level {
    SANDBOX_LOG_OFF = 0,
    SANDBOX_LOG_ERROR = 1,
    SANDBOX_LOG_WARNING = 2,
    SANDBOX_LOG_INFO = 3,
    SANDBOX_LOG_DEBUG = 4,
} sandbox_log_level;

/**
 * Takes one line without a newline. Called from any thread, possibly several at once, and from
 * the client's own I/O thread: it must return soon and must not call the library.
 */
typedef void (*sandbox_log_function)(sandbox_log_level level, const char *line, void *user_data);

/**
 * Set the one hook of this process, or NULL for silence. Any thread. A call of the former hook
 * that is under way on another thread may still end after this returns.
 *
 * @param level  the most talkative level wanted
 */
SANDBOX_API void sandbox_set_log(sandbox_log_level level, sandbox_log_function function,
                                 void *user_data);

SANDBOX_END_DECLARATIONS

#endif
