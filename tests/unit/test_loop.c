/* The I/O thread: tasks in their order, signals kept away, and relays ended without waiting. */

#include "transport/loop.h"
#include "util/clock.h"
#include "util/wait.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#define WAIT_MS 20000

static struct sbx_loop *loop;

struct step {
    struct sbx_loop_task task;
    unsigned number;
    bool was_current;
    bool pipe_was_quiet;
};

static atomic_uint done;
static unsigned order[3];

static void set_up(void)
{
    ck_assert_int_eq(sbx_loop_start(&loop, NULL), SANDBOX_OK);
}

static void note(struct sbx_loop_task *task)
{
    struct step *step = (struct step *)(void *)task;
    step->was_current = sbx_loop_is_current(loop);
    unsigned place = atomic_load(&done);
    if (place < 3)
        order[place] = step->number;
    atomic_store(&done, place + 1);
}

static void wait_until_done(unsigned count)
{
    struct sbx_wait wait = sbx_wait_alone(WAIT_MS);
    while (atomic_load(&done) < count)
        ck_assert_int_eq(sbx_wait_pause(&wait, 1, NULL), SANDBOX_OK);
}

START_TEST(tasks_run_on_the_thread_in_their_order)
{
    struct step steps[3];
    for (unsigned each = 0; each < 3; each++)
        steps[each] = (struct step){.task = {.run = note}, .number = each};
    for (unsigned each = 0; each < 3; each++)
        sbx_loop_post(loop, &steps[each].task);
    wait_until_done(3);
    for (unsigned each = 0; each < 3; each++) {
        ck_assert_uint_eq(order[each], each);
        ck_assert(steps[each].was_current);
    }
    ck_assert(!sbx_loop_is_current(loop));
    sbx_loop_post(loop, &steps[0].task); /* again, once it has run */
    sbx_loop_stop(loop);
    ck_assert_uint_eq(atomic_load(&done), 4);
}
END_TEST

static void write_to_nobody(struct sbx_loop_task *task)
{
    struct step *step = (struct step *)(void *)task;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) == 0) {
        close(ends[0]);
        step->pipe_was_quiet = write(ends[1], "x", 1) < 0 && errno == EPIPE;
        close(ends[1]);
    }
    atomic_fetch_add(&done, 1);
}

START_TEST(a_broken_pipe_raises_no_signal)
{
    struct step step = {.task = {.run = write_to_nobody}};
    sbx_loop_post(loop, &step.task);
    wait_until_done(1);
    ck_assert(step.pipe_was_quiet);
    sbx_loop_stop(loop);
}
END_TEST

struct ending {
    struct sbx_loop_task task;
    struct sbx_channel channel;
};

static void end_channel(struct sbx_loop_task *task)
{
    struct ending *ending = (struct ending *)(void *)task;
    sbx_loop_end_channel(loop, &ending->channel);
    atomic_fetch_add(&done, 1);
}

static void start_relay(struct sbx_channel *channel, const char *command)
{
    const char *const argv[] = {"/bin/sh", "-c", command, NULL};
    int to[2], from[2];
    ck_assert_int_eq(pipe2(to, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(from, O_CLOEXEC), 0);
    struct sbx_child_options options = {.argv = argv, .input = to[0], .output = from[1],
                                        .errors = -1};
    *channel = (struct sbx_channel)SBX_CHANNEL;
    ck_assert_int_eq(sbx_child_start(&channel->relay, &options, NULL), SANDBOX_OK);
    close(to[0]);
    close(from[1]);
    channel->write_fd = to[1];
    channel->read_fd = from[0];
}

START_TEST(relays_are_ended_and_reaped_all_at_once)
{
    static struct ending endings[12];
    pid_t pids[12];
    for (unsigned each = 0; each < 12; each++) {
        /* Half of them end with their input, half have to be killed. */
        start_relay(&endings[each].channel, each % 2 == 0 ? "cat" : "exec sleep 60");
        pids[each] = endings[each].channel.relay.pid;
        endings[each].task.run = end_channel;
        sbx_loop_post(loop, &endings[each].task);
    }
    wait_until_done(12);
    int64_t begin = sbx_clock_monotonic(&sbx_system_clock);
    sbx_loop_stop(loop);
    /* One after the other would take six seconds. */
    ck_assert_int_lt(sbx_clock_monotonic(&sbx_system_clock) - begin, 5000);
    for (unsigned each = 0; each < 12; each++)
        ck_assert(kill(pids[each], 0) < 0 && errno == ESRCH);
}
END_TEST

START_TEST(a_channel_is_ended_from_any_thread)
{
    struct sbx_channel channel;
    start_relay(&channel, "cat");
    pid_t pid = channel.relay.pid;
    sbx_channel_end(&channel);
    ck_assert(kill(pid, 0) < 0 && errno == ESRCH);
    ck_assert_int_eq(channel.read_fd, -1);
    ck_assert_int_eq(channel.write_fd, -1);
    sbx_channel_end(&channel);
    sbx_loop_stop(loop);
}
END_TEST

START_TEST(a_socket_that_is_not_there_is_told)
{
    struct sbx_channel channel = SBX_CHANNEL;
    struct sbx_wait wait = sbx_wait_alone(WAIT_MS);
    sandbox_error error = {0};
    ck_assert_int_eq(sbx_channel_connect_unix(&channel, "/tmp/no/such/socket", &wait, &error),
                     SANDBOX_NOT_FOUND);
    char path[200];
    for (unsigned at = 0; at < sizeof path - 1; at++)
        path[at] = 'x';
    path[sizeof path - 1] = '\0';
    ck_assert_int_eq(sbx_channel_connect_unix(&channel, path, &wait, &error), SANDBOX_INVALID);
    ck_assert_int_eq(channel.read_fd, -1);
    sbx_loop_stop(loop);
    sbx_loop_stop(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop");
    TCase *cases = tcase_create("loop");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up, NULL);
    tcase_add_test(cases, tasks_run_on_the_thread_in_their_order);
    tcase_add_test(cases, a_broken_pipe_raises_no_signal);
    tcase_add_test(cases, relays_are_ended_and_reaped_all_at_once);
    tcase_add_test(cases, a_channel_is_ended_from_any_thread);
    tcase_add_test(cases, a_socket_that_is_not_there_is_told);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failures = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failures == 0 ? 0 : 1;
}
