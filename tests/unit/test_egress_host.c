/* Names of hosts: one reading of each spelling, and patterns that match what they say. */

#include "egress_place.h"

#include <time.h>

static const char *read_text(const char *text, struct sbx_egress_host *host)
{
    return sbx_egress_host_read(text, strlen(text), host);
}

static enum sbx_egress_hosts_added add(struct sbx_egress_hosts *hosts, const char *pattern)
{
    const char *fault = NULL;
    enum sbx_egress_hosts_added added =
        sbx_egress_hosts_add(hosts, pattern, strlen(pattern), &fault);
    ck_assert((added == SBX_EGRESS_HOSTS_BAD) == (fault != NULL));
    return added;
}

static bool has(const struct sbx_egress_hosts *hosts, const char *name)
{
    struct sbx_egress_host host = egress_host(name);
    return sbx_egress_hosts_has(hosts, &host);
}

START_TEST(one_name_has_one_spelling)
{
    static const char *const spellings[] = {"api.example.com", "API.Example.COM",
                                            "api.example.com."};
    for (size_t i = 0; i < 3; i++)
        ck_assert_str_eq(egress_host(spellings[i]).name, "api.example.com");
    ck_assert_str_eq(egress_host("[2001:DB8:0::1]").name, "2001:db8::1");
    ck_assert_str_eq(egress_host("a_b.xn--bcher-kva.example").name, "a_b.xn--bcher-kva.example");
}
END_TEST

START_TEST(what_is_no_name_is_refused)
{
    static const char *const wrong[] = {
        "",           ".",          "..",       "a..b",     "a.example..", ".a.example",
        "-a.example", "a-.example", "a b",      "a/b",      "a@b",         "a:b",
        "a%2eb",      "a\\b",       "*.a.b",    "a\tb",     "[a.example]", "[1.2.3.4]",
        "[::1%eth0]", "[::1",       "[]",       "::1",      "[::1]x",      "b\xc3\xbc.example",
        "127.1",      "0x7f000001", "0177.0.1", "1.2.3.4.", "2852039166",  "1.2.3.4.5",
        "a.0x",       "a.123",      "1.2.3.04", "256.1.1.1"};
    struct sbx_egress_host host;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        ck_assert_msg(read_text(wrong[i], &host) != NULL, "'%s' is a host", wrong[i]);
    ck_assert_ptr_nonnull(sbx_egress_host_read("evil.test\0.example.com", 22, &host));
}
END_TEST

START_TEST(names_and_labels_have_their_lengths)
{
    char name[300];
    struct sbx_egress_host host;
    for (size_t i = 0; i < 256; i++)
        name[i] = i % 64 == 63 ? '.' : 'a';
    ck_assert_ptr_null(sbx_egress_host_read(name, 253, &host));
    ck_assert_ptr_nonnull(sbx_egress_host_read(name, 254, &host));
    name[253] = '.';
    ck_assert_ptr_null(sbx_egress_host_read(name, 254, &host));
    memset(name, 'a', 64);
    ck_assert_ptr_null(sbx_egress_host_read(name, 63, &host));
    ck_assert_ptr_nonnull(sbx_egress_host_read(name, 64, &host));
}
END_TEST

START_TEST(addresses_are_literals_and_never_names)
{
    struct sbx_egress_host ipv4 = egress_host("93.184.216.34");
    struct sbx_egress_host ipv6 = egress_host("[2606:2800::1]");
    ck_assert(ipv4.is_literal && ipv4.address.size == 4);
    ck_assert(ipv6.is_literal && ipv6.address.size == 16);
    ck_assert(!egress_host("1.2.3.example").is_literal);
    ck_assert(!egress_host("0x7f.example").is_literal);
}
END_TEST

START_TEST(ports_are_written_in_their_shortest_way)
{
    static const char *const wrong[] = {"a.b:",    "a.b:0",  "a.b:0443", "a.b:+1",   "a.b:65536",
                                        "a.b:1:2", "a.b: 1", "a.b:4 4",  "[::1]443", "a.b:1x"};
    struct sbx_egress_host host;
    uint16_t port = 0;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        ck_assert_msg(sbx_egress_authority_read(wrong[i], strlen(wrong[i]), 443, &host, &port) !=
                          NULL,
                      "'%s' is taken", wrong[i]);
    ck_assert_ptr_null(sbx_egress_authority_read("[::1]:65535", 11, 0, &host, &port));
    ck_assert_uint_eq(port, 65535);
    ck_assert_ptr_null(sbx_egress_authority_read("a.b", 3, 80, &host, &port));
    ck_assert_uint_eq(port, 80);
    ck_assert_ptr_nonnull(sbx_egress_authority_read("a.b", 3, 0, &host, &port));
}
END_TEST

START_TEST(names_of_a_machine_or_a_network_are_local)
{
    static const char *const local[] = {"localhost", "a.localhost", "metadata.google.internal",
                                        "printer",   "nas.local",   "x.home.arpa"};
    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++) {
        struct sbx_egress_host host = egress_host(local[i]);
        ck_assert_msg(sbx_egress_host_is_local(&host), "%s", local[i]);
    }
    struct sbx_egress_host host = egress_host("notlocal.example");
    ck_assert(!sbx_egress_host_is_local(&host));
    host = egress_host("local.example");
    ck_assert(!sbx_egress_host_is_local(&host));
}
END_TEST

START_TEST(a_star_is_every_name_below_and_not_the_one_itself)
{
    struct sbx_egress_hosts *hosts = sbx_egress_hosts_new();
    ck_assert_int_eq(add(hosts, "*.Example.NET."), SBX_EGRESS_HOSTS_ADDED);
    ck_assert_int_eq(add(hosts, "one.example.com"), SBX_EGRESS_HOSTS_ADDED);
    ck_assert_int_eq(add(hosts, "ONE.example.com"), SBX_EGRESS_HOSTS_ADDED);
    ck_assert_uint_eq(sbx_egress_hosts_count(hosts), 2);
    ck_assert_str_eq(sbx_egress_hosts_at(hosts, 0), "*.example.net");
    ck_assert(has(hosts, "a.example.net") && has(hosts, "a.b.c.example.net."));
    ck_assert(!has(hosts, "example.net") && !has(hosts, "evilexample.net"));
    ck_assert(!has(hosts, "example.net.evil.test") && !has(hosts, "net"));
    ck_assert(has(hosts, "one.example.com") && !has(hosts, "two.one.example.com"));
    ck_assert(!has(hosts, "1.2.3.4") && !has(hosts, "[2001:db8::1]"));
    sbx_egress_hosts_free(hosts);
}
END_TEST

START_TEST(patterns_that_say_too_much_or_nothing_are_refused)
{
    static const char *const wrong[] = {"*",       "*.com",   "*.",      "a.*.b",    "*a.b",
                                        "a*.b.c",  "**.b.c",  "1.2.3.4", "[::1]",    "*.1.2.3.4",
                                        "a.b:443", "http://", "*.*.b.c", "a.b/path", ""};
    struct sbx_egress_hosts *hosts = sbx_egress_hosts_new();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        ck_assert_msg(add(hosts, wrong[i]) == SBX_EGRESS_HOSTS_BAD, "'%s'", wrong[i]);
    ck_assert_uint_eq(sbx_egress_hosts_count(hosts), 0);
    ck_assert(!has(hosts, "a.b"));
    sbx_egress_hosts_free(hosts);
}
END_TEST

static double look_up_seconds(const struct sbx_egress_hosts *hosts, unsigned *found)
{
    struct timespec start, end;
    struct sbx_egress_host names[] = {egress_host("h77.some.example.com"),
                                      egress_host("not.on.the.list.example.org"),
                                      egress_host("a.w5.example.net")};
    double best = 1e9;
    for (int round = 0; round < 7; round++) {
        clock_gettime(CLOCK_MONOTONIC, &start);
        for (int i = 0; i < 20000; i++)
            *found += sbx_egress_hosts_has(hosts, &names[i % 3]);
        clock_gettime(CLOCK_MONOTONIC, &end);
        double took =
            (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9;
        best = took < best ? took : best;
    }
    return best;
}

START_TEST(ten_thousand_patterns_are_looked_up_as_one_is)
{
    struct sbx_egress_hosts *one = sbx_egress_hosts_new();
    struct sbx_egress_hosts *many = sbx_egress_hosts_new();
    char pattern[64];
    ck_assert_int_eq(add(one, "h77.some.example.com"), SBX_EGRESS_HOSTS_ADDED);
    for (int i = 0; i < SBX_EGRESS_HOSTS_MAX; i++) {
        snprintf(pattern, sizeof pattern, i % 2 == 0 ? "*.w%d.example.net" : "h%d.some.example.com",
                 i);
        ck_assert_int_eq(add(many, pattern), SBX_EGRESS_HOSTS_ADDED);
    }
    ck_assert_int_eq(add(many, "one.too.many"), SBX_EGRESS_HOSTS_FULL);
    for (int i = 0; i < SBX_EGRESS_HOSTS_MAX; i++) {
        snprintf(pattern, sizeof pattern, i % 2 == 0 ? "x.w%d.example.net" : "h%d.some.example.com",
                 i);
        ck_assert(has(many, pattern));
        pattern[0] = 'y';
        ck_assert_int_eq(has(many, pattern), i % 2 == 0);
    }
    unsigned found = 0;
    double for_one = look_up_seconds(one, &found);
    double for_many = look_up_seconds(many, &found);
    ck_assert_uint_gt(found, 0);
    /* A list would take thousands of times as long; the rest is the processor's cache. */
    ck_assert_msg(for_many < for_one * 10, "%g s for one, %g s for many", for_one, for_many);
    sbx_egress_hosts_free(one);
    sbx_egress_hosts_free(many);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("egress hosts");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_test(all, one_name_has_one_spelling);
    tcase_add_test(all, what_is_no_name_is_refused);
    tcase_add_test(all, names_and_labels_have_their_lengths);
    tcase_add_test(all, addresses_are_literals_and_never_names);
    tcase_add_test(all, ports_are_written_in_their_shortest_way);
    tcase_add_test(all, names_of_a_machine_or_a_network_are_local);
    tcase_add_test(all, a_star_is_every_name_below_and_not_the_one_itself);
    tcase_add_test(all, patterns_that_say_too_much_or_nothing_are_refused);
    tcase_add_test(all, ten_thousand_patterns_are_looked_up_as_one_is);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
