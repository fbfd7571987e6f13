/* Leaving whoever has started the proxy: see detach.h. */

#include "detach.h"
#include "settings.h"
#include "util/memory.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int word = -1; /* where the parent listens */

static void await_child(pid_t child, int from);

bool detach_begin(void)
{
    int ends[2];
    if (!settings.detach)
        return true;
    if (pipe2(ends, O_CLOEXEC) < 0) {
        perror("sandbox-egress-proxy: --detach");
        return false;
    }
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        perror("sandbox-egress-proxy: --detach");
        return false;
    }
    if (child > 0) {
        close(ends[1]);
        await_child(child, ends[0]);
    }
    close(ends[0]);
    word = ends[1];
    setsid();
    return true;
}

static void await_child(pid_t child, int from)
{
    char byte;
    int status = 0;
    if (read(from, &byte, 1) == 1)
        _exit(0);
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
        _exit(1);
    _exit(WEXITSTATUS(status));
}

void detach_done(void)
{
    if (word < 0)
        return;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; null >= 0 && fd < 3; fd++)
        (void)dup2(null, fd);
    if (null > 2)
        close(null);
    (void)!chdir("/");
    (void)!write(word, "", 1);
    sbx_close_fd(&word);
}
