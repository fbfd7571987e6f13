/*
 * For tests of commands in Pods over WebSockets: starts tests/doubles/exec_double.py once, and runs
 * commands in its Pods.
 */
#ifndef TESTS_UNIT_EXEC_PLACE_H
#define TESTS_UNIT_EXEC_PLACE_H

#include "cloud/kubernetes_parts.h"
#include "double.h"
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sandbox/sandbox.h>
#include <sys/socket.h>

#define WAIT_MS 20000

static char folder[] = "/tmp/sandbox-exec.XXXXXX";
static struct sbx_kubernetes *cluster;
static sandbox_error error;

/* One command, and what became of it. */
struct command {
    struct sbx_channel channel;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    unsigned ends;
    struct sbx_exec_end end;
};

static void on_end(void *user_data, const struct sbx_exec_end *end)
{
    struct command *command = user_data;
    pthread_mutex_lock(&command->mutex);
    command->end = *end;
    command->ends++;
    pthread_cond_broadcast(&command->changed);
    pthread_mutex_unlock(&command->mutex);
}

static sandbox_status try_start(struct command *command, const char *pod, const char *const *argv)
{
    *command = (struct command){.channel = SBX_CHANNEL};
    pthread_mutex_init(&command->mutex, NULL);
    sbx_condition_init(&command->changed);
    struct sbx_wait wait = sbx_wait_alone(WAIT_MS);
    struct sbx_exec_options options = {"workspaces", pod, "workspace", argv, on_end, command};
    return sbx_kubernetes_exec(cluster, &options, &wait, &command->channel, &error);
}

static inline void start(struct command *command, const char *pod, const char *word)
{
    const char *argv[] = {"command", word, NULL};
    sandbox_status status = try_start(command, pod, argv);
    ck_assert_msg(status == SANDBOX_OK, "%s: %s", pod, error.message);
    ck_assert_int_eq(command->channel.read_fd, command->channel.write_fd);
}

static inline void await_ready(int fd, short events)
{
    struct pollfd watched = {fd, events, 0};
    ck_assert_msg(poll(&watched, 1, WAIT_MS) == 1, "nothing happens on the channel");
}

/* All output. */
static inline size_t read_all(struct command *command, void *data, size_t room)
{
    size_t used = 0;
    for (;;) {
        uint8_t spare;
        await_ready(command->channel.read_fd, POLLIN);
        bool fits = used < room;
        ssize_t size = read(command->channel.read_fd, fits ? (uint8_t *)data + used : &spare,
                            fits ? room - used : 1);
        if (size == 0)
            return used;
        ck_assert_msg(size > 0 && fits, "reading: %s", size < 0 ? strerror(errno) : "too much");
        used += (size_t)size;
    }
}

static inline void write_all(struct command *command, const void *data, size_t size)
{
    for (size_t used = 0; used < size;) {
        await_ready(command->channel.write_fd, POLLOUT);
        ssize_t written = send(command->channel.write_fd, (const uint8_t *)data + used, size - used,
                               MSG_NOSIGNAL);
        ck_assert_msg(written > 0 || errno == EAGAIN, "writing: %s", strerror(errno));
        used += written > 0 ? (size_t)written : 0;
    }
}

static inline void end_input(struct command *command)
{
    ck_assert_int_eq(shutdown(command->channel.write_fd, SHUT_WR), 0);
}

/* Waits until its end was told, and checks that it is told once. */
static inline struct sbx_exec_end end_of(struct command *command)
{
    struct sbx_wait wait = sbx_wait_alone(WAIT_MS);
    pthread_mutex_lock(&command->mutex);
    while (command->ends == 0)
        ck_assert_int_eq(sbx_wait_condition(&wait, &command->changed, &command->mutex, &error),
                         SANDBOX_OK);
    ck_assert_uint_eq(command->ends, 1);
    pthread_mutex_unlock(&command->mutex);
    sbx_channel_end(&command->channel);
    return command->end;
}

static inline void ends_well(struct command *command)
{
    struct sbx_exec_end end = end_of(command);
    ck_assert_msg(end.how == SBX_EXEC_EXITED && end.code == 0, "%d %d %s", (int)end.how, end.code,
                  end.message);
}

static inline void must_say(const char *text, const char *words)
{
    ck_assert_msg(strstr(text, words) != NULL, "'%s' does not say '%s'", text, words);
}

static void open_as(const char *context)
{
    char path[128];
    snprintf(path, sizeof path, "%s/kubeconfig", folder);
    struct sbx_kubernetes_options options = {.kubeconfig = path, .context = context};
    sandbox_status status = sbx_kubernetes_open(&options, &cluster, &error);
    ck_assert_msg(status == SANDBOX_OK, "%s", error.message);
    cluster->pace.first_pause_ms = 10;
    cluster->pace.longest_pause_ms = 100;
}

static void set_up(void)
{
    open_as("double");
}

static void tear_down(void)
{
    sbx_kubernetes_close(cluster);
}

static int run_cases(const char *name, void (*add_cases)(TCase *cases))
{
    char line[64];
    int failures = 1;
    if (start_double("exec_double.py", folder, line, sizeof line)) {
        Suite *suite = suite_create(name);
        TCase *cases = tcase_create("cases");
        tcase_set_timeout(cases, 60);
        tcase_add_checked_fixture(cases, set_up, tear_down);
        add_cases(cases);
        suite_add_tcase(suite, cases);
        SRunner *runner = srunner_create(suite);
        srunner_run_all(runner, CK_NORMAL);
        failures = srunner_ntests_failed(runner);
        srunner_free(runner);
    } else {
        fprintf(stderr, "the double of the API server does not start\n");
    }
    end_double(folder);
    return failures == 0 ? 0 : 1;
}

#endif
