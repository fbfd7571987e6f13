/* gRPC status numbers and ours: one table each way. */

#include "agent/session.h"
#include <string.h>

sandbox_status sbx_status_of_grpc(unsigned grpc_status, const char *reason)
{
    switch (grpc_status) {
    case 0:
        return SANDBOX_OK;
    case 1:
        return SANDBOX_CANCELLED;
    case 3:
    case 11:
        return SANDBOX_INVALID;
    case 4:
        return SANDBOX_TIMED_OUT;
    case 5:
        return SANDBOX_NOT_FOUND;
    case 6:
        return SANDBOX_EXISTS;
    case 7:
    case 16:
        return SANDBOX_DENIED;
    case 8:
        return SANDBOX_LIMIT;
    case 9:
        if (strcmp(reason, "ended") == 0)
            return SANDBOX_CLOSED;
        return strcmp(reason, "not-opened") == 0 ? SANDBOX_UNAVAILABLE : SANDBOX_FAILED;
    case 10:
        return SANDBOX_CONFLICT;
    case 12:
        return SANDBOX_UNSUPPORTED;
    case 14:
        return SANDBOX_UNAVAILABLE;
    default:
        return SANDBOX_FAILED;
    }
}

unsigned sbx_grpc_of_status(sandbox_status status)
{
    switch (status) {
    case SANDBOX_OK:
        return 0;
    case SANDBOX_CANCELLED:
        return 1;
    case SANDBOX_UNKNOWN:
        return 2;
    case SANDBOX_INVALID:
        return 3;
    case SANDBOX_TIMED_OUT:
        return 4;
    case SANDBOX_NOT_FOUND:
        return 5;
    case SANDBOX_EXISTS:
        return 6;
    case SANDBOX_DENIED:
        return 7;
    case SANDBOX_LIMIT:
    case SANDBOX_NO_MEMORY:
        return 8;
    case SANDBOX_CLOSED:
        return 9;
    case SANDBOX_CONFLICT:
        return 10;
    case SANDBOX_UNSUPPORTED:
        return 12;
    case SANDBOX_BUSY:
    case SANDBOX_INTERRUPTED:
    case SANDBOX_UNAVAILABLE:
    case SANDBOX_SUSPENDED:
    case SANDBOX_NOT_RESTORED:
        return 14;
    case SANDBOX_FAILED:
        return 13;
    }
    return 13;
}

/* The gate was shut by a suspend, or was opened with another epoch since. */
bool sbx_status_is_refusal(sandbox_status status, const char *reason)
{
    return (status == SANDBOX_CONFLICT && strcmp(reason, "stale-epoch") == 0) ||
           (status == SANDBOX_UNAVAILABLE && strcmp(reason, "suspending") == 0);
}
