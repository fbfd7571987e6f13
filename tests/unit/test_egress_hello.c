/* The first message of TLS: limits, what hides a name, and what is kept for the server. */

#include "egress_place.h"

#include <stdlib.h>

#define HOST "api.example.com"

/* A ClientHello under construction, without record and message headers. */
struct hello {
    uint8_t data[SBX_EGRESS_HELLO_MAX * 2];
    size_t size;
};

static void put(struct hello *hello, const void *data, size_t size)
{
    memcpy(hello->data + hello->size, data, size);
    hello->size += size;
}

static void put_number(struct hello *hello, size_t number, size_t bytes)
{
    while (bytes-- > 0)
        hello->data[hello->size++] = (uint8_t)(number >> 8 * bytes);
}

static void put_extension(struct hello *hello, size_t type, const void *data, size_t size)
{
    put_number(hello, type, 2);
    put_number(hello, size, 2);
    put(hello, data, size);
}

static void put_name(struct hello *hello, const char *name)
{
    size_t size = strlen(name);
    put_number(hello, 0, 2);
    put_number(hello, size + 5, 2);
    put_number(hello, size + 3, 2);
    put_number(hello, 0, 1);
    put_number(hello, size, 2);
    put(hello, name, size);
}

static struct hello hello_of(const struct hello *extensions)
{
    static const uint8_t zeroes[32];
    struct hello hello = {.size = 0};
    put_number(&hello, 0x0303, 2);
    put(&hello, zeroes, 32);
    put_number(&hello, 0, 1);
    put_number(&hello, 2, 2);
    put_number(&hello, 0x1301, 2);
    put_number(&hello, 0x0100, 2);
    put_number(&hello, extensions->size, 2);
    put(&hello, extensions->data, extensions->size);
    return hello;
}

/* The message in records of that size. */
static struct hello records_of(const struct hello *body, size_t record)
{
    static struct hello message, records;
    message.size = records.size = 0;
    put_number(&message, 1, 1);
    put_number(&message, body->size, 3);
    put(&message, body->data, body->size);
    for (size_t at = 0; at < message.size; at += record) {
        size_t size = message.size - at < record ? message.size - at : record;
        put_number(&records, 0x160301, 3);
        put_number(&records, size, 2);
        put(&records, message.data + at, size);
    }
    return records;
}

static struct sbx_egress_refusal refusal;

static enum sbx_egress_hello_verdict judge(const void *data, size_t size, enum sbx_egress_ech ech)
{
    struct sbx_egress_host host = egress_host(HOST);
    struct sbx_egress_hello *hello = sbx_egress_hello_new(&host, ech);
    enum sbx_egress_hello_verdict verdict = sbx_egress_hello_feed(hello, data, size, &refusal);
    sbx_egress_hello_free(hello);
    return verdict;
}

static const char *reason_for(const struct hello *extensions, enum sbx_egress_ech ech)
{
    struct hello body = hello_of(extensions);
    struct hello records = records_of(&body, 16384);
    enum sbx_egress_hello_verdict verdict = judge(records.data, records.size, ech);
    return verdict == SBX_EGRESS_HELLO_GOOD ? "" : refusal.reason;
}

START_TEST(each_refusal_has_its_reason)
{
    struct hello good = {.size = 0}, none = {.size = 0}, other = {.size = 0}, two = {.size = 0};
    put_name(&good, "API.example.com");
    put_name(&other, "evil.test");
    put_name(&two, HOST);
    put_name(&two, HOST);
    ck_assert_str_eq(reason_for(&good, SBX_EGRESS_ECH_DENY), "");
    ck_assert_str_eq(reason_for(&none, SBX_EGRESS_ECH_DENY), SBX_EGRESS_NO_SNI);
    ck_assert_str_eq(reason_for(&other, SBX_EGRESS_ECH_DENY), SBX_EGRESS_SNI_MISMATCH);
    ck_assert_str_eq(reason_for(&two, SBX_EGRESS_ECH_DENY), SBX_EGRESS_BAD_HELLO);
    other.data[6] = 1; /* a name, but of another kind than hosts */
    ck_assert_str_eq(reason_for(&other, SBX_EGRESS_ECH_DENY), SBX_EGRESS_BAD_HELLO);
    ck_assert_int_eq(judge("SSH-2.0-x\r\n", 11, SBX_EGRESS_ECH_DENY), SBX_EGRESS_HELLO_REFUSED);
    ck_assert_str_eq(refusal.reason, SBX_EGRESS_NOT_TLS);
    ck_assert_int_eq(refusal.status, 0);
    /* It is told at the first byte: whoever waits for an answer gets one. */
    ck_assert_int_eq(judge("G", 1, SBX_EGRESS_ECH_DENY), SBX_EGRESS_HELLO_REFUSED);
    ck_assert_int_eq(judge("\x16\x02", 2, SBX_EGRESS_ECH_DENY), SBX_EGRESS_HELLO_REFUSED);
    ck_assert_int_eq(judge("\x16\x03\x01\x00\x09\x02", 6, SBX_EGRESS_ECH_DENY),
                     SBX_EGRESS_HELLO_REFUSED);
}
END_TEST

START_TEST(a_hidden_name_passes_only_where_the_policy_says_so)
{
    struct hello outer = {.size = 0}, inner = {.size = 0}, old = {.size = 0};
    put_extension(&outer, 0xfe0d, "\x00\x00\x01", 3);
    put_name(&outer, HOST);
    put_extension(&inner, 0xfe0d, "\x01", 1);
    put_name(&inner, HOST);
    put_extension(&old, 0xffce, "\x00", 1);
    put_name(&old, HOST);
    ck_assert_str_eq(reason_for(&outer, SBX_EGRESS_ECH_DENY), SBX_EGRESS_ECH);
    ck_assert_str_eq(reason_for(&outer, SBX_EGRESS_ECH_ALLOW_GREASE), "");
    ck_assert_str_eq(reason_for(&inner, SBX_EGRESS_ECH_ALLOW_GREASE), SBX_EGRESS_ECH);
    ck_assert_str_eq(reason_for(&old, SBX_EGRESS_ECH_ALLOW_GREASE), SBX_EGRESS_ECH);
    /* Allowed or not, the name that can be seen is the host's. */
    outer.size = 0;
    put_extension(&outer, 0xfe0d, "\x00", 1);
    put_name(&outer, "public.example");
    ck_assert_str_eq(reason_for(&outer, SBX_EGRESS_ECH_ALLOW_GREASE), SBX_EGRESS_SNI_MISMATCH);
}
END_TEST

START_TEST(what_follows_in_the_last_piece_is_kept_and_not_judged)
{
    struct hello extensions = {.size = 0};
    put_name(&extensions, HOST);
    struct hello body = hello_of(&extensions);
    struct hello records = records_of(&body, 50);
    size_t message = records.size;
    put(&records, "\x17\x03\x03\x00\x01!anything", 14);
    struct sbx_egress_host host = egress_host(HOST);
    struct sbx_egress_hello *hello = sbx_egress_hello_new(&host, SBX_EGRESS_ECH_DENY);
    ck_assert_int_eq(sbx_egress_hello_feed(hello, records.data, 60, &refusal),
                     SBX_EGRESS_HELLO_MORE);
    ck_assert_int_eq(sbx_egress_hello_feed(hello, records.data + 60, records.size - 60, &refusal),
                     SBX_EGRESS_HELLO_GOOD);
    size_t size = 0;
    const uint8_t *data = sbx_egress_hello_data(hello, &size);
    ck_assert_uint_eq(size, records.size);
    ck_assert_mem_eq(data, records.data, size);
    ck_assert_uint_eq(sbx_egress_hello_used(hello), message);
    sbx_egress_hello_free(hello);
}
END_TEST

START_TEST(an_empty_record_is_refused_wherever_it_stands)
{
    struct hello extensions = {.size = 0};
    put_name(&extensions, HOST);
    struct hello body = hello_of(&extensions);
    struct hello records = records_of(&body, 50);
    for (size_t at = 0; at <= 55; at += 55) {
        struct hello changed = {.size = 0};
        put(&changed, records.data, at);
        put_number(&changed, 0x160303, 3);
        put_number(&changed, 0, 2);
        put(&changed, records.data + at, records.size - at);
        ck_assert_int_eq(judge(changed.data, changed.size, SBX_EGRESS_ECH_DENY),
                         SBX_EGRESS_HELLO_REFUSED);
        ck_assert_str_eq(refusal.reason, SBX_EGRESS_BAD_HELLO);
        ck_assert_ptr_nonnull(strstr(refusal.text, "length"));
    }
}
END_TEST

START_TEST(a_second_message_in_the_same_record_is_refused)
{
    struct hello extensions = {.size = 0};
    put_name(&extensions, HOST);
    struct hello body = hello_of(&extensions);
    struct hello records = records_of(&body, 16384);
    put_number(&records, 1, 1);
    records.data[4]++;
    ck_assert_int_eq(judge(records.data, records.size, SBX_EGRESS_ECH_DENY),
                     SBX_EGRESS_HELLO_REFUSED);
}
END_TEST

/* A padded one of `size` bytes of body in records of `record` bytes. */
static enum sbx_egress_hello_verdict judge_padded(size_t size, size_t record)
{
    static const uint8_t zeroes[SBX_EGRESS_HELLO_MAX];
    static struct hello extensions;
    extensions.size = 0;
    put_name(&extensions, HOST);
    size_t there = 43 + extensions.size + 4;
    put_extension(&extensions, 21, zeroes, size - there);
    struct hello body = hello_of(&extensions);
    ck_assert_uint_eq(body.size, size);
    struct hello records = records_of(&body, record);
    return judge(records.data, records.size, SBX_EGRESS_ECH_DENY);
}

START_TEST(large_ones_pass_up_to_the_limit)
{
    ck_assert_int_eq(judge_padded(SBX_EGRESS_HELLO_MAX, 16384), SBX_EGRESS_HELLO_GOOD);
    ck_assert_int_eq(judge_padded(SBX_EGRESS_HELLO_MAX + 1, 16384), SBX_EGRESS_HELLO_REFUSED);
    ck_assert_int_eq(judge_padded(508, 1), SBX_EGRESS_HELLO_GOOD);
    ck_assert_int_eq(judge_padded(509, 1), SBX_EGRESS_HELLO_REFUSED);
}
END_TEST

START_TEST(every_cut_and_every_changed_length_is_refused_or_waits)
{
    struct hello extensions = {.size = 0};
    put_extension(&extensions, 10, "\x00\x02\x00\x1d", 4);
    put_name(&extensions, HOST);
    struct hello body = hello_of(&extensions);
    struct hello records = records_of(&body, 16384);
    for (size_t size = 0; size < records.size; size++)
        ck_assert_int_eq(judge(records.data, size, SBX_EGRESS_ECH_DENY), SBX_EGRESS_HELLO_MORE);
    ck_assert_int_eq(judge(records.data, records.size, SBX_EGRESS_ECH_DENY), SBX_EGRESS_HELLO_GOOD);
    /* Lengths: record, message, session, suites, compression, extensions, their contents. */
    static const size_t lengths[] = {4, 8, 43, 45, 48, 51, 55, 57, 63, 65, 68};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (int change = -1; change <= 1; change += 2) {
            records.data[lengths[i]] = (uint8_t)(records.data[lengths[i]] + change);
            bool good =
                judge(records.data, records.size, SBX_EGRESS_ECH_DENY) == SBX_EGRESS_HELLO_GOOD;
            records.data[lengths[i]] = (uint8_t)(records.data[lengths[i]] - change);
            /* The content of an extension that is not looked at may be anything. */
            ck_assert_msg(!good || lengths[i] == 57, "length at %zu, %+d", lengths[i], change);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("egress ClientHello");
    TCase *all = tcase_create("all");
    tcase_add_test(all, each_refusal_has_its_reason);
    tcase_add_test(all, a_hidden_name_passes_only_where_the_policy_says_so);
    tcase_add_test(all, what_follows_in_the_last_piece_is_kept_and_not_judged);
    tcase_add_test(all, an_empty_record_is_refused_wherever_it_stands);
    tcase_add_test(all, a_second_message_in_the_same_record_is_refused);
    tcase_add_test(all, large_ones_pass_up_to_the_limit);
    tcase_add_test(all, every_cut_and_every_changed_length_is_refused_or_waits);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
