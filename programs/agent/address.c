/* Where the agent listens. */

#include "address.h"
#include "util/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

bool agent_address_beside(const char *text, char beside[sizeof((struct sockaddr_un *)0)->sun_path])
{
    size_t size = sizeof((struct sockaddr_un *)0)->sun_path;
    return (size_t)snprintf(beside, size, "%s.streams", text) < size;
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

static bool make_directory_of(const char *path)
{
    char parent[sizeof((struct sockaddr_un *)0)->sun_path];
    snprintf(parent, sizeof parent, "%s", path);
    for (char *at = parent + 1; *at != '\0'; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        if (mkdir(parent, 0755) != 0 && errno != EEXIST)
            return false;
        *at = '/';
    }
    return true;
}

/* A socket that nobody answers on is left over from an agent that was killed. */
static bool is_stale(const char *path)
{
    struct stat facts;
    if (lstat(path, &facts) != 0 || !S_ISSOCK(facts.st_mode))
        return false;
    SBX_ON_EXIT(sbx_close_fd) int fd = agent_address_connect(path);
    return fd < 0 && errno == ECONNREFUSED;
}

int agent_address_bind(const char *path)
{
    struct sockaddr_un address;
    socklen_t size;
    if (!agent_address_read(path, &address, &size)) {
        fprintf(stderr, "sandbox-agent: the socket's path is longer than %zu bytes\n",
                sizeof address.sun_path - 1);
        return -1;
    }
    if (agent_address_is_path(path) && !make_directory_of(path)) {
        fprintf(stderr, "sandbox-agent: cannot make the directory of '%s': %s\n", path,
                strerror(errno));
        return -1;
    }
    if (agent_address_is_path(path) && is_stale(path))
        unlink(path);
    SBX_ON_EXIT(sbx_close_fd)
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t old = umask(0177);
    bool bound = fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0;
    int number = errno;
    umask(old);
    if (!bound) {
        fprintf(stderr, "sandbox-agent: cannot bind '%s': %s\n", path, strerror(number));
        return -1;
    }
    return sbx_take_fd(&fd);
}
