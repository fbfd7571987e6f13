/*
 * Bytes of a client into the agent's HTTP/2 and gRPC server (programs/agent/server.c and call.c),
 * over a real Unix socket and the agent's own loop, in this process. The services behind it are
 * harmless ones that stand here: the true ones would start programs and remove files.
 */

#include "call.h"
#include "files.pb-c.h"
#include "guard.pb-c.h"
#include "listener.h"
#include "loop.h"
#include "ports.pb-c.h"
#include "processes.pb-c.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define TURNS_MAX 2000
#define STREAM_MESSAGES 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void start(void);
static int connect_client(void);
static void turn(int fd);
static void take_answers(int fd);

static struct sockaddr_un address;
static char folder[] = "/tmp/sandbox-fuzz.XXXXXX";
static struct agent_call *paused;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool started;
    if (!started)
        start();
    started = true;

    int fd = connect_client();
    size_t sent = 0;
    for (int turns = 0; sent < size && turns < TURNS_MAX; turns++) {
        ssize_t taken = send(fd, data + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (taken < 0 && errno != EAGAIN)
            break;
        sent += taken > 0 ? (size_t)taken : 0;
        turn(fd);
    }
    for (int turns = 0; turns < 16; turns++)
        turn(fd);
    close(fd);
    for (int turns = 0; turns < TURNS_MAX && agent_server_connection_count() > 0; turns++)
        turn(-1);
    if (agent_server_connection_count() > 0)
        abort(); /* a connection that never ends would hold its place for ever */
    return 0;
}

static void remove_folder(void)
{
    agent_server_unlink();
    rmdir(folder);
}

static void start(void)
{
    address.sun_family = AF_UNIX;
    if (mkdtemp(folder) == NULL)
        abort();
    snprintf(address.sun_path, sizeof address.sun_path, "%s/agent", folder);
    if (!agent_loop_open() || !agent_server_listen(address.sun_path))
        abort();
    atexit(remove_folder);
}

static int connect_client(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        abort();
    for (int turns = 0; turns < TURNS_MAX && agent_server_connection_count() == 0; turns++)
        turn(-1);
    return fd;
}

/* One turn of the agent's loop. A call that was paused in the last one goes on. */
static void turn(int fd)
{
    uv_run(agent_loop(), UV_RUN_NOWAIT);
    struct agent_call *call = paused;
    paused = NULL;
    if (call != NULL) {
        if (!agent_call_is_over(call))
            agent_call_resume(call);
        agent_call_drop(call);
    }
    if (fd >= 0)
        take_answers(fd);
}

static void take_answers(int fd)
{
    static char answers[256u << 10];
    while (recv(fd, answers, sizeof answers, MSG_DONTWAIT) > 0)
        ;
}

/* A service with one answer. */
static void answer_health(struct agent_call *call, const ProtobufCMessage *request)
{
    Sandbox__V1__HealthReply reply = SANDBOX__V1__HEALTH_REPLY__INIT;
    reply.version = (char *)(uintptr_t)"fuzz";
    agent_call_answer(call, &reply.base);
}

/* One that refuses, in words of the caller's: they must not break the trailers. */
static void refuse(struct agent_call *call, const ProtobufCMessage *request)
{
    const Sandbox__V1__StartRequest *start_request = (const Sandbox__V1__StartRequest *)request;
    if (start_request->deadline_ms % 2 == 0)
        agent_call_fail_errno(call, ENOENT, "cannot start '%.*s'",
                              (int)start_request->command.len,
                              (const char *)start_request->command.data);
    else
        agent_call_fail(call, AGENT_OUT_OF_RANGE, "fuzz", "%s", start_request->user);
}

/* One that streams as fast as the caller takes it. */
static void begin_stream(struct agent_call *call, const ProtobufCMessage *request)
{
    uint32_t *left = malloc(sizeof *left);
    if (left == NULL)
        abort();
    *left = STREAM_MESSAGES;
    agent_call_set_data(call, left);
}

static void send_more(struct agent_call *call)
{
    static uint8_t content[64u << 10];
    uint32_t *left = agent_call_data(call);
    bool wanted = true;
    while (wanted && *left > 0) {
        Sandbox__V1__ProcessEvent event = SANDBOX__V1__PROCESS_EVENT__INIT;
        event.data.data = content;
        event.data.len = sizeof content;
        (*left)--;
        wanted = agent_call_send(call, &event.base);
    }
    if (*left == 0)
        agent_call_finish(call);
}

static void free_data(struct agent_call *call)
{
    free(agent_call_data(call));
}

/* One that takes a stream, and lets it wait now and then. */
static void take_piece(struct agent_call *call, const ProtobufCMessage *request)
{
    const Sandbox__V1__FileWrite *piece = (const Sandbox__V1__FileWrite *)request;
    if (paused == NULL && piece->data.len % 3 == 1) {
        agent_call_pause(call);
        agent_call_keep(call);
        paused = call;
    }
}

static void answer_write(struct agent_call *call)
{
    Sandbox__V1__FileWriteReply reply = SANDBOX__V1__FILE_WRITE_REPLY__INIT;
    agent_call_answer(call, &reply.base);
}

/* One that sends back what it gets. */
static void echo(struct agent_call *call, const ProtobufCMessage *request)
{
    const Sandbox__V1__PortData *piece = (const Sandbox__V1__PortData *)request;
    agent_call_send(call, &piece->base);
    if (piece->end)
        agent_call_finish(call);
}

static void finish(struct agent_call *call)
{
    agent_call_finish(call);
}

static void let_go(struct agent_call *call)
{
}

const struct agent_method agent_guard_methods[] = {
    {.path = "/sandbox.v1.Guard/Health",
     .request = &sandbox__v1__health_request__descriptor,
     .message = answer_health,
     .gone = let_go,
     .always_allowed = true,
     .passive = true},
    {.path = "/sandbox.v1.Guard/Open",
     .request = &sandbox__v1__open_request__descriptor,
     .message = answer_health,
     .gone = let_go},
    {.path = NULL},
};

const struct agent_method agent_process_methods[] = {
    {.path = "/sandbox.v1.Processes/Start",
     .request = &sandbox__v1__start_request__descriptor,
     .message = refuse,
     .gone = let_go},
    {.path = "/sandbox.v1.Processes/Attach",
     .request = &sandbox__v1__attach_request__descriptor,
     .message = begin_stream,
     .ready = send_more,
     .gone = free_data},
    {.path = NULL},
};

const struct agent_method agent_file_methods[] = {
    {.path = "/sandbox.v1.Files/Write",
     .request = &sandbox__v1__file_write__descriptor,
     .message = take_piece,
     .end = answer_write,
     .gone = let_go},
    {.path = NULL},
};

const struct agent_method agent_egress_methods[] = {{.path = NULL}};
const struct agent_method agent_port_methods[] = {
    {.path = "/sandbox.v1.Ports/Dial",
     .request = &sandbox__v1__port_data__descriptor,
     .message = echo,
     .end = finish,
     .gone = let_go},
    {.path = NULL},
};

void agent_guard_call_over(void)
{
}

bool agent_guard_admit(struct agent_call *call, const struct agent_method *method)
{
    uint64_t epoch = 0;
    if (method->always_allowed || agent_call_token(call) != NULL)
        return true;
    agent_call_fail(call, AGENT_UNAUTHENTICATED, agent_call_epoch(call, &epoch) ? "epoch" : "none",
                    "no token");
    return false;
}
