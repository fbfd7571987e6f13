/* Which version of the library this is. */

#include <sandbox/version.h>

const char *sandbox_version(void)
{
    return SANDBOX_VERSION;
}
