/*
 * Making, looking at and deleting workspaces on a cluster that fails, is late, or says no. The ids
 * are those of the project's list of cases.
 */

#include "checks.h"
#include "core/driver.h"
#include "util/memory.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMAGE "registry.example/workspace@sha256:"
#define ZEROS "000000000000000000000000000000000000000000000000000000000000000"

static sandbox_client *client;

static void set_up(void)
{
    sandbox_client_options options = {SANDBOX_CLIENT_OPTIONS, .uri = harness_uri()};
    good(sandbox_client_open(&options, NULL, &client, &error));
}

static void tear_down(void)
{
    harness_tell("{\"do\":\"clear\"}");
    sandbox_client_free(client);
}

/* ---- what the cluster holds ---- */

static cJSON *objects(const char *resource, const char *name)
{
    cJSON *answer = name == NULL
                        ? harness_ask("{\"do\":\"objects\",\"resource\":\"%s\"}", resource)
                        : harness_ask("{\"do\":\"objects\",\"resource\":\"%s\",\"name\":\"%s\"}",
                                      resource, name);
    cJSON *found = cJSON_DetachItemFromObjectCaseSensitive(answer, "objects");
    ck_assert_ptr_nonnull(found);
    cJSON_Delete(answer);
    return found;
}

static int count(const char *resource)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *found = objects(resource, NULL);
    return cJSON_GetArraySize(found);
}

/* A text in the claim of a workspace; "" if it is not there. Static. */
static const char *claim_text(const sandbox_workspace *workspace, const char *part,
                              const char *field, const char *name)
{
    static char text[300];
    snprintf(text, sizeof text, "sandbox-%s", sandbox_workspace_id(workspace));
    SBX_ON_EXIT(sbx_json_free) cJSON *found = objects("sandboxclaims", text);
    const cJSON *at = cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(found, 0), part);
    snprintf(text, sizeof text, "%s",
             sbx_json_text(cJSON_GetObjectItemCaseSensitive(at, field), name));
    return text;
}

static bool is_empty(void *data)
{
    return count("sandboxclaims") == 0;
}

/* Nothing is left of any workspace: no claim, no Sandbox with one, no record. */
static void check_nothing_left(void)
{
    ck_assert(harness_await(is_empty, NULL));
    SBX_ON_EXIT(sbx_json_free) cJSON *sandboxes = objects("sandboxes", NULL);
    const cJSON *sandbox;
    cJSON_ArrayForEach(sandbox, sandboxes)
    {
        const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(sandbox, "metadata");
        const cJSON *owner =
            cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(metadata, "ownerReferences"), 0);
        ck_assert_str_ne(sbx_json_text(owner, "kind"), "SandboxClaim");
    }
    ck_assert_int_eq(count("configmaps"), 0);
}

static sandbox_status create(const char *name, const sandbox_call *call,
                             sandbox_workspace **workspace)
{
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = name};
    *workspace = NULL;
    return sandbox_workspace_create(client, &options, call, workspace, &error);
}

static sandbox_workspace *make(const char *name)
{
    sandbox_workspace *workspace = NULL;
    good(create(name, NULL, &workspace));
    return workspace;
}

static void finish(sandbox_workspace *workspace)
{
    good(sandbox_workspace_delete(workspace, NULL, &error));
    sandbox_workspace_free(workspace);
    check_nothing_left();
}

static void check_works(sandbox_workspace *workspace)
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "echo it works"};
    sandbox_process_result *result = NULL;
    good(sandbox_process_run(workspace, &options, NULL, NULL, &result, &error));
    ck_assert_str_eq((const char *)result->output, "it works\n");
    sandbox_process_result_free(result);
}

static void fault(const char *verb, const char *resource, const char *what, int times)
{
    harness_tell("{\"do\":\"fault\",\"on\":{\"verb\":\"%s\",\"resource\":\"%s\"},\"what\":\"%s\","
                 "\"times\":%d}",
                 verb, resource, what, times);
}

static void behave(const char *object, const char *how)
{
    harness_tell("{\"do\":\"behave\",\"object\":\"%s\",\"how\":\"%s\"}", object, how);
}

/* ---- what will never be ready is told at once, and what is late is explained ---- */

/* Weak point 9 of clients there are: they wait out their time, and do not say for what. */
START_TEST(a_hopeless_claim_is_told_at_once_and_is_gone)
{
    sandbox_workspace *none = NULL;
    behave("sandbox-*", "claim-hopeless");
    bad(SANDBOX_FAILED, create("hopeless", NULL, &none));
    ck_assert_str_eq(error.reason, "never-ready");
    check_nothing_left();
}
END_TEST

START_TEST(a_claim_that_nobody_answers_is_explained_and_is_gone)
{
    sandbox_workspace *none = NULL;
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = 500};
    behave("sandbox-*", "claim-never");
    bad(SANDBOX_TIMED_OUT, create("late", &call, &none));
    ck_assert_msg(strstr(error.message, "late") != NULL, "%s", error.message);
    check_nothing_left();
}
END_TEST

START_TEST(a_missing_pool_is_named)
{
    sandbox_client_options options = {SANDBOX_CLIENT_OPTIONS,
                                      .uri = "gke://double/workspaces?pool=elsewhere"};
    sandbox_workspace *none = NULL;
    sandbox_client_free(client);
    good(sandbox_client_open(&options, NULL, &client, &error));
    bad(SANDBOX_NOT_FOUND, create("poolless", NULL, &none));
    ck_assert_str_eq(error.reason, "no-such-pool");
    ck_assert_ptr_nonnull(strstr(error.message, "elsewhere"));
    check_nothing_left();
}
END_TEST

START_TEST(without_agent_sandbox_that_is_said)
{
    sandbox_workspace *none = NULL;
    harness_tell("{\"do\":\"serve\",\"group\":\"extensions.agents.x-k8s.io\",\"versions\":[]}");
    sandbox_status status = create("bare", NULL, &none);
    harness_tell("{\"do\":\"serve\",\"group\":\"extensions.agents.x-k8s.io\",\"versions\":"
                 "[\"v1beta1\"]}");
    ck_assert_int_eq(status, SANDBOX_UNSUPPORTED);
    ck_assert_str_eq(error.reason, "no-agent-sandbox");
    check_nothing_left();
}
END_TEST

/* ---- answers that are lost ---- */

/* P109, P111, P142: the claim has a name of ours, so that the second try finds the first one's. */
START_TEST(a_create_whose_answer_is_lost_makes_one_claim)
{
    static const char *const what[] = {"reset-after", "status-after-500", "reset", "status-503"};
    fault("create", "sandboxclaims", what[_i], 1);
    sandbox_workspace *workspace = make("lost");
    ck_assert_int_eq(count("sandboxclaims"), 1);
    check_works(workspace);
    finish(workspace);
}
END_TEST

START_TEST(a_record_whose_answer_is_lost_is_stored_once)
{
    static const char *const verbs[] = {"create", "patch"};
    fault(verbs[_i % 2], "configmaps", _i < 2 ? "reset-after" : "status-after-500", 1);
    sandbox_workspace *workspace = make("noted");
    check_works(workspace);
    finish(workspace);
}
END_TEST

/* Weak point 14: a client that deletes what it cannot read for a moment. */
START_TEST(what_cannot_be_read_is_not_deleted)
{
    sandbox_workspace *workspace = make("unread"), *again = NULL;
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = 300};
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = "unread"};
    fault("get", "pods", "status-500", 0);
    fault("get", "sandboxes", "status-500", 0);
    fault("get", "sandboxclaims", "status-500", 0);
    sandbox_client *other = NULL;
    sandbox_client_options where = {SANDBOX_CLIENT_OPTIONS, .uri = harness_uri()};
    good(sandbox_client_open(&where, NULL, &other, &error));
    ck_assert_int_ne(sandbox_workspace_open(other, &options, &call, &again, &error), SANDBOX_OK);
    ck_assert_int_eq(count("sandboxclaims"), 1);
    harness_tell("{\"do\":\"clear\"}");
    good(sandbox_workspace_open(other, &options, NULL, &again, &error));
    check_works(again);
    sandbox_workspace_free(again);
    sandbox_client_free(other);
    finish(workspace);
}
END_TEST

/* ---- deleting ---- */

/* Weak point 15: errors of a deletion are the caller's to know. */
START_TEST(a_deletion_that_is_refused_is_told_and_can_be_repeated)
{
    sandbox_workspace *workspace = make("kept");
    harness_tell("{\"do\":\"deny\",\"verb\":\"delete\",\"resource\":\"sandboxclaims\"}");
    bad(SANDBOX_DENIED, sandbox_workspace_delete(workspace, NULL, &error));
    ck_assert_int_eq(count("sandboxclaims"), 1);
    harness_tell("{\"do\":\"clear\"}");
    finish(workspace);
}
END_TEST

START_TEST(a_pod_that_ends_slowly_is_waited_for)
{
    sandbox_workspace *workspace = make("slow");
    sandbox_call call = {SANDBOX_CALL, .timeout_ms = 300};
    behave("sandbox-*", "pod-slow-end");
    bad(SANDBOX_TIMED_OUT, sandbox_workspace_delete(workspace, &call, &error));
    harness_tell("{\"do\":\"behave\",\"how\":\"go\"}");
    finish(workspace);
}
END_TEST

/* ---- instances that are lost ---- */

static void check_lost(const char *name, const char *how, const char *says)
{
    sandbox_workspace *workspace = make(name), *none = NULL;
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = name};
    char claim[64];
    snprintf(claim, sizeof claim, "sandbox-%s", sandbox_workspace_id(workspace));
    behave(claim, how);
    sandbox_process_options echo = {SANDBOX_PROCESS_OPTIONS, .command = "true"};
    sandbox_process_result *result = NULL;
    sandbox_status status = SANDBOX_OK;
    /* The channel may go a moment before the Pod says so. */
    struct sbx_wait wait = sbx_wait_alone(20000);
    while (status != SANDBOX_INTERRUPTED && sbx_wait_check(&wait, NULL) == SANDBOX_OK) {
        status = sandbox_process_run(workspace, &echo, NULL, NULL, &result, &error);
        sandbox_process_result_free(sbx_take(result));
    }
    ck_assert_int_eq(status, SANDBOX_INTERRUPTED);
    ck_assert_str_eq(error.reason, "files-lost");
    ck_assert_msg(strstr(error.message, says) != NULL, "%s", error.message);
    bad(SANDBOX_INTERRUPTED, sandbox_workspace_open(client, &options, NULL, &none, &error));
    finish(workspace);
}

/* Weak point 33: a Pod that has failed is never made anew by itself. */
START_TEST(an_evicted_pod_is_told_with_the_platforms_words)
{
    check_lost("evicted", "evict", "low on resource: memory");
}
END_TEST

/* The UID is the same, and nothing of what ran is left. */
START_TEST(a_container_that_was_started_anew_is_another_instance)
{
    check_lost("restarted", "restart", "started anew");
}
END_TEST

/* ---- ends, names, keys, images ---- */

/* Weak point 10: what its creator did not finish ends by itself, what it did finish stays. */
START_TEST(a_claim_ends_with_its_workspace_and_not_before)
{
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = "mayfly",
                                         .expires_after_ms = 3600000};
    sandbox_workspace *workspace = NULL, *endless = make("endless");
    ck_assert_str_eq(claim_text(endless, "spec", "lifecycle", "shutdownTime"), "");
    good(sandbox_workspace_create(client, &options, NULL, &workspace, &error));
    ck_assert_str_eq(claim_text(workspace, "spec", "lifecycle", "shutdownPolicy"), "Retain");
    char first[64];
    snprintf(first, sizeof first, "%s", claim_text(workspace, "spec", "lifecycle", "shutdownTime"));
    ck_assert_uint_eq(strlen(first), 20);
    good(sandbox_workspace_renew(workspace, 36000000, NULL, &error));
    ck_assert_int_gt(strcmp(claim_text(workspace, "spec", "lifecycle", "shutdownTime"), first), 0);
    good(sandbox_workspace_renew(workspace, 0, NULL, &error));
    ck_assert_str_eq(claim_text(workspace, "spec", "lifecycle", "shutdownTime"), "");
    good(sandbox_workspace_delete(endless, NULL, &error));
    sandbox_workspace_free(endless);
    finish(workspace);
}
END_TEST

START_TEST(what_is_somebody_elses_is_left_alone)
{
    sandbox_workspace *none = NULL;
    harness_tell(
        "{\"do\":\"put\",\"resource\":\"configmaps\",\"object\":{\"metadata\":{\"name\":"
        "\"sandbox-record-foreign\",\"namespace\":\"workspaces\"},\"data\":{\"a\":\"b\"}}}");
    bad(SANDBOX_CONFLICT, create("foreign", NULL, &none));
    ck_assert_str_eq(error.reason, "not-ours");
    ck_assert_int_eq(count("configmaps"), 1);
    harness_tell("{\"do\":\"remove\",\"resource\":\"configmaps\",\"namespace\":\"workspaces\","
                 "\"name\":\"sandbox-record-foreign\"}");
}
END_TEST

static void *make_and_delete(void *data)
{
    char name[32];
    sandbox_error own = {0};
    sandbox_client *mine = NULL;
    sandbox_workspace *workspace = NULL;
    sandbox_client_options where = {SANDBOX_CLIENT_OPTIONS, .uri = harness_uri()};
    snprintf(name, sizeof name, "first-%zu", (size_t)data);
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = name};
    sandbox_status status = sandbox_client_open(&where, NULL, &mine, &own);
    if (status == SANDBOX_OK)
        status = sandbox_workspace_create(mine, &options, NULL, &workspace, &own);
    if (status == SANDBOX_OK)
        status = sandbox_workspace_delete(workspace, NULL, &own);
    sandbox_workspace_free(workspace);
    sandbox_client_free(mine);
    return status == SANDBOX_OK ? NULL : sbx_copy(own.message);
}

/* One secret, whoever comes first; P143: and never one Sandbox for two. */
START_TEST(many_who_come_first_at_once_share_one_secret)
{
    pthread_t threads[6];
    cJSON_Delete(harness_ask("{\"do\":\"remove\",\"resource\":\"secrets\",\"namespace\":"
                             "\"workspaces\",\"name\":\"sandbox-keys\"}"));
    for (size_t n = 0; n < 6; n++)
        ck_assert_int_eq(pthread_create(&threads[n], NULL, make_and_delete, (void *)n), 0);
    for (size_t n = 0; n < 6; n++) {
        void *problem = NULL;
        pthread_join(threads[n], &problem);
        ck_assert_msg(problem == NULL, "%s", (const char *)problem);
    }
    SBX_ON_EXIT(sbx_json_free) cJSON *secrets = objects("secrets", "sandbox-keys");
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(secrets, 0), "data");
    ck_assert_int_eq(cJSON_GetArraySize(data), 1);
    check_nothing_left();
}
END_TEST

/* Weak point 50: the pool's image is compared with what was asked for. */
START_TEST(an_image_comes_from_its_own_pool_or_not_at_all)
{
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = "pinned",
                                         .image = IMAGE ZEROS "2"};
    sandbox_workspace *workspace = NULL;
    bad(SANDBOX_NOT_FOUND, sandbox_workspace_create(client, &options, NULL, &workspace, &error));
    ck_assert_str_eq(error.reason, "no-such-pool");
    harness_tell("{\"do\":\"put\",\"resource\":\"sandboxwarmpools\",\"object\":{\"metadata\":"
                 "{\"name\":\"standard-000000000000\",\"namespace\":\"workspaces\"},\"spec\":"
                 "{\"replicas\":0,\"sandboxTemplateRef\":{\"name\":\"standard\"}}}}");
    good(sandbox_workspace_create(client, &options, NULL, &workspace, &error));
    check_works(workspace);
    finish(workspace);
    options.image = IMAGE ZEROS "3";
    bad(SANDBOX_FAILED, sandbox_workspace_create(client, &options, NULL, &workspace, &error));
    ck_assert_str_eq(error.reason, "wrong-image");
    options.image = "registry.example/workspace:latest";
    bad(SANDBOX_INVALID, sandbox_workspace_create(client, &options, NULL, &workspace, &error));
    ck_assert_str_eq(error.reason, "bad-image");
    check_nothing_left();
}
END_TEST

START_TEST(limits_are_the_templates)
{
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = "limited",
                                         .memory_mib = 1024, .cpu_millis = 1000};
    sandbox_workspace *workspace = NULL;
    ck_assert(sandbox_client_can(client, SANDBOX_CAN_LIMIT_MEMORY));
    ck_assert(sandbox_client_can(client, SANDBOX_CAN_LIMIT_CPU));
    ck_assert(!sandbox_client_can(client, SANDBOX_CAN_LIMIT_DISK));
    good(sandbox_workspace_create(client, &options, NULL, &workspace, &error));
    finish(workspace);
    options.memory_mib = 4096;
    bad(SANDBOX_UNSUPPORTED, sandbox_workspace_create(client, &options, NULL, &workspace, &error));
    ck_assert_str_eq(error.reason, "no-memory-limit");
    options.memory_mib = 0;
    options.user = "root";
    bad(SANDBOX_UNSUPPORTED, sandbox_workspace_create(client, &options, NULL, &workspace, &error));
    ck_assert_str_eq(error.reason, "no-root");
    check_nothing_left();
}
END_TEST

static Suite *create_suite(void)
{
    Suite *suite = suite_create("workspaces on a cluster that fails");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 120);
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, many_who_come_first_at_once_share_one_secret);
    tcase_add_test(all, a_hopeless_claim_is_told_at_once_and_is_gone);
    tcase_add_test(all, a_claim_that_nobody_answers_is_explained_and_is_gone);
    tcase_add_test(all, a_missing_pool_is_named);
    tcase_add_test(all, without_agent_sandbox_that_is_said);
    tcase_add_loop_test(all, a_create_whose_answer_is_lost_makes_one_claim, 0, 4);
    tcase_add_loop_test(all, a_record_whose_answer_is_lost_is_stored_once, 0, 4);
    tcase_add_test(all, what_cannot_be_read_is_not_deleted);
    tcase_add_test(all, a_deletion_that_is_refused_is_told_and_can_be_repeated);
    tcase_add_test(all, a_pod_that_ends_slowly_is_waited_for);
    tcase_add_test(all, an_evicted_pod_is_told_with_the_platforms_words);
    tcase_add_test(all, a_container_that_was_started_anew_is_another_instance);
    tcase_add_test(all, a_claim_ends_with_its_workspace_and_not_before);
    tcase_add_test(all, what_is_somebody_elses_is_left_alone);
    tcase_add_test(all, an_image_comes_from_its_own_pool_or_not_at_all);
    tcase_add_test(all, limits_are_the_templates);
    suite_add_tcase(suite, all);
    return suite;
}

int main(void)
{
    setenv("SANDBOX_TEST_URI", "gke:", 0);
    return contract_main(create_suite);
}
