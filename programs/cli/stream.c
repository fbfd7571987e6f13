/* Standard streams: bytes as they are, and no wait that a signal to the command cannot end. */

#include "stream.h"

#include "signals.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

enum cli_wrote cli_stream_write(int fd, const void *data, size_t data_size)
{
    /* A pipe or terminal that poll() calls writable takes that much without a wait. */
    struct stat about;
    size_t most = fstat(fd, &about) == 0 && S_ISREG(about.st_mode) ? data_size : PIPE_BUF;
    const char *next = data;
    while (data_size > 0) {
        struct pollfd watched[2] = {{fd, POLLOUT, 0}, {cli_signals_descriptor(), POLLIN, 0}};
        if (poll(watched, 2, -1) < 0 && errno != EINTR)
            return CLI_WROTE_NOTHING;
        if (watched[1].revents != 0 && cli_signals_received() != 0)
            return CLI_WROTE_STOPPED;
        if (watched[0].revents == 0)
            continue;
        ssize_t wrote = write(fd, next, data_size < most ? data_size : most);
        if (wrote < 0 && errno == EPIPE)
            return CLI_WROTE_BROKEN;
        if (wrote < 0 && errno != EINTR && errno != EAGAIN)
            return CLI_WROTE_NOTHING;
        next += wrote > 0 ? wrote : 0;
        data_size -= wrote > 0 ? (size_t)wrote : 0;
    }
    return CLI_WROTE_ALL;
}

ssize_t cli_stream_read(int fd, int stop, void *data, size_t data_size)
{
    for (;;) {
        struct pollfd watched[2] = {{fd, POLLIN, 0}, {stop, POLLIN, 0}};
        if (poll(watched, 2, -1) < 0) {
            if (errno != EINTR)
                return -1;
            continue;
        }
        if (watched[1].revents != 0) {
            errno = ECANCELED;
            return -1;
        }
        if ((watched[0].revents & POLLNVAL) != 0)
            return 0;
        ssize_t got = read(fd, data, data_size);
        if (got >= 0 || (errno != EINTR && errno != EAGAIN))
            return got;
    }
}
