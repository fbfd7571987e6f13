/* The figures that have a peer: measured in turns with it, so that noise meets both. */

#include "bench.h"
#include "core/session.h"
#include "guard.pb-c.h"

#include <stdio.h>
#include <stdlib.h>

#define ROUNDS_MAX 200

static uint8_t piece[1u << 20];

static double run_true(sandbox_workspace *workspace);
static double make_trips(sandbox_workspace *workspace, int count);
static double read_output(sandbox_workspace *workspace, size_t bytes);
static double write_input(sandbox_workspace *workspace, size_t bytes);
static double write_file(sandbox_workspace *workspace, size_t bytes);
static double read_file(sandbox_workspace *workspace, size_t bytes);

void bench_commands(sandbox_workspace *workspace, const struct bench_peer *peer, int rounds)
{
    double ours[ROUNDS_MAX], peers[ROUNDS_MAX], floors[ROUNDS_MAX];
    run_true(workspace);
    for (int each = 0; each < rounds; each++) {
        ours[each] = run_true(workspace);
        peers[each] = bench_peer_command(peer);
        floors[each] = bench_spawn_here();
    }
    bench_print_three("command", ours, peers, floors, rounds);
}

void bench_trips(sandbox_workspace *workspace, const struct bench_peer *peer, int rounds)
{
    double ours[ROUNDS_MAX], peers[ROUNDS_MAX], floors[ROUNDS_MAX];
    struct bench_relay relayed = bench_peer_echo(peer, BENCH_RELAYED);
    struct bench_relay straight = bench_peer_echo(peer, BENCH_STRAIGHT);
    bench_relay_trips(&relayed, BENCH_TRIPS);
    bench_relay_trips(&straight, BENCH_TRIPS);
    make_trips(workspace, BENCH_TRIPS);
    for (int each = 0; each < rounds; each++) {
        ours[each] = make_trips(workspace, BENCH_TRIPS) / BENCH_TRIPS;
        peers[each] = bench_relay_trips(&relayed, BENCH_TRIPS) / BENCH_TRIPS;
        floors[each] = bench_relay_trips(&straight, BENCH_TRIPS) / BENCH_TRIPS;
    }
    bench_relay_end(&relayed);
    bench_relay_end(&straight);
    bench_print_three("trip", ours, peers, floors, rounds);
}

void bench_output(sandbox_workspace *workspace, const struct bench_peer *peer, int rounds)
{
    double ours[ROUNDS_MAX], peers[ROUNDS_MAX], floors[ROUNDS_MAX];
    for (int each = 0; each < rounds; each++) {
        ours[each] = read_output(workspace, BENCH_BYTES);
        peers[each] = bench_peer_give(peer, BENCH_PIPED, BENCH_BYTES);
        floors[each] = bench_peer_give(peer, BENCH_STRAIGHT, BENCH_BYTES);
    }
    bench_print_three("output", ours, peers, floors, rounds);
}

void bench_input(sandbox_workspace *workspace, const struct bench_peer *peer, int rounds)
{
    double ours[ROUNDS_MAX], peers[ROUNDS_MAX], floors[ROUNDS_MAX];
    for (int each = 0; each < rounds; each++) {
        ours[each] = write_input(workspace, BENCH_BYTES);
        peers[each] = bench_peer_take(peer, BENCH_PIPED, BENCH_BYTES, NULL);
        floors[each] = bench_peer_take(peer, BENCH_STRAIGHT, BENCH_BYTES, NULL);
    }
    bench_print_three("input", ours, peers, floors, rounds);
}

void bench_upload(sandbox_workspace *workspace, const struct bench_peer *peer, int rounds)
{
    double ours[ROUNDS_MAX], peers[ROUNDS_MAX], floors[ROUNDS_MAX];
    for (int each = 0; each < rounds; each++) {
        ours[each] = write_file(workspace, BENCH_BYTES);
        peers[each] =
            bench_peer_take(peer, BENCH_RELAYED, BENCH_BYTES, "/workspace/bench-peer");
        floors[each] =
            bench_peer_take(peer, BENCH_STRAIGHT, BENCH_BYTES, "/workspace/bench-floor");
    }
    bench_print_three("upload", ours, peers, floors, rounds);
}

void bench_download(sandbox_workspace *workspace, const struct bench_peer *peer, int rounds)
{
    double ours[ROUNDS_MAX], peers[ROUNDS_MAX], floors[ROUNDS_MAX];
    for (int each = 0; each < rounds; each++) {
        ours[each] = read_file(workspace, BENCH_BYTES);
        peers[each] = bench_peer_give(peer, BENCH_RELAYED, BENCH_BYTES);
        floors[each] = bench_peer_give(peer, BENCH_STRAIGHT, BENCH_BYTES);
    }
    bench_print_three("download", ours, peers, floors, rounds);
}

static double run_true(sandbox_workspace *workspace)
{
    const char *argv[] = {"/bin/true", NULL};
    const sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .argv = argv};
    sandbox_process_result *result = NULL;
    sandbox_error error;
    double began = bench_now();
    sandbox_status status =
        sandbox_process_run(workspace, &options, NULL, NULL, &result, &error);
    double took = bench_now() - began;
    bench_check(status, &error, "run /bin/true");
    if (result->exit.code != 0)
        bench_fail("/bin/true", "it does not end with 0");
    sandbox_process_result_free(result);
    return took;
}

static double make_trips(sandbox_workspace *workspace, int count)
{
    Sandbox__V1__HealthRequest request = SANDBOX__V1__HEALTH_REQUEST__INIT;
    struct sbx_wait wait = sbx_wait_alone(60000);
    sandbox_error error;
    double began = bench_now();
    for (int each = 0; each < count; each++) {
        ProtobufCMessage *reply = NULL;
        sandbox_status status =
            sbx_workspace_call(workspace, "/sandbox.v1.Guard/Health", &request.base, true,
                               &sandbox__v1__health_reply__descriptor, &wait, &reply, &error);
        bench_check(status, &error, "Health");
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    return bench_now() - began;
}

static double read_output(sandbox_workspace *workspace, size_t bytes)
{
    char number[32];
    snprintf(number, sizeof number, "%zu", bytes);
    const char *argv[] = {BENCH_ECHO, "give", number, NULL};
    const sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .argv = argv};
    sandbox_process *process = NULL;
    sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
    sandbox_error error;
    bench_check(sandbox_process_start(workspace, &options, NULL, &process, &error), &error,
                "start");
    double began = 0;
    size_t got = 0;
    while (event.kind != SANDBOX_PROCESS_EXIT) {
        bench_check(sandbox_process_next(process, NULL, &event, &error), &error, "next");
        if (event.kind != SANDBOX_PROCESS_STDOUT)
            continue;
        if (got == 0)
            began = bench_now();
        got += event.data_size;
    }
    double took = bench_now() - began;
    sandbox_process_free(process);
    if (got != bytes)
        bench_fail("output", "bytes are missing");
    return took;
}

static double write_input(sandbox_workspace *workspace, size_t bytes)
{
    char number[32];
    snprintf(number, sizeof number, "%zu", bytes);
    const char *argv[] = {BENCH_ECHO, "take", number, NULL};
    const sandbox_process_options options = {
        SANDBOX_PROCESS_OPTIONS, .argv = argv, .input = SANDBOX_INPUT_PIPE};
    sandbox_process *process = NULL;
    sandbox_process_exit end;
    sandbox_error error;
    bench_check(sandbox_process_start(workspace, &options, NULL, &process, &error), &error,
                "start");
    double began = bench_now();
    for (size_t sent = 0; sent < bytes; sent += sizeof piece)
        bench_check(sandbox_process_write(process, piece, sizeof piece, NULL, &error), &error,
                    "write");
    bench_check(sandbox_process_wait(process, NULL, &end, &error), &error, "wait");
    double took = bench_now() - began;
    sandbox_process_free(process);
    return took;
}

static double write_file(sandbox_workspace *workspace, size_t bytes)
{
    sandbox_file_writer *writer = NULL;
    sandbox_error error;
    double began = bench_now();
    bench_check(sandbox_file_writer_open(workspace, "bench-ours", NULL, NULL, &writer, &error),
                &error, "open a file");
    for (size_t sent = 0; sent < bytes; sent += sizeof piece)
        bench_check(sandbox_file_writer_write(writer, piece, sizeof piece, NULL, &error), &error,
                    "write a file");
    bench_check(sandbox_file_writer_commit(writer, NULL, &error), &error, "commit a file");
    double took = bench_now() - began;
    sandbox_file_writer_free(writer);
    return took;
}

/* The one that write_file() left. */
static double read_file(sandbox_workspace *workspace, size_t bytes)
{
    sandbox_file_reader *reader = NULL;
    sandbox_error error;
    const uint8_t *data = NULL;
    size_t size = 1, got = 0;
    double began = bench_now();
    bench_check(sandbox_file_reader_open(workspace, "bench-ours", NULL, NULL, &reader, &error),
                &error, "open a file");
    while (size > 0) {
        bench_check(sandbox_file_reader_next(reader, NULL, &data, &size, &error), &error,
                    "read a file");
        got += size;
    }
    double took = bench_now() - began;
    sandbox_file_reader_free(reader);
    if (got != bytes)
        bench_fail("download", "bytes are missing");
    return took;
}
