/*
 * The preloaded library's part of parking: this program is linked with it as a program inside is,
 * asks itself by the signal, and looks at what the kernel says is in its epoll sets.
 */

#include "shared/parking.h"
#include "shim/table.h"
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHURNERS 4
#define SOCKETS  8
#define ROUNDS   300

/* As the agent counts them. */
static unsigned pages_shown(void)
{
    FILE *file = fopen("/proc/self/maps", "re");
    char line[4096];
    unsigned long begin, end, pages = 0;
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file) != NULL) {
        if (strstr(line, "/" PARKING_LIBRARY "\n") != NULL && strstr(line, " -w-p ") != NULL &&
            sscanf(line, "%lx-%lx", &begin, &end) == 2)
            pages += (end - begin) / PARKING_PAGE_BYTES;
    }
    fclose(file);
    return (unsigned)pages;
}

static void tell(int wish)
{
    ck_assert_int_eq(sigqueue(getpid(), PARKING_SIGNAL, (union sigval){.sival_int = wish}), 0);
}

static void park(void)
{
    tell(PARKING_PARK);
    ck_assert_uint_eq(pages_shown(), PARKING_PARKED);
}

static void put_back(void)
{
    tell(PARKING_UNPARK);
    ck_assert_uint_eq(pages_shown(), PARKING_ABLE);
}

/* What the kernel says of a descriptor in a set; false: it is not there. */
static bool is_in(int set, int fd, struct epoll_event *out)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", set);
    FILE *file = fopen(path, "re");
    bool found = false;
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file) != NULL) {
        int target;
        unsigned events;
        unsigned long long data;
        if (sscanf(line, "tfd: %d events: %x data: %llx", &target, &events, &data) != 3 ||
            target != fd)
            continue;
        found = true;
        if (out != NULL)
            *out = (struct epoll_event){.events = events, .data.u64 = data};
    }
    fclose(file);
    return found;
}

static int new_set(void)
{
    int set = epoll_create1(EPOLL_CLOEXEC);
    ck_assert_int_ge(set, 0);
    return set;
}

static int new_listener(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(fd, 16), 0);
    return fd;
}

/* A connection to itself: pair[0] called, pair[1] was called. */
static void new_connection(int pair[2])
{
    int listener = new_listener();
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(pair[0], (struct sockaddr *)&address, size), 0);
    pair[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    ck_assert_int_ge(pair[1], 0);
    close(listener);
}

static int change(int set, int operation, int fd, unsigned events, uint64_t data)
{
    struct epoll_event event = {.events = events, .data.u64 = data};
    return epoll_ctl(set, operation, fd, &event) == 0 ? 0 : errno;
}

START_TEST(a_program_is_left_alone_until_it_uses_epoll)
{
    struct sigaction action;
    ck_assert_uint_eq(pages_shown(), 0);
    ck_assert_int_eq(sigaction(PARKING_SIGNAL, NULL, &action), 0);
    ck_assert(action.sa_handler == SIG_DFL);
    int set = new_set(), ends[2];
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, ends[0], EPOLLIN, 1), 0);
    ck_assert_uint_eq(pages_shown(), PARKING_ABLE);
}
END_TEST

START_TEST(tcp_sockets_leave_and_come_back_as_they_were)
{
    int set = new_set(), ends[2], pair[2], listener = new_listener();
    struct epoll_event event, events[8];
    new_connection(pair);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, ends[0], EPOLLIN, 1), 0);
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, listener, EPOLLIN | EPOLLEXCLUSIVE, 2), 0);
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, pair[1], EPOLLIN, 3), 0);
    ck_assert_int_eq(change(set, EPOLL_CTL_MOD, pair[1], EPOLLIN | EPOLLRDHUP, UINT64_MAX), 0);
    park();
    ck_assert(is_in(set, ends[0], NULL));
    ck_assert(!is_in(set, listener, NULL));
    ck_assert(!is_in(set, pair[1], NULL));
    ck_assert_int_eq((int)write(pair[0], "x", 1), 1);
    ck_assert_int_eq(epoll_wait(set, events, 8, 0), 0);
    put_back();
    ck_assert(is_in(set, listener, &event));
    ck_assert_uint_eq(event.events & (EPOLLIN | EPOLLEXCLUSIVE), EPOLLIN | EPOLLEXCLUSIVE);
    ck_assert_int_eq(epoll_wait(set, events, 8, 1000), 1);
    ck_assert_uint_eq(events[0].data.u64, UINT64_MAX);
    ck_assert(is_in(set, pair[1], &event));
    ck_assert((event.events & EPOLLRDHUP) != 0);
}
END_TEST

START_TEST(asking_twice_is_asking_once)
{
    int set = new_set(), listener = new_listener();
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, listener, EPOLLIN, 1), 0);
    tell(PARKING_UNPARK);
    ck_assert(is_in(set, listener, NULL));
    park();
    park();
    put_back();
    put_back();
    ck_assert(is_in(set, listener, NULL));
}
END_TEST

START_TEST(what_is_asked_while_parked_is_done_later)
{
    int set = new_set(), kept = new_listener(), gone = new_listener(), fresh = new_listener();
    int brief = new_listener(), ends[2];
    struct epoll_event event;
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, kept, EPOLLIN, 1), 0);
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, gone, EPOLLIN, 2), 0);
    park();
    ck_assert_int_eq(change(set, EPOLL_CTL_MOD, kept, EPOLLIN | EPOLLET, 11), 0);
    ck_assert_int_eq(epoll_ctl(set, EPOLL_CTL_DEL, gone, NULL), 0);
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, fresh, EPOLLIN, 3), 0);
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, brief, EPOLLIN, 4), 0);
    ck_assert_int_eq(change(set, EPOLL_CTL_DEL, brief, 0, 0), 0);
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, ends[0], EPOLLIN, 5), 0);
    ck_assert(is_in(set, ends[0], NULL));
    ck_assert(!is_in(set, fresh, NULL));
    put_back();
    ck_assert(is_in(set, kept, &event));
    ck_assert_uint_eq(event.data.u64, 11);
    ck_assert((event.events & EPOLLET) != 0);
    ck_assert(is_in(set, fresh, &event));
    ck_assert_uint_eq(event.data.u64, 3);
    ck_assert(!is_in(set, gone, NULL));
    ck_assert(!is_in(set, brief, NULL));
}
END_TEST

START_TEST(mistakes_are_answered_alike)
{
    int set = new_set(), here = new_listener(), other = new_listener(), ends[2];
    int file = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, here, EPOLLIN, 1), 0);
    for (int round = 0; round < 2; round++) {
        ck_assert_int_eq(change(set, EPOLL_CTL_ADD, here, EPOLLIN, 9), EEXIST);
        ck_assert_int_eq(change(set, EPOLL_CTL_MOD, other, EPOLLIN, 9), ENOENT);
        ck_assert_int_eq(change(set, EPOLL_CTL_DEL, other, EPOLLIN, 9), ENOENT);
        ck_assert_int_eq(change(set, EPOLL_CTL_ADD, 9999, EPOLLIN, 9), EBADF);
        ck_assert_int_eq(change(9999, EPOLL_CTL_ADD, other, EPOLLIN, 9), EBADF);
        ck_assert_int_eq(change(ends[0], EPOLL_CTL_ADD, other, EPOLLIN, 9), EINVAL);
        ck_assert_int_eq(change(set, EPOLL_CTL_ADD, file, EPOLLIN, 9), EPERM);
        ck_assert_int_eq(epoll_ctl(set, EPOLL_CTL_ADD, other, NULL), -1);
        ck_assert_int_eq(errno, EFAULT);
        ck_assert_int_eq(epoll_create(0), -1);
        ck_assert_int_eq(errno, EINVAL);
        park();
    }
    put_back();
    ck_assert(is_in(set, here, NULL));
    ck_assert(!is_in(set, other, NULL));
}
END_TEST

/* A number that became another's is not put into a set in the name of the former. */
START_TEST(what_is_closed_while_parked_stays_away)
{
    int set = new_set(), first = new_listener(), second = new_listener(), third = new_listener();
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, first, EPOLLIN, 1), 0);
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, second, EPOLLIN, 2), 0);
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, third, EPOLLIN, 3), 0);
    park();
    close(first);
    int again = new_listener();
    ck_assert_int_eq(again, first);
    int other = new_listener();
    ck_assert_int_eq(dup3(other, second, O_CLOEXEC), second);
    close(third);
    put_back();
    ck_assert(!is_in(set, first, NULL));
    ck_assert(!is_in(set, second, NULL));
    ck_assert(!is_in(set, third, NULL));
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, again, EPOLLIN, 4), 0);
}
END_TEST

START_TEST(a_new_socket_of_an_old_number_may_come_while_parked)
{
    int set = new_set(), first = new_listener();
    struct epoll_event event;
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, first, EPOLLIN, 1), 0);
    park();
    close(first);
    ck_assert_int_eq(new_listener(), first);
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, first, EPOLLIN, 2), 0);
    put_back();
    ck_assert(is_in(set, first, &event));
    ck_assert_uint_eq(event.data.u64, 2);
}
END_TEST

START_TEST(a_new_set_of_an_old_number_gets_nothing)
{
    int set = new_set(), listener = new_listener();
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, listener, EPOLLIN, 1), 0);
    park();
    close(set);
    ck_assert_int_eq(new_set(), set);
    put_back();
    ck_assert(!is_in(set, listener, NULL));
}
END_TEST

static volatile sig_atomic_t own_calls;

static void own_handler(int number)
{
    own_calls++;
}

START_TEST(a_programs_own_handler_stays_its_own)
{
    int set = new_set(), listener = new_listener();
    struct sigaction action = {.sa_handler = own_handler};
    ck_assert_int_eq(sigaction(PARKING_SIGNAL, &action, NULL), 0);
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, listener, EPOLLIN, 1), 0);
    ck_assert_uint_eq(pages_shown(), 0);
    tell(PARKING_PARK);
    ck_assert_int_eq(own_calls, 1);
    ck_assert(is_in(set, listener, NULL));
}
END_TEST

/* And what was out comes back at once, since nobody will be able to ask for it. */
START_TEST(a_handler_set_later_ends_it)
{
    int set = new_set(), listener = new_listener();
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, listener, EPOLLIN, 1), 0);
    park();
    if (_i == 0)
        signal(PARKING_SIGNAL, own_handler);
    else
        sigaction(PARKING_SIGNAL, &(struct sigaction){.sa_handler = own_handler}, NULL);
    ck_assert_uint_eq(pages_shown(), 0);
    ck_assert(is_in(set, listener, NULL));
    tell(PARKING_PARK);
    ck_assert_int_eq(own_calls, 1);
    ck_assert(is_in(set, listener, NULL));
}
END_TEST

START_TEST(other_signals_pass_through)
{
    struct sigaction action = {.sa_handler = own_handler};
    ck_assert(signal(SIGUSR2, own_handler) == SIG_DFL);
    ck_assert_int_eq(sigaction(SIGUSR1, &action, NULL), 0);
    raise(SIGUSR1);
    raise(SIGUSR2);
    ck_assert_int_eq(own_calls, 2);
}
END_TEST

START_TEST(only_a_queued_signal_is_a_wish)
{
    int set = new_set(), listener = new_listener();
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, listener, EPOLLIN, 1), 0);
    ck_assert_int_eq(kill(getpid(), PARKING_SIGNAL), 0);
    tell(0);
    ck_assert(is_in(set, listener, NULL));
    ck_assert_uint_eq(pages_shown(), PARKING_ABLE);
}
END_TEST

/* The last wish counts, however late a process hears of them. */
START_TEST(wishes_that_wait_are_heard_in_order)
{
    int set = new_set(), listener = new_listener();
    sigset_t all;
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, listener, EPOLLIN, 1), 0);
    sigfillset(&all);
    ck_assert_int_eq(sigprocmask(SIG_BLOCK, &all, NULL), 0);
    tell(PARKING_PARK);
    tell(PARKING_UNPARK);
    ck_assert_uint_eq(pages_shown(), PARKING_ABLE);
    ck_assert_int_eq(sigprocmask(SIG_UNBLOCK, &all, NULL), 0);
    ck_assert(is_in(set, listener, NULL));
    ck_assert_uint_eq(pages_shown(), PARKING_ABLE);
}
END_TEST

START_TEST(sockets_for_one_event_are_not_touched)
{
    int set = new_set(), pair[2], listener = new_listener();
    struct epoll_event events[4];
    new_connection(pair);
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, listener, EPOLLIN, 1), 0);
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, pair[1], EPOLLIN | EPOLLONESHOT, 2), 0);
    ck_assert_int_eq((int)write(pair[0], "x", 1), 1);
    ck_assert_int_eq(epoll_wait(set, events, 4, 1000), 1);
    tell(PARKING_PARK);
    ck_assert_uint_eq(pages_shown(), PARKING_REFUSES);
    ck_assert(is_in(set, listener, NULL));
    put_back();
    ck_assert_int_eq(epoll_wait(set, events, 4, 0), 0);
    close(pair[1]);
    park();
    put_back();
}
END_TEST

START_TEST(more_than_the_table_holds_cannot_be_parked)
{
    int sockets[130];
    for (int at = 0; at < 130; at++)
        sockets[at] = new_listener();
    int pairs = 0, sets[130];
    for (int at = 0; at < 130; at++) {
        sets[at] = new_set();
        for (int other = 0; other < 130; other++, pairs++) {
            if (pairs == TABLE_MAX)
                ck_assert_uint_eq(pages_shown(), PARKING_ABLE);
            ck_assert_int_eq(change(sets[at], EPOLL_CTL_ADD, sockets[other], EPOLLIN, 1), 0);
        }
    }
    ck_assert_uint_eq(pages_shown(), 0);
    tell(PARKING_PARK);
    ck_assert_uint_eq(pages_shown(), PARKING_REFUSES);
    ck_assert(is_in(sets[0], sockets[0], NULL));
    ck_assert(is_in(sets[129], sockets[129], NULL));
}
END_TEST

/* Sockets that come and go do not fill the table. */
START_TEST(closed_sockets_make_room)
{
    int set = new_set();
    for (int round = 0; round < TABLE_MAX + 10; round++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(change(set, EPOLL_CTL_ADD, fd, EPOLLIN, 1), 0);
        close(fd);
        if (round % 1000 == 0) {
            close(set);
            set = new_set();
        }
    }
    park();
    put_back();
}
END_TEST

START_TEST(a_child_that_shares_the_set_shares_the_work)
{
    int set = new_set(), listener = new_listener(), told[2];
    char word;
    ck_assert_int_eq(change(set, EPOLL_CTL_ADD, listener, EPOLLIN, 1), 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, told), 0);
    pid_t child = fork();
    if (child == 0) {
        park();
        _exit(write(told[1], "p", 1) == 1 && read(told[1], &word, 1) == 1 ? (put_back(), 0) : 1);
    }
    int status = -1;
    ck_assert_int_eq((int)read(told[0], &word, 1), 1);
    park();
    ck_assert(!is_in(set, listener, NULL));
    put_back();
    ck_assert_int_eq((int)write(told[0], "u", 1), 1);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert(is_in(set, listener, NULL));
}
END_TEST

struct churner {
    pthread_t thread;
    int set, sockets[SOCKETS];
    bool in[SOCKETS];
    bool failed;
};
static bool churn_over;

static void *churn(void *data)
{
    struct churner *churner = data;
    unsigned seed = (unsigned)churner->set;
    while (!__atomic_load_n(&churn_over, __ATOMIC_ACQUIRE) && !churner->failed) {
        seed = seed * 1103515245u + 12345u;
        unsigned at = (seed >> 16) % SOCKETS;
        int operation = !churner->in[at]  ? EPOLL_CTL_ADD
                        : (seed & 0x1000) ? EPOLL_CTL_MOD
                                          : EPOLL_CTL_DEL;
        churner->failed = change(churner->set, operation, churner->sockets[at], EPOLLIN, at) != 0;
        churner->in[at] = operation != EPOLL_CTL_DEL;
    }
    return NULL;
}

/* Whichever thread gets the signal, all others are in the middle of something. */
START_TEST(many_threads_at_once)
{
    struct churner churners[CHURNERS] = {0};
    for (int at = 0; at < CHURNERS; at++) {
        churners[at].set = new_set();
        for (int socket = 0; socket < SOCKETS; socket++)
            churners[at].sockets[socket] = new_listener();
    }
    /* Before the threads: nobody may be told before the mark is there. */
    ck_assert_int_eq(change(churners[0].set, EPOLL_CTL_DEL, churners[0].sockets[0], 0, 0), ENOENT);
    for (int at = 0; at < CHURNERS; at++)
        ck_assert_int_eq(pthread_create(&churners[at].thread, NULL, churn, &churners[at]), 0);
    for (int round = 0; round < ROUNDS; round++) {
        tell(PARKING_PARK);
        while (pages_shown() != PARKING_PARKED)
            sched_yield();
        for (int at = 0; at < CHURNERS; at++) {
            for (int socket = 0; socket < SOCKETS; socket++)
                ck_assert(!is_in(churners[at].set, churners[at].sockets[socket], NULL));
        }
        tell(PARKING_UNPARK);
        while (pages_shown() != PARKING_ABLE)
            sched_yield();
    }
    __atomic_store_n(&churn_over, true, __ATOMIC_RELEASE);
    for (int at = 0; at < CHURNERS; at++) {
        pthread_join(churners[at].thread, NULL);
        ck_assert(!churners[at].failed);
        for (int socket = 0; socket < SOCKETS; socket++)
            ck_assert(is_in(churners[at].set, churners[at].sockets[socket], NULL) ==
                      churners[at].in[socket]);
    }
}
END_TEST

int main(void)
{
#ifdef __SANITIZE_THREAD__
    puts("not run: ThreadSanitizer has epoll and signals before the preloaded library");
    return 77;
#endif
    Suite *suite = suite_create("shim");
    TCase *tests = tcase_create("parking");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_program_is_left_alone_until_it_uses_epoll);
    tcase_add_test(tests, tcp_sockets_leave_and_come_back_as_they_were);
    tcase_add_test(tests, asking_twice_is_asking_once);
    tcase_add_test(tests, what_is_asked_while_parked_is_done_later);
    tcase_add_test(tests, mistakes_are_answered_alike);
    tcase_add_test(tests, what_is_closed_while_parked_stays_away);
    tcase_add_test(tests, a_new_socket_of_an_old_number_may_come_while_parked);
    tcase_add_test(tests, a_new_set_of_an_old_number_gets_nothing);
    tcase_add_test(tests, a_programs_own_handler_stays_its_own);
    tcase_add_loop_test(tests, a_handler_set_later_ends_it, 0, 2);
    tcase_add_test(tests, other_signals_pass_through);
    tcase_add_test(tests, only_a_queued_signal_is_a_wish);
    tcase_add_test(tests, wishes_that_wait_are_heard_in_order);
    tcase_add_test(tests, sockets_for_one_event_are_not_touched);
    tcase_add_test(tests, more_than_the_table_holds_cannot_be_parked);
    tcase_add_test(tests, closed_sockets_make_room);
    tcase_add_test(tests, a_child_that_shares_the_set_shares_the_work);
    tcase_add_test(tests, many_threads_at_once);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
