/*
 * Faults of tunnels and large copies that users of such systems have met in public, by their ids
 * in the project's list of cases. What takes minutes runs where SANDBOX_TEST_COUNT asks for large
 * counts (tools/check --long), and is much shorter otherwise.
 */

#include "checks.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define LARGE ((1u << 20) + 17)
#define PORT  8431

static sandbox_client *client;
static sandbox_workspace *workspace;
static sandbox_process *server;

/* Echoes every connection; says "ready" once it listens. */
static const char echo_server[] =
    "exec python3 -c '\n"
    "import socket, threading\n"
    "s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
    "s.bind((\"127.0.0.1\", 8431)); s.listen(16); print(\"ready\", flush=True)\n"
    "def serve(c):\n"
    "    while data := c.recv(65536): c.sendall(data)\n"
    "    c.close()\n"
    "while True: threading.Thread(target=serve, args=(s.accept()[0],)).start()\n'";

/* Listens and never accepts. */
static const char silent_server[] =
    "exec python3 -c '\n"
    "import socket, time\n"
    "s = socket.socket(); s.bind((\"127.0.0.1\", 8431)); s.listen(16)\n"
    "print(\"ready\", flush=True); time.sleep(1000)\n'";

static void set_up(void)
{
    contract_open("tunnels", NULL, &client, &workspace);
}

static void tear_down(void)
{
    sandbox_process_free(server);
    contract_close(client, workspace);
}

static bool is_long(void)
{
    return contract_count(1) >= 200;
}

static void serve(const char *command)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = command,
                                       .role = SANDBOX_ROLE_SERVICE};
    sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
    good(sandbox_process_start(workspace, &options, NULL, &server, &error));
    good(sandbox_process_next(server, NULL, &event, &error));
    ck_assert_int_eq(event.kind, SANDBOX_PROCESS_STDOUT);
}

static int connect_here(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Both ways at once, as neither side may wait for the other. */
static void exchange(int fd, const uint8_t *sent, uint8_t *got, size_t size)
{
    size_t out = 0, in = 0;
    while (in < size) {
        struct pollfd watched = {fd, (short)(POLLIN | (out < size ? POLLOUT : 0)), 0};
        ck_assert_int_gt(poll(&watched, 1, 60000), 0);
        if (watched.revents & POLLOUT) {
            ssize_t more = send(fd, sent + out, size - out, MSG_NOSIGNAL | MSG_DONTWAIT);
            out += more > 0 ? (size_t)more : 0;
        }
        if (watched.revents & POLLIN) {
            ssize_t more = recv(fd, got + in, size - in, 0);
            ck_assert_int_gt(more, 0);
            in += (size_t)more;
        }
    }
}

/* P041: whatever is spoken, the bytes are the same, also in pieces larger than any buffer. */
START_TEST(a_forward_carries_every_byte_both_ways)
{
    sandbox_forward *forward = NULL;
    sandbox_forward_options options = {SANDBOX_FORWARD_OPTIONS, .port = PORT};
    uint8_t *sent = malloc(LARGE), *got = calloc(1, LARGE);
    for (size_t at = 0; at < LARGE; at++)
        sent[at] = (uint8_t)(at * 2654435761u >> 13);
    serve(echo_server);
    good(sandbox_port_forward(workspace, &options, NULL, &forward, &error));
    int first = connect_here(sandbox_forward_host_port(forward));
    int second = connect_here(sandbox_forward_host_port(forward));
    for (int round = 0; round < 3; round++) {
        exchange(first, sent, got, LARGE);
        ck_assert_int_eq(memcmp(sent, got, LARGE), 0);
    }
    exchange(second, sent, got, 5); /* the other one is still there */
    close(first);
    close(second);
    sandbox_forward_free(forward);
    free(sent);
    free(got);
}
END_TEST

/* P120, P121, P148: no clock of ours ends a connection or a command that is silent. */
START_TEST(silence_ends_nothing)
{
    const unsigned seconds = is_long() ? 200 : 3;
    sandbox_connection *connection = NULL;
    sandbox_process *quiet = NULL;
    sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
    char command[64];
    snprintf(command, sizeof command, "sleep %u; echo late", seconds);
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = command};
    serve(echo_server);
    good(sandbox_port_dial(workspace, PORT, NULL, &connection, &error));
    good(sandbox_process_start(workspace, &options, NULL, &quiet, &error));
    good(sandbox_process_next(quiet, NULL, &event, &error));
    ck_assert_uint_eq(event.data_size, 5);
    ck_assert_int_eq(memcmp(event.data, "late\n", 5), 0);

    const uint8_t *data = NULL;
    size_t size = 0;
    good(sandbox_connection_write(connection, "still there?", 12, NULL, &error));
    good(sandbox_connection_read(connection, NULL, &data, &size, &error));
    ck_assert_uint_eq(size, 12);
    sandbox_connection_free(connection);
    sandbox_process_free(quiet);
}
END_TEST

/* P123: a peer that takes the connection and says nothing costs no more than the deadline. */
START_TEST(a_silent_peer_costs_the_deadline_and_no_more)
{
    sandbox_connection *connection = NULL;
    const uint8_t *data = NULL;
    size_t size = 0;
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = 200};
    serve(silent_server);
    good(sandbox_port_dial(workspace, PORT, NULL, &connection, &error));
    bad(SANDBOX_TIMED_OUT, sandbox_connection_read(connection, &call, &data, &size, &error));
    sandbox_connection_free(connection);
}
END_TEST

/* P096: sizes beyond 32 bits, and what was a hole here is no load of zeros there. */
START_TEST(a_file_beyond_four_gigabytes_is_copied_whole)
{
    const off_t size = is_long() || harness_is_memory() ? ((off_t)4 << 30) + 1 : (64 << 20) + 1;
    char here[64] = "/tmp/sandbox-large-XXXXXX", back[80];
    int fd = mkstemp(here);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, size), 0);
    ck_assert_int_eq(pwrite(fd, "end", 3, size - 3), 3);
    snprintf(back, sizeof back, "%s.back", here);
    good(sandbox_file_upload(workspace, here, "large", NULL, NULL, NULL, &error));
    sandbox_file_list *facts = NULL;
    good(sandbox_file_stat(workspace, "large", NULL, &facts, &error));
    ck_assert_uint_eq(sandbox_file_list_at(facts, 0)->file_size, (uint64_t)size);
    sandbox_file_list_free(facts);
    good(sandbox_file_download(workspace, "large", back, NULL, NULL, NULL, &error));

    char end[4] = "";
    struct stat copied;
    int copy = open(back, O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(fstat(copy, &copied), 0);
    ck_assert_int_eq(copied.st_size, size);
    ck_assert_int_eq(pread(copy, end, 3, size - 3), 3);
    ck_assert_str_eq(end, "end");
    close(copy);
    close(fd);
    unlink(back);
    unlink(here);
}
END_TEST

static void fill(const char *path, size_t size, unsigned seed)
{
    uint8_t block[65536];
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    ck_assert_int_ge(fd, 0);
    for (size_t left = size; left > 0;) {
        size_t piece = left < sizeof block ? left : sizeof block;
        for (size_t at = 0; at < piece; at++) {
            seed = seed * 1103515245u + 12345u;
            block[at] = (uint8_t)(seed >> 16);
        }
        ck_assert_int_eq(write(fd, block, piece), (ssize_t)piece);
        left -= piece;
    }
    close(fd);
}

/* A large file and many small ones, both ways, to the last byte. */
START_TEST(a_tree_of_many_files_and_a_large_one_comes_back_the_same)
{
    const unsigned files = is_long() ? 10000 : 500;
    const size_t large = is_long() ? (size_t)1 << 30 : (size_t)16 << 20;
    char folder[64] = "/tmp/sandbox-tree-XXXXXX", path[160], command[320];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/sent", folder);
    ck_assert_int_eq(mkdir(path, 0755), 0);
    for (unsigned n = 0; n < files; n++) {
        if (n % 100 == 0) {
            snprintf(path, sizeof path, "%s/sent/%u", folder, n / 100);
            ck_assert_int_eq(mkdir(path, 0755), 0);
        }
        snprintf(path, sizeof path, "%s/sent/%u/%u", folder, n / 100, n);
        fill(path, n % 3000, n);
    }
    snprintf(path, sizeof path, "%s/sent/large", folder);
    fill(path, large, 1);

    char back[96];
    snprintf(path, sizeof path, "%s/sent", folder);
    snprintf(back, sizeof back, "%s/back", folder);
    sandbox_copy_result up = {SANDBOX_COPY_RESULT}, down = {SANDBOX_COPY_RESULT};
    good(sandbox_file_upload(workspace, path, "tree", NULL, NULL, &up, &error));
    good(sandbox_file_download(workspace, "tree", back, NULL, NULL, &down, &error));
    ck_assert_uint_eq(up.bytes, down.bytes);
    ck_assert_uint_eq(up.entries, down.entries);
    snprintf(command, sizeof command, "diff -r %s/sent %s/back && rm -rf %s", folder, folder,
             folder);
    FILE *compared = popen(command, "re");
    ck_assert_ptr_nonnull(compared);
    ck_assert_int_eq(pclose(compared), 0);
}
END_TEST

static void in_workspace(const char *command)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = command};
    sandbox_process_result *result = NULL;
    good(sandbox_process_run(workspace, &options, NULL, NULL, &result, &error));
    ck_assert_int_eq(result->exit.code, 0);
    sandbox_process_result_free(result);
}

/* P094: what is mostly hole fills no disk here, and where holes are not told a limit ends it. */
START_TEST(four_terabytes_of_hole_do_not_fill_this_machine)
{
    char back[] = "/tmp/sandbox-hole-XXXXXX";
    struct stat copied;
    ck_assert_int_ge(close(mkstemp(back)), 0);
    unlink(back);
    in_workspace("truncate -s 4T hole");
    if (harness_is_memory()) {
        good(sandbox_file_download(workspace, "hole", back, NULL, NULL, NULL, &error));
        ck_assert_int_eq(stat(back, &copied), 0);
        ck_assert_int_eq(copied.st_size, (off_t)4 << 40);
        ck_assert_int_lt(copied.st_blocks, 4096);
        unlink(back);
    } else {
        sandbox_copy_options options = {SANDBOX_COPY_OPTIONS, .max_bytes = 1 << 20};
        bad(SANDBOX_LIMIT,
            sandbox_file_download(workspace, "hole", back, &options, NULL, NULL, &error));
        ck_assert_int_ne(access(back, F_OK), 0);
    }
}
END_TEST

/* P094: more entries than the default allows, and nothing of them is left. */
START_TEST(a_million_entries_reach_the_limit)
{
    char back[] = "/tmp/sandbox-many-XXXXXX";
    sandbox_copy_options options = {SANDBOX_COPY_OPTIONS, .max_entries = is_long() ? 0 : 5000};
    ck_assert_ptr_nonnull(mkdtemp(back));
    ck_assert_int_eq(rmdir(back), 0);
    in_workspace(is_long() ? "mkdir many && cd many && seq 1000000 | xargs touch"
                           : "mkdir many && cd many && seq 10000 | xargs touch");
    bad(SANDBOX_LIMIT,
        sandbox_file_download(workspace, "many", back, &options, NULL, NULL, &error));
    ck_assert_int_ne(access(back, F_OK), 0);
}
END_TEST

static Suite *make(void)
{
    Suite *suite = suite_create("tunnels");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 900);
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, a_forward_carries_every_byte_both_ways);
    tcase_add_test(all, silence_ends_nothing);
    tcase_add_test(all, a_silent_peer_costs_the_deadline_and_no_more);
    tcase_add_test(all, a_file_beyond_four_gigabytes_is_copied_whole);
    tcase_add_test(all, four_terabytes_of_hole_do_not_fill_this_machine);
    tcase_add_test(all, a_million_entries_reach_the_limit);
    tcase_add_test(all, a_tree_of_many_files_and_a_large_one_comes_back_the_same);
    suite_add_tcase(suite, all);
    return suite;
}

int main(void)
{
    return contract_main(make);
}
