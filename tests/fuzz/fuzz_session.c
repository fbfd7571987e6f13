/*
 * A client's session fed by a hostile agent: the input is all that the agent's side of the channel
 * ever says. The requests have left before the first byte of it arrives, so that one input always
 * takes the same way.
 */

#include "agent/session.h"
#include "guard.pb-c.h"
#include "processes.pb-c.h"
#include "util/wait.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CALLS 3
#define PATIENCE_MS 10000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct passage {
    struct sbx_loop_task task;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool passed;
};

static void must(bool right);
static struct sbx_session *begin(struct sbx_loop *loop, int *agent);
static struct sbx_stream *open_call(struct sbx_session *session, const char *method,
                                    const ProtobufCMessage *request);
static void let_loop_pass(struct sbx_loop *loop);
static void say(int agent, const uint8_t *data, size_t size);
static void hear(int agent);
static void take_all(struct sbx_stream *stream, const ProtobufCMessageDescriptor *descriptor);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sbx_loop *loop;
    if (loop == NULL)
        must(sbx_loop_start(&loop, NULL) == SANDBOX_OK);
    int agent = -1;
    struct sbx_session *session = begin(loop, &agent);
    Sandbox__V1__AttachRequest attach = SANDBOX__V1__ATTACH_REQUEST__INIT;
    Sandbox__V1__StatsRequest stats = SANDBOX__V1__STATS_REQUEST__INIT;
    struct sbx_stream *calls[CALLS];
    for (unsigned each = 0; each < CALLS; each++)
        calls[each] = each == 0
                          ? open_call(session, "/sandbox.v1.Guard/Stats", &stats.base)
                          : open_call(session, "/sandbox.v1.Processes/Attach", &attach.base);
    let_loop_pass(loop);
    say(agent, data, size);
    take_all(calls[0], &sandbox__v1__stats_reply__descriptor);
    for (unsigned each = 1; each < CALLS; each++)
        take_all(calls[each], &sandbox__v1__process_event__descriptor);
    for (unsigned each = 0; each < CALLS; each++)
        sbx_stream_free(calls[each]);
    sbx_session_drop(session);
    close(agent);
    let_loop_pass(loop);
    return 0;
}

static void must(bool right)
{
    if (!right)
        abort();
}

static struct sbx_session *begin(struct sbx_loop *loop, int *agent)
{
    int ends[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    struct sbx_channel channel = SBX_CHANNEL;
    channel.read_fd = channel.write_fd = ends[0];
    *agent = ends[1];
    struct sbx_session *session = NULL;
    must(sbx_session_start(loop, &channel, &session, NULL) == SANDBOX_OK);
    static const uint8_t token[SBX_TOKEN_BYTES];
    sbx_session_identify(session, token, 1);
    return session;
}

static struct sbx_stream *open_call(struct sbx_session *session, const char *method,
                                    const ProtobufCMessage *request)
{
    struct sbx_wait wait = sbx_wait_alone(PATIENCE_MS);
    struct sbx_stream *stream = NULL;
    must(sbx_stream_open(session, method, &stream, NULL) == SANDBOX_OK);
    must(sbx_stream_send(stream, request, &wait, NULL) == SANDBOX_OK);
    sbx_stream_end(stream);
    return stream;
}

static void pass(struct sbx_loop_task *task)
{
    struct passage *passage = (struct passage *)(void *)task;
    pthread_mutex_lock(&passage->mutex);
    passage->passed = true;
    pthread_cond_signal(&passage->changed);
    pthread_mutex_unlock(&passage->mutex);
}

/* Everything that was posted before has been done. */
static void let_loop_pass(struct sbx_loop *loop)
{
    struct passage passage = {.task = {.run = pass}};
    pthread_mutex_init(&passage.mutex, NULL);
    pthread_cond_init(&passage.changed, NULL);
    sbx_loop_post(loop, &passage.task);
    pthread_mutex_lock(&passage.mutex);
    while (!passage.passed)
        pthread_cond_wait(&passage.changed, &passage.mutex);
    pthread_mutex_unlock(&passage.mutex);
    pthread_cond_destroy(&passage.changed);
    pthread_mutex_destroy(&passage.mutex);
}

/* The session may answer so much that nothing more fits: then it is listened to. */
static void say(int agent, const uint8_t *data, size_t size)
{
    struct sbx_wait wait = sbx_wait_alone(PATIENCE_MS);
    while (size > 0) {
        ssize_t sent = send(agent, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            break; /* the session has had enough */
        if (sent < 0) {
            hear(agent);
            must(sbx_wait_descriptor(&wait, agent, POLLOUT | POLLIN, NULL) == SANDBOX_OK);
            continue;
        }
        data += sent;
        size -= (size_t)sent;
    }
    hear(agent);
    shutdown(agent, SHUT_WR);
}

static void hear(int agent)
{
    uint8_t ignored[4096];
    while (recv(agent, ignored, sizeof ignored, 0) > 0)
        continue;
}

/* A call that never ends would be a bug of ours: the agent's side is closed. */
static void take_all(struct sbx_stream *stream, const ProtobufCMessageDescriptor *descriptor)
{
    struct sbx_wait wait = sbx_wait_alone(PATIENCE_MS);
    sandbox_status status;
    sandbox_error error;
    do {
        ProtobufCMessage *message = NULL;
        status = sbx_stream_next(stream, descriptor, &wait, &message, &error);
        if (status == SANDBOX_OK)
            protobuf_c_message_free_unpacked(message, NULL);
        must(status != SANDBOX_TIMED_OUT || sbx_wait_left_ms(&wait) > 0);
    } while (status == SANDBOX_OK);
    must(memchr(error.message, '\0', sizeof error.message) != NULL);
}
