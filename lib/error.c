/* The statuses' names. */

#include <sandbox/error.h>

const char *sandbox_status_name(sandbox_status status)
{
    switch (status) {
    case SANDBOX_OK:
        return "ok";
    case SANDBOX_INVALID:
        return "invalid";
    case SANDBOX_NOT_FOUND:
        return "not found";
    case SANDBOX_EXISTS:
        return "exists";
    case SANDBOX_DENIED:
        return "denied";
    case SANDBOX_UNSUPPORTED:
        return "unsupported";
    case SANDBOX_NO_MEMORY:
        return "no memory";
    case SANDBOX_UNAVAILABLE:
        return "unavailable";
    case SANDBOX_TIMED_OUT:
        return "timed out";
    case SANDBOX_CANCELLED:
        return "cancelled";
    case SANDBOX_BUSY:
        return "busy";
    case SANDBOX_INTERRUPTED:
        return "interrupted";
    case SANDBOX_LIMIT:
        return "limit";
    case SANDBOX_UNKNOWN:
        return "unknown";
    case SANDBOX_CLOSED:
        return "closed";
    case SANDBOX_CONFLICT:
        return "conflict";
    case SANDBOX_FAILED:
        return "failed";
    case SANDBOX_SUSPENDED:
        return "suspended";
    case SANDBOX_NOT_RESTORED:
        return "not restored";
    }
    return "?";
}
