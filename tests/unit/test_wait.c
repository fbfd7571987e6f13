/* Waits: the deadline, the cancel handle and the interruption end them, each in its own way. */

#include "util/wait.h"
#include <check.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

static int calls;

static int interrupt_at_third_question(void *user_data)
{
    return ++calls >= *(int *)user_data;
}

START_TEST(a_call_without_size_is_refused)
{
    struct sbx_wait wait;
    sandbox_error error;
    sandbox_call call = {.timeout_ms = 5};
    ck_assert_int_eq(sbx_wait_begin(&wait, &call, 1000, &error), SANDBOX_INVALID);
    ck_assert(strstr(error.message, "initializer") != NULL);
}
END_TEST

START_TEST(a_newer_callers_unknown_field_is_refused_only_if_it_is_set)
{
    struct {
        sandbox_call call;
        long later;
    } newer = {{.size = sizeof newer, .timeout_ms = 7}, 0};
    struct sbx_wait wait;
    ck_assert_int_eq(sbx_wait_begin(&wait, &newer.call, 1000, NULL), SANDBOX_OK);
    newer.later = 1;
    ck_assert_int_eq(sbx_wait_begin(&wait, &newer.call, 1000, NULL), SANDBOX_UNSUPPORTED);
}
END_TEST

START_TEST(the_default_deadline_counts_where_none_is_given)
{
    struct sbx_wait wait;
    ck_assert_int_eq(sbx_wait_begin(&wait, NULL, 60000, NULL), SANDBOX_OK);
    ck_assert_uint_gt(sbx_wait_left_ms(&wait), 50000);
    ck_assert_uint_le(sbx_wait_left_ms(&wait), 60000);
    ck_assert_int_eq(sbx_wait_begin(&wait, NULL, SANDBOX_FOREVER, NULL), SANDBOX_OK);
    ck_assert_uint_eq(sbx_wait_left_ms(&wait), SANDBOX_FOREVER);
    ck_assert_int_eq(sbx_wait_slice_ms(&wait), -1);
}
END_TEST

START_TEST(the_deadline_ends_a_wait)
{
    struct sbx_wait wait = sbx_wait_alone(1);
    sandbox_error error;
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(sbx_wait_descriptor(&wait, ends[0], POLLIN, &error), SANDBOX_TIMED_OUT);
    ck_assert_int_eq(error.status, SANDBOX_TIMED_OUT);
    close(ends[0]);
    close(ends[1]);
}
END_TEST

START_TEST(a_cancel_handle_ends_every_wait_now_and_later)
{
    sandbox_cancel *cancel = NULL;
    ck_assert_int_eq(sandbox_cancel_create(&cancel, NULL), SANDBOX_OK);
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = SANDBOX_FOREVER, .cancel = cancel};
    struct sbx_wait wait;
    ck_assert_int_eq(sbx_wait_begin(&wait, &call, 1, NULL), SANDBOX_OK);
    ck_assert_int_eq(sbx_wait_check(&wait, NULL), SANDBOX_OK);
    sandbox_cancel_trigger(cancel);
    ck_assert_int_eq(sbx_wait_check(&wait, NULL), SANDBOX_CANCELLED);
    ck_assert_int_eq(sbx_wait_pause(&wait, 100000, NULL), SANDBOX_CANCELLED);
    sandbox_cancel_free(cancel);
    sandbox_cancel_free(NULL);
}
END_TEST

START_TEST(the_interruption_is_asked_again_and_again_while_waiting)
{
    int limit = 3;
    calls = 0;
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = SANDBOX_FOREVER,
                         .interrupted = interrupt_at_third_question, .user_data = &limit};
    struct sbx_wait wait;
    ck_assert_int_eq(sbx_wait_begin(&wait, &call, 1, NULL), SANDBOX_OK);
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition;
    ck_assert_int_eq(sbx_condition_init(&condition), 0);
    pthread_mutex_lock(&mutex);
    sandbox_status status = SANDBOX_OK;
    while (status == SANDBOX_OK)
        status = sbx_wait_condition(&wait, &condition, &mutex, NULL);
    pthread_mutex_unlock(&mutex);
    ck_assert_int_eq(status, SANDBOX_CANCELLED);
    ck_assert_int_eq(calls, 3);
    pthread_cond_destroy(&condition);
}
END_TEST

START_TEST(a_wait_within_another_never_lasts_longer)
{
    struct sbx_wait outer = sbx_wait_alone(10);
    struct sbx_wait inner = sbx_wait_within(&outer, 100000);
    ck_assert_uint_le(sbx_wait_left_ms(&inner), 10);
    inner = sbx_wait_within(&outer, 0);
    ck_assert_uint_eq(sbx_wait_left_ms(&inner), 0);
}
END_TEST

START_TEST(the_longest_timeouts_do_not_overflow)
{
    /* P158 */
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = SANDBOX_FOREVER - 1};
    struct sbx_wait wait;
    ck_assert_int_eq(sbx_wait_begin(&wait, &call, 1, NULL), SANDBOX_OK);
    ck_assert_uint_gt(sbx_wait_left_ms(&wait), 4000000000u);
    ck_assert_int_gt(sbx_wait_slice_ms(&wait), 0);
    ck_assert_int_eq(sbx_wait_check(&wait, NULL), SANDBOX_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wait");
    TCase *all = tcase_create("all");
    tcase_add_test(all, a_call_without_size_is_refused);
    tcase_add_test(all, a_newer_callers_unknown_field_is_refused_only_if_it_is_set);
    tcase_add_test(all, the_default_deadline_counts_where_none_is_given);
    tcase_add_test(all, the_deadline_ends_a_wait);
    tcase_add_test(all, a_cancel_handle_ends_every_wait_now_and_later);
    tcase_add_test(all, the_interruption_is_asked_again_and_again_while_waiting);
    tcase_add_test(all, a_wait_within_another_never_lasts_longer);
    tcase_add_test(all, the_longest_timeouts_do_not_overflow);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
