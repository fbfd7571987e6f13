/* Commands in Pods over WebSockets, against a server of its own (tests/doubles/exec_double.py). */

#include "cloud/kubernetes_parts.h"
#include "util/child.h"
#include "util/clock.h"
#include "util/digest.h"
#include "util/file.h"
#include "util/memory.h"
#include "util/random.h"
#include "util/tree.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sandbox/sandbox.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define WAIT_MS 20000
#define MIB     (1u << 20)

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

static void start(struct command *command, const char *pod, const char *word)
{
    const char *argv[] = {"command", word, NULL};
    sandbox_status status = try_start(command, pod, argv);
    ck_assert_msg(status == SANDBOX_OK, "%s: %s", pod, error.message);
    ck_assert_int_eq(command->channel.read_fd, command->channel.write_fd);
}

static void await_ready(int fd, short events)
{
    struct pollfd watched = {fd, events, 0};
    ck_assert_msg(poll(&watched, 1, WAIT_MS) == 1, "nothing happens on the channel");
}

/* All output. */
static size_t read_all(struct command *command, void *data, size_t room)
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

static void write_all(struct command *command, const void *data, size_t size)
{
    for (size_t used = 0; used < size;) {
        await_ready(command->channel.write_fd, POLLOUT);
        ssize_t written = send(command->channel.write_fd, (const uint8_t *)data + used, size - used,
                               MSG_NOSIGNAL);
        ck_assert_msg(written > 0 || errno == EAGAIN, "writing: %s", strerror(errno));
        used += written > 0 ? (size_t)written : 0;
    }
}

static void end_input(struct command *command)
{
    ck_assert_int_eq(shutdown(command->channel.write_fd, SHUT_WR), 0);
}

/* Waits until its end was told, and checks that it is told once. */
static struct sbx_exec_end end_of(struct command *command)
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

static void ends_well(struct command *command)
{
    struct sbx_exec_end end = end_of(command);
    ck_assert_msg(end.how == SBX_EXEC_EXITED && end.code == 0, "%d %d %s", (int)end.how, end.code,
                  end.message);
}

static void must_say(const char *text, const char *words)
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

START_TEST(a_command_ends_with_its_exit_code)
{
    struct command command;
    start(&command, "exit", "0");
    ends_well(&command);
    ck_assert_str_eq(command.end.message, "");
    static const char *const codes[] = {"1", "42", "137", "255"};
    for (size_t at = 0; at < 4; at++) {
        start(&command, "exit", codes[at]);
        struct sbx_exec_end end = end_of(&command);
        ck_assert_int_eq(end.how, SBX_EXEC_EXITED);
        ck_assert_int_eq(end.code, atoi(codes[at]));
    }
}
END_TEST

START_TEST(words_arrive_as_they_are)
{
    struct command command;
    const char *argv[] = {"a b", "&=?#%+", "\"'$(x)\\", "é…", "", "-", NULL};
    ck_assert_int_eq(try_start(&command, "words", argv), SANDBOX_OK);
    char text[256] = "";
    read_all(&command, text, sizeof text - 1);
    ck_assert_str_eq(text, "a b\n&=?#%+\n\"'$(x)\\\né…\n\n-\n");
    ends_well(&command);
}
END_TEST

START_TEST(input_ends_where_the_protocol_can_say_so)
{
    struct command command;
    start(&command, "echo", "");
    write_all(&command, "hello ", 6);
    end_input(&command);
    char text[64] = "";
    read_all(&command, text, sizeof text - 1);
    ck_assert_str_eq(text, "hello end");
    ends_well(&command);
}
END_TEST

START_TEST(the_older_protocol_goes_on_without_an_end_of_input)
{
    struct command command;
    start(&command, "echo.v4", "");
    write_all(&command, "hello", 5);
    end_input(&command);
    char text[64] = "";
    await_ready(command.channel.read_fd, POLLIN);
    ck_assert_int_eq(read(command.channel.read_fd, text, sizeof text), 5);
    ck_assert_str_eq(text, "hello");
    /* The input's end is no end of the channel. */
    struct pollfd watched = {command.channel.read_fd, POLLIN, 0};
    ck_assert_int_eq(poll(&watched, 1, 100), 0);
    sbx_channel_end(&command.channel);
    ck_assert_int_eq(end_of(&command).how, SBX_EXEC_UNKNOWN);
    must_say(command.end.message, "closed on our side");
}
END_TEST

static uint8_t *make_pattern(size_t size)
{
    uint8_t *data = malloc(size);
    ck_assert_ptr_nonnull(data);
    for (size_t at = 0; at < size; at++)
        data[at] = (uint8_t)(at * 7 + at / 251);
    return data;
}

static void send_digest(const char *pod, size_t size)
{
    struct command command;
    uint8_t *data = make_pattern(size), digest[SBX_DIGEST_BYTES];
    char hex[65], expected[128], text[128] = "", word[32];
    sbx_sha256(data, size, digest);
    sbx_hex_print(digest, sizeof digest, hex);
    snprintf(expected, sizeof expected, "%zu %s", size, hex);
    snprintf(word, sizeof word, "%zu", size);
    start(&command, pod, word);
    write_all(&command, data, size);
    free(data);
    read_all(&command, text, sizeof text - 1);
    ck_assert_str_eq(text, expected);
    ends_well(&command);
}

START_TEST(megabytes_go_in_whole)
{
    send_digest("digest", 9 * MIB + 1);
    send_digest("digest.v4", 300001);
    send_digest("deaf", 5 * MIB);
}
END_TEST

START_TEST(megabytes_come_out_whole)
{
    struct command command;
    size_t size = 9 * MIB + 77;
    uint8_t *expected = make_pattern(size), *data = malloc(size);
    start(&command, "flood", "9437261");
    ck_assert_uint_eq(read_all(&command, data, size), size);
    ck_assert(memcmp(data, expected, size) == 0);
    ends_well(&command);
    free(data);
    free(expected);
}
END_TEST

/* Both ways at once, with a reader that comes late: everybody waits, and nothing is lost. */
START_TEST(a_slow_reader_makes_the_server_wait)
{
    struct command command;
    size_t size = 12 * MIB, read_bytes = 0, written = 0;
    uint8_t *data = make_pattern(size), *back = malloc(size + 8);
    start(&command, "echo", "");
    int fd = command.channel.read_fd;
    /* Until nothing moves any more: every buffer on the way is full. */
    struct pollfd full = {fd, POLLOUT, 0};
    while (written < size && poll(&full, 1, 300) == 1) {
        ssize_t moved = send(fd, data + written, size - written, MSG_NOSIGNAL);
        written += moved > 0 ? (size_t)moved : 0;
    }
    ck_assert_uint_gt(written, 0);
    while (read_bytes < size) {
        struct pollfd watched = {fd, (short)(POLLIN | (written < size ? POLLOUT : 0)), 0};
        ck_assert_int_eq(poll(&watched, 1, WAIT_MS), 1);
        ssize_t moved = read(fd, back + read_bytes, 40000 < size ? 40000 : size);
        read_bytes += moved > 0 ? (size_t)moved : 0;
        moved = written < size ? send(fd, data + written, size - written, MSG_NOSIGNAL) : 0;
        written += moved > 0 ? (size_t)moved : 0;
    }
    ck_assert(memcmp(data, back, size) == 0);
    end_input(&command);
    ck_assert_uint_eq(read_all(&command, back, 8), 3);
    ends_well(&command);
    free(data);
    free(back);
}
END_TEST

START_TEST(output_that_nobody_has_read_yet_is_kept)
{
    struct command command;
    uint8_t *expected = make_pattern(100000), *data = malloc(100000);
    start(&command, "flood", "100000");
    struct sbx_wait wait = sbx_wait_alone(WAIT_MS);
    pthread_mutex_lock(&command.mutex);
    while (command.ends == 0)
        ck_assert_int_eq(sbx_wait_condition(&wait, &command.changed, &command.mutex, &error),
                         SANDBOX_OK);
    pthread_mutex_unlock(&command.mutex);
    ck_assert_uint_eq(read_all(&command, data, 100000), 100000);
    ck_assert(memcmp(data, expected, 100000) == 0);
    ends_well(&command);
    free(data);
    free(expected);
}
END_TEST

START_TEST(fragments_make_one_message)
{
    struct command command;
    uint8_t *pattern = make_pattern(70000), *data = malloc(100000);
    start(&command, "fragments", "");
    size_t size = read_all(&command, data, 100000);
    ck_assert_uint_eq(size, 14 + 70000);
    ck_assert(memcmp(data, "one two three ", 14) == 0 && memcmp(data + 14, pattern, 70000) == 0);
    struct sbx_exec_end end = end_of(&command);
    ck_assert_int_eq(end.how, SBX_EXEC_EXITED);
    ck_assert_int_eq(end.code, 3);
    free(data);
    free(pattern);
}
END_TEST

START_TEST(pings_are_answered_amid_everything)
{
    struct command command;
    uint8_t *data = malloc(MIB);
    start(&command, "pings", "");
    ck_assert_uint_eq(read_all(&command, data, MIB), 200000);
    ends_well(&command);
    free(data);
}
END_TEST

START_TEST(a_failure_comes_with_the_words_of_both)
{
    struct command command;
    start(&command, "failure", "");
    struct sbx_exec_end end = end_of(&command);
    ck_assert_int_eq(end.how, SBX_EXEC_FAILED);
    must_say(end.message, "error executing command: no such [31m container");
    must_say(end.message, "OCI runtime  exec failed");
    ck_assert_ptr_null(strpbrk(end.message, "\n\x1b"));

    start(&command, "stderr", "");
    end = end_of(&command);
    ck_assert_int_eq(end.how, SBX_EXEC_EXITED);
    ck_assert_int_eq(end.code, 1);
    ck_assert_str_eq(end.message, "sandbox-agent: cannot reach the agent");
}
END_TEST

static void ends_unknown(const char *pod, const char *word, const char *output, const char *words)
{
    struct command command;
    char text[64] = "";
    start(&command, pod, word);
    read_all(&command, text, sizeof text - 1);
    ck_assert_str_eq(text, output);
    struct sbx_exec_end end = end_of(&command);
    ck_assert_int_eq(end.how, SBX_EXEC_UNKNOWN);
    must_say(end.message, words);
}

START_TEST(an_end_without_a_word_is_unknown)
{
    ends_unknown("lost", "1000", "some output", "code 1000: the kubelet went away");
    ends_unknown("lost", "1011", "some output", "code 1011: the kubelet went away");
    ends_unknown("cut", "", "some output", "broke");
    ends_unknown("garbled", "", "", "no JSON");
    ends_unknown("huge", "", "", "no JSON");
    ends_unknown("text", "", "", "text in place of bytes");
    ends_unknown("masked", "", "", "broke the WebSocket protocol");
}
END_TEST

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

START_TEST(a_server_that_forgets_to_close_is_left)
{
    struct command command;
    cluster->pace.close_ms = 50;
    start(&command, "unclosed", "");
    char text[16] = "";
    read_all(&command, text, sizeof text - 1);
    ck_assert_str_eq(text, "done");
    ck_assert_int_eq(end_of(&command).code, 7);
}
END_TEST

START_TEST(a_server_that_answers_no_ping_is_gone)
{
    struct command command;
    cluster->pace.ping_ms = 20;
    start(&command, "listens", "");
    ends_well(&command);

    cluster->pace.silence_ms = 200;
    start(&command, "unanswered", "");
    struct sbx_exec_end end = end_of(&command);
    ck_assert_int_eq(end.how, SBX_EXEC_UNKNOWN);
    must_say(end.message, "silent");
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

START_TEST(closing_the_channel_ends_the_connection)
{
    struct command command;
    char text[16] = "", path[128];
    start(&command, "hold", "away");
    await_ready(command.channel.read_fd, POLLIN);
    ck_assert_int_eq(read(command.channel.read_fd, text, sizeof text), 4);
    sbx_channel_end(&command.channel);
    ck_assert_int_eq(end_of(&command).how, SBX_EXEC_UNKNOWN);
    snprintf(path, sizeof path, "%s/gone-away", folder);
    struct sbx_wait wait = sbx_wait_alone(WAIT_MS);
    while (access(path, F_OK) != 0)
        ck_assert_int_eq(sbx_wait_pause(&wait, 5, &error), SANDBOX_OK);
}
END_TEST

/* Nobody reads, the server sends on and on, and the channel is closed all the same. */
START_TEST(a_full_channel_can_be_closed)
{
    struct command command;
    start(&command, "flood", "9437261");
    await_ready(command.channel.read_fd, POLLIN);
    sbx_channel_end(&command.channel);
    ck_assert_int_eq(end_of(&command).how, SBX_EXEC_UNKNOWN);
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

static void count_threads(unsigned *out)
{
    char line[128];
    SBX_ON_EXIT(sbx_close_fd) int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    FILE *file = fdopen(sbx_take_fd(&fd), "r");
    while (fgets(line, sizeof line, file) != NULL)
        (void)sscanf(line, "Threads: %u", out);
    fclose(file);
}

START_TEST(twenty_commands_share_a_thread)
{
    enum { COUNT = 20, SIZE = 300000 };
    static struct command commands[COUNT];
    static uint8_t back[SIZE + 3];
    uint8_t *data = make_pattern(SIZE);
    unsigned threads = 0, more = 0;
    start(&commands[0], "echo", "");
    count_threads(&threads);
    for (unsigned at = 1; at < COUNT; at++)
        start(&commands[at], "echo", "");
    count_threads(&more);
    ck_assert_uint_eq(threads, more);
    for (unsigned at = 0; at < COUNT; at++)
        write_all(&commands[at], data, SIZE - at);
    for (unsigned at = 0; at < COUNT; at++) {
        end_input(&commands[at]);
        size_t size = SIZE - at;
        memset(back, 0, sizeof back);
        ck_assert_uint_eq(read_all(&commands[at], back, sizeof back), size + 3);
        ck_assert(memcmp(back, data, size) == 0);
        ends_well(&commands[at]);
    }
    free(data);
}
END_TEST

static TCase *make_cases(void)
{
    TCase *cases = tcase_create("exec");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, a_command_ends_with_its_exit_code);
    tcase_add_test(cases, words_arrive_as_they_are);
    tcase_add_test(cases, input_ends_where_the_protocol_can_say_so);
    tcase_add_test(cases, the_older_protocol_goes_on_without_an_end_of_input);
    tcase_add_test(cases, megabytes_go_in_whole);
    tcase_add_test(cases, megabytes_come_out_whole);
    tcase_add_test(cases, a_slow_reader_makes_the_server_wait);
    tcase_add_test(cases, output_that_nobody_has_read_yet_is_kept);
    tcase_add_test(cases, fragments_make_one_message);
    tcase_add_test(cases, pings_are_answered_amid_everything);
    tcase_add_test(cases, a_failure_comes_with_the_words_of_both);
    tcase_add_test(cases, an_end_without_a_word_is_unknown);
    tcase_add_test(cases, frames_right_behind_the_handshake_count);
    tcase_add_test(cases, a_server_that_forgets_to_close_is_left);
    tcase_add_test(cases, a_server_that_answers_no_ping_is_gone);
    tcase_add_test(cases, a_refusal_is_told_as_of_any_request);
    tcase_add_test(cases, a_server_that_is_not_there_or_not_the_right_one_is_told);
    tcase_add_test(cases, what_was_throttled_is_asked_again);
    tcase_add_test(cases, a_refused_credential_is_not_given_for_ever);
    tcase_add_test(cases, a_fresh_credential_is_taken_once_the_old_is_refused);
    tcase_add_test(cases, closing_the_channel_ends_the_connection);
    tcase_add_test(cases, a_full_channel_can_be_closed);
    tcase_add_test(cases, a_handshake_can_be_cancelled);
    tcase_add_test(cases, twenty_commands_share_a_thread);
    return cases;
}

/* Its input stays open as long as we live. */
static bool start_double(struct sbx_child *child, int *input)
{
    char path[512], word[8] = "";
    const char *doubles = getenv("SANDBOX_TEST_DOUBLES");
    snprintf(path, sizeof path, "%s/exec_double.py", doubles == NULL ? "tests/doubles" : doubles);
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
        return false;
    const char *argv[] = {"/usr/bin/python3", path, folder, NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv};
    options.input = in[0];
    options.output = out[1];
    options.errors = 2;
    sandbox_status status = sbx_child_start(child, &options, &error);
    sbx_close_fd(&in[0]);
    sbx_close_fd(&out[1]);
    bool ready = status == SANDBOX_OK && read(out[0], word, 5) == 5 && strcmp(word, "ready") == 0;
    sbx_close_fd(&out[0]);
    *input = in[1];
    return ready;
}

int main(void)
{
    struct sbx_child child = SBX_CHILD;
    SBX_ON_EXIT(sbx_close_fd) int input = -1;
    if (mkdtemp(folder) == NULL || !start_double(&child, &input)) {
        fprintf(stderr, "the double of the API server does not start: %s\n", error.message);
        return 1;
    }
    Suite *suite = suite_create("exec");
    suite_add_tcase(suite, make_cases());
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failures = srunner_ntests_failed(runner);
    srunner_free(runner);
    sbx_child_end(&child);
    (void)sbx_tree_remove(AT_FDCWD, folder, NULL);
    return failures == 0 ? 0 : 1;
}
