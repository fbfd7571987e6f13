/* The client's side of the mutual proof, against whoever may have the agent's address now. */

#include "transport/channel.h"
#include "util/memory.h"
#include "util/random.h"
#include "util/wait.h"
#include <check.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint8_t token[SBX_PROOF_TOKEN] = "the token", other[SBX_PROOF_TOKEN] = "another one";
static const uint8_t id[SBX_PROOF_ID] = "workspace";

/* Whoever listens: does one thing and tells what it was sent. */
struct peer {
    enum how { RIGHT, OTHER_TOKEN, SILENT, CLOSES, GARBAGE, ECHO, CUTS } how;
    int listener, stop[2];
    struct sockaddr_in address;
    pthread_t thread;
    uint8_t pass[SBX_PROOF_PASS];
    bool passed; /* the client has proven itself */
    size_t heard;
};

static size_t hear(int fd, uint8_t *room, size_t size)
{
    size_t have = 0;
    ssize_t got;
    while (have < size && (got = recv(fd, room + have, size - have, 0)) > 0)
        have += (size_t)got;
    return have;
}

static void be_an_agent(struct peer *peer, int fd, const uint8_t *hello)
{
    struct sbx_proof proof = {0};
    struct sockaddr_in own;
    socklen_t size = sizeof own;
    uint8_t key[SBX_DIGEST_BYTES], place[SBX_PROOF_ADDRESS];
    uint8_t answer[SBX_PROOF_ANSWER], finish[SBX_PROOF_FINISH];
    bool good = getsockname(fd, (struct sockaddr *)&own, &size) == 0 &&
                sbx_proof_address((struct sockaddr *)&own, place) &&
                sbx_proof_key(peer->how == OTHER_TOKEN ? other : token, key) &&
                sbx_proof_answer(&proof, key, id, place, hello, answer);
    if (!good || send(fd, answer, sizeof answer, MSG_NOSIGNAL) < 0)
        return;
    size_t have = hear(fd, finish, sizeof finish);
    peer->heard += have;
    peer->passed = have == sizeof finish && sbx_proof_check(&proof, finish) &&
                   sbx_proof_pass(&proof, peer->pass);
}

static void *serve(void *data)
{
    struct peer *peer = data;
    uint8_t hello[SBX_PROOF_HELLO], junk[SBX_PROOF_ANSWER];
    int fd = accept(peer->listener, NULL, NULL);
    if (fd < 0)
        return NULL;
    if (peer->how != CLOSES)
        peer->heard = hear(fd, hello, sizeof hello);
    memset(junk, 'x', sizeof junk);
    if (peer->how == RIGHT || peer->how == OTHER_TOKEN)
        be_an_agent(peer, fd, hello);
    else if (peer->how == GARBAGE)
        (void)!send(fd, junk, sizeof junk, MSG_NOSIGNAL);
    else if (peer->how == ECHO)
        (void)!send(fd, hello, sizeof hello, MSG_NOSIGNAL);
    else if (peer->how == CUTS)
        (void)!send(fd, hello, 9, MSG_NOSIGNAL);
    else if (peer->how == SILENT)
        (void)!read(peer->stop[0], junk, 1);
    close(fd);
    return NULL;
}

static sandbox_status meet(struct peer *peer, uint32_t timeout_ms, uint8_t pass[SBX_PROOF_PASS],
                           sandbox_error *error)
{
    SBX_ON_EXIT(sbx_channel_end) struct sbx_channel channel = SBX_CHANNEL;
    struct sbx_wait wait = sbx_wait_alone(timeout_ms);
    socklen_t size = sizeof peer->address;
    peer->address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    peer->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(pipe(peer->stop), 0);
    ck_assert_int_eq(bind(peer->listener, (struct sockaddr *)&peer->address, size), 0);
    ck_assert_int_eq(getsockname(peer->listener, (struct sockaddr *)&peer->address, &size), 0);
    ck_assert_int_eq(listen(peer->listener, 1), 0);
    ck_assert_int_eq(pthread_create(&peer->thread, NULL, serve, peer), 0);
    sandbox_status status =
        sbx_channel_connect_tcp(&channel, (const struct sockaddr *)&peer->address, &wait, error);
    ck_assert_int_eq(status, SANDBOX_OK);
    status = sbx_channel_prove(&channel, token, id, &wait, pass, error);
    sbx_channel_end(&channel);
    close(peer->stop[1]);
    pthread_join(peer->thread, NULL);
    close(peer->stop[0]);
    close(peer->listener);
    return status;
}

START_TEST(both_sides_agree_on_a_pass)
{
    struct peer first = {.how = RIGHT}, second = {.how = RIGHT};
    uint8_t pass[SBX_PROOF_PASS], later[SBX_PROOF_PASS];
    sandbox_error error = {0};
    ck_assert_msg(meet(&first, 20000, pass, &error) == SANDBOX_OK, "%s", error.message);
    ck_assert(first.passed);
    ck_assert_mem_eq(first.pass, pass, sizeof pass);
    /* No two connections have the same, and none is the token. */
    ck_assert_int_eq(meet(&second, 20000, later, &error), SANDBOX_OK);
    ck_assert_mem_ne(pass, later, sizeof pass);
    ck_assert_mem_ne(pass, token, sizeof pass);
}
END_TEST

START_TEST(whoever_is_not_the_agent_is_found_out_and_told_nothing)
{
    struct peer peer = {.how = (enum how)_i};
    uint8_t pass[SBX_PROOF_PASS];
    sandbox_error error = {0};
    ck_assert_int_eq(meet(&peer, 20000, pass, &error), SANDBOX_UNAVAILABLE);
    ck_assert_str_eq(error.reason, "agent-not-proven");
    ck_assert(!peer.passed);
    ck_assert_uint_le(peer.heard, SBX_PROOF_HELLO);
}
END_TEST

START_TEST(whoever_says_nothing_is_waited_for_as_long_as_told)
{
    struct peer peer = {.how = SILENT};
    uint8_t pass[SBX_PROOF_PASS];
    sandbox_error error = {0};
    ck_assert_int_eq(meet(&peer, 50, pass, &error), SANDBOX_TIMED_OUT);
}
END_TEST

START_TEST(an_address_where_nobody_listens_is_unavailable)
{
    struct sbx_channel channel = SBX_CHANNEL;
    struct sbx_wait wait = sbx_wait_alone(20000);
    sandbox_error error = {0};
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(1)};
    ck_assert_int_eq(
        sbx_channel_connect_tcp(&channel, (const struct sockaddr *)&address, &wait, &error),
        SANDBOX_UNAVAILABLE);
    ck_assert_str_eq(error.message, "Connection refused");
    ck_assert_int_eq(channel.read_fd, -1);
}
END_TEST

START_TEST(an_address_is_the_same_in_both_families)
{
    uint8_t one[SBX_PROOF_ADDRESS], same[SBX_PROOF_ADDRESS];
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(7411)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(7411)};
    struct sockaddr unix_one = {.sa_family = AF_UNIX};
    memcpy(&v4.sin_addr, (const uint8_t[]){10, 1, 2, 3}, 4);
    memcpy(&v6.sin6_addr, (const uint8_t[]){0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 1, 2, 3},
           16);
    ck_assert(sbx_proof_address((const struct sockaddr *)&v4, one));
    ck_assert(sbx_proof_address((const struct sockaddr *)&v6, same));
    ck_assert_mem_eq(one, same, sizeof one);
    ck_assert(!sbx_proof_address(&unix_one, same));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("the proof of a token");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_test(all, both_sides_agree_on_a_pass);
    tcase_add_loop_test(all, whoever_is_not_the_agent_is_found_out_and_told_nothing, OTHER_TOKEN,
                        OTHER_TOKEN + 1);
    tcase_add_loop_test(all, whoever_is_not_the_agent_is_found_out_and_told_nothing, CLOSES,
                        CUTS + 1);
    tcase_add_test(all, whoever_says_nothing_is_waited_for_as_long_as_told);
    tcase_add_test(all, an_address_where_nobody_listens_is_unavailable);
    tcase_add_test(all, an_address_is_the_same_in_both_families);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
