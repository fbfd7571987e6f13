/*
 * Whether an agent answers. Its side of HTTP/2 speaks first, from the loop that serves all calls:
 * its first frame proves that the loop turns. A sealed agent answers too.
 */

#include "health.h"
#include "address.h"
#include "util/memory.h"
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_MS    5000
#define FRAME_HEADER 9u
#define SETTINGS     4

int agent_health(const char *address)
{
    SBX_ON_EXIT(sbx_close_fd) int fd = agent_address_connect(address);
    if (fd < 0) {
        fprintf(stderr, "sandbox-agent: cannot reach the agent at '%s': %s\n", address,
                strerror(errno));
        return 1;
    }
    uint8_t header[FRAME_HEADER];
    for (size_t used = 0; used < sizeof header;) {
        struct pollfd watched = {fd, POLLIN, 0};
        int ready = poll(&watched, 1, ANSWER_MS);
        if (ready < 0 && errno == EINTR)
            continue;
        ssize_t size = ready > 0 ? read(fd, header + used, sizeof header - used) : 0;
        if (size <= 0) {
            fprintf(stderr, "sandbox-agent: the agent at '%s' does not answer\n", address);
            return 1;
        }
        used += (size_t)size;
    }
    if (header[3] != SETTINGS) {
        fprintf(stderr, "sandbox-agent: what answers at '%s' is no agent\n", address);
        return 1;
    }
    return 0;
}
