/*
 * The life of workspaces through the public API, the same on every platform: the one that
 * SANDBOX_TEST_URI names.
 */

#include "checks.h"
#include "util/memory.h"
#include "util/random.h"
#include "util/wait.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 16

static sandbox_client *client;

static sandbox_client *new_client(void)
{
    sandbox_client *made = NULL;
    sandbox_client_options options = {SANDBOX_CLIENT_OPTIONS, .uri = harness_uri()};
    good(sandbox_client_open(&options, NULL, &made, &error));
    return made;
}

static void set_up(void)
{
    client = new_client();
}

static void tear_down(void)
{
    sandbox_client_free(client);
}

static sandbox_workspace *make(const char *name)
{
    sandbox_workspace *workspace = NULL;
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = name,
                                         .user = harness_user()};
    good(sandbox_workspace_create(client, &options, NULL, &workspace, &error));
    return workspace;
}

static sandbox_status open_from(sandbox_client *with, const char *name, sandbox_from from,
                                sandbox_workspace **out)
{
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = name,
                                         .user = harness_user(), .from = from};
    return sandbox_workspace_open(with, &options, NULL, out, &error);
}

static void finish(sandbox_workspace *workspace)
{
    good(sandbox_workspace_delete(workspace, NULL, &error));
    sandbox_workspace_free(workspace);
}

static void check_works(sandbox_workspace *workspace)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "echo it works"};
    sandbox_process_result *result = NULL;
    good(sandbox_process_run(workspace, &options, NULL, NULL, &result, &error));
    ck_assert_str_eq((const char *)result->output, "it works\n");
    sandbox_process_result_free(result);
}

static void write_text(sandbox_workspace *workspace, const char *path, const char *text)
{
    good(sandbox_file_write(workspace, path, text, strlen(text), NULL, NULL, &error));
}

static void check_text(sandbox_workspace *workspace, const char *path, const char *text)
{
    uint8_t *data = NULL;
    size_t size = 0;
    good(sandbox_file_read(workspace, path, NULL, NULL, &data, &size, &error));
    ck_assert_str_eq((const char *)data, text);
    sandbox_bytes_free(data);
}

/* The facts of a workspace, copied out of a list of one. */
struct facts {
    sandbox_state state;
    char incarnation[160], id[40], operation[32];
    uint32_t epoch;
    int64_t expires_ms;
};

static struct facts inspect(sandbox_workspace *workspace)
{
    struct facts facts = {0};
    sandbox_workspace_list *list = NULL;
    good(sandbox_workspace_inspect(workspace, NULL, &list, &error));
    ck_assert_uint_eq(sandbox_workspace_list_count(list), 1);
    const sandbox_workspace_info *info = sandbox_workspace_list_at(list, 0);
    facts.state = info->state;
    facts.epoch = info->epoch;
    facts.expires_ms = info->expires_ms;
    snprintf(facts.incarnation, sizeof facts.incarnation, "%s", info->incarnation);
    snprintf(facts.id, sizeof facts.id, "%s", info->id);
    snprintf(facts.operation, sizeof facts.operation, "%s", info->operation);
    sandbox_workspace_list_free(list);
    return facts;
}

static void kill_instance(sandbox_workspace *workspace)
{
    struct facts facts = inspect(workspace);
    harness_kill_instance(facts.id, facts.incarnation);
}

/* ---- create, find, open, list, inspect ---- */

START_TEST(a_created_workspace_works_and_is_told_as_it_is)
{
    sandbox_workspace *workspace = make("made");
    struct facts facts = inspect(workspace);
    ck_assert_int_eq(facts.state, SANDBOX_STATE_RUNNING);
    ck_assert_str_eq(facts.id, sandbox_workspace_id(workspace));
    ck_assert_uint_eq(strlen(facts.id), 32);
    ck_assert_str_ne(facts.incarnation, "");
    ck_assert_str_eq(facts.operation, "");
    ck_assert_uint_ge(facts.epoch, 1);
    ck_assert_int_eq(facts.expires_ms, 0);
    check_works(workspace);
    finish(workspace);
}
END_TEST

START_TEST(a_taken_name_exists_and_its_holder_is_untouched)
{
    sandbox_workspace *first = make("taken"), *second = NULL;
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = "taken"};
    bad(SANDBOX_EXISTS, sandbox_workspace_create(client, &options, NULL, &second, &error));
    ck_assert_ptr_null(second);
    check_works(first);
    finish(first);
}
END_TEST

START_TEST(a_name_that_is_none_is_refused_with_the_rule)
{
    static const char *const names[] = {
        "",    "-a",       "a-",
        "A",   "a_b",      "a.b",
        "a/b", "\xc3\xa9", "0123456789012345678901234567890123456789012345678901234567890123"};
    sandbox_workspace *workspace = NULL;
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = names[n]};
        bad(SANDBOX_INVALID, sandbox_workspace_create(client, &options, NULL, &workspace, &error));
        ck_assert_str_ne(error.message, "");
    }
}
END_TEST

START_TEST(an_error_says_which_driver_it_comes_from)
{
    const char *driver = sandbox_client_driver(client);
    char uri[64];
    snprintf(uri, sizeof uri, "%s:?no-such-setting=1", driver);
    const sandbox_client_options options = {SANDBOX_CLIENT_OPTIONS, .uri = uri};
    sandbox_client *none = NULL;
    sandbox_findings *findings = NULL;
    bad(SANDBOX_INVALID, sandbox_client_open(&options, NULL, &none, &error));
    ck_assert_str_eq(error.driver, driver);
    bad(SANDBOX_INVALID, sandbox_doctor(uri, NULL, &findings, &error));
    ck_assert_str_eq(error.driver, driver);
    bad(SANDBOX_INVALID, sandbox_workspace_list_all(NULL, NULL, NULL, NULL, &error));
    ck_assert_str_eq(error.driver, "");
}
END_TEST

START_TEST(a_workspace_is_found_by_name_and_by_id)
{
    sandbox_workspace *made = make("wanted"), *by_name = NULL, *by_id = NULL, *none = NULL;
    good(sandbox_workspace_find(client, "wanted", NULL, &by_name, &error));
    good(sandbox_workspace_find(client, sandbox_workspace_id(made), NULL, &by_id, &error));
    ck_assert_str_eq(sandbox_workspace_id(by_name), sandbox_workspace_id(made));
    ck_assert_str_eq(sandbox_workspace_name(by_id), "wanted");
    check_works(by_name);
    check_works(by_id);
    bad(SANDBOX_NOT_FOUND, sandbox_workspace_find(client, "unwanted", NULL, &none, &error));
    ck_assert_str_eq(error.reason, "no-such-workspace"); /* P161 */
    sandbox_workspace_free(by_name);
    sandbox_workspace_free(by_id);
    finish(made);
}
END_TEST

START_TEST(open_makes_a_workspace_once_and_then_finds_it)
{
    sandbox_workspace *first = NULL, *second = NULL;
    good(open_from(client, "opened", SANDBOX_FROM_NOTHING, &first));
    good(open_from(client, "opened", SANDBOX_FROM_NOTHING, &second));
    ck_assert_str_eq(sandbox_workspace_id(first), sandbox_workspace_id(second));
    /* P145: one of the two is forgotten, the other goes on. */
    sandbox_workspace_free(first);
    check_works(second);
    finish(second);
}
END_TEST

START_TEST(handles_may_be_freed_in_any_order)
{
    sandbox_client *other = new_client();
    sandbox_workspace *workspace = NULL;
    good(open_from(other, "orderless", SANDBOX_FROM_NOTHING, &workspace));
    sandbox_client_free(other);
    check_works(workspace);
    finish(workspace);
    sandbox_workspace_free(NULL);
    sandbox_client_free(NULL);
}
END_TEST

static bool lists(const char *label, const char *name)
{
    const char *const labels[] = {label, NULL};
    sandbox_list_options options = {SANDBOX_LIST_OPTIONS, .labels = label == NULL ? NULL : labels};
    sandbox_workspace_list *list = NULL;
    bool found = false;
    good(sandbox_workspace_list_all(client, &options, NULL, &list, &error));
    for (size_t n = 0; n < sandbox_workspace_list_count(list); n++)
        found = found || strcmp(sandbox_workspace_list_at(list, n)->name, name) == 0;
    ck_assert_ptr_null(sandbox_workspace_list_at(list, sandbox_workspace_list_count(list)));
    sandbox_workspace_list_free(list);
    return found;
}

START_TEST(labels_choose_what_is_listed)
{
    const char *const labels[] = {"team=red", "purpose=a test", NULL};
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = "labelled",
                                         .labels = labels};
    sandbox_workspace *red = NULL, *plain = make("plain");
    good(sandbox_workspace_create(client, &options, NULL, &red, &error));
    ck_assert(lists(NULL, "labelled") && lists(NULL, "plain"));
    ck_assert(lists("team=red", "labelled") && !lists("team=red", "plain"));
    ck_assert(lists("purpose=a test", "labelled"));
    ck_assert(!lists("team=blue", "labelled"));
    finish(red);
    finish(plain);
    ck_assert(!lists(NULL, "labelled"));
}
END_TEST

/* ---- delete ---- */

START_TEST(a_deleted_workspace_is_gone_and_its_handles_say_closed)
{
    sandbox_workspace *workspace = make("doomed"), *other = NULL, *none = NULL;
    good(sandbox_workspace_find(client, "doomed", NULL, &other, &error));
    check_works(other);
    good(sandbox_workspace_delete(workspace, NULL, &error));
    good(sandbox_workspace_delete(workspace, NULL, &error));

    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "true"};
    sandbox_process_result *result = NULL;
    uint8_t *data = NULL;
    size_t size = 0;
    bad(SANDBOX_CLOSED, sandbox_process_run(workspace, &options, NULL, NULL, &result, &error));
    bad(SANDBOX_CLOSED, sandbox_file_read(workspace, "x", NULL, NULL, &data, &size, &error));
    bad(SANDBOX_CLOSED, sandbox_process_run(other, &options, NULL, NULL, &result, &error));
    good(sandbox_workspace_delete(other, NULL, &error));
    bad(SANDBOX_NOT_FOUND, sandbox_workspace_find(client, "doomed", NULL, &none, &error));
    ck_assert_str_eq(sandbox_workspace_name(workspace), "doomed");

    /* The name is free again, and the old handles do not mean the new one. */
    sandbox_workspace *namesake = make("doomed");
    good(sandbox_workspace_delete(workspace, NULL, &error));
    good(sandbox_workspace_delete(other, NULL, &error));
    check_works(namesake);
    bad(SANDBOX_CLOSED, sandbox_process_run(other, &options, NULL, NULL, &result, &error));
    sandbox_workspace_free(workspace);
    sandbox_workspace_free(other);
    finish(namesake);
}
END_TEST

static void *delete_it(void *data)
{
    sandbox_error own = {0};
    sandbox_status status = sandbox_workspace_delete(data, NULL, &own);
    return status == SANDBOX_OK ? NULL : sbx_copy(own.message[0] != '\0' ? own.message : "failed");
}

/* P036 */
START_TEST(of_16_threads_that_delete_all_succeed_and_one_does_it)
{
    sandbox_workspace *workspace = make("crowded");
    pthread_t threads[THREADS];
    if (harness_is_memory())
        harness_tell("{\"do\":\"script\",\"rules\":[]}");
    for (size_t n = 0; n < THREADS; n++)
        ck_assert_int_eq(pthread_create(&threads[n], NULL, delete_it, workspace), 0);
    for (size_t n = 0; n < THREADS; n++) {
        void *message = NULL;
        pthread_join(threads[n], &message);
        ck_assert_msg(message == NULL, "%s", (const char *)message);
    }
    if (harness_is_memory())
        ck_assert_int_eq(harness_calls("destroy"), 1);
    sandbox_workspace_free(workspace);
}
END_TEST

/* ---- expiry ---- */

static bool is_swept(void *data)
{
    size_t count = 0;
    good(sandbox_client_sweep(client, NULL, &count, &error));
    return count > 0;
}

START_TEST(an_expired_workspace_is_swept_and_its_name_is_free)
{
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = "mayfly",
                                         .user = harness_user(), .expires_after_ms = 1500};
    sandbox_workspace *workspace = NULL, *none = NULL;
    size_t count = 0;
    good(sandbox_workspace_create(client, &options, NULL, &workspace, &error));
    ck_assert_int_gt(inspect(workspace).expires_ms, 0);
    ck_assert(harness_await(is_swept, NULL));
    bad(SANDBOX_NOT_FOUND, sandbox_workspace_find(client, "mayfly", NULL, &none, &error));
    good(sandbox_client_sweep(client, NULL, &count, &error));
    ck_assert_uint_eq(count, 0);
    sandbox_process_options echo = {SANDBOX_PROCESS_OPTIONS, .command = "true"};
    sandbox_process_result *result = NULL;
    bad(SANDBOX_CLOSED, sandbox_process_run(workspace, &echo, NULL, NULL, &result, &error));
    sandbox_workspace_free(workspace);
    finish(make("mayfly"));
}
END_TEST

START_TEST(a_renewed_workspace_lives_on)
{
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = "renewed",
                                         .user = harness_user(), .expires_after_ms = 2000};
    sandbox_workspace *workspace = NULL;
    good(sandbox_workspace_create(client, &options, NULL, &workspace, &error));
    good(sandbox_workspace_renew(workspace, 3600000, NULL, &error));
    int64_t expires_ms = inspect(workspace).expires_ms;
    /* Past the first expiry, told by the guest's own clock. */
    sandbox_process_options wait = {SANDBOX_PROCESS_OPTIONS, .command = "sleep 2.2; echo alive"};
    sandbox_process_result *result = NULL;
    good(sandbox_process_run(workspace, &wait, NULL, NULL, &result, &error));
    ck_assert_str_eq((const char *)result->output, "alive\n");
    sandbox_process_result_free(result);
    good(sandbox_workspace_renew(workspace, 0, NULL, &error));
    ck_assert_int_gt(expires_ms, 0);
    ck_assert_int_eq(inspect(workspace).expires_ms, 0);
    check_works(workspace);
    finish(workspace);
    workspace = make("renewed");
    good(sandbox_workspace_delete(workspace, NULL, &error));
    bad(SANDBOX_CLOSED, sandbox_workspace_renew(workspace, 1000, NULL, &error));
    sandbox_workspace_free(workspace);
}
END_TEST

/* ---- interrupted ---- */

static bool keeps_files(void)
{
    return sandbox_client_can(client, SANDBOX_CAN_KEEP_FILES);
}

/* Where files end with their instance nobody is given an empty workspace for the lost one. */
static void refuse_empty_one(const char *name, sandbox_workspace *lost)
{
    sandbox_workspace *none = NULL;
    bad(SANDBOX_INTERRUPTED, open_from(client, name, SANDBOX_FROM_NOTHING, &none));
    ck_assert_str_eq(error.reason, "files-lost");
    bad(SANDBOX_UNSUPPORTED, open_from(client, name, SANDBOX_FROM_LIVE_FILES, &none));
    ck_assert_str_eq(error.reason, "no-live-files");
    ck_assert_int_eq(inspect(lost).state, SANDBOX_STATE_INTERRUPTED);
    finish(lost);
}

START_TEST(a_lost_instance_is_told_and_its_files_go_on)
{
    sandbox_workspace *workspace = make("struck"), *again = NULL, *third = NULL;
    write_text(workspace, "kept.txt", "still here");
    uint32_t epoch = inspect(workspace).epoch;
    char incarnation[160];
    snprintf(incarnation, sizeof incarnation, "%s", inspect(workspace).incarnation);
    kill_instance(workspace);

    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "true"};
    sandbox_process_result *result = NULL;
    sandbox_status status = sandbox_process_run(workspace, &options, NULL, NULL, &result, &error);
    /* A request that was in the air when the channel broke cannot be told from one that ran. */
    if (status == SANDBOX_UNKNOWN || status == SANDBOX_UNAVAILABLE)
        status = sandbox_process_run(workspace, &options, NULL, NULL, &result, &error);
    ck_assert_msg(status == SANDBOX_INTERRUPTED, "%s", error.message);
    ck_assert_int_eq(inspect(workspace).state, SANDBOX_STATE_INTERRUPTED);
    bad(SANDBOX_INTERRUPTED, open_from(client, "struck", SANDBOX_FROM_NOTHING, &again));
    if (!keeps_files()) {
        refuse_empty_one("struck", workspace);
        return;
    }

    good(open_from(client, "struck", SANDBOX_FROM_LIVE_FILES, &again));
    ck_assert_str_eq(sandbox_workspace_id(again), sandbox_workspace_id(workspace));
    ck_assert_str_ne(inspect(again).incarnation, incarnation);
    ck_assert_uint_gt(inspect(again).epoch, epoch);
    check_text(again, "kept.txt", "still here");
    check_works(again);
    /* The old handle means the same workspace and finds its new instance. */
    check_works(workspace);
    good(open_from(client, "struck", SANDBOX_FROM_LIVE_FILES, &third));
    check_works(third);
    sandbox_workspace_free(third);
    sandbox_workspace_free(workspace);
    finish(again);
}
END_TEST

START_TEST(open_sees_by_itself_that_the_instance_is_lost)
{
    sandbox_workspace *workspace = make("unseen"), *again = NULL;
    write_text(workspace, "a/b/c", "deep");
    kill_instance(workspace);
    sandbox_workspace_free(workspace);
    bad(SANDBOX_INTERRUPTED, open_from(client, "unseen", SANDBOX_FROM_NOTHING, &again));
    if (!keeps_files()) {
        good(sandbox_workspace_find(client, "unseen", NULL, &workspace, &error));
        refuse_empty_one("unseen", workspace);
        return;
    }
    good(open_from(client, "unseen", SANDBOX_FROM_LIVE_FILES, &again));
    check_text(again, "a/b/c", "deep");
    finish(again);
}
END_TEST

/* P035 */
START_TEST(an_interrupted_workspace_can_be_deleted)
{
    sandbox_workspace *workspace = make("lost"), *none = NULL;
    kill_instance(workspace);
    good(sandbox_workspace_delete(workspace, NULL, &error));
    bad(SANDBOX_NOT_FOUND, sandbox_workspace_find(client, "lost", NULL, &none, &error));
    sandbox_workspace_free(workspace);
    if (harness_is_memory()) {
        ck_assert_int_eq(harness_count("instances"), 0);
        ck_assert_int_eq(harness_count("directories"), 0);
    }
}
END_TEST

/* ---- other processes ---- */

START_TEST(a_forked_child_is_refused_and_may_free)
{
    sandbox_workspace *workspace = make("parental");
    check_works(workspace);
    pid_t pid = fork();
    if (pid == 0) {
        sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "true"};
        sandbox_process_result *result = NULL;
        sandbox_workspace *found = NULL;
        sandbox_workspace_list *list = NULL;
        bool refused =
            sandbox_process_run(workspace, &options, NULL, NULL, &result, NULL) ==
                SANDBOX_INVALID &&
            sandbox_workspace_find(client, "parental", NULL, &found, NULL) == SANDBOX_INVALID &&
            sandbox_workspace_inspect(workspace, NULL, &list, NULL) == SANDBOX_INVALID &&
            sandbox_workspace_delete(workspace, NULL, NULL) == SANDBOX_INVALID;
        sandbox_workspace_free(workspace);
        sandbox_client_free(client);
        _exit(refused ? 0 : 1);
    }
    int how = -1;
    ck_assert_int_eq(waitpid(pid, &how, 0), pid);
    ck_assert_int_eq(how, 0);
    check_works(workspace);
    finish(workspace);
}
END_TEST

/* A second orchestrator: opens the workspace, changes a file, and goes without deleting. */
static int orchestrate(const char *name)
{
    client = new_client();
    sandbox_workspace *workspace = NULL;
    good(open_from(client, name, SANDBOX_FROM_NOTHING, &workspace));
    check_text(workspace, "from-one", "one");
    write_text(workspace, "from-two", "two");
    sandbox_workspace_free(workspace);
    sandbox_client_free(client);
    return 0;
}

START_TEST(two_orchestrators_work_on_one_workspace)
{
    /* The child is made before this process has threads of the library's. */
    int start[2];
    char go = 0;
    ck_assert_int_eq(pipe2(start, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(read(start[0], &go, 1) == 1 ? orchestrate("shared") : 1);
    set_up();
    sandbox_workspace *workspace = make("shared");
    write_text(workspace, "from-one", "one");
    ck_assert_int_eq(write(start[1], "g", 1), 1);
    int how = -1;
    ck_assert_int_eq(waitpid(pid, &how, 0), pid);
    ck_assert_int_eq(how, 0);
    check_text(workspace, "from-two", "two");
    finish(workspace);
    tear_down();
}
END_TEST

/* ---- cancel ---- */

struct canceller {
    pthread_t thread;
    sandbox_cancel *cancel;
    uint32_t after_ms;
};

static void *cancel_later(void *data)
{
    struct canceller *canceller = data;
    struct sbx_wait wait = sbx_wait_alone(SANDBOX_FOREVER);
    (void)sbx_wait_pause(&wait, canceller->after_ms, NULL);
    sandbox_cancel_trigger(canceller->cancel);
    return NULL;
}

/* P112 */
START_TEST(a_cancelled_create_leaves_nothing)
{
    static const uint32_t moments[] = {0, 2, 5, 10, 20, 40};
    for (size_t n = 0; n < sizeof moments / sizeof moments[0]; n++) {
        struct canceller canceller = {.after_ms = moments[n]};
        sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = "fleeting"};
        sandbox_workspace *workspace = NULL, *none = NULL;
        good(sandbox_cancel_create(&canceller.cancel, &error));
        sandbox_call call = {SANDBOX_CALL, .cancel = canceller.cancel};
        ck_assert_int_eq(pthread_create(&canceller.thread, NULL, cancel_later, &canceller), 0);
        sandbox_status status =
            sandbox_workspace_create(client, &options, &call, &workspace, &error);
        pthread_join(canceller.thread, NULL);
        sandbox_cancel_free(canceller.cancel);
        if (status == SANDBOX_OK)
            finish(workspace);
        else
            ck_assert_msg(status == SANDBOX_CANCELLED, "%s", error.message);
        bad(SANDBOX_NOT_FOUND, sandbox_workspace_find(client, "fleeting", NULL, &none, &error));
        if (harness_is_memory()) {
            ck_assert_int_eq(harness_count("instances"), 0);
            ck_assert_int_eq(harness_count("directories"), 0);
        }
    }
}
END_TEST

START_TEST(null_handles_are_refused)
{
    sandbox_workspace *workspace = NULL;
    sandbox_workspace_list *list = NULL;
    bad(SANDBOX_INVALID, sandbox_workspace_find(NULL, "x", NULL, &workspace, &error));
    bad(SANDBOX_INVALID, sandbox_workspace_find(client, NULL, NULL, &workspace, &error));
    bad(SANDBOX_INVALID, sandbox_workspace_find(client, "x", NULL, NULL, &error));
    bad(SANDBOX_INVALID, sandbox_workspace_open(client, NULL, NULL, &workspace, &error));
    bad(SANDBOX_INVALID, sandbox_workspace_inspect(NULL, NULL, &list, &error));
    bad(SANDBOX_INVALID, sandbox_workspace_delete(NULL, NULL, &error));
}
END_TEST

static Suite *api_suite(void)
{
    Suite *suite = suite_create("life of workspaces");
    TCase *life = tcase_create("life"), *alone = tcase_create("processes");
    tcase_add_checked_fixture(life, set_up, tear_down);
    tcase_set_timeout(life, 300);
    tcase_add_test(life, an_error_says_which_driver_it_comes_from);
    tcase_add_test(life, a_created_workspace_works_and_is_told_as_it_is);
    tcase_add_test(life, a_taken_name_exists_and_its_holder_is_untouched);
    tcase_add_test(life, a_name_that_is_none_is_refused_with_the_rule);
    tcase_add_test(life, a_workspace_is_found_by_name_and_by_id);
    tcase_add_test(life, open_makes_a_workspace_once_and_then_finds_it);
    tcase_add_test(life, handles_may_be_freed_in_any_order);
    tcase_add_test(life, labels_choose_what_is_listed);
    tcase_add_test(life, a_deleted_workspace_is_gone_and_its_handles_say_closed);
    tcase_add_test(life, of_16_threads_that_delete_all_succeed_and_one_does_it);
    tcase_add_test(life, an_expired_workspace_is_swept_and_its_name_is_free);
    tcase_add_test(life, a_renewed_workspace_lives_on);
    tcase_add_test(life, a_lost_instance_is_told_and_its_files_go_on);
    tcase_add_test(life, open_sees_by_itself_that_the_instance_is_lost);
    tcase_add_test(life, an_interrupted_workspace_can_be_deleted);
    tcase_add_test(life, a_forked_child_is_refused_and_may_free);
    tcase_add_test(life, a_cancelled_create_leaves_nothing);
    tcase_add_test(life, null_handles_are_refused);
    suite_add_tcase(suite, life);
    tcase_set_timeout(alone, 120);
    tcase_add_test(alone, two_orchestrators_work_on_one_workspace);
    suite_add_tcase(suite, alone);
    return suite;
}

int main(void)
{
    return contract_main(api_suite);
}
