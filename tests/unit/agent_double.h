/*
 * For tests of the agent protocol's client: starts tests/doubles/agent_double.py, connects to
 * its sockets, and has the few calls that all of them make.
 */
#ifndef TESTS_UNIT_AGENT_DOUBLE_H
#define TESTS_UNIT_AGENT_DOUBLE_H

#include "agent/session_parts.h"
#include "files.pb-c.h"
#include "guard.pb-c.h"
#include "ports.pb-c.h"
#include "processes.pb-c.h"
#include "util/clock.h"
#include "util/memory.h"
#include "util/file.h"
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define WAIT_MS 20000
#define MIB (1u << 20)

static char folder[] = "/tmp/sandbox-session.XXXXXX";
static struct sbx_loop *loop;
static struct sbx_session *session;
static sandbox_error error;
static ProtobufCMessage *reply;

static const char health[] = "/sandbox.v1.Guard/Health";
static const char stats[] = "/sandbox.v1.Guard/Stats";
static const char attach[] = "/sandbox.v1.Processes/Attach";

static struct sbx_wait soon(void)
{
    return sbx_wait_alone(WAIT_MS);
}

static struct sbx_session *connect_to(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    struct sbx_channel channel;
    struct sbx_wait wait = soon();
    struct sbx_session *made = NULL;
    ck_assert_int_eq(sbx_channel_connect_unix(&channel, path, &wait, &error), SANDBOX_OK);
    ck_assert_int_eq(sbx_session_start(loop, &channel, &made, &error), SANDBOX_OK);
    return made;
}

static void set_up(void)
{
    ck_assert_int_eq(sbx_loop_start(&loop, NULL), SANDBOX_OK);
    session = connect_to("good");
}

static void tear_down(void)
{
    sbx_session_drop(session);
    sbx_loop_stop(loop);
}

static inline void use(const char *name)
{
    sbx_session_drop(session);
    session = connect_to(name);
}

static void drop_reply(void)
{
    if (reply != NULL)
        protobuf_c_message_free_unpacked(reply, NULL);
    reply = NULL;
}

static inline sandbox_status call_health(bool repeatable)
{
    struct sbx_wait wait = soon();
    Sandbox__V1__HealthRequest request = SANDBOX__V1__HEALTH_REQUEST__INIT;
    memset(&error, 0, sizeof error);
    return sbx_session_call(session, health, &request.base, repeatable,
                            &sandbox__v1__health_reply__descriptor, &wait, &reply, &error);
}

static sandbox_status call_stats(const struct sbx_wait *wait, bool repeatable)
{
    Sandbox__V1__StatsRequest request = SANDBOX__V1__STATS_REQUEST__INIT;
    memset(&error, 0, sizeof error);
    return sbx_session_call(session, stats, &request.base, repeatable,
                            &sandbox__v1__stats_reply__descriptor, wait, &reply, &error);
}

static struct sbx_stream *open_attach(uint64_t size, uint64_t piece)
{
    struct sbx_wait wait = soon();
    struct sbx_stream *stream = NULL;
    ck_assert_int_eq(sbx_stream_open(session, attach, &stream, &error), SANDBOX_OK);
    Sandbox__V1__AttachRequest request = SANDBOX__V1__ATTACH_REQUEST__INIT;
    request.output_offset = size;
    request.error_offset = piece;
    ck_assert_int_eq(sbx_stream_send(stream, &request.base, &wait, &error), SANDBOX_OK);
    sbx_stream_end(stream);
    return stream;
}

static Sandbox__V1__ProcessEvent *next_event(struct sbx_stream *stream)
{
    struct sbx_wait wait = soon();
    ProtobufCMessage *message = NULL;
    sandbox_status status = sbx_stream_next(stream, &sandbox__v1__process_event__descriptor, &wait,
                                            &message, &error);
    return status == SANDBOX_OK ? (Sandbox__V1__ProcessEvent *)(void *)message : NULL;
}

/* Reads to the end; the bytes must count up modulo 251 without a gap. */
static inline uint64_t read_all(struct sbx_stream *stream)
{
    uint64_t total = 0;
    bool ended = false;
    Sandbox__V1__ProcessEvent *event;
    while ((event = next_event(stream)) != NULL) {
        bool right = true;
        for (size_t at = 0; at < event->data.len; at++)
            right = right && event->data.data[at] == (total + at) % 251;
        ck_assert(right);
        total += event->data.len;
        ended = event->kind == SANDBOX__V1__PROCESS_EVENT__KIND__KIND_EXIT;
        protobuf_c_message_free_unpacked(&event->base, NULL);
    }
    ck_assert_int_eq(error.status, SANDBOX_CLOSED);
    ck_assert(ended);
    return total;
}

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd watched = {fd, POLLIN, 0};
    return poll(&watched, 1, timeout_ms) == 1;
}

/* The double ends when its input does. */
static bool start_double(struct sbx_child *child, int *input)
{
    const char *doubles = getenv("SANDBOX_TEST_DOUBLES");
    if (doubles == NULL || mkdtemp(folder) == NULL) {
        printf("SANDBOX_TEST_DOUBLES does not say where agent_double.py is\n");
        return false;
    }
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0)
        return false;
    char *program = sbx_format("%s/agent_double.py", doubles);
    const char *argv[] = {"/usr/bin/python3", program, folder, NULL};
    struct sbx_child_options options = {
        SBX_CHILD_OPTIONS, .argv = argv};
    options.input = to[0];
    options.output = from[1];
    options.errors = STDERR_FILENO;
    bool started = sbx_child_start(child, &options, &error) == SANDBOX_OK;
    close(to[0]);
    close(from[1]);
    *input = to[1];
    char line[8];
    bool ready = started && is_readable(from[0], WAIT_MS) && read(from[0], line, 8) == 6;
    close(from[0]);
    free(program);
    return ready;
}

static int run_with_double(Suite *suite)
{
    struct sbx_child child = SBX_CHILD;
    int input = -1;
    int failures = 1;
    SRunner *runner = srunner_create(suite);
    if (start_double(&child, &input)) {
        srunner_run_all(runner, CK_NORMAL);
        failures = srunner_ntests_failed(runner);
    }
    srunner_free(runner);
    sbx_close_fd(&input);
    sbx_child_end(&child);
    (void)sbx_tree_remove(AT_FDCWD, folder, NULL);
    return failures == 0 ? 0 : 1;
}

static Suite *suite_of(const char *name, const TTest *const *tests, size_t count)
{
    Suite *suite = suite_create(name);
    TCase *cases = tcase_create(name);
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    for (size_t index = 0; index < count; index++)
        tcase_add_test(cases, tests[index]);
    suite_add_tcase(suite, cases);
    return suite;
}

#endif
