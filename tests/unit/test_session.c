/*
 * Sessions with an agent that behaves: calls and streams, against a stock gRPC server. The
 * numbers like P156 are those of the list of real-world faults.
 */

#include "agent_double.h"
#include <semaphore.h>
#include <signal.h>

static const char dial[] = "/sandbox.v1.Ports/Dial";

/* ---- calls ---- */

START_TEST(a_call_gets_its_answer)
{
    ck_assert_int_eq(call_health(false), SANDBOX_OK);
    const Sandbox__V1__HealthReply *answer = (const Sandbox__V1__HealthReply *)(void *)reply;
    ck_assert_str_eq(answer->version, "double");
    ck_assert_uint_gt(answer->uptime_ms, WAIT_MS / 2); /* the deadline was told */
    ck_assert_uint_le(answer->uptime_ms, WAIT_MS);
    drop_reply();
}
END_TEST

START_TEST(every_call_carries_the_token_and_the_epoch)
{
    uint8_t token[SBX_TOKEN_BYTES];
    for (unsigned at = 0; at < sizeof token; at++)
        token[at] = (uint8_t)(at * 7 + 250);
    sbx_session_identify(session, token, 4000000000u);
    ck_assert_int_eq(call_health(false), SANDBOX_OK);
    const Sandbox__V1__HealthReply *answer = (const Sandbox__V1__HealthReply *)(void *)reply;
    ck_assert_uint_eq(answer->epoch, 4000000000u);
    ck_assert_uint_eq(answer->workspace_id.len, sizeof token);
    ck_assert_mem_eq(answer->workspace_id.data, token, sizeof token);
    drop_reply();
}
END_TEST

START_TEST(a_refusal_comes_with_its_status_reason_and_words)
{
    static const struct {
        unsigned grpc;
        const char *reason;
        sandbox_status status;
    } expected[] = {
        {1, "gone", SANDBOX_CANCELLED},       {2, "odd", SANDBOX_FAILED},
        {3, "bad", SANDBOX_INVALID},          {4, "late", SANDBOX_TIMED_OUT},
        {5, "no-such-file", SANDBOX_NOT_FOUND}, {6, "exists", SANDBOX_EXISTS},
        {7, "denied", SANDBOX_DENIED},        {8, "full", SANDBOX_LIMIT},
        {9, "ended", SANDBOX_CLOSED},         {9, "not-opened", SANDBOX_UNAVAILABLE},
        {9, "is-a-directory", SANDBOX_FAILED}, {10, "stale-epoch", SANDBOX_CONFLICT},
        {11, "range", SANDBOX_INVALID},       {12, "old", SANDBOX_UNSUPPORTED},
        {13, "broken", SANDBOX_FAILED},       {14, "later", SANDBOX_UNAVAILABLE},
        {15, "lost", SANDBOX_FAILED},         {16, "who", SANDBOX_DENIED},
    };
    for (size_t index = 0; index < sizeof expected / sizeof expected[0]; index++) {
        struct sbx_wait wait = soon();
        Sandbox__V1__OpenRequest request = SANDBOX__V1__OPEN_REQUEST__INIT;
        char reason[48];
        snprintf(reason, sizeof reason, "%s", expected[index].reason);
        request.epoch = expected[index].grpc;
        request.user = reason;
        request.directory = (ProtobufCBinaryData){11, (uint8_t[]){"100% \xc3\xa9t\xc3\xa9!"}};
        ck_assert_int_eq(sbx_session_call(session, "/sandbox.v1.Guard/Open", &request.base, false,
                                          &sandbox__v1__open_reply__descriptor, &wait, &reply,
                                          &error),
                         expected[index].status);
        ck_assert_str_eq(error.reason, expected[index].reason);
        ck_assert_str_eq(error.message, "100% \xc3\xa9t\xc3\xa9!");
    }
}
END_TEST

START_TEST(an_unknown_method_is_unsupported)
{
    struct sbx_wait wait = soon();
    Sandbox__V1__HealthRequest request = SANDBOX__V1__HEALTH_REQUEST__INIT;
    ck_assert_int_eq(sbx_session_call(session, "/sandbox.v1.Guard/None", &request.base, false,
                                      &sandbox__v1__health_reply__descriptor, &wait, &reply,
                                      &error),
                     SANDBOX_UNSUPPORTED);
}
END_TEST

static unsigned given_up(void)
{
    struct sbx_wait wait = soon();
    Sandbox__V1__ActivityRequest request = SANDBOX__V1__ACTIVITY_REQUEST__INIT;
    ProtobufCMessage *answer = NULL;
    ck_assert_int_eq(sbx_session_call(session, "/sandbox.v1.Guard/Activity", &request.base, true,
                                      &sandbox__v1__activity_reply__descriptor, &wait, &answer,
                                      NULL),
                     SANDBOX_OK);
    unsigned count = ((const Sandbox__V1__ActivityReply *)(void *)answer)->active_tasks;
    protobuf_c_message_free_unpacked(answer, NULL);
    return count;
}

static void wait_until_given_up(unsigned count)
{
    struct sbx_wait wait = soon();
    while (given_up() < count)
        ck_assert_int_eq(sbx_wait_pause(&wait, 5, NULL), SANDBOX_OK);
}

START_TEST(a_deadline_ends_the_call_here_and_there)
{
    unsigned before = given_up();
    struct sbx_wait wait = sbx_wait_alone(60);
    ck_assert_int_eq(call_stats(&wait, false), SANDBOX_TIMED_OUT);
    ck_assert_str_eq(error.reason, "answer-lost"); /* it may have happened */
    wait = sbx_wait_alone(60);
    ck_assert_int_eq(call_stats(&wait, true), SANDBOX_TIMED_OUT);
    /* Both ends know the deadline: whichever sees it first words the error. */
    ck_assert(error.reason[0] == '\0' || strcmp(error.reason, "agent-gave-up") == 0);
    wait_until_given_up(before + 2);
}
END_TEST

START_TEST(a_deadline_that_has_passed_sends_nothing)
{
    struct sbx_wait wait = sbx_wait_alone(0);
    ck_assert_int_eq(call_stats(&wait, false), SANDBOX_TIMED_OUT);
    ck_assert_str_eq(error.reason, "");
}
END_TEST

static void *trigger_soon(void *cancel)
{
    poll(NULL, 0, 30);
    sandbox_cancel_trigger(cancel);
    return NULL;
}

START_TEST(a_cancel_ends_the_call_here_and_there)
{
    unsigned before = given_up();
    sandbox_cancel *cancel = NULL;
    ck_assert_int_eq(sandbox_cancel_create(&cancel, NULL), SANDBOX_OK);
    struct sbx_wait wait = sbx_wait_alone(SANDBOX_FOREVER);
    wait.cancel = cancel;
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, trigger_soon, cancel), 0);
    ck_assert_int_eq(call_stats(&wait, false), SANDBOX_CANCELLED);
    pthread_join(thread, NULL);
    wait_until_given_up(before + 1);
    sandbox_cancel_free(cancel);
}
END_TEST

static int interrupt_third(void *count)
{
    return ++*(int *)count >= 3;
}

START_TEST(an_interruption_ends_the_call)
{
    int count = 0;
    struct sbx_wait wait = sbx_wait_alone(SANDBOX_FOREVER);
    wait.interrupted = interrupt_third;
    wait.user_data = &count;
    ck_assert_int_eq(call_stats(&wait, false), SANDBOX_CANCELLED);
    ck_assert_int_eq(count, 3);
}
END_TEST

static void *call_many(void *failures)
{
    for (unsigned each = 0; each < 20; each++) {
        struct sbx_wait wait = soon();
        Sandbox__V1__HealthRequest request = SANDBOX__V1__HEALTH_REQUEST__INIT;
        ProtobufCMessage *answer = NULL;
        if (sbx_session_call(session, health, &request.base, false,
                             &sandbox__v1__health_reply__descriptor, &wait, &answer,
                             NULL) == SANDBOX_OK)
            protobuf_c_message_free_unpacked(answer, NULL);
        else
            atomic_fetch_add((atomic_uint *)failures, 1);
    }
    return NULL;
}

START_TEST(many_threads_share_one_session)
{
    atomic_uint failures = 0;
    pthread_t threads[16];
    for (unsigned each = 0; each < 16; each++)
        ck_assert_int_eq(pthread_create(&threads[each], NULL, call_many, &failures), 0);
    for (unsigned each = 0; each < 16; each++)
        pthread_join(threads[each], NULL);
    ck_assert_uint_eq(atomic_load(&failures), 0);
    ck_assert(sbx_session_idle_ms(session) >= 0);
}
END_TEST

/* ---- streams ---- */

START_TEST(a_stream_of_answers_is_byte_exact_P156_P191)
{
    struct sbx_stream *stream = open_attach(24 * MIB + 12345, 0);
    ck_assert_uint_eq(read_all(stream), 24 * MIB + 12345);
    sbx_stream_free(stream);
    stream = open_attach(100000, 7); /* many small ones */
    ck_assert_uint_eq(read_all(stream), 100000);
    sbx_stream_free(stream);
}
END_TEST

START_TEST(a_message_as_large_as_allowed_passes)
{
    struct sbx_stream *stream = open_attach(3 * (4 * MIB - 100), 4 * MIB - 100);
    ck_assert_uint_eq(read_all(stream), 3 * (4 * MIB - 100));
    sbx_stream_free(stream);
}
END_TEST

START_TEST(a_stream_of_requests_gets_one_answer)
{
    struct sbx_wait wait = soon();
    struct sbx_stream *stream = NULL;
    ck_assert_int_eq(sbx_stream_open(session, "/sandbox.v1.Files/Write", &stream, &error),
                     SANDBOX_OK);
    Sandbox__V1__FileWrite piece = SANDBOX__V1__FILE_WRITE__INIT;
    uint8_t *data = calloc(1, 256 << 10);
    piece.data = (ProtobufCBinaryData){256 << 10, data};
    for (unsigned each = 0; each < 64; each++)
        ck_assert_int_eq(sbx_stream_send(stream, &piece.base, &wait, &error), SANDBOX_OK);
    sbx_stream_end(stream);
    ck_assert_int_eq(sbx_stream_send(stream, &piece.base, &wait, &error), SANDBOX_INVALID);
    ck_assert_int_eq(sbx_stream_next(stream, &sandbox__v1__file_write_reply__descriptor, &wait,
                                     &reply, &error),
                     SANDBOX_OK);
    ck_assert_uint_eq(((const Sandbox__V1__FileWriteReply *)(void *)reply)->written, 16 * MIB);
    drop_reply();
    ck_assert_int_eq(sbx_stream_next(stream, &sandbox__v1__file_write_reply__descriptor, &wait,
                                     &reply, &error),
                     SANDBOX_CLOSED);
    sbx_stream_free(stream);
    free(data);
}
END_TEST

static void *echo(void *failures)
{
    struct sbx_wait wait = soon();
    struct sbx_stream *stream = NULL;
    bool good = sbx_stream_open(session, dial, &stream, NULL) == SANDBOX_OK;
    uint8_t data[1000];
    for (unsigned each = 0; each < 20 && good; each++) {
        memset(data, (int)each, sizeof data);
        Sandbox__V1__PortData piece = SANDBOX__V1__PORT_DATA__INIT;
        piece.data = (ProtobufCBinaryData){sizeof data, data};
        ProtobufCMessage *message = NULL;
        good = sbx_stream_send(stream, &piece.base, &wait, NULL) == SANDBOX_OK &&
               sbx_stream_next(stream, &sandbox__v1__port_data__descriptor, &wait, &message,
                               NULL) == SANDBOX_OK;
        if (!good)
            break;
        const Sandbox__V1__PortData *back = (const Sandbox__V1__PortData *)(void *)message;
        good = back->data.len == sizeof data && memcmp(back->data.data, data, sizeof data) == 0;
        protobuf_c_message_free_unpacked(message, NULL);
    }
    if (!good)
        atomic_fetch_add((atomic_uint *)failures, 1);
    sbx_stream_free(stream);
    return NULL;
}

START_TEST(sixty_four_streams_run_at_once)
{
    atomic_uint failures = 0;
    pthread_t threads[64];
    for (unsigned each = 0; each < 64; each++)
        ck_assert_int_eq(pthread_create(&threads[each], NULL, echo, &failures), 0);
    for (unsigned each = 0; each < 64; each++)
        pthread_join(threads[each], NULL);
    ck_assert_uint_eq(atomic_load(&failures), 0);
}
END_TEST

START_TEST(streams_that_nobody_reads_stop_only_themselves)
{
    struct sbx_stream *stalled[20]; /* more than the connection's window holds */
    for (unsigned each = 0; each < 20; each++)
        stalled[each] = open_attach(8 * MIB, 0);
    ck_assert_int_eq(call_health(true), SANDBOX_OK);
    drop_reply();
    struct sbx_stream *running = open_attach(12 * MIB, 0);
    ck_assert_uint_eq(read_all(running), 12 * MIB);
    sbx_stream_free(running);
    ck_assert_uint_eq(read_all(stalled[0]), 8 * MIB);
    for (unsigned each = 0; each < 20; each++)
        sbx_stream_free(stalled[each]);
}
END_TEST

START_TEST(a_sender_waits_while_nobody_takes)
{
    struct sbx_stream *stream = NULL;
    ck_assert_int_eq(sbx_stream_open(session, dial, &stream, &error), SANDBOX_OK);
    uint8_t *data = calloc(1, 256 << 10);
    Sandbox__V1__PortData piece = SANDBOX__V1__PORT_DATA__INIT;
    piece.data = (ProtobufCBinaryData){256 << 10, data};
    sandbox_status status = SANDBOX_OK;
    for (unsigned each = 0; each < 400 && status == SANDBOX_OK; each++) {
        struct sbx_wait wait = sbx_wait_alone(300);
        status = sbx_stream_send(stream, &piece.base, &wait, &error);
    }
    ck_assert_int_eq(status, SANDBOX_TIMED_OUT);
    sbx_stream_free(stream);
    free(data);
}
END_TEST

START_TEST(more_streams_than_allowed_are_refused_here)
{
    struct sbx_stream *streams[SBX_STREAMS_MAX];
    for (unsigned each = 0; each < SBX_STREAMS_MAX; each++)
        ck_assert_int_eq(sbx_stream_open(session, dial, &streams[each], &error), SANDBOX_OK);
    struct sbx_stream *another = NULL;
    ck_assert_int_eq(sbx_stream_open(session, dial, &another, &error), SANDBOX_LIMIT);
    ck_assert_ptr_null(another);
    for (unsigned each = 0; each < SBX_STREAMS_MAX; each++)
        sbx_stream_free(streams[each]);
}
END_TEST

START_TEST(a_request_larger_than_allowed_is_refused_here)
{
    struct sbx_wait wait = soon();
    struct sbx_stream *stream = NULL;
    ck_assert_int_eq(sbx_stream_open(session, dial, &stream, &error), SANDBOX_OK);
    uint8_t *data = calloc(1, SBX_MESSAGE_MAX);
    Sandbox__V1__PortData piece = SANDBOX__V1__PORT_DATA__INIT;
    piece.data = (ProtobufCBinaryData){SBX_MESSAGE_MAX, data};
    ck_assert_int_eq(sbx_stream_send(stream, &piece.base, &wait, &error), SANDBOX_LIMIT);
    sbx_stream_free(stream);
    free(data);
}
END_TEST

START_TEST(the_descriptor_says_when_next_would_not_wait)
{
    struct sbx_wait wait = soon();
    struct sbx_stream *stream = NULL;
    ck_assert_int_eq(sbx_stream_open(session, dial, &stream, &error), SANDBOX_OK);
    int fd = sbx_stream_descriptor(stream);
    ck_assert_int_ge(fd, 0);
    ck_assert(!is_readable(fd, 0));
    Sandbox__V1__PortData piece = SANDBOX__V1__PORT_DATA__INIT;
    ck_assert_int_eq(sbx_stream_send(stream, &piece.base, &wait, &error), SANDBOX_OK);
    ck_assert(is_readable(fd, WAIT_MS));
    ck_assert(sbx_stream_is_ready(stream));
    ck_assert_int_eq(sbx_stream_next(stream, &sandbox__v1__port_data__descriptor, &wait, &reply,
                                     &error),
                     SANDBOX_OK);
    drop_reply();
    ck_assert(!is_readable(fd, 0));
    sbx_stream_end(stream);
    ck_assert(is_readable(fd, WAIT_MS));
    for (unsigned each = 0; each < 2; each++)
        ck_assert_int_eq(sbx_stream_next(stream, &sandbox__v1__port_data__descriptor, &wait,
                                         &reply, &error),
                         SANDBOX_CLOSED);
    ck_assert(is_readable(fd, 0));
    sbx_stream_free(stream);
}
END_TEST

struct carrier {
    struct sbx_stream *stream;
    atomic_uint got;
    atomic_bool over;
};

static void carry(void *user_data)
{
    static const struct sbx_wait now = {.deadline_ms = 0};
    struct carrier *carrier = user_data;
    for (;;) {
        ProtobufCMessage *message = NULL;
        sandbox_status status = sbx_stream_next(
            carrier->stream, &sandbox__v1__process_event__descriptor, &now, &message, NULL);
        if (status == SANDBOX_CLOSED)
            atomic_store(&carrier->over, true);
        if (status != SANDBOX_OK)
            return;
        atomic_fetch_add(&carrier->got, (unsigned)((Sandbox__V1__ProcessEvent *)(void *)message)
                                            ->data.len);
        protobuf_c_message_free_unpacked(message, NULL);
    }
}

START_TEST(a_carrier_is_called_on_the_io_thread)
{
    struct carrier carrier = {.stream = open_attach(12 * MIB, 0)};
    sbx_stream_on_ready(carrier.stream, carry, &carrier);
    struct sbx_wait wait = soon();
    while (!atomic_load(&carrier.over))
        ck_assert_int_eq(sbx_wait_pause(&wait, 2, NULL), SANDBOX_OK);
    ck_assert_uint_eq(atomic_load(&carrier.got), 12 * MIB);
    sbx_stream_free(carrier.stream);
}
END_TEST

/* ---- what a host's thread must not notice ---- */

/* The I/O thread stands still from the first post to the second: whoever writes is the caller. */
struct stand {
    struct sbx_loop_task task;
    sem_t reached, go;
};

static void stand_still(struct sbx_loop_task *task)
{
    struct stand *stand = (struct stand *)(void *)task;
    sem_post(&stand->reached);
    while (sem_wait(&stand->go) != 0)
        continue;
}

/* A call of this thread's into a pipe that nobody reads, written by this thread itself. */
static void write_into_a_broken_pipe(void)
{
    int there[2], back[2];
    ck_assert_int_eq(pipe2(there, O_CLOEXEC | O_NONBLOCK), 0);
    ck_assert_int_eq(pipe2(back, O_CLOEXEC | O_NONBLOCK), 0);
    struct sbx_channel channel = SBX_CHANNEL;
    channel.read_fd = back[0];
    channel.write_fd = there[1];
    struct sbx_session *broken = NULL;
    ck_assert_int_eq(sbx_session_start(loop, &channel, &broken, &error), SANDBOX_OK);
    struct stand stand = {.task = {.run = stand_still}};
    sem_init(&stand.reached, 0, 0);
    sem_init(&stand.go, 0, 0);
    sbx_loop_post(loop, &stand.task);
    while (sem_wait(&stand.reached) != 0)
        continue;

    close(there[0]);
    struct sbx_stream *stream = NULL;
    ck_assert_int_eq(sbx_stream_open(broken, dial, &stream, &error), SANDBOX_OK);
    ck_assert(broken->failed); /* it has been seen, and only this thread runs */
    sem_post(&stand.go);
    struct sbx_wait wait = soon();
    ck_assert_int_eq(sbx_stream_next(stream, &sandbox__v1__port_data__descriptor, &wait, &reply,
                                     &error),
                     SANDBOX_UNAVAILABLE);
    sbx_stream_free(stream);
    sbx_session_drop(broken);
    close(back[1]);
    sem_destroy(&stand.reached);
    sem_destroy(&stand.go);
}

static bool is_pending(void)
{
    sigset_t pending;
    sigemptyset(&pending);
    return sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
}

static void set_blocked(bool blocked)
{
    sigset_t pipe_only;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    ck_assert_int_eq(pthread_sigmask(blocked ? SIG_BLOCK : SIG_UNBLOCK, &pipe_only, NULL), 0);
}

static bool is_blocked(void)
{
    sigset_t mask;
    return pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0 && sigismember(&mask, SIGPIPE) == 1;
}

START_TEST(a_broken_pipe_does_not_end_the_host)
{
    signal(SIGPIPE, SIG_DFL);
    set_blocked(false);
    write_into_a_broken_pipe();
    ck_assert(!is_blocked() && !is_pending());
}
END_TEST

static volatile sig_atomic_t pipe_signals;

static void count_signal(int number)
{
    pipe_signals++;
}

START_TEST(a_hosts_handler_hears_nothing_of_a_broken_pipe)
{
    signal(SIGPIPE, count_signal);
    set_blocked(false);
    write_into_a_broken_pipe();
    ck_assert_int_eq(pipe_signals, 0);
    raise(SIGPIPE);
    ck_assert_int_eq(pipe_signals, 1); /* it is the host's as before */
}
END_TEST

START_TEST(what_a_host_ignores_stays_ignored)
{
    signal(SIGPIPE, SIG_IGN);
    set_blocked(false);
    write_into_a_broken_pipe();
    ck_assert(signal(SIGPIPE, SIG_DFL) == SIG_IGN);
    ck_assert(!is_blocked());
}
END_TEST

START_TEST(a_host_that_waits_for_the_signal_gets_none_of_ours)
{
    signal(SIGPIPE, SIG_DFL);
    set_blocked(true);
    write_into_a_broken_pipe();
    ck_assert(is_blocked() && !is_pending());
}
END_TEST

START_TEST(a_signal_that_the_host_has_pending_stays_its_own)
{
    signal(SIGPIPE, SIG_DFL);
    set_blocked(true);
    raise(SIGPIPE);
    write_into_a_broken_pipe();
    ck_assert(is_blocked() && is_pending());
    int taken = 0;
    sigset_t pipe_only;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    ck_assert_int_eq(sigwait(&pipe_only, &taken), 0);
    ck_assert(!is_pending()); /* it was one and no more */
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        a_call_gets_its_answer,
        every_call_carries_the_token_and_the_epoch,
        a_refusal_comes_with_its_status_reason_and_words,
        an_unknown_method_is_unsupported,
        a_deadline_ends_the_call_here_and_there,
        a_deadline_that_has_passed_sends_nothing,
        a_cancel_ends_the_call_here_and_there,
        an_interruption_ends_the_call,
        many_threads_share_one_session,
        a_stream_of_answers_is_byte_exact_P156_P191,
        a_message_as_large_as_allowed_passes,
        a_stream_of_requests_gets_one_answer,
        sixty_four_streams_run_at_once,
        streams_that_nobody_reads_stop_only_themselves,
        a_sender_waits_while_nobody_takes,
        more_streams_than_allowed_are_refused_here,
        a_request_larger_than_allowed_is_refused_here,
        the_descriptor_says_when_next_would_not_wait,
        a_carrier_is_called_on_the_io_thread,
        a_broken_pipe_does_not_end_the_host,
        a_hosts_handler_hears_nothing_of_a_broken_pipe,
        what_a_host_ignores_stays_ignored,
        a_host_that_waits_for_the_signal_gets_none_of_ours,
        a_signal_that_the_host_has_pending_stays_its_own,
    };
    return run_with_double(suite_of("session", tests, sizeof tests / sizeof tests[0]));
}
