/* Byte channels to an agent: made over a socket, and ended with whoever carries them. */

#include "transport/channel.h"
#include "transport/undertaker.h"
#include "util/fail.h"
#include "util/memory.h"
#include "util/wait.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

static void wait_for_end(const struct sbx_child *relay);
static sandbox_status connect_socket(int fd, const struct sockaddr_un *address,
                                     const struct sbx_wait *wait, sandbox_error *error);

void sbx_channel_end(struct sbx_channel *channel)
{
    sbx_channel_close(channel);
    if (channel->relay.pid > 0) {
        wait_for_end(&channel->relay);
        sbx_child_end(&channel->relay);
    }
    sbx_close_fd(&channel->lock_fd);
}

void sbx_channel_close(struct sbx_channel *channel)
{
    if (channel->read_fd == channel->write_fd)
        channel->read_fd = -1;
    sbx_close_fd(&channel->read_fd);
    sbx_close_fd(&channel->write_fd);
}

sandbox_status sbx_channel_connect_unix(struct sbx_channel *channel, const char *path,
                                        const struct sbx_wait *wait, sandbox_error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return sbx_fail(error, SANDBOX_INVALID,
                        "the socket path '%s' is longer than the %zu bytes a socket may have", path,
                        sizeof address.sun_path - 1);
    memcpy(address.sun_path, path, strlen(path));

    SBX_ON_EXIT(sbx_close_fd)
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return sbx_fail_errno(error, errno, "cannot make a socket");
    sandbox_status status = connect_socket(fd, &address, wait, error);
    if (status != SANDBOX_OK)
        return status;
    *channel = (struct sbx_channel)SBX_CHANNEL;
    channel->read_fd = channel->write_fd = sbx_take_fd(&fd);
    return SANDBOX_OK;
}

sandbox_status sbx_channel_connect_tcp(struct sbx_channel *channel, const struct sockaddr *address,
                                       const struct sbx_wait *wait, sandbox_error *error)
{
    socklen_t size =
        address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    SBX_ON_EXIT(sbx_close_fd)
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return sbx_fail(error, SANDBOX_UNAVAILABLE, "%s", strerror(errno));
    int number = connect(fd, address, size) == 0 ? 0 : errno, yes = 1;
    if (number == EINPROGRESS || number == EINTR) {
        sandbox_status status = sbx_wait_descriptor(wait, fd, POLLOUT, error);
        if (status != SANDBOX_OK)
            return status;
        socklen_t number_size = sizeof number;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &number_size) != 0)
            number = errno;
    }
    if (number != 0)
        return sbx_fail(error, SANDBOX_UNAVAILABLE, "%s", strerror(number));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    *channel = (struct sbx_channel)SBX_CHANNEL;
    channel->read_fd = channel->write_fd = sbx_take_fd(&fd);
    return SANDBOX_OK;
}

static void wait_for_end(const struct sbx_child *relay)
{
    struct pollfd watched = {.fd = relay->pidfd, .events = POLLIN};
    while (poll(&watched, 1, SBX_RELAY_PATIENCE_MS) < 0 && errno == EINTR)
        ;
}

/* A full backlog is EAGAIN on a Unix socket, and nothing tells when there is room again. */
static sandbox_status connect_socket(int fd, const struct sockaddr_un *address,
                                     const struct sbx_wait *wait, sandbox_error *error)
{
    while (connect(fd, (const struct sockaddr *)address, sizeof *address) < 0) {
        int number = errno;
        if (number == EISCONN)
            return SANDBOX_OK;
        if (number != EAGAIN && number != EINTR && number != EINPROGRESS)
            return sbx_fail_errno(error, number, "cannot connect to '%s'", address->sun_path);
        sandbox_status status = sbx_wait_pause(wait, 10, error);
        if (status != SANDBOX_OK)
            return status;
    }
    return SANDBOX_OK;
}
