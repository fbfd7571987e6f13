/*
 * What the library is measured against: a program that moves bytes and does nothing else, run in
 * the same sandbox. By itself, its streams on the pipes of `runsc exec`, it is the floor; behind
 * the agent's own relay it is the peer: the same way as the library's bytes, without a protocol.
 * Like anything that serves more than one connection, it asks poll() before it reads.
 *
 *     echo [COMMAND]       over the standard streams
 *     echo serve SOCKET    for every connection, the COMMAND being its first line
 *     echo hold N          fills N MiB of memory with what cannot be compressed, says so, sleeps
 *
 * COMMAND: nothing, or "echo": sends every byte back. "give N": writes N bytes. "take N": reads
 * N bytes, then writes one. "store N PATH": likewise, into a file, and makes it durable.
 * "pipe-give N" and "pipe-take N": the same, but by another process behind a pipe, as a command
 * stands behind the agent.
 */

#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char memory[256u << 10];

static bool write_all(int fd, size_t size)
{
    for (size_t sent = 0; sent < size;) {
        ssize_t more = write(fd, memory + sent, size - sent);
        if (more <= 0)
            return false;
        sent += (size_t)more;
    }
    return true;
}

static ssize_t read_ready(int fd, void *block, size_t size)
{
    struct pollfd watched = {fd, POLLIN, 0};
    return poll(&watched, 1, -1) == 1 ? read(fd, block, size) : -1;
}

static bool give(int out, unsigned long long left)
{
    while (left > 0) {
        size_t size = left < sizeof memory ? (size_t)left : sizeof memory;
        if (!write_all(out, size))
            return false;
        left -= size;
    }
    return true;
}

/* As many bytes as are wanted, into `file`, or nowhere if that is -1. */
static bool take(int in, int out, unsigned long long left, int file)
{
    while (left > 0) {
        ssize_t size = read_ready(in, memory, sizeof memory);
        if (size <= 0 || (file >= 0 && !write_all(file, (size_t)size)))
            return false;
        left -= (unsigned long long)size < left ? (unsigned long long)size : left;
    }
    return (file < 0 || fsync(file) == 0) && write(out, "x", 1) == 1;
}

static bool echo(int in, int out)
{
    ssize_t size;
    while ((size = read_ready(in, memory, sizeof memory)) > 0) {
        if (!write_all(out, (size_t)size))
            return false;
    }
    return size == 0;
}

static void carry(int from, int to)
{
    static char block[1u << 20];
    ssize_t size;
    while ((size = read_ready(from, block, sizeof block)) > 0) {
        for (ssize_t sent = 0, more; sent < size; sent += more) {
            more = write(to, block + sent, (size_t)(size - sent));
            if (more <= 0)
                return;
        }
    }
}

/* A child does the work; we carry its bytes between a pipe and the socket. */
static bool behind_pipe(bool gives, unsigned long long count, int in, int out)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    (void)fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
    pid_t pid = fork();
    if (pid == 0) {
        close(gives ? ends[0] : ends[1]);
        _exit((gives ? give(ends[1], count) : take(ends[0], out, count, -1)) ? 0 : 1);
    }
    if (gives) {
        close(ends[1]);
        carry(ends[0], out);
        close(ends[0]);
    } else {
        close(ends[0]);
        for (unsigned long long left = count; left > 0;) {
            static char block[1u << 20];
            ssize_t size = read_ready(in, block, sizeof block);
            if (size <= 0 || write(ends[1], block, (size_t)size) != size)
                break;
            left -= (unsigned long long)size < left ? (unsigned long long)size : left;
        }
        close(ends[1]);
    }
    return waitpid(pid, NULL, 0) == pid;
}

static bool obey(const char *line, int in, int out)
{
    char word[16] = "echo", path[256];
    unsigned long long count = 0;
    int fields = sscanf(line, "%15s %llu %255s", word, &count, path);
    if (strcmp(word, "echo") == 0)
        return echo(in, out);
    if (strcmp(word, "give") == 0)
        return give(out, count);
    if (strcmp(word, "take") == 0)
        return take(in, out, count, -1);
    if (strncmp(word, "pipe-", 5) == 0)
        return behind_pipe(strcmp(word, "pipe-give") == 0, count, in, out);
    if (strcmp(word, "store") != 0 || fields != 3)
        return false;
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool stored = file >= 0 && take(in, out, count, file);
    close(file);
    return stored;
}

static int serve(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), size = 1 << 20;
    unlink(path);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 8) != 0 || write(1, "ready\n", 6) != 6)
        return 1;
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            return 1;
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        char line[300];
        size_t used = 0;
        while (used + 1 < sizeof line && read(fd, line + used, 1) == 1 && line[used] != '\n')
            used++;
        line[used] = '\0';
        (void)obey(line, fd, fd);
        close(fd);
    }
}

/* What the kernel gives is not to be found twice, nor packed. */
static int hold(size_t size)
{
    unsigned long long *block = malloc(size), value = 88172645463325252ull;
    if (block == NULL)
        return 1;
    for (size_t at = 0; at < size / sizeof *block; at++) {
        value ^= value << 13;
        value ^= value >> 7;
        value ^= value << 17;
        block[at] = value;
    }
    if (write(1, "held\n", 5) != 5)
        return 1;
    for (;;)
        pause();
}

int main(int argument_count, char **arguments)
{
    if (argument_count == 3 && strcmp(arguments[1], "hold") == 0)
        return hold(strtoull(arguments[2], NULL, 10) << 20);
    if (argument_count == 3 && strcmp(arguments[1], "serve") == 0)
        return serve(arguments[2]);
    char line[300] = "";
    for (int each = 1; each < argument_count; each++) {
        size_t used = strlen(line);
        snprintf(line + used, sizeof line - used, "%s ", arguments[each]);
    }
    return obey(line, 0, 1) ? 0 : 1;
}
