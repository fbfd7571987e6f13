/*
 * A library that is preloaded into every program of a workspace whose gVisor is older than the
 * programs: the sentry of 2022 answers EINVAL to statx() with AT_NO_AUTOMOUNT, which coreutils
 * always give. There are no automounts inside, so leaving the flag out changes nothing. The other
 * thing that it mends is in park.c.
 *
 * It stands alone: no C library is linked, so that it loads into programs of any age, and little is
 * asked of whichever is there: the address of errno, and to set a signal handler.
 */

#include "kernel.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define SHIM_AT_NO_AUTOMOUNT 0x800

__attribute__((visibility("default"))) int statx(int directory, const char *restrict path,
                                                 int flags, unsigned mask,
                                                 struct statx *restrict out)
{
    long result = kernel_call(SYS_statx, directory, kernel_address(path),
                              flags & ~SHIM_AT_NO_AUTOMOUNT, (long)mask, kernel_address(out));
    if (result >= 0)
        return (int)result;
    errno = (int)-result;
    return -1;
}
