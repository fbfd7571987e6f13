/*
 * An answer in pieces of any size: the first byte seeds where it is cut, which changes nothing
 * about what comes out, and no form of a value that stands there whole does.
 */

#include "egress/scrub.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct sbx_egress_policy *policy_of_test(void);
static void scrub_pieces(const uint8_t *data, size_t size, unsigned seed, struct sbx_bytes *out);
static void expect(bool right);

static const char rules_text[] =
    "[{\"match\":{\"host\":\"a.example\",\"headers\":[{\"name\":\"authorization\","
    "\"value_exact\":\"Basic PLACE\"}]},\"set\":{\"authorization\":\"Basic "
    "dXNlcjphYmFiYWJhYmM=\"}},"
    "{\"match\":{\"host\":\"a.example\"},\"set\":{\"x-key\":\"abababab\",\"x-long\":\"ababababab/"
    "\\\"+c\"}}]";

/* What the two values may look like. */
static const char *const forms[] = {
    "abababab",
    "ababababab/\"+c",
    "YWJhYmFiYW",
    "6162616261626162",
    "dXNlcjphYmFiYWJhYmM=",
    "user:ababababc",
    "ababababab%2F%22%2Bc",
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct sbx_bytes whole = SBX_BYTES(1 << 22);
    struct sbx_bytes pieces = SBX_BYTES(1 << 22);
    scrub_pieces(data + 1, size - 1, 0, &whole);
    scrub_pieces(data + 1, size - 1, data[0] + 1U, &pieces);
    expect(sbx_bytes_size(&whole) == sbx_bytes_size(&pieces));
    expect(sbx_bytes_size(&whole) == 0 ||
           memcmp(sbx_bytes_data(&whole), sbx_bytes_data(&pieces), sbx_bytes_size(&whole)) == 0);
    for (size_t i = 0; sbx_bytes_size(&whole) > 0 && i < sizeof forms / sizeof forms[0]; i++)
        expect(memmem(sbx_bytes_data(&whole), sbx_bytes_size(&whole), forms[i], strlen(forms[i])) ==
               NULL);
    sbx_bytes_free(&whole);
    sbx_bytes_free(&pieces);
    return 0;
}

static const struct sbx_egress_policy *policy_of_test(void)
{
    static struct sbx_egress_policy *policy;
    if (policy != NULL)
        return policy;
    static const uint8_t key[SBX_EGRESS_DIGEST_KEY] = {1};
    struct sbx_egress_policy *empty = sbx_egress_policy_new(key);
    cJSON *rules = cJSON_Parse(rules_text);
    const struct sbx_egress_change change = {NULL, rules, NULL};
    expect(sbx_egress_policy_change(empty, &change, &policy, NULL) == SANDBOX_OK);
    cJSON_Delete(rules);
    sbx_egress_policy_drop(empty);
    return policy;
}

/* Seed 0: in one piece. */
static void scrub_pieces(const uint8_t *data, size_t size, unsigned seed, struct sbx_bytes *out)
{
    struct sbx_egress_host host;
    struct sbx_egress_scrub *scrub = NULL;
    expect(sbx_egress_host_read("a.example", 9, &host) == NULL);
    expect(sbx_egress_scrub_new(policy_of_test(), &host, &scrub, NULL) == SANDBOX_OK);
    for (size_t at = 0; at < size;) {
        seed = seed * 1103515245U + (seed == 0 ? 0 : 12345U);
        size_t piece = seed == 0 ? size : 1 + (seed >> 16) % 24;
        piece = piece > size - at ? size - at : piece;
        expect(sbx_egress_scrub_feed(scrub, data + at, piece, out));
        at += piece;
    }
    expect(sbx_egress_scrub_end(scrub, out));
    sbx_egress_scrub_free(scrub);
}

static void expect(bool right)
{
    if (!right)
        abort();
}
