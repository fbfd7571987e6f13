/*
 * For tests of work in a workspace: a memory platform of the test's own, with the real agent, and
 * one workspace in it.
 */
#ifndef TESTS_UNIT_WORK_PLACE_H
#define TESTS_UNIT_WORK_PLACE_H

#include "core/session.h"
#include "util/file.h"
#include "util/memory.h"
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <sandbox/sandbox.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define WAIT_MS 20000
#define MIB (1u << 20)

static char folder[] = "/tmp/sandbox-work.XXXXXX";
static sandbox_client *client;
static sandbox_workspace *workspace;
static sandbox_error error;

#define bad(expected, call)                                                                        \
    do {                                                                                           \
        sandbox_status status_ = (call);                                                           \
        ck_assert_msg(status_ == (expected), "%s: %s (%s)", #call, sandbox_status_name(status_),   \
                      status_ == SANDBOX_OK ? "" : error.message);                                 \
    } while (0)
#define good(call) bad(SANDBOX_OK, call)

static const sandbox_call soon = {SANDBOX_CALL, .timeout_ms = WAIT_MS};

static void set_up(void)
{
    char uri[128];
    snprintf(uri, sizeof uri, "memory:%s/socket", folder);
    sandbox_client_options options = {SANDBOX_CLIENT_OPTIONS, .uri = uri};
    sandbox_workspace_options how = {SANDBOX_WORKSPACE_OPTIONS, .user = "root"};
    good(sandbox_client_open(&options, &soon, &client, &error));
    good(sandbox_workspace_create(client, &how, &soon, &workspace, &error));
}

static void tear_down(void)
{
    good(sandbox_workspace_delete(workspace, &soon, &error));
    sandbox_workspace_free(workspace);
    sandbox_client_free(client);
}

/* What a broken relay or a network does. */
static void cut_connection(void)
{
    struct sbx_wait wait = sbx_wait_alone(WAIT_MS);
    struct sbx_session *session = NULL;
    good(sbx_workspace_session(workspace, &wait, &session, &error));
    sbx_session_cut(session);
    sbx_session_drop(session);
}

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd watched = {fd, POLLIN, 0};
    return poll(&watched, 1, timeout_ms) == 1;
}

/* The platform is told to stop and answers; its folder goes with it. */
static void stop_platform(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/socket", folder);
    struct sbx_wait wait = sbx_wait_alone(WAIT_MS);
    struct sbx_channel channel = SBX_CHANNEL;
    static const char request[] = "{\"do\":\"stop\"}\n";
    if (sbx_channel_connect_unix(&channel, path, &wait, NULL) == SANDBOX_OK) {
        (void)send(channel.write_fd, request, sizeof request - 1, MSG_NOSIGNAL);
        char answer[256];
        if (is_readable(channel.read_fd, WAIT_MS))
            (void)recv(channel.read_fd, answer, sizeof answer, 0);
        sbx_channel_end(&channel);
    }
    SBX_ON_EXIT(sbx_close_fd) int lock = -1;
    snprintf(path, sizeof path, "%s/socket.lock", folder);
    (void)sbx_file_lock(AT_FDCWD, path, true, &wait, &lock, NULL);
    (void)sbx_tree_remove(AT_FDCWD, folder, NULL);
}

static int run_at_work(const char *name, const TTest *const *tests, size_t count)
{
    if (mkdtemp(folder) == NULL || chmod(folder, 0711) != 0)
        return 1;
    Suite *suite = suite_create(name);
    TCase *cases = tcase_create(name);
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    for (size_t index = 0; index < count; index++)
        tcase_add_test(cases, tests[index]);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failures = srunner_ntests_failed(runner);
    srunner_free(runner);
    stop_platform();
    return failures == 0 ? 0 : 1;
}

#endif
