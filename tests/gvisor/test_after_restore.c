/*
 * What a restore changes for programs inside, and what it must not change: clocks, entropy,
 * deadlines, ports, the hook, and everything that the memory of a process holds on to. P020, P023,
 * P060, P063, P065, P131, P173, P182.
 */

#include "scene.h"
#include "util/wait.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PYTHON "/usr/bin/python3"

static void set_up(void)
{
    scene_open("restored");
}

static void tear_down(void)
{
    scene_close();
}

/* A python program that goes on; its lines are what it says. */
static sandbox_process *start_python(const char *program)
{
    scene_put("program.py", program);
    return scene_start("exec " PYTHON " -u program.py");
}

static void say(sandbox_process *process, const char *line)
{
    good(sandbox_process_write(process, line, strlen(line), NULL, &error));
}

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* P060 */
START_TEST(the_clock_inside_is_right)
{
    double begun = seconds(CLOCK_REALTIME);
    sandbox_suspend_result slept = scene_suspend(SANDBOX_KEEP_MEMORY);
    sandbox_resume_result woke = scene_resume(NULL);
    ck_assert(!woke.clock_failed);
    ck_assert_int_lt(llabs(woke.skew_ms), 1000);
    double before = seconds(CLOCK_REALTIME);
    double inside = strtod(scene_run("date +%s.%N"), NULL);
    double after = seconds(CLOCK_REALTIME);
    ck_assert_msg(inside > before - 1 && inside < after + 1, "%f is not from %f to %f", inside,
                  before, after);
    ck_assert_uint_le(woke.asleep_ms, (uint64_t)((after - begun) * 1000));
    ck_assert_str_eq(woke.snapshot, slept.snapshot);
}
END_TEST

/* Continued, it draws from every source before anything else. Its own generator is memory. */
static const char draws[] =
    "import os, random, time\n"
    "own, path = random.Random(1), '/run/sandbox-generation'\n"
    "def generation():\n"
    "    return open(path).read() if os.path.exists(path) else ''\n"
    "before = generation()\n"
    "print('ready')\n"
    "while generation() == before:\n"
    "    pass\n"
    "first = open('/dev/urandom', 'rb', buffering=0).read(32).hex()\n"
    "second = os.getrandom(32).hex()\n"
    "uuid = '/proc/sys/kernel/random/uuid'\n"
    "third = open(uuid).read().strip() if os.path.exists(uuid) else os.urandom(16).hex()\n"
    "print(first, second, third, own.getrandbits(64))\n"
    "time.sleep(1000)\n";

static void read_draws(const char *snapshot, const char *id, char words[4][80])
{
    sandbox_process *process = NULL;
    sandbox_resume_result woke = scene_resume(snapshot);
    ck_assert(!woke.entropy_failed);
    good(sandbox_process_find(workspace, id, NULL, &process, &error));
    scene_require_line(process, "ready");
    const char *line = scene_read_line(process);
    ck_assert_int_eq(sscanf(line, "%79s %79s %79s %79s", words[0], words[1], words[2], words[3]),
                     4);
    sandbox_process_free(process);
}

/* P063, P065 */
START_TEST(two_resumes_of_one_snapshot_draw_different_random_bytes)
{
    char first[4][80], second[4][80];
    if (!scene_has_program(PYTHON))
        return;
    sandbox_process *process = start_python(draws);
    scene_require_line(process, "ready");
    sandbox_suspend_result slept = scene_suspend(SANDBOX_KEEP_MEMORY);
    read_draws(NULL, sandbox_process_id(process), first);
    scene_suspend(SANDBOX_KEEP_FILES);
    read_draws(slept.snapshot, sandbox_process_id(process), second);
    for (size_t n = 0; n < 3; n++)
        ck_assert_str_ne(first[n], second[n]);
    ck_assert_str_eq(first[3], second[3]); /* as doc/lifecycle.md says */
    sandbox_process_free(process);
}
END_TEST

START_TEST(a_deadline_goes_on_with_the_time_that_was_left)
{
    enum { DEADLINE_MS = 8000 };
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "sleep 1000",
                                       .role = SANDBOX_ROLE_SERVICE, .deadline_ms = DEADLINE_MS};
    sandbox_process *process = NULL;
    double begun = seconds(CLOCK_MONOTONIC);
    good(sandbox_process_start(workspace, &options, NULL, &process, &error));
    scene_suspend(SANDBOX_KEEP_MEMORY);
    double used = seconds(CLOCK_MONOTONIC) - begun; /* at most */
    /* What is tested is that time passes: more than it had. */
    struct sbx_wait wait = sbx_wait_alone(SANDBOX_FOREVER);
    while (seconds(CLOCK_MONOTONIC) - begun < DEADLINE_MS / 1000.0 + 1)
        good(sbx_wait_pause(&wait, 200, &error));
    double continued = seconds(CLOCK_MONOTONIC);
    sandbox_resume_result woke = scene_resume(NULL);
    ck_assert_uint_eq(woke.deadlines_kept, 1);
    sandbox_process_exit end;
    good(sandbox_process_wait(process, NULL, &end, &error));
    ck_assert(end.timed_out);
    double lived = seconds(CLOCK_MONOTONIC) - continued;
    ck_assert_msg(lived >= DEADLINE_MS / 1000.0 - used, "it lived for %f s after %f s", lived,
                  used);
    sandbox_process_free(process);
}
END_TEST

/* A server that answers each line with what it is called. */
static const char names_itself[] =
    "import socketserver, sys\n"
    "class Line(socketserver.StreamRequestHandler):\n"
    "    def handle(self):\n"
    "        for line in self.rfile:\n"
    "            self.wfile.write(b'%s %s' % (sys.argv[1].encode(), line))\n"
    "socketserver.ThreadingTCPServer.daemon_threads = True\n"
    "server = socketserver.ThreadingTCPServer(('127.0.0.1', 8000), Line)\n"
    "print('ready')\n"
    "server.serve_forever()\n";

static sandbox_process *start_server(const char *name)
{
    char command[128];
    scene_put("server.py", names_itself);
    snprintf(command, sizeof command, "exec " PYTHON " -u server.py %s", name);
    sandbox_process *process = scene_start(command);
    scene_require_line(process, "ready");
    return process;
}

/* What comes back for "hello" through a host's port; "" if the connection ends. */
static const char *ask(uint16_t port)
{
    static char answer[64];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    size_t used = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    ssize_t got = send(fd, "hello\n", 6, MSG_NOSIGNAL);
    while (got > 0 && memchr(answer, '\n', used) == NULL) {
        got = recv(fd, answer + used, sizeof answer - 1 - used, 0);
        used += got > 0 ? (size_t)got : 0;
    }
    answer[used] = '\0';
    close(fd);
    return answer;
}

/* P131, P173, P182: whoever has the port while one sleeps does not get its visitors. */
START_TEST(a_forwarded_port_leads_to_the_same_workspace_again)
{
    if (!scene_has_program(PYTHON))
        return;
    sandbox_forward_options options = {SANDBOX_FORWARD_OPTIONS, .port = 8000};
    sandbox_forward *forward = NULL;
    sandbox_connection *connection = NULL;
    sandbox_process *server = start_server("first");
    good(sandbox_port_forward(workspace, &options, NULL, &forward, &error));
    uint16_t port = sandbox_forward_host_port(forward);
    ck_assert_str_eq(ask(port), "first hello\n");
    /* Bytes went through just now: that is activity, where nobody says otherwise. */
    bad(SANDBOX_BUSY, sandbox_workspace_suspend(workspace, NULL, NULL, NULL, &error));
    ck_assert_str_eq(error.reason, "active");
    good(sandbox_port_dial(workspace, 8000, NULL, &connection, &error));
    good(sandbox_connection_write(connection, "a\n", 2, NULL, &error));
    const uint8_t *data;
    size_t size;
    good(sandbox_connection_read(connection, NULL, &data, &size, &error));
    scene_suspend(SANDBOX_KEEP_MEMORY);
    sandbox_workspace *first = workspace, *second = NULL;
    sandbox_workspace_options other = {SANDBOX_WORKSPACE_OPTIONS, .name = "second"};
    good(sandbox_workspace_create(client, &other, NULL, &second, &error));
    workspace = second;
    sandbox_process *others = start_server("second");
    ck_assert_str_eq(ask(port), "");
    workspace = first;

    sandbox_resume_result woke = scene_resume(NULL);
    ck_assert_uint_eq(woke.connections_reset, 1);
    sandbox_status status = sandbox_connection_read(connection, NULL, &data, &size, &error);
    ck_assert(status != SANDBOX_OK || size == 0);
    ck_assert_str_eq(ask(port), "first hello\n");
    sandbox_connection_free(connection);
    sandbox_forward_free(forward);
    scene_end(server);
    sandbox_process_free(others);
    good(sandbox_workspace_delete(second, NULL, &error));
    sandbox_workspace_free(second);
}
END_TEST

START_TEST(the_hook_runs_before_the_others_continue)
{
    static const char hook[] = "#!/bin/sh\n"
                               "first=$(cat count)\n"
                               "n=0\n"
                               "while [ $n -lt 40 ]; do n=$((n+1)); cat count >/dev/null; done\n"
                               "[ \"$first\" = \"$(cat count)\" ] || exit 9\n"
                               "echo $SANDBOX_GENERATION $(cat /run/sandbox-generation) "
                               "$(id -un) >>hooked\n"
                               "exit 7\n";
    sandbox_write_options program = {SANDBOX_WRITE_OPTIONS, .mode = 0755};
    good(sandbox_file_write(workspace, ".sandbox/on-resume", hook, strlen(hook), &program, NULL,
                            &error));
    sandbox_process *process = scene_start(
        "n=0; while :; do n=$((n+1)); echo $n >count.new; mv count.new count; echo $n; done");
    unsigned long last = scene_read_count(process, 0, 3);
    for (unsigned n = 1; n <= 2; n++) {
        scene_suspend(SANDBOX_KEEP_MEMORY);
        sandbox_resume_result woke = scene_resume(NULL);
        ck_assert_int_eq(woke.hook_code, 7);
        ck_assert_uint_eq(woke.generation, n);
        last = scene_read_count(process, last, 3);
    }
    scene_end(process);
    scene_require_prints("cat hooked", "1 1 sandbox\n2 2 sandbox\n");
    good(sandbox_file_remove(workspace, ".sandbox", &(sandbox_change_options){
                                 SANDBOX_CHANGE_OPTIONS, .recursive = true}, NULL, &error));
    scene_suspend(SANDBOX_KEEP_FILES);
    sandbox_resume_result woke = scene_resume(NULL);
    ck_assert_int_eq(woke.hook_code, -1);
    ck_assert_uint_eq(woke.generation, 3);
    scene_require_prints("cat /run/sandbox-generation", "3\n");
}
END_TEST

/* It holds on to a directory, files, a file that has no name any more, pipes, sockets, timers. */
static const char holds_on[] =
    "import os, signal, socket, threading, time\n"
    "os.makedirs('deep/er', exist_ok=True); os.chdir('deep/er')\n"
    "half = open('half', 'w+'); half.write('0123456789'); half.flush(); half.seek(4)\n"
    "lost = open('/tmp/lost', 'w+'); lost.write('no name'); lost.flush(); os.unlink('/tmp/lost')\n"
    "reading, writing = os.pipe(); os.write(writing, b'in the pipe')\n"
    "one, two = socket.socketpair(); one.send(b'in the socket')\n"
    "listener = socket.socket(socket.AF_UNIX); listener.bind('/tmp/listener'); listener.listen()\n"
    "back, there = os.pipe()\n"
    "if os.fork() == 0:\n"
    "    client = socket.socket(socket.AF_UNIX); client.connect('/tmp/listener')\n"
    "    os.write(there, b'connected'); os.write(there, client.recv(100)); os._exit(5)\n"
    "peer, _ = listener.accept(); os.read(back, 9)\n"
    "rung = threading.Event(); signal.signal(signal.SIGALRM, lambda *_: rung.set())\n"
    "signal.setitimer(signal.ITIMER_REAL, float(os.environ['RING']))\n"
    "begun = time.monotonic()\n"
    "print('ready'); input()\n"
    "print(os.getcwd(), half.read(), os.read(reading, 100).decode(), two.recv(100).decode())\n"
    "lost.seek(0); print(lost.read(), os.path.exists('/tmp/lost'))\n"
    "peer.send(b'hello'); said = os.read(back, 100).decode()\n"
    "print(said, os.waitstatus_to_exitcode(os.wait()[1]))\n"
    "late = socket.socket(socket.AF_UNIX); late.connect('/tmp/listener'); listener.accept()\n"
    "while not rung.is_set(): time.sleep(0.01)\n"
    "print('rung', time.monotonic() - begun >= float(os.environ['RING']))\n"
    "input()\n";

START_TEST(what_a_process_holds_on_to_is_still_there)
{
    if (!scene_has_program(PYTHON))
        return;
    scene_put("program.py", holds_on);
    sandbox_process *process = scene_start("RING=2 exec " PYTHON " -u program.py");
    scene_require_line(process, "ready");
    for (int n = 0; n < 2; n++) {
        scene_suspend(SANDBOX_KEEP_MEMORY);
        scene_resume(NULL);
    }
    say(process, "\n");
    scene_require_line(process, "/workspace/deep/er 456789 in the pipe in the socket");
    scene_require_line(process, "no name False");
    scene_require_line(process, "hello 5");
    scene_require_line(process, "rung True");
    scene_end(process);
}
END_TEST

/*
 * Their names are gone from the workspace's directory, which lies on the host. An old runsc would
 * end the sandbox over any of them.
 */
static const char *const lost[] = {
    "exec 3<>lost; echo kept >&3; exec 3<lost; rm lost; echo ready; read x; cat <&3",
    "echo kept >lost; exec 3<lost; echo else >other; mv other lost; echo ready; read x; cat <&3",
    "mkdir lost; cd lost; rmdir ../lost; echo ready; read x; echo kept",
    "cp /bin/sleep lost; ./lost 1000 & "
    "until grep -q ^./lost /proc/$!/cmdline; do :; done; rm lost; "
    "echo ready; read x; kill $! && echo kept",
};

START_TEST(removed_files_that_are_held_are_kept_or_refused)
{
    sandbox_suspend_options options = {SANDBOX_SUSPEND_OPTIONS, .keep = SANDBOX_KEEP_MEMORY};
    sandbox_process *process = scene_start(lost[_i]);
    scene_require_line(process, "ready");
    scene_put("file", "whole");
    if (scene_runsc_is_old()) {
        bad(SANDBOX_UNSUPPORTED,
            sandbox_workspace_suspend(workspace, &options, NULL, NULL, &error));
        ck_assert_str_eq(error.reason, "memory-cannot-be-kept");
        ck_assert_ptr_nonnull(strstr(error.message, "'/workspace/"));
    } else {
        scene_suspend(SANDBOX_KEEP_MEMORY);
        scene_resume(NULL);
    }
    ck_assert_int_eq(scene_state(), SANDBOX_STATE_RUNNING);
    say(process, "\n");
    scene_require_line(process, "kept");
    scene_require_file("file", "whole");
    sandbox_process_free(process);
}
END_TEST

/* P020: the way of an idle one is that of any other, and nobody need have synced. P023: at once. */
START_TEST(an_idle_ones_files_are_whole)
{
    sandbox_idle_options idle = {SANDBOX_IDLE_OPTIONS, .idle_ms = 1, .keep = SANDBOX_KEEP_FILES};
    sandbox_idle_result done = {SANDBOX_IDLE_RESULT};
    scene_run("head -c 20M /dev/urandom >large; sha256sum large >sum; dd if=large of=again bs=4k "
              "2>/dev/null; : >>again");
    while (done.suspended == 0) /* until a millisecond has gone by */
        good(sandbox_client_suspend_idle(client, &idle, NULL, &done, &error));
    ck_assert_uint_eq(done.failed, 0);
    sandbox_resume_result woke = scene_resume(NULL);
    ck_assert_int_eq(woke.kept, SANDBOX_KEEP_FILES);
    scene_require_prints("sha256sum -c sum && cmp large again && echo same", "large: OK\nsame\n");
}
END_TEST

START_TEST(who_was_stopped_stays_stopped)
{
    static const char state[] = "cut -d')' -f2 /proc/$(cat pid)/stat | cut -c2";
    sandbox_process *process =
        scene_start("echo $$ >pid; echo ready; kill -STOP $$; while :; do echo on; read x; done");
    sandbox_process *other = scene_count();
    unsigned long last = scene_read_count(other, 0, 3);
    scene_run("until [ \"$(cut -d')' -f2 /proc/$(cat pid)/stat | cut -c2)\" = T ]; do :; done");
    scene_suspend(SANDBOX_KEEP_MEMORY);
    scene_resume(NULL);
    scene_read_count(other, last, 10);
    scene_require_prints(state, "T\n");
    scene_run("kill -CONT $(cat pid)");
    scene_require_line(process, "ready");
    scene_require_line(process, "on");
    scene_end(process);
    scene_end(other);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("after a restore");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 300);
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, the_clock_inside_is_right);
    tcase_add_test(all, two_resumes_of_one_snapshot_draw_different_random_bytes);
    tcase_add_test(all, a_deadline_goes_on_with_the_time_that_was_left);
    tcase_add_test(all, a_forwarded_port_leads_to_the_same_workspace_again);
    tcase_add_test(all, the_hook_runs_before_the_others_continue);
    tcase_add_test(all, what_a_process_holds_on_to_is_still_there);
    tcase_add_loop_test(all, removed_files_that_are_held_are_kept_or_refused, 0,
                        sizeof lost / sizeof *lost);
    tcase_add_test(all, an_idle_ones_files_are_whole);
    tcase_add_test(all, who_was_stopped_stays_stopped);
    suite_add_tcase(suite, all);
    return suite;
}

int main(void)
{
    return scene_main(make_suite);
}
