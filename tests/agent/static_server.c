/* A server that no preloaded library reaches: to be linked statically. Says "ready" and serves. */

#include <netinet/in.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>

int main(void)
{
    int set = epoll_create1(EPOLL_CLOEXEC), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct epoll_event event = {.events = EPOLLIN};
    if (set < 0 || fd < 0 || listen(fd, 16) != 0 || epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0)
        return 1;
    puts("ready");
    fflush(stdout);
    while (epoll_wait(set, &event, 1, -1) <= 0)
        continue;
    return 0;
}
