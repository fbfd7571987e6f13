/* Where our own programs are. */

#include "util/place.h"
#include "util/fail.h"
#include "util/memory.h"
#include <dlfcn.h>
#include <unistd.h>

/* Build tree first: a developer's library must not find the installed agent. */
static const char *const beside_library[] = {
    "/../programs/agent/",
    "/../programs/memory-platform/",
    "/../programs/shim/",
    "/../programs/egress-proxy/",
    "/../programs/egress-carrier/",
    "/../../programs/agent/",
    "/../../programs/memory-platform/",
    "/../../programs/shim/",
    "/../../programs/egress-proxy/",
    "/../../programs/egress-carrier/",
    "/libsandbox/",
    "/../libexec/libsandbox/",
    "/../../libexec/libsandbox/",
    "/../bin/",
    "/../../bin/",
};

static char *library_directory(void);

sandbox_status sbx_place_find(const char *name, char **path, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *directory = library_directory();
    size_t places = sizeof beside_library / sizeof beside_library[0];
    for (size_t n = 0; n <= places; n++) {
        if (n < places && directory == NULL)
            continue;
        SBX_ON_EXIT(sbx_free_text)
        char *candidate = n < places ? sbx_format("%s%s%s", directory, beside_library[n], name)
                                     : sbx_format("%s/%s", SBX_HELPER_DIRECTORY, name);
        if (candidate == NULL)
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a path");
        char *real = realpath(candidate, NULL);
        if (real != NULL) {
            *path = real;
            return SANDBOX_OK;
        }
    }
    return sbx_fail_for(error, SANDBOX_NOT_FOUND, "no-helper",
                        "'%s' is not installed; it belongs in %s", name, SBX_HELPER_DIRECTORY);
}

/* Of the shared library, or of the program where the library is linked in. */
static char *library_directory(void)
{
    Dl_info info;
    if (dladdr((const void *)&beside_library, &info) == 0 || info.dli_fname == NULL)
        return NULL;
    char *real = realpath(info.dli_fname, NULL);
    if (real == NULL)
        real = realpath("/proc/self/exe", NULL);
    char *slash = real == NULL ? NULL : strrchr(real, '/');
    if (slash != NULL)
        *slash = '\0';
    return real;
}
