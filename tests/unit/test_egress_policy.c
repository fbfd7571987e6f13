/* Policies: read strictly, changed as a whole or not at all, told without a secret. */

#include "egress_place.h"

#include <time.h>

static sandbox_error error;

/* Which of the parts is wrong is in the message; that it is refused, in the status. */
static sandbox_status read_policy(const char *text)
{
    struct sbx_egress_policy *policy = NULL;
    sandbox_status status = egress_change(NULL, text, NULL, NULL, &policy, &error);
    ck_assert_int_eq(status == SANDBOX_OK, policy != NULL);
    sbx_egress_policy_drop(policy);
    return status;
}

static bool allows(const struct sbx_egress_policy *policy, const char *name)
{
    struct sbx_egress_host host = egress_host(name);
    return sbx_egress_policy_allows(policy, &host);
}

static bool allows_http(const struct sbx_egress_policy *policy, const char *name)
{
    struct sbx_egress_host host = egress_host(name);
    return sbx_egress_policy_allows_http(policy, &host);
}

static char *told(const struct sbx_egress_policy *policy)
{
    cJSON *parts[] = {sbx_egress_policy_tell(policy), sbx_egress_policy_tell_rules(policy)};
    char *texts[] = {cJSON_PrintUnformatted(parts[0]), cJSON_PrintUnformatted(parts[1])};
    char *all = sbx_format("%s%s", texts[0], texts[1]);
    for (size_t i = 0; i < 2; i++) {
        cJSON_Delete(parts[i]);
        free(texts[i]);
    }
    return all;
}

START_TEST(nothing_is_allowed_unless_it_is_said)
{
    struct sbx_egress_policy *fresh = sbx_egress_policy_new(egress_key);
    struct sbx_egress_policy *empty = egress_policy("{\"allow\": []}", NULL);
    struct sbx_egress_policy *none = egress_policy("{\"mode\": \"deny-all\"}", NULL);
    ck_assert(!allows(fresh, "a.example") && !allows_http(fresh, "a.example"));
    ck_assert(!allows(empty, "a.example") && !allows_http(empty, "a.example"));
    ck_assert(!allows(none, "a.example") && !allows_http(none, "a.example"));
    sbx_egress_policy_drop(fresh);
    sbx_egress_policy_drop(empty);
    sbx_egress_policy_drop(none);
}
END_TEST

START_TEST(each_list_is_for_its_own_kind)
{
    struct sbx_egress_policy *policy =
        egress_policy("{\"allow\": [\"a.example\"], \"http\": [\"b.example\"]}", NULL);
    ck_assert(allows(policy, "a.example") && !allows(policy, "b.example"));
    ck_assert(allows_http(policy, "b.example") && !allows_http(policy, "a.example"));
    ck_assert_int_eq(sbx_egress_policy_ech(policy), SBX_EGRESS_ECH_DENY);
    sbx_egress_policy_drop(policy);
    policy = egress_policy("{\"mode\": \"allow-all\", \"ech\": \"allow-grease\","
                           " \"allow\": [\"named.internal\"]}",
                           NULL);
    ck_assert(allows(policy, "any.example") && !allows_http(policy, "any.example"));
    ck_assert(!allows(policy, "other.internal") && allows(policy, "named.internal"));
    ck_assert_int_eq(sbx_egress_policy_ech(policy), SBX_EGRESS_ECH_ALLOW_GREASE);
    sbx_egress_policy_drop(policy);
}
END_TEST

START_TEST(what_is_not_known_is_refused_by_its_name)
{
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"{\"colour\": 1}", "policy has no member 'colour'"},
        {"{\"Allow\": []}", "policy has no member 'Allow'"},
        {"{\"mode\": \"some\"}", "policy.mode"},
        {"{\"mode\": 7}", "policy.mode"},
        {"{\"mode\": null}", "policy.mode"},
        {"{\"ech\": \"allow\"}", "policy.ech"},
        {"{\"allow\": \"a.example\"}", "policy.allow is no list"},
        {"{\"allow\": [\"a.example\", 7]}", "policy.allow[1]"},
        {"{\"http\": [\"1.2.3.4\"]}", "policy.http[0]: addresses"},
        {"{\"allow\": [\"*\"]}", "allow-all"},
        {"{\"mode\": \"deny-all\", \"http\": [\"a.example\"]}", "deny-all"},
        {"[]", "policy is no object"},
        {"\"custom\"", "policy is no object"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ck_assert_msg(read_policy(wrong[i].text) == SANDBOX_INVALID, "%s", wrong[i].text);
        ck_assert_msg(strstr(error.message, wrong[i].says) != NULL, "%s: %s", wrong[i].text,
                      error.message);
        ck_assert_str_eq(error.reason, "bad-request");
    }
    ck_assert_int_eq(read_policy("{\"cidrs\": []}"), SANDBOX_UNSUPPORTED);
    ck_assert_str_eq(error.reason, "cidrs-unsupported");
}
END_TEST

START_TEST(a_body_is_json_in_one_reading)
{
    static const char *const wrong[] = {"",
                                        "{",
                                        "{\"a\":1,\"a\":2}",
                                        "{\"a\":{\"b\":1,\"b\":1}}",
                                        "{} {}",
                                        "{\"a\":\"x\\u0000y\"}",
                                        "nonsense"};
    cJSON *json = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        ck_assert_msg(sbx_egress_json_parse(wrong[i], strlen(wrong[i]), 100, &json, &error) ==
                          SANDBOX_INVALID,
                      "%s", wrong[i]);
    ck_assert_int_eq(sbx_egress_json_parse("{\"a\":\"x\0y\"}", 10, 100, &json, &error),
                     SANDBOX_INVALID);
    ck_assert_int_eq(sbx_egress_json_parse("[1,2]", 5, 4, &json, &error), SANDBOX_LIMIT);
    /* A backslash that is escaped itself escapes nothing. */
    ck_assert_int_eq(sbx_egress_json_parse("{\"a\":\"\\\\u0000\"}", 15, 100, &json, &error),
                     SANDBOX_OK);
    ck_assert_str_eq(sbx_json_text(json, "a"), "\\u0000");
    cJSON_Delete(json);
}
END_TEST

START_TEST(parts_may_be_set_in_any_order)
{
    struct sbx_egress_policy *first = NULL, *second = NULL, *third = NULL, *both = NULL;
    ck_assert_int_eq(egress_change(NULL, TABLE_POLICY, NULL, NULL, &first, &error), SANDBOX_OK);
    ck_assert_int_eq(egress_change(first, NULL, TABLE_RULES, NULL, &second, &error), SANDBOX_OK);
    sbx_egress_policy_drop(first);
    ck_assert_int_eq(egress_change(NULL, NULL, TABLE_RULES, NULL, &first, &error), SANDBOX_OK);
    ck_assert_int_eq(egress_change(first, TABLE_POLICY, NULL, NULL, &third, &error), SANDBOX_OK);
    both = egress_policy(TABLE_POLICY, TABLE_RULES);
    char *texts[] = {told(second), told(third), told(both)};
    ck_assert_str_eq(texts[0], texts[2]);
    ck_assert_str_eq(texts[1], texts[2]);
    ck_assert_uint_eq(sbx_egress_policy_rule_count(third), 2);
    for (size_t i = 0; i < 3; i++)
        free(texts[i]);
    sbx_egress_policy_drop(first);
    sbx_egress_policy_drop(second);
    sbx_egress_policy_drop(third);
    sbx_egress_policy_drop(both);
}
END_TEST

START_TEST(additions_come_after_what_is_set_anew)
{
    struct sbx_egress_policy *old = egress_policy(TABLE_POLICY, TABLE_RULES);
    struct sbx_egress_policy *policy = NULL;
    ck_assert_int_eq(egress_change(old, "{\"allow\": [\"new.example\"]}", "[]",
                                   "{\"allow\": [\"added.example\"], \"transformations\":"
                                   " [{\"match\": {\"host\": \"a.example\"},"
                                   " \"set\": {\"x\": \"12345678\"}}]}",
                                   &policy, &error),
                     SANDBOX_OK);
    ck_assert(allows(policy, "new.example") && allows(policy, "added.example"));
    ck_assert(!allows(policy, "api.example.com") && allows(old, "api.example.com"));
    ck_assert_uint_eq(sbx_egress_policy_rule_count(policy), 1);
    sbx_egress_policy_drop(policy);
    ck_assert_int_eq(egress_change(old, NULL, NULL, "{\"http\": [\"b.example\"]}", &policy, &error),
                     SANDBOX_OK);
    ck_assert(allows_http(policy, "b.example") && allows_http(policy, "deb.example.org"));
    ck_assert_uint_eq(sbx_egress_policy_rule_count(policy), 2);
    sbx_egress_policy_drop(policy);
    sbx_egress_policy_drop(old);
    /* What denies all allows no more than what is added. */
    ck_assert_int_eq(egress_change(NULL, "{\"mode\": \"deny-all\"}", NULL,
                                   "{\"allow\": [\"a.example\"]}", &policy, &error),
                     SANDBOX_OK);
    ck_assert(allows(policy, "a.example") && !allows(policy, "b.example"));
    sbx_egress_policy_drop(policy);
}
END_TEST

START_TEST(a_change_that_is_wrong_in_any_part_changes_nothing)
{
    struct sbx_egress_policy *old = egress_policy(TABLE_POLICY, TABLE_RULES);
    struct sbx_egress_policy *policy = NULL;
    char *before = told(old);
    ck_assert_int_eq(egress_change(old, "{\"mode\": \"allow-all\"}", "[{}]", NULL, &policy, &error),
                     SANDBOX_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "transformations[0]"));
    ck_assert_int_eq(egress_change(old, "{\"mode\": \"allow-all\"}", NULL,
                                   "{\"allow\": [\"a.example\", \"*\"]}", &policy, &error),
                     SANDBOX_INVALID);
    ck_assert_ptr_null(policy);
    char *after = told(old);
    ck_assert_str_eq(before, after);
    free(before);
    free(after);
    sbx_egress_policy_drop(old);
}
END_TEST

START_TEST(what_is_told_holds_no_value)
{
    struct sbx_egress_policy *policy = egress_policy(TABLE_POLICY, TABLE_RULES);
    struct sbx_egress_policy *same = egress_policy(NULL, TABLE_RULES);
    char *text = told(policy);
    ck_assert_ptr_null(strstr(text, "REAL"));
    ck_assert_ptr_null(strstr(text, "UkVBTC"));
    ck_assert_ptr_null(strstr(text, "PLACEHOLDER"));
    ck_assert_ptr_nonnull(strstr(text, "[{\"host\":\"api.example.com\",\"headers\":[\"x-api-key\"],"
                                       "\"digest\":\""));
    cJSON *one = sbx_egress_policy_tell_rules(policy);
    cJSON *other = sbx_egress_policy_tell_rules(same);
    ck_assert(cJSON_Compare(one, other, 1));
    ck_assert_str_ne(sbx_json_text(one->child, "digest"),
                     sbx_json_text(one->child->next, "digest"));
    ck_assert_uint_eq(strlen(sbx_json_text(one->child, "digest")), 12);
    cJSON_Delete(one);
    cJSON_Delete(other);
    free(text);
    sbx_egress_policy_drop(policy);
    sbx_egress_policy_drop(same);
}
END_TEST

START_TEST(a_thousand_hosts_are_in_force_at_once)
{
    cJSON *json = cJSON_CreateObject();
    cJSON *list = cJSON_AddArrayToObject(json, "allow");
    char name[64];
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "h%d.some.example.com", i);
        cJSON_AddItemToArray(list, cJSON_CreateString(name));
    }
    struct sbx_egress_policy *old = egress_policy(NULL, TABLE_RULES);
    const struct sbx_egress_change change = {json, NULL, NULL};
    double best = 1e9;
    for (int round = 0; round < 20; round++) {
        struct sbx_egress_policy *policy = NULL;
        struct timespec start, end;
        clock_gettime(CLOCK_MONOTONIC, &start);
        ck_assert_int_eq(sbx_egress_policy_change(old, &change, &policy, &error), SANDBOX_OK);
        clock_gettime(CLOCK_MONOTONIC, &end);
        double took =
            (double)(end.tv_sec - start.tv_sec) * 1e3 + (double)(end.tv_nsec - start.tv_nsec) / 1e6;
        best = took < best ? took : best;
        ck_assert(allows(policy, "h999.some.example.com"));
        sbx_egress_policy_drop(policy);
    }
    /* A tenth of a millisecond it is; a sanitizer and a busy machine may take their time. */
    ck_assert_msg(best < 20, "%g ms", best);
    sbx_egress_policy_drop(old);
    cJSON_Delete(json);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("egress policy");
    TCase *all = tcase_create("all");
    tcase_add_test(all, nothing_is_allowed_unless_it_is_said);
    tcase_add_test(all, each_list_is_for_its_own_kind);
    tcase_add_test(all, what_is_not_known_is_refused_by_its_name);
    tcase_add_test(all, a_body_is_json_in_one_reading);
    tcase_add_test(all, parts_may_be_set_in_any_order);
    tcase_add_test(all, additions_come_after_what_is_set_anew);
    tcase_add_test(all, a_change_that_is_wrong_in_any_part_changes_nothing);
    tcase_add_test(all, what_is_told_holds_no_value);
    tcase_add_test(all, a_thousand_hosts_are_in_force_at_once);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
