/* The same work without the library. */

#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS_MAX 4
#define PIPE_BYTES    (1 << 20)

static char memory[256u << 10];

struct bench_relay bench_relay_start(const struct bench_peer *peer, const char *const *argv)
{
    int down[2], up[2];
    if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0)
        bench_fail("pipes", strerror(errno));
    /* As large as the library's own. */
    (void)fcntl(down[1], F_SETPIPE_SZ, PIPE_BYTES);
    (void)fcntl(up[1], F_SETPIPE_SZ, PIPE_BYTES);
    char root[4200];
    snprintf(root, sizeof root, "--root=%s", peer->root);
    const char *words[8 + ARGUMENTS_MAX] = {peer->runsc, root,     "--log=/dev/null", "exec",
                                            "--user=0:0", "--cwd=/", peer->id};
    for (int each = 0; each < ARGUMENTS_MAX && argv[each] != NULL; each++)
        words[7 + each] = argv[each];
    pid_t pid = fork();
    if (pid == 0) {
        if (dup2(down[0], 0) < 0 || dup2(up[1], 1) < 0)
            _exit(126);
        execv(words[0], (char *const *)(uintptr_t)words);
        _exit(127);
    }
    close(down[0]);
    close(up[1]);
    if (pid < 0)
        bench_fail("runsc", strerror(errno));
    return (struct bench_relay){pid, down[1], up[0]};
}

void bench_relay_end(struct bench_relay *relay)
{
    int state = 0;
    if (relay->input >= 0)
        close(relay->input);
    close(relay->output);
    waitpid(relay->pid, &state, 0);
    relay->pid = 0;
}

double bench_peer_command(const struct bench_peer *peer)
{
    const char *const argv[] = {"/bin/true", NULL};
    double began = bench_now();
    struct bench_relay relay = bench_relay_start(peer, argv);
    int state = 0;
    waitpid(relay.pid, &state, 0);
    double took = bench_now() - began;
    close(relay.input);
    close(relay.output);
    if (!WIFEXITED(state) || WEXITSTATUS(state) != 0)
        bench_fail("runsc exec /bin/true", "it does not end with 0");
    return took;
}

double bench_relay_trips(struct bench_relay *relay, int count)
{
    char byte = 'x';
    double began = bench_now();
    for (int each = 0; each < count; each++) {
        if (write(relay->input, &byte, 1) != 1 || read(relay->output, &byte, 1) != 1)
            bench_fail("the raw relay", "it does not answer");
    }
    return bench_now() - began;
}

double bench_peer_give(const struct bench_peer *peer, size_t bytes)
{
    char number[32];
    snprintf(number, sizeof number, "%zu", bytes);
    const char *const argv[] = {BENCH_ECHO, "give", number, NULL};
    struct bench_relay relay = bench_relay_start(peer, argv);
    double began = 0;
    size_t got = 0;
    for (;;) {
        ssize_t size = read(relay.output, memory, sizeof memory);
        if (size <= 0)
            break;
        if (got == 0)
            began = bench_now();
        got += (size_t)size;
    }
    double took = bench_now() - began;
    bench_relay_end(&relay);
    if (got != bytes)
        bench_fail("the raw relay", "bytes are missing");
    return took;
}

double bench_peer_take(const struct bench_peer *peer, size_t bytes, const char *path)
{
    const char *const argv[] = {BENCH_ECHO, path == NULL ? "take" : "store", path, NULL};
    struct bench_relay relay = bench_relay_start(peer, argv);
    /* The first byte waits until the program runs: the pipe is filled before the clock starts. */
    size_t sent = 0;
    while (sent < bytes && sent < PIPE_BYTES / 2) {
        ssize_t size = write(relay.input, memory, sizeof memory);
        if (size <= 0)
            bench_fail("the raw relay", "it takes nothing");
        sent += (size_t)size;
    }
    struct pollfd room = {relay.input, POLLOUT, 0};
    poll(&room, 1, 10000);
    double began = bench_now();
    while (sent < bytes) {
        size_t left = bytes - sent;
        ssize_t size = write(relay.input, memory, left < sizeof memory ? left : sizeof memory);
        if (size <= 0)
            bench_fail("the raw relay", "it takes no more");
        sent += (size_t)size;
    }
    close(relay.input);
    relay.input = -1;
    char byte;
    bool answered = read(relay.output, &byte, 1) == 1;
    double took = bench_now() - began;
    bench_relay_end(&relay);
    if (!answered)
        bench_fail("the raw relay", "it does not answer at the end");
    return took;
}
