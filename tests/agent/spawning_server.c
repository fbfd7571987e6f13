/*
 * A server that starts other programs as bun does: its child has its memory until it becomes
 * another program, and puts all signals back before. Counts what it started in the file "count".
 */

#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct sigaction usual = {.sa_handler = SIG_DFL};

static int start_another(void)
{
    pid_t child = vfork();
    if (child == 0) {
        for (int number = 1; number < NSIG; number++)
            (void)sigaction(number, &usual, NULL);
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    int how = -1;
    return child > 0 && waitpid(child, &how, 0) == child ? how : -1;
}

int main(void)
{
    int set = epoll_create1(EPOLL_CLOEXEC), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct epoll_event event = {.events = EPOLLIN};
    if (set < 0 || fd < 0 || listen(fd, 16) != 0 || epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0)
        return 1;
    for (int count = 0; start_another() == 0; count++) {
        FILE *file = fopen("count", "w");
        if (file == NULL || fprintf(file, "%d\n", count) < 0 || fclose(file) != 0)
            return 2;
        (void)epoll_wait(set, &event, 1, 20);
    }
    return 3;
}
