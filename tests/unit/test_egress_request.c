/* Requests: one reading or none, what is decided, and what goes to the server. */

#include "egress_place.h"

static struct sbx_egress_policy *policy;

static void make_policy(void)
{
    policy = egress_policy(TABLE_POLICY, TABLE_RULES);
}

static void drop_policy(void)
{
    sbx_egress_policy_drop(policy);
}

static struct egress_result ask(const char *text)
{
    return egress_ask(policy, text, strlen(text));
}

/* The status of a refusal, or 0. */
static int status_of(const char *text)
{
    struct egress_result result = ask(text);
    sbx_bytes_free(&result.sent);
    return result.allowed ? 0 : result.refusal.status;
}

static const char *reason_of(const char *text)
{
    struct egress_result result = ask(text);
    sbx_bytes_free(&result.sent);
    return result.allowed ? "" : result.refusal.reason;
}

/* The whole head that goes to the server. Static. */
static const char *sent_for(const char *text)
{
    static char sent[1 << 16];
    struct egress_result result = ask(text);
    ck_assert_msg(result.allowed, "%s: %s", text, result.refusal.text);
    snprintf(sent, sizeof sent, "%s", (const char *)sbx_bytes_data(&result.sent));
    sbx_bytes_free(&result.sent);
    return sent;
}

static size_t count_of(const char *text, const char *word)
{
    size_t count = 0;
    for (const char *at = text; (at = strcasestr(at, word)) != NULL; at++)
        count++;
    return count;
}

START_TEST(a_plain_request_goes_on_in_its_one_form)
{
    ck_assert_str_eq(sent_for("GET http://DEB.example.org/a?b=%2e HTTP/1.1\r\n"
                              "Host: deb.example.org\r\nAccept:\t*/* \r\nX-Empty:\r\n\r\n"),
                     "GET /a?b=%2e HTTP/1.1\r\nHost: deb.example.org\r\nAccept: */*\r\n"
                     "X-Empty:\r\nConnection: close\r\n\r\n");
    ck_assert_str_eq(sent_for("POST http://deb.example.org HTTP/1.1\r\nHost: x.example\r\n"
                              "content-length: 7\r\n\r\n"),
                     "POST / HTTP/1.1\r\nHost: deb.example.org\r\nContent-Length: 7\r\n"
                     "Connection: close\r\n\r\n");
    ck_assert_str_eq(sent_for("POST http://deb.example.org/ HTTP/1.1\r\nHost: deb.example.org\r\n"
                              "Transfer-Encoding: Chunked\r\nTrailer: a\r\n\r\n"),
                     "POST / HTTP/1.1\r\nHost: deb.example.org\r\nTransfer-Encoding: chunked\r\n"
                     "Connection: close\r\n\r\n");
    ck_assert_str_eq(sent_for("OPTIONS http://deb.example.org HTTP/1.0\r\n\r\n"),
                     "OPTIONS * HTTP/1.1\r\nHost: deb.example.org\r\nConnection: close\r\n\r\n");
}
END_TEST

START_TEST(every_instance_of_a_field_makes_way_for_the_real_value)
{
    const char *sent = sent_for("GET /https/api.example.com/v1 HTTP/1.1\r\nHost: 127.0.0.1:3128\r\n"
                                "X-API-Key: other\r\nx-api-key: " PLACEHOLDER "\r\n"
                                "X-Api-Key: " PLACEHOLDER "\r\nAccept: */*\r\n\r\n");
    ck_assert_uint_eq(count_of(sent, "x-api-key"), 1);
    ck_assert_ptr_nonnull(strstr(sent, "x-api-key: " REAL_SECRET "\r\n"));
    ck_assert_uint_eq(count_of(sent, "PLACEHOLDER"), 0);
    ck_assert_ptr_nonnull(strstr(sent, "Accept: */*"));
    ck_assert_uint_eq(count_of(sent, "host:"), 1);
}
END_TEST

START_TEST(only_the_whole_placeholder_in_its_own_field_earns_the_value)
{
    static const char *const fields[] = {
        "x-api-key: " PLACEHOLDER "x", "x-api-key: x" PLACEHOLDER,    "x-api-key: placeholder-5f2c",
        "x-other: " PLACEHOLDER,       "authorization: " PLACEHOLDER, "x-api-key2: " PLACEHOLDER,
    };
    char text[400];
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        snprintf(text, sizeof text,
                 "GET /https/api.example.com/ HTTP/1.1\r\nHost: a.b\r\n%s\r\n\r\n", fields[i]);
        ck_assert_msg(strstr(sent_for(text), REAL_SECRET) == NULL, "%s", fields[i]);
    }
    ck_assert_ptr_null(strstr(sent_for("GET /https/a.cdn.example.net/ HTTP/1.1\r\nHost: a.b\r\n"
                                       "x-api-key: " PLACEHOLDER "\r\n\r\n"),
                              REAL_SECRET));
}
END_TEST

START_TEST(plain_requests_never_carry_a_credential)
{
    struct sbx_egress_policy *both = egress_policy(
        "{\"allow\": [\"api.example.com\"], \"http\": [\"api.example.com\"]}", TABLE_RULES);
    static const char text[] = "GET http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n"
                               "x-api-key: " PLACEHOLDER "\r\n\r\n";
    struct egress_result result = egress_ask(both, text, strlen(text));
    ck_assert(result.allowed);
    ck_assert_ptr_null(strstr((const char *)sbx_bytes_data(&result.sent), REAL_SECRET));
    ck_assert_ptr_nonnull(strstr((const char *)sbx_bytes_data(&result.sent), PLACEHOLDER));
    sbx_bytes_free(&result.sent);
    sbx_egress_policy_drop(both);
}
END_TEST

START_TEST(two_lengths_are_one_too_many)
{
    static const char *const fields[] = {
        "Content-Length: 5\r\nTransfer-Encoding: chunked", "Content-Length: 5\r\nContent-Length: 5",
        "Transfer-Encoding: chunked\r\nContent-Length: 0",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"};
    char text[400];
    for (size_t i = 0; i < 4; i++) {
        snprintf(text, sizeof text,
                 "POST http://deb.example.org/ HTTP/1.1\r\nHost: deb.example.org\r\n%s\r\n\r\n",
                 fields[i]);
        ck_assert_msg(status_of(text) == 400, "%s", fields[i]);
    }
}
END_TEST

START_TEST(fields_of_one_connection_end_here)
{
    const char *sent = sent_for("GET http://deb.example.org/ HTTP/1.1\r\nHost: deb.example.org\r\n"
                                "Upgrade: h2c\r\nHTTP2-Settings: x\r\nTE: trailers\r\n"
                                "Keep-Alive: 5\r\nProxy-Connection: a\r\nProxy-Authorization: b\r\n"
                                "Trailer: c\r\nExpect: 100-continue\r\n\r\n");
    ck_assert_str_eq(sent, "GET / HTTP/1.1\r\nHost: deb.example.org\r\nConnection: close\r\n\r\n");
}
END_TEST

START_TEST(connection_may_not_name_the_field_of_a_credential)
{
    ck_assert_int_eq(status_of("GET /https/api.example.com/ HTTP/1.1\r\nHost: a.b\r\n"
                               "Connection: close\r\nConnection: a, X-Api-Key ,b\r\n"
                               "x-api-key: " PLACEHOLDER "\r\n\r\n"),
                     400);
    /* Where no rule knows it, it is a field like any other, and gone. */
    ck_assert_uint_eq(count_of(sent_for("GET /https/a.cdn.example.net/ HTTP/1.1\r\nHost: a.b\r\n"
                                        "Connection: x-api-key\r\nx-api-key: 1\r\n\r\n"),
                               "x-api-key"),
                      0);
}
END_TEST

START_TEST(answers_with_credentials_are_asked_for_whole_and_readable)
{
    const char *sent = sent_for("GET /https/api.example.com/ HTTP/1.1\r\nHost: a.b\r\n"
                                "Range: bytes=0-7\r\nIf-Range: x\r\nAccept-Encoding: br\r\n\r\n");
    ck_assert_uint_eq(count_of(sent, "range"), 0);
    ck_assert_uint_eq(count_of(sent, "accept-encoding"), 1);
    ck_assert_ptr_nonnull(strstr(sent, "Accept-Encoding: identity\r\n"));
    /* A host without rules has nothing to hide. */
    sent = sent_for("GET /https/a.cdn.example.net/ HTTP/1.1\r\nHost: a.b\r\n"
                    "Range: bytes=0-7\r\nAccept-Encoding: br\r\n\r\n");
    ck_assert_ptr_nonnull(strstr(sent, "Range: bytes=0-7"));
    ck_assert_ptr_nonnull(strstr(sent, "Accept-Encoding: br"));
}
END_TEST

START_TEST(routes_take_the_path_as_it_is)
{
    ck_assert_int_eq(strncmp(sent_for("GET /https/github.com/a/../%2e//b?c=/../d HTTP/1.1\r\n"
                                      "Host: a.b\r\n\r\n"),
                             "GET /a/../%2e//b?c=/../d HTTP/1.1\r\nHost: github.com\r\n", 53),
                     0);
    ck_assert_int_eq(strncmp(sent_for("GET /https/github.com HTTP/1.1\r\nHost: a.b\r\n\r\n"),
                             "GET / HTTP/1.1\r\n", 16),
                     0);
    ck_assert_int_eq(strncmp(sent_for("GET /https/github.com:443/x HTTP/1.1\r\nHost: a.b\r\n\r\n"),
                             "GET /x HTTP/1.1\r\n", 17),
                     0);
    ck_assert_str_eq(reason_of("GET /https/github.com:8443/ HTTP/1.1\r\nHost: a.b\r\n\r\n"),
                     SBX_EGRESS_PORT_REFUSED);
    ck_assert_int_eq(status_of("GET /https/github.com?x HTTP/1.1\r\nHost: a.b\r\n\r\n"), 400);
    ck_assert_int_eq(status_of("GET /HTTPS/github.com/ HTTP/1.1\r\nHost: a.b\r\n\r\n"), 400);
    ck_assert_int_eq(status_of("GET /metrics HTTP/1.1\r\nHost: a.b\r\n\r\n"), 400);
}
END_TEST

START_TEST(shape_comes_before_the_policy)
{
    ck_assert_int_eq(status_of("CONNECT evil.test:443 HTTP/1.1\r\n\r\n"), 400);
    ck_assert_int_eq(status_of("CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test\r\n\r\n"), 403);
    ck_assert_int_eq(status_of("CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com\r\n"
                               "Content-Length: 0\r\n\r\n"),
                     0);
    ck_assert_int_eq(status_of("CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com\r\n"
                               "Content-Length: 1\r\n\r\n"),
                     400);
    ck_assert_int_eq(status_of("CONNECT api.example.com:443 HTTP/1.1\r\n"
                               "Host: api.example.com:444\r\n\r\n"),
                     400);
    ck_assert_int_eq(status_of("GET ftp://deb.example.org/ HTTP/1.1\r\nHost: a.b\r\n\r\n"), 400);
    ck_assert_int_eq(status_of("GET urn:a:b HTTP/1.1\r\nHost: a.b\r\n\r\n"), 400);
    ck_assert_int_eq(status_of("GET http://deb.example.org/ HTTP/1.2\r\nHost: a.b\r\n\r\n"), 505);
    ck_assert_int_eq(status_of("GET http://deb.example.org/ http/1.1\r\nHost: a.b\r\n\r\n"), 400);
    ck_assert_int_eq(status_of("GET http://deb.example.org/ HTTP/1.1\r\nHost:\r\n\r\n"), 400);
    ck_assert_int_eq(status_of("GET http://deb.example.org/ HTTP/1.1\r\nHost: a.b\r\n"
                               "Expect: something\r\n\r\n"),
                     400);
    ck_assert_int_eq(status_of("GET  http://deb.example.org/ HTTP/1.1\r\nHost: a.b\r\n\r\n"), 400);
    ck_assert_int_eq(status_of("TRACK http://deb.example.org/ HTTP/1.1\r\nHost: a.b\r\n\r\n"), 405);
}
END_TEST

START_TEST(addresses_are_refused_by_what_they_are)
{
    ck_assert_str_eq(reason_of("CONNECT 100.64.0.1:443 HTTP/1.0\r\n\r\n"),
                     SBX_EGRESS_PRIVATE_ADDRESS);
    ck_assert_str_eq(reason_of("CONNECT [fd00::1]:443 HTTP/1.0\r\n\r\n"),
                     SBX_EGRESS_PRIVATE_ADDRESS);
    ck_assert_str_eq(reason_of("CONNECT 8.8.8.8:443 HTTP/1.0\r\n\r\n"), SBX_EGRESS_HOST_REFUSED);
    struct sbx_egress_policy *all = egress_policy("{\"mode\": \"allow-all\"}", NULL);
    static const char *const texts[] = {
        "CONNECT 8.8.8.8:443 HTTP/1.0\r\n\r\n", "CONNECT localhost:443 HTTP/1.0\r\n\r\n",
        "CONNECT a.internal:443 HTTP/1.0\r\n\r\n", "GET http://any.example/ HTTP/1.0\r\n\r\n"};
    for (size_t i = 0; i < 4; i++) {
        struct egress_result result = egress_ask(all, texts[i], strlen(texts[i]));
        ck_assert_msg(!result.allowed && result.refusal.status == 403, "%s", texts[i]);
        sbx_bytes_free(&result.sent);
    }
    struct egress_result result = egress_ask(all, "CONNECT any.example:443 HTTP/1.0\r\n\r\n", 36);
    ck_assert(result.allowed);
    sbx_bytes_free(&result.sent);
    sbx_egress_policy_drop(all);
}
END_TEST

START_TEST(a_refusal_says_why_and_keeps_what_it_knows)
{
    struct egress_result result =
        ask("GET /https/evil.test/secret?token=abc HTTP/1.1\r\nHost: a.b\r\n"
            "x-api-key: " PLACEHOLDER "\r\n\r\n");
    struct sbx_bytes answer = SBX_BYTES(2048);
    ck_assert(!result.allowed);
    ck_assert_str_eq(sbx_egress_kind_name(result.request.kind), "route");
    ck_assert_str_eq(result.request.host.name, "evil.test");
    ck_assert(sbx_egress_refusal_write(&result.refusal, &answer));
    ck_assert(sbx_bytes_append(&answer, "", 1));
    const char *text = (const char *)sbx_bytes_data(&answer);
    const char *body = strstr(text, "\r\n\r\n");
    ck_assert_int_eq(strncmp(text, "HTTP/1.1 403 Forbidden\r\n", 24), 0);
    ck_assert_ptr_nonnull(strstr(text, "\r\nX-Proxy-Error: host-not-allowed; 'evil.test'"));
    ck_assert_ptr_nonnull(strstr(text, "\r\nConnection: close\r\n"));
    ck_assert_ptr_null(strstr(text, "token"));
    ck_assert_ptr_null(strstr(text, PLACEHOLDER));
    char length[64];
    snprintf(length, sizeof length, "Content-Length: %zu\r\n", strlen(body + 4));
    ck_assert_ptr_nonnull(strstr(text, length));
    sbx_bytes_free(&answer);
}
END_TEST

START_TEST(what_is_told_in_a_refusal_is_one_line_of_ascii)
{
    struct sbx_egress_refusal refusal;
    sbx_egress_refuse(&refusal, 400, SBX_EGRESS_BAD_REQUEST, "%s", "a\r\nX: 1\x7f\xc3\xbc");
    ck_assert_str_eq(refusal.text, "a??X: 1???");
}
END_TEST

static struct sbx_egress_head head;

static bool parse(const char *text)
{
    struct sbx_egress_refusal refusal;
    return sbx_egress_head_parse(text, strlen(text), &head, &refusal);
}

START_TEST(a_head_says_whether_the_connection_goes_on)
{
    ck_assert(parse("GET / HTTP/1.1\r\nHost: a.b\r\n\r\n") && head.keeps_alive);
    ck_assert(parse("GET / HTTP/1.1\r\nHost: a.b\r\nConnection: x, Close\r\n\r\n"));
    ck_assert(!head.keeps_alive);
    ck_assert(parse("GET / HTTP/1.0\r\n\r\n") && !head.keeps_alive);
    ck_assert(parse("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n") && head.keeps_alive);
    ck_assert(parse("PUT / HTTP/1.1\r\nHost: a.b\r\nExpect: 100-Continue\r\n"
                    "Content-Length: 123456789012345678\r\n\r\n"));
    ck_assert(head.expects_continue && head.body == SBX_EGRESS_BODY_LENGTH);
    ck_assert_uint_eq(head.body_size, 123456789012345678U);
    ck_assert(parse("PUT / HTTP/1.1\r\nHost: a.b\r\nContent-Length: 0\r\n\r\n"));
    ck_assert_int_eq(head.body, SBX_EGRESS_BODY_NONE);
    ck_assert(!parse("PUT / HTTP/1.1\r\nHost: a.b\r\nContent-Length: 1234567890123456789\r\n\r\n"));
    ck_assert(!parse("GET / HTTP/1.1\r\nHost: a.b\r\n"));
    ck_assert(!parse("GET / HTTP/1.1\r\nHost: a.b\r\n\r\nx"));
}
END_TEST

START_TEST(the_scan_ends_at_the_head_and_takes_it_up_again)
{
    static const char text[] = "GET / HTTP/1.1\r\nHost: a.b\r\n\r\nGET http://";
    struct sbx_egress_refusal refusal;
    size_t looked = 0;
    for (size_t size = 0; size < 29; size++)
        ck_assert_int_eq(sbx_egress_head_scan(text, size, &looked, &refusal), SBX_EGRESS_HEAD_MORE);
    ck_assert_int_eq(sbx_egress_head_scan(text, sizeof text - 1, &looked, &refusal),
                     SBX_EGRESS_HEAD_WHOLE);
    ck_assert_uint_eq(looked, 29);
    /* Told without a head that never ends: TLS on this port, bare lines, an empty line. */
    static const char *const wrong[] = {"\x16\x03\x01", "GET / HTTP/1.1\n", "\r\n", "GET /\rx",
                                        "GET / HTTP/1.1\r\n\n"};
    for (size_t i = 0; i < 5; i++) {
        looked = 0;
        ck_assert_msg(sbx_egress_head_scan(wrong[i], strlen(wrong[i]), &looked, &refusal) ==
                          SBX_EGRESS_HEAD_BAD,
                      "%zu", i);
        ck_assert_int_eq(refusal.status, 400);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("egress requests");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, make_policy, drop_policy);
    tcase_add_test(all, a_plain_request_goes_on_in_its_one_form);
    tcase_add_test(all, every_instance_of_a_field_makes_way_for_the_real_value);
    tcase_add_test(all, only_the_whole_placeholder_in_its_own_field_earns_the_value);
    tcase_add_test(all, plain_requests_never_carry_a_credential);
    tcase_add_test(all, two_lengths_are_one_too_many);
    tcase_add_test(all, fields_of_one_connection_end_here);
    tcase_add_test(all, connection_may_not_name_the_field_of_a_credential);
    tcase_add_test(all, answers_with_credentials_are_asked_for_whole_and_readable);
    tcase_add_test(all, routes_take_the_path_as_it_is);
    tcase_add_test(all, shape_comes_before_the_policy);
    tcase_add_test(all, addresses_are_refused_by_what_they_are);
    tcase_add_test(all, a_refusal_says_why_and_keeps_what_it_knows);
    tcase_add_test(all, what_is_told_in_a_refusal_is_one_line_of_ascii);
    tcase_add_test(all, a_head_says_whether_the_connection_goes_on);
    tcase_add_test(all, the_scan_ends_at_the_head_and_takes_it_up_again);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
