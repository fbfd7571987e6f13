/*
 * The floor that the library is measured against: a program that moves bytes between its standard
 * streams and does nothing else, run in the same sandbox by `runsc exec`.
 *
 *     echo             sends every byte back
 *     echo give N      writes N bytes
 *     echo take        reads to the end, then writes one byte
 *     echo store PATH  likewise, into a file, and makes it durable
 */

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
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

static int give(unsigned long long left)
{
    while (left > 0) {
        size_t size = left < sizeof memory ? (size_t)left : sizeof memory;
        if (!write_all(1, size))
            return 1;
        left -= size;
    }
    return 0;
}

/* Into `fd`, or nowhere if that is -1. */
static int take(int fd, bool echoes)
{
    for (;;) {
        ssize_t size = read(0, memory, sizeof memory);
        if (size < 0 || (size > 0 && fd >= 0 && !write_all(fd, (size_t)size)))
            return 1;
        if (size == 0)
            break;
    }
    if (echoes)
        return 0;
    if (fd >= 0 && fsync(fd) != 0)
        return 1;
    return write(1, "x", 1) == 1 ? 0 : 1;
}

int main(int argument_count, char **arguments)
{
    if (argument_count == 1)
        return take(1, true);
    if (argument_count == 3 && strcmp(arguments[1], "give") == 0)
        return give(strtoull(arguments[2], NULL, 10));
    if (argument_count == 2 && strcmp(arguments[1], "take") == 0)
        return take(-1, false);
    if (argument_count == 3 && strcmp(arguments[1], "store") == 0) {
        int fd = open(arguments[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        return fd < 0 ? 1 : take(fd, false);
    }
    return 2;
}
