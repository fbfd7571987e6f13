/*
 * Sessions with an agent that breaks off or misbehaves, and the ends of sessions. The numbers
 * like P008 are those of the list of real-world faults.
 */

#include "agent_double.h"

/* ---- lost connections ---- */

START_TEST(a_lost_answer_is_unknown_unless_the_call_may_be_repeated)
{
    static const char *const names[] = {"cut", "cut-in-answer", "garbage", "reset"};
    for (size_t index = 0; index < sizeof names / sizeof names[0]; index++) {
        use(names[index]);
        ck_assert_int_eq(call_health(false), SANDBOX_UNKNOWN);
        ck_assert_str_eq(error.reason, "answer-lost");
        use(names[index]);
        ck_assert_int_eq(call_health(true), SANDBOX_UNAVAILABLE);
        ck_assert_str_eq(error.reason, "answer-lost");
    }
}
END_TEST

START_TEST(what_never_left_is_not_in_doubt)
{
    use("cut");
    ck_assert_int_eq(call_health(false), SANDBOX_UNKNOWN);
    ck_assert(!sbx_session_is_alive(session));
    ck_assert_int_eq(call_health(false), SANDBOX_UNAVAILABLE);
    ck_assert_str_eq(error.reason, "not-sent");
    use("refuse-stream");
    ck_assert_int_eq(call_health(false), SANDBOX_UNAVAILABLE);
    ck_assert_str_eq(error.reason, "not-sent");
}
END_TEST

START_TEST(an_end_without_a_status_is_never_success_P008_P153_P007)
{
    use("no-trailers");
    ck_assert_int_eq(call_health(true), SANDBOX_UNAVAILABLE);
    ck_assert_str_eq(error.reason, "answer-lost");
    ck_assert_int_eq(call_health(false), SANDBOX_UNKNOWN);
    use("output-without-end");
    struct sbx_stream *stream = open_attach(0, 0);
    Sandbox__V1__ProcessEvent *event = next_event(stream);
    ck_assert_ptr_nonnull(event);
    ck_assert_uint_eq(event->data.len, 4);
    protobuf_c_message_free_unpacked(&event->base, NULL);
    ck_assert_ptr_null(next_event(stream));
    ck_assert_int_eq(error.status, SANDBOX_UNAVAILABLE);
    sbx_stream_free(stream);
}
END_TEST

START_TEST(an_answer_in_one_packet_is_read_whole_P029_P156)
{
    use("one-packet");
    struct sbx_stream *stream = open_attach(0, 0);
    static const char expected[] = "a\n\n\nb\r\n\n\0\xff";
    for (unsigned each = 0; each < 3; each++) {
        Sandbox__V1__ProcessEvent *event = next_event(stream);
        ck_assert_ptr_nonnull(event);
        if (each == 1) {
            ck_assert_uint_eq(event->data.len, sizeof expected - 1);
            ck_assert_mem_eq(event->data.data, expected, sizeof expected - 1);
        }
        protobuf_c_message_free_unpacked(&event->base, NULL);
    }
    ck_assert_ptr_null(next_event(stream));
    ck_assert_int_eq(error.status, SANDBOX_CLOSED);
    sbx_stream_free(stream);
}
END_TEST

START_TEST(a_cut_session_ends_every_call)
{
    struct sbx_stream *stream = open_attach(1000 * MIB, 0);
    Sandbox__V1__ProcessEvent *event = next_event(stream);
    ck_assert_ptr_nonnull(event);
    protobuf_c_message_free_unpacked(&event->base, NULL);
    sbx_session_cut(session);
    ck_assert(!sbx_session_is_alive(session));
    while ((event = next_event(stream)) != NULL)
        protobuf_c_message_free_unpacked(&event->base, NULL);
    ck_assert_int_eq(error.status, SANDBOX_UNAVAILABLE);
    sbx_stream_free(stream);
}
END_TEST

START_TEST(a_goodbye_lets_what_is_under_way_finish)
{
    use("goaway-then-answer");
    ck_assert_int_eq(call_health(false), SANDBOX_OK);
    drop_reply();
    ck_assert(!sbx_session_is_alive(session));
    ck_assert_int_eq(call_health(false), SANDBOX_UNAVAILABLE);
    ck_assert_str_eq(error.reason, "not-sent");
}
END_TEST

START_TEST(an_agent_that_answers_no_ping_is_given_up)
{
    use("silent");
    sbx_session_set_ping(session, 50);
    struct sbx_wait wait = soon();
    ck_assert_int_eq(call_stats(&wait, false), SANDBOX_UNKNOWN);
    ck_assert(!sbx_session_is_alive(session));
    use("good");
    sbx_session_set_ping(session, 200);
    struct sbx_wait shorter = sbx_wait_alone(700);
    ck_assert_int_eq(call_stats(&shorter, false), SANDBOX_TIMED_OUT);
    ck_assert(sbx_session_is_alive(session));
}
END_TEST

/* ---- hostile agents ---- */

START_TEST(a_malformed_answer_is_a_failure_and_says_so)
{
    static const char *const names[] = {"compressed", "too-large", "two-answers", "no-answer",
                                        "wrong-message", "cut-message"};
    for (size_t index = 0; index < sizeof names / sizeof names[0]; index++) {
        use(names[index]);
        ck_assert_int_eq(call_health(false), SANDBOX_FAILED);
        ck_assert_str_eq(error.reason, "malformed-answer");
        ck_assert_str_ne(error.message, "");
    }
    use("unknown-status");
    ck_assert_int_eq(call_health(false), SANDBOX_FAILED);
    use("status-no-number");
    ck_assert_int_eq(call_health(true), SANDBOX_UNAVAILABLE);
    use("http-error");
    ck_assert_int_eq(call_health(true), SANDBOX_UNAVAILABLE);
    use("many-headers");
    ck_assert_int_ne(call_health(true), SANDBOX_OK);
}
END_TEST

START_TEST(a_strangers_words_are_cut_and_cleaned)
{
    use("huge-message");
    ck_assert_int_eq(call_health(false), SANDBOX_NOT_FOUND);
    ck_assert_str_eq(error.reason, "no-such-file");
    ck_assert_uint_eq(strlen(error.message), sizeof error.message - 1);
    use("wild-message");
    ck_assert_int_eq(call_health(false), SANDBOX_NOT_FOUND);
    ck_assert_str_eq(error.reason, "");
    ck_assert_str_eq(error.message, "a b ?\xc3\xa9%zz ");
}
END_TEST

START_TEST(bytes_after_the_end_harm_nobody)
{
    use("data-after-trailers");
    ck_assert_int_eq(call_health(false), SANDBOX_OK);
    drop_reply();
    sandbox_status status = call_health(true); /* the session may be given up for it */
    ck_assert(status == SANDBOX_OK || status == SANDBOX_UNAVAILABLE);
    drop_reply();
}
END_TEST

/* ---- ends ---- */

START_TEST(everything_may_be_freed_while_streams_run_P030)
{
    struct sbx_stream *streams[20];
    for (unsigned each = 0; each < 20; each++)
        streams[each] = open_attach(64 * MIB, 0);
    Sandbox__V1__ProcessEvent *event = next_event(streams[0]);
    ck_assert_ptr_nonnull(event);
    protobuf_c_message_free_unpacked(&event->base, NULL);
    sbx_session_drop(sbx_take(session));
    for (unsigned each = 0; each < 20; each++)
        sbx_stream_free(streams[each]);
}
END_TEST

START_TEST(a_stream_outlives_the_handle_on_its_session)
{
    struct sbx_stream *stream = open_attach(3 * MIB, 0);
    sbx_session_drop(sbx_take(session));
    ck_assert_uint_eq(read_all(stream), 3 * MIB);
    sbx_stream_free(stream);
}
END_TEST

START_TEST(a_stream_that_is_freed_at_once_leaves_nothing)
{
    for (unsigned each = 0; each < 200; each++) {
        struct sbx_stream *stream = NULL;
        ck_assert_int_eq(sbx_stream_open(session, "/sandbox.v1.Ports/Dial", &stream, &error),
                         SANDBOX_OK);
        sbx_stream_free(stream);
    }
    ck_assert_int_eq(call_health(true), SANDBOX_OK);
    drop_reply();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        a_lost_answer_is_unknown_unless_the_call_may_be_repeated,
        what_never_left_is_not_in_doubt,
        an_end_without_a_status_is_never_success_P008_P153_P007,
        an_answer_in_one_packet_is_read_whole_P029_P156,
        a_cut_session_ends_every_call,
        a_goodbye_lets_what_is_under_way_finish,
        an_agent_that_answers_no_ping_is_given_up,
        a_malformed_answer_is_a_failure_and_says_so,
        a_strangers_words_are_cut_and_cleaned,
        bytes_after_the_end_harm_nobody,
        everything_may_be_freed_while_streams_run_P030,
        a_stream_outlives_the_handle_on_its_session,
        a_stream_that_is_freed_at_once_leaves_nothing,
    };
    return run_with_double(suite_of("session_wire", tests, sizeof tests / sizeof tests[0]));
}
