/* The same work without the library. */

#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
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

double bench_spawn_here(void)
{
    char *const argv[] = {(char *)(uintptr_t)"/bin/true", NULL};
    pid_t pid = 0;
    double began = bench_now();
    if (posix_spawn(&pid, argv[0], NULL, NULL, argv, NULL) != 0 || waitpid(pid, NULL, 0) != pid)
        bench_fail("/bin/true", "it cannot be started here");
    return bench_now() - began;
}

/* The same bytes without the library: straight (the floor), or behind the agent's relay. */
static struct bench_relay begin(const struct bench_peer *peer, enum bench_way way,
                                const char *command)
{
    char words[300];
    snprintf(words, sizeof words, "%s", command);
    const char *straight[ARGUMENTS_MAX + 1] = {BENCH_ECHO};
    const char *const relayed[] = {BENCH_RELAY, "relay", BENCH_SOCKET, NULL};
    char *rest = words;
    for (int each = 1; each < ARGUMENTS_MAX; each++) {
        straight[each] = strsep(&rest, " ");
        if (straight[each] == NULL)
            break;
    }
    struct bench_relay relay =
        bench_relay_start(peer, way == BENCH_STRAIGHT ? straight : relayed);
    size_t size = strlen(command);
    if (way != BENCH_STRAIGHT && (write(relay.input, command, size) != (ssize_t)size ||
                                 write(relay.input, "\n", 1) != 1))
        bench_fail("the raw relay", "it takes no command");
    return relay;
}

struct bench_relay bench_peer_echo(const struct bench_peer *peer, enum bench_way way)
{
    return begin(peer, way, "echo");
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

double bench_peer_give(const struct bench_peer *peer, enum bench_way way, size_t bytes)
{
    char command[64];
    snprintf(command, sizeof command, "%s %zu", way == BENCH_PIPED ? "pipe-give" : "give", bytes);
    struct bench_relay relay = begin(peer, way, command);
    double began = 0;
    size_t got = 0;
    while (got < bytes) {
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

double bench_peer_take(const struct bench_peer *peer, enum bench_way way, size_t bytes,
                       const char *path)
{
    char command[300], byte;
    const char *word = path != NULL ? "store" : way == BENCH_PIPED ? "pipe-take" : "take";
    snprintf(command, sizeof command, "%s %zu %s", word, bytes, path == NULL ? "" : path);
    struct bench_relay relay = begin(peer, way, command);
    /* The first bytes wait until the program runs: the pipe is filled before the clock starts. */
    size_t sent = 0;
    while (sent < PIPE_BYTES / 2) {
        ssize_t size = write(relay.input, memory, sizeof memory);
        if (size <= 0)
            bench_fail("the raw relay", "it takes nothing");
        sent += (size_t)size;
    }
    for (int left = 1; left > 0;) {
        if (ioctl(relay.input, FIONREAD, &left) != 0)
            break;
        if (left < PIPE_BYTES / 2)
            break;
        poll(NULL, 0, 1);
    }
    double began = bench_now();
    while (sent < bytes) {
        size_t left = bytes - sent;
        ssize_t size = write(relay.input, memory, left < sizeof memory ? left : sizeof memory);
        if (size <= 0)
            bench_fail("the raw relay", "it takes no more");
        sent += (size_t)size;
    }
    bool answered = read(relay.output, &byte, 1) == 1;
    double took = bench_now() - began;
    bench_relay_end(&relay);
    if (!answered)
        bench_fail("the raw relay", "it does not answer at the end");
    return took;
}
