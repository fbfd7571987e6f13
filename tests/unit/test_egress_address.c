/* Addresses that a proxy must never connect to, and ranges with their exact ends. */

#include "egress_place.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

#define TRIES 20000

static cJSON *ranges_of_table;

static void load_table(void)
{
    static char text[1 << 14];
    char path[512];
    const char *folder = getenv("SANDBOX_TEST_DATA");
    snprintf(path, sizeof path, "%s/ip-deny-ranges.json", folder == NULL ? "" : folder);
    FILE *file = fopen(path, "re");
    ck_assert_msg(file != NULL, "no %s", path);
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    ranges_of_table = cJSON_ParseWithLength(text, size);
    ck_assert_ptr_nonnull(ranges_of_table);
}

static void drop_table(void)
{
    cJSON_Delete(ranges_of_table);
}

static struct sbx_egress_address address(const char *text)
{
    struct sbx_egress_address out;
    ck_assert_msg(sbx_egress_address_parse(text, &out), "%s", text);
    return out;
}

static struct sbx_egress_range range(const char *text)
{
    struct sbx_egress_range out;
    const char *fault = sbx_egress_range_parse(text, &out);
    ck_assert_msg(fault == NULL, "%s %s", text, fault);
    return out;
}

static const char *kind_of(const char *text)
{
    struct sbx_egress_address one = address(text);
    return sbx_egress_address_kind(&one);
}

/* Its first and its last address, and one in the middle. */
static void check_denied(const char *text)
{
    struct sbx_egress_range denied = range(text);
    struct sbx_egress_address middle = denied.first;
    for (size_t i = 0; i < middle.size; i++)
        middle.bytes[i] |= (uint8_t)(denied.last.bytes[i] & 0x55);
    ck_assert_msg(sbx_egress_address_kind(&denied.first) != NULL, "%s", text);
    ck_assert_msg(sbx_egress_address_kind(&denied.last) != NULL, "%s", text);
    ck_assert_msg(sbx_egress_address_kind(&middle) != NULL, "%s", text);
}

START_TEST(every_range_of_the_table_is_refused_to_its_ends)
{
    const cJSON *item = NULL;
    size_t seen = 0;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(ranges_of_table, "ipv4"))
    {
        check_denied(sbx_json_text(item, "cidr"));
        seen++;
    }
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(ranges_of_table, "ipv6_exceptions_inside_2000_3"))
    {
        check_denied(sbx_json_text(item, "cidr"));
        seen++;
    }
    cJSON_ArrayForEach(item,
                       cJSON_GetObjectItem(ranges_of_table, "ipv6_outside_2000_3_for_reference"))
    {
        char text[64];
        snprintf(text, sizeof text, "%.*s", (int)strcspn(item->valuestring, " "),
                 item->valuestring);
        check_denied(text);
        seen++;
    }
    ck_assert_uint_eq(seen, 19 + 5 + 13);
}
END_TEST

/* What the table says, asked one range after the other. */
static bool table_denies(const struct sbx_egress_address *one)
{
    const cJSON *item = NULL;
    const char *list = one->size == 4 ? "ipv4" : "ipv6_exceptions_inside_2000_3";
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(ranges_of_table, list))
    {
        struct sbx_egress_range denied = range(sbx_json_text(item, "cidr"));
        if (sbx_egress_range_has(&denied, one))
            return true;
    }
    return one->size == 16 && (one->bytes[0] & 0xe0) != 0x20;
}

static uint64_t seed = 88172645463325252U;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static long tries(void)
{
    const char *count = getenv("SANDBOX_TEST_COUNT");
    long wanted = count == NULL ? TRIES : strtol(count, NULL, 10);
    return wanted < TRIES ? TRIES : wanted;
}

static struct sbx_egress_address random_address(void)
{
    struct sbx_egress_address one = {.size = next_random() % 2 == 0 ? 4 : 16};
    for (size_t i = 0; i < one.size; i++)
        one.bytes[i] = (uint8_t)(next_random() >> 11);
    /* Many of them where something is decided. */
    if (one.size == 16 && next_random() % 2 == 0)
        memcpy(one.bytes, "\x20\x01\x00", next_random() % 2 == 0 ? 2 : 3);
    for (size_t i = 1; i < one.size && next_random() % 3 == 0; i++)
        one.bytes[i] = next_random() % 2 == 0 ? 0xff : 0;
    return one;
}

START_TEST(what_the_table_does_not_name_is_public)
{
    long public = 0;
    for (long i = 0; i < tries(); i++) {
        struct sbx_egress_address one = random_address();
        ck_assert_int_eq(sbx_egress_address_kind(&one) != NULL, table_denies(&one));
        public += sbx_egress_address_kind(&one) == NULL;
    }
    ck_assert_int_gt(public, tries() / 10);
    ck_assert_ptr_null(kind_of("8.8.8.8"));
    ck_assert_ptr_null(kind_of("172.32.0.0"));
    ck_assert_ptr_null(kind_of("2606:2800:220:1:248:1893:25c8:1946"));
    ck_assert_str_eq(kind_of("::ffff:8.8.8.8"), "IPv4-mapped");
    ck_assert_str_eq(kind_of("64:ff9b::808:808"), "NAT64");
    ck_assert_str_eq(kind_of("2002:808:808::"), "6to4");
    ck_assert_str_eq(kind_of("2001:0:808:808::"), "Teredo");
    ck_assert_str_eq(kind_of("4000::1"), "outside of 2000::/3");
}
END_TEST

/* P167. Bit by bit: the plainest matcher there is. */
static bool plain_has(const struct sbx_egress_address *prefix, unsigned bits,
                      const struct sbx_egress_address *one)
{
    if (prefix->size != one->size)
        return false;
    for (unsigned i = 0; i < bits; i++)
        if ((prefix->bytes[i / 8] ^ one->bytes[i / 8]) >> (7 - i % 8) & 1)
            return false;
    return true;
}

static struct sbx_egress_range random_range(struct sbx_egress_address *prefix, unsigned *bits)
{
    char text[64];
    *prefix = random_address();
    *bits = (unsigned)(next_random() % (prefix->size * 8U + 1));
    for (unsigned i = *bits; i < prefix->size * 8U; i++)
        prefix->bytes[i / 8] &= (uint8_t) ~(0x80 >> i % 8);
    sbx_egress_address_print(prefix, text);
    snprintf(text + strlen(text), sizeof text - strlen(text), "/%u", *bits);
    return range(text);
}

/* One of its ends, or next to it, or anywhere. */
static struct sbx_egress_address near(const struct sbx_egress_range *from)
{
    uint64_t choice = next_random() % 5;
    if (choice == 4)
        return random_address();
    struct sbx_egress_address one = choice % 2 == 0 ? from->first : from->last;
    if (choice >= 2) {
        size_t i = one.size;
        int step = choice == 2 ? -1 : 1;
        do {
            i--;
            one.bytes[i] = (uint8_t)(one.bytes[i] + step);
        } while (i > 0 && one.bytes[i] == (step < 0 ? 0xff : 0));
    }
    return one;
}

START_TEST(a_range_and_a_set_of_them_have_exactly_their_addresses)
{
    for (long round = 0; round < tries() / 20; round++) {
        struct sbx_egress_ranges *set = sbx_egress_ranges_new();
        struct sbx_egress_address prefixes[8];
        struct sbx_egress_range all[8];
        unsigned bits[8];
        for (int i = 0; i < 8; i++) {
            all[i] = random_range(&prefixes[i], &bits[i]);
            ck_assert(sbx_egress_ranges_add(set, &all[i]));
        }
        for (int i = 0; i < 40; i++) {
            struct sbx_egress_address one = near(&all[i % 8]);
            bool expected = false;
            for (int k = 0; k < 8; k++) {
                bool plain = plain_has(&prefixes[k], bits[k], &one);
                ck_assert_int_eq(sbx_egress_range_has(&all[k], &one), plain);
                expected |= plain;
            }
            ck_assert_int_eq(sbx_egress_ranges_has(set, &one), expected);
        }
        sbx_egress_ranges_free(set);
    }
}
END_TEST

START_TEST(the_last_of_all_addresses_belongs_to_its_ranges)
{
    static const char *const texts[] = {"240.0.0.0/4", "0.0.0.0/0", "255.255.255.255/32",
                                        "255.255.255.255"};
    struct sbx_egress_address last = address("255.255.255.255");
    for (size_t i = 0; i < 4; i++) {
        struct sbx_egress_range one = range(texts[i]);
        ck_assert_msg(sbx_egress_range_has(&one, &last), "%s", texts[i]);
    }
    struct sbx_egress_range everything = range("::/0");
    last = address("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    ck_assert(sbx_egress_range_has(&everything, &last));
}
END_TEST

START_TEST(the_last_and_the_first_of_all_addresses_are_no_neighbours)
{
    static const char *const orders[][2] = {{"240.0.0.0/4", "0.0.0.0/8"},
                                            {"0.0.0.0/8", "240.0.0.0/4"}};
    for (size_t i = 0; i < 2; i++) {
        struct sbx_egress_ranges *set = sbx_egress_ranges_new();
        for (size_t k = 0; k < 2; k++) {
            struct sbx_egress_range one = range(orders[i][k]);
            ck_assert(sbx_egress_ranges_add(set, &one));
        }
        struct sbx_egress_address between = address("100.0.0.1");
        struct sbx_egress_address low = address("0.0.0.1");
        struct sbx_egress_address high = address("255.0.0.1");
        ck_assert(!sbx_egress_ranges_has(set, &between));
        ck_assert(sbx_egress_ranges_has(set, &low) && sbx_egress_ranges_has(set, &high));
        sbx_egress_ranges_free(set);
    }
}
END_TEST

START_TEST(a_range_is_written_in_one_way)
{
    static const char *const wrong[] = {"10.0.0.1/8",  "10.0.0.0/33", "10.0.0.0/08", "10.0.0.0/",
                                        "10/8",        "/8",          "::/129",      "::1/64",
                                        "10.0.0.0/-1", "10.0.0.0/8 ", "a.example",   ""};
    struct sbx_egress_range out;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        ck_assert_msg(sbx_egress_range_parse(wrong[i], &out) != NULL, "'%s'", wrong[i]);
}
END_TEST

static const char *refused(const char *text, const char *own, const char *permitted)
{
    struct sbx_egress_ranges *never = sbx_egress_ranges_new();
    struct sbx_egress_ranges *opened = sbx_egress_ranges_new();
    struct sbx_egress_address one = address(text);
    struct sbx_egress_range closing = range(own);
    struct sbx_egress_range opening = range(permitted);
    ck_assert(sbx_egress_ranges_add(never, &closing) && sbx_egress_ranges_add(opened, &opening));
    const char *kind = sbx_egress_address_refused(&one, never, opened);
    sbx_egress_ranges_free(never);
    sbx_egress_ranges_free(opened);
    return kind;
}

START_TEST(an_operator_may_open_a_range_but_not_the_proxy_itself)
{
    ck_assert_ptr_null(refused("10.1.2.3", "10.9.9.9", "10.0.0.0/8"));
    ck_assert_str_eq(refused("10.9.9.9", "10.9.9.9", "10.0.0.0/8"), "the proxy's own");
    ck_assert_str_eq(refused("34.1.2.3", "34.1.2.3", "10.0.0.0/8"), "the proxy's own");
    ck_assert_str_eq(refused("192.168.0.1", "34.1.2.3", "10.0.0.0/8"), "private");
    ck_assert_str_eq(refused("::ffff:10.1.2.3", "34.1.2.3", "::/0"), "IPv4-mapped");
    ck_assert_str_eq(refused("::ffff:10.1.2.3", "34.1.2.3", "10.0.0.0/8"), "IPv4-mapped");
    /* Behind NAT64 the carried address counts. */
    ck_assert_ptr_null(refused("64:ff9b::808:808", "34.1.2.3", "64:ff9b::/96"));
    ck_assert_str_eq(refused("64:ff9b::a00:1", "34.1.2.3", "64:ff9b::/96"), "private");
    ck_assert_str_eq(refused("64:ff9b::2201:203", "34.1.2.3", "64:ff9b::/96"), "the proxy's own");
}
END_TEST

START_TEST(socket_addresses_are_read_as_they_are_dialled)
{
    struct sockaddr_in6 ipv6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in ipv4 = {.sin_family = AF_INET, .sin_addr = {htonl(0x7f000001)}};
    struct sockaddr other = {.sa_family = AF_UNIX};
    struct sbx_egress_address one;
    char text[SBX_EGRESS_ADDRESS_TEXT];
    ck_assert(sbx_egress_address_of((struct sockaddr *)&ipv6, &one));
    sbx_egress_address_print(&one, text);
    ck_assert_str_eq(text, "::1");
    ck_assert(sbx_egress_address_of((struct sockaddr *)&ipv4, &one));
    sbx_egress_address_print(&one, text);
    ck_assert_str_eq(text, "127.0.0.1");
    ck_assert(!sbx_egress_address_of(&other, &one));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("egress addresses");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 100);
    tcase_add_checked_fixture(all, load_table, drop_table);
    tcase_add_test(all, every_range_of_the_table_is_refused_to_its_ends);
    tcase_add_test(all, what_the_table_does_not_name_is_public);
    tcase_add_test(all, a_range_and_a_set_of_them_have_exactly_their_addresses);
    tcase_add_test(all, the_last_of_all_addresses_belongs_to_its_ranges);
    tcase_add_test(all, the_last_and_the_first_of_all_addresses_are_no_neighbours);
    tcase_add_test(all, a_range_is_written_in_one_way);
    tcase_add_test(all, an_operator_may_open_a_range_but_not_the_proxy_itself);
    tcase_add_test(all, socket_addresses_are_read_as_they_are_dialled);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
