/*
 * A seal file (programs/agent/seal_file.c), as a fresh agent finds it among files that were kept
 * elsewhere. Whatever is taken for one is exactly what the agent would have written.
 */

#include "seal_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[] = "/tmp/sandbox-fuzz.XXXXXX";
static char path[sizeof folder + 8];

static void remove_folder(void)
{
    unlink(path);
    rmdir(folder);
}

static void start(void)
{
    if (mkdtemp(folder) == NULL)
        abort();
    snprintf(path, sizeof path, "%s/seal", folder);
    atexit(remove_folder);
}

static void put(const uint8_t *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    close(fd);
}

static size_t get(uint8_t *room, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, room, size);
    if (got < 0)
        abort();
    close(fd);
    return (size_t)got;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool started;
    if (!started)
        start();
    started = true;

    struct agent_seal seal;
    uint8_t again[1024];
    put(data, size);
    if (agent_seal_read(path, &seal) != 0)
        return 0;
    if (agent_seal_write(path, &seal) != 0 || get(again, sizeof again) != size ||
        memcmp(again, data, size) != 0)
        abort();
    return 0;
}
