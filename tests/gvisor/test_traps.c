/*
 * What runsc does to those who do not know it: a checkpoint that fails and takes the sandbox with
 * it, disks that are full before and during, sockets that it cannot save, commands of others that
 * are attached, pipes that never end, names that are taken. P067, P071, P170.
 */

#include "scene.h"
#include "util/child.h"
#include "util/file.h"
#include "util/memory.h"
#include "util/wait.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define PYTHON "/usr/bin/python3"
#define NODE   "/usr/bin/node"

static void set_up(void)
{
    scene_open("trapped");
}

static void tear_down(void)
{
    scene_close();
}

static sandbox_process *start_python(const char *program)
{
    scene_put("program.py", program);
    sandbox_process *process = scene_start("exec " PYTHON " -u program.py");
    scene_require_line(process, "ready");
    return process;
}

static sandbox_status try_suspend(sandbox_keep keep, sandbox_suspend_result *result)
{
    sandbox_suspend_options options = {SANDBOX_SUSPEND_OPTIONS, .keep = keep,
                                       .quiet_ms = SANDBOX_FOREVER};
    return sandbox_workspace_suspend(workspace, &options, NULL, result, &error);
}

static void open_from(sandbox_from from)
{
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .from = from,
                                         .name = sandbox_workspace_name(workspace)};
    sandbox_workspace *again = NULL;
    good(sandbox_workspace_open(client, &options, NULL, &again, &error));
    sandbox_workspace_free(again);
    ck_assert_int_eq(scene_state(), SANDBOX_STATE_RUNNING);
}

/*
 * What no look from inside finds: of an old runsc, a socket in the set of one process that only
 * another has still open; of a newer one, a removed pipe with a name.
 */
static const char unseen_socket[] =
    "import os, select, socket, time\n"
    "listener = socket.socket(); listener.bind(('127.0.0.1', 9000)); listener.listen()\n"
    "poller = select.epoll(); poller.register(listener.fileno(), select.EPOLLIN)\n"
    "if os.fork() == 0:\n"
    "    poller.close(); time.sleep(1000)\n"
    "listener.close()\n"
    "print('ready')\n"
    "time.sleep(1000)\n";
static const char unseen_pipe[] = "import os, time\n"
                                  "os.mkfifo('pipe'); end = os.open('pipe', os.O_RDWR)\n"
                                  "os.unlink('pipe')\n"
                                  "print('ready')\n"
                                  "time.sleep(1000)\n";

START_TEST(a_checkpoint_that_fails_loses_no_file_and_no_snapshot)
{
    if (!scene_has_program(PYTHON))
        return;
    sandbox_process *counter = scene_count();
    unsigned long last = scene_read_count(counter, 0, 3);
    scene_put("file", "old");
    sandbox_suspend_result made = {SANDBOX_SUSPEND_RESULT};
    good(sandbox_workspace_checkpoint(workspace, NULL, NULL, &made, &error));
    last = scene_read_count(counter, last, 3);
    scene_put("file", "new");
    sandbox_process *process = start_python(scene_runsc_is_old() ? unseen_socket : unseen_pipe);
    bad(SANDBOX_INTERRUPTED, try_suspend(SANDBOX_KEEP_MEMORY, NULL));
    ck_assert_msg(strstr(error.message, "encoding error") != NULL, "%s", error.message);
    ck_assert_int_eq(scene_state(), SANDBOX_STATE_INTERRUPTED);
    ck_assert_int_eq(scene_processes(), 0);
    ck_assert_int_eq(scene_number("ls workspaces/*/snapshots | wc -l"), 1);

    open_from(SANDBOX_FROM_LIVE_FILES);
    scene_require_file("file", "new");
    scene_suspend(SANDBOX_KEEP_FILES);
    sandbox_resume_result woke = scene_resume(made.snapshot);
    ck_assert_int_eq(woke.proof, SANDBOX_PROOF_MEMORY);
    scene_require_file("file", "old");
    scene_end(counter);
    sandbox_process_free(process);
}
END_TEST

START_TEST(connections_that_wait_for_their_end_are_saved)
{
    if (!scene_has_program(PYTHON))
        return;
    sandbox_process *process = start_python(
        "import socket\n"
        "server = socket.create_server(('127.0.0.1', 9000))\n"
        "for n in range(50):\n"
        "    client = socket.create_connection(('127.0.0.1', 9000)); peer, _ = server.accept()\n"
        "    client.close(); peer.close()\n"
        "client = socket.create_connection(('127.0.0.1', 9000)); peer, _ = server.accept()\n"
        "print('ready'); input()\n"
        "client.send(b'over it'); print(peer.recv(100).decode()); input()\n");
    scene_suspend(SANDBOX_KEEP_MEMORY);
    scene_resume(NULL);
    good(sandbox_process_write(process, "\n", 1, NULL, &error));
    scene_require_line(process, "over it");
    scene_end(process);
}
END_TEST

/* Server and client, on one connection that is never made again. */
static const char node_server[] =
    "const http = require('http');\n"
    "const agent = new http.Agent({keepAlive: true, maxSockets: 1});\n"
    "let number = 0, seen = 0;\n"
    "const server = http.createServer((request, response) => response.end('fine'));\n"
    "server.on('connection', () => { if (seen++ > 0) process.exit(1); });\n"
    "server.keepAliveTimeout = 0;\n"
    "const ask = () => http.get({port: 8000, host: '127.0.0.1', agent}, response => {\n"
    "  response.resume();\n"
    "  response.on('end', () => { console.log(String(++number)); setTimeout(ask, 20); });\n"
    "});\n"
    "server.listen(8000, '127.0.0.1', ask);\n";

START_TEST(a_node_server_and_its_client_go_on)
{
    if (!scene_has_program(NODE))
        return;
    scene_put("server.js", node_server);
    sandbox_process *server = scene_start("exec " NODE " server.js");
    unsigned long last = scene_read_count(server, 0, 3);
    for (int n = 0; n < 2; n++) {
        sandbox_suspend_result slept = scene_suspend(SANDBOX_KEEP_MEMORY);
        ck_assert_uint_eq(slept.parked, scene_runsc_is_old() ? 1 : 0);
        scene_resume(NULL);
        last = scene_read_count(server, last, 10);
    }
    scene_end(server);
}
END_TEST

static sandbox_process *start_static_server(void)
{
    sandbox_process *process = NULL;
    const char *path = getenv("SANDBOX_STATIC_SERVER");
    if (path == NULL || access(path, R_OK) < 0) {
        printf("not run: SANDBOX_STATIC_SERVER names no program\n");
        return process;
    }
    uint8_t *data = NULL;
    size_t size = 0;
    sandbox_write_options program = {SANDBOX_WRITE_OPTIONS, .mode = 0755};
    good(sbx_file_read(AT_FDCWD, path, 64u << 20, &data, &size, &error));
    good(sandbox_file_write(workspace, "server", data, size, &program, NULL, &error));
    free(data);
    process = scene_start("exec ./server");
    scene_require_line(process, "ready");
    return process;
}

/* Nothing can be preloaded into it. */
START_TEST(a_static_server_is_named_and_its_files_are_kept)
{
    sandbox_process *server = start_static_server();
    if (server == NULL)
        return;
    scene_put("file", "kept");
    sandbox_suspend_result slept = {SANDBOX_SUSPEND_RESULT};
    if (scene_runsc_is_old()) {
        bad(SANDBOX_UNSUPPORTED, try_suspend(SANDBOX_KEEP_MEMORY, NULL));
        ck_assert_str_eq(error.reason, "memory-cannot-be-kept");
        ck_assert_ptr_nonnull(strstr(error.message, "./server"));
        ck_assert_int_eq(scene_state(), SANDBOX_STATE_RUNNING);
        scene_require_prints("kill -0 $(pgrep -x server) && echo runs", "runs\n");
    }
    good(try_suspend(SANDBOX_KEEP_BEST, &slept));
    ck_assert_int_eq(slept.kept,
                     scene_runsc_is_old() ? SANDBOX_KEEP_FILES : SANDBOX_KEEP_MEMORY);
    ck_assert_msg((strstr(slept.why_files, "./server") != NULL) == scene_runsc_is_old(), "%s",
                  slept.why_files);
    sandbox_resume_result woke = scene_resume(NULL);
    ck_assert_int_eq(woke.kept, slept.kept);
    scene_require_file("file", "kept");
    sandbox_process_free(server);
}
END_TEST

static void run_as_root(const char *command)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = command, .user = "root"};
    sandbox_process_result *result = NULL;
    good(sandbox_process_run(workspace, &options, NULL, NULL, &result, &error));
    ck_assert_int_eq(result->exit.code, 0);
    sandbox_process_result_free(result);
}

static void start_exec(struct sbx_child *child, int *output)
{
    const char *given = getenv("SANDBOX_RUNSC");
    SBX_ON_EXIT(sbx_free_text) char *root = sbx_format("--root=%s/runsc", scene_folder());
    const char *argv[] = {given == NULL || *given == '\0' ? "runsc" : given,
                          root,
                          "exec",
                          sandbox_workspace_id(workspace),
                          "sh",
                          "-c",
                          "echo in; exec sleep 1000",
                          NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv,
                                        .env = (const char *const *)environ};
    int ends[2];
    char text[4] = "";
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    options.output = ends[1];
    good(sbx_child_start(child, &options, &error));
    close(ends[1]);
    ck_assert_int_eq(read(ends[0], text, 3), 3);
    *output = ends[0];
}

/*
 * P067: it knows nothing of our locks, and runsc reports success over an image that is of no use.
 * A killed one leaves its command inside with the pipes of a dead process.
 */
START_TEST(somebody_elses_exec_is_never_part_of_a_snapshot)
{
    sandbox_process *counter = scene_count();
    unsigned long last = scene_read_count(counter, 0, 3);
    SBX_ON_EXIT(sbx_child_end) struct sbx_child child = SBX_CHILD;
    SBX_ON_EXIT(sbx_close_fd) int output = -1;
    start_exec(&child, &output);
    bad(scene_runsc_is_old() ? SANDBOX_UNSUPPORTED : SANDBOX_BUSY,
        try_suspend(SANDBOX_KEEP_MEMORY, NULL));
    ck_assert_str_eq(error.reason,
                     scene_runsc_is_old() ? "memory-cannot-be-kept" : "channel-open");
    ck_assert_int_eq(scene_state(), SANDBOX_STATE_RUNNING);
    last = scene_read_count(counter, last, 3);
    sbx_child_end(&child);
    if (scene_runsc_is_old()) {
        bad(SANDBOX_UNSUPPORTED, try_suspend(SANDBOX_KEEP_MEMORY, NULL));
        ck_assert_ptr_nonnull(strstr(error.message, "sleep 1000"));
        last = scene_read_count(counter, last, 3);
        run_as_root("pkill -x sleep");
    }
    scene_suspend(SANDBOX_KEEP_MEMORY);
    scene_resume(NULL);
    scene_read_count(counter, last, 3);
    scene_end(counter);
}
END_TEST

/* What this program does instead when it is started once more: see below. */
static int suspend_and_resume(char **words)
{
    sandbox_client_options where = {SANDBOX_CLIENT_OPTIONS, .uri = words[1]};
    sandbox_status status = sandbox_client_open(&where, NULL, &client, &error);
    if (status == SANDBOX_OK)
        status = sandbox_workspace_find(client, words[2], NULL, &workspace, &error);
    if (status == SANDBOX_OK)
        status = sandbox_workspace_suspend(workspace, NULL, NULL, NULL, &error);
    if (status == SANDBOX_OK)
        status = sandbox_workspace_resume(workspace, NULL, NULL, NULL, &error);
    if (status == SANDBOX_OK)
        status = sandbox_workspace_checkpoint(workspace, NULL, NULL, NULL, &error);
    if (status != SANDBOX_OK)
        puts(error.message);
    sandbox_workspace_free(workspace);
    sandbox_client_free(client);
    return status == SANDBOX_OK ? 0 : 1;
}

/* A caller whose output is a pipe: whoever reads it must see its end when the caller has ended. */
START_TEST(nothing_that_goes_on_holds_the_callers_pipes)
{
    const char *argv[] = {"/proc/self/exe", harness_uri(), "trapped", NULL};
    struct sbx_child_options options = {SBX_CHILD_OPTIONS, .argv = argv,
                                        .env = (const char *const *)environ};
    int ends[2], code = -1;
    char text[256] = "";
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    options.output = options.errors = ends[1];
    SBX_ON_EXIT(sbx_child_end) struct sbx_child child = SBX_CHILD;
    good(sbx_child_start(&child, &options, &error));
    close(ends[1]);
    struct sbx_wait wait = sbx_wait_alone(120000);
    good(sbx_wait_descriptor(&wait, ends[0], POLLIN, &error));
    ck_assert_msg(read(ends[0], text, sizeof text - 1) == 0, "%s", text);
    good(sbx_child_wait(&child, &wait, &code, &error));
    ck_assert_int_eq(code, 0);
    ck_assert_int_eq(scene_state(), SANDBOX_STATE_RUNNING);
    close(ends[0]);
}
END_TEST

/* Of a detached start runsc tells the guest about the file, unless it is given as its own. */
START_TEST(the_guests_arguments_stay_what_they_were)
{
    static const char first[] = "tr '\\0' ' ' </proc/1/cmdline";
    char before[1024];
    snprintf(before, sizeof before, "%s", scene_run(first));
    ck_assert_ptr_null(strstr(before, "pid-file"));
    scene_suspend(SANDBOX_KEEP_MEMORY);
    scene_resume(NULL);
    scene_require_prints(first, before);
    ck_assert_int_eq(scene_number("kill -0 $(cat workspaces/*/sandbox.pid) && echo 1"), 1);
}
END_TEST

/* A name that runsc believes to be in use, and directories of whoever died. */
START_TEST(remains_of_others_are_in_nobodys_way)
{
    sandbox_process *counter = scene_count();
    unsigned long last = scene_read_count(counter, 0, 3);
    scene_shell("cp -a ../../runsc runsc-then");
    sandbox_suspend_result slept = scene_suspend(SANDBOX_KEEP_MEMORY);
    scene_shell("cp -a runsc-then/. ../../runsc/ && rm -r runsc-then && mkdir -p files.new/x "
                "bundle snapshots/%.8s.new/image && echo 1 >sandbox.pid",
                slept.snapshot);
    scene_resume(NULL);
    last = scene_read_count(counter, last, 3);
    /* And at the next suspend, where the image of the first one is. */
    scene_suspend(SANDBOX_KEEP_MEMORY);
    scene_resume(NULL);
    scene_read_count(counter, last, 3);
    scene_end(counter);
}
END_TEST

/* ---- disks that are full ---- */

static char small[] = "/tmp/sandbox-small-XXXXXX";

/* A client whose state directory is a disk of that size; false, with the reason, if none can be. */
static bool open_small(unsigned mib)
{
    char size[64], uri[512];
    const char *runsc = getenv("SANDBOX_RUNSC");
    strcpy(small, "/tmp/sandbox-small-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(small));
    snprintf(size, sizeof size, "size=%um,mode=700", mib);
    if (mount("tmpfs", small, "tmpfs", 0, size) != 0) {
        printf("not run: it needs a mount: %s\n", strerror(errno));
        rmdir(small);
        return false;
    }
    bool given = runsc != NULL && *runsc != '\0';
    snprintf(uri, sizeof uri, "gvisor:%s%s%s", small, given ? "?runsc=" : "", given ? runsc : "");
    sandbox_client_options where = {SANDBOX_CLIENT_OPTIONS, .uri = uri};
    sandbox_workspace_options how = {SANDBOX_WORKSPACE_OPTIONS, .name = "small"};
    good(sandbox_client_open(&where, NULL, &client, &error));
    good(sandbox_workspace_open(client, &how, NULL, &workspace, &error));
    return true;
}

static void close_small(void)
{
    good(sandbox_workspace_delete(workspace, NULL, &error));
    sandbox_workspace_free(workspace);
    sandbox_client_free(client);
    ck_assert_int_eq(umount2(small, MNT_DETACH), 0);
    ck_assert_int_eq(rmdir(small), 0);
}

/* All but so many MiB are taken. */
static void fill(unsigned left_mib)
{
    char path[64];
    struct stat facts;
    snprintf(path, sizeof path, "%s/fill", small);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    off_t size = 0, piece = 256 << 20;
    while (piece >= 4096) {
        if (posix_fallocate(fd, size, piece) == 0)
            size += piece;
        else
            piece /= 2;
    }
    ck_assert_int_eq(ftruncate(fd, size - ((off_t)left_mib << 20)), 0);
    ck_assert_int_eq(fstat(fd, &facts), 0);
    close(fd);
}

static void make_room(void)
{
    char path[64];
    snprintf(path, sizeof path, "%s/fill", small);
    ck_assert_int_eq(unlink(path), 0);
}

static sandbox_process *fill_memory(void)
{
    scene_run("head -c 80M /dev/urandom >/tmp/much");
    scene_put("file", "kept");
    return scene_count();
}

/* P071: each attempt is one of its own. */
START_TEST(a_disk_that_is_full_before_stops_nothing)
{
    if (!open_small(700))
        return;
    sandbox_process *counter = fill_memory();
    unsigned long last = scene_read_count(counter, 0, 3);
    fill(60);
    for (int n = 0; n < 2; n++) {
        bad(SANDBOX_LIMIT, try_suspend(SANDBOX_KEEP_MEMORY, NULL));
        ck_assert_str_eq(error.reason, "no-room");
        ck_assert_int_eq(scene_state(), SANDBOX_STATE_RUNNING);
        last = scene_read_count(counter, last, 3);
    }
    make_room();
    good(try_suspend(SANDBOX_KEEP_MEMORY, NULL));
    scene_resume(NULL);
    scene_read_count(counter, last, 3);
    scene_end(counter);
    close_small();
}
END_TEST

/* Fills the disk once the suspend has come to the snapshot, which was found to fit. */
static void *fill_meanwhile(void *user_data)
{
    sandbox_watch *watch = user_data;
    sandbox_event event = {SANDBOX_EVENT};
    while (sandbox_watch_next(watch, NULL, &event, NULL) == SANDBOX_OK) {
        if (event.kind == SANDBOX_EVENT_STEP && strcmp(event.text, "snapshot") == 0) {
            fill(8);
            break;
        }
    }
    return NULL;
}

/* P170: what is not whole is no snapshot, and nothing else is lost over it. */
START_TEST(a_disk_that_fills_up_meanwhile_costs_no_file)
{
    if (!open_small(700))
        return;
    sandbox_watch *watch = NULL;
    pthread_t thread;
    sandbox_process *counter = fill_memory();
    unsigned long last = scene_read_count(counter, 0, 3);
    sandbox_suspend_result made = {SANDBOX_SUSPEND_RESULT};
    good(sandbox_workspace_checkpoint(workspace, NULL, NULL, &made, &error));
    last = scene_read_count(counter, last, 3);
    scene_put("file", "newer");
    good(sandbox_client_watch(client, &watch, &error));
    ck_assert_int_eq(pthread_create(&thread, NULL, fill_meanwhile, watch), 0);
    sandbox_status status = try_suspend(SANDBOX_KEEP_MEMORY, NULL);
    pthread_join(thread, NULL);
    sandbox_watch_free(watch);
    printf("%s: %s\n", sandbox_status_name(status), error.message);
    ck_assert_int_ne(status, SANDBOX_OK);
    make_room();
    sandbox_snapshot_list *list = NULL;
    good(sandbox_snapshot_list_all(workspace, NULL, &list, &error));
    ck_assert_uint_eq(sandbox_snapshot_list_count(list), 1);
    sandbox_snapshot_list_free(list);
    /* Nor could the record be written; whoever comes next finds out how it stands. */
    good(sandbox_client_recover(client, NULL, NULL, &error));
    if (scene_state() == SANDBOX_STATE_INTERRUPTED)
        open_from(SANDBOX_FROM_LIVE_FILES);
    else
        scene_read_count(counter, last, 3);
    scene_require_file("file", "newer");
    good(try_suspend(SANDBOX_KEEP_FILES, NULL));
    scene_resume(made.snapshot);
    scene_require_file("file", "kept");
    sandbox_process_free(counter);
    close_small();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("runsc's traps");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 300);
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, a_checkpoint_that_fails_loses_no_file_and_no_snapshot);
    tcase_add_test(all, connections_that_wait_for_their_end_are_saved);
    tcase_add_test(all, a_node_server_and_its_client_go_on);
    tcase_add_test(all, a_static_server_is_named_and_its_files_are_kept);
    tcase_add_test(all, somebody_elses_exec_is_never_part_of_a_snapshot);
    tcase_add_test(all, nothing_that_goes_on_holds_the_callers_pipes);
    tcase_add_test(all, the_guests_arguments_stay_what_they_were);
    tcase_add_test(all, remains_of_others_are_in_nobodys_way);
    suite_add_tcase(suite, all);
    TCase *disks = tcase_create("disks");
    tcase_set_timeout(disks, 300);
    tcase_add_test(disks, a_disk_that_is_full_before_stops_nothing);
    tcase_add_test(disks, a_disk_that_fills_up_meanwhile_costs_no_file);
    suite_add_tcase(suite, disks);
    return suite;
}

int main(int argc, char **argv)
{
    return argc == 3 ? suspend_and_resume(argv) : scene_main(make_suite);
}
