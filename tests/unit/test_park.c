/*
 * The agent's part of parking, with servers that are linked with the preloaded library or speak to
 * the kernel themselves. It looks at all processes there are, so it is run where these are its own:
 * in a process namespace. Where none can be made it says so and is not run.
 */

#include "agent/park.h"
#include "shared/parking.h"
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SETTLE_MS 20000
#define NOT_RUN   77

enum kind {
    LINKED,    /* with the library */
    BY_ITSELF, /* it calls the kernel without it */
    FOR_ONE_EVENT,
    DEAF,   /* signals are blocked until a byte comes */
    NO_TCP, /* a Unix socket in the set, a TCP socket beside it */
};

struct server {
    pid_t pid;
    int set, socket;
    int line; /* bytes to it */
};

static struct agent_park_report report;
static pid_t started[8];
static size_t started_count;

static void serve(enum kind kind, int line)
{
    struct server self = {.set = epoll_create1(EPOLL_CLOEXEC),
                          .socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    struct epoll_event event = {.events = EPOLLIN};
    sigset_t all;
    char byte;
    int watched = kind == NO_TCP ? line : self.socket;
    if (kind == FOR_ONE_EVENT)
        event.events |= EPOLLONESHOT;
    sigfillset(&all);
    if (kind == DEAF)
        sigprocmask(SIG_BLOCK, &all, NULL);
    bool failed = self.socket < 0 || listen(self.socket, 16) != 0;
    if (kind == BY_ITSELF)
        failed = failed || syscall(SYS_epoll_ctl, self.set, EPOLL_CTL_ADD, watched, &event) != 0;
    else
        failed = failed || epoll_ctl(self.set, EPOLL_CTL_ADD, watched, &event) != 0;
    if (failed || write(line, &self, sizeof self) != sizeof self)
        _exit(1);
    while (recv(line, &byte, 1, 0) == 1)
        sigprocmask(SIG_UNBLOCK, &all, NULL);
    _exit(0);
}

static struct server start(enum kind kind)
{
    int ends[2];
    struct server server;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        serve(kind, ends[1]);
    }
    close(ends[1]);
    ck_assert_int_eq((int)read(ends[0], &server, sizeof server), (int)sizeof server);
    server.pid = started[started_count++] = pid;
    server.line = ends[0];
    return server;
}

/* The next case would see them. */
static void end_servers(void)
{
    while (started_count > 0) {
        kill(started[--started_count], SIGKILL);
        waitpid(started[started_count], NULL, 0);
    }
}

/* Whether the kernel has the server's socket in the server's set. */
static bool is_served(const struct server *server)
{
    char path[64], line[256];
    int target;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/fdinfo/%d", (int)server->pid, server->set);
    FILE *file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file) != NULL)
        found = found || (sscanf(line, "tfd: %d", &target) == 1 && target == server->socket);
    fclose(file);
    return found;
}

static bool is_obstacle(const struct server *server)
{
    for (size_t at = 0; at < report.obstacles_count; at++) {
        if (report.obstacles[at].pid == server->pid)
            return true;
    }
    return false;
}

START_TEST(where_nobody_is_at_risk_nothing_happens)
{
    struct agent_park *park = NULL;
    ck_assert(agent_park_begin(&park, &report));
    ck_assert_uint_eq(report.parked, 0);
    ck_assert(agent_park_holds(&report));
    agent_park_undo(park);
    ck_assert_uint_eq(agent_park_settle(SETTLE_MS), 0);
    agent_park_free(park);
}
END_TEST

START_TEST(servers_are_parked_and_put_back)
{
    struct agent_park *park = NULL;
    struct server first = start(LINKED), second = start(LINKED), quiet = start(NO_TCP);
    ck_assert(agent_park_begin(&park, &report));
    ck_assert_uint_eq(report.parked, 3); /* nobody can see that one of them need not be */
    ck_assert(!is_served(&first));
    ck_assert(!is_served(&second));
    ck_assert(agent_park_holds(&report));
    ck_assert_uint_eq(report.parked, 3);
    agent_park_undo(park);
    ck_assert_uint_eq(agent_park_settle(SETTLE_MS), 0);
    ck_assert(is_served(&first));
    ck_assert(is_served(&second));
    ck_assert(!is_served(&quiet));
    ck_assert(!agent_park_holds(&report));
    agent_park_free(park);
}
END_TEST

START_TEST(who_speaks_to_the_kernel_itself_is_an_obstacle)
{
    struct agent_park *park = NULL;
    struct server able = start(LINKED), unable = start(BY_ITSELF);
    ck_assert(!agent_park_begin(&park, &report));
    ck_assert_ptr_null(park);
    ck_assert_uint_eq(report.obstacles_count, 1);
    ck_assert(is_obstacle(&unable));
    ck_assert(report.obstacles[0].command_size > 0);
    ck_assert_ptr_nonnull(memmem(report.obstacles[0].command, report.obstacles[0].command_size,
                                 "test_park", strlen("test_park")));
    ck_assert_uint_eq(agent_park_settle(SETTLE_MS), 0);
    ck_assert(is_served(&able));
    /* It was not killed by a signal that it does not know. */
    ck_assert_int_eq(waitpid(unable.pid, NULL, WNOHANG), 0);
    ck_assert(is_served(&unable));
}
END_TEST

START_TEST(who_refuses_is_an_obstacle_and_goes_on)
{
    struct agent_park *park = NULL;
    struct server unable = start(FOR_ONE_EVENT);
    ck_assert(!agent_park_begin(&park, &report));
    ck_assert(is_obstacle(&unable));
    ck_assert_uint_eq(agent_park_settle(SETTLE_MS), 0);
    ck_assert(is_served(&unable));
}
END_TEST

START_TEST(who_does_not_hear_is_an_obstacle_and_is_not_parked_later)
{
    struct agent_park *park = NULL;
    struct server deaf = start(DEAF);
    ck_assert(!agent_park_begin(&park, &report));
    ck_assert(is_obstacle(&deaf));
    ck_assert_int_eq((int)write(deaf.line, "x", 1), 1);
    ck_assert(agent_park_begin(&park, &report));
    ck_assert(!is_served(&deaf));
    agent_park_undo(park);
    ck_assert_uint_eq(agent_park_settle(SETTLE_MS), 0);
    ck_assert(is_served(&deaf));
    agent_park_free(park);
}
END_TEST

START_TEST(who_comes_later_is_found)
{
    struct agent_park *park = NULL;
    struct server able = start(LINKED);
    ck_assert(agent_park_begin(&park, &report));
    struct server late = start(LINKED);
    ck_assert(!agent_park_holds(&report));
    ck_assert_uint_eq(report.obstacles_count, 1);
    ck_assert(is_obstacle(&late));
    agent_park_undo(park);
    ck_assert_uint_eq(agent_park_settle(SETTLE_MS), 0);
    ck_assert(is_served(&able));
    agent_park_free(park);
}
END_TEST

/* As a seal leaves them, and as they are found after a restore by one who was told nothing. */
START_TEST(stopped_processes_are_put_back_when_they_go_on)
{
    struct agent_park *park = NULL;
    struct server server = start(LINKED);
    ck_assert(agent_park_begin(&park, &report));
    kill(server.pid, SIGSTOP);
    ck_assert_int_eq(waitpid(server.pid, NULL, WUNTRACED), server.pid);
    ck_assert(agent_park_holds(&report));
    agent_park_undo(_i == 0 ? park : NULL);
    ck_assert(!is_served(&server));
    ck_assert_uint_eq(agent_park_settle(0), 1);
    kill(server.pid, SIGCONT);
    ck_assert_uint_eq(agent_park_settle(SETTLE_MS), 0);
    ck_assert(is_served(&server));
    agent_park_free(park);
}
END_TEST

static int run(void)
{
    Suite *suite = suite_create("park");
    TCase *tests = tcase_create("park");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, NULL, end_servers);
    tcase_add_test(tests, where_nobody_is_at_risk_nothing_happens);
    tcase_add_test(tests, servers_are_parked_and_put_back);
    tcase_add_test(tests, who_speaks_to_the_kernel_itself_is_an_obstacle);
    tcase_add_test(tests, who_refuses_is_an_obstacle_and_goes_on);
    tcase_add_test(tests, who_does_not_hear_is_an_obstacle_and_is_not_parked_later);
    tcase_add_test(tests, who_comes_later_is_found);
    tcase_add_loop_test(tests, stopped_processes_are_put_back_when_they_go_on, 0, 2);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    puts("not run: ThreadSanitizer has epoll and signals before the preloaded library");
    return NOT_RUN;
#endif
    int code = NOT_RUN;
    if (unshare(CLONE_NEWPID | CLONE_NEWNS | (geteuid() == 0 ? 0 : CLONE_NEWUSER)) != 0) {
        perror("not run: no process namespace here");
        return NOT_RUN;
    }
    pid_t child = fork();
    if (child == 0) {
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
            mount("proc", "/proc", "proc", 0, NULL) == 0)
            exit(run());
        perror("not run: no /proc of its own here");
        exit(NOT_RUN);
    }
    int status;
    if (child > 0 && waitpid(child, &status, 0) == child)
        code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    /* A leak checker would start a process, and this one's namespace for new ones is over. */
    _exit(code);
}
