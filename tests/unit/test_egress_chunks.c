/* The chunked coding of a request's body: exactly what stands there, however it is cut. */

#include "chunks.h"
#include "util/bytes.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>

#define EVERYTHING 65536

/* The body, and the state in which reading it in pieces ends. */
static enum chunks_state read_all(const char *text, size_t piece, char body[EVERYTHING])
{
    struct chunks chunks = {.state = CHUNKS_SIZE};
    struct sbx_bytes out = SBX_BYTES(EVERYTHING);
    size_t size = strlen(text), place = 0;
    while (place < size && chunks.state < CHUNKS_DONE) {
        size_t some = size - place < piece ? size - place : piece;
        place += chunks_read(&chunks, (const uint8_t *)text + place, some, EVERYTHING, &out);
    }
    if (sbx_bytes_size(&out) > 0)
        memcpy(body, sbx_bytes_data(&out), sbx_bytes_size(&out));
    body[sbx_bytes_size(&out)] = '\0';
    sbx_bytes_free(&out);
    return chunks.state;
}

START_TEST(bodies_come_out_whole_wherever_they_are_cut)
{
    static const struct {
        const char *text, *body;
    } good[] = {
        {"0\r\n\r\n", ""},
        {"5\r\nhello\r\n0\r\n\r\n", "hello"},
        {"3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n", "abc0123456789"},
        {"2;name=value\r\nab\r\n0;last\r\n\r\n", "ab"},
        {"1\r\n\n\r\n1\r\n\r\r\n0\r\nHost: evil.test\r\nX: 1\r\n\r\n", "\n\r"},
        {"000000000000001\r\nx\r\n000\r\n\r\n", "x"},
    };
    char body[EVERYTHING];
    for (size_t n = 0; n < sizeof good / sizeof good[0]; n++)
        for (size_t piece = 1; piece < 40; piece++) {
            ck_assert_int_eq(read_all(good[n].text, piece, body), CHUNKS_DONE);
            ck_assert_str_eq(body, good[n].body);
        }
}
END_TEST

START_TEST(what_others_might_read_otherwise_is_refused)
{
    static const char *const bad[] = {
        "0x5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-1\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\rhello",
        "5;a=\nhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "10000000000000005\r\nhello",
        "0\r\nX: 1\n\r\n",
        "0\r\n\n",
        "g\r\n",
        "5;a\x01\r\nhello",
        "0\r\nX\x7f: 1\r\n\r\n",
        ";\r\n",
    };
    char body[EVERYTHING];
    for (size_t n = 0; n < sizeof bad / sizeof bad[0]; n++)
        for (size_t piece = 1; piece < 30; piece++)
            ck_assert_msg(read_all(bad[n], piece, body) == CHUNKS_BAD, "%zu was taken", n);
}
END_TEST

START_TEST(nothing_is_read_past_the_end)
{
    static const char text[] = "1\r\nx\r\n0\r\n\r\nGET / HTTP/1.1\r\n";
    struct chunks chunks = {.state = CHUNKS_SIZE};
    struct sbx_bytes out = SBX_BYTES(16);
    size_t read = chunks_read(&chunks, (const uint8_t *)text, sizeof text - 1, 16, &out);
    ck_assert_uint_eq(read, 11);
    ck_assert_int_eq(chunks.state, CHUNKS_DONE);
    sbx_bytes_free(&out);
}
END_TEST

START_TEST(no_more_comes_out_than_there_is_room_for)
{
    static const char text[] = "8\r\n01234567\r\n0\r\n\r\n";
    struct chunks chunks = {.state = CHUNKS_SIZE};
    struct sbx_bytes out = SBX_BYTES(16);
    size_t read = chunks_read(&chunks, (const uint8_t *)text, sizeof text - 1, 3, &out);
    ck_assert_uint_eq(read, 6);
    ck_assert_uint_eq(sbx_bytes_size(&out), 3);
    read += chunks_read(&chunks, (const uint8_t *)text + read, sizeof text - 1 - read, 13, &out);
    ck_assert_uint_eq(read, sizeof text - 1);
    ck_assert_int_eq(chunks.state, CHUNKS_DONE);
    ck_assert_uint_eq(sbx_bytes_size(&out), 8);
    sbx_bytes_free(&out);
}
END_TEST

START_TEST(extensions_and_trailers_have_a_limit)
{
    static char text[EVERYTHING], body[EVERYTHING];
    memset(text, 'a', sizeof text - 1);
    memcpy(text, "1;", 2);
    ck_assert_int_eq(read_all(text, 1000, body), CHUNKS_BAD);
    memcpy(text, "0\r\n", 3);
    ck_assert_int_eq(read_all(text, 1000, body), CHUNKS_BAD);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("chunks");
    tcase_add_test(cases, bodies_come_out_whole_wherever_they_are_cut);
    tcase_add_test(cases, what_others_might_read_otherwise_is_refused);
    tcase_add_test(cases, nothing_is_read_past_the_end);
    tcase_add_test(cases, no_more_comes_out_than_there_is_room_for);
    tcase_add_test(cases, extensions_and_trailers_have_a_limit);
    Suite *suite = suite_create("chunks");
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
