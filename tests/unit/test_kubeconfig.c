/* What kubeconfig files say: which of them wins, what stands in them, what is wrong with them. */

#include "kubeconfig_place.h"
#include "util/json.h"

/* With `cluster` and `user` as flow mappings. */
#define CONFIG(cluster, user)                                                                      \
    "apiVersion: v1\nkind: Config\ncurrent-context: c\n"                                           \
    "clusters: [{name: k, cluster: " cluster "}]\n"                                                \
    "contexts: [{name: c, context: {cluster: k, user: u}}]\n"                                      \
    "users: [{name: u, user: " user "}]\n"

static void fails(const char *path, const char *context, sandbox_status status, const char *reason,
                  const char *words)
{
    struct sbx_kubeconfig *config = NULL;
    ck_assert_int_eq(read_config(path, context, &config), status);
    ck_assert_str_eq(error.reason, reason);
    ck_assert_msg(strstr(error.message, words) != NULL, "no '%s' in: %s", words, error.message);
}

START_TEST(what_gcloud_writes_is_read)
{
    SBX_ON_EXIT(forget)
    struct sbx_kubeconfig *config = good_config(
        "apiVersion: v1\n"
        "clusters:\n"
        "- cluster:\n"
        "    certificate-authority-data: " CA_DATA "\n"
        "    server: https://203.0.113.9\n"
        "  name: gke_project_europe-west4-a_one\n"
        "contexts:\n"
        "- context:\n"
        "    cluster: gke_project_europe-west4-a_one\n"
        "    user: gke_project_europe-west4-a_one\n"
        "  name: gke_project_europe-west4-a_one\n"
        "current-context: gke_project_europe-west4-a_one\n"
        "kind: Config\n"
        "preferences: {}\n"
        "users:\n"
        "- name: gke_project_europe-west4-a_one\n"
        "  user:\n"
        "    exec:\n"
        "      apiVersion: client.authentication.k8s.io/v1beta1\n"
        "      command: gke-gcloud-auth-plugin\n"
        "      installHint: Install gke-gcloud-auth-plugin for use with kubectl by following\n"
        "        "
        "https://cloud.google.com/kubernetes-engine/docs/how-to/cluster-access-for-kubectl\n"
        "      provideClusterInfo: true\n");
    ck_assert_str_eq(sbx_kubeconfig_server(config), "https://203.0.113.9");
    ck_assert_str_eq(sbx_kubeconfig_namespace(config), "default");
    ck_assert_str_eq(sbx_kubeconfig_title(config), "context 'gke_project_europe-west4-a_one'");
    ck_assert_str_eq(config->ca, PEM("CERTIFICATE", "Y2E="));
    ck_assert_str_eq(config->user.plugin->command, "gke-gcloud-auth-plugin");
}
END_TEST

START_TEST(json_is_yaml_too)
{
    SBX_ON_EXIT(forget)
    struct sbx_kubeconfig *config = good_config(
        "{\"current-context\": \"a b\",\n\"clusters\": [{\"name\": \"k\", \"cluster\":\n"
        "{\"server\": \"http://127.0.0.1:8080/sub/path//\", \"proxy-url\": \"socks5://p:1\",\n"
        "\"tls-server-name\": \"inner.example\", \"insecure-skip-tls-verify\": true}}],\n"
        "\"contexts\": [{\"name\": \"a b\", \"context\": {\"cluster\": \"k\",\n"
        "\"namespace\": \"space\"}}]}\n");
    ck_assert_str_eq(sbx_kubeconfig_server(config), "http://127.0.0.1:8080/sub/path");
    ck_assert_str_eq(sbx_kubeconfig_namespace(config), "space");
    struct sbx_kubernetes_access access;
    good_access(config, 0, &access);
    ck_assert_str_eq(access.peer.proxy, "socks5://p:1");
    ck_assert_str_eq(access.peer.server_name, "inner.example");
    ck_assert(access.peer.insecure);
    ck_assert_ptr_null(access.headers[0]); /* nobody in particular */
    sbx_kubernetes_access_end(&access);
}
END_TEST

START_TEST(the_first_file_that_has_a_name_wins)
{
    put_file("one", "current-context: ''\n"
                    "contexts: [{name: a, context: {cluster: x, namespace: first}}]\n");
    put_file("two", "current-context: a\n"
                    "contexts: [{name: a, context: {cluster: y, namespace: second}},\n"
                    "           {name: b, context: {cluster: y}}]\n"
                    "clusters: [{name: x, cluster: {server: 'https://x2'}},\n"
                    "           {name: y, cluster: {server: 'https://y2'}}]\n");
    put_file("three", "current-context: b\nclusters: [{name: x, cluster: {server: 'https://x3'}}]");
    char list[1000];
    snprintf(list, sizeof list, ":%s:%s::%s:%s:", path_of("missing"), path_of("one"),
             path_of("two"), path_of("three"));
    setenv("KUBECONFIG", list, 1);
    struct sbx_kubeconfig *config = NULL;
    ck_assert_int_eq(read_config(NULL, NULL, &config), SANDBOX_OK);
    ck_assert_str_eq(sbx_kubeconfig_server(config), "https://x2");
    ck_assert_str_eq(sbx_kubeconfig_namespace(config), "first");
    ck_assert_str_eq(sbx_kubeconfig_title(config), "context 'a'");
    sbx_kubeconfig_free(config);
    ck_assert_int_eq(read_config(NULL, "b", &config), SANDBOX_OK);
    ck_assert_str_eq(sbx_kubeconfig_server(config), "https://y2");
    sbx_kubeconfig_free(config);
}
END_TEST

START_TEST(without_an_environment_it_is_in_the_home_directory)
{
    fails(NULL, NULL, SANDBOX_NOT_FOUND, "no-kubeconfig", ".kube/config");
    put_file(".kube/config", CONFIG("{server: 'https://home'}", "{}"));
    SBX_ON_EXIT(forget) struct sbx_kubeconfig *config = NULL;
    ck_assert_int_eq(read_config(NULL, "", &config), SANDBOX_OK);
    ck_assert_str_eq(sbx_kubeconfig_server(config), "https://home");
}
END_TEST

START_TEST(a_file_that_is_asked_for_must_be_there)
{
    setenv("KUBECONFIG", path_of("none"), 1);
    fails(NULL, NULL, SANDBOX_NOT_FOUND, "no-kubeconfig", "none");
    fails(path_of("other"), NULL, SANDBOX_NOT_FOUND, "no-kubeconfig", "other");
    fails(folder, NULL, SANDBOX_INVALID, "kubeconfig", folder);
}
END_TEST

START_TEST(a_context_that_is_not_there_is_told_with_those_that_are)
{
    put_file("config", "contexts: [{name: a, context: {}}, {name: b, context: {}}]\n");
    fails(path_of("config"), "c", SANDBOX_NOT_FOUND, "no-such-context", "'a', 'b'");
    fails(path_of("config"), NULL, SANDBOX_NOT_FOUND, "no-such-context", "'a', 'b'");
    char many[4000];
    size_t used = (size_t)snprintf(many, sizeof many, "contexts:\n");
    for (int n = 0; n < 60; n++)
        used += (size_t)snprintf(many + used, sizeof many - used,
                                 "- {name: context-number-%d, context: {}}\n", n);
    put_file("config", many);
    fails(path_of("config"), "c", SANDBOX_NOT_FOUND, "no-such-context", ", …");
}
END_TEST

START_TEST(relative_paths_begin_at_their_own_file)
{
    put_file("deep/pki/ca.crt", PEM("CERTIFICATE", "ZGVlcA=="));
    put_file("deep/pki/me.crt", PEM("CERTIFICATE", "bWU="));
    put_file("deep/me.key", PEM("PRIVATE KEY", "a2V5"));
    put_file("top.key", "not this one");
    put_file("deep/config", CONFIG("{server: 'https://a', certificate-authority: pki/ca.crt}",
                                   "{client-certificate: ./pki/me.crt, client-key: me.key}"));
    char list[600];
    snprintf(list, sizeof list, "%s:%s", path_of("none"), path_of("deep/config"));
    setenv("KUBECONFIG", list, 1);
    SBX_ON_EXIT(forget) struct sbx_kubeconfig *config = NULL;
    ck_assert_int_eq(read_config(NULL, NULL, &config), SANDBOX_OK);
    struct sbx_kubernetes_access access;
    good_access(config, 0, &access);
    ck_assert_str_eq(access.peer.ca, PEM("CERTIFICATE", "ZGVlcA=="));
    ck_assert_str_eq(access.peer.certificate, PEM("CERTIFICATE", "bWU="));
    ck_assert_str_eq(access.peer.key, PEM("PRIVATE KEY", "a2V5"));
    sbx_kubernetes_access_end(&access);
}
END_TEST

START_TEST(a_user_who_acts_as_another_says_so)
{
    SBX_ON_EXIT(forget)
    struct sbx_kubeconfig *config = good_config(
        CONFIG("{server: 'https://a'}",
               "{token: 'T', as: 'system:serviceaccount:n:a', as-uid: '7', as-groups: [g1, 'g 2'],"
               " as-user-extra: {scopes: [a, b], 'example.org/x y': [c]}}"));
    ck_assert_str_eq(headers_now(config, 0),
                     "Authorization: Bearer T|Impersonate-User: system:serviceaccount:n:a|"
                     "Impersonate-Uid: 7|Impersonate-Group: g1|Impersonate-Group: g 2|"
                     "Impersonate-Extra-scopes: a|Impersonate-Extra-scopes: b|"
                     "Impersonate-Extra-example.org%2Fx%20y: c");
}
END_TEST

START_TEST(a_name_and_a_password_are_a_basic_credential)
{
    SBX_ON_EXIT(forget)
    struct sbx_kubeconfig *config =
        good_config(CONFIG("{server: 'https://a'}", "{username: u, password: 'p:w'}"));
    ck_assert_str_eq(headers_now(config, 0), "Authorization: Basic dTpwOnc=");
}
END_TEST

/* What is wrong, and what the message must name. */
static const struct {
    const char *text, *words;
} wrong[] = {
    {"clusters: {}", "'clusters' must be a list"},
    {"contexts: [a]", "'contexts' must be a list"},
    {"users: [{user: {}}]", "'users' must be a list"},
    {"current-context: 5", "'current-context' must be a text"},
    {"- a", "no kubeconfig"},
    {"just words", "no kubeconfig"},
    {"a: [1", "line "},
    {"a: b: c", "line 1"},
    {"a: 1\na: 2", "line 2: a key stands there twice"},
    {"a: &x 1\nb: *x", "line 2: aliases"},
    {"a: !!binary AAAA", "a tag"},
    {"a: 1\n---\nb: 2", "a second document"},
    {"a: \"x\\0y\"", "a zero byte"},
    {"? [a]\n: b", "a key that is no text"},
    {"a: \x01", "line 1"},
    {"contexts: [{name: c, context: {cluster: k}}, {name: c, context: {}}]\ncurrent-context: c",
     "stands there twice"},
    {"contexts: [{name: c, context: {}}]\ncurrent-context: c", "it names no cluster"},
    {"contexts: [{name: c}]\ncurrent-context: c", "nothing stands under 'context:'"},
    {"contexts: [{name: c, context: x}]\ncurrent-context: c", "must be a mapping"},
    {"contexts: [{name: c, context: {cluster: k}}]\ncurrent-context: c",
     "its cluster 'k' stands in none of the files"},
    {CONFIG("{server: 'https://a'}", "{}") "contexts2: []\nusers2: []", ""},
    {CONFIG("{}", "{}"), "it has no 'server'"},
    {CONFIG("{server: 5}", "{}"), "'server' must be a text"},
    {CONFIG("{server: 'example.org:443'}", "{}"), "'server' must be https://"},
    {CONFIG("{server: 'https://u:p@example.org'}", "{}"), "'server' must be https://"},
    {CONFIG("{server: 'https://example.org/?a'}", "{}"), "'server' must be https://"},
    {CONFIG("{server: 'https://'}", "{}"), "'server' must be https://"},
    {CONFIG("{server: 'https://a', proxy-url: 'p:1'}", "{}"), "'proxy-url' must begin"},
    {CONFIG("{server: 'https://a', tls-server-name: 'a/b'}", "{}"), "'tls-server-name' must be"},
    {CONFIG("{server: 'https://a', insecure-skip-tls-verify: 'true'}", "{}"), "true or false"},
    {CONFIG("{server: 'https://a', insecure-skip-tls-verify: true,"
            " certificate-authority-data: '" CA_DATA "'}",
            "{}"),
     "remove the latter"},
    {CONFIG("{server: 'https://a', certificate-authority-data: '-----BEGIN'}", "{}"),
     "'certificate-authority-data' is no base64"},
    {CONFIG("{server: 'https://a', certificate-authority-data: 'AAAA'}", "{}"), "holds no PEM"},
    {CONFIG("{server: 'https://a', certificate-authority: no-such.crt}", "{}"), "no-such.crt"},
    {CONFIG("{server: 'https://a'}", "{token: 12345}"), "'token' must be a text"},
    {CONFIG("{server: 'https://a'}", "{token: \"a\\nb\"}"), "its token has line ends"},
    {CONFIG("{server: 'https://a'}", "{token: a, username: b}"), "a token and a password"},
    {CONFIG("{server: 'https://a'}", "{username: 'a:b', password: c}"), "cannot hold ':'"},
    {CONFIG("{server: 'https://a'}", "{client-certificate: a}"), "no client-key"},
    {CONFIG("{server: 'https://a'}", "{client-key-data: '" CA_DATA "'}"), "no client-certificate"},
    {CONFIG("{server: 'https://a'}", "{as-groups: [g]}"), "as no user"},
    {CONFIG("{server: 'https://a'}", "{as: a, as-groups: g}"), "must be lists"},
    {CONFIG("{server: 'https://a'}", "{as: a, as-groups: [1]}"), "is empty or has control"},
    {CONFIG("{server: 'https://a'}", "{as: a, as-user-extra: [b]}"), "must be a mapping"},
    {CONFIG("{server: 'https://a'}", "{as: a, as-user-extra: {b: c}}"), "must be lists"},
    {CONFIG("{server: 'https://a'}", "{as: \"a\\nb\"}"), "control characters"},
    {CONFIG("{server: 'https://a'}", "{auth-provider: {name: gcp}}"), "gke-gcloud-auth-plugin"},
    {CONFIG("{server: 'https://a'}", "{exec: []}"), "'exec' must be a mapping"},
    {CONFIG("{server: 'https://a'}", "{exec: {command: a}}"), "v1 or v1beta1"},
    {CONFIG("{server: 'https://a'}",
            "{exec: {command: a, apiVersion: client.authentication.k8s.io/v1alpha1}}"),
     "v1 or v1beta1"},
    {CONFIG("{server: 'https://a'}", "{exec: {apiVersion: client.authentication.k8s.io/v1}}"),
     "no 'command'"},
    {CONFIG("{server: 'https://a'}", "{exec: {apiVersion: client.authentication.k8s.io/v1,"
                                     " command: a, interactiveMode: Always}}"),
     "must ask a person"},
    {CONFIG("{server: 'https://a'}", "{exec: {apiVersion: client.authentication.k8s.io/v1,"
                                     " command: a, interactiveMode: Sometimes}}"),
     "no interactiveMode 'Sometimes'"},
    {CONFIG("{server: 'https://a'}", "{exec: {apiVersion: client.authentication.k8s.io/v1,"
                                     " command: a, args: b}}"),
     "'args'"},
    {CONFIG("{server: 'https://a'}", "{exec: {apiVersion: client.authentication.k8s.io/v1,"
                                     " command: a, args: [5]}}"),
     "in quotes"},
    {CONFIG("{server: 'https://a'}", "{exec: {apiVersion: client.authentication.k8s.io/v1,"
                                     " command: a, env: [{value: b}]}}"),
     "has no name"},
};

START_TEST(what_is_wrong_is_told_with_its_file_and_place)
{
    put_file("config", wrong[_i].text);
    struct sbx_kubeconfig *config = NULL;
    sandbox_status status = read_config(path_of("config"), NULL, &config);
    if (wrong[_i].words[0] == '\0') { /* fields that nobody knows are left alone */
        ck_assert_int_eq(status, SANDBOX_OK);
        sbx_kubeconfig_free(config);
        return;
    }
    ck_assert_msg(status == SANDBOX_INVALID, "taken: %s", wrong[_i].text);
    ck_assert_str_eq(error.reason, "kubeconfig");
    ck_assert_msg(strstr(error.message, path_of("config")) != NULL, "no file in: %s",
                  error.message);
    ck_assert_msg(strstr(error.message, wrong[_i].words) != NULL, "no '%s' in: %s", wrong[_i].words,
                  error.message);
}
END_TEST

START_TEST(a_file_beyond_the_limits_is_not_read)
{
    SBX_ON_EXIT(sbx_free_text) char *text = malloc((5u << 20) + 1);
    memset(text, ' ', 5u << 20);
    text[5u << 20] = '\0';
    put_file("config", text);
    fails(path_of("config"), NULL, SANDBOX_INVALID, "kubeconfig", "larger than");

    memset(text, '[', 1000);
    text[1000] = '\0';
    put_file("config", text);
    fails(path_of("config"), NULL, SANDBOX_INVALID, "kubeconfig", "64 deep");

    size_t used = 0;
    for (unsigned n = 0; n < 210000; n++)
        used += (size_t)snprintf(text + used, 8, "- a\n");
    put_file("config", text);
    fails(path_of("config"), NULL, SANDBOX_INVALID, "kubeconfig", "200,000");

    used = 0;
    for (unsigned n = 0; n < 1001; n++)
        used += (size_t)snprintf(text + used, 16, "k%u: 1\n", n);
    put_file("config", text);
    fails(path_of("config"), NULL, SANDBOX_INVALID, "kubeconfig", "1,000");
}
END_TEST

START_TEST(plain_words_mean_what_kubectl_takes_them_for)
{
    static const char text[] = "[~, null, true, Yes, off, 7, -1.5e3, 007, 0x1f, .5, 1_0, '7', "
                               "\"no\", !!str 8, 2026-11-30, 1.2.3, -, 'null', !!int 9]";
    static const char expected[] = "[null,null,true,true,false,7,-1500,\"007\",\"0x1f\",\".5\","
                                   "\"1_0\",\"7\",\"no\",\"8\",\"2026-11-30\",\"1.2.3\",\"-\","
                                   "\"null\",9]";
    SBX_ON_EXIT(sbx_json_free) cJSON *json = NULL;
    sandbox_status status = sbx_yaml_parse(text, sizeof text - 1, "here", &json, &error);
    ck_assert_msg(status == SANDBOX_OK, "%s", error.message);
    SBX_ON_EXIT(sbx_free_text) char *printed = cJSON_PrintUnformatted(json);
    ck_assert_str_eq(printed, expected);
}
END_TEST

START_TEST(a_pod_finds_its_own_cluster)
{
    struct sbx_kubernetes_options options = {.in_cluster = true, .account = folder};
    struct sbx_kubeconfig *config = NULL;
    ck_assert_int_eq(sbx_kubeconfig_read(&options, &config, &error), SANDBOX_NOT_FOUND);
    ck_assert_str_eq(error.reason, "no-kubeconfig");
    setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
    setenv("KUBERNETES_SERVICE_PORT", "443", 1);
    ck_assert_int_eq(sbx_kubeconfig_read(&options, &config, &error), SANDBOX_NOT_FOUND);
    ck_assert(strstr(error.message, "ca.crt") != NULL);
    put_file("ca.crt", PEM("CERTIFICATE", "Y2E="));
    put_file("token", "first\n");
    ck_assert_int_eq(sbx_kubeconfig_read(&options, &config, &error), SANDBOX_OK);
    ck_assert_str_eq(sbx_kubeconfig_server(config), "https://[fd00::1]:443");
    ck_assert_str_eq(sbx_kubeconfig_namespace(config), "default");
    ck_assert_str_eq(sbx_kubeconfig_title(config), "this Pod's service account");
    ck_assert_str_eq(headers_now(config, 0), "Authorization: Bearer first");
    sbx_kubeconfig_free(config);

    put_file("namespace", "agents\n");
    setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1", 1);
    ck_assert_int_eq(sbx_kubeconfig_read(&options, &config, &error), SANDBOX_OK);
    ck_assert_str_eq(sbx_kubeconfig_server(config), "https://192.0.2.1:443");
    ck_assert_str_eq(sbx_kubeconfig_namespace(config), "agents");
    sbx_kubeconfig_free(config);

    setenv("KUBERNETES_SERVICE_HOST", "evil.example/path", 1);
    ck_assert_int_eq(sbx_kubeconfig_read(&options, &config, &error), SANDBOX_NOT_FOUND);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kubeconfig");
    TCase *table = tcase_create("wrong");
    tcase_add_checked_fixture(table, set_up, tear_down);
    tcase_add_loop_test(table, what_is_wrong_is_told_with_its_file_and_place, 0,
                        sizeof wrong / sizeof wrong[0]);
    suite_add_tcase(suite, table);
    TCase *cases = tcase_create("cases");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, what_gcloud_writes_is_read);
    tcase_add_test(cases, json_is_yaml_too);
    tcase_add_test(cases, the_first_file_that_has_a_name_wins);
    tcase_add_test(cases, without_an_environment_it_is_in_the_home_directory);
    tcase_add_test(cases, a_file_that_is_asked_for_must_be_there);
    tcase_add_test(cases, a_context_that_is_not_there_is_told_with_those_that_are);
    tcase_add_test(cases, relative_paths_begin_at_their_own_file);
    tcase_add_test(cases, a_user_who_acts_as_another_says_so);
    tcase_add_test(cases, a_name_and_a_password_are_a_basic_credential);
    tcase_add_test(cases, a_file_beyond_the_limits_is_not_read);
    tcase_add_test(cases, plain_words_mean_what_kubectl_takes_them_for);
    tcase_add_test(cases, a_pod_finds_its_own_cluster);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
