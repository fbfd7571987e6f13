/* Events: queues that a client fills from any thread and a watch empties. */

#include "core/client.h"
#include "util/memory.h"
#include <check.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define TELLERS 4
#define EACH 2000

static sandbox_error error;
static sandbox_client *client;
static sandbox_watch *watch;

/* As much of a client as events need; the platform is not asked. */
static void begin(void)
{
    client = calloc(1, sizeof *client);
    ck_assert_ptr_nonnull(client);
    client->pid = getpid();
    client->clock = &sbx_system_clock;
    atomic_init(&client->references, 1);
    sbx_events_init(&client->events);
    ck_assert_int_eq(sandbox_client_watch(client, &watch, &error), SANDBOX_OK);
}

static void end(void)
{
    sandbox_watch_free(watch);
    ck_assert_uint_eq(atomic_load(&client->references), 1);
    ck_assert_ptr_null(client->events.first);
    sbx_events_free(&client->events);
    free(client);
}

static struct sbx_record record_named(const char *name, sandbox_state state)
{
    struct sbx_record record = {.state = state};
    snprintf(record.name, sizeof record.name, "%s", name);
    snprintf(record.id, sizeof record.id, "id-of-%s", name);
    snprintf(record.operation.kind, sizeof record.operation.kind, "suspend");
    return record;
}

static void progress(const char *name, const char *step, uint64_t done)
{
    char id[SBX_ID_TEXT];
    snprintf(id, sizeof id, "id-of-%s", name);
    sbx_events_progress(client, name, id, "suspend", step, done, 100);
}

static sandbox_event next(void)
{
    sandbox_event event = {SANDBOX_EVENT};
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = 20000};
    ck_assert_msg(sandbox_watch_next(watch, &call, &event, &error) == SANDBOX_OK, "%s",
                  error.message);
    return event;
}

static void nothing_more(void)
{
    sandbox_event event = {SANDBOX_EVENT};
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = 1};
    ck_assert_int_eq(sandbox_watch_next(watch, &call, &event, &error), SANDBOX_TIMED_OUT);
}

START_TEST(states_and_steps_come_in_order_with_all_that_is_known)
{
    int64_t before_ms = sbx_clock_wall(&sbx_system_clock);
    struct sbx_record record = record_named("alpha", SANDBOX_STATE_SUSPENDING);
    sbx_events_state(client, &record, NULL);
    sbx_events_step(client, &record, "seal");
    record.state = SANDBOX_STATE_SUSPENDED;
    record.operation.kind[0] = '\0'; /* it is done */
    sbx_events_state(client, &record, "suspend");

    sandbox_event event = next();
    ck_assert_int_eq(event.kind, SANDBOX_EVENT_STATE);
    ck_assert_int_eq(event.state, SANDBOX_STATE_SUSPENDING);
    ck_assert_str_eq(event.workspace, "alpha");
    ck_assert_str_eq(event.id, "id-of-alpha");
    ck_assert_str_eq(event.operation, "suspend");
    ck_assert_str_eq(event.text, "suspend");
    ck_assert_int_ge(event.time_ms, before_ms);
    event = next();
    ck_assert_int_eq(event.kind, SANDBOX_EVENT_STEP);
    ck_assert_str_eq(event.text, "seal");
    event = next();
    ck_assert_int_eq(event.state, SANDBOX_STATE_SUSPENDED);
    ck_assert_str_eq(event.text, "suspend");
    nothing_more();
}
END_TEST

START_TEST(a_watch_sees_what_comes_after_it_and_every_watch_sees_all_of_that)
{
    sandbox_watch *later = NULL;
    struct sbx_record record = record_named("alpha", SANDBOX_STATE_RUNNING);
    sbx_events_step(client, &record, "first");
    ck_assert_int_eq(sandbox_client_watch(client, &later, &error), SANDBOX_OK);
    sbx_events_step(client, &record, "second");
    ck_assert_str_eq(next().text, "first");
    ck_assert_str_eq(next().text, "second");
    nothing_more();
    sandbox_event event = {SANDBOX_EVENT};
    ck_assert_int_eq(sandbox_watch_next(later, NULL, &event, &error), SANDBOX_OK);
    ck_assert_str_eq(event.text, "second");
    sandbox_watch_free(later);
}
END_TEST

START_TEST(of_progress_only_the_newest_of_each_workspace_and_step_is_kept)
{
    for (uint64_t done = 0; done <= 100; done++) {
        progress("alpha", "memory", done);
        progress("alpha", "files", done / 2);
        progress("beta", "memory", done / 4);
    }
    sandbox_event event = next();
    ck_assert_str_eq(event.text, "memory");
    ck_assert_uint_eq(event.done, 100);
    ck_assert_uint_eq(event.total, 100);
    event = next();
    ck_assert_str_eq(event.text, "files");
    ck_assert_uint_eq(event.done, 50);
    event = next();
    ck_assert_str_eq(event.workspace, "beta");
    ck_assert_uint_eq(event.done, 25);
    nothing_more();
}
END_TEST

START_TEST(progress_never_moves_before_a_step_or_a_state)
{
    struct sbx_record record = record_named("alpha", SANDBOX_STATE_SUSPENDING);
    progress("alpha", "copy", 10);
    sbx_events_step(client, &record, "verify");
    progress("alpha", "copy", 20);
    ck_assert_uint_eq(next().done, 10);
    ck_assert_int_eq(next().kind, SANDBOX_EVENT_STEP);
    ck_assert_uint_eq(next().done, 20);
    nothing_more();
}
END_TEST

START_TEST(a_watch_that_is_not_read_loses_the_oldest_and_says_how_many)
{
    struct sbx_record record = record_named("alpha", SANDBOX_STATE_RUNNING);
    char step[16];
    for (unsigned count = 0; count < SBX_EVENTS_MAX + 10; count++) {
        snprintf(step, sizeof step, "%u", count);
        sbx_events_step(client, &record, step);
    }
    sandbox_event event = next();
    ck_assert_int_eq(event.kind, SANDBOX_EVENT_LOST);
    ck_assert_uint_eq(event.done, 10);
    ck_assert_int_gt(event.time_ms, 0);
    for (unsigned count = 10; count < SBX_EVENTS_MAX + 10; count++) {
        snprintf(step, sizeof step, "%u", count);
        ck_assert_str_eq(next().text, step);
    }
    nothing_more();
    sbx_events_step(client, &record, "again");
    ck_assert_str_eq(next().text, "again");
}
END_TEST

START_TEST(progress_makes_no_watch_overflow)
{
    struct sbx_record record = record_named("alpha", SANDBOX_STATE_SUSPENDING);
    sbx_events_step(client, &record, "copy");
    for (uint64_t done = 0; done < 100000; done++)
        progress("alpha", "copy", done);
    ck_assert_int_eq(next().kind, SANDBOX_EVENT_STEP);
    ck_assert_uint_eq(next().done, 99999);
    nothing_more();
}
END_TEST

START_TEST(there_is_a_limit_on_watches)
{
    sandbox_watch *watches[SBX_WATCHES_MAX] = {NULL};
    for (unsigned n = 1; n < SBX_WATCHES_MAX; n++)
        ck_assert_int_eq(sandbox_client_watch(client, &watches[n], &error), SANDBOX_OK);
    ck_assert_int_eq(sandbox_client_watch(client, &watches[0], &error), SANDBOX_LIMIT);
    ck_assert_str_eq(error.reason, "too-many-watches");
    sandbox_watch_free(watches[1]);
    ck_assert_int_eq(sandbox_client_watch(client, &watches[1], &error), SANDBOX_OK);
    for (unsigned n = 0; n < SBX_WATCHES_MAX; n++)
        sandbox_watch_free(watches[n]);
}
END_TEST

START_TEST(what_is_no_watch_or_no_place_is_refused)
{
    sandbox_event event = {SANDBOX_EVENT};
    ck_assert_int_eq(sandbox_client_watch(NULL, &watch, &error), SANDBOX_INVALID);
    ck_assert_int_eq(sandbox_client_watch(client, NULL, &error), SANDBOX_INVALID);
    ck_assert_int_eq(sandbox_watch_next(NULL, NULL, &event, &error), SANDBOX_INVALID);
    ck_assert_int_eq(sandbox_watch_next(watch, NULL, NULL, &error), SANDBOX_INVALID);
    sandbox_watch_free(NULL);
}
END_TEST

START_TEST(a_cancelled_wait_loses_nothing)
{
    sandbox_cancel *cancel = NULL;
    ck_assert_int_eq(sandbox_cancel_create(&cancel, NULL), SANDBOX_OK);
    sandbox_cancel_trigger(cancel);
    sandbox_event event = {SANDBOX_EVENT};
    sandbox_call call = {SANDBOX_CALL, .cancel = cancel};
    ck_assert_int_eq(sandbox_watch_next(watch, &call, &event, &error), SANDBOX_CANCELLED);
    progress("alpha", "copy", 1);
    ck_assert_uint_eq(next().done, 1);
    sandbox_cancel_free(cancel);
}
END_TEST

START_TEST(an_older_callers_struct_is_filled_as_far_as_it_reaches)
{
    struct {
        sandbox_event event;
        char guard[8];
    } place = {{.size = offsetof(sandbox_event, done)}, "intact"};
    place.event.done = 77;
    progress("alpha", "copy", 1);
    ck_assert_int_eq(sandbox_watch_next(watch, NULL, &place.event, &error), SANDBOX_OK);
    ck_assert_str_eq(place.event.text, "copy");
    ck_assert_uint_eq(place.event.done, 77);
    ck_assert_str_eq(place.guard, "intact");
}
END_TEST

START_TEST(a_forked_child_may_only_free)
{
    pid_t child = fork();
    if (child == 0) {
        sandbox_event event = {SANDBOX_EVENT};
        bool refused = sandbox_watch_next(watch, NULL, &event, &error) == SANDBOX_INVALID;
        sandbox_watch_free(watch);
        _exit(refused ? 0 : 1);
    }
    int code = -1;
    ck_assert_int_eq(waitpid(child, &code, 0), child);
    ck_assert_int_eq(code, 0);
    progress("alpha", "copy", 5);
    ck_assert_uint_eq(next().done, 5);
}
END_TEST

static void *tell(void *user_data)
{
    struct sbx_record record = record_named(user_data, SANDBOX_STATE_RUNNING);
    for (unsigned count = 0; count < EACH; count++) {
        sbx_events_step(client, &record, "step");
        progress(user_data, "copy", count);
    }
    return NULL;
}

static void *come_and_go(void *unused)
{
    for (unsigned count = 0; count < 200; count++) {
        sandbox_watch *own = NULL;
        if (sandbox_client_watch(client, &own, NULL) == SANDBOX_OK)
            sandbox_watch_free(own);
    }
    return unused;
}

START_TEST(a_waiting_reader_is_woken_and_every_event_is_read_or_counted)
{
    static char names[TELLERS][8];
    pthread_t tellers[TELLERS], other;
    for (unsigned n = 0; n < TELLERS; n++) {
        snprintf(names[n], sizeof names[n], "w%u", n);
        ck_assert_int_eq(pthread_create(&tellers[n], NULL, tell, names[n]), 0);
    }
    ck_assert_int_eq(pthread_create(&other, NULL, come_and_go, NULL), 0);
    /* Each step was followed by progress, so none of that is replaced. */
    for (uint64_t told = 0; told < TELLERS * 2 * EACH;) {
        sandbox_event event = next();
        told += event.kind == SANDBOX_EVENT_LOST ? event.done : 1;
        ck_assert_uint_le(told, TELLERS * 2 * EACH);
    }
    for (unsigned n = 0; n < TELLERS; n++)
        pthread_join(tellers[n], NULL);
    pthread_join(other, NULL);
    nothing_more();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("events");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, begin, end);
    tcase_add_test(all, states_and_steps_come_in_order_with_all_that_is_known);
    tcase_add_test(all, a_watch_sees_what_comes_after_it_and_every_watch_sees_all_of_that);
    tcase_add_test(all, of_progress_only_the_newest_of_each_workspace_and_step_is_kept);
    tcase_add_test(all, progress_never_moves_before_a_step_or_a_state);
    tcase_add_test(all, a_watch_that_is_not_read_loses_the_oldest_and_says_how_many);
    tcase_add_test(all, progress_makes_no_watch_overflow);
    tcase_add_test(all, there_is_a_limit_on_watches);
    tcase_add_test(all, what_is_no_watch_or_no_place_is_refused);
    tcase_add_test(all, a_cancelled_wait_loses_nothing);
    tcase_add_test(all, an_older_callers_struct_is_filled_as_far_as_it_reaches);
    tcase_add_test(all, a_forked_child_may_only_free);
    tcase_add_test(all, a_waiting_reader_is_woken_and_every_event_is_read_or_counted);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
