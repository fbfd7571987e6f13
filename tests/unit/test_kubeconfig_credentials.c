/* Credentials while a process lives: files that change, plugins that are run, and what they say. */

#include "kubeconfig_place.h"
#include "util/json.h"

static int64_t monotonic_now, wall_now;

static int64_t tell_monotonic(void *user_data)
{
    return monotonic_now;
}

static int64_t tell_wall(void *user_data)
{
    return wall_now;
}

static const struct sbx_clock hands = {tell_monotonic, tell_wall, NULL};

/* 2026-11-30T12:00:00Z */
#define NOON INT64_C(1796040000000)

static struct sbx_kubeconfig *config_of(const char *user)
{
    char text[6000];
    snprintf(text, sizeof text,
             "current-context: c\n"
             "clusters: [{name: k, cluster: {server: 'https://a:6443', tls-server-name: inner,\n"
             "  certificate-authority-data: '%s', extensions: [{name: other, extension: 1},\n"
             "  {name: client.authentication.k8s.io/exec, extension: {audience: x}}]}}]\n"
             "contexts: [{name: c, context: {cluster: k, user: u}}]\n"
             "users: [{name: u, user: %s}]\n",
             CA_DATA, user);
    struct sbx_kubeconfig *config = good_config(text);
    sbx_kubeconfig_set_clock(config, &hands);
    monotonic_now = 1000000;
    wall_now = NOON;
    return config;
}

static void access_fails(struct sbx_kubeconfig *config, uint64_t refused, sandbox_status status,
                         const char *reason, const char *words)
{
    struct sbx_kubernetes_access access;
    ck_assert_int_eq(sbx_kubeconfig_access(config, refused, &wait, &access, &error), status);
    ck_assert_str_eq(error.reason, reason);
    ck_assert_msg(strstr(error.message, words) != NULL, "no '%s' in: %s", words, error.message);
}

/* ---- texts and files ---- */

START_TEST(a_token_that_is_refused_is_not_given_again)
{
    SBX_ON_EXIT(forget) struct sbx_kubeconfig *config = config_of("{token: secret-one}");
    struct sbx_kubernetes_access access;
    good_access(config, 0, &access);
    ck_assert_str_eq(access.headers[0], "Authorization: Bearer secret-one");
    access_fails(config, access.number, SANDBOX_DENIED, "credential-refused", "context 'c'");
    ck_assert_ptr_null(strstr(error.message, "secret-one"));
    sbx_kubernetes_access_end(&access);
    /* Another request may find the cluster in a better mood. */
    ck_assert_str_eq(headers_now(config, 0), "Authorization: Bearer secret-one");
}
END_TEST

START_TEST(a_token_file_is_read_again_after_ten_seconds)
{
    put_file("token", "  one \n");
    SBX_ON_EXIT(forget)
    struct sbx_kubeconfig *config = config_of("{token: not-this, tokenFile: token}");
    struct sbx_kubernetes_access held;
    good_access(config, 0, &held);
    ck_assert_str_eq(held.headers[0], "Authorization: Bearer one");
    put_file("token", "two");
    monotonic_now += 9999;
    ck_assert_str_eq(headers_now(config, 0), "Authorization: Bearer one");
    monotonic_now += 1;
    ck_assert_str_eq(headers_now(config, 0), "Authorization: Bearer two");
    /* What a request that still runs took with it stays. */
    ck_assert_str_eq(held.headers[0], "Authorization: Bearer one");
    sbx_kubernetes_access_end(&held);
}
END_TEST

START_TEST(a_refused_token_file_is_read_at_once)
{
    put_file("token", "one");
    SBX_ON_EXIT(forget) struct sbx_kubeconfig *config = config_of("{tokenFile: token}");
    struct sbx_kubernetes_access access;
    good_access(config, 0, &access);
    uint64_t first = access.number;
    sbx_kubernetes_access_end(&access);
    access_fails(config, first, SANDBOX_DENIED, "credential-refused", "context 'c'");
    put_file("token", "two");
    ck_assert_str_eq(headers_now(config, first), "Authorization: Bearer two");
    good_access(config, first, &access); /* a second one that was refused with it */
    ck_assert_uint_gt(access.number, first);
    sbx_kubernetes_access_end(&access);
}
END_TEST

START_TEST(a_token_file_that_cannot_be_read_changes_nothing)
{
    put_file("token", "one");
    SBX_ON_EXIT(forget) struct sbx_kubeconfig *config = config_of("{tokenFile: token}");
    ck_assert_str_eq(headers_now(config, 0), "Authorization: Bearer one");
    ck_assert_int_eq(unlink(path_of("token")), 0);
    monotonic_now += 20000;
    ck_assert_str_eq(headers_now(config, 0), "Authorization: Bearer one");
    put_file("token", "\n");
    monotonic_now += 20000;
    ck_assert_str_eq(headers_now(config, 0), "Authorization: Bearer one");
    put_file("token", "two");
    monotonic_now += 20000;
    ck_assert_str_eq(headers_now(config, 0), "Authorization: Bearer two");
}
END_TEST

START_TEST(a_token_file_that_never_was_is_named)
{
    SBX_ON_EXIT(forget) struct sbx_kubeconfig *config = config_of("{tokenFile: none}");
    access_fails(config, 0, SANDBOX_DENIED, "credential-file", path_of("none"));
    put_file("none", "a\nb");
    access_fails(config, 0, SANDBOX_DENIED, "credential-file", "holds no token");
    put_file("none", "there");
    ck_assert_str_eq(headers_now(config, 0), "Authorization: Bearer there");

    SBX_ON_EXIT(forget)
    struct sbx_kubeconfig *both = config_of("{token: meanwhile, tokenFile: later}");
    ck_assert_str_eq(headers_now(both, 0), "Authorization: Bearer meanwhile");
}
END_TEST

START_TEST(a_certificate_that_is_renewed_on_disk_is_taken)
{
    put_file("crt", PEM("CERTIFICATE", "b25l"));
    put_file("key", PEM("PRIVATE KEY", "b25l"));
    SBX_ON_EXIT(forget)
    struct sbx_kubeconfig *config = config_of("{client-certificate: crt, client-key: key}");
    struct sbx_kubernetes_access first, second;
    good_access(config, 0, &first);
    put_file("crt", PEM("CERTIFICATE", "dHdv"));
    good_access(config, first.number, &second);
    ck_assert_str_eq(first.peer.certificate, PEM("CERTIFICATE", "b25l"));
    ck_assert_str_eq(second.peer.certificate, PEM("CERTIFICATE", "dHdv"));
    ck_assert_str_eq(second.peer.key, PEM("PRIVATE KEY", "b25l"));
    sbx_kubernetes_access_end(&first);
    sbx_kubernetes_access_end(&second);
}
END_TEST

/* ---- plugins ---- */

#define EXEC   "apiVersion: client.authentication.k8s.io/v1, interactiveMode: IfAvailable"
#define PLUGIN "{exec: {" EXEC ", command: ./bin/plugin}}"
#define CREDENTIAL                                                                                 \
    "{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\","

/* Counts its runs in the file "runs" and gives the tokens t1, t2, …, valid for `status`. */
static void put_counting_plugin(const char *status)
{
    char script[1000];
    snprintf(script, sizeof script,
             "cd '%s' || exit 9\necho x >> runs\nn=$(grep -c x runs)\n"
             "echo '%s\"status\":{\"token\":\"'t$n'\"%s}}'",
             folder, CREDENTIAL, status);
    put_script("bin/plugin", script);
}

static int count_runs(void)
{
    uint8_t *data = NULL;
    size_t size = 0;
    if (sbx_file_read(AT_FDCWD, path_of("runs"), 10000, &data, &size, NULL) != SANDBOX_OK)
        return 0;
    free(data);
    return (int)size / 2;
}

START_TEST(a_plugin_is_told_what_it_needs_and_runs_without_a_shell)
{
    put_script("bin/plugin", "echo \"$1|$2|$EXTRA|$SEEN|$HOME\" > \"$OUT\"\n"
                             "echo \"$KUBERNETES_EXEC_INFO\" >> \"$OUT\"\n"
                             "cat > /dev/null\n" /* its input ends at once */
                             "echo '" CREDENTIAL "\"status\":{\"token\":\"t\"}}'");
    setenv("SEEN", "by everybody", 1);
    char user[800];
    snprintf(user, sizeof user,
             "{exec: {" EXEC ", command: ./bin/plugin, provideClusterInfo: true,"
             " args: ['a; touch x', '$HOME'],"
             " env: [{name: EXTRA, value: 'b c'}, {name: HOME, value: over},"
             " {name: OUT, value: '%s'}]}}",
             path_of("out"));
    SBX_ON_EXIT(forget) struct sbx_kubeconfig *config = config_of(user);
    ck_assert_str_eq(headers_now(config, 0), "Authorization: Bearer t");
    uint8_t *data = NULL;
    size_t size = 0;
    ck_assert_int_eq(sbx_file_read(AT_FDCWD, path_of("out"), 10000, &data, &size, NULL),
                     SANDBOX_OK);
    char *line = strchr((char *)data, '\n');
    *line = '\0';
    ck_assert_str_eq((char *)data, "a; touch x|$HOME|b c|by everybody|over");
    ck_assert_str_eq(line + 1,
                     "{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":"
                     "\"ExecCredential\",\"spec\":{\"interactive\":false,\"cluster\":"
                     "{\"server\":\"https://a:6443\",\"tls-server-name\":\"inner\","
                     "\"certificate-authority-data\":\"" CA_DATA "\",\"config\":{\"audience\":"
                     "\"x\"}}}}\n");
    free(data);
}
END_TEST

START_TEST(a_bare_name_goes_through_path_and_not_beside_the_kubeconfig)
{
    put_script("plugin", "echo beside-it; exit 1");
    put_counting_plugin("");
    char path[400];
    snprintf(path, sizeof path, "%s:%s", path_of("bin"), getenv("PATH"));
    setenv("PATH", path, 1);
    SBX_ON_EXIT(forget)
    struct sbx_kubeconfig *config = config_of("{exec: {" EXEC ", command: plugin}}");
    ck_assert_str_eq(headers_now(config, 0), "Authorization: Bearer t1");
}
END_TEST

START_TEST(a_credential_is_kept_until_a_minute_before_its_end)
{
    put_counting_plugin(",\"expirationTimestamp\":\"2026-11-30T13:30:00.5+01:00\"");
    SBX_ON_EXIT(forget) struct sbx_kubeconfig *config = config_of(PLUGIN);
    ck_assert_str_eq(headers_now(config, 0), "Authorization: Bearer t1");
    wall_now = NOON + 29 * 60000 - 1;
    ck_assert_str_eq(headers_now(config, 0), "Authorization: Bearer t1");
    wall_now = NOON + 29 * 60000;
    ck_assert_str_eq(headers_now(config, 0), "Authorization: Bearer t2");
    ck_assert_int_eq(count_runs(), 2);
}
END_TEST

START_TEST(a_short_credential_is_kept_for_half_its_time)
{
    put_counting_plugin(",\"expirationTimestamp\":\"2026-11-30T12:00:30Z\"");
    SBX_ON_EXIT(forget) struct sbx_kubeconfig *config = config_of(PLUGIN);
    ck_assert_str_eq(headers_now(config, 0), "Authorization: Bearer t1");
    wall_now += 14999;
    ck_assert_str_eq(headers_now(config, 0), "Authorization: Bearer t1");
    wall_now += 1;
    ck_assert_str_eq(headers_now(config, 0), "Authorization: Bearer t2");
    wall_now += 3600000; /* what is over when it comes serves for one request */
    ck_assert_str_eq(headers_now(config, 0), "Authorization: Bearer t3");
    ck_assert_str_eq(headers_now(config, 0), "Authorization: Bearer t4");
}
END_TEST

START_TEST(a_plugin_runs_once_more_when_its_credential_is_refused)
{
    put_counting_plugin("");
    SBX_ON_EXIT(forget) struct sbx_kubeconfig *config = config_of(PLUGIN);
    ck_assert_str_eq(headers_now(config, 0), "Authorization: Bearer t1");
    ck_assert_str_eq(headers_now(config, 1), "Authorization: Bearer t2");
    ck_assert_str_eq(headers_now(config, 1), "Authorization: Bearer t2");
    ck_assert_int_eq(count_runs(), 2);

    put_script("bin/plugin", "echo '" CREDENTIAL "\"status\":{\"token\":\"t2\"}}'");
    access_fails(config, 2, SANDBOX_DENIED, "credential-refused", "gcloud auth login");
}
END_TEST

static void *ask_for_access(void *config)
{
    struct sbx_kubernetes_access access;
    struct sbx_wait own = sbx_wait_alone(20000);
    sandbox_error why = {.status = SANDBOX_OK};
    if (sbx_kubeconfig_access(config, 0, &own, &access, &why) == SANDBOX_OK)
        sbx_kubernetes_access_end(&access);
    return why.status == SANDBOX_OK ? NULL : config;
}

#define ASKING 8

static void start_asking(pthread_t threads[ASKING], struct sbx_kubeconfig *config)
{
    for (int n = 0; n < ASKING; n++)
        ck_assert_int_eq(pthread_create(&threads[n], NULL, ask_for_access, config), 0);
}

/* How many of the threads that asked at once were refused. */
static int count_failures(pthread_t threads[ASKING])
{
    int failures = 0;
    for (int n = 0; n < ASKING; n++) {
        void *result = NULL;
        ck_assert_int_eq(pthread_join(threads[n], &result), 0);
        failures += result != NULL;
    }
    return failures;
}

START_TEST(threads_that_ask_at_once_share_one_run)
{
    put_counting_plugin("");
    SBX_ON_EXIT(forget) struct sbx_kubeconfig *config = config_of(PLUGIN);
    pthread_t threads[ASKING];
    start_asking(threads, config);
    ck_assert_int_eq(count_failures(threads), 0);
    ck_assert_int_eq(count_runs(), 1);
}
END_TEST

START_TEST(a_run_that_fails_fails_for_all_who_waited)
{
    put_script("bin/plugin", "read line < \"$0.go\"; exit 1");
    ck_assert_int_eq(mkfifo(path_of("bin/plugin.go"), 0600), 0);
    SBX_ON_EXIT(forget) struct sbx_kubeconfig *config = config_of(PLUGIN);
    pthread_t threads[ASKING];
    start_asking(threads, config);
    /* Whoever waited for a run needs none of its own: at most as many as there are threads. */
    SBX_ON_EXIT(sbx_close_fd) int go = open(path_of("bin/plugin.go"), O_RDWR | O_CLOEXEC);
    ck_assert_int_eq((int)write(go, "1\n2\n3\n4\n5\n6\n7\n8\n", 16), 16);
    ck_assert_int_eq(count_failures(threads), ASKING);
}
END_TEST

START_TEST(a_plugin_may_give_a_certificate)
{
    put_script("bin/plugin",
               "echo '" CREDENTIAL "\"status\":{\"clientCertificateData\":\"-----BEGIN C\","
               "\"clientKeyData\":\"-----BEGIN K\"}}'");
    SBX_ON_EXIT(forget)
    struct sbx_kubeconfig *config =
        config_of("{as: somebody, exec: {" EXEC ", command: ./bin/plugin}}");
    struct sbx_kubernetes_access access;
    good_access(config, 0, &access);
    ck_assert_str_eq(access.peer.certificate, "-----BEGIN C");
    ck_assert_str_eq(access.peer.key, "-----BEGIN K");
    ck_assert_str_eq(access.headers[0], "Impersonate-User: somebody");
    ck_assert_ptr_null(access.headers[1]);
    sbx_kubernetes_access_end(&access);
}
END_TEST

/* What a plugin does, and what the message must say. */
static const struct {
    const char *script, *words;
} bad_plugins[] = {
    {"echo 'You are not signed in: run x login' >&2; exit 1",
     "ended with code 1: You are not signed in: run x login"},
    {"kill -9 $$", "ended with code 137 and said nothing"},
    {"echo hello", "no ExecCredential in JSON"},
    {"echo '{}'", "no ExecCredential"},
    {"head -c 400000 /dev/zero", "no ExecCredential in JSON"},
    {"echo '{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1beta1\"}'",
     "another apiVersion than 'client.authentication.k8s.io/v1'"},
    {"echo '" CREDENTIAL "\"status\":{}}'", "neither a token nor a certificate"},
    {"echo '" CREDENTIAL "\"status\":{\"token\":\"a\\nb\"}}'", "control characters"},
    {"echo '" CREDENTIAL "\"status\":{\"clientKeyData\":\"x\",\"token\":\"t\"}}'", "only one of"},
    {"echo '" CREDENTIAL "\"status\":{\"token\":\"t\",\"expirationTimestamp\":\"tomorrow\"}}'",
     "no time"},
};

START_TEST(a_plugin_that_fails_is_told_in_its_own_words)
{
    put_script("bin/plugin", bad_plugins[_i].script);
    SBX_ON_EXIT(forget) struct sbx_kubeconfig *config = config_of(PLUGIN);
    access_fails(config, 0, SANDBOX_DENIED, "credential-plugin", bad_plugins[_i].words);
    ck_assert_ptr_nonnull(strstr(error.message, "bin/plugin"));
}
END_TEST

START_TEST(a_plugin_that_is_not_installed_comes_with_its_hint)
{
    SBX_ON_EXIT(forget)
    struct sbx_kubeconfig *config =
        config_of("{exec: {" EXEC ", command: no-such-plugin-here, "
                  "installHint: \"Install it:\\n\\n   apt-get install it\\n\"}}");
    access_fails(config, 0, SANDBOX_DENIED, "credential-plugin",
                 "'no-such-plugin-here' is not installed; Install it: apt-get install it");
}
END_TEST

START_TEST(the_callers_deadline_ends_a_plugin)
{
    put_script("bin/plugin", "exec sleep 60");
    SBX_ON_EXIT(forget) struct sbx_kubeconfig *config = config_of(PLUGIN);
    wait = sbx_wait_alone(100);
    access_fails(config, 0, SANDBOX_TIMED_OUT, "", "deadline");
    put_counting_plugin("");
    wait = sbx_wait_alone(20000);
    ck_assert_str_eq(headers_now(config, 0), "Authorization: Bearer t1");
}
END_TEST

/* ---- what may be shown ---- */

#define TOKEN "ya29.a0AfH6SMBx7Qd_3kz9-Lw"

static const struct {
    const char *said, *shown;
} words[] = {
    {"", ""},
    {"\n  one\n\ttwo \n", "one two"},
    {"F1130 12:00:00.1 1 cred.go:145] print credential failed with error: Failed to retrieve "
     "access token:: failure while executing gcloud, with args [config config-helper "
     "--format=json]: exit status 1",
     "F1130 12:00:00.1 1 cred.go:145] print credential failed with error: Failed to retrieve "
     "access token:: failure while executing gcloud, with args [config config-helper "
     "--format=json]: exit status 1"},
    {"see /usr/lib/google-cloud-sdk/bin/gke-gcloud-auth-plugin and https://example.org/docs/v1",
     "see /usr/lib/google-cloud-sdk/bin/gke-gcloud-auth-plugin and https://example.org/docs/v1"},
    {"token " TOKEN " is over", "token [cut] is over"},
    {"got '" TOKEN "'", "got '[cut]'"},
    {"Authorization: Bearer abc", "Authorization: Bearer [cut]"},
    {"authorization: bearer swordfish!", "authorization: bearer [cut]!"},
    {"password=swordfish", "password=[cut]"},
    {"client_secret: swordfish", "client_secret: [cut]"},
    {"{\"access_token\": \"swordfish\", \"n\": 1}", "{\"access_token\": \"[cut]\", \"n\": 1}"},
    {"the password is wrong", "the password is wrong"},
    {"api key: a-b", "api key: [cut]"},
    {"AKIA0123456789abcdef/wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY==", "[cut]=="},
    {"wrong: -----BEGIN PRIVATE KEY-----\nMIIabc\n-----END PRIVATE KEY-----\nmore", "wrong: [cut]"},
    {"\xff\x01", "\xff\x01"}, /* made one line by whoever makes the error */
};

START_TEST(what_a_plugin_says_is_shown_without_credentials)
{
    char out[400];
    sbx_plugin_words(words[_i].said, out, sizeof out);
    ck_assert_str_eq(out, words[_i].shown);
}
END_TEST

START_TEST(of_much_the_end_is_shown)
{
    char out[20], *said = malloc(100001);
    memset(said, 'a', 100000);
    memcpy(said + 99980, " and the very end xy", 21);
    sbx_plugin_words(said, out, sizeof out);
    ck_assert_str_eq(out, "the very end xy");
    free(said);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kubeconfig_credentials");
    TCase *tables = tcase_create("tables");
    tcase_add_checked_fixture(tables, set_up, tear_down);
    tcase_set_timeout(tables, 60);
    tcase_add_loop_test(tables, a_plugin_that_fails_is_told_in_its_own_words, 0,
                        sizeof bad_plugins / sizeof bad_plugins[0]);
    tcase_add_loop_test(tables, what_a_plugin_says_is_shown_without_credentials, 0,
                        sizeof words / sizeof words[0]);
    suite_add_tcase(suite, tables);
    TCase *cases = tcase_create("cases");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, a_token_that_is_refused_is_not_given_again);
    tcase_add_test(cases, a_token_file_is_read_again_after_ten_seconds);
    tcase_add_test(cases, a_refused_token_file_is_read_at_once);
    tcase_add_test(cases, a_token_file_that_cannot_be_read_changes_nothing);
    tcase_add_test(cases, a_token_file_that_never_was_is_named);
    tcase_add_test(cases, a_certificate_that_is_renewed_on_disk_is_taken);
    tcase_add_test(cases, a_plugin_is_told_what_it_needs_and_runs_without_a_shell);
    tcase_add_test(cases, a_bare_name_goes_through_path_and_not_beside_the_kubeconfig);
    tcase_add_test(cases, a_credential_is_kept_until_a_minute_before_its_end);
    tcase_add_test(cases, a_short_credential_is_kept_for_half_its_time);
    tcase_add_test(cases, a_plugin_runs_once_more_when_its_credential_is_refused);
    tcase_add_test(cases, threads_that_ask_at_once_share_one_run);
    tcase_add_test(cases, a_run_that_fails_fails_for_all_who_waited);
    tcase_add_test(cases, a_plugin_may_give_a_certificate);
    tcase_add_test(cases, a_plugin_that_is_not_installed_comes_with_its_hint);
    tcase_add_test(cases, the_callers_deadline_ends_a_plugin);
    tcase_add_test(cases, of_much_the_end_is_shown);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
