/* Where the agent listens. */

#include "address.h"
#include "util/memory.h"
#include <errno.h>
#include <stddef.h>
#include <string.h>

bool agent_address_read(const char *text, struct sockaddr_un *out, socklen_t *size)
{
    size_t length = strlen(text);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (length >= sizeof out->sun_path)
        return false;
    memcpy(out->sun_path, text, length);
    *size = sizeof *out;
    if (!agent_address_is_path(text)) {
        out->sun_path[0] = '\0';
        /* All bytes that are given are the name. */
        *size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    }
    return true;
}

bool agent_address_is_path(const char *text)
{
    return text[0] != '@';
}

int agent_address_connect(const char *text)
{
    struct sockaddr_un address;
    socklen_t size;
    if (!agent_address_read(text, &address, &size)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    SBX_ON_EXIT(sbx_close_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, size) != 0)
        return -1;
    return sbx_take_fd(&fd);
}
