/*
 * Processes that a dead agent left behind.
 *
 * An agent is a subreaper, and so is the platform: while an agent lives, whatever its commands
 * start stays below it, setsid and double forks or not; when it dies, all of that becomes the
 * platform's own child. So every child that is not an agent belongs to an instance that is gone,
 * and ends, as the processes of a container end with its first one.
 */

#include "platform.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool read_stat(long pid, char *state, long *parent, unsigned long long *started);

size_t platform_orphans_sweep(void)
{
    DIR *processes = opendir("/proc");
    if (processes == NULL)
        return 0;
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(processes)) != NULL;) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10), parent = 0;
        char state = 0;
        unsigned long long started;
        if (pid <= 0 || *end != '\0' || !read_stat(pid, &state, &parent, &started) ||
            parent != getpid() || platform_is_agent((pid_t)pid))
            continue;
        /* A child that nobody has reaped: the number cannot be anybody else's. */
        kill((pid_t)pid, SIGKILL);
        if (waitpid((pid_t)pid, NULL, WNOHANG) != (pid_t)pid)
            count++;
    }
    closedir(processes);
    return count;
}

uint64_t platform_start_time(pid_t pid)
{
    char state;
    long parent;
    unsigned long long started;
    return read_stat(pid, &state, &parent, &started) ? started : 0;
}

static bool read_stat(long pid, char *state, long *parent, unsigned long long *started)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (size <= 0)
        return false;
    text[size] = '\0';
    /* The name may hold anything, a closing bracket too: the last one ends it. */
    const char *after = strrchr(text, ')');
    return after != NULL &&
           sscanf(
               after + 1,
               " %c %ld %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               state, parent, started) == 3;
}
