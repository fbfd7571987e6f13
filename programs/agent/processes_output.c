/*
 * Output of commands: read from pipes and terminals into rings, given to every reader at its own
 * pace, complete before the end is told.
 *
 * With BLOCK, bytes stay until every attached reader has taken them; while nobody is attached, all
 * that the ring holds stays, since what was on its way to the last reader may be lost with its
 * channel. Once the ring is full, the pipe is not read and the command waits. With DROP_OLDEST the
 * pipe is always read. Either way the ring holds the last bytes as far as they fit, for readers
 * that come back.
 */

#include "guard.h"
#include "processes.h"
#include "util/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define READ_BYTES       (4 * PIECE_BYTES) /* what goes out in one write */
#define PIPE_BYTES       (1u << 20)
#define PIECE_BYTES      (AGENT_CHUNK - 64u) /* so that a whole message fits one frame */
#define LEND_BYTES       (32u << 10)
#define DATA_FIELD       3u                  /* of ProcessEvent */
#define QUIET_MS         20u
#define QUIET_ROUNDS_MAX 10u

enum taken {
    TAKEN_SOME,
    TAKEN_NOTHING, /* there is none now */
    TAKEN_FULL,    /* no room for it */
    TAKEN_END,
};

static void on_readable(void *user_data);
static bool leaves_it_in_pipe(const struct agent_output *output);
static enum taken take(struct agent_output *output, size_t *got);
static uint64_t floor_of(const struct agent_output *output);
static void watch_as_wanted(struct agent_output *output);
static void take_after_end(struct agent_output *output);
static void close_output(struct agent_output *output);
static void on_quiet(void *user_data);
static void settle(struct agent_process *process);
static void pump_reader(struct agent_reader *reader);
static void send_some(struct agent_reader *reader, unsigned which);
static void lend_some(struct agent_reader *reader, unsigned which);
static void send_exit(struct agent_reader *reader);

static size_t whole_pieces(size_t size)
{
    return (size + PIECE_BYTES - 1) / PIECE_BYTES * PIECE_BYTES;
}

bool agent_output_open(struct agent_process *process, unsigned which, int fd, size_t limit)
{
    struct agent_output *output = &process->outputs[which];
    output->process = process;
    /* Whole pieces, or one in each round would be cut in two where the ring begins anew. */
    output->ring.limit = limit < READ_BYTES ? limit : whole_pieces(limit);
    output->watch = agent_watch_open(fd, on_readable, output);
    if (output->watch == NULL)
        return false;
    agent_watch_for(output->watch, UV_READABLE);
    return true;
}

static void on_readable(void *user_data)
{
    struct agent_output *output = user_data;
    struct agent_process *process = output->process;
    if (process->settled) {
        take_after_end(output);
        return;
    }
    if (leaves_it_in_pipe(output)) {
        agent_watch_for(output->watch, 0);
        return;
    }
    size_t got = 0;
    enum taken taken = take(output, &got);
    agent_output_pump(process);
    if (taken == TAKEN_END)
        close_output(output);
    else if (taken == TAKEN_FULL)
        agent_watch_for(output->watch, 0);
}

/*
 * While the connections of all readers take nothing, the pipe is as good a place as the ring, and
 * then gives all at once: each read and write costs more than its bytes. What the ring may hold
 * beyond a pipe's fill is read all the same, so that the command can go on that far.
 */
static bool leaves_it_in_pipe(const struct agent_output *output)
{
    const struct agent_process *process = output->process;
    if (process->when_full == SANDBOX__V1__WHEN_FULL__WHEN_FULL_DROP_OLDEST ||
        process->terminal || process->readers == NULL)
        return false;
    uint64_t waiting = output->ring.total - floor_of(output);
    if (waiting + PIPE_BYTES + PIECE_BYTES < output->ring.limit)
        return false;
    for (const struct agent_reader *at = process->readers; at != NULL; at = at->next) {
        if (!agent_call_is_stuck(at->call))
            return false;
    }
    for (const struct agent_reader *at = process->readers; at != NULL; at = at->next)
        agent_call_wake(at->call);
    return true;
}

static enum taken take(struct agent_output *output, size_t *got)
{
    struct iovec pieces[2];
    int count = agent_ring_room(&output->ring, floor_of(output), pieces);
    if (count == 0)
        return TAKEN_FULL;
    size_t most = READ_BYTES - (size_t)(output->ring.total % PIECE_BYTES);
    if (pieces[0].iov_len >= most) {
        pieces[0].iov_len = most;
        count = 1;
    } else if (count == 2 && pieces[1].iov_len > most - pieces[0].iov_len) {
        pieces[1].iov_len = most - pieces[0].iov_len;
    }
    ssize_t size = readv(agent_watch_fd(output->watch), pieces, count);
    if (size < 0)
        return errno == EAGAIN || errno == EINTR ? TAKEN_NOTHING : TAKEN_END;
    if (size == 0)
        return TAKEN_END;
    agent_ring_added(&output->ring, (size_t)size);
    output->was_read = true;
    *got += (size_t)size;
    if (output->process->role == SANDBOX__V1__ROLE__ROLE_TASK)
        agent_activity_touch();
    return TAKEN_SOME;
}

/* Bytes from here on may not be overwritten. */
static uint64_t floor_of(const struct agent_output *output)
{
    const struct agent_process *process = output->process;
    if (process->when_full == SANDBOX__V1__WHEN_FULL__WHEN_FULL_DROP_OLDEST)
        return output->ring.total;
    if (process->readers == NULL)
        return output->ring.base;
    uint64_t floor = UINT64_MAX;
    unsigned which = output == &process->outputs[1];
    for (const struct agent_reader *at = process->readers; at != NULL; at = at->next) {
        if (at->offsets[which] < floor)
            floor = at->offsets[which];
    }
    return floor;
}

/*
 * A full ring is mostly empty again before the loop turns; so the watch ends only where it finds
 * no room, and does not come and go with each read.
 */
static void watch_as_wanted(struct agent_output *output)
{
    if (output->watch == NULL)
        return;
    if (output->process->settled || agent_ring_has_room(&output->ring, floor_of(output)))
        agent_watch_for(output->watch, UV_READABLE);
}

/*
 * The command has ended and was told so; something in the background still writes. It is kept
 * while that overwrites nothing, so that the writer neither waits nor dies of a broken pipe.
 */
static void take_after_end(struct agent_output *output)
{
    static uint8_t nowhere[64u << 10];
    struct iovec pieces[2] = {{nowhere, sizeof nowhere}};
    struct agent_process *process = output->process;
    int count = process->forgotten ? 0 : agent_ring_room(&output->ring, output->ring.base, pieces);
    bool kept = count > 0;
    if (!kept)
        pieces[0] = (struct iovec){nowhere, sizeof nowhere};
    ssize_t size = readv(agent_watch_fd(output->watch), pieces, kept ? count : 1);
    if (size > 0 && kept)
        agent_ring_added(&output->ring, (size_t)size);
    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR))
        close_output(output);
}

static void close_output(struct agent_output *output)
{
    struct agent_process *process = output->process;
    agent_watch_close(&output->watch);
    if (process->outputs[0].watch != NULL || process->outputs[1].watch != NULL)
        return;
    if (process->forgotten)
        agent_process_free(process);
    else if (process->exited && !process->settled)
        settle(process);
}

/* All it wrote is in the pipes by now, at most as much as they hold; make room for that. */
void agent_output_exited(struct agent_process *process)
{
    bool open = false;
    for (unsigned which = 0; which < 2; which++) {
        struct agent_output *output = &process->outputs[which];
        if (output->watch == NULL)
            continue;
        if (process->when_full == SANDBOX__V1__WHEN_FULL__WHEN_FULL_BLOCK)
            output->ring.limit += PIPE_BYTES;
        size_t got = 0;
        enum taken taken = TAKEN_SOME;
        while (taken == TAKEN_SOME && got < PIPE_BYTES) {
            taken = take(output, &got);
            agent_output_pump(process);
        }
        if (taken == TAKEN_END)
            agent_watch_close(&output->watch);
        else
            open = true;
        output->was_read = false;
        watch_as_wanted(output);
    }
    /*
     * A descendant holds on to it; what it says in its first breath still belongs to the command.
     */
    if (!open || !agent_timer_start(&process->quiet, QUIET_MS, on_quiet, process))
        settle(process);
}

static void on_quiet(void *user_data)
{
    struct agent_process *process = user_data;
    bool was_read = false;
    for (unsigned which = 0; which < 2; which++) {
        was_read = was_read || process->outputs[which].was_read;
        process->outputs[which].was_read = false;
    }
    if (was_read && ++process->quiet_rounds < QUIET_ROUNDS_MAX &&
        agent_timer_start(&process->quiet, QUIET_MS, on_quiet, process))
        return;
    settle(process);
}

static void settle(struct agent_process *process)
{
    agent_timer_stop(&process->quiet);
    process->settled = true;
    agent_output_pump(process);
    for (unsigned which = 0; which < 2; which++)
        agent_ring_trim(&process->outputs[which].ring);
    agent_process_settled(process);
}

void agent_output_release(struct agent_process *process)
{
    agent_timer_stop(&process->quiet);
    for (unsigned which = 0; which < 2; which++) {
        agent_watch_close(&process->outputs[which].watch);
        agent_ring_clear(&process->outputs[which].ring);
    }
}

void agent_process_attach(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__AttachRequest *request = (const Sandbox__V1__AttachRequest *)message;
    struct agent_process *process = agent_process_of(call, request->id);
    if (process == NULL)
        return;
    if (request->output_offset > process->outputs[0].ring.total ||
        request->error_offset > process->outputs[1].ring.total) {
        agent_call_fail(call, AGENT_OUT_OF_RANGE, "offset-ahead",
                        "the process has not written as much as the offset says");
        return;
    }
    struct agent_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) {
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "no-memory",
                        "the agent has no memory for a reader");
        return;
    }
    *reader = (struct agent_reader){.call = call,
                                    .process = process,
                                    .offsets = {request->output_offset, request->error_offset},
                                    .next = process->readers};
    process->readers = reader;
    agent_call_set_data(call, reader);
    Sandbox__V1__ProcessEvent event = SANDBOX__V1__PROCESS_EVENT__INIT;
    event.kind = SANDBOX__V1__PROCESS_EVENT__KIND__KIND_ATTACHED;
    event.pid = process->pid;
    agent_call_send(call, &event.base);
    agent_process_attach_ready(call);
}

void agent_process_attach_ready(struct agent_call *call)
{
    struct agent_reader *reader = agent_call_data(call);
    if (reader == NULL)
        return;
    reader->full = false;
    pump_reader(reader);
    for (unsigned which = 0; which < 2; which++)
        watch_as_wanted(&reader->process->outputs[which]);
}

void agent_process_attach_gone(struct agent_call *call)
{
    struct agent_reader *reader = agent_call_data(call);
    if (reader == NULL)
        return;
    struct agent_process *process = reader->process;
    struct agent_reader **link = &process->readers;
    while (*link != reader)
        link = &(*link)->next;
    *link = reader->next;
    free(reader);
    for (unsigned which = 0; which < 2; which++)
        watch_as_wanted(&process->outputs[which]);
}

void agent_output_pump(struct agent_process *process)
{
    struct agent_reader *next;
    for (struct agent_reader *at = process->readers; at != NULL; at = next) {
        next = at->next;
        pump_reader(at);
    }
    for (unsigned which = 0; which < 2; which++)
        watch_as_wanted(&process->outputs[which]);
}

/* The streams take turns, so that one that floods does not keep the other from being heard. */
static void pump_reader(struct agent_reader *reader)
{
    const struct agent_process *process = reader->process;
    while (!reader->full && !agent_call_is_over(reader->call)) {
        unsigned which = reader->turn;
        reader->turn = !which;
        bool has_more[2];
        for (unsigned at = 0; at < 2; at++)
            has_more[at] = reader->offsets[at] < process->outputs[at].ring.total;
        if (!has_more[0] && !has_more[1]) {
            if (process->settled)
                send_exit(reader);
            return;
        }
        which = has_more[which] ? which : !which;
        uint64_t waiting = process->outputs[which].ring.total - reader->offsets[which];
        if (waiting < LEND_BYTES) {
            send_some(reader, which);
        } else if (agent_call_may_lend(reader->call)) {
            lend_some(reader, which);
            return;
        } else {
            agent_call_wake(reader->call);
            return;
        }
    }
}

/* The next bytes that the reader has not got; none is left behind by a ring that went round. */
static size_t next_piece(struct agent_reader *reader, unsigned which, const uint8_t **data,
                         Sandbox__V1__ProcessEvent *event)
{
    const struct agent_ring *ring = &reader->process->outputs[which].ring;
    uint64_t *offset = &reader->offsets[which];
    if (*offset < ring->base)
        *offset = ring->base;
    size_t size = agent_ring_peek(ring, *offset, PIECE_BYTES, data);
    sandbox__v1__process_event__init(event);
    event->kind = which == 0 ? SANDBOX__V1__PROCESS_EVENT__KIND__KIND_OUTPUT
                             : SANDBOX__V1__PROCESS_EVENT__KIND__KIND_ERROR;
    event->offset = *offset;
    *offset += size;
    return size;
}

static void send_some(struct agent_reader *reader, unsigned which)
{
    Sandbox__V1__ProcessEvent event;
    const uint8_t *data = NULL;
    size_t size = next_piece(reader, which, &data, &event);
    if (size == 0)
        return;
    event.data = (ProtobufCBinaryData){size, (uint8_t *)(uintptr_t)data};
    reader->full = !agent_call_send(reader->call, &event.base);
}

/* Straight from the ring, which is not written to before the bytes are on their way. */
static void lend_some(struct agent_reader *reader, unsigned which)
{
    Sandbox__V1__ProcessEvent event;
    const uint8_t *data = NULL;
    size_t size = next_piece(reader, which, &data, &event);
    if (size > 0)
        agent_call_lend(reader->call, &event.base, DATA_FIELD, data, size);
}

static void send_exit(struct agent_reader *reader)
{
    Sandbox__V1__ProcessEvent event = SANDBOX__V1__PROCESS_EVENT__INIT;
    Sandbox__V1__Exit exit;
    agent_process_exit(reader->process, &exit);
    event.kind = SANDBOX__V1__PROCESS_EVENT__KIND__KIND_EXIT;
    event.exit = &exit;
    agent_call_answer(reader->call, &event.base);
}
