/*
 * What is written to a command: in the order of the calls, each byte once, and answered when the
 * pipe has it, so that a caller goes no faster than the command reads.
 */

#include "guard.h"
#include "processes.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#define PENDING_MAX (16u << 20)

static void advance(struct agent_process *process);
static bool may_write(struct agent_call *call, const struct agent_process *process,
                      const Sandbox__V1__WriteRequest *request);
static bool begin(struct agent_write *write);
static bool put(struct agent_write *write);
static bool end_input(struct agent_write *write);
static void answer(struct agent_write *write);
static void fail_write(struct agent_write *write, int number);
static void remove_write(struct agent_write *write);

/* Beside a variable of that name in most functions here. */
static ssize_t write_bytes(int fd, const uint8_t *data, size_t size)
{
    return write(fd, data, size);
}

static void on_writable(void *user_data)
{
    advance(user_data);
}

bool agent_input_open(struct agent_process *process, int fd)
{
    fcntl(fd, F_SETFL, O_NONBLOCK);
    process->input = agent_watch_open(fd, on_writable, process);
    return process->input != NULL;
}

void agent_process_write(struct agent_call *call, const ProtobufCMessage *message)
{
    const Sandbox__V1__WriteRequest *request = (const Sandbox__V1__WriteRequest *)message;
    struct agent_process *process = agent_process_of(call, request->id);
    if (process == NULL || !may_write(call, process, request))
        return;
    struct agent_write *write = calloc(1, sizeof *write);
    if (write == NULL) {
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "no-memory",
                        "the agent has no memory for the bytes");
        return;
    }
    *write = (struct agent_write){.call = call,
                                  .process = process,
                                  .offset = request->offset,
                                  .data = request->data.data,
                                  .size = request->data.len,
                                  .end = request->end};
    /* The bytes are taken over, not copied: the message is freed after this without them. */
    ((Sandbox__V1__WriteRequest *)(uintptr_t)request)->data = (ProtobufCBinaryData){0, NULL};
    process->pending_bytes += write->size;
    *process->last_write = write;
    process->last_write = &write->next;
    agent_call_set_data(call, write);
    if (process->writes == write)
        advance(process);
}

static bool may_write(struct agent_call *call, const struct agent_process *process,
                      const Sandbox__V1__WriteRequest *request)
{
    bool repeated = process->input_ended && request->end &&
                    process->input_ended_at == request->offset + request->data.len;
    if (request->offset > UINT64_MAX - request->data.len) {
        agent_call_fail(call, AGENT_INVALID_ARGUMENT, "invalid", "the offset is too large");
    } else if (repeated) {
        Sandbox__V1__WriteReply reply = SANDBOX__V1__WRITE_REPLY__INIT;
        reply.written = process->written;
        agent_call_answer(call, &reply.base);
    } else if (process->exited) {
        agent_call_fail(call, AGENT_FAILED_PRECONDITION, "ended", "the process has ended");
    } else if (process->input_ended && !process->terminal) {
        agent_call_fail(call, AGENT_FAILED_PRECONDITION, "input-ended",
                        "the process's input was ended before");
    } else if (process->input == NULL) {
        agent_call_fail(call, AGENT_FAILED_PRECONDITION, "no-input",
                        "the process was started without input");
    } else if (process->pending_bytes + request->data.len > PENDING_MAX) {
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "input-queue-full",
                        "more than %u bytes wait to be read by the process", PENDING_MAX);
    } else {
        return true;
    }
    return false;
}

/* As far as the pipe takes it. */
static void advance(struct agent_process *process)
{
    while (process->writes != NULL && process->input != NULL) {
        struct agent_write *write = process->writes;
        if (!write->begun && !begin(write))
            continue;
        errno = 0;
        if (put(write) && end_input(write)) {
            answer(write);
        } else if (errno == EAGAIN) {
            agent_watch_for(process->input, UV_WRITABLE);
            return;
        } else {
            fail_write(write, errno);
        }
    }
    if (process->input != NULL)
        agent_watch_for(process->input, 0);
}

/* Its turn has come: what was written already is skipped. */
static bool begin(struct agent_write *write)
{
    struct agent_process *process = write->process;
    write->begun = true;
    if (write->offset > process->written) {
        agent_call_fail(write->call, AGENT_OUT_OF_RANGE, "gap",
                        "the bytes before offset %llu were never written",
                        (unsigned long long)write->offset);
        remove_write(write);
        return false;
    }
    return true;
}

/* False with errno: EAGAIN where the pipe is full. */
static bool put(struct agent_write *write)
{
    struct agent_process *process = write->process;
    while (write->offset + write->size > process->written) {
        size_t skip = (size_t)(process->written - write->offset);
        const uint8_t *data = write->data + skip;
        size_t rest = write->size - skip;
        size_t plain = process->terminal ? agent_terminal_typed(process, data, rest) : rest;
        ssize_t size =
            plain == 0
                ? 1
                : TEMP_FAILURE_RETRY(write_bytes(agent_watch_fd(process->input), data, plain));
        if (size < 0)
            return false;
        process->written += (uint64_t)size;
        if (process->terminal)
            agent_traffic_touch(write->call);
    }
    return true;
}

/* A pipe is closed; on a terminal the end is a character that is typed. */
static bool end_input(struct agent_write *write)
{
    struct agent_process *process = write->process;
    if (!write->end)
        return true;
    if (process->terminal) {
        struct termios settings;
        int fd = agent_watch_fd(process->input);
        uint8_t character = tcgetattr(fd, &settings) == 0 ? settings.c_cc[VEOF] : 4;
        if (TEMP_FAILURE_RETRY(write_bytes(fd, &character, 1)) != 1)
            return false;
    }
    process->input_ended = true;
    process->input_ended_at = process->written;
    return true;
}

static void answer(struct agent_write *write)
{
    struct agent_process *process = write->process;
    Sandbox__V1__WriteReply reply = SANDBOX__V1__WRITE_REPLY__INIT;
    reply.written = process->written;
    agent_call_answer(write->call, &reply.base);
    remove_write(write);
    if (!process->input_ended || process->terminal)
        return;
    agent_watch_close(&process->input);
    while (process->writes != NULL) {
        agent_call_fail(process->writes->call, AGENT_FAILED_PRECONDITION, "input-ended",
                        "the process's input was ended before");
        remove_write(process->writes);
    }
}

static void fail_write(struct agent_write *write, int number)
{
    if (number == EPIPE || number == EIO)
        agent_call_fail(write->call, AGENT_FAILED_PRECONDITION, "input-closed",
                        "the process has closed its input");
    else
        agent_call_fail_errno(write->call, number, "cannot write to the process");
    remove_write(write);
}

/* Takes it out of the queue; the call itself lives on. */
static void remove_write(struct agent_write *write)
{
    struct agent_process *process = write->process;
    struct agent_write **link = &process->writes;
    while (*link != write)
        link = &(*link)->next;
    *link = write->next;
    if (write->next == NULL)
        process->last_write = link;
    process->pending_bytes -= write->size;
    agent_call_set_data(write->call, NULL);
    free(write->data);
    free(write);
}

void agent_process_write_gone(struct agent_call *call)
{
    struct agent_write *write = agent_call_data(call);
    if (write == NULL)
        return;
    struct agent_process *process = write->process;
    remove_write(write);
    advance(process);
}

void agent_input_exited(struct agent_process *process)
{
    agent_watch_close(&process->input);
    while (process->writes != NULL) {
        agent_call_fail(process->writes->call, AGENT_FAILED_PRECONDITION, "ended",
                        "the process has ended");
        remove_write(process->writes);
    }
}
