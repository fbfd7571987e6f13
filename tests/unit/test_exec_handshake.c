/* How a command in a Pod comes to be: the handshake, refusals, credentials, and its end. */

#include "exec_place.h"

START_TEST(frames_right_behind_the_handshake_count)
{
    struct command command;
    char text[64] = "";
    start(&command, "early", "");
    read_all(&command, text, sizeof text - 1);
    ck_assert_str_eq(text, "before you asked");
    ends_well(&command);
}
END_TEST

static void is_refused(const char *pod, sandbox_status expected, const char *reason,
                       const char *words)
{
    struct command command;
    const char *argv[] = {"true", NULL};
    sandbox_status status = try_start(&command, pod, argv);
    ck_assert_msg(status == expected, "%s: %s: %s", pod, sandbox_status_name(status),
                  error.message);
    ck_assert_str_eq(error.reason, reason);
    must_say(error.message, words);
    ck_assert_ptr_null(strstr(error.message, "the-token"));
    ck_assert_uint_eq(command.ends, 0);
}

START_TEST(a_refusal_is_told_as_of_any_request)
{
    is_refused("status-403", SANDBOX_DENIED, "kubernetes-denied", "the double says 403");
    is_refused("status-404", SANDBOX_NOT_FOUND, "no-such-object", "the double says 404");
    is_refused("status-409", SANDBOX_CONFLICT, "object-changed", "the double says 409");
    is_refused("status-500", SANDBOX_UNAVAILABLE, "kubernetes-unavailable", "the double says 500");
    is_refused("chunked", SANDBOX_NOT_FOUND, "no-such-object", "no such chunk");
    is_refused("no-container", SANDBOX_NOT_FOUND, "no-such-object", "container not found");
    is_refused("other-key", SANDBOX_FAILED, "no-websocket", "did not agree");
    is_refused("no-protocol", SANDBOX_UNSUPPORTED, "no-websocket", "v5.channel.k8s.io");
    is_refused("no-http", SANDBOX_FAILED, "no-websocket", "no HTTP");
    is_refused("dropped", SANDBOX_UNAVAILABLE, "kubernetes-unavailable", "broke before");
    cluster->pace.tries = 3;
    is_refused("always-throttled", SANDBOX_UNAVAILABLE, "kubernetes-unavailable", "slow down");
}
END_TEST

START_TEST(a_server_that_is_not_there_or_not_the_right_one_is_told)
{
    sbx_kubernetes_close(cluster);
    open_as("nowhere");
    cluster->pace.tries = 2;
    is_refused("exit", SANDBOX_UNAVAILABLE, "kubernetes-unavailable",
               "context 'nowhere': cannot run a command in Pod 'exit': ");
    must_say(error.message, "127.0.0.1"); /* curl's own words */
    sbx_kubernetes_close(cluster);
    open_as("stranger");
    is_refused("exit", SANDBOX_DENIED, "tls-untrusted", "certificate");
}
END_TEST

START_TEST(what_was_throttled_is_asked_again)
{
    struct command command;
    start(&command, "throttled", "5");
    ck_assert_int_eq(end_of(&command).code, 5);
}
END_TEST

/* The token does not change here, so a second 401 is final. */
START_TEST(a_refused_credential_is_not_given_for_ever)
{
    is_refused("status-401", SANDBOX_DENIED, "credential-refused", "");
}
END_TEST

/* The server refuses yesterday's token, and today's is in the file by then. */
START_TEST(a_fresh_credential_is_taken_once_the_old_is_refused)
{
    struct command command;
    sbx_kubernetes_close(cluster);
    open_as("late");
    start(&command, "expired", "3");
    ck_assert_int_eq(end_of(&command).code, 3);
}
END_TEST

static void *cancel_when_asked(void *cancel)
{
    char path[128];
    snprintf(path, sizeof path, "%s/asked", folder);
    struct sbx_wait wait = sbx_wait_alone(WAIT_MS);
    while (access(path, F_OK) != 0 && sbx_wait_pause(&wait, 2, NULL) == SANDBOX_OK)
        ;
    sandbox_cancel_trigger(cancel);
    return NULL;
}

START_TEST(a_handshake_can_be_cancelled)
{
    sandbox_cancel *cancel = NULL;
    ck_assert_int_eq(sandbox_cancel_create(&cancel, &error), SANDBOX_OK);
    pthread_t thread;
    pthread_create(&thread, NULL, cancel_when_asked, cancel);
    struct sbx_wait wait = sbx_wait_alone(WAIT_MS);
    wait.cancel = cancel;
    struct sbx_channel channel = SBX_CHANNEL;
    const char *argv[] = {"true", NULL};
    struct sbx_exec_options options = {"workspaces", "never", "workspace", argv, NULL, NULL};
    ck_assert_int_eq(sbx_kubernetes_exec(cluster, &options, &wait, &channel, &error),
                     SANDBOX_CANCELLED);
    pthread_join(thread, NULL);
    sandbox_cancel_free(cancel);

    wait = sbx_wait_alone(100);
    ck_assert_int_eq(sbx_kubernetes_exec(cluster, &options, &wait, &channel, &error),
                     SANDBOX_TIMED_OUT);
    ck_assert_int_eq(channel.read_fd, -1);
}
END_TEST

/* What was sent cannot be sent again, but nobody waits for its answer for ever. */
START_TEST(a_server_that_answers_no_handshake_is_told)
{
    cluster->pace.write_ms = 200;
    is_refused("never", SANDBOX_UNAVAILABLE, "kubernetes-unavailable", "did not answer in time");
}
END_TEST

static void add_cases(TCase *cases)
{
    tcase_add_test(cases, frames_right_behind_the_handshake_count);
    tcase_add_test(cases, a_refusal_is_told_as_of_any_request);
    tcase_add_test(cases, a_server_that_is_not_there_or_not_the_right_one_is_told);
    tcase_add_test(cases, what_was_throttled_is_asked_again);
    tcase_add_test(cases, a_refused_credential_is_not_given_for_ever);
    tcase_add_test(cases, a_fresh_credential_is_taken_once_the_old_is_refused);
    tcase_add_test(cases, a_handshake_can_be_cancelled);
    tcase_add_test(cases, a_server_that_answers_no_handshake_is_told);
}

int main(void)
{
    return run_cases("exec_handshake", add_cases);
}
