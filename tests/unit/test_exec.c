/* Commands in Pods: what goes in, what comes out, and how they end. */

#include "exec_place.h"
#include "util/digest.h"
#include "util/random.h"
#include <fcntl.h>

#define MIB (1u << 20)

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

/* Certificates are proven and checked once, not for each channel. */
START_TEST(channels_after_the_first_resume_its_tls_session)
{
    static const char *const told[] = {"new", "resumed", "resumed"};
    for (size_t at = 0; at < 3; at++) {
        struct command command;
        start(&command, "resumed", "");
        char text[16] = "";
        read_all(&command, text, sizeof text - 1);
        ck_assert_str_eq(text, told[at]);
        ends_well(&command);
    }
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

static void add_cases(TCase *cases)
{
    tcase_add_test(cases, a_command_ends_with_its_exit_code);
    tcase_add_test(cases, words_arrive_as_they_are);
    tcase_add_test(cases, channels_after_the_first_resume_its_tls_session);
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
    tcase_add_test(cases, a_server_that_forgets_to_close_is_left);
    tcase_add_test(cases, a_server_that_answers_no_ping_is_gone);
    tcase_add_test(cases, closing_the_channel_ends_the_connection);
    tcase_add_test(cases, a_full_channel_can_be_closed);
    tcase_add_test(cases, twenty_commands_share_a_thread);
}

int main(void)
{
    return run_cases("exec", add_cases);
}
