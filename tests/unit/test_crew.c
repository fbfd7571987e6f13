/* Work shared out among threads: all of it is done, once, and the first failure ends it. */

#include "util/crew.h"
#include "util/fail.h"
#include "util/wait.h"

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#define COUNT 20000

struct job {
    struct sbx_crew *crew;
    atomic_uint done[COUNT], hands[SBX_CREW_MAX], open_signals, wrong_hands;
    uint64_t fail_at;
};

static struct job job;
static struct sbx_wait forever;

static void set_up(void)
{
    forever = sbx_wait_alone(SANDBOX_FOREVER);
    job.crew = sbx_crew_new();
    ck_assert_ptr_nonnull(job.crew);
    job.fail_at = UINT64_MAX;
}

static void tear_down(void)
{
    sbx_crew_end(&job.crew);
    ck_assert_ptr_null(job.crew);
}

/* Of every thread, and very often: what it sees is asserted afterwards. */
static sandbox_status count(void *data, unsigned hand, uint64_t index, sandbox_error *error)
{
    struct job *counted = data;
    sigset_t blocked;
    if (hand >= sbx_crew_size(counted->crew)) {
        atomic_fetch_add(&counted->wrong_hands, 1);
        return SANDBOX_OK;
    }
    atomic_fetch_add(&counted->done[index], 1);
    atomic_fetch_add(&counted->hands[hand], 1);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (hand != 0 && (sigismember(&blocked, SIGINT) == 0 || sigismember(&blocked, SIGTERM) == 0))
        atomic_fetch_add(&counted->open_signals, 1);
    return index >= counted->fail_at
               ? sbx_fail_for(error, SANDBOX_LIMIT, "test", "at %d", (int)index)
               : SANDBOX_OK;
}

START_TEST(everything_is_done_once_in_every_round)
{
    sandbox_error error = {0};
    for (unsigned round = 1; round <= 50; round++) {
        ck_assert_int_eq(sbx_crew_run(job.crew, COUNT, count, &job, &forever, &error), SANDBOX_OK);
        size_t wrong = 0;
        for (size_t n = 0; n < COUNT; n++)
            wrong += atomic_load(&job.done[n]) != round;
        ck_assert_uint_eq(wrong, 0);
    }
    ck_assert_uint_eq(atomic_load(&job.wrong_hands), 0);
    ck_assert_int_eq(sbx_crew_run(job.crew, 0, count, &job, &forever, &error), SANDBOX_OK);
    ck_assert_int_eq(sbx_crew_run(job.crew, 1, count, &job, &forever, &error), SANDBOX_OK);
    ck_assert_uint_eq(atomic_load(&job.done[0]), 51);
    ck_assert_uint_eq(atomic_load(&job.open_signals), 0);
}
END_TEST

START_TEST(a_failure_ends_it_and_the_next_round_is_good)
{
    sandbox_error error = {0};
    job.fail_at = 100;
    ck_assert_int_eq(sbx_crew_run(job.crew, COUNT, count, &job, &forever, &error), SANDBOX_LIMIT);
    ck_assert_str_eq(error.reason, "test");
    unsigned done = 0;
    for (size_t n = 0; n < COUNT; n++)
        done += atomic_load(&job.done[n]);
    ck_assert_uint_lt(done, 200 + SBX_CREW_MAX);
    job.fail_at = UINT64_MAX;
    ck_assert_int_eq(sbx_crew_run(job.crew, COUNT, count, &job, &forever, &error), SANDBOX_OK);
}
END_TEST

START_TEST(a_wait_that_is_over_ends_it)
{
    sandbox_error error = {0};
    struct sbx_wait over = sbx_wait_alone(0);
    ck_assert_int_eq(sbx_crew_run(job.crew, COUNT, count, &job, &over, &error), SANDBOX_TIMED_OUT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("crew");
    TCase *cases = tcase_create("crew");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, everything_is_done_once_in_every_round);
    tcase_add_test(cases, a_failure_ends_it_and_the_next_round_is_good);
    tcase_add_test(cases, a_wait_that_is_over_ends_it);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failures = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failures == 0 ? 0 : 1;
}
