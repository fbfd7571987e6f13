/*
 * Puts this program into a directory, as an init container does: its image holds nothing else, no
 * shell and no cp. The name appears only once the whole program is there.
 */

#include "install.h"
#include "util/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME      "sandbox-agent"
#define TEMPORARY ".sandbox-agent.new"

static int fail(const char *directory)
{
    fprintf(stderr, "sandbox-agent: cannot install itself in '%s': %s\n", directory,
            strerror(errno));
    return 1;
}

int agent_install(const char *directory)
{
    SBX_ON_EXIT(sbx_close_fd) int place = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    SBX_ON_EXIT(sbx_close_fd) int ours = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (place < 0 || ours < 0)
        return fail(directory);
    SBX_ON_EXIT(sbx_close_fd)
    int copy =
        openat(place, TEMPORARY, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0755);
    if (copy < 0)
        return fail(directory);
    ssize_t sent;
    do {
        sent = sendfile(copy, ours, NULL, 1u << 20);
    } while (sent > 0 || (sent < 0 && errno == EINTR));
    if (sent < 0 || fchmod(copy, 0755) < 0 || fsync(copy) < 0 ||
        renameat(place, TEMPORARY, place, NAME) < 0) {
        int code = fail(directory);
        unlinkat(place, TEMPORARY, 0);
        return code;
    }
    return 0;
}
