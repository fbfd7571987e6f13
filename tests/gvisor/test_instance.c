/*
 * The gvisor driver's instances, on a real runsc: SANDBOX_RUNSC names one, else it is looked up
 * in PATH. What is said to be gone is looked for in the host's own lists.
 */

#include "rig.h"
#include "util/file.h"
#include "util/memory.h"
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sbx_record record;
static const char *text;
static sandbox_error error;

/* The first bytes of HTTP/2 from its server side: a SETTINGS frame, type 4, on stream 0. */
static void expect_agent(struct sbx_channel *channel)
{
    uint8_t frame[9];
    ck_assert_int_eq(sbx_wait_descriptor(&rig_wait, channel->read_fd, POLLIN, NULL), SANDBOX_OK);
    ck_assert_int_eq(read(channel->read_fd, frame, sizeof frame), sizeof frame);
    ck_assert_uint_eq(frame[3], 4);
}

START_TEST(an_instance_starts_and_its_agent_speaks_over_every_channel)
{
    rig_record(&record, "speaks");
    rig_provision(&record);
    ck_assert_int_eq(rig_presence(&record, NULL), SBX_PRESENCE_RUNNING);
    for (int n = 0; n < 3; n++) {
        struct sbx_channel channel = SBX_CHANNEL;
        ck_assert_int_eq(rig->connect(rig_state, &record, &rig_wait, &channel, &error), SANDBOX_OK);
        expect_agent(&channel);
        sbx_channel_end(&channel);
    }
    ck_assert_int_eq(rig->provision(rig_state, &record, &rig_wait, record.incarnation, &error),
                     SANDBOX_CONFLICT);
    ck_assert_str_eq(error.reason, "instance-exists");
    rig_destroy(&record);
}
END_TEST

static long mounts_beneath(void)
{
    return rig_number("grep -c '%s' /proc/self/mountinfo", rig_folder);
}

/* P081, P196, P035 */
START_TEST(nothing_is_left_after_destroy)
{
    rig_record(&record, "leaves-nothing");
    rig_provision(&record);
    ck_assert_int_eq(mounts_beneath(), 0); /* not even while it runs */
    ck_assert_int_eq(rig_inside(&record,
                                "for n in 1 2 3; do setsid sh -c 'trap \"\" TERM HUP INT; "
                                "sleep 1000' </dev/null >/dev/null 2>&1 & done; "
                                "mkdir -p /workspace/a/b; chmod 0 /workspace/a; "
                                "chmod u+s /bin/true; true",
                                &text),
                     0);
    struct sbx_channel channel = SBX_CHANNEL;
    ck_assert_int_eq(rig->connect(rig_state, &record, &rig_wait, &channel, NULL), SANDBOX_OK);
    ck_assert_int_gt(rig_processes(record.id), 1);
    char id[SBX_ID_TEXT];
    memcpy(id, record.id, sizeof id);

    for (int n = 0; n < 2; n++) /* what is not there is success */
        ck_assert_int_eq(rig->destroy(rig_state, &record, &rig_wait, &error), SANDBOX_OK);
    sbx_channel_end(&channel);
    ck_assert_int_eq(rig_processes(id), 0);
    ck_assert_int_eq(mounts_beneath(), 0);
    ck_assert_int_eq(rig_number("find %s /sys/fs/cgroup -name '*%s*' | wc -l", rig_folder, id), 0);
    ck_assert_int_eq(
        rig_number("ls %s/runsc %s/workspaces -A | grep -c %s", rig_folder, rig_folder, id), 0);
    ck_assert_int_eq(rig_presence(&record, NULL), SBX_PRESENCE_ABSENT);
    rig_destroy(&record);
    ck_assert_int_eq(rig_number("ls %s/locks | grep -cv base", rig_folder), 0);
}
END_TEST

START_TEST(discard_keeps_the_files_and_a_fresh_instance_is_another)
{
    rig_record(&record, "keeps-files");
    rig_provision(&record);
    char before[SBX_INCARNATION_TEXT];
    memcpy(before, record.incarnation, sizeof before);
    ck_assert_int_eq(rig_inside(&record,
                                "echo kept >/workspace/a; echo kept >/home/sandbox/b; "
                                "echo lost >/opt/c; echo lost >/tmp/d",
                                &text),
                     0);
    ck_assert_int_eq(rig->discard(rig_state, &record, &rig_wait, &error), SANDBOX_OK);
    ck_assert_int_eq(rig->discard(rig_state, &record, &rig_wait, &error), SANDBOX_OK);
    ck_assert_int_eq(rig_presence(&record, NULL), SBX_PRESENCE_ABSENT);
    ck_assert_int_eq(rig_processes(record.id), 0);
    struct sbx_channel channel = SBX_CHANNEL;
    ck_assert_int_eq(rig->connect(rig_state, &record, &rig_wait, &channel, &error),
                     SANDBOX_UNAVAILABLE);
    rig_provision(&record);
    ck_assert_str_ne(before, record.incarnation);
    ck_assert_int_eq(rig_inside(&record, "cat /workspace/a /home/sandbox/b", &text), 0);
    ck_assert_str_eq(text, "kept\nkept\n");
    ck_assert_int_ne(rig_inside(&record, "cat /opt/c", &text), 0);
    ck_assert_int_ne(rig_inside(&record, "cat /tmp/d", &text), 0);
    rig_destroy(&record);
}
END_TEST

static pid_t sandbox_pid(void)
{
    return (pid_t)strtol(strchr(record.incarnation, ':') + 1, NULL, 10);
}

static bool is_stopped(void *detail)
{
    return rig_presence(&record, detail) == SBX_PRESENCE_STOPPED;
}

START_TEST(a_killed_sandbox_is_stopped_and_the_next_is_another)
{
    rig_record(&record, "killed");
    rig_provision(&record);
    char detail[160] = "", before[SBX_INCARNATION_TEXT];
    memcpy(before, record.incarnation, sizeof before);
    ck_assert_int_eq(kill(sandbox_pid(), SIGKILL), 0);
    ck_assert(rig_await(is_stopped, detail));
    ck_assert_ptr_nonnull(strstr(detail, "killed"));
    ck_assert_int_eq(rig->discard(rig_state, &record, &rig_wait, NULL), SANDBOX_OK);
    rig_provision(&record);
    ck_assert_str_ne(before, record.incarnation);
    /* The old record's incarnation is not what runs now. */
    struct sbx_instance instance = {0};
    char now[SBX_INCARNATION_TEXT];
    memcpy(now, record.incarnation, sizeof now);
    memcpy(record.incarnation, before, sizeof before);
    ck_assert_int_eq(rig->inspect(rig_state, &record, &rig_wait, &instance, NULL), SANDBOX_OK);
    ck_assert_int_eq(instance.presence, SBX_PRESENCE_OTHER);
    ck_assert_str_eq(instance.incarnation, now);
    rig_destroy(&record);
}
END_TEST

START_TEST(an_actor_whose_epoch_is_stale_changes_nothing)
{
    rig_record(&record, "fenced");
    rig_provision(&record);
    struct sbx_record stale = record;
    record.epoch = 2;
    rig_store(&record);
    char incarnation[SBX_INCARNATION_TEXT];
    ck_assert_int_eq(rig->destroy(rig_state, &stale, &rig_wait, &error), SANDBOX_CONFLICT);
    ck_assert_str_eq(error.reason, "stale-epoch");
    ck_assert_int_eq(rig->discard(rig_state, &stale, &rig_wait, &error), SANDBOX_CONFLICT);
    ck_assert_int_eq(rig->provision(rig_state, &stale, &rig_wait, incarnation, &error),
                     SANDBOX_CONFLICT);
    ck_assert_str_eq(error.reason, "stale-epoch");
    ck_assert_int_eq(rig_presence(&record, NULL), SBX_PRESENCE_RUNNING);
    rig_destroy(&record);
}
END_TEST

START_TEST(nobody_else_acts_while_the_lock_is_held)
{
    rig_record(&record, "locked");
    char path[64];
    int lock = -1;
    snprintf(path, sizeof path, "locks/%s.instance", record.id);
    ck_assert_int_eq(sbx_file_lock(((struct sbx_gvisor *)rig_state)->directory, path, true,
                                   &rig_wait, &lock, NULL),
                     SANDBOX_OK);
    struct sbx_wait soon = sbx_wait_alone(50);
    ck_assert_int_eq(rig->provision(rig_state, &record, &soon, record.incarnation, &error),
                     SANDBOX_TIMED_OUT);
    close(lock);
    rig_destroy(&record);
}
END_TEST

START_TEST(a_relay_lives_under_the_shared_lock_that_it_inherits)
{
    rig_record(&record, "relayed");
    rig_provision(&record);
    struct sbx_channel channel = SBX_CHANNEL;
    ck_assert_int_eq(rig->connect(rig_state, &record, &rig_wait, &channel, NULL), SANDBOX_OK);
    char path[64];
    int lock = -1, at = ((struct sbx_gvisor *)rig_state)->directory;
    snprintf(path, sizeof path, "locks/%s.relay", record.id);
    struct sbx_wait soon = sbx_wait_alone(50);
    ck_assert_int_eq(sbx_file_lock(at, path, true, &soon, &lock, NULL), SANDBOX_TIMED_OUT);
    /* The caller's copy is not what holds it: the relay's own does. */
    sbx_close_fd(&channel.lock_fd);
    soon = sbx_wait_alone(50);
    ck_assert_int_eq(sbx_file_lock(at, path, true, &soon, &lock, NULL), SANDBOX_TIMED_OUT);
    sbx_channel_end(&channel);
    ck_assert_int_eq(sbx_file_lock(at, path, true, &rig_wait, &lock, NULL), SANDBOX_OK);
    close(lock);
    rig_destroy(&record);
}
END_TEST

START_TEST(a_relay_and_a_sandbox_inherit_nothing_of_the_callers)
{
    rig_record(&record, "inherits");
    char secret[80];
    snprintf(secret, sizeof secret, "%s/caller-only", rig_folder);
    int open_here[20]; /* not O_CLOEXEC: a careless host's */
    for (int n = 0; n < 20; n++)
        open_here[n] = open(secret, O_RDWR | O_CREAT, 0600);
    rig_provision(&record);
    struct sbx_channel channel = SBX_CHANNEL;
    ck_assert_int_eq(rig->connect(rig_state, &record, &rig_wait, &channel, NULL), SANDBOX_OK);
    expect_agent(&channel);
    ck_assert_int_eq(rig_number("ls -l /proc/%d/fd /proc/%d/fd | grep -c caller-only",
                                (int)channel.relay.pid, (int)sandbox_pid()),
                     0);
    ck_assert_int_eq(rig_number("ls -l /proc/%d/fd | grep -c instance", (int)sandbox_pid()), 0);
    ck_assert_int_eq(getpgid(channel.relay.pid), channel.relay.pid); /* no Ctrl-C reaches it */
    sbx_channel_end(&channel);
    for (int n = 0; n < 20; n++)
        close(open_here[n]);
    rig_destroy(&record);
}
END_TEST

START_TEST(a_start_that_fails_leaves_the_files_and_nothing_else)
{
    rig_record(&record, "fails");
    void *broken = rig_open("agent=/bin/false");
    for (int n = 0; n < 4; n++) { /* P196: again and again */
        error = (sandbox_error){0};
        ck_assert_int_eq(rig->provision(broken, &record, &rig_wait, record.incarnation, &error),
                         SANDBOX_FAILED);
        ck_assert_int_gt((int)strlen(error.message), 10);
        ck_assert_int_eq(rig_processes(record.id), 0);
        ck_assert_int_eq(rig_presence(&record, NULL), SBX_PRESENCE_ABSENT);
    }
    ck_assert_int_eq(
        rig_number("ls -A %s/workspaces/%s | grep -cv '^files$'", rig_folder, record.id), 0);
    rig->close(broken);
    rig_provision(&record);
    rig_destroy(&record);
}
END_TEST

START_TEST(a_start_out_of_time_leaves_nothing)
{
    rig_record(&record, "out-of-time");
    struct sbx_wait soon = sbx_wait_alone(20);
    ck_assert_int_eq(rig->provision(rig_state, &record, &soon, record.incarnation, &error),
                     SANDBOX_TIMED_OUT);
    ck_assert_int_eq(rig_processes(record.id), 0);
    rig_destroy(&record);
}
END_TEST

/* Where a caller is killed: as soon as this is there. */
static const struct {
    const char *folder, *rest;
} moments[] = {
    {"workspaces", "/bundle/config.json"},
    {"workspaces", "/runsc.log"},
    {"workspaces", "/sandbox.pid"},
    {"locks", ".relay"},
};

static bool is_there(void *path)
{
    return access(path, F_OK) == 0;
}

/* P109 */
START_TEST(what_a_killed_caller_left_is_found_by_its_id)
{
    char name[16], path[160];
    snprintf(name, sizeof name, "abandoned-%d", _i);
    rig_record(&record, name);
    snprintf(path, sizeof path, "%s/%s/%s%s", rig_folder, moments[_i].folder, record.id,
             moments[_i].rest);
    pid_t child = fork();
    if (child == 0) {
        char incarnation[SBX_INCARNATION_TEXT];
        (void)rig->provision(rig_state, &record, &rig_wait, incarnation, NULL);
        _exit(0);
    }
    ck_assert(rig_await(is_there, path));
    kill(child, SIGKILL);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    record.epoch++;
    ck_assert(sbx_id_fresh(record.operation.id));
    rig_store(&record);
    char id[SBX_ID_TEXT];
    memcpy(id, record.id, sizeof id);
    rig_destroy(&record);
    ck_assert_int_eq(rig_processes(id), 0);
    ck_assert_int_eq(mounts_beneath(), 0);
    ck_assert_int_eq(rig_number("find %s /sys/fs/cgroup -name '*%s*' | wc -l", rig_folder, id), 0);
}
END_TEST

static void *run_one(void *name)
{
    struct sbx_record own;
    rig_record(&own, name);
    rig_provision(&own);
    rig_destroy(&own);
    return NULL;
}

START_TEST(workspaces_start_side_by_side)
{
    static char names[4][16] = {"side-a", "side-b", "side-c", "side-d"};
    pthread_t threads[4];
    for (int n = 0; n < 4; n++)
        ck_assert_int_eq(pthread_create(&threads[n], NULL, run_one, names[n]), 0);
    for (int n = 0; n < 4; n++)
        pthread_join(threads[n], NULL);
}
END_TEST

int main(void)
{
    if (!rig_begin())
        return 77;
    Suite *suite = suite_create("gvisor instances");
    TCase *tests = tcase_create("instances");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, an_instance_starts_and_its_agent_speaks_over_every_channel);
    tcase_add_test(tests, nothing_is_left_after_destroy);
    tcase_add_test(tests, discard_keeps_the_files_and_a_fresh_instance_is_another);
    tcase_add_test(tests, a_killed_sandbox_is_stopped_and_the_next_is_another);
    tcase_add_test(tests, an_actor_whose_epoch_is_stale_changes_nothing);
    tcase_add_test(tests, nobody_else_acts_while_the_lock_is_held);
    tcase_add_test(tests, a_relay_lives_under_the_shared_lock_that_it_inherits);
    tcase_add_test(tests, a_relay_and_a_sandbox_inherit_nothing_of_the_callers);
    tcase_add_test(tests, a_start_that_fails_leaves_the_files_and_nothing_else);
    tcase_add_test(tests, a_start_out_of_time_leaves_nothing);
    tcase_add_loop_test(tests, what_a_killed_caller_left_is_found_by_its_id, 0,
                        sizeof moments / sizeof moments[0]);
    tcase_add_test(tests, workspaces_start_side_by_side);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    rig_end();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
