/* What the parts of the measurement share. */
#ifndef BENCH_H
#define BENCH_H

#include <sandbox/sandbox.h>
#include <sys/types.h>

/* How to reach the workspace without the library. */
struct bench_peer {
    const char *runsc, *root, *id;
};

/* A raw relay: `runsc exec` of the echo program, its streams on pipes of ours. */
struct bench_relay {
    pid_t pid;
    int input, output; /* what it reads, what it writes */
};

double bench_now(void); /* seconds */
/* Stops with a sentence. */
_Noreturn void bench_fail(const char *what, const char *why);
void bench_check(sandbox_status status, const sandbox_error *error, const char *what);

/* ---- peers.c ---- */

/* `argv` runs inside; NULL-terminated, at most four. */
struct bench_relay bench_relay_start(const struct bench_peer *peer, const char *const *argv);
void bench_relay_end(struct bench_relay *relay);
/* Seconds that `runsc exec … /bin/true` takes. */
double bench_peer_command(const struct bench_peer *peer);
/* Seconds that starting and reaping /bin/true takes on this machine, outside. */
double bench_spawn_here(void);
/* How the bytes without the library go. */
enum bench_way {
    BENCH_STRAIGHT, /* the program's own streams are the pipes of `runsc exec`: the floor */
    BENCH_RELAYED,  /* through the agent's relay and a Unix socket, as the library's do: the peer */
    BENCH_PIPED,    /* the same, from a process behind a pipe, as a command's do */
};
/* One that sends every byte back. */
struct bench_relay bench_peer_echo(const struct bench_peer *peer, enum bench_way way);
/* Seconds for `count` times one byte there and back. */
double bench_relay_trips(struct bench_relay *relay, int count);
/* Seconds from the first to the last byte. */
double bench_peer_give(const struct bench_peer *peer, enum bench_way way, size_t bytes);
/* Seconds from the first byte to the answer. `path` NULL: nothing is stored. */
double bench_peer_take(const struct bench_peer *peer, enum bench_way way, size_t bytes,
                       const char *path);

/* ---- figures.c ---- */

void bench_commands(sandbox_workspace *workspace, const struct bench_peer *peer, int rounds);
void bench_trips(sandbox_workspace *workspace, const struct bench_peer *peer, int rounds);
void bench_output(sandbox_workspace *workspace, const struct bench_peer *peer, int rounds);
void bench_input(sandbox_workspace *workspace, const struct bench_peer *peer, int rounds);
void bench_upload(sandbox_workspace *workspace, const struct bench_peer *peer, int rounds);
/* After bench_upload(), whose file it reads. */
void bench_download(sandbox_workspace *workspace, const struct bench_peer *peer, int rounds);

/* ---- sleep.c ---- */

/* Suspend and resume with so much dirty memory; `place` is a directory for the peer. */
void bench_sleep(sandbox_client *client, const char *runsc, const char *echo, const char *place,
                 unsigned mib, int rounds);

/* One line for tools/bench: the median of each, or one number. */
void bench_print_three(const char *name, double *ours, double *peers, double *floors, int count);
void bench_print(const char *name, double value);

#define BENCH_ECHO "/workspace/bench-echo"
#define BENCH_RELAY "/.sandbox/sandbox-agent"
#define BENCH_SOCKET "/tmp/bench.socket"
#define BENCH_BYTES ((size_t)128 << 20)
#define BENCH_TRIPS 200

#endif
