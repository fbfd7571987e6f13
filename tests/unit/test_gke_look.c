/* Names of objects and incarnations, and what claims, Sandboxes and Pods are taken to say. */

#include "drivers/gke/gke.h"
#include "util/memory.h"
#include <check.h>
#include <stdio.h>

static cJSON *parse(const char *text)
{
    cJSON *object = NULL;
    ck_assert_msg(sbx_json_parse(text, strlen(text), 1u << 20, &object, NULL) == SANDBOX_OK, "%s",
                  text);
    return object;
}

/* ---- names ---- */

START_TEST(the_hash_is_the_controllers)
{
    char hash[9];
    sbx_gke_name_hash("", hash);
    ck_assert_str_eq(hash, "811c9dc5");
    sbx_gke_name_hash("a", hash);
    ck_assert_str_eq(hash, "e40c292c");
    sbx_gke_name_hash("foobar", hash);
    ck_assert_str_eq(hash, "bf9cf968");
}
END_TEST

START_TEST(names_fit_where_kubernetes_puts_them)
{
    struct sbx_record record = {.id = "0123456789abcdef0123456789abcdef"};
    char name[SBX_GKE_NAME];
    sbx_gke_claim_name(&record, name);
    ck_assert_str_eq(name, "sandbox-0123456789abcdef0123456789abcdef");
    sbx_gke_record_name("mine", name);
    ck_assert_str_eq(name, "sandbox-record-mine");
    sbx_gke_trigger_name(&record, "fedcba9876543210fedcba9876543210", name);
    ck_assert_uint_le(strlen(name), 61); /* a label's value, with "-9" */
}
END_TEST

START_TEST(an_incarnation_is_printed_and_read)
{
    struct sbx_gke_incarnation parts;
    char text[SBX_INCARNATION_TEXT];
    ck_assert(sbx_gke_incarnation_print("s-1", "p-1", "0a1b", text));
    ck_assert_str_eq(text, "s-1/p-1/0a1b");
    ck_assert(sbx_gke_incarnation_read(text, &parts));
    ck_assert_str_eq(parts.sandbox, "s-1");
    ck_assert_str_eq(parts.pod, "p-1");
    ck_assert_str_eq(parts.uid, "0a1b");
    ck_assert_uint_eq(parts.restarts, 0);
    ck_assert(sbx_gke_incarnation_read("s/p/u/12", &parts));
    ck_assert_uint_eq(parts.restarts, 12);
    static const char *const wrong[] = {"",
                                        "s",
                                        "s/p",
                                        "s/p/",
                                        "//u",
                                        "s//u",
                                        "s/p/u/x",
                                        "s/p/u/0",
                                        "s/p/u/1/2",
                                        "s/p/u/-1",
                                        "s/p/u/99999999999"};
    for (size_t n = 0; n < sizeof wrong / sizeof wrong[0]; n++)
        ck_assert_msg(!sbx_gke_incarnation_read(wrong[n], &parts), "%s", wrong[n]);
    char longest[SBX_INCARNATION_TEXT + 1];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    ck_assert(!sbx_gke_incarnation_print(longest, "p", "u", text));
    ck_assert(!sbx_gke_incarnation_print("", "p", "u", text));
}
END_TEST

START_TEST(times_are_written_as_kubernetes_reads_them)
{
    char text[32];
    sbx_gke_time(0, text);
    ck_assert_str_eq(text, "1970-01-01T00:00:00Z");
    sbx_gke_time(1769851800999, text);
    ck_assert_str_eq(text, "2026-01-31T09:30:00Z");
}
END_TEST

/* ---- Sandboxes ---- */

#define SANDBOX(mode, conditions)                                                                  \
    "{\"kind\":\"Sandbox\",\"metadata\":{\"name\":\"s\",\"generation\":3},\"spec\":"               \
    "{\"operatingMode\":\"" mode "\"},\"status\":{\"conditions\":[" conditions "]}}"
#define CONDITION(type, status, generation)                                                        \
    "{\"type\":\"" type "\",\"status\":\"" status "\",\"observedGeneration\":" generation "}"

static const struct {
    const char *sandbox;
    bool is_ready, is_suspended;
} sandboxes[] = {
    {SANDBOX("Running", CONDITION("Ready", "True", "3")), true, false},
    /* Told of an older spec (P141). */
    {SANDBOX("Running", CONDITION("Ready", "True", "2")), false, false},
    {SANDBOX("Running", CONDITION("Ready", "False", "3")), false, false},
    {SANDBOX("Suspended", CONDITION("Ready", "True", "3")), false, false},
    /* What an old controller leaves behind a resume. */
    {SANDBOX("Running", CONDITION("Suspended", "True", "2") "," CONDITION("Ready", "True", "3")),
     true, false},
    {SANDBOX("Running", CONDITION("Suspended", "True", "3")), false, false},
    {SANDBOX("Suspended", CONDITION("Suspended", "True", "3")), false, true},
    {SANDBOX("Suspended", CONDITION("Suspended", "True", "2")), false, false},
    {SANDBOX("Suspended", CONDITION("Suspended", "False", "3")), false, false},
    {SANDBOX("Running", ""), false, false},
    {"{}", false, false},
};

START_TEST(a_sandbox_is_what_it_says_of_its_present_spec)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *sandbox = parse(sandboxes[_i].sandbox);
    ck_assert_int_eq(sbx_gke_sandbox_is_ready(sandbox), sandboxes[_i].is_ready);
    ck_assert_int_eq(sbx_gke_sandbox_is_suspended(sandbox), sandboxes[_i].is_suspended);
}
END_TEST

/* ---- what will never be ready ---- */

#define NOT_READY(kind, reason, message)                                                           \
    "{\"kind\":\"" kind "\",\"metadata\":{\"generation\":1},\"status\":{\"conditions\":"           \
    "[{\"type\":\"Ready\",\"status\":\"False\",\"observedGeneration\":1,\"reason\":\"" reason      \
    "\",\"message\":\"" message "\"}]}}"
#define CONTAINER(state)                                                                           \
    "{\"kind\":\"Pod\",\"status\":{\"phase\":\"Running\",\"containerStatuses\":"                   \
    "[{\"name\":\"workspace\",\"restartCount\":2,\"state\":" state "}]}}"

static const struct {
    const char *object, *why; /* NULL: it may still come */
} hopes[] = {
    {NOT_READY("SandboxClaim", "WarmPoolNotFound", "SandboxWarmPool \\\"x\\\" not found"),
     "WarmPoolNotFound: SandboxWarmPool \"x\" not found"},
    {NOT_READY("SandboxClaim", "TemplateNotFound", "t"), "TemplateNotFound: t"},
    {NOT_READY("SandboxClaim", "EnvVarsInjectionRejected", "e"), "EnvVarsInjectionRejected: e"},
    {NOT_READY("SandboxClaim", "ClaimExpired", "Claim expired."), "ClaimExpired: Claim expired."},
    {NOT_READY("SandboxClaim", "ReconcilerError", "Error seen: metadata override conflict: a"),
     "ReconcilerError: Error seen: metadata override conflict: a"},
    {NOT_READY("SandboxClaim", "ReconcilerError", "Error seen: target container 'x' not found"),
     "ReconcilerError: Error seen: target container 'x' not found"},
    {NOT_READY("SandboxClaim", "ReconcilerError", "Error seen: connection refused"), NULL},
    {NOT_READY("SandboxClaim", "AdoptionConflict", "a"), NULL},
    /* A copy of its Sandbox's condition, and maybe an old one. */
    {NOT_READY("SandboxClaim", "PodFailed", "Pod failed"), NULL},
    {NOT_READY("Sandbox", "PodFailed", "Pod failed"), "PodFailed: Pod failed"},
    {NOT_READY("Sandbox", "DependenciesNotReady", "Pod does not exist"), NULL},
    {NOT_READY("Sandbox", "ReconcilerError",
               "Error seen: ValidatingAdmissionPolicy 'sandbox-core-policy' denied"),
     "ReconcilerError: Error seen: ValidatingAdmissionPolicy 'sandbox-core-policy' denied"},
    {"{\"kind\":\"Sandbox\",\"metadata\":{\"generation\":2},\"status\":{\"conditions\":[{\"type\":"
     "\"Ready\",\"status\":\"False\",\"observedGeneration\":1,\"reason\":\"PodFailed\"}]}}",
     NULL},
    {CONTAINER("{\"running\":{}}"), NULL},
    {CONTAINER("{\"waiting\":{\"reason\":\"ImagePullBackOff\"}}"), NULL},
    {CONTAINER("{\"waiting\":{\"reason\":\"CrashLoopBackOff\",\"message\":\"back-off\"}}"),
     "container 'workspace' waits: CrashLoopBackOff: back-off"},
    {"{\"kind\":\"Pod\",\"status\":{\"phase\":\"Failed\",\"reason\":\"Evicted\",\"message\":"
     "\"low on memory\"}}",
     "Evicted: low on memory"},
    {"{\"kind\":\"Pod\",\"status\":{\"phase\":\"Failed\",\"containerStatuses\":[{\"name\":\"w\","
     "\"state\":{\"terminated\":{\"reason\":\"OOMKilled\",\"exitCode\":137}}}]}}",
     "container 'w' ended: OOMKilled, exit code 137"},
};

START_TEST(only_what_lasts_is_hopeless)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *object = parse(hopes[_i].object);
    char why[300];
    bool is_hopeless = sbx_gke_is_hopeless(object, why);
    ck_assert_msg(is_hopeless == (hopes[_i].why != NULL), "%s", hopes[_i].object);
    ck_assert_str_eq(why, is_hopeless ? hopes[_i].why : "");
}
END_TEST

START_TEST(restarts_and_owners_are_read)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *pod = parse(CONTAINER("{\"running\":{}}"));
    SBX_ON_EXIT(sbx_json_free)
    cJSON *owned = parse("{\"metadata\":{\"ownerReferences\":[{\"uid\":\"1\"},"
                         "{\"uid\":\"2\",\"controller\":true}]}}");
    ck_assert_uint_eq(sbx_gke_pod_restarts(pod), 2);
    ck_assert(sbx_gke_is_controlled_by(owned, "2"));
    ck_assert(!sbx_gke_is_controlled_by(owned, "1"));
    ck_assert(!sbx_gke_is_controlled_by(owned, ""));
    ck_assert(!sbx_gke_is_controlled_by(pod, "2"));
}
END_TEST

/* ---- images ---- */

#define DIGITS "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

START_TEST(an_image_is_pinned_and_has_its_own_pool)
{
    char pool_name[] = "standard", title[] = "gke://c/n", pinned[] = "r.io/i@sha256:" DIGITS;
    struct sbx_gke driver = {.pool = pool_name, .title = title};
    struct sbx_record record = {.name = "w"};
    char pool[SBX_GKE_NAME];
    sandbox_error error = {0};
    ck_assert_int_eq(sbx_gke_pool_of(&driver, &record, pool, &error), SANDBOX_OK);
    ck_assert_str_eq(pool, "standard");
    record.image = pinned;
    ck_assert_int_eq(sbx_gke_pool_of(&driver, &record, pool, &error), SANDBOX_OK);
    ck_assert_str_eq(pool, "standard-0123456789ab");

    SBX_ON_EXIT(sbx_json_free)
    cJSON *same = parse("{\"spec\":{\"containers\":[{\"name\":\"workspace\",\"image\":"
                        "\"mirror.io/i@sha256:" DIGITS "\"}]}}");
    SBX_ON_EXIT(sbx_json_free)
    cJSON *other =
        parse("{\"spec\":{\"containers\":[{\"name\":\"workspace\",\"image\":\"i:1\"}]}}");
    ck_assert_int_eq(sbx_gke_image_check(&record, same, &error), SANDBOX_OK);
    ck_assert_int_eq(sbx_gke_image_check(&record, other, &error), SANDBOX_FAILED);
    ck_assert_str_eq(error.reason, "wrong-image");

    static const char *const wrong[] = {"i:latest", ("@sha256:" DIGITS), "i@sha256:0123",
                                        "i@sha256:"};
    for (size_t n = 0; n < sizeof wrong / sizeof wrong[0]; n++) {
        record.image = (char *)(uintptr_t)wrong[n];
        ck_assert_int_eq(sbx_gke_pool_of(&driver, &record, pool, &error), SANDBOX_INVALID);
        ck_assert_str_eq(error.reason, "bad-image");
    }
    pool_name[0] = '\0';
    ck_assert_int_eq(sbx_gke_pool_of(&driver, &record, pool, &error), SANDBOX_INVALID);
    ck_assert_str_eq(error.reason, "no-pool");
}
END_TEST

static Suite *look_suite(void)
{
    Suite *suite = suite_create("gke look");
    TCase *all = tcase_create("all");
    tcase_add_test(all, the_hash_is_the_controllers);
    tcase_add_test(all, names_fit_where_kubernetes_puts_them);
    tcase_add_test(all, an_incarnation_is_printed_and_read);
    tcase_add_test(all, times_are_written_as_kubernetes_reads_them);
    tcase_add_loop_test(all, a_sandbox_is_what_it_says_of_its_present_spec, 0,
                        sizeof sandboxes / sizeof sandboxes[0]);
    tcase_add_loop_test(all, only_what_lasts_is_hopeless, 0, sizeof hopes / sizeof hopes[0]);
    tcase_add_test(all, restarts_and_owners_are_read);
    tcase_add_test(all, an_image_is_pinned_and_has_its_own_pool);
    suite_add_tcase(suite, all);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(look_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
