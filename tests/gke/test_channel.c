/*
 * channel=pod: work goes to the Pod's own address, where both sides prove the token first. Needs
 * Pods that can be connected to, which the double has as root with processes for Pods.
 */

#include "checks.h"
#include "drivers/gke/gke.h"
#include "util/memory.h"
#include <sandbox/manifests.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define URI "gke://double/workspaces?pool=reachable&channel=pod"

static sandbox_client *client;

static void open_client(const char *uri)
{
    sandbox_client_options options = {SANDBOX_CLIENT_OPTIONS, .uri = uri};
    good(sandbox_client_open(&options, NULL, &client, &error));
}

static void set_up(void)
{
    open_client(URI);
}

static void tear_down(void)
{
    harness_tell("{\"do\":\"clear\"}");
    sandbox_client_free(client);
}

/* The pool is the one that `sandbox manifests` makes for such a URI. */
static void make_pool(void)
{
    sandbox_manifests_options options = {SANDBOX_MANIFESTS_OPTIONS,
                                         .agent_image = "registry.example/sandbox-agent@sha256:1",
                                         .bucket = "double-snapshots", .own_nodes = true};
    sandbox_manifests *manifests = NULL;
    good(sandbox_manifests_apply(URI, &options, NULL, &manifests, &error));
    sandbox_manifests_free(manifests);
}

static sandbox_workspace *make(const char *name)
{
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = name};
    sandbox_workspace *workspace = NULL;
    good(sandbox_workspace_create(client, &options, NULL, &workspace, &error));
    return workspace;
}

static void finish(sandbox_workspace *workspace)
{
    good(sandbox_workspace_delete(workspace, NULL, &error));
    sandbox_workspace_free(workspace);
}

static sandbox_status run(sandbox_workspace *workspace, const char *command, char out[64])
{
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = command};
    sandbox_process_result *result = NULL;
    sandbox_status status = sandbox_process_run(workspace, &options, NULL, NULL, &result, &error);
    out[0] = '\0';
    if (status == SANDBOX_OK)
        snprintf(out, 64, "%s", (const char *)result->output);
    sandbox_process_result_free(result);
    return status;
}

static void check_works(sandbox_workspace *workspace)
{
    char said[64];
    good(run(workspace, "echo it works", said));
    ck_assert_str_eq(said, "it works\n");
}

/* How often somebody went into a Pod by exec. */
static int execs(void)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *answer = harness_ask("{\"do\":\"state\"}");
    const cJSON *count = cJSON_GetObjectItemCaseSensitive(answer, "requests")->child;
    int sum = 0;
    for (; count != NULL; count = count->next)
        sum += strstr(count->string, "pods/exec") != NULL ? count->valueint : 0;
    return sum;
}

/* The Pod of a workspace; cJSON_Delete(). */
static cJSON *pod_of(const sandbox_workspace *workspace)
{
    cJSON *claims = harness_ask("{\"do\":\"objects\",\"resource\":\"sandboxclaims\",\"name\":"
                                "\"sandbox-%s\"}",
                                sandbox_workspace_id(workspace));
    const cJSON *claim = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(claims, "objects"), 0);
    const char *sandbox = sbx_gke_text(claim, "status", "sandbox", "name", NULL);
    cJSON *pods =
        harness_ask("{\"do\":\"objects\",\"resource\":\"pods\",\"name\":\"%s\"}", sandbox);
    cJSON *pod = cJSON_DetachItemFromArray(cJSON_GetObjectItemCaseSensitive(pods, "objects"), 0);
    cJSON_Delete(claims);
    cJSON_Delete(pods);
    ck_assert_ptr_nonnull(pod);
    return pod;
}

/* The cluster says that the Pod has this address. NULL: none. */
static void readdress(const cJSON *pod, const char *address)
{
    char told[160] = "\"podIP\":null,\"podIPs\":null";
    if (address != NULL)
        snprintf(told, sizeof told, "\"podIP\":\"%s\",\"podIPs\":[{\"ip\":\"%s\"}]", address,
                 address);
    harness_tell("{\"do\":\"edit\",\"resource\":\"pods\",\"namespace\":\"workspaces\",\"name\":"
                 "\"%s\",\"patch\":{\"status\":{%s}}}",
                 sbx_gke_text(pod, "metadata", "name", NULL), told);
}

/* Nobody but Pods that say what they are, at the agent's port. */
START_TEST(the_pool_lets_its_clients_in_and_nobody_else)
{
    static const char *const where[] = {"networkpolicies", "sandboxtemplates"};
    for (size_t n = 0; n < 2; n++) {
        SBX_ON_EXIT(sbx_json_free)
        cJSON *answer = harness_ask("{\"do\":\"objects\",\"resource\":\"%s\",\"name\":"
                                    "\"reachable\"}",
                                    where[n]);
        const cJSON *object =
            cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(answer, "objects"), 0);
        const cJSON *rules = n == 0 ? sbx_gke_at(object, "spec", "ingress", NULL)
                                    : sbx_gke_at(object, "spec", "networkPolicy", "ingress", NULL);
        ck_assert_int_eq(cJSON_GetArraySize(rules), 1);
        SBX_ON_EXIT(sbx_free_text) char *text = cJSON_PrintUnformatted(rules->child);
        ck_assert_str_eq(text, "{\"from\":[{\"namespaceSelector\":{\"matchLabels\":{"
                               "\"kubernetes.io/metadata.name\":\"workspaces\"}},\"podSelector\":"
                               "{\"matchLabels\":{\"sandbox.users.io/client\":\"true\"}}}],"
                               "\"ports\":[{\"protocol\":\"TCP\",\"port\":7411}]}");
    }
}
END_TEST

START_TEST(work_goes_to_the_pod_and_the_life_cycle_does_not)
{
    sandbox_workspace *workspace = make("direct");
    int before = execs();
    for (int n = 0; n < 5; n++)
        check_works(workspace);
    ck_assert_int_eq(execs(), before);
    /* The agent's gate is moved over exec alone. */
    good(sandbox_workspace_renew(workspace, 3600000, NULL, &error));
    ck_assert_int_gt(execs(), before);
    check_works(workspace);
    finish(workspace);
}
END_TEST

START_TEST(exec_is_what_is_used_unless_asked)
{
    sandbox_client_free(client);
    open_client("gke://double/workspaces?pool=reachable");
    sandbox_workspace *workspace = make("plain");
    SBX_ON_EXIT(sbx_json_free) cJSON *pod = pod_of(workspace);
    readdress(pod, "192.0.2.1");
    check_works(workspace);
    finish(workspace);
}
END_TEST

START_TEST(a_process_is_reached_again_after_a_resume)
{
    char first[64], second[64];
    sandbox_workspace *workspace = make("sleeper");
    sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .command = "echo $$; sleep 1000"};
    sandbox_process *process = NULL;
    good(sandbox_process_start(workspace, &options, NULL, &process, &error));
    good(run(workspace, "pgrep -x sleep", first));
    sandbox_suspend_options how = {SANDBOX_SUSPEND_OPTIONS, .force = true};
    for (unsigned long n = 0; n < contract_count(2); n++) {
        sandbox_resume_result result = {SANDBOX_RESUME_RESULT};
        good(sandbox_workspace_suspend(workspace, &how, NULL, NULL, &error));
        bad(SANDBOX_SUSPENDED, run(workspace, "true", second));
        good(sandbox_workspace_resume(workspace, NULL, NULL, &result, &error));
        ck_assert(result.restored && result.proof == SANDBOX_PROOF_MEMORY);
        int before = execs();
        good(run(workspace, "pgrep -x sleep", second));
        ck_assert_str_eq(first, second);
        ck_assert_int_eq(execs(), before);
    }
    sandbox_process_free(process);
    finish(workspace);
}
END_TEST

START_TEST(whoever_finds_it_later_reaches_it_too)
{
    sandbox_workspace *workspace = make("found"), *again = NULL;
    good(sandbox_workspace_find(client, "found", NULL, &again, &error));
    check_works(again);
    sandbox_workspace_free(again);
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = "found"};
    good(sandbox_workspace_open(client, &options, NULL, &again, &error));
    check_works(again);
    sandbox_workspace_free(again);
    finish(workspace);
}
END_TEST

/* Its Pod is gone, and the address is another workspace's now: that is told nothing. */
START_TEST(an_address_that_is_somebody_elses_now_is_refused)
{
    char said[64];
    sandbox_workspace *one = make("one"), *other = make("other");
    SBX_ON_EXIT(sbx_json_free) cJSON *pod = pod_of(one);
    SBX_ON_EXIT(sbx_json_free) cJSON *others = pod_of(other);
    readdress(pod, sbx_gke_pod_address(others));
    bad(SANDBOX_UNAVAILABLE, run(one, "true", said));
    ck_assert_str_eq(error.reason, "agent-not-proven");
    readdress(pod, sbx_gke_pod_address(pod));
    check_works(one);
    check_works(other);
    finish(one);
    finish(other);
}
END_TEST

START_TEST(an_address_where_nobody_answers_is_told_with_its_remedy)
{
    char said[64];
    sandbox_workspace *workspace = make("away");
    SBX_ON_EXIT(sbx_json_free) cJSON *pod = pod_of(workspace);
    readdress(pod, "127.63.255.1");
    bad(SANDBOX_UNAVAILABLE, run(workspace, "true", said));
    ck_assert_str_eq(error.reason, "pod-unreachable");
    ck_assert_ptr_nonnull(strstr(error.message, "127.63.255.1"));
    ck_assert_ptr_nonnull(strstr(error.message, "sandbox manifests"));
    readdress(pod, NULL);
    bad(SANDBOX_UNAVAILABLE, run(workspace, "true", said));
    ck_assert_str_eq(error.reason, "pod-unreachable");
    readdress(pod, sbx_gke_pod_address(pod));
    check_works(workspace);
    finish(workspace);
}
END_TEST

START_TEST(a_pool_whose_agents_do_not_listen_is_told)
{
    char said[64];
    sandbox_client_free(client);
    open_client("gke://double/workspaces?pool=standard&channel=pod");
    sandbox_workspace *workspace = make("deaf");
    bad(SANDBOX_UNAVAILABLE, run(workspace, "true", said));
    ck_assert_str_eq(error.reason, "pod-unreachable");
    finish(workspace);
}
END_TEST

static Suite *channel_suite(void)
{
    Suite *suite = suite_create("work at the Pod's own address");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 120);
    tcase_add_unchecked_fixture(all, make_pool, NULL);
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, the_pool_lets_its_clients_in_and_nobody_else);
    tcase_add_test(all, work_goes_to_the_pod_and_the_life_cycle_does_not);
    tcase_add_test(all, exec_is_what_is_used_unless_asked);
    tcase_add_test(all, a_process_is_reached_again_after_a_resume);
    tcase_add_test(all, whoever_finds_it_later_reaches_it_too);
    tcase_add_test(all, an_address_that_is_somebody_elses_now_is_refused);
    tcase_add_test(all, an_address_where_nobody_answers_is_told_with_its_remedy);
    tcase_add_test(all, a_pool_whose_agents_do_not_listen_is_told);
    suite_add_tcase(suite, all);
    return suite;
}

int main(void)
{
    const char *pods = getenv("SANDBOX_TEST_CLUSTER_PODS");
    if (geteuid() != 0 || (pods != NULL && strcmp(pods, "process") != 0)) {
        fprintf(stderr, "not run: only as root, with processes for Pods, have they addresses\n");
        return 77;
    }
    setenv("SANDBOX_TEST_URI", "gke:", 0);
    return contract_main(channel_suite);
}
