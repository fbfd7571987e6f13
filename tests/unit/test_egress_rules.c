/* Rules: what they are matched by, what they may set, and what they refuse at registration. */

#include "egress_place.h"

#include <stdlib.h>
#include <time.h>

static sandbox_error error;

/* The rule with these members of "match" beside the host, and this "set". */
static sandbox_status read_rule(const char *match, const char *set, struct sbx_egress_rule **out)
{
    char text[20000];
    snprintf(text, sizeof text, "{\"match\": {\"host\": \"a.example\"%s%s}, \"set\": %s}",
             match[0] == '\0' ? "" : ", ", match, set);
    cJSON *json = egress_json(text);
    sandbox_status status = sbx_egress_rule_read(json, egress_key, out, &error);
    cJSON_Delete(json);
    return status;
}

static struct sbx_egress_rule *rule_of(const char *match)
{
    struct sbx_egress_rule *rule = NULL;
    ck_assert_msg(read_rule(match, "{\"x\": \"12345678\"}", &rule) == SANDBOX_OK, "%s: %s", match,
                  error.message);
    return rule;
}

static struct sbx_egress_text text_of(const char *text)
{
    return (struct sbx_egress_text){text, strlen(text)};
}

/* Whether the rule matches a request with one field. */
static bool matches(const char *match, const char *method, const char *path, const char *value)
{
    struct sbx_egress_rule *rule = rule_of(match);
    struct sbx_egress_field fields[] = {{text_of("other"), text_of("1")},
                                        {text_of("X-Key"), text_of(value)}};
    const struct sbx_egress_subject subject = {text_of(method), text_of(path), fields, 2};
    bool does = sbx_egress_rule_matches(rule, &subject);
    sbx_egress_rule_drop(rule);
    return does;
}

static bool path_fits(const char *match, const char *path)
{
    char text[400];
    snprintf(text, sizeof text, "\"path\": {%s}", match);
    return matches(text, "GET", path, "");
}

static bool query_fits(const char *match, const char *path)
{
    char text[400];
    snprintf(text, sizeof text, "\"query\": [{\"name\": \"q\"%s}]", match);
    return matches(text, "GET", path, "");
}

static bool header_fits(const char *match, const char *value)
{
    char text[400];
    snprintf(text, sizeof text, "\"headers\": [{\"name\": \"x-key\"%s}]", match);
    return matches(text, "GET", "/", value);
}

START_TEST(a_rule_without_more_matches_every_request)
{
    ck_assert(matches("", "GET", "/", "") && matches("", "POST", "/a?b", "c"));
}
END_TEST

START_TEST(methods_are_matched_as_they_are)
{
    ck_assert(matches("\"method\": [\"GET\", \"POST\"]", "POST", "/", ""));
    ck_assert(!matches("\"method\": [\"GET\", \"POST\"]", "PUT", "/", ""));
}
END_TEST

START_TEST(paths_are_matched_without_their_query)
{
    ck_assert(path_fits("\"exact\": \"/v1\"", "/v1?x=/v2"));
    ck_assert(!path_fits("\"exact\": \"/v1\"", "/v1/"));
    ck_assert(!path_fits("\"exact\": \"/v1\"", "/V1"));
    ck_assert(path_fits("\"starts_with\": \"/v1/\"", "/v1/messages"));
    ck_assert(!path_fits("\"starts_with\": \"/v1/\"", "/v1"));
    ck_assert(!path_fits("\"starts_with\": \"/v1/\"", "/x?/v1/"));
}
END_TEST

START_TEST(an_expression_fits_the_whole_or_not_at_all)
{
    ck_assert(path_fits("\"regex\": \"/v[0-9]+/(chat|messages)\"", "/v12/chat"));
    ck_assert(!path_fits("\"regex\": \"/v[0-9]+/(chat|messages)\"", "/v12/chat/admin"));
    ck_assert(!path_fits("\"regex\": \"/v[0-9]+/(chat|messages)\"", "/x/v12/chat"));
    ck_assert(path_fits("\"regex\": \"/a|/ab\"", "/ab"));
    /* None of these talks its way out of that. */
    ck_assert(!path_fits("\"regex\": \"/a|.*b\"", "/a/secret"));
    ck_assert(!path_fits("\"regex\": \"/a|^/b\"", "/a/secret"));
    ck_assert(!path_fits("\"regex\": \"/a$|/b\"", "/b/secret"));
    ck_assert(!header_fits(", \"value_regex\": \"a\"", "a\tb"));
    ck_assert(header_fits(", \"value_regex\": \"^a.*$\"", "abc"));
    ck_assert(header_fits(", \"value_regex\": \"x*\"", ""));
    ck_assert(header_fits(", \"value_regex\": \"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\"",
                          "01234567-89ab-cdef-0123-456789abcdef"));
    ck_assert(header_fits(", \"value_regex\": \"[])(]+[[:digit:])]{1,100}\\\\.\"", ")](7)."));
}
END_TEST

START_TEST(parameters_are_decoded_before_they_are_matched)
{
    ck_assert(query_fits(", \"value_exact\": \"a b/c\"", "/?x=1&q=a+b%2Fc"));
    ck_assert(query_fits(", \"value_exact\": \"1\"", "/?q=2&q=1"));
    ck_assert(query_fits(", \"value_exact\": \"1\"", "/?%71=1"));
    ck_assert(query_fits("", "/?q"));
    ck_assert(query_fits(", \"value_exact\": \"\"", "/?q="));
    ck_assert(!query_fits("", "/?qq=1&r=q"));
    ck_assert(!query_fits("", "/q=1"));
    ck_assert(!query_fits(", \"value_exact\": \"%zz\"", "/?q=%zz"));
    ck_assert(!query_fits(", \"value_regex\": \"ab*\"", "/?q=a%00b"));
}
END_TEST

START_TEST(any_instance_of_a_field_may_match)
{
    ck_assert(header_fits(", \"value_exact\": \"v\"", "v"));
    ck_assert(!header_fits(", \"value_exact\": \"v\"", "V"));
    ck_assert(header_fits("", "anything"));
    ck_assert(header_fits(", \"value_starts_with\": \"Bearer \"", "Bearer x"));
    ck_assert(!matches("\"headers\": [{\"name\": \"missing\"}]", "GET", "/", ""));
    /* All of them have to hold. */
    ck_assert(!matches("\"method\": [\"GET\"], \"headers\": [{\"name\": \"x-key\"},"
                       " {\"name\": \"missing\"}]",
                       "GET", "/", "v"));
}
END_TEST

START_TEST(what_cannot_be_sent_or_matched_is_refused_at_registration)
{
    static const char *const matches[] = {
        "\"method\": [\"get\"]",
        "\"method\": \"GET\"",
        "\"method\": []",
        "\"path\": {}",
        "\"path\": {\"exact\": \"v1\"}",
        "\"path\": {\"exact\": \"/a\", \"regex\": \"/b\"}",
        "\"path\": {\"startsWith\": \"/a\"}",
        "\"query\": {\"name\": \"q\"}",
        "\"query\": [{\"value_exact\": \"1\"}]",
        "\"query\": [{\"name\": \"\"}]",
        "\"headers\": [{\"name\": \"x y\"}]",
        "\"headers\": [{\"name\": \"x\", \"value\": \"1\"}]",
        "\"headers\": [{\"name\": \"x\", \"value_exact\": 7}]",
        "\"headers\": [7]",
        "\"port\": 443",
    };
    static const char *const sets[] = {
        "{}",
        "[]",
        "null",
        "{\"\": \"v\"}",
        "{\"x\": \"\"}",
        "{\"x\": 7}",
        "{\"x\": \"a\\nb\"}",
        "{\"x\": \" v\"}",
        "{\"x\": \"v\\t\"}",
        "{\"x\": \"\\u007f\"}",
        "{\"x:\": \"v\"}",
        "{\"Host\": \"v\"}",
        "{\"Range\": \"v\"}",
        "{\"accept-encoding\": \"v\"}",
        "{\"keep-alive\": \"v\"}",
        "{\"proxy-anything\": \"v\"}",
        "{\"expect\": \"v\"}",
        "{\"x\": \"12345678\", \"X\": \"12345678\"}",
    };
    struct sbx_egress_rule *rule = NULL;
    for (size_t i = 0; i < sizeof matches / sizeof matches[0]; i++) {
        ck_assert_msg(read_rule(matches[i], "{\"x\": \"12345678\"}", &rule) == SANDBOX_INVALID,
                      "%s", matches[i]);
        ck_assert_msg(strncmp(error.message, "match", 5) == 0, "%s", error.message);
    }
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        ck_assert_msg(read_rule("", sets[i], &rule) == SANDBOX_INVALID, "%s", sets[i]);
    static const char *const hosts[] = {"*.a.example", "1.2.3.4", "a.example:443", "[::1]", ""};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        char text[200];
        snprintf(text, sizeof text, "{\"match\": {\"host\": \"%s\"}, \"set\": {\"x\": \"v\"}}",
                 hosts[i]);
        cJSON *json = egress_json(text);
        ck_assert_msg(sbx_egress_rule_read(json, egress_key, &rule, &error) == SANDBOX_INVALID,
                      "%s", hosts[i]);
        cJSON_Delete(json);
        ck_assert_msg(i > 0 || strstr(error.message, "exactly one host") != NULL, "%s",
                      error.message);
    }
    ck_assert_ptr_null(rule);
}
END_TEST

START_TEST(a_refusal_tells_no_value)
{
    struct sbx_egress_rule *rule = NULL;
    ck_assert_int_eq(read_rule("", "{\"x\": \"" REAL_SECRET "\\n\"}", &rule), SANDBOX_INVALID);
    ck_assert_ptr_null(strstr(error.message, REAL_SECRET));
    ck_assert_int_eq(read_rule("", "{\"x: " REAL_SECRET "\": \"1\"}", &rule), SANDBOX_INVALID);
    ck_assert_ptr_null(strstr(error.message, REAL_SECRET));
    ck_assert_int_eq(read_rule("\"sk-" REAL_SECRET "\": 1", "{\"x\": \"1\"}", &rule),
                     SANDBOX_INVALID);
    ck_assert_ptr_null(strstr(error.message, REAL_SECRET));
}
END_TEST

START_TEST(expressions_that_could_run_long_are_refused)
{
    static const char *const wrong[] = {"(a)\\\\1",
                                        "a{1001}",
                                        "(a{40}){40}",
                                        "a{1,99999999999999}",
                                        "\\\\w+",
                                        "\\\\",
                                        "[",
                                        "(",
                                        "\\u00fc",
                                        "a\\\\<b",
                                        "a)",
                                        "a)|(b",
                                        "((a*){30}){30}",
                                        "(abcdefghij|klmnopqrst){0,50}",
                                        "[a",
                                        "[[:alpha:]",
                                        "a{600}a{600}",
                                        "a+++++++++++++++++++",
                                        "((((((((((((a+)+)+)+)+)+)+)+)+)+)+)+",
                                        "x(a{600}|b{600})"};
    char match[600];
    struct sbx_egress_rule *rule = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        snprintf(match, sizeof match, "\"path\": {\"regex\": \"%s\"}", wrong[i]);
        ck_assert_msg(read_rule(match, "{\"x\": \"v\"}", &rule) == SANDBOX_INVALID, "%s", wrong[i]);
    }
    char pattern[SBX_EGRESS_REGEX_MAX + 2];
    memset(pattern, 'a', sizeof pattern - 1);
    pattern[sizeof pattern - 1] = '\0';
    snprintf(match, sizeof match, "\"path\": {\"regex\": \"%s\"}", pattern);
    ck_assert_int_eq(read_rule(match, "{\"x\": \"v\"}", &rule), SANDBOX_INVALID);
}
END_TEST

START_TEST(an_expression_made_to_run_long_does_not)
{
    static const char *const slow[] = {"(a*)*b",     "(a|a)*b",   "(a|aa)+b", "(a?){200}a{100}b",
                                       "(.*a){10}b", "((a*)*)*b", "(x+x+)+y"};
    static char path[4097];
    memset(path, 'a', sizeof path - 1);
    for (size_t i = 0; i < sizeof slow / sizeof slow[0]; i++) {
        struct timespec start, end;
        char match[200];
        snprintf(match, sizeof match, "\"regex\": \"%s\"", slow[i]);
        clock_gettime(CLOCK_MONOTONIC, &start);
        ck_assert(!path_fits(match, path));
        clock_gettime(CLOCK_MONOTONIC, &end);
        ck_assert_msg(end.tv_sec - start.tv_sec < 5, "%s: %ld s", slow[i],
                      (long)(end.tv_sec - start.tv_sec));
    }
}
END_TEST

START_TEST(paths_with_two_readings_are_known)
{
    static const char *const two[] = {"/a/../b", "/./a",      "/a/..", "/a%2fb",
                                      "/a%2Fb",  "/%2e%2e/b", "/a//b", "/a\\b",
                                      "/a%5Cb",  "/a/..;x/b", "/a%00"};
    static const char *const one[] = {"/", "/a", "/a/", "/a/b?c=/../d", "/a..b/.c/d.", "/%41", "*"};
    for (size_t i = 0; i < sizeof two / sizeof two[0]; i++)
        ck_assert_msg(sbx_egress_path_is_ambiguous(text_of(two[i])), "%s", two[i]);
    for (size_t i = 0; i < sizeof one / sizeof one[0]; i++)
        ck_assert_msg(!sbx_egress_path_is_ambiguous(text_of(one[i])), "%s", one[i]);
}
END_TEST

/* The value that goes out for "x" where both rules match. */
static const char *set_by(const char *first, const char *second)
{
    static char sent[2000];
    char rules[1000];
    snprintf(rules, sizeof rules,
             "[{\"match\": {\"host\": \"api.example.com\"}, \"set\": %s},"
             " {\"match\": {\"host\": \"api.example.com\"}, \"set\": %s}]",
             first, second);
    struct sbx_egress_policy *policy = egress_policy(TABLE_POLICY, rules);
    static const char text[] = "GET /https/api.example.com/ HTTP/1.1\r\nHost: a.b\r\nx: 0\r\n\r\n";
    struct egress_result result = egress_ask(policy, text, strlen(text));
    ck_assert(result.allowed);
    snprintf(sent, sizeof sent, "%s", (const char *)sbx_bytes_data(&result.sent));
    sbx_bytes_free(&result.sent);
    sbx_egress_policy_drop(policy);
    return sent;
}

START_TEST(all_rules_that_match_apply_and_the_later_holds)
{
    const char *sent = set_by("{\"x\": \"first\", \"y\": \"why\"}", "{\"X\": \"second\"}");
    ck_assert_ptr_nonnull(strstr(sent, "\r\nX: second\r\n"));
    ck_assert_ptr_nonnull(strstr(sent, "\r\ny: why\r\n"));
    ck_assert_ptr_null(strstr(sent, "first"));
    ck_assert_ptr_null(strstr(sent, "x: 0"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("egress rules");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_test(all, a_rule_without_more_matches_every_request);
    tcase_add_test(all, methods_are_matched_as_they_are);
    tcase_add_test(all, paths_are_matched_without_their_query);
    tcase_add_test(all, an_expression_fits_the_whole_or_not_at_all);
    tcase_add_test(all, parameters_are_decoded_before_they_are_matched);
    tcase_add_test(all, any_instance_of_a_field_may_match);
    tcase_add_test(all, what_cannot_be_sent_or_matched_is_refused_at_registration);
    tcase_add_test(all, a_refusal_tells_no_value);
    tcase_add_test(all, expressions_that_could_run_long_are_refused);
    tcase_add_test(all, an_expression_made_to_run_long_does_not);
    tcase_add_test(all, paths_with_two_readings_are_known);
    tcase_add_test(all, all_rules_that_match_apply_and_the_later_holds);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
