/* Real values are taken out of answers, in every form and however the pieces are cut. */

#include "egress_place.h"

static struct sbx_egress_policy *policy;

#define BASIC "Z2l0OnBhc3N3b3JkMSE=" /* git:password1! */

static void make_policy(void)
{
    policy = egress_policy(
        TABLE_POLICY,
        "[{\"match\": {\"host\": \"api.example.com\", \"headers\": [{\"name\": \"x-api-key\","
        " \"value_exact\": \"" PLACEHOLDER "\"}]}, \"set\": {\"X-Api-Key\": \"" REAL_SECRET
        "\", \"x-short\": \"1234567\"}},"
        "{\"match\": {\"host\": \"api.example.com\", \"headers\": [{\"name\": \"authorization\","
        " \"value_exact\": \"Bearer FAKE\"}]},"
        " \"set\": {\"authorization\": \"Bearer sk/real+token\\\"\"}},"
        "{\"match\": {\"host\": \"github.com\"},"
        " \"set\": {\"authorization\": \"Basic " BASIC "\"}}]");
}

static void drop_policy(void)
{
    sbx_egress_policy_drop(policy);
}

static struct sbx_egress_scrub *scrub_for(const char *name)
{
    struct sbx_egress_scrub *scrub = NULL;
    struct sbx_egress_host host = egress_host(name);
    ck_assert_int_eq(sbx_egress_scrub_new(policy, &host, &scrub, NULL), SANDBOX_OK);
    return scrub;
}

/* What comes out of pieces of that size. Static. */
static const char *scrubbed(const char *host, const char *text, size_t piece)
{
    static char result[1 << 16];
    struct sbx_egress_scrub *scrub = scrub_for(host);
    struct sbx_bytes out = SBX_BYTES(sizeof result - 1);
    size_t size = strlen(text);
    for (size_t at = 0; at < size; at += piece)
        ck_assert(
            sbx_egress_scrub_feed(scrub, text + at, size - at < piece ? size - at : piece, &out));
    ck_assert(sbx_egress_scrub_end(scrub, &out) && sbx_bytes_append(&out, "", 1));
    snprintf(result, sizeof result, "%s", (const char *)sbx_bytes_data(&out));
    sbx_bytes_free(&out);
    sbx_egress_scrub_free(scrub);
    return result;
}

START_TEST(a_value_becomes_the_placeholder_wherever_it_is_cut)
{
    static const char text[] =
        "{\"key\":\"" REAL_SECRET "\",\"REAL-SECRET\":\"REAL-REAL-SECRET-91a\","
        "\"again\":\"" REAL_SECRET REAL_SECRET "\"}REAL-SE";
    static const char right[] =
        "{\"key\":\"" PLACEHOLDER "\",\"REAL-SECRET\":\"REAL-REAL-SECRET-91a\","
        "\"again\":\"" PLACEHOLDER PLACEHOLDER "\"}REAL-SE";
    for (size_t piece = 1; piece <= sizeof text; piece++)
        ck_assert_str_eq(scrubbed("api.example.com", text, piece), right);
}
END_TEST

START_TEST(the_forms_that_servers_show_are_found)
{
    static const char *const forms[] = {
        REAL_SECRET,
        "UkVBTC1TRUNSRVQtOTFhYg==",         /* base64 */
        "eFJFQUwtU0VDUkVULTkxYWJ5",         /* of "x…y": one byte in front */
        "YTpSRUFMLVNFQ1JFVC05MWFi",         /* of "a:…": two bytes in front */
        "5245414c2d5345435245542d39316162", /* hexadecimal */
        "5245414C2D5345435245542D39316162",
        "Bearer sk/real+token\"",
        "sk/real+token\"",
        "sk%2Freal%2Btoken%22",
        "sk%2freal%2btoken%22",
        "sk\\/real+token\\\"",
        "sk/real+token\\\"",
    };
    char text[200];
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        snprintf(text, sizeof text, "before %s after", forms[i]);
        for (size_t piece = 1; piece <= 9; piece += 4) {
            const char *got = scrubbed("api.example.com", text, piece);
            ck_assert_msg(strstr(got, forms[i]) == NULL, "%s", got);
            ck_assert_msg(strncmp(got, "before ", 7) == 0 && strstr(got, " after") != NULL, "%s",
                          got);
        }
    }
}
END_TEST

START_TEST(what_basic_carries_is_a_secret_too)
{
    static const char *const forms[] = {("Basic " BASIC),     BASIC,
                                        "git:password1!",     "password1!",
                                        "git%3Apassword1%21", "cGFzc3dvcmQxIQ=="};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        ck_assert_msg(strstr(scrubbed("github.com", forms[i], 3), forms[i]) == NULL, "%s",
                      forms[i]);
    ck_assert_str_eq(scrubbed("github.com", "git and a password", 5), "git and a password");
}
END_TEST

START_TEST(an_event_stream_is_not_held_back)
{
    struct sbx_egress_scrub *scrub = scrub_for("api.example.com");
    struct sbx_bytes out = SBX_BYTES(1 << 12);
    ck_assert(sbx_egress_scrub_feed(scrub, "data: hello\n\n", 13, &out));
    ck_assert_uint_eq(sbx_bytes_size(&out), 13);
    /* Only what could begin a value waits, and goes on once it is none. */
    ck_assert(sbx_egress_scrub_feed(scrub, "data: REAL-S", 12, &out));
    ck_assert_uint_eq(sbx_bytes_size(&out), 13 + 6);
    ck_assert(sbx_egress_scrub_feed(scrub, "ATURN\n\n", 7, &out));
    ck_assert_uint_eq(sbx_bytes_size(&out), 13 + 6 + 13);
    /* The next body begins without what the last one has held back. */
    ck_assert(sbx_egress_scrub_feed(scrub, "REAL-S", 6, &out));
    ck_assert(sbx_egress_scrub_end(scrub, &out));
    ck_assert_uint_eq(sbx_bytes_size(&out), 13 + 6 + 13 + 6);
    ck_assert(sbx_egress_scrub_feed(scrub, "ECRET-91ab", 10, &out));
    ck_assert(sbx_egress_scrub_end(scrub, &out));
    ck_assert_uint_eq(sbx_bytes_size(&out), 13 + 6 + 13 + 6 + 10);
    sbx_bytes_free(&out);
    sbx_egress_scrub_free(scrub);
}
END_TEST

START_TEST(a_field_is_scrubbed_beside_a_body)
{
    struct sbx_egress_scrub *scrub = scrub_for("api.example.com");
    struct sbx_bytes body = SBX_BYTES(1 << 12);
    struct sbx_bytes field = SBX_BYTES(1 << 12);
    ck_assert(sbx_egress_scrub_feed(scrub, "REAL-SEC", 8, &body));
    ck_assert(sbx_egress_scrub_text(scrub, "k=" REAL_SECRET, 18, &field));
    ck_assert(sbx_egress_scrub_feed(scrub, "RET-91ab!", 9, &body));
    ck_assert(sbx_egress_scrub_end(scrub, &body));
    ck_assert_uint_eq(sbx_bytes_size(&field), 18);
    ck_assert_mem_eq(sbx_bytes_data(&field), "k=" PLACEHOLDER, 18);
    ck_assert_uint_eq(sbx_bytes_size(&body), 17);
    ck_assert_mem_eq(sbx_bytes_data(&body), PLACEHOLDER "!", 17);
    sbx_bytes_free(&body);
    sbx_bytes_free(&field);
    sbx_egress_scrub_free(scrub);
}
END_TEST

START_TEST(other_hosts_and_short_values_are_left_alone)
{
    ck_assert_ptr_null(scrub_for("a.cdn.example.net"));
    ck_assert_str_eq(scrubbed("api.example.com", "1234567 password1!", 4), "1234567 password1!");
    ck_assert_str_eq(scrubbed("api.example.com", "", 1), "");
}
END_TEST

START_TEST(a_limit_is_told_and_nothing_is_lost_in_silence)
{
    struct sbx_egress_scrub *scrub = scrub_for("api.example.com");
    struct sbx_bytes out = SBX_BYTES(8);
    ck_assert(!sbx_egress_scrub_feed(scrub, "much more than eight", 20, &out));
    sbx_bytes_free(&out);
    sbx_egress_scrub_free(scrub);
}
END_TEST

START_TEST(of_two_values_that_begin_alike_the_longer_goes)
{
    sbx_egress_policy_drop(policy);
    policy =
        egress_policy(TABLE_POLICY, "[{\"match\": {\"host\": \"api.example.com\"}, \"set\":"
                                    " {\"a\": \"sk-12345678\", \"b\": \"sk-12345678-and-more\","
                                    " \"c\": \"sk-12345\"}}]");
    for (size_t piece = 1; piece < 30; piece++)
        ck_assert_str_eq(scrubbed("api.example.com",
                                  "sk-12345678-and-more|sk-12345678-an|sk-123456|sk-1234", piece),
                         "[removed]|[removed]-an|[removed]6|sk-1234");
}
END_TEST

START_TEST(whether_a_text_holds_a_value_is_told_for_one_host_and_for_all)
{
    struct sbx_egress_scrub *all = NULL, *one = scrub_for("github.com");
    static const char *const holding[] = {"--key=" REAL_SECRET,   "x" REAL_SECRET "y",
                                          "Z2l0OnBhc3N3b3JkMSE=", "git:password1!",
                                          "sk/real+token\"",      "sk%2Freal%2Btoken%22"};
    static const char *const fine[] = {"", "x", PLACEHOLDER, "REAL-SECRET-91", "1234567"};
    ck_assert_int_eq(sbx_egress_scrub_new(policy, NULL, &all, NULL), SANDBOX_OK);
    for (size_t i = 0; i < sizeof holding / sizeof holding[0]; i++) {
        bool of_github = i == 2 || i == 3;
        ck_assert(sbx_egress_scrub_finds(all, holding[i], strlen(holding[i])));
        ck_assert_int_eq(sbx_egress_scrub_finds(one, holding[i], strlen(holding[i])), of_github);
    }
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++)
        ck_assert(!sbx_egress_scrub_finds(all, fine[i], strlen(fine[i])));
    sbx_egress_scrub_free(all);
    sbx_egress_scrub_free(one);
}
END_TEST

START_TEST(the_longest_value_is_found_in_small_pieces)
{
    static char rules[12000], text[40000], value[SBX_EGRESS_VALUE_MAX + 1];
    for (size_t i = 0; i < SBX_EGRESS_VALUE_MAX; i++)
        value[i] = (char)('!' + (i * 7 + i / 90) % 90);
    for (char *at = value; *at != '\0'; at++)
        if (*at == '"' || *at == '\\')
            *at = 'q';
    snprintf(rules, sizeof rules,
             "[{\"match\": {\"host\": \"api.example.com\"}, \"set\": {\"x\": \"%s\"}}]", value);
    sbx_egress_policy_drop(policy);
    policy = egress_policy(TABLE_POLICY, rules);
    size_t size = (size_t)snprintf(text, sizeof text, "<");
    for (size_t i = 0; i < SBX_EGRESS_VALUE_MAX; i++)
        size += (size_t)snprintf(text + size, sizeof text - size, "%02x", (unsigned)value[i]);
    snprintf(text + size, sizeof text - size, "|%s>", value);
    ck_assert_str_eq(scrubbed("api.example.com", text, 1000), "<[removed]|[removed]>");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("egress scrubbing");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, make_policy, drop_policy);
    tcase_add_test(all, a_value_becomes_the_placeholder_wherever_it_is_cut);
    tcase_add_test(all, the_forms_that_servers_show_are_found);
    tcase_add_test(all, what_basic_carries_is_a_secret_too);
    tcase_add_test(all, an_event_stream_is_not_held_back);
    tcase_add_test(all, a_field_is_scrubbed_beside_a_body);
    tcase_add_test(all, other_hosts_and_short_values_are_left_alone);
    tcase_add_test(all, a_limit_is_told_and_nothing_is_lost_in_silence);
    tcase_add_test(all, of_two_values_that_begin_alike_the_longer_goes);
    tcase_add_test(all, the_longest_value_is_found_in_small_pieces);
    tcase_add_test(all, whether_a_text_holds_a_value_is_told_for_one_host_and_for_all);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
